// Cases of softmax, log-softmax and the losses made of them.
#include "tandem/ops/softmax.h"

#include <cmath>

#include "tandem/ops/loss.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

/// log-softmax along an axis, with the largest element taken out first.
Array log_softmax_reference(const Array& x, int axis) {
  Array out(x.shape);
  each_index(x.shape, [&](const Dims& i) {
    double top = -1e300, total = 0;
    Dims j = i;
    for (j[axis] = 0; j[axis] < x.shape[axis]; ++j[axis]) top = std::max(top, x.at(j));
    for (j[axis] = 0; j[axis] < x.shape[axis]; ++j[axis]) total += std::exp(x.at(j) - top);
    out.at(i) = x.at(i) - top - std::log(total);
  });
  return out;
}

struct Variant {
  const char* name;
  Dims shape;
  int64_t axis;
  double range;
};

}  // namespace

void add_softmax_cases(std::vector<OpCase>& cases) {
  const Variant variants[] = {
      {"", {4, 7}, -1, 3},          {"/first_axis", {4, 3}, 0, 3}, {"/middle_axis", {2, 5, 3}, 1, 3},
      {"/extreme", {3, 9}, -1, 90}, {"/one", {3, 1}, -1, 3},       {"/empty", {0, 5}, -1, 3},
      {"/long", {2, 3001}, -1, 5}};
  for (const Variant& v : variants) {
    const int axis = static_cast<int>(v.axis < 0 ? v.axis + v.shape.rank() : v.axis);
    OpCase op_case;
    op_case.name = cat("log_softmax", v.name);
    op_case.inputs = {{v.shape, -v.range, v.range}};
    op_case.call = [v](std::span<const Tensor> in) { return log_softmax(in[0], v.axis); };
    op_case.reference = [axis](std::span<const Array> in) { return log_softmax_reference(in[0], axis); };
    cases.push_back(op_case);
    op_case.name = cat("softmax", v.name);
    op_case.call = [v](std::span<const Tensor> in) { return softmax(in[0], v.axis); };
    op_case.reference = [axis](std::span<const Array> in) {
      Array out = log_softmax_reference(in[0], axis);
      for (double& value : out.values) value = std::exp(value);
      return out;
    };
    cases.push_back(op_case);
  }
}

void add_loss_cases(std::vector<OpCase>& cases) {
  OpCase entropy;
  entropy.name = "cross_entropy";
  entropy.inputs = {{{5, 7}, -3, 3}, {{5}, 0, 7, CaseInput::index64}};
  entropy.call = [](std::span<const Tensor> in) { return cross_entropy(in[0], in[1]); };
  entropy.reference = [](std::span<const Array> in) {
    const Array logs = log_softmax_reference(in[0], 1);
    double total = 0;
    for (Dim i = 0; i < in[0].shape[0]; ++i) total -= logs.at({i, static_cast<Dim>(in[1][i])});
    Array out((Dims()));
    out[0] = total / static_cast<double>(in[0].shape[0]);
    return out;
  };
  cases.push_back(entropy);
  entropy.name = "cross_entropy/index32";
  entropy.inputs[1].kind = CaseInput::index32;
  cases.push_back(entropy);

  OpCase squares;
  squares.name = "mse_loss";
  squares.inputs = {{{4, 5}}, {{4, 5}}};
  squares.call = [](std::span<const Tensor> in) { return mse_loss(in[0], in[1]); };
  squares.reference = [](std::span<const Array> in) {
    Array out((Dims()));
    for (int64_t i = 0; i < in[0].size(); ++i) out[0] += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
    out[0] /= static_cast<double>(in[0].size());
    return out;
  };
  cases.push_back(squares);
}

}  // namespace tandem::testing
