// Building a cell, checking it and timing its steps.
#include "lab/src/tandem_driver/prepared_cell.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lab/src/tandem_driver/network.h"

namespace tandem::lab::tandem_driver {
namespace {

constexpr int64_t kResident = 8;
constexpr double kHalfScale = 1024;  // the first loss scale in f16: a power of two, so that scaling is exact

double norm_of(const Tensor& tensor) {
  const Tensor wide = cast(to(tensor, Device{}), DType::f64);
  double squares = 0;
  for (const double v : wide.to_vector<double>()) squares += v * v;
  return std::sqrt(squares);
}

}  // namespace

PreparedCell::PreparedCell(CellRequest request) : request_(std::move(request)) {
  if (!request_.device.is_cpu()) set_tf32(request_.precision == "tf32");
  set_threads(static_cast<int>(request_.threads));
  // keep = false: choices that an earlier run has stored would shorten the first step of this one.
  set_convolution_choice(
      {.mode = parse_choice_mode(request_.switches.value("conv", "heuristic")), .keep = false});
  build();
  parameters_ = nn::count_parameters(*model_);
  if (!request_.train.empty()) train_ = load_samples("train", request_.train, request_);
  if (!request_.test.empty()) test_ = load_samples("test", request_.test, request_);
  if (request_.takes_from_loader()) feed_ = std::make_unique<Feed>(request_, request_.images, &samples());
}

PreparedCell::~PreparedCell() = default;

void PreparedCell::build() {
  training_.reset();
  compiled_forward_.reset();
  optimizer_.reset();
  model_.reset();  // before the next is made: memory may not hold two
  model_ = make_network(request_);
  field_names_ = &named_fields(request_, std::vector<Tensor>(request_.line.inputs.size() +
                                                             request_.objective.targets.size()))
                      .names();
  forward_ = forward();
  if (request_.trains) {
    optimizer_ = make_optimizer(request_, *model_);
    if (request_.autocast() == DType::f16)
      scaler_ =
          std::make_unique<optim::LossScaler>(request_.device, optim::LossScalerOptions{.first = kHalfScale});
    training_ = std::make_unique<TrainingStep>(*model_, *optimizer_, request_.engine, step_options());
  }
  is_fresh_ = true;
  synchronize();
}

StepOptions PreparedCell::step_options() const {
  return {.task = make_task(request_, false),
          .autocast = request_.autocast(),
          .scaler = scaler_.get(),
          .compile = request_.compile};
}

TensorFunction PreparedCell::forward() const {
  return [this](const std::vector<Tensor>& in) {  // from inputs and states to outputs and states
    const NoGrad off;
    const Autocast precision(request_.autocast());
    std::vector<Tensor> states(in.begin() + static_cast<std::ptrdiff_t>(request_.line.inputs.size()),
                               in.end());
    std::vector<Tensor> out = outputs_of(request_, *model_, in, states);
    out.insert(out.end(), states.begin(), states.end());
    return out;
  };
}

std::vector<Tensor> PreparedCell::call(const TensorFunction& function, std::unique_ptr<Compiled>& compiled,
                                       const std::vector<Tensor>& in) const {
  if (request_.engine == Engine::eager) return function(in);
  if (!compiled) compiled = std::make_unique<Compiled>(compile(function, request_.compile));
  return (*compiled)(in);
}

void PreparedCell::synchronize() const { backend(request_.device).synchronize(request_.device); }

PreparedCell::Fields PreparedCell::batch(int64_t index) const {
  const NoGrad off;
  Fields fields = trimmed(request_, batch_of(samples(), index, request_.batch));
  // A cell of f64 computes everything in f64. Numbers of 16 bits are made within the step, as mixed precision does.
  for (Tensor& field : fields)
    field = to(is_floating(field.dtype()) ? cast(field, request_.dtype()) : field, request_.device);
  return fields;
}

const PreparedCell::Batches& PreparedCell::resident() {
  if (resident_.empty()) {
    const int64_t count = std::clamp<int64_t>(samples().size() / request_.batch, 1, kResident);
    for (int64_t i = 0; i < count; ++i) resident_.push_back(batch(i));
  }
  return resident_;
}

const PreparedCell::Fields& PreparedCell::take(int64_t i, int64_t steps) {
  if (!feed_) return resident()[static_cast<size_t>(i) % resident().size()];
  if (i == 0) feed_->begin(steps);
  return feed_->next();
}

void PreparedCell::forget() {
  states_ = first_states(request_, request_.batch);
  if (training_) training_->forget_carried();
}

void PreparedCell::step(const Fields& batch) {
  if (request_.trains) {
    last_ = {(*training_)(Named(*field_names_, batch)).value};
    ++updates_;
    is_fresh_ = false;
  } else {
    model_->eval();
    const NoGrad off;
    const auto inputs = static_cast<std::ptrdiff_t>(request_.line.inputs.size());
    std::vector<Tensor> in(batch.begin(), batch.begin() + inputs);
    in.insert(in.end(), states_.begin(), states_.end());
    last_ = call(forward_, compiled_forward_, in);
    const auto outputs = static_cast<std::ptrdiff_t>(request_.line.outputs.size());
    states_.assign(last_.begin() + outputs, last_.end());
    last_.resize(static_cast<size_t>(outputs));
  }
}

Json PreparedCell::prepared() const {
  Json notes = Json::array();
  if (request_.autocast())
    notes.push_back(str(request_.precision, ": autocast; products and what follows them in ",
                        request_.precision, ", weights, sums and the loss in f32."));
  if (!request_.equal && request_.trains)
    notes.push_back(str("as shipped: ", text_field(request_.optimizer, "name"), " with learning rate ",
                        optimizer_->lr(), "."));
  return {{"parameters", parameters_}, {"obeyed", request_.switches}, {"notes", notes}};
}

Json PreparedCell::first_outputs(const Fields& batch) {
  model_->eval();
  const NoGrad off;
  const auto inputs = static_cast<std::ptrdiff_t>(request_.line.inputs.size());
  std::vector<Tensor> in(batch.begin(), batch.begin() + inputs);
  const std::vector<Tensor> states = first_states(request_, request_.batch);
  in.insert(in.end(), states.begin(), states.end());
  const std::vector<Tensor> out = call(forward_, compiled_forward_, in);
  Json outputs = Json::object();
  for (size_t i = 0; i < request_.line.outputs.size(); ++i)
    outputs[request_.line.outputs[i].name] = shown_values(out[i]);
  return outputs;
}

Json PreparedCell::first_gradients(const Fields& batch) {
  const double scale = request_.autocast() == DType::f16 ? kHalfScale : 1;
  const nn::NamedTensors named = model_->trainable_parameters();
  const size_t count = request_.line.inputs.size() + request_.objective.targets.size();
  const TensorFunction function = [&](const std::vector<Tensor>& in) {
    const Tensor loss = [&] {
      const Autocast precision(request_.autocast());
      const auto end = in.begin() + static_cast<std::ptrdiff_t>(count);
      std::vector<Tensor> states(end, in.end());
      const Named outputs = named_outputs(request_, outputs_of(request_, *model_, in, states));
      return loss_of(request_, outputs, named_fields(request_, {in.begin(), end}));
    }();
    std::vector<Tensor> wanted;
    for (const auto& [name, parameter] : named) wanted.push_back(parameter);
    std::vector<Tensor> results = grad(scale == 1 ? loss : loss * scale, wanted);
    results.insert(results.begin(), loss.detach());
    return results;
  };
  // This must change neither the running statistics nor the random numbers of the steps that follow.
  std::vector<Tensor> kept;
  const nn::NamedTensors buffers = model_->named_buffers();
  for (const auto& [name, buffer] : buffers) kept.push_back(clone(buffer));
  const GeneratorState generator = generator_state();
  model_->train();
  std::unique_ptr<Compiled> compiled;
  std::vector<Tensor> in = batch;
  for (const Tensor& state : first_states(request_, request_.batch)) in.push_back(state);
  const std::vector<Tensor> results = call(function, compiled, in);
  set_generator_state(generator);
  const NoGrad off;
  for (size_t i = 0; i < buffers.size(); ++i) assign(buffers[i].second, kept[i]);
  Json norms = Json::object();
  for (size_t i = 0; i < named.size(); ++i) norms[named[i].first] = norm_of(results[i + 1]) / scale;
  return {{"loss", results[0].item<double>()}, {"gradients", norms}};
}

Json PreparedCell::check(const Json& request) {
  const int64_t steps = integer_field(request, "steps", 0, kMostSteps, request_.trains ? 1 : 0);
  if (!is_fresh_) build();
  const Fields first = batch(0);
  Json answer = {{"parameters", parameters_}, {"outputs", first_outputs(first)}};
  if (!request_.trains) return answer;
  answer.update(first_gradients(first));
  answer["losses"] = Json::array();
  forget();
  for (int64_t i = 0; i < steps; ++i) {
    step(i == 0 ? first : batch(i));
    answer["losses"].push_back(last_[0].item<double>());
  }
  return answer;
}

Json PreparedCell::run(const Json& request) {
  const StepsAsked asked = read_run(request);
  if (!feed_) resident();
  forget();
  Json answer = timed_steps(
      asked, [&](int64_t i) { step(take(i, asked.steps)); }, [&] { synchronize(); });
  answer["loss"] = request_.trains ? Json(last_[0].item<double>()) : Json();
  if (!request_.trains) {
    const NoGrad off;
    double sum = 0;
    for (const Tensor& output : last_)
      for (const double v : cast(to(output, Device{}), DType::f64).to_vector<double>()) sum += v;
    answer["output_sum"] = sum;
  }
  answer["updates"] = updates_;
  if (feed_) answer.update({{"samples_sum", feed_->samples_sum()}, {"wait_ns", feed_->waited_ns()}});
  return answer;
}

}  // namespace tandem::lab::tandem_driver
