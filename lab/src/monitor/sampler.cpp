// The readings.
#include "lab/src/monitor/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

constexpr double kMib = 1024.0 * 1024.0;
constexpr double kSlowPeriod = 1.0;  // of what is read once per second
constexpr double kFastPart =
    0.6;  // of the monitor's share, the most that the sources read at the interval may take

}  // namespace

void Counter::add(double at, double value, double begin, double spacing) {
  if (!first) {
    first = value;
    first_at = at;
    point_value = value;
    point_at = at;
  } else if (at - point_at >= spacing && at > point_at) {
    rate.add(at - begin, std::max(value - point_value, 0.0) / (at - point_at));
    point_value = value;
    point_at = at;
  }
  last = value;
  last_at = at;
}

void GpuSeries::add(double at, const GpuValue& value, double scale) {
  source = value.source;
  if (value.value)
    series.add(at, *value.value * scale);
  else
    why = value.why;
}

Sampler::Sampler(const MonitorOptions& options)
    : options_(options),
      stat_(options.proc + "/stat"),
      cpu_temperature_(options.sys),
      cpu_energy_(options.sys) {
  const double interval = options_.interval_s;
  const double slow = std::max(kSlowPeriod, interval);
  paces_ = {{"processor", &Sampler::read_processor, interval, 0}};
  if (options_.pid > 0) {
    tree_.emplace(options_.proc, options_.pid);
    paces_.push_back({"process tree", &Sampler::read_tree, interval, 0});
  }
  paces_.push_back({"processor energy", &Sampler::read_energy, interval, 0});
  if (options_.gpu) {
    const auto nvml = options_.nvml_functions ? Nvml::start(*options_.nvml_functions, gpu_why_)
                                              : Nvml::open(options_.nvml, gpu_why_);
    if (nvml) gpu_ = Gpu::find(nvml, *options_.gpu, std::getenv("CUDA_VISIBLE_DEVICES"), gpu_why_);
  } else {
    gpu_why_ = "no GPU is watched in this run";
  }
  if (gpu_) paces_.push_back({"GPU", &Sampler::read_gpu, interval, 0});
  paces_.push_back({"temperature", &Sampler::read_temperature, slow, 0});
  if (tree_) {
    paces_.push_back({"search for children", &Sampler::read_children, interval, 0.2});
    paces_.push_back({"runnable processes", &Sampler::read_runnable, interval, 0.1});
    paces_.push_back({"PSS", &Sampler::read_pss, slow, 0.5});
  }
  if (gpu_) paces_.push_back({"GPU memory by process", &Sampler::read_gpu_slow, slow, 0.2});
}

void Sampler::begin() {
  window_ = Window();
  window_.begin =
      std::numeric_limits<double>::infinity();  // what is read before the window counts as read at its begin
  cpu_energy_.restart();
  for (auto pace = paces_.rbegin(); pace != paces_.rend(); ++pace) run(*pace);
  window_.cpu_begin = thread_cpu_s();
  window_.begin = now_s();
  window_.point_at = window_.begin;
  for (Pace& pace : paces_) {
    pace.readings = 0;
    pace.due = window_.begin + period(pace);
  }
}

double Sampler::tick() {
  const double now = now_s();
  double next = now + 1.0;
  for (Pace& pace : paces_) {
    // Readings that would be due within half an interval share this waking.
    if (pace.due <= now + 0.25 * options_.interval_s) {
      run(pace);
      const double step = period(pace);
      pace.due = std::max(pace.due + step, now + 0.5 * step);
    }
    next = std::min(next, pace.due);
  }
  return next;
}

void Sampler::run(Pace& pace) {
  const double before = thread_cpu_s();
  const bool has_read = (this->*pace.read)();
  const double cost = thread_cpu_s() - before;
  if (has_read) pace.cost_s = 0.75 * pace.cost_s.value_or(cost) + 0.25 * cost;
  ++pace.readings;
}

