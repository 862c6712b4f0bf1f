// The lab's metrics, as lab/docs/metrics.md names them: a test holds the two lists together.
#include <algorithm>
#include <set>

#include "lab/src/analysis/analysis.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

using Better = Metric::Better;

/// "0.90" of "fit.time_to_0.90_s"; "" for other names.
std::string threshold(const std::string& name, const std::string& prefix, const std::string& suffix) {
  if (name.size() <= prefix.size() + suffix.size() || name.compare(0, prefix.size(), prefix) != 0) return "";
  if (name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) return "";
  const std::string value = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  return value.find_first_not_of("0123456789.") == std::string::npos ? value : "";
}

}  // namespace

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> list = {
      {"step.latency_s", "step time", "s", Better::less},
      {"step.throughput_s", "step time in a row", "s", Better::less},
      {"step.call_s", "step time per call", "s", Better::less},
      {"samples_per_s", "throughput", "samples/s", Better::more},
      {"start_s", "start", "s", Better::less},
      {"prepare_s", "building the network", "s", Better::less},
      {"first_step_s", "first step", "s", Better::less},
      {"warmup_steps", "warm-up", "steps", Better::less},
      {"fit.total_s", "training time", "s", Better::less},
      {"fit.first_epoch_s", "first epoch", "s", Better::less},
      {"fit.epoch_s", "later epochs", "s", Better::less},
      {"fit.test_s", "test time", "s", Better::less},
      {"fit.accuracy", "test accuracy", "", Better::more, true},
      {"fit.best_accuracy", "best test accuracy", "", Better::more, true},
      {"fit.perplexity", "test perplexity", "", Better::less, true},
      {"fit.best_perplexity", "best test perplexity", "", Better::less, true},
      {"fit.mse", "test mean square error", "", Better::less, true},
      {"fit.best_mse", "best test mean square error", "", Better::less, true},
      {"fit.mae", "test mean absolute error", "", Better::less, true},
      {"fit.best_mae", "best test mean absolute error", "", Better::less, true},
      {"fit.accuracy_noise_0.10", "test accuracy under noise 0.10", "", Better::more, true},
      {"fit.memory_growth_mib", "memory growth of an epoch", "MiB", Better::less},
      {"fit.best_epoch", "epoch of the best test", "", Better::less, true},
      {"fit.loss", "training loss", "", Better::less, true},
      {"fit.test_loss", "test loss", "", Better::less, true},
      {"fit.time_to_0.90_s", "time to 0.90 in the test", "s", Better::less, true},
      {"fit.energy_to_0.90_j", "energy to 0.90 in the test", "J", Better::less, true},
      {"cpu.percent", "CPU utilisation", "%", Better::neither},
      {"cpu.core_max_percent", "utilisation of the busiest core", "%", Better::neither},
      {"cpu.tree_percent", "processor time", "%", Better::neither},
      {"rss.mean_mib", "mean resident memory", "MiB", Better::less},
      {"rss.peak_mib", "peak resident memory", "MiB", Better::less},
      {"rss.start_mib", "resident memory after the start", "MiB", Better::less},
      {"rss.over_start_mib", "peak resident memory over the start's", "MiB", Better::less},
      {"pss.mean_mib", "mean proportional memory", "MiB", Better::less},
      {"pss.peak_mib", "peak proportional memory", "MiB", Better::less},
      {"gpu.percent", "GPU utilisation", "%", Better::neither},
      {"gpu.memory_mean_mib", "mean GPU memory", "MiB", Better::less},
      {"gpu.memory_peak_mib", "peak GPU memory", "MiB", Better::less},
      {"gpu.tree_memory_mean_mib", "mean GPU memory of the processes", "MiB", Better::less},
      {"gpu.tree_memory_peak_mib", "peak GPU memory of the processes", "MiB", Better::less},
      {"gpu.temperature_c", "GPU temperature", "°C", Better::less},
      {"gpu.power_w", "GPU power", "W", Better::less},
      {"gpu.energy_j", "GPU energy", "J", Better::less},
      {"cpu.temperature_c", "CPU temperature", "°C", Better::less},
      {"cpu.energy_j", "CPU energy", "J", Better::less},
      {"step.energy_j", "energy of a step", "J", Better::less},
      {"monitor.percent", "processor time of the monitor", "%", Better::neither},
      {"machine.others_cores", "cores used by others", "cores", Better::neither},
      {"machine.run_others_cores", "cores used by others, whole run", "cores", Better::neither},
      {"machine.stolen_cores", "cores taken by the hypervisor", "cores", Better::neither},
      {"machine.runnable_others", "runnable threads of others", "", Better::neither},
      {"machine.wait_percent", "wait for a core", "%", Better::neither},
      {"machine.pressure_percent", "CPU pressure", "%", Better::neither},
      {"machine.calibration_before_s", "calibration before the run", "s", Better::neither},
      {"machine.calibration_after_s", "calibration after the run", "s", Better::neither},
      {"machine.core_share_before", "share of a core before the run", "", Better::neither},
      {"machine.core_share_after", "share of a core after the run", "", Better::neither},
      {"breakdown.kernel_share", "share of the step in kernels", "", Better::neither},
      {"breakdown.copy_share", "share of the step in copies", "", Better::neither},
      {"breakdown.launches", "kernel launches of a step", "", Better::neither},
      {"breakdown.nodes_before", "graph nodes before the passes", "", Better::neither},
      {"breakdown.nodes_after", "graph nodes after the passes", "", Better::neither},
      {"input.wait_share", "share of the step that waits for samples", "", Better::less},
      {"input.cold_share", "share of samples read from the disk", "", Better::neither},
      {"code.lines", "lines of code", "", Better::less},
  };
  return list;
}

Metric metric(const std::string& name) {
  for (const Metric& known : metrics())
    if (known.name == name) return known;
  if (const std::string value = threshold(name, "fit.time_to_", "_s"); !value.empty())
    return {name, str("time to ", value, " in the test"), "s", Better::less, true};
  if (const std::string value = threshold(name, "fit.energy_to_", "_j"); !value.empty())
    return {name, str("energy to ", value, " in the test"), "J", Better::less, true};
  if (const size_t at = name.find("_noise_"); name.starts_with("fit.") && at != std::string::npos) {
    const Metric plain = metric(name.substr(0, at));
    return {name, str(plain.label, " under noise ", name.substr(at + 7)), plain.unit, plain.better, true};
  }
  // What a claim may ask of single epochs.
  const bool learned = name == "accuracy" || name == "loss" || name.starts_with("test_");
  return {name, name, "", Better::neither, learned};
}

bool is_of_machine(const std::string& name) { return name.starts_with("machine."); }

bool is_count(const std::string& name) {
  return name == "code.lines" || name == "breakdown.launches" || name == "breakdown.nodes_before" ||
         name == "breakdown.nodes_after";
}

bool depends_on_epochs(const std::string& name) {
  if (name == "cpu.energy_j" || name == "gpu.energy_j") return true;
  if (!name.starts_with("fit.") || name.starts_with("fit.time_to_") || name.starts_with("fit.energy_to_"))
    return false;
  static const std::set<std::string> of_one_epoch = {"fit.first_epoch_s", "fit.epoch_s", "fit.test_s",
                                                     "fit.memory_growth_mib"};
  return !of_one_epoch.contains(name);
}

std::string epochs_text(const std::set<int64_t>& epochs) {
  if (epochs.empty()) return "";
  return str(*epochs.begin(), epochs.size() > 1 ? str(" to ", *epochs.rbegin()) : std::string());
}

}  // namespace tandem::lab
