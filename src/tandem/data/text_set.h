// Texts as data sets: classified texts, and one long text in windows. How texts become numbers is a TextEncoder, learned from
// the training texts, kept with a run, and used on other texts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/table.h"
#include "tandem/data/vocabulary.h"

namespace tandem::data {

/// What the user says about text; each is for the data sets that have a use for it (registry.cpp).
struct TextOptions {
  std::string column = {};  ///< csv: the column that holds text
  std::string tokens = {};  ///< words, spaces, bpe or characters; empty: what is usual for the data
  std::optional<int64_t> vocabulary = {};  ///< entries at most; unset: what is usual for the data
  std::string source = {};  ///< parallel-text: the language to translate from, the ending of its files
  int64_t min_count = 1;    ///< a word must be there so often
  std::optional<int64_t> length = {};  ///< see TextEncoder
  bool operator==(const TextOptions&) const = default;
};

struct TextEncoder {
  Vocabulary vocabulary;
  /// Tokens of a sample. A text that is classified keeps its last ones; a long text is cut into windows of this length.
  int64_t length = 0;
  /// Of a table: its columns, how it is read, and the classes.
  std::string column = {}, target = {};
  TableOptions reading = {};
  std::vector<std::string> classes = {};
  /// Of pairs of texts: the target's. `vocabulary` is the source's.
  std::optional<Vocabulary> into = {};

  /// A text to classify: its last `length` tokens.
  std::vector<int64_t> encode(std::string_view text) const;
  /// JSON text that from_json reads. `where` is what messages begin with: "load 'runs/a/text.json': ".
  std::string to_json() const;
  static TextEncoder from_json(std::string_view text, const std::string& where = "text encoder: ");
};
using TextEncoderPtr = std::shared_ptr<const TextEncoder>;

/// What sets of text are read with: `given`, that of a run, or a new one, learned from the texts to train on. `usual` is for
/// what the options leave open; its tokens are the data's own.
TextEncoderPtr encoder_for(const TextEncoderPtr& given, const std::vector<std::string_view>& train,
                           const TextOptions& options, VocabularyOptions usual, int64_t usual_length);

/// Classified texts: {tokens i64 (length), class i64 ()}, of different lengths.
class TextSet final : public Dataset {
 public:
  explicit TextSet(std::string title) : title_(std::move(title)) {}
  /// `name` is what messages call it: its file.
  void add(const std::vector<int64_t>& tokens, int64_t label, std::string name);
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  std::vector<Tensor> get(int64_t i) const override;
  std::string describe() const override;
  std::string sample_name(int64_t i) const override;

 private:
  std::string title_;
  std::vector<int32_t> tokens_;  // of all texts
  std::vector<size_t> ends_ = {0};
  std::vector<int64_t> labels_;
  std::vector<std::string> names_;
};

inline constexpr int64_t kNoToken = -100;  ///< a target that counts for nothing

/// One text in windows, in order: {tokens i64 (length), those that follow i64 (length)}. The last window is filled up: its
/// targets with kNoToken.
class TokenWindows final : public Dataset {
 public:
  /// Throws Error, beginning with `where`, for fewer than two tokens.
  TokenWindows(std::string title, std::vector<int64_t> tokens, int64_t length, const std::string& where);
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override;
  std::string describe() const override;
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  std::string title_;
  std::vector<int32_t> tokens_;
  int64_t length_, size_ = 0;
};

}  // namespace tandem::data
