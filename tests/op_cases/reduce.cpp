// Cases of the reductions: any axes, kept or dropped.
#include "tandem/ops/reduce.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/pointwise.h"
#include "tandem/ops/scan.h"
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

/// Gathers the elements of every result and makes it of them.
CaseReference reference_by(const Dims& axes, bool keep,
                           const std::function<double(const std::vector<double>&)>& f) {
  return [=](std::span<const Array> in) {
    const Array& x = in[0];
    Dims kept = x.shape, out_shape;
    for (int axis = 0; axis < x.shape.rank(); ++axis) {
      const bool gone = is_reduced(axes, x.shape.rank(), axis);
      if (gone) kept[axis] = 1;
      if (!gone || keep) out_shape.push_back(kept[axis]);
    }
    std::vector<std::vector<double>> groups(static_cast<size_t>(size_of(kept)));
    Array number(kept);
    for (int64_t i = 0; i < number.size(); ++i) number[i] = static_cast<double>(i);
    each_index(x.shape, [&](const Dims& i) {
      Dims place = i;
      for (int axis = 0; axis < i.rank(); ++axis)
        if (kept[axis] == 1) place[axis] = 0;
      groups[static_cast<size_t>(number.at(place))].push_back(x.at(i));
    });
    Array out(out_shape);
    for (int64_t i = 0; i < out.size(); ++i) out[i] = f(groups[static_cast<size_t>(i)]);
    return out;
  };
}

double variance_of(const std::vector<double>& x, double correction) {
  double mean = 0, squares = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) squares += (v - mean) * (v - mean);
  return squares / (static_cast<double>(x.size()) - correction);
}

double norm_of(const std::vector<double>& x, double p) {
  double total = 0, largest = 0, smallest = 1e300;
  for (const double v : x) {
    total += p == 0 ? (v != 0) : std::pow(std::abs(v), p);
    largest = std::max(largest, std::abs(v));
    smallest = std::min(smallest, std::abs(v));
  }
  if (std::isinf(p)) return p > 0 ? largest : smallest;
  return p == 0 ? total : std::pow(total, 1 / p);
}

struct Axes {
  const char* name;
  Dims shape, axes;
  bool keep;
};

void add_argmax(std::vector<OpCase>& cases, double sign) {
  const std::string name = sign > 0 ? "argmax" : "argmin";
  for (const int axis : {0, 1, 2}) {
    OpCase op_case;
    op_case.name = str(name, "/axis", axis);
    op_case.inputs = {{{3, 4, 5}}};
    op_case.call = [axis, sign](std::span<const Tensor> in) {
      return sign > 0 ? argmax(in[0], axis) : argmin(in[0], axis - 3, false);
    };
    op_case.reference = [axis, sign](std::span<const Array> in) {
      Dims shape = in[0].shape;
      shape.erase(axis);
      Array out(shape);
      each_index(shape, [&](const Dims& i) {
        double best = -1e300;
        for (Dim j = 0; j < in[0].shape[axis]; ++j) {
          Dims full_index = i;
          full_index.insert(axis, j);
          const double value = sign * in[0].at(full_index);
          if (value > best) best = value, out.at(i) = static_cast<double>(j);
        }
      });
      return out;
    };
    op_case.dtypes = kEvery;
    op_case.int_high = 4;  // ties: the first wins
    op_case.gradient = op_case.second_order = false;
    cases.push_back(op_case);
    if (axis == 1) cases.push_back(with_shapes(op_case, name + "/empty", {{0, 4, 2}}));
    if (axis == 2) cases.push_back(with_shapes(op_case, name + "/long", {{2, 3, 5000}}));
  }
}

