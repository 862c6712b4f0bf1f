// The call `fit`: epochs of training, each followed by a test.
#include <limits>

#include "lab/src/own/prepared_cell.h"

namespace tandem::lab::own {
namespace {

/// The losses and right answers of an epoch, added up on the device by the step itself: nothing waits for them.
class EpochCounts {
 public:
  explicit EpochCounts(Device device)
      : loss_(full({}, 0.0, DType::f64, device)), right_(full({}, 0.0, DType::f64, device)) {}

  LossFunction counting_loss() const {
    return [loss_sum = loss_, right_sum = right_](const Tensor& out, const Tensor& y) {
      const Tensor loss = cross_entropy(out, y, {.ignore_index = {}});
      const NoGrad off;
      assign(loss_sum, loss_sum + cast(loss.detach(), DType::f64));
      assign(right_sum, right_sum + cast(sum(equal(argmax(out.detach(), 1), y)), DType::f64));
      return loss;
    };
  }
  void clear() {
    const NoGrad off;
    for (const Tensor& tensor : {loss_, right_}) nn::init::zeros_(tensor);
  }
  double loss() const { return loss_.item<double>(); }
  double right() const { return right_.item<double>(); }

 private:
  Tensor loss_, right_;
};

}  // namespace

Json PreparedCell::evaluate() {
  if (!evaluation_)
    evaluation_ = [forward = forward_](const std::vector<Tensor>& in) {
      const NoGrad off;
      const Tensor logits = forward({in[0]})[0];
      return std::vector<Tensor>{cross_entropy(logits, in[1], {.ignore_index = {}}), argmax(logits, 1)};
    };
  model_->eval();
  const NoGrad off;
  std::vector<Tensor> losses, answers;
  std::vector<double> sizes;
  for (int64_t begin = 0; begin < test_->size(); begin += request_.batch) {
    const int64_t end = std::min(begin + request_.batch, test_->size());
    const SampleBatch batch = on_device(test_->range(begin, end));
    const std::vector<Tensor> results = call(evaluation_, compiled_evaluation_, {batch.x, batch.y});
    losses.push_back(results[0]);
    answers.push_back(results[1]);
    sizes.push_back(static_cast<double>(end - begin));
  }
  const std::vector<double> loss = read_scalars(losses);
  const std::vector<int64_t> taken = cast(to(concat(answers), Device{}), DType::i64).to_vector<int64_t>();
  double sum = 0;
  for (size_t i = 0; i < loss.size(); ++i) sum += loss[i] * sizes[i];
  const auto classes = static_cast<size_t>(request_.classes);
  std::vector<std::vector<int64_t>> confusion(classes, std::vector<int64_t>(classes));
  int64_t right = 0;
  for (size_t i = 0; i < taken.size(); ++i) {
    const int64_t label = test_->label(static_cast<int64_t>(i));
    ++confusion[static_cast<size_t>(label)][static_cast<size_t>(taken[i])];
    right += taken[i] == label;
  }
  const auto samples = static_cast<double>(test_->size());
  return {{"test_loss", sum / samples},
          {"test_accuracy", static_cast<double>(right) / samples},
          {"confusion", confusion}};
}

Json PreparedCell::fit(const Json& request, const std::function<void(const Json&)>& progress) {
  if (!request_.trains) throw Declined("fit", "fit: the cell must be prepared in phase train; got infer.");
  const int64_t epochs = integer_field(request, "epochs", 1, 1'000'000);
  const Json cap = request.value("cap_s", Json());
  TD_CHECK(cap.is_null() || (cap.is_number() && cap.get<double>() >= 0),
           "cap_s: must be a number of seconds, at least 0; got ", io::one_line(cap.dump(), 80), ".");
  const double cap_s = cap.is_null() ? std::numeric_limits<double>::infinity() : cap.get<double>();
  const int64_t batches = train_->size() / request_.batch;
  TD_CHECK(batches >= 1, "fit: an epoch must have a whole batch; got ", train_->size(), " samples and batch ",
           request_.batch, ".");

  EpochCounts counts(request_.device);
  StepOptions options = step_options();
  options.loss = counts.counting_loss();
  TrainingStep training(*model_, *optimizer_, request_.engine, options);
  Json answer = {{"epochs", 0}, {"capped", false}, {"confusion", Json()}};
  const int64_t start = now_ns();
  for (int64_t epoch = 0; epoch < epochs && !answer["capped"].get<bool>(); ++epoch) {
    const std::vector<int64_t> order = epoch_order(train_->size(), request_.seed, epoch);
    counts.clear();
    const int64_t begin = now_ns();
    for (int64_t i = 0; i < batches; ++i) {
      const SampleBatch batch = on_device(train_->batch(i, request_.batch, order));
      last_ = training(batch.x, batch.y);
      is_fresh_ = false;
      ++updates_;
    }
    synchronize();
    const int64_t train_end = now_ns();
    Json line = {{"epoch", epoch + 1},
                 {"begin", begin},
                 {"train_end", train_end},
                 {"loss", counts.loss() / static_cast<double>(batches)},
                 {"accuracy", counts.right() / static_cast<double>(batches * request_.batch)},
                 {"test_loss", Json()},
                 {"test_accuracy", Json()}};
    if (test_) {
      const Json tested = evaluate();
      line["test_loss"] = tested["test_loss"];
      line["test_accuracy"] = tested["test_accuracy"];
      answer["confusion"] = tested["confusion"];
    }
    line["end"] = now_ns();
    answer["epochs"] = epoch + 1;
    const double seconds = static_cast<double>(line["end"].get<int64_t>() - start) * 1e-9;
    answer["capped"] = seconds >= cap_s && epoch + 1 < epochs;
    progress(line);
  }
  return answer;
}

}  // namespace tandem::lab::own
