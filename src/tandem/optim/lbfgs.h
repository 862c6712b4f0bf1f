// L-BFGS (Nocedal): steps along an estimate of Newton's direction, made of the last changes of the gradient. It evaluates
// the loss as often as it needs, so it takes a function and not gradients:
//   optim::Lbfgs lbfgs(net.trainable_parameters(), {.strong_wolfe = true});
//   for (int i = 0; i < 10; ++i) lbfgs.step([&] { return mse_loss(net(x), y); });
#pragma once

#include <deque>
#include <functional>

#include "tandem/nn/module.h"

namespace tandem::optim {

struct LbfgsOptions {
  double lr = 1.0;
  int64_t max_iterations = 20;  ///< per step()
  /// Evaluations of the loss per step(); 0: 1.25 times max_iterations.
  int64_t max_evaluations = 0;
  double gradient_tolerance = 1e-7;  ///< stop where no element of the gradient is larger
  double change_tolerance = 1e-9;    ///< stop where neither a parameter nor the loss changes by more
  int64_t history = 100;             ///< changes kept, each twice as large as the parameters
  /// Search along each direction for a point that meets the strong Wolfe conditions; else go lr far.
  bool strong_wolfe = false;
};

/// As PyTorch's LBFGS. Works in f32 and f64. How often the loss is evaluated depends on its values, which are read on the
/// host: step() cannot be inside compile(). The loss may call a compiled function.
class Lbfgs {
 public:
  /// Every parameter must want gradients. Groups with options of their own do not exist: the direction is one of all
  /// parameters together.
  explicit Lbfgs(nn::NamedTensors parameters, const LbfgsOptions& options = {});

  /// Changes the parameters by up to max_iterations iterations. `loss` computes a 0-d tensor from the parameters as they
  /// are at the call. Returns its first value.
  double step(const std::function<Tensor()>& loss);

  double lr() const { return options_.lr; }
  void set_lr(double lr);
  int64_t iterations() const { return iterations_; }    ///< of all steps so far
  int64_t evaluations() const { return evaluations_; }  ///< the same
  const nn::NamedTensors& parameters() const { return parameters_; }

  /// What a checkpoint must hold. The history is as long as it is.
  nn::NamedTensors named_state() const;
  /// Overwrites the state. See Module::load_state.
  void load_state(const nn::NamedTensors& tensors, const std::string& source);

 private:
  /// A point on the line of a search, how far out it is.
  struct Point {
    double at = 0, loss = 0;
    Tensor gradient;
    double slope = 0;  // along the direction
  };
  using Loss = std::function<Tensor()>;

  void follow_parameters();
  Point evaluate(const Loss& loss);
  Point evaluate(const Loss& loss, const std::vector<Tensor>& from, double at);
  Tensor new_direction(const Tensor& gradient);
  Point search(const Loss& loss, const Point& start, double at, int64_t max_evaluations);
  void move(double at);
  std::vector<Tensor> values() const;

  nn::NamedTensors parameters_;
  LbfgsOptions options_;
  int64_t size_ = 0;  // elements of all parameters
  int64_t iterations_ = 0, evaluations_ = 0;
  // Of the last iteration; zeros before the first.
  Tensor direction_, gradient_;
  double length_ = 0, scale_ = 1;       // of the step; of the first guess of the inverse Hessian
  std::deque<Tensor> changes_, steps_;  // of the gradient, and of the parameters: oldest first
  std::deque<double> inverses_;         // 1 / (change · step)
};

}  // namespace tandem::optim
