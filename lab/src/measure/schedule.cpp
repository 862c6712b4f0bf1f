#include "lab/src/measure/schedule.h"

#include <algorithm>
#include <iterator>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// A small generator whose sequence is fixed by this file, not by a standard library.
uint64_t next(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

int64_t block_count(const std::vector<Cell>& cells) {
  int64_t count = 0;
  for (const Cell& cell : cells) count = std::max(count, cell.effort.runs);
  return count;
}

std::vector<Turn> turns_of_block(const std::vector<Cell>& cells, int64_t block, uint64_t seed) {
  std::vector<Turn> turns;
  for (size_t i = 0; i < cells.size(); ++i)
    if (block < cells[i].effort.runs) turns.push_back({i, block, 0});
  uint64_t state = seed_of_block(seed, block);
  for (size_t i = turns.size(); i > 1; --i) std::swap(turns[i - 1], turns[next(state) % i]);
  for (size_t i = 0; i < turns.size(); ++i) turns[i].order = static_cast<int64_t>(i);
  return turns;
}

bool share_comparison(const Cell& a, const Cell& b) {
  return a.condition == b.condition && a.control.empty() == b.control.empty();
}

std::vector<Turn> by_comparison(const std::vector<Cell>& cells, const std::vector<Turn>& turns) {
  std::map<Condition, size_t> places;
  for (const Cell& cell : cells) places.emplace(cell.condition, places.size());
  const auto key = [&](const Turn& turn) {
    const Cell& cell = cells[turn.cell];
    return std::pair(!cell.control.empty(), places.at(cell.condition));
  };
  std::vector<Turn> sorted = turns;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Turn& a, const Turn& b) { return key(a) < key(b); });
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i].order = static_cast<int64_t>(i);
  return sorted;
}

uint64_t seed_of_block(uint64_t seed, int64_t block) {
  uint64_t state = seed * 0x2545F4914F6CDD1Du + static_cast<uint64_t>(block);
  // Drivers seed 32-bit generators, and JSON readers that use doubles must not round it.
  return next(state) >> 33;
}

std::string cell_key(const std::string& part, const std::string& system, const std::string& control,
                     const Condition& condition) {
  return str(part, " | ", system, control.empty() ? "" : " (" + control + ")", " | ", condition.text());
}
std::string cell_key(const Cell& cell) {
  return cell_key(cell.part, cell.system, cell.control, cell.condition);
}

std::string Standing::key_of(const Run& run) {
  return cell_key(run.part, run.system, run.control, run.condition);
}

void Standing::add_earlier(const Run& run) {
  if (run.status == Status::disturbed) return;
  add(run);
  disturbed_in_a_row_ = 0;
}

bool Standing::repeats(const Run& run) const {
  const auto at = cells_.find(key_of(run));
  if (run.status != Status::disturbed || at == cells_.end() || disturbed_in_a_row_ >= kBusyForLong)
    return false;
  const auto attempts = at->second.disturbed.find(run.block);
  return attempts != at->second.disturbed.end() && attempts->second < kAttempts;
}

void Standing::add(const Run& run) {
  State& state = cells_[key_of(run)];
  disturbed_in_a_row_ = run.disturbed.empty() ? 0 : disturbed_in_a_row_ + 1;
  // It says nothing about the driver: neither a failure nor the end of failures.
  if (run.status == Status::disturbed) {
    ++state.disturbed[run.block];
    if (!repeats(run)) state.blocks.insert(run.block);
    return;
  }
  state.blocks.insert(run.block);
  state.last = run.status;
  state.failures_in_a_row = run.status == Status::ok ? 0 : state.failures_in_a_row + 1;
  state.why = run.why;
}

bool Standing::done(const Cell& cell, int64_t block) const {
  const auto at = cells_.find(cell_key(cell));
  return at != cells_.end() && at->second.blocks.count(block) > 0;
}

int64_t Standing::left(const Cell& cell) const {
  if (!given_up(cell).empty()) return 0;
  const auto at = cells_.find(cell_key(cell));
  if (at == cells_.end()) return cell.effort.runs;
  const auto& blocks = at->second.blocks;
  return cell.effort.runs - std::distance(blocks.lower_bound(0), blocks.lower_bound(cell.effort.runs));
}

int64_t Standing::left(const std::vector<Cell>& cells) const {
  int64_t count = 0;
  for (const Cell& cell : cells) count += left(cell);
  return count;
}

std::string Standing::given_up(const Cell& cell) const {
  const auto at = cells_.find(cell_key(cell));
  if (at == cells_.end()) return "";
  const State& state = at->second;
  switch (state.last) {
    case Status::ok:
      return "";
    case Status::absent:
    case Status::declined:
    case Status::not_same_model:
      return state.why;
    case Status::hung:  // each costs all of the lab's patience
    case Status::out_of_memory:
    case Status::dishonest:
      return state.failures_in_a_row >= 2 ? state.why : "";
    default:
      return state.failures_in_a_row >= 3 ? state.why : "";
  }
}

}  // namespace tandem::lab
