// L-BFGS. Vectors are tensors of all parameters' elements; what decides is read on the host.
#include "tandem/optim/lbfgs.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/shape.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/optimizer.h"

namespace tandem::optim {

namespace {

constexpr double kArmijo = 1e-4, kCurvature = 0.9;  // of the Wolfe conditions
constexpr double kLeastBracket = 1e-9;              // times the largest element of the direction
constexpr double kLeastCurvature = 1e-10;           // of a change that is worth keeping

void check_type(const Tensor& parameter) {
  TD_CHECK(parameter.dtype() == DType::f32 || parameter.dtype() == DType::f64,
           "lbfgs: the parameters must be f32 or f64; got ", parameter.dtype(),
           ", whose products of vectors are too coarse. Convert the model first: net.to(DType::f32).");
}

double dot(const Tensor& a, const Tensor& b) { return sum(a * b).item<double>(); }
double largest(const Tensor& x) { return max(abs(x)).item<double>(); }

/// Where the cubic through two points with their slopes is least, within bounds.
template <class Point>
double cubic_least(const Point& a, const Point& b, double low, double high) {
  const double d = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at);
  const double square = d * d - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double root = std::sqrt(square);
  const Point &left = a.at <= b.at ? a : b, &right = a.at <= b.at ? b : a;
  const double least =
      right.at - (right.at - left.at) * ((right.slope + root - d) / (right.slope - left.slope + 2 * root));
  return std::min(std::max(least, low), high);
}

}  // namespace

Lbfgs::Lbfgs(nn::NamedTensors parameters, const LbfgsOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  detail::check_parameters(parameters_);
  for (const auto& [name, tensor] : parameters_) {
    TD_CHECK(tensor.requires_grad(), "lbfgs: every parameter must want gradients; got '", name,
             "', which is frozen. Leave it out (trainable_parameters() does).");
    size_ += tensor.size();
  }
  const Tensor& first = parameters_.front().second;
  check_type(first);
  TD_CHECK(size_ > 0, "lbfgs: the parameters must have elements; they have none.");
  set_lr(options_.lr);
  TD_CHECK(options_.max_iterations >= 1 && options_.max_evaluations >= 0 && options_.history >= 1,
           "lbfgs: max_iterations and history must be at least 1, max_evaluations at least 0; got ",
           options_.max_iterations, ", ", options_.history, " and ", options_.max_evaluations, ".");
  TD_CHECK(options_.gradient_tolerance >= 0 && options_.change_tolerance >= 0,
           "lbfgs: tolerances must be at least 0; got ", options_.gradient_tolerance, " and ",
           options_.change_tolerance, ".");
  if (options_.max_evaluations == 0)
    options_.max_evaluations = plus_capped(options_.max_iterations, options_.max_iterations / 4);
  direction_ = zeros({size_}, first.dtype(), first.device());
  gradient_ = zeros({size_}, first.dtype(), first.device());
}

/// They may have been frozen, converted or moved since the optimiser was made. A frozen one cannot be left out of directions
/// that were estimated with it; the state can go where the others went.
void Lbfgs::follow_parameters() {
  detail::check_alike(parameters_);
  for (const auto& [name, tensor] : parameters_)
    TD_CHECK(tensor.requires_grad(), "lbfgs step: every parameter must want gradients; '", name,
             "' was frozen after the optimiser was made. unfreeze() it, or make an optimiser of the others.");
  const Tensor& first = parameters_.front().second;
  check_type(first);
  if (direction_.dtype() == first.dtype() && direction_.device() == first.device()) return;
  const auto follow = [&](Tensor& x) { x = to(cast(x, first.dtype()), first.device()); };
  follow(direction_);
  follow(gradient_);
  for (Tensor& change : changes_) follow(change);
  for (Tensor& step : steps_) follow(step);
}

void Lbfgs::set_lr(double lr) {
  refuse_while_tracing("set_lr", "the rate would be set only while the callable is traced",
                       "Call it outside, as step() is.");
  TD_CHECK(std::isfinite(lr) && lr >= 0, "lbfgs: the learning rate must be at least 0; got ", lr, ".");
  options_.lr = lr;
}

Lbfgs::Point Lbfgs::evaluate(const Loss& loss) {
  const GradMode on(true);
  const Tensor value = loss();
  TD_CHECK(value.defined() && value.rank() == 0, "lbfgs step: the loss must be a 0-d tensor; got ",
           describe(value), ".");
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
  std::vector<Tensor> parts;
  for (const Tensor& part : grad(value, tensors, {}, {}, true)) parts.push_back(reshape(part.detach(), {-1}));
  ++evaluations_;
  return {.at = 0, .loss = value.item<double>(), .gradient = concat(parts), .slope = 0};
}

