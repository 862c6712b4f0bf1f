// Vocabularies of words and of byte pairs.
#include "tandem/data/vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/io/json.h"

namespace tandem::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kUsualPieces = 8192;
constexpr int64_t kMostEntries = int64_t{1} << 24;

std::vector<std::string> words_by_count(const std::vector<std::string_view>& texts, Tokens tokens,
                                        int64_t least) {
  std::unordered_map<std::string, int64_t> counts;
  for (const std::string_view text : texts)
    for (Token& token : cut(text, tokens))
      if (!token.ends) ++counts[std::move(token.text)];
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [word, count] : counts)
    if (count >= least) order.emplace_back(-count, word);
  std::sort(order.begin(), order.end());
  std::vector<std::string> words;
  for (auto& row : order) words.push_back(std::move(row.second));
  return words;
}

}  // namespace

Vocabulary::Vocabulary(const VocabularyOptions& options) : tokens_(options.tokens) {
  if (options.padding) add_special(padding_, "<pad>");
  if (tokens_ != Tokens::bpe) add_special(unknown_, "<unk>");
  if (options.begin) add_special(begin_, "<bos>");
  if (options.end) add_special(end_, "<eos>");
}

void Vocabulary::add_special(std::optional<int64_t>& number, const char* text) {
  number = size();
  ++specials_;
  if (tokens_ != Tokens::bpe)
    numbers_.emplace(text, size());  // text that is cut already may hold <unk> itself
  entries_.emplace_back(text);
}

void Vocabulary::add_word(std::string word, const std::string& where) {
  TD_CHECK(numbers_.emplace(word, size()).second, where, "every word must be there once; '",
           io::one_line(word, 60), "' is there twice.");
  entries_.push_back(std::move(word));
}

Vocabulary Vocabulary::of_words(const std::vector<std::string>& words, const VocabularyOptions& options) {
  TD_CHECK(options.tokens != Tokens::bpe,
           "vocabulary: words are of tokens words, spaces or characters; got bpe.");
  Vocabulary out(options);
  for (const std::string& word : words) out.add_word(word, "vocabulary: ");
  return out;
}

Vocabulary Vocabulary::learn(const std::vector<std::string_view>& texts, const VocabularyOptions& options) {
  TD_CHECK(options.size >= 0 && options.size <= kMostEntries, "vocabulary: must have 1 to ", kMostEntries,
           " entries; got ", options.size, ".");
  TD_CHECK(options.min_count >= 1, "min-count: must be at least 1; got ", options.min_count, ".");
  Vocabulary out(options);
  if (options.tokens == Tokens::bpe) {
    const int64_t size = options.size == 0 ? kUsualPieces : options.size, least = out.specials_ + 256;
    TD_CHECK(size >= least, "vocabulary: of bpe must have at least ", least,
             " entries, the bytes among them; got ", size, ".");
    out.pairs_ = BytePairs::learn(texts, size - least, std::max<int64_t>(options.min_count, 2));
    for (int64_t i = 0; i < out.pairs_.size(); ++i) out.entries_.push_back(out.pairs_.piece(i));
    return out;
  }
  TD_CHECK(options.size == 0 || options.size > out.specials_, "vocabulary: must have more than its ",
           out.specials_, " special entries; got ", options.size, ".");
  for (std::string& word : words_by_count(texts, options.tokens, options.min_count)) {
    if (options.size > 0 && out.size() == options.size) break;
    if (!out.numbers_.contains(word)) out.add_word(std::move(word), "vocabulary: ");
  }
  return out;
}

std::vector<int64_t> Vocabulary::encode(std::string_view text) const {
  std::vector<int64_t> out;
  if (begin_) out.push_back(*begin_);
  if (tokens_ == Tokens::bpe) {
    for (const int64_t piece : pairs_.encode(text)) out.push_back(specials_ + piece);
    return out;
  }
  for (const Token& token : cut(text, tokens_)) {
    if (token.ends) {
      if (end_) out.push_back(*end_);
      continue;
    }
    const auto at = numbers_.find(token.text);
    out.push_back(at == numbers_.end() ? *unknown_ : at->second);
  }
  return out;
}

std::string Vocabulary::decode(std::span<const int64_t> numbers) const {
  std::string bytes;
  std::vector<std::string> words;
  for (const int64_t number : numbers) {
    const std::string& text = entry(number);
    if (number == padding_ || number == begin_) continue;
    if (is_whole())
      bytes += number == end_ ? "\n" : text;
    else
      words.push_back(number == end_ ? "\n" : text);
  }
  return is_whole() ? bytes : join_words(words);
}

const std::string& Vocabulary::entry(int64_t number) const {
  TD_CHECK(number >= 0 && number < size(), "vocabulary: an entry must be 0 to ", size() - 1, "; got ", number,
           ".");
  return entries_[static_cast<size_t>(number)];
}

std::string Vocabulary::to_json() const {
  Json out = {{"tokens", name(tokens_)},
              {"padding", padding_.has_value()},
              {"begin", begin_.has_value()},
              {"end", end_.has_value()}};
  if (tokens_ == Tokens::bpe) {
    out["merges"] = Json::array();
    for (const auto& [left, right] : pairs_.merges()) out["merges"].push_back({left, right});
  } else {
    out["words"] = std::vector<std::string>(entries_.begin() + specials_, entries_.end());
  }
  return out.dump();
}

Vocabulary Vocabulary::from_json(std::string_view text, const std::string& where) {
  const std::string fix = "Put the file back, or train again.";
  const Json json = io::parse_json<Json>(where, text, fix);
  try {
    VocabularyOptions options{.tokens = parse_tokens(json.at("tokens").get<std::string>()),
                              .padding = json.at("padding").get<bool>(),
                              .begin = json.at("begin").get<bool>(),
                              .end = json.at("end").get<bool>()};
    Vocabulary out(options);
    if (options.tokens == Tokens::bpe) {
      out.pairs_ = BytePairs(json.at("merges").get<std::vector<BytePairs::Merge>>(), where);
      for (int64_t i = 0; i < out.pairs_.size(); ++i) out.entries_.push_back(out.pairs_.piece(i));
    } else {
      for (const Json& word : json.at("words")) out.add_word(word.get<std::string>(), where);
    }
    return out;
  } catch (const nlohmann::json::exception&) {
    throw Error(
        str(where, "must hold a vocabulary: tokens, padding, begin, end, and words or merges. ", fix));
  }
}

}  // namespace tandem::data
