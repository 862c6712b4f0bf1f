// The process tree with real processes, and with files that pretend to be processes.
#include "lab/src/monitor/process_tree.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>

#include "lab/tests/monitor/fake_tree.h"

namespace tandem::lab {
namespace {

constexpr double kMib = 1024.0 * 1024.0;

/// A line of /proc/PID/stat. The name holds what a careless reader stumbles over.
std::string stat_line(int pid, int parent, int user, int system, int waited_user, int waited_system,
                      int pages, char state = 'S') {
  return std::to_string(pid) + " (a) 7 (b) " + state + " " + std::to_string(parent) +
         " 1 1 0 -1 4194560 10 0 0 0 " + std::to_string(user) + " " + std::to_string(system) + " " +
         std::to_string(waited_user) + " " + std::to_string(waited_system) + " 20 0 1 0 12345 1000000 " +
         std::to_string(pages) + " 18446744073709551615 1 1 0 0 0 0 0\n";
}

double tick() { return 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)); }
double page_mib() { return static_cast<double>(::sysconf(_SC_PAGESIZE)) / kMib; }

TEST(ProcessTree, SumsProcessesOfAFakeTree) {
  FakeTree proc;
  proc.write("10/stat", stat_line(10, 1, 100, 20, 3, 4, 1000));
  proc.write("10/task/10/children", "11 ");
  proc.write("10/task/15/children", "12 ");
  proc.write("11/stat", stat_line(11, 10, 7, 0, 0, 0, 200));
  proc.write("11/task/11/children", "13 ");
  proc.write("12/stat", stat_line(12, 10, 1, 1, 0, 0, 50, 'Z'));
  proc.write("12/task/12/children", "");
  proc.write("13/stat", stat_line(13, 11, 5, 5, 0, 0, 30));
  proc.write("13/task/13/children", "99 ");  // gone before it could be read
  proc.write("77/stat", stat_line(77, 1, 1000, 1000, 0, 0, 100000));

  ProcessTree tree(proc.path(), 10);
  EXPECT_EQ(tree.pids(), (std::vector<pid_t>{10, 11, 12, 13}));
  const auto reading = tree.read();
  ASSERT_TRUE(reading);
  EXPECT_NEAR(reading->cpu_s, (127 + 7 + 2 + 10) * tick(), 1e-9);
  EXPECT_NEAR(reading->rss_bytes / kMib, 1230 * page_mib(), 1e-9) << "a zombie has no memory";
  EXPECT_TRUE(tree.root_lives());
}

TEST(ProcessTree, FindsChildrenByTheirParentsWhereTheKernelDoesNotListThem) {
  FakeTree proc;
  proc.write("10/stat", stat_line(10, 1, 1, 0, 0, 0, 1));
  proc.write("10/task/10/stat", "");
  proc.write("9/stat", stat_line(9, 12, 4, 0, 0, 0, 1));  // its number went round: below its parent's
  proc.write("12/stat", stat_line(12, 10, 2, 0, 0, 0, 1));
  proc.write("13/stat", stat_line(13, 1, 100, 0, 0, 0, 1));
  ProcessTree tree(proc.path(), 10);
  EXPECT_EQ(tree.pids(), (std::vector<pid_t>{10, 12, 9}));
}

TEST(ProcessTree, SaysWhyThereIsNoProcess) {
  FakeTree proc;
  ProcessTree tree(proc.path(), 4242);
  EXPECT_FALSE(tree.read());
  EXPECT_NE(tree.why().find("process 4242"), std::string::npos) << tree.why();
  std::string why;
  EXPECT_FALSE(tree.pss_bytes(why));
  EXPECT_NE(why.find("4242"), std::string::npos) << why;
}

TEST(ProcessTree, BrokenStatLinesAreNoProcess) {
  FakeTree proc;
  for (const char* text :
       {"", "10", "10 (x)", "10 (x) ", "10 (x) S", "10 (x) S 1 2 3", "(((((", "10 x S 1 1 1"}) {
    proc.write("10/stat", text);
    ProcessTree tree(proc.path(), 10);
    EXPECT_FALSE(tree.read()) << text;
  }
}

TEST(ProcessTree, SaysWhyThereIsNoPss) {
  FakeTree proc;
  proc.write("10/stat", stat_line(10, 1, 1, 0, 0, 0, 1));
  proc.write("10/task/10/children", "");
  ProcessTree tree(proc.path(), 10);
  std::string why;
  EXPECT_FALSE(tree.pss_bytes(why));
  EXPECT_NE(why.find("smaps_rollup' is not there"), std::string::npos) << why;
  proc.write("10/smaps_rollup",
             "00-ff ---p 00 00:00 0 [rollup]\nRss:   2048 kB\nPss:    1536 kB\nPss_Anon: 9 kB\n");
  EXPECT_EQ(tree.pss_bytes(why), 1.5 * kMib);
}

