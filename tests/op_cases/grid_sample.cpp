// Cases and refusals of grid_sample, its adjoint and affine_grid.
#include "tandem/ops/grid_sample.h"

#include <cmath>

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

using In = std::span<const Tensor>;
using Arrays = std::span<const Array>;

struct Way {
  GridMode mode;
  GridPadding padding;
  bool corners;
  GridSampleOptions options() const { return {mode, padding, corners}; }
};

/// A place mirrored and cut until it lies in the image.
double brought_in(const Way& way, double at, Dim size) {
  const double last = static_cast<double>(size - 1), low = way.corners ? 0 : -0.5,
               high = way.corners ? last : last + 0.5;
  if (way.padding == GridPadding::zeros) return at;
  if (way.padding == GridPadding::reflection && size > 1)
    while (at < low || at > high) at = at < low ? 2 * low - at : 2 * high - at;
  return std::fmin(std::fmax(at, 0), last);
}

/// The weights of all pixels of an axis for one coordinate of the grid.
std::vector<double> weights_of(const Way& way, double coordinate, Dim size) {
  const double n = static_cast<double>(size);
  std::vector<double> weights(static_cast<size_t>(size));
  const auto give = [&](double at, double weight) {
    if (at >= 0 && at < n) weights[static_cast<size_t>(at)] += weight;
  };
  double at = way.corners ? (coordinate + 1) / 2 * (n - 1) : ((coordinate + 1) * n - 1) / 2;
  if (way.mode == GridMode::bicubic) {
    for (int k = -1; k <= 2; ++k) {
      const double pixel = std::floor(at) + k, d = std::fabs(at - pixel), a = -0.75;
      give(std::round(brought_in(way, pixel, size)), d <= 1
                                                         ? (a + 2) * d * d * d - (a + 3) * d * d + 1
                                                         : a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a);
    }
    return weights;
  }
  at = brought_in(way, at, size);
  if (way.mode == GridMode::nearest) {
    give(std::nearbyint(at), 1);
  } else {
    give(std::floor(at), 1 - (at - std::floor(at)));
    give(std::floor(at) + 1, at - std::floor(at));
  }
  return weights;
}

/// Calls each(image, row and column of the grid, row and column of the pixel, weight) where the weight is not 0.
template <class F>
void each_weight(const Way& way, const Array& grid, Dim height, Dim width, F&& each) {
  each_index({grid.shape[0], grid.shape[1], grid.shape[2]}, [&](const Dims& i) {
    const auto across = weights_of(way, grid.at({i[0], i[1], i[2], 0}), width),
               down = weights_of(way, grid.at({i[0], i[1], i[2], 1}), height);
    for (Dim y = 0; y < height; ++y)
      for (Dim x = 0; x < width; ++x) {
        const double weight = down[static_cast<size_t>(y)] * across[static_cast<size_t>(x)];
        if (weight != 0) each(i, y, x, weight);
      }
  });
}

Array samples(const Way& way, const Array& x, const Array& grid) {
  Array out({x.shape[0], x.shape[1], grid.shape[1], grid.shape[2]});
  each_weight(way, grid, x.shape[2], x.shape[3], [&](const Dims& i, Dim v, Dim u, double weight) {
    for (Dim c = 0; c < x.shape[1]; ++c) out.at({i[0], c, i[1], i[2]}) += weight * x.at({i[0], c, v, u});
  });
  return out;
}

/// A grid that wants no gradient, made of whole numbers; no point lies halfway between two pixels.
CaseInput fixed(const Dims& shape) { return {shape, -20, 20, CaseInput::index64}; }
Tensor grid_of(const Tensor& numbers, const Tensor& like) {
  return cast(cast(numbers, DType::f64) * 0.0837 + 0.0031, like.dtype());
}
Array grid_of(Array numbers, DType dtype = DType::f64) {
  for (double& v : numbers.values) v = v * 0.0837 + 0.0031;
  return to_array(to_tensor(numbers, dtype));
}

