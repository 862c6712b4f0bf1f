// Cases of interpolation, pixel shuffling, and of unfold and fold.
#include "tandem/ops/resample.h"

#include <cmath>

#include "tandem/ops/unfold.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

/// The matrix of one axis: out rows, in columns.
using Map = std::vector<std::vector<double>>;

enum Mode { nearest, exact, linear, cubic };

Map axis_map(Mode mode, Dim in, Dim out, bool corners = false, double scale = 0) {
  Map map(static_cast<size_t>(out), std::vector<double>(static_cast<size_t>(in)));
  const double ratio = scale > 0 ? 1 / scale : static_cast<double>(in) / static_cast<double>(out);
  for (Dim i = 0; i < out; ++i) {
    const auto give = [&](double j, double weight) {
      const double last = static_cast<double>(in - 1);
      map[static_cast<size_t>(i)][static_cast<size_t>(j < 0 ? 0 : j > last ? last : j)] += weight;
    };
    const double at = static_cast<double>(i);
    double x = (at + 0.5) * ratio - 0.5;
    if (corners) x = out > 1 ? at * static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
    if (mode == nearest) give(std::floor(at * ratio + 1e-9), 1);
    if (mode == exact) give(std::floor((at + 0.5) * ratio + 1e-9), 1);
    if (mode == linear) {
      x = std::fmax(x, 0);
      give(std::floor(x), 1 - (x - std::floor(x)));
      give(std::floor(x) + 1, x - std::floor(x));
    }
    if (mode == cubic)
      for (int k = -1; k <= 2; ++k) {
        const double j = std::floor(x) + k, d = std::fabs(x - j), a = -0.75;
        give(j, d <= 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1
                       : a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a);
      }
  }
  return map;
}

OpCase resized(const std::string& name, const Dims& x, const std::vector<Map>& axes,
               const InterpolateOptions& o) {
  OpCase c;
  c.name = name;
  c.inputs = {{x}};
  c.call = [o](std::span<const Tensor> in) { return interpolate(in[0], o); };
  c.reference = [axes](std::span<const Array> in) {
    const Dims& shape = in[0].shape;
    Dims out{shape[0], shape[1]};
    for (const Map& map : axes) out.push_back(static_cast<Dim>(map.size()));
    Array y(out);
    each_index(out, [&](const Dims& o) {
      Dims image = shape;
      image[0] = image[1] = 1;
      each_index(image, [&](const Dims& k) {
        Dims at = k;
        at[0] = o[0], at[1] = o[1];
        double weight = 1;
        for (int i = 2; i < k.rank(); ++i)
          weight *= axes[static_cast<size_t>(i - 2)][static_cast<size_t>(o[i])][static_cast<size_t>(k[i])];
        y.at(o) += weight * in[0].at(at);
      });
    });
    return y;
  };
  c.tolerance = 4e-6;
  return c;
}

struct Fold {
  const char* name;
  Dims x;                                              // (N, C, …)
  std::vector<Dim> kernel, stride, padding, dilation;  // by axis
  UnfoldOptions options;
  PerAxis size = {};
};

/// Calls f(place of x, place of the columns) for every element of every window.
void each_element(const Fold& v, const std::function<void(const Dims&, const Dims&)>& f, Dims* columns) {
  Dims windows, elements;
  for (size_t i = 0; i < v.kernel.size(); ++i) {
    elements.push_back(v.kernel[i]);
    windows.push_back(
        (v.x[static_cast<int>(i) + 2] + 2 * v.padding[i] - v.dilation[i] * (v.kernel[i] - 1) - 1) /
            v.stride[i] +
        1);
  }
  *columns = {v.x[0], v.x[1] * size_of(elements), size_of(windows)};
  each_index({v.x[0], v.x[1]}, [&](const Dims& nc) {
    Dim row = 0;
    each_index(elements, [&](const Dims& k) {
      Dim column = 0;
      each_index(windows, [&](const Dims& o) {
        Dims at = nc;
        bool inside = true;
        for (size_t i = 0; i < v.kernel.size(); ++i) {
          const int axis = static_cast<int>(i);
          at.push_back(o[axis] * v.stride[i] - v.padding[i] + k[axis] * v.dilation[i]);
          inside = inside && at[axis + 2] >= 0 && at[axis + 2] < v.x[axis + 2];
        }
        if (inside) f(at, {nc[0], nc[1] * size_of(elements) + row, column});
        ++column;
      });
      ++row;
    });
  });
}

