// A run that is killed with SIGKILL at random moments and resumed, several times over, ends with the weights of a run
// never stopped. The moments come from a seed that is printed; TANDEM_KILL_SEED repeats it.
// ctest: cuda timeout=600
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tandem/core/backend.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace {

using nlohmann::ordered_json;
using tandem::testing::Process;
using tandem::testing::ProcessResult;
using tandem::testing::run_command;
using tandem::testing::TempFolder;

ordered_json last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end);
  return ordered_json::parse(text.substr(begin == std::string::npos ? 0 : begin + 1, end - begin));
}

struct Case {
  const char* model;
  const char* optimizer;
  const char* engine;
  const char* limit;
  const char* device = "cpu";
  std::vector<std::string> more = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.optimizer << " " << c.engine; }

class KillAndResume : public ::testing::TestWithParam<Case> {};

TEST_P(KillAndResume, EndsWithTheWeightsAndMetricsOfARunNeverStopped) {
  const char* given = std::getenv("TANDEM_KILL_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("TANDEM_KILL_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);

  const Case& c = GetParam();
  if (!tandem::find_backend(tandem::parse_device(c.device).kind))
    GTEST_SKIP() << "this machine has no " << c.device;
  const TempFolder folder;
  setenv("TANDEM_CACHE", folder.path().c_str(), 1);  // both runs choose by one table
  const auto arguments = [&](const std::string& out) {
    std::vector<std::string> list{"train",    c.model,   "--data",   "digits",      "--limit",
                                  c.limit,    "--batch", "20",       "--optimizer", c.optimizer,
                                  "--engine", c.engine,  "--epochs", "2",           "--checkpoint-every",
                                  "3",        "--json",  "--out",    folder / out,  "--device",
                                  c.device};
    list.insert(list.end(), c.more.begin(), c.more.end());
    return list;
  };
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult whole = run_command(arguments("whole"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  std::chrono::duration<double> length = std::chrono::steady_clock::now() - begin;

  // Killed at a moment anywhere in the length of a whole run, up to eight times; then left alone.
  int kills = 0;
  for (int attempt = 0;; ++attempt) {
    ASSERT_LT(attempt, 40);
    std::vector<std::string> now = arguments("killed");
    if (std::filesystem::exists(folder / "killed/config.json")) now.push_back("--resume");
    Process process(now);
    if (kills < 8) {
      const double moment = std::uniform_real_distribution<double>(0, length.count())(random);
      std::this_thread::sleep_for(std::chrono::duration<double>(moment));
      process.kill();
    }
    const ProcessResult result = process.wait();
    if (result.signal != 0) {
      ++kills;
      continue;
    }
    ASSERT_EQ(result.status, 0) << result.err;
    const ordered_json expected = last_line(whole.out), got = last_line(result.out);
    for (const char* key : {"weights_sha256", "train_loss", "test_loss", "test_accuracy", "steps", "epochs"})
      EXPECT_EQ(got[key], expected[key]) << key << " after " << kills << " kills";
    if (kills >= 3) break;  // it ended early on: begin again until it has been killed often enough
    length *= 0.7;          // the first run may have been slow by chance
    std::filesystem::remove_all(folder / "killed");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, KillAndResume,
    ::testing::Values(Case{"lenet", "sgd", "graph", "600"}, Case{"mlp", "adam", "eager", "400"},
                      Case{"lenet", "adam", "graph", "400", "cpu", {"--conv", "profile"}},
                      Case{"mnist_cnn", "adam", "graph", "60"},
                      Case{"mlp", "adamw", "eager", "400", "cpu", {"--dtype", "f16", "--ema", "0.9"}},
                      Case{"mlp",
                           "lamb",
                           "graph",
                           "400",
                           "cpu",
                           {"--schedule", "plateau", "--warmup", "5", "--ema", "0.9", "--accumulate", "2",
                            "--early-stop", "3", "--restore-best", "--best", "--tensorboard", "--clip-norm",
                            "1"}},
                      Case{"lenet", "adam", "graph", "600", "cuda"}),
    [](const auto& info) {
      return std::string(info.param.model) + "_" + info.param.optimizer + "_" + info.param.engine + "_" +
             info.param.device;
    });

}  // namespace
