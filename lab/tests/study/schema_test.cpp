// A study's or workload's file that breaks a rule is refused with the file, the key and the rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "lab/src/study/catalogue.h"
#include "lab/tests/study/study_file.h"

namespace tandem::lab {
namespace {

const std::string kGood = R"(name = "mini"
title = "A small study"
frameworks = ["tandem:graph"]
workloads = ["lenet"]
[[part]]
name = "a"
title = "A"
phase = "train"
)";

/// What make_plan says to that text; "" where it says nothing.
std::string complaint(const std::string& text) {
  const StudyText file("mini", text);
  try {
    PlanOptions options;
    options.present = std::vector<std::string>{"cpu"};
    make_plan(file.path(), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string with(const std::string& line) { return kGood + line + "\n"; }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(StudySchema, AGoodFileIsAccepted) { EXPECT_EQ(complaint(kGood), ""); }

// A study that brings a workload along.
const std::string kOwn = R"(name = "mini"
title = "A small study"
frameworks = ["tandem:graph"]
[[part]]
name = "a"
title = "A"
phase = "train"
workloads = ["line", "lenet"]
[[workload]]
name = "line"
title = "One linear layer"
batch = 8
network = { input = [4], layer = [{ type = "linear", outputs = 3 }] }
targets = { y = { shape = [3] } }
loss = { kind = "mse", output = "out", target = "y" }
optimizer = { name = "sgd", lr = 0.1 }
)";

TEST(StudySchema, AStudyMayBringWorkloadsAlong) {
  EXPECT_EQ(complaint(kOwn), "");
  const StudyText file("mini", kOwn);
  PlanOptions options;
  options.present = std::vector<std::string>{"cpu"};
  const Plan plan = make_plan(file.path(), options);
  ASSERT_EQ(plan.cells.size(), 2u);
  EXPECT_EQ(plan.cells[0].condition.workload, "line");
  EXPECT_EQ(plan.cells[0].condition.batch, 8);
  const Workload line = plan.workloads.load("line");
  EXPECT_EQ(line.file, file.path());
  EXPECT_EQ(line.network, "line");
  EXPECT_EQ(line.data, "synthetic");
  EXPECT_EQ(line.description["layer"][0]["type"], "linear");
  EXPECT_EQ(line.definition["network"], "line") << "drivers get what it is by itself";
  EXPECT_EQ(plan.study["workloads"]["line"]["network"]["input"], Json{4}) << "it must be the same to go on";
  EXPECT_TRUE(plan.workloads.load("lenet").description.is_null());
  EXPECT_EQ(workloads_of(file.path()).own().size(), 1u);
  options.workloads = {"line"};
  EXPECT_EQ(make_plan(file.path(), options).cells.size(), 1u);
  options.workloads = {"lime"};
  EXPECT_THROW(make_plan(file.path(), options), Error);
}

TEST(StudySchema, ABrokenWorkloadOfAStudyIsNamed) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text = kOwn;
    return text.replace(text.rfind(from), from.size(), to);
  };
  const std::string second = kOwn.substr(kOwn.find("[[workload]]"));
  const std::pair<std::string, const char*> cases[] = {
      {kOwn + "speed = 1\n", "workload 'line': the keys here must be some of batch"},
      {kOwn + second, "workload 'line': name must be given once; got \"line\""},
      {changed("name = \"line\"", "name = \"lenet\""), "name must be another one than that of a file"},
      {changed("name = \"line\"", "name = \"../line\""), "name must have at most 80 letters"},
      {changed("name = \"line\"\n", ""), "workload '': name must be a text"},
      {changed("network = {", "network = 3 # {"), "workload 'line': network must be a text"},
      {changed("batch = 8\n", ""), "workload 'line': batch must be the number of samples"},
      {changed("kind = \"mse\"", "kind = \"hinge\""), "workload 'line', [loss]: kind must"},
      {changed("{ shape = [3] }", "{ shape = [0] }"), "workload 'line', [targets], y: shape must"},
      {kOwn + "gate = { batch = 0 }\n", "workload 'line', [gate]: batch must"},
      {kOwn + "fit = { epochs = 0 }\n", "workload 'line', [fit]: epochs must"},
      {kOwn + "[[workload]]\n", "workload '': name must be a text"},
  };
  for (const auto& [text, words] : cases) {
    const std::string said = complaint(text);
    EXPECT_NE(said.find(words), std::string::npos) << "for the file\n" << text << "it said: " << said;
    EXPECT_NE(said.find("mini.toml"), std::string::npos) << said;
  }
}

TEST(StudySchema, WhatIsNestedTooDeepIsRefusedBeforeItOverflowsTheStack) {
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += i % 2 ? ".a" : ". \"b\"";
  for (const std::string& text :
       {key + " = 1\n", "[" + key + "]\n", "[[" + key + "]]\n", "x = { " + key + " = 1 }\n",
        "x = " + std::string(100'000, '[') + std::string(100'000, ']') + "\n",
        "x = [\n" + std::string(60, '[') + "\n"}) {
    const std::string message = complaint("# one\n" + text);
    EXPECT_NE(message.find("keys must have at most 20 parts, and lists and tables must be nested at most 50"),
              std::string::npos)
        << text.substr(0, 50) << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  // Dots, brackets and quotes in texts and comments are no nesting.
  const std::string dots(200, '.'), brackets(200, '[');
  EXPECT_EQ(complaint("# " + dots + brackets + " \"\n" + kGood), "");
  for (const std::string& text : {"\"" + dots + brackets + "\\\"" + dots + "\"", "'" + brackets + "\"'",
                                  "\"\"\"\n\"" + dots + brackets + "\n\"\"\"", "'''" + brackets + "'\n'''"})
    EXPECT_NE(complaint(kGood + "unknown = " + text + "\n").find("unknown"), std::string::npos) << text;
}

TEST(StudySchema, EachBrokenRuleIsNamedWithItsKey) {
  const std::pair<std::string, const char*> cases[] = {
      {with("batches = [1]"), "batches"},
      {with("batch = [0]"), "batch"},
      {with("batch = 8"), "batch"},
      {with("batch = [\"8\"]"), "batch"},
      {with("precision = [\"f33\"]"), "f33"},
      {with("device = [\"gpu\"]"), "device"},
      {with("input = [3, 32, 32]"), "input"},
      {with("input = [[3, -1]]"), "input"},
      {with("switches = [{ conv = 1 }]"), "switches"},
      {with("switches = { conv = \"fixed\" }"), "switches"},
      {with("switches = [{ feed = \"loader\", storage = \"tape\" }]"), "\"disk\" or \"memory\" as storage"},
      {with("switches = [{ storage = \"disk\" }]"), "storage in phase load"},
      {with("switches = [{ feed = \"resident\", storage = \"disk\" }]"), "storage in phase load"},
      {with("quick = { switches = [{ storage = \"disk\" }] }"), "storage in phase load"},
      {replaced(with("switches = [{ feed = \"loader\" }]"), "\"train\"", "\"infer\""), "feed in phase train"},
      {replaced(with("optimizer = [\"sgd\"]"), "\"train\"", "\"load\""), "optimizer"},
      {with("optimizer = [3]"), "optimizer"},
      {with("optimizer = [{ name = \"sgd\" }]"), "optimizer must have a learning rate lr above 0"},
      {with("optimizer = [{ name = \"sdg\", lr = 0.1 }]"),
       "optimizer must have a name among sgd, nesterov, adam"},
      {with("optimizer = [{ name = \"adamx\", lr = 0.1 }]"), "Did you mean adam?"},
      {with("optimizer = [{ name = \"sgd\", lr = 0.1, momentun = 0.9 }]"),
       "must have some of lr, weight_decay and momentum beside its name, sgd, and no momentun"},
      {with("optimizer = [{ name = \"adam\", lr = 0.1, momentum = 0.9 }]"), "and no momentum"},
      {with("optimizer = [{ name = \"adam\", lr = 0.1, betas = [0.9] }]"), "must have two betas"},
      {with("optimizer = [{ name = \"nesterov\", lr = 0.1 }]"), "must have a momentum above 0"},
      {with("track = \"other\""), "track"},
      {with("effort = { runs = 0 }"), "runs"},
      {with("effort = { run = 3 }"), "'run'"},
      {with("quick = { batch = [\"x\"] }"), "batch"},
      {with("quick = { skip = 1 }"), "skip"},
      {with("frameworks = [\"tandem:fast\"]"), "tandem:fast"},
      {with("frameworks = [\"caffe\"]"), "caffe"},
      {with("frameworks = [\"tandem\", \"tandem\"]"), "twice"},
      {with("control = \"tandem\""), "control"},
      {with("[[part.figure]]\nkind = \"pie\"\ntitle = \"T\"\nmetrics = [\"start_s\"]"), "kind"},
      {with("[[part.figure]]\nkind = \"confusion\"\ntitle = \"T\""), "kind"},
      {with("[[part.figure]]\nkind = \"box\"\ntitle = \"T\""), "metrics"},
      {with("[[part.figure]]\nkind = \"lines\"\ntitle = \"T\"\nmetrics = [\"start_s\"]"), "x"},
      {with("[[part.figure]]\nkind = \"scatter\"\ntitle = \"T\"\nmetrics = [\"start_s\"]"), "metrics"},
      {with("[[part.figure]]\nkind = \"box\"\ntitle = \"T\"\nmetrics = [\"start_s\", \"step.nosuch\"]"),
       "part 'a', figure 1: metrics must be names of lab/docs/metrics.md; got 'step.nosuch'. Of step there "
       "are step.latency_s, step.throughput_s"},
      {with("[[part.figure]]\nkind = \"table\"\ntitle = \"T\"\nmetrics = [\"sample_per_s\"]"),
       "got 'sample_per_s'. Did you mean samples_per_s?"},
      {with("[[part.figure]]\nkind = \"box\"\ntitle = \"T\"\nmetrics = [\"test_accuracy\"]"),
       "'test_accuracy'"},
      {with("[[part.figure]]\nkind = \"box\"\ntitle = \"T\"\nmetrics = [\"fit.time_to_0.9_s\"]"),
       "time_to_0.9_s"},
      {with("[[part]]\nname = \"a\"\ntitle = \"B\"\nphase = \"infer\""), "twice"},
      {with("[[part]]\nname = \"b\"\ntitle = \"B\"\nphase = \"test\""), "phase"},
      {with("[[part]]\nname = \"b\"\ntitle = \"B\"\nphase = \"infer\"\noptimizer = [\"sgd\"]"), "optimizer"},
      {with("[[missing]]\nwhat = \"Fig. 1\""), "why"},
      {"speed = 3\n" + kGood, "'speed'"},
      {"name = \"mini\"\ntitle = \"T\"\nframeworks = [\"tandem\"]\n", "part"},
      {"name = \"other\"\ntitle = \"T\"\nframeworks = [\"tandem\"]\n", "name"},
      {"name = \"mini\"\ntitle = \"T\"\n", "frameworks"},
      {"title = [", "TOML"},
  };
  for (const auto& [text, key] : cases) {
    const std::string said = complaint(text);
    EXPECT_NE(said.find(key), std::string::npos) << "for the file\n" << text << "it said: " << said;
    EXPECT_NE(said.find("mini.toml"), std::string::npos) << said;
  }
}

/// What each number of a file may be; the values between are accepted too.
struct NumericKey {
  std::string name;  // as messages call it
  std::string before, after;
  std::vector<std::string> good, bad;
};

const std::vector<std::string> kNeverANumber = {"nan",    "inf",         "-inf", "1e300",
                                                "-1e300", "\"8\"",       "true", "false",
                                                "[[1]]",  "{ one = 1 }", "[]",   "1979-05-27"};

/// All numbers of [effort] and its like, whatever the table that they stand in.
std::vector<NumericKey> effort_keys(const std::string& before, const std::string& after) {
  const std::string most = "9223372036854775807", least = "-9223372036854775808";
  std::vector<NumericKey> keys;
  const auto whole = [&](const std::string& name, Whole range) {
    NumericKey key{name, before + name + " = ", after, {}, {most, least, "-1", "2.0", "2.5"}};
    for (const int64_t good : {range.least, range.most}) key.good.push_back(std::to_string(good));
    for (const int64_t bad : {range.least - 1, range.most + 1}) key.bad.push_back(std::to_string(bad));
    keys.push_back(key);
  };
  whole("runs", limits::runs);
  whole("warmup_steps", limits::warmup_steps);
  whole("timed_steps", limits::timed_steps);
  whole("epochs", limits::epochs);
  for (const char* name : {"timed_s", "least_s", "cap_s"})
    keys.push_back({name,
                    before + name + " = ",
                    after,
                    {"0", "0.0", "0.5", "604800"},
                    {most, least, "-1", "-1e-300", "604800.5", "604801"}});
  return keys;
}

TEST(StudySchema, EveryNumberHasTwoEndsAndIsRefusedBeyondThem) {
  std::vector<NumericKey> keys;
  const auto add = [&](const std::vector<NumericKey>& more) {
    keys.insert(keys.end(), more.begin(), more.end());
  };
  // Tables of the whole study stand before the part.
  const std::string part = kGood.substr(kGood.find("[[part]]")),
                    top = kGood.substr(0, kGood.find("[[part]]"));
  add(effort_keys(top + "[effort]\n", "\n" + part));
  add(effort_keys(top + "[quick]\n", "\n" + part));
  add(effort_keys(kGood + "effort = { ", " }\n"));
  add(effort_keys(kGood + "quick = { ", " }\n"));
  for (const std::string& begin : {std::string(), std::string("quick = { ")}) {
    const std::string end = begin.empty() ? "\n" : " }\n";
    keys.push_back({"batch",
                    kGood + begin + "batch = [",
                    "]" + end,
                    {"1", "1048576"},
                    {"0", "-1", "1048577", "9223372036854775807", "2.5"}});
    keys.push_back({"input",
                    kGood + begin + "input = [[1, ",
                    ", 28]]" + end,
                    {"1", "65536"},
                    {"0", "-1", "65537", "9223372036854775807", "2.5"}});
    keys.push_back({"input", kGood + begin + "input = [[65536, 65536, ", "]]" + end, {}, {"1", "65536"}});
    keys.push_back({"optimizer",
                    kGood + begin + "optimizer = [{ name = \"sgd\", lr = ",
                    " }]" + end,
                    {"0.01", "1", "1e6"},
                    {"0", "-1", "1e7", "9223372036854775807"}});
    keys.push_back({"optimizer",
                    kGood + begin + "optimizer = [{ name = \"sgd\", lr = 0.1, momentum = ",
                    " }]" + end,
                    {"0", "0.9"},
                    {"9223372036854775807", "-1", "1"}});
  }
  for (const NumericKey& key : keys) {
    for (const std::string& value : key.good)
      EXPECT_EQ(complaint(key.before + value + key.after), "") << key.name << " = " << value;
    std::vector<std::string> bad = key.bad;
    for (const std::string& value : kNeverANumber)
      if (std::find(key.good.begin(), key.good.end(), value) == key.good.end()) bad.push_back(value);
    for (const std::string& value : bad) {
      const std::string text = complaint(key.before + value + key.after);
      EXPECT_NE(text, "") << key.name << " = " << value << " is accepted";
      EXPECT_TRUE(text.find(key.name) != std::string::npos || value == "1979-05-27") << value << ": " << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      EXPECT_NE(text.find("must"), std::string::npos) << text;
      EXPECT_NE(text.find("; got "), std::string::npos) << text;
    }
  }
}

TEST(StudySchema, EveryMetricThatARunMayHaveIsAccepted) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"table",
       {"step.latency_s", "fit.mae", "fit.best_perplexity", "fit.time_to_0.95_s", "fit.energy_to_12.50_j",
        "fit.mse_noise_0.25", "breakdown.nodes_after", "gpu.tree_memory_peak_mib", "monitor.percent"}},
      {"timeline", {"cpu.percent", "cpu.core13_percent", "rss", "pss", "cpu.power_w", "gpu.memory"}},
      {"convergence", {"accuracy", "test_accuracy", "loss", "test_loss", "test_mae", "fit.accuracy"}},
  };
  for (const auto& [kind, names] : cases)
    for (const char* name : names)
      EXPECT_EQ(complaint(replaced(kGood, "\"train\"", "\"fit\"") + "[[part.figure]]\nkind = \"" + kind +
                          "\"\ntitle = \"T\"\nmetrics = [\"" + name + "\"]\n"),
                "");
}

