// Going on with a text. What a token is chosen by is computed on the host in f64, so that it does not depend on the device.
#include "tandem/train/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/stateful.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/train/step.h"

namespace tandem {
namespace {

constexpr uint64_t kChoiceStream = 0x67656e6572617465;

int64_t choose(const std::vector<double>& logits, const GenerateOptions& options, int64_t place) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return best - logits.begin();
  std::vector<double> shares;
  double sum = 0;
  for (const double logit : logits) {
    sum += std::exp((logit - *best) / options.temperature);
    shares.push_back(sum);
  }
  const PhiloxBlock block = philox(options.seed ^ kChoiceStream, static_cast<uint64_t>(place));
  const uint64_t bits = uint64_t{block.x[0]} << 21 | block.x[1] >> 11;  // 53 of them
  const double at = static_cast<double>(bits) * 0x1p-53 * sum;
  const auto chosen = std::upper_bound(shares.begin(), shares.end(), at);
  return std::min<int64_t>(chosen - shares.begin(), static_cast<int64_t>(logits.size()) - 1);
}

}  // namespace

void check(const GenerateOptions& options) {
  check_between("words", options.count, 1, 1'000'000);
  check_number("temperature", options.temperature, 0, true, 1000);
}

std::vector<int64_t> generate(nn::Module& model, std::span<const int64_t> begin,
                              const GenerateOptions& options, Engine engine) {
  check(options);
  TD_CHECK(!begin.empty(), "generate: there must be a word to go on from; got none.");
  const auto* stateful = dynamic_cast<const nn::Stateful*>(&model);
  const bool was_training = model.training();
  model.eval();
  const NoGrad off;
  const TensorFunction function = [&](const std::vector<Tensor>& in) {
    std::vector<Tensor> out = model(in);
    out[0] = cast(select(out[0], 1, out[0].size(1) - 1), DType::f32);
    return out;
  };
  const auto compiled = engine == Engine::graph ? std::make_unique<Compiled>(compile(function)) : nullptr;
  std::vector<Tensor> states;
  if (stateful)
    for (const auto& [name, tensor] : stateful->first_states(1)) states.push_back(tensor);
  std::vector<int64_t> text(begin.begin(), begin.end()), out;
  std::vector<int64_t> next = text;
  while (static_cast<int64_t>(out.size()) < options.count) {
    // A model without state sees the whole text again.
    const std::vector<int64_t>& given = stateful ? next : text;
    std::vector<Tensor> in = {from_vector(given, {1, static_cast<Dim>(given.size())}, device_of(model))};
    in.insert(in.end(), states.begin(), states.end());
    const std::vector<Tensor> results = compiled ? (*compiled)(in) : function(in);
    states.assign(results.begin() + 1, results.end());
    std::vector<double> logits = cast(results[0], DType::f64).to_vector<double>();
    for (const int64_t token : options.never)
      if (token >= 0 && token < static_cast<int64_t>(logits.size()))
        logits[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
    out.push_back(choose(logits, options, static_cast<int64_t>(out.size())));
    text.push_back(out.back());
    next = {out.back()};
  }
  model.train(was_training);
  return out;
}

}  // namespace tandem
