// CPU kernels of the ops conv, conv_input_gradient and conv_weight_gradient: sizes, choice of algorithm,
// and the pointwise algorithm, which is a matrix product an image.
#include "tandem/backends/cpu/kernels/conv.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <tuple>
#include <vector>

#include "tandem/backends/cpu/backend.h"
#include "tandem/backends/cpu/gemm_bf16.h"
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/choice_cache.h"
#include "tandem/core/device.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kFewestBf16Rows = 24;  // from where on bf16 products were faster than the direct kernel

enum class Algorithm { direct, im2col, pointwise, winograd, bf16 };

const char* name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::im2col:
      return "im2col";
    case Algorithm::pointwise:
      return "pointwise 1x1";
    case Algorithm::winograd:
      return "winograd 2x4";
    case Algorithm::bf16:
      return "bf16 products";
    case Algorithm::direct:
      break;
  }
  return "direct";
}

const char* name(ConvOp op) {
  return (op == ConvOp::forward          ? op_conv()
          : op == ConvOp::input_gradient ? op_conv_input_gradient()
                                         : op_conv_weight_gradient())
      .name;
}

bool is_pointwise(const ConvShape& s) {
  return s.kh == 1 && s.kw == 1 && s.stride_h == 1 && s.stride_w == 1 && s.padding_h == 0 &&
         s.padding_w == 0 && s.oh == s.h && s.ow == s.w && s.group_in() >= 4 && s.group_out() >= 4;
}

bool can_be_winograd(const ConvShape& s, DType dtype) {
  return dtype == DType::f32 && s.kh == 3 && s.kw == 3 && s.stride_h == 1 && s.stride_w == 1 &&
         s.dilation_h == 1 && s.dilation_w == 1 && s.padding_h <= 2 && s.padding_w <= 2 && s.groups == 1;
}
/// Whether enough channels share the transforms, and enough tiles keep the threads at work.
bool pays_as_winograd(ConvOp op, const ConvShape& s) {
  const int64_t least = op == ConvOp::weight_gradient ? 80 : 48;  // from where on it was faster than direct
  const int64_t tiles = ceil_div(s.oh, 2) * ceil_div(s.ow, 4);
  return s.c >= 16 && s.o >= 16 && s.c + s.o >= least && s.n * tiles >= 192 && s.oh * s.ow >= 4 * tiles;
}

bool can_be_bf16(DType dtype) { return dtype == DType::bf16 && bf16_kernel(); }
/// Whether enough rows of the product share what is gathered, and sums are long enough.
bool pays_in_bf16(ConvOp op, const ConvShape& s) {
  const int64_t rows = op == ConvOp::input_gradient ? s.group_in() : s.group_out();
  const int64_t sums = op == ConvOp::forward          ? s.taps()
                       : op == ConvOp::input_gradient ? s.group_out() * s.kh * s.kw
                                                      : s.n * s.oh * s.ow;
  return rows >= kFewestBf16Rows && sums >= kShallowestBf16;
}

/// The algorithms that can compute this; the first does everything.
std::vector<Algorithm> able(ConvOp op, const ConvShape& s, DType dtype) {
  std::vector<Algorithm> list{Algorithm::direct};
  if (op == ConvOp::forward) list.push_back(Algorithm::im2col);
  if (op != ConvOp::weight_gradient && is_pointwise(s)) list.push_back(Algorithm::pointwise);
  if (can_be_winograd(s, dtype)) list.push_back(Algorithm::winograd);
  if (can_be_bf16(dtype)) list.push_back(Algorithm::bf16);
  return list;
}

