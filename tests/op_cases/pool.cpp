// Cases of the pools over one to three axes, and of the ops that their gradients are made of.
#include "tandem/ops/pool.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/windows.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

/// The windows of one axis, as lists of elements; padding stands as -1.
using Windows = std::vector<std::vector<Dim>>;

Windows windows(Dim size, Dim kernel, Dim stride, Dim padding = 0, Dim dilation = 1, bool ceil = false) {
  Windows list;
  for (Dim start = -padding;; start += stride) {
    const Dim last = start + dilation * (kernel - 1);
    if (ceil ? (start >= size || last - stride >= size + padding - 1) : last >= size + padding) break;
    std::vector<Dim> window;
    for (Dim k = 0; k < kernel; ++k) {
      const Dim at = start + k * dilation;
      if (at < size + padding) window.push_back(at >= 0 && at < size ? at : -1);
    }
    list.push_back(window);
  }
  return list;
}
Windows adaptive(Dim size, Dim out) {
  Windows list;
  for (Dim i = 0; i < out; ++i) {
    std::vector<Dim> window;
    for (Dim j = 0; j < size; ++j)
      if (j * out < (i + 1) * size && (j + 1) * out > i * size) window.push_back(j);
    list.push_back(window);
  }
  return list;
}

struct Pool {
  std::string name;
  Dims x;
  std::vector<Windows> axes;
  std::function<Tensor(const Tensor&)> call;
};

Dims out_shape(const Pool& v) {
  Dims out{v.x[0], v.x[1]};
  for (const Windows& axis : v.axes) out.push_back(static_cast<Dim>(axis.size()));
  return out;
}

/// Calls f(place of x) for the elements of the window at output place o, in order; counts padding too.
Dim each_element(const Pool& v, const Dims& o, const std::function<void(const Dims&)>& f) {
  Dims counts;
  for (size_t i = 0; i < v.axes.size(); ++i)
    counts.push_back(static_cast<Dim>(v.axes[i][static_cast<size_t>(o[static_cast<int>(i) + 2])].size()));
  Dim count = 0;
  each_index(counts, [&](const Dims& k) {
    Dims at{o[0], o[1]};
    bool inside = true;
    for (size_t i = 0; i < v.axes.size(); ++i) {
      const int axis = static_cast<int>(i);
      at.push_back(v.axes[i][static_cast<size_t>(o[axis + 2])][static_cast<size_t>(k[axis])]);
      inside = inside && at[axis + 2] >= 0;
    }
    if (inside) f(at);
    ++count;
  });
  return count;
}

/// The index of the winner of each window: the first among equals.
Dims winner(const Array& x, const Pool& v, const Dims& o) {
  Dims best;
  each_element(v, o, [&](const Dims& at) {
    if (best.rank() == 0 || x.at(at) > x.at(best)) best = at;
  });
  return best;
}

OpCase max_case(const Pool& v) {
  OpCase c;
  c.name = v.name;
  c.inputs = {{v.x}};
  c.call = [v](std::span<const Tensor> in) { return v.call(in[0]); };
  c.reference = [v](std::span<const Array> in) {
    Array y(out_shape(v));
    each_index(y.shape, [&](const Dims& i) { y.at(i) = in[0].at(winner(in[0], v, i)); });
    return y;
  };
  c.tolerance = 0;
  return c;
}

