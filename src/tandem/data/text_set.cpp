// Texts as data sets.
#include "tandem/data/text_set.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/core/error.h"
#include "tandem/io/json.h"

namespace tandem::data {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kMostLength = 1'000'000;

std::vector<int32_t> narrow(const std::vector<int64_t>& tokens) { return {tokens.begin(), tokens.end()}; }

Json json_of(const TableOptions& reading) {
  Json out = {{"header", reading.header}, {"missing", reading.missing}};
  if (reading.delimiter) out["delimiter"] = std::string(1, *reading.delimiter);
  return out;
}

}  // namespace

std::vector<int64_t> TextEncoder::encode(std::string_view text) const {
  std::vector<int64_t> tokens = vocabulary.encode(text);
  const auto most = static_cast<size_t>(length);
  if (tokens.size() > most) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(most));
  return tokens;
}

std::string TextEncoder::to_json() const {
  Json out = {{"format", "tandem text 1"}, {"length", length}};
  if (!column.empty())
    out["table"] = {
        {"text", column}, {"target", target}, {"classes", classes}, {"reading", json_of(reading)}};
  out["vocabulary"] = io::parse_json<Json>("vocabulary: ", vocabulary.to_json(), "");
  if (into) out["into"] = io::parse_json<Json>("vocabulary: ", into->to_json(), "");
  return out.dump() + "\n";
}

TextEncoder TextEncoder::from_json(std::string_view text, const std::string& where) {
  const std::string fix = "Put the file back, or train again.";
  const Json json = io::parse_json<Json>(where, text, fix);
  try {
    TextEncoder out{Vocabulary::from_json(json.at("vocabulary").dump(), where),
                    json.at("length").get<int64_t>()};
    TD_CHECK(out.length >= 1 && out.length <= kMostLength, where, "length must be 1 to ", kMostLength,
             "; got ", out.length, ". ", fix);
    if (json.contains("into")) {
      out.into = Vocabulary::from_json(json["into"].dump(), where);
      for (const Vocabulary* words : {&out.vocabulary, &*out.into})
        TD_CHECK(words->padding() && words->begin() && words->end(), where,
                 "vocabularies of pairs must have entries for padding, begin and end. ", fix);
    }
    if (json.contains("table")) {
      const Json& table = json["table"];
      out.column = table.at("text").get<std::string>();
      out.target = table.at("target").get<std::string>();
      out.classes = table.at("classes").get<std::vector<std::string>>();
      const Json& reading = table.at("reading");
      out.reading.header = reading.at("header").get<bool>();
      out.reading.missing = reading.at("missing").get<std::vector<std::string>>();
      if (reading.contains("delimiter")) {
        const auto delimiter = reading["delimiter"].get<std::string>();
        TD_CHECK(delimiter.size() == 1, where, "the delimiter must be one character. ", fix);
        out.reading.delimiter = delimiter[0];
      }
    }
    return out;
  } catch (const nlohmann::json::exception&) {
    throw Error(str(where, "must hold length and vocabulary, as 'tandem train' writes it. ", fix));
  }
}

TextEncoderPtr encoder_for(const TextEncoderPtr& given, const std::vector<std::string_view>& train,
                           const TextOptions& options, VocabularyOptions usual, int64_t usual_length) {
  if (given) return given;
  if (!options.tokens.empty()) usual.tokens = parse_tokens(options.tokens);
  if (options.vocabulary) usual.size = *options.vocabulary;
  usual.min_count = options.min_count;
  const int64_t length = options.length.value_or(usual_length);
  TD_CHECK(length >= 1 && length <= kMostLength, "length: must be 1 to ", kMostLength, " tokens; got ",
           length, ".");
  return std::make_shared<TextEncoder>(TextEncoder{Vocabulary::learn(train, usual), length});
}

void TextSet::add(const std::vector<int64_t>& tokens, int64_t label, std::string name) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(tokens_.size());
  labels_.push_back(label);
  names_.push_back(std::move(name));
}

std::vector<Tensor> TextSet::get(int64_t i) const {
  check_index("get", i, size());
  const auto at = static_cast<size_t>(i);
  const std::vector<int64_t> tokens(tokens_.begin() + static_cast<std::ptrdiff_t>(ends_[at]),
                                    tokens_.begin() + static_cast<std::ptrdiff_t>(ends_[at + 1]));
  return {from_vector(tokens, {static_cast<Dim>(tokens.size())}), from_vector<int64_t>({labels_[at]}, {})};
}

std::string TextSet::describe() const { return str(title_, ": ", size(), " texts"); }

std::string TextSet::sample_name(int64_t i) const {
  check_index("sample_name", i, size());
  return names_[static_cast<size_t>(i)];
}

TokenWindows::TokenWindows(std::string title, std::vector<int64_t> tokens, int64_t length,
                           const std::string& where)
    : title_(std::move(title)), tokens_(narrow(tokens)), length_(length) {
  const auto count = static_cast<int64_t>(tokens_.size());
  TD_CHECK(count >= 2, where, "must hold two words or more, one to follow the other; got ", count,
           ". Give more text.");
  size_ = (count - 2) / length_ + 1;
}

std::vector<Tensor> TokenWindows::get(int64_t i) const {
  check_index("get", i, size());
  const int64_t begin = i * length_,
                there = std::min<int64_t>(length_, static_cast<int64_t>(tokens_.size()) - 1 - begin);
  std::vector<int64_t> in(static_cast<size_t>(length_)), next(in.size(), kNoToken);
  for (int64_t k = 0; k < there; ++k) {
    in[static_cast<size_t>(k)] = tokens_[static_cast<size_t>(begin + k)];
    next[static_cast<size_t>(k)] = tokens_[static_cast<size_t>(begin + k + 1)];
  }
  return {from_vector(in, {length_}), from_vector(next, {length_})};
}

std::string TokenWindows::describe() const {
  return str(title_, ": ", tokens_.size(), " tokens in windows of ", length_);
}

}  // namespace tandem::data
