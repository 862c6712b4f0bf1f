// Cases of the convolutions over one to three axes, of the two ops that are their gradients, and of the
// transposed convolutions.
#include "tandem/ops/conv.h"

#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

struct Conv {
  const char* name;
  Dims x, weight;
  Dims stride, padding, dilation;  // one number for all axes or one for each; none = the default
  int64_t groups = 1;
};

template <class Option = PerAxis>
Option per_axis(const Dims& d, Dim fallback) {
  switch (d.rank()) {
    case 0:
      return fallback;
    case 1:
      return d[0];
    case 2:
      return {d[0], d[1]};
    default:
      return {d[0], d[1], d[2]};
  }
}
Dim along(const Dims& d, int axis, Dim fallback) {
  return d.rank() == 0 ? fallback : d.rank() == 1 ? d[0] : d[axis];
}

Dims out_shape(const Conv& v) {
  Dims out{v.x[0], v.weight[0]};
  for (int i = 0; i < v.x.rank() - 2; ++i)
    out.push_back(
        (v.x[2 + i] + 2 * along(v.padding, i, 0) - along(v.dilation, i, 1) * (v.weight[2 + i] - 1) - 1) /
            along(v.stride, i, 1) +
        1);
  return out;
}

/// Calls f(output index, input index, weight index) for every product of the convolution into `out`.
void each_product(const Conv& v, const Dims& out,
                  const std::function<void(const Dims&, const Dims&, const Dims&)>& f) {
  const int axes = v.x.rank() - 2;
  Dims window{v.weight[1]};
  for (int i = 0; i < axes; ++i) window.push_back(v.weight[2 + i]);
  each_index(out, [&](const Dims& o) {
    each_index(window, [&](const Dims& k) {
      Dims x{o[0], o[1] / (v.weight[0] / v.groups) * v.weight[1] + k[0]}, w{o[1], k[0]};
      bool inside = true;
      for (int i = 0; i < axes; ++i) {
        x.push_back(o[2 + i] * along(v.stride, i, 1) - along(v.padding, i, 0) +
                    k[1 + i] * along(v.dilation, i, 1));
        w.push_back(k[1 + i]);
        inside = inside && x[2 + i] >= 0 && x[2 + i] < v.x[2 + i];
      }
      if (inside) f(o, x, w);
    });
  });
}

Axes3 axes3(const Dims& d, int axes, Dim fallback) {
  return per_axis(d, fallback).over(axes, "test", "it", fallback);
}
Axes3 sizes3(const Dims& shape) {
  Axes3 out{{1, 1, 1}};
  for (int i = 2; i < shape.rank(); ++i) out[i + 3 - shape.rank()] = shape[i];
  return out;
}
ConvAttrs attrs_of(const Conv& v) {
  const int axes = v.x.rank() - 2;
  return {axes3(v.stride, axes, 1), axes3(v.padding, axes, 0), axes3(v.dilation, axes, 1), v.groups};
}

Tensor call_conv(const Conv& v, std::span<const Tensor> in) {
  const ConvOptions options{per_axis(v.stride, 1), per_axis<Padding>(v.padding, 0), per_axis(v.dilation, 1),
                            v.groups};
  const Tensor bias = in.size() > 2 ? in[2] : Tensor();
  return v.x.rank() == 3   ? conv1d(in[0], in[1], bias, options)
         : v.x.rank() == 4 ? conv2d(in[0], in[1], bias, options)
                           : conv3d(in[0], in[1], bias, options);
}

