// What a study was made with, in one JSON object for its folder: the machine, its state, the build, the libraries and drivers
// with their hashes, the environment, and warnings about all that makes times worth less.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/device.h"

namespace tandem::lab {

struct NvmlFunctions;

struct ProvenanceOptions {
  Device device{};                     // that the study runs on
  std::vector<std::string> command{};  // as it was called; empty: as the system has it
  std::map<std::string, std::string>
      files{};  // drivers and whatever else is to be hashed: what the record calls them, and their paths
  std::string source_folder{};  // whose git commit is to be named; "": none
  std::vector<int> gpus{};      // by CUDA's number; those of the study. Empty: that of `device`
  double load_fraction = 0.25;  // a load average above this part of the cores is a warning
  double busy_seconds = 0.3;    // how long other processes are watched
  // Where things are; tests put others in their place.
  std::string proc = "/proc", sys = "/sys", etc = "/etc", nvml = "libnvidia-ml.so.1";
  const NvmlFunctions* nvml_functions = nullptr;
};

/// Nothing that is missing is an error: it is null, or absent, in the object. Waits `busy_seconds`.
nlohmann::json provenance(const ProvenanceOptions& options);

/// `first`, with what differs in a later sitting of the same study: {"sittings": [{"time", "source_commit", "tandem", "files",
/// "frameworks", "system", "others"}, …]}, and its warnings, each with its time. Throws Error where that is another machine: times of two are
/// no pairs.
nlohmann::json with_sitting(nlohmann::json first, const nlohmann::json& now);

}  // namespace tandem::lab
