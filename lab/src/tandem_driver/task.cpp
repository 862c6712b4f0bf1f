#include "lab/src/tandem_driver/task.h"

#include <cmath>
#include <mutex>

#include "lab/src/tandem_driver/samples.h"

namespace tandem::lab::tandem_driver {
namespace {

/// The names of inputs, targets or states.
const Names& names_of(const std::vector<zoo::InputDescription>& rows) {
  std::vector<std::string> names;
  for (const zoo::InputDescription& row : rows) names.push_back(row.name);
  return Names::of(names);
}

/// A mask (N, places) of the places that count in the loss. Undefined if all do.
Tensor counting(const LossTerm& term, const Named& batch, int64_t places) {
  if (term.lengths.empty()) return {};
  const Tensor& lengths = batch[term.lengths];
  return less(unsqueeze(arange(places, DType::i64, lengths.device()), 0), unsqueeze(lengths, 1));
}

/// The mean of `each` (N, places, …) over the places that count.
Tensor mean_of(const LossTerm& term, const Named& batch, const Tensor& each) {
  if (term.lengths.empty()) return mean(each);
  const Tensor mask = counting(term, batch, each.size(1));
  Dims shape = {each.size(0), each.size(1)};
  for (int axis = 2; axis < each.rank(); ++axis) shape.push_back(1);
  const int64_t width = each.size() / (each.size(0) * each.size(1));
  const Tensor kept = where(reshape(mask, shape), each, zeros_like(each));
  return sum(kept) / (cast(sum(cast(mask, DType::i64)), each.dtype()) * static_cast<double>(width));
}

/// (N, …, classes) as (rows, classes), since cross_entropy wants the classes on the second axis.
Tensor classes_second(const Tensor& out) {
  return out.rank() == 2 ? out : reshape(out, {out.size() / out.size(-1), out.size(-1)});
}

Tensor term_of(const LossTerm& term, const Named& outputs, const Named& batch) {
  const Tensor &o = outputs[term.output], &y = batch[term.target];
  if (term.kind == "cross_entropy") {
    if (term.lengths.empty()) return cross_entropy(classes_second(o), reshape(y, {-1}), {.ignore_index = {}});
    const Tensor each = cross_entropy(classes_second(o), reshape(y, {-1}),
                                      {.ignore_index = {}, .reduction = Reduction::none});
    return mean_of(term, batch, reshape(each, y.shape()));
  }
  if (term.kind == "ctc") {  // labels are padded with zeros, the blank
    const Tensor steps = floor_divide(batch[term.lengths] + (term.stride - 1), term.stride);
    return ctc_loss(transpose(log_softmax(o, 2), 0, 1), y, steps, sum(cast(not_equal(y, 0), DType::i64), {1}),
                    {.zero_infinity = true});
  }
  const Tensor target = cast(y, o.dtype());
  if (term.kind == "mse") return mean_of(term, batch, square(o - target));
  if (term.kind == "mae") return mean_of(term, batch, abs(o - target));
  return mean_of(term, batch, binary_cross_entropy_with_logits(o, target, {.reduction = Reduction::none}));
}

/// How many places are predicted correctly, and how many count.
std::pair<Tensor, Tensor> right_of(const CellRequest& cell, const Named& out, const Named& batch) {
  const LossTerm& term = cell.objective.first();
  const Tensor& y = batch[term.target];
  const Tensor same = equal(argmax(out[term.output], -1), y);
  if (term.lengths.empty())
    return {sum(cast(same, DType::i64)), full({}, static_cast<double>(y.size()), DType::i64, y.device())};
  const Tensor mask = counting(term, batch, y.size(1));
  return {sum(cast(logical_and(same, mask), DType::i64)), sum(cast(mask, DType::i64))};
}

/// Adds up what measure() returns for each batch. `sums` (1, n) of f64: where the loss is a sum, two numbers for each term, its sum over
/// the places that count and their number. Else three numbers: of places, squared errors and absolute errors or, with classes, of
/// places, 0 and correct places. `predicted` and `target`: for the confusion matrix.
class WorkloadMeter final : public Meter {
 public:
  WorkloadMeter(const Objective& objective, std::shared_ptr<Followed> followed)
      : objective_(objective), followed_(std::move(followed)) {
    if (objective.classes > 0) confusion_ = ConfusionMatrix(objective.classes);
    if (objective.is_sum) terms_.resize(2 * objective.terms.size());
  }
  void add(const Named& measured) override {
    const std::vector<double> sums = measured["sums"].to_vector<double>();
    if (objective_.is_sum) {
      for (size_t i = 0; i < sums.size(); ++i) terms_[i % terms_.size()] += sums[i];
      return;
    }
    for (size_t i = 0; i + 2 < sums.size(); i += 3)
      places_ += sums[i], squares_ += sums[i + 1], distances_ += sums[i + 2];
    if (!measured.has("predicted")) return;
    const std::vector<int64_t> taken = measured["predicted"].to_vector<int64_t>(),
                               label = measured["target"].to_vector<int64_t>();
    for (size_t i = 0; i < taken.size(); ++i) confusion_.add(label[i], taken[i]);
  }
  void finish(Metrics& metrics) const override {
    if (objective_.is_sum)
      metrics.values.at(0).value = sum_of_means();  // the loss: each term may count different places
    for (const std::string& name : objective_.metrics) {
      if (name == "accuracy") metrics.add(name, distances_ / places_);
      if (name == "perplexity") metrics.add(name, std::exp(metrics["loss"]));
      if (name == "mse") metrics.add(name, squares_ / places_);
      if (name == "mae") metrics.add(name, distances_ / places_);
    }
    if (followed_) followed_->confusion = confusion_;
  }

