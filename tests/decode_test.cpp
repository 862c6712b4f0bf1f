// Decoding (greedy, beams, drawn, CTC) against searches through everything, and the metrics of texts.
#include "tandem/train/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/train/text_metrics.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using Tokens = std::vector<int64_t>;
constexpr int64_t kVocabulary = 4, kFirst = 0, kEnd = 3;

/// The next token depends on this one and on all before it: the state, (rows, 1), adds them up.
DecodeStep model(const Tensor& tokens, const std::vector<Tensor>& state) {
  const Tensor table = to_tensor(hash_array({kVocabulary, kVocabulary}, 5, -2, 2), DType::f32);
  const Tensor lean = to_tensor(hash_array({1, kVocabulary}, 6, -1, 1), DType::f32);
  const Tensor sum = state[0] + unsqueeze(cast(tokens, DType::f32), 1);
  return {index_select(table, 0, tokens) + sin(sum) * lean, {sum}};
}
std::vector<Tensor> begin(int64_t samples) {
  return {to_tensor(hash_array({samples, 1}, 7, 0, 3), DType::f32)};
}

/// The log-probability of a sequence of sample n by itself, with its end where it has one.
double rescored(int64_t samples, int64_t n, const Tokens& tokens, bool ends) {
  std::vector<Tensor> state = {slice(begin(samples)[0], 0, n, n + 1)};
  double total = 0;
  int64_t last = kFirst;
  for (size_t i = 0; i < tokens.size() + (ends ? 1 : 0); ++i) {
    const DecodeStep step = model(from_vector<int64_t>({last}, {1}), state);
    last = i < tokens.size() ? tokens[i] : kEnd;
    total += log_softmax(cast(step.logits, DType::f64), 1).to_vector<double>()[static_cast<size_t>(last)];
    state = step.state;
  }
  return total;
}

/// The best of all sequences of up to `longest` tokens.
Decoded best_of_all(int64_t samples, int64_t n, size_t longest, double penalty) {
  Decoded best;
  double most = -1e300;
  const auto consider = [&](const Tokens& tokens, bool ends) {
    const double p = rescored(samples, n, tokens, ends);
    const double score = p / std::pow(static_cast<double>(std::max<size_t>(tokens.size(), 1)), penalty);
    if (score > most) most = score, best = {tokens, p};
  };
  std::vector<Tokens> level = {{}};
  for (size_t length = 0; length <= longest; ++length) {
    std::vector<Tokens> next;
    for (const Tokens& tokens : level) {
      consider(tokens, length < longest);  // what is as long as may be need not end
      for (int64_t v = 0; v < kVocabulary; ++v) {
        if (v == kEnd) continue;
        next.push_back(tokens);
        next.back().push_back(v);
      }
    }
    level = std::move(next);
  }
  return best;
}

TEST(Decode, BeamsThatHoldEverythingFindTheBestOfAll) {
  for (const double penalty : {0.0, 1.0}) {
    const auto found =
        decode(model, 3, begin(3),
               {.first = kFirst, .end = kEnd, .longest = 4, .beams = 200, .length_penalty = penalty});
    ASSERT_EQ(found.size(), 3u);
    for (int64_t n = 0; n < 3; ++n) {
      const Decoded want = best_of_all(3, n, 4, penalty), &got = found[static_cast<size_t>(n)][0];
      EXPECT_EQ(got.tokens, want.tokens) << n;
      EXPECT_NEAR(got.log_probability, want.log_probability, 1e-5) << n;
    }
  }
}

TEST(Decode, ReportsTheLogProbabilityOfEachSequenceWithItsState) {
  for (const int64_t beams : {1, 2, 5}) {
    const auto found =
        decode(model, 2, begin(2), {.first = kFirst, .end = kEnd, .longest = 6, .beams = beams});
    for (int64_t n = 0; n < 2; ++n) {
      EXPECT_LE(found[static_cast<size_t>(n)].size(), static_cast<size_t>(beams));
      for (const Decoded& d : found[static_cast<size_t>(n)])
        EXPECT_NEAR(d.log_probability, rescored(2, n, d.tokens, d.tokens.size() < 6), 1e-5)
            << beams << " " << n;
    }
  }
}

