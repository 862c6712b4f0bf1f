// tandem bench: a row per model and type, and what stands beside it from a result that was kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {
namespace {

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Bench, TimesStandBesideThoseThatWereKept) {
  const TempFolder folder;
  const std::string kept = folder / "kept.json";
  const ProcessResult first = run_command(
      {"bench", "mlp", "lenet", "--batch", "4", "--dtypes", "f32,bf16", "--save", kept, "--json"});
  ASSERT_EQ(first.status, 0) << first.err;
  const auto before = lines_of(first.out);
  ASSERT_EQ(before.size(), 4U);
  EXPECT_EQ(before[1]["model"], "mlp");
  EXPECT_EQ(before[1]["dtype"], "bf16");
  EXPECT_EQ(before[1]["batch"], 4);
  EXPECT_TRUE(before[1]["before_ms"].is_null());
  for (const auto& line : before) EXPECT_GT(line["ms"].get<double>(), 0);
  const ProcessResult second = run_command({"bench", "lenet", "--batch", "4", "--against", kept, "--json"});
  ASSERT_EQ(second.status, 0) << second.err;
  const auto beside = lines_of(second.out);
  ASSERT_EQ(beside.size(), 1U);
  EXPECT_NEAR(beside[0]["before_ms"].get<double>(), before[2]["ms"].get<double>(), 1e-4);
  EXPECT_NEAR(beside[0]["ratio"].get<double>(),
              beside[0]["ms"].get<double>() / beside[0]["before_ms"].get<double>(), 1e-6);
  const ProcessResult table = run_command({"bench", "mlp", "--batch", "4", "--against", kept});
  EXPECT_NE(table.out.find("before"), std::string::npos);
  EXPECT_NE(table.out.find("mlp"), std::string::npos);
}

TEST(Bench, AModelThatThereIsNotIsNamed) {
  const ProcessResult result = run_command({"bench", "mlp", "nonesuch", "--batch", "4", "--json"});
  EXPECT_NE(result.status, 0);
  EXPECT_NE(result.err.find("nonesuch"), std::string::npos) << result.err;
}

TEST(Bench, AFileThatWasNotKeptByItIsRefused) {
  const TempFolder folder;
  write_text(folder / "other.json", "{\"steps\": 3}");
  write_text(folder / "torn.json", "{\"steps\": [");
  for (const char* name : {"other.json", "torn.json", "missing.json"}) {
    const ProcessResult result = run_command({"bench", "mlp", "--against", folder / name});
    EXPECT_EQ(result.status, 2) << name;
    EXPECT_NE(result.err.find(name), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace tandem::testing
