#include "lab/src/measure/sitting.h"

#include <algorithm>

#include "lab/src/measure/energy.h"
#include "lab/src/measure/one_run.h"

namespace tandem::lab {
namespace {

double since(int64_t ns) { return static_cast<double>(now_ns() - ns) / 1e9; }

std::optional<int> first_gpu(const Plan& plan) {
  for (const Cell& cell : plan.cells)
    if (const auto gpu = gpu_of(cell.condition.device)) return gpu;
  return std::nullopt;
}

}  // namespace

double Forecast::of(size_t cell) const {
  if (seconds_[cell] >= 0) return seconds_[cell];
  const auto mean = [&](const auto& counts) {
    double sum = 0;
    int known = 0;
    for (size_t i = 0; i < seconds_.size(); ++i)
      if (seconds_[i] >= 0 && counts(i)) sum += seconds_[i], ++known;
    return known ? sum / known : -1;
  };
  const double alike =
      mean([&](size_t i) { return cells_[i].condition.phase == cells_[cell].condition.phase; });
  return alike >= 0 ? alike : mean([](size_t) { return true; });
}

double Forecast::of(std::span<const Turn> turns) const {
  double sum = 0;
  for (const Turn& turn : turns) {
    const double seconds = of(turn.cell);
    if (seconds < 0) return -1;
    sum += seconds;
  }
  return sum;
}

Sitting::Sitting(const Plan& plan, const RunnerOptions& options, Standing standing, Progress& progress)
    : plan_(plan),
      options_(options),
      progress_(progress),
      standing_(std::move(standing)),
      materials_(options.folder),
      gatekeeper_(options.folder, options.bench, materials_),
      forecast_(plan.cells),
      machine_(first_cpus(options.bench.threads), options.disturbance, options.keep_disturbed),
      thermometer_({.gpu = first_gpu(plan)}),
      cooling_(options.cool_down_s, options.bench.stop,
               [this] { return thermometer_.current_temperature(); }),
      begun_ns_(now_ns()) {}

std::vector<Turn> Sitting::open_turns(int64_t block) const {
  std::vector<Turn> turns;
  for (const Turn& turn : turns_of_block(plan_.cells, block, options_.seed))
    if (!standing_.done(plan_.cells[turn.cell], block) && standing_.given_up(plan_.cells[turn.cell]).empty())
      turns.push_back(turn);
  return turns;
}

bool Sitting::is_stopped() {
  outcome_.stopped = outcome_.stopped || (options_.bench.stop && options_.bench.stop->load());
  return outcome_.stopped;
}

bool Sitting::exceeds(double seconds) const {
  return options_.budget_s && outcome_.taken > 0 &&
         since(begun_ns_) + std::max(0.0, seconds) > *options_.budget_s;
}

/// Runs that are left, at what their cells took so far.
double Sitting::seconds_left() const {
  double left = 0;
  for (size_t i = 0; i < plan_.cells.size(); ++i)
    left += static_cast<double>(standing_.left(plan_.cells[i])) * forecast_.of(i);
  return options_.budget_s ? std::min(left, std::max(0.0, *options_.budget_s - since(begun_ns_))) : left;
}

bool Sitting::take(const Turn& turn, bool& repeats) {
  const Cell& cell = plan_.cells[turn.cell];
  progress_.start(turn.cell, turn.block);
  const int64_t run_begun = now_ns();
  const auto stage = [&](const std::string& text) { progress_.stage(text); };
  cooling_.wait(stage);
  Run run;
  try {
    run = take_run(cell, turn,
                   {options_.bench, plan_.workloads, materials_, gatekeeper_, options_.interval_s,
                    options_.seed, options_.limits, stage, &machine_});
  } catch (const Stopped&) {
    return false;
  }
  append_run(options_.folder, run);
  standing_.add(run);
  forecast_.add(turn.cell, since(run_begun));
  repeats = standing_.repeats(run);
  ++outcome_.taken;
  outcome_.failed += run.status != Status::ok;
  outcome_.disturbed += !run.disturbed.empty();
  outcome_.left_out += run.status == Status::disturbed && !repeats;
  progress_.done(turn.cell, run, seconds_left());
  if (const std::string why = standing_.given_up(cell); !why.empty()) progress_.give_up(turn.cell, why);
  return true;
}

void Sitting::take_turns(std::vector<Turn> turns) {
  for (size_t i = 0; i < turns.size() && !outcome_.over_budget && !is_stopped(); ++i) {
    Turn turn = turns[i];
    if (!standing_.given_up(plan_.cells[turn.cell]).empty()) continue;
    if (exceeds(forecast_.of(turn.cell))) {
      outcome_.over_budget = true;
      return;
    }
    bool repeats = false;
    outcome_.stopped = !take(turn, repeats);
    if (!repeats) continue;
    turn.order = next_order_++;
    turns.push_back(turn);
  }
}

void Sitting::take_comparisons(const std::vector<Turn>& turns) {
  const std::vector<Turn> sorted = by_comparison(plan_.cells, turns);
  bool left_any = false;
  for (size_t first = 0, last = 0; first < sorted.size() && !is_stopped(); first = last) {
    const Cell& head = plan_.cells[sorted[first].cell];
    while (last < sorted.size() && share_comparison(head, plan_.cells[sorted[last].cell])) ++last;
    const std::span comparison(&sorted[first], last - first);
    outcome_.over_budget = exceeds(forecast_.of(comparison));
    if (!outcome_.over_budget) take_turns({comparison.begin(), comparison.end()});
    left_any = left_any || outcome_.over_budget;
  }
  outcome_.over_budget = left_any;
}

StudyOutcome Sitting::take_blocks() {
  const int64_t blocks = block_count(plan_.cells);
  for (int64_t block = 0; block < blocks && standing_.left(plan_.cells) > 0 && !is_stopped(); ++block) {
    const std::vector<Turn> turns = open_turns(block);
    if (turns.empty()) continue;
    next_order_ = static_cast<int64_t>(plan_.cells.size());
    // A whole block at a time, so that all cells have as many runs. Where there is no time for one, or nobody knows yet how long it
    // takes, whole comparisons: those end with a ratio, and single runs of many conditions do not.
    const double estimate = forecast_.of(turns);
    if (!options_.budget_s || (estimate >= 0 && !exceeds(estimate)))
      take_turns(turns);
    else
      take_comparisons(turns);
    if (!outcome_.over_budget) continue;
    for (int64_t b = block; b < blocks; ++b) outcome_.blocks_left += !open_turns(b).empty();
    break;
  }
  // What was left out is taken when the study goes on.
  if (standing_.left(plan_.cells) == 0 && outcome_.left_out == 0) materials_.remove();
  return outcome_;
}

}  // namespace tandem::lab