TEST(Decode, ASampleWithALimitOfItsOwnIsDecodedAsAloneUpToThere) {
  const std::vector<int64_t> limits = {1, 6, 3};
  for (const int64_t end : {kEnd, int64_t{-1}})
    for (const int64_t beams : {1, 2, 5}) {
      DecodeOptions options{
          .first = kFirst, .end = end, .longest = 6, .beams = beams, .longest_each = limits};
      const auto together = decode(model, 3, begin(3), options);
      options.longest_each.clear();
      for (size_t n = 0; n < limits.size(); ++n) {
        const auto at = static_cast<int64_t>(n);
        options.longest = limits[n];
        const auto alone = decode(model, 1, {slice(begin(3)[0], 0, at, at + 1)}, options)[0];
        ASSERT_EQ(together[n].size(), alone.size());
        for (size_t k = 0; k < alone.size(); ++k) {
          EXPECT_EQ(together[n][k].tokens, alone[k].tokens) << n << " " << beams;
          EXPECT_NEAR(together[n][k].log_probability, alone[k].log_probability, 1e-6);
        }
      }
    }
}

TEST(Decode, OneBeamTakesTheLikeliestTokenEachTime) {
  const auto found = decode(model, 2, begin(2), {.first = kFirst, .longest = 5});
  for (int64_t n = 0; n < 2; ++n) {
    std::vector<Tensor> state = {slice(begin(2)[0], 0, n, n + 1)};
    Tokens want;
    for (int64_t last = kFirst; want.size() < 5; want.push_back(last)) {
      const DecodeStep step = model(from_vector<int64_t>({last}, {1}), state);
      const std::vector<float> row = step.logits.to_vector<float>();
      last = std::max_element(row.begin(), row.end()) - row.begin();
      state = step.state;
    }
    EXPECT_EQ(found[static_cast<size_t>(n)][0].tokens, want);
  }
}

TEST(Decode, DrawsBySeedTemperatureAndAmongTheLikeliest) {
  const DecodeOptions options{.first = kFirst, .longest = 6};
  const auto draw = [&](const SampleOptions& sampling) {
    std::vector<Tokens> all;
    for (const Decoded& d : decode_sampled(model, 2, begin(2), sampling, options)) all.push_back(d.tokens);
    return all;
  };
  std::vector<Tokens> greedy;
  for (const auto& beams : decode(model, 2, begin(2), options)) greedy.push_back(beams[0].tokens);
  EXPECT_EQ(draw({.seed = 3}), draw({.seed = 3}));
  EXPECT_NE(draw({.seed = 3}), draw({.seed = 4}));
  EXPECT_EQ(draw({.top_k = 1}), greedy);
  EXPECT_EQ(draw({.top_p = 1e-9}), greedy);
  for (const double temperature : {1e-4, 1e-39, 1e-45, 1e-308})  // the smaller ones overflow f32, and f64
    EXPECT_EQ(draw({.temperature = temperature}), greedy) << temperature;
  // One token, drawn often: as often as its probability says.
  const auto coin = [](const Tensor& tokens, const std::vector<Tensor>&) {
    return DecodeStep{expand(log(from_vector<float>({0.2f, 0.5f, 0.3f}, {1, 3})), {tokens.size(0), 3}), {}};
  };
  std::map<int64_t, int> count;
  for (const Decoded& d : decode_sampled(coin, 20000, {}, {.seed = 1}, {.longest = 1})) ++count[d.tokens[0]];
  EXPECT_NEAR(count[0], 4000, 250);
  EXPECT_NEAR(count[1], 10000, 350);
  count.clear();
  for (const Decoded& d : decode_sampled(coin, 2000, {}, {.top_k = 2, .seed = 1}, {.longest = 1}))
    ++count[d.tokens[0]];
  EXPECT_EQ(count[0], 0);
  EXPECT_NEAR(count[1], 1250, 120);
}

