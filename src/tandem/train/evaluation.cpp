// Testing a model over a data set, predicting, and the gradients of one batch.
#include <algorithm>

#include "tandem/core/autocast.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/loader.h"
#include "tandem/nn/mode_scope.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/train/step.h"
#include "tandem/train/task_calls.h"

namespace tandem {
namespace {

/// For a scope this thread draws from the same stream each time; then its own goes on where it was. A model that draws
/// while it is tested, as Tacotron 2 does, so has the same figures at each test, and training does not depend on tests.
class TestDraws {
 public:
  TestDraws() : before_(generator_state()) { manual_seed(0); }
  ~TestDraws() { set_generator_state(before_); }
  TestDraws(const TestDraws&) = delete;
  TestDraws& operator=(const TestDraws&) = delete;

 private:
  const GeneratorState before_;
};

/// Whether what was measured of two batches can be put one after the other.
bool are_alike(const Named& a, const Named& b) {
  const auto rest = [](const Tensor& x) {
    Dims shape = x.shape();
    if (shape.rank() > 0) shape.erase(0);
    return shape;
  };
  return &a.names() == &b.names() && std::equal(a.values().begin(), a.values().end(), b.values().begin(),
                                                [&](const Tensor& x, const Tensor& y) {
                                                  return x.defined() == y.defined() &&
                                                         (!x.defined() || rest(x) == rest(y));
                                                });
}

/// Reads what was measured of several batches at once, and hands it to the meter.
void hand_over(Meter& meter, std::vector<Named>& measured) {
  if (measured.empty()) return;
  const NoGrad off;
  std::vector<Tensor> together;
  for (size_t field = 0; field < measured.front().size(); ++field) {
    std::vector<Tensor> parts;
    for (const Named& batch : measured) parts.push_back(batch[field]);
    together.push_back(!parts[0].defined() ? Tensor()
                                           : to(parts.size() == 1 ? parts[0] : concat(parts), Device{}));
  }
  meter.add({measured.front().names(), std::move(together)});
  measured.clear();
}
constexpr size_t kMeasuredAtOnce = 50;  // batches: reading from a device waits for it

/// Answers of several batches, one after the other; those of shorter batches are filled up with zeros.
Tensor joined(const std::vector<Tensor>& parts) {
  int64_t longest = 0;
  for (const Tensor& part : parts) longest = std::max(longest, part.rank() >= 2 ? part.size(1) : 0);
  std::vector<Tensor> filled;
  for (const Tensor& part : parts) {
    if (part.rank() < 2 || part.size(1) == longest) {
      filled.push_back(part);
      continue;
    }
    Dims shape = part.shape();
    shape[1] = longest - part.size(1);
    filled.push_back(concat({part, zeros(shape, part.dtype())}, 1));
  }
  return concat(filled);
}

}  // namespace

data::LoaderOptions loader_options(const TaskPtr& task, const data::Dataset& dataset, int64_t batch,
                                   Device device) {
  const TaskPtr used = task_or_usual(task);
  data::LoaderOptions options{.batch = batch, .shuffle = used->shuffles(), .last_batch = used->last_batch()};
  options.device = device;
  options.collate = [used](const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                           int64_t length) { return used->collate(set, indices, epoch, length); };
  if (std::vector<int64_t> lengths = used->lengths(dataset); !lengths.empty())
    options.buckets = data::make_buckets(std::move(lengths));
  return options;
}

Evaluation::Evaluation(nn::Module& model, Engine engine, const RunOptions& options)
    : model_(model),
      task_(task_or_usual(options.task)),
      options_(options),
      batch_(std::make_unique<Runner>([this](const std::vector<Named>& in) { return run(in); },
                                      engine == Engine::graph)) {
  dtype_of(model);  // refuses one without parameters
}

Evaluation::~Evaluation() = default;

std::vector<Named> Evaluation::run(const std::vector<Named>& batch_and_state) {
  static const Names& names = Names::of({"loss", "weight"});
  const NoGrad off;
  const Autocast precision(options_.autocast);
  const Named batch = in_type(*task_, batch_and_state.at(0), dtype_of(model_));
  Named state = batch_and_state.at(1);
  const Named out = outputs_of(*task_, model_, batch, state);
  const Tensor loss = loss_of(*task_, options_.loss, out, batch, LossFor::testing);
  Tensor weight = weight_of(*task_, options_.loss, batch, LossFor::testing);
  if (!weight.defined())
    weight = full({}, static_cast<double>(samples_of(batch)), DType::i64, out[0].device());
  return {{names, {loss, weight}}, state, task_->measure(out, batch)};
}

Metrics Evaluation::operator()(const data::Dataset& dataset, std::optional<int64_t> batch_size) {
  return *unless_stopped(nullptr, dataset, batch_size);
}

std::optional<Metrics> Evaluation::unless_stopped(const std::atomic<bool>* stop, const data::Dataset& dataset,
                                                  std::optional<int64_t> batch_size) {
  const nn::ModeScope mode(model_, false);
  const TestDraws draws;
  data::LoaderOptions options =
      loader_options(task_, dataset, batch_size.value_or(task_->test_batch()), device_of(model_));
  options.shuffle = false;
  options.workers = options_.workers;
  options.last_batch = task_->last_test_batch();
  data::Loader loader(dataset, options);
  const std::unique_ptr<Meter> meter = task_->meter();
  std::vector<Tensor> losses, weights;
  std::vector<Named> measured;  // not handed over yet
  Named state;
  int64_t samples = 0;
  loader.start_epoch(0);
  while (std::optional<data::Batch> batch = loader.next()) {
    if (stop && *stop) return {};
    const NoGrad off;
    check_fields(*task_, batch->tensors);
    if (state.empty()) state = task_->first_state(model_, batch->size);
    std::vector<Named> results = (*batch_)({batch->tensors, state});
    losses.push_back(results[0]["loss"]);
    weights.push_back(results[0]["weight"]);
    state = results[1];
    samples += batch->size;
    Named& of_batch = results[2];
    if (!meter || of_batch.empty()) continue;
    if (!measured.empty() && !are_alike(measured.back(), of_batch)) hand_over(*meter, measured);
    measured.push_back(std::move(of_batch));
    if (measured.size() >= kMeasuredAtOnce) hand_over(*meter, measured);
  }
  if (meter) hand_over(*meter, measured);
  Metrics metrics{.samples = std::min(samples, dataset.size())};
  const std::vector<double> loss = read_scalars(losses), sizes = read_scalars(weights);
  double sum = 0, total = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) sum += loss[i] * sizes[i];  // a mean of nothing is NaN, and counts for nothing
    total += sizes[i];
  }
  metrics.add("loss", sum / total);
  if (meter) meter->finish(metrics);
  return metrics;
}