TEST(ProcessTree, SeesTheMemoryOfARealChild) {
  Child child([](const auto& ready) {
    touch_mib(64);
    ready();
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  ProcessTree tree("/proc", child.pid());
  const auto reading = tree.read();
  ASSERT_TRUE(reading);
  EXPECT_GT(reading->rss_bytes / kMib, 60);
  EXPECT_LT(reading->rss_bytes / kMib, 200);
  std::string why;
  const auto pss = tree.pss_bytes(why);
  ASSERT_TRUE(pss) << why;
  EXPECT_GE(*pss / kMib, 64);
  EXPECT_LT(*pss / kMib, 200);
  child.stop();
  EXPECT_FALSE(tree.read());
  EXPECT_FALSE(tree.root_lives());
  EXPECT_EQ(tree.processes(), 0u);
}

TEST(ProcessTree, PssDividesSharedPagesAndRssDoesNot) {
  Child child([](const auto& ready) {
    touch_mib(64);  // then shared with the grandchild, by copy on write
    if (::fork() == 0) {
      ready();
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::pause();
      ::_exit(0);
    }
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  ProcessTree tree("/proc", child.pid());
  ASSERT_EQ(tree.processes(), 2u);
  const auto reading = tree.read();
  std::string why;
  const auto pss = tree.pss_bytes(why);
  ASSERT_TRUE(reading && pss) << why;
  EXPECT_GT(reading->rss_bytes / kMib, 120) << "both have all of it resident";
  EXPECT_LT(*pss / kMib, 100) << "but it is there once";
}

/// Makes children one after the other, each using processor time, in the way the test asks for.
void expect_counted(bool waits) {
  Child child([&](const auto& ready) {
    if (!waits) ::signal(SIGCHLD, SIG_IGN);  // then the kernel forgets ended children, their times too
    ready();
    for (int i = 0; i < 3; ++i) {
      const pid_t one = ::fork();
      if (one == 0) {
        burn_s(0.25);
        sleep_s(0.3);  // so that somebody sees it before it ends
        ::_exit(0);
      }
      while (::waitpid(one, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  ProcessTree tree("/proc", child.pid());
  double last = 0;
  size_t most = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((last < 0.68 || tree.processes() > 1) && std::chrono::steady_clock::now() < end) {
    tree.find_children();
    const auto reading = tree.read();
    ASSERT_TRUE(reading);
    EXPECT_GE(reading->cpu_s + 1e-9, last) << "time never falls, also when a child ends";
    last = reading->cpu_s;
    most = std::max(most, tree.processes());
    sleep_s(0.02);
  }
  EXPECT_EQ(most, 2u);
  EXPECT_GE(last, 0.68) << "three times 0.25 s, and two ticks lost of each at most";
  EXPECT_LT(last, 0.9);
}

TEST(ProcessTree, CountsChildrenThatEndedAndWereWaitedFor) { expect_counted(true); }
TEST(ProcessTree, CountsChildrenThatNobodyWaitedFor) { expect_counted(false); }

TEST(ProcessTree, KeepsAProcessWhoseParentEnded) {
  FakeTree folder;
  const std::string file = folder.path("grandchild");
  Child child([&](const auto& ready) {
    const pid_t middle = ::fork();
    if (middle == 0) {
      const pid_t last = ::fork();
      if (last == 0) {
        burn_s(0.1);
        ::alarm(60);
        ::pause();
        ::_exit(0);
      }
      std::ofstream(file) << last << std::flush;
      ready();
      sleep_s(0.5);
      ::_exit(0);
    }
    ::waitpid(middle, nullptr, 0);
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  pid_t last = 0;
  std::ifstream(file) >> last;
  ASSERT_GT(last, 0);
  ProcessTree tree("/proc", child.pid());
  ASSERT_EQ(tree.processes(), 3u);
  sleep_s(0.8);
  const auto reading = tree.read();
  ASSERT_TRUE(reading);
  EXPECT_EQ(tree.processes(), 2u);
  const auto pids = tree.pids();
  EXPECT_NE(std::find(pids.begin(), pids.end(), last), pids.end());
  ::kill(last, SIGKILL);
}

}  // namespace
}  // namespace tandem::lab
