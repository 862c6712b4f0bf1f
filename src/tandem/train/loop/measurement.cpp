#include "tandem/train/loop/measurement.h"

#include "tandem/core/error.h"
#include "tandem/train/task_calls.h"

namespace tandem {
namespace {

/// What is measured of a part of the data: "test_loss", "test_accuracy" …
void add_infos(const std::string& part, const std::vector<MetricInfo>& metrics,
               std::vector<MetricInfo>& infos) {
  infos.push_back({part + "_loss"});
  for (MetricInfo info : metrics) {
    info.name = part + "_" + info.name;
    infos.push_back(std::move(info));
  }
}

}  // namespace

Measurement::Measurement(Learner& learner, RunClock& clock, const FitOptions& options,
                         const data::Dataset* valid, const data::Dataset* test)
    : learner_(learner),
      clock_(clock),
      stop_(options.stop),
      valid_(valid),
      test_(test),
      evaluation_(learner.model(), engine_of(options),
                  RunOptions{.task = options.task,
                             .loss = options.loss,
                             .autocast = options.autocast,
                             .workers = options.workers}) {
  const std::vector<MetricInfo> metrics = task_or_usual(options.task)->metrics();
  add_infos("train", {}, infos_);
  if (valid_) add_infos("valid", metrics, infos_);
  if (test_) add_infos("test", metrics, infos_);
}

bool Measurement::measure(const char* part, const data::Dataset* set, std::vector<Metric>& values) {
  if (!set) return true;
  const auto averaged = learner_.averaged();
  const Clock::time_point begin = Clock::now();
  const std::optional<Metrics> measured = evaluation_.unless_stopped(stop_, *set);
  if (!measured) return false;
  clock_.measured(set->size(), begin);
  for (const Metric& metric : measured->values) values.push_back({str(part, "_", metric.name), metric.value});
  return true;
}

}  // namespace tandem
