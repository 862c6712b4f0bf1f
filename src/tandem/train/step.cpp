// The training step and the evaluation step.
#include "tandem/train/step.h"

#include "tandem/core/autocast.h"
#include "tandem/core/scope.h"
#include "tandem/core/tape.h"
#include "tandem/data/loader.h"
#include "tandem/ops/index.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/clip.h"

namespace tandem {
namespace {

// A model in f16 cannot hold the small gradients of a mean loss: they are computed of loss · kHalfScale and divided again
// in f32, both exactly, as it is a power of two.
constexpr double kHalfScale = 1024;

bool is_16_bit(DType dtype) { return bytes_of(dtype) == 2; }

/// The loss is computed in f32 at least.
Tensor loss_of(const LossFunction& own, const Tensor& out, const Tensor& y) {
  const Tensor wide = is_16_bit(out.dtype()) ? cast(out, DType::f32) : out;
  const Tensor loss = own ? own(wide, y) : cross_entropy(wide, y, {.ignore_index = {}});
  TD_CHECK(loss.rank() == 0 && is_floating(loss.dtype()),
           "loss: must be one number, 0-d, of a floating type; got ", loss.dtype(), " ", loss.shape(),
           ". Take its mean().");
  return loss;
}

/// Numbers get the model's type; indices (tokens) stay as they are.
Tensor as_input(const Tensor& x, DType dtype) {
  return x.dtype() == dtype || !is_floating(x.dtype()) ? x : cast(x, dtype);
}

std::vector<Tensor> run(const TensorFunction& function, const std::unique_ptr<Compiled>& compiled,
                        const std::vector<Tensor>& inputs) {
  return compiled ? (*compiled)(inputs) : function(inputs);
}

/// Training or evaluation mode for a scope.
class ModeScope {
 public:
  ModeScope(nn::Module& model, bool training) : model_(model), before_(model.training()) {
    model.train(training);
  }
  ~ModeScope() { model_.train(before_); }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  nn::Module& model_;
  bool before_;
};

bool is_classification(const Tensor& out, const Tensor& y) {
  if (!is_integer(y.dtype()) || out.rank() != y.rank() + 1 || out.size() == 0) return false;
  for (int axis = 0; axis < y.rank(); ++axis)
    if (out.size(axis) != y.size(axis)) return false;
  return true;
}

/// How many classes come before y's by their output, the first among equals first: 0 where it is the largest.
Tensor rank_of(const Tensor& logits, const Tensor& y) {
  const Tensor at = unsqueeze(y, 1), own = gather(logits, 1, at);
  const Tensor classes = arange(logits.size(1), DType::i64, logits.device());
  // Written so that a NaN is ahead of everything, as for argmax.
  const Tensor behind =
      logical_or(less(logits, own), logical_and(equal(logits, own), greater_equal(classes, at)));
  return sum(logical_not(behind), {1});
}

std::vector<int64_t> read_integers(const std::vector<Tensor>& parts) {
  const NoGrad off;
  return parts.empty() ? std::vector<int64_t>() : cast(concat(parts), DType::i64).to_vector<int64_t>();
}

const std::vector<Tensor>& with_target(const data::Batch& batch) {
  TD_CHECK(batch.tensors.size() >= 2, "data: a sample must have an input and a target; got ",
           batch.tensors.size(), " fields.");
  return batch.tensors;
}

}  // namespace

Device device_of(const nn::Module& model) {
  const std::vector<Tensor> parameters = model.parameters();
  TD_CHECK(!parameters.empty(), "model: must have at least one parameter; got none.");
  return parameters.front().device();
}

DType dtype_of(const nn::Module& model) {
  device_of(model);
  return model.parameters().front().dtype();
}

TrainingStep::TrainingStep(nn::Module& model, optim::Optimizer& optimizer, Engine engine,
                           const StepOptions& options)
    : model_(model) {
  const DType dtype = dtype_of(model);
  const double scale = dtype == DType::f16 ? kHalfScale : 1;
  nn::NamedTensors trained;    // frozen parameters are left out
  std::vector<size_t> places;  // of the rest among the optimiser's parameters
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    if (!optimizer.parameters()[i].second.requires_grad()) continue;
    trained.push_back(optimizer.parameters()[i]);
    places.push_back(i);
  }
  TD_CHECK(!trained.empty(), "training step: at least one parameter must not be frozen; all ",
           optimizer.parameters().size(), " are. unfreeze() some.");
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : trained) parameters.push_back(parameter);
  if (options.accumulates) sums_ = std::make_unique<optim::GradientSum>(trained);
  // Adds this batch's gradients to the sums, where there are any.
  const auto gradients_of = [&model, parameters, dtype, scale, sums = sums_.get(), own = options.loss,
                             autocast = options.autocast, scaler = options.scaler](
                                const std::vector<Tensor>& in, std::vector<Tensor>& gradients) {
    const auto forward = [&] {
      const Scope scope("forward");
      const Autocast precision(autocast);
      return loss_of(own, model(as_input(in[0], dtype)), in[1]);
    };
    const Tensor loss = forward();
    const Scope scope("backward");
    gradients = grad(scaler ? scaler->scale(loss) : scale == 1 ? loss : loss * scale, parameters);
    if (scaler) gradients = scaler->unscale(gradients);
    if (scale != 1) {
      const NoGrad off;
      for (Tensor& gradient : gradients) gradient = cast(gradient, DType::f32) * (1 / scale);
    }
    if (sums) sums->add(gradients, in[0].size(0));
    return loss.detach();
  };
  update_.function = [&optimizer, gradients_of, places, sums = sums_.get(),
                      options](const std::vector<Tensor>& in) {
    std::vector<Tensor> gradients;
    const Tensor loss = gradients_of(in, gradients);
    const Scope scope("update");
    if (sums) gradients = sums->take();
    const Tensor finite = options.scaler ? optim::all_finite(gradients) : Tensor();
    if (options.clip_value) gradients = optim::clip_by_value(gradients, *options.clip_value);
    if (options.clip_norm) gradients = optim::clip_by_norm(gradients, *options.clip_norm);
    std::vector<Tensor> of_all(optimizer.parameters().size());
    for (size_t i = 0; i < places.size(); ++i) of_all[places[i]] = gradients[i];
    optimizer.update(of_all, finite);
    if (options.ema) options.ema->update(finite);
    if (options.scaler) options.scaler->update(finite);
    return std::vector<Tensor>{loss};
  };
  add_.function = [gradients_of](const std::vector<Tensor>& in) {
    std::vector<Tensor> gradients;
    return std::vector<Tensor>{gradients_of(in, gradients)};
  };
  if (engine == Engine::eager) return;
  for (Part* part : {&update_, &add_})
    part->compiled = std::make_unique<Compiled>(compile(part->function, options.compile));
}

