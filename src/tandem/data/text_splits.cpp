// From texts to sets of samples.
#include "tandem/data/text_splits.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tandem/core/rng.h"
#include "tandem/core/threads.h"
#include "tandem/data/split.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUsualTexts = 5000, kUsualLength = 500;  // of texts that are classified: 003's
constexpr int64_t kUsualWords = 10000, kUsualWindow = 35;  // of language modelling: Penn Treebank's
constexpr uint64_t kPlaceStream = 0x706c616365206f66;

/// One line on the vocabulary, and how much of the text it does not have.
std::string notice_of(const TextEncoder& encoder, int64_t unknown, int64_t all) {
  const char* what = encoder.vocabulary.tokens() == Tokens::bpe ? " pieces" : " words";
  const double share =
      all == 0 ? 0 : std::round(1000.0 * static_cast<double>(unknown) / static_cast<double>(all)) / 10;
  return str(
      "vocabulary: ", encoder.vocabulary.size(), what, " (", name(encoder.vocabulary.tokens()), ")",
      unknown == 0 ? std::string() : str("; ", share, " % of the text are others, which count as unknown"),
      ".");
}

struct Encoded {
  std::shared_ptr<TextSet> set;
  int64_t tokens = 0, unknown = 0;
};
Encoded encoded(const std::string& title, const std::vector<LabelledText>& texts,
                const TextEncoder& encoder) {
  std::vector<std::vector<int64_t>> tokens(texts.size());
  parallel_for(static_cast<int64_t>(texts.size()), [&](int64_t i) {
    tokens[static_cast<size_t>(i)] = encoder.encode(texts[static_cast<size_t>(i)].text);
  });
  Encoded out{std::make_shared<TextSet>(title)};
  for (size_t i = 0; i < texts.size(); ++i) {
    out.set->add(tokens[i], texts[i].label, texts[i].name);
    out.tokens += static_cast<int64_t>(tokens[i].size());
    if (encoder.vocabulary.unknown())
      out.unknown += std::count(tokens[i].begin(), tokens[i].end(), *encoder.vocabulary.unknown());
  }
  return out;
}

/// Where the next line begins, from `at` on; the next word where there is none.
size_t next_line(const std::string& text, size_t at) {
  const size_t line = text.find('\n', at);
  if (line != std::string::npos && line + 1 < text.size()) return line + 1;
  const size_t space = text.find(' ', at);
  return space == std::string::npos ? text.size() : space + 1;
}

/// Takes a piece out of the text for testing.
void split_off(LongText& text, double share, uint64_t seed, const std::string& where) {
  const auto size = static_cast<double>(text.train.size());
  const auto taken = static_cast<size_t>(size * share);
  const PhiloxBlock block = philox(seed ^ kPlaceStream, 0);
  const double place = static_cast<double>(block.x[0]) / 4294967296.0;  // in 0 … 1
  const size_t begin =
      next_line(text.train, static_cast<size_t>(place * static_cast<double>(text.train.size() - taken)));
  const size_t end = next_line(text.train, std::min(begin + taken, text.train.size()));
  TD_CHECK(begin < end && end - begin < text.train.size(), where, "is too short to take a part of ", share,
           " out of it for testing; it has ", text.train.size(),
           " bytes. Give more text, or files train.txt and test.txt.");
  text.test = text.train.substr(begin, end - begin);
  text.train.erase(begin, end - begin);
}

}  // namespace

OpenOptions with_usual(OpenOptions options) {
  if (!options.text.vocabulary && options.usual_vocabulary > 0)
    options.text.vocabulary = options.usual_vocabulary;
  if (!options.text.length && options.usual_length > 0) options.text.length = options.usual_length;
  return options;
}

