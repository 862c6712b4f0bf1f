// Our side of the benchmark: the driver that answers bench.py's JSON lines, one request and one answer a line, as
// peer_pytorch.py does (its head lists the requests). Weights, inputs and labels come from the same integer hash.
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tandem/core/backend.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/sgd.h"
#include "tandem/train/step.h"
#include "tandem/zoo/zoo.h"

namespace {

using namespace tandem;
using Json = nlohmann::json;

constexpr int kBatches = 8;  // resident batches that the steps take turns at
constexpr int kFlatWarmUp = 100;

double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

/// Element i of stream s: 32 bits mixed from both.
uint32_t hashed(uint32_t i, uint32_t stream) {
  uint32_t h = i * 0x9E3779B1u + stream * 0x7F4A7C15u;
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

/// Floats in [-half_width, half_width).
Tensor uniform_hash(const Dims& shape, uint32_t stream, double half_width, Device device) {
  std::vector<float> values(static_cast<size_t>(size_of(shape)));
  const auto width = static_cast<float>(2 * half_width);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = (static_cast<float>(hashed(static_cast<uint32_t>(i), stream) >> 8) * 0x1p-24f - 0.5f) * width;
  return from_vector(values, shape, device);
}

std::unique_ptr<nn::Module> make_model(const std::string& name, const zoo::ModelOptions& options,
                                       Device device) {
  std::unique_ptr<nn::Module> model = zoo::make_model(name, options);
  model->to(device);
  const NoGrad off;
  uint32_t stream = 0;
  for (const Tensor& parameter : model->parameters()) {
    const Dim fan_in = parameter.rank() > 1 ? parameter.size() / parameter.size(0) : parameter.size();
    const double half_width = 1 / std::sqrt(static_cast<double>(fan_in));
    assign(parameter, uniform_hash(parameter.shape(), ++stream, half_width, device));
  }
  return model;
}

/// The cases function_NAME: one pointwise function of `batch` numbers.
Tensor (*function_named(const std::string& name))(const Tensor&) {
  static const std::map<std::string, Tensor (*)(const Tensor&)> functions = {
      {"exp", exp}, {"log", log},   {"tanh", tanh}, {"sigmoid", sigmoid},
      {"erf", erf}, {"gelu", gelu}, {"silu", silu}};
  const auto place = functions.find(name);
  TD_CHECK(place != functions.end(), "bench: there is no function '", name, "'.");
  return place->second;
}

/// One case in one variant. step(i) does step i and reads nothing back. Training goes through the TrainingStep that
/// `tandem train` uses.
class Work {
 public:
  Work(const std::string& name, const std::string& variant, Device device, int64_t batch,
       const zoo::ModelOptions& options = {})
      : device_(device) {
    TD_CHECK(variant == "eager" || variant == "graph", "bench: the variant must be eager or graph; got '",
             variant, "'.");
    const size_t cut = name.rfind('_');
    if (name.substr(0, cut) == "function") {
      function_ = function_named(name.substr(cut + 1));
      for (uint32_t i = 0; i < kBatches; ++i)
        batches_.push_back({uniform_hash({batch}, 1000 + i, 4, device)});
      if (variant == "graph")
        forward_.emplace(
            compile([f = function_](const std::vector<Tensor>& in) { return std::vector{f(in[0])}; }));
      return;
    }
    model_ = make_model(name.substr(0, cut), options, device);
    const zoo::ModelInfo& info = zoo::model_info(name.substr(0, cut));
    Dims shape = info.input;
    shape.insert(0, batch);
    for (uint32_t i = 0; i < kBatches; ++i) {
      const Tensor x = uniform_hash(shape, 1000 + i, std::sqrt(3.0), device);
      std::vector<int64_t> labels(static_cast<size_t>(batch));
      for (size_t n = 0; n < labels.size(); ++n)
        labels[n] = hashed(static_cast<uint32_t>(n), 2000 + i) % static_cast<uint32_t>(info.classes);
      batches_.push_back({x, from_vector(labels, {batch}, device)});
    }
    if (name.substr(cut + 1) == "train") {
      sgd_.emplace(model_->named_parameters(), optim::SgdOptions{.lr = 0.01, .momentum = 0.9});
      training_.emplace(*model_, *sgd_, variant == "graph" ? Engine::graph : Engine::eager);
      return;
    }
    model_->eval();
    if (variant == "graph")
      forward_.emplace(
          compile([this](const std::vector<Tensor>& in) { return std::vector{(*model_)(in[0])}; }));
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void step(int i) {
    const std::vector<Tensor>& in = batches_[static_cast<size_t>(i % kBatches)];
    if (training_) {
      result_ = (*training_)(in[0], in[1]);
    } else {
      const NoGrad off;
      result_ = forward_ ? (*forward_)({in[0]})[0] : function_ ? function_(in[0]) : (*model_)(in[0]);
    }
  }

  /// The result of the last step: the loss, the logits, or the function's values.
  const Tensor& result() const { return result_; }
  void synchronize() const { backend(device_).synchronize(device_); }

  /// Seconds of each step on a CPU; the mean of the block, synchronised at both ends, on a GPU.
  std::vector<double> run(int steps, int warm = 2) {
    for (int i = 0; i < warm; ++i) step(i);
    std::vector<double> seconds;
    if (device_.is_cpu()) {
      for (int i = 0; i < steps; ++i) {
        const double start = now();
        step(i);
        seconds.push_back(now() - start);
      }
      return seconds;
    }
    synchronize();
    const double start = now();
    for (int i = 0; i < steps; ++i) step(i);
    synchronize();
    return {(now() - start) / steps};
  }

 private:
  Device device_;
  Tensor (*function_)(const Tensor&) = nullptr;
  std::unique_ptr<nn::Module> model_;
  std::optional<optim::Sgd> sgd_;
  std::optional<TrainingStep> training_;
  std::optional<Compiled> forward_;
  std::vector<std::vector<Tensor>> batches_;
  Tensor result_;
};

/// One pass of one convolution: forward, input (its gradient) or weight.
class ConvWork {
 public:
  /// layer: n, c, h, w, o, kernel, stride, padding, groups.
  explicit ConvWork(const std::vector<int64_t>& layer)
      : options_{.stride = layer.at(6), .padding = layer.at(7), .groups = layer.at(8)},
        attrs_{{{1, layer[6], layer[6]}}, {{0, layer[7], layer[7]}}, {{1, 1, 1}}, layer[8],
               {{1, layer[2], layer[3]}}, {{1, layer[5], layer[5]}}} {
    x_ = uniform_hash({layer[0], layer[1], layer[2], layer[3]}, 1, 1, {});
    weight_ = uniform_hash({layer[4], layer[1] / layer[8], layer[5], layer[5]}, 2, 1, {});
    g_ = uniform_hash(pass("forward").shape(), 3, 1, {});
  }
  Tensor pass(const std::string& which) const {
    const NoGrad off;
    if (which == "forward") return conv2d(x_, weight_, {}, options_);
    if (which == "input") return apply1(op_conv_input_gradient(), {g_, weight_}, attrs_);
    return apply1(op_conv_weight_gradient(), {g_, x_}, attrs_);
  }
  std::vector<double> run(const std::string& which, int steps) const {
    pass(which);
    std::vector<double> seconds;
    for (int i = 0; i < steps; ++i) {
      const double start = now();
      pass(which);
      seconds.push_back(now() - start);
    }
    return seconds;
  }

 private:
  ConvOptions options_;
  ConvAttrs attrs_;
  Tensor x_, weight_, g_;
};

double seconds_per_add(bool recorded, int steps) {
  Tensor a = ones({16}), b = ones({16});
  a.set_requires_grad(recorded);
  const GradMode mode(recorded);
  for (int i = 0; i < 1000; ++i) add(a, b);
  const double start = now();
  for (int i = 0; i < steps; ++i) add(a, b);
  return (now() - start) / steps;
}

/// The matrix product (m, k) · (k, n), the operands stored as they are (n) or transposed (t).
struct Product {
  Tensor a, b;
  explicit Product(const Json& request) {
    const Dim m = request.at("m"), n = request.at("n"), k = request.at("k");
    const std::string layout = request.at("layout");
    a = layout[0] == 'n' ? uniform_hash({m, k}, 1, 1, {}) : transpose(uniform_hash({k, m}, 1, 1, {}));
    b = layout[1] == 'n' ? uniform_hash({k, n}, 2, 1, {}) : transpose(uniform_hash({n, k}, 2, 1, {}));
  }
  std::vector<double> run(int steps) const {
    const NoGrad off;
    std::vector<double> seconds;
    for (int i = 0; i < steps; ++i) {
      const double start = now();
      matmul(a, b);
      seconds.push_back(now() - start);
    }
    return seconds;
  }
  Json checksum() const {
    const Tensor c = matmul(a, b);
    return {{"losses", {sum(abs(c)).item<double>(), sum(c * c).item<double>()}}};
  }
};

size_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (size_t kilobytes = 0; word == key && file >> kilobytes) return kilobytes * 1024;
  throw Error("bench: /proc/self/status must have " + key + "; it has not. The memory case needs Linux.");
}

/// The highest growth over what the process held after one tiny op: resident bytes, heap bytes (where heap_peak is
/// preloaded) and what our allocator handed out.
Json memory(const std::function<Work&()>& work, int steps, Device device) {
  add(ones({4}), 1);
  const auto counter = [](const char* name) {
    return reinterpret_cast<size_t (*)()>(dlsym(RTLD_DEFAULT, name));
  };
  const auto heap_live = counter("heap_live"), heap_peak = counter("heap_peak");
  const auto heap_reset = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "heap_reset"));
  std::ofstream("/proc/self/clear_refs") << "5";  // the high-water mark starts again from here
  const size_t resident = status_bytes("VmRSS:");
  const size_t heap = heap_live ? heap_live() : 0;
  if (heap_reset) heap_reset();
  backend(device).reset_peak(device);
  const size_t in_use = backend(device).memory(device).in_use;
  work().run(steps, 0);
  Json answer = {{"resident", status_bytes("VmHWM:") - resident},
                 {"allocator", backend(device).memory(device).peak - in_use}};
  if (heap_peak) answer["heap"] = heap_peak() - heap;
  return answer;
}

