// Going on with a text, by train/decode.h.
#include "tandem/train/generate.h"

#include <limits>
#include <memory>

#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/mode_scope.h"
#include "tandem/nn/stateful.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/train/decode.h"
#include "tandem/train/step.h"

namespace tandem {

void check(const GenerateOptions& options) {
  check_between("words", options.count, 1, 1'000'000);
  check_number("temperature", options.temperature, 0, true, 1000);
}

std::vector<int64_t> generate(nn::Module& model, std::span<const int64_t> begin,
                              const GenerateOptions& options, Engine engine) {
  check(options);
  TD_CHECK(!begin.empty(), "generate: there must be a word to go on from; got none.");
  const auto* stateful = dynamic_cast<const nn::Stateful*>(&model);
  const nn::ModeScope mode(model, false);
  const NoGrad off;
  const Named first = stateful ? stateful->first_states(1) : Named();
  const Names* states = &first.names();
  const TensorFunction function = [&](const std::vector<Tensor>& in) {
    std::vector<Tensor> out =
        stateful ? nn::step(model, in[0], Named(*states, {in.begin() + 1, in.end()})).values() : model(in);
    out[0] = cast(select(out[0], 1, out[0].size(1) - 1), DType::f32);
    return out;
  };
  const auto compiled = engine == Engine::graph ? std::make_unique<Compiled>(compile(function)) : nullptr;
  const Device device = device_of(model);
  // A model without state sees the whole text again: that is its state.
  std::vector<Tensor> state;
  const DecodeFunction step = [&](const Tensor& tokens, const std::vector<Tensor>& before) {
    std::vector<Tensor> in = {unsqueeze(tokens, 1)};
    if (stateful)
      in.insert(in.end(), before.begin(), before.end());
    else
      in[0] = concat({before[0], in[0]}, 1);
    const std::vector<Tensor> results = compiled ? (*compiled)(in) : function(in);
    std::vector<int64_t> never;
    for (const int64_t token : options.never)
      if (token >= 0 && token < results[0].size(1)) never.push_back(token);
    Tensor logits = to(results[0], Device{});
    if (!never.empty()) {
      std::vector<float> values = logits.to_vector<float>();
      for (const int64_t token : never)
        values[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
      logits = from_vector(values, logits.shape());
    }
    return DecodeStep{logits, stateful ? std::vector<Tensor>(results.begin() + 1, results.end()) : in};
  };
  const std::vector<int64_t> read(begin.begin(),
                                  begin.end() - 1);  // all but the last, which decoding begins with
  const Tensor text = from_vector(read, {1, static_cast<Dim>(read.size())}, device);
  if (!stateful) {
    state = {text};
  } else {
    state = first.values();
    if (!read.empty()) {
      std::vector<Tensor> in = {text};
      in.insert(in.end(), state.begin(), state.end());
      const std::vector<Tensor> results = compiled ? (*compiled)(in) : function(in);
      state.assign(results.begin() + 1, results.end());
    }
  }
  const DecodeOptions decoding{.first = begin.back(), .longest = options.count};
  if (options.temperature == 0) return decode(step, 1, state, decoding)[0][0].tokens;
  return decode_sampled(step, 1, state, {.temperature = options.temperature, .seed = options.seed},
                        decoding)[0]
      .tokens;
}

}  // namespace tandem
