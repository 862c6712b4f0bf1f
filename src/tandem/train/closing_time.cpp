#include "tandem/train/closing_time.h"

namespace tandem {

void ClosingTime::measured(int64_t samples, double seconds) {
  if (samples > 0) per_sample_ = seconds / static_cast<double>(samples);
}

double ClosingTime::seconds(double step_seconds, double sample_seconds) const {
  const double per_sample = per_sample_ >= 0 ? per_sample_ : sample_seconds / 2;
  return step_seconds + per_sample * static_cast<double>(samples_) + save_seconds_;
}

}  // namespace tandem
