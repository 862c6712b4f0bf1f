// The command `tandem lab` as a user types it: what it lists, what wrong usage gets, and a whole small study.
// ctest: timeout=600
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
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

TEST_F(Lab, ListsWhatIsWrongInOneLineAndGoesOn) {
  const fs::path home = folder_ / "home", mine = fs::path(TANDEM_SOURCE_DIR) / "lab";
  fs::create_directory(home);
  for (const char* part : {"studies", "networks", "drivers"})
    fs::copy(mine / part, home / part, fs::copy_options::recursive);
  const fs::path workloads = home / "studies" / "workloads";
  std::ofstream(workloads / "aa_broken.toml") << "name = [";
  fs::create_directory(workloads / "ab_folder.toml");
  std::string text = read(workloads / "lenet.toml");
  std::ofstream(workloads / "ac_net.toml")
      << text.replace(text.find("\"lenet\""), 7, "\"ac_net\"").replace(text.rfind("\"lenet\""), 7, "\"bad\"");
  std::ofstream(home / "networks" / "bad.toml")
      << "name = \"bad\"\ninput = [4]\nlayer = [{ type = \"nosuch\" }]\n";
  std::ofstream(home / "studies" / "aa.toml") << "title = \"no name\"\n";
  ::setenv("TANDEM_LAB_HOME", home.c_str(), 1);
  const Said said = lab("list"), json = lab("list --json");
  ::unsetenv("TANDEM_LAB_HOME");
  EXPECT_EQ(said.status, 0) << said.err;
  const auto line_of = [&](const std::string& name) {
    const size_t at = said.out.find("\n  " + name + " ");
    return at == std::string::npos ? "" : said.out.substr(at + 1, said.out.find('\n', at + 1) - at - 1);
  };
  for (const char* name : {"aa_broken", "ab_folder", "ac_net", "aa"})
    EXPECT_NE(line_of(name).find("wrong: "), std::string::npos) << name << ": " << line_of(name);
  EXPECT_NE(line_of("ac_net").find("nosuch"), std::string::npos) << line_of("ac_net");
  for (const char* name : {"lenet", "vgg16", "000", "startup"}) {
    EXPECT_NE(line_of(name), "") << name;
    EXPECT_EQ(line_of(name).find("wrong: "), std::string::npos) << line_of(name);
    EXPECT_LT(line_of(name).size(), 200u) << "an error moves no other row: " << line_of(name);
  }
  EXPECT_EQ(json.status, 0) << json.err;
  EXPECT_NE(json.out.find("\"wrong\":\"read '"), std::string::npos) << json.out;
}

TEST_F(Lab, WrongUsageIsOneLineAndStatusTwo) {
  const char* const cases[] = {"nosuch",
                               "run",
                               "run 009",
                               "run 000 --parts nosuch",
                               "run 000 --runs 0",
                               "run 000 --frameworks caffe",
                               "run 000 --workloads bert",
                               "run 000 --device tpu",
                               "run 000 --threads 100000",
                               "run 000 --interval 0",
                               "run 000 --budget soon",
                               "run 000 --seed -1",
                               "run 000 --seed 1.5",
                               "run 000 --runs -1",
                               "run 000 --runs 8x",
                               "run 000 --out /etc/passwd",
                               "run 000 --out /etc/passwd/below",
                               "run 000 --out /proc/nowhere",
                               "network lenet --input 1x28x28x",
                               "advise",
                               "advise bert",
                               "advise lenet --goal beauty",
                               "advise lenet --seed -1",
                               "setup caffe",
                               "compare one",
                               "list extra"};
  for (const char* words : cases) {
    const Said said = lab(words);
    EXPECT_EQ(said.status, 2) << words << ": " << said.err;
    EXPECT_EQ(said.out, "") << words;
    EXPECT_EQ(said.err.find('\n'), said.err.size() - 1) << words << ": " << said.err;
    EXPECT_EQ(said.err.rfind("tandem lab: ", 0), 0u) << words << ": " << said.err;
  }
  EXPECT_FALSE(fs::exists(folder_ / "runs")) << "nothing is begun";
}

