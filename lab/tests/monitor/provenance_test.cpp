// Provenance of this machine, and of machines that are not there.
#include "lab/src/monitor/provenance.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lab/src/monitor/kept_file.h"
#include "lab/src/monitor/machine.h"
#include "lab/src/record/sittings.h"
#include "lab/tests/monitor/fake_nvml.h"
#include "lab/tests/monitor/fake_tree.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

using nlohmann::json;

bool warns(const json& all, const std::string& text) {
  const auto lines = provenance_warnings(all);
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

TEST(Provenance, DescribesThisMachine) {
  FakeTree folder;
  folder.write("driver.py", "abc");
  ProvenanceOptions options;
  options.command = {"tandem", "lab", "run", "000"};
  options.files = {{"drivers/driver.py", folder.path("driver.py")},
                   {"missing.py", folder.path("missing.py")}};
  options.source_folder = TANDEM_SOURCE_DIR;
  options.busy_seconds = 0.05;
  ::setenv("TANDEM_TEST_VARIABLE", "\xff bytes", 1);
  const json all = provenance(options);
  ::unsetenv("TANDEM_TEST_VARIABLE");
  EXPECT_NO_THROW((void)all.dump());
  EXPECT_EQ(all["command"], (json{"tandem", "lab", "run", "000"}));
  EXPECT_EQ(all["time"].get<std::string>().size(), 20u);
  EXPECT_GE(all["processor"]["cores"].get<int>(), 1);
  EXPECT_GE(all["processor"]["allowed_cores"].get<int>(), 1);
  EXPECT_TRUE(all["processor"]["flags"].is_string());
  EXPECT_GT(all["memory"]["total_mib"].get<int>(), 64);
  EXPECT_TRUE(all["system"]["kernel"].is_string());
  EXPECT_TRUE(all["system"]["load_average"].is_array());
  EXPECT_TRUE(all["tandem"]["tandem"].is_string()) << "Tandem's own environment";
  EXPECT_TRUE(all["build"]["compiler"].is_string());
  EXPECT_TRUE(all["gpu"].contains("unavailable") || all["gpu"].contains("driver"));
  EXPECT_EQ(all["files"]["drivers/driver.py"]["sha256"],
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(all["files"]["missing.py"].contains("error"));
  EXPECT_TRUE(warns(all, "missing.py"));
  const auto library =
      std::find_if(all["files"].items().begin(), all["files"].items().end(),
                   [](const auto& file) { return file.key().find("libtandem") != std::string::npos; });
  ASSERT_TRUE(library != all["files"].items().end());
  EXPECT_EQ(library.value()["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(all["environment"]["TANDEM_TEST_VARIABLE"], "\xEF\xBF\xBD bytes");
  EXPECT_FALSE(all["environment"].contains("PATH"));
}

TEST(Provenance, AStudyGoesOnAtAnotherTimeAndNotOnAnotherMachine) {
  json first = {{"time", "2026-01-01T00:00:00Z"},
                {"processor", {{"model", "Neoverse-V1"}, {"cores", 2}}},
                {"gpu", {{"devices", {{"cuda:0", {{"name", "NVIDIA H200"}}}}}}},
                {"source_commit", "aaa"},
                {"tandem", {{"commit", "ccc"}}},
                {"warnings", json::array()}};
  json later = first;
  later["time"] = "2026-01-02T00:00:00Z";
  later["source_commit"] = "bbb";
  later["tandem"]["commit"] = "ddd with changes";
  later["warnings"].push_back("a load average of 3");
  const json both = with_sitting(with_sitting(first, later), later);
  EXPECT_EQ(both["time"], first["time"]);
  EXPECT_EQ(both["source_commit"], "aaa");
  ASSERT_EQ(both["sittings"].size(), 2u);
  EXPECT_EQ(both["sittings"][0]["source_commit"], "bbb");
  EXPECT_EQ(both["sittings"][0]["tandem"]["commit"], "ddd with changes");
  EXPECT_TRUE(warns(both, "2026-01-02T00:00:00Z: a load average of 3"));
  for (const auto& [path, value] : {std::pair<std::string, json>{"/processor/model", "Xeon"},
                                    {"/processor/cores", 16},
                                    {"/gpu/devices/cuda:0/name", "NVIDIA A100"}}) {
    json other = later;
    other[json::json_pointer(path)] = value;
    EXPECT_THROW(with_sitting(first, other), Error) << path;
  }
  EXPECT_NO_THROW(with_sitting(json::object(), json::object()));
}

TEST(Provenance, AnEmptyMachineIsNoError) {
  FakeTree nothing;
  ProvenanceOptions options;
  options.proc = nothing.path("proc");
  options.sys = nothing.path("sys");
  options.etc = nothing.path("etc");
  options.nvml = nothing.path("libnvidia-ml.so.1");
  options.source_folder = nothing.path();
  options.busy_seconds = 0;
  const json all = provenance(options);
  EXPECT_TRUE(all["processor"]["model"].is_null());
  EXPECT_TRUE(all["memory"]["total_mib"].is_null());
  EXPECT_TRUE(all["memory"]["swap_used_mib"].is_null());
  EXPECT_TRUE(all["system"]["load_average"].is_null());
  EXPECT_TRUE(all["system"]["os"].is_null());
  EXPECT_TRUE(all["others"]["steal_percent"].is_null());
  EXPECT_TRUE(all["gpu"]["unavailable"].is_string());
  EXPECT_FALSE(warns(all, "governor"));
  EXPECT_FALSE(warns(all, "swap"));
}

TEST(Provenance, WarnsAboutAllThatMakesTimesWorthLess) {
  FakeTree root;
  root.write("proc/loadavg", "1234.5 3.0 2.0 1/100 4242\n");
  root.write("proc/meminfo",
             "MemTotal: 1000000 kB\nMemAvailable:  50000 kB\nSwapTotal: 204800 kB\nSwapFree: 102400 kB\n");
  root.write(
      "proc/cpuinfo",
      "processor\t: 0\nmodel name\t: Imaginary 9\nflags\t\t: fpu sse2\n\nprocessor\t: 1\nmodel name : B\n");
  root.write("proc/self/cgroup", "0::/box\n");
  root.write("sys/fs/cgroup/box/cpu.max", "50000 100000\n");
  root.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  root.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
  root.write("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "3600000\n");
  root.write("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "7\n");
  root.write("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n");
  for (const char* core : {"cpu0", "cpu1"}) {
    const std::string at = std::string("sys/devices/system/cpu/") + core + "/cache/";
    for (const auto& [index, level, size] : {std::tuple{"index0", "1", "32K"}, {"index3", "3", "8192K"}}) {
      root.write(at + index + "/level", level);
      root.write(at + index + "/type", "Data");
      root.write(at + index + "/size", size);
      root.write(at + index + "/shared_cpu_list", level == std::string("1") ? core : "0-1");
    }
  }
  root.write("sys/class/power_supply/AC/type", "Mains");
  root.write("sys/class/power_supply/AC/online", "0");
  root.write("etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 12\"\n");
  g_gpu = FakeGpu();
  g_gpu.throttle = 0x40 | 1;
  const NvmlFunctions functions = fake_nvml();
  ProvenanceOptions options;
  options.proc = root.path("proc");
  options.sys = root.path("sys");
  options.etc = root.path("etc");
  options.nvml_functions = &functions;
  options.gpus = {0, 5};
  options.busy_seconds = 0;
  const json all = provenance(options);
  EXPECT_EQ(all["processor"]["model"], "Imaginary 9");
  EXPECT_EQ(all["processor"]["flags"], "fpu sse2");
  EXPECT_EQ(all["processor"]["frequencies"]["max_mhz"], 3600);
  EXPECT_EQ(all["processor"]["boost"], false);
  EXPECT_EQ(all["processor"]["governors"], json{"powersave"});
  ASSERT_EQ(all["processor"]["caches"].size(), 2u);
  EXPECT_EQ(all["processor"]["caches"][0]["count"], 2) << "one for each core";
  EXPECT_EQ(all["processor"]["caches"][1]["count"], 1) << "one for both";
  EXPECT_EQ(all["system"]["os"], "Some Linux 12");
  EXPECT_EQ(all["memory"]["swap_used_mib"], 100);
  EXPECT_EQ(all["gpu"]["driver"], "570.11");
  EXPECT_EQ(all["gpu"]["devices"]["cuda:0"]["name"], "Imaginary 3000");
  EXPECT_EQ(all["gpu"]["devices"]["cuda:0"]["max_clock_mhz"], 2100);
  EXPECT_EQ(all["gpu"]["devices"]["cuda:0"]["power_limit_w"], 700.0);
  EXPECT_TRUE(all["gpu"]["devices"]["cuda:5"].contains("unavailable"));
  for (const char* text : {"load average 1234.5", "governor powersave", "throttled 7 times", "swap: 100 MiB",
                           "only 48 MiB are free", "allows 0.5 of", "battery",
                           "cuda:0 is throttled: hw_thermal_slowdown", "cuda:0 is busy (73.0 %)"})
    EXPECT_TRUE(warns(all, text)) << text << "\n" << all["warnings"].dump(2);
  EXPECT_EQ(std::count(all["warnings"].begin(), all["warnings"].end(), all["warnings"][0]), 1);
}

TEST(Provenance, NamesOthersThatAreBusy) {
  Child child([](const auto& ready) {
    ready();
    for (;;) burn_s(1);
  });
  const json others = watch_others("/proc", 0.5);
  const auto found = std::find_if(others["busy"].begin(), others["busy"].end(),
                                  [&](const json& one) { return one["pid"] == child.pid(); });
  ASSERT_TRUE(found != others["busy"].end()) << others.dump();
  EXPECT_GT((*found)["percent"].get<double>(), 10);
}

TEST(Provenance, SeesTimeThatTheHypervisorTook) {
  FakeTree proc;
  proc.write("stat", "cpu0 0 0 0 0 0 0 0 0\n");
  std::thread writer([&] {
    sleep_s(0.15);
    proc.write("stat", "cpu0 50 0 0 40 0 0 0 10\n");
  });
  const json others = watch_others(proc.path(), 0.5);
  writer.join();
  EXPECT_EQ(others["steal_percent"], 10.0);
}

TEST(Provenance, TakesOnlyVariablesThatMatterAndNoSecrets) {
  const char* environment[] = {"OMP_NUM_THREADS=2", "TF_API_TOKEN=x", "HOME=/h", "CUDA_VISIBLE_DEVICES=",
                               "XLA_FLAGS=--a=b",   "broken",         "OMPI=1",  nullptr};
  EXPECT_EQ(environment_variables(environment),
            (json{{"OMP_NUM_THREADS", "2"}, {"CUDA_VISIBLE_DEVICES", ""}, {"XLA_FLAGS", "--a=b"}}));
}

TEST(Provenance, FindsTheCommit) {
  const std::string commit(40, 'a'), packed(40, 'b'), loose(40, 'c');
  FakeTree tree;
  tree.write("inner/file", "");
  EXPECT_TRUE(git_commit("").is_null());
  tree.write(".git/HEAD", commit + "\n");
  EXPECT_EQ(git_commit(tree.path("inner")), commit);
  tree.write(".git/HEAD", "ref: refs/heads/main\n");
  EXPECT_TRUE(git_commit(tree.path()).is_null()) << "a branch without a commit";
  tree.write(".git/packed-refs", "# pack-refs with: peeled\n" + std::string(40, 'd') + " refs/heads/mai\n" +
                                     packed + " refs/heads/main\n^" + commit + "\n");
  EXPECT_EQ(git_commit(tree.path()), packed);
  tree.write(".git/refs/heads/main", loose + "\n");
  EXPECT_EQ(git_commit(tree.path("inner")), loose) << "stands before the packed one";
  FakeTree second;  // a working tree beside the first
  second.write(".git", "gitdir: " + tree.path(".git/worktrees/w") + "\n");
  tree.write(".git/worktrees/w/HEAD", "ref: refs/heads/main\n");
  tree.write(".git/worktrees/w/commondir", "../..\n");
  EXPECT_EQ(git_commit(second.path()), loose);
  tree.write(".git/worktrees/w/HEAD", "rubbish");
  EXPECT_TRUE(git_commit(second.path()).is_null());
}

}  // namespace
}  // namespace tandem::lab
