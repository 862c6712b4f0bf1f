// Building a cell, checking it and timing its steps.
#include "lab/src/own/prepared_cell.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "lab/src/own/network.h"

namespace tandem::lab::own {
namespace {

constexpr int64_t kResident = 8, kMostSteps = 10'000'000, kShownLogits = 4;
constexpr double kHalfScale = 1024;  // that the loss of f16 begins with: a power of two, so exact

double norm_of(const Tensor& tensor) {
  const Tensor wide = cast(to(tensor, Device{}), DType::f64);
  double squares = 0;
  for (const double v : wide.to_vector<double>()) squares += v * v;
  return std::sqrt(squares);
}

}  // namespace

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

PreparedCell::PreparedCell(CellRequest request) : request_(std::move(request)) {
  if (!request_.device.is_cpu()) set_tf32(request_.precision == "tf32");
  set_threads(static_cast<int>(request_.threads));
  // What an earlier run found would spare this one the time of its first step.
  set_convolution_choice(
      {.mode = parse_choice_mode(request_.switches.value("conv", "heuristic")), .keep = false});
  build();
  parameters_ = nn::count_parameters(*model_);
  if (request_.train.given())
    train_ = std::make_unique<Samples>("train", request_.train, request_.input, request_.classes);
  if (request_.test.given())
    test_ = std::make_unique<Samples>("test", request_.test, request_.input, request_.classes);
}

PreparedCell::~PreparedCell() = default;

void PreparedCell::build() {
  training_.reset();
  compiled_forward_.reset();
  compiled_evaluation_.reset();
  evaluation_ = {};
  optimizer_.reset();
  model_.reset();  // before the next is made: two may not fit
  model_ = make_network(request_);
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
  return {.autocast = request_.autocast(), .scaler = scaler_.get(), .compile = request_.compile};
}

TensorFunction PreparedCell::forward() const {
  return [model = model_.get(), autocast = request_.autocast()](const std::vector<Tensor>& in) {
    const NoGrad off;
    const Autocast precision(autocast);
    const Tensor out = (*model)(in[0]);
    return std::vector<Tensor>{bytes_of(out.dtype()) == 2 ? cast(out, DType::f32) : out};
  };
}

std::vector<Tensor> PreparedCell::call(const TensorFunction& function, std::unique_ptr<Compiled>& compiled,
                                       const std::vector<Tensor>& in) const {
  if (request_.engine == Engine::eager) return function(in);
  if (!compiled) compiled = std::make_unique<Compiled>(compile(function, request_.compile));
  return (*compiled)(in);
}

void PreparedCell::synchronize() const { backend(request_.device).synchronize(request_.device); }

SampleBatch PreparedCell::on_device(const SampleBatch& batch) const {
  const NoGrad off;
  // In f64 nothing is to be computed in less; 16-bit numbers are made within the step, as mixed precision does.
  const Tensor x = request_.dtype() == DType::f64 ? cast(batch.x, DType::f64) : batch.x;
  return {to(x, request_.device), to(batch.y, request_.device)};
}

const PreparedCell::Batches& PreparedCell::resident() {
  if (resident_.empty()) {
    const int64_t count = std::clamp<int64_t>(samples().size() / request_.batch, 1, kResident);
    for (int64_t i = 0; i < count; ++i) resident_.push_back(on_device(samples().batch(i, request_.batch)));
  }
  return resident_;
}

void PreparedCell::step(const SampleBatch& batch) {
  if (request_.trains) {
    last_ = (*training_)(batch.x, batch.y);
    ++updates_;
    is_fresh_ = false;
  } else {
    model_->eval();
    const NoGrad off;
    last_ = call(forward_, compiled_forward_, {batch.x})[0];
  }
}

Json PreparedCell::prepared() const {
  Json notes = Json::array();
  if (request_.autocast())
    notes.push_back(cat(request_.precision, ": autocast; products and what follows them in ",
                        request_.precision, ", weights, sums and the loss in f32."));
  if (!request_.equal && request_.trains)
    notes.push_back(cat("as shipped: ", text_field(request_.optimizer, "name"), " with learning rate ",
                        optimizer_->lr(), "."));
  return {{"parameters", parameters_}, {"obeyed", request_.switches}, {"notes", notes}};
}

Json PreparedCell::first_gradients(const SampleBatch& batch) {
  const double scale = request_.autocast() == DType::f16 ? kHalfScale : 1;
  const nn::NamedTensors named = model_->trainable_parameters();
  const TensorFunction function = [&](const std::vector<Tensor>& in) {
    const Tensor loss = [&] {
      const Autocast precision(request_.autocast());
      return cross_entropy((*model_)(in[0]), in[1], {.ignore_index = {}});
    }();
    std::vector<Tensor> wanted;
    for (const auto& [name, parameter] : named) wanted.push_back(parameter);
    std::vector<Tensor> results = grad(scale == 1 ? loss : loss * scale, wanted);
    results.insert(results.begin(), loss.detach());
    return results;
  };
  // The running statistics and the stream of random numbers are those of the steps alone.
  std::vector<Tensor> kept;
  const nn::NamedTensors buffers = model_->named_buffers();
  for (const auto& [name, buffer] : buffers) kept.push_back(clone(buffer));
  const GeneratorState generator = generator_state();
  model_->train();
  std::unique_ptr<Compiled> compiled;
  const std::vector<Tensor> results = call(function, compiled, {batch.x, batch.y});
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
  const SampleBatch first = on_device(samples().batch(0, request_.batch));
  Json answer = {{"parameters", parameters_}, {"logits", Json::array()}};
  {
    model_->eval();
    const NoGrad off;
    const Tensor logits = cast(to(call(forward_, compiled_forward_, {first.x})[0], Device{}), DType::f64);
    const std::vector<double> values = logits.to_vector<double>();
    const auto width = static_cast<std::ptrdiff_t>(logits.size(1));
    for (std::ptrdiff_t i = 0; i < std::min<int64_t>(kShownLogits, request_.batch); ++i)
      answer["logits"].push_back(
          std::vector<double>(values.begin() + i * width, values.begin() + (i + 1) * width));
  }
  if (!request_.trains) return answer;
  answer.update(first_gradients(first));
  answer["losses"] = Json::array();
  for (int64_t i = 0; i < steps; ++i) {
    step(i == 0 ? first : on_device(samples().batch(i, request_.batch)));
    answer["losses"].push_back(last_.item<double>());
  }
  return answer;
}

Json PreparedCell::run(const Json& request) {
  const std::string region = text_field(request, "region");
  if (region != "latency" && region != "throughput")
    throw Declined("region",
                   cat("region: must be latency or throughput; got '", io::one_line(region, 80), "'."));
  const int64_t steps = integer_field(request, "steps", 1, kMostSteps);
  const Batches& batches = resident();
  const auto turn = [&](int64_t i) -> const SampleBatch& {
    return batches[static_cast<size_t>(i) % batches.size()];
  };
  synchronize();
  Json answer;
  if (region == "latency") {
    std::vector<std::pair<int64_t, int64_t>> times;
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t begin = now_ns();
      step(turn(i));
      synchronize();
      times.emplace_back(begin, now_ns());
    }
    answer["steps"] = times;
  } else {
    const int64_t begin = now_ns();
    for (int64_t i = 0; i < steps; ++i) step(turn(i));
    synchronize();
    answer = {{"begin", begin}, {"end", now_ns()}, {"count", steps}};
  }
  answer["loss"] = request_.trains ? Json(last_.item<double>()) : Json();
  if (!request_.trains) {
    const NoGrad off;
    const Tensor logits = cast(to(last_, Device{}), DType::f64);
    double sum = 0;
    for (const double v : logits.to_vector<double>()) sum += v;
    answer["output_sum"] = sum;
  }
  answer["updates"] = updates_;
  return answer;
}

}  // namespace tandem::lab::own