void add_way(std::vector<OpCase>& cases, const std::string& name, const Way& way) {
  OpCase op_case;
  op_case.name = "grid_sample/" + name;
  op_case.inputs = {{{2, 3, 5, 6}}, {{2, 4, 3, 2}, -1.6, 1.6}};
  op_case.call = [=](In in) { return grid_sample(in[0], in[1], way.options()); };
  op_case.reference = [=](Arrays in) { return samples(way, in[0], in[1]); };
  op_case.tolerance = 1e-5;
  op_case.half_ulps = 4;
  cases.push_back(op_case);
  if (way.padding == GridPadding::zeros && !way.corners)
    cases.push_back(with_shapes(op_case, op_case.name + "/empty", {{0, 3, 5, 6}, {0, 4, 3, 2}}));
  if (way.padding == GridPadding::reflection)
    cases.push_back(with_shapes(op_case, op_case.name + "/one_pixel", {{1, 1, 1, 1}, {1, 70, 2, 2}}));

  OpCase of_x = op_case;
  of_x.name = "grid_sample/x_" + name;
  of_x.inputs = {{{2, 3, 5, 6}}, fixed({2, 4, 3, 2})};
  of_x.call = [=](In in) { return grid_sample(in[0], grid_of(in[1], in[0]), way.options()); };
  of_x.reference = [=](Arrays in) { return samples(way, in[0], grid_of(in[1])); };
  of_x.dtypes = {};
  cases.push_back(of_x);
  cases.push_back(with_shapes(of_x, of_x.name + "/channels", {{1, 20, 3, 4}, {1, 9, 10, 2}}));

  const auto attrs_of = [=](Dim height, Dim width) {
    return GridAttrs{
        static_cast<int64_t>(way.mode), static_cast<int64_t>(way.padding), way.corners, height, width, 0, 0};
  };
  OpCase back = of_x;
  back.name = "grid_sample_adjoint/" + name;
  back.inputs = {{{2, 3, 4, 3}}, fixed({2, 4, 3, 2})};
  back.call = [=](In in) {
    return apply1(op_grid_sample_adjoint(), {in[0], grid_of(in[1], in[0])}, attrs_of(5, 6));
  };
  back.reference = [=](Arrays in) {
    Array out({in[0].shape[0], in[0].shape[1], 5, 6});
    each_weight(way, grid_of(in[1]), 5, 6, [&](const Dims& i, Dim v, Dim u, double weight) {
      for (Dim c = 0; c < out.shape[1]; ++c)
        out.at({i[0], c, v, u}) += weight * in[0].at({i[0], c, i[1], i[2]});
    });
    return out;
  };
  cases.push_back(back);
  cases.push_back(with_shapes(back, back.name + "/empty", {{0, 3, 4, 3}, {0, 4, 3, 2}}));
  cases.push_back(with_shapes(back, back.name + "/no_points", {{2, 3, 0, 3}, {2, 0, 3, 2}}));

  if (way.padding == GridPadding::reflection) return;  // at kinks a difference is none
  OpCase slope = op_case;
  slope.name = "grid_sample_grid_gradient/" + name;
  slope.inputs = {{{2, 3, 4, 3}}, {{2, 3, 5, 6}}, {{2, 4, 3, 2}, -0.9, 0.9}};
  slope.call = [=](In in) {
    return apply1(op_grid_sample_grid_gradient(), {in[0], in[1], in[2]}, attrs_of(0, 0));
  };
  slope.reference = [=](Arrays in) {
    Array out(in[2].shape);
    each_index(out.shape, [&](const Dims& i) {
      const double step = 1e-6;
      Array above = in[2], below = in[2];
      above.at(i) += step;
      below.at(i) -= step;
      const Array high = samples(way, in[1], above), low = samples(way, in[1], below);
      for (Dim c = 0; c < in[1].shape[1]; ++c) {
        const Dims at{i[0], c, i[1], i[2]};
        out.at(i) += in[0].at(at) * (high.at(at) - low.at(at)) / (2 * step);
      }
    });
    return out;
  };
  slope.tolerance64 = 1e-7;
  slope.dtypes = {};
  cases.push_back(slope);
  cases.push_back(with_shapes(slope, slope.name + "/empty", {{0, 3, 4, 3}, {0, 3, 5, 6}, {0, 4, 3, 2}}));
}

}  // namespace

