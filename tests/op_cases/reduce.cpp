// Cases of the reductions: any axes, kept or dropped.
#include "tandem/ops/reduce.h"

#include <cmath>

#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

bool is_reduced(const Dims& axes, int rank, int axis) {
  if (axes.rank() == 0) return true;
  for (const Dim a : axes)
    if ((a < 0 ? a + rank : a) == axis) return true;
  return false;
}

/// Folds the reduced axes of x with f from `start`, then applies `finish` to (total, count).
CaseReference reference_of(const Dims& axes, bool keep, double start, double (*f)(double, double),
                           double (*finish)(double, double) = nullptr) {
  return [=](std::span<const Array> in) {
    const Array& x = in[0];
    Dims kept = x.shape, out_shape;
    double count = 1;
    for (int axis = 0; axis < x.shape.rank(); ++axis) {
      if (is_reduced(axes, x.shape.rank(), axis)) {
        count *= static_cast<double>(x.shape[axis]);
        kept[axis] = 1;
        if (keep) out_shape.push_back(1);
      } else {
        out_shape.push_back(x.shape[axis]);
      }
    }
    Array out(kept);
    for (double& v : out.values) v = start;
    each_index(x.shape, [&](const Dims& i) {
      Dims place = i;
      for (int axis = 0; axis < i.rank(); ++axis)
        if (kept[axis] == 1) place[axis] = 0;
      out.at(place) = f(out.at(place), x.at(i));
    });
    if (finish)
      for (double& v : out.values) v = finish(v, count);
    out.shape = out_shape;
    return out;
  };
}

double plus(double a, double b) { return a + b; }
double larger(double a, double b) { return a > b ? a : b; }
double smaller(double a, double b) { return a < b ? a : b; }
double quotient(double total, double count) { return total / count; }

struct Axes {
  const char* name;
  Dims shape, axes;
  bool keep;
};

void add_argmax(std::vector<OpCase>& cases) {
  for (const int axis : {0, 1, 2}) {
    OpCase op_case;
    op_case.name = cat("argmax/axis", axis);
    op_case.inputs = {{{3, 4, 5}}};
    op_case.call = [axis](std::span<const Tensor> in) { return argmax(in[0], axis); };
    op_case.reference = [axis](std::span<const Array> in) {
      Dims shape = in[0].shape;
      shape.erase(axis);
      Array out(shape);
      each_index(shape, [&](const Dims& i) {
        double best = -1e300;
        for (Dim j = 0; j < in[0].shape[axis]; ++j) {
          Dims full_index = i;
          full_index.insert(axis, j);
          if (in[0].at(full_index) > best) best = in[0].at(full_index), out.at(i) = static_cast<double>(j);
        }
      });
      return out;
    };
    op_case.dtypes = kEvery;
    op_case.int_high = 4;  // ties: the first wins
    op_case.gradient = op_case.second_order = false;
    cases.push_back(op_case);
    if (axis == 1) cases.push_back(with_shapes(op_case, "argmax/empty", {{0, 4, 2}}));
    if (axis == 2) cases.push_back(with_shapes(op_case, "argmax/long", {{2, 3, 5000}}));
  }
}

}  // namespace

void add_reduce_cases(std::vector<OpCase>& cases) {
  const Axes variants[] = {
      {"", {3, 4, 5}, {}, false},
      {"/last", {3, 4, 5}, {-1}, false},
      {"/first", {3, 4, 5}, {0}, false},
      {"/middle_kept", {3, 4, 5}, {1}, true},
      {"/outer", {3, 4, 5}, {0, 2}, false},
      {"/all_kept", {3, 4}, {0, 1}, true},
      {"/scalar", {}, {}, false},
      {"/empty", {0, 4}, {1}, false},
      {"/long", {3, 9001}, {1}, false},
      {"/tall", {5003, 7}, {0}, false},
      {"/batch", {6, 5, 17, 19}, {0, 2, 3}, false},
  };
  for (const Axes& v : variants) {
    OpCase base;
    base.inputs = {{v.shape}};
    const bool is_big = size_of(v.shape) > 200;
    base.tolerance = is_big ? 2e-5 : 2e-6;

    OpCase sum_case = base;
    sum_case.name = cat("sum", v.name);
    sum_case.call = [v](std::span<const Tensor> in) { return sum(in[0], v.axes, v.keep); };
    sum_case.reference = reference_of(v.axes, v.keep, 0, plus);
    sum_case.dtypes = kEvery;
    cases.push_back(sum_case);

    OpCase mean_case = base;
    mean_case.name = cat("mean", v.name);
    mean_case.call = [v](std::span<const Tensor> in) { return mean(in[0], v.axes, v.keep); };
    mean_case.reference = reference_of(v.axes, v.keep, 0, plus, quotient);
    cases.push_back(mean_case);

    OpCase max_case = base;
    max_case.name = cat("max", v.name);
    max_case.call = [v](std::span<const Tensor> in) { return max(in[0], v.axes, v.keep); };
    max_case.reference = reference_of(v.axes, v.keep, -1e300, larger);
    max_case.dtypes = kEvery;
    max_case.int_high = 100;
    cases.push_back(max_case);

    OpCase min_case = max_case;
    min_case.name = cat("min", v.name);
    min_case.call = [v](std::span<const Tensor> in) { return min(in[0], v.axes, v.keep); };
    min_case.reference = reference_of(v.axes, v.keep, 1e300, smaller);
    cases.push_back(min_case);
  }
  // An empty sum is zero.
  OpCase nothing;
  nothing.name = "sum/of_nothing";
  nothing.inputs = {{{3, 0}}};
  nothing.call = [](std::span<const Tensor> in) { return sum(in[0], {1}); };
  nothing.reference = reference_of({1}, false, 0, plus);
  nothing.dtypes = kEvery;
  cases.push_back(nothing);
  add_argmax(cases);
}

}  // namespace tandem::testing
