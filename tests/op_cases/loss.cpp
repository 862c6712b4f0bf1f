// Cases of the losses: every function, option and reduction.
#include "tandem/ops/loss.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/pointwise.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

constexpr Reduction kReductions[] = {Reduction::mean, Reduction::sum, Reduction::none};
const char* suffix(Reduction r) { return r == Reduction::mean ? "" : r == Reduction::sum ? "_sum" : "_none"; }

/// Losses over `weight` (1 each where it is empty), as asked for.
Array reduced(const Array& losses, Reduction r, const std::vector<double>& weights = {}) {
  if (r == Reduction::none) return losses;
  double total = 0, count = 0;
  for (int64_t i = 0; i < losses.size(); ++i) {
    total += losses[i];
    count += weights.empty() ? 1 : weights[static_cast<size_t>(i)];
  }
  return Array(Dims{}, {r == Reduction::mean ? total / count : total});
}

using ElementLoss = std::function<double(double, double)>;
using ElementCall = std::function<Tensor(const Tensor&, const Tensor&, Reduction)>;

/// A loss of pairs of elements, in all reductions.
void add_pairs(std::vector<OpCase>& cases, const std::string& name, const CaseInput& x, const CaseInput& t,
               const ElementCall& call, const ElementLoss& loss) {
  for (const Reduction r : kReductions) {
    OpCase op_case;
    op_case.name = name + suffix(r);
    op_case.inputs = {x, t};
    op_case.call = [call, r](std::span<const Tensor> in) { return call(in[0], in[1], r); };
    op_case.reference = [loss, r](std::span<const Array> in) {
      Array losses(in[0].shape);
      for (int64_t i = 0; i < losses.size(); ++i) losses[i] = loss(in[0][i], in[1][i]);
      return reduced(losses, r);
    };
    op_case.tolerance = 1e-5;
    op_case.half_ulps = 16;
    cases.push_back(op_case);
  }
}

/// Labels 1 and -1 of the first input's type, made of a bool.
Tensor labels(const Tensor& flag, DType dtype) { return cast(flag, dtype) * 2.0 - 1.0; }

/// log-softmax over axis 1 of (N, C, …), or axis 0 of (C).
Array log_softmax_of(const Array& x) {
  const int axis = x.shape.rank() == 1 ? 0 : 1;
  Array out(x.shape);
  each_index(x.shape, [&](const Dims& i) {
    double total = 0;
    Dims j = i;
    for (j[axis] = 0; j[axis] < x.shape[axis]; ++j[axis]) total += std::exp(x.at(j));
    out.at(i) = x.at(i) - std::log(total);
  });
  return out;
}

struct ClassCase {
  const char* name;
  Dims shape;
  bool weight, ignore;
  double smoothing;
};

/// Cross entropy (or, with logs, nll_loss) with class indices, in PyTorch's terms.
void add_classes(std::vector<OpCase>& cases, const ClassCase& c, bool is_nll) {
  const int axis = c.shape.rank() == 1 ? 0 : 1;
  Dims target_shape = c.shape;
  target_shape.erase(axis);
  const Dim classes = c.shape[axis];
  for (const Reduction r : kReductions) {
    OpCase op_case;
    op_case.name = str(is_nll ? "nll_loss" : "cross_entropy", c.name, suffix(r));
    op_case.inputs = {{c.shape, -3, 3}, {target_shape, 0, static_cast<double>(classes), CaseInput::index64}};
    if (c.weight) op_case.inputs.push_back({{classes}, 0.5, 2});
    const std::optional<int64_t> ignored = c.ignore ? std::optional<int64_t>(2) : std::nullopt;
    op_case.call = [=](std::span<const Tensor> in) {
      const Tensor weight = c.weight ? in[2] : Tensor();
      if (is_nll) return nll_loss(in[0], in[1], {.weight = weight, .ignore_index = ignored, .reduction = r});
      return cross_entropy(
          in[0], in[1],
          {.weight = weight, .ignore_index = ignored, .label_smoothing = c.smoothing, .reduction = r});
    };
    op_case.reference = [=](std::span<const Array> in) {
      const Array logs = is_nll ? in[0] : log_softmax_of(in[0]);
      Array losses(in[1].shape);
      std::vector<double> weights;
      each_index(in[1].shape, [&](const Dims& i) {
        const Dim y = static_cast<Dim>(in[1].at(i));
        const bool counts = !c.ignore || y != 2;
        const double w = counts ? (c.weight ? in[2][y] : 1) : 0;
        Dims at = i;
        at.insert(axis, y);
        double even = 0;
        for (Dim k = 0; k < classes; ++k) {
          Dims other = i;
          other.insert(axis, k);
          even -= logs.at(other) * (c.weight ? in[2][k] : 1);
        }
        losses.at(i) = -w * logs.at(at) * (1 - c.smoothing) +
                       (counts ? even : 0) * c.smoothing / static_cast<double>(classes);
        weights.push_back(w);
      });
      return reduced(losses, r, weights);
    };
    op_case.tolerance = 1e-5;
    op_case.half_ulps = 16;
    cases.push_back(op_case);
  }
}

