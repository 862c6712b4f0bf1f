#include "tandem/train/loop/pending_losses.h"

#include <cmath>

#include "tandem/core/error.h"

namespace tandem {

bool PendingLosses::are_due() const {
  constexpr size_t kMost = 50;
  constexpr std::chrono::milliseconds kLongest(250);
  return rows_.size() >= kMost || std::chrono::steady_clock::now() - read_at_ >= kLongest;
}

void PendingLosses::read(RunState& state) {
  constexpr double kLeastScale = 0x1p-20;  // of a loss: less means that scaling is of no help
  std::vector<Tensor> losses, counts;
  for (const Row& row : rows_) {
    losses.push_back(row.loss.value);
    if (row.loss.weight.defined()) counts.push_back(row.loss.weight);
  }
  if (scaler_ && !losses.empty()) losses.push_back(scaler_->current());
  const std::vector<double> values = read_scalars(losses), weights = read_scalars(counts);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const double loss = values[i];
    const double weight = weights.empty() ? static_cast<double>(row.samples) : weights[i];
    // The mean of nothing is NaN; the sum of several batches leaves it out (optim::GradientSum).
    if (weight == 0 && options_.accumulate > 1) continue;
    TD_CHECK(std::isfinite(loss), "train: the loss became ", std::isnan(loss) ? "nan" : "infinite",
             " at step ", row.step, " (epoch ", state.epoch + 1, "). Lower the learning rate (`lr` ",
             starting_lr(options_), " now), or run with `anomaly` to find the operation.");
    state.loss_sum += loss * weight;
    state.loss_weight += weight;
    last_ = loss;
  }
  TD_CHECK(values.size() == rows_.size() || values.back() >= kLeastScale,
           "train: the gradients must be finite at some scale of the loss; they are not, down to a scale of ",
           values.back(), ", by step ", state.step,
           ". Train with `autocast` bf16 or without, or lower the learning rate.");
  rows_.clear();
  read_at_ = std::chrono::steady_clock::now();
}

}  // namespace tandem
