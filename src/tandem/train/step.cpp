// The training step and the evaluation step.
#include "tandem/train/step.h"

#include <algorithm>
#include <unordered_set>

#include "tandem/core/autocast.h"
#include "tandem/core/rng.h"
#include "tandem/core/scope.h"
#include "tandem/core/tape.h"
#include "tandem/data/loader.h"
#include "tandem/nn/mode_scope.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/clip.h"

namespace tandem {
namespace {

// A model in f16 cannot hold the small gradients of a mean loss: they are computed of loss · kHalfScale and divided again
// in f32, both exactly, as it is a power of two.
constexpr double kHalfScale = 1024;

bool is_16_bit(DType dtype) { return bytes_of(dtype) == 2; }

TaskPtr task_or_usual(const TaskPtr& task) { return task ? task : make_task("classification"); }

/// Losses and metrics are computed in f32 at least.
std::vector<Tensor> widened(std::vector<Tensor> outputs) {
  for (Tensor& out : outputs)
    if (is_16_bit(out.dtype())) out = cast(out, DType::f32);
  return outputs;
}

enum class LossFor : uint8_t { training, testing };
Tensor loss_of(const Task& task, const LossFunction& own, const std::vector<Tensor>& out,
               const TaskBatch& batch, LossFor purpose = LossFor::training) {
  const Tensor loss = own                            ? own(out.at(0), batch["target"])
                      : purpose == LossFor::training ? task.loss(out, batch)
                                                     : task.test_loss(out, batch);
  TD_CHECK(loss.rank() == 0 && is_floating(loss.dtype()),
           "loss: must be one number, 0-d, of a floating type; got ", loss.dtype(), " ", loss.shape(),
           ". Take its mean().");
  return loss;
}

/// What the loss is a mean of. One of your own knows nothing of the task's weights of classes, as testing does not.
Tensor weight_of(const Task& task, const LossFunction& own, const TaskBatch& batch, LossFor purpose) {
  return own || purpose == LossFor::testing ? task.test_weight(batch) : task.weight(batch);
}

/// Numbers get the model's type; indices (tokens), lengths and targets of classes stay as they are. A floating target
/// keeps its own type: the loss is computed in f32 at least.
Tensor as_input(const Tensor& x, DType dtype) {
  return x.dtype() == dtype || !is_floating(x.dtype()) ? x : cast(x, dtype);
}
TaskBatch batch_of(const std::vector<std::string>& names, const std::vector<Tensor>& in, DType dtype) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < names.size() && i < in.size(); ++i)
    tensors.push_back(names[i] == "target" ? in[i] : as_input(in[i], dtype));
  return {names, std::move(tensors)};
}

std::vector<Tensor> run(const TensorFunction& function, const std::unique_ptr<Compiled>& compiled,
                        const std::vector<Tensor>& inputs) {
  return compiled ? (*compiled)(inputs) : function(inputs);
}

/// "a, b, c and 4 more".
std::string few_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string out;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) out += (i > 0 ? ", " : "") + names[i];
  return names.size() > kShown ? str(out, " and ", names.size() - kShown, " more") : out;
}

/// The gradients of a loss, undefined for parameters that it does not depend on. Those are refused by name unless allowed.
std::vector<Tensor> gradients_for(const Tensor& loss, const nn::NamedTensors& trained, bool allow_unused) {
  std::vector<Tensor> parameters;
  for (const auto& row : trained) parameters.push_back(row.second);
  std::unordered_set<const TensorImpl*> reached;
  const BackwardOptions options{
      .on_grad_ready = [&](const Tensor& parameter, const Tensor&) { reached.insert(parameter.impl()); }};
  std::vector<Tensor> gradients = grad(loss, parameters, {}, options, /*allow_unused=*/true);
  std::vector<std::string> unused;
  for (size_t i = 0; i < trained.size(); ++i) {
    if (reached.contains(parameters[i].impl())) continue;
    gradients[i] = Tensor();
    unused.push_back(trained[i].first);
  }
  TD_CHECK(allow_unused || unused.empty(),
           "training step: the loss must depend on every parameter that is trained; it does not depend on ",
           few_of(unused),
           ". Set `allow_unused` to leave such parameters as they are, freeze() them, or take "
           "them out of the model.");
  TD_CHECK(unused.size() < trained.size(),
           "training step: the loss must depend on at least one parameter that is trained; it depends on "
           "none of ",
           few_of(unused), ". Compute it from the model's outputs.");
  return gradients;
}

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

/// Whether two batches measured alike can be put one after the other.
bool are_alike(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  const auto rest = [](const Tensor& x) {
    Dims shape = x.shape();
    if (shape.rank() > 0) shape.erase(0);
    return shape;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Tensor& x, const Tensor& y) { return rest(x) == rest(y); });
}

