// Pairs of texts.
#include "tandem/data/pairs.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/threads.h"
#include "tandem/data/split.h"
#include "tandem/data/text_splits.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

constexpr int64_t kUsualWords = 10000, kUsualLength = 50;

/// The tokens alone: a text may hold words such as <eos> where it is cut at spaces, and some cuts give ends of lines.
std::vector<int64_t> plain_tokens(const Vocabulary& vocabulary, std::string_view text) {
  std::vector<int64_t> tokens = vocabulary.encode(text);
  std::erase_if(tokens, [&](int64_t token) {
    return token == vocabulary.begin() || token == vocabulary.end() || token == vocabulary.padding();
  });
  return tokens;
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n\f\v") == std::string::npos; }

/// What was left out of a part, and why.
struct Left {
  int64_t blank = 0, longer = 0, all = 0;
};

std::shared_ptr<PairSet> encoded(const std::string& title, const std::vector<TextPair>& pairs,
                                 const TextEncoder& encoder, Left& left) {
  struct Sample {
    std::vector<int64_t> source, target;
  };
  std::vector<Sample> samples(pairs.size());
  parallel_for(static_cast<int64_t>(pairs.size()), [&](int64_t i) {
    const TextPair& pair = pairs[static_cast<size_t>(i)];
    samples[static_cast<size_t>(i)] = {encode_source(encoder.vocabulary, pair.source),
                                       encode_target(*encoder.into, pair.target)};
  });
  auto set = std::make_shared<PairSet>(title);
  const auto most = static_cast<size_t>(encoder.length);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Sample& sample = samples[i];
    const bool is_empty = is_blank(pairs[i].source) || is_blank(pairs[i].target);
    const bool is_long = sample.source.size() > most + 1 || sample.target.size() > most + 2;
    left.blank += is_empty;
    left.longer += !is_empty && is_long;
    if (!is_empty && !is_long) set->add(sample.source, sample.target);
  }
  left.all += static_cast<int64_t>(pairs.size());
  return set;
}

/// Two vocabularies, of the sources and of the targets to train on; or those of a run.
TextEncoderPtr pair_encoder(const std::vector<TextPair>& train, const OpenOptions& options) {
  if (options.text_encoder && options.text_encoder->into) return options.text_encoder;
  std::vector<std::string_view> sources, targets;
  for (const TextPair& pair : train) {
    sources.emplace_back(pair.source);
    targets.emplace_back(pair.target);
  }
  const VocabularyOptions usual{
      .tokens = Tokens::words, .size = kUsualWords, .padding = true, .begin = true, .end = true};
  TextEncoder both = *encoder_for({}, sources, options.text, usual, kUsualLength);
  both.into = encoder_for({}, targets, options.text, usual, kUsualLength)->vocabulary;
  return std::make_shared<TextEncoder>(std::move(both));
}

/// Splits pairs off for testing.
void split_off(PairParts& parts, const OpenOptions& options, const std::string& where, Splits& splits) {
  TD_CHECK(parts.train.size() >= 2, where, "there must be two pairs or more; got ", parts.train.size(),
           ". Add lines.");
  const SplitIndices chosen =
      split_indices(std::vector<int64_t>(parts.train.size()), options.test_share, options.split_seed);
  std::vector<TextPair> kept;
  for (const int64_t i : chosen.test) parts.test.push_back(parts.train[static_cast<size_t>(i)]);
  for (const int64_t i : chosen.train) kept.push_back(std::move(parts.train[static_cast<size_t>(i)]));
  splits.notices.push_back(str(parts.test.size(), " of ", parts.train.size(),
                               " pairs were split off for testing (seed ", options.split_seed, ")."));
  parts.train = std::move(kept);
  splits.split_off = true;
}

}  // namespace

std::vector<int64_t> encode_source(const Vocabulary& vocabulary, std::string_view text) {
  std::vector<int64_t> tokens = plain_tokens(vocabulary, text);
  tokens.push_back(vocabulary.end().value());
  return tokens;
}