TEST(Decode, RefusesWhatCannotBe) {
  EXPECT_HAS(refusal([] { decode(model, 1, begin(1), {.beams = 0}); }), "beams at least 1");
  EXPECT_HAS(refusal([] { decode({}, 1, {}); }), "must not be empty");
  EXPECT_HAS(refusal([] { decode(model, 2, begin(2), {.longest_each = {3}}); }), "got 1 for 2 samples");
  EXPECT_HAS(refusal([] { decode(model, 1, begin(1), {.longest = 3, .longest_each = {4}}); }),
             "must be 1 to longest, 3; got 4");
  EXPECT_HAS(refusal([] { decode_sampled(model, 1, begin(1), {}, {.longest_each = {4}}); }),
             "takes no longest_each");
  EXPECT_HAS(refusal([] {
               decode(
                   [](const Tensor&, const std::vector<Tensor>&) {
                     return DecodeStep{zeros({3, 2}), {}};
                   },
                   2, {});
             }),
             "floating logits (2, vocabulary); got f32 (3, 2)");
  EXPECT_HAS(refusal([] { decode_sampled(model, 1, begin(1), {.temperature = 0}); }),
             "temperature must be above 0");
  EXPECT_HAS(refusal([] { decode_sampled(model, 1, begin(1), {}, {.beams = 2}); }),
             "one sequence for each sample");
  EXPECT_HAS(refusal([] { decode(model, 1, begin(1), {.end = kVocabulary}); }),
             "end must be a token of the model's 4");
  EXPECT_HAS(refusal([] { decode(model, 1, begin(1), {.end = -7}); }), "end at least -1");
  EXPECT_HAS(refusal([] { decode(model, 2, begin(7), {.beams = 2}); }),
             "states must have 2 rows along axis 0");
  EXPECT_HAS(refusal([] { decode(model, 1, begin(1), {.state_axis = 5}); }), "rows along axis 5");
  EXPECT_HAS(refusal([] {
               decode(
                   [](const Tensor& tokens, const std::vector<Tensor>&) {
                     return DecodeStep{zeros({tokens.size(0), 2}), {}};
                   },
                   1, begin(1));
             }),
             "as many states as it takes, 1; got 0");
  EXPECT_TRUE(decode(model, 0, begin(0)).empty());
}

TEST(Decode, RefusesLogitsThatMakeNoProbabilities) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const double odd : {nan, infinity}) {
    const auto broken = [&](const Tensor& tokens, const std::vector<Tensor>&) {
      Array logits({tokens.size(0), 3});
      logits[1] = odd;
      return DecodeStep{to_tensor(logits, DType::f32), {}};
    };
    EXPECT_HAS(refusal([&] { decode(broken, 1, {}, {.beams = 2}); }), "got NaN or an infinity in row 0");
    EXPECT_HAS(refusal([&] { decode_sampled(broken, 1, {}, {}); }), "got NaN or an infinity in row 0");
  }
  const auto masked = [&](const Tensor& tokens,
                          const std::vector<Tensor>&) {  // impossible tokens are in order
    Array logits({tokens.size(0), 3});
    logits[0] = -infinity;
    logits[2] = -1;
    return DecodeStep{to_tensor(logits, DType::f32), {}};
  };
  EXPECT_EQ(decode(masked, 1, {}, {.longest = 2})[0][0].tokens, (Tokens{1, 1}));
  Array steps({2, 1, 3});
  steps[4] = nan;
  EXPECT_HAS(refusal([&] { ctc_greedy(to_tensor(steps, DType::f32)); }), "must be numbers; got NaN");
  EXPECT_HAS(refusal([&] { ctc_beams(to_tensor(steps, DType::f32), {}, 2); }), "must be numbers; got NaN");
}

