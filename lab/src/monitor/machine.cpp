// Reading the machine's description from /proc and /sys.
#include "lab/src/monitor/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "lab/src/monitor/kept_file.h"
#include "lab/src/monitor/processor_times.h"

namespace tandem::lab {
namespace {

using nlohmann::json;

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

template <class Number>
json number_or_null(const std::optional<Number>& number) {
  return number ? json(*number) : json();
}

double rounded(double value) { return std::round(value * 10) / 10; }

/// "name : value" lines; the first of each name.
std::map<std::string, std::string> pairs_of(const std::string& text) {
  std::map<std::string, std::string> pairs;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos)
      pairs.emplace(trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  }
  return pairs;
}

std::string found(const std::map<std::string, std::string>& pairs, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto pair = pairs.find(name); pair != pairs.end() && !pair->second.empty()) return pair->second;
  return "";
}

bool is_numbered(const std::string& name, const std::string& start) {
  return name.size() > start.size() && name.starts_with(start) &&
         name.find_first_not_of("0123456789", start.size()) == std::string::npos;
}

std::vector<std::string> core_folders(const std::string& sys) {
  const std::string folder = sys + "/devices/system/cpu/";
  std::vector<std::string> folders;
  for (const std::string& name : names_in(folder))
    if (is_numbered(name, "cpu")) folders.push_back(folder + name + "/");
  return folders;
}

/// Distinct values of one file of each core, in order of their first place.
json distinct(const std::vector<std::string>& folders, const std::string& file) {
  json values = json::array();
  for (const std::string& folder : folders) {
    const std::string value = read_small(folder + file);
    if (!value.empty() && std::find(values.begin(), values.end(), value) == values.end())
      values.push_back(value);
  }
  return values;
}

json caches_of(const std::vector<std::string>& folders) {
  json caches = json::array();
  std::set<std::string> seen;
  for (const std::string& folder : folders)
    for (const std::string& name : names_in(folder + "cache")) {
      const std::string at = folder + "cache/" + name + "/";
      const std::string level = read_small(at + "level");
      if (level.empty()) continue;
      const std::string type = read_small(at + "type"), size = read_small(at + "size");
      // One line for each kind of cache, with how many there are: a core's list of sharers names one cache.
      if (!seen.insert(level + type + size + read_small(at + "shared_cpu_list")).second) continue;
      const auto same = std::find_if(caches.begin(), caches.end(), [&](const json& one) {
        return one["level"] == level && one["type"] == type && one["size"] == size;
      });
      if (same != caches.end())
        (*same)["count"] = (*same)["count"].get<int>() + 1;
      else
        caches.push_back({{"level", level}, {"type", type}, {"size", size}, {"count", 1}});
    }
  return caches;
}

json frequencies_of(const std::vector<std::string>& folders) {
  std::optional<int64_t> least, most, lowest_now, highest_now;
  const auto widen = [](std::optional<int64_t>& low, std::optional<int64_t>& high,
                        std::optional<int64_t> value) {
    if (!value) return;
    low = std::min(low.value_or(*value), *value);
    high = std::max(high.value_or(*value), *value);
  };
  for (const std::string& folder : folders) {
    widen(least, most, read_number(folder + "cpufreq/cpuinfo_min_freq"));
    widen(least, most, read_number(folder + "cpufreq/cpuinfo_max_freq"));
    widen(lowest_now, highest_now, read_number(folder + "cpufreq/scaling_cur_freq"));
  }
  const auto mhz = [](const std::optional<int64_t>& khz) { return khz ? json(*khz / 1000) : json(); };
  return {{"min_mhz", mhz(least)},
          {"max_mhz", mhz(most)},
          {"lowest_now_mhz", mhz(lowest_now)},
          {"highest_now_mhz", mhz(highest_now)}};
}

/// Name and ticks used of every process but this one.
std::map<pid_t, std::pair<std::string, int64_t>> everybody(const std::string& proc) {
  std::map<pid_t, std::pair<std::string, int64_t>> all;
  for (const std::string& name : names_in(proc)) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string text = read_small(proc + "/" + name + "/stat");
    const size_t open = text.find('('), close = text.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close < open) continue;
    std::istringstream fields(text.substr(close + 1));
    std::string skipped;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    int64_t user = 0, system = 0;
    const auto pid = static_cast<pid_t>(std::stol("0" + name.substr(0, 9)));
    if (fields >> user >> system && pid != ::getpid())
      all[pid] = {text.substr(open + 1, close - open - 1), user + system};
  }
  return all;
}

}  // namespace

