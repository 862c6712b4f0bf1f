// The processor's temperature (hwmon, thermal zones) and energy (RAPL), where the machine has such sensors and lets them be
// read. `sys` is where /sys is mounted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/src/monitor/kept_file.h"

namespace tandem::lab {

class ProcessorTemperature {
 public:
  explicit ProcessorTemperature(const std::string& sys);
  /// In degrees Celsius, of the hottest package, or of the hottest core where packages have no sensor; none where there
  /// is no sensor or it does not answer. May be called from any thread.
  std::optional<double> read() const;
  /// The file or files that are read; "" where there are none.
  const std::string& source() const { return source_; }
  /// Why there is nothing to read; "" where there is.
  const std::string& why() const { return why_; }

 private:
  void look_in_hwmon(const std::string& folder, std::vector<std::string>& others);
  void look_in_thermal(const std::string& folder, std::vector<std::string>& others);

  std::vector<KeptFile> files_;
  std::string source_, why_;
};

class ProcessorEnergy {
 public:
  explicit ProcessorEnergy(const std::string& sys);
  /// Forgets an earlier failure to read: the next call of read() is a first one.
  void restart();
  /// Joules of all packages since the first call, counted on where a counter starts from zero; none where it cannot be
  /// read. Must be called at least once in the time a counter takes to go round (minutes at full power).
  std::optional<double> read();
  const std::string& source() const { return source_; }
  const std::string& why() const { return why_; }

 private:
  struct Package {
    KeptFile energy;
    std::optional<int64_t> range_uj, last_uj;
  };
  std::vector<Package> packages_;
  double joules_ = 0;
  ReadBuffer buffer_;
  std::string source_, why_;
};

}  // namespace tandem::lab