Algorithm by_rule(ConvOp op, const ConvShape& s, DType dtype) {
  if (can_be_winograd(s, dtype) && pays_as_winograd(op, s)) return Algorithm::winograd;
  if (op != ConvOp::weight_gradient && is_pointwise(s)) return Algorithm::pointwise;
  if (can_be_bf16(dtype) && pays_in_bf16(op, s)) return Algorithm::bf16;
  if (op == ConvOp::weight_gradient) return Algorithm::direct;
  if (op == ConvOp::input_gradient) return Algorithm::direct;
  // The direct kernel spends whole vectors on each output row; im2col gathers every element it reads. It pays
  // where less than 5 of 8 lanes would do work and enough output channels share what was gathered.
  const int64_t lanes = ceil_div(s.ow, kLanes<float>) * kLanes<float>;
  return 8 * s.ow < 5 * lanes && s.group_out() >= 16 ? Algorithm::im2col : Algorithm::direct;
}

/// What was chosen by time.
ChoiceCache<std::tuple<ConvOp, DType, ConvShape>, std::optional<Algorithm>>& profiled() {
  static auto& cache = *new ChoiceCache<std::tuple<ConvOp, DType, ConvShape>, std::optional<Algorithm>>;
  return cache;
}
[[maybe_unused]] const auto& g_made_at_start = profiled();  // in no fork's way

/// The fastest by the table of choices, or found by running each.
template <class Run>
Algorithm by_time(ConvOp op, const ConvShape& s, DType dtype, const Run& run) {
  const std::vector<Algorithm> list = able(op, s, dtype);
  if (list.size() == 1) return list[0];
  std::vector<std::string> names;
  for (const Algorithm a : list) names.push_back(name(a));
  const std::string what =
      cat(name(op), " ", name(dtype), " x ", s.n, "x", s.c, "x", s.h, "x", s.w, " weight ", s.o, "x",
          s.group_in(), "x", s.kh, "x", s.kw, " stride ", s.stride_h, "x", s.stride_w, " padding ",
          s.padding_h, "x", s.padding_w, " dilation ", s.dilation_h, "x", s.dilation_w, " groups ", s.groups,
          " y ", s.oh, "x", s.ow, "; ", isa_level(), " kernels, ",
          can_be_bf16(dtype) ? cat(bf16_kernel()->name, ", ") : "", processor());
  return list[choose_by_time(what, names, [&](size_t i) {
    const auto begin = std::chrono::steady_clock::now();
    run(list[i]);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  })];
}

/// run(algorithm) computes the call.
template <class Run>
void run_chosen(ConvOp op, const ConvShape& s, DType dtype, const Run& run) {
  const ChoiceMode mode = convolution_choice().mode;
  if (mode == ChoiceMode::heuristic) return run(by_rule(op, s, dtype));
  if (mode == ChoiceMode::fixed) return run(Algorithm::direct);
  run(*profiled().get({op, dtype, s}, [&] { return std::optional(by_time(op, s, dtype, run)); }));
}

template <class S>
void pointwise(const ConvShape& s, const S* x, const S* weight, const S* bias, S* y) {
  const int64_t cg = s.group_in(), og = s.group_out(), pixels = s.h * s.w;
  parallel_for(s.n * s.groups, [&](int64_t i) {
    const int64_t g = i % s.groups;
    gemm<S>(og, pixels, cg, {weight + g * og * cg, cg, 1}, {x + i * cg * pixels, pixels, 1},
            y + i * og * pixels, pixels, {bias ? bias + g * og : nullptr, nullptr});
  });
}

template <class S>
void pointwise_input_gradient(const ConvShape& s, const S* g, const S* weight, S* dx) {
  const int64_t cg = s.group_in(), og = s.group_out(), pixels = s.h * s.w;
  parallel_for(s.n * s.groups, [&](int64_t i) {
    gemm<S>(cg, pixels, og, {weight + i % s.groups * og * cg, 1, cg}, {g + i * og * pixels, pixels, 1},
            dx + i * cg * pixels, pixels, {});
  });
}

template <class S>
void fill_bias(const ConvShape& s, const S* bias, S* y) {
  const int64_t plane = s.oh * s.ow;
  for (int64_t i = 0; i < s.n * s.o * plane; ++i) y[i] = bias ? bias[i / plane % s.o] : S();
}

