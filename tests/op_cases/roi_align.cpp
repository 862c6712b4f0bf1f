// Cases and refusals of roi_align.
#include <cmath>

#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/shape.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

/// A pixel of an image between its pixels; 0 further than one pixel outside.
double between(const Array& x, Dim image, Dim channel, double row, double column) {
  const double last_row = static_cast<double>(x.shape[2]) - 1,
               last_column = static_cast<double>(x.shape[3]) - 1;
  if (row < -1 || row > last_row + 1 || column < -1 || column > last_column + 1) return 0;
  row = std::fmin(std::fmax(row, 0), last_row);
  column = std::fmin(std::fmax(column, 0), last_column);
  double sum = 0;
  for (Dim i = 0; i < x.shape[2]; ++i)
    for (Dim k = 0; k < x.shape[3]; ++k)
      sum += x.at({image, channel, i, k}) * std::fmax(0, 1 - std::fabs(row - static_cast<double>(i))) *
             std::fmax(0, 1 - std::fabs(column - static_cast<double>(k)));
  return sum;
}

Array aligned(const RoiAlignOptions& o, Dim height, Dim width, const Array& x, const Array& boxes,
              const Array& images) {
  Array y({boxes.shape[0], x.shape[1], height, width});
  const double n = static_cast<double>(o.samples);
  each_index(y.shape, [&](const Dims& i) {
    const auto at = [&](int axis, Dim bins, Dim bin, Dim sample) {
      const double begin = boxes.at({i[0], axis}) * o.scale - (o.aligned ? 0.5 : 0);
      double length = (boxes.at({i[0], axis + 2}) - boxes.at({i[0], axis})) * o.scale;
      if (!o.aligned) length = std::fmax(length, 1);
      return begin + length / static_cast<double>(bins) *
                         (static_cast<double>(bin) + (static_cast<double>(sample) + 0.5) / n);
    };
    for (Dim v = 0; v < o.samples; ++v)
      for (Dim u = 0; u < o.samples; ++u)
        y.at(i) +=
            between(x, static_cast<Dim>(images[i[0]]), i[1], at(1, height, i[2], v), at(0, width, i[3], u));
    y.at(i) /= n * n;
  });
  return y;
}

/// Boxes (R, 4) from numbers that are drawn freely: a corner, and how far away the other is.
Tensor boxes_of(const Tensor& drawn) {
  const Tensor corner = slice(drawn, 1, 0, 2);
  return concat({corner, corner + slice(drawn, 1, 2, 4)}, 1);
}

OpCase roi_case(const char* name, const RoiAlignOptions& o, Dim height, Dim width, const CaseInput& boxes) {
  OpCase c;
  c.name = name;
  c.inputs = {{{2, 3, 6, 7}}, boxes, {{boxes.shape[0]}, 0, 2, CaseInput::index64}};
  c.call = [o](std::span<const Tensor> in) { return roi_align(in[0], boxes_of(in[1]), in[2], o); };
  c.reference = [=](std::span<const Array> in) {
    Array corners = in[1];
    for (Dim i = 0; i < corners.shape[0]; ++i)
      for (Dim k = 0; k < 2; ++k) corners.at({i, k + 2}) += corners.at({i, k});
    return aligned(o, height, width, in[0], corners, in[2]);
  };
  c.tolerance = 1e-5;
  c.half_ulps = 16;  // boxes in 16 bits are coarse
  return c;
}

}  // namespace

void add_roi_align_cases(std::vector<OpCase>& cases) {
  const CaseInput inside{{4, 4}, 0.3, 3}, around{{5, 4}, -2, 5};
  cases.push_back(roi_case("roi_align", {.size = {3, 2}}, 3, 2, inside));
  cases.push_back(
      roi_case("roi_align/aligned", {.size = 2, .scale = 0.75, .samples = 3, .aligned = true}, 2, 2, around));
  cases.push_back(
      roi_case("roi_align/one_point", {.size = {1, 3}, .scale = 1.5, .samples = 1}, 1, 3, around));
  cases.push_back(roi_case("roi_align/empty", {.size = 2}, 2, 2, {{0, 4}}));
}

void add_roi_align_errors(std::vector<ErrorCase>& errors) {
  const auto x = [] { return ones({1, 2, 4, 4}); };
  const auto boxes = [] { return ones({3, 4}); };
  const auto images = [] { return zeros({3}, DType::i64); };
  const auto refused = [&](const char* what, auto call, std::vector<std::string> texts) {
    errors.push_back({std::string("roi_align/") + what, call, std::move(texts)});
  };
  refused("rank", [=] { roi_align(ones({2, 4, 4}), boxes(), images()); }, {"roi_align", "(N, C, H, W)"});
  refused("boxes", [=] { roi_align(x(), ones({3, 5}), images()); }, {"(R, 4)", "(3, 5)"});
  refused("type", [=] { roi_align(x(), cast(boxes(), DType::f64), images()); }, {"of x's type, f32", "f64"});
  refused("images", [=] { roi_align(x(), boxes(), zeros({2}, DType::i64)); },
          {"one number for each of the 3"});
  refused("image", [=] { roi_align(x(), boxes(), full({3}, 1, DType::i64)); },
          {"roi_align", "0..0", "got 1"});
  refused("none", [=] { roi_align(ones({0, 2, 4, 4}), boxes(), images()); }, {"roi_align"});
  refused("points", [=] { roi_align(x(), boxes(), images(), {.size = 1 << 15, .samples = 1 << 15}); },
          {"and their products"});
  refused("size", [=] { roi_align(x(), boxes(), images(), {.size = 0}); }, {"1..1048576", "0 by 0"});
  refused("samples", [=] { roi_align(x(), boxes(), images(), {.samples = 0}); }, {"samples 0"});
  refused("scale", [=] { roi_align(x(), boxes(), images(), {.scale = -1}); }, {"must be positive", "-1"});
}

}  // namespace tandem::testing