/// At `at` times the direction from where the parameters were; they are there again afterwards.
Lbfgs::Point Lbfgs::evaluate(const Loss& loss, const std::vector<Tensor>& from, double at) {
  move(at);
  Point point = evaluate(loss);
  for (size_t i = 0; i < from.size(); ++i) assign(parameters_[i].second, from[i]);
  point.at = at;
  point.slope = dot(point.gradient, direction_);
  return point;
}

std::vector<Tensor> Lbfgs::values() const {
  std::vector<Tensor> out;
  for (const auto& [name, tensor] : parameters_) out.push_back(clone(tensor.detach()));
  return out;
}

void Lbfgs::move(double at) {
  int64_t begin = 0;
  for (const auto& [name, tensor] : parameters_) {
    const Tensor part = slice(direction_, 0, begin, begin + tensor.size());
    assign(tensor, tensor + reshape(part, tensor.shape()) * at);
    begin += tensor.size();
  }
}

/// The two-loop recursion: minus the gradient, times the estimate of the inverse Hessian. Takes the last change in first.
Tensor Lbfgs::new_direction(const Tensor& gradient) {
  if (iterations_ == 1) return -gradient;
  const Tensor change = gradient - gradient_, step = direction_ * length_;
  const double product = dot(change, step);
  if (product > kLeastCurvature) {
    if (static_cast<int64_t>(changes_.size()) == options_.history) {
      changes_.pop_front();
      steps_.pop_front();
      inverses_.pop_front();
    }
    changes_.push_back(change);
    steps_.push_back(step);
    inverses_.push_back(1 / product);
    scale_ = product / dot(change, change);
  }
  std::vector<double> weights(changes_.size());
  Tensor way = -gradient;
  for (size_t i = changes_.size(); i-- > 0;) {
    weights[i] = dot(steps_[i], way) * inverses_[i];
    way = way - changes_[i] * weights[i];
  }
  way = way * scale_;
  for (size_t i = 0; i < changes_.size(); ++i)
    way = way + steps_[i] * (weights[i] - dot(changes_[i], way) * inverses_[i]);
  return way;
}

/// A point along the direction that meets the strong Wolfe conditions, or the best one that max_evaluations found: first a
/// bracket around one, then smaller brackets.
Lbfgs::Point Lbfgs::search(const Loss& loss, const Point& start, double at, int64_t max_evaluations) {
  const std::vector<Tensor> from = values();
  const double reach = largest(direction_);
  const auto too_high = [&](const Point& p) { return p.loss > start.loss + kArmijo * p.at * start.slope; };
  const auto is_flat = [&](const Point& p) { return std::abs(p.slope) <= -kCurvature * start.slope; };
  Point low = start, high = evaluate(loss, from, at);  // in the order in which they were found
  int64_t rounds = 0;
  for (;; ++rounds) {
    if (rounds >= max_evaluations) {
      low = start;
      break;
    }
    if (too_high(high) || (rounds > 1 && high.loss >= low.loss)) break;
    if (is_flat(high)) return high;
    if (high.slope >= 0) break;
    const double next = cubic_least(low, high, high.at + 0.01 * (high.at - low.at), high.at * 10);
    low = std::move(high);
    high = evaluate(loss, from, next);
  }
  Point bracket[2] = {std::move(low), std::move(high)};
  const auto lowest = [&] { return bracket[0].loss <= bracket[1].loss ? 0 : 1; };
  int best = lowest();
  bool is_slow = false;
  for (; rounds < max_evaluations; ++rounds) {
    const double left = std::min(bracket[0].at, bracket[1].at),
                 right = std::max(bracket[0].at, bracket[1].at);
    if ((right - left) * reach < kLeastBracket) break;
    double next = cubic_least(bracket[0], bracket[1], left, right);
    // Twice close to an end, or at one: go a tenth of the bracket away from it.
    const double margin = 0.1 * (right - left);
    if (std::min(right - next, next - left) < margin) {
      const bool jumps = is_slow || next >= right || next <= left;
      if (jumps) next = std::abs(next - right) < std::abs(next - left) ? right - margin : left + margin;
      is_slow = !jumps;
    } else {
      is_slow = false;
    }
    Point point = evaluate(loss, from, next);
    Point &least = bracket[best], &other = bracket[1 - best];
    if (too_high(point) || point.loss >= least.loss) {
      other = std::move(point);
      best = lowest();
      continue;
    }
    const bool done = is_flat(point);
    if (!done && point.slope * (other.at - least.at) >= 0) other = std::move(least);
    least = std::move(point);
    if (done) break;
  }
  return bracket[best];
}