void add_conv(std::vector<OpCase>& cases, const Conv& v) {
  const Dims out = out_shape(v);
  const std::string kind = str("conv", v.x.rank() - 2, "d");
  OpCase forward;
  forward.name = str(kind, v.name);
  forward.inputs = {{v.x}, {v.weight}, {{v.weight[0]}}};
  forward.call = [v](std::span<const Tensor> in) { return call_conv(v, in); };
  forward.reference = [v, out](std::span<const Array> in) {
    Array y(out);
    each_index(out, [&](const Dims& i) { y.at(i) = in[2][i[1]]; });
    each_product(v, out,
                 [&](const Dims& i, const Dims& x, const Dims& w) { y.at(i) += in[0].at(x) * in[1].at(w); });
    return y;
  };
  forward.tolerance = 1e-5;
  forward.half_ulps = 16;
  cases.push_back(forward);

  OpCase to_input = forward;
  to_input.name = str(kind, "_input_gradient", v.name);
  to_input.inputs = {{out}, {v.weight}};
  to_input.call = [v](std::span<const Tensor> in) {
    ConvAttrs attrs = attrs_of(v);
    attrs.size = sizes3(v.x);
    return apply1(op_conv_input_gradient(), {in[0], in[1]}, attrs);
  };
  to_input.reference = [v, out](std::span<const Array> in) {
    Array gradient(v.x);
    each_product(v, out, [&](const Dims& i, const Dims& x, const Dims& w) {
      gradient.at(x) += in[0].at(i) * in[1].at(w);
    });
    return gradient;
  };
  cases.push_back(to_input);

  OpCase to_weight = forward;
  to_weight.name = str(kind, "_weight_gradient", v.name);
  to_weight.inputs = {{out}, {v.x}};
  to_weight.call = [v](std::span<const Tensor> in) {
    ConvAttrs attrs = attrs_of(v);
    attrs.kernel = sizes3(v.weight);
    return apply1(op_conv_weight_gradient(), {in[0], in[1]}, attrs);
  };
  to_weight.reference = [v, out](std::span<const Array> in) {
    Array gradient(v.weight);
    each_product(v, out, [&](const Dims& i, const Dims& x, const Dims& w) {
      gradient.at(w) += in[0].at(i) * in[1].at(x);
    });
    return gradient;
  };
  to_weight.tolerance = 4e-5;
  cases.push_back(to_weight);
}

/// The transposed convolution of `x` by `weight`: v describes the convolution from its result (v.x) to x.
void add_transpose(std::vector<OpCase>& cases, const char* name, const Dims& x, const Conv& v,
                   const ConvTransposeOptions& options) {
  OpCase c;
  c.name = str("conv_transpose", x.rank() - 2, "d", name);
  c.inputs = {{x}, {v.weight}, {{v.x[1]}}};
  c.call = [options](std::span<const Tensor> in) {
    return in[0].rank() == 3   ? conv_transpose1d(in[0], in[1], in[2], options)
           : in[0].rank() == 4 ? conv_transpose2d(in[0], in[1], in[2], options)
                               : conv_transpose3d(in[0], in[1], in[2], options);
  };
  c.reference = [v, x](std::span<const Array> in) {
    Array y(v.x);
    each_index(v.x, [&](const Dims& i) { y.at(i) = in[2][i[1]]; });
    each_product(
        v, x, [&](const Dims& o, const Dims& to, const Dims& w) { y.at(to) += in[0].at(o) * in[1].at(w); });
    return y;
  };
  c.tolerance = 1e-5;
  c.half_ulps = 16;
  cases.push_back(c);
}

}  // namespace