/// Scatter and gather by the places that pooling the second input gives.
void add_companions(std::vector<OpCase>& cases, const Pool& v, const std::string& variant,
                    const PoolAttrs& attrs) {
  const auto places = [attrs](const Tensor& x) { return apply(op_max_pool(), std::span(&x, 1), attrs)[1]; };
  OpCase scatter = max_case(v);
  scatter.name = str("max_pool_scatter", variant);
  scatter.inputs = {{out_shape(v)}, {v.x}};
  scatter.call = [v, attrs, places](std::span<const Tensor> in) {
    PoolAttrs large = attrs;
    for (int i = 2; i < v.x.rank(); ++i) large.size[i + 3 - v.x.rank()] = v.x[i];
    return apply1(op_max_pool_scatter(), {in[0], places(in[1])}, large);
  };
  scatter.reference = [v](std::span<const Array> in) {
    Array y(v.x);
    each_index(in[0].shape, [&](const Dims& i) { y.at(winner(in[1], v, i)) += in[0].at(i); });
    return y;
  };
  scatter.tolerance = 1e-6;
  cases.push_back(scatter);

  OpCase gather = max_case(v);
  gather.name = str("max_pool_gather", variant);
  gather.inputs = {{v.x}, {v.x}};
  gather.call = [attrs, places](std::span<const Tensor> in) {
    return apply1(op_max_pool_gather(), {in[0], places(in[1])}, attrs);
  };
  gather.reference = [v](std::span<const Array> in) {
    Array y(out_shape(v));
    each_index(y.shape, [&](const Dims& i) { y.at(i) = in[0].at(winner(in[1], v, i)); });
    return y;
  };
  cases.push_back(gather);
}

OpCase mean_case(const Pool& v, bool include_pad, Dim divisor = 0) {
  OpCase c = max_case(v);
  c.reference = [v, include_pad, divisor](std::span<const Array> in) {
    Array y(out_shape(v));
    each_index(y.shape, [&](const Dims& i) {
      Dim inside = 0;
      const Dim all = each_element(v, i, [&](const Dims& at) {
        y.at(i) += in[0].at(at);
        ++inside;
      });
      y.at(i) /= static_cast<double>(divisor ? divisor : include_pad ? all : inside);
    });
    return y;
  };
  c.tolerance = 2e-6;
  return c;
}

/// The places of the winners, as numbers.
OpCase places_case(const Pool& v) {
  OpCase c = max_case(v);
  c.gradient = c.second_order = false;
  c.reference = [v](std::span<const Array> in) {
    Array y(out_shape(v));
    each_index(y.shape, [&](const Dims& i) {
      const Dims at = winner(in[0], v, i);
      double place = 0;
      for (int axis = 2; axis < at.rank(); ++axis)
        place = place * static_cast<double>(v.x[axis]) + static_cast<double>(at[axis]);
      y.at(i) = place;
    });
    return y;
  };
  return c;
}

Axes3 two(Dim h, Dim w, Dim unused) { return {{unused, h, w}}; }

}  // namespace

