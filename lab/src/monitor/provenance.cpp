// Putting a study's provenance together, and the warnings about it.
#include "lab/src/monitor/provenance.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "lab/src/files/json.h"
#include "lab/src/monitor/kept_file.h"
#include "lab/src/monitor/machine.h"
#include "lab/src/monitor/nvml.h"
#include "lab/src/record/sittings.h"
#include "tandem/core/error.h"
#include "tandem/train/environment.h"

namespace tandem::lab {
namespace {

using nlohmann::json;

json build_json() {
  json out = {
    {"standard", __cplusplus},
#ifdef __clang__
    {"compiler", "clang " __VERSION__},
#else
    {"compiler", "g++ " __VERSION__},
#endif
#ifdef __OPTIMIZE__
    {"optimised", true},
#else
    {"optimised", false},
#endif
#ifdef NDEBUG
    {"assertions", false},
#else
    {"assertions", true},
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    {"sanitizers", true}
#else
    {"sanitizers", false}
#endif
  };
  const bool debug =
      !out["optimised"].get<bool>() || out["assertions"].get<bool>() || out["sanitizers"].get<bool>();
  out["type"] = debug ? "debug" : "release";
  return out;
}

/// libtandem.so as it is loaded, or the program where it is linked in.
std::string library_path() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<const void*>(&processor), &here) || !here.dli_fname) return "";
  return here.dli_fname;
}

