// What tasks that predict the next token of a text measure.
#pragma once

#include <cmath>

#include "tandem/train/task.h"

namespace tandem {

/// `right`: how many tokens were right; `all`: how many there were; each of a batch or of its samples.
class TokenMeter : public Meter {
 public:
  void add(const Named& measured) override {
    for (const int64_t count : measured["right"].to_vector<int64_t>()) right_ += static_cast<double>(count);
    for (const int64_t count : measured["all"].to_vector<int64_t>()) all_ += static_cast<double>(count);
  }
  void finish(Metrics& metrics) const override {
    metrics.add("perplexity", std::exp(metrics["loss"]));
    if (all_ > 0) metrics.add("accuracy", right_ / all_);
  }

 protected:
  double right_ = 0, all_ = 0;
};

}  // namespace tandem
