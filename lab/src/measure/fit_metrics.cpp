#include "lab/src/measure/fit_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lab/src/measure/energy.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

void add_fit_metrics(Run& run, const Fitted& fitted, const Json& workload, int64_t window_begun) {
  double total = 0;
  std::vector<double> later, tests;
  std::optional<double> best;
  int64_t best_epoch = 0;
  std::vector<double> elapsed;
  for (const FitEpoch& e : fitted.epochs) {
    const double train_s = seconds(e.train_end_ns - e.begin_ns), test_s = seconds(e.end_ns - e.train_end_ns);
    run.epochs.push_back({e.epoch, train_s, test_s, e.loss, e.accuracy, e.test_loss, e.test_accuracy});
    total += train_s;
    elapsed.push_back(total);
    if (e.epoch > 1) later.push_back(train_s);
    if (e.test_accuracy) {
      tests.push_back(test_s);
      if (!best || *e.test_accuracy > *best) best = e.test_accuracy, best_epoch = e.epoch;
    }
  }
  auto& m = run.metrics;
  m["fit.total_s"] = total;
  m["fit.first_epoch_s"] = run.epochs.front().train_s;
  m["fit.loss"] = run.epochs.back().loss;
  if (later.empty())
    run.unavailable["fit.epoch_s"] = "there was one epoch alone";
  else
    m["fit.epoch_s"] = stats::median(later);
  if (best) {
    m["fit.accuracy"] = run.epochs.back().test_accuracy.value_or(*best);
    m["fit.best_accuracy"] = *best;
    m["fit.best_epoch"] = static_cast<double>(best_epoch);
    m["fit.test_s"] = stats::median(tests);
  } else {
    for (const char* name : {"fit.accuracy", "fit.best_accuracy", "fit.best_epoch", "fit.test_s"})
      run.unavailable[name] = "there is no test data";
  }
  const Json thresholds = workload.value("fit", Json::object()).value("thresholds", Json::array());
  for (const Json& threshold : thresholds) {
    char suffix[16];
    std::snprintf(suffix, sizeof suffix, "%.2f", threshold.get<double>());
    const std::string time_name = cat("fit.time_to_", suffix, "_s"),
                      energy_name = cat("fit.energy_to_", suffix, "_j");
    const auto reached = std::find_if(run.epochs.begin(), run.epochs.end(), [&](const Epoch& e) {
      return e.test_accuracy && *e.test_accuracy >= threshold.get<double>();
    });
    const auto at = static_cast<size_t>(reached - run.epochs.begin());
    if (reached == run.epochs.end()) {
      run.unavailable[time_name] = run.unavailable[energy_name] =
          cat("test accuracy did not reach ", suffix, " within ", run.epochs.size(), " epochs");
      continue;
    }
    m[time_name] = elapsed[at];
    // Tests between the epochs are in it: they are what a user spends until the model is known to be good enough.
    if (const auto joules = energy_until(run, seconds(fitted.epochs[at].train_end_ns - window_begun)))
      m[energy_name] = *joules;
    else
      run.unavailable[energy_name] = "no energy counter can be read on this machine";
  }
}

}  // namespace tandem::lab
