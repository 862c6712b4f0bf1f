// Every kind of check, on made-up results that it must confirm, contradict and leave open.
#include "lab/src/claims/judge.h"

#include <gtest/gtest.h>

#include "lab/src/files/toml.h"
#include "lab/tests/claims/made_up.h"

namespace tandem::lab {
namespace {

const std::string kA = "pytorch:eager", kB = "tensorflow:function", kC = "tandem:graph";

/// A ledger of one claim: the keys of its check, and its `where`.
Ledger one_claim(const std::string& keys, const std::string& where = "") {
  const std::string text = "paper = \"000\"\n[[claim]]\nid = \"000.x\"\nsource = \"s\"\ntext = \"t\"\n" +
                           keys + (where.empty() ? "" : "\nwhere = { " + where + " }") + "\n";
  return parse_ledger(parse_toml(text, "one.toml"), "one.toml");
}

Judgement judged(const Ledger& ledger, const MadeUp& made) {
  const Analysis analysis = made.analysis();
  const std::vector<Judgement> all = judge(ledger, made.results(), analysis);
  EXPECT_EQ(all.size(), 1u);
  EXPECT_FALSE(all.at(0).reason.empty());
  return all.at(0);
}

const Condition kTrain = condition_of("lenet", "train");
const std::string kTime = "step.throughput_s";

TEST(JudgeOrder, HoldsFailsAndStaysOpen) {
  const Ledger ledger = one_claim("kind = \"order\"\nmetric = \"step.throughput_s\"\nless = \"" + kA +
                                  "\"\nmore = \"" + kB + "\"");
  MadeUp clear;
  clear.add(kTrain, kA, kTime, 0.010).add(kTrain, kB, kTime, 0.015);
  const Judgement holds = judged(ledger, clear);
  EXPECT_EQ(holds.mark, Mark::holds);
  ASSERT_TRUE(holds.estimate);
  EXPECT_NEAR(holds.estimate->value, 1.5, 0.05);
  EXPECT_LT(holds.estimate->low, holds.estimate->high);

  MadeUp turned;
  turned.add(kTrain, kA, kTime, 0.015).add(kTrain, kB, kTime, 0.010);
  EXPECT_EQ(judged(ledger, turned).mark, Mark::no_longer);

  MadeUp same;  // indistinguishable and far within 2 %: equivalent, so the claim of an order falls
  same.add(kTrain, kA, kTime, 0.010, 0.001, 30).add(kTrain, kB, kTime, 0.010, 0.001, 30);
  EXPECT_EQ(judged(ledger, same).mark, Mark::no_longer);

  MadeUp noisy;
  noisy.add(kTrain, kA, kTime, 0.010, 0.4).add(kTrain, kB, kTime, 0.0101, 0.4);
  EXPECT_EQ(judged(ledger, noisy).mark, Mark::undecided);

  MadeUp few;  // three pairs cannot decide, however far apart they are
  few.add(kTrain, kA, kTime, 0.010, 0.01, 3).add(kTrain, kB, kTime, 0.015, 0.01, 3);
  EXPECT_EQ(judged(ledger, few).mark, Mark::undecided);
}

TEST(JudgeEpochs, FitsOfOtherNumbersOfEpochsDecideNoClaim) {
  const Condition fit = condition_of("lenet", "fit");
  const auto made = [&](size_t epochs) {
    MadeUp result;
    result.add(fit, kA, "fit.total_s", 1.0).add(fit, kB, "fit.total_s", 2.0).add(fit, kA, "fit.epoch_s", 1.0);
    result.add(fit, kB, "fit.epoch_s", 2.0);
    for (int64_t block = 0; block < 10; ++block) {
      result.run_of(fit, kA, block).epochs.resize(epochs);
      result.run_of(fit, kB, block).epochs.resize(2);
    }
    return result;
  };
  const std::string a = "\"" + kA + "\"", b = "\"" + kB + "\"", total = "metric = \"fit.total_s\"\n",
                    where = "\nwhere = { phase = \"fit\" }";
  for (const std::string& claim :
       {"kind = \"order\"\n" + total + "less = " + a + "\nmore = " + b + where,
        "kind = \"ratio\"\n" + total + "of = " + b + "\nto = " + a + "\nlow = 1.5\nhigh = 2.5" + where,
        "kind = \"extreme\"\n" + total + "system = " + a + "\nend = \"lowest\"\namong = [" + a + ", " + b +
            "]" + where}) {
    EXPECT_EQ(judged(one_claim(claim), made(2)).mark, Mark::holds) << claim;
    EXPECT_EQ(judged(one_claim(claim), made(1)).mark, Mark::undecided) << claim;
  }
  const Judgement order =
      judged(one_claim("kind = \"order\"\n" + total + "less = " + a + "\nmore = " + b + where), made(1));
  EXPECT_NE(order.reason.find("they trained different numbers of epochs"), std::string::npos) << order.reason;
  EXPECT_EQ(
      judged(one_claim("kind = \"order\"\nmetric = \"fit.epoch_s\"\nless = " + a + "\nmore = " + b + where),
             made(1))
          .mark,
      Mark::holds)
      << "the time of an epoch does not depend on their number";
}

TEST(JudgeOrder, DecidesAlsoWhereNeitherIsBetter) {
  const Ledger ledger =
      one_claim("kind = \"order\"\nmetric = \"cpu.percent\"\nless = \"" + kA + "\"\nmore = \"" + kB + "\"");
  MadeUp clear;
  clear.add(kTrain, kA, "cpu.percent", 40).add(kTrain, kB, "cpu.percent", 80);
  EXPECT_EQ(judged(ledger, clear).mark, Mark::holds);
  MadeUp turned;
  turned.add(kTrain, kA, "cpu.percent", 80).add(kTrain, kB, "cpu.percent", 40);
  EXPECT_EQ(judged(ledger, turned).mark, Mark::no_longer);
}

TEST(JudgeOrder, MoreOfAMetricIsReadAsANumberAndNotAsBetter) {
  const Ledger ledger =
      one_claim("kind = \"order\"\nmetric = \"samples_per_s\"\nless = \"" + kA + "\"\nmore = \"" + kB + "\"");
  MadeUp made;
  made.add(kTrain, kA, "samples_per_s", 100).add(kTrain, kB, "samples_per_s", 150);
  EXPECT_EQ(judged(ledger, made).mark, Mark::holds);
}

TEST(JudgeOrder, NotMeasuredSaysWhy) {
  const Ledger ledger =
      one_claim("kind = \"order\"\nmetric = \"gpu.percent\"\nless = \"" + kA + "\"\nmore = \"" + kB + "\"");
  MadeUp made;
  made.add(kTrain, kA, kTime, 0.01).add(kTrain, kB, kTime, 0.01);
  made.run_of(kTrain, kA, 0).unavailable["gpu.percent"] = "there is no NVIDIA driver";
  const Judgement judgement = judged(ledger, made);
  EXPECT_EQ(judgement.mark, Mark::not_measured);
  EXPECT_NE(judgement.reason.find("no NVIDIA driver"), std::string::npos) << judgement.reason;
  EXPECT_FALSE(judgement.estimate);
}

TEST(JudgeTracks, ARunOfAnotherTrackIsNeverLookedAt) {
  const Ledger ledger = one_claim("kind = \"order\"\nmetric = \"step.throughput_s\"\nless = \"" + kA +
                                  "\"\nmore = \"" + kB + "\"");
  Condition shipped = kTrain;
  shipped.track = "as_shipped";
  MadeUp made;
  made.add(shipped, kA, kTime, 0.010).add(shipped, kB, kTime, 0.015);
  EXPECT_EQ(judged(ledger, made).mark, Mark::not_measured);
  made.add(kTrain, kA, kTime, 0.010);  // the other member is only there as shipped
  EXPECT_EQ(judged(ledger, made).mark, Mark::not_measured);
}

TEST(JudgeDevices, TheFirstKindThatHasRunsCounts) {
  const Ledger ledger = one_claim("kind = \"order\"\nmetric = \"step.throughput_s\"\nless = \"" + kA +
                                  "\"\nmore = \"" + kB + "\"");
  Condition gpu = kTrain;
  gpu.device = "cuda:0";
  MadeUp made;
  made.add(kTrain, kA, kTime, 0.010).add(kTrain, kB, kTime, 0.015);
  made.add(gpu, kA, kTime, 0.003).add(gpu, kB, kTime, 0.002);
  EXPECT_EQ(judged(ledger, made).mark, Mark::no_longer);
}

TEST(JudgeMost, HalfOfTheConditionsAreNotMost) {
  const std::string keys =
      "kind = \"order\"\nmetric = \"step.throughput_s\"\nless = \"" + kA + "\"\nmore = \"" + kB + "\"\n";
  MadeUp made;
  for (const int64_t batch : {8, 16, 32}) {
    const bool agrees = batch != 32;
    made.add(condition_of("lenet", "train", batch), kA, kTime, agrees ? 0.010 : 0.020);
    made.add(condition_of("lenet", "train", batch), kB, kTime, 0.015);
  }
  EXPECT_EQ(judged(one_claim(keys), made).mark,
            Mark::no_longer);  // about each condition: one contradicts
  EXPECT_EQ(judged(one_claim(keys + "most = true"), made).mark, Mark::holds);
  EXPECT_EQ(judged(one_claim(keys, "batch = [8]"), made).mark, Mark::holds);
}

TEST(JudgeRatio, TheWholeIntervalMustLieWithin) {
  const auto ledger = [&](double low, double high) {
    return one_claim("kind = \"ratio\"\nmetric = \"step.throughput_s\"\nof = \"" + kB + "\"\nto = \"" + kA +
                     "\"\nlow = " + std::to_string(low) + "\nhigh = " + std::to_string(high));
  };
  MadeUp made;
  made.add(kTrain, kA, kTime, 0.010).add(kTrain, kB, kTime, 0.012);
  const Judgement holds = judged(ledger(1.1, 1.3), made);
  EXPECT_EQ(holds.mark, Mark::holds);
  EXPECT_NEAR(holds.estimate->value, 1.2, 0.03);
  EXPECT_EQ(judged(ledger(1.5, 2.6), made).mark, Mark::no_longer);
  EXPECT_EQ(judged(ledger(holds.estimate->value, 2.6), made).mark, Mark::undecided);
}

TEST(JudgeRatio, AnIntervalOverFewRunsDecidesNothing) {
  const Ledger ledger = one_claim("kind = \"ratio\"\nmetric = \"step.throughput_s\"\nof = \"" + kB +
                                  "\"\nto = \"" + kA + "\"\nlow = 1.1\nhigh = 1.3");
  MadeUp few;
  few.add(kTrain, kA, kTime, 0.010, 0.01, 5).add(kTrain, kB, kTime, 0.012, 0.01, 5);
  EXPECT_EQ(judged(ledger, few).mark, Mark::undecided);
  MadeUp enough;
  enough.add(kTrain, kA, kTime, 0.010, 0.01, 6).add(kTrain, kB, kTime, 0.012, 0.01, 6);
  EXPECT_EQ(judged(ledger, enough).mark, Mark::holds);
}

TEST(JudgeEqual, NeedsEvidenceOfEqualityAndNotItsLackOfDifference) {
  const std::string keys =
      "kind = \"equal\"\nmetric = \"step.throughput_s\"\nsystems = [\"" + kA + "\", \"" + kB + "\"]\n";
  MadeUp same;
  same.add(kTrain, kA, kTime, 0.010, 0.001, 30).add(kTrain, kB, kTime, 0.010, 0.001, 30);
  EXPECT_EQ(judged(one_claim(keys), same).mark, Mark::holds);
  EXPECT_EQ(judged(one_claim(keys + "within = 0.08"), same).mark, Mark::holds);
  MadeUp apart;
  apart.add(kTrain, kA, kTime, 0.010).add(kTrain, kB, kTime, 0.012);
  EXPECT_EQ(judged(one_claim(keys), apart).mark, Mark::no_longer);
  EXPECT_EQ(judged(one_claim(keys + "within = 0.08"), apart).mark, Mark::no_longer);
  EXPECT_EQ(judged(one_claim(keys + "within = 0.40"), apart).mark, Mark::holds);
  MadeUp noisy;
  noisy.add(kTrain, kA, kTime, 0.010, 0.4).add(kTrain, kB, kTime, 0.0101, 0.4);
  EXPECT_EQ(judged(one_claim(keys), noisy).mark, Mark::undecided);
}

TEST(JudgeLevel, TheMediansIntervalDecides) {
  const std::string keys = "kind = \"level\"\nmetric = \"fit.accuracy\"\nsystems = [\"" + kA + "\"]\n";
  const Condition fit = condition_of("lenet", "fit");
  MadeUp made;
  made.add(fit, kA, "fit.accuracy", 0.98, 0.001);
  EXPECT_EQ(judged(one_claim(keys + "low = 0.97\nhigh = 0.99"), made).mark, Mark::holds);
  EXPECT_EQ(judged(one_claim(keys + "high = 0.9"), made).mark, Mark::no_longer);
  EXPECT_EQ(judged(one_claim(keys + "low = 0.98"), made).mark, Mark::undecided);
  for (int64_t block = 10; block < 40; ++block) {  // disturbed runs that were kept count for nothing
    lab::Run& run = made.run_of(fit, kA, block);
    run.metrics["fit.accuracy"] = 0.2;
    run.disturbed = "others: many";
  }
  EXPECT_EQ(judged(one_claim(keys + "low = 0.97\nhigh = 0.99"), made).mark, Mark::holds);
  MadeUp once;
  once.add(fit, kA, "fit.accuracy", 0.98, 0.001, 1);
  EXPECT_EQ(judged(one_claim(keys + "low = 0.97\nhigh = 0.99"), once).mark, Mark::undecided);
}

/// Claims about what was learned, one of each kind that the ledger has; all of them hold for `learned()`.
std::vector<Ledger> claims_about_learning() {
  const std::string a = "\"" + kA + "\"", b = "\"" + kB + "\"", both = "[" + a + ", " + b + "]";
  return {
      one_claim("kind = \"level\"\nmetric = \"fit.accuracy\"\nsystems = " + both + "\nlow = 0.5"),
      one_claim("kind = \"level\"\nmetric = \"fit.best_accuracy\"\nsystems = [" + a + "]\nlow = 0.5"),
      one_claim("kind = \"level\"\nmetric = \"fit.loss\"\nsystems = [" + a + "]\nhigh = 1"),
      one_claim("kind = \"order\"\nmetric = \"fit.accuracy\"\nless = " + a + "\nmore = " + b),
      one_claim("kind = \"order\"\nmetric = \"fit.time_to_0.80_s\"\nless = " + a + "\nmore = " + b),
      one_claim("kind = \"ratio\"\nmetric = \"fit.energy_to_0.80_j\"\nof = " + b + "\nto = " + a +
                "\nlow = 1.1"),
      one_claim("kind = \"extreme\"\nmetric = \"fit.accuracy\"\nsystem = " + b + "\namong = " + both +
                "\nend = \"highest\""),
      one_claim("kind = \"equal\"\nmetric = \"fit.best_accuracy\"\nsystems = " + both + "\nwithin = 0.9"),
      one_claim("kind = \"correlation\"\nx = \"epoch\"\ny = \"test_accuracy\"\nlow = 0.5"),
  };
}

MadeUp learned(const std::string& data) {
  MadeUp made("000", data);
  const Condition fit = condition_of("lenet", "fit");
  made.add(fit, kA, "fit.accuracy", 0.7).add(fit, kB, "fit.accuracy", 0.9);
  made.add(fit, kA, "fit.best_accuracy", 0.7).add(fit, kB, "fit.best_accuracy", 0.9);
  made.add(fit, kA, "fit.loss", 0.3).add(fit, kB, "fit.loss", 0.1);
  made.add(fit, kA, "fit.time_to_0.80_s", 10).add(fit, kB, "fit.time_to_0.80_s", 15);
  made.add(fit, kA, "fit.energy_to_0.80_j", 10).add(fit, kB, "fit.energy_to_0.80_j", 15);
  made.add(fit, kA, "fit.epoch_s", 10).add(fit, kB, "fit.epoch_s", 15);
  for (int64_t block = 0; block < 10; ++block)
    for (int64_t epoch = 1; epoch <= 6; ++epoch)
      made.run_of(fit, kA, block)
          .epochs.push_back({epoch,
                             2.0,
                             0.1,
                             0.5,
                             0.4,
                             {{"accuracy", 0.5}},
                             {{"accuracy", 0.5 + 0.04 * static_cast<double>(epoch)}}});
  return made;
}

TEST(JudgeOnSyntheticData, WhatWasLearnedThereDecidesNothing) {
  for (const Ledger& ledger : claims_about_learning()) {
    const std::string kind = to_string(ledger.claims[0].kind) + " of " + ledger.claims[0].metrics.back();
    const Judgement real = judged(ledger, learned("mnist"));
    EXPECT_EQ(real.mark, Mark::holds) << kind << ": " << real.reason;
    EXPECT_EQ(real.data, "mnist");
    const Judgement synthetic = judged(ledger, learned("synthetic-mnist"));
    EXPECT_EQ(synthetic.mark, Mark::undecided) << kind;
    EXPECT_NE(synthetic.reason.find("measured on synthetic data (synthetic-mnist)"), std::string::npos)
        << synthetic.reason;
    EXPECT_EQ(synthetic.data, "synthetic-mnist");
    EXPECT_EQ(synthetic.ours, "") << "no number of ours stands beside the paper's";
    const Judgement unknown = judged(ledger, learned(""));
    EXPECT_EQ(unknown.mark, Mark::undecided) << kind;
    EXPECT_NE(unknown.reason.find("do not say on which data"), std::string::npos) << unknown.reason;
  }
}

TEST(JudgeOnSyntheticData, TimesAreJudgedAsEver) {
  const Ledger ledger =
      one_claim("kind = \"order\"\nmetric = \"fit.epoch_s\"\nless = \"" + kA + "\"\nmore = \"" + kB + "\"");
  EXPECT_EQ(judged(ledger, learned("synthetic-mnist")).mark, Mark::holds);
  EXPECT_EQ(judged(ledger, learned("synthetic-mnist")).data, "synthetic-mnist");
}

TEST(JudgeOnSyntheticData, RealDataDecidesBesideIt) {
  const Ledger ledger =
      one_claim("kind = \"level\"\nmetric = \"fit.accuracy\"\nsystems = [\"" + kA + "\"]\nlow = 0.5");
  for (const double accuracy : {0.9, 0.1}) {
    MadeUp made("000", "mnist");
    made.add(condition_of("lenet", "fit"), kA, "fit.accuracy", accuracy);
    for (int64_t block = 0; block < 10; ++block) {
      lab::Run& run = made.run_of(condition_of("cifar10_cnn", "fit"), kA, block);
      run.metrics["fit.accuracy"] = accuracy > 0.5 ? 0.1 : 0.9;  // the other way round
      run.data = "synthetic-cifar10";
    }
    const Judgement judgement = judged(ledger, made);
    EXPECT_EQ(judgement.mark, accuracy > 0.5 ? Mark::holds : Mark::no_longer) << judgement.reason;
    EXPECT_EQ(judgement.findings.size(), 2u);
    EXPECT_EQ(judgement.data, "mnist, synthetic-cifar10");
  }
  // A condition whose runs saw both is not one of real data.
  MadeUp mixed = learned("mnist");
  mixed.run_of(condition_of("lenet", "fit"), kA, 3).data = "synthetic-mnist";
  EXPECT_EQ(judged(ledger, mixed).mark, Mark::undecided);
}

TEST(JudgeLevel, RemovedNodesComeFromTheBreakdown) {
  MadeUp made;
  lab::Run& run = made.run_of(kTrain, kB, 0);
  run.breakdown = {{"nodes_before", 200},
                   {"nodes_after", 90},
                   {"passes",
                    {{"prune", {{"expensive", 0}, {"cheap", 10}, {"no_op", 80}}},
                     {"fold_constants", {{"expensive", 1}, {"cheap", 9}, {"no_op", 10}}}}}};
  const auto level = [&](const std::string& metric, const std::string& bounds) {
    return judged(
        one_claim("kind = \"level\"\nmetric = \"" + metric + "\"\nsystems = [\"" + kB + "\"]\n" + bounds),
        made);
  };
  EXPECT_DOUBLE_EQ(level("removed.share", "low = 0.5").estimate->value, 0.55);
  EXPECT_EQ(level("removed.share", "low = 0.5\nhigh = 0.6").mark, Mark::holds);
  EXPECT_NEAR(level("removed.no_op_share", "low = 0.8").estimate->value, 90.0 / 110, 1e-12);
  EXPECT_EQ(level("removed.expensive_share", "high = 0.01").mark, Mark::holds);
  EXPECT_EQ(level("removed.expensive_share", "high = 0.005").mark, Mark::no_longer);
  EXPECT_NEAR(level("removed.prune_share", "low = 0.4").estimate->value, 0.45, 1e-12);
  EXPECT_EQ(level("removed.layout_share", "low = 0.4").mark, Mark::not_measured);
}

TEST(JudgeExtreme, AgainstEachOther) {
  const Ledger ledger = one_claim("kind = \"extreme\"\nmetric = \"step.throughput_s\"\nsystem = \"" + kA +
                                  "\"\nend = \"lowest\"\namong = [\"" + kB + "\", \"" + kC + "\"]");
  MadeUp lowest;
  lowest.add(kTrain, kA, kTime, 0.010).add(kTrain, kB, kTime, 0.015).add(kTrain, kC, kTime, 0.020);
  EXPECT_EQ(judged(ledger, lowest).mark, Mark::holds);
  MadeUp middle;
  middle.add(kTrain, kA, kTime, 0.010).add(kTrain, kB, kTime, 0.015).add(kTrain, kC, kTime, 0.005);
  EXPECT_EQ(judged(ledger, middle).mark, Mark::no_longer);
  MadeUp without;  // one of the paper's systems is missing: lowest of those measured is not lowest of all
  without.add(kTrain, kA, kTime, 0.010).add(kTrain, kB, kTime, 0.015);
  EXPECT_EQ(judged(ledger, without).mark, Mark::undecided);
  MadeUp alone;
  alone.add(kTrain, kA, kTime, 0.010);
  EXPECT_EQ(judged(ledger, alone).mark, Mark::not_measured);
}

TEST(JudgeSpread, ByLevenesTest) {
  const Ledger ledger =
      one_claim("kind = \"spread\"\nmetric = \"cpu.percent\"\nless = \"" + kA + "\"\nmore = \"" + kB + "\"");
  MadeUp wider;
  wider.add(kTrain, kA, "cpu.percent", 50, 0.01, 40).add(kTrain, kB, "cpu.percent", 50, 0.2, 40);
  EXPECT_EQ(judged(ledger, wider).mark, Mark::holds);
  MadeUp narrower;
  narrower.add(kTrain, kA, "cpu.percent", 50, 0.2, 40).add(kTrain, kB, "cpu.percent", 50, 0.01, 40);
  EXPECT_EQ(judged(ledger, narrower).mark, Mark::no_longer);
  MadeUp same;
  same.add(kTrain, kA, "cpu.percent", 50, 0.1, 8).add(kTrain, kB, "cpu.percent", 50, 0.1, 8);
  EXPECT_EQ(judged(ledger, same).mark, Mark::undecided);
}

TEST(JudgeNoWinner, NeedsEachToBeBeatenSomewhere) {
  const Ledger ledger = one_claim("kind = \"no_winner\"\nmetric = \"step.throughput_s\"\namong = [\"" + kA +
                                  "\", \"" + kB + "\"]");
  const Condition other = condition_of("mnist_cnn", "train");
  MadeUp mixed;
  mixed.add(kTrain, kA, kTime, 0.010)
      .add(kTrain, kB, kTime, 0.015)
      .add(other, kA, kTime, 0.030)
      .add(other, kB, kTime, 0.020);
  EXPECT_EQ(judged(ledger, mixed).mark, Mark::holds);
  MadeUp one_sided;
  one_sided.add(kTrain, kA, kTime, 0.010)
      .add(kTrain, kB, kTime, 0.015)
      .add(other, kA, kTime, 0.020)
      .add(other, kB, kTime, 0.030);
  EXPECT_EQ(judged(ledger, one_sided).mark, Mark::no_longer);
  MadeUp single;
  single.add(kTrain, kA, kTime, 0.010).add(kTrain, kB, kTime, 0.015);
  EXPECT_EQ(judged(ledger, single).mark, Mark::undecided);
}

TEST(JudgeAcross, ASwitchTurned) {
  const std::string keys =
      "kind = \"across\"\nmetric = \"samples_per_s\"\nsystems = [\"" + kA +
      "\"]\nvary = \"switches\"\nfrom = { conv = \"fixed\" }\nto = { conv = \"profile\" }\n";
  Condition fixed = kTrain, profiled = kTrain, unrelated = kTrain;
  fixed.switches = {{"conv", "fixed"}};
  profiled.switches = {{"conv", "profile"}};
  unrelated.switches = {{"graph", "off"}};
  MadeUp made;
  made.add(fixed, kA, "samples_per_s", 100)
      .add(profiled, kA, "samples_per_s", 120)
      .add(unrelated, kA, "samples_per_s", 5);
  const Judgement holds = judged(one_claim(keys + "low = 1.1\nhigh = 1.3"), made);
  EXPECT_EQ(holds.mark, Mark::holds);
  EXPECT_NEAR(holds.estimate->value, 1.2, 0.03);
  EXPECT_EQ(holds.findings.size(), 1u);
  EXPECT_EQ(judged(one_claim(keys + "low = 2.0"), made).mark, Mark::no_longer);
  EXPECT_EQ(judged(one_claim(keys + "low = 1.2"), made).mark, Mark::undecided);
}

TEST(JudgeAcross, DevicesAndWorkloads) {
  Condition gpu = condition_of("lenet", "fit");
  gpu.device = "cuda:0";
  const Condition cpu = condition_of("lenet", "fit"), other = condition_of("mnist_cnn", "fit");
  MadeUp made;
  made.add(cpu, kA, "fit.total_s", 100).add(gpu, kA, "fit.total_s", 8).add(other, kA, "fit.total_s", 300);
  const auto across = [&](const std::string& keys) {
    return judged(
        one_claim("kind = \"across\"\nmetric = \"fit.total_s\"\nsystems = [\"" + kA + "\"]\n" + keys), made);
  };
  EXPECT_EQ(across("vary = \"device\"\nfrom = \"cpu\"\nto = \"cuda\"\nhigh = 0.2").mark, Mark::holds);
  EXPECT_EQ(across("vary = \"device\"\nfrom = \"cpu\"\nto = \"cuda\"\nlow = 1.0").mark, Mark::no_longer);
  EXPECT_EQ(across("vary = \"device\"\nfrom = \"cuda:0\"\nto = \"cuda:0-1\"\nlow = 1.8").mark,
            Mark::not_measured);
  MadeUp on_cpu;
  on_cpu.add(cpu, kA, "fit.total_s", 100).add(other, kA, "fit.total_s", 300);
  EXPECT_EQ(judged(one_claim("kind = \"across\"\nmetric = \"fit.total_s\"\nsystems = [\"" + kA +
                             "\"]\nvary = \"workload\"\nfrom = \"lenet\"\nto = \"mnist_cnn\"\nlow = 2"),
                   on_cpu)
                .mark,
            Mark::holds);
}

MadeUp over_batches(const std::string& metric, const std::function<double(int64_t)>& value, double noise,
                    int64_t runs = 8) {
  MadeUp made;
  for (const int64_t batch : {8, 16, 32, 64}) {
    made.add(
        condition_of("lenet", "infer", batch), kA, metric,
        [=](int64_t block) {
          return value(batch) * (1 + noise * wobble(block, static_cast<uint32_t>(batch)));
        },
        runs);
  }
  return made;
}

TEST(JudgeTrend, RisesAndFalls) {
  const std::string keys =
      "kind = \"trend\"\nmetric = \"samples_per_s\"\nsystems = [\"" + kA + "\"]\nalong = \"batch\"\n";
  const MadeUp rising = over_batches(
      "samples_per_s", [](int64_t batch) { return 100.0 + static_cast<double>(batch); }, 0.01);
  const Judgement holds = judged(one_claim(keys + "direction = \"rises\""), rising);
  EXPECT_EQ(holds.mark, Mark::holds);
  EXPECT_NEAR(holds.estimate->value, 164.0 / 108, 0.05);
  EXPECT_EQ(judged(one_claim(keys + "direction = \"falls\""), rising).mark, Mark::no_longer);
  const MadeUp noise = over_batches(
      "samples_per_s", [](int64_t) { return 100.0; }, 0.1, 4);
  EXPECT_EQ(judged(one_claim(keys + "direction = \"rises\""), noise).mark, Mark::undecided);
  EXPECT_EQ(judged(one_claim(keys + "direction = \"flat\""), rising).mark, Mark::no_longer);
}

TEST(JudgeTrend, FlatNeedsEvidenceAndTwoPlacesAreNoTrend) {
  const std::string keys = "kind = \"trend\"\nmetric = \"gpu.power_w\"\nsystems = [\"" + kA +
                           "\"]\nalong = \"batch\"\ndirection = \"flat\"\nwithin = 0.05\n";
  EXPECT_EQ(judged(one_claim(keys), over_batches(
                                        "gpu.power_w", [](int64_t) { return 200.0; }, 0.005))
                .mark,
            Mark::holds);
  EXPECT_EQ(judged(one_claim(keys), over_batches(
                                        "gpu.power_w", [](int64_t) { return 200.0; }, 0.3))
                .mark,
            Mark::undecided);
  MadeUp two;
  for (const int64_t batch : {8, 16}) two.add(condition_of("lenet", "infer", batch), kA, "gpu.power_w", 200);
  EXPECT_EQ(judged(one_claim(keys), two).mark, Mark::undecided);
}

TEST(JudgeTrend, RelativeToAnotherSystem) {
  const Ledger ledger = one_claim("kind = \"trend\"\nmetric = \"samples_per_s\"\nsystems = [\"" + kB +
                                  "\"]\nrelative = \"" + kA + "\"\nalong = \"batch\"\ndirection = \"rises\"");
  MadeUp made;
  for (const int64_t batch : {8, 16, 32, 64}) {
    const Condition condition = condition_of("lenet", "train", batch);
    made.add(condition, kA, "samples_per_s", 100, 0.005)
        .add(condition, kB, "samples_per_s", 100 + static_cast<double>(batch), 0.005);
  }
  EXPECT_EQ(judged(ledger, made).mark, Mark::holds);
}

TEST(JudgeNormality, RejectsHoldsAndDoesNotRejectOnlyWithEnoughRuns) {
  const std::string keys =
      "kind = \"not_normal\"\nmetrics = [\"step.throughput_s\"]\nsystems = [\"" + kA + "\"]\n";
  MadeUp skewed;
  skewed.add(
      kTrain, kA, kTime, [](int64_t block) { return block % 10 == 0 ? 5.0 : 1.0 + 0.01 * wobble(block, 1); },
      40);
  EXPECT_EQ(judged(one_claim(keys), skewed).mark, Mark::holds);
  // Sums of twelve uniform numbers are nearly normal.
  const auto bell = [](int64_t block) {
    double sum = 0;
    for (uint32_t i = 0; i < 12; ++i) sum += wobble(block, 100 + i);
    return 10 + sum;
  };
  MadeUp normal;
  normal.add(kTrain, kA, kTime, bell, 200);
  EXPECT_EQ(judged(one_claim(keys), normal).mark, Mark::no_longer);
  // As the paper tested it, even those are "not normal": it compares with a mean of 0.
  EXPECT_EQ(judged(one_claim(keys + "test = \"ks\""), normal).mark, Mark::holds);
  MadeUp few;
  few.add(kTrain, kA, kTime, bell, 12);
  EXPECT_EQ(judged(one_claim(keys), few).mark, Mark::undecided);
}

TEST(JudgeCorrelation, OfSystemsAndOfEpochs) {
  const std::vector<std::string> systems = {
      "tandem:eager", "tandem:graph", "pytorch:eager", "tensorflow:function", "keras:fit",
      "jax:jit",      "mxnet:gluon",  "chainer:eager", "pytorch:compile",     "tensorflow:xla"};
  const auto points = [&](double sign) {
    MadeUp made;
    for (size_t i = 0; i < systems.size(); ++i) {
      const double x = static_cast<double>(i);
      made.add(kTrain, systems[i], "gpu.percent", 50 + 4 * x, 0.001, 4);
      made.add(kTrain, systems[i], "cpu.percent", 50 + sign * 3 * x + wobble(static_cast<int64_t>(i), 3),
               0.001, 4);
    }
    return made;
  };
  const std::string keys = "kind = \"correlation\"\nx = \"gpu.percent\"\ny = \"cpu.percent\"\n";
  EXPECT_EQ(judged(one_claim(keys + "high = 0.0"), points(-1)).mark, Mark::holds);
  EXPECT_EQ(judged(one_claim(keys + "high = 0.0"), points(1)).mark, Mark::no_longer);
  EXPECT_EQ(judged(one_claim(keys + "high = 0.9"), points(1)).mark == Mark::holds, false);

  MadeUp fit;
  const Condition condition = condition_of("lenet", "fit");
  for (int64_t block = 0; block < 6; ++block) {
    lab::Run& run = fit.run_of(condition, kA, block);
    for (int64_t epoch = 1; epoch <= 10; ++epoch) {
      run.epochs.push_back({epoch,
                            2.0 + 0.01 * wobble(epoch, 5),
                            0.1,
                            0.5,
                            0.4,
                            {{"accuracy", 0.5}},
                            {{"accuracy", 0.5 + 0.04 * static_cast<double>(epoch)}}});
    }
  }
  const std::string epochs = "kind = \"correlation\"\nx = \"epoch\"\n";
  EXPECT_EQ(judged(one_claim(epochs + "y = \"test_accuracy\"\nlow = 0.0"), fit).mark, Mark::holds);
  EXPECT_EQ(judged(one_claim(epochs + "y = \"test_accuracy\"\nlow = -0.1\nhigh = 0.1"), fit).mark,
            Mark::no_longer);
  EXPECT_EQ(judged(one_claim(epochs + "y = \"elapsed_s\"\nlow = 0.99"), fit).mark, Mark::holds);
}

TEST(JudgeWithinRun, TheFirstEpochsExcess) {
  const Ledger ledger =
      one_claim("kind = \"within_run\"\nless = \"fit.epoch_s\"\nmore = \"fit.first_epoch_s\"\nsystems = [\"" +
                kA + "\"]");
  const Condition fit = condition_of("resnet18", "fit");
  MadeUp longer;
  longer.add(fit, kA, "fit.epoch_s", 10).add(fit, kA, "fit.first_epoch_s", 13);
  const Judgement holds = judged(ledger, longer);
  EXPECT_EQ(holds.mark, Mark::holds);
  EXPECT_NEAR(holds.estimate->value, 3, 0.2);
  MadeUp shorter;
  shorter.add(fit, kA, "fit.epoch_s", 13).add(fit, kA, "fit.first_epoch_s", 10);
  EXPECT_EQ(judged(ledger, shorter).mark, Mark::no_longer);
  MadeUp alike;
  alike.add(fit, kA, "fit.epoch_s", 10, 0.2, 8).add(fit, kA, "fit.first_epoch_s", 10, 0.2, 8);
  EXPECT_EQ(judged(ledger, alike).mark, Mark::undecided);
  // The excess as a metric of its own, compared between systems.
  longer.add(fit, kB, "fit.epoch_s", 10).add(fit, kB, "fit.first_epoch_s", 20);
  EXPECT_EQ(judged(one_claim("kind = \"order\"\nmetric = \"first_epoch_excess_s\"\nless = \"" + kA +
                             "\"\nmore = \"" + kB + "\""),
                   longer)
                .mark,
            Mark::holds);
}

TEST(Judge, TheWholeLedgerGoesOverAStudyWithoutRuns) {
  const Ledger ledger = load_ledger();
  MadeUp empty("004");
  const std::vector<Judgement> all = judge(ledger, empty.results(), empty.analysis());
  EXPECT_GE(all.size(), 60u);
  for (const Judgement& judgement : all) {
    EXPECT_EQ(judgement.id.substr(0, 3), "004");
    EXPECT_EQ(judgement.mark, Mark::not_measured) << judgement.id;
    EXPECT_EQ(to_json(judgement)["mark"], "not measured");
  }
}

TEST(Judge, AStudyOf000IsMarkedClaimByClaim) {
  MadeUp made;
  for (const char* phase : {"train", "infer"}) {
    made.add(condition_of("lenet", phase), kA, kTime, 0.010, 0.02, 12)
        .add(condition_of("lenet", phase), kB, kTime, 0.014, 0.02, 12);
  }
  const Ledger ledger = load_ledger();
  std::map<std::string, Mark> outcomes;
  for (const Judgement& judgement : judge(ledger, made.results(), made.analysis()))
    outcomes[judgement.id] = judgement.mark;
  EXPECT_EQ(outcomes.at("000.h1.learning.step"), Mark::holds);
  EXPECT_EQ(outcomes.at("000.h1.inference"), Mark::holds);
  EXPECT_EQ(outcomes.at("000.h2.learning"), Mark::not_measured);
}

}  // namespace
}  // namespace tandem::lab