TEST_F(Lab, ANumberBeyondItsRangeIsRefusedWithTheRange) {
  const std::string huge = "99999999999999999999999", range = " to 9223372036854775807; got '";
  const std::pair<std::string, std::string> cases[] = {
      {"run 000 --seed -1", "--seed: must be a whole number from 0" + range + "-1'"},
      {"run 000 --seed " + huge, "--seed: must be a whole number from 0" + range + huge + "'"},
      {"advise lenet --seed " + huge, "--seed: must be a whole number from 0" + range + huge + "'"},
      {"run 000 --runs " + huge, "--runs: must be a whole number from 1 to 10000; got '" + huge + "'"},
      {"run 000 --threads -1", "the cores that the lab may use; got '-1'"},
      {"run 000 --threads " + huge, "the cores that the lab may use; got '" + huge + "'"},
  };
  for (const auto& [words, text] : cases) {
    const Said said = lab(words);
    EXPECT_EQ(said.status, 2) << words;
    EXPECT_NE(said.err.find(text), std::string::npos) << words << ": " << said.err;
  }
}

TEST_F(Lab, AFolderThatCannotBeMadeIsRefusedInOneLine) {
  std::ofstream(folder_ / "runs") << "a file where the folder of a new study would be made";
  for (const char* words : {"run 000 --out /etc/passwd", "run 000 --out /proc/nowhere", "run 000"}) {
    const Said said = lab(words);
    EXPECT_EQ(said.status, 2) << words << ": " << said.err;
    EXPECT_NE(said.err.find("--out: must be a folder that can be made and written to; got '"),
              std::string::npos)
        << words << ": " << said.err;
    EXPECT_EQ(said.err.find("filesystem error"), std::string::npos) << said.err;
  }
}

TEST_F(Lab, AFolderWithoutAStudyIsAFailure) {
  for (const char* words : {"report nowhere", "compare nowhere nowhere"}) {
    const Said said = lab(words);
    EXPECT_EQ(said.status, 1) << words;
    EXPECT_NE(said.err.find("must hold a study"), std::string::npos) << said.err;
  }
}

TEST_F(Lab, RunsASmallStudyGoesOnAndReports) {
  // Whatever else this machine does meanwhile.
  const std::string words =
      "run 000 --quick --runs 1 --frameworks tandem:eager,tandem:graph --out study --busy";
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

  // One run is missing, and the library was another one when the study began.
  const fs::path record = folder_ / "study" / "provenance.json";
  std::string provenance = read(record);
  const size_t library = provenance.find("sha256", provenance.find("libtandem.so")) + 10;
  provenance.replace(library, 4, provenance.substr(library, 4) == "0000" ? "1111" : "0000");
  std::ofstream(record) << provenance;
  std::ofstream(folder_ / "study" / "runs.jsonl") << runs.substr(0, runs.rfind('\n', runs.size() - 2) + 1);
  const Said refused = lab(words);
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("only with the programs that it began with; changed since: libtandem.so"),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(read(record), provenance);
  const Said allowed = lab(words + " --changed");
  EXPECT_EQ(allowed.status, 0) << allowed.err;
  EXPECT_NE(
      read(folder_ / "study" / "report.md").find("other programs were measured than before: libtandem.so"),
      std::string::npos);

  const Said second = lab("run startup --quick --runs 1 --frameworks tandem:eager --out study");
  EXPECT_EQ(second.status, 1);
  EXPECT_NE(second.err.find("'study' holds the study '000', and this one is 'startup'"), std::string::npos)
      << second.err;

  EXPECT_EQ(lab("report study").status, 0);
  const Said compared = lab("compare study study");
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_NE(compared.out.find("step time"), std::string::npos);
}