void add_probabilities(std::vector<OpCase>& cases) {
  for (const bool weighted : {false, true})
    for (const Reduction r : kReductions) {
      OpCase op_case;
      op_case.name = str("cross_entropy/probabilities", weighted ? "_weight_smooth" : "", suffix(r));
      op_case.inputs = {{{3, 4, 2}, -3, 3}, {{3, 4, 2}, 0, 1}};
      if (weighted) op_case.inputs.push_back({{4}, 0.5, 2});
      const double smoothing = weighted ? 0.2 : 0;
      op_case.call = [=](std::span<const Tensor> in) {
        return cross_entropy(
            in[0], in[1],
            {.weight = weighted ? in[2] : Tensor(), .label_smoothing = smoothing, .reduction = r});
      };
      op_case.reference = [=](std::span<const Array> in) {
        const Array logs = log_softmax_of(in[0]);
        Array losses({3, 2});
        each_index({3, 4, 2}, [&](const Dims& i) {
          const double p = in[1].at(i) * (1 - smoothing) + smoothing / 4;
          losses.at({i[0], i[2]}) -= logs.at(i) * p * (weighted ? in[2][i[1]] : 1);
        });
        return reduced(losses, r);
      };
      op_case.tolerance = 1e-5;
      op_case.half_ulps = 16;
      cases.push_back(op_case);
    }
}

/// Sums over the last axis of (N, D).
double over_row(const Array& a, int64_t row, const std::function<double(double)>& f) {
  double total = 0;
  for (int64_t i = 0; i < a.shape[1]; ++i) total += f(a.at({row, i}));
  return total;
}

double cosine(const Array& a, const Array& b, int64_t row) {
  double dot = 0;
  for (int64_t i = 0; i < a.shape[1]; ++i) dot += a.at({row, i}) * b.at({row, i});
  const auto square = [](double v) { return v * v; };
  return dot / std::sqrt(over_row(a, row, square) * over_row(b, row, square));
}

double distance(const Array& a, const Array& b, int64_t row, double p) {
  double total = 0;
  for (int64_t i = 0; i < a.shape[1]; ++i)
    total += std::pow(std::abs(a.at({row, i}) - b.at({row, i}) + 1e-6), p);
  return std::pow(total, 1 / p);
}

