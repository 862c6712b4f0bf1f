// Weights computed from other parameters.
#include "tandem/nn/parametrized.h"

#include "tandem/core/autocast.h"
#include "tandem/core/tape.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem::nn::detail {

namespace {

constexpr double kEpsilon = 1e-12;  // of a norm, as PyTorch's
constexpr int kFirstIterations = 15;

/// A module that only holds things.
std::shared_ptr<RuntimeModule> holder(const char* type) {
  return std::make_shared<RuntimeModule>(type, [](RuntimeModule& self, const std::vector<Tensor>&) {
    throw Error(str("module ", self.type_name(), ": is called by its layer alone. Call the layer."));
    return std::vector<Tensor>{};
  });
}

/// "parametrizations", with what computes the weight below it.
ModulePtr holding(const std::shared_ptr<RuntimeModule>& weight) {
  const std::shared_ptr<RuntimeModule> all = holder("Parametrizations");
  all->add_child("weight", weight);
  return all;
}

Tensor norm_but(const Tensor& v, int axis) {
  TD_CHECK(axis >= 0 && axis < v.rank(), "WeightNorm: the axis must be one of the weight's ", v.rank(),
           "; got ", axis, ".");
  Dims others;
  for (int i = 0; i < v.rank(); ++i)
    if (i != axis) others.push_back(i);
  return sqrt(others.rank() == 0 ? v * v : sum(v * v, others, true));
}

/// A weight as a matrix: outputs by the rest.
Tensor as_matrix(const Tensor& weight, int axis) {
  TD_CHECK(weight.rank() >= 2, "SpectralNorm: the weight must have at least two axes; got ", weight.shape(),
           ".");
  return reshape(axis == 0 ? weight : transpose(weight, 0, axis), {weight.size(axis), -1});
}

/// (m, n) times (n).
Tensor product(const Tensor& matrix, const Tensor& vector) {
  return reshape(matmul(matrix, unsqueeze(vector, 1)), {matrix.size(0)});
}

Tensor unit(const Tensor& vector) { return vector / maximum(sqrt(sum(vector * vector)), kEpsilon); }

/// Power iterations from v on.
void improve(const Tensor& matrix, Tensor& u, Tensor& v, int times) {
  const Tensor turned = transpose(matrix, 0, 1);
  for (int i = 0; i < times; ++i) {
    u = unit(product(matrix, v));
    v = unit(product(turned, u));
  }
}

RuntimeModule& weight_of(RuntimeModule& parts) { return parts.at<RuntimeModule>("weight"); }

}  // namespace

ModulePtr weight_norm_parts(const Tensor& weight, int axis) {
  const NoGrad off;
  const std::shared_ptr<RuntimeModule> parts = holder("WeightNormParts");
  parts->add_parameter("original0", norm_but(weight, axis));
  parts->add_parameter("original1", tandem::clone(weight.detach()));
  return holding(parts);
}

Tensor weight_from_norm(RuntimeModule& parts, int axis) {
  const NoAutocast full;
  const Tensor g = weight_of(parts).tensor("original0"), v = weight_of(parts).tensor("original1");
  return v * (g / norm_but(v, axis));
}

ModulePtr spectral_norm_parts(const Tensor& weight, int axis) {
  const NoGrad off;
  const Tensor matrix = as_matrix(weight.detach(), axis);
  Tensor u = unit(normal({matrix.size(0)})), v = unit(normal({matrix.size(1)}));
  improve(matrix, u, v, kFirstIterations);
  const std::shared_ptr<RuntimeModule> parts = holder("SpectralNormParts"),
                                       vectors = holder("PowerIteration");
  parts->add_parameter("original", tandem::clone(weight.detach()));
  vectors->add_buffer("_u", u);
  vectors->add_buffer("_v", v);
  parts->add_child("0", vectors);
  return holding(parts);
}

Tensor weight_from_spectrum(RuntimeModule& parts, int axis, bool iterates, int iterations) {
  const NoAutocast full;  // the buffers' type
  const Tensor original = weight_of(parts).tensor("original");
  RuntimeModule& vectors = weight_of(parts).at<RuntimeModule>("0");
  Tensor u = vectors.tensor("_u"), v = vectors.tensor("_v");
  if (iterates) {
    const NoGrad off;
    Tensor better_u = u, better_v = v;
    improve(as_matrix(original.detach(), axis), better_u, better_v, iterations);
    assign(u, better_u);
    assign(v, better_v);
    u = better_u;
    v = better_v;
  } else {
    // Copies: a later call in training changes the buffers, and the gradient of this one must not see that.
    const NoGrad off;
    u = tandem::clone(u);
    v = tandem::clone(v);
  }
  const Tensor sigma = sum(u * product(as_matrix(original, axis), v));
  return original / sigma;
}

}  // namespace tandem::nn::detail
