// Pairs of texts, such as sentences and their translations: what their readers have in common, and the set of samples. A pair
// has two vocabularies, one per language; both have entries for padding, begin, end and, of words, unknown words.
#pragma once

#include <string>
#include <vector>

#include "tandem/data/registry.h"

namespace tandem::data {

struct TextPair {
  std::string source, target;
};

/// A source as a model reads it: its tokens, then end().
std::vector<int64_t> encode_source(const Vocabulary& vocabulary, std::string_view text);
/// A target as a model learns to write it: begin(), its tokens, end().
std::vector<int64_t> encode_target(const Vocabulary& vocabulary, std::string_view text);

/// {source i64 (length), target i64 (length)}, each as long as it is (encode_source, encode_target).
class PairSet final : public Dataset {
 public:
  explicit PairSet(std::string title) : title_(std::move(title)) {}
  void add(const std::vector<int64_t>& source, const std::vector<int64_t>& target);
  int64_t size() const override { return static_cast<int64_t>(ends_.size() / 2); }
  std::vector<Tensor> get(int64_t i) const override;
  std::string describe() const override;

 private:
  Tensor piece(size_t k) const;
  std::string title_;
  std::vector<int32_t> tokens_;  // source, target, source, target …
  std::vector<size_t> ends_;     // of each
};

/// Pairs for training, validation and testing; those for validation may be none.
struct PairParts {
  std::vector<TextPair> train, valid = {}, test = {};
};
/// Sets of pairs. Where there are none for testing, some are split off. Pairs of which a side is longer than the encoder's length, or
/// has no text, are left out, and counted in a notice. `place` is where they were read from.
Splits translation_splits(const DatasetInfo& info, const std::string& place, PairParts parts,
                          const OpenOptions& options);

/// The lines of a text, without line breaks of any kind.
std::vector<std::string> lines_of(const std::string& text);
/// Lines of two texts, apart by a tab; what follows a second tab is passed over, and so are empty lines. Throws Error, which begins
/// with `where`, by the first line without a tab.
std::vector<TextPair> tabbed_pairs(const std::string& text, const std::string& where);

}  // namespace tandem::data