/// Sources that are read at the interval come first; where they alone would take too much, all of them slow down by the same
/// factor. The slow ones divide what is left.
double Sampler::period(const Pace& pace) const {
  double fast = 0;
  for (const Pace& each : paces_)
    if (each.weight == 0) fast += each.cost_s.value_or(0) / each.wanted_s;
  const double stretch = std::max(1.0, fast / (kFastPart * options_.share));
  double seconds = pace.wanted_s * stretch;
  if (pace.weight > 0) {
    const double left = options_.share - fast / stretch;
    seconds = std::max(pace.wanted_s, pace.cost_s.value_or(0) / (left * pace.weight));
  }
  // Whole intervals, so that sources are due at the same moments and the thread wakes once for all of them.
  return options_.interval_s * std::max(1.0, std::ceil(seconds / options_.interval_s - 1e-6));
}

/// Seconds since the window began.
double Sampler::at(double now) const { return std::max(now - window_.begin, 0.0); }

bool Sampler::read_processor() {
  const double now = now_s();
  const auto text = stat_.read(buffer_);
  if (!text) return true;
  parse_processor_times(*text, times_);
  forks_ = times_.forks;
  window_.cores.add(times_);
  if (now - window_.point_at < 0.5 * options_.interval_s && !window_.cpu_percent.empty()) return true;
  const CoreSums piece = window_.cores.take_piece();
  if (const auto mean = mean_percent(piece)) window_.cpu_percent.add(at(now), *mean);
  for (const auto& [core, sum] : piece) window_.core_percent[core].add(at(now), sum.percent());
  window_.point_at = now;
  return true;
}

bool Sampler::read_tree() {
  const double now = now_s();
  const auto reading = tree_->read();
  if (!tree_->root_lives() && !window_.root_ended_at) window_.root_ended_at = at(now);
  if (!reading) return true;
  window_.rss.add(at(now), reading->rss_bytes / kMib);
  window_.tree_cpu.add(now, reading->cpu_s, window_.begin, 0.5 * options_.interval_s);
  return true;
}

bool Sampler::read_energy() {
  const double now = now_s();
  if (const auto joules = cpu_energy_.read())
    window_.cpu_energy.add(now, *joules, window_.begin, 0.5 * options_.interval_s);
  return true;
}

bool Sampler::read_temperature() {
  if (const auto degrees = cpu_temperature_.read()) window_.cpu_temperature.add(at(now_s()), *degrees);
  return true;
}

bool Sampler::read_children() {
  // The machine counts its forks: where none happened since the last search, there is nobody new.
  if (forks_ && forks_ == forks_at_search_) return false;
  forks_at_search_ = forks_;
  tree_->find_children();
  return true;
}

bool Sampler::read_runnable() {
  const double now = now_s();
  const auto text = stat_.read(buffer_);
  ProcessorTimes times;
  if (text) parse_processor_times(*text, times);
  if (!times.running) {
    window_.runnable_why = str("'", stat_.path(), "' does not count running processes");
    return true;
  }
  // This thread runs, too.
  const int64_t others = *times.running - tree_->runnable_threads() - 1;
  window_.runnable_others.add(at(now), static_cast<double>(std::max<int64_t>(others, 0)));
  return true;
}

bool Sampler::read_pss() {
  const double now = now_s();
  if (const auto bytes = tree_->pss_bytes(window_.pss_why)) window_.pss.add(at(now), *bytes / kMib);
  return true;
}

bool Sampler::read_gpu() {
  const double now = now_s();
  const GpuValue energy = gpu_->energy_j();
  if (energy.value)
    window_.gpu_energy.add(now, *energy.value, window_.begin, 0.5 * options_.interval_s);
  else
    window_.gpu_energy_why = energy.why;
  window_.gpu_power.add(at(now), gpu_->power_w(), 1);
  window_.gpu_percent.add(at(now), gpu_->percent(), 1);
  window_.gpu_memory.add(at(now), gpu_->memory_bytes(), 1 / kMib);
  window_.gpu_temperature.add(at(now), gpu_->temperature_c(), 1);
  return true;
}

bool Sampler::read_gpu_slow() {
  const double now = now_s();
  for (const std::string& reason : gpu_->throttling()) window_.throttling.insert(reason);
  if (tree_) window_.gpu_tree_memory.add(at(now), gpu_->memory_bytes(tree_->pids()), 1 / kMib);
  return true;
}

std::optional<double> Sampler::temperature() const {
  if (options_.gpu) return gpu_ ? gpu_->temperature_c().value : std::nullopt;
  return cpu_temperature_.read();
}

}  // namespace tandem::lab