template <class S>
void forward(const ConvShape& s, const S* x, const S* weight, const S* bias, S* y) {
  if (s.empty()) return fill_bias(s, bias, y);
  run_chosen(ConvOp::forward, s, dtype_of<S>(), [&](Algorithm algorithm) {
    if (algorithm == Algorithm::pointwise) return pointwise(s, x, weight, bias, y);
    if (algorithm == Algorithm::im2col) return conv_im2col(s, x, weight, bias, y);
    if constexpr (std::is_same_v<S, float>)
      if (algorithm == Algorithm::winograd) return conv_winograd(s, x, weight, bias, y);
    if constexpr (std::is_same_v<S, BFloat16>)
      if (algorithm == Algorithm::bf16) return conv_bf16(s, x, weight, bias, y);
    conv_direct(s, x, weight, bias, y);
  });
}

template <class S>
void input_gradient(const ConvShape& s, const S* g, const S* weight, S* dx) {
  if (s.empty()) return (void)std::fill_n(dx, s.n * s.c * s.h * s.w, S());
  run_chosen(ConvOp::input_gradient, s, dtype_of<S>(), [&](Algorithm algorithm) {
    if (algorithm == Algorithm::pointwise) return pointwise_input_gradient(s, g, weight, dx);
    if constexpr (std::is_same_v<S, float>)
      if (algorithm == Algorithm::winograd) return conv_winograd_input_gradient(s, g, weight, dx);
    if constexpr (std::is_same_v<S, BFloat16>)
      if (algorithm == Algorithm::bf16) return conv_bf16_input_gradient(s, g, weight, dx);
    conv_direct_input_gradient(s, g, weight, dx);
  });
}

template <class S>
void weight_gradient(const ConvShape& s, const S* g, const S* x, S* dw) {
  if (s.empty()) return (void)std::fill_n(dw, s.o * s.taps(), S());
  run_chosen(ConvOp::weight_gradient, s, dtype_of<S>(), [&](Algorithm algorithm) {
    if constexpr (std::is_same_v<S, float>)
      if (algorithm == Algorithm::winograd) return conv_winograd_weight_gradient(s, g, x, dw);
    ConvShape flat = s;
    if (is_pointwise(s)) {  // all pixels of a plane are one row
      flat.w = flat.ow = s.h * s.w;
      flat.h = flat.oh = 1;
    }
    if constexpr (std::is_same_v<S, BFloat16>)
      if (algorithm == Algorithm::bf16) return conv_bf16_weight_gradient(flat, g, x, dw);
    conv_direct_weight_gradient(flat, g, x, dw);
  });
}

/// A convolution with a depth axis as one without: output plane z of image n is a convolution of the kernel
/// depth's input planes, as channels. So image (n, z) has channels (c, kernel depth), which is how the weights
/// lie, and everything below is copies of planes. Works in the accumulator's type, so that sums over the depth
/// are rounded once.
struct Volume {
  ConvShape flat;  // of image (n, z)
  int64_t n, c, d, kd, od;
  WindowAxis along;

  int64_t plane() const { return flat.h * flat.w; }
  int64_t out_plane() const { return flat.oh * flat.ow; }
  int64_t x_size() const { return flat.n * flat.c * plane(); }
  int64_t y_size() const { return flat.n * flat.o * out_plane(); }
  int64_t weight_size() const { return flat.o * flat.taps(); }
  /// The input plane under kernel plane k at output plane z; outside 0 … d - 1 it is padding.
  int64_t depth(int64_t z, int64_t k) const { return z * along.stride - along.padding + k * along.dilation; }