Json memory_json(const MemoryStats& stats) {
  return {{"in_use", stats.in_use}, {"peak", stats.peak}, {"reserved", stats.reserved}};
}

/// The allocator's figures after a warm-up and after `steps` more steps: they must not grow.
Json flat(Work& work, int steps, Device device) {
  work.run(kFlatWarmUp);
  const Json before = memory_json(backend(device).memory(device));
  work.run(steps, 0);
  work.synchronize();
  return {{"before", before}, {"after", memory_json(backend(device).memory(device))}, {"steps", steps}};
}

Json hello() {
  const Json variants = {"eager", "graph"};
  Json answer = {{"framework", "tandem"},
                 {"compiler", __VERSION__},
                 {"variants", {{"cpu", variants}, {"cuda", variants}}},
                 {"threads", threads()},
                 {"cpu", backend(DeviceKind::cpu).describe({})}};
#ifdef __OPTIMIZE__
  answer["debug"] = false;
#else
  answer["debug"] = true;
#endif
  if (Backend* cuda = find_backend(DeviceKind::cuda)) answer["gpu"] = cuda->describe({DeviceKind::cuda, 0});
  return answer;
}

/// The works made so far; a case runs on with the weights that it has.
class Driver {
 public:
  Json answer(const Json& request) {
    const std::string what = request.at("do");
    if (what == "hello") return hello();
    if (request.contains("threads")) set_threads(request.at("threads"));
    const Device device = parse_device(request.value("device", "cpu"));
    const int steps = request.value("steps", 1);
    if (request.at("case") == "gemm") {
      std::unique_ptr<Product>& slot = products_[request.at("shape")];
      if (!slot) slot = std::make_unique<Product>(request);
      return what == "check" ? slot->checksum() : Json{{"seconds", slot->run(steps)}};
    }
    if (request.contains("layer")) return conv(request, steps);
    if (what == "check") return check(request, steps, device);
    if (request.at("case") == "add16")
      return {{"seconds", {seconds_per_add(request.at("variant") == "recorded", steps)}}};
    if (what == "memory") return memory([&]() -> Work& { return work(request, device); }, steps, device);
    if (what == "flat") return flat(work(request, device), steps, device);
    TD_CHECK(what == "run", "bench: do must be hello, check, run, memory, flat or quit; got '", what, "'.");
    return {{"seconds", work(request, device).run(steps)}};
  }

