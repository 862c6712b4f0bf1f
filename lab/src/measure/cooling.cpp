#include "lab/src/measure/cooling.h"

#include <chrono>
#include <cmath>
#include <thread>

#include "lab/src/driver/process.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

constexpr double kWithin = 2;  // °C

}  // namespace

Cooling::Cooling(double at_most_s, const std::atomic<bool>* stop, std::function<std::optional<double>()> read)
    : at_most_s_(at_most_s), stop_(stop), read_(std::move(read)), start_(read_()) {}

void Cooling::wait(const std::function<void(const std::string&)>& stage) const {
  if (!start_) return;
  const int64_t begun = now_ns();
  while (static_cast<double>(now_ns() - begun) / 1e9 < at_most_s_ && !(stop_ && stop_->load())) {
    const std::optional<double> now = read_();
    if (!now || *now <= *start_ + kWithin) return;
    stage(str("cools, ", std::lround(*now), " °C"));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace tandem::lab
