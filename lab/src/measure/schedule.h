// In which order a study's runs are taken. A block holds one run of every cell, in an order that the seed draws anew for
// each block, so that what drifts (temperature, other load) meets all cells alike and the runs of a block are pairs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/src/study/study.h"

namespace tandem::lab {

struct Turn {
  size_t cell = 0;  // of the plan
  int64_t block = 0, order = 0;
};

/// All turns of one block: the cells that have more than `block` runs, shuffled.
std::vector<Turn> turns_of_block(const std::vector<Cell>& cells, int64_t block, uint64_t seed);
/// The same turns, comparison by comparison: all systems of one condition stand together, conditions in the plan's order, the
/// control runs of all of them at the end.
std::vector<Turn> by_comparison(const std::vector<Cell>& cells, const std::vector<Turn>& turns);
/// Whether two cells belong to one comparison of that order.
bool share_comparison(const Cell& a, const Cell& b);
/// As many as the cell with the most runs has.
int64_t block_count(const std::vector<Cell>& cells);

/// The seed of one run: the same for all cells of a block, so that pairs see the same batches and dropout seeds.
uint64_t seed_of_block(uint64_t seed, int64_t block);

/// What tells a cell from the others of its study.
std::string cell_key(const std::string& part, const std::string& system, const std::string& control,
                     const Condition& condition);
std::string cell_key(const Cell& cell);

/// How often a run is taken that other work disturbs: once, and two repeats.
inline constexpr int64_t kAttempts = 3;
/// So many disturbed runs in a row, and the machine is busy for long: nothing is repeated until one run is not disturbed.
inline constexpr int64_t kBusyForLong = 6;

/// Where a stopped study stands, from its records.
class Standing {
 public:
  /// A record of an earlier call. One that was disturbed counts for nothing: this call takes it again.
  void add_earlier(const Run& run);
  void add(const Run& run);
  /// Whether the turn of a disturbed run is to be taken once more.
  bool repeats(const Run& run) const;
  bool done(const Cell& cell, int64_t block) const;
  /// How many of the cell's runs are still to be taken; none where it is given up.
  int64_t left(const Cell& cell) const;
  /// Of all of them. By cells, not by blocks: both may be many.
  int64_t left(const std::vector<Cell>& cells) const;
  /// Why no further run of the cell is worth taking, or "": it cannot be had (absent, declined, not the same model), it was
  /// caught out twice, or it failed several times in a row.
  std::string given_up(const Cell& cell) const;

 private:
  struct State {
    std::set<int64_t> blocks;
    std::map<int64_t, int64_t> disturbed;  // attempts of this call, by block
    Status last = Status::ok;
    int failures_in_a_row = 0;
    std::string why;
  };
  static std::string key_of(const Run& run);
  std::map<std::string, State> cells_;
  int64_t disturbed_in_a_row_ = 0;
};

}  // namespace tandem::lab
