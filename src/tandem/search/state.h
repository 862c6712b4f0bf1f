// The state of a search in its folder, and what is written there for people.
#pragma once

#include <string>
#include <vector>

#include "tandem/io/file.h"
#include "tandem/search/plan.h"
#include "tandem/search/search.h"

namespace tandem::search {

struct SearchState {
  std::string settings;  ///< JSON: what a resumed search must repeat
  std::vector<Trial> trials;
  double seconds = 0;  ///< over all processes so far
};

/// What the proposals and the trials depend on, as JSON.
std::string settings_json(const SearchConfig& config, const Plan& plan);

/// The folder of a search, kept for one process.
struct SearchFolder {
  std::string path;
  io::FolderLock lock;
};
/// Chooses and, for a new search, makes it. Throws Error where another search writes to it, a new one would write over
/// another, or a resumed one has nothing to go on from.
SearchFolder open_folder(const SearchConfig& config);

std::string trial_folder(const std::string& folder, int64_t number);
std::string state_path(const std::string& folder);
void save_state(const std::string& folder, const SearchState& state);
/// Throws Error where the search was begun with other settings, by the first that differs.
SearchState load_state(const std::string& folder, const std::string& wanted_settings);

/// leaderboard.csv and search.svg.
void write_reports(const std::string& folder, const Plan& plan, const SearchState& state);

}  // namespace tandem::search