TEST(StudySchema, EveryOptimizerTakesItsOwnSettings) {
  for (const char* optimizer :
       {"name = \"sgd\", lr = 1, momentum = 0.9, weight_decay = 1e-4",
        "name = \"nesterov\", lr = 1, momentum = 0.5",
        "name = \"adam\", lr = 1, betas = [0.9, 0.99], eps = 1e-6, weight_decay = 0.1",
        "name = \"adadelta\", lr = 1, eps = 1e-5", "name = \"rmsprop\", lr = 1, momentum = 0.9"})
    EXPECT_EQ(complaint(with(std::string("optimizer = [{ ") + optimizer + " }]")), "") << optimizer;
}

TEST(StudySchema, ListsThatMultiplyBeyondAllBoundsAreRefused) {
  std::string batches, precisions = "precision = [\"f32\", \"f64\", \"bf16\", \"f16\"]\n";
  for (int i = 1; i <= 4000; ++i) batches += std::to_string(i) + ", ";
  EXPECT_NE(complaint(with("batch = [" + batches + "]\n" + precisions)).find("at most 10000 cells"),
            std::string::npos);
  PlanOptions options;
  options.present = std::vector<std::string>{"cpu"};
  for (const int64_t runs : {int64_t{0}, int64_t{-1}, int64_t{10'001}, INT64_MAX}) {
    options.runs = runs;
    EXPECT_THROW(make_plan("000", options), Error) << runs;
  }
}

TEST(StudySchema, AnUnknownStudyIsRefusedWithTheNamesThatThereAre) {
  try {
    make_plan("005");
    FAIL() << "a study 005 was found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("004"), std::string::npos) << error.what();
  }
  EXPECT_THROW(make_plan("./no/such/file.toml"), Error);
}

TEST(Workloads, EveryWorkloadOfTheTreeIsRead) {
  ASSERT_GE(workload_names().size(), 7u);
  for (const std::string& name : workload_names()) {
    const Workload workload = load_workload(name);
    EXPECT_EQ(workload.name, name);
    EXPECT_GE(workload.batch, 1);
    EXPECT_NE(workload.classes(), 1);
    const bool has_metrics = workload.loss["kind"] != "ctc" && workload.loss["kind"] != "sum";
    EXPECT_EQ(workload.metrics.empty(), !has_metrics) << name;
    EXPECT_EQ(workload.definition["network"], workload.network);
  }
  EXPECT_THROW(load_workload("no_such_network"), Error);
  EXPECT_THROW(load_workload("../workloads/lenet"), Error);
}

/// A home of its own with one workload; set for the length of the test.
class OtherHome : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(file_.folder() + "/studies/workloads");
    setenv("TANDEM_LAB_HOME", file_.folder().c_str(), 1);
  }
  void TearDown() override { unsetenv("TANDEM_LAB_HOME"); }

  std::string complaint(const std::string& text) {
    std::ofstream(file_.folder() + "/studies/workloads/net.toml") << text;
    try {
      load_workload("net");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  StudyText file_{"mini", ""};
};

TEST_F(OtherHome, WorkloadsAreReadFromThereAndBrokenOnesAreNamed) {
  const std::string good = R"(name = "net"
title = "A net"
network = "net"
data = "synthetic"
input = [4]
targets = { y = { type = "i64", below = 2 } }
loss = { kind = "cross_entropy", output = "out", target = "y" }
metrics = ["accuracy"]
batch = 8
optimizer = { name = "sgd", lr = 0.1 }
)";
  EXPECT_EQ(complaint(good), "");
  const std::string without = replaced(good, "metrics = [\"accuracy\"]\n", "");
  const std::string ctc = replaced(replaced(without, "below = 2", "below = 3, shape = [4]"),
                                   "kind = \"cross_entropy\"", "kind = \"ctc\", stride = 2, lengths = \"n\"");
  EXPECT_EQ(complaint(ctc), "");
  const std::string sum = replaced(
      replaced(without, "{ type = \"i64\", below = 2 }", "{ shape = [4] }"),
      "{ kind = \"cross_entropy\", output = \"out\", target = \"y\" }",
      "{ kind = \"sum\", terms = [{ kind = \"mse\", output = \"out\", target = \"y\" }, { kind = \"mae\", "
      "output = \"out\", target = \"y\" }] }");
  EXPECT_EQ(complaint(sum), "");
  const std::pair<std::string, const char*> cases[] = {
      {good + "speed = 1\n", "'speed'"},
      {good + "precision = \"f31\"\n", "precision"},
      {good + "[fit]\nepochs = 0\n", "epochs"},
      {good + "[fit]\nthresholds = [1.5]\n", "thresholds"},
      {good + "[gate]\nweights = \"web\"\n", "weights"},
      {replaced(good, "below = 2", "shape = [2]"), "below"},
      {replaced(good, "type = \"i64\", below = 2", "below = 2"), "below"},
      {replaced(good, "type = \"i64\"", "type = \"i8\""), "type"},
      {replaced(good, "{ type = \"i64\", below = 2 }", "3"), "targets"},
      {replaced(good, "targets = { y", "goals = { y"), "targets"},
      {replaced(good, "target = \"y\"", "target = \"z\""), "target"},
      {replaced(good, "\"cross_entropy\"", "\"mse\""), "kind"},
      {replaced(good, "\"cross_entropy\"", "\"hinge\""), "kind"},
      {replaced(good, "\"cross_entropy\"", "\"ctc\""), "target must have one axis"},
      {replaced(ctc, ", lengths = \"n\"", ""), "lengths must say how many steps count"},
      {replaced(ctc, "below = 3", "below = 1"), "target must have one axis"},
      {replaced(ctc, "batch = 8", "metrics = [\"accuracy\"]\nbatch = 8"),
       "metrics must be left out beside ctc"},
      {replaced(ctc, "stride = 2", "stride = 0"), "stride"},
      {replaced(good, "target = \"y\"", "target = \"y\", stride = 2"),
       "stride must stand beside the kind ctc"},
      {replaced(sum, "terms = [", "terms = [], more = ["), "terms must be 1 to 16 losses"},
      {replaced(sum, "kind = \"mae\"", "kind = \"ctc\""), "term 2: kind must"},
      {replaced(sum, "kind = \"mae\"", "kind = \"sum\""), "term 2: kind must"},
      {replaced(sum, "kind = \"sum\"", "kind = \"sum\", target = \"y\""), "target"},
      {replaced(good, "output = \"out\", ", ""), "output"},
      {replaced(good, "[\"accuracy\"]", "[\"mse\"]"), "metrics"},
      {good + "[optimizers]\nadam = 3\n", "optimizers"},
      {good + "[optimizers]\nadam = { name = \"adam\" }\n", "optimizers must have a learning rate lr"},
      {replaced(good, "lr = 0.1", "momentum = 0.9"), "optimizer must have a learning rate lr above 0"},
      {replaced(good, "\"sgd\"", "\"lion\""), "optimizer must have a name among sgd, nesterov, adam"},
      {replaced(good, "lr = 0.1", "lr = 0.1, rho = 0.9"), "and no rho"},
      {"name = \"met\"\n" + good.substr(good.find("title")), "name"},
      {good.substr(0, good.find("batch")) + "optimizer = { name = \"sgd\" }\n", "batch"},
      {good.substr(0, good.find("optimizer")), "optimizer"},
      {good.substr(0, good.find("optimizer")) + "optimizer = { name = \"sgd\", lr = -1 }\n", "optimizer"},
  };
  for (const auto& [text, key] : cases) {
    const std::string said = complaint(text);
    EXPECT_NE(said.find(key), std::string::npos) << "for the file\n" << text << "it said: " << said;
    EXPECT_NE(said.find("net.toml"), std::string::npos) << said;
  }
}

TEST_F(OtherHome, WhatLengthsTrimIsReadAndEachBrokenRuleIsNamed) {
  const std::string good = R"(name = "net"
title = "A net"
network = "net"
targets = { y = { shape = [4] } }
loss = { kind = "mse", output = "out", target = "y", lengths = "n" }
batch = 8
optimizer = { name = "sgd", lr = 0.1 }
[trim]
n = { of = ["x", "y"], multiple = 2 }
m = { of = "z" }
[fit]
samples = 40
)";
  EXPECT_EQ(complaint(good), "");
  const Workload workload = load_workload("net");
  EXPECT_EQ(workload.trim, nlohmann::json::parse(R"({"n": {"of": ["x", "y"], "multiple": 2},
                                                     "m": {"of": ["z"], "multiple": 1}})"));
  EXPECT_EQ(workload.samples, 40);
  const std::pair<std::string, const char*> cases[] = {
      {replaced(good, "{ of = \"z\" }", "3"), "m must be a table such as { of"},
      {replaced(good, "of = \"z\"", "multiple = 2"), "of must name the inputs and targets"},
      {replaced(good, "multiple = 2", "multiple = 0"), "multiple"},
      {replaced(good, "multiple = 2", "multiple = 65537"), "multiple"},
      {replaced(good, "multiple = 2", "step = 2"), "'step'"},
      {replaced(good, "samples = 40", "samples = -1"), "samples"},
      {replaced(good, "samples = 40", "samples = 1048577"), "samples"},
      {replaced(good, "samples = 40", "thresholds = [0.1]"),
       "thresholds must be left out where the workload has no metrics"},
      {replaced(good, "samples = 40", "target = 0.1"), "target must be left out"},
  };
  for (const auto& [text, key] : cases) {
    const std::string said = complaint(text);
    EXPECT_NE(said.find(key), std::string::npos) << "for the file\n" << text << "it said: " << said;
  }
}