 private:
  double sum_of_means() const {
    double sum = 0;
    for (size_t i = 0; i < terms_.size(); i += 2) sum += terms_[i] / terms_[i + 1];
    return sum;
  }

  Objective objective_;
  std::shared_ptr<Followed> followed_;
  ConfusionMatrix confusion_;
  std::vector<double> terms_;                        // where the loss is a sum
  double places_ = 0, squares_ = 0, distances_ = 0;  // with classes, `distances_` counts the correct places
};

class WorkloadTask final : public Task {
 public:
  WorkloadTask(const CellRequest& cell, bool epochs, std::shared_ptr<Followed> followed)
      : cell_(cell), epochs_(epochs && cell.line.states.empty()), followed_(std::move(followed)) {
    for (const zoo::InputDescription& input : cell.line.inputs) fields_.emplace_back(input.name);
    for (const zoo::InputDescription& target : cell.objective.targets)
      fields_.emplace_back(target.name, data::Role::target);
  }
  std::string name() const override { return "lab-" + cell_.model; }
  std::vector<data::Field> fields() const override { return fields_; }
  bool shuffles() const override { return false; }  // the protocol fixes the order
  data::LastBatch last_batch() const override { return data::LastBatch::drop; }
  Named collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                int64_t) const override {
    if (!epochs_) return named_fields(cell_, trimmed(cell_, set.batch(indices)));
    const std::shared_ptr<const std::vector<int64_t>> order = order_of(set.size(), epoch);
    std::vector<int64_t> mapped;
    for (const int64_t i : indices) mapped.push_back((*order)[static_cast<size_t>(i)]);
    return named_fields(cell_, trimmed(cell_, set.batch(mapped)));
  }
  Named forward(nn::Module& model, const Named& batch, Named& state) const override {
    std::vector<Tensor> states = state.values();
    Named out = named_outputs(cell_, outputs_of(cell_, model, batch.values(), states));
    state.set_values(std::move(states));
    return out;
  }
  Named first_state(const nn::Module&, int64_t batch) const override {
    return {names_of(cell_.line.states), first_states(cell_, batch)};
  }
  Tensor loss(const Named& out, const Named& batch) const override {
    const Tensor loss = loss_of(cell_, out, batch);
    if (followed_ && cell_.objective.classes > 0) {
      const NoGrad off;
      const auto [right, places] = right_of(cell_, out, batch);
      assign(followed_->right, followed_->right + right);
      assign(followed_->places, followed_->places + places);
    }
    if (followed_ && cell_.objective.counts_places()) {
      const NoGrad off;
      assign(followed_->loss, followed_->loss + cast(loss, DType::f64));
    }
    return loss;
  }
  Tensor test_loss(const Named& out, const Named& batch) const override { return loss_of(cell_, out, batch); }
  Tensor weight(const Named& batch) const override {
    return cell_.objective.counts_places() ? sum(batch[cell_.objective.first().lengths]) : Tensor();
  }
  Named measure(const Named& out, const Named& batch) const override {
    const LossTerm& term = cell_.objective.first();
    if (term.kind == "ctc") return {};
    if (cell_.objective.is_sum) return {{"sums", terms_of(out, batch)}};
    const Tensor &o = out[term.output], &y = batch[term.target];
    if (cell_.objective.classes > 0) {
      const auto [right, places] = right_of(cell_, out, batch);
      const Tensor sums = stack({places, zeros_like(places), right});
      const Tensor each = unsqueeze(cast(sums, DType::f64), 0);
      if (y.rank() != 1) return {{"sums", each}};
      return {{"sums", each}, {"predicted", argmax(o, -1)}, {"target", y}};
    }
    const Tensor distance = cast(o, DType::f64) - cast(y, DType::f64);
    const auto total = [&](const Tensor& each) {
      if (term.lengths.empty()) return sum(each);
      Dims shape = {each.size(0), each.size(1)};
      for (int axis = 2; axis < each.rank(); ++axis) shape.push_back(1);
      const Tensor mask = reshape(counting(term, batch, each.size(1)), shape);
      return sum(where(mask, each, zeros_like(each)));
    };
    return {{"sums",
             unsqueeze(stack({total(ones_like(distance)), total(distance * distance), total(abs(distance))}),
                       0)}};
  }
  std::unique_ptr<Meter> meter() const override {
    return std::make_unique<WorkloadMeter>(cell_.objective, followed_);
  }
  std::vector<MetricInfo> metrics() const override {
    std::vector<MetricInfo> infos;
    for (const std::string& name : cell_.objective.metrics)
      infos.push_back({.name = name, .higher_is_better = name == "accuracy"});
    return infos;
  }

