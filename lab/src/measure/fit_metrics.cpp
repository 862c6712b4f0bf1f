#include "lab/src/measure/fit_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lab/src/measure/energy.h"
#include "lab/src/measure/materials.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

constexpr const char* kNoTest = "there is no test data";

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

bool is_better_more(const std::string& metric) { return metric == "accuracy"; }

/// How much the driver's memory grew from epoch to epoch: the median of the slopes between any two epochs (Theil and Sen)
/// after the first, which still sets up.
void add_growth(Run& run) {
  std::vector<double> slopes;
  for (size_t i = 1; i < run.epochs.size(); ++i)
    for (size_t j = i + 1; j < run.epochs.size(); ++j)
      if (run.epochs[i].rss_mib && run.epochs[j].rss_mib)
        slopes.push_back((*run.epochs[j].rss_mib - *run.epochs[i].rss_mib) / static_cast<double>(j - i));
  if (slopes.empty())
    run.unavailable["fit.memory_growth_mib"] = "there were fewer than three epochs";
  else
    run.metrics["fit.memory_growth_mib"] = stats::median(slopes);
}

/// The last and the best of a metric over the tests; of the workload's first, also when that was.
void add_best(Run& run, const std::string& name, bool is_first) {
  std::optional<double> best;
  double last = 0;
  int64_t best_epoch = 0;
  for (const Epoch& epoch : run.epochs) {
    const auto at = epoch.test_metrics.find(name);
    if (at == epoch.test_metrics.end()) continue;
    last = at->second;
    if (!best || (is_better_more(name) ? last > *best : last < *best)) best = last, best_epoch = epoch.epoch;
  }
  const std::string last_name = "fit." + name, best_name = "fit.best_" + name;
  if (best) {
    run.metrics[last_name] = last;
    run.metrics[best_name] = *best;
    if (is_first) run.metrics["fit.best_epoch"] = static_cast<double>(best_epoch);
    return;
  }
  run.unavailable[last_name] = run.unavailable[best_name] = kNoTest;
  if (is_first) run.unavailable["fit.best_epoch"] = kNoTest;
}

}  // namespace

void add_fit_metrics(Run& run, const Fitted& fitted, const Workload& workload,
                     const std::vector<std::optional<double>>& memory_mib, int64_t window_begun) {
  double total = 0;
  std::vector<double> later, tests, elapsed;
  for (const FitEpoch& e : fitted.epochs) {
    const double train_s = seconds(e.train_end_ns - e.begin_ns), test_s = seconds(e.end_ns - e.train_end_ns);
    run.epochs.push_back({e.epoch, train_s, test_s, e.loss, e.test_loss, e.metrics, e.test_metrics,
                          memory_mib.at(run.epochs.size())});
    total += train_s;
    elapsed.push_back(total);
    if (e.epoch > 1) later.push_back(train_s);
    if (e.test_loss) tests.push_back(test_s);
  }
  auto& m = run.metrics;
  m["fit.total_s"] = total;
  m["fit.first_epoch_s"] = run.epochs.front().train_s;
  m["fit.loss"] = run.epochs.back().loss;
  if (run.epochs.back().test_loss)
    m["fit.test_loss"] = *run.epochs.back().test_loss;
  else
    run.unavailable["fit.test_loss"] = kNoTest;
  if (later.empty())
    run.unavailable["fit.epoch_s"] = "there was one epoch alone";
  else
    m["fit.epoch_s"] = stats::median(later);
  if (tests.empty())
    run.unavailable["fit.test_s"] = kNoTest;
  else
    m["fit.test_s"] = stats::median(tests);
  add_growth(run);
  for (const double deviation : workload.noise)
    for (const std::string& name : workload.metrics) {
      const std::string under = str("fit.", name, "_", noise_name(deviation));
      const auto part = fitted.tests.find("test_" + noise_name(deviation));
      if (part != fitted.tests.end() && part->second.contains(name))
        m[under] = part->second.at(name);
      else
        run.unavailable[under] = tests.empty() ? kNoTest : "the driver did not test under noise";
    }
  for (const std::string& name : workload.metrics) add_best(run, name, name == workload.metrics[0]);
  if (workload.metrics.empty()) return;
  const std::string& first = workload.metrics[0];
  const bool more = is_better_more(first);
  const Json fit = workload.definition.value("fit", Json::object());
  for (const Json& threshold : fit.value("thresholds", Json::array())) {
    char suffix[16];
    std::snprintf(suffix, sizeof suffix, "%.2f", threshold.get<double>());
    const std::string time_name = str("fit.time_to_", suffix, "_s"),
                      energy_name = str("fit.energy_to_", suffix, "_j");
    const auto reached = std::find_if(run.epochs.begin(), run.epochs.end(), [&](const Epoch& e) {
      const auto at = e.test_metrics.find(first);
      return at != e.test_metrics.end() &&
             (more ? at->second >= threshold.get<double>() : at->second <= threshold.get<double>());
    });
    const auto at = static_cast<size_t>(reached - run.epochs.begin());
    if (reached == run.epochs.end()) {
      run.unavailable[time_name] = run.unavailable[energy_name] =
          str("test ", first, " did not reach ", suffix, " within ", run.epochs.size(), " epochs");
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