TEST(CtcDecode, GreedyTakesRepetitionsAndBlanksOut) {
  const auto steps = [](const std::vector<int64_t>& classes) {
    Array x({static_cast<Dim>(classes.size()), 1, 3});
    for (size_t t = 0; t < classes.size(); ++t) x.at({static_cast<Dim>(t), 0, classes[t]}) = 1;
    return to_tensor(x, DType::f32);
  };
  EXPECT_EQ(ctc_greedy(steps({1, 1, 0, 1, 2, 2, 0}))[0], (Tokens{1, 1, 2}));
  EXPECT_EQ(ctc_greedy(steps({1, 1, 0, 1, 2, 2, 0}), from_vector<int64_t>({3}, {1}))[0], (Tokens{1}));
  EXPECT_EQ(ctc_greedy(steps({0, 0, 1, 2}), {}, 2)[0], (Tokens{0, 1}));
  EXPECT_HAS(refusal([&] {
               ctc_greedy(steps({1, 2}), from_vector<int64_t>({3}, {1}));
             }),
             "from 0 to 2; got 3");
}

TEST(CtcDecode, BeamsFindTheLabelsOfTheMostProbablePaths) {
  const Dim steps = 4, classes = 3;
  const Tensor x = log_softmax(to_tensor(hash_array({steps, 2, classes}, 9, -1, 1), DType::f64), 2);
  const Array values = to_array(x);
  const std::vector<Tokens> found = ctc_beams(x, {}, 100);
  for (Dim n = 0; n < 2; ++n) {
    std::map<Tokens, double> mass;
    for (int path = 0; path < 81; ++path) {
      Tokens read;
      double p = 1;
      int64_t before = 0;
      for (int t = 0, rest = path; t < steps; ++t, rest /= 3) {
        const int64_t c = rest % 3;
        p *= std::exp(values.at({t, n, c}));
        if (c != 0 && c != before) read.push_back(c);
        before = c;
      }
      mass[read] += p;
    }
    Tokens best;
    for (const auto& [labels, p] : mass)
      if (p > mass[best]) best = labels;
    EXPECT_EQ(found[static_cast<size_t>(n)], best);
  }
}

TEST(TextMetrics, ErrorRatesCountEdits) {
  const std::vector<std::string> a = {"k", "i", "t", "t", "e", "n"}, b = {"s", "i", "t", "t", "i", "n", "g"};
  EXPECT_EQ(edit_distance(a, b), 3);
  EXPECT_EQ(edit_distance(b, a), 3);
  EXPECT_EQ(edit_distance(Tokens{}, Tokens{1, 2}), 2);
  ErrorRate rate;
  EXPECT_EQ(rate.value(), 0);
  rate.add(words_of("the cat sat  on\tthe mat"), words_of("the cat sit on mat"));
  EXPECT_NEAR(rate.value(), 2.0 / 6, 1e-12);
  rate.add(words_of("a b"), words_of("a b"));
  EXPECT_NEAR(rate.value(), 2.0 / 8, 1e-12);
}

TEST(TextMetrics, BleuIsTheGeometricMeanOfMatchesWithItsPenalties) {
  Bleu same, near, shorter, several;
  same.add(words_of("a b c d e"), words_of("a b c d e"));
  EXPECT_NEAR(same.value(), 100, 1e-9);
  // 5/6, 3/5, 1/4 and 0/3 of the n-grams.
  near.add(words_of("the cat is on the mat"), words_of("the cat sat on the mat"));
  EXPECT_EQ(near.value(), 0);
  EXPECT_NEAR(near.value(true), 100 * std::pow(5. / 6 * 3 / 5 * 1 / 4 * 0.5 / 3, 0.25), 1e-9);
  shorter.add(words_of("a b c d e f"), words_of("a b c d"));
  EXPECT_NEAR(shorter.value(), 100 * std::exp(1 - 6. / 4), 1e-9);
  const std::vector<std::vector<std::string>> right = {words_of("a b c d x"), words_of("y a b c d")};
  several.add(right, words_of("a b c d"));
  EXPECT_NEAR(several.value(), 100 * std::exp(1 - 5. / 4), 1e-9);
  EXPECT_EQ(Bleu().value(), 0);
}

}  // namespace
}  // namespace tandem::testing
