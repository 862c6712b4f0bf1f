// Cases of softmax and what is made of it.
#include "tandem/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/rng.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
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
    op_case.name = str("log_softmax", v.name);
    op_case.inputs = {{v.shape, -v.range, v.range}};
    op_case.call = [v](std::span<const Tensor> in) { return log_softmax(in[0], v.axis); };
    op_case.reference = [axis](std::span<const Array> in) { return log_softmax_reference(in[0], axis); };
    cases.push_back(op_case);
    op_case.name = str("softmax", v.name);
    op_case.call = [v](std::span<const Tensor> in) { return softmax(in[0], v.axis); };
    op_case.reference = [axis](std::span<const Array> in) {
      Array out = log_softmax_reference(in[0], axis);
      for (double& value : out.values) value = std::exp(value);
      return out;
    };
    cases.push_back(op_case);
    op_case.name = str("softmin", v.name);
    op_case.call = [v](std::span<const Tensor> in) { return softmin(in[0], v.axis); };
    op_case.reference = [axis](std::span<const Array> in) {
      Array x = in[0];
      for (double& value : x.values) value = -value;
      Array out = log_softmax_reference(x, axis);
      for (double& value : out.values) value = std::exp(value);
      return out;
    };
    if (v.name[0] == 0 || v.axis == 1) cases.push_back(op_case);
    for (const bool is_log : {false, true}) {  // the gradients as ops of their own
      op_case.name = str(is_log ? "log_softmax_gradient" : "softmax_gradient", v.name);
      op_case.inputs = {{v.shape}, {v.shape, is_log ? -2. : 0., is_log ? 0. : 1.}};
      op_case.tolerance = 1e-5;
      op_case.half_ulps = size_of(v.shape) > 1000 ? 400 : 8;
      op_case.call = [is_log, axis](std::span<const Tensor> in) {
        return apply1(is_log ? op_log_softmax_gradient() : op_softmax_gradient(), {in[0], in[1]},
                      AxisAttrs{axis});
      };
      op_case.reference = [is_log, axis](std::span<const Array> in) {
        const Array &g = in[0], &y = in[1];
        Array out(g.shape);
        each_index(g.shape, [&](const Dims& i) {
          double total = 0;
          Dims j = i;
          for (j[axis] = 0; j[axis] < g.shape[axis]; ++j[axis]) total += g.at(j) * (is_log ? 1 : y.at(j));
          out.at(i) = is_log ? g.at(i) - std::exp(y.at(i)) * total : y.at(i) * (g.at(i) - total);
        });
        return out;
      };
      cases.push_back(op_case);
    }
  }
  // Gumbel noise of the same place in the random stream, recomputed from the uniform numbers.
  for (const bool hard : {false, true}) {
    OpCase gumbel;
    gumbel.name = hard ? "gumbel_softmax/hard" : "gumbel_softmax";
    gumbel.inputs = {{{4, 5, 3}, -2, 2}};
    gumbel.call = [hard](std::span<const Tensor> in) {
      return gumbel_softmax(in[0], {.tau = 0.7, .hard = hard, .axis = 1});
    };
    gumbel.reference = [hard](std::span<const Array> in) {
      manual_seed(11);
      Array x = to_array(uniform(in[0].shape));
      for (int64_t i = 0; i < x.size(); ++i)
        x[i] = (in[0][i] - std::log(-std::log(std::max(x[i], 0x1p-25)))) / 0.7;
      Array out = log_softmax_reference(x, 1);
      for (double& value : out.values) value = std::exp(value);
      if (hard) {
        Array ones(out.shape);
        each_index(out.shape, [&](const Dims& i) {
          bool wins = true;
          Dims j = i;
          for (j[1] = 0; j[1] < out.shape[1]; ++j[1]) wins = wins && out.at(i) >= out.at(j);
          ones.at(i) = wins;
        });
        return ones;
      }
      return out;
    };
    gumbel.tolerance = 1e-5;
    gumbel.tolerance64 = 1e-5;  // the noise is drawn in f32
    gumbel.half_ulps = 16;
    gumbel.gradient = gumbel.second_order =
        !hard;  // the values are constant, the gradient is that of the soft ones
    cases.push_back(gumbel);
  }
}

}  // namespace tandem::testing
