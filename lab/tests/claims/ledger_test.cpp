// The ledger of the tree is whole and well formed, and files that break a rule are refused by name.
#include "lab/src/claims/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "lab/src/analysis/analysis.h"
#include "lab/src/claims/evidence.h"
#include "lab/src/files/toml.h"
#include "lab/src/study/study.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

bool is_known_metric(const std::string& name) {
  const auto& known = metrics();
  if (std::any_of(known.begin(), known.end(), [&](const Metric& metric) { return metric.name == name; }))
    return true;
  if (name.starts_with("fit.time_to_0.") || name.starts_with("fit.energy_to_0.")) return true;
  return is_derived_metric(name);
}

TEST(Ledger, HoldsClaimsOfAllFivePapersOfManyKinds) {
  const Ledger ledger = load_ledger();
  std::map<std::string, size_t> papers;
  std::set<CheckKind> kinds;
  std::set<std::string> ids;
  for (const Claim& claim : ledger.claims) {
    ++papers[claim.paper];
    kinds.insert(claim.kind);
    EXPECT_TRUE(ids.insert(claim.id).second) << claim.id;
    EXPECT_EQ(ledger.find(claim.id), &claim);
  }
  for (const char* paper : {"000", "001", "002", "003", "004"}) {
    EXPECT_GE(papers[paper], 20u) << paper;
    EXPECT_FALSE(ledger.machines.at(paper).empty());
  }
  EXPECT_EQ(kinds.size(), 12u) << "a kind of check that no claim uses";
  EXPECT_EQ(ledger.find("000.no_such_claim"), nullptr);
}

TEST(Ledger, EveryClaimNamesKnownWorkloadsAndMetricsOrIsMarkedForLater) {
  const std::vector<std::string> there = workload_names();
  const std::set<std::string> of_epochs = {"epoch", "test_accuracy", "accuracy", "loss", "elapsed_s"};
  for (const Claim& claim : load_ledger().claims) {
    for (const std::string& name : claim.metrics) {
      const bool known =
          is_known_metric(name) || (claim.kind == CheckKind::correlation && of_epochs.contains(name));
      EXPECT_TRUE(known) << claim.id << ": " << name;
    }
    for (const std::string& workload : claim.where.workload) {
      const bool is_there = std::find(there.begin(), there.end(), workload) != there.end();
      EXPECT_TRUE(is_there || !claim.later.empty())
          << claim.id << ": " << workload << " is not there, and `later` is empty";
    }
  }
}

TEST(Ledger, AClaimForLaterIsNotOneThatCouldBeTested) {
  const std::vector<std::string> there = workload_names();
  for (const Claim& claim : load_ledger().claims) {
    if (claim.later.find("the zoo has no") == std::string::npos) continue;
    for (const std::string& workload : claim.where.workload) {
      EXPECT_TRUE(std::find(there.begin(), there.end(), workload) == there.end())
          << claim.id << ": " << workload << " is there now: take `later` out";
    }
  }
}

TEST(Ledger, EveryTestableClaimFitsACellOfItsPapersStudy) {
  std::map<std::string, std::vector<Condition>> conditions;
  for (const char* paper : {"000", "001", "002", "003", "004"}) {
    PlanOptions options;
    options.present = std::vector<std::string>{"cpu", "cuda:0"};
    for (const char* device : {"cpu", "cuda:0"}) {
      options.device = device;
      for (const Cell& cell : make_plan(paper, options).cells) conditions[paper].push_back(cell.condition);
    }
  }
  for (const Claim& claim : load_ledger().claims) {
    if (!claim.later.empty()) continue;
    Results results;
    for (const Condition& condition : conditions[claim.paper]) {
      lab::Run run;
      run.condition = condition;
      results.runs.push_back(run);
    }
    const Analysis nothing;
    Where where = claim.where;
    if (claim.kind == CheckKind::across && claim.axis == "switches") where.any_switches = true;
    EXPECT_FALSE(Evidence(results, nothing).conditions(where).empty())
        << claim.id << " fits no cell of study " << claim.paper;
  }
}

TEST(Ledger, Paper000IsQuotedWithItsPValuesAndTracksFollowThePapers) {
  const Ledger ledger = load_ledger();
  const Claim* claim = ledger.find("000.h1.inference");
  ASSERT_NE(claim, nullptr);
  ASSERT_EQ(claim->published.size(), 1u);
  EXPECT_DOUBLE_EQ(claim->published[0].value, 3.896559845095909e-18);
  for (const Claim& each : ledger.claims) {
    const std::string wanted = each.paper == "003" ? "as_shipped" : "equal";
    const bool fit_against_loop =
        each.id.starts_with("002.fit.");  // compares two ways of one framework as shipped
    EXPECT_EQ(each.where.track, fit_against_loop ? "as_shipped" : wanted) << each.id;
  }
}

