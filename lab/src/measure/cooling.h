// Before a run the machine shall be as cool as at the start of the study, where that can be read, so that no cell pays for
// the heat of the one before it.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

namespace tandem::lab {

class Cooling {
 public:
  /// Takes the start temperature from `read`, in °C; none: it cannot be read.
  Cooling(double at_most_s, const std::atomic<bool>* stop, std::function<std::optional<double>()> read);

  /// Waits until the temperature is within 2 °C of the start, at most as long as said. Does nothing where there is none.
  void wait(const std::function<void(const std::string&)>& stage) const;

 private:
  double at_most_s_;
  const std::atomic<bool>* stop_;
  std::function<std::optional<double>()> read_;
  std::optional<double> start_;
};

}  // namespace tandem::lab