std::vector<Tensor> predict_all(nn::Module& model, const data::Dataset& dataset, int64_t batch_size,
                                Engine engine, const RunOptions& options) {
  const nn::ModeScope mode(model, false);
  const TaskPtr task = task_or_usual(options.task);
  const DType dtype = dtype_of(model);
  const NoGrad off;
  Runner forward(
      [&](const std::vector<Named>& in) -> std::vector<Named> {
        const Autocast precision(options.autocast);
        const Named batch = in_type(*task, in.at(0), dtype);
        Named state = task->first_state(model, samples_of(batch));
        std::vector<Tensor> answers = task->answer(task->forward(model, batch, state));
        std::vector<std::string> names;
        for (size_t i = 0; i < answers.size(); ++i) names.push_back(str("answer ", i + 1));
        return {Named(Names::of(names), std::move(answers))};
      },
      engine == Engine::graph && !task->generates());
  data::LoaderOptions loading = loader_options(task, dataset, batch_size, device_of(model));
  loading.shuffle = false;
  loading.workers = options.workers;
  loading.last_batch = data::LastBatch::keep;
  if (loading.buckets) {  // in the order of the samples: a batch has the length of its longest
    const auto buckets = std::make_shared<data::Buckets>(std::move(*loading.buckets));
    loading.buckets.reset();
    loading.collate = [task, buckets](const data::Dataset& set, std::span<const int64_t> indices,
                                      int64_t epoch, int64_t) {
      int64_t longest = 0;
      for (const int64_t i : indices) longest = std::max(longest, buckets->lengths[static_cast<size_t>(i)]);
      return task->collate(set, indices, epoch, buckets->bound_of(longest));
    };
  }
  data::Loader loader(dataset, loading);
  loader.start_epoch(0);
  std::vector<std::vector<Tensor>> parts;  // by answer
  while (std::optional<data::Batch> batch = loader.next()) {
    // Without targets, whose shapes would be further signatures of the graph.
    const Named in = without_targets(*task, batch->tensors);
    const std::vector<Tensor> answers =
        task->generates() ? task->generate(model, in_type(*task, in, dtype)) : forward({in})[0].values();
    parts.resize(answers.size());
    for (size_t i = 0; i < answers.size(); ++i) parts[i].push_back(to(answers[i], Device{}));
  }
  std::vector<Tensor> whole;
  for (std::vector<Tensor>& part : parts) whole.push_back(joined(part));
  return whole;
}

nn::NamedTensors loss_gradients(nn::Module& model, const RunOptions& options, const Named& fields) {
  const nn::ModeScope mode(model, false);
  const TaskPtr task = task_or_usual(options.task);
  check_fields(*task, fields);
  const Named batch = in_type(*task, fields, dtype_of(model));
  Named state = task->first_state(model, samples_of(batch));
  nn::NamedTensors named = model.trainable_parameters();
  if (named.empty()) return named;
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : named) parameters.push_back(parameter);
  const std::vector<Tensor> gradients =
      grad(loss_of(*task, options.loss, outputs_of(*task, model, batch, state), batch), parameters, {}, {},
           /*allow_unused=*/true);
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
