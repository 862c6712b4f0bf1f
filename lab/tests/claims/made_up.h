// Results made up for the tests of claims and advice: runs of systems under conditions, with values that the test chooses.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"
#include "lab/src/claims/ledger.h"
#include "lab/src/record/record.h"

namespace tandem::lab {

inline Condition condition_of(const std::string& workload, const std::string& phase, int64_t batch = 100) {
  Condition condition;
  condition.workload = workload;
  condition.phase = phase;
  condition.batch = batch;
  condition.input = {1, 28, 28};
  condition.optimizer = phase == "infer" ? "" : "sgd";
  return condition;
}

/// A small number between -1 and 1 that looks random, the same on every machine.
inline double wobble(int64_t block, uint32_t salt) {
  uint32_t h = static_cast<uint32_t>(block) * 0x9E3779B1u + salt * 0x7F4A7C15u;
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return static_cast<double>((h ^ (h >> 16)) >> 8) / 8388608.0 - 1.0;
}

class MadeUp {
 public:
  /// `data`: what the runs saw.
  explicit MadeUp(const std::string& paper = "000", std::string data = "mnist") : data_(std::move(data)) {
    results_.study = {{"paper", paper}, {"name", paper}};
  }

  /// `runs` runs of a system with one metric: value(block).
  MadeUp& add(const Condition& condition, const std::string& system, const std::string& metric,
              const std::function<double(int64_t)>& value, int64_t runs = 10,
              const std::string& control = "") {
    for (int64_t block = 0; block < runs; ++block) {
      run_of(condition, system, block, control).metrics[metric] = value(block);
    }
    return *this;
  }
  /// Values around `centre`, by a share of at most `noise`.
  MadeUp& add(const Condition& condition, const std::string& system, const std::string& metric, double centre,
              double noise = 0.01, int64_t runs = 10, const std::string& control = "") {
    uint32_t salt = 17;
    for (const char c : system + control + metric) salt = salt * 31 + static_cast<unsigned char>(c);
    return add(
        condition, system, metric, [=](int64_t block) { return centre * (1 + noise * wobble(block, salt)); },
        runs, control);
  }
  Run& run_of(const Condition& condition, const std::string& system, int64_t block,
              const std::string& control = "") {
    for (Run& run : results_.runs) {
      if (run.condition == condition && run.system == system && run.block == block && run.control == control)
        return run;
    }
    Run run;
    run.part = "made_up";
    run.system = system;
    run.control = control;
    run.condition = condition;
    run.block = block;
    run.data = data_;
    results_.runs.push_back(run);
    return results_.runs.back();
  }

  const Results& results() const { return results_; }
  Analysis analysis() const { return analyse(results_); }

 private:
  Results results_;
  std::string data_;
};

}  // namespace tandem::lab
