// What is said in a recording: samples {features f32 (frames, bins), labels i64 (count)} of different lengths. A model takes the features (n, frames,
// bins) and how many frames are true (n), and gives a number for each label and step, (n, steps, labels), of which label 0 is the blank,
// and how many steps are true (n). The loss is that of CTC, over the length of the text; an utterance whose text does not fit into its steps counts for
// nothing. Answers are the likeliest label of each step, blanks behind the end; ctc_collapse makes labels of them.
#include <algorithm>

#include "tandem/data/registry.h"
#include "tandem/data/transcript.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/ctc.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/train/decode.h"
#include "tandem/train/task.h"
#include "tandem/train/text_metrics.h"

namespace tandem {
namespace {

/// `steps`: the likeliest label of each step.
class SpeechMeter final : public Meter {
 public:
  void add(const Named& measured) override {
    const std::vector<int64_t> steps = measured["steps"].to_vector<int64_t>(),
                               targets = measured["target"].to_vector<int64_t>(),
                               counts = measured["target_length"].to_vector<int64_t>();
    const size_t width = steps.size() / counts.size(), most = targets.size() / counts.size();
    for (size_t n = 0; n < counts.size(); ++n) {
      const std::vector<int64_t> read = ctc_collapse(std::span(steps).subspan(n * width, width));
      const std::span<const int64_t> right =
          std::span(targets).subspan(n * most, static_cast<size_t>(counts[n]));
      letters_.add(right, read);
      const std::vector<std::string> right_words = words_of(data::transcript_text(right)),
                                     read_words = words_of(data::transcript_text(read));
      words_.add(right_words, read_words);
    }
  }
  void finish(Metrics& metrics) const override {
    metrics.add("wer", words_.value());
    metrics.add("cer", letters_.value());
  }

 private:
  ErrorRate words_, letters_;
};

class SpeechRecognition final : public Task {
 public:
  std::string name() const override { return "speech-recognition"; }
  TaskInput input_kind() const override { return TaskInput::sound; }
  TaskAnswer answer_kind() const override { return TaskAnswer::transcript; }
  std::vector<int64_t> outputs(const data::Splits& splits) const override { return {splits.info.classes}; }

  std::vector<data::Field> fields() const override {
    return {{"input"},
            {"length", data::Role::length},
            {"target", data::Role::target},
            {"target_length", data::Role::length}};
  }
  Named collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                int64_t length) const override {
    std::vector<Tensor> features, labels;
    std::vector<int64_t> frames, counts;
    for (const int64_t i : indices) {
      const std::vector<Tensor> sample = data::sample_at(set, i, epoch);
      TD_CHECK(!sample.empty() && sample[0].rank() == 2 && is_floating(sample[0].dtype()),
               "data: a sample of speech-recognition must begin with features, floats (frames, bins); ",
               set.sample_name(i), " does not.");
      features.push_back(sample[0]);
      frames.push_back(sample[0].size(0));
      if (sample.size() < 2) continue;
      TD_CHECK(sample[1].rank() == 1 && sample[1].dtype() == DType::i64,
               "data: a sample of speech-recognition must have labels i64 (count); ", set.sample_name(i),
               " does not.");
      labels.push_back(sample[1]);
      counts.push_back(sample[1].size(0));
    }
    const auto count = static_cast<int64_t>(indices.size());
    const Tensor input = data::pad_stack(features, length, 0), lengths = from_vector(frames, {count});
    if (labels.size() != features.size()) return {{"input", input}, {"length", lengths}};
    // Few different sizes for the graph engine: people say up to 25 letters a second, which is one for four frames.
    const int64_t unit = std::max<int64_t>(1, (length + 3) / 4);
    const int64_t most = std::max<int64_t>(1, *std::max_element(counts.begin(), counts.end()));
    return {{"input", input},
            {"length", lengths},
            {"target", data::pad_stack(labels, (most + unit - 1) / unit * unit, 0)},
            {"target_length", from_vector(counts, {count})}};
  }
  void check_batch(const Named& batch) const override {
    const std::vector<int64_t> labels = batch["target"].to_vector<int64_t>();
    for (const int64_t label : labels)
      TD_CHECK(label >= 0 && label < data::kTranscriptLabels, "data: labels of speech must be 1 to ",
               data::kTranscriptLabels - 1, "; got ", label, ".");
  }
  std::vector<int64_t> lengths(const data::Dataset& set) const override {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < set.size(); ++i) out.push_back(set.length(i));
    return out;
  }
  int64_t test_batch() const override { return 20; }
  Named made_up_batch(const Dims& input, int64_t batch) const override {
    const int64_t labels = std::max<int64_t>(1, input[0] / 8);
    return {{"input", zeros({batch, input[0], input[1]})},
            {"length", full({batch}, static_cast<double>(input[0]), DType::i64)},
            {"target", ones({batch, labels}, DType::i64)},
            {"target_length", ones({batch}, DType::i64)}};
  }

  Named forward(nn::Module& model, const Named& batch, Named&) const override {
    std::vector<Tensor> out = model(std::vector<Tensor>{batch["input"], batch["length"]});
    TD_CHECK(
        out.size() == 2 && out[0].rank() == 3 && out[1].shape() == batch["length"].shape(),
        "speech-recognition: the model must give (n, steps, labels) and how many steps are true (n); got ",
        out.size(), " tensors, the first of ", out.at(0).shape(), ".");
    return {{"labels", out[0]}, {"steps", out[1]}};
  }
  Tensor loss(const Named& out, const Named& batch) const override {
    return ctc_loss(transpose(log_softmax(out[0], 2), 0, 1), batch["target"], out[1], batch["target_length"],
                    {.zero_infinity = true});
  }
  Named measure(const Named& out, const Named& batch) const override {
    return {
        {"steps", answer(out)[0]}, {"target", batch["target"]}, {"target_length", batch["target_length"]}};
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<SpeechMeter>(); }
  std::vector<MetricInfo> metrics() const override { return {{"wer", false, true}, {"cer", false, true}}; }

  std::vector<Tensor> answer(const Named& out) const override {
    const Dim steps = out[0].size(1);
    const Tensor is_heard =
        reshape(arange(steps, DType::i64, out[1].device()), {1, steps}) < reshape(out[1], {-1, 1});
    return {where(is_heard, argmax(out[0], 2), 0)};
  }
};

const TaskRow kRow("speech-recognition", "what is said in a recording",
                   [](const TaskOptions& options) -> TaskPtr {
                     TD_CHECK(options.class_weights.empty() && !options.ignore_index,
                              "speech-recognition: has no classes to weigh or leave out.");
                     return std::make_shared<SpeechRecognition>();
                   });

}  // namespace
}  // namespace tandem
