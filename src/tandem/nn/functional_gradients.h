// Derivatives of functions: products with the Jacobian from either side, whole Jacobians and Hessians. A function takes
// tensors and returns tensors; nobody marks leaves or walks the tape by hand:
//   const Tensor j = jacobian([](const Tensor& x) { return x * x; }, x);   // (n, n), 2 x on the diagonal
// All work eagerly and inside compile(), with equal bits, and also under NoGrad. Values and conventions of shapes are those
// of torch.autograd.functional.
#pragma once

#include <functional>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem {

/// What is differentiated: of several tensors, or of one.
using ManyToMany = std::function<std::vector<Tensor>(const std::vector<Tensor>& in)>;
using OneToOne = std::function<Tensor(const Tensor& in)>;

struct DerivativeOptions {
  /// Record the derivative itself, so that it has gradients: with regard to the inputs and to what the function uses
  /// besides them (parameters).
  bool create_graph = false;
};

struct JacobianProducts {
  std::vector<Tensor> outputs;   ///< f(inputs)
  std::vector<Tensor> products;  ///< vjp: one for each input; jvp: one for each output
};
struct JacobianProduct {
  Tensor output, product;
};

/// Seeds times Jacobian: what backward() computes. One seed for each output, of its shape and type; none at all where f
/// gives one 0-d tensor. Costs about as much as two or three calls of f.
JacobianProducts vjp(const ManyToMany& f, const std::vector<Tensor>& inputs,
                     const std::vector<Tensor>& seeds = {}, const DerivativeOptions& options = {});
JacobianProduct vjp(const OneToOne& f, const Tensor& input, const Tensor& seed = {},
                    const DerivativeOptions& options = {});

/// Jacobian times tangents: the derivative in a direction. One tangent for each input, of its shape and type. Made of two
/// backward passes (the second goes through the first), so every operation of f needs a gradient of its gradient.
JacobianProducts jvp(const ManyToMany& f, const std::vector<Tensor>& inputs,
                     const std::vector<Tensor>& tangents, const DerivativeOptions& options = {});
JacobianProduct jvp(const OneToOne& f, const Tensor& input, const Tensor& tangent,
                    const DerivativeOptions& options = {});

/// All derivatives of every output element: [i][j] is that of output i by input j, (shape of output i, shape of input j).
/// One backward pass for each element of an output.
std::vector<std::vector<Tensor>> jacobian(const ManyToMany& f, const std::vector<Tensor>& inputs,
                                          const DerivativeOptions& options = {});
Tensor jacobian(const OneToOne& f, const Tensor& input, const DerivativeOptions& options = {});

/// All second derivatives of a function that gives one 0-d tensor: [i][j] is that by inputs i and j, (shape of input i, shape
/// of input j). One backward pass for each element of an input, through the first one.
std::vector<std::vector<Tensor>> hessian(const std::function<Tensor(const std::vector<Tensor>& in)>& f,
                                         const std::vector<Tensor>& inputs,
                                         const DerivativeOptions& options = {});
Tensor hessian(const OneToOne& f, const Tensor& input, const DerivativeOptions& options = {});

}  // namespace tandem
