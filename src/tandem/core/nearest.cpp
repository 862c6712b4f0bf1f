#include "tandem/core/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tandem {
namespace {

constexpr size_t kMostLetters = 64;  // of a word: what is longer is no slip of the hand
constexpr size_t kFar = 3;           // letters by which another name was meant

/// How many letters must be added, dropped or changed to turn a into b.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  size_t distance = kFar;
  for (const std::string& name : names) {
    const size_t d = edit_distance(word.substr(0, kMostLetters), name);
    if (d >= distance) continue;
    distance = d;
    best = name;
  }
  return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_name(word, names);
  return near.empty() ? "" : " Did you mean " + near + "?";
}

}  // namespace tandem