Tensor TrainingStep::accumulate(const Tensor& x, const Tensor& y) {
  TD_CHECK(sums_, "accumulate: the step must be made with .accumulates = true.");
  return call(add_, x, y);
}

Tensor TrainingStep::call(Part& part, const Tensor& x, const Tensor& y) {
  model_.train();
  return run(part.function, part.compiled, {x, y})[0];
}

std::vector<GraphReport> TrainingStep::reports() const {
  return update_.compiled ? update_.compiled->reports() : std::vector<GraphReport>{};
}

Evaluation::Evaluation(nn::Module& model, Engine engine, LossFunction loss, std::optional<DType> autocast)
    : model_(model) {
  const DType dtype = dtype_of(model);
  function_ = [&model, dtype, autocast, own = std::move(loss)](const std::vector<Tensor>& in) {
    const NoGrad off;
    const Autocast precision(autocast);
    const Tensor out = model(as_input(in[0], dtype));
    std::vector<Tensor> results = {loss_of(own, out, in[1])};
    if (is_classification(out, in[1])) {
      const Tensor logits = reshape(out, {-1, out.size(-1)}), y = reshape(in[1], {-1});
      results.push_back(argmax(logits, 1));
      results.push_back(rank_of(logits, y));
      results.push_back(full({}, static_cast<double>(out.size(-1)), DType::i64, out.device()));
    }
    return results;
  };
  if (engine == Engine::graph) compiled_ = std::make_unique<Compiled>(compile(function_));
}