TEST_F(OtherHome, ImagesAreForOneInputOfThreeChannelsAndOneLabel) {
  const std::string good = R"(name = "net"
title = "A net"
network = "net"
data = "photographs"
input = [3, 24, 32]
targets = { y = { type = "i64", below = 2 } }
loss = { kind = "cross_entropy", output = "out", target = "y" }
batch = 8
optimizer = { name = "sgd", lr = 0.1 }
[images]
resize = 32
)";
  EXPECT_EQ(complaint(good), "");
  const Workload workload = load_workload("net");
  ASSERT_TRUE(workload.images);
  EXPECT_EQ(workload.images->resize, 32);
  EXPECT_EQ(workload.images->mean, (std::vector<double>{0.485, 0.456, 0.406}));
  const std::pair<std::string, const char*> cases[] = {
      {replaced(good, "resize = 32", "resize = 31"), "resize"},
      {replaced(good, "resize = 32", "resize = 8193"), "resize"},
      {replaced(good, "[3, 24, 32]", "[1, 24, 32]"), "resize"},
      {replaced(good, "[3, 24, 32]", "[24]"), "resize"},
      {replaced(good, "below = 2", "below = 2, shape = [4]"), "targets"},
      {good + "mean = [1, 2]\n", "mean"},
      {good + "std = [1, 1, 0]\n", "std"},
      {good + "crop = 3\n", "'crop'"},
  };
  for (const auto& [text, key] : cases) {
    const std::string said = complaint(text);
    EXPECT_NE(said.find(key), std::string::npos) << "for the file\n" << text << "it said: " << said;
  }
}

