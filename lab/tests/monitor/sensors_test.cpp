// Temperature and energy from folders that pretend to be /sys, and curves.
#include "lab/src/monitor/sensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "lab/src/monitor/processor_times.h"
#include "lab/src/monitor/series.h"
#include "lab/tests/monitor/fake_tree.h"

namespace tandem::lab {
namespace {

TEST(ProcessorTemperature, PackagesStandBeforeCores) {
  FakeTree sys;
  sys.write("class/hwmon/hwmon0/name", "nvme\n");
  sys.write("class/hwmon/hwmon0/temp1_input", "99000\n");
  sys.write("class/hwmon/hwmon1/name", "coretemp\n");
  sys.write("class/hwmon/hwmon1/temp1_input", "61000\n");
  sys.write("class/hwmon/hwmon1/temp1_label", "Package id 0\n");
  sys.write("class/hwmon/hwmon1/temp2_input", "88000\n");
  sys.write("class/hwmon/hwmon1/temp2_label", "Core 0\n");
  sys.write("class/hwmon/hwmon2/name", "coretemp\n");
  sys.write("class/hwmon/hwmon2/temp1_input", "63500\n");
  sys.write("class/hwmon/hwmon2/temp1_label", "Package id 1\n");
  const ProcessorTemperature sensor(sys.path());
  EXPECT_EQ(sensor.read(), 63.5) << "the hottest package; neither the disk nor a core";
  EXPECT_EQ(sensor.source(), sys.path("class/hwmon/hwmon1/temp1_input and 1 more"));
  EXPECT_EQ(sensor.why(), "");
  sys.write("class/hwmon/hwmon1/temp1_input", "70000\n");
  EXPECT_EQ(sensor.read(), 70.0) << "it is read each time";
}

TEST(ProcessorTemperature, TakesTheHottestCoreWherePackagesHaveNoSensor) {
  FakeTree sys;
  sys.write("class/hwmon/hwmon0/name", "cpu_thermal");
  sys.write("class/hwmon/hwmon0/temp2_input", "41000");
  sys.write("class/hwmon/hwmon0/temp10_input", "44000");
  EXPECT_EQ(ProcessorTemperature(sys.path()).read(), 44.0);
}

TEST(ProcessorTemperature, TakesTheDieAndNotTheNumberForTheFan) {
  for (const bool die_first : {true, false}) {
    FakeTree sys;
    sys.write("class/hwmon/hwmon0/name", "k10temp");
    sys.write(std::string("class/hwmon/hwmon0/temp") + (die_first ? "1" : "2") + "_input", "50000");
    sys.write(std::string("class/hwmon/hwmon0/temp") + (die_first ? "1" : "2") + "_label", "Tdie");
    sys.write(std::string("class/hwmon/hwmon0/temp") + (die_first ? "2" : "1") + "_input", "77000");
    sys.write(std::string("class/hwmon/hwmon0/temp") + (die_first ? "2" : "1") + "_label", "Tctl");
    EXPECT_EQ(ProcessorTemperature(sys.path()).read(), 50.0) << die_first;
  }
}

TEST(ProcessorTemperature, FallsBackToThermalZones) {
  FakeTree sys;
  sys.write("class/thermal/thermal_zone0/type", "acpitz");
  sys.write("class/thermal/thermal_zone0/temp", "27800");
  sys.write("class/thermal/thermal_zone1/type", "x86_pkg_temp");
  sys.write("class/thermal/thermal_zone1/temp", "55000");
  sys.write("class/thermal/cooling_device0/type", "cpufreq");
  EXPECT_EQ(ProcessorTemperature(sys.path()).read(), 55.0);
}

TEST(ProcessorTemperature, IsUnavailableWithAReason) {
  FakeTree sys;
  EXPECT_EQ(ProcessorTemperature(sys.path()).read(), std::nullopt);
  EXPECT_EQ(ProcessorTemperature(sys.path()).why(), "no hwmon sensor or thermal zone of the processor");
  sys.write("class/hwmon/hwmon0/name", "nvme");
  sys.write("class/thermal/thermal_zone0/type", "acpitz");
  EXPECT_EQ(ProcessorTemperature(sys.path()).why(),
            "no hwmon sensor or thermal zone of the processor (there are: nvme, acpitz)");
  for (const char* broken : {"0", "-128000", "", "hot", "999999999"}) {
    sys.write("class/hwmon/hwmon1/name", "coretemp");
    sys.write("class/hwmon/hwmon1/temp1_input", broken);
    const ProcessorTemperature sensor(sys.path());
    EXPECT_EQ(sensor.read(), std::nullopt) << broken;
    EXPECT_NE(sensor.why().find("gives no temperature"), std::string::npos) << sensor.why();
  }
}

TEST(ProcessorEnergy, SumsPackagesAndGoesOnAfterTheCounterWentRound) {
  FakeTree sys;
  const std::string at = "class/powercap/";
  for (const auto& [zone, name] : {std::pair{"intel-rapl:0", "package-0"},
                                   {"intel-rapl:1", "package-1"},
                                   {"intel-rapl:0:0", "core"},
                                   {"intel-rapl:2", "psys"},
                                   {"intel-rapl-mmio:0", "package-0"}}) {
    sys.write(at + zone + "/name", name);
    sys.write(at + zone + "/max_energy_range_uj", "1000000000");
    sys.write(at + zone + "/energy_uj", "999000000");
  }
  ProcessorEnergy energy(sys.path());
  EXPECT_EQ(energy.why(), "");
  EXPECT_EQ(energy.read(), 0.0);
  sys.write(at + "intel-rapl:0/energy_uj", "999500000");
  sys.write(at + "intel-rapl:2/energy_uj", "999900000");
  EXPECT_NEAR(energy.read().value(), 0.5, 1e-9);
  sys.write(at + "intel-rapl:1/energy_uj", "2000000");  // from 999 to 1000, and 2 more
  EXPECT_NEAR(energy.read().value(), 3.5, 1e-9);
  sys.write(at + "intel-rapl:1/energy_uj", "");
  EXPECT_EQ(energy.read(), std::nullopt);
  EXPECT_NE(energy.why(), "");
  energy.restart();
  sys.write(at + "intel-rapl:1/energy_uj", "5");
  EXPECT_EQ(energy.read(), 0.0);
}

TEST(ProcessorEnergy, IsUnavailableWithAReason) {
  FakeTree sys;
  EXPECT_EQ(ProcessorEnergy(sys.path()).read(), std::nullopt);
  EXPECT_EQ(ProcessorEnergy(sys.path()).why(),
            "no RAPL counter of the processor in '" + sys.path() + "/class/powercap'");
  sys.write("class/powercap/intel-rapl:0/name", "package-0");
  EXPECT_NE(ProcessorEnergy(sys.path()).why().find("energy_uj' is not there"), std::string::npos);
  sys.write("class/powercap/intel-rapl:0/energy_uj", "7000000");  // and no range
  ProcessorEnergy energy(sys.path());
  EXPECT_EQ(energy.read(), 0.0);
  sys.write("class/powercap/intel-rapl:0/energy_uj", "1000000");
  EXPECT_EQ(energy.read(), std::nullopt);
  EXPECT_NE(energy.why().find("fell from 7000000 to 1000000"), std::string::npos) << energy.why();
}

TEST(ProcessorEnergy, SaysWhenReadingIsNotAllowed) {
  FakeTree sys;
  const std::string file = "class/powercap/intel-rapl:0/energy_uj";
  sys.write("class/powercap/intel-rapl:0/name", "package-0");
  sys.write(file, "1");
  ASSERT_EQ(::chmod(sys.path(file).c_str(), 0), 0);
  ASSERT_EQ(::chmod(sys.path().c_str(), 0755), 0);
  const pid_t pid = ::fork();  // root may read everything, so it becomes somebody else
  if (pid == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    const std::string why = ProcessorEnergy(sys.path()).why();
    ::_exit(why.find("Permission denied. Only root may") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

ProcessorTimes times_of(const std::string& text) {
  ProcessorTimes times;
  parse_processor_times(text, times);
  return times;
}

TEST(CoreUsage, FollowsThePapersEquations) {
  CoreUsage usage;
  //                       user nice system idle iowait irq softirq steal guest
  usage.add(times_of(
      "cpu  0 0 0 0\ncpu0 100 0 0 900 0 0 0 0 0 0\ncpu1 0 0 0 1000 0 0 0 0 0 0\nintr 1\nprocesses 42\n"));
  EXPECT_TRUE(usage.all().empty()) << "one reading says nothing";
  usage.add(times_of("cpu0 130 10 20 920 5 3 2 10 0 0\ncpu1 0 0 25 1075 0 0 0 0 0 0\n"));
  const CoreSums sums = usage.all();
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_NEAR(sums[0].second.percent(), 65.0, 1e-9);  // 30+10+20+3+2 of 100
  EXPECT_NEAR(sums[1].second.percent(), 25.0, 1e-9);
  EXPECT_EQ(sums[0].second.steal, 10);
  EXPECT_NEAR(mean_percent(sums).value(), 45.0, 1e-9);
  EXPECT_EQ(times_of("cpu0 1 2 3 4\nprocesses 42\n").forks, 42);
}

TEST(CoreUsage, CoresMayComeAndGo) {
  CoreUsage usage;
  usage.add(times_of("cpu0 0 0 0 0\ncpu1 0 0 0 0\n"));
  usage.add(times_of("cpu0 50 0 0 50\ncpu1 100 0 0 0\n"));
  usage.add(times_of("cpu0 50 0 0 150\n"));  // core 1 was switched off
  usage.add(times_of(
      "cpu0 50 0 0 150\ncpu1 900 0 0 0\ncpu200 0 0 0 10\n"));  // and on: what it did meanwhile is unknown
  usage.add(times_of("cpu0 100 0 0 200\ncpu1 900 0 0 100\ncpu200 30 0 0 10\n"));
  const CoreSums sums = usage.all();
  ASSERT_EQ(sums.size(), 3u);
  EXPECT_NEAR(sums[0].second.percent(), 100.0 / 3, 1e-9);
  EXPECT_NEAR(sums[1].second.percent(), 50.0, 1e-9);
  EXPECT_EQ(sums[2].first, 200);
  EXPECT_NEAR(sums[2].second.percent(), 100.0, 1e-9);
}

TEST(CoreUsage, StandsRubbishAndCountersThatFall) {
  for (const char* text :
       {"", "cpu", "cpu0", "cpu0 1 2", "cpux 1 2 3 4", "cpu-1 1 2 3 4", "\n\n", "processes x"})
    EXPECT_TRUE(times_of(text).cores.empty()) << text;
  CoreUsage usage;
  usage.add(times_of("cpu0 10 0 0 10 50\n"));
  usage.add(times_of("cpu0 5 0 0 10 20\n"));
  EXPECT_TRUE(usage.all().empty());
  EXPECT_EQ(mean_percent(usage.all()), std::nullopt);
}

TEST(Series, WeighsByTimeAndKeepsThePeak) {
  Series series(Series::Thin::peak);
  series.add(0, 10);
  EXPECT_EQ(series.mean(), 10);
  series.add(9, 10);
  series.add(10, 30);
  EXPECT_NEAR(series.mean(), 11.0, 1e-12);  // 9 s at 10, then 1 s from 10 to 30
  EXPECT_EQ(series.peak(), 30);
  Series negative;
  negative.add(0, -5);
  EXPECT_EQ(negative.peak(), -5);
}

TEST(Series, ACurveHas300PointsAtMostHoweverLongItIs) {
  for (const int count : {1, 2, 299, 300, 301, 599, 600, 601, 1200, 1201, 100000}) {
    Series mean, peak(Series::Thin::peak);
    for (int i = 0; i < count; ++i) {
      mean.add(0.1 * i, i);
      peak.add(0.1 * i, i == count / 3 ? 1000 : 1);
    }
    const Trace trace = mean.trace("m", "u", "s");
    EXPECT_LE(trace.values.size(), kTracePoints) << count;
    EXPECT_GE(trace.values.size(), std::min<size_t>(static_cast<size_t>(count), kTracePoints / 2)) << count;
    ASSERT_EQ(trace.values.size(), trace.seconds.size());
    for (size_t i = 0; i < trace.values.size(); ++i)
      EXPECT_NEAR(trace.values[i], 10 * trace.seconds[i], 1e-6 * count) << "on the line";
    const Trace high = peak.trace("m", "u", "s", 40);
    EXPECT_LE(high.values.size(), 40u);
    EXPECT_EQ(*std::max_element(high.values.begin(), high.values.end()), 1000)
        << "a peak is not thinned away";
  }
}

}  // namespace
}  // namespace tandem::lab
