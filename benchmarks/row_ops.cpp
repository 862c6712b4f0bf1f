// Our side of bench_row_ops.py: one reduction, softmax or normalisation of about a million floats at a time, through the
// public functions. Answers one JSON line to each that it reads: hello, check (a few numbers of the result), run.
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tandem/tandem.h"

using namespace tandem;
using Json = nlohmann::json;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The same integer hash as in peer_row_ops.py, in [-1, 1).
Tensor hashed(const Dims& shape, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(size_of(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t h = static_cast<uint32_t>(i) + stream * 0x9e3779b9u;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    values[i] = static_cast<float>(h >> 8) * 0x1p-23f - 1.f;
  }
  return from_vector(values, shape);
}

struct Case {
  std::function<Tensor()> call;
  bool recorded = false;  // with its gradient
};

/// y summed against fixed weights and taken back to the leaves: one number for a whole gradient step.
Case step(std::vector<Tensor> leaves, std::function<Tensor()> call) {
  for (Tensor& leaf : leaves) leaf.set_requires_grad();
  const Tensor seed = hashed({1}, 9);
  return {[=] {
            const Tensor y = call();
            return grad(y, leaves, expand(seed, y.shape()))[0];
          },
          true};
}

Case make(const std::string& name) {
  const Tensor x = hashed({1000, 1000}, 1), weight = hashed({1000}, 2), bias = hashed({1000}, 3);
  const Tensor image = hashed({16, 64, 32, 32}, 4), scale = hashed({64}, 5), shift = hashed({64}, 6);
  if (name == "sum_all") return {[=] { return sum(x); }};
  if (name == "sum_rows") return {[=] { return sum(x, {1}); }};
  if (name == "sum_columns") return {[=] { return sum(x, {0}); }};
  if (name == "max_rows") return {[=] { return max(x, {1}); }};
  if (name == "softmax") return {[=] { return softmax(x, 1); }};
  if (name == "log_softmax") return {[=] { return log_softmax(x, 1); }};
  if (name == "softmax_columns") return {[=] { return softmax(x, 0); }};
  if (name == "softmax_step") return step({x}, [=] { return softmax(x, 1); });
  if (name == "layer_norm") return {[=] { return layer_norm(x, {1000}, weight, bias); }};
  if (name == "layer_norm_step")
    return step({x, weight, bias}, [=] { return layer_norm(x, {1000}, weight, bias); });
  const BatchNormOptions training{.training = true};
  if (name == "batch_norm") return {[=] { return batch_norm(image, {}, {}, scale, shift, training); }};
  if (name == "batch_norm_step")
    return step({image, scale, shift}, [=] { return batch_norm(image, {}, {}, scale, shift, training); });
  if (name == "group_norm") return {[=] { return group_norm(image, 8, scale, shift); }};
  if (name == "group_norm_step")
    return step({image, scale, shift}, [=] { return group_norm(image, 8, scale, shift); });
  if (name == "cumsum") return {[=] { return cumsum(x, 1); }};
  throw Error("row_ops: unknown case '" + name + "'.");
}

class Driver {
 public:
  Json answer(const Json& request) {
    const std::string what = request.at("do");
    if (what == "hello") return {{"framework", "tandem"}, {"cpu", backend(DeviceKind::cpu).describe({})}};
    if (request.contains("threads")) set_threads(request.at("threads"));
    const std::string name = request.at("case");
    if (!cases_.count(name)) cases_.emplace(name, make(name));
    const Case& chosen = cases_.at(name);
    const GradMode mode(chosen.recorded);
    if (what == "check") {
      const std::vector<float> values = chosen.call().to_vector<float>();
      Json some;
      for (size_t i = 0; i < 7; ++i) some.push_back(values[i * (values.size() - 1) / 6]);
      return {{"values", some}};
    }
    std::vector<double> seconds;
    for (int i = -2; i < request.at("steps").get<int>(); ++i) {
      const double start = now();
      const Tensor y = chosen.call();
      if (i >= 0) seconds.push_back(now() - start);
    }
    return {{"seconds", seconds}};
  }

 private:
  std::map<std::string, Case> cases_;
};

}  // namespace

int main() {
  Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer = driver.answer(Json::parse(line));
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