Metrics Evaluation::operator()(const data::Dataset& dataset, int64_t batch_size, int64_t k) {
  const ModeScope mode(model_, false);
  const Device device = device_of(model_);
  data::Loader loader(dataset, {.batch = batch_size, .shuffle = false, .device = device});
  std::vector<Tensor> losses, predictions, ranks, targets;
  std::vector<double> sizes;
  int64_t classes = 0;
  loader.start_epoch(0);
  while (std::optional<data::Batch> batch = loader.next()) {
    const NoGrad off;
    const std::vector<Tensor>& in = with_target(*batch);
    const std::vector<Tensor> result = run(function_, compiled_, {in[0], in[1]});
    losses.push_back(result[0]);
    sizes.push_back(static_cast<double>(batch->size));
    if (result.size() == 1) continue;
    predictions.push_back(result[1]);
    ranks.push_back(result[2]);
    targets.push_back(reshape(in[1], {-1}));
    if (classes == 0) classes = result[3].item<int64_t>();
  }

  Metrics total{.samples = dataset.size(), .loss = 0};
  const std::vector<double> loss = read_scalars(losses);
  double samples = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    total.loss += loss[i] * sizes[i];
    samples += sizes[i];
  }
  total.loss /= samples;
  if (classes == 0) return total;
  const std::vector<int64_t> predicted = read_integers(predictions), rank = read_integers(ranks),
                             target = read_integers(targets);
  total.confusion = ConfusionMatrix(classes);
  total.k = std::min(k, classes);
  double among = 0;
  for (size_t i = 0; i < target.size(); ++i) {
    total.confusion.add(target[i], predicted[i]);
    among += rank[i] < total.k ? 1 : 0;
  }
  total.accuracy = total.confusion.accuracy();
  total.top_k = among / static_cast<double>(target.size());
  return total;
}

Tensor predict_all(nn::Module& model, const data::Dataset& dataset, int64_t batch_size, Engine engine,
                   std::optional<DType> autocast) {
  const ModeScope mode(model, false);
  const Device device = device_of(model);
  const DType dtype = dtype_of(model);
  const NoGrad off;
  const TensorFunction forward = [&](const std::vector<Tensor>& in) {
    const Autocast precision(autocast);
    return std::vector<Tensor>{model(as_input(in[0], dtype))};
  };
  const auto compiled = engine == Engine::graph ? std::make_unique<Compiled>(compile(forward)) : nullptr;
  data::Loader loader(dataset, {.batch = batch_size, .shuffle = false, .device = device});
  loader.start_epoch(0);
  std::vector<Tensor> parts;
  while (std::optional<data::Batch> batch = loader.next())
    parts.push_back(to(run(forward, compiled, {batch->tensors.at(0)})[0], Device{}));
  return concat(parts);
}

nn::NamedTensors loss_gradients(nn::Module& model, const LossFunction& loss, const Tensor& x,
                                const Tensor& y) {
  const ModeScope mode(model, false);
  nn::NamedTensors named = model.named_parameters();
  const std::vector<Tensor> gradients =
      grad(loss_of(loss, model(as_input(x, dtype_of(model))), y), model.parameters());
  for (size_t i = 0; i < named.size(); ++i) named[i].second = gradients[i];
  return named;
}

std::vector<double> read_scalars(const std::vector<Tensor>& scalars) {
  if (scalars.empty()) return {};
  const NoGrad off;
  std::vector<Tensor> rows;
  for (const Tensor& scalar : scalars) rows.push_back(reshape(scalar, {1}));
  return cast(concat(rows), DType::f64).to_vector<double>();
}

}  // namespace tandem