void add_vectors(std::vector<OpCase>& cases) {
  const CaseInput rows{{4, 5}}, flags{{4}, 0, 2, CaseInput::boolean};
  OpCase op_case;
  op_case.tolerance = 1e-5;
  op_case.half_ulps = 16;
  op_case.name = "cosine_similarity";
  op_case.inputs = {rows, rows};
  op_case.call = [](std::span<const Tensor> in) { return cosine_similarity(in[0], in[1]); };
  op_case.reference = [](std::span<const Array> in) {
    Array out(Dims{4});
    for (int64_t i = 0; i < 4; ++i) out[i] = cosine(in[0], in[1], i);
    return out;
  };
  cases.push_back(op_case);
  for (const double p : {2., 3.}) {
    op_case.name = p == 2 ? "pairwise_distance" : "pairwise_distance/p3";
    op_case.call = [p](std::span<const Tensor> in) { return pairwise_distance(in[0], in[1], p); };
    op_case.reference = [p](std::span<const Array> in) {
      Array out(Dims{4});
      for (int64_t i = 0; i < 4; ++i) out[i] = distance(in[0], in[1], i, p);
      return out;
    };
    cases.push_back(op_case);
  }
  const std::pair<const char*, double> norms[] = {
      {"", 2}, {"/p0", 0}, {"/p1", 1}, {"/p3", 3}, {"/most", HUGE_VAL}};
  for (const auto& [name, p] : norms) {
    OpCase all = op_case;
    all.name = str("cdist", name);
    all.inputs = {{{2, 3, 5}}, {{4, 5}}};
    all.call = [p = p](std::span<const Tensor> in) { return cdist(in[0], in[1], p); };
    all.reference = [p = p](std::span<const Array> in) {
      Array out({2, 3, 4});
      each_index(out.shape, [&](const Dims& i) {
        double total = 0, most = 0, count = 0;
        for (Dim k = 0; k < 5; ++k) {
          const double d = std::abs(in[0].at({i[0], i[1], k}) - in[1].at({i[2], k}));
          total += std::pow(d, p);
          most = std::max(most, d);
          count += d != 0;
        }
        out.at(i) = p == 0 ? count : std::isinf(p) ? most : std::pow(total, 1 / p);
      });
      return out;
    };
    cases.push_back(all);
  }
  OpCase none = op_case;
  none.name = "cdist/empty";
  none.inputs = {{{0, 5}}, {{4, 5}}};
  none.call = [](std::span<const Tensor> in) { return cdist(in[0], in[1]); };
  none.reference = [](std::span<const Array>) { return Array({0, 4}); };
  cases.push_back(none);
  none.name = "cdist/no_width";
  none.inputs = {{{3, 0}}, {{4, 0}}};
  none.call = [](std::span<const Tensor> in) { return cdist(in[0], in[1], HUGE_VAL); };
  none.reference = [](std::span<const Array>) { return Array({3, 4}); };
  cases.push_back(none);
  for (const Reduction r : kReductions) {
    op_case.name = str("cosine_embedding_loss", suffix(r));
    op_case.inputs = {rows, rows, flags};
    op_case.call = [r](std::span<const Tensor> in) {
      return cosine_embedding_loss(in[0], in[1], labels(in[2], in[0].dtype()), 0.1, r);
    };
    op_case.reference = [r](std::span<const Array> in) {
      Array out(Dims{4});
      for (int64_t i = 0; i < 4; ++i) {
        const double c = cosine(in[0], in[1], i);
        out[i] = in[2][i] == 1 ? 1 - c : std::max(0., c - 0.1);
      }
      return reduced(out, r);
    };
    cases.push_back(op_case);
    op_case.name = str("margin_ranking_loss", suffix(r));
    op_case.inputs = {{{4}}, {{4}}, flags};
    op_case.call = [r](std::span<const Tensor> in) {
      return margin_ranking_loss(in[0], in[1], labels(in[2], in[0].dtype()), 0.3, r);
    };
    op_case.reference = [r](std::span<const Array> in) {
      Array out(Dims{4});
      for (int64_t i = 0; i < 4; ++i)
        out[i] = std::max(0., (in[2][i] == 1 ? -1 : 1) * (in[0][i] - in[1][i]) + 0.3);
      return reduced(out, r);
    };
    cases.push_back(op_case);
    for (const bool swap : {false, true}) {
      op_case.name = str("triplet_margin_loss", swap ? "/swap" : "", suffix(r));
      op_case.inputs = {rows, rows, rows};
      op_case.call = [r, swap](std::span<const Tensor> in) {
        return triplet_margin_loss(in[0], in[1], in[2], {.margin = 0.8, .swap = swap, .reduction = r});
      };
      op_case.reference = [r, swap](std::span<const Array> in) {
        Array out(Dims{4});
        for (int64_t i = 0; i < 4; ++i) {
          double away = distance(in[0], in[2], i, 2);
          if (swap) away = std::min(away, distance(in[1], in[2], i, 2));
          out[i] = std::max(0., distance(in[0], in[1], i, 2) - away + 0.8);
        }
        return reduced(out, r);
      };
      cases.push_back(op_case);
    }
    for (const int p : {1, 2}) {
      op_case.name = str("multi_margin_loss", p == 2 ? "/squared_weight" : "", suffix(r));
      op_case.inputs = {{{5, 4}}, {{5}, 0, 4, CaseInput::index64}};
      if (p == 2) op_case.inputs.push_back({{4}, 0.5, 2});
      op_case.call = [r, p](std::span<const Tensor> in) {
        return multi_margin_loss(
            in[0], in[1], {.margin = 0.7, .p = p, .weight = p == 2 ? in[2] : Tensor(), .reduction = r});
      };
      op_case.reference = [r, p](std::span<const Array> in) {
        Array out(Dims{5});
        for (int64_t i = 0; i < 5; ++i) {
          const Dim y = static_cast<Dim>(in[1][i]);
          for (Dim j = 0; j < 4; ++j)
            if (j != y)
              out[i] += std::pow(std::max(0., 0.7 - in[0].at({i, y}) + in[0].at({i, j})), p) *
                        (p == 2 ? in[2][y] : 1) / 4;
        }
        return reduced(out, r);
      };
      cases.push_back(op_case);
    }
  }
}