TEST_F(Lab, AStudyOfOneFileRunsWithItsOwnWorkloadAndASecondBuild) {
  const std::string study =
      "name = \"one\"\ntitle = \"One\"\nframeworks = [\"tandem:eager\"]\ndevice = [\"cpu\"]\n"
      "[effort]\nruns = 1\ntimed_steps = 5\ntimed_s = 2\nleast_s = 0.3\n"
      "[[part]]\nname = \"a\"\ntitle = \"A\"\nphase = \"train\"\nworkloads = [\"line\"]\n"
      "[[part.figure]]\nkind = \"table\"\ntitle = \"T\"\n"
      "metrics = [\"step.call_s\", \"rss.start_mib\", \"rss.over_start_mib\"]\n"
      "[[workload]]\nname = \"line\"\ntitle = \"Two layers\"\nbatch = 256\n"
      "network = { input = [64], layer = [{ type = \"matmul\", outputs = 64 }, { type = \"matmul\", outputs "
      "= "
      "3 }] }\n"
      "targets = { y = { shape = [3] } }\nloss = { kind = \"mse\", output = \"out\", target = \"y\" }\n"
      "optimizer = { name = \"sgd\", lr = 0.1 }\n";
  std::ofstream(folder_ / "one.toml") << study;
  std::ofstream(folder_ / "builds.toml") << "[tandem_old]\ntitle = \"Tandem, before\"\n"
                                            "variants = [\"eager\"]\ncommand = [\""
                                         << TANDEM_BIN_DIR << "/tandem-lab\", \"driver\"]\n";
  const std::string words =
      "run ./one.toml --drivers builds.toml --frameworks tandem:eager,tandem_old:eager --out one --busy";
  const Said said = lab(words);
  ASSERT_EQ(said.status, 0) << said.err;
  const std::string runs = read(folder_ / "one" / "runs.jsonl"), report = read(folder_ / "one" / "report.md");
  for (const char* text : {"\"system\":\"tandem_old:eager\"", "\"workload\":\"line\"",
                           "\"step.call_s\":", "\"rss.start_mib\":", "\"rss.over_start_mib\":"})
    EXPECT_NE(runs.find(text), std::string::npos) << text << " in " << runs;
  EXPECT_EQ(runs.find("\"status\":\"failed"), std::string::npos) << runs;
  EXPECT_NE(report.find("step time per call"), std::string::npos);
  EXPECT_NE(read(folder_ / "one" / "provenance.json").find("one.toml"), std::string::npos);

  EXPECT_EQ(lab(words).status, 0) << "all runs are there";
  EXPECT_EQ(read(folder_ / "one" / "runs.jsonl"), runs);
  std::string other = study;
  std::ofstream(folder_ / "one.toml") << other.replace(other.find("lr = 0.1"), 8, "lr = 0.2");
  const Said changed = lab(words);
  EXPECT_EQ(changed.status, 1);
  EXPECT_NE(changed.err.find("goes on only as it began"), std::string::npos) << changed.err;

  const Said network = lab("network line --study ./one.toml");
  EXPECT_EQ(network.status, 0) << network.err;
  EXPECT_NE(network.out.find("\"kind\":\"matmul\""), std::string::npos) << network.out;
  EXPECT_EQ(lab("network line").status, 2);
  EXPECT_NE(lab("list").out.find("workloads of its own"), std::string::npos);
}

TEST_F(Lab, WarningsComeFirstAlsoAsJson) {
  std::ofstream(folder_ / "one.toml")
      << "name = \"one\"\ntitle = \"One\"\nframeworks = [\"tandem:eager\"]\nworkloads = [\"lenet\"]\n"
         "device = [\"cpu\"]\n[effort]\nruns = 1\ntimed_steps = 5\ntimed_s = 0.1\nleast_s = 0.1\n"
         "[[part]]\nname = \"a\"\ntitle = \"A\"\nphase = \"infer\"\n";
  const Said run = lab("run one.toml --out one --busy --json");
  ASSERT_EQ(run.status, 0) << run.err;
  // A record of a run that a neighbour disturbed, and of a machine that was busy at the start.
  const fs::path runs = folder_ / "one" / "runs.jsonl", machine = folder_ / "one" / "provenance.json";
  nlohmann::json record = nlohmann::json::parse(read(runs));
  EXPECT_TRUE(record["metrics"].contains("machine.core_share_before")) << record;
  EXPECT_TRUE(record["metrics"].contains("machine.others_cores") ||
              record["unavailable"].contains("machine.others_cores"))
      << record;
  record["status"] = "disturbed";
  record["disturbed"] = record["why"] = "others: other processes used 0.98 cores";
  std::ofstream(runs) << record.dump() << "\n";
  nlohmann::json provenance = nlohmann::json::parse(read(machine));
  provenance["warnings"] = nlohmann::json::array({"busy: a neighbour takes 98 % of a core"});
  std::ofstream(machine) << provenance.dump();

  const Said json = lab("report one --json"), text = lab("report one");
  EXPECT_EQ(
      json.out.find(
          "{\"event\":\"report\",\"warnings\":[\"the machine was busy: other work disturbed 1 of 1 run"),
      0u)
      << json.out;
  EXPECT_EQ(text.out.find("Read with care: the machine was busy: other work disturbed 1 of 1 run"), 0u)
      << text.out;
  EXPECT_LT(text.out.find("busy: a neighbour"), text.out.find("Not measured")) << text.out;

  // Going on takes the run again, and says first what the machine does now.
  const Said again = lab("run one.toml --out one --busy --json");
  EXPECT_EQ(again.status, 0) << again.err;
  const size_t warned = again.out.find("{\"event\":\"warning\""),
               begun = again.out.find("\"event\":\"begin\"");
  EXPECT_EQ(warned, 0u) << again.out;
  EXPECT_LT(warned, begun);
  const size_t end = again.out.find("{\"event\":\"end\",\"warnings\":[");
  ASSERT_NE(end, std::string::npos) << again.out;
  EXPECT_EQ(nlohmann::json::parse(again.out.substr(end))["taken"], 1);
}

