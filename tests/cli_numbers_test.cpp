// Boundary values for every numeric option of every command, taken from the command's own help: each is taken, or refused
// with one line and status 2. No number wraps, hangs or crashes.
// ctest: timeout=300
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace {

using nlohmann::ordered_json;
using tandem::testing::Process;
using tandem::testing::ProcessResult;
using tandem::testing::run_command;
using tandem::testing::TempFolder;

struct Option {
  std::string name, type;
};

/// The options of a command that take a number: lines "  --epochs INT …" or "--seed UINT:NONNEGATIVE=0" of its help, and a
/// time, which is a number with a unit.
std::vector<Option> numeric_options(const std::string& command) {
  std::vector<Option> options;
  std::istringstream in(run_command({command, "--help"}).out);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, type;
    words >> name >> type;
    type = name == "--time-budget" ? "FLOAT" : type.substr(0, type.find_first_of(":="));
    if (name.substr(0, 2) == "--" && (type == "INT" || type == "UINT" || type == "FLOAT"))
      options.push_back({name, type});
  }
  return options;
}

const std::vector<std::string> kValues = {"0",
                                          "-1",
                                          "1",
                                          "4294967297",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551616",
                                          "1e300",
                                          "nan",
                                          "-1e-300",
                                          "inf",
                                          "",
                                          "many"};

class Numbers : public ::testing::Test {
 protected:
  void SetUp() override {
    const ProcessResult made = run_command({"train", "mlp", "--data", "digits", "--limit", "10", "--batch",
                                            "10", "--out", folder_ / "made", "--best"});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  /// A short call of a command, which one more option changes.
  std::vector<std::string> call(const std::string& command, const std::string& out) const {
    if (command == "train")
      return {"train",   "mlp", "--data",        "digits", "--limit", "10",
              "--batch", "5",   "--time-budget", "0.1",    "--out",   out};
    if (command == "eval") return {"eval", folder_ / "made", "--limit", "10"};
    if (command == "predict") return {"predict", folder_ / "made"};
    if (command == "models") return {"models", "mlp"};
    if (command == "profile") return {"profile", "mlp", "--batch", "2", "--steps", "1", "--out", out};
    return {"explain", "mlp", "--batch", "2"};
  }
  const TempFolder folder_;
};

TEST_F(Numbers, OfEveryOptionAreTakenOrRefusedInOneLine) {
  // What belongs to a numeric option for it to count.
  const std::map<std::string, std::vector<std::string>> beside = {
      {"--decay-every", {"--schedule", "step"}}, {"--decay-factor", {"--schedule", "step"}},
      {"--least-lr", {"--schedule", "cosine"}},  {"--schedule-length", {"--schedule", "one-cycle"}},
      {"--patience", {"--schedule", "plateau"}}, {"--min-delta", {"--early-stop", "1"}}};
  std::map<std::string, size_t> found;
  int taken = 0, refused = 0, number = 0;
  for (const char* command : {"train", "eval", "predict", "models", "explain", "profile"}) {
    for (const Option& option : numeric_options(command)) {
      ++found[command];
      for (const std::string& value : kValues) {
        const std::string out = folder_ / std::to_string(number++);
        std::vector<std::string> arguments = call(command, out);
        if (const auto more = beside.find(option.name); more != beside.end())
          arguments.insert(arguments.end(), more->second.begin(), more->second.end());
        const auto given = std::find(arguments.begin(), arguments.end(), option.name);
        if (given != arguments.end()) arguments.erase(given, given + 2);
        arguments.insert(arguments.end(), {option.name + "=" + value});
        const std::string what = std::string(command) + " " + option.name + " '" + value + "'";
        Process process(arguments);
        std::promise<void> end;
        std::thread watch([&, ended = end.get_future()] {  // far longer than any of them takes
          if (ended.wait_for(std::chrono::seconds(60)) != std::future_status::ready) process.kill();
        });
        const ProcessResult result = process.wait();
        end.set_value();
        watch.join();
        EXPECT_EQ(result.signal, 0) << what;
        if (result.status == 0) {
          ++taken;
          if (!result.err.empty()) {
            const bool is_told = result.err.starts_with("tandem: stopped ") ||  // by the time or early
                                 result.err.starts_with("tandem: limit: ");     // fewer samples than classes
            EXPECT_TRUE(is_told) << what << "\n" << result.err;
          }
          continue;
        }
        ++refused;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << what << "\n" << result.err;
        EXPECT_EQ(result.err.find("tandem: "), 0u) << what << "\n" << result.err;
        // Beyond usage: a rate that makes the loss infinite, samples that the data does not have, and what is of another task.
        bool by_data = false;
        for (const char* why : {"the loss became", "the number of test samples", "are of language models",
                                "data digits: does not take", "is of speech-synthesis", "are of translations",
                                "length: is of text"})
          by_data = by_data || result.err.find(why) != std::string::npos;
        EXPECT_EQ(result.status, by_data ? 1 : 2) << what << "\n" << result.err;
        EXPECT_FALSE(result.status == 2 && std::filesystem::exists(out)) << what << " left a folder";
      }
    }
  }
  EXPECT_GE(found["train"], 23u);
  for (const char* command : {"eval", "predict", "models", "explain", "profile"})
    EXPECT_GE(found[command], 1u) << command;
  EXPECT_GT(taken, 50);
  EXPECT_GT(refused, 150);
}

TEST_F(Numbers, BeyondTheirRangeAreNamedWithIt) {
  const auto complaint = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", "mlp", "--data", "digits", "--out", folder_ / "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = run_command(arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    return result.err;
  };
  EXPECT_EQ(complaint({"--epochs", "9223372036854775807"}),
            "tandem: epochs: must be at most 1000000000000000; got 9223372036854775807.\n");
  EXPECT_EQ(complaint({"--accumulate", "9223372036854775807"}),
            "tandem: accumulate: must be at most 1000000000; got 9223372036854775807.\n");
  EXPECT_EQ(complaint({"--threads", "4294967297"}),
            "tandem: threads: must be at most 4096; got 4294967297.\n");
  EXPECT_EQ(complaint({"--lr", "1e300"}),
            "tandem: lr: must be a number above 0 and at most 1e+30; got 1e+300. Try 0.01.\n");
}

TEST_F(Numbers, AtTheEndOfTheirRangeCount) {
  const ProcessResult result = run_command({"train",
                                            "mlp",
                                            "--data",
                                            "digits",
                                            "--limit",
                                            "10",
                                            "--batch",
                                            "1000000000",
                                            "--accumulate",
                                            "1000000000",
                                            "--epochs",
                                            "1000000000000000",
                                            "--steps",
                                            "3",
                                            "--checkpoint-every",
                                            "1000000000000000",
                                            "--warmup",
                                            "1000000000000000",
                                            "--out",
                                            folder_ / "far",
                                            "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(ordered_json::parse(line)["steps"], 3);
  while (std::getline(lines, line))
    if (ordered_json::parse(line)["event"] == "done") {
      EXPECT_EQ(ordered_json::parse(line)["steps"], 3);
    }
}

}  // namespace