 private:
  Json conv(const Json& request, int steps) {
    std::unique_ptr<ConvWork>& slot = convs_[request.at("layer").dump()];
    if (!slot) slot = std::make_unique<ConvWork>(request.at("layer").get<std::vector<int64_t>>());
    if (request.at("do") == "run") return {{"seconds", slot->run(request.at("variant"), steps)}};
    Json values;
    for (const char* which : {"forward", "input", "weight"})
      values.push_back(mean(abs(slot->pass(which))).item<double>());
    return {{"losses", values}};
  }

  Work& work(const Json& request, Device device) {
    const std::string name = request.at("case"), variant = request.at("variant");
    const int64_t batch = request.at("batch");
    std::unique_ptr<Work>& slot = works_[cat(name, ' ', variant, ' ', device, ' ', batch)];
    if (!slot) slot = std::make_unique<Work>(name, variant, device, batch);
    return *slot;
  }

  /// The losses of the first steps in both engines, without dropout.
  static Json check(const Json& request, int steps, Device device) {
    Json answer;
    for (const char* variant : {"eager", "graph"}) {
      Work fresh(request.at("case"), variant, device, request.at("batch"), {.dropout = 0.0});
      Json& losses = answer[variant[0] == 'e' ? "losses" : "graph_losses"];
      for (int i = 0; i < steps; ++i) {
        fresh.step(i);
        losses.push_back(mean(fresh.result()).item<double>());
      }
    }
    return answer;
  }

  std::map<std::string, std::unique_ptr<Work>> works_;
  std::map<std::string, std::unique_ptr<Product>> products_;
  std::map<std::string, std::unique_ptr<ConvWork>> convs_;
};

}  // namespace

int main() {
  Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      const Json request = Json::parse(line);
      if (request.at("do") == "quit") return 0;
      answer = driver.answer(request);
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