/// The processes that a lab of this number has started, and all that they started: the lab marks them.
std::vector<int> children_of(pid_t lab) {
  std::vector<int> found;
  const std::string mark = "TANDEM_LAB_PROCESS=" + std::to_string(lab) + "-";
  for (const auto& entry : fs::directory_iterator("/proc"))
    if (const int pid = std::atoi(entry.path().filename().c_str());
        pid > 0 && read(entry.path() / "environ").find(mark) != std::string::npos)
      found.push_back(pid);
  return found;
}

template <class F>
bool comes_true(double seconds, F&& condition) {
  for (double waited = 0; waited < seconds; waited += 0.05) {
    if (condition()) return true;
    ::usleep(50'000);
  }
  return condition();
}

TEST_F(Lab, ASignalEndsTheRunKeepsTheRecordsAndLeavesNoProcess) {
  std::ofstream(folder_ / "long.toml")
      << "name = \"long\"\ntitle = \"Long\"\nframeworks = [\"tandem:eager\"]\n"
         "workloads = [\"lenet\"]\ndevice = [\"cpu\"]\n[effort]\nruns = 5000\n"
         "timed_steps = 5\ntimed_s = 0.1\n[[part]]\nname = \"a\"\ntitle = \"A\"\n"
         "phase = \"train\"\n";
  size_t records = 0;
  for (const int signal : {SIGHUP, SIGTERM, SIGINT, SIGKILL}) {
    const std::string err = (folder_ / "err").string(), program = std::string(TANDEM_BIN_DIR) + "/tandem";
    const pid_t lab = ::fork();
    if (lab == 0) {
      ::setpgid(0, 0);
      if (::chdir(folder_.c_str()) != 0 || !std::freopen(err.c_str(), "w", stderr) ||
          !std::freopen("/dev/null", "r", stdin))
        ::_exit(126);
      ::execl(program.c_str(), "tandem", "lab", "run", "long.toml", "--threads", "1", "--out", "study",
              nullptr);
      ::_exit(127);
    }
    const auto count = [&] {
      const std::string text = read(folder_ / "study" / "runs.jsonl");
      return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    };
    EXPECT_TRUE(comes_true(120, [&] { return count() > records && !children_of(lab).empty(); })) << read(err);
    const std::string before = read(folder_ / "study" / "runs.jsonl");
    ::kill(lab, signal);
    int status = -1;
    ::waitpid(lab, &status, 0);
    const std::string said = read(err);
    if (signal == SIGKILL) {
      EXPECT_TRUE(WIFSIGNALED(status));
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << signal << ": status " << status << "\n"
                                                                   << said;
      EXPECT_NE(said.find("Go on with: tandem lab run long.toml --threads 1 --out study"), std::string::npos)
          << said;
      EXPECT_TRUE(std::filesystem::exists(folder_ / "study" / "report.md")) << "of the runs so far";
    }
    EXPECT_TRUE(comes_true(20, [&] { return children_of(lab).empty(); })) << "after signal " << signal;
    EXPECT_EQ(read(folder_ / "study" / "runs.jsonl").substr(0, before.size()), before);
    records = count();
  }
}

TEST_F(Lab, AStudyWithMoreRunsThanThereIsTimeForIsRefusedAtOnce) {
  std::ofstream(folder_ / "huge.toml")
      << "name = \"huge\"\ntitle = \"Huge\"\nframeworks = [\"tandem:eager\"]\n"
         "workloads = [\"lenet\"]\n[effort]\nruns = 9223372036854775807\n"
         "[[part]]\nname = \"a\"\ntitle = \"A\"\nphase = \"train\"\n";
  for (const char* words : {"run huge.toml", "run 000 --runs 9223372036854775807", "run 000 --runs 10001",
                            "advise lenet --runs 9223372036854775807"}) {
    const Said said = lab(words);
    EXPECT_EQ(said.status, 2) << words << ": " << said.err;
    EXPECT_NE(said.err.find("runs"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("10000"), std::string::npos) << said.err;
  }
}

TEST_F(Lab, WhereNoGpuMayBeSeenCudaStaysClosed) {
  const std::string out = (folder_ / "out").string();
  const std::string command =
      std::string("CUDA_VISIBLE_DEVICES= '") + TANDEM_BIN_DIR + "/tandem' info >'" + out + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_NE(read(out).find("CUDA_VISIBLE_DEVICES is '', which hides every GPU"), std::string::npos)
      << read(out);
}

}  // namespace
