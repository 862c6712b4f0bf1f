// The driver's process: lines, deadlines, ends, and that nothing of it is left.
#include "lab/src/driver/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tandem/core/error.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab {
namespace {

using testing::read_text;
using testing::TempFolder;

int64_t in_s(double seconds) { return now_ns() + static_cast<int64_t>(seconds * 1e9); }

ProcessOptions shell(const std::string& script) { return {.command = {"sh", "-c", script}}; }

int open_files() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

bool is_gone(pid_t pid) {
  // A zombie that somebody else must wait for does no harm: its state is Z.
  for (int i = 0; i < 100; ++i) {
    const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
    if (stat.empty() || stat.find(") Z ") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST(LabProcess, LinesGoThereAndBack) {
  Process process(shell("while read line; do echo \"got $line\"; done"));
  std::string line;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(process.write_line("word " + std::to_string(i), in_s(10)), Process::Io::done);
    ASSERT_EQ(process.read_line(line, in_s(10)), Process::Io::done);
    EXPECT_EQ(line, "got word " + std::to_string(i));
  }
  const Ending& ending = process.finish(10);
  EXPECT_EQ(ending.status, 0);
  EXPECT_FALSE(ending.ended_by_lab);
}

TEST(LabProcess, SeveralLinesOfOneWriteComeOneByOneAndALastOneWithoutNewlineIsKept) {
  Process process(shell("printf 'a\\nb\\nhalf'"));
  std::string line;
  EXPECT_EQ(process.read_line(line, in_s(10)), Process::Io::done);
  EXPECT_EQ(line, "a");
  EXPECT_EQ(process.read_line(line, in_s(10)), Process::Io::done);
  EXPECT_EQ(line, "b");
  EXPECT_EQ(process.read_line(line, in_s(10)), Process::Io::closed);
  EXPECT_EQ(line, "half");
}

TEST(LabProcess, ALineThatDoesNotComeIsLate) {
  Process process(shell("sleep 100"));
  std::string line;
  const int64_t begun = now_ns();
  EXPECT_EQ(process.read_line(line, in_s(0.2)), Process::Io::late);
  const double waited = static_cast<double>(now_ns() - begun) / 1e9;
  EXPECT_GE(waited, 0.2);
  EXPECT_LT(waited, 5);
}

TEST(LabProcess, ALineBeyondTheLimitIsRefusedWithItsBeginning) {
  ProcessOptions options = shell("head -c 300000 /dev/zero | tr '\\0' x; echo; sleep 100");
  options.line_limit = 100000;
  Process process(options);
  std::string line;
  EXPECT_EQ(process.read_line(line, in_s(10)), Process::Io::too_long);
  EXPECT_EQ(line, std::string(1000, 'x'));
}

TEST(LabProcess, ALongRequestAndALongAnswerDoNotBlockEachOther) {
  // Each side writes more than a pipe holds before it reads.
  Process process(shell("head -c 1000000 /dev/zero | tr '\\0' y; echo; head -c 1000001 | wc -c"));
  ASSERT_EQ(process.write_line(std::string(1000000, 'z'), in_s(30)), Process::Io::done);
  std::string line;
  ASSERT_EQ(process.read_line(line, in_s(30)), Process::Io::done);
  EXPECT_EQ(line.size(), 1000000u);
  ASSERT_EQ(process.read_line(line, in_s(30)), Process::Io::done);
  EXPECT_EQ(line, "1000001");
}

TEST(LabProcess, WritingToOneThatHasEndedIsClosedAndNoSignal) {
  Process process(shell("exit 3"));
  std::string line;
  EXPECT_EQ(process.read_line(line, in_s(10)), Process::Io::closed);
  EXPECT_EQ(process.write_line(std::string(200000, 'x'), in_s(10)), Process::Io::closed);
  EXPECT_EQ(process.finish(10).status, 3);
}

TEST(LabProcess, TheEndIsTold) {
  {
    Process process(shell("kill -SEGV $$"));
    const Ending& ending = process.finish(10);
    EXPECT_EQ(ending.signal, SIGSEGV);
    EXPECT_NE(ending.text().find("signal 11"), std::string::npos);
  }
  {
    Process process(shell("kill -KILL $$"));
    const Ending& ending = process.finish(10);
    EXPECT_EQ(ending.signal, SIGKILL);
    EXPECT_FALSE(ending.ended_by_lab);
    EXPECT_FALSE(ending.out_of_memory) << "no memory was short";
  }
  Process process(shell("sleep 100"));
  EXPECT_TRUE(process.finish(0.05).ended_by_lab);
}

TEST(LabProcess, LastWordsAreTheEndOfStandardError) {
  Process process(
      shell("i=0; while [ $i -lt 3000 ]; do echo \"line $i of a log\" >&2; i=$((i+1)); done; echo ready; "
            "sleep 100"));
  std::string line;
  ASSERT_EQ(process.read_line(line, in_s(30)), Process::Io::done);
  process.finish(0);
  const std::string words = process.last_words();
  EXPECT_LE(words.size(), 8192u);
  EXPECT_GT(words.size(), 7000u);
  EXPECT_NE(words.find("line 2999 of a log\n"), std::string::npos);
}

TEST(LabProcess, ADeafProcessAndAllThatItStartedAreGone) {
  TempFolder folder;
  pid_t own = 0, child = 0, stray = 0;
  {
    // The stray one is the leader of its own group, where a signal to the group does not reach it.
    Process process(shell("trap '' TERM INT HUP; sleep 1000 & echo $! > " + (folder / "child") +
                          "; setsid sleep 1000 & " + "sleep 0.2; echo ready; while :; do sleep 1; done"));
    own = process.pid();
    std::string line;
    ASSERT_EQ(process.read_line(line, in_s(10)), Process::Io::done);
    child = std::atoi(read_text(folder / "child").c_str());
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string environment = read_text(entry.path() / "environ");
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (environment.find("TANDEM_LAB_PROCESS=" + std::to_string(::getpid()) + "-") != std::string::npos &&
          pid > 0 && ::getsid(pid) == pid)
        stray = pid;
    }
    ASSERT_GT(child, 0);
    ASSERT_GT(stray, 0);
  }
  EXPECT_TRUE(is_gone(own));
  EXPECT_TRUE(is_gone(child));
  EXPECT_TRUE(is_gone(stray));
}

/// The processes whose command line holds the word.
std::vector<pid_t> with_word(const std::string& word) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && pid != ::getpid() && read_text(entry.path() / "cmdline").find(word) != std::string::npos)
      found.push_back(pid);
  }
  return found;
}

