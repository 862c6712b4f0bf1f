// CPU kernels of the ops conv2d, conv2d_input_gradient and conv2d_weight_gradient: sizes, choice of algorithm,
// and the pointwise algorithm, which is a matrix product an image.
#include "tandem/backends/cpu/kernels/conv.h"

#include <cstring>

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

enum class Algorithm { pointwise, im2col, direct };

bool is_pointwise(const ConvShape& s) {
  return s.kh == 1 && s.kw == 1 && s.stride == 1 && s.padding == 0 && s.group_in() >= 4 && s.group_out() >= 4;
}

Algorithm choose(ConvOp op, const ConvShape& s) {
  if (op == ConvOp::weight_gradient) return Algorithm::direct;
  if (is_pointwise(s)) return Algorithm::pointwise;
  if (op == ConvOp::input_gradient) return Algorithm::direct;
  // The direct kernel spends whole vectors on each output row; im2col gathers every element it reads. It pays
  // where less than 5 of 8 lanes would do work and enough output channels share what was gathered.
  const int64_t lanes = ceil_div(s.ow, kLanes<float>) * kLanes<float>;
  return 8 * s.ow < 5 * lanes && s.group_out() >= 16 ? Algorithm::im2col : Algorithm::direct;
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

ConvShape shape_of(const KernelArgs& args, const int64_t* x, const int64_t* weight, const int64_t* y) {
  const auto& a = args.attributes<ConvAttrs>();
  return {x[0], x[1], x[2],     x[3],      weight[0],  weight[2], weight[3],
          y[2], y[3], a.stride, a.padding, a.dilation, a.groups};
}

/// True, with zeros in the output, where there is nothing to sum.
bool fill_if_empty(const ConvShape& s, const Buffer& out) {
  if (!s.empty()) return false;
  if (out.size() > 0) std::memset(out.data, 0, static_cast<size_t>(out.size()) * bytes_of(out.dtype));
  return true;
}

void conv2d(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const ConvShape s = shape_of(args, args.in[0].shape, args.in[1].shape, out.shape);
  visit_floating(out.dtype, [&](auto zero) {
    using S = decltype(zero);
    const S* x = args.in[0].as<const S>();
    const S* weight = args.in[1].as<const S>();
    const S* bias = args.n_in > 2 ? args.in[2].as<const S>() : nullptr;
    S* y = out.as<S>();
    if (fill_if_empty(s, out)) {
      if (bias && out.size() > 0)
        for (int64_t i = 0; i < out.size(); ++i) y[i] = bias[i / (s.oh * s.ow) % s.o];
      return;
    }
    switch (choose(ConvOp::forward, s)) {
      case Algorithm::pointwise:
        return pointwise(s, x, weight, bias, y);
      case Algorithm::im2col:
        return conv_im2col(s, x, weight, bias, y);
      case Algorithm::direct:
        return conv_direct(s, x, weight, bias, y);
    }
  });
}

void conv2d_input_gradient(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const ConvShape s = shape_of(args, out.shape, args.in[1].shape, args.in[0].shape);
  if (fill_if_empty(s, out)) return;
  visit_floating(out.dtype, [&](auto zero) {
    using S = decltype(zero);
    const S* g = args.in[0].as<const S>();
    const S* weight = args.in[1].as<const S>();
    if (choose(ConvOp::input_gradient, s) == Algorithm::pointwise)
      pointwise_input_gradient(s, g, weight, out.as<S>());
    else
      conv_direct_input_gradient(s, g, weight, out.as<S>());
  });
}

void conv2d_weight_gradient(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  ConvShape s = shape_of(args, args.in[1].shape, out.shape, args.in[0].shape);
  if (fill_if_empty(s, out)) return;
  if (is_pointwise(s)) {  // all pixels of a plane are one row
    s.w = s.ow = s.h * s.w;
    s.h = s.oh = 1;
  }
  visit_floating(out.dtype, [&](auto zero) {
    using S = decltype(zero);
    conv_direct_weight_gradient(s, args.in[0].as<const S>(), args.in[1].as<const S>(), out.as<S>());
  });
}

/// The name of the algorithm of a call. The three ops hold x, weight and y in different places.
template <ConvOp op>
const char* algorithm(const KernelArgs& args) {
  const int64_t *in0 = args.in[0].shape, *in1 = args.in[1].shape, *out = args.out[0].shape;
  const ConvShape shape = op == ConvOp::forward          ? shape_of(args, in0, in1, out)
                          : op == ConvOp::input_gradient ? shape_of(args, out, in1, in0)
                                                         : shape_of(args, in1, out, in0);
  switch (choose(op, shape)) {
    case Algorithm::pointwise:
      return "pointwise 1x1";
    case Algorithm::im2col:
      return "im2col";
    case Algorithm::direct:
      break;
  }
  return "direct";
}

}  // namespace

void register_conv_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  op_conv2d().kernels[kCpu] = &conv2d;
  op_conv2d_input_gradient().kernels[kCpu] = &conv2d_input_gradient;
  op_conv2d_weight_gradient().kernels[kCpu] = &conv2d_weight_gradient;
  op_conv2d().algorithm[kCpu] = &algorithm<ConvOp::forward>;
  op_conv2d_input_gradient().algorithm[kCpu] = &algorithm<ConvOp::input_gradient>;
  op_conv2d_weight_gradient().algorithm[kCpu] = &algorithm<ConvOp::weight_gradient>;
}

}  // namespace tandem::cpu::TD_ISA
