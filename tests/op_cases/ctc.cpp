// Cases of connectionist temporal classification, against a sum over every path.
#include "tandem/ops/ctc.h"

#include <algorithm>
#include <cmath>

#include "tandem/graph/compile.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/softmax.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

/// -log of the probability of the labels: all classes^steps paths, of which those count that read as the labels once repetitions
/// and blanks are taken out.
double path_loss(const Array& x, Dim n, const std::vector<int64_t>& labels, Dim steps, Dim blank) {
  const Dim classes = x.shape[2];
  double total = 0;
  std::vector<Dim> path(static_cast<size_t>(steps), 0);
  for (;;) {
    std::vector<int64_t> read;
    double logarithm = 0;
    for (Dim t = 0; t < steps; ++t) {
      const Dim c = path[static_cast<size_t>(t)];
      logarithm += x.at({t, n, c});
      if (c != blank && (t == 0 || path[static_cast<size_t>(t - 1)] != c)) read.push_back(c);
    }
    if (read == labels) total += std::exp(logarithm);
    Dim t = 0;
    while (t < steps && ++path[static_cast<size_t>(t)] == classes) path[static_cast<size_t>(t++)] = 0;
    if (t == steps) break;
  }
  return -std::log(total);
}

/// in: log-probabilities, targets, input lengths, target lengths.
std::vector<double> path_losses(std::span<const Array> in, Dim blank) {
  std::vector<double> losses;
  for (Dim n = 0; n < in[0].shape[1]; ++n) {
    std::vector<int64_t> labels;
    for (Dim k = 0; k < static_cast<Dim>(in[3][n]); ++k)
      labels.push_back(static_cast<int64_t>(in[1].at({n, k})));
    losses.push_back(path_loss(in[0], n, labels, static_cast<Dim>(in[2][n]), blank));
  }
  return losses;
}

std::vector<CaseInput> inputs_of(Dim steps, Dim samples, Dim classes, Dim labels) {
  // Steps enough for all labels with blanks between equal ones; the first class is the blank.
  return {{{steps, samples, classes}, -3, 0},
          {{samples, labels}, 1, static_cast<double>(classes), CaseInput::index64},
          {{samples}, static_cast<double>(2 * labels), static_cast<double>(steps + 1), CaseInput::index64},
          {{samples}, 0, static_cast<double>(labels + 1), CaseInput::index64}};
}

}  // namespace