/// Waits until there are as many; says whether there were.
bool comes_to(const std::string& word, size_t count, double seconds) {
  for (const int64_t until = in_s(seconds); now_ns() < until;) {
    if (with_word(word).size() == count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

/// A driver of three processes that all but a kill leaves alive: it ignores the end of its input and every signal that can
/// be ignored, and its workers leave its group, its session and its environment. Each has the word in its command line.
std::string stubborn(const std::string& word) {
  const std::string deaf = "trap \"\" HUP INT TERM PIPE; while :; do sleep 0.2; done # " + word;
  return "trap '' HUP INT TERM PIPE; setsid env -i /bin/sh -c '" + deaf + "' & (setsid env -i /bin/sh -c '" +
         deaf + "' & ) ; echo ready; while :; do sleep 0.2; done # " + word;
}

TEST(LabProcess, WorkersWithoutGroupSessionAndEnvironmentAreGoneAtTheEnd) {
  const std::string word = "stubborn-end-" + std::to_string(::getpid());
  {
    Process process(shell(stubborn(word)));
    std::string line;
    ASSERT_EQ(process.read_line(line, in_s(20)), Process::Io::done);
    ASSERT_TRUE(comes_to(word, 3, 20));
  }
  EXPECT_EQ(with_word(word).size(), 0u) << "the end waits until all are gone";
}

/// Not a test by itself: the lab that the next one kills.
TEST(LabProcessChild, DISABLED_StartsAStubbornDriver) {
  const char* word = std::getenv("TANDEM_LAB_TEST_WORD");
  if (!word) return;
  Process process(shell(stubborn(word)));
  std::string line;
  process.read_line(line, in_s(600));
  process.read_line(line, in_s(600));
}

TEST(LabProcess, NothingOfADriverOutlivesALabThatIsKilled) {
  const std::string word = "stubborn-kill-" + std::to_string(::getpid());
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  // The child is not started as a Process: a guard of its own would do the work of the one that is tested.
  const pid_t lab = ::fork();
  if (lab == 0) {
    ::setenv("TANDEM_LAB_TEST_WORD", word.c_str(), 1);
    ::execl(self.c_str(), self.c_str(), "--gtest_filter=LabProcessChild.*", "--gtest_also_run_disabled_tests",
            nullptr);
    ::_exit(127);
  }
  ASSERT_GT(lab, 0);
  const bool begun = comes_to(word, 3, 60);
  ::kill(lab, SIGKILL);
  ::waitpid(lab, nullptr, 0);
  EXPECT_TRUE(begun);
  const bool gone = comes_to(word, 0, 20);
  EXPECT_TRUE(gone) << with_word(word).size() << " processes are left";
  for (const pid_t pid : with_word(word)) ::kill(pid, SIGKILL);
}

TEST(LabProcess, AStoppedDriverIsGoneAtTheEndToo) {
  pid_t driver = 0;
  {
    Process process(shell("echo ready; kill -STOP $$; sleep 1000"));
    driver = process.pid();
    std::string line;
    ASSERT_EQ(process.read_line(line, in_s(20)), Process::Io::done);
  }
  EXPECT_TRUE(is_gone(driver));
}

TEST(LabProcess, ADriverWhoseGuardIsKilledEndsWithAllThatItStarted) {
  Process process(shell("sleep 1000 & echo $!; echo $PPID; sleep 1000"));
  std::string line;
  ASSERT_EQ(process.read_line(line, in_s(20)), Process::Io::done);
  const pid_t worker = std::atoi(line.c_str());
  ASSERT_EQ(process.read_line(line, in_s(20)), Process::Io::done);
  const pid_t guard = std::atoi(line.c_str());
  ASSERT_GT(guard, 1);
  ASSERT_NE(guard, ::getpid());
  ::kill(guard, SIGKILL);
  const int64_t begun = now_ns();
  EXPECT_FALSE(process.finish(20).status);
  EXPECT_LT(now_ns() - begun, 15'000'000'000) << "it must not wait for a word of a dead guard";
  EXPECT_TRUE(is_gone(process.pid()));
  EXPECT_TRUE(is_gone(worker));
}

TEST(LabProcess, ALabWithClosedStreamsSpeaksToItsDriver) {
  const pid_t lab = ::fork();
  if (lab == 0) {
    ::close(0), ::close(1), ::close(2);
    Process process(shell("read line; echo \"got $line\""));
    std::string line;
    const bool right = process.write_line("x", in_s(20)) == Process::Io::done &&
                       process.read_line(line, in_s(20)) == Process::Io::done && line == "got x";
    process.finish(5);
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(lab, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(LabProcess, LinesWithoutEndDoNotKeepItFromStopping) {
  std::atomic<bool> stop{false};
  ProcessOptions options = shell("yes line");
  options.stop = &stop;
  Process process(options);
  std::string line;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(process.read_line(line, in_s(20)), Process::Io::done);
  stop = true;
  EXPECT_EQ(process.read_line(line, in_s(20)), Process::Io::stopped);
}

TEST(LabProcess, NothingLeaks) {
  { Process process(shell("echo x")); }
  const int before = open_files();
  for (int i = 0; i < 10; ++i) {
    Process process(shell("echo x; sleep 100"));
    std::string line;
    process.read_line(line, in_s(10));
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(LabProcess, AProgramThatIsNotThereIsAnErrorThatNamesIt) {
  const int before = open_files();
  const std::string text = testing::message_of<Error>([] {
    Process process({.command = {"/nowhere/python", "driver.py"}});
  });
  EXPECT_NE(text.find("/nowhere/python"), std::string::npos) << text;
  EXPECT_NE(text.find("No such file"), std::string::npos) << text;
  EXPECT_EQ(open_files(), before);
  EXPECT_NE(testing::message_of<Error>([] { Process process(ProcessOptions{}); }), "");
}

TEST(LabProcess, CoresThreadsAndEnvironmentAreAsTold) {
  ProcessOptions options =
      shell("grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS $TF_NUM_INTRAOP_THREADS $EXTRA");
  options.cpus = first_cpus(1);
  ASSERT_EQ(options.cpus.size(), 1u);
  options.environment = thread_environment(3);
  options.environment.emplace_back("EXTRA", "more");
  Process process(options);
  std::string line;
  ASSERT_EQ(process.read_line(line, in_s(10)), Process::Io::done);
  EXPECT_EQ(line, "Cpus_allowed_list:\t" + std::to_string(options.cpus[0]));
  ASSERT_EQ(process.read_line(line, in_s(10)), Process::Io::done);
  EXPECT_EQ(line, "3 3 more");
}

TEST(LabProcess, AStopEndsTheWaiting) {
  std::atomic<bool> stop{false};
  ProcessOptions options = shell("sleep 100");
  options.stop = &stop;
  Process process(options);
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  std::string line;
  const int64_t begun = now_ns();
  EXPECT_EQ(process.read_line(line, in_s(60)), Process::Io::stopped);
  EXPECT_LT(now_ns() - begun, 5'000'000'000);
  stopper.join();
}

TEST(LabProcess, WorksWhereSigchldIsIgnored) {
  struct sigaction ignore {
  }, old{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGCHLD, &ignore, &old);
  {
    Process process(shell("echo x; exit 5"));
    std::string line;
    EXPECT_EQ(process.read_line(line, in_s(10)), Process::Io::done);
    EXPECT_FALSE(process.finish(5).text().empty());
  }
  ::sigaction(SIGCHLD, &old, nullptr);
}

}  // namespace
}  // namespace tandem::lab