/// The reductions that are made of others.
void add_composites(std::vector<OpCase>& cases, const Axes& v) {
  const auto add = [&](const std::string& name, const auto& call, const auto& f) -> OpCase& {
    OpCase op_case;
    op_case.name = str(name, v.name);
    op_case.inputs = {{v.shape}};
    op_case.call = [v, call](std::span<const Tensor> in) { return call(in[0], v.axes, v.keep); };
    op_case.reference = reference_by(v.axes, v.keep, f);
    cases.push_back(op_case);
    return cases.back();
  };
  using Elements = std::vector<double>;
  OpCase& product = add("prod", prod, [](const Elements& x) {
    double total = 1;
    for (const double e : x) total *= e;
    return total;
  });
  product.dtypes = kEvery;
  product.int_high = 2;
  if (v.shape.rank() > 0) {  // one element has no variance
    const std::pair<const char*, double> corrections[] = {{"", 1.0}, {"_biased", 0.0}};
    for (const auto& [name, correction] : corrections) {
      const double c = correction;
      add(
          str("var", name),
          [c](const Tensor& x, const Dims& axes, bool keep) { return var(x, axes, keep, c); },
          [c](const Elements& x) { return variance_of(x, c); });
      add(
          str("std", name),
          [c](const Tensor& x, const Dims& axes, bool keep) { return stddev(x, axes, keep, c); },
          [c](const Elements& x) { return std::sqrt(variance_of(x, c)); });
    }
  }
  const std::pair<const char*, double> norms[] = {
      {"norm", 2},        {"norm1", 1},          {"norm0", 0},           {"norm3", 3},
      {"norm_half", 0.5}, {"norm_negative", -2}, {"norm_inf", HUGE_VAL}, {"norm_minus_inf", -HUGE_VAL}};
  for (const auto& [name, power] : norms) {
    const double p = power;
    OpCase& op_case = add(
        name, [p](const Tensor& x, const Dims& axes, bool keep) { return norm(x, p, axes, keep); },
        [p](const Elements& x) { return norm_of(x, p); });
    op_case.tolerance = 2e-5;
    if (p < 1) op_case.inputs[0].low = 0.2;  // steep at 0
    if (p < 1) op_case.tolerance = 1e-4;
    if (p == 0.5) op_case.half_ulps = 40;
    if (p == 0) op_case.second_order = false;  // its gradient is zero everywhere
  }
  add("logsumexp", logsumexp, [](const Elements& x) {
    double total = 0;
    for (const double e : x) total += std::exp(e);
    return std::log(total);
  });
  const auto add_exact = [&](const std::string& name, const auto& call, const auto& f) {
    OpCase& op_case = add(name, call, f);
    op_case.dtypes = kEvery;
    op_case.int_high = 2;
    op_case.gradient = op_case.second_order = false;
  };
  const auto count = [](const Elements& x) {
    double n = 0;
    for (const double e : x) n += e != 0;
    return n;
  };
  add_exact("count_nonzero", count_nonzero, count);
  add_exact("any", any, [count](const Elements& x) { return count(x) > 0 ? 1. : 0.; });
  add_exact("all", all,
            [count](const Elements& x) { return count(x) == static_cast<double>(x.size()) ? 1. : 0.; });
}

