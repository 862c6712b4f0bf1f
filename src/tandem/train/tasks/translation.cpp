// Sentences and their translations: samples {source i64 (length), target i64 (length)}, a target with its begin and its end. The model
// (nn/encoder_decoder.h) reads the source and, at each token of the target, expects the next one (teacher forcing); padding counts
// for nothing. Sources and targets of a batch are padded to one length, that of its bucket. To predict, the model goes on from its
// own tokens.
#include <algorithm>
#include <limits>

#include "tandem/data/registry.h"
#include "tandem/data/text_set.h"
#include "tandem/nn/encoder_decoder.h"
#include "tandem/ops/create.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/decode.h"
#include "tandem/train/task.h"
#include "tandem/train/tasks/token_meter.h"

namespace tandem {
namespace {

/// `right`: tokens of each batch; `all`: those of each sample.
class PaddedTokenMeter final : public TokenMeter {
 public:
  void add(const Named& measured) override {
    TokenMeter::add(measured);
    for (const int64_t count : measured["all"].to_vector<int64_t>()) {
      longest_ = std::max(longest_, static_cast<double>(count));
      ++samples_;
    }
  }
  void finish(Metrics& metrics) const override {
    TokenMeter::finish(metrics);
    const double places = samples_ * longest_;
    if (all_ > 0) metrics.add("accuracy_with_padding", (right_ + places - all_) / places);
  }

 private:
  double longest_ = 0, samples_ = 0;
};

class Translation final : public Task {
 public:
  explicit Translation(const TaskOptions& options) : options_(options) {}
  std::string name() const override { return "translation"; }
  TaskInput input_kind() const override { return TaskInput::pairs_of_texts; }
  TaskAnswer answer_kind() const override { return TaskAnswer::translation; }
  std::vector<int64_t> outputs(const data::Splits& splits) const override {
    return {splits.text->into->size()};
  }

  std::vector<data::Field> fields() const override {
    return {{"input"}, {"length", data::Role::length}, {"before"}, {"target", data::Role::target}};
  }
  Named collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                int64_t length) const override {
    std::vector<Tensor> sources, before, targets;
    std::vector<int64_t> lengths;
    for (const int64_t i : indices) {
      const std::vector<Tensor> sample = data::sample_at(set, i, epoch);
      const auto are_tokens = [](const Tensor& t, Dim least) {
        return t.rank() == 1 && is_integer(t.dtype()) && t.size(0) >= least;
      };
      TD_CHECK(!sample.empty() && are_tokens(sample[0], 1) && (sample.size() < 2 || are_tokens(sample[1], 2)),
               "data: a sample of translation must have source tokens, 1 and more, and target tokens, 2 and "
               "more, whole numbers each; ",
               set.sample_name(i), " has not.");
      sources.push_back(sample[0]);
      lengths.push_back(sample[0].size(0));
      if (sample.size() < 2) continue;
      const Dim last = sample[1].size(0) - 1;
      before.push_back(slice(sample[1], 0, 0, last));
      targets.push_back(slice(sample[1], 0, 1, last + 1));
    }
    const auto count = static_cast<int64_t>(indices.size());
    const Tensor input = data::pad_stack(sources, length, 0), each = from_vector(lengths, {count});
    if (targets.size() < sources.size()) return {{"input", input}, {"length", each}};
    return {{"input", input},
            {"length", each},
            {"before", data::pad_stack(before, length, 0)},
            {"target", data::pad_stack(targets, length, static_cast<double>(data::kNoToken))}};
  }
  /// Of the longer one of source and target.
  std::vector<int64_t> lengths(const data::Dataset& set) const override {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < set.size(); ++i) {
      const std::vector<Tensor> sample = data::sample_at(set, i, 0);
      int64_t length = sample.at(0).size(0);
      if (sample.size() > 1) length = std::max<int64_t>(length, sample[1].size(0) - 1);
      out.push_back(length);
    }
    return out;
  }
  int64_t test_batch() const override { return 250; }
  Named made_up_batch(const Dims& input, int64_t batch) const override {
    const Tensor tokens = zeros({batch, input[0]}, DType::i64);
    return {{"input", tokens},
            {"length", full({batch}, static_cast<double>(input[0]), DType::i64)},
            {"before", tokens},
            {"target", tokens}};
  }

