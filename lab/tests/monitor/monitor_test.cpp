// The monitor as the lab uses it: real processes, fake sensors, and what happens where things are missing.
// ctest: timeout=300 serial
#include "lab/src/monitor/monitor.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "lab/src/monitor/kept_file.h"
#include "lab/tests/monitor/fake_nvml.h"
#include "lab/tests/monitor/fake_tree.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

const Trace* trace_of(const MonitorReport& report, const std::string& metric) {
  const auto found = std::find_if(report.traces.begin(), report.traces.end(),
                                  [&](const Trace& trace) { return trace.metric == metric; });
  return found == report.traces.end() ? nullptr : &*found;
}

bool notes_have(const MonitorReport& report, const std::string& text) {
  return std::any_of(report.notes.begin(), report.notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

/// Every name that the monitor knows is either measured or unavailable with a reason, and curves are sound.
void expect_complete(const MonitorReport& report) {
  for (const char* name :
       {"cpu.percent", "cpu.core_max_percent", "cpu.tree_percent", "rss.mean_mib", "rss.peak_mib",
        "pss.mean_mib", "pss.peak_mib", "cpu.temperature_c", "cpu.energy_j", "gpu.percent",
        "gpu.memory_mean_mib", "gpu.memory_peak_mib", "gpu.tree_memory_mean_mib", "gpu.tree_memory_peak_mib",
        "gpu.temperature_c", "gpu.power_w", "gpu.energy_j", "monitor.percent", "machine.runnable_others"}) {
    const auto why = report.unavailable.find(name);
    ASSERT_EQ(report.metrics.count(name) + report.unavailable.count(name), 1u) << name;
    if (why == report.unavailable.end()) {
      EXPECT_TRUE(std::isfinite(report.metrics.at(name))) << name;
      EXPECT_NE(report.sources.at(name), "") << name;
    } else {
      EXPECT_NE(why->second, "") << name;
    }
  }
  EXPECT_EQ(report.metrics.size(), report.sources.size());
  EXPECT_EQ(report.metrics.size() + report.unavailable.size(), 19u);
  for (const Trace& trace : report.traces) {
    EXPECT_LE(trace.values.size(), 300u);
    EXPECT_FALSE(trace.values.empty()) << trace.metric;
    EXPECT_EQ(trace.values.size(), trace.seconds.size());
    EXPECT_TRUE(std::is_sorted(trace.seconds.begin(), trace.seconds.end())) << trace.metric;
    EXPECT_GE(trace.seconds.front(), 0) << trace.metric;
    EXPECT_LE(trace.seconds.back(), report.seconds + 1) << trace.metric;
    EXPECT_NE(trace.source, "") << trace.metric;
    EXPECT_NE(trace.unit, "") << trace.metric;
  }
}

MonitorReport watch(const MonitorOptions& options, double seconds) {
  Monitor monitor(options);
  monitor.start();
  monitor.begin_window();
  sleep_s(seconds);
  MonitorReport report = monitor.end_window();
  expect_complete(report);
  return report;
}

TEST(Monitor, SeesABusyChild) {
  Child child([](const auto& ready) {
    ready();
    for (;;) burn_s(1);
  });
  ASSERT_TRUE(child.is_ready());
  const double before = now_s();
  const MonitorReport report = watch({.pid = child.pid(), .interval_s = 0.05}, 1.0);
  // How much the child got depends on what else the machine does; the process's own clock knows.
  clockid_t clock;
  timespec used{};
  ASSERT_EQ(::clock_getcpuclockid(child.pid(), &clock), 0);
  ASSERT_EQ(::clock_gettime(clock, &used), 0);
  EXPECT_LT(now_s() - before, 30);
  EXPECT_GT(report.metrics.at("cpu.tree_percent"), 5);
  EXPECT_LT(report.metrics.at("cpu.tree_percent"), 110);
  EXPECT_LE(report.metrics.at("cpu.tree_percent") * report.seconds / 100,
            static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec) + 0.05);
  EXPECT_GT(report.metrics.at("cpu.percent"), 1);
  EXPECT_GE(report.metrics.at("cpu.core_max_percent"), report.metrics.at("cpu.percent"));
  EXPECT_LE(report.metrics.at("cpu.core_max_percent"), 100);
  EXPECT_GT(report.metrics.at("monitor.percent"), 0);
  EXPECT_EQ(report.sources.at("cpu.percent"), "/proc/stat");
  const Trace* cpu = trace_of(report, "cpu.percent");
  ASSERT_TRUE(cpu);
  EXPECT_GE(cpu->values.size(), 5u);
  EXPECT_TRUE(trace_of(report, "cpu.core0_percent"));
  EXPECT_TRUE(trace_of(report, "cpu.tree_percent"));
}

TEST(Monitor, SeesMemoryGrowAndAChildOfTheChild) {
  Child child([](const auto& ready) {
    ready();
    sleep_s(0.4);
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      touch_mib(48);
      ::pause();
      ::_exit(0);
    }
    touch_mib(32);
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  Monitor monitor({.pid = child.pid(), .interval_s = 0.05});
  monitor.start();
  monitor.begin_window();
  sleep_s(2.0);
  const MonitorReport report = monitor.end_window();
  expect_complete(report);
  EXPECT_GT(report.metrics.at("rss.peak_mib"), 78) << "32 of the child and 48 of the grandchild";
  EXPECT_LT(report.metrics.at("rss.mean_mib"), report.metrics.at("rss.peak_mib"));
  EXPECT_GT(report.metrics.at("pss.peak_mib"), 78);
  EXPECT_LT(report.metrics.at("pss.peak_mib"), 78 + 40);
  const Trace* rss = trace_of(report, "rss");
  ASSERT_TRUE(rss);
  EXPECT_LT(rss->values.front(), 40);
  EXPECT_GT(rss->values.back(), 78);

  monitor.begin_window();  // a second window starts from nothing
  sleep_s(0.2);
  const MonitorReport second = monitor.end_window();
  EXPECT_GT(second.metrics.at("rss.mean_mib"), 78);
  EXPECT_LT(second.metrics.at("cpu.tree_percent"), 30);
}

TEST(Monitor, OutlivesTheProcess) {
  Child child([](const auto& ready) {
    touch_mib(16);
    ready();
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  Monitor monitor({.pid = child.pid(), .interval_s = 0.02});
  monitor.start();
  monitor.begin_window();
  sleep_s(0.2);
  child.stop();
  sleep_s(0.3);
  const MonitorReport report = monitor.end_window();
  expect_complete(report);
  EXPECT_GT(report.metrics.at("rss.mean_mib"), 14) << "nothing is counted in after the end";
  EXPECT_TRUE(notes_have(report, " ended "));
  EXPECT_TRUE(report.metrics.count("cpu.percent"));

  monitor.begin_window();
  sleep_s(0.05);
  const MonitorReport after = monitor.end_window();
  expect_complete(after);
  EXPECT_EQ(after.metrics.count("rss.mean_mib"), 0u);
  EXPECT_NE(after.unavailable.at("rss.mean_mib").find("has ended"), std::string::npos);
  EXPECT_NE(after.unavailable.at("pss.peak_mib").find("has ended"), std::string::npos);
}

TEST(Monitor, AZombieIsNotAProcessWithoutMemory) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    sleep_s(0.2);
    ::_exit(0);
  }
  const MonitorReport report = watch({.pid = pid, .interval_s = 0.02}, 0.6);  // nobody waits for it meanwhile
  ::waitpid(pid, nullptr, 0);
  const Trace* rss = trace_of(report, "rss");
  ASSERT_TRUE(rss);
  EXPECT_GT(*std::min_element(rss->values.begin(), rss->values.end()), 0);
  EXPECT_TRUE(notes_have(report, "ended"));
}

TEST(Monitor, EverythingMissingIsUnavailableAndNeverZero) {
  FakeTree nothing;
  const MonitorReport report = watch({.pid = 12345,
                                      .interval_s = 0.01,
                                      .gpu = 0,
                                      .proc = nothing.path("proc"),
                                      .sys = nothing.path("sys"),
                                      .nvml = nothing.path("libnvidia-ml.so.1")},
                                     0.05);
  EXPECT_EQ(report.metrics.size(), 1u) << "monitor.percent alone";
  EXPECT_TRUE(report.traces.empty());
  EXPECT_NE(report.unavailable.at("cpu.percent").find("stat' is not there"), std::string::npos);
  EXPECT_NE(report.unavailable.at("gpu.power_w").find("libnvidia-ml.so.1 is not there"), std::string::npos);
  const MonitorReport machine = watch({.interval_s = 0.01}, 0.05);
  EXPECT_EQ(machine.unavailable.at("rss.mean_mib"), "no process is watched");
  EXPECT_EQ(machine.unavailable.at("gpu.percent"), "no GPU is watched in this run");
}

TEST(Monitor, AWindowShorterThanTheTicksHasNoUtilisation) {
  Child child([](const auto& ready) {
    ready();
    ::pause();
  });
  FakeTree proc;
  proc.write("stat", "cpu0 1 2 3 4\nprocesses 1\n");
  Monitor monitor({.interval_s = 0.01, .proc = proc.path()});
  monitor.start();
  monitor.begin_window();
  const MonitorReport report = monitor.end_window();
  expect_complete(report);
  EXPECT_NE(report.unavailable.at("cpu.percent").find("is shorter than the ticks"), std::string::npos);
}

TEST(Monitor, ReadsFakeSensorsAndManyCores) {
  FakeTree proc, sys;
  const auto stat = [](int round, int cores) {
    std::string text = "cpu 1 1 1 1\n";
    for (int core = 0; core < cores; ++core)
      text += "cpu" + std::to_string(core) + " " + std::to_string(core == 100 ? 10 * round : 0) + " 0 0 " +
              std::to_string(core == 100 ? 0 : 10 * round) + "\n";
    return text + "processes 1\n";
  };
  proc.write("stat", stat(1, 192));
  sys.write("class/hwmon/hwmon0/name", "k10temp");
  sys.write("class/hwmon/hwmon0/temp1_label", "Tctl");
  sys.write("class/hwmon/hwmon0/temp1_input", "48000");
  sys.write("class/powercap/intel-rapl:0/name", "package-0");
  sys.write("class/powercap/intel-rapl:0/energy_uj", "5000000");
  sys.write("class/powercap/intel-rapl:0/max_energy_range_uj", "6000000");
  Monitor monitor({.interval_s = 0.02, .share = 1, .proc = proc.path(), .sys = sys.path()});
  EXPECT_EQ(monitor.current_temperature(), 48.0) << "before start";
  monitor.start();
  monitor.begin_window();
  for (int round = 2; round < 6; ++round) {
    proc.write("stat", stat(round, round == 4 ? 128 : 192));
    sleep_s(0.1);
  }
  sys.write("class/powercap/intel-rapl:0/energy_uj", "500000");  // round once: 1.5 J
  const MonitorReport report = monitor.end_window();
  expect_complete(report);
  EXPECT_NEAR(report.metrics.at("cpu.core_max_percent"), 100, 1e-9);
  EXPECT_NEAR(report.metrics.at("cpu.percent"), 100.0 / 192, 0.2);
  EXPECT_EQ(report.metrics.at("cpu.temperature_c"), 48);
  EXPECT_NEAR(report.metrics.at("cpu.energy_j"), 1.5, 1e-9);
  EXPECT_TRUE(trace_of(report, "cpu.core191_percent"));
}

class MonitorOfAGpu : public testing::Test {
 protected:
  void SetUp() override {
    g_gpu = FakeGpu();
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
  NvmlFunctions functions_ = fake_nvml();
};

TEST_F(MonitorOfAGpu, ReadsNvml) {
  Child child([](const auto& ready) {
    ready();
    ::pause();
  });
  g_gpu.processes.assign(40, {1, 1ull << 30, 0, 0});  // more than fit at the first try
  g_gpu.processes.push_back({static_cast<unsigned>(child.pid()), 512ull << 20, 0, 0});
  g_gpu.energy_step_mj = 2000;
  g_gpu.throttle = 1 | 4 | 0x40;
  const MonitorReport report =
      watch({.pid = child.pid(), .interval_s = 0.02, .gpu = 0, .nvml_functions = &functions_}, 0.4);
  EXPECT_EQ(report.metrics.at("gpu.percent"), 73);
  EXPECT_EQ(report.metrics.at("gpu.memory_mean_mib"), 3072);
  EXPECT_EQ(report.metrics.at("gpu.memory_peak_mib"), 3072);
  EXPECT_EQ(report.metrics.at("gpu.tree_memory_peak_mib"), 512);
  EXPECT_EQ(report.metrics.at("gpu.temperature_c"), 55);
  EXPECT_EQ(report.metrics.at("gpu.power_w"), 250);
  EXPECT_GE(report.metrics.at("gpu.energy_j"), 4);
  EXPECT_EQ(report.sources.at("gpu.energy_j"), "nvmlDeviceGetTotalEnergyConsumption");
  EXPECT_EQ(report.sources.at("gpu.memory_mean_mib"), "nvmlDeviceGetMemoryInfo_v2");
  EXPECT_TRUE(notes_have(report, "held down: hw_thermal_slowdown, sw_power_cap"));
  EXPECT_TRUE(trace_of(report, "gpu.power_w"));
  EXPECT_EQ(g_gpu.starts, 1);
  EXPECT_EQ(g_gpu.stops, 1);
}

TEST_F(MonitorOfAGpu, AShortWindowHasNoEnergyOfZeroAndNoUtilisation) {
  g_gpu.energy_step_mj = 0;
  const MonitorReport report =
      watch({.pid = ::getpid(), .interval_s = 0.02, .gpu = 0, .nvml_functions = &functions_}, 0.1);
  EXPECT_EQ(report.metrics.count("gpu.energy_j"), 0u);
  EXPECT_NE(report.unavailable.at("gpu.energy_j").find("did not move"), std::string::npos);
  EXPECT_NE(report.unavailable.at("gpu.percent").find("shorter than"), std::string::npos) << "0.1 s";
}

TEST_F(MonitorOfAGpu, AnOlderDriverHasLess) {
  functions_.DeviceGetMemoryInfo_v2 = nullptr;
  functions_.DeviceGetTotalEnergyConsumption = [](void*, unsigned long long*) { return 3; };
  functions_.DeviceGetComputeRunningProcesses_v3 = nullptr;
  functions_.DeviceGetUtilizationRates = [](void*, NvmlFunctions::Utilization*) { return 3; };
  const MonitorReport report =
      watch({.pid = ::getpid(), .interval_s = 0.02, .gpu = 0, .nvml_functions = &functions_}, 0.4);
  EXPECT_EQ(report.metrics.at("gpu.memory_mean_mib"), 4096);
  EXPECT_EQ(report.sources.at("gpu.memory_mean_mib"), "nvmlDeviceGetMemoryInfo");
  EXPECT_NEAR(report.metrics.at("gpu.energy_j"), 250 * report.seconds, 1e-6) << "from the power";
  EXPECT_NE(report.sources.at("gpu.energy_j").find("nvmlDeviceGetPowerUsage"), std::string::npos);
  EXPECT_EQ(report.unavailable.at("gpu.percent"), "nvmlDeviceGetUtilizationRates: Oh");
  EXPECT_NE(report.unavailable.at("gpu.tree_memory_peak_mib").find("does not have it"), std::string::npos);
}

TEST_F(MonitorOfAGpu, ProcessesOfAnotherNumberingAreNotZero) {
  g_gpu.processes.push_back({999999, 512ull << 20, 0, 0});
  const MonitorReport other =
      watch({.pid = ::getpid(), .interval_s = 0.02, .gpu = 0, .nvml_functions = &functions_}, 0.05);
  EXPECT_NE(other.unavailable.at("gpu.tree_memory_mean_mib").find("none of the 1 processes"),
            std::string::npos);
  g_gpu.processes = {{static_cast<unsigned>(::getpid()), ~0ull, 0, 0}};
  const MonitorReport unknown =
      watch({.pid = ::getpid(), .interval_s = 0.02, .gpu = 0, .nvml_functions = &functions_}, 0.05);
  EXPECT_NE(unknown.unavailable.at("gpu.tree_memory_mean_mib").find("not known"), std::string::npos);
}

TEST_F(MonitorOfAGpu, FollowsCudaVisibleDevices) {
  const auto degrees = [&](int gpu) {
    return Monitor({.gpu = gpu, .nvml_functions = &functions_}).current_temperature();
  };
  EXPECT_EQ(degrees(0), 55);
  EXPECT_EQ(degrees(1), 75);
  EXPECT_EQ(degrees(2), std::nullopt);
  ::setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
  EXPECT_EQ(degrees(0), 75);
  EXPECT_EQ(degrees(1), 55);
  EXPECT_EQ(degrees(2), std::nullopt);
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-bb", 1);
  EXPECT_EQ(degrees(0), 75);
  for (const char* none : {"", "GPU-cc", "7", "x"}) {
    ::setenv("CUDA_VISIBLE_DEVICES", none, 1);
    EXPECT_EQ(degrees(0), std::nullopt) << none;
  }
}

TEST_F(MonitorOfAGpu, ADriverThatIsNotLoadedIsAReason) {
  g_gpu.init_error = 9;
  const MonitorReport report = watch({.interval_s = 0.02, .gpu = 0, .nvml_functions = &functions_}, 0.05);
  EXPECT_EQ(report.unavailable.at("gpu.percent"), "nvmlInit_v2: Driver Not Loaded");
  EXPECT_EQ(report.unavailable.at("gpu.energy_j"), "nvmlInit_v2: Driver Not Loaded");
}

TEST_F(MonitorOfAGpu, TheLibraryIsOpenedWhenTheProgramRuns) {
  FakeTree folder;
  folder.write("nvml.c", R"(
    int nvmlInit_v2(void) { return 0; }
    int nvmlShutdown(void) { return 0; }
    int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) { *handle = handle; return index ? 2 : 0; }
    int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* to) { *to = 66; return device ? sensor : 1; })");
  folder.write("text.so", "not a library");
  const std::string library = folder.path("fake.so");
  EXPECT_EQ(Monitor({.gpu = 0, .nvml = folder.path("text.so")}).current_temperature(), std::nullopt);
  if (std::system(
          ("cc -shared -fPIC -o '" + library + "' '" + folder.path("nvml.c") + "' 2> /dev/null").c_str()) !=
      0)
    GTEST_SKIP() << "there is no C compiler";
  const MonitorReport report = watch({.interval_s = 0.02, .gpu = 0, .nvml = library}, 0.05);
  EXPECT_EQ(report.metrics.at("gpu.temperature_c"), 66);
  EXPECT_NE(report.unavailable.at("gpu.power_w").find("nvmlDeviceGetPowerUsage: this version"),
            std::string::npos);
}

TEST(Monitor, WrongUseIsAnError) {
  EXPECT_THROW(Monitor({.interval_s = 0}), Error);
  EXPECT_THROW(Monitor({.interval_s = std::nan("")}), Error);
  EXPECT_THROW(Monitor({.pid = -4}), Error);
  EXPECT_THROW(Monitor({.share = 0}), Error);
  Monitor monitor(MonitorOptions{});
  EXPECT_THROW(monitor.begin_window(), Error);
  EXPECT_THROW(monitor.end_window(), Error);
  monitor.start();
  EXPECT_THROW(monitor.start(), Error);
  EXPECT_THROW(monitor.end_window(), Error);
  monitor.begin_window();
  monitor.begin_window();
  EXPECT_NO_THROW(monitor.end_window());
  EXPECT_THROW(monitor.end_window(), Error);
  monitor.begin_window();  // and is destroyed with an open window
}

TEST(Monitor, SlowsDownWhereReadingsCostTooMuch) {
  Child child([](const auto& ready) {
    touch_mib(128);
    ready();
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  const MonitorReport report = watch({.pid = child.pid(), .interval_s = 0.001, .share = 0.002}, 1.5);
  EXPECT_TRUE(notes_have(report, "processor: read every"))
      << "a thousand times per second is too often for 0.2 %";
  std::printf("interval 1 ms, share 0.2 %%: the monitor took %.2f %%\n",
              report.metrics.at("monitor.percent"));
  EXPECT_LT(report.metrics.at("monitor.percent"), 20);
}

TEST(Monitor, PrintsItsShareBesideALargeProcess) {
  Child child([](const auto& ready) {
    touch_mib(500);
    std::thread([] {
      for (;;) burn_s(1);
    }).detach();
    for (int i = 0; i < 30; ++i) std::thread([] { ::pause(); }).detach();
    ready();
    ::pause();
  });
  ASSERT_TRUE(child.is_ready());
  const MonitorReport report = watch({.pid = child.pid()}, 4.0);
  std::printf("beside 500 MiB and 32 threads, 10 Hz: the monitor took %.3f %% of a core\n",
              report.metrics.at("monitor.percent"));
  for (const std::string& note : report.notes) std::printf("  %s\n", note.c_str());
  EXPECT_GT(report.metrics.at("rss.mean_mib"), 490);
  EXPECT_GT(report.metrics.at("pss.mean_mib"), 490);
  EXPECT_LT(report.metrics.at("monitor.percent"), 10) << "sanity alone: the machine may be slow";
}

}  // namespace
}  // namespace tandem::lab
