// Cases of the normalisations, and of their gradients as ops of their own.
#include "tandem/ops/norm.h"

#include <cmath>
#include <map>

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

/// (x - mean) / sqrt(var + eps) over the elements that `group` gives one number, then weight[channel] and bias[channel].
Array normalised(const Array& x, double eps, const std::function<int64_t(const Dims&)>& group,
                 const std::function<int64_t(const Dims&)>& channel, const Array* weight, const Array* bias) {
  std::map<int64_t, std::vector<double>> groups;
  each_index(x.shape, [&](const Dims& i) { groups[group(i)].push_back(x.at(i)); });
  Array out(x.shape);
  each_index(x.shape, [&](const Dims& i) {
    const std::vector<double>& values = groups[group(i)];
    double mean = 0, variance = 0;
    for (const double v : values) mean += v / static_cast<double>(values.size());
    for (const double v : values) variance += (v - mean) * (v - mean) / static_cast<double>(values.size());
    out.at(i) = (x.at(i) - mean) / std::sqrt(variance + eps) * (weight ? (*weight)[channel(i)] : 1) +
                (bias ? (*bias)[channel(i)] : 0);
  });
  return out;
}

struct Variant {
  const char* name;
  Dims shape;
  int64_t groups;  // of channels; 0: batch norm
  bool weight, bias;
};

Tensor some(std::span<const Tensor> in, bool has, size_t at) { return has ? in[at] : Tensor(); }

void finish(std::vector<OpCase>& cases, OpCase& op_case) {
  op_case.tolerance = 2e-5;
  op_case.half_ulps = 16;
  cases.push_back(op_case);
}

/// The gradient op against the differences of its forward: dx, dweight and dbias laid end to end.
void add_gradient(std::vector<OpCase>& cases, const std::string& name, OpDef& op, const Dims& shape,
                  NormAttrs attrs, bool over_batch) {
  const Dim all = attrs.groups * attrs.channels, rows = attrs.rows(over_batch);
  OpCase op_case;
  op_case.name = name;
  op_case.inputs = {{shape}, {shape}, {{all}, 0.5, 2}};
  op_case.call = [=, &op](std::span<const Tensor> in) {
    NormAttrs a = attrs;
    a.has_weight = a.has_bias = true;
    OpDef& forward = over_batch ? op_batch_norm() : op_group_norm();
    const DType given = in[1].dtype();
    const Tensor weight = cast(in[2], given == DType::f64 ? DType::f64 : DType::f32);
    const Tensor ins[] = {in[1], weight, weight};
    const Tensors moments = apply(forward, ins, a);
    const Tensor all_in[] = {in[0], in[1], moments[1].detach(), moments[2].detach(), weight};
    const Tensors out = apply(op, all_in, a);
    return concat({reshape(out[0], {out[0].size()}), cast(out[1], given), cast(out[2], given)}, 0);
  };
  op_case.reference = [=](std::span<const Array> in) {
    const Array &g = in[0], &x = in[1], &w = in[2];
    const int64_t n = x.size(), count = attrs.count(over_batch);
    const auto channel = [&](int64_t i) { return i / attrs.inner % all; };
    const auto row = [&](int64_t i) { return over_batch ? channel(i) : i / (attrs.inner * attrs.channels); };
    std::vector<double> mean(static_cast<size_t>(rows)), variance = mean, first = mean, second = mean;
    const auto at = [&](std::vector<double>& v, int64_t i) -> double& {
      return v[static_cast<size_t>(row(i))];
    };
    const double m = static_cast<double>(count);
    for (int64_t i = 0; i < n; ++i) at(mean, i) += x[i] / m;
    for (int64_t i = 0; i < n; ++i) at(variance, i) += (x[i] - at(mean, i)) * (x[i] - at(mean, i)) / m;
    const auto xhat = [&](int64_t i) {
      return (x[i] - at(mean, i)) / std::sqrt(at(variance, i) + attrs.eps);
    };
    for (int64_t i = 0; i < n; ++i) {
      at(first, i) += g[i] * w[channel(i)] / m;
      at(second, i) += g[i] * w[channel(i)] * xhat(i) / m;
    }
    Array out(Dims{n + 2 * all});
    for (int64_t i = 0; i < n; ++i) {
      out[i] = (g[i] * w[channel(i)] - at(first, i) - xhat(i) * at(second, i)) /
               std::sqrt(at(variance, i) + attrs.eps);
      out[n + channel(i)] += g[i] * xhat(i);
      out[n + all + channel(i)] += g[i];
    }
    return out;
  };
  finish(cases, op_case);
}

}  // namespace

