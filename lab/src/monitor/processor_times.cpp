// /proc/stat, and the utilisation of cores.
#include "lab/src/monitor/processor_times.h"

#include <algorithm>

namespace tandem::lab {

void parse_processor_times(std::string_view text, ProcessorTimes& times) {
  times.cores.clear();
  times.forks.reset();
  times.running.reset();
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (line.starts_with("processes ")) {
      line.remove_prefix(10);
      times.forks = take_number(line);
      continue;
    }
    if (line.starts_with("procs_running ")) {
      line.remove_prefix(14);
      times.running = take_number(line);
      break;  // what follows is of no use here
    }
    if (!line.starts_with("cpu") || line.starts_with("cpu ")) continue;
    line.remove_prefix(3);
    const auto core = take_number(line);
    if (!core || *core < 0) continue;
    // user nice system idle iowait irq softirq steal; old kernels end earlier.
    int64_t fields[8] = {};
    int count = 0;
    for (; count < 8; ++count) {
      const auto value = take_number(line);
      if (!value) break;
      fields[count] = std::max<int64_t>(*value, 0);
    }
    if (count < 4) continue;
    CoreTimes one;
    one.core = static_cast<int>(*core);
    one.active = fields[0] + fields[1] + fields[2] + fields[5] + fields[6];
    one.steal = fields[7];
    one.total = one.active + fields[3] + fields[4] + one.steal;
    times.cores.push_back(one);
  }
}

void CoreUsage::add(const ProcessorTimes& times) {
  ++readings_;
  for (const CoreTimes& now : times.cores) {
    Core& core = cores_[now.core];
    if (readings_ > 1 && core.seen_at == readings_ - 1) {
      // The kernel lets iowait go backwards at times: a difference below zero is taken for none.
      const int64_t active = std::max<int64_t>(now.active - core.last.active, 0);
      const int64_t total = std::max<int64_t>(now.total - core.last.total, active);
      const int64_t steal = std::max<int64_t>(now.steal - core.last.steal, 0);
      for (CoreSum* sum : {&core.all, &core.piece}) {
        sum->active += active;
        sum->total += total;
        sum->steal += steal;
      }
    }
    core.last = now;
    core.seen_at = readings_;
  }
}

CoreSums CoreUsage::all() const {
  CoreSums sums;
  for (const auto& [number, core] : cores_)
    if (core.all.total > 0) sums.emplace_back(number, core.all);
  return sums;
}

CoreSums CoreUsage::take_piece() {
  CoreSums sums;
  for (auto& [number, core] : cores_) {
    if (core.piece.total > 0) sums.emplace_back(number, core.piece);
    core.piece = {};
  }
  return sums;
}

std::optional<double> mean_percent(const CoreSums& cores) {
  if (cores.empty()) return std::nullopt;
  double sum = 0;
  for (const auto& [number, core] : cores) sum += core.percent();
  return sum / static_cast<double>(cores.size());
}

}  // namespace tandem::lab
