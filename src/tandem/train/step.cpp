// The training step and the evaluation step.
#include "tandem/train/step.h"

#include "tandem/core/tape.h"
#include "tandem/data/loader.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {
namespace {

constexpr int64_t kTestBatch = 500;  // part of what test_loss is: batch means are added up

// f16 cannot hold the small gradients of a mean loss: they are computed of loss · kScale and divided again in
// f32, both exactly, as it is a power of two.
constexpr double kHalfScale = 1024;

bool is_16_bit(DType dtype) { return bytes_of(dtype) == 2; }

/// The loss is computed in f32 at least.
Tensor loss_of(const Tensor& logits, const Tensor& y) {
  return cross_entropy(is_16_bit(logits.dtype()) ? cast(logits, DType::f32) : logits, y);
}

Tensor as_input(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

std::vector<Tensor> run(const TensorFunction& function, const std::unique_ptr<Compiled>& compiled,
                        const std::vector<Tensor>& inputs) {
  return compiled ? (*compiled)(inputs) : function(inputs);
}

}  // namespace

TrainingStep::TrainingStep(nn::Module& model, optim::Optimizer& optimizer, Engine engine,
                           const CompileOptions& options)
    : model_(model) {
  std::vector<Tensor> trained;
  std::vector<size_t> places;  // of them among the optimiser's parameters; frozen ones are left out
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const Tensor& parameter = optimizer.parameters()[i].second;
    if (!parameter.requires_grad()) continue;
    trained.push_back(parameter);
    places.push_back(i);
  }
  TD_CHECK(!trained.empty(), "training step: at least one parameter must not be frozen; all ",
           optimizer.parameters().size(), " are. unfreeze() some.");
  const DType dtype = trained.front().dtype();
  const double scale = dtype == DType::f16 ? kHalfScale : 1;
  function_ = [&model, &optimizer, trained, places, dtype, scale](const std::vector<Tensor>& in) {
    const Tensor loss = loss_of(model(as_input(in[0], dtype)), in[1]);
    std::vector<Tensor> gradients = grad(scale == 1 ? loss : loss * scale, trained);
    if (scale != 1) {
      const NoGrad off;
      for (Tensor& gradient : gradients) gradient = cast(gradient, DType::f32) * (1 / scale);
    }
    std::vector<Tensor> of_all(optimizer.parameters().size());
    for (size_t i = 0; i < places.size(); ++i) of_all[places[i]] = gradients[i];
    optimizer.update(of_all);
    return std::vector<Tensor>{loss.detach()};
  };
  if (engine == Engine::graph) compiled_ = std::make_unique<Compiled>(compile(function_, options));
}

Tensor TrainingStep::operator()(const Tensor& x, const Tensor& y) {
  model_.train();
  return run(function_, compiled_, {x, y})[0];
}

std::vector<GraphReport> TrainingStep::reports() const {
  return compiled_ ? compiled_->reports() : std::vector<GraphReport>{};
}

Evaluation::Evaluation(nn::Module& model, Engine engine) : model_(model) {
  const DType dtype = model.parameters().front().dtype();
  function_ = [&model, dtype](const std::vector<Tensor>& in) {
    const NoGrad off;
    const Tensor logits = model(as_input(in[0], dtype));
    return std::vector<Tensor>{loss_of(logits, in[1]), sum(equal(argmax(logits, 1), in[1]))};
  };
  if (engine == Engine::graph) compiled_ = std::make_unique<Compiled>(compile(function_));
}

TestResult Evaluation::operator()(const data::Dataset& dataset) {
  const bool was_training = model_.training();
  model_.eval();
  const Device device = model_.parameters().front().device();
  data::Loader loader(dataset, {.batch = kTestBatch, .shuffle = false});
  std::vector<Tensor> losses, hits;
  std::vector<double> sizes;
  loader.start_epoch(0);
  while (std::optional<data::Batch> batch = loader.next()) {
    const NoGrad off;
    const std::vector<Tensor> result =
        run(function_, compiled_, {to(batch->tensors[0], device), to(batch->tensors[1], device)});
    losses.push_back(result[0]);
    hits.push_back(result[1]);
    sizes.push_back(static_cast<double>(batch->size));
  }
  model_.train(was_training);

  const std::vector<double> loss = read_scalars(losses), hit = read_scalars(hits);
  TestResult total;
  double samples = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    total.loss += loss[i] * sizes[i];
    total.accuracy += hit[i];
    samples += sizes[i];
  }
  total.loss /= samples;
  total.accuracy /= samples;
  return total;
}

std::vector<double> read_scalars(const std::vector<Tensor>& scalars) {
  if (scalars.empty()) return {};
  const NoGrad off;
  std::vector<Tensor> rows;
  for (const Tensor& scalar : scalars) rows.push_back(reshape(scalar, {1}));
  return cast(concat(rows), DType::f64).to_vector<double>();
}

}  // namespace tandem