json processor_json(const std::string& proc, const std::string& sys) {
  const auto pairs = pairs_of(read_small(proc + "/cpuinfo"));
  const auto folders = core_folders(sys);
  const std::string at = sys + "/devices/system/cpu/";
  json out = {{"model", text_or_null(found(pairs, {"model name", "Model", "Hardware", "cpu"}))},
              {"microcode", text_or_null(found(pairs, {"microcode"}))},
              {"flags", text_or_null(found(pairs, {"flags", "Features"}))},
              {"cores", std::thread::hardware_concurrency()},
              {"online", text_or_null(read_small(at + "online"))},
              {"smt", text_or_null(read_small(at + "smt/control"))},
              {"governors", distinct(folders, "cpufreq/scaling_governor")},
              {"frequency_drivers", distinct(folders, "cpufreq/scaling_driver")},
              {"frequencies", frequencies_of(folders)},
              {"caches", caches_of(folders)}};
  if (const std::string part = found(pairs, {"CPU part"}); !part.empty())
    out["arm"] = {{"implementer", found(pairs, {"CPU implementer"})},
                  {"part", part},
                  {"variant", found(pairs, {"CPU variant"})},
                  {"revision", found(pairs, {"CPU revision"})}};
  // Intel says "no turbo", the others "boost".
  if (const auto off = read_number(at + "intel_pstate/no_turbo"))
    out["boost"] = *off == 0;
  else if (const auto on = read_number(at + "cpufreq/boost"))
    out["boost"] = *on != 0;
  else
    out["boost"] = nullptr;
  std::optional<int64_t> throttled;
  for (const std::string& folder : folders)
    if (const auto count = read_number(folder + "thermal_throttle/core_throttle_count"))
      throttled = throttled.value_or(0) + *count;
  out["throttled_since_boot"] = number_or_null(throttled);
  json nodes = json::array();
  for (const std::string& name : names_in(sys + "/devices/system/node"))
    if (is_numbered(name, "node"))
      nodes.push_back(read_small(sys + "/devices/system/node/" + name + "/cpulist"));
  out["numa_nodes"] = nodes;
  cpu_set_t allowed;
  out["allowed_cores"] = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0
                             ? json(CPU_COUNT(&allowed))
                             : json();  // none above 1024 cores
  return out;
}

json memory_json(const std::string& proc, const std::string& sys) {
  const auto pairs = pairs_of(read_small(proc + "/meminfo"));
  const auto mib = [&](const char* name) -> std::optional<int64_t> {
    const std::string text = found(pairs, {name});
    std::string_view rest = text;
    const auto kib = take_number(rest);
    return kib ? std::optional(*kib / 1024) : std::nullopt;
  };
  json out = {{"total_mib", number_or_null(mib("MemTotal"))},
              {"available_mib", number_or_null(mib("MemAvailable"))},
              {"swap_total_mib", number_or_null(mib("SwapTotal"))}};
  const auto swap = mib("SwapTotal"), free = mib("SwapFree");
  out["swap_used_mib"] = swap && free ? json(*swap - *free) : json();
  out["huge_pages"] = text_or_null(read_small(sys + "/kernel/mm/transparent_hugepage/enabled"));
  return out;
}

json system_json(const std::string& proc, const std::string& sys, const std::string& etc) {
  utsname name{};
  ::uname(&name);
  json out = {{"kernel", std::string(name.sysname) + " " + name.release + " " + name.version},
              {"machine", name.machine}};
  const std::string text = read_small(etc + "/os-release");
  std::string_view release = text;
  out["os"] = nullptr;
  while (!release.empty()) {
    std::string_view line = take_line(release);
    if (!line.starts_with("PRETTY_NAME=")) continue;
    line.remove_prefix(12);
    if (line.size() >= 2 && line.front() == '"' && line.back() == '"') line = line.substr(1, line.size() - 2);
    out["os"] = std::string(line);
  }
  double load[3] = {};
  std::istringstream loads(read_small(proc + "/loadavg"));
  out["load_average"] = loads >> load[0] >> load[1] >> load[2] ? json(load) : json();
  double uptime = 0;
  out["uptime_s"] = std::istringstream(read_small(proc + "/uptime")) >> uptime ? json(uptime) : json();
  out["clock_source"] =
      text_or_null(read_small(sys + "/devices/system/clocksource/clocksource0/current_clocksource"));
  // A container may have fewer processors than it sees.
  json limits = json::object();
  std::string group =
      read_small(proc + "/self/cgroup");  // "0::/path" of version 2; others are of no use here
  group = group.starts_with("0::/") ? group.substr(3, group.find('\n') - 3) : "";
  for (const char* const file : {"cpu.max", "memory.max"}) {
    std::string limit = read_small(sys + "/fs/cgroup" + group + "/" + file);
    if (limit.empty()) limit = read_small(sys + "/fs/cgroup/" + file);
    limits[file] = text_or_null(limit);
  }
  out["control_group"] = limits;
  out["on_battery"] = nullptr;
  const std::string supplies = sys + "/class/power_supply/";
  for (const std::string& supply : names_in(supplies))
    if (read_small(supplies + supply + "/type") == "Mains")
      out["on_battery"] = read_small(supplies + supply + "/online") == "0";
  return out;
}

json watch_others(const std::string& proc, double seconds) {
  CoreUsage usage;
  const auto add = [&] {
    ProcessorTimes times;
    parse_processor_times(read_small(proc + "/stat"), times);
    usage.add(times);
  };
  add();
  const auto before = everybody(proc);
  const double start = now_s();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const auto after = everybody(proc);
  const double passed = std::max(now_s() - start, 1e-3);
  add();

  json out = {{"seconds", seconds}, {"steal_percent", nullptr}, {"busy", json::array()}};
  double stolen = 0, total = 0;
  for (const auto& [core, sum] : usage.all()) {
    stolen += static_cast<double>(sum.steal);
    total += static_cast<double>(sum.total);
  }
  if (total > 0) out["steal_percent"] = rounded(100 * stolen / total);
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (const auto& [pid, now] : after) {
    const auto then = before.find(pid);
    if (then == before.end()) continue;
    const double percent = 100 * static_cast<double>(now.second - then->second.second) / ticks / passed;
    if (percent > 10)
      out["busy"].push_back({{"name", now.first}, {"pid", pid}, {"percent", rounded(percent)}});
  }
  std::sort(out["busy"].begin(), out["busy"].end(), [](const json& a, const json& b) {
    return a["percent"].get<double>() > b["percent"].get<double>();
  });
  return out;
}

}  // namespace tandem::lab