std::string part_of(const std::string& file) {
  std::string word;
  for (const char c : file + ".") {
    if (c != '.' && c != '-' && c != '_') {
      word += c;
      continue;
    }
    if (word == "train" || word == "valid" || word == "test") return word;
    if (word == "val" || word == "dev") return "valid";
    word.clear();
  }
  return "";
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (const std::string name = at->path().filename().string();
        !name.starts_with('.') && is_folder(at->path().string()))
      names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> files_in(const std::string& folder, const std::vector<std::string>& endings) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool fits = std::any_of(endings.begin(), endings.end(),
                                  [&](const std::string& ending) { return name.ends_with(ending); });
    if (fits && !name.starts_with('.') && is_file(at->path().string())) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Splits classified_splits(const DatasetInfo& info, const std::string& place, std::vector<LabelledText> train,
                         std::vector<LabelledText> test, std::vector<std::string> classes,
                         const OpenOptions& given) {
  const OpenOptions options = with_usual(given);
  const std::string where = str("data ", info.name, " '", io::one_line(place), "': ");
  Splits splits{.train = {}, .test = {}, .info = info, .name = info.name, .where = place};
  splits.task = "text-classification";
  if (test.empty()) {
    std::vector<int64_t> labels;
    for (const LabelledText& text : train) labels.push_back(text.label);
    TD_CHECK(train.size() >= 2, where, "there must be two texts or more; got ", train.size(), ". Add texts.");
    const SplitIndices parts = split_indices(labels, options.test_share, options.split_seed);
    TD_CHECK(!parts.test.empty(), where, "a class must have two texts or more for a test part; each of the ",
             train.size(), " texts is a class of its own. Add texts.");
    std::vector<LabelledText> kept;
    for (const int64_t i : parts.test) test.push_back(std::move(train[static_cast<size_t>(i)]));
    for (const int64_t i : parts.train) kept.push_back(std::move(train[static_cast<size_t>(i)]));
    splits.notices.push_back(str(test.size(), " of ", train.size(),
                                 " texts were split off for testing (seed ", options.split_seed, ")."));
    train = std::move(kept);
    splits.split_off = true;
  }
  std::vector<std::string_view> texts;
  for (const LabelledText& text : train) texts.emplace_back(text.text);
  splits.text = encoder_for(options.text_encoder, texts, options.text,
                            {.tokens = Tokens::words, .size = kUsualTexts, .padding = true}, kUsualLength);
  const Encoded training = encoded(info.title + ", train", train, *splits.text),
                testing = encoded(info.title + ", test", test, *splits.text);
  splits.train = training.set;
  splits.test = testing.set;
  splits.notices.push_back(notice_of(*splits.text, training.unknown, training.tokens));
  splits.info.sample_shape = {splits.text->length};
  splits.info.classes = static_cast<int64_t>(classes.size());
  splits.info.train_size = training.set->size();
  splits.info.test_size = testing.set->size();
  splits.class_names = std::move(classes);
  return splits;
}

Splits language_splits(const DatasetInfo& info, const std::string& place, LongText text, Tokens usual,
                       const OpenOptions& given) {
  const OpenOptions options = with_usual(given);
  const std::string where = str("data ", info.name, " '", io::one_line(place), "': ");
  Splits splits{.train = {}, .test = {}, .info = info, .name = info.name, .where = place};
  splits.task = "language-modelling";
  if (text.test.empty()) {
    split_off(text, options.test_share, options.split_seed, where);
    splits.split_off = true;
    splits.notices.push_back(str(text.test.size(), " of ", text.test.size() + text.train.size(),
                                 " bytes were taken out for testing, in one piece (seed ", options.split_seed,
                                 ")."));
  }
  const bool has_pieces = options.text.tokens == "bpe";
  splits.text = encoder_for(options.text_encoder, {text.train}, options.text,
                            {.tokens = usual, .size = kUsualWords, .end = !has_pieces}, kUsualWindow);
  const int64_t length = splits.text->length;
  const auto windows = [&](const char* part, const std::string& of) {
    return std::make_shared<TokenWindows>(str(info.title, ", ", part), splits.text->vocabulary.encode(of),
                                          length, str(where, "the part to ", part, " "));
  };
  const std::vector<int64_t> tokens = splits.text->vocabulary.encode(text.train);
  const int64_t unknown = splits.text->vocabulary.unknown()
                              ? std::count(tokens.begin(), tokens.end(), *splits.text->vocabulary.unknown())
                              : 0;
  splits.notices.push_back(notice_of(*splits.text, unknown, static_cast<int64_t>(tokens.size())));
  splits.train =
      std::make_shared<TokenWindows>(info.title + ", train", tokens, length, where + "the part to train ");
  splits.test = windows("test", text.test);
  if (!text.valid.empty()) splits.valid = windows("validate", text.valid);
  splits.info.sample_shape = {length};
  splits.info.classes = 0;
  splits.info.train_size = splits.train->size();
  splits.info.test_size = splits.test->size();
  return splits;
}

}  // namespace tandem::data