void add_ctc_cases(std::vector<OpCase>& cases) {
  for (const Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    OpCase c;
    c.name = r == Reduction::mean ? "ctc_loss" : r == Reduction::sum ? "ctc_loss/sum" : "ctc_loss/none";
    c.inputs = inputs_of(6, 3, 3, 2);
    c.call = [r](std::span<const Tensor> in) {
      return ctc_loss(in[0], in[1], in[2], in[3], {.reduction = r});
    };
    c.reference = [r](std::span<const Array> in) {
      const std::vector<double> losses = path_losses(in, 0);
      if (r == Reduction::none) return Array({static_cast<Dim>(losses.size())}, losses);
      double total = 0;
      for (size_t n = 0; n < losses.size(); ++n)
        total += r == Reduction::sum ? losses[n]
                                     : losses[n] / std::max(1.0, in[3][static_cast<int64_t>(n)]) /
                                           static_cast<double>(losses.size());
      return Array(Dims{}, {total});
    };
    c.tolerance = 1e-5;
    c.half_ulps = 16;
    c.second_order = false;
    c.refuses_second_order = true;
    cases.push_back(c);
  }
  OpCase logits = cases[cases.size() - 3];  // the mean, of numbers that are no logarithms yet
  logits.name = "ctc_loss/logits";
  logits.call = [](std::span<const Tensor> in) {
    return ctc_loss(log_softmax(in[0], 2), in[1], in[2], in[3]);
  };
  logits.reference = [of_logarithms = logits.reference](std::span<const Array> in) {
    std::vector<Array> all(in.begin(), in.end());
    each_index(in[0].shape, [&](const Dims& i) {
      double total = 0;
      for (Dim c = 0; c < in[0].shape[2]; ++c) total += std::exp(in[0].at({i[0], i[1], c}));
      all[0].at(i) = in[0].at(i) - std::log(total);
    });
    return of_logarithms(all);
  };
  const OpCase each = cases.back();
  cases.push_back(logits);
  OpCase empty = each;
  empty.name = "ctc_loss/empty";
  empty.inputs = inputs_of(4, 0, 3, 2);
  empty.refuses_second_order = false;
  cases.push_back(empty);

  OpCase back = each;
  back.name = "ctc_gradient";
  back.inputs = inputs_of(5, 2, 3, 2);
  back.inputs.push_back({{2}, 0.5, 2});
  back.call = [](std::span<const Tensor> in) {
    const bool half = bytes_of(in[0].dtype()) == 2;
    const auto wide = [&](const Tensor& x) { return half ? cast(x, DType::f32) : x; };
    const Tensor given[] = {wide(in[0]), in[1], in[2], in[3]};
    const Tensors made = apply(op_ctc(), given, CtcAttrs{0});
    const Tensor all[] = {wide(in[4]), given[0], in[1], in[2], in[3], made[0], made[1]};
    return cast(apply(op_ctc_gradient(), all, CtcAttrs{0})[0], in[0].dtype());
  };
  back.reference = [](std::span<const Array> in) {
    Array slopes(in[0].shape);
    for (int64_t k = 0; k < slopes.size(); ++k)
      for (const int sign : {-1, 1}) {
        std::vector<Array> moved(in.begin(), in.end());
        moved[0][k] += sign * 1e-5;
        const std::vector<double> losses = path_losses(moved, 0);
        for (size_t n = 0; n < losses.size(); ++n)
          slopes[k] += sign * losses[n] * in[4][static_cast<int64_t>(n)] / 2e-5;
      }
    return slopes;
  };
  back.tolerance64 = 1e-8;
  back.gradient = false;
  cases.push_back(back);
  back.name = "ctc_gradient/empty";
  back.inputs = inputs_of(5, 0, 3, 2);
  back.inputs.push_back({{0}, 0.5, 2});
  back.refuses_second_order = false;
  cases.push_back(back);
}

void add_ctc_errors(std::vector<ErrorCase>& errors) {
  const auto lengths = [](const std::vector<int64_t>& values) {
    return from_vector<int64_t>(values, {static_cast<Dim>(values.size())});
  };
  const Tensor x = zeros({4, 2, 3}), targets = ones({2, 2}, DType::i64), steps = lengths({4, 4}),
               labels = lengths({2, 1});
  const auto add = [&](const char* name, std::function<void()> call, std::vector<std::string> texts) {
    errors.push_back({str("ctc_loss/", name), std::move(call), std::move(texts)});
  };
  add("rank",
      [=] {
        ctc_loss(zeros({4, 3}), targets, steps, labels);
      },
      {"ctc_loss: log_probabilities", "(T, N, C)"});
  add("targets", [=] { ctc_loss(x, ones({2, 2}), steps, labels); }, {"targets must be i64 (2, S)"});
  add("blank", [=] { ctc_loss(x, targets, steps, labels, {.blank = 3}); }, {"one of the 3 classes; got 3"});
  add("label", [=] { ctc_loss(x, targets * 3, steps, labels); },
      {"one of the 3 classes other than the blank, 0; got 3 at place 0 of sample 0"});
  add("label_blank", [=] { ctc_loss(x, targets, steps, labels, {.blank = 1}); },
      {"other than the blank, 1; got 1 at place 0 of sample 0", "Leave blanks out"});
  add("label_blank_compiled",
      [=] {
        compile([=](const Tensor& of) { return ctc_loss(of, targets, steps, labels, {.blank = 1}); })(x);
      },
      {"one of the 3 classes", "got the blank or 3"});
  add("steps", [=] { ctc_loss(x, targets, lengths({4, 5}), labels); }, {"from 0 to 4", "got 5 for sample 1"});
  add("lengths",
      [=] {
        ctc_loss(x, targets, steps, lengths({-1, 1}));
      },
      {"from 0 to 2", "got -1 for sample 0"});
}

}  // namespace tandem::testing
