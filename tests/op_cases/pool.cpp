// Cases of max pooling and of the two ops that its gradients are made of.
#include "tandem/ops/pool.h"

#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

struct Pool {
  const char* name;
  Dims x;
  Pool2dOptions options;
};

Dim step_of(const Pool2dOptions& o) { return o.stride ? o.stride : o.kernel; }

Dims out_shape(const Dims& x, const Pool2dOptions& o) {
  const auto size = [&](Dim n) { return (n + 2 * o.padding - o.kernel) / step_of(o) + 1; };
  return {x[0], x[1], size(x[2]), size(x[3])};
}

/// The index of the winner of each window: the first among equals.
Dims winner(const Array& x, const Dims& i, const Pool2dOptions& o) {
  Dims best{i[0], i[1], -1, -1};
  for (Dim kh = 0; kh < o.kernel; ++kh)
    for (Dim kw = 0; kw < o.kernel; ++kw) {
      const Dim h = i[2] * step_of(o) - o.padding + kh, w = i[3] * step_of(o) - o.padding + kw;
      if (h < 0 || w < 0 || h >= x.shape[2] || w >= x.shape[3]) continue;
      if (best[2] < 0 || x.at({i[0], i[1], h, w}) > x.at(best)) best[2] = h, best[3] = w;
    }
  return best;
}

PoolAttrs attrs_of(const Pool& v) {
  PoolAttrs attrs;
  attrs.kernel = v.options.kernel;
  attrs.stride = step_of(v.options);
  attrs.padding = v.options.padding;
  return attrs;
}

void add_pool(std::vector<OpCase>& cases, const Pool& v) {
  const Dims out = out_shape(v.x, v.options);
  OpCase forward;
  forward.name = cat("max_pool2d", v.name);
  forward.inputs = {{v.x}};
  forward.call = [v](std::span<const Tensor> in) { return max_pool2d(in[0], v.options); };
  forward.reference = [v, out](std::span<const Array> in) {
    Array y(out);
    each_index(out, [&](const Dims& i) { y.at(i) = in[0].at(winner(in[0], i, v.options)); });
    return y;
  };
  forward.tolerance = 0;
  cases.push_back(forward);

  OpCase scatter = forward;  // the positions come from pooling the second input
  scatter.name = cat("max_pool2d_scatter", v.name);
  scatter.inputs = {{out}, {v.x}};
  scatter.call = [v](std::span<const Tensor> in) {
    const Tensor positions = apply(op_max_pool2d(), std::span(&in[1], 1), attrs_of(v))[1];
    PoolAttrs attrs = attrs_of(v);
    attrs.height = v.x[2], attrs.width = v.x[3];
    return apply1(op_max_pool2d_scatter(), {in[0], positions}, attrs);
  };
  scatter.reference = [v, out](std::span<const Array> in) {
    Array y(v.x);
    each_index(out, [&](const Dims& i) { y.at(winner(in[1], i, v.options)) += in[0].at(i); });
    return y;
  };
  scatter.tolerance = 1e-6;
  cases.push_back(scatter);

  OpCase gather = forward;
  gather.name = cat("max_pool2d_gather", v.name);
  gather.inputs = {{v.x}, {v.x}};
  gather.call = [v](std::span<const Tensor> in) {
    const Tensor positions = apply(op_max_pool2d(), std::span(&in[1], 1), attrs_of(v))[1];
    return apply1(op_max_pool2d_gather(), {in[0], positions}, attrs_of(v));
  };
  gather.reference = [v, out](std::span<const Array> in) {
    Array y(out);
    each_index(out, [&](const Dims& i) { y.at(i) = in[0].at(winner(in[1], i, v.options)); });
    return y;
  };
  cases.push_back(gather);
}

}  // namespace

void add_pool_cases(std::vector<OpCase>& cases) {
  const Pool variants[] = {
      {"", {2, 2, 4, 6}, {}},
      {"/overlapping", {1, 2, 7, 7}, {.kernel = 3, .stride = 2, .padding = 1}},
      {"/cropped", {2, 1, 5, 7}, {.kernel = 2}},
      {"/stride_one", {1, 1, 5, 5}, {.kernel = 3, .stride = 1}},
      {"/empty", {0, 2, 4, 4}, {}},
      {"/larger", {4, 6, 28, 28}, {}},
  };
  for (const Pool& v : variants) add_pool(cases, v);
}

}  // namespace tandem::testing
