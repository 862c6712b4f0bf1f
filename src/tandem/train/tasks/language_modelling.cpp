// The next word of a text. Samples are windows of one long text, in order: {tokens i64 (length), those that follow i64 (length)}.
// A batch of n reads n places of the text at once: the text is cut into n parts, row r of batch k is window k of part r, and
// the model's states go from batch to batch, so that it reads each part from its begin to its end. Gradients reach back to
// the begin of a window (truncated back-propagation). At the end of an epoch the states begin anew.
#include <algorithm>

#include "tandem/data/registry.h"
#include "tandem/data/text_set.h"
#include "tandem/nn/stateful.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"
#include "tandem/train/tasks/token_meter.h"

namespace tandem {
namespace {

class LanguageModelling final : public Task {
 public:
  std::string name() const override { return "language-modelling"; }
  TaskInput input_kind() const override { return TaskInput::text; }
  TaskAnswer answer_kind() const override { return TaskAnswer::continuation; }
  std::vector<int64_t> outputs(const data::Splits& splits) const override {
    return {splits.text->vocabulary.size()};
  }

  bool shuffles() const override { return false; }
  // Every batch has all rows. Rows whose part has ended count for nothing.
  data::LastBatch last_batch() const override { return data::LastBatch::wrap; }
  data::LastBatch last_test_batch() const override { return data::LastBatch::wrap; }
  int64_t test_batch() const override { return 20; }
  Named made_up_batch(const Dims& input, int64_t batch) const override {
    const Tensor tokens = zeros({batch, input[0]}, DType::i64);
    return {{"input", tokens}, {"target", tokens}};
  }

  /// `indices` are k · n … k · n + n - 1 of batch k; where they wrap, it is the last one.
  Named collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                int64_t) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    const int64_t part = (set.size() - 1) / rows + 1, batch = indices[0] / rows;
    std::vector<Tensor> tokens, targets;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * part + batch;
      if (at < set.size()) {
        const std::vector<Tensor> sample = data::sample_at(set, at, epoch);
        TD_CHECK(
            sample.size() >= 2 && sample[0].rank() == 1 && sample[0].shape() == sample[1].shape(),
            "data: a sample of language-modelling must have tokens (length) and those that follow (length); ",
            set.sample_name(at), " does not.");
        tokens.push_back(sample[0]);
        targets.push_back(sample[1]);
      } else {  // row 0 is always there
        tokens.push_back(zeros_like(tokens[0]));
        targets.push_back(full_like(targets[0], static_cast<double>(data::kNoToken)));
      }
    }
    return {{"input", stack(tokens)}, {"target", stack(targets)}};
  }

  Named first_state(const nn::Module& model, int64_t batch) const override {
    const auto* stateful = dynamic_cast<const nn::Stateful*>(&model);
    return stateful ? stateful->first_states(batch) : Named();
  }
  Named forward(nn::Module& model, const Named& batch, Named& state) const override {
    const Named out = nn::step(model, batch["input"], state);
    TD_CHECK(out[0].rank() == 3, "language-modelling: the model must give (n, length, words); got ",
             out[0].shape(), ".");
    const DType dtype = dtype_of(model);
    for (const std::string& name : state.names())
      state.set(name, cast(out[name], dtype));  // as they began, under Autocast too
    return {{"words", out[0]}};
  }
  Tensor loss(const Named& out, const Named& batch) const override {
    return cross_entropy(reshape(out[0], {-1, out[0].size(2)}), reshape(batch["target"], {-1}),
                         {.ignore_index = data::kNoToken});
  }
  Tensor weight(const Named& batch) const override { return sum(counted(batch)); }
  Named measure(const Named& out, const Named& batch) const override {
    const Tensor right = cast(equal(argmax(out[0], 2), batch["target"]), DType::i64);
    return {{"right", reshape(sum(right), {1})}, {"all", reshape(sum(counted(batch)), {1})}};
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<TokenMeter>(); }
  std::vector<MetricInfo> metrics() const override {
    return {{"perplexity", false, false}, {"accuracy", true, true}};
  }

 private:
  static Tensor counted(const Named& batch) {
    return cast(not_equal(batch["target"], data::kNoToken), DType::i64);
  }
};

const TaskRow kRow("language-modelling", "the next word of a text",
                   [](const TaskOptions& options) -> TaskPtr {
                     TD_CHECK(options.class_weights.empty() && !options.ignore_index,
                              "language-modelling: has no classes to weigh or leave out.");
                     return std::make_shared<LanguageModelling>();
                   });

}  // namespace
}  // namespace tandem