/// Reads what was measured of several batches at once, and hands it to the meter.
void hand_over(Meter& meter, std::vector<std::vector<Tensor>>& measured) {
  if (measured.empty()) return;
  const NoGrad off;
  std::vector<Tensor> together;
  for (size_t field = 0; field < measured.front().size(); ++field) {
    std::vector<Tensor> parts;
    for (const std::vector<Tensor>& batch : measured) parts.push_back(batch.at(field));
    together.push_back(to(parts.size() == 1 ? parts[0] : concat(parts), Device{}));
  }
  meter.add(together);
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

/// The fields of a batch; the data may have more.
std::vector<Tensor> fields_of(const data::Batch& batch, const std::vector<std::string>& names) {
  TaskBatch(names, batch.tensors);  // refuses what is missing
  return {batch.tensors.begin(), batch.tensors.begin() + static_cast<std::ptrdiff_t>(names.size())};
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

namespace {

/// Which of an optimiser's parameters are to be trained.
std::vector<size_t> not_frozen(const nn::NamedTensors& parameters) {
  std::vector<size_t> places;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].second.requires_grad()) places.push_back(i);
  TD_CHECK(!places.empty(), "training step: at least one parameter must not be frozen; all ",
           parameters.size(), " are. unfreeze() some.");
  return places;
}

/// Brings sums of gradients to the device and the type of parameters that were moved or converted since.
void follow(const optim::GradientSum& sums, const nn::NamedTensors& parameters) {
  const NoGrad off;
  const Tensor& first = parameters.front().second;
  for (const auto& [name, tensor] : sums.named_state()) {
    const bool is_sum = name.starts_with("sum.");
    const DType type = is_sum ? promote(first.dtype(), DType::f32) : tensor.dtype();
    if (tensor.dtype() == type && tensor.device() == first.device()) continue;
    Tensor sum = tensor;
    sum.rebind(to(cast(tensor, type), first.device()));
  }
}

bool holds(const nn::NamedTensors& parameters, const Tensor& tensor) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const auto& row) { return row.second.same(tensor); });
}

}  // namespace

TrainingStep::TrainingStep(nn::Module& model, optim::Optimizer& optimizer, Engine engine,
                           const StepOptions& options)
    : model_(model),
      optimizer_(optimizer),
      still_(options.still),
      task_(task_or_usual(options.task)),
      fields_(task_->fields()) {
  not_frozen(optimizer.parameters());
  for (const auto& [name, parameter] : model.named_parameters())
    if (!parameter.requires_grad() && !holds(optimizer.parameters(), parameter))
      left_out_.emplace_back(name, parameter);
  if (options.accumulates)
    sums_ = std::make_unique<optim::GradientSum>(optimizer.parameters(), options.allow_unused);
  // Adds this batch's gradients to the sums, where there are any. Takes and gives the fields and what is carried; gives
  // the loss, its weight where there is one, and what is carried. Frozen parameters have no gradient. Which are frozen and
  // which type they have is asked here, each time: a compiled step whose answer has changed is traced again.
  const auto gradients_of = [&model, &optimizer, sums = sums_.get(), own = options.loss,
                             allow_unused = options.allow_unused, autocast = options.autocast,
                             scaler = options.scaler, task = task_.get(), names = &fields_](
                                const std::vector<Tensor>& in, std::vector<Tensor>& gradients) {
    const DType dtype = dtype_of(model);
    const double scale = dtype == DType::f16 ? kHalfScale : 1;
    const std::vector<size_t> places = not_frozen(optimizer.parameters());
    const TaskBatch batch = batch_of(*names, in, dtype);
    std::vector<Tensor> carried(in.begin() + static_cast<std::ptrdiff_t>(names->size()), in.end());
    const auto forward = [&] {
      const Scope scope("forward");
      const Autocast precision(autocast);
      return loss_of(*task, own, widened(task->forward(model, batch, carried)), batch);
    };
    const Tensor loss = forward();
    const Tensor weight = weight_of(*task, own, batch, LossFor::training);
    const Scope scope("backward");
    nn::NamedTensors trained;
    for (const size_t i : places) trained.push_back(optimizer.parameters()[i]);
    std::vector<Tensor> found = gradients_for(scaler       ? scaler->scale(loss)
                                              : scale == 1 ? loss
                                                           : loss * scale,
                                              trained, allow_unused);
    if (scaler) found = scaler->unscale(found);
    if (scale != 1) {
      const NoGrad off;
      for (Tensor& gradient : found)
        if (gradient.defined()) gradient = cast(gradient, DType::f32) * (1 / scale);
    }
    gradients.assign(optimizer.parameters().size(), Tensor());
    for (size_t i = 0; i < places.size(); ++i) gradients[places[i]] = found[i];
    if (sums && weight.defined()) sums->add(gradients, weight);
    if (sums && !weight.defined()) sums->add(gradients, in[0].size(0));
    std::vector<Tensor> results = {loss.detach()};
    if (weight.defined()) results.push_back(weight);
    for (const Tensor& tensor : carried) results.push_back(tensor.detach());
    return results;
  };
  update_.function = [&optimizer, gradients_of, sums = sums_.get(), options](const std::vector<Tensor>& in) {
    std::vector<Tensor> gradients;
    const std::vector<Tensor> results = gradients_of(in, gradients);
    const Scope scope("update");
    std::vector<Tensor>
        used;  // of parameters that the last batch did not depend on: whether one before it did
    if (sums) {
      const std::vector<Tensor> last =
          std::exchange(gradients, options.allow_unused ? sums->take(used) : sums->take());
      for (size_t i = 0; i < last.size(); ++i) {
        const bool is_frozen = !optimizer.parameters()[i].second.requires_grad();
        if (is_frozen) gradients[i] = Tensor();  // since the last batch, too
        if (!used.empty() && (is_frozen || last[i].defined())) used[i] = Tensor();
      }
    }
    const Tensor finite = options.scaler ? optim::all_finite(gradients) : Tensor();
    if (options.clip_value) gradients = optim::clip_by_value(gradients, *options.clip_value);
    if (options.clip_norm) gradients = optim::clip_by_norm(gradients, *options.clip_norm);
    optimizer.update(gradients, finite, used);
    if (options.ema) options.ema->update(finite);
    if (options.scaler) options.scaler->update(finite);
    return results;
  };
  add_.function = [gradients_of](const std::vector<Tensor>& in) {
    std::vector<Tensor> gradients;
    return gradients_of(in, gradients);
  };
  if (engine == Engine::eager) return;
  for (Part* part : {&update_, &add_})
    part->compiled = std::make_unique<Compiled>(compile(part->function, options.compile));
}

