// Gradients of gradients: Newton's method finds the minimum of Rosenbrock's valley in a few steps, where gradient descent
// needs thousands.
#include <cstdio>

#include "tandem/tandem.h"

using namespace tandem;

int main() {
  Tensor p = from_vector<double>({-1.2, 1}, {2});
  double value = 1;
  int steps = 0;
  for (; value > 1e-20 && steps < 20; ++steps) {
    p = p.detach().set_requires_grad();
    const Tensor x = select(p, 0, 0), y = select(p, 0, 1);
    const Tensor f = square(1.0 - x) + square(y - square(x)) * 100.0;
    const Tensor gradient = grad(f, std::vector<Tensor>{p}, {}, {.create_graph = true})[0];
    std::vector<Tensor> rows;  // of the Hessian
    for (int i = 0; i < 2; ++i) rows.push_back(grad(select(gradient, 0, i), std::vector<Tensor>{p})[0]);
    const NoGrad off;
    p = p - solve(stack(rows), gradient.detach());
    value = f.item<double>();
    std::printf("step %d: f = %.3g\n", steps, value);
  }
  const std::vector<double> at = p.to_vector<double>();
  std::printf("minimum at (%.6f, %.6f) after %d steps\n", at[0], at[1], steps);
  return value < 1e-20 ? 0 : 1;
}