void add_fold(std::vector<OpCase>& cases, const Fold& v) {
  Dims columns;
  each_element(
      v, [](const Dims&, const Dims&) {}, &columns);
  OpCase forward;
  forward.name = str("unfold", v.name);
  forward.inputs = {{v.x}};
  forward.call = [v](std::span<const Tensor> in) { return unfold(in[0], v.options); };
  forward.reference = [v, columns](std::span<const Array> in) {
    Array y(columns);
    Dims same;
    each_element(
        v, [&](const Dims& x, const Dims& at) { y.at(at) = in[0].at(x); }, &same);
    return y;
  };
  forward.tolerance = 0;
  cases.push_back(forward);
  OpCase back;
  back.name = str("fold", v.name);
  back.inputs = {{columns}};
  back.call = [v](std::span<const Tensor> in) { return fold(in[0], v.size, v.options); };
  back.reference = [v](std::span<const Array> in) {
    Array y(v.x);
    Dims same;
    each_element(
        v, [&](const Dims& x, const Dims& at) { y.at(x) += in[0].at(at); }, &same);
    return y;
  };
  cases.push_back(back);
}

}  // namespace

void add_resample_cases(std::vector<OpCase>& cases) {
  using Maps = std::vector<Map>;
  cases.push_back(resized("interpolate", {2, 2, 3, 4}, Maps{axis_map(nearest, 3, 6), axis_map(nearest, 4, 8)},
                          {.scale = {2}}));
  cases.push_back(resized("interpolate/nearest_size", {1, 2, 5, 7},
                          Maps{axis_map(nearest, 5, 3), axis_map(nearest, 7, 10)}, {.size = {3, 10}}));
  cases.push_back(resized("interpolate/nearest_1d", {2, 2, 7}, Maps{axis_map(nearest, 7, 10, false, 1.5)},
                          {.scale = {1.5}}));
  cases.push_back(resized("interpolate/nearest_3d", {1, 2, 2, 3, 4},
                          Maps{axis_map(nearest, 2, 4), axis_map(nearest, 3, 3), axis_map(nearest, 4, 2)},
                          {.size = {4, 3, 2}}));
  cases.push_back(resized("interpolate/nearest_exact", {1, 2, 5, 7},
                          Maps{axis_map(exact, 5, 3), axis_map(exact, 7, 10)},
                          {.size = {3, 10}, .mode = "nearest-exact"}));
  cases.push_back(
      resized("interpolate/linear", {2, 2, 5}, Maps{axis_map(linear, 5, 8)}, {.size = 8, .mode = "linear"}));
  cases.push_back(resized("interpolate/bilinear", {2, 2, 4, 5},
                          Maps{axis_map(linear, 4, 7), axis_map(linear, 5, 3)},
                          {.size = {7, 3}, .mode = "bilinear"}));
  cases.push_back(resized("interpolate/bilinear_corners", {2, 2, 4, 5},
                          Maps{axis_map(linear, 4, 7, true), axis_map(linear, 5, 1, true)},
                          {.size = {7, 1}, .mode = "bilinear", .align_corners = true}));
  cases.push_back(resized("interpolate/bilinear_scale", {1, 2, 4, 5},
                          Maps{axis_map(linear, 4, 6, false, 1.6), axis_map(linear, 5, 3, false, 0.7)},
                          {.scale = {1.6, 0.7}, .mode = "bilinear"}));
  cases.push_back(resized("interpolate/trilinear", {1, 2, 2, 3, 4},
                          Maps{axis_map(linear, 2, 4), axis_map(linear, 3, 2), axis_map(linear, 4, 5)},
                          {.size = {4, 2, 5}, .mode = "trilinear"}));
  cases.push_back(resized("interpolate/bicubic", {1, 2, 4, 5},
                          Maps{axis_map(cubic, 4, 7), axis_map(cubic, 5, 3)},
                          {.size = {7, 3}, .mode = "bicubic"}));
  cases.push_back(resized("interpolate/bicubic_corners", {1, 2, 4, 5},
                          Maps{axis_map(cubic, 4, 7, true), axis_map(cubic, 5, 9, true)},
                          {.size = {7, 9}, .mode = "bicubic", .align_corners = true}));
  cases.push_back(resized("interpolate/empty", {0, 2, 3, 4},
                          Maps{axis_map(nearest, 3, 6), axis_map(nearest, 4, 8)}, {.scale = {2}}));

  // The adjoint by itself: sums of what it is given by the transposed matrices.
  OpCase adjoint;
  adjoint.name = "resample_adjoint";
  adjoint.inputs = {{{2, 2, 7, 3}}};
  adjoint.call = [](std::span<const Tensor> in) {
    ResampleAttrs attrs;
    attrs.kind = static_cast<int64_t>(Resample::linear);
    attrs.size = {{1, 4, 5}};
    return apply1(op_resample_adjoint(), {in[0]}, attrs);
  };
  adjoint.reference = [](std::span<const Array> in) {
    const Map down = axis_map(linear, 4, 7), across = axis_map(linear, 5, 3);
    Array y(Dims{in[0].shape[0], 2, 4, 5});
    each_index(in[0].shape, [&](const Dims& o) {
      for (Dim h = 0; h < 4; ++h)
        for (Dim w = 0; w < 5; ++w)
          y.at({o[0], o[1], h, w}) += in[0].at(o) * down[static_cast<size_t>(o[2])][static_cast<size_t>(h)] *
                                      across[static_cast<size_t>(o[3])][static_cast<size_t>(w)];
    });
    return y;
  };
  adjoint.tolerance = 4e-6;
  cases.push_back(adjoint);
  cases.push_back(with_shapes(adjoint, "resample_adjoint/empty", {{0, 2, 7, 3}}));

  OpCase shuffle;
  shuffle.name = "pixel_shuffle";
  shuffle.inputs = {{{2, 8, 3, 2}}};
  shuffle.call = [](std::span<const Tensor> in) { return pixel_shuffle(in[0], 2); };
  shuffle.reference = [](std::span<const Array> in) {
    Array y(Dims{2, 2, 6, 4});
    each_index(y.shape, [&](const Dims& i) {
      y.at(i) = in[0].at({i[0], i[1] * 4 + i[2] % 2 * 2 + i[3] % 2, i[2] / 2, i[3] / 2});
    });
    return y;
  };
  shuffle.tolerance = 0;
  cases.push_back(shuffle);
  OpCase unshuffle = shuffle;
  unshuffle.name = "pixel_unshuffle";
  unshuffle.inputs = {{{2, 2, 6, 3}}};
  unshuffle.call = [](std::span<const Tensor> in) { return pixel_unshuffle(in[0], 3); };
  unshuffle.reference = [](std::span<const Array> in) {
    Array y(Dims{2, 18, 2, 1});
    each_index(y.shape, [&](const Dims& i) {
      y.at(i) = in[0].at({i[0], i[1] / 9, i[2] * 3 + i[1] / 3 % 3, i[3] * 3 + i[1] % 3});
    });
    return y;
  };
  cases.push_back(unshuffle);

  add_fold(cases, {"", {2, 3, 4, 5}, {2, 3}, {1, 1}, {0, 0}, {1, 1}, {.kernel = {2, 3}}, {4, 5}});
  add_fold(cases, {"/every_option",
                   {2, 2, 6, 7},
                   {2, 3},
                   {2, 3},
                   {1, 2},
                   {3, 2},
                   {.kernel = {2, 3}, .stride = {2, 3}, .padding = {1, 2}, .dilation = {3, 2}},
                   {6, 7}});
  add_fold(
      cases,
      {"/1d", {2, 2, 9}, {3}, {2}, {1}, {2}, {.kernel = 3, .stride = 2, .padding = 1, .dilation = 2}, {9}});
  add_fold(cases, {"/3d",
                   {1, 2, 3, 4, 4},
                   {2, 2, 3},
                   {1, 2, 1},
                   {0, 1, 1},
                   {1, 1, 1},
                   {.kernel = {2, 2, 3}, .stride = {1, 2, 1}, .padding = {0, 1, 1}},
                   {3, 4, 4}});
  add_fold(cases, {"/empty", {0, 3, 4, 5}, {2, 2}, {1, 1}, {0, 0}, {1, 1}, {.kernel = 2}, {4, 5}});
}

}  // namespace tandem::testing