double softplus(double x) { return std::max(x, 0.) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

void add_loss_cases(std::vector<OpCase>& cases) {
  const ClassCase classes[] = {
      {"", {5, 7}, false, false, 0},          {"/planes", {2, 4, 3, 2}, false, false, 0},
      {"/one", {6}, false, false, 0},         {"/weight", {5, 4}, true, false, 0},
      {"/ignore", {6, 4}, false, true, 0},    {"/all", {3, 4, 5}, true, true, 0.1},
      {"/smooth", {5, 4}, false, false, 0.3}, {"/smooth_ignore", {6, 4}, false, true, 0.3}};
  for (const ClassCase& c : classes) {
    add_classes(cases, c, false);
    if (c.smoothing == 0) add_classes(cases, c, true);
  }
  add_probabilities(cases);
  OpCase small =
      *std::find_if(cases.begin(), cases.end(), [](const OpCase& c) { return c.name == "cross_entropy"; });
  small.name = "cross_entropy/index32";
  small.inputs[1].kind = CaseInput::index32;
  cases.push_back(small);

  const CaseInput x{{4, 5}}, far{{4, 5}, -3, 3}, unit{{4, 5}, 0.05, 0.95},
      flag{{4, 5}, 0, 2, CaseInput::boolean};
  const auto sign = [](double t) { return t == 1 ? 1. : -1.; };
  add_pairs(cases, "mse_loss", x, x, mse_loss, [](double a, double t) { return (a - t) * (a - t); });
  add_pairs(cases, "l1_loss", x, x, l1_loss, [](double a, double t) { return std::abs(a - t); });
  const auto smooth = [](double d, double beta) {
    return std::abs(d) < beta ? d * d / (2 * beta) : std::abs(d) - beta / 2;
  };
  add_pairs(
      cases, "smooth_l1_loss", x, x,
      [](const Tensor& a, const Tensor& t, Reduction r) { return smooth_l1_loss(a, t, 0.4, r); },
      [smooth](double a, double t) { return smooth(a - t, 0.4); });
  add_pairs(
      cases, "smooth_l1_loss/zero", x, x,
      [](const Tensor& a, const Tensor& t, Reduction r) { return smooth_l1_loss(a, t, 0, r); },
      [](double a, double t) { return std::abs(a - t); });
  add_pairs(
      cases, "huber_loss", x, x,
      [](const Tensor& a, const Tensor& t, Reduction r) { return huber_loss(a, t, 0.4, r); },
      [smooth](double a, double t) { return smooth(a - t, 0.4) * 0.4; });
  add_pairs(cases, "log_cosh_loss", far, x, log_cosh_loss,
            [](double a, double t) { return std::log(std::cosh(a - t)); });
  add_pairs(
      cases, "hinge_loss", far, flag,
      [](const Tensor& a, const Tensor& t, Reduction r) {
        return hinge_loss(a, labels(t, a.dtype()), 0.8, r);
      },
      [sign](double a, double t) { return std::max(0., 0.8 - a * sign(t)); });
  add_pairs(
      cases, "hinge_embedding_loss", far, flag,
      [](const Tensor& a, const Tensor& t, Reduction r) {
        return hinge_embedding_loss(a, labels(t, a.dtype()), 0.8, r);
      },
      [](double a, double t) { return t == 1 ? a : std::max(0., 0.8 - a); });
  add_pairs(
      cases, "soft_margin_loss", far, flag,
      [](const Tensor& a, const Tensor& t, Reduction r) {
        return soft_margin_loss(a, labels(t, a.dtype()), r);
      },
      [sign](double a, double t) { return softplus(-a * sign(t)); });
  add_pairs(
      cases, "binary_cross_entropy", unit, unit,
      [](const Tensor& a, const Tensor& t, Reduction r) {
        return binary_cross_entropy(a, t, {.reduction = r});
      },
      [](double p, double t) { return -(t * std::log(p) + (1 - t) * std::log(1 - p)); });
  add_pairs(
      cases, "binary_cross_entropy_with_logits", {{4, 5}, -30, 30}, unit,
      [](const Tensor& a, const Tensor& t, Reduction r) {
        return binary_cross_entropy_with_logits(a, t, {.reduction = r});
      },
      [](double v, double t) { return (1 - t) * v + softplus(-v); });
  const auto kl = [](bool log_target, bool batch_mean) {
    return [=](const Tensor& a, const Tensor& t, Reduction r) {
      return kl_div(a, t, {.log_target = log_target, .batch_mean = batch_mean, .reduction = r});
    };
  };
  add_pairs(cases, "kl_div", {{4, 5}, -3, 0}, unit, kl(false, false),
            [](double a, double t) { return t * (std::log(t) - a); });
  add_pairs(cases, "kl_div/log_target", {{4, 5}, -3, 0}, {{4, 5}, -2, 0}, kl(true, false),
            [](double a, double t) { return std::exp(t) * (t - a); });
  OpCase batch = cases[cases.size() - 3];
  batch.name = "kl_div/batch_mean";
  batch.call = [kl](std::span<const Tensor> in) { return kl(true, true)(in[0], in[1], Reduction::none); };
  const CaseReference mean_of = batch.reference;
  batch.reference = [mean_of](std::span<const Array> in) {
    Array out = mean_of(in);
    out[0] *= 5;  // the mean of 20 elements to the sum over 4 rows
    return out;
  };
  cases.push_back(batch);
  const auto poisson = [](bool log_input, bool full) {
    return [=](const Tensor& a, const Tensor& t, Reduction r) {
      return poisson_nll_loss(a, t, {.log_input = log_input, .full = full, .reduction = r});
    };
  };
  add_pairs(cases, "poisson_nll_loss", x, {{4, 5}, 0, 3}, poisson(true, false),
            [](double a, double t) { return std::exp(a) - t * a; });
  add_pairs(cases, "poisson_nll_loss/full", unit, {{4, 5}, 0, 4}, poisson(false, true),
            [](double a, double t) {
              const double stirling = t > 1 ? t * std::log(t) - t + 0.5 * std::log(2 * M_PI * t) : 0;
              return a - t * std::log(a + 1e-8) + stirling;
            });

  // Weights of elements.
  OpCase weighted;
  weighted.name = "binary_cross_entropy/weight";
  weighted.inputs = {unit, unit, {{5}, 0.5, 2}};
  weighted.call = [](std::span<const Tensor> in) {
    return binary_cross_entropy(in[0], in[1], {.weight = in[2]});
  };
  weighted.reference = [](std::span<const Array> in) {
    Array losses({4, 5});
    for (int64_t i = 0; i < 20; ++i)
      losses[i] = -in[2][i % 5] * (in[1][i] * std::log(in[0][i]) + (1 - in[1][i]) * std::log(1 - in[0][i]));
    return reduced(losses, Reduction::mean);
  };
  weighted.tolerance = 1e-5;
  weighted.half_ulps = 16;
  cases.push_back(weighted);
  weighted.name = "binary_cross_entropy_with_logits/weights";
  weighted.inputs = {far, unit, {{5}, 0.5, 2}, {{5}, 0.5, 2}};
  weighted.call = [](std::span<const Tensor> in) {
    return binary_cross_entropy_with_logits(in[0], in[1], {.weight = in[2], .pos_weight = in[3]});
  };
  weighted.reference = [](std::span<const Array> in) {
    Array losses({4, 5});
    for (int64_t i = 0; i < 20; ++i)
      losses[i] = in[2][i % 5] *
                  (in[3][i % 5] * in[1][i] * softplus(-in[0][i]) + (1 - in[1][i]) * softplus(in[0][i]));
    return reduced(losses, Reduction::mean);
  };
  cases.push_back(weighted);
  add_vectors(cases);
}

}  // namespace tandem::testing
