// Cases of the two-dimensional convolution and of the two ops that are its gradients.
#include "tandem/ops/conv.h"

#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

struct Conv {
  const char* name;
  Dims x, weight;
  Conv2dOptions options;
};

Dim out_size(Dim in, Dim kernel, const Conv2dOptions& o) {
  return (in + 2 * o.padding - o.dilation * (kernel - 1) - 1) / o.stride + 1;
}

/// Calls f(output index, input index, weight index) for every product of the convolution.
void each_product(const Dims& x, const Dims& w, const Conv2dOptions& o,
                  const std::function<void(const Dims&, const Dims&, const Dims&)>& f) {
  const Dim oh = out_size(x[2], w[2], o), ow = out_size(x[3], w[3], o);
  const Dim out_per_group = w[0] / o.groups;
  each_index({x[0], w[0], oh, ow}, [&](const Dims& i) {
    for (Dim c = 0; c < w[1]; ++c)
      for (Dim kh = 0; kh < w[2]; ++kh)
        for (Dim kw = 0; kw < w[3]; ++kw) {
          const Dim h = i[2] * o.stride - o.padding + kh * o.dilation;
          const Dim v = i[3] * o.stride - o.padding + kw * o.dilation;
          if (h < 0 || v < 0 || h >= x[2] || v >= x[3]) continue;
          f(i, {i[0], i[1] / out_per_group * w[1] + c, h, v}, {i[1], c, kh, kw});
        }
  });
}

ConvAttrs attrs_of(const Conv& v) {
  ConvAttrs attrs;
  attrs.stride = v.options.stride;
  attrs.padding = v.options.padding;
  attrs.dilation = v.options.dilation;
  attrs.groups = v.options.groups;
  return attrs;
}

void add_conv(std::vector<OpCase>& cases, const Conv& v) {
  const Dims out{v.x[0], v.weight[0], out_size(v.x[2], v.weight[2], v.options),
                 out_size(v.x[3], v.weight[3], v.options)};
  OpCase forward;
  forward.name = cat("conv2d", v.name);
  forward.inputs = {{v.x}, {v.weight}, {{v.weight[0]}}};
  forward.call = [v](std::span<const Tensor> in) { return conv2d(in[0], in[1], in[2], v.options); };
  forward.reference = [v, out](std::span<const Array> in) {
    Array y(out);
    each_index(out, [&](const Dims& i) { y.at(i) = in[2][i[1]]; });
    each_product(in[0].shape, in[1].shape, v.options,
                 [&](const Dims& i, const Dims& x, const Dims& w) { y.at(i) += in[0].at(x) * in[1].at(w); });
    return y;
  };
  forward.tolerance = 1e-5;
  forward.half_ulps = 16;
  cases.push_back(forward);

  OpCase to_input = forward;
  to_input.name = cat("conv2d_input_gradient", v.name);
  to_input.inputs = {{out}, {v.weight}};
  to_input.call = [v](std::span<const Tensor> in) {
    ConvAttrs attrs = attrs_of(v);
    attrs.height = v.x[2], attrs.width = v.x[3];
    return apply1(op_conv2d_input_gradient(), {in[0], in[1]}, attrs);
  };
  to_input.reference = [v](std::span<const Array> in) {
    Array gradient(v.x);
    each_product(v.x, v.weight, v.options, [&](const Dims& i, const Dims& x, const Dims& w) {
      gradient.at(x) += in[0].at(i) * in[1].at(w);
    });
    return gradient;
  };
  cases.push_back(to_input);

  OpCase to_weight = forward;
  to_weight.name = cat("conv2d_weight_gradient", v.name);
  to_weight.inputs = {{out}, {v.x}};
  to_weight.call = [v](std::span<const Tensor> in) {
    ConvAttrs attrs = attrs_of(v);
    attrs.kernel_height = v.weight[2], attrs.kernel_width = v.weight[3];
    return apply1(op_conv2d_weight_gradient(), {in[0], in[1]}, attrs);
  };
  to_weight.reference = [v](std::span<const Array> in) {
    Array gradient(v.weight);
    each_product(v.x, v.weight, v.options, [&](const Dims& i, const Dims& x, const Dims& w) {
      gradient.at(w) += in[0].at(i) * in[1].at(x);
    });
    return gradient;
  };
  to_weight.tolerance = 4e-5;
  cases.push_back(to_weight);
}

}  // namespace

void add_conv_cases(std::vector<OpCase>& cases) {
  const Conv variants[] = {
      {"", {2, 2, 5, 6}, {3, 2, 3, 3}, {}},
      {"/padded", {2, 2, 5, 4}, {3, 2, 3, 3}, {.padding = 1}},
      {"/strided", {2, 2, 7, 6}, {2, 2, 3, 3}, {.stride = 2, .padding = 1}},
      {"/dilated", {1, 2, 7, 7}, {2, 2, 3, 3}, {.padding = 2, .dilation = 2}},
      {"/groups", {2, 4, 5, 5}, {6, 2, 3, 3}, {.padding = 1, .groups = 2}},
      {"/depthwise", {2, 3, 5, 5}, {3, 1, 3, 3}, {.padding = 1, .groups = 3}},
      {"/one_by_one", {2, 5, 4, 3}, {4, 5, 1, 1}, {}},
      {"/one_by_one_strided", {2, 3, 5, 5}, {4, 3, 1, 1}, {.stride = 2}},
      {"/flat_kernel", {2, 2, 4, 7}, {2, 2, 1, 5}, {.padding = 0}},
      {"/whole_image", {2, 3, 4, 4}, {5, 3, 4, 4}, {}},
      {"/empty", {0, 2, 5, 5}, {3, 2, 3, 3}, {}},
      {"/lenet_first", {3, 1, 28, 28}, {6, 1, 5, 5}, {.padding = 2}},
      {"/lenet_second", {3, 6, 14, 14}, {16, 6, 5, 5}, {}},
      {"/many_channels", {2, 33, 9, 10}, {35, 33, 3, 3}, {.padding = 1}},
  };
  for (const Conv& v : variants) add_conv(cases, v);
  OpCase plain;
  plain.name = "conv2d/no_bias";
  plain.inputs = {{{2, 2, 5, 6}}, {{3, 2, 3, 3}}};
  plain.call = [](std::span<const Tensor> in) { return conv2d(in[0], in[1]); };
  plain.reference = [](std::span<const Array> in) {
    Array y(Dims{2, 3, 3, 4});
    each_product(in[0].shape, in[1].shape, {},
                 [&](const Dims& i, const Dims& x, const Dims& w) { y.at(i) += in[0].at(x) * in[1].at(w); });
    return y;
  };
  plain.tolerance = 1e-5;
  plain.half_ulps = 16;
  cases.push_back(plain);
}

}  // namespace tandem::testing
