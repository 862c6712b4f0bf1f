// Vocabularies: texts as numbers and back. Words (or pieces of bpe) are counted in the training text; those that are there
// most often have the smallest numbers, and of equal ones the text that comes first.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tandem/data/bpe.h"
#include "tandem/data/text.h"

namespace tandem::data {

struct VocabularyOptions {
  Tokens tokens = Tokens::words;
  int64_t size = 0;  ///< entries at most, special ones included; 0: as many as there are. bpe: 0 is 8,192
  int64_t min_count = 1;  ///< a word must be there so often; bpe: a pair, and at least twice
  /// Special entries, the first numbers in this order. Words have an unknown one, "<unk>", besides; bpe needs none.
  bool padding = false;  ///< "<pad>"
  bool begin = false;    ///< "<bos>": before a text
  bool end = false;      ///< "<eos>": where a sentence ends (data/text.h)
};

class Vocabulary {
 public:
  /// Throws Error for a size that leaves no room for a word, and of bpe for one below its bytes.
  static Vocabulary learn(const std::vector<std::string_view>& texts, const VocabularyOptions& options);
  /// Of these words, in this order, which must all be different.
  static Vocabulary of_words(const std::vector<std::string>& words, const VocabularyOptions& options);

  /// Words that it does not have become unknown(). Ends of sentences become end(), where it has that, and begin() stands before.
  std::vector<int64_t> encode(std::string_view text) const;
  /// The text: of bpe exactly, of characters one after the other, of words with spaces between. Padding and begin() give nothing, end() a line break. Throws Error for a
  /// number that is no entry.
  std::string decode(std::span<const int64_t> numbers) const;

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  /// The text of an entry: "film", "<unk>"; of bpe its bytes.
  const std::string& entry(int64_t number) const;
  std::optional<int64_t> padding() const { return padding_; }
  std::optional<int64_t> unknown() const { return unknown_; }
  std::optional<int64_t> begin() const { return begin_; }
  std::optional<int64_t> end() const { return end_; }
  Tokens tokens() const { return tokens_; }

  /// JSON text that from_json reads. `where` is what messages begin with: "load 'runs/a/text.json': ".
  std::string to_json() const;
  static Vocabulary from_json(std::string_view text, const std::string& where = "vocabulary: ");

 private:
  explicit Vocabulary(const VocabularyOptions& options);
  /// Whether entries follow each other in a text without spaces of their own.
  bool is_whole() const { return tokens_ == Tokens::bpe || tokens_ == Tokens::characters; }
  void add_special(std::optional<int64_t>& number, const char* text);
  void add_word(std::string word, const std::string& where);

  Tokens tokens_ = Tokens::words;
  std::vector<std::string> entries_;
  std::unordered_map<std::string, int64_t> numbers_;  // of words
  BytePairs pairs_;                                   // of bpe
  int64_t specials_ = 0;
  std::optional<int64_t> padding_, unknown_, begin_, end_;
};

}  // namespace tandem::data