TEST(Ledger, BrokenFilesAreRefusedWithTheClaimAndTheKey) {
  const std::string head = "paper = \"000\"\n[[claim]]\nid = \"000.x\"\nsource = \"Fig. 1\"\ntext = \"T\"\n";
  const std::string order =
      "kind = \"order\"\nmetric = \"start_s\"\nless = \"pytorch:eager\"\nmore = \"tandem:graph\"\n";
  EXPECT_EQ(parse_ledger(parse_toml(head + order, "good.toml"), "good.toml").claims.size(), 1u);
  const std::pair<std::string, const char*> cases[] = {
      {head + "kind = \"guess\"\n", "kind"},
      {head + "kind = \"order\"\nmetric = \"start_s\"\nless = \"pytorch:eager\"\n", "more"},
      {head + "kind = \"order\"\nmetric = \"start_s\"\nless = \"pytorch:eager\"\nmore = \"pytorch:eager\"\n",
       "another"},
      {head + "kind = \"order\"\nmetric = \"start_s\"\nless = \"pytorch\"\nmore = \"tandem:graph\"\n",
       "variant"},
      {head + "kind = \"order\"\nmetric = \"start_s\"\nless = \"caffe:x\"\nmore = \"tandem:graph\"\n",
       "caffe"},
      {head + order + "high = 3\n", "high"},
      {head + order + "where = { colour = \"red\" }\n", "colour"},
      {head + order + "where = { device = [\"tpu\"] }\n", "tpu"},
      {head + order + "published = [{ what = \"p\" }]\n", "value"},
      {head + "kind = \"level\"\nmetric = \"start_s\"\nsystems = [\"pytorch:eager\"]\n", "low"},
      {head + "kind = \"level\"\nmetric = \"start_s\"\nsystems = [\"pytorch:eager\"]\nlow = 2\nhigh = 1\n",
       "low"},
      {head + "kind = \"across\"\nmetric = \"start_s\"\nsystems = [\"pytorch:eager\"]\nvary = "
              "\"batch\"\nfrom = \"a\"\nto = 2\nlow = 1\n",
       "from"},
      {head + "kind = \"extreme\"\nmetric = \"start_s\"\nsystem = \"pytorch:eager\"\namong = "
              "[\"pytorch:eager\"]\nend = \"lowest\"\n",
       "among"},
      {head + order + "[[claim]]\nid = \"000.x\"\nsource = \"s\"\ntext = \"t\"\n" + order, "twice"},
      {"paper = \"000\"\n[[claim]]\nid = \"001.x\"\nsource = \"s\"\ntext = \"t\"\n" + order, "id"},
  };
  for (const auto& [text, key] : cases) {
    try {
      parse_ledger(parse_toml(text, "bad.toml"), "bad.toml");
      ADD_FAILURE() << "accepted:\n" << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
}

TEST(Ledger, EveryNumberIsRefusedWhereItIsNone) {
  const auto said = [](const std::string& keys) -> std::string {
    const std::string text =
        "paper = \"000\"\n[[claim]]\nid = \"000.x\"\nsource = \"s\"\ntext = \"t\"\n" + keys + "\n";
    try {
      parse_ledger(parse_toml(text, "one.toml"), "one.toml");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string level = "kind = \"level\"\nmetric = \"fit.accuracy\"\nsystems = [\"tandem:graph\"]\n";
  const std::string equal =
      "kind = \"equal\"\nmetric = \"fit.accuracy\"\nsystems = [\"tandem:graph\", \"pytorch:eager\"]\n";
  const std::string across =
      "kind = \"across\"\nmetric = \"start_s\"\nsystems = [\"tandem:graph\"]\nvary = \"batch\"\nlow = 1\n";
  const struct {
    std::string key, before, after;
    std::vector<std::string> good, bad;
  } cases[] = {
      {"low", level + "low = ", "", {"0", "-1", "0.5"}, {}},
      {"high", level + "high = ", "", {"0", "-1", "0.5"}, {}},
      {"within", equal + "within = ", "", {"0", "0.5"}, {"-1"}},
      {"value", level + "low = 1\npublished = [{ what = \"w\", value = ", " }]", {"0", "-1", "0.5"}, {}},
      {"batch",
       level + "low = 1\nwhere = { batch = [",
       "] }",
       {"1", "1048576"},
       {"0", "-1", "1048577", "1.5"}},
      {"to", across + "from = 1\nto = ", "", {"1"}, {"0", "-1", "1048577", "1.5"}},
      {"from", across + "to = 1\nfrom = ", "", {"1"}, {"0", "-1", "1048577", "1.5"}},
  };
  for (const auto& c : cases) {
    for (const std::string& value : c.good)
      EXPECT_EQ(said(c.before + value + c.after), "") << c.key << " = " << value;
    std::vector<std::string> bad = c.bad;
    for (const char* value :
         {"nan", "inf", "-inf", "1e300", "9223372036854775807", "\"8\"", "{ one = 1 }", "true"})
      bad.push_back(value);
    for (const std::string& value : bad) {
      const std::string text = said(c.before + value + c.after);
      EXPECT_NE(text.find(c.key), std::string::npos) << c.key << " = " << value << " gives '" << text << "'";
      EXPECT_NE(text.find("; got "), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace tandem::lab
