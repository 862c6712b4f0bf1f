// Every file call of a run is made to fail, and every one that changes the disk is where the run is killed: each time
// the run ends with one line, what it had reported is there, and resuming it gives the bits of a run never stopped.
// ctest: timeout=600
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/train/checkpoint.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using tandem::testing::ProcessOptions;
using tandem::testing::ProcessResult;
using tandem::testing::read_text;
using tandem::testing::run_command;
using tandem::testing::TempFolder;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string value_of(const ProcessResult& result, const char* key) {
  const std::vector<std::string> lines = lines_of(result.out);
  const ordered_json last =
      lines.empty() ? ordered_json() : ordered_json::parse(lines.back(), nullptr, false);
  return last.is_object() && last.contains(key) ? last[key].dump() : "none";
}

class FileFaults : public ::testing::Test {
 protected:
  /// Three steps with a checkpoint each, and all files that a run writes.
  ProcessResult run(const std::string& out, const std::vector<std::string>& faults = {}) const {
    std::vector<std::string> arguments{
        "train", "mlp",    "--data",    "digits", "--limit", "30",    "--batch", "10", "--checkpoint-every",
        "1",     "--json", "--threads", "1",      "--best",  "--out", out};
    if (fs::exists(fs::path(out) / "config.json")) arguments.push_back("--resume");
    ProcessOptions options;
    if (!faults.empty()) {
      options.environment = {"LD_PRELOAD=" + library_, "FILE_FAULTS_FOLDER=" + out};
      options.environment.insert(options.environment.end(), faults.begin(), faults.end());
    }
    return run_command(arguments, options);
  }

  /// One run that is disturbed at a call, and its continuation.
  void check(size_t call, const std::string& name, int error, const std::string& whole) {
    const std::string where = "call " + std::to_string(call) + ", " + name +
                              (error ? ", error " + std::to_string(error) : ", killed");
    const std::string out = folder_ / ("run" + std::to_string(call) + "-" + std::to_string(error));
    std::vector<std::string> faults = {"FILE_FAULTS_AT=" + std::to_string(call)};
    if (error) faults.push_back("FILE_FAULTS_ERROR=" + std::to_string(error));
    const ProcessResult first = run(out, faults);
    int64_t reported = -1;
    for (const std::string& text : lines_of(first.out)) {
      const ordered_json line = ordered_json::parse(text, nullptr, false);
      if (line.is_object() && line.value("event", "") == "checkpoint") reported = line["step"];
    }
    std::string problem;
    if (error && first.status == 0 && value_of(first, "weights_sha256") != whole)
      problem += "; other weights";
    if (error && first.status != 0 &&
        (first.status != 1 || lines_of(first.err).size() != 1 || first.err.find("tandem: ") != 0))
      problem += "; not one line and status 1: " + first.err;
    if (!error && first.status != 0 && first.signal != SIGKILL) problem += "; not killed: " + first.err;
    if (reported >= 0) {
      std::vector<std::string> warnings;
      try {
        const auto found = tandem::newest_checkpoint(out, warnings);
        if (!found || found->checkpoint.state.step < reported) problem += "; a reported checkpoint is gone";
      } catch (const tandem::Error& unusable) {
        problem += std::string("; ") + unusable.what();
      }
    }
    const ProcessResult second = run(out);
    if (second.status != 0 || value_of(second, "weights_sha256") != whole)
      problem += "; resumed to other weights: " + second.err;
    std::error_code ignored;
    fs::remove_all(out, ignored);
    std::lock_guard lock(mutex_);
    EXPECT_EQ(problem, "") << where;
  }

  const TempFolder folder_;
  const std::string library_ =
      (tandem::testing::command_path().parent_path() / "libtandem_file_faults.so").string();
  std::mutex mutex_;
};

TEST_F(FileFaults, AtEveryCallOfARunLoseNothing) {
  ASSERT_TRUE(fs::exists(library_)) << library_;
  const std::string log = folder_ / "calls";
  const ProcessResult expected = run(folder_ / "whole", {"FILE_FAULTS_LOG=" + log});
  ASSERT_EQ(expected.status, 0) << expected.err;
  const std::string whole = value_of(expected, "weights_sha256");
  ASSERT_EQ(whole.size(), 66u);
  const std::vector<std::string> calls = lines_of(read_text(log));
  const auto count = [&](const char* call) {
    return std::count_if(calls.begin(), calls.end(),
                         [&](const std::string& line) { return line.find(call) == 0; });
  };
  // So the library does stand in the way of the calls.
  for (const char* call :
       {"open+", "write+", "fsync+", "rename+", "ftruncate+", "mkdir+", "remove+", "flock", "stat", "fstat"})
    EXPECT_GE(count(call), 1) << call;
  EXPECT_GE(count("rename+"), 8);

  struct Case {
    size_t call;
    int error;
  };
  std::vector<Case> cases;
  for (size_t i = 0; i < calls.size(); ++i) {
    cases.push_back({i + 1, calls[i].find("write+") == 0 ? ENOSPC : EIO});
    if (calls[i].find('+') != std::string::npos) cases.push_back({i + 1, 0});
  }
  RecordProperty("cases", static_cast<int>(cases.size()));
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      check(cases[i].call, calls[cases[i].call - 1], cases[i].error, whole);
    }
  };
  std::thread other(work);
  work();
  other.join();
}

}  // namespace
