// CPU kernels of the ops conv, conv_input_gradient and conv_weight_gradient: sizes, the list of implementations and the
// choice among them, and convolutions with a depth axis.
#include "tandem/backends/cpu/kernels/conv.h"

#include <algorithm>

#include "tandem/backends/cpu/backend.h"
#include "tandem/backends/cpu/gemm_bf16.h"
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/device.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {

// The list: one row per implementation, the most wanted first; each is a function that its file defines.
// clang-format off
#define TD_CONV_IMPLEMENTATIONS(row) \
  row(few_pixels_conv)               \
  row(winograd_conv)                 \
  row(pointwise_conv)                \
  row(bf16_conv)                     \
  row(im2col_conv)                   \
  row(weight_product_conv)           \
  row(input_product_conv)            \
  row(direct_conv)
// clang-format on

#define TD_ROW(implementation) const ConvImplementation& implementation();
TD_CONV_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW

namespace {

const char* name(ConvOp op) {
  return (op == ConvOp::forward          ? op_conv()
          : op == ConvOp::input_gradient ? op_conv_input_gradient()
                                         : op_conv_weight_gradient())
      .name;
}

Chooser<ConvProblem, ConvCall>& chooser() {
  static const ConvImplementation* const rows[] = {
#define TD_ROW(implementation) &implementation(),
      TD_CONV_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW
  };
  static auto& all = *new Chooser<ConvProblem, ConvCall>(rows);
  return all;
}

/// All that the time of a call depends on: its key in the table of choices.
std::string words_of(const ConvProblem& p) {
  const ConvShape& s = p.shape;
  return str(name(p.op), " ", name(p.dtype), " x ", s.n, "x", s.c, "x", s.h, "x", s.w, " weight ", s.o, "x",
             s.group_in(), "x", s.kh, "x", s.kw, " stride ", s.stride_h, "x", s.stride_w, " padding ",
             s.padding_h, "x", s.padding_w, " dilation ", s.dilation_h, "x", s.dilation_w, " groups ",
             s.groups, " y ", s.oh, "x", s.ow, "; ", isa_level(), " kernels, ", words_of_bf16(p.dtype),
             processor());
}

void compute(const ConvCall& call) {
  const ConvolutionChoice choice = convolution_choice();
  const auto by_time = [&](const auto& list) -> const ConvImplementation& {
    return list.by_time(call.problem, words_of(call.problem), choice.keep,
                        [&](const ConvImplementation& row) { return host_seconds([&] { row.run(call); }); });
  };
  chooser().choose(choice.mode, call.problem, by_time).run(call);
}

/// An empty sum: the bias alone, or zero.
template <class S>
void fill_bias(const ConvShape& s, const S* bias, S* y) {
  const int64_t plane = s.oh * s.ow;
  for (int64_t i = 0; i < s.n * s.o * plane; ++i) y[i] = bias ? bias[i / plane % s.o] : S();
}

template <class S>
void forward(const ConvShape& s, const S* x, const S* weight, const S* bias, S* y) {
  if (s.empty()) return fill_bias(s, bias, y);
  compute({{ConvOp::forward, dtype_of<S>(), s}, x, weight, bias, y});
}

template <class S>
void input_gradient(const ConvShape& s, const S* g, const S* weight, S* dx) {
  if (s.empty()) return (void)std::fill_n(dx, s.n * s.c * s.h * s.w, S());
  compute({{ConvOp::input_gradient, dtype_of<S>(), s}, g, weight, nullptr, dx});
}

template <class S>
void weight_gradient(const ConvShape& s, const S* g, const S* x, S* dw) {
  if (s.empty()) return (void)std::fill_n(dw, s.o * s.taps(), S());
  compute({{ConvOp::weight_gradient, dtype_of<S>(), s}, g, x, nullptr, dw});
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
      // One task per input plane: it looks for the (z, k) that read the plane, so that no two tasks add to one
      // element.
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

/// The workspace of the three: x unfolded, y by planes, the weights and (forward) the bias, in the accumulator's type.
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

/// The list for a call. The three ops hold x, weight and y in different places.
template <ConvOp op>
Candidates candidates(const KernelArgs& args) {
  const Buffer &in0 = args.in[0], &in1 = args.in[1], &out = args.out[0];
  const Volume v = op == ConvOp::forward          ? volume_of(args, in0, in1, out)
                   : op == ConvOp::input_gradient ? volume_of(args, out, in1, in0)
                                                  : volume_of(args, in1, out, in0);
  // Volumes are computed in the accumulator's type.
  const DType dtype = out.dtype == DType::f64 || !is_deep(v) ? out.dtype : DType::f32;
  return chooser().report(convolution_choice().mode, {op, dtype, v.flat});
}

}  // namespace

void register_conv_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  chooser();  // made at start, in no fork's way
  op_conv().kernels[kCpu] = &conv;
  op_conv_input_gradient().kernels[kCpu] = &conv_input_gradient;
  op_conv_weight_gradient().kernels[kCpu] = &conv_weight_gradient;
  op_conv().candidates[kCpu] = &candidates<ConvOp::forward>;
  op_conv_input_gradient().candidates[kCpu] = &candidates<ConvOp::input_gradient>;
  op_conv_weight_gradient().candidates[kCpu] = &candidates<ConvOp::weight_gradient>;
}

}  // namespace tandem::cpu::TD_ISA
