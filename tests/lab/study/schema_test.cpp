// A study's or workload's file that breaks a rule is refused with the file, the key and the rule.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lab/study/catalogue.h"
#include "tests/lab/study/study_file.h"

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

TEST(StudySchema, AGoodFileIsAccepted) { EXPECT_EQ(complaint(kGood), ""); }

TEST(StudySchema, WhatIsNestedTooDeepIsRefusedBeforeItOverflowsTheStack) {
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += i % 2 ? ".a" : ". \"b\"";
  for (const std::string& text :
       {key + " = 1\n", "[" + key + "]\n", "[[" + key + "]]\n", "x = { " + key + " = 1 }\n",
        "x = " + std::string(100'000, '[') + std::string(100'000, ']') + "\n",
        "x = [\n" + std::string(60, '[') + "\n"}) {
    const std::string message = complaint("# one\n" + text);
    EXPECT_NE(
        message.find("a key must have at most 20 parts, and lists and tables must be nested at most 50"),
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
      {with("optimizer = [3]"), "optimizer"},
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
    EXPECT_GE(workload.classes, 2);
    EXPECT_EQ(workload.definition["model"], workload.model);
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
model = "net"
data = "synthetic"
input = [4]
classes = 2
batch = 8
optimizer = { name = "sgd", lr = 0.1 }
)";
  EXPECT_EQ(complaint(good), "");
  const std::pair<std::string, const char*> cases[] = {
      {good + "speed = 1\n", "'speed'"},
      {good + "precision = \"f31\"\n", "precision"},
      {good + "[fit]\nepochs = 0\n", "epochs"},
      {good + "[fit]\nthresholds = [1.5]\n", "thresholds"},
      {good + "[gate]\nweights = \"web\"\n", "weights"},
      {good + "[optimizers]\nadam = 3\n", "optimizers"},
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
