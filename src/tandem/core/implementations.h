// A heavy op has several implementations on a device: one ordered list, the most wanted first, and one chooser for all lists.
// What a choice may look at is the Problem: sizes, type, attributes, facts of the device. It holds no data, so that the same
// problem always has the same candidates. choices.h is what users see of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/candidates.h"
#include "tandem/core/choice_cache.h"
#include "tandem/core/choices.h"
#include "tandem/core/error.h"

namespace tandem {

/// One way to compute an op on a device. Call: a problem, and where its data lies.
template <class Problem, class Call>
class Implementation {
 public:
  virtual std::string name() const = 0;  ///< one of its kind in its list; the table of choices holds it
  /// Null where it can compute this, else why not: a sentence that begins "it …". Computes nothing, touches no memory.
  virtual const char* can(const Problem& problem) const = 0;
  /// Mode heuristic takes the first that can and pays.
  virtual bool pays(const Problem&) const { return true; }
  virtual size_t workspace(const Problem&) const { return 0; }  ///< bytes of KernelArgs::workspace
  virtual void run(const Call& call) const = 0;
  /// Mode fixed takes the first of these that can. There must be one for every call.
  virtual bool is_fixed() const { return false; }

 protected:
  constexpr Implementation() = default;
  ~Implementation() = default;
};

/// The host's time for run().
template <class Run>
double host_seconds(const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The index of the algorithm that the table has for a call, or of the fastest, which is then put there. `what`: all that
/// the times depend on but this library's version. seconds(i) runs algorithm i once; a negative time means that it
/// cannot do this. One of them must. `keep`: the table's file is read and added to.
size_t choose_by_time(const std::string& what, const std::vector<std::string>& names, bool keep,
                      const std::function<double(size_t)>& seconds);

/// While it lives, mode profile takes the implementation of this name wherever it can, untimed. For tests and measurements.
class ForcedImplementation {
 public:
  explicit ForcedImplementation(const std::string& name);
  ~ForcedImplementation();
  ForcedImplementation(const ForcedImplementation&) = delete;
  ForcedImplementation& operator=(const ForcedImplementation&) = delete;
};

/// The list of an op on a device.
template <class Problem, class Call>
class Implementations {
 public:
  using Row = Implementation<Problem, Call>;
  explicit constexpr Implementations(std::span<const Row* const> rows) : rows_(rows) {}

  /// In mode fixed or heuristic.
  const Row& by_rule(ChoiceMode mode, const Problem& problem) const {
    for (const Row* row : rows_)
      if ((mode == ChoiceMode::fixed ? row->is_fixed() : row->pays(problem)) && !row->can(problem))
        return *row;
    refuse();
  }
  /// In mode profile: by the table of choices, or the fastest by seconds(row).
  template <class Seconds>
  const Row& by_time(const Problem& problem, const std::string& what, bool keep,
                     const Seconds& seconds) const {
    std::vector<const Row*> able;
    for (const Row* row : rows_)
      if (!row->can(problem)) able.push_back(row);
    if (able.empty()) refuse();
    if (able.size() == 1) return *able[0];
    std::vector<std::string> names;
    for (const Row* row : able) names.push_back(row->name());
    return *able[choose_by_time(what, names, keep, [&](size_t i) { return seconds(*able[i]); })];
  }
  std::vector<Candidate> candidates(const Problem& problem) const {
    std::vector<Candidate> all;
    for (const Row* row : rows_) {
      const char* why_not = row->can(problem);
      all.push_back({row->name(), why_not ? why_not : "", why_not ? 0 : row->workspace(problem)});
    }
    return all;
  }

 private:
  [[noreturn, gnu::noinline, gnu::cold]] void refuse() const {
    throw Error(str("choose: one implementation must do every call; got a call that none of ", rows_.size(),
                    " can do. This is a bug of the library."));
  }
  std::span<const Row* const> rows_;
};

/// A list, and what was chosen from it in mode profile. Problems are compared to find them again.
template <class Problem, class Call>
class Chooser {
 public:
  using Row = Implementation<Problem, Call>;
  explicit Chooser(std::span<const Row* const> rows) : list_(rows) {}

  /// by_time(list) makes the choice for a problem that is met for the first time in mode profile.
  template <class ByTime>
  const Row& choose(ChoiceMode mode, const Problem& problem, const ByTime& by_time) {
    if (mode != ChoiceMode::profile) [[likely]]
      return list_.by_rule(mode, problem);
    return find_timed(problem, by_time);
  }
  Candidates report(ChoiceMode mode, const Problem& problem) {
    Candidates seen{list_.candidates(problem), "not timed yet"};
    if (mode != ChoiceMode::profile)
      seen.chosen = list_.by_rule(mode, problem).name();
    else if (const Row* row = timed_.find(problem, nullptr))
      seen.chosen = row->name();
    return seen;
  }

 private:
  template <class ByTime>
  [[gnu::noinline]] const Row& find_timed(const Problem& problem, const ByTime& by_time) {
    return *timed_.get(problem, [&]() -> const Row* { return &by_time(list_); });
  }
  Implementations<Problem, Call> list_;
  ChoiceCache<Problem, const Row*> timed_;
};

}  // namespace tandem