void add_grid_sample_cases(std::vector<OpCase>& cases) {
  const std::pair<const char*, GridMode> modes[] = {
      {"bilinear", GridMode::bilinear}, {"nearest", GridMode::nearest}, {"bicubic", GridMode::bicubic}};
  const std::pair<const char*, GridPadding> paddings[] = {{"zeros", GridPadding::zeros},
                                                          {"border", GridPadding::border},
                                                          {"reflection", GridPadding::reflection}};
  for (const auto& [mode_name, mode] : modes)
    for (const auto& [padding_name, padding] : paddings)
      for (const bool corners : {false, true})
        add_way(cases, str(mode_name, "_", padding_name, corners ? "_corners" : ""),
                {mode, padding, corners});

  for (const bool corners : {false, true}) {
    OpCase affine;
    affine.name = corners ? "affine_grid/corners" : "affine_grid";
    affine.inputs = {{{2, 2, 3}}};
    affine.call = [=](In in) { return affine_grid(in[0], {in[0].shape()[0], 1, 3, 4}, corners); };
    affine.reference = [=](Arrays in) {
      Array out({in[0].shape[0], 3, 4, 2});
      const auto place = [=](Dim i, Dim n) {
        const double at = static_cast<double>(i), size = static_cast<double>(n);
        return corners ? 2 * at / (size - 1) - 1 : (2 * at + 1) / size - 1;
      };
      each_index(out.shape, [&](const Dims& i) {
        const auto theta = [&](Dim k) { return in[0].at({i[0], i[3], k}); };
        out.at(i) = theta(0) * place(i[2], 4) + theta(1) * place(i[1], 3) + theta(2);
      });
      return out;
    };
    affine.half_ulps = 8;
    cases.push_back(affine);
  }
}

void add_grid_sample_errors(std::vector<ErrorCase>& errors) {
  const auto of = [](const Dims& shape, DType dtype = DType::f32) { return zeros(shape, dtype); };
  const auto refused = [&](const std::string& name, std::function<void()> call,
                           std::vector<std::string> texts) {
    texts.insert(texts.begin(), name.substr(0, name.find('/')) + ": ");
    texts.push_back("; got ");
    errors.push_back({name, std::move(call), std::move(texts)});
  };
  const Dims image{2, 3, 4, 4}, grid{2, 5, 5, 2};
  refused("grid_sample/rank", [=] { grid_sample(of({2, 3, 4}), of(grid)); }, {"(2, 3, 4)", "(N, C, H, W)"});
  refused("grid_sample/last", [=] { grid_sample(of(image), of({2, 5, 5, 3})); }, {"(2, 5, 5, 3)"});
  refused("grid_sample/images",
          [=] {
            grid_sample(of(image), of({3, 5, 5, 2}));
          },
          {"(3, 5, 5, 2)", "expand"});
  refused("grid_sample/types", [=] { grid_sample(of(image), of(grid, DType::f64)); }, {"f32", "f64", "cast"});
  refused("grid_sample/integer", [=] { grid_sample(of(image, DType::i32), of(grid, DType::i32)); }, {"i32"});
  refused("grid_sample/no_pixels", [=] { grid_sample(of({2, 3, 0, 4}), of(grid)); }, {"0 by 4"});
  refused("grid_sample/undefined", [=] { grid_sample(of(image), Tensor()); }, {"undefined"});
  refused("grid_sample/mode", [=] { grid_sample(of(image), of(grid), {.mode = static_cast<GridMode>(7)}); },
          {"7", "bicubic"});
  refused("grid_sample/padding",
          [=] { grid_sample(of(image), of(grid), {.padding = static_cast<GridPadding>(7)}); },
          {"7", "border"});
  refused("affine_grid/theta", [=] { affine_grid(of({2, 3, 3}), image); }, {"(2, 3, 3)", "(N, 2, 3)"});
  refused("affine_grid/shape", [=] { affine_grid(of({2, 2, 3}), {2, 4, 4}); }, {"(2, 4, 4)"});
  refused("affine_grid/size", [=] { affine_grid(of({2, 2, 3}), {2, 1, -1, 4}); }, {"-1 by 4"});
  refused("affine_grid/integer", [=] { affine_grid(of({2, 2, 3}, DType::i64), image); }, {"i64"});
}

}  // namespace tandem::testing