  template <class T, class S>
  void unfold(const S* x, T* to) const {  // (n, c, d, plane) -> (n, z, c, k, plane)
    parallel_for(n * od * c, [&](int64_t i) {
      const int64_t image = i / c / od, z = i / c % od, channel = i % c;
      for (int64_t k = 0; k < kd; ++k) {
        T* const at = to + (i * kd + k) * plane();
        const int64_t from = depth(z, k);
        if (from >= 0 && from < d)
          copy_row(at, x + ((image * c + channel) * d + from) * plane(), plane(), 1);
        else
          std::fill_n(at, plane(), T());
      }
    });
  }
  template <class T, class S>
  void fold(const T* from, S* x) const {  // its adjoint; sums in order of z
    parallel_for(n * c * d, [&](int64_t i) {
      const int64_t image = i / d / c, channel = i / d % c;
      T* sums = scratch_of<T>(ScratchSlot::conv_tile, plane());
      std::fill_n(sums, plane(), T());
      for (int64_t z = 0; z < od; ++z)
        for (int64_t k = 0; k < kd; ++k)
          if (depth(z, k) == i % d) {
            const T* add = from + (((image * od + z) * c + channel) * kd + k) * plane();
            for (int64_t j = 0; j < plane(); ++j) sums[j] += add[j];
          }
      convert(x + i * plane(), sums, plane());
    });
  }
  template <class T, class S>
  void swap_out(const S* y, T* to) const {  // (n, o, z, plane) -> (n, z, o, plane)
    parallel_for(flat.n * flat.o, [&](int64_t i) {
      const int64_t image = i / flat.o / od, z = i / flat.o % od, o = i % flat.o;
      copy_row(to + i * out_plane(), y + ((image * flat.o + o) * od + z) * out_plane(), out_plane(), 1);
    });
  }
  template <class T, class S>
  void swap_back(const T* from, S* y) const {
    parallel_for(flat.n * flat.o, [&](int64_t i) {
      const int64_t image = i / flat.o / od, z = i / flat.o % od, o = i % flat.o;
      convert(y + ((image * flat.o + o) * od + z) * out_plane(), from + i * out_plane(), out_plane());
    });
  }
};

template <class S>
void volume_forward(const KernelArgs& args, const Volume& v, const S* x, const S* weight, const S* bias,
                    S* y) {
  using T = Accumulator<S>;
  T* xs = static_cast<T*>(
      args.workspace(sizeof(T) * static_cast<size_t>(v.x_size() + v.y_size() + v.weight_size() + v.flat.o)));
  T *ys = xs + v.x_size(), *ws = ys + v.y_size(), *bs = ws + v.weight_size();
  v.unfold(x, xs);
  convert(ws, weight, v.weight_size());
  if (bias) convert(bs, bias, v.flat.o);
  forward<T>(v.flat, xs, ws, bias ? bs : nullptr, ys);
  v.swap_back(ys, y);
}

template <class S>
void volume_input_gradient(const KernelArgs& args, const Volume& v, const S* g, const S* weight, S* dx) {
  using T = Accumulator<S>;
  T* xs = static_cast<T*>(
      args.workspace(sizeof(T) * static_cast<size_t>(v.x_size() + v.y_size() + v.weight_size())));
  T *gs = xs + v.x_size(), *ws = gs + v.y_size();
  v.swap_out(g, gs);
  convert(ws, weight, v.weight_size());
  input_gradient<T>(v.flat, gs, ws, xs);
  v.fold(xs, dx);
}

template <class S>
void volume_weight_gradient(const KernelArgs& args, const Volume& v, const S* g, const S* x, S* dw) {
  using T = Accumulator<S>;
  T* xs = static_cast<T*>(
      args.workspace(sizeof(T) * static_cast<size_t>(v.x_size() + v.y_size() + v.weight_size())));
  T *gs = xs + v.x_size(), *ws = gs + v.y_size();
  v.swap_out(g, gs);
  v.unfold(x, xs);
  weight_gradient<T>(v.flat, gs, xs, ws);
  convert(dw, ws, v.weight_size());
}

