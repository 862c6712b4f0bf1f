// lab/results: what was published can be read and analysed by this lab, holds no folder of a machine, and stands on the page.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lab/src/record/publish.h"
#include "lab/src/report/report.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(PublishedResults, EveryFolderIsReadAndAnalysedAndNamedOnThePage) {
  const fs::path home = fs::path(TANDEM_SOURCE_DIR) / "lab" / "results";
  const std::string page = text_of(home / "README.md");
  int studies = 0;
  for (const auto& machine : fs::directory_iterator(home)) {
    if (!machine.is_directory()) continue;
    for (const auto& study : fs::directory_iterator(machine.path())) {
      const std::string name = (machine.path().filename() / study.path().filename()).string();
      const Results results = load_results(study.path().string());
      EXPECT_FALSE(results.runs.empty()) << name;
      for (const lab::Run& run : results.runs) {
        EXPECT_EQ(run.last_words, without_folders(run.last_words)) << name;
        EXPECT_EQ(run.why, without_folders(run.why)) << name;
      }
      const Analysis analysis = analyse(results);
      EXPECT_FALSE(analysis.summaries.empty()) << name;
      EXPECT_FALSE(terminal_report(results, analysis).empty()) << name;
      EXPECT_NE(page.find(name), std::string::npos) << name << " is not on the page";
      ++studies;
    }
  }
  EXPECT_GT(studies, 0);
}

}  // namespace
}  // namespace tandem::lab
