// Byte pair encoding: pieces of text learned by joining the pair of neighbours that is there most often, again and again.
// It begins with the 256 bytes, so that every text can be written in pieces and comes back exactly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::data {

/// Pieces 0 … 255 are the bytes; piece 256 + i is merge i, of two pieces before it. Pieces never reach beyond a chunk: a
/// word with the space before it, a number, signs, or white space, of at most 64 bytes.
class BytePairs {
 public:
  using Merge = std::pair<int64_t, int64_t>;
  BytePairs() = default;
  /// Throws Error, beginning with `where`, for a merge of pieces that are not there before it, or that is there twice.
  explicit BytePairs(std::vector<Merge> merges, const std::string& where = "bpe: ");

  /// Learns at most `most` merges, each of a pair that is there `least` times or more. Of pairs that are there equally often
  /// the one whose text comes first is taken: by its first piece, then by its second.
  static BytePairs learn(const std::vector<std::string_view>& texts, int64_t most, int64_t least);

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  const std::string& piece(int64_t i) const { return pieces_[static_cast<size_t>(i)]; }
  const std::vector<Merge>& merges() const { return merges_; }
  std::vector<int64_t> encode(std::string_view text) const;

 private:
  std::vector<int64_t> encode_chunk(std::string_view chunk) const;

  std::vector<Merge> merges_;
  std::vector<std::string> pieces_;
  std::unordered_map<uint64_t, int64_t> ranks_;  // of a pair: the number of its merge
};

}  // namespace tandem::data