TEST_F(OtherHome, EveryNumberOfAWorkloadHasTwoEndsAndIsRefusedBeyondThem) {
  const auto file = [](const std::string& key, const std::string& value) {
    const auto line = [&](const char* name, const char* usual) {
      return std::string(name) + " = " + (key == name ? value : usual) + "\n";
    };
    return "name = \"net\"\ntitle = \"A net\"\nnetwork = \"net\"\ndata = \"synthetic\"\n" +
           line("input", "[4]") +
           "targets = { y = { type = \"i64\", below = " + (key == "below" ? value : "2") +
           ", shape = " + (key == "shape" ? value : "[]") +
           " } }\nloss = { kind = \"cross_entropy\", output = \"out\", target = \"y\" }\nmetrics = "
           "[\"accuracy\"]\n" +
           line("batch", "8") + "optimizer = { name = \"sgd\", lr = " + (key == "lr" ? value : "0.1") +
           ", momentum = " + (key == "momentum" ? value : "0") +
           " }\n[optimizers]\nadam = { name = \"adam\", lr = " + (key == "adam" ? value : "0.1") +
           " }\n[fit]\n" + line("epochs", "1") + line("thresholds", "[0.9]") + line("target", "0.9") +
           "[gate]\nbatch = " + (key == "gate batch" ? value : "4") + "\n" + line("steps", "10");
  };
  const std::string most = "9223372036854775807";
  const struct {
    const char *key, *named;
    std::vector<std::string> good, bad;
  } cases[] = {
      {"input",
       "input",
       {"[1]", "[65536]", "[3, 32, 32]"},
       {"[0]", "[-1]", "[65537]", "[" + most + "]", "[1.5]", "3", "[65536, 65536]", "[nan]"}},
      {"below", "below", {"1", "16777216"}, {"0", "-1", "16777217", most, "1.5", "[1]"}},
      {"shape",
       "shape",
       {"[]", "[1]", "[65536]"},
       {"[0]", "[-1]", "[65537]", "[" + most + "]", "[1.5]", "3"}},
      {"batch", "batch", {"1", "1048576"}, {"0", "-1", "1048577", most, "1.5", "[1]"}},
      {"gate batch", "batch", {"1", "1048576"}, {"0", "-1", "1048577", most, "1.5", "[1]"}},
      {"steps", "steps", {"0", "1000"}, {"-1", "1001", most, "1.5", "[1]"}},
      {"epochs", "epochs", {"1", "1000000"}, {"0", "-1", "1000001", most, "1.5", "[1]"}},
      {"thresholds",
       "thresholds",
       {"[0.5, 1]", "1", "1e-9"},
       {"0", "[0]", "-1", "1.5", "[0.5, nan]", most, "[[1]]"}},
      {"target", "target", {"1", "1e-9"}, {"0", "-1", "1.5", most, "[1]"}},
      {"lr", "optimizer", {"1e-9", "1000000"}, {"0", "-1", "1e7", most}},
      {"momentum", "optimizer", {"0", "0.9"}, {most, "-1", "1"}},
      {"adam", "optimizers", {"1e-9", "1000000"}, {"0", "-1", "1e7", most}},
  };
  for (const auto& c : cases) {
    for (const std::string& value : c.good)
      EXPECT_EQ(complaint(file(c.key, value)), "") << c.key << " = " << value;
    std::vector<std::string> bad = c.bad;
    for (const char* value : {"nan", "inf", "-inf", "1e300", "\"8\"", "{ one = 1 }"}) bad.push_back(value);
    for (const std::string& value : bad) {
      const std::string said = complaint(file(c.key, value));
      EXPECT_NE(said.find(c.named), std::string::npos)
          << c.key << " = " << value << " gives '" << said << "'";
      EXPECT_NE(said.find("; got "), std::string::npos) << said;
    }
  }
}

TEST(Home, AFolderWithoutStudiesIsRefused) {
  const StudyText empty("mini", "");
  setenv("TANDEM_LAB_HOME", empty.folder().c_str(), 1);
  EXPECT_THROW(lab_home(), Error);
  unsetenv("TANDEM_LAB_HOME");
  EXPECT_TRUE(std::filesystem::exists(lab_home() + "/studies/000.toml"));
}

TEST(Catalogue, AFrameworkMeansAllItsVariants) {
  const std::vector<Framework> known = {{"a", "A", {"x", "y"}}, {"b", "B", {"z"}}};
  EXPECT_EQ(systems_of("a", known), (std::vector<std::string>{"a:x", "a:y"}));
  EXPECT_EQ(systems_of("a:y", known), (std::vector<std::string>{"a:y"}));
  EXPECT_THROW(systems_of("a:w", known), Error);
  EXPECT_THROW(systems_of("c", known), Error);
  EXPECT_GE(frameworks().size(), 5u);
}

}  // namespace
}  // namespace tandem::lab
