// Records: JSON both ways, the durable append, torn ends, and files that break a rule.
#include "lab/src/record/record.h"
#include "lab/src/record/publish.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tandem/core/error.h"
#include "tests/support/growth.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab {
namespace {

using testing::message_of;
using testing::read_text;
using testing::TempFolder;
using testing::write_text;

Run full_run() {
  lab::Run run;
  run.part = "training_time";
  run.system = "pytorch:eager";
  run.control = "A/A";
  run.condition = {"lenet",     "train", "as_shipped",         "cuda:0", "tf32", 100,
                   {1, 28, 28}, "adam",  {{"conv", "profile"}}};
  run.block = 3;
  run.order = 2;
  run.seed = std::numeric_limits<uint64_t>::max();
  run.started = "2024-01-02T03:04:05Z";
  run.status = Status::crashed;
  run.why = "signal 11";
  run.last_words = "Segmentation fault\n\"quoted\"\t\x01";
  run.metrics = {{"step.latency_s", 0.1},
                 {"fit.loss", std::numeric_limits<double>::quiet_NaN()},
                 {"a", std::numeric_limits<double>::infinity()},
                 {"b", -std::numeric_limits<double>::infinity()},
                 {"c", 5e-324},
                 {"d", 0.1 + 0.2}};
  run.unavailable = {{"gpu.power_w", "no NVML"}};
  run.sources = {{"cpu.percent", "/proc/stat"}};
  run.notes = {"PSS was read every 2 s"};
  run.step_s = {0.25, 1e-9};
  run.epochs = {{1, 2.5, 0.5, 0.3, 0.1, {{"accuracy", 0.9}}, {{"accuracy", 0.97}}},
                {2, 2.25, 0.5, 0.2, std::nullopt, {}, {}}};
  run.confusion = {{9, 1}, {0, 10}};
  run.traces = {{"cpu.percent", "%", "stat", {0, 0.1}, {50, 60}}};
  run.breakdown = {{"kernel_share", 0.5}};
  run.gate = {{"passed", true}};
  run.hello = {{"version", "2.0"}};
  return run;
}

void start_study(const TempFolder& folder) { write_text(folder / "study.json", R"({"title": "t"})"); }

TEST(Record, A_run_survives_JSON_in_every_field) {
  const lab::Run run = full_run();
  const lab::Run back = run_from_json(Json::parse(to_json(run).dump()));
  EXPECT_EQ(back.condition, run.condition);
  EXPECT_EQ(back.seed, run.seed);
  EXPECT_EQ(back.status, run.status);
  EXPECT_EQ(back.last_words, run.last_words);
  EXPECT_EQ(back.sources, run.sources);
  EXPECT_EQ(back.notes, run.notes);
  EXPECT_EQ(back.metrics.at("d"), run.metrics.at("d"));
  EXPECT_EQ(back.metrics.at("c"), 5e-324);
  EXPECT_TRUE(std::isnan(back.metrics.at("fit.loss")));
  EXPECT_EQ(back.metrics.at("b"), -std::numeric_limits<double>::infinity());
  ASSERT_EQ(back.epochs.size(), 2u);
  EXPECT_EQ(back.epochs[0].test_metrics.at("accuracy"), 0.97);
  EXPECT_EQ(back.epochs[0].metrics, run.epochs[0].metrics);
  EXPECT_FALSE(back.epochs[1].test_loss);
  EXPECT_EQ(back.confusion, run.confusion);
  ASSERT_EQ(back.traces.size(), 1u);
  EXPECT_EQ(back.traces[0].values, run.traces[0].values);
  EXPECT_EQ(to_json(back), to_json(run));
}

TEST(Record, An_empty_run_is_short_and_survives) {
  lab::Run run;
  run.part = "p";
  run.system = "s";
  const Json json = to_json(run);
  EXPECT_FALSE(json.contains("metrics"));
  EXPECT_FALSE(json.contains("traces"));
  EXPECT_EQ(to_json(run_from_json(json)), json);
}

TEST(Record, Every_status_has_a_name_that_is_read_back) {
  for (int i = 0; i <= static_cast<int>(Status::failed); ++i)
    EXPECT_EQ(parse_status(to_string(static_cast<Status>(i))), static_cast<Status>(i));
  EXPECT_NE(message_of<Error>([] { parse_status("fine"); }).find("out_of_memory"), std::string::npos);
}

TEST(Record, A_condition_reads_plainly_and_tells_conditions_apart) {
  Condition condition;
  condition.workload = "lenet";
  condition.phase = "train";
  condition.batch = 100;
  EXPECT_EQ(condition.text(), "lenet train, batch 100, cpu, f32");
  EXPECT_EQ(full_run().condition.text(),
            "lenet train, batch 100, cuda:0, tf32, input 1x28x28, adam, as shipped, conv=profile");
  const Condition base = full_run().condition;
  std::vector<Condition> others(8, base);
  others[0].workload = "vgg16";
  others[1].phase = "infer";
  others[2].track = "equal";
  others[3].device = "cpu";
  others[4].precision = "f32";
  others[5].batch = 10;
  others[6].input = {1, 2, 828};
  others[7].switches["conv"] = "fixed";
  for (const Condition& other : others) EXPECT_NE(other.text(), base.text());
}

TEST(Publish, Records_go_to_others_packed_and_without_folders) {
  EXPECT_EQ(without_folders("a /home/me/x y.py"), "a …/x y.py");
  EXPECT_EQ(without_folders("File \"/opt/lib/a-b.py\", line 3; /tmp, /proc/1/stat 3/4 and a/b/c"),
            "File \"…/a-b.py\", line 3; /tmp, /proc/1/stat 3/4 and a/b/c");
  TempFolder folder, to;
  start_study(folder);
  EXPECT_NE(message_of<Error>([&] { publish(folder.path(), to.path() + "/a"); }).find("must have a run"),
            std::string::npos);
  lab::Run run = full_run();
  run.last_words = "Traceback: /home/me/tandem/driver.py";
  append_run(folder.path(), run);
  write_text(
      folder / "provenance.json",
      R"({"files": {"/home/me/lib.so": 1}, "environment": {"OMP_NUM_THREADS": "2", "TANDEM_DATA": "/data/me"}})");
  const std::string target = to.path() + "/a";
  EXPECT_EQ(publish(folder.path(), target).size(), 3u);
  const Results results = load_results(target);
  ASSERT_EQ(results.runs.size(), 1u);
  EXPECT_EQ(results.runs[0].metrics.at("step.latency_s"), run.metrics.at("step.latency_s"));
  EXPECT_EQ(results.runs[0].last_words, "Traceback: …/driver.py");
  EXPECT_EQ(results.provenance["files"], (Json{{"…/lib.so", 1}}));
  EXPECT_EQ(results.provenance["environment"], (Json{{"OMP_NUM_THREADS", "2"}}));
  EXPECT_EQ(publish(folder.path(), target).size(), 3u) << "again, over what it published";
  const std::string study = read_text(folder / "study.json");
  write_text(folder / "study.json", R"({"name": "another"})");
  EXPECT_NE(message_of<Error>([&] { publish(folder.path(), target); }).find("must hold the same study"),
            std::string::npos);
  EXPECT_EQ(load_results(target).study.value("name", ""), results.study.value("name", ""));
  write_text(folder / "study.json", study);
  write_text(folder / "gate.json", "{");
  EXPECT_NE(message_of<Error>([&] { publish(folder.path(), target); }).find("gate.json"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { publish(folder.path(), folder.path()); }).find("must be a new folder"),
            std::string::npos);
}

TEST(Record, Appended_runs_are_read_back_in_their_order) {
  TempFolder folder;
  start_study(folder);
  EXPECT_TRUE(load_results(folder.path()).runs.empty());
  lab::Run run = full_run();
  for (int64_t i = 0; i < 3; ++i) {
    run.block = i;
    append_run(folder.path(), run);
  }
  write_text(folder / "provenance.json", R"({"cpu": "x"})");
  const Results results = load_results(folder.path());
  EXPECT_EQ(results.study.at("title"), "t");
  EXPECT_EQ(results.provenance.at("cpu"), "x");
  ASSERT_EQ(results.runs.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(results.runs[static_cast<size_t>(i)].block, i);

  // Packed runs, as results are published, are read, and nothing is appended beside them.
  ASSERT_EQ(std::system(("gzip '" + folder.path() + "/runs.jsonl'").c_str()), 0);
  ASSERT_EQ(load_results(folder.path()).runs.size(), 3u);
  EXPECT_NE(message_of<Error>([&] { append_run(folder.path(), run); }).find("must not be packed"),
            std::string::npos);
  write_text(folder / "runs.jsonl", "");
  EXPECT_NE(message_of<Error>([&] { load_results(folder.path()); }).find("one file of runs"),
            std::string::npos);
}

TEST(Record, Last_words_that_are_no_UTF_8_cost_nothing) {
  TempFolder folder;
  start_study(folder);
  lab::Run run = full_run();
  run.last_words = "bad \xff\xfe bytes";
  append_run(folder.path(), run);
  EXPECT_EQ(load_results(folder.path()).runs.at(0).last_words, "bad \xEF\xBF\xBD\xEF\xBF\xBD bytes");
}

// A kill may cut the file after any byte. Whatever is left, the whole lines are read and the next append fixes the rest.
TEST(Record, A_file_cut_after_any_byte_is_read_and_appended_to) {
  TempFolder folder;
  start_study(folder);
  lab::Run run;
  run.part = "p";
  run.system = "s";
  run.condition.workload = "lenet";
  for (int64_t i = 0; i < 2; ++i) {
    run.block = i;
    append_run(folder.path(), run);
  }
  const std::string whole = read_text(folder / "runs.jsonl");
  const size_t line = whole.size() / 2;
  run.block = 7;
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    write_text(folder / "runs.jsonl", whole.substr(0, cut));
    // A line without its newline is whole where its last brace is there.
    const size_t lines = (cut >= line - 1 ? 1u : 0u) + (cut >= 2 * line - 1 ? 1u : 0u);
    ASSERT_EQ(load_results(folder.path()).runs.size(), lines) << "cut after byte " << cut;
    append_run(folder.path(), run);
    const Results results = load_results(folder.path());
    ASSERT_EQ(results.runs.size(), lines + 1) << "cut after byte " << cut;
    ASSERT_EQ(results.runs.back().block, 7);
  }
}

TEST(Record, A_torn_line_longer_than_any_buffer_is_cut) {
  TempFolder folder;
  start_study(folder);
  append_run(folder.path(), full_run());
  const std::string whole = read_text(folder / "runs.jsonl");
  write_text(folder / "runs.jsonl", whole + "{\"part\": \"" + std::string(300000, 'x'));
  EXPECT_EQ(load_results(folder.path()).runs.size(), 1u);
  append_run(folder.path(), full_run());
  EXPECT_EQ(read_text(folder / "runs.jsonl"), whole + whole);
  // A power cut may leave zeros where the data never came.
  write_text(folder / "runs.jsonl", whole + std::string(4096, '\0'));
  EXPECT_EQ(load_results(folder.path()).runs.size(), 1u);
  append_run(folder.path(), full_run());
  EXPECT_EQ(read_text(folder / "runs.jsonl"), whole + whole);
}

TEST(Record, A_bad_line_is_named_with_its_number_and_fix) {
  TempFolder folder;
  start_study(folder);
  append_run(folder.path(), full_run());
  const std::string good = read_text(folder / "runs.jsonl");
  const auto refused = [&](const std::string& line) {
    write_text(folder / "runs.jsonl", good + line + "\n" + good);
    const std::string message = message_of<Error>([&] { load_results(folder.path()); });
    EXPECT_NE(message.find("runs.jsonl', line 2: "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  };
  EXPECT_NE(refused("{\"part\": ").find("Remove that line"), std::string::npos);
  EXPECT_NE(refused("[1]").find("must be an object; got a JSON array"), std::string::npos);
  EXPECT_NE(refused("{}").find("must have 'part'"), std::string::npos);
  EXPECT_NE(refused(R"({"part": 1})").find("'part' must be a text; got 1"), std::string::npos);
  EXPECT_NE(refused(R"({"part": "p", "system": "s", "status": "so"})").find("got 'so'"), std::string::npos);
  const auto with = [&](const char* name, const Json& value) {
    Json json = to_json(full_run());
    json[name] = value;
    return refused(json.dump());
  };
  EXPECT_NE(with("block", 1.5).find("'block' must be a whole number"), std::string::npos);
  EXPECT_NE(with("block", 18446744073709551615ull).find("'block' must be a whole number"), std::string::npos);
  EXPECT_NE(with("seed", -1).find("'seed' must be a whole number"), std::string::npos);
  EXPECT_NE(with("metrics", {{"x", "fast"}}).find("'metrics.x' must be a number; got \"fast\""),
            std::string::npos);
  EXPECT_NE(with("metrics", {{"x", nullptr}}).find("'metrics.x' must be a number; got null"),
            std::string::npos);
  EXPECT_NE(with("metrics", 3).find("'metrics' must be an object"), std::string::npos);
  EXPECT_NE(with("condition", 3).find("'condition' must be an object"), std::string::npos);
  EXPECT_NE(with("confusion", {{1, "a"}}).find("'confusion' must be a whole number"), std::string::npos);
  EXPECT_NE(with("traces", {{{"seconds", {1.0}}}}).find("as many seconds as values; got 1 and 0"),
            std::string::npos);
  EXPECT_NE(with("epochs", {1}).find("'epochs' must be an object"), std::string::npos);
}

TEST(Record, A_folder_without_a_study_is_refused) {
  TempFolder folder;
  EXPECT_NE(message_of<Error>([&] { load_results(folder.path()); }).find("without study.json"),
            std::string::npos);
  write_text(folder / "study.json", "[]");
  EXPECT_NE(message_of<Error>([&] { load_results(folder.path()); }).find("one JSON object"),
            std::string::npos);
  write_text(folder / "study.json", "{");
  EXPECT_NE(message_of<Error>([&] { load_results(folder.path()); }).find("must be JSON"), std::string::npos);
  start_study(folder);
  write_text(folder / "provenance.json", "no");
  EXPECT_NE(message_of<Error>([&] { load_results(folder.path()); }).find("provenance.json"),
            std::string::npos);
  EXPECT_NE(
      message_of<Error>([&] { append_run(folder / "nowhere", full_run()); }).find("cannot open the file"),
      std::string::npos);
}

TEST(Record, Reading_is_linear_in_the_number_of_runs) {
  TempFolder folder;
  start_study(folder);
  const std::string line = to_json(full_run()).dump() + "\n";
  EXPECT_TRUE(testing::in_proportion(100, [&](int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += line;
    write_text(folder / "runs.jsonl", text);
    EXPECT_EQ(load_results(folder.path()).runs.size(), static_cast<size_t>(lines));
  }));
}

TEST(RunRecord, NamesItsDataAlsoWhereOlderRecordsHaveIt) {
  lab::Run run;
  run.part = "a", run.system = "tandem:graph", run.condition.workload = "lenet",
  run.condition.phase = "train";
  EXPECT_FALSE(to_json(run).contains("data"));
  run.data = "synthetic-mnist";
  EXPECT_EQ(to_json(run)["data"], "synthetic-mnist");
  EXPECT_EQ(run_from_json(to_json(run)).data, "synthetic-mnist");
  Json older = to_json(run);
  older.erase("data");
  older["hello"] = {{"data", "mnist"}};
  EXPECT_EQ(run_from_json(older).data, "mnist");
  EXPECT_TRUE(is_real_data("mnist"));
  EXPECT_FALSE(is_real_data("synthetic-mnist"));
  EXPECT_FALSE(is_real_data("synthetic-3x80x80"));
  EXPECT_FALSE(is_real_data("")) << "what is not known is not real";
}

}  // namespace
}  // namespace tandem::lab
