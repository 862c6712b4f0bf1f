// Metrics of texts: how far what a model wrote is from what is right.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem {

/// Insertions, deletions and substitutions that make one sequence of the other.
int64_t edit_distance(std::span<const std::string> a, std::span<const std::string> b);
int64_t edit_distance(std::span<const int64_t> a, std::span<const int64_t> b);

/// Edits over the words that are right, over all samples: the word error rate; of characters, the character error rate. It may
/// be above 1.
class ErrorRate {
 public:
  void add(std::span<const std::string> right, std::span<const std::string> written);
  void add(std::span<const int64_t> right, std::span<const int64_t> written);
  int64_t edits() const { return edits_; }
  int64_t words() const { return words_; }
  double value() const;  ///< 0 where nothing was added; edits of no words count as 1 each

 private:
  int64_t edits_ = 0, words_ = 0;
};

/// BLEU of a corpus (Papineni et al. 2002), 0 to 100: the geometric mean of the shares of the written n-grams, n = 1 to 4, that a right
/// text has, times a penalty where less was written.
class Bleu {
 public:
  /// right: one text or several, any of which would do.
  void add(std::span<const std::vector<std::string>> right, std::span<const std::string> written);
  void add(const std::vector<std::string>& right, const std::vector<std::string>& written) {
    add(std::span<const std::vector<std::string>>(&right, 1), written);
  }
  /// 0 where some n has no match. smooth: there half a match, then a quarter … is counted instead, as sacreBLEU does.
  double value(bool smooth = false) const;

 private:
  std::array<int64_t, 4> matches_{}, totals_{};
  int64_t written_ = 0, right_ = 0;  // words
};

/// Cut at white space.
std::vector<std::string> words_of(const std::string& text);

}  // namespace tandem
