// One class per text: samples {tokens i64 (length), class i64 ()} of different lengths. A model takes the tokens (n, length) and
// how many of them are true (n), and gives one number per class; of two classes one number is enough, that of the second
// against the first.
#include "tandem/data/registry.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/shape.h"
#include "tandem/train/task.h"

namespace tandem {
namespace {

class TextClassification final : public Task {
 public:
  explicit TextClassification(const TaskOptions& options) : classes_(make_task("classification", options)) {}
  std::string name() const override { return "text-classification"; }
  TaskInput input_kind() const override { return TaskInput::text; }
  TaskAnswer answer_kind() const override { return TaskAnswer::one_class; }
  std::vector<int64_t> outputs(const data::Splits& splits) const override {
    if (splits.info.classes == 2) return {1, 2};
    return {splits.info.classes};
  }
  std::string settings() const override { return classes_->settings(); }

  std::vector<data::Field> fields() const override {
    return {{"input"}, {"length", data::Role::length}, {"target", data::Role::target}};
  }
  Named collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                int64_t length) const override {
    std::vector<Tensor> tokens, targets;
    std::vector<int64_t> lengths;
    for (const int64_t i : indices) {
      const std::vector<Tensor> sample = data::sample_at(set, i, epoch);
      TD_CHECK(!sample.empty() && sample[0].rank() == 1 && is_integer(sample[0].dtype()),
               "data: a sample of text-classification must begin with tokens, whole numbers (length); ",
               set.sample_name(i), " does not.");
      tokens.push_back(sample[0]);
      lengths.push_back(sample[0].size(0));
      if (sample.size() > 1) targets.push_back(sample[1]);
    }
    const auto count = static_cast<int64_t>(indices.size());
    const Tensor input = data::pad_stack(tokens, length, 0), each = from_vector(lengths, {count});
    if (targets.size() < tokens.size()) return {{"input", input}, {"length", each}};
    return {{"input", input}, {"length", each}, {"target", stack(targets)}};
  }
  std::vector<int64_t> lengths(const data::Dataset& set) const override {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < set.size(); ++i) out.push_back(set.length(i));
    return out;
  }
  int64_t test_batch() const override { return 250; }
  Named made_up_batch(const Dims& input, int64_t batch) const override {
    return {{"input", zeros({batch, input[0]}, DType::i64)},
            {"length", full({batch}, static_cast<double>(input[0]), DType::i64)},
            {"target", zeros({batch}, DType::i64)}};
  }

  Named forward(nn::Module& model, const Named& batch, Named&) const override {
    Tensor out = model(std::vector<Tensor>{batch["input"], batch["length"]}).at(0);
    TD_CHECK(out.rank() == 2, "text-classification: the model must give (n, classes); got ", out.shape(),
             ".");
    if (out.size(1) == 1) out = concat({zeros_like(out), out}, 1);
    return {{"classes", out}};
  }
  Tensor loss(const Named& out, const Named& batch) const override { return classes_->loss(out, batch); }
  Tensor test_loss(const Named& out, const Named& batch) const override {
    return classes_->test_loss(out, batch);
  }
  Tensor weight(const Named& batch) const override { return classes_->weight(batch); }
  Tensor test_weight(const Named& batch) const override { return classes_->test_weight(batch); }
  Named measure(const Named& out, const Named& batch) const override { return classes_->measure(out, batch); }
  std::unique_ptr<Meter> meter() const override { return classes_->meter(); }
  std::vector<MetricInfo> metrics() const override { return classes_->metrics(); }

 private:
  TaskPtr classes_;
};

const TaskRow kRow("text-classification", "one class per text", [](const TaskOptions& options) -> TaskPtr {
  return std::make_shared<TextClassification>(options);
});

}  // namespace
}  // namespace tandem
