// From runs to findings: what is grouped, paired, left out and said.
#include "lab/src/analysis/analysis.h"
#include "lab/src/stats/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include "lab/tests/analysis/simulated.h"
#include "tandem/core/error.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab {
namespace {

using tandem::testing::message_of;
using tandem::testing::read_text;

/// Systems with given values, one list a system, blocks in order.
Results study(const std::vector<std::pair<std::string, std::vector<double>>>& systems,
              const std::string& metric = "step.latency_s") {
  Results results;
  for (const auto& [system, values] : systems)
    for (size_t i = 0; i < values.size(); ++i)
      results.runs.push_back(simulated_run(system, static_cast<int64_t>(i), metric, values[i]));
  return results;
}

void add_control(Results& results, const std::string& system, const std::vector<double>& values,
                 const std::string& metric = "step.latency_s") {
  for (size_t i = 0; i < values.size(); ++i) {
    results.runs.push_back(simulated_run(system, static_cast<int64_t>(i), metric, values[i]));
    results.runs.back().control = "A/A";
  }
}

const std::vector<double> kBase = {1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99};

std::vector<double> times(double factor, const std::vector<double>& values = kBase) {
  std::vector<double> result;
  for (size_t i = 0; i < values.size(); ++i)
    result.push_back(factor * values[i] * (1 + 0.001 * static_cast<double>(i)));
  return result;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Analysis, A_clear_difference_is_told_in_plain_words) {
  Results results = study({{"pytorch:eager", kBase}, {"tensorflow:function", times(1.34)}});
  add_control(results, "pytorch:eager", times(1.005));
  const Analysis analysis = analyse(results);
  ASSERT_EQ(analysis.comparisons.size(), 1u);
  const Comparison& c = analysis.comparisons[0];
  EXPECT_EQ(c.verdict, Verdict::first);
  EXPECT_TRUE(c.paired);
  EXPECT_EQ(c.runs, 8u);
  EXPECT_EQ(c.test, "Wilcoxon signed-rank, exact");
  EXPECT_DOUBLE_EQ(c.p, 2.0 / 256);
  EXPECT_TRUE(c.at_floor);
  EXPECT_TRUE(c.can_decide);
  EXPECT_NEAR(c.ratio.value, 1.34, 0.02);
  EXPECT_EQ(c.cliffs_delta, 1);
  EXPECT_GT(c.shift.low, 0.3);
  EXPECT_TRUE(std::regex_match(
      c.text,
      std::regex(
          "pytorch:eager is 1\\.3[0-9]× faster to train than tensorflow:function here \\(95 % interval "
          "1\\.3[0-9] to 1\\.3[0-9], p = 0\\.0078 after Holm, the smallest that 8 runs can give\\); "
          "the noise floor is [0-9.]+ %\\.")))
      << c.text;
}

TEST(Analysis, The_second_system_may_win_and_more_may_be_better) {
  const Comparison less = analyse(study({{"a", times(1.5)}, {"b", kBase}})).comparisons.at(0);
  EXPECT_EQ(less.verdict, Verdict::second);
  EXPECT_NEAR(less.ratio.value, 1 / 1.5, 0.01);
  EXPECT_TRUE(contains(less.text, "b is 1.5")) << less.text;
  EXPECT_TRUE(contains(less.text, "no noise floor was measured")) << less.text;
  const Comparison more =
      analyse(study({{"a", times(1.5)}, {"b", kBase}}, "samples_per_s")).comparisons.at(0);
  EXPECT_EQ(more.verdict, Verdict::first);
  EXPECT_TRUE(contains(more.text, "a is 1.5")) << more.text;
  const Comparison memory =
      analyse(study({{"a", times(500)}, {"b", times(403)}}, "rss.peak_mib")).comparisons.at(0);
  EXPECT_EQ(memory.verdict, Verdict::second);
  EXPECT_TRUE(
      contains(memory.text, "b has a 1.24× lower peak resident memory than a here: 404 MiB against 501"))
      << memory.text;
  // Neither is better: the lower one is named.
  const Comparison use =
      analyse(study({{"a", times(80)}, {"b", times(60)}}, "gpu.percent")).comparisons.at(0);
  EXPECT_EQ(use.verdict, Verdict::second);
  EXPECT_TRUE(contains(use.text, "lower GPU utilisation")) << use.text;
  // Accuracy: more is better, and the medians are told.
  const Comparison best =
      analyse(study({{"a", times(0.9)}, {"b", times(0.6)}}, "fit.accuracy")).comparisons.at(0);
  EXPECT_EQ(best.verdict, Verdict::first);
  EXPECT_TRUE(contains(best.text, "higher test accuracy")) << best.text;
}

TEST(Analysis, Five_runs_cannot_decide_and_say_so) {
  const std::vector<double> five(kBase.begin(), kBase.begin() + 5);
  const Comparison c = analyse(study({{"a", five}, {"b", times(2, five)}})).comparisons.at(0);
  EXPECT_DOUBLE_EQ(c.p, 0.0625);
  EXPECT_TRUE(c.at_floor);
  EXPECT_FALSE(c.can_decide);
  EXPECT_EQ(c.verdict, Verdict::undecided);
  EXPECT_TRUE(
      contains(c.text, "5 runs are too few, for p after Holm cannot fall below 0.063; 6 could decide"))
      << c.text;
}

TEST(Analysis, Holm_raises_the_number_of_runs_that_are_needed) {
  const std::vector<double> six(kBase.begin(), kBase.begin() + 6);
  EXPECT_TRUE(analyse(study({{"a", six}, {"b", times(2, six)}})).comparisons.at(0).can_decide);
  // Six comparisons of four systems: 6 · 2^-5 is above 5 %, 6 · 2^-7 below.
  const Analysis few =
      analyse(study({{"a", six}, {"b", times(2, six)}, {"c", times(3, six)}, {"d", times(4, six)}}));
  ASSERT_EQ(few.comparisons.size(), 6u);
  for (const Comparison& c : few.comparisons) {
    EXPECT_FALSE(c.can_decide);
    EXPECT_NEAR(c.p_holm, 6.0 / 32, 1e-12);
    EXPECT_EQ(c.verdict, Verdict::undecided);
    EXPECT_TRUE(contains(c.text, "8 could decide")) << c.text;
  }
  const Analysis enough = analyse(study({{"a", kBase}, {"b", times(2)}, {"c", times(3)}, {"d", times(4)}}));
  for (const Comparison& c : enough.comparisons) {
    EXPECT_TRUE(c.can_decide);
    EXPECT_EQ(c.verdict, Verdict::first) << c.text;
  }
}

TEST(Analysis, A_difference_inside_the_noise_floor_is_not_decided) {
  Results results = study({{"a", kBase}, {"b", times(1.04)}});
  EXPECT_EQ(analyse(results).comparisons.at(0).verdict, Verdict::first);
  add_control(results, "a", times(1.05));  // the machine itself drifts by more
  const Analysis analysis = analyse(results);
  ASSERT_EQ(analysis.noise.size(), 1u);
  EXPECT_GT(analysis.noise[0].floor, 0.045);
  EXPECT_EQ(analysis.noise[0].runs, 8u);
  const Comparison& c = analysis.comparisons.at(0);
  EXPECT_LT(c.p_holm, 0.05);
  EXPECT_NE(c.verdict, Verdict::first);
  EXPECT_NE(c.verdict, Verdict::second);
  EXPECT_TRUE(contains(c.text, "the noise floor is 5")) << c.text;
}

TEST(Analysis, The_noise_floor_is_the_same_whichever_half_is_called_the_control) {
  for (const size_t runs : {7, 8}) {
    const std::vector<double> base(kBase.begin(), kBase.begin() + static_cast<int64_t>(runs));
    const auto floor_of = [&](const std::vector<double>& ordinary, const std::vector<double>& control) {
      Results results = study({{"a", ordinary}});
      add_control(results, "a", control);
      return analyse(results).noise.at(0).floor;
    };
    const double floor = floor_of(base, times(1.25, base));
    EXPECT_NEAR(floor_of(times(1.25, base), base), floor, 1e-12);
    EXPECT_GT(floor, 0.25);
  }
  // A control that may as well have taken nothing: no difference lies beyond that.
  Results results = study({{"a", kBase}, {"b", times(1.5)}});
  add_control(results, "a", {0, 0, 0, 0, 0, 1, 1, 1});
  const Analysis analysis = analyse(results);
  EXPECT_TRUE(std::isinf(analysis.noise.at(0).floor));
  EXPECT_EQ(analysis.comparisons.at(0).verdict, Verdict::undecided);
  EXPECT_TRUE(contains(analysis.comparisons.at(0).text, "the noise floor has no bound"))
      << analysis.comparisons.at(0).text;
}

TEST(Analysis, Equality_is_shown_not_assumed) {
  std::vector<double> near = kBase;
  for (size_t i = 0; i < near.size(); ++i) near[i] *= i % 2 ? 1.002 : 0.998;
  const Comparison same = analyse(study({{"a", kBase}, {"b", near}})).comparisons.at(0);
  EXPECT_EQ(same.verdict, Verdict::equivalent) << same.text;
  EXPECT_TRUE(contains(same.text, "a and b are equal in step time here, within 2 %")) << same.text;
  Results noisy = study({{"a", kBase}, {"b", near}});
  add_control(noisy, "a", times(1.05));  // a machine that cannot tell 5 % apart shows no equality
  const Comparison unsure = analyse(noisy).comparisons.at(0);
  EXPECT_EQ(unsure.verdict, Verdict::undecided) << unsure.text;
  EXPECT_TRUE(contains(unsure.text, "the noise is wider than the 2 % that count as equal")) << unsure.text;
  const std::vector<double> wild_a = {1, 2, 1.2, 0.4, 1.9, 0.8, 1.1, 1.5},
                            wild_b = {1.9, 0.5, 1, 1.3, 0.9, 1.4, 2, 0.7};
  const Comparison unknown = analyse(study({{"a", wild_a}, {"b", wild_b}})).comparisons.at(0);
  EXPECT_EQ(unknown.verdict, Verdict::undecided);
  EXPECT_TRUE(contains(unknown.text, "neither a difference nor equality within 2 %")) << unknown.text;
}

TEST(Analysis, A_real_but_tiny_difference_says_that_it_is_tiny) {
  const Comparison c = analyse(study({{"a", kBase}, {"b", times(1.005)}})).comparisons.at(0);
  EXPECT_EQ(c.verdict, Verdict::first);
  EXPECT_TRUE(contains(c.text, "less than the 2 % that count as equal")) << c.text;
}

TEST(Analysis, Conditions_and_tracks_never_meet) {
  Results results = study({{"a", kBase}});
  for (const lab::Run& run : study({{"b", times(2)}}).runs) {
    results.runs.push_back(run);
    results.runs.back().condition.track = "as_shipped";
  }
  for (const lab::Run& run : study({{"c", times(2)}}).runs) {
    results.runs.push_back(run);
    results.runs.back().condition.batch = 10;
  }
  const Analysis analysis = analyse(results);
  EXPECT_EQ(analysis.summaries.size(), 3u);
  EXPECT_TRUE(analysis.comparisons.empty());
}

TEST(Analysis, Pairs_are_matched_by_block_not_by_order) {
  // Each block has its own pace; matched by block the ratio is exact, by order it would be noise.
  Results results;
  for (int64_t block = 0; block < 10; ++block) {
    const double pace = 1 + 0.2 * static_cast<double>((block * 7) % 10);
    results.runs.push_back(simulated_run("a", block, "step.latency_s", pace));
    results.runs.insert(results.runs.begin(), simulated_run("b", block, "step.latency_s", 1.1 * pace));
  }
  results.runs.erase(results.runs.begin());  // b lost its last block
  const Analysis analysis = analyse(results);
  const Comparison& c = analysis.comparisons.at(0);
  EXPECT_TRUE(c.paired);
  EXPECT_EQ(c.runs, 9u);
  EXPECT_NEAR(c.ratio.low, 1.1, 1e-12);
  EXPECT_NEAR(c.ratio.high, 1.1, 1e-12);
  const Summary* summary = analysis.summary(lenet_training(), "step.latency_s", "b");
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->blocks, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Analysis, Runs_without_common_blocks_are_compared_unpaired) {
  Results results = study({{"a", kBase}});
  for (lab::Run run : study({{"b", times(1.5)}}).runs) {
    run.block += 100;
    results.runs.push_back(run);
  }
  const Comparison c = analyse(results).comparisons.at(0);
  EXPECT_FALSE(c.paired);
  EXPECT_EQ(c.test, "Mann-Whitney, exact");
  EXPECT_EQ(c.verdict, Verdict::first);
  EXPECT_NEAR(c.p, 2.0 / 12870, 1e-12);
}

TEST(Analysis, Control_runs_are_in_no_summary) {
  Results results = study({{"a", kBase}});
  add_control(results, "a", times(100));
  const Analysis analysis = analyse(results);
  ASSERT_EQ(analysis.summaries.size(), 1u);
  EXPECT_EQ(analysis.summaries[0].values.size(), 8u);
  EXPECT_LT(analysis.summaries[0].statistics.at("maximum"), 2);
  EXPECT_TRUE(analysis.comparisons.empty());
}

TEST(Analysis, A_condition_without_a_control_takes_the_worst_of_its_phase_and_device) {
  Results results = study({{"a", kBase}, {"b", times(1.5)}});
  add_control(results, "a", times(1.01));
  for (const lab::Run& run : study({{"a", kBase}, {"b", times(1.5)}}).runs) {
    results.runs.push_back(run);
    results.runs.back().condition.batch = 10;
  }
  const Analysis analysis = analyse(results);
  Condition other = lenet_training();
  other.batch = 10;
  ASSERT_TRUE(analysis.noise_floor(other, "step.latency_s"));
  EXPECT_TRUE(contains(analysis.comparison(other, "step.latency_s", "b", "a")->text,
                       "taken from lenet train, batch 100, cpu, f32, is"));
  other.device = "cuda:0";
  EXPECT_FALSE(analysis.noise_floor(other, "step.latency_s"));
  EXPECT_FALSE(analysis.noise_floor(lenet_training(), "rss.peak_mib"));
}

TEST(Analysis, Each_comparison_is_held_against_the_larger_floor_of_its_own_two_systems) {
  Results results = study({{"a", kBase}, {"b", times(1.5)}, {"c", times(3)}});
  add_control(results, "a", times(1.01));
  add_control(results, "b", times(1.5 * 1.04));
  const Analysis two = analyse(results);
  const auto floor = [](const Analysis& analysis, const char* a, const char* b) {
    return *analysis.comparison(lenet_training(), "step.latency_s", a, b)->noise;
  };
  EXPECT_NEAR(floor(two, "a", "b"), 0.05, 0.02);
  EXPECT_EQ(floor(two, "a", "b"), floor(two, "a", "c")) << "c has no control: the worst stands in";
  add_control(results, "c", times(3 * 1.3));
  const Analysis three = analyse(results);
  EXPECT_EQ(floor(three, "a", "b"), floor(two, "a", "b")) << "what c does says nothing about a and b";
  EXPECT_NEAR(floor(three, "a", "c"), 0.3, 0.03);
  EXPECT_EQ(three.noise_floor(lenet_training(), "step.latency_s")->system, "c");
}

TEST(Analysis, Disturbed_runs_that_were_kept_decide_nothing) {
  Results results = study({{"a", kBase}, {"b", times(30)}});
  ASSERT_EQ(analyse(results).comparisons.at(0).verdict, Verdict::first);
  results.runs[3].disturbed = "others: other processes used 0.98 cores";
  const Analysis analysis = analyse(results);
  const Comparison& c = analysis.comparisons.at(0);
  EXPECT_EQ(c.verdict, Verdict::undecided);
  EXPECT_FALSE(c.can_decide);
  EXPECT_EQ(c.disturbed, 1u);
  EXPECT_TRUE(contains(c.text,
                       "Not decided between a and b in step time here: other work on the machine disturbed 1 "
                       "of 16 runs"))
      << c.text;
  EXPECT_EQ(analysis.disturbances.kept, 1u);
  // Nor are two called equal by them, nor does such a control say how wide the noise is.
  Results equal = study({{"a", kBase}, {"b", kBase}});
  add_control(equal, "a", times(1.001));
  for (lab::Run& run : equal.runs) run.disturbed = "others: many";
  EXPECT_EQ(analyse(equal).comparisons.at(0).verdict, Verdict::undecided);
  EXPECT_TRUE(analyse(equal).noise.empty());
  // What is counted is the same on a busy machine.
  Results lines = study({{"a", std::vector<double>(8, 45)}, {"b", std::vector<double>(8, 60)}}, "code.lines");
  for (lab::Run& run : lines.runs) run.disturbed = "others: many";
  EXPECT_EQ(analyse(lines).comparisons.at(0).verdict, Verdict::first);
}

// Controls 1.4 times off leave a ratio of 1.2 undecided; a busy machine must not decide it by taking the controls away.
TEST(Analysis, A_disturbed_control_makes_no_verdict_easier) {
  const auto controlled = [] {
    Results results = study({{"a", kBase}, {"b", times(1.2)}});
    add_control(results, "a", times(1.4));
    add_control(results, "b", times(1.2 * 1.4));
    return results;
  };
  ASSERT_EQ(analyse(controlled()).comparisons.at(0).verdict, Verdict::undecided);
  Results one = controlled(), kept = controlled(), left_out = controlled();
  for (lab::Run& run : one.runs)
    if (!run.control.empty() && run.block == 3) run.disturbed = "others: many";
  for (lab::Run& run : kept.runs)
    if (!run.control.empty()) run.disturbed = "others: many";
  for (lab::Run& run : left_out.runs)
    if (!run.control.empty()) {
      run.disturbed = run.why = "others: many";
      run.status = Status::disturbed;
    }
  EXPECT_EQ(analyse(one).comparisons.at(0).verdict, Verdict::undecided);
  EXPECT_EQ(analyse(one).noise.at(0).runs, 7u) << "the pairs that nothing disturbed measure the floor";
  for (const Results* lost : {&kept, &left_out}) {
    const Comparison c = analyse(*lost).comparisons.at(0);
    EXPECT_EQ(c.verdict, Verdict::undecided);
    EXPECT_FALSE(c.can_decide);
    EXPECT_TRUE(contains(c.text, "other work on the machine disturbed the control runs of a and of b"))
        << c.text;
  }
}

TEST(Analysis, Runs_that_were_left_out_as_disturbed_are_a_gap_and_are_told_where_runs_are_missing) {
  Results results = study({{"a", kBase}, {"b", times(30)}});
  for (size_t i = 0; i < 4; ++i) {
    results.runs[i].status = Status::disturbed;
    results.runs[i].disturbed = results.runs[i].why = "others: other processes used 0.98 cores";
    results.runs.push_back(results.runs[i]);  // the repeat was no better
  }
  const Analysis analysis = analyse(results);
  EXPECT_EQ(analysis.disturbances.disturbed, 8u);
  EXPECT_EQ(analysis.disturbances.left_out, 4u);
  ASSERT_EQ(analysis.gaps.size(), 1u);
  EXPECT_EQ(analysis.gaps[0].status, Status::disturbed);
  EXPECT_EQ(analysis.gaps[0].runs, 4u);
  const Comparison& c = analysis.comparisons.at(0);
  EXPECT_EQ(c.verdict, Verdict::undecided);
  EXPECT_EQ(c.left_out, 4u);
  EXPECT_TRUE(contains(c.text, "4 runs were left out, which other work on the machine disturbed")) << c.text;
  // A repeat that went well replaces them.
  for (size_t i = 0; i < 4; ++i) {
    lab::Run run = results.runs[i];
    run.status = Status::ok, run.disturbed = run.why = "";
    results.runs.push_back(run);
  }
  const Analysis repeated = analyse(results);
  EXPECT_EQ(repeated.disturbances.left_out, 0u);
  EXPECT_TRUE(repeated.gaps.empty());
  EXPECT_EQ(repeated.comparisons.at(0).verdict, Verdict::first);
}

TEST(Analysis, What_the_machine_did_is_not_compared_between_systems) {
  Results results = study({{"a", kBase}, {"b", times(2)}}, "machine.others_cores");
  const Analysis analysis = analyse(results);
  EXPECT_TRUE(analysis.comparisons.empty());
  EXPECT_TRUE(analysis.summaries.empty());
  EXPECT_EQ(analysis.disturbances.recorded, 16u);
  EXPECT_EQ(analyse(study({{"a", kBase}})).disturbances.recorded, 0u) << "an older record";
}

TEST(Analysis, Summaries_hold_what_the_tables_show) {
  const Analysis analysis = analyse(study({{"a", kBase}}));
  const Summary& summary = analysis.summaries.at(0);
  EXPECT_DOUBLE_EQ(summary.median.value, 1.0);
  EXPECT_LE(summary.median.low, 1.0);
  EXPECT_GE(summary.median.high, 1.0);
  EXPECT_NEAR(summary.statistics.at("mean"), 1.0, 1e-12);
  EXPECT_NEAR(summary.statistics.at("deviation"), 0.0130931, 1e-6);
  EXPECT_EQ(summary.statistics.at("minimum"), 0.98);
  EXPECT_EQ(summary.statistics.at("maximum"), 1.02);
  EXPECT_GT(summary.statistics.at("p_lilliefors"), 0.1);
  EXPECT_LT(summary.statistics.at("p_ks"), 0.001);  // seconds are no standard normal
  std::vector<double> sorted = kBase;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_NEAR(
      summary.statistics.at("spread"),
      (stats::sorted_quantile(sorted, 0.75) - stats::sorted_quantile(sorted, 0.25)) / summary.median.value,
      1e-12);
  EXPECT_FALSE(analyse(study({{"a", {1, 2, 3, 4}}})).summaries.at(0).statistics.count("p_lilliefors"));
  EXPECT_FALSE(analyse(study({{"a", {3, 3, 3, 3, 3}}})).summaries.at(0).statistics.count("p_lilliefors"));
}

TEST(Analysis, Runs_that_failed_are_gaps_grouped_by_kind) {
  Results results = study({{"a", kBase}});
  for (int64_t block = 0; block < 5; ++block) {
    lab::Run run = simulated_run("b", block, "step.latency_s", 1);
    run.status = block < 3 ? Status::out_of_memory : Status::hung;
    run.why = "why";
    run.last_words = "last words";
    results.runs.push_back(run);
  }
  // A run that failed once and was then measured is no gap.
  lab::Run once = simulated_run("a", 0, "step.latency_s", 1);
  once.status = Status::crashed;
  results.runs.insert(results.runs.begin(), once);
  const Analysis analysis = analyse(results);
  ASSERT_EQ(analysis.gaps.size(), 2u);
  EXPECT_EQ(analysis.gaps[0].system, "b");
  EXPECT_EQ(analysis.gaps[0].status, Status::out_of_memory);
  EXPECT_EQ(analysis.gaps[0].runs, 3u);
  EXPECT_EQ(analysis.gaps[0].last_words, "last words");
  EXPECT_EQ(analysis.gaps[1].status, Status::hung);
  EXPECT_EQ(analysis.gaps[1].runs, 2u);
  EXPECT_FALSE(analysis.summary(lenet_training(), "step.latency_s", "b"));
}

TEST(Analysis, A_loss_that_diverged_is_a_gap_not_a_number) {
  Results results = study({{"a", {0.1, std::numeric_limits<double>::quiet_NaN(), 0.2}}}, "fit.loss");
  const Analysis analysis = analyse(results);
  EXPECT_EQ(analysis.summaries.at(0).values.size(), 2u);
  ASSERT_EQ(analysis.gaps.size(), 1u);
  EXPECT_EQ(analysis.gaps[0].why, "fit.loss was not a finite number");
}

TEST(Analysis, A_run_taken_twice_counts_once_and_the_last_holds) {
  Results results = study({{"a", kBase}});
  results.runs.push_back(simulated_run("a", 0, "step.latency_s", 5));
  const Summary summary = analyse(results).summaries.at(0);
  EXPECT_EQ(summary.values.size(), 8u);
  EXPECT_EQ(summary.values[0], 5);
}

TEST(Analysis, Zeros_and_single_runs_break_nothing) {
  const std::vector<double> zeros(8, 0.0);
  const Comparison both = analyse(study({{"a", zeros}, {"b", zeros}}, "monitor.percent")).comparisons.at(0);
  EXPECT_EQ(both.verdict, Verdict::equivalent) << both.text;
  EXPECT_EQ(both.ratio.value, 1);
  const Comparison one = analyse(study({{"a", zeros}, {"b", kBase}}, "monitor.percent")).comparisons.at(0);
  EXPECT_EQ(one.verdict, Verdict::first);
  EXPECT_TRUE(contains(one.text, "a has a lower processor time of the monitor than b here, by 1 %"))
      << one.text;
  const Comparison swapped =
      analyse(study({{"a", kBase}, {"b", zeros}}, "monitor.percent")).comparisons.at(0);
  EXPECT_EQ(swapped.verdict, Verdict::second) << swapped.text;
  const Comparison single = analyse(study({{"a", {1}}, {"b", {2}}})).comparisons.at(0);
  EXPECT_FALSE(single.can_decide);
  EXPECT_EQ(single.verdict, Verdict::undecided);
  EXPECT_TRUE(contains(single.text, "1 run is too few")) << single.text;
  EXPECT_TRUE(analyse({}).summaries.empty());
  AnalysisOptions bad;
  bad.level = 0.7;
  EXPECT_TRUE(contains(message_of<Error>([&] { analyse({}, bad); }), "level must lie"));
}

TEST(Analysis, A_constant_is_a_fact_without_a_test) {
  const std::vector<double> few(8, 45), more(8, 60);
  const Analysis counted = analyse(study({{"a", few}, {"b", more}, {"c", few}}, "code.lines"));
  const Comparison& c = *counted.comparison(lenet_training(), "code.lines", "a", "b");
  EXPECT_TRUE(c.constant);
  EXPECT_EQ(c.verdict, Verdict::first);
  EXPECT_TRUE(std::isnan(c.p) && std::isnan(c.p_holm));
  EXPECT_FALSE(c.at_floor);
  EXPECT_EQ(c.text, "In lines of code here: 45 with a, 60 with b, a ratio of 1.33; the same in every run.");
  const Comparison& same = *counted.comparison(lenet_training(), "code.lines", "a", "c");
  EXPECT_EQ(same.verdict, Verdict::equivalent);
  EXPECT_EQ(same.text, "a and c are equal in lines of code here: 45, the same in every run.");
  // What is counted is counted once; what is measured may only seem constant.
  EXPECT_EQ(analyse(study({{"a", {45}}, {"b", {60}}}, "code.lines")).comparisons.at(0).verdict,
            Verdict::first);
  const Comparison seems =
      analyse(study({{"a", {45, 45}}, {"b", {60, 60}}}, "rss.peak_mib")).comparisons.at(0);
  EXPECT_TRUE(seems.constant);
  EXPECT_EQ(seems.verdict, Verdict::undecided);
  EXPECT_TRUE(contains(seems.text, "2 runs are too few")) << seems.text;
  EXPECT_EQ(analyse(study({{"a", few}, {"b", more}}, "rss.peak_mib")).comparisons.at(0).verdict,
            Verdict::first);
}

TEST(Analysis, A_constant_is_not_counted_in_Holms_family) {
  // Of three comparisons one is of constants: two share the correction.
  const Analysis analysis = analyse(study(
      {{"a", std::vector<double>(8, 1)}, {"b", std::vector<double>(8, 2)}, {"c", times(3)}}, "rss.peak_mib"));
  EXPECT_TRUE(analysis.comparison(lenet_training(), "rss.peak_mib", "a", "b")->constant);
  const Comparison& tested = *analysis.comparison(lenet_training(), "rss.peak_mib", "a", "c");
  EXPECT_FALSE(tested.constant);
  EXPECT_DOUBLE_EQ(tested.p_holm, 2 * tested.p);
}

TEST(Analysis, Throughput_says_of_two_systems_what_the_time_of_a_step_says) {
  stats::Random random(5);
  Results results = simulated_study({0.01, 0.0102, 0.011}, 8, 0.03, random, true, "step.throughput_s");
  for (lab::Run& run : results.runs) {
    run.metrics["samples_per_s"] = 100 / run.metrics["step.throughput_s"];
    run.metrics["step.call_s"] = run.metrics["step.throughput_s"] / 64;
  }
  const Analysis analysis = analyse(results);
  const NoiseFloor *time_floor = analysis.noise_floor(lenet_training(), "step.throughput_s"),
                   *rate_floor = analysis.noise_floor(lenet_training(), "samples_per_s");
  EXPECT_NEAR(time_floor->floor, rate_floor->floor, 1e-12);
  for (const auto& [a, b] : {std::pair("a", "b"), std::pair("a", "c"), std::pair("b", "c")}) {
    const Comparison &time = *analysis.comparison(lenet_training(), "step.throughput_s", a, b),
                     &rate = *analysis.comparison(lenet_training(), "samples_per_s", a, b),
                     &call = *analysis.comparison(lenet_training(), "step.call_s", a, b);
    EXPECT_NEAR(time.ratio.value * rate.ratio.value, 1, 1e-12);
    EXPECT_NEAR(time.ratio.low * rate.ratio.high, 1, 1e-12);
    EXPECT_NEAR(time.ratio.high * rate.ratio.low, 1, 1e-12);
    EXPECT_NEAR(time.ratio.low, call.ratio.low, 1e-12);
    EXPECT_EQ(time.verdict, rate.verdict);
  }
}

TEST(Analysis, One_run_has_no_interval) {
  const Comparison single = analyse(study({{"a", {1}}, {"b", {2}}})).comparisons.at(0);
  EXPECT_TRUE(contains(single.text, "(the ratio of b to a is 2.00, one run)")) << single.text;
}

void train_epochs(Results& results, const std::string& system, size_t epochs,
                  const std::string& control = "") {
  for (lab::Run& run : results.runs)
    if (run.system == system && run.control == control) run.epochs.resize(epochs);
}

TEST(Analysis, What_depends_on_the_epochs_is_compared_only_where_they_are_as_many) {
  for (const char* name : {"fit.total_s", "fit.accuracy", "fit.best_mse", "fit.best_epoch", "fit.test_loss",
                           "fit.accuracy_noise_0.10", "gpu.energy_j"}) {
    Results results = study({{"a", kBase}, {"b", times(0.5)}, {"c", times(2)}}, name);
    train_epochs(results, "a", 2);
    train_epochs(results, "b", 1);
    train_epochs(results, "c", 2);
    const Analysis analysis = analyse(results);
    ASSERT_EQ(analysis.comparisons.size(), 1u) << name;
    EXPECT_EQ(analysis.comparisons[0].first + analysis.comparisons[0].second, "ac");
    EXPECT_DOUBLE_EQ(analysis.comparisons[0].p_holm, analysis.comparisons[0].p) << "no other test was made";
    ASSERT_EQ(analysis.uncompared.size(), 2u) << name;
    EXPECT_EQ(analysis.uncompared[0].first_epochs, "2");
    EXPECT_EQ(analysis.uncompared[0].second_epochs, "1");
    EXPECT_TRUE(analysis.are_uncompared(lenet_training(), name, "b", "a"));
    EXPECT_EQ(analysis.epochs_text(lenet_training(), "b"), "1");
    EXPECT_EQ(analysis.summaries.size(), 3u) << "each is shown all the same";
  }
  for (const char* name : {"fit.epoch_s", "fit.first_epoch_s", "fit.test_s", "fit.memory_growth_mib",
                           "fit.time_to_0.90_s", "fit.energy_to_0.90_j", "step.energy_j", "rss.peak_mib"}) {
    Results results = study({{"a", kBase}, {"b", times(0.5)}}, name);
    train_epochs(results, "a", 2);
    train_epochs(results, "b", 1);
    EXPECT_EQ(analyse(results).comparisons.size(), 1u) << name;
  }
}

TEST(Analysis, One_run_that_its_cap_stopped_is_enough_and_holds_for_controls_and_switches) {
  Results results = study({{"a", kBase}, {"b", times(2)}}, "fit.total_s");
  add_control(results, "a", times(1.01), "fit.total_s");
  train_epochs(results, "a", 2);
  train_epochs(results, "b", 2);
  train_epochs(results, "a", 1, "A/A");
  EXPECT_TRUE(analyse(results).noise.empty());
  train_epochs(results, "a", 2, "A/A");
  EXPECT_EQ(analyse(results).noise.size(), 1u);
  results.runs[8].epochs.resize(1);  // b's first
  const Analysis analysis = analyse(results);
  EXPECT_TRUE(analysis.comparisons.empty());
  EXPECT_EQ(analysis.uncompared.at(0).second_epochs, "1 to 2");
  for (lab::Run& run : results.runs) {
    if (run.system == "a") run.condition.switches = {{"conv", "fixed"}};
    run.system = "a";
  }
  const Analysis turned = analyse(results);
  EXPECT_TRUE(turned.effects.empty());
  ASSERT_EQ(turned.uncompared.size(), 1u);
  EXPECT_TRUE(turned.uncompared[0].of_switch);
}

TEST(Analysis, Findings_do_not_depend_on_the_order_of_runs) {
  stats::Random random(3);
  Results results = simulated_study({0.01, 0.0102, 0.011}, 9, 0.02, random);
  const Analysis forward = analyse(results);
  std::reverse(results.runs.begin(), results.runs.end());
  const Analysis backward = analyse(results);
  ASSERT_EQ(forward.comparisons.size(), backward.comparisons.size());
  for (size_t i = 0; i < forward.comparisons.size(); ++i)
    EXPECT_EQ(forward.comparisons[i].text, backward.comparisons[i].text);
}

TEST(Metrics, The_list_is_that_of_the_documentation) {
  const std::string page = read_text(TANDEM_SOURCE_DIR "/lab/docs/metrics.md");
  std::set<std::string> documented, known;
  const std::regex row("\n\\| (`[^|]*`) \\|"), name("`([^`]+)`");
  for (std::sregex_iterator i(page.begin(), page.end(), row), end; i != end; ++i) {
    const std::string cell = (*i)[1];
    for (std::sregex_iterator j(cell.begin(), cell.end(), name); j != end; ++j) documented.insert((*j)[1]);
  }
  for (const Metric& each : metrics())
    EXPECT_TRUE(known.insert(each.name).second) << each.name << " stands twice";
  EXPECT_EQ(known, documented);
}

TEST(Metrics, Thresholds_and_strangers_are_read_too) {
  EXPECT_EQ(metric("fit.time_to_0.97_s").label, "time to 0.97 in the test");
  EXPECT_EQ(metric("fit.energy_to_0.97_j").unit, "J");
  EXPECT_EQ(metric("samples_per_s").better, Metric::Better::more);
  EXPECT_EQ(metric("my.own").label, "my.own");
  EXPECT_EQ(metric("my.own").better, Metric::Better::neither);
  EXPECT_EQ(metric("fit.time_to__s").better, Metric::Better::neither);
}

// A study of paper size: 4 systems, 31 metrics, 3 conditions, 100 runs.
TEST(Analysis, A_large_study_is_read_whole) {
  stats::Random random(9);
  Results results;
  for (int64_t batch = 1; batch <= 3; ++batch)
    for (lab::Run run : simulated_study({1, 1.1, 1.2, 1.3}, 100, 0.02, random).runs) {
      run.condition.batch = batch;
      for (int i = 0; i < 30; ++i) run.metrics["metric." + std::to_string(i)] = run.metrics["step.latency_s"];
      results.runs.push_back(run);
    }
  EXPECT_EQ(analyse(results).comparisons.size(), 3u * 31 * 6);
}

TEST(Analysis, ASwitchIsComparedWithinItsSystemWhereNothingElseDiffers) {
  Results results;
  const auto add = [&](const std::string& system, std::map<std::string, std::string> switches, double factor,
                       const std::string& control = "") {
    for (size_t i = 0; i < kBase.size(); ++i) {
      lab::Run run = simulated_run(system, static_cast<int64_t>(i), "step.latency_s", times(factor)[i]);
      run.condition.switches = switches;
      run.control = control;
      results.runs.push_back(run);
    }
  };
  add("tandem:graph", {{"conv", "fixed"}}, 1.4);
  add("tandem:graph", {{"conv", "heuristic"}}, 1.0);
  add("tandem:graph", {{"conv", "profile"}}, 1.0005);
  add("tandem:graph", {{"conv", "fixed"}, {"graph", "off"}}, 2);
  add("tandem:graph", {{"conv", "heuristic"}}, 1.003, "A/A");
  add("pytorch:eager", {{"conv", "heuristic"}}, 3);
  lab::Run other = simulated_run("pytorch:eager", 0, "step.latency_s", 1);
  other.condition.batch += 1;
  other.condition.switches = {{"conv", "profile"}};
  results.runs.push_back(other);

  const Analysis analysis = analyse(results);
  ASSERT_EQ(analysis.effects.size(), 4u);  // three among the modes, one of graph; none of pytorch:eager
  const auto effect = [&](const std::string& first, const std::string& second) -> const Comparison& {
    for (const Effect& e : analysis.effects)
      if (e.comparison.first == "tandem:graph with " + first &&
          e.comparison.second == "tandem:graph with " + second)
        return e.comparison;
    ADD_FAILURE() << first << " against " << second;
    return analysis.effects[0].comparison;
  };
  const Comparison& mode = effect("conv=fixed", "conv=heuristic");
  EXPECT_EQ(mode.verdict, Verdict::second);
  EXPECT_NEAR(mode.ratio.value, 1 / 1.4, 1e-3);
  EXPECT_TRUE(mode.condition.switches.empty());
  EXPECT_NEAR(mode.p_holm, 3 * mode.p, 1e-12);  // the three modes are one family
  EXPECT_TRUE(contains(mode.text,
                       "tandem:graph with conv=heuristic is 1.40× faster to train than tandem:graph with "
                       "conv=fixed here"))
      << mode.text;
  EXPECT_TRUE(contains(mode.text, "; the noise floor is 0.")) << mode.text;
  EXPECT_EQ(effect("conv=heuristic", "conv=profile").verdict, Verdict::equivalent);
  EXPECT_EQ(effect("conv=fixed", "conv=fixed, graph=off").verdict, Verdict::first);
  EXPECT_EQ(effect("conv=fixed", "conv=profile").verdict, Verdict::second);
}

}  // namespace
}  // namespace tandem::lab