void add_conv_cases(std::vector<OpCase>& cases) {
  const Conv variants[] = {
      {"", {2, 2, 5, 6}, {3, 2, 3, 3}, {}, {}, {}},
      {"/padded", {2, 2, 5, 4}, {3, 2, 3, 3}, {}, {1}, {}},
      {"/strided", {2, 2, 7, 6}, {2, 2, 3, 3}, {2}, {1}, {}},
      {"/dilated", {1, 2, 7, 7}, {2, 2, 3, 3}, {}, {2}, {2}},
      {"/groups", {2, 4, 5, 5}, {6, 2, 3, 3}, {}, {1}, {}, 2},
      {"/depthwise", {2, 3, 5, 5}, {3, 1, 3, 3}, {}, {1}, {}, 3},
      {"/one_by_one", {2, 5, 4, 3}, {4, 5, 1, 1}, {}, {}, {}},
      {"/one_by_one_strided", {2, 3, 5, 5}, {4, 3, 1, 1}, {2}, {}, {}},
      {"/flat_kernel", {2, 2, 4, 7}, {2, 2, 1, 5}, {}, {}, {}},
      {"/whole_image", {2, 3, 4, 4}, {5, 3, 4, 4}, {}, {}, {}},
      {"/empty", {0, 2, 5, 5}, {3, 2, 3, 3}, {}, {}, {}},
      {"/lenet_first", {3, 1, 28, 28}, {6, 1, 5, 5}, {}, {2}, {}},
      {"/lenet_second", {3, 6, 14, 14}, {16, 6, 5, 5}, {}, {}, {}},
      {"/many_channels", {2, 33, 9, 10}, {35, 33, 3, 3}, {}, {1}, {}},
      {"/each_axis", {2, 2, 9, 11}, {3, 2, 3, 2}, {2, 3}, {2, 1}, {1, 3}},
      {"/each_axis_groups", {2, 4, 6, 9}, {4, 2, 2, 3}, {1, 2}, {0, 3}, {2, 1}, 2},
      {"/depthwise_strided", {2, 3, 7, 9}, {3, 1, 3, 3}, {2, 1}, {1, 2}, {1, 2}, 3},
      {"/depthwise_multiplied", {2, 3, 6, 5}, {6, 1, 3, 3}, {}, {1}, {}, 3},
      {"/depthwise_wide", {2, 4, 14, 19}, {4, 1, 3, 3}, {}, {1}, {}, 4},
      {"", {2, 3, 9}, {4, 3, 3}, {}, {}, {}},
      {"/every_option", {2, 4, 13}, {6, 2, 3}, {2}, {3}, {2}, 2},
      {"/empty", {0, 4, 13}, {6, 4, 3}, {}, {}, {}},
      {"", {2, 2, 4, 5, 6}, {3, 2, 2, 3, 3}, {}, {}, {}},
      {"/each_axis", {1, 2, 5, 6, 7}, {2, 2, 3, 2, 3}, {2, 1, 2}, {1, 0, 2}, {1, 2, 1}},
      {"/groups", {2, 4, 3, 4, 5}, {4, 2, 2, 2, 3}, {1}, {1}, {1}, 2},
      {"/flat", {2, 3, 1, 5, 5}, {2, 3, 1, 3, 3}, {}, {0, 1, 1}, {}},
      {"/empty", {0, 2, 3, 4, 5}, {2, 2, 2, 2, 2}, {}, {}, {}},
  };
  for (const Conv& v : variants) add_conv(cases, v);

  OpCase plain;
  plain.name = "conv2d/no_bias";
  plain.inputs = {{{2, 2, 5, 6}}, {{3, 2, 3, 3}}};
  plain.call = [](std::span<const Tensor> in) { return conv2d(in[0], in[1]); };
  plain.reference = [](std::span<const Array> in) {
    Array y(Dims{2, 3, 3, 4});
    each_product({"", {2, 2, 5, 6}, {3, 2, 3, 3}, {}, {}, {}}, y.shape,
                 [&](const Dims& i, const Dims& x, const Dims& w) { y.at(i) += in[0].at(x) * in[1].at(w); });
    return y;
  };
  plain.tolerance = 1e-5;
  plain.half_ulps = 16;
  cases.push_back(plain);

  OpCase same = plain;  // an even kernel: one more zero at the end
  same.name = "conv2d/same";
  same.inputs = {{{2, 2, 5, 6}}, {{3, 2, 2, 3}}};
  same.call = [](std::span<const Tensor> in) {
    return conv2d(in[0], in[1], {}, {.padding = "same", .dilation = {1, 2}});
  };
  same.reference = [](std::span<const Array> in) {
    Array y(Dims{2, 3, 5, 6});
    each_product({"", {2, 2, 5, 6}, {3, 2, 2, 3}, {}, {0, 2}, {1, 2}}, y.shape,
                 [&](const Dims& i, const Dims& x, const Dims& w) { y.at(i) += in[0].at(x) * in[1].at(w); });
    return y;
  };
  cases.push_back(same);

  add_transpose(cases, "", {2, 3, 4, 5}, {"", {2, 2, 6, 7}, {3, 2, 3, 3}, {}, {}, {}}, {});
  add_transpose(cases, "/strided", {2, 3, 4, 3}, {"", {2, 2, 8, 7}, {3, 2, 3, 3}, {2, 3}, {1}, {}},
                {.stride = {2, 3}, .padding = 1, .output_padding = {1, 0}});
  add_transpose(cases, "/groups", {1, 4, 3, 4}, {"", {1, 6, 6, 7}, {4, 3, 2, 3}, {1, 1}, {0, 1}, {3, 2}, 2},
                {.padding = {0, 1}, .output_padding = {0, 1}, .dilation = {3, 2}, .groups = 2});
  add_transpose(cases, "", {2, 3, 5}, {"", {2, 2, 11}, {3, 2, 4}, {2}, {1}, {}},
                {.stride = 2, .padding = 1, .output_padding = 1});
  add_transpose(cases, "", {1, 2, 2, 3, 3}, {"", {1, 2, 4, 5, 4}, {2, 2, 3, 3, 2}, {2, 1, 2}, {1, 0, 1}, {}},
                {.stride = {2, 1, 2}, .padding = {1, 0, 1}, .output_padding = {1, 0, 0}});
  add_transpose(cases, "/empty", {0, 3, 4, 5}, {"", {0, 2, 6, 7}, {3, 2, 3, 3}, {}, {}, {}}, {});
}

}  // namespace tandem::testing