TrainingStep::Loss TrainingStep::accumulate(const std::vector<Tensor>& fields) {
  TD_CHECK(sums_, "accumulate: the step must be made with .accumulates = true.");
  return call(add_, fields);
}

TrainingStep::Loss TrainingStep::call(Part& part, const std::vector<Tensor>& fields) {
  TD_CHECK(fields.size() == fields_.size(), "training step: the task ", task_->name(), " has ",
           fields_.size(), " fields; got ", fields.size(), " tensors.");
  // In a model that trains already, each part keeps the mode that it was given.
  if (!model_.training()) model_.train();
  for (nn::Module* module : still_) module->eval();
  for (const auto& [name, parameter] : left_out_)
    TD_CHECK(!parameter.requires_grad(),
             "training step: the optimiser must hold every parameter that is unfrozen; "
             "it was made without ",
             name, ". Make it with named_parameters(), which has the frozen ones as well.");
  optimizer_.follow_parameters();
  if (sums_) follow(*sums_, optimizer_.parameters());
  if (carried_.empty() || is_restored_) {
    nn::NamedTensors first = task_->first_state(model_, fields[0].size(0));
    if (is_restored_) nn::copy_named(first, carried_, "resume", "state of the task");
    carried_ = std::move(first);
    is_restored_ = false;
  }
  std::vector<Tensor> inputs = fields;
  for (const auto& [name, tensor] : carried_) inputs.push_back(tensor);
  const std::vector<Tensor> results = run(part.function, part.compiled, inputs);
  const size_t before = results.size() - carried_.size();
  for (size_t i = 0; i < carried_.size(); ++i) carried_[i].second = results[before + i];
  return {results[0], before > 1 ? results[1] : Tensor()};
}

std::vector<Tensor> TrainingStep::fields_of(const data::Batch& batch) const {
  return tandem::fields_of(batch, fields_);
}

nn::NamedTensors TrainingStep::carried() const { return carried_; }

void TrainingStep::set_carried(const nn::NamedTensors& carried) {
  carried_ = carried;
  is_restored_ = !carried_.empty();
}