double Lbfgs::step(const Loss& loss) {
  TD_CHECK(!current_tracer(),
           "lbfgs step: must be called outside of compile(): how often it evaluates the loss depends on the "
           "loss's "
           "values, and a compiled callable does the same operations at every call. Compile the loss and "
           "call it in the "
           "function that step() takes.");
  const NoGrad off;
  follow_parameters();
  Point here = evaluate(loss);
  const double first = here.loss;
  int64_t evaluations = 1;
  if (largest(here.gradient) <= options_.gradient_tolerance) return first;
  for (int64_t i = 1; i <= options_.max_iterations; ++i) {
    ++iterations_;
    direction_ = new_direction(here.gradient);
    gradient_ = here.gradient;
    const double loss_before = here.loss;
    length_ = options_.lr;
    if (iterations_ == 1) length_ *= std::min(1.0, 1.0 / sum(abs(here.gradient)).item<double>());
    here.at = 0;
    here.slope = dot(here.gradient, direction_);
    if (here.slope > -options_.change_tolerance) break;
    bool is_known = true;  // what the loss is where the parameters are now
    const int64_t before = evaluations_;
    if (options_.strong_wolfe) {
      here = search(loss, here, length_, options_.max_evaluations - evaluations);
      length_ = here.at;
      move(length_);
    } else {
      move(length_);
      is_known = i != options_.max_iterations;
      if (is_known) here = evaluate(loss);
    }
    evaluations += evaluations_ - before;
    if (!is_known || evaluations >= options_.max_evaluations ||
        largest(here.gradient) <= options_.gradient_tolerance ||
        largest(direction_) * std::abs(length_) <= options_.change_tolerance ||
        std::abs(here.loss - loss_before) < options_.change_tolerance)
      break;
  }
  return first;
}

nn::NamedTensors Lbfgs::named_state() const {
  const auto rows = [&](const std::deque<Tensor>& list) {
    return list.empty() ? zeros({0, size_}, direction_.dtype(), direction_.device())
                        : stack(std::vector<Tensor>(list.begin(), list.end()));
  };
  const NoGrad off;
  return {{"lr", full({}, options_.lr, DType::f64)},
          {"iterations", from_vector<int64_t>({iterations_}, {})},
          {"evaluations", from_vector<int64_t>({evaluations_}, {})},
          {"length", full({}, length_, DType::f64)},
          {"scale", full({}, scale_, DType::f64)},
          {"direction", direction_},
          {"gradient", gradient_},
          {"changes", rows(changes_)},
          {"steps", rows(steps_)}};
}

void Lbfgs::load_state(const nn::NamedTensors& tensors, const std::string& source) {
  const NoGrad off;
  int64_t rows = 0;
  for (const auto& [name, tensor] : tensors)
    if (name == "changes" && tensor.defined() && tensor.rank() == 2) rows = tensor.size(0);
  TD_CHECK(rows <= options_.history, source, ": the history must have at most ", options_.history,
           " rows; the file has ", rows, ". Make the optimiser with .history = ", rows, " or more.");
  const Tensor changes = zeros({rows, size_}, direction_.dtype(), direction_.device());
  nn::NamedTensors state = named_state();
  state[5].second = clone(direction_);
  state[6].second = clone(gradient_);
  state[7].second = changes;
  state[8].second = zeros_like(changes);
  nn::copy_named(state, tensors, source, "optimiser state");
  set_lr(state[0].second.item<double>());
  iterations_ = state[1].second.item<int64_t>();
  evaluations_ = state[2].second.item<int64_t>();
  length_ = state[3].second.item<double>();
  scale_ = state[4].second.item<double>();
  direction_ = state[5].second;
  gradient_ = state[6].second;
  changes_.clear();
  steps_.clear();
  inverses_.clear();
  for (int64_t i = 0; i < rows; ++i) {
    changes_.push_back(clone(select(state[7].second, 0, i)));
    steps_.push_back(clone(select(state[8].second, 0, i)));
    inverses_.push_back(1 / dot(changes_.back(), steps_.back()));
  }
}

}  // namespace tandem::optim