json command_of(const ProvenanceOptions& options) {
  if (!options.command.empty()) return options.command;
  json words = json::array();
  const std::string text = read_small(options.proc + "/self/cmdline");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

template <class Number>
json or_null(const std::optional<Number>& number) {
  return number ? json(*number) : json();
}

json gpu_json(const ProvenanceOptions& options) {
  std::vector<int> wanted = options.gpus;
  if (wanted.empty() && !options.device.is_cpu()) wanted.push_back(options.device.index);
  std::string why;
  const auto nvml =
      options.nvml_functions ? Nvml::start(*options.nvml_functions, why) : Nvml::open(options.nvml, why);
  if (!nvml) return {{"unavailable", why}};
  json out = {
      {"driver", nvml->driver_version()}, {"count", nvml->device_count()}, {"devices", json::object()}};
  // Where the study uses none, the machine's GPUs are still part of its description.
  if (wanted.empty())
    for (unsigned i = 0; i < nvml->device_count(); ++i) wanted.push_back(static_cast<int>(i));
  for (const int index : wanted) {
    json& entry = out["devices"][str("cuda:", index)];
    const auto gpu = Gpu::find(nvml, index, std::getenv("CUDA_VISIBLE_DEVICES"), why);
    if (!gpu) {
      entry = {{"unavailable", why}};
      continue;
    }
    entry = {{"name", gpu->name()},
             {"clock_mhz", or_null(gpu->clock_mhz(false))},
             {"max_clock_mhz", or_null(gpu->max_clock_mhz(false))},
             {"memory_clock_mhz", or_null(gpu->clock_mhz(true))},
             {"max_memory_clock_mhz", or_null(gpu->max_clock_mhz(true))},
             {"temperature_c", or_null(gpu->temperature_c().value)},
             {"power_w", or_null(gpu->power_w().value)},
             {"power_limit_w", or_null(gpu->power_limit_w())},
             {"percent", or_null(gpu->percent().value)},
             {"persistence", or_null(gpu->persistence())},
             {"throttling", gpu->throttling()}};
  }
  return out;
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

void warn_of_build_and_system(const json& all, double load_fraction, json& warnings) {
  if (all["build"]["type"] == "debug")
    warnings.push_back("debug build: times are not those of a user's build");
  if (const json& commit = all["tandem"]["commit"];
      commit.is_string() && commit.get<std::string>().ends_with("changes"))
    warnings.push_back("Tandem was built from a source tree with changes that no commit holds");
  const json& system = all["system"];
  const double cores = all["processor"]["cores"].get<double>();
  if (const json& load = system["load_average"];
      load.is_array() && load[0].get<double>() > load_fraction * cores)
    warnings.push_back(
        str("load average ", shown(load[0].get<double>()), " on ", cores, " cores: something else runs"));
  if (system["on_battery"] == true) warnings.push_back("the machine runs on its battery");
  if (const json& limit = system["control_group"]["cpu.max"]; limit.is_string()) {
    const std::string text = limit.get<std::string>();
    std::string_view rest = text;
    const auto quota = take_number(rest), period = take_number(rest);
    if (quota && period && *period > 0 && static_cast<double>(*quota) < cores * static_cast<double>(*period))
      warnings.push_back(str("the control group allows ",
                             shown(static_cast<double>(*quota) / static_cast<double>(*period)), " of ", cores,
                             " cores"));
  }
}

void warn_of_machine(const json& all, json& warnings) {
  const json& processor = all["processor"];
  for (const json& governor : processor["governors"])
    if (governor != "performance")
      warnings.push_back(
          str("governor ", governor.get<std::string>(), " and not performance: clocks follow the load"));
  if (const json& count = processor["throttled_since_boot"]; count.is_number() && count.get<int64_t>() > 0)
    warnings.push_back(
        str("the processor was throttled ", count.get<int64_t>(), " times since the machine started"));
  const json& memory = all["memory"];
  if (memory["swap_used_mib"].is_number() && memory["swap_used_mib"].get<int64_t>() > 0)
    warnings.push_back(str("swap: ", memory["swap_used_mib"].get<int64_t>(), " MiB in use"));
  if (memory["available_mib"].is_number() && memory["total_mib"].is_number() &&
      memory["available_mib"].get<double>() < 0.1 * memory["total_mib"].get<double>())
    warnings.push_back(str("memory: only ", memory["available_mib"].get<int64_t>(), " MiB are free"));
  const json& others = all["others"];
  if (others["steal_percent"].is_number() && others["steal_percent"].get<double>() > 1)
    warnings.push_back(str("steal: the hypervisor takes ", shown(others["steal_percent"].get<double>()),
                           " % of the processor's time for others"));
  // One line for all: the busiest by name, the others by their number.
  std::vector<const json*> busy;
  for (const json& process : others["busy"]) busy.push_back(&process);
  if (busy.empty()) return;
  std::stable_sort(busy.begin(), busy.end(), [](const json* a, const json* b) {
    return (*a)["percent"].get<double>() > (*b)["percent"].get<double>();
  });
  constexpr size_t kNamed = 3;
  double sum = 0;
  std::string named;
  for (size_t i = 0; i < busy.size(); ++i) {
    sum += (*busy[i])["percent"].get<double>();
    if (i < kNamed)
      named += str(i == 0 ? "" : ", ", (*busy[i])["name"].get<std::string>(), " (process ",
                   (*busy[i])["pid"].get<int64_t>(), ")");
  }
  if (busy.size() > kNamed) named += str(" and ", busy.size() - kNamed, " more");
  warnings.push_back(
      str("busy: ", named, busy.size() == 1 ? " takes " : " take ", shown(sum), " % of a core"));
}

void warn_of_gpus(const json& gpus, json& warnings) {
  if (!gpus.contains("devices")) return;
  std::string first_name;
  bool differ = false;
  for (const auto& [device, gpu] : gpus["devices"].items()) {
    if (gpu.contains("unavailable")) continue;
    for (const json& reason : gpu["throttling"])
      warnings.push_back(str(device, " is throttled: ", reason.get<std::string>()));
    if (gpu["percent"].is_number() && gpu["percent"].get<double>() > 5)
      warnings.push_back(
          str(device, " is busy (", shown(gpu["percent"].get<double>()), " %): something else uses it"));
    const std::string name = gpu["name"].get<std::string>();
    differ |= !first_name.empty() && name != first_name;
    first_name = name;
  }
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  if (differ && (!order || std::string(order) != "PCI_BUS_ID"))
    warnings.push_back(
        "the GPUs differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA may number them otherwise than the "
        "monitor");
}

}  // namespace

json provenance(const ProvenanceOptions& options) {
  json out;
  out["time"] = utc_now();
  out["command"] = command_of(options);
  // A device that cannot be opened must not stop the description of the machine.
  try {
    out["tandem"] = parse_json<json>("environment: ", environment_json(options.device));
  } catch (const Error& error) {
    out["tandem"] = parse_json<json>("environment: ", environment_json(Device{}));
    out["tandem"]["devices"][to_string(options.device)] = error.what();
  }
  out["build"] = build_json();
  out["source_commit"] = git_commit(options.source_folder);
  out["processor"] = processor_json(options.proc, options.sys);
  out["memory"] = memory_json(options.proc, options.sys);
  out["system"] = system_json(options.proc, options.sys, options.etc);
  out["gpu"] = gpu_json(options);
  out["environment"] = environment_variables(environ);
  out["files"] = json::object();
  if (const std::string library = library_path(); !library.empty())
    out["files"][library] = file_json(library);
  for (const auto& [name, path] : options.files) out["files"][name] = file_json(path);
  out["others"] = watch_others(options.proc, options.busy_seconds);

  json warnings = json::array();
  warn_of_build_and_system(out, options.load_fraction, warnings);
  warn_of_machine(out, warnings);
  warn_of_gpus(out["gpu"], warnings);
  for (const auto& [file, entry] : out["files"].items())
    if (entry.contains("error")) warnings.push_back(str("no hash: ", entry["error"].get<std::string>()));
  out["warnings"] = warnings;
  // Names of files and processes may hold any bytes; whoever writes the object expects UTF-8.
  return parse_json<json>("provenance: ", out.dump(-1, ' ', false, json::error_handler_t::replace));
}

json with_sitting(json first, const json& now) {
  const auto machine = [](const json& one) {
    const auto text = [&one](const char* pointer) {
      const json::json_pointer at(pointer);
      return one.contains(at) && !one[at].is_null() ? one[at].dump() : std::string();
    };
    std::string said = str(text("/processor/model"), ", ", text("/processor/cores"), " cores");
    const json::json_pointer gpus("/gpu/devices");
    if (one.contains(gpus) && one[gpus].is_object())
      for (const auto& [name, gpu] : one[gpus].items())
        if (gpu.is_object() && gpu.contains("name")) said += str(", ", name, " ", gpu["name"].dump());
    return said;
  };
  TD_CHECK(machine(first) == machine(now),
           "run: a study goes on only on the machine where it began; it began on ", machine(first),
           ", and this is ", machine(now), ". Give another --out.");
  json sitting;
  for (const char* key : {"time", "source_commit", "tandem", "files", "frameworks", "system", "others"})
    if (now.contains(key)) sitting[key] = now[key];
  first["sittings"].push_back(sitting);
  for (const std::string& line : provenance_warnings(now))
    first["warnings"].push_back(str("going on at ", now.value("time", ""), ": ", line));
  return first;
}

}  // namespace tandem::lab
