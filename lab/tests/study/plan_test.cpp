// Studies expand to the cells that their files name, options narrow them, and what is not there is listed with a reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "lab/src/files/toml.h"
#include "lab/src/study/catalogue.h"
#include "lab/tests/study/study_file.h"

namespace tandem::lab {
namespace {

const char* kHead = R"(name = "mini"
title = "A small study"
frameworks = ["tandem:eager", "tandem:graph", "pytorch:eager"]
workloads = ["lenet"]
device = ["cpu"]
control = "tandem:graph"
)";

PlanOptions on_cpu() {
  PlanOptions options;
  options.present = std::vector<std::string>{"cpu"};
  return options;
}

std::set<std::string> systems_of(const Plan& plan) {
  std::set<std::string> systems;
  for (const Cell& cell : plan.cells)
    systems.insert(cell.system + (cell.control.empty() ? "" : " " + cell.control));
  return systems;
}

TEST(Plan, ListsAreMultipliedAndAControlOfEachSystemIsAddedToEachCondition) {
  const StudyText file("mini", std::string(kHead) + R"(
[[part]]
name = "a"
title = "A"
phase = "train"
batch = [8, 16]
precision = ["f32", "bf16"]
input = [[1, 28, 28], [1, 32, 32], [1, 40, 40]]
switches = [{}, { graph = "off" }]
)");
  const Plan plan = make_plan(file.path(), on_cpu());
  const size_t conditions = 2 * 2 * 3 * 2;
  EXPECT_EQ(plan.cells.size(), conditions * (3 + 3));
  std::map<std::string, size_t> controls;
  std::set<Condition> seen;
  for (const Cell& cell : plan.cells) {
    seen.insert(cell.condition);
    if (cell.control == "A/A") ++controls[cell.system];
    const bool is_other_control = !cell.control.empty() && cell.system != "tandem:graph";
    EXPECT_EQ(cell.effort.runs, is_other_control ? 4 : 8) << cell.system;
    EXPECT_EQ(cell.condition.optimizer, "sgd");
    EXPECT_EQ(cell.optimizer["lr"], 0.01);
  }
  EXPECT_EQ(controls,
            (std::map<std::string, size_t>{
                {"tandem:graph", conditions}, {"tandem:eager", conditions}, {"pytorch:eager", conditions}}));
  EXPECT_EQ(seen.size(), conditions);
  EXPECT_TRUE(plan.missing.empty());
  EXPECT_EQ(plan.study["parts"][0]["cells"], conditions * 6);
}

TEST(Plan, RunsThatAreTooFewToDecideHaveTheNamedControlAlone) {
  const StudyText file("mini",
                       std::string(kHead) + "[[part]]\nname = \"a\"\ntitle = \"A\"\nphase = \"train\"\n");
  PlanOptions options = on_cpu();
  options.runs = 5;
  EXPECT_EQ(systems_of(make_plan(file.path(), options)),
            (std::set<std::string>{"tandem:eager", "tandem:graph", "tandem:graph A/A", "pytorch:eager"}));
  options.runs = 7;
  const Plan plan = make_plan(file.path(), options);
  ASSERT_EQ(plan.cells.size(), 6u);
  EXPECT_EQ(plan.cells[3].effort.runs, 7);
  EXPECT_EQ(plan.cells[4].effort.runs, 4);
}

TEST(Plan, InferenceHasNoOptimizerAndFitTakesTheWorkloadsEpochs) {
  const StudyText file("mini", std::string(kHead) + R"(
[[part]]
name = "a"
title = "A"
phase = "infer"
[[part]]
name = "b"
title = "B"
phase = "fit"
workloads = ["mnist_cnn"]
)");
  for (const Cell& cell : make_plan(file.path(), on_cpu()).cells) {
    if (cell.part == "a") {
      EXPECT_TRUE(cell.optimizer.is_null());
      EXPECT_EQ(cell.condition.optimizer, "");
    } else {
      EXPECT_EQ(cell.effort.epochs, 15);
    }
  }
}

TEST(Plan, QuickReplacesListsAndEffortAndMaySkipAPart) {
  const StudyText file("mini", std::string(kHead) + R"(
[effort]
runs = 100
timed_steps = 300
[quick]
runs = 8
[[part]]
name = "a"
title = "A"
phase = "train"
batch = [8, 16, 32]
effort = { timed_steps = 50 }
quick = { batch = [4], timed_s = 1.5 }
[[part]]
name = "b"
title = "B"
phase = "infer"
quick = { skip = "it is long" }
)");
  PlanOptions options = on_cpu();
  EXPECT_EQ(make_plan(file.path(), options).cells.size(), 3u * 6 + 6);
  EXPECT_EQ(make_plan(file.path(), options).cells[0].effort.runs, 100);
  options.quick = true;
  const Plan quick = make_plan(file.path(), options);
  ASSERT_EQ(quick.cells.size(), 6u);
  EXPECT_EQ(quick.cells[0].condition.batch, 4);
  EXPECT_EQ(quick.cells[0].effort.runs, 8);
  EXPECT_EQ(quick.cells[0].effort.timed_steps, 50);
  EXPECT_EQ(quick.cells[0].effort.timed_s, 1.5);
  ASSERT_EQ(quick.missing.size(), 1u);
  EXPECT_EQ(quick.missing[0].part, "b");
  options.runs = 3;
  EXPECT_EQ(make_plan(file.path(), options).cells[0].effort.runs, 3);
}

TEST(Plan, WithQuickAWorkloadMayBeNamedThatTheQuickFormLeavesOut) {
  const StudyText file("mini", std::string(kHead) + R"(
[[part]]
name = "a"
title = "A"
phase = "train"
workloads = ["lenet", "mnist_cnn"]
quick = { workloads = ["lenet"] }
)");
  const auto planned = [&](const std::vector<std::string>& names) {
    PlanOptions options = on_cpu();
    options.quick = true;
    options.workloads = names;
    std::set<std::string> found;
    for (const auto& cell : make_plan(file.path(), options).cells) found.insert(cell.condition.workload);
    return found;
  };
  EXPECT_EQ(planned({}), std::set<std::string>{"lenet"});
  EXPECT_EQ(planned({"mnist_cnn"}), std::set<std::string>{"mnist_cnn"});
  EXPECT_EQ(planned({"mnist_cnn", "lenet"}), (std::set<std::string>{"lenet", "mnist_cnn"}));
}

TEST(Plan, AWorkloadOrADeviceThatIsNotThereIsListedAndTheRestRuns) {
  const StudyText file("mini", std::string(kHead) + R"(
[[part]]
name = "a"
title = "A"
phase = "train"
workloads = ["lenet", "no_such_network"]
device = ["cpu", "cuda:0", "cuda:0-3"]
)");
  const Plan plan = make_plan(file.path(), on_cpu());
  EXPECT_EQ(plan.cells.size(), 6u);
  ASSERT_EQ(plan.missing.size(), 3u);
  std::set<std::string> what;
  for (const Missing& line : plan.missing) {
    what.insert(line.what);
    EXPECT_FALSE(line.why.empty());
  }
  EXPECT_EQ(what, (std::set<std::string>{"workload no_such_network", "device cuda:0", "device cuda:0-3"}));
  PlanOptions with_gpu;
  with_gpu.present = std::vector<std::string>{"cpu", "cuda:0"};
  EXPECT_EQ(make_plan(file.path(), with_gpu).cells.size(), 12u);
  with_gpu.device = "cuda";
  for (const Cell& cell : make_plan(file.path(), with_gpu).cells) EXPECT_EQ(cell.condition.device, "cuda:0");
}

TEST(Plan, AWorkloadThatIsNotThereIsNamedWithTheNearestOne) {
  const auto why = [](const std::string& name) {
    const StudyText file("mini", std::string(kHead) +
                                     "[[part]]\nname = \"a\"\ntitle = \"A\"\nphase = \"train\"\n"
                                     "workloads = [\"" +
                                     name + "\"]\n");
    return make_plan(file.path(), on_cpu()).missing.at(0).why;
  };
  EXPECT_EQ(why("lenett"), "there is no studies/workloads/lenett.toml; the nearest name is lenet");
  EXPECT_EQ(why("elephant"),
            "there is no studies/workloads/elephant.toml; `tandem lab list` shows those that there are");
}

TEST(Plan, AutoIsTheGpuWhereThereIsOneAndObeysTheOption) {
  const StudyText file("mini", std::regex_replace(std::string(kHead), std::regex("\"cpu\""), "\"auto\"") + R"(
[[part]]
name = "a"
title = "A"
phase = "train"
)");
  EXPECT_EQ(make_plan(file.path(), on_cpu()).cells[0].condition.device, "cpu");
  PlanOptions options;
  options.present = std::vector<std::string>{"cpu", "cuda:0"};
  EXPECT_EQ(make_plan(file.path(), options).cells[0].condition.device, "cuda:0");
  options.device = "cpu";
  EXPECT_EQ(make_plan(file.path(), options).cells[0].condition.device, "cpu");
}

TEST(Plan, FrameworksReplaceTheStudysListAndNarrowAPartsOwn) {
  const StudyText file("mini", std::string(kHead) + R"(
[[part]]
name = "a"
title = "A"
phase = "train"
[[part]]
name = "b"
title = "B"
phase = "infer"
frameworks = ["pytorch:eager"]
)");
  PlanOptions options = on_cpu();
  options.frameworks = {"tandem"};
  EXPECT_EQ(systems_of(make_plan(file.path(), options)),
            (std::set<std::string>{"tandem:eager", "tandem:eager A/A", "tandem:graph", "tandem:graph A/A"}));
  options.frameworks = {"jax"};  // not in the study: all its variants join, and the control moves to it
  EXPECT_EQ(systems_of(make_plan(file.path(), options)),
            (std::set<std::string>{"jax:jit", "jax:jit A/A", "jax:loop", "jax:loop A/A"}));
  options.frameworks = {"pytorch:eager"};
  EXPECT_EQ(make_plan(file.path(), options).cells.size(), 4u);  // both parts, each with a control
  options.frameworks = {"caffe"};
  EXPECT_THROW(make_plan(file.path(), options), Error);
}

TEST(Plan, WorkloadsReplaceTheStudysListAndNarrowAPartsOwnAndPartsAreChosen) {
  const StudyText file("mini", std::string(kHead) + R"(
[[part]]
name = "a"
title = "A"
phase = "train"
[[part]]
name = "b"
title = "B"
phase = "infer"
workloads = ["mnist_cnn", "cifar10_cnn"]
)");
  PlanOptions options = on_cpu();
  options.workloads = {"cifar10_cnn"};
  std::set<std::string> seen;
  for (const Cell& cell : make_plan(file.path(), options).cells)
    seen.insert(cell.part + " " + cell.condition.workload);
  EXPECT_EQ(seen, (std::set<std::string>{"a cifar10_cnn", "b cifar10_cnn"}));

  options.parts = {"b"};
  seen.clear();
  for (const Cell& cell : make_plan(file.path(), options).cells) seen.insert(cell.part);
  EXPECT_EQ(seen, (std::set<std::string>{"b"}));
  options.parts = {"b", "nosuch"};
  EXPECT_THROW(make_plan(file.path(), options), Error);
}

TEST(Plan, OptimizersAreTheWorkloadsByNameOrTables) {
  const auto plan_with = [](const std::string& list) {
    const StudyText file("mini", std::string(kHead) +
                                     "[[part]]\nname = \"a\"\ntitle = \"A\"\nphase = \"train\"\n" +
                                     "workloads = [\"resnet18\"]\noptimizer = " + list + "\n");
    return make_plan(file.path(), on_cpu());
  };
  const Plan plan = plan_with(R"(["adam", { name = "rmsprop", lr = 0.1 }])");
  ASSERT_EQ(plan.cells.size(), 12u);
  EXPECT_EQ(plan.cells[0].optimizer["lr"], 0.001);
  EXPECT_EQ(plan.cells[6].condition.optimizer, "rmsprop");
  EXPECT_THROW(plan_with(R"(["lion"])"), Error);
}

TEST(Plan, AFurtherFileOfDriversAddsSystems) {
  const std::string part = "[[part]]\nname = \"a\"\ntitle = \"A\"\nphase = \"train\"\n";
  const StudyText study("mini", kHead + part);
  const StudyText drivers("more",
                          "[tandem_old]\ntitle = \"Tandem, before\"\nvariants = [\"eager\", \"graph\"]\n"
                          "command = [\"/old/bin/tandem-lab\", \"driver\"]\n");
  PlanOptions options = on_cpu();
  options.frameworks = {"tandem:graph", "tandem_old:graph"};
  EXPECT_THROW(make_plan(study.path(), options), Error) << "nobody knows it yet";
  options.drivers = drivers.path();
  const Plan plan = make_plan(study.path(), options);
  EXPECT_EQ(systems_of(plan), (std::set<std::string>{"tandem:graph", "tandem:graph A/A", "tandem_old:graph",
                                                     "tandem_old:graph A/A"}));
  EXPECT_EQ(plan.study["options"]["drivers"], drivers.path());
  options.drivers = study.folder() + "/none.toml";
  EXPECT_THROW(make_plan(study.path(), options), Error);
}

TEST(Plan, ACellIsMeasuredInOnePartAlone) {
  const StudyText file("mini", std::string(kHead) + R"(
[[part]]
name = "a"
title = "A"
phase = "train"
[[part]]
name = "b"
title = "B"
phase = "train"
)");
  EXPECT_THROW(make_plan(file.path(), on_cpu()), Error);
}

TEST(Studies, EveryStudyExpandsOnBothKindsOfMachineQuickAndInFull) {
  const std::vector<std::string> names = study_names();
  for (const char* wanted : {"000", "001", "002", "003", "004", "mine", "products", "functions", "rows",
                             "convolutions", "ops", "startup", "memory"}) {
    EXPECT_TRUE(std::find(names.begin(), names.end(), wanted) != names.end()) << wanted;
  }
  for (const std::string& name : names) {
    for (const bool quick : {false, true}) {
      for (const bool gpu : {false, true}) {
        PlanOptions options;
        options.quick = quick;
        options.present = gpu ? std::vector<std::string>{"cpu", "cuda:0"} : std::vector<std::string>{"cpu"};
        const Plan plan = make_plan(name, options);
        EXPECT_EQ(plan.name, name);
        EXPECT_FALSE(plan.cells.empty()) << name << (quick ? " quick" : "");
        for (const Cell& cell : plan.cells) {
          EXPECT_GE(cell.effort.runs, 1);
          EXPECT_GE(cell.effort.epochs, cell.condition.phase == "fit" ? 1 : 0) << name;
        }
      }
    }
  }
}

TEST(Studies, Paper000HasItsHundredRunsAndAQuickFormOfEight) {
  PlanOptions options = on_cpu();
  const Plan full = make_plan("000", options);
  ASSERT_EQ(full.cells.size(), 24u);  // three phases, four systems and their controls
  const auto halved = [](const Cell& cell) { return !cell.control.empty() && cell.system != "tandem:graph"; };
  for (const Cell& cell : full.cells) {
    EXPECT_EQ(cell.effort.runs, halved(cell) ? 50 : 100);
    EXPECT_EQ(cell.condition.batch, 100);
  }
  options.quick = true;
  for (const Cell& cell : make_plan("000", options).cells) EXPECT_EQ(cell.effort.runs, halved(cell) ? 4 : 8);
}

TEST(Studies, Paper004TakesTenWarmUpAndTwoHundredTimedStepsAndFiveBatchSizes) {
  PlanOptions options;
  options.present = std::vector<std::string>{"cpu", "cuda:0"};
  const Plan plan = make_plan("004", options);
  std::set<int64_t> batches;
  std::set<std::string> modes;
  for (const Cell& cell : plan.cells) {
    EXPECT_EQ(cell.effort.warmup_steps, 10);
    if (cell.part != "convolution") continue;
    EXPECT_EQ(cell.effort.timed_steps, 200);
    batches.insert(cell.condition.batch);
    modes.insert(cell.condition.switches.at("conv"));
  }
  EXPECT_EQ(batches, (std::set<int64_t>{8, 16, 32, 64, 128}));
  EXPECT_EQ(modes, (std::set<std::string>{"fixed", "heuristic", "profile"}));
  std::set<std::string> missing;
  for (const Missing& line : plan.missing) missing.insert(line.what);
  EXPECT_TRUE(missing.contains("workload bert"));
  EXPECT_TRUE(missing.contains("device cuda:0-3"));
}

TEST(Studies, TracksAreKeptApart) {
  for (const std::string& name : study_names()) {
    std::map<std::string, std::string> tracks;
    for (const Cell& cell : make_plan(name, on_cpu()).cells) {
      const std::string& track = tracks.emplace(cell.part, cell.condition.track).first->second;
      ASSERT_EQ(cell.condition.track, track) << name << " " << cell.part;
      EXPECT_TRUE(track == "as_shipped" || track == "equal");
    }
  }
}

/// The numbers of a paper's tables and figures that a text of the file names: "Fig. 4, 6" or "Figures 1 to 4".
std::set<int> numbers_after(const std::string& text, const std::string& word) {
  std::set<int> numbers;
  const std::regex group(word + R"((?:ures?|ables?|s|\.)? ((?:\d+[a-c]?(?:, | and | to )?)+))");
  for (std::sregex_iterator it(text.begin(), text.end(), group), end; it != end; ++it) {
    const std::string list = (*it)[1];
    const std::regex entry(R"((\d+)[a-c]?( to (\d+))?)");
    for (std::sregex_iterator e(list.begin(), list.end(), entry); e != end; ++e) {
      const int from = std::stoi((*e)[1]);
      const int to = (*e)[3].matched ? std::stoi((*e)[3]) : from;
      for (int i = from; i <= to; ++i) numbers.insert(i);
    }
  }
  return numbers;
}

TEST(Studies, EveryTableAndFigureOfEveryPaperHasACounterpartOrAReason) {
  struct Paper {
    const char* name;
    int figures, tables;
  };
  for (const Paper& paper :
       {Paper{"000", 13, 2}, {"001", 5, 0}, {"002", 9, 0}, {"003", 20, 2}, {"004", 4, 7}}) {
    const Json study = read_toml(lab_home() + "/studies/" + paper.name + ".toml");
    std::set<int> figures, tables;
    const auto add = [&](const std::string& text) {
      figures.merge(numbers_after(text, "Fig"));
      tables.merge(numbers_after(text, "Table"));
    };
    for (const Json& part : study["part"]) {
      add(part.value("counterpart", ""));
      for (const Json& figure : part.value("figure", Json::array())) add(figure.value("counterpart", ""));
    }
    for (const Json& line : study.value("missing", Json::array())) add(line.value("what", ""));
    for (int i = 1; i <= paper.figures; ++i) EXPECT_TRUE(figures.contains(i)) << paper.name << " Fig. " << i;
    for (int i = 1; i <= paper.tables; ++i) EXPECT_TRUE(tables.contains(i)) << paper.name << " Table " << i;
  }
}

TEST(Plan, WorkloadsWithoutImageFilesAreMissingWhereTheseAreReadAndTheOthersWhereArraysAre) {
  const auto plan_of = [](const std::string& part) {
    const StudyText file("mini", std::string(kHead) + "[[part]]\nname = \"a\"\ntitle = \"A\"\n" + part);
    return make_plan(file.path(), on_cpu());
  };
  Plan plan = plan_of("phase = \"load\"\nworkloads = [\"lenet\", \"photos_cnn\"]\n");
  ASSERT_EQ(plan.missing.size(), 1u);
  EXPECT_EQ(plan.missing[0].what, "workload lenet");
  EXPECT_NE(plan.missing[0].why.find("it has no [images]"), std::string::npos);
  ASSERT_EQ(plan.cells.size(), 6u);
  EXPECT_EQ(plan.cells[0].condition.phase, "load");
  EXPECT_TRUE(plan.cells[0].optimizer.is_null());
  plan = plan_of(
      "phase = \"train\"\nworkloads = [\"lenet\"]\nswitches = [{ feed = \"loader\", storage = \"disk\" }]\n");
  EXPECT_TRUE(plan.cells.empty());
  ASSERT_EQ(plan.missing.size(), 1u);
  EXPECT_EQ(plan_of("phase = \"train\"\nswitches = [{ feed = \"loader\" }]\n").cells.size(), 6u);
  for (const char* part : {"phase = \"fit\"\nworkloads = [\"photos_cnn\"]\n",
                           "phase = \"load\"\nworkloads = [\"photos_cnn\"]\ninput = [[3, 80, 80]]\n",
                           "phase = \"load\"\nworkloads = [\"photos_cnn\"]\ninput = [[1, 28, 28]]\n"})
    EXPECT_TRUE(plan_of(part).cells.empty()) << part;
}

}  // namespace
}  // namespace tandem::lab