std::vector<GraphReport> TrainingStep::reports() const {
  return update_.compiled ? update_.compiled->reports() : std::vector<GraphReport>{};
}

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
    : model_(model), task_(task_or_usual(options.task)), fields_(task_->fields()), workers_(options.workers) {
  const DType dtype = dtype_of(model);
  function_ = [&model, dtype, autocast = options.autocast, own = options.loss, task = task_.get(),
               names = &fields_](const std::vector<Tensor>& in) {
    const NoGrad off;
    const Autocast precision(autocast);
    const TaskBatch batch = batch_of(*names, in, dtype);
    std::vector<Tensor> carried(in.begin() + static_cast<std::ptrdiff_t>(names->size()), in.end());
    const size_t carried_count = carried.size();
    const std::vector<Tensor> out = widened(task->forward(model, batch, carried));
    TD_CHECK(carried.size() == carried_count, "task ", task->name(), ": forward must leave the ",
             carried_count, " tensors of first_state() for the next batch; it left ", carried.size(), ".");
    std::vector<Tensor> results = {loss_of(*task, own, out, batch, LossFor::testing)};
    for (const Tensor& tensor : carried) results.push_back(tensor);
    const Tensor weight = weight_of(*task, own, batch, LossFor::testing);
    results.push_back(weight.defined()
                          ? weight
                          : full({}, static_cast<double>(batch.samples()), DType::i64, out[0].device()));
    for (const Tensor& measured : task->measure(out, batch)) results.push_back(measured);
    return results;
  };
  if (engine == Engine::graph) compiled_ = std::make_unique<Compiled>(compile(function_));
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
  options.workers = workers_;
  options.last_batch = task_->last_test_batch();
  data::Loader loader(dataset, options);
  const std::unique_ptr<Meter> meter = task_->meter();
  std::vector<Tensor> losses, weights;
  std::vector<std::vector<Tensor>> measured;  // not handed over yet
  nn::NamedTensors carried;
  int64_t samples = 0;
  loader.start_epoch(0);
  while (std::optional<data::Batch> batch = loader.next()) {
    if (stop && *stop) return {};
    const NoGrad off;
    std::vector<Tensor> inputs = fields_of(*batch, fields_);
    if (carried.empty()) carried = task_->first_state(model_, batch->size);
    for (const auto& [name, tensor] : carried) inputs.push_back(tensor);
    const std::vector<Tensor> results = run(function_, compiled_, inputs);
    auto at = results.begin() + 1;
    losses.push_back(results[0]);
    for (auto& [name, tensor] : carried) tensor = *at++;
    weights.push_back(*at++);
    samples += batch->size;
    if (!meter || at == results.end()) continue;
    std::vector<Tensor> of_batch(at, results.end());
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
  const std::vector<std::string> names = task->fields();
  const NoGrad off;
  // Samples without targets are welcome: what is missing at the end is not looked at.
  const auto batch_of_inputs = [&](const std::vector<Tensor>& in, std::vector<std::string>& there) {
    there.assign(names.begin(),
                 names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), in.size())));
    return batch_of(there, in, dtype);
  };
  const TensorFunction forward = [&](const std::vector<Tensor>& in) {
    const Autocast precision(options.autocast);
    std::vector<std::string> there;
    std::vector<Tensor> carried;
    const TaskBatch batch = batch_of_inputs(in, there);
    for (const auto& [name, tensor] : task->first_state(model, batch.samples())) carried.push_back(tensor);
    return task->answer(task->forward(model, batch, carried));
  };
  const bool compiles = engine == Engine::graph && !task->generates();
  const auto compiled = compiles ? std::make_unique<Compiled>(compile(forward)) : nullptr;
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
    std::vector<std::string> there;
    // Only what the model looks at: a graph refuses nothing for the sake of targets.
    std::vector<Tensor> in(
        batch->tensors.begin(),
        batch->tensors.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), batch->tensors.size())));
    const std::vector<Tensor> answers =
        task->generates() ? task->generate(model, batch_of_inputs(in, there)) : run(forward, compiled, in);
    parts.resize(answers.size());
    for (size_t i = 0; i < answers.size(); ++i) parts[i].push_back(to(answers[i], Device{}));
  }
  std::vector<Tensor> whole;
  for (std::vector<Tensor>& part : parts) whole.push_back(joined(part));
  return whole;
}

nn::NamedTensors loss_gradients(nn::Module& model, const RunOptions& options,
                                const std::vector<Tensor>& fields) {
  const nn::ModeScope mode(model, false);
  const TaskPtr task = task_or_usual(options.task);
  const std::vector<std::string> names = task->fields();
  const TaskBatch batch = batch_of(names, fields, dtype_of(model));
  std::vector<Tensor> carried;
  for (const auto& [name, tensor] : task->first_state(model, batch.samples())) carried.push_back(tensor);
  nn::NamedTensors named = model.trainable_parameters();
  if (named.empty()) return named;
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : named) parameters.push_back(parameter);
  const std::vector<Tensor> gradients = grad(
      loss_of(*task, options.loss, widened(task->forward(model, batch, carried)), batch), parameters, {}, {},
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
