// Text made by a formula, in the shapes of well-known sets: it can be learned, needs no files, and has the same words on every
// machine. Every random number is a Philox word.
#include <algorithm>

#include "tandem/core/rng.h"
#include "tandem/data/drawn_digits.h"
#include "tandem/data/text_splits.h"

namespace tandem::data {
namespace {

constexpr uint64_t kTextStream = 0x7465787420736574, kChainStream = 0x636861696e206f66,
                   kPairStream = 0x7061697273206f66;
constexpr int64_t kPairSpecials = 4;  // padding, unknown, begin and end
constexpr int64_t kReviewWords = 5000, kReviewLength = 500, kShortest = 30;
constexpr int64_t kMarked = 16;  // one in this many words of a review tells the class
constexpr int64_t kTextWords = 10000, kWindow = 35, kWmtWords = 32000;
constexpr int64_t kTrainTokens = 929589, kValidTokens = 73760, kTestTokens = 82430;

/// 0 … count-1, small numbers far more often: as words are.
int64_t word_of(uint32_t bits, int64_t count) {
  const double u = static_cast<double>(bits) / 4294967296.0;
  return std::min(count - 1, static_cast<int64_t>(u * u * u * static_cast<double>(count)));
}

std::vector<std::string> made_words(int64_t count) {
  std::vector<std::string> words;
  for (int64_t i = 0; i < count; ++i) words.push_back(str("w", i));
  return words;
}

TextEncoderPtr made_encoder(int64_t size, int64_t length, bool ends) {
  const VocabularyOptions wanted{.tokens = Tokens::words, .padding = !ends, .end = ends};
  return std::make_shared<TextEncoder>(
      TextEncoder{Vocabulary::of_words(made_words(size - 2), wanted), length});
}

/// Reviews of two classes: some of the words are the class's own.
class SyntheticReviews final : public Dataset {
 public:
  SyntheticReviews(int64_t first, int64_t size) : first_(first), size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override {
    check_index("get", i, size_);
    uint64_t counter = static_cast<uint64_t>(first_ + i) << 20;
    const PhiloxBlock head = philox(kTextStream, counter++);
    const int64_t label = head.x[0] & 1, words = kReviewWords - 2, half = words / 2;
    const int64_t length = kShortest + word_of(head.x[1], kReviewLength - kShortest + 1);
    std::vector<int64_t> tokens(static_cast<size_t>(length));
    for (int64_t& token : tokens) {
      const PhiloxBlock block = philox(kTextStream, counter++);
      const bool is_marked = block.x[0] % kMarked == 0;
      token = 2 + (is_marked ? label * half + word_of(block.x[1], half) : word_of(block.x[1], words));
    }
    return {from_vector(tokens, {length}), from_vector<int64_t>({label}, {})};
  }
  std::string describe() const override { return str("synthetic imdb: ", size_, " texts"); }

 private:
  int64_t first_, size_;
};

/// Pairs: each word has its own translation, and every fourth one two words. Texts of one word and more.
class SyntheticPairs final : public Dataset {
 public:
  SyntheticPairs(const TextEncoder& encoder, std::string title, int64_t first, int64_t size)
      : words_(encoder.vocabulary.size() - kPairSpecials),
        longest_(encoder.length),
        begin_(*encoder.into->begin()),
        end_(*encoder.into->end()),
        title_(std::move(title)),
        first_(first),
        size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override {
    check_index("get", i, size_);
    uint64_t counter = static_cast<uint64_t>(first_ + i) << 20;
    // Short ones are more frequent, as in the real sets; there is room for the second words.
    const int64_t length = 1 + word_of(philox(kPairStream, counter++).x[0], longest_ / 2);
    std::vector<int64_t> source, target = {begin_};
    for (int64_t k = 0; k < length; ++k) {
      const int64_t word = word_of(philox(kPairStream, counter++).x[0], words_);
      source.push_back(kPairSpecials + word);
      target.push_back(kPairSpecials + (word + 1) % words_);
      if (word % 4 == 0) target.push_back(kPairSpecials + word / 4);
    }
    source.push_back(end_);
    target.push_back(end_);
    return {from_vector(source, {static_cast<Dim>(source.size())}),
            from_vector(target, {static_cast<Dim>(target.size())})};
  }
  std::string describe() const override { return str(title_, ": ", size_, " pairs"); }

 private:
  int64_t words_, longest_, begin_, end_;
  std::string title_;
  int64_t first_, size_;
};

/// A chain: half of the words follow from the one before.
std::vector<int64_t> made_text(uint64_t part, int64_t count) {
  std::vector<int64_t> tokens;
  int64_t before = 2;
  for (int64_t i = 0; i < count; ++i) {
    const PhiloxBlock block = philox(kTextStream ^ part, static_cast<uint64_t>(i));
    const PhiloxBlock next = philox(kChainStream, static_cast<uint64_t>(before));
    before = 2 + word_of((block.x[0] & 1) != 0 ? next.x[0] : block.x[1], kTextWords - 2);
    tokens.push_back(before);
  }
  return tokens;
}

}  // namespace

Splits open_synthetic_imdb(const DatasetInfo& info, const OpenOptions&) {
  Splits out{.train = {}, .test = {}, .info = info, .name = info.name, .where = kBuiltIn};
  out.text = made_encoder(kReviewWords, kReviewLength, false);
  out.train = std::make_shared<SyntheticReviews>(0, info.train_size);
  out.test = std::make_shared<SyntheticReviews>(info.train_size, info.test_size);
  out.task = "text-classification";
  out.class_names = {"neg", "pos"};
  return out;
}

Splits open_synthetic_ptb(const DatasetInfo& info, const OpenOptions&) {
  Splits out{.train = {}, .test = {}, .info = info, .name = info.name, .where = kBuiltIn};
  out.text = made_encoder(kTextWords, kWindow, true);
  const auto windows = [&](uint64_t part, int64_t count) {
    return std::make_shared<TokenWindows>(info.title, made_text(part, count), kWindow, "");
  };
  out.train = windows(1, kTrainTokens);
  out.valid = windows(2, kValidTokens);
  out.test = windows(3, kTestTokens);
  out.task = "language-modelling";
  return out;
}

Splits open_synthetic_pairs(const DatasetInfo& info, const OpenOptions&) {
  Splits out{.train = {}, .test = {}, .info = info, .name = info.name, .where = kBuiltIn};
  const int64_t words = info.name == "synthetic-wmt16" ? kWmtWords : kTextWords;
  const Vocabulary vocabulary =
      Vocabulary::of_words(made_words(words - kPairSpecials),
                           {.tokens = Tokens::words, .padding = true, .begin = true, .end = true});
  out.text = std::make_shared<TextEncoder>(
      TextEncoder{.vocabulary = vocabulary, .length = info.sample_shape[0], .into = vocabulary});
  out.train = std::make_shared<SyntheticPairs>(*out.text, info.title, 0, info.train_size);
  out.test = std::make_shared<SyntheticPairs>(*out.text, info.title, info.train_size, info.test_size);
  out.task = "translation";
  return out;
}

}  // namespace tandem::data