void add_pool_cases(std::vector<OpCase>& cases) {
  const Pool plain{"max_pool2d", {2, 2, 4, 6}, {windows(4, 2, 2), windows(6, 2, 2)}, [](const Tensor& x) {
                     return max_pool2d(x);
                   }};
  const Pool overlapping{
      "max_pool2d/overlapping",
      {1, 2, 7, 7},
      {windows(7, 3, 2, 1), windows(7, 3, 2, 1)},
      [](const Tensor& x) { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); }};
  const Pool shared{
      "adaptive_max_pool2d", {2, 2, 7, 5}, {adaptive(7, 3), adaptive(5, 4)}, [](const Tensor& x) {
        return adaptive_max_pool2d(x, {3, 4});
      }};
  for (const Pool& v : {plain, overlapping, shared}) cases.push_back(max_case(v));
  const Axes3 ones{{1, 1, 1}}, zeros{{0, 0, 0}};
  add_companions(cases, plain, "", {two(2, 2, 1), two(2, 2, 1), zeros, ones, two(2, 3, 1)});
  add_companions(cases, overlapping, "/overlapping",
                 {two(3, 3, 1), two(2, 2, 1), two(1, 1, 0), ones, two(4, 4, 1)});
  add_companions(cases, shared, "/adaptive", {zeros, ones, zeros, ones, two(3, 4, 1)});

  Pool none = plain;
  none.x[0] = 0;
  add_companions(cases, none, "/empty", {two(2, 2, 1), two(2, 2, 1), zeros, ones, two(2, 3, 1)});

  const Pool maxima[] = {
      {"max_pool2d/cropped",
       {2, 1, 5, 7},
       {windows(5, 2, 2), windows(7, 2, 2)},
       [](const Tensor& x) { return max_pool2d(x, {.kernel = 2}); }},
      {"max_pool2d/stride_one",
       {1, 1, 5, 5},
       {windows(5, 3, 1), windows(5, 3, 1)},
       [](const Tensor& x) { return max_pool2d(x, {.kernel = 3, .stride = 1}); }},
      {"max_pool2d/empty",
       {0, 2, 4, 4},
       {windows(4, 2, 2), windows(4, 2, 2)},
       [](const Tensor& x) { return max_pool2d(x); }},
      {"max_pool2d/larger",
       {4, 6, 28, 28},
       {windows(28, 2, 2), windows(28, 2, 2)},
       [](const Tensor& x) { return max_pool2d(x); }},
      {"max_pool2d/every_option",
       {2, 2, 8, 9},
       {windows(8, 3, 2, 1, 2, true), windows(9, 2, 3, 1, 1, true)},
       [](const Tensor& x) {
         return max_pool2d(
             x, {.kernel = {3, 2}, .stride = {2, 3}, .padding = 1, .dilation = {2, 1}, .ceil_mode = true});
       }},
      {"max_pool2d/ceil",
       {1, 2, 5, 7},
       {windows(5, 2, 2, 0, 1, true), windows(7, 2, 2, 0, 1, true)},
       [](const Tensor& x) { return max_pool2d(x, {.ceil_mode = true}); }},
      {"max_pool1d",
       {2, 3, 11},
       {windows(11, 3, 2, 1)},
       [](const Tensor& x) { return max_pool1d(x, {.kernel = 3, .stride = 2, .padding = 1}); }},
      {"max_pool3d",
       {1, 2, 5, 4, 6},
       {windows(5, 2, 1), windows(4, 3, 2, 1), windows(6, 2, 2)},
       [](const Tensor& x) {
         return max_pool3d(x, {.kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {0, 1, 0}});
       }},
      {"adaptive_max_pool1d",
       {2, 3, 10},
       {adaptive(10, 4)},
       [](const Tensor& x) { return adaptive_max_pool1d(x, 4); }},
      {"adaptive_max_pool3d",
       {1, 2, 4, 5, 3},
       {adaptive(4, 2), adaptive(5, 3), adaptive(3, 1)},
       [](const Tensor& x) {
         return adaptive_max_pool3d(x, {2, 3, 1});
       }},
  };
  for (const Pool& v : maxima) cases.push_back(max_case(v));

  const auto as = [](const std::pair<Tensor, Tensor>& p) { return cast(p.second, p.first.dtype()); };
  const Pool places[] = {
      {"max_pool1d_with_indices",
       {2, 3, 11},
       {windows(11, 3, 2, 1)},
       [as](const Tensor& x) {
         return as(max_pool1d_with_indices(x, {.kernel = 3, .stride = 2, .padding = 1}));
       }},
      {"max_pool2d_with_indices",
       {2, 2, 7, 6},
       {windows(7, 3, 2), windows(6, 2, 2)},
       [as](const Tensor& x) {
         return as(max_pool2d_with_indices(x, {.kernel = {3, 2}, .stride = 2}));
       }},
      {"max_pool3d_with_indices",
       {1, 2, 4, 4, 5},
       {windows(4, 2, 2), windows(4, 2, 2), windows(5, 2, 2)},
       [as](const Tensor& x) { return as(max_pool3d_with_indices(x)); }},
      {"adaptive_max_pool1d_with_indices",
       {2, 2, 7},
       {adaptive(7, 3)},
       [as](const Tensor& x) { return as(adaptive_max_pool1d_with_indices(x, 3)); }},
      {"adaptive_max_pool2d_with_indices",
       {2, 2, 7, 5},
       {adaptive(7, 3), adaptive(5, 2)},
       [as](const Tensor& x) {
         return as(adaptive_max_pool2d_with_indices(x, {3, 2}));
       }},
      {"adaptive_max_pool3d_with_indices",
       {1, 2, 3, 4, 5},
       {adaptive(3, 2), adaptive(4, 2), adaptive(5, 2)},
       [as](const Tensor& x) { return as(adaptive_max_pool3d_with_indices(x, 2)); }},
  };
  for (const Pool& v : places) cases.push_back(places_case(v));

  cases.push_back(mean_case({"avg_pool2d",
                             {2, 2, 4, 6},
                             {windows(4, 2, 2), windows(6, 2, 2)},
                             [](const Tensor& x) { return avg_pool2d(x); }},
                            true));
  cases.push_back(mean_case({"avg_pool2d/padded",
                             {2, 2, 7, 6},
                             {windows(7, 3, 2, 1), windows(6, 2, 1, 1)},
                             [](const Tensor& x) {
                               return avg_pool2d(x, {.kernel = {3, 2}, .stride = {2, 1}, .padding = 1});
                             }},
                            true));
  cases.push_back(mean_case({"avg_pool2d/ceil",
                             {2, 2, 8, 7},
                             {windows(8, 3, 2, 1, 1, true), windows(7, 3, 2, 1, 1, true)},
                             [](const Tensor& x) {
                               return avg_pool2d(x,
                                                 {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true});
                             }},
                            true));
  cases.push_back(mean_case(
      {"avg_pool2d/without_padding",
       {2, 2, 8, 7},
       {windows(8, 3, 2, 1, 1, true), windows(7, 3, 2, 1, 1, true)},
       [](const Tensor& x) {
         return avg_pool2d(
             x, {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false});
       }},
      false));
  cases.push_back(mean_case({"avg_pool2d/divisor",
                             {1, 2, 5, 5},
                             {windows(5, 3, 1), windows(5, 2, 3)},
                             [](const Tensor& x) {
                               return avg_pool2d(x, {.kernel = {3, 2}, .stride = {1, 3}, .divisor = 5});
                             }},
                            true, 5));
  cases.push_back(mean_case({"avg_pool2d/empty",
                             {0, 2, 4, 6},
                             {windows(4, 2, 2), windows(6, 2, 2)},
                             [](const Tensor& x) { return avg_pool2d(x); }},
                            true));
  cases.push_back(mean_case({"avg_pool2d/gaps",
                             {2, 2, 9, 9},
                             {windows(9, 2, 4), windows(9, 1, 3)},
                             [](const Tensor& x) {
                               return avg_pool2d(x, {.kernel = {2, 1}, .stride = {4, 3}});
                             }},
                            true));
  cases.push_back(
      mean_case({"avg_pool1d",
                 {2, 3, 10},
                 {windows(10, 3, 2, 1)},
                 [](const Tensor& x) { return avg_pool1d(x, {.kernel = 3, .stride = 2, .padding = 1}); }},
                true));
  cases.push_back(
      mean_case({"avg_pool3d",
                 {1, 2, 4, 5, 6},
                 {windows(4, 2, 2), windows(5, 3, 1, 1), windows(6, 2, 2)},
                 [](const Tensor& x) {
                   return avg_pool3d(x, {.kernel = {2, 3, 2}, .stride = {2, 1, 2}, .padding = {0, 1, 0}});
                 }},
                true));
  cases.push_back(mean_case({"adaptive_avg_pool1d",
                             {2, 3, 10},
                             {adaptive(10, 4)},
                             [](const Tensor& x) { return adaptive_avg_pool1d(x, 4); }},
                            false));
  cases.push_back(mean_case({"adaptive_avg_pool2d",
                             {2, 2, 7, 5},
                             {adaptive(7, 3), adaptive(5, 8)},
                             [](const Tensor& x) {
                               return adaptive_avg_pool2d(x, {3, 8});
                             }},
                            false));
  cases.push_back(mean_case({"adaptive_avg_pool2d/whole",
                             {2, 3, 7, 7},
                             {adaptive(7, 1), adaptive(7, 1)},
                             [](const Tensor& x) { return adaptive_avg_pool2d(x, 1); }},
                            false));
  cases.push_back(mean_case({"adaptive_avg_pool3d",
                             {1, 2, 4, 5, 3},
                             {adaptive(4, 2), adaptive(5, 3), adaptive(3, 1)},
                             [](const Tensor& x) {
                               return adaptive_avg_pool3d(x, {2, 3, 1});
                             }},
                            false));
}

}  // namespace tandem::testing