void add_norm_cases(std::vector<OpCase>& cases) {
  const Variant variants[] = {{"", {3, 8}, 1, true, true},
                              {"/plain", {3, 8}, 1, false, false},
                              {"/weight", {2, 3, 40}, 1, true, false},
                              {"/bias", {3, 5}, 1, false, true},
                              {"/empty", {0, 4}, 1, true, true},
                              {"/long", {2, 5000}, 1, true, true}};
  for (const Variant& v : variants) {
    OpCase op_case;
    op_case.name = str("layer_norm", v.name);
    op_case.inputs = {{v.shape}};
    const Dim n = v.shape.back();
    if (v.weight) op_case.inputs.push_back({{n}, 0.5, 2});
    if (v.bias) op_case.inputs.push_back({{n}});
    op_case.call = [=](std::span<const Tensor> in) {
      return layer_norm(in[0], {n}, some(in, v.weight, 1), some(in, v.bias, 1 + v.weight));
    };
    op_case.reference = [=](std::span<const Array> in) {
      const auto row = [](const Dims& i) {
        int64_t r = 0;
        for (int d = 0; d + 1 < i.rank(); ++d) r = r * 100 + i[d];
        return r;
      };
      return normalised(
          in[0], 1e-5, row, [](const Dims& i) { return i.back(); }, v.weight ? &in[1] : nullptr,
          v.bias ? &in[1 + v.weight] : nullptr);
    };
    if (n > 1000) op_case.second_order = false;  // too many for differences
    finish(cases, op_case);
  }
  OpCase planes;
  planes.name = "layer_norm/planes";
  planes.inputs = {{{2, 3, 4}}, {{3, 4}, 0.5, 2}, {{3, 4}}};
  planes.call = [](std::span<const Tensor> in) { return layer_norm(in[0], {3, 4}, in[1], in[2], 0.1); };
  planes.reference = [](std::span<const Array> in) {
    return normalised(
        in[0], 0.1, [](const Dims& i) { return i[0]; }, [](const Dims& i) { return 4 * i[1] + i[2]; }, &in[1],
        &in[2]);
  };
  finish(cases, planes);

  const Variant channels[] = {{"", {2, 6, 3, 4}, 2, true, true},    {"/plain", {2, 6, 5}, 3, false, false},
                              {"/bias", {2, 4, 5}, 2, false, true}, {"/flat", {5, 6}, 3, true, true},
                              {"/empty", {0, 4, 3}, 2, true, true}, {"/wide", {2, 4, 19, 23}, 2, true, true}};
  for (const Variant& v : channels)
    for (const char kind : {'g', 'i', 'b'}) {
      if (kind == 'i' && v.shape.rank() == 2) continue;  // one element a channel
      OpCase op_case;
      op_case.name = str(kind == 'g' ? "group_norm" : kind == 'i' ? "instance_norm" : "batch_norm", v.name);
      const Dim n = v.shape[1];
      op_case.inputs = {{v.shape}};
      if (v.weight) op_case.inputs.push_back({{n}, 0.5, 2});
      if (v.bias) op_case.inputs.push_back({{n}});
      op_case.call = [=](std::span<const Tensor> in) {
        const Tensor weight = some(in, v.weight, 1), bias = some(in, v.bias, 1 + v.weight);
        return kind == 'g'   ? group_norm(in[0], v.groups, weight, bias)
               : kind == 'i' ? instance_norm(in[0], weight, bias)
                             : batch_norm(in[0], {}, {}, weight, bias, {.training = true});
      };
      op_case.reference = [=](std::span<const Array> in) {
        const auto group = [=](const Dims& i) {
          return kind == 'b' ? i[1] : kind == 'i' ? i[0] * n + i[1] : i[0] * n + i[1] / (n / v.groups);
        };
        return normalised(
            in[0], 1e-5, group, [](const Dims& i) { return i[1]; }, v.weight ? &in[1] : nullptr,
            v.bias ? &in[1 + v.weight] : nullptr);
      };
      if (size_of(v.shape) > 1000) op_case.second_order = false;
      finish(cases, op_case);
    }
  OpCase evaluated;
  evaluated.name = "batch_norm/eval";
  evaluated.inputs = {{{3, 4, 5}}, {{4}}, {{4}, 0.5, 2}, {{4}, 0.5, 2}, {{4}}};
  evaluated.call = [](std::span<const Tensor> in) { return batch_norm(in[0], in[1], in[2], in[3], in[4]); };
  evaluated.reference = [](std::span<const Array> in) {
    Array out(in[0].shape);
    each_index(out.shape, [&](const Dims& i) {
      const int64_t c = i[1];
      out.at(i) = (in[0].at(i) - in[1][c]) / std::sqrt(in[2][c] + 1e-5) * in[3][c] + in[4][c];
    });
    return out;
  };
  finish(cases, evaluated);

  // Over the places of a mask: those that it leaves out are a group by themselves, and zeros.
  struct Masked {
    const char* name;
    Dims shape, mask;
    bool affine;
  };
  for (const Masked& m : {Masked{"/masked", {3, 4, 5}, {3, 1, 5}, true},
                          {"/masked_plain", {4, 3, 2, 5}, {4, 1, 1, 5}, false},
                          {"/masked_flat", {7, 4}, {7, 1}, true},
                          {"/masked_empty", {0, 4, 5}, {0, 1, 5}, true}})
    for (const bool training : {true, false}) {
      OpCase masked;
      masked.name = str("batch_norm", m.name, training ? "" : "_eval");
      const Dim n = m.shape[1];
      masked.inputs = {{m.shape}, {m.mask, 0, 2, CaseInput::boolean}, {{n}}, {{n}, 0.5, 2}};
      if (m.affine) masked.inputs.insert(masked.inputs.end(), {CaseInput{{n}, 0.5, 2}, CaseInput{{n}}});
      masked.call = [=](std::span<const Tensor> in) {
        return batch_norm(in[0], training ? Tensor() : in[2], training ? Tensor() : in[3],
                          some(in, m.affine, 4), some(in, m.affine, 5),
                          {.training = training, .mask = in[1]});
      };
      masked.reference = [=](std::span<const Array> in) {
        const auto counts = [&](Dims i) {
          for (int axis = 0; axis < i.rank(); ++axis)
            if (in[1].shape[axis] == 1) i[axis] = 0;
          return in[1].at(i) != 0;
        };
        const auto channel = [](const Dims& i) { return i[1]; };
        const Array *weight = m.affine ? &in[4] : nullptr, *bias = m.affine ? &in[5] : nullptr;
        Array out = normalised(
            in[0], 1e-5, [&](const Dims& i) { return counts(i) ? i[1] : -1; }, channel, weight, bias);
        each_index(out.shape, [&](const Dims& i) {
          if (!counts(i))
            out.at(i) = 0;
          else if (!training)
            out.at(i) =
                (in[0].at(i) - in[2][i[1]]) / std::sqrt(in[3][i[1]] + 1e-5) * (weight ? (*weight)[i[1]] : 1) +
                (bias ? (*bias)[i[1]] : 0);
        });
        return out;
      };
      finish(cases, masked);
    }

  add_gradient(cases, "layer_norm_gradient", op_layer_norm_gradient(), {3, 8}, {3, 1, 8, 1}, false);
  add_gradient(cases, "layer_norm_gradient/empty", op_layer_norm_gradient(), {0, 8}, {0, 1, 8, 1}, false);
  add_gradient(cases, "layer_norm_gradient/tall", op_layer_norm_gradient(), {90, 3}, {90, 1, 3, 1}, false);
  add_gradient(cases, "group_norm_gradient", op_group_norm_gradient(), {2, 6, 5}, {2, 2, 3, 5}, false);
  add_gradient(cases, "group_norm_gradient/empty", op_group_norm_gradient(), {2, 6, 0}, {2, 2, 3, 0}, false);
  add_gradient(cases, "batch_norm_gradient", op_batch_norm_gradient(), {3, 4, 5}, {3, 1, 4, 5}, true);
  add_gradient(cases, "batch_norm_gradient/flat", op_batch_norm_gradient(), {7, 4}, {7, 1, 4, 1}, true);
  add_gradient(cases, "batch_norm_gradient/empty", op_batch_norm_gradient(), {0, 4, 5}, {0, 1, 4, 5}, true);

  OpCase rms;
  rms.name = "rms_norm";
  rms.inputs = {{{3, 4, 5}}, {{4, 5}, 0.5, 2}};
  rms.call = [](std::span<const Tensor> in) { return rms_norm(in[0], {4, 5}, in[1], 1e-3); };
  rms.reference = [](std::span<const Array> in) {
    Array out(in[0].shape);
    for (int64_t i = 0; i < out.size(); ++i) {
      double squares = 0;
      for (int64_t j = 0; j < 20; ++j) squares += in[0][i / 20 * 20 + j] * in[0][i / 20 * 20 + j] / 20;
      out[i] = in[0][i] / std::sqrt(squares + 1e-3) * in[1][i % 20];
    }
    return out;
  };
  finish(cases, rms);

  for (const double p : {2., 1.}) {
    OpCase unit;
    unit.name = p == 2 ? "normalize" : "normalize/p1";
    unit.inputs = {{{3, 4, 2}, 0.1, 1}};
    unit.call = [p](std::span<const Tensor> in) { return normalize(in[0], p, 1); };
    unit.reference = [p](std::span<const Array> in) {
      Array out(in[0].shape);
      each_index(out.shape, [&](const Dims& i) {
        double total = 0;
        for (Dim c = 0; c < 4; ++c) total += std::pow(std::abs(in[0].at({i[0], c, i[2]})), p);
        out.at(i) = in[0].at(i) / std::pow(total, 1 / p);
      });
      return out;
    };
    finish(cases, unit);
  }
  for (const int64_t size : {3, 4, 20}) {
    OpCase local;
    local.name = str("local_response_norm/size", size);
    local.inputs = {{{2, 5, 3}}};
    local.call = [size](std::span<const Tensor> in) {
      return local_response_norm(in[0], size, 0.5, 0.75, 1.5);
    };
    local.reference = [size](std::span<const Array> in) {
      Array out(in[0].shape);
      each_index(out.shape, [&](const Dims& i) {
        double total = 0;
        for (Dim c = i[1] - size / 2; c <= i[1] + (size - 1) / 2; ++c)
          if (c >= 0 && c < 5) total += in[0].at({i[0], c, i[2]}) * in[0].at({i[0], c, i[2]});
        out.at(i) = in[0].at(i) / std::pow(1.5 + 0.5 * total / static_cast<double>(size), 0.75);
      });
      return out;
    };
    finish(cases, local);
  }
}

}  // namespace tandem::testing