void add_scans(std::vector<OpCase>& cases) {
  struct Scan {
    const char* name;
    Dims shape;
    int axis;
    bool reverse;
  };
  const Scan scans[] = {{"", {3, 7}, 1, false},           {"/first", {5, 3}, 0, false},
                        {"/middle", {2, 5, 3}, 1, false}, {"/reverse", {3, 7}, 1, true},
                        {"/empty", {0, 4}, 1, false},     {"/of_nothing", {2, 0}, 1, false},
                        {"/long", {2, 700}, 1, false},    {"/middle_reverse", {2, 5, 70}, 1, true}};
  for (const Scan& scan : scans) {
    /// Walks every sequence: f(sequence in its order) gives what stands there.
    const auto walked = [scan](const Array& x, const std::function<void(std::vector<double>&)>& f) {
      Array out(x.shape);
      Dims rest = x.shape;
      rest[scan.axis] = 1;
      if (x.size() == 0) return out;
      each_index(rest, [&](const Dims& i) {
        std::vector<double> line;
        Dims j = i;
        for (j[scan.axis] = 0; j[scan.axis] < x.shape[scan.axis]; ++j[scan.axis]) line.push_back(x.at(j));
        if (scan.reverse) std::reverse(line.begin(), line.end());
        f(line);
        if (scan.reverse) std::reverse(line.begin(), line.end());
        for (j[scan.axis] = 0; j[scan.axis] < x.shape[scan.axis]; ++j[scan.axis])
          out.at(j) = line[static_cast<size_t>(j[scan.axis])];
      });
      return out;
    };
    OpCase op_case;
    op_case.inputs = {{scan.shape}};
    op_case.tolerance = 1e-5;
    op_case.name = str("cumsum", scan.name);
    op_case.call = [scan](std::span<const Tensor> in) { return cumsum(in[0], scan.axis, scan.reverse); };
    op_case.reference = [walked](std::span<const Array> in) {
      return walked(in[0], [](std::vector<double>& line) {
        for (size_t k = 1; k < line.size(); ++k) line[k] += line[k - 1];
      });
    };
    op_case.dtypes = kEvery;
    op_case.half_ulps = 8;
    cases.push_back(op_case);
    op_case.name = str("cumprod", scan.name);
    op_case.call = [scan](std::span<const Tensor> in) { return cumprod(in[0], scan.axis, scan.reverse); };
    op_case.reference = [walked](std::span<const Array> in) {
      return walked(in[0], [](std::vector<double>& line) {
        for (size_t k = 1; k < line.size(); ++k) line[k] *= line[k - 1];
      });
    };
    op_case.dtypes = {DType::bf16, DType::f16, DType::i32, DType::u8, DType::boolean};
    op_case.int_high = 3;
    cases.push_back(op_case);
    if (!scan.reverse)
      for (const bool is_max : {true, false}) {
        op_case.name = str(is_max ? "cummax" : "cummin", scan.name);
        op_case.call = [scan, is_max](std::span<const Tensor> in) {
          return is_max ? cummax(in[0], scan.axis).values : cummin(in[0], scan.axis - in[0].rank()).values;
        };
        op_case.reference = [walked, is_max](std::span<const Array> in) {
          return walked(in[0], [is_max](std::vector<double>& line) {
            for (size_t k = 1; k < line.size(); ++k)
              line[k] = is_max ? std::max(line[k], line[k - 1]) : std::min(line[k], line[k - 1]);
          });
        };
        op_case.dtypes = kEvery;
        cases.push_back(op_case);
        op_case.name = str(is_max ? "cummax" : "cummin", "_indices", scan.name);
        op_case.call = [scan, is_max](std::span<const Tensor> in) {
          return (is_max ? cummax(in[0], scan.axis) : cummin(in[0], scan.axis)).indices;
        };
        op_case.reference = [walked, is_max](std::span<const Array> in) {
          return walked(in[0], [is_max](std::vector<double>& line) {
            double best = line[0];
            size_t place = 0;
            for (size_t k = 0; k < line.size(); ++k) {
              if (is_max ? line[k] >= best : line[k] <= best) best = line[k], place = k;
              line[k] = static_cast<double>(place);
            }
          });
        };
        op_case.gradient = op_case.second_order = false;
        cases.push_back(op_case);
        op_case.gradient = op_case.second_order = true;
      }
    op_case.name = str("linear_scan", scan.name);
    op_case.inputs = {{scan.shape}, {scan.shape}};
    op_case.dtypes = kHalves;
    op_case.call = [scan](std::span<const Tensor> in) {
      return linear_scan(in[0], in[1], scan.axis, scan.reverse);
    };
    op_case.reference = [scan](std::span<const Array> in) {
      Array out(scan.shape);
      const Dim n = scan.shape[scan.axis];
      each_index(scan.shape, [&](const Dims& i) {
        const Dim k = i[scan.axis];  // written out: Σ over j of b[j] times the a's between
        double total = 0;
        for (Dim j = k; j >= 0 && j < n; j += scan.reverse ? 1 : -1) {
          Dims at = i;
          at[scan.axis] = j;
          double term = in[1].at(at);
          for (Dim q = k; q != j; q += scan.reverse ? 1 : -1) {
            at[scan.axis] = q;
            term *= in[0].at(at);
          }
          total += term;
        }
        out.at(i) = total;
      });
      return out;
    };
    if (size_of(scan.shape) < 1000) cases.push_back(op_case);
  }
  // Zeros among the factors: the gradients must still be exact.
  for (const bool whole : {true, false}) {
    OpCase zeros_inside;
    zeros_inside.name = whole ? "prod/zeros" : "cumprod/zeros";
    zeros_inside.inputs = {{{6, 4}}, {{6, 4}, 0, 2, CaseInput::boolean}};
    zeros_inside.call = [whole](std::span<const Tensor> in) {
      const Tensor x = in[0] * cast(in[1], in[0].dtype());
      return whole ? prod(x, {1}) : cumprod(x, 1);
    };
    zeros_inside.reference = [whole](std::span<const Array> in) {
      Array out(whole ? Dims{6} : Dims{6, 4});
      for (int64_t r = 0; r < 6; ++r) {
        double product = 1;
        for (int64_t c = 0; c < 4; ++c) {
          product *= in[0][4 * r + c] * in[1][4 * r + c];
          out[whole ? r : 4 * r + c] = product;
        }
      }
      return out;
    };
    cases.push_back(zeros_inside);
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
    sum_case.name = str("sum", v.name);
    sum_case.call = [v](std::span<const Tensor> in) { return sum(in[0], v.axes, v.keep); };
    sum_case.reference = reference_of(v.axes, v.keep, 0, plus);
    sum_case.dtypes = kEvery;
    cases.push_back(sum_case);

    OpCase mean_case = base;
    mean_case.name = str("mean", v.name);
    mean_case.call = [v](std::span<const Tensor> in) { return mean(in[0], v.axes, v.keep); };
    mean_case.reference = reference_of(v.axes, v.keep, 0, plus, quotient);
    cases.push_back(mean_case);

    if (is_big) {  // sums that f16 cannot hold
      mean_case.name += "_high";
      mean_case.inputs = {{v.shape, 900, 1100}};
      mean_case.gradient = mean_case.second_order = false;
      cases.push_back(mean_case);
    }

    OpCase max_case = base;
    max_case.name = str("max", v.name);
    max_case.call = [v](std::span<const Tensor> in) { return max(in[0], v.axes, v.keep); };
    max_case.reference = reference_of(v.axes, v.keep, -1e300, larger);
    max_case.dtypes = kEvery;
    max_case.int_high = 100;
    cases.push_back(max_case);

    OpCase min_case = max_case;
    min_case.name = str("min", v.name);
    min_case.call = [v](std::span<const Tensor> in) { return min(in[0], v.axes, v.keep); };
    min_case.reference = reference_of(v.axes, v.keep, 1e300, smaller);
    cases.push_back(min_case);
    if (!is_big && std::string(v.name) != "/all_kept" && std::string(v.name) != "/first")
      add_composites(cases, v);
  }
  // An empty sum is zero.
  OpCase nothing;
  nothing.name = "sum/of_nothing";
  nothing.inputs = {{{3, 0}}};
  nothing.call = [](std::span<const Tensor> in) { return sum(in[0], {1}); };
  nothing.reference = reference_of({1}, false, 0, plus);
  nothing.dtypes = kEvery;
  cases.push_back(nothing);
  add_argmax(cases, 1);
  add_argmax(cases, -1);
  add_scans(cases);
}

}  // namespace tandem::testing
