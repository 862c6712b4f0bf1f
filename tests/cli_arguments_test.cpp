// Arguments of the command that once did something else than they said, without a word.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/process.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {
namespace {

/// Runs, expects the status and one line "tandem: …" on stderr, and returns that line.
std::string complaint(const std::vector<std::string>& arguments, int status,
                      const ProcessOptions& options = {}) {
  const ProcessResult result = run_command(arguments, options);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("tandem: ")) << result.err;
  return result.err;
}

TEST(Arguments, AFlagWithAnEmptyTextIsRefusedAndNotTakenAsNotGiven) {
  const TempFolder folder;
  const ProcessOptions here{.folder = folder.path()};
  const auto refused = [&](const std::vector<std::string>& arguments) {
    return complaint(arguments, 2, here);
  };
  EXPECT_EQ(refused({"train", "mlp", "--data", "digits", "--out", ""}),
            "tandem: out: must not be empty; got ''. Give a value, or leave --out out.\n");
  refused({"train", "mlp", "--data", "digits", "--out="});
  for (const char* flag : {"--data", "--data-dir", "--config", "--target", "--weights", "--freeze", "--seed"})
    EXPECT_HAS(refused({"train", "mlp", flag, ""}), std::string(flag + 2) + ": must not be empty");
  EXPECT_HAS(refused({"eval", "runs/mlp", "--data", ""}), "data: must not be empty");
  EXPECT_HAS(refused({"predict", "runs/mlp", "--to", ""}), "to: must not be empty");
  EXPECT_HAS(refused({"search", "mlp", "--trials", "1", "--space", ""}), "space: must not be empty");
  EXPECT_HAS(refused({"profile", "mlp", "--out", ""}), "out: must not be empty");
  write_text(folder / "run.toml", "model = \"mlp\"\nout = \"\"\n");
  EXPECT_HAS(refused({"train", "--config", "run.toml"}), "config 'run.toml', line 2: out: must not be empty");
  write_text(folder / "list.toml", "model = \"mlp\"\nfreeze = [\"\"]\n");
  EXPECT_HAS(refused({"train", "--config", "list.toml"}),
             "config 'list.toml', line 2: freeze: must be words");
  EXPECT_FALSE(std::filesystem::exists(folder / "runs"));
}

TEST(Arguments, ATextBesideATableIsRefusedAndATableAloneIsReadRowByRow) {
  const TempFolder folder;
  std::string rows = "message,label\n";
  for (int i = 0; i < 40; ++i) rows += i % 2 == 0 ? "see you at noon,ham\n" : "buy cheap pills,spam\n";
  write_text(folder / "mails.csv", rows);
  const std::string run = folder / "run", table = folder / "mails.csv";
  const ProcessResult trained =
      run_command({"train", "imdb_lstm", "--data", "csv", "--data-dir", table, "--text", "message", "--steps",
                   "2", "--batch", "8", "--out", run});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ProcessResult alone = run_command({"predict", run, table});
  EXPECT_EQ(std::count(alone.out.begin(), alone.out.end(), '\n'), 40);
  for (const auto& [first, second] :
       {std::pair<std::string, std::string>("see you", table), {table, "see you"}})
    EXPECT_HAS(complaint({"predict", run, first, second}, 1),
               "predict: takes one table at a time, alone; got 2 arguments.");
  EXPECT_HAS(complaint({"predict", run, "see you", ""}, 1), "predict: a text must have a word; '' has none.");
  write_text(folder / "holes.csv", "message\nsee you\n\"\"\nbuy\n");
  EXPECT_HAS(complaint({"predict", run, folder / "holes.csv"}, 1),
             "holes.csv', column 'message': must hold text");
  const ProcessResult texts = run_command({"predict", run, "see you", "the prices are in prices.csv"});
  EXPECT_EQ(texts.status, 0) << texts.err;
  EXPECT_EQ(std::count(texts.out.begin(), texts.out.end(), '\n'), 2);
}

TEST(Arguments, ATableForARunOnImagesIsRefusedAsSuch) {
  const TempFolder folder;
  write_text(folder / "a.csv", "a,b\n1,2\n2,3\n");
  ASSERT_EQ(
      run_command({"train", "mlp", "--data", "digits", "--limit", "20", "--out", folder / "run"}).status, 0);
  EXPECT_HAS(complaint({"eval", folder / "run", "--data", "csv", "--data-dir", folder / "a.csv"}, 1),
             "data csv: the run was trained on digits, not on a table. Choose another --data.");
}

TEST(Arguments, AnIndexBeyondTheTestPartIsNamed) {
  const TempFolder folder;
  ASSERT_EQ(
      run_command({"train", "mlp", "--data", "digits", "--limit", "20", "--out", folder / "run"}).status, 0);
  EXPECT_HAS(
      complaint({"predict", folder / "run", "--index", "3,999999"}, 1),
      "tandem: index: must be at least 0 and below 10000, the number of test samples of digits; got 999999.");
}

TEST(Arguments, AFileThatMayNotGrowIsOneLineAndNoSignal) {
  const TempFolder folder;
  EXPECT_HAS(complaint({"train", "mlp", "--data", "digits", "--limit", "20", "--out", folder / "run"}, 1,
                       {.max_file_bytes = 20000}),
             "File too large");
  const ProcessResult listed = run_command({"models"}, {.max_file_bytes = 200});
  EXPECT_EQ(listed.status, 1);
  EXPECT_HAS(listed.err, "tandem: cannot write to the standard output.");
  const ProcessResult help = run_command({"train", "--help"}, {.max_file_bytes = 200});
  EXPECT_EQ(help.status, 1);
  EXPECT_HAS(help.err, "tandem: cannot write to the standard output.");
}

}  // namespace
}  // namespace tandem::testing
