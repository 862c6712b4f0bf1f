// The training step.
#include "tandem/train/step.h"

#include <algorithm>
#include <unordered_set>

#include "tandem/core/autocast.h"
#include "tandem/core/scope.h"
#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/clip.h"
#include "tandem/train/task_calls.h"

namespace tandem {
namespace {

// A model in f16 cannot hold the small gradients of a mean loss: they are computed of loss · kHalfScale and divided again
// in f32, both exactly, as it is a power of two.
constexpr double kHalfScale = 1024;

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
      options_(options),
      task_(task_or_usual(options.task)),
      sums_(options.accumulates
                ? std::make_unique<optim::GradientSum>(optimizer.parameters(), options.allow_unused)
                : nullptr),
      update_(std::make_unique<Runner>([this](const std::vector<Named>& in) { return run_update(in); },
                                       engine == Engine::graph, options.compile)),
      add_(std::make_unique<Runner>([this](const std::vector<Named>& in) { return run_add(in); },
                                    engine == Engine::graph, options.compile)) {
  not_frozen(optimizer.parameters());
  for (const auto& [name, parameter] : model.named_parameters())
    if (!parameter.requires_grad() && !holds(optimizer.parameters(), parameter))
      left_out_.emplace_back(name, parameter);
}

TrainingStep::~TrainingStep() = default;

// Which parameters are frozen and which type they have is asked here, at each call: a compiled step whose answer has changed is
// traced again.
TrainingStep::Part TrainingStep::gradients(const Named& fields, const Named& before) {
  const DType dtype = dtype_of(model_);
  const double half_scale = dtype == DType::f16 ? kHalfScale : 1;
  const std::vector<size_t> places = not_frozen(optimizer_.parameters());
  const Named batch = in_type(*task_, fields, dtype);
  Part part{.samples = samples_of(batch), .state = before};
  {
    const Scope scope("forward");
    const Autocast precision(options_.autocast);
    part.loss = loss_of(*task_, options_.loss, outputs_of(*task_, model_, batch, part.state), batch);
  }
  part.weight = weight_of(*task_, options_.loss, batch, LossFor::training);
  const Scope scope("backward");
  nn::NamedTensors trained;
  for (const size_t i : places) trained.push_back(optimizer_.parameters()[i]);
  optim::LossScaler* scaler = options_.scaler;
  std::vector<Tensor> found = gradients_for(scaler            ? scaler->scale(part.loss)
                                            : half_scale == 1 ? part.loss
                                                              : part.loss * half_scale,
                                            trained, options_.allow_unused);
  if (scaler) found = scaler->unscale(found);
  if (half_scale != 1) {
    const NoGrad off;
    for (Tensor& gradient : found)
      if (gradient.defined()) gradient = cast(gradient, DType::f32) * (1 / half_scale);
  }
  part.gradients.resize(optimizer_.parameters().size());
  for (size_t i = 0; i < places.size(); ++i) part.gradients[places[i]] = found[i];
  return part;
}

void TrainingStep::add(const Part& part) {
  if (!sums_) return;
  if (part.weight.defined())
    sums_->add(part.gradients, part.weight);
  else
    sums_->add(part.gradients, part.samples);
}

// A sum has a gradient for every parameter. One that was frozen since an earlier batch, and one that no batch depended on, gets none.
TrainingStep::Whole TrainingStep::combine(Part last) {
  if (!sums_) return {std::move(last.gradients), {}};
  add(last);
  Whole whole;
  whole.gradients = options_.allow_unused ? sums_->take(whole.used) : sums_->take();
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    const bool is_frozen = !optimizer_.parameters()[i].second.requires_grad();
    if (is_frozen) whole.gradients[i] = Tensor();
    if (!whole.used.empty() && (is_frozen || last.gradients[i].defined())) whole.used[i] = Tensor();
  }
  return whole;
}

void TrainingStep::update(Whole whole) {
  std::vector<Tensor>& gradients = whole.gradients;
  const Tensor finite = options_.scaler ? optim::all_finite(gradients) : Tensor();
  if (options_.clip_value) gradients = optim::clip_by_value(gradients, *options_.clip_value);
  if (options_.clip_norm) gradients = optim::clip_by_norm(gradients, *options_.clip_norm);
  optimizer_.update(gradients, finite, whole.used);
  if (options_.ema) options_.ema->update(finite);
  if (options_.scaler) options_.scaler->update(finite);
}

namespace {

/// What a step gives: the loss and what it is a mean of, and the state for the next one.
std::vector<Named> results_of(const Tensor& loss, const Tensor& weight, const Named& state) {
  static const Names& names = Names::of({"loss", "weight"});
  std::vector<Tensor> left = state.values();
  for (Tensor& tensor : left) tensor = tensor.detach();
  return {{names, {loss.detach(), weight}}, {state.names(), std::move(left)}};
}

}  // namespace

std::vector<Named> TrainingStep::run_update(const std::vector<Named>& batch_and_state) {
  Part part = gradients(batch_and_state.at(0), batch_and_state.at(1));
  std::vector<Named> results = results_of(part.loss, part.weight, part.state);
  const Scope scope("update");
  update(combine(std::move(part)));
  return results;
}

std::vector<Named> TrainingStep::run_add(const std::vector<Named>& batch_and_state) {
  const Part part = gradients(batch_and_state.at(0), batch_and_state.at(1));
  add(part);
  return results_of(part.loss, part.weight, part.state);
}

TrainingStep::Loss TrainingStep::accumulate(const Named& batch) {
  TD_CHECK(sums_, "accumulate: the step must be made with .accumulates = true.");
  return call(*add_, batch);
}

Tensor TrainingStep::operator()(const Tensor& x, const Tensor& y) {
  static const Names& names = Names::of({"input", "target"});
  return (*this)(Named(names, {x, y})).value;
}

TrainingStep::Loss TrainingStep::call(Runner& runner, const Named& batch) {
  if (checked_ != &batch.names()) {  // names are interned: a batch of the same names has the same fields
    check_fields(*task_, batch);
    checked_ = &batch.names();
  }
  // In a model that trains already, each part keeps the mode that it was given.
  if (!model_.training()) model_.train();
  for (nn::Module* module : options_.still) module->eval();
  for (const auto& [name, parameter] : left_out_)
    TD_CHECK(!parameter.requires_grad(),
             "training step: the optimiser must hold every parameter that is unfrozen; "
             "it was made without ",
             name, ". Make it with named_parameters(), which has the frozen ones as well.");
  optimizer_.follow_parameters();
  if (sums_) follow(*sums_, optimizer_.parameters());
  if (carried_.empty()) carried_ = first_carried(batch);
  const std::vector<Named> results = runner({batch, carried_});
  carried_ = results[1];
  return {results[0]["loss"], results[0]["weight"]};
}

/// What the first batch finds: the task's first state, or that of a checkpoint, whose order is that of its names.
Named TrainingStep::first_carried(const Named& batch) {
  Named first = task_->first_state(model_, samples_of(batch));
  if (restored_.empty()) return first;
  nn::NamedTensors rows;
  for (size_t i = 0; i < first.size(); ++i) rows.emplace_back(first.names()[i], first[i]);
  nn::copy_named(rows, std::exchange(restored_, {}), "resume", "state of the task");
  return first;
}

nn::NamedTensors TrainingStep::carried() const {
  if (!restored_.empty()) return restored_;
  nn::NamedTensors rows;
  for (size_t i = 0; i < carried_.size(); ++i) rows.emplace_back(carried_.names()[i], carried_[i]);
  return rows;
}

void TrainingStep::set_carried(const nn::NamedTensors& carried) {
  carried_ = Named();
  restored_ = carried;
}

std::vector<GraphReport> TrainingStep::reports() const { return update_->reports(); }

}  // namespace tandem