  Named forward(nn::Module& model, const Named& batch, Named&) const override {
    Tensor out = model(std::vector<Tensor>{batch["input"], batch["length"], batch["before"]}).at(0);
    TD_CHECK(out.rank() == 3, "translation: the model must give (n, length, words); got ", out.shape(), ".");
    return {{"words", out}};
  }
  Tensor loss(const Named& out, const Named& batch) const override {
    return cross_entropy(reshape(out[0], {-1, out[0].size(2)}), reshape(batch["target"], {-1}),
                         {.ignore_index = data::kNoToken});
  }
  Tensor weight(const Named& batch) const override { return sum(counted(batch)); }
  Named measure(const Named& out, const Named& batch) const override {
    const Tensor right = cast(equal(argmax(out[0], 2), batch["target"]), DType::i64);
    return {{"right", reshape(sum(right), {1})}, {"all", sum(counted(batch), {1})}};
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<PaddedTokenMeter>(); }
  std::vector<MetricInfo> metrics() const override {
    return {
        {"perplexity", false, false}, {"accuracy", true, true}, {"accuracy_with_padding", true, true, false}};
  }

  bool generates() const override { return true; }
  /// Tokens (n, longest) without begin and end, filled up with zeros.
  std::vector<Tensor> generate(nn::Module& model, const Named& batch) const override {
    auto* translator = dynamic_cast<nn::EncoderDecoder*>(&model);
    TD_CHECK(translator,
             "translation: a model that translates must be an nn::EncoderDecoder; this one is not.");
    const Tensor &source = batch["input"], &lengths = batch["length"];
    const DecodeFunction step = [&](const Tensor& tokens, const std::vector<Tensor>& state) {
      const nn::EncoderDecoder::Written next = translator->write(tokens, state);
      return DecodeStep{cast(next.logits, DType::f64) + never(next.logits), next.state};
    };
    // By each sample's own length: what is written must not depend on the others of the batch.
    DecodeOptions decoding{.first = options_.begin_token,
                           .end = options_.end_token,
                           .longest = 2 * source.size(1) + 10,
                           .beams = options_.beams};
    for (const int64_t length : lengths.to_vector<int64_t>())
      decoding.longest_each.push_back(2 * length + 10);
    const int64_t samples = source.size(0);
    const auto found = decode(step, samples, translator->read(source, lengths), decoding);
    std::vector<Tensor> rows;
    int64_t longest = 1;
    for (const auto& beams : found)
      longest = std::max(longest, static_cast<int64_t>(beams.at(0).tokens.size()));
    for (const auto& beams : found)
      rows.push_back(from_vector(beams[0].tokens, {static_cast<Dim>(beams[0].tokens.size())}));
    return {data::pad_stack(rows, longest, 0)};
  }

 private:
  static Tensor counted(const Named& batch) {
    return cast(not_equal(batch["target"], data::kNoToken), DType::i64);
  }
  /// -infinity for the tokens that are not written, else 0.
  Tensor never(const Tensor& logits) const {
    std::vector<double> values(static_cast<size_t>(logits.size(1)));
    for (const int64_t token : options_.never)
      if (token >= 0 && token < logits.size(1))
        values[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
    return from_vector(values, {logits.size(1)}, logits.device());
  }

  TaskOptions options_;
};

const TaskRow kRow("translation", "a text for a text", [](const TaskOptions& options) -> TaskPtr {
  TD_CHECK(options.class_weights.empty() && !options.ignore_index,
           "translation: has no classes to weigh or leave out.");
  TD_CHECK(options.beams >= 1 && options.beams <= 1000, "beams: must be 1 to 1000; got ", options.beams, ".");
  return std::make_shared<Translation>(options);
});

}  // namespace
}  // namespace tandem
