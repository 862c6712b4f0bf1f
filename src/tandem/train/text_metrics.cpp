#include "tandem/train/text_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "tandem/core/error.h"

namespace tandem {

namespace {

template <class T>
int64_t distance(std::span<const T> a, std::span<const T> b) {
  std::vector<int64_t> row(b.size() + 1);  // from the first i of a to the first j of b
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t corner = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t changed = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
      corner = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

using Counts = std::map<std::vector<std::string>, int64_t>;
Counts n_grams(std::span<const std::string> words, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= words.size(); ++i)
    ++counts[std::vector<std::string>(words.begin() + static_cast<std::ptrdiff_t>(i),
                                      words.begin() + static_cast<std::ptrdiff_t>(i + n))];
  return counts;
}

}  // namespace

int64_t edit_distance(std::span<const std::string> a, std::span<const std::string> b) {
  return distance(a, b);
}
int64_t edit_distance(std::span<const int64_t> a, std::span<const int64_t> b) { return distance(a, b); }

void ErrorRate::add(std::span<const std::string> right, std::span<const std::string> written) {
  edits_ += edit_distance(right, written);
  words_ += static_cast<int64_t>(right.size());
}
void ErrorRate::add(std::span<const int64_t> right, std::span<const int64_t> written) {
  edits_ += edit_distance(right, written);
  words_ += static_cast<int64_t>(right.size());
}
double ErrorRate::value() const {
  return static_cast<double>(edits_) / static_cast<double>(std::max<int64_t>(words_, 1));
}

void Bleu::add(std::span<const std::vector<std::string>> right, std::span<const std::string> written) {
  TD_CHECK(!right.empty(), "Bleu: there must be at least one right text; got none.");
  const auto length = static_cast<int64_t>(written.size());
  written_ += length;
  int64_t nearest = static_cast<int64_t>(right[0].size());  // in length; of two equally near ones the shorter
  for (const std::vector<std::string>& text : right) {
    const auto size = static_cast<int64_t>(text.size());
    const int64_t off = std::abs(size - length), best = std::abs(nearest - length);
    if (off < best || (off == best && size < nearest)) nearest = size;
  }
  right_ += nearest;
  for (size_t n = 1; n <= 4; ++n) {
    Counts most;  // of each n-gram, in any one of the right texts
    for (const std::vector<std::string>& text : right)
      for (const auto& [gram, count] : n_grams(text, n)) most[gram] = std::max(most[gram], count);
    for (const auto& [gram, count] : n_grams(written, n)) {
      const auto found = most.find(gram);
      matches_[n - 1] += found == most.end() ? 0 : std::min(count, found->second);
      totals_[n - 1] += count;
    }
  }
}

double Bleu::value(bool smooth) const {
  if (written_ == 0) return 0;
  double logarithms = 0, share_of_match = 1;
  for (size_t n = 0; n < 4; ++n) {
    if (totals_[n] == 0) return 0;
    double matches = static_cast<double>(matches_[n]);
    if (matches == 0) {
      if (!smooth) return 0;
      matches = share_of_match /= 2;
    }
    logarithms += std::log(matches / static_cast<double>(totals_[n])) / 4;
  }
  const double shortness =
      written_ >= right_ ? 1 : std::exp(1 - static_cast<double>(right_) / static_cast<double>(written_));
  return 100 * shortness * std::exp(logarithms);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace tandem