 private:
  /// (1, 2 · terms) of f64: for each term its sum over the batch, and over how many places that is.
  Tensor terms_of(const Named& out, const Named& batch) const {
    std::vector<Tensor> numbers;
    for (const LossTerm& term : cell_.objective.terms) {
      const Tensor mean = cast(term_of(term, out, batch), DType::f64);
      const Tensor count = term.lengths.empty()
                               ? full({}, static_cast<double>(samples_of(batch)), DType::f64, mean.device())
                               : cast(sum(batch[term.lengths]), DType::f64);
      numbers.insert(numbers.end(), {mean * count, count});
    }
    return unsqueeze(stack(numbers), 0);
  }
  std::shared_ptr<const std::vector<int64_t>> order_of(int64_t samples, int64_t epoch) const {
    const std::lock_guard lock(mutex_);  // several threads make batches
    if (!order_ || epoch != order_epoch_) {
      order_ = std::make_shared<const std::vector<int64_t>>(epoch_order(samples, cell_.seed, epoch));
      order_epoch_ = epoch;
    }
    return order_;
  }

  CellRequest cell_;
  bool epochs_;
  std::shared_ptr<Followed> followed_;
  std::vector<data::Field> fields_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const std::vector<int64_t>> order_;
  mutable int64_t order_epoch_ = -1;
};

}  // namespace

Followed::Followed(Device device)
    : right(full({}, 0.0, DType::i64, device)),
      places(full({}, 0.0, DType::i64, device)),
      loss(full({}, 0.0, DType::f64, device)) {}

void Followed::clear() {
  const NoGrad off;
  for (const Tensor& tensor : {right, places, loss}) assign(tensor, zeros_like(tensor));
}

TaskPtr make_task(const CellRequest& cell, bool epochs, std::shared_ptr<Followed> followed) {
  return std::make_shared<WorkloadTask>(cell, epochs, std::move(followed));
}

std::vector<Tensor> first_states(const CellRequest& cell, int64_t batch) {
  std::vector<Tensor> zeros_of;
  for (const zoo::InputDescription& state : cell.line.states)
    zeros_of.push_back(zeros({state.shape[0], batch, state.shape[1]}, cell.dtype(), cell.device));
  return zeros_of;
}

std::vector<Tensor> outputs_of(const CellRequest& cell, nn::Module& model, const std::vector<Tensor>& fields,
                               std::vector<Tensor>& states) {
  const size_t inputs = cell.line.inputs.size(), outputs = cell.line.outputs.size();
  std::vector<Tensor> in(fields.begin(), fields.begin() + static_cast<std::ptrdiff_t>(inputs));
  // The last batch of an evaluation may be smaller. Its samples continue the first samples of the batch before.
  for (const Tensor& state : states)
    in.push_back(state.size(1) == in[0].size(0) ? state : slice(state, 1, 0, in[0].size(0)));
  std::vector<Tensor> out = in.size() == 1 && outputs == 1 ? std::vector<Tensor>{model(in[0])} : model(in);
  TD_CHECK(out.size() >= outputs + states.size(), "network: must have at most the outputs of its model, ",
           out.size(), "; got ", outputs, ".");
  for (Tensor& tensor : out)
    if (bytes_of(tensor.dtype()) == 2) tensor = cast(tensor, DType::f32);
  for (size_t i = 0; i < states.size(); ++i) states[i] = out[outputs + i].detach();
  out.resize(outputs);
  return out;
}

Named named_fields(const CellRequest& cell, std::vector<Tensor> fields) {
  std::vector<zoo::InputDescription> rows = cell.line.inputs;
  rows.insert(rows.end(), cell.objective.targets.begin(), cell.objective.targets.end());
  return {names_of(rows), std::move(fields)};
}

Named named_outputs(const CellRequest& cell, std::vector<Tensor> outputs) {
  std::vector<std::string> names;
  for (const zoo::StraightLine::Output& output : cell.line.outputs) names.push_back(output.name);
  return {Names::of(names), std::move(outputs)};
}

Tensor loss_of(const CellRequest& cell, const Named& outputs, const Named& batch) {
  const std::vector<LossTerm>& terms = cell.objective.terms;
  Tensor loss = term_of(terms.at(0), outputs, batch);
  for (size_t i = 1; i < terms.size(); ++i) loss = loss + term_of(terms[i], outputs, batch);
  return loss;
}

}  // namespace tandem::lab::tandem_driver