std::vector<int64_t> encode_target(const Vocabulary& vocabulary, std::string_view text) {
  std::vector<int64_t> tokens = encode_source(vocabulary, text);
  tokens.insert(tokens.begin(), vocabulary.begin().value());
  return tokens;
}

void PairSet::add(const std::vector<int64_t>& source, const std::vector<int64_t>& target) {
  for (const std::vector<int64_t>* tokens : {&source, &target}) {
    tokens_.insert(tokens_.end(), tokens->begin(), tokens->end());
    ends_.push_back(tokens_.size());
  }
}

Tensor PairSet::piece(size_t k) const {
  const size_t begin = k == 0 ? 0 : ends_[k - 1];
  const std::vector<int64_t> tokens(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                                    tokens_.begin() + static_cast<std::ptrdiff_t>(ends_[k]));
  return from_vector(tokens, {static_cast<Dim>(tokens.size())});
}

std::vector<Tensor> PairSet::get(int64_t i) const {
  check_index("get", i, size());
  const auto k = 2 * static_cast<size_t>(i);
  return {piece(k), piece(k + 1)};
}

std::string PairSet::describe() const { return str(title_, ": ", size(), " pairs"); }

Splits translation_splits(const DatasetInfo& info, const std::string& place, PairParts parts,
                          const OpenOptions& given) {
  const OpenOptions options = with_usual(given);
  const std::string where = str("data ", info.name, " '", io::one_line(place), "': ");
  Splits splits{.train = {}, .test = {}, .info = info, .name = info.name, .where = place};
  splits.task = "translation";
  if (parts.test.empty()) split_off(parts, options, where, splits);
  splits.text = pair_encoder(parts.train, options);
  Left left;
  const auto made = [&](const char* part, const std::vector<TextPair>& pairs) {
    auto set = encoded(str(info.title, ", ", part), pairs, *splits.text, left);
    TD_CHECK(set->size() > 0, where, "the part to ", part, " must have a pair of texts of up to ",
             splits.text->length, " tokens; none of its ", pairs.size(),
             " pairs is so short, with text on both sides. Give a larger `length`, or other text.");
    return set;
  };
  splits.train = made("train", parts.train);
  splits.test = made("test", parts.test);
  if (!parts.valid.empty()) splits.valid = made("validate", parts.valid);
  const Vocabulary &from = splits.text->vocabulary, &into = *splits.text->into;
  splits.notices.push_back(str("vocabularies: ", from.size(), " and ", into.size(),
                               from.tokens() == Tokens::bpe ? " pieces" : " words", " (", name(from.tokens()),
                               ")."));
  if (left.longer > 0)
    splits.notices.push_back(str(left.longer, " of ", left.all, " pairs were left out: a side has more than ",
                                 splits.text->length, " tokens (`length`)."));
  if (left.blank > 0)
    splits.notices.push_back(str(left.blank, " of ", left.all, " pairs were left out: a side has no text."));
  splits.info.sample_shape = {splits.text->length};
  splits.info.classes = 0;
  splits.info.train_size = splits.train->size();
  splits.info.test_size = splits.test->size();
  return splits;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const bool has_return = end > at && text[end - 1] == '\r';
    lines.push_back(text.substr(at, end - at - (has_return ? 1 : 0)));
    at = end + 1;
  }
  return lines;
}

std::vector<TextPair> tabbed_pairs(const std::string& text, const std::string& where) {
  std::vector<TextPair> pairs;
  int64_t number = 0;
  for (const std::string& line : lines_of(text)) {
    ++number;
    if (is_blank(line)) continue;
    const size_t tab = line.find('\t');
    TD_CHECK(tab != std::string::npos, where, "a line must hold two texts, apart by a tab; line ", number,
             ", '", io::one_line(line, 60), "', has no tab. Put one between the text and its translation.");
    const size_t second = line.find('\t', tab + 1);
    pairs.push_back(
        {line.substr(0, tab),
         line.substr(tab + 1, second == std::string::npos ? std::string::npos : second - tab - 1)});
  }
  return pairs;
}

}  // namespace tandem::data
