// The command `tandem lab` as a user types it: what it lists, what wrong usage gets, and a whole small study.
// ctest: timeout=600
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Said {
  int status = -1;
  std::string out, err;
};

/// A folder that is gone after the test, and the command run in it.
class Lab : public ::testing::Test {
 protected:
  Lab() {
    std::string name = (fs::temp_directory_path() / "lab_command_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Lab() override { fs::remove_all(folder_); }

  Said lab(const std::string& words) const {
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
    const std::string command = "cd '" + folder_.string() + "' && '" + TANDEM_BIN_DIR + "/tandem' lab " +
                                words + " >'" + out + "' 2>'" + err + "' </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
  }

  fs::path folder_;
};

TEST_F(Lab, ListsFrameworksWorkloadsAndStudies) {
  const Said said = lab("list");
  EXPECT_EQ(said.status, 0) << said.err;
  for (const char* name : {"tandem", "pytorch", "theano", "lenet", "vgg16", "000", "004", "mine"})
    EXPECT_NE(said.out.find(name), std::string::npos) << name;
}

TEST_F(Lab, WrongUsageIsOneLineAndStatusTwo) {
  for (const char* words :
       {"nosuch", "run", "run 009", "run 000 --quick --budget 1h", "run 000 --runs 0",
        "run 000 --frameworks caffe", "run 000 --workloads bert", "run 000 --device tpu",
        "run 000 --threads 100000", "run 000 --interval 0", "run 000 --budget soon", "advise", "advise bert",
        "advise lenet --goal beauty", "setup caffe", "compare one", "list extra"}) {
    const Said said = lab(words);
    EXPECT_EQ(said.status, 2) << words << ": " << said.err;
    EXPECT_EQ(said.out, "") << words;
    EXPECT_EQ(said.err.find('\n'), said.err.size() - 1) << words << ": " << said.err;
    EXPECT_EQ(said.err.rfind("tandem lab: ", 0), 0u) << words << ": " << said.err;
  }
  EXPECT_FALSE(fs::exists(folder_ / "runs")) << "nothing is begun";
}

TEST_F(Lab, AFolderWithoutAStudyIsAFailure) {
  for (const char* words : {"report nowhere", "compare nowhere nowhere"}) {
    const Said said = lab(words);
    EXPECT_EQ(said.status, 1) << words;
    EXPECT_NE(said.err.find("must hold a study"), std::string::npos) << said.err;
  }
}

TEST_F(Lab, RunsASmallStudyGoesOnAndReports) {
  const std::string words = "run 000 --quick --runs 1 --frameworks tandem:eager,tandem:graph --out study";
  const Said said = lab(words);
  ASSERT_EQ(said.status, 0) << said.err;
  EXPECT_NE(said.out.find("tandem:graph"), std::string::npos);
  for (const char* file : {"report.html", "report.md", "runs.csv", "runs.jsonl", "study.json",
                           "provenance.json", "summaries.csv"})
    EXPECT_TRUE(fs::exists(folder_ / "study" / file)) << file;
  const std::string runs = read(folder_ / "study" / "runs.jsonl");
  EXPECT_EQ(runs.find("\"status\":\"ok\"") == std::string::npos, false);

  const Said again = lab(words);  // all runs are there: nothing is taken, the report is written
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(read(folder_ / "study" / "runs.jsonl"), runs);
  const Said other = lab("run 000 --quick --runs 2 --frameworks tandem:eager,tandem:graph --out study");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.err.find("goes on only as it began"), std::string::npos) << other.err;

  EXPECT_EQ(lab("report study").status, 0);
  const Said compared = lab("compare study study");
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_NE(compared.out.find("step time"), std::string::npos);
}

}  // namespace