/// Sizes of a call, x, weight and y of rank 3 to 5. `flat` is the whole convolution where no axis is deep.
Volume volume_of(const KernelArgs& args, const Buffer& x, const Buffer& weight, const Buffer& y) {
  const auto& a = args.attributes<ConvAttrs>();
  // Spatial size `axis` (0 depth, 1 height, 2 width) of a buffer.
  const auto size = [](const Buffer& b, int axis) {
    const int at = b.rank - 3 + axis;
    return at < 2 ? int64_t{1} : b.shape[at];
  };
  const int64_t kd = size(weight, 0), od = size(y, 0);
  const ConvShape flat{x.shape[0] * od, x.shape[1] * kd, size(x, 1),      size(x, 2),
                       weight.shape[0], size(weight, 1), size(weight, 2), size(y, 1),
                       size(y, 2),      a.stride[1],     a.stride[2],     a.padding[1],
                       a.padding[2],    a.dilation[1],   a.dilation[2],   a.groups};
  return {flat, x.shape[0], x.shape[1], size(x, 0), kd, od, {kd, a.stride[0], a.padding[0], a.dilation[0]}};
}
/// True where the convolution has a depth axis that does anything.
bool is_deep(const Volume& v) { return v.d != 1 || v.kd != 1 || v.od != 1 || v.along.padding != 0; }

void conv(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const Volume v = volume_of(args, args.in[0], args.in[1], out);
  visit_floating(out.dtype, [&](auto zero) {
    using S = decltype(zero);
    const S* x = args.in[0].as<const S>();
    const S* weight = args.in[1].as<const S>();
    const S* bias = args.n_in > 2 ? args.in[2].as<const S>() : nullptr;
    if (is_deep(v))
      volume_forward(args, v, x, weight, bias, out.as<S>());
    else
      forward(v.flat, x, weight, bias, out.as<S>());
  });
}

void conv_input_gradient(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const Volume v = volume_of(args, out, args.in[1], args.in[0]);
  visit_floating(out.dtype, [&](auto zero) {
    using S = decltype(zero);
    if (is_deep(v))
      volume_input_gradient(args, v, args.in[0].as<const S>(), args.in[1].as<const S>(), out.as<S>());
    else
      input_gradient(v.flat, args.in[0].as<const S>(), args.in[1].as<const S>(), out.as<S>());
  });
}

void conv_weight_gradient(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const Volume v = volume_of(args, args.in[1], out, args.in[0]);
  visit_floating(out.dtype, [&](auto zero) {
    using S = decltype(zero);
    if (is_deep(v))
      volume_weight_gradient(args, v, args.in[0].as<const S>(), args.in[1].as<const S>(), out.as<S>());
    else
      weight_gradient(v.flat, args.in[0].as<const S>(), args.in[1].as<const S>(), out.as<S>());
  });
}

/// The name of the algorithm of a call. The three ops hold x, weight and y in different places.
template <ConvOp op>
std::string algorithm(const KernelArgs& args) {
  const Buffer &in0 = args.in[0], &in1 = args.in[1], &out = args.out[0];
  const Volume v = op == ConvOp::forward          ? volume_of(args, in0, in1, out)
                   : op == ConvOp::input_gradient ? volume_of(args, out, in1, in0)
                                                  : volume_of(args, in1, out, in0);
  // Volumes are computed in the accumulator's type.
  const DType dtype = out.dtype == DType::f64 || !is_deep(v) ? out.dtype : DType::f32;
  switch (convolution_choice().mode) {
    case ChoiceMode::fixed:
      break;
    case ChoiceMode::heuristic:
      return name(by_rule(op, v.flat, dtype));
    case ChoiceMode::profile:
      if (const auto found = profiled().find({op, dtype, v.flat}, std::nullopt)) return name(*found);
      return "not timed yet";
  }
  return name(Algorithm::direct);
}

}  // namespace

void register_conv_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  op_conv().kernels[kCpu] = &conv;
  op_conv_input_gradient().kernels[kCpu] = &conv_input_gradient;
  op_conv_weight_gradient().kernels[kCpu] = &conv_weight_gradient;
  op_conv().algorithm[kCpu] = &algorithm<ConvOp::forward>;
  op_conv_input_gradient().algorithm[kCpu] = &algorithm<ConvOp::input_gradient>;
  op_conv_weight_gradient().algorithm[kCpu] = &algorithm<ConvOp::weight_gradient>;
}

}  // namespace tandem::cpu::TD_ISA
