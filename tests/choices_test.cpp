// The choice of algorithms: by rule, always one, by time; the table on disk; and that every algorithm that may be chosen
// computes the convolution.
#include "tandem/core/choices.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "tandem/core/implementations.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// Each test with a table file of its own, and the default afterwards.
class Choices : public ::testing::Test {
 protected:
  Choices() { setenv("TANDEM_CACHE", folder_.path().c_str(), 1); }
  ~Choices() override {
    set_convolution_choice({});
    unsetenv("TANDEM_CACHE");
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::ifstream in(folder_ / "algorithms.tsv");
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
  TempFolder folder_;
};

TEST_F(Choices, ModesHaveNames) {
  for (const ChoiceMode mode : kChoiceModes) EXPECT_EQ(parse_choice_mode(name(mode)), mode);
  EXPECT_EQ(error_of([] { parse_choice_mode("fastest"); }),
            "conv: must be fixed, heuristic or profile; got 'fastest'.");
  EXPECT_EQ(error_of([] { parse_choice_mode("", "matmul"); }),
            "matmul: must be fixed, heuristic or profile; got ''.");
  EXPECT_EQ(convolution_choice().mode, ChoiceMode::heuristic);
  EXPECT_EQ(matmul_choice().mode, ChoiceMode::heuristic);
}

TEST_F(Choices, TheFastestIsKeptAndNotTimedAgain) {
  std::vector<int> runs(4);
  const double times[] = {3, 1, -1, 2};  // the third cannot
  const auto seconds = [&](size_t i) {
    ++runs[i];
    return times[i];
  };
  const std::vector<std::string> names{"a", "b", "c", "d"};
  EXPECT_EQ(choose_by_time("test one", names, true, seconds), 1u);
  EXPECT_EQ(runs, (std::vector{4, 4, 1, 4}));
  EXPECT_EQ(choose_by_time("test one", names, true, seconds), 1u);
  EXPECT_EQ(runs, (std::vector{4, 4, 1, 4}));
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_EQ(lines()[0].substr(0, 17), "test one; tandem ");
  EXPECT_NE(lines()[0].find("\tb\t1e+06"), std::string::npos) << lines()[0];

  // An algorithm that is no longer there is chosen anew; one that is hopeless is not timed to the end.
  const std::vector<std::string> others{"x", "y"};
  EXPECT_EQ(choose_by_time("test one", others, true, [](size_t i) { return i == 0 ? 9. : 1.; }), 1u);
  std::vector<int> counts(2);
  choose_by_time("test two", others, true, [&](size_t i) {
    ++counts[i];
    return i == 0 ? 9. : 1.;
  });
  EXPECT_EQ(counts, (std::vector{2, 4}));
  EXPECT_EQ(error_of([&] { choose_by_time("test three", others, true, [](size_t) { return -1.; }); }),
            "choose: none of the algorithms can do test three.");
  choose_by_time("test four", others, false, [](size_t) { return 1.; });
  EXPECT_EQ(lines().size(), 3u);
}

TEST_F(Choices, APipeOrADeviceInThePlaceOfTheTableIsLeftAlone) {
  const std::string path = folder_ / "algorithms.tsv";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  set_convolution_choice({.mode = ChoiceMode::profile});  // reads the table anew
  EXPECT_EQ(choose_by_time("test pipe", {"x", "y"}, true, [](size_t i) { return i == 0 ? 9. : 1.; }), 1u);
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/full", path);
  set_convolution_choice({.mode = ChoiceMode::profile});
  EXPECT_EQ(choose_by_time("test device", {"x", "y"}, true, [](size_t i) { return i == 0 ? 9. : 1.; }), 1u);
}

/// What the table calls something that was timed: with this library's version behind it.
std::string key_of(const std::string& what) {
  choose_by_time(what, {"any"}, true, [](size_t) { return 1.; });
  for (const Choice& c : choices_made())
    if (c.key.starts_with(what + ";")) return c.key;
  return "";
}

TEST_F(Choices, ChoicesOfACheckpointComeBeforeNewOnes) {
  const std::string key = key_of("test five");
  take_choices({{key, "y", 3}});
  const auto never = [](size_t) -> double { throw Error("timed"); };
  EXPECT_EQ(choose_by_time("test five", {"x", "y"}, true, never), 1u);
  bool found = false;
  for (const Choice& c : choices_made()) found = found || (c.key == key && c.algorithm == "y");
  EXPECT_TRUE(found);
}

struct Form {
  Dims x, weight;
  Conv2dOptions options;
};
const Form kForms[] = {
    {{2, 3, 11, 9}, {5, 3, 3, 3}, {.padding = 1}},
    {{3, 20, 7, 7}, {18, 20, 3, 3}, {}},
    {{1, 1, 5, 4}, {2, 1, 3, 3}, {.padding = 2}},
    {{2, 8, 6, 5}, {9, 8, 1, 1}, {}},
    {{2, 4, 13, 8}, {6, 4, 5, 2}, {.stride = 2, .padding = 1}},
    {{2, 6, 9, 9}, {4, 3, 3, 3}, {.padding = 2, .dilation = 2, .groups = 2}},
};
/// The gradients of x, weight and bias, then y.
std::vector<Tensor> results(const Form& form, DType dtype) {
  manual_seed(3);
  const auto make = [&](const Dims& shape) { return cast(uniform(shape, -1, 1), dtype); };
  const Tensor x = make(form.x).set_requires_grad(), weight = make(form.weight).set_requires_grad(),
               bias = make({form.weight[0]}).set_requires_grad();
  const Tensor y = conv2d(x, weight, bias, form.options);
  std::vector<Tensor> all = grad(y, std::vector<Tensor>{x, weight, bias}, make(y.shape()));
  all.push_back(y.detach());
  return all;
}
void expect_right(const Form& form, const std::string& what) {
  const std::vector<Tensor> got = results(form, DType::f32);
  const ConvolutionChoice before = convolution_choice();
  set_convolution_choice({});
  const std::vector<Tensor> want = results(form, DType::f64);
  set_convolution_choice(before);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_LE(relative_distance(to_array(got[i]), to_array(want[i])), 1e-5)
        << what << ", result " << i << " of " << form.x;
}

TEST_F(Choices, EveryModeComputesTheConvolution) {
  for (const Form& form : kForms)
    for (const ChoiceMode mode : kChoiceModes) {
      set_convolution_choice({.mode = mode});
      expect_right(form, name(mode));
    }
  EXPECT_GT(lines().size(), 6u);  // one for each call that has a choice
}

TEST_F(Choices, EveryAlgorithmThatMayBeChosenComputesTheConvolution) {
  set_convolution_choice({.mode = ChoiceMode::profile});
  for (const Form& form : kForms) results(form, DType::f32);
  std::set<std::string> seen;
  for (const char* algorithm : {"direct", "im2col", "pointwise 1x1", "winograd 2x4"}) {
    // A name that a call does not have makes it choose anew, so every call has one that it can do.
    std::vector<Choice> forced = choices_made();
    for (Choice& c : forced) c.algorithm = algorithm;
    take_choices(forced);
    set_convolution_choice({.mode = ChoiceMode::profile, .keep = false});
    for (const Form& form : kForms) expect_right(form, algorithm);
    for (const Choice& c : choices_made())
      if (c.algorithm == algorithm && c.key.starts_with("conv")) seen.insert(algorithm);
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST_F(Choices, BothEnginesTakeTheSameAndACompiledFunctionFollowsAChange) {
  const Form& form = kForms[1];  // few tiles: by rule direct, though winograd can
  manual_seed(4);
  const Tensor x = uniform(form.x, -1, 1), weight = uniform(form.weight, -1, 1);
  Compiled compiled = compile(
      [&](const std::vector<Tensor>& in) { return std::vector{conv2d(in[0], in[1], {}, form.options)}; });
  std::vector<Tensor> results;
  for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::profile}) {
    set_convolution_choice({.mode = mode, .keep = false});
    if (mode == ChoiceMode::profile) {
      conv2d(x, weight, {}, form.options);
      std::vector<Choice> forced = choices_made();
      for (Choice& c : forced)
        if (c.key.starts_with("conv f32 x 3x20x7x7 ")) c.algorithm = "winograd 2x4";
      take_choices(forced);
    }
    results.push_back(conv2d(x, weight, {}, form.options));
    EXPECT_TRUE(same_bits(results.back(), compiled({x, weight})[0])) << name(mode);
    ASSERT_EQ(compiled.reports().size(), 1u);
    EXPECT_EQ(compiled.reports()[0].graph.nodes.back().algorithm,
              mode == ChoiceMode::fixed ? "direct" : "winograd 2x4");
  }
  EXPECT_FALSE(same_bits(results[0], results[1]));
}

TEST_F(Choices, ALineIsAddedBehindOneWithoutItsNewline) {
  std::ofstream(folder_ / "algorithms.tsv") << "mine\tx\t3";
  set_convolution_choice({.mode = ChoiceMode::profile});  // reads the table anew
  choose_by_time("test cut", {"x", "y"}, true, [](size_t i) { return i == 0 ? 9. : 1.; });
  choose_by_time("test next", {"x", "y"}, true, [](size_t i) { return i == 0 ? 9. : 1.; });
  ASSERT_EQ(lines().size(), 3u);
  EXPECT_EQ(lines()[0], "mine\tx\t3");
  EXPECT_TRUE(lines()[1].starts_with("test cut; ")) << lines()[1];
  EXPECT_TRUE(lines()[2].starts_with("test next; ")) << lines()[2];
}

TEST_F(Choices, TornLinesOfTheTableArePassedOver) {
  const std::string version = key_of("any").substr(3), key = "test six" + version;
  std::ofstream(folder_ / "algorithms.tsv") << "torn\nhalf a\tline\ntoo\tmany\tfields\t4\n"
                                            << key << "\ty\t12.5\n"
                                            << key << "\tx\t11";
  set_convolution_choice({.mode = ChoiceMode::profile});
  const auto never = [](size_t) -> double { throw Error("timed"); };
  EXPECT_EQ(choose_by_time("test six", {"w", "x", "y"}, true, never), 1u);
  EXPECT_EQ(error_of([&] { choose_by_time("torn", {"x", "y"}, true, never); }), "timed");
}

}  // namespace
}  // namespace tandem::testing
