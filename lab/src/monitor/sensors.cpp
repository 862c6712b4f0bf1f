// hwmon, thermal zones and powercap.
#include "lab/src/monitor/sensors.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <string_view>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

// Drivers whose sensors are the processor's: Intel, AMD, and what ARM boards call theirs.
constexpr std::array kProcessorDrivers = {"coretemp",     "k10temp",     "k8temp",      "zenpower",
                                          "fam15h_power", "cpu_thermal", "cpu-thermal", "soc_thermal",
                                          "soc-thermal",  "via_cputemp"};

bool is_processor_driver(std::string_view name) {
  return std::any_of(kProcessorDrivers.begin(), kProcessorDrivers.end(),
                     [&](const char* one) { return name == one; });
}

/// Zones are named by the board: "x86_pkg_temp", "cpu-thermal", "CPU-therm", "cpu0_thermal", "cluster0-thermal".
bool is_processor_zone(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name == "x86_pkg_temp" || name.starts_with("cpu") || name.starts_with("soc") ||
         name.starts_with("cluster");
}

/// Millidegrees as degrees; none for what a broken sensor says.
std::optional<double> degrees(std::optional<std::string_view> text) {
  if (!text) return std::nullopt;
  const auto millidegrees = take_number(*text);
  if (!millidegrees || *millidegrees < 1000 || *millidegrees > 150000) return std::nullopt;
  return 1e-3 * static_cast<double>(*millidegrees);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

template <class Files, class Path>
std::string source_text(const Files& files, Path path) {
  if (files.empty()) return "";
  std::string text = path(files.front());
  if (files.size() > 1) text += str(" and ", files.size() - 1, " more");
  return text;
}

}  // namespace

ProcessorTemperature::ProcessorTemperature(const std::string& sys) {
  std::vector<std::string> others;
  look_in_hwmon(sys + "/class/hwmon", others);
  if (files_.empty()) look_in_thermal(sys + "/class/thermal", others);
  source_ = source_text(files_, [](const KeptFile& file) { return file.path(); });
  if (files_.empty()) {
    why_ = "no hwmon sensor or thermal zone of the processor";
    if (!others.empty()) why_ += " (there are: " + joined(others) + ")";
  } else if (!read()) {
    why_ = str("the sensor '", files_.front().path(), "' gives no temperature between 1 and 150 degrees");
  }
}

void ProcessorTemperature::look_in_hwmon(const std::string& folder, std::vector<std::string>& others) {
  std::vector<KeptFile> packages, cores;
  for (const std::string& device : names_in(folder)) {
    const std::string at = folder + "/" + device + "/";
    const std::string driver = read_small(at + "name");
    if (!is_processor_driver(driver)) {
      if (!driver.empty()) others.push_back(driver);
      continue;
    }
    for (const std::string& name : names_in(at)) {
      if (!name.starts_with("temp") || !name.ends_with("_input")) continue;
      const std::string label = read_small(at + name.substr(0, name.size() - 5) + "label");
      KeptFile file(at + name);
      if (!file.is_open()) continue;
      // Tctl of some AMD processors is Tdie with a number added for the fan; Tdie is what the silicon has.
      const bool whole = label.starts_with("Package") || label == "Tdie" || label == "Tctl";
      if (label == "Tdie")
        std::erase_if(packages, [&](const KeptFile& one) { return one.path().starts_with(at); });
      const bool has_die = std::any_of(packages.begin(), packages.end(), [&](const KeptFile& one) {
        return one.path().starts_with(at) && label == "Tctl";
      });
      if (!has_die) (whole ? packages : cores).push_back(std::move(file));
    }
  }
  files_ = packages.empty() ? std::move(cores) : std::move(packages);
}

void ProcessorTemperature::look_in_thermal(const std::string& folder, std::vector<std::string>& others) {
  for (const std::string& zone : names_in(folder)) {
    if (!zone.starts_with("thermal_zone")) continue;
    const std::string type = read_small(folder + "/" + zone + "/type");
    if (!is_processor_zone(type)) {
      if (!type.empty()) others.push_back(type);
      continue;
    }
    KeptFile file(folder + "/" + zone + "/temp");
    if (file.is_open()) files_.push_back(std::move(file));
  }
}

std::optional<double> ProcessorTemperature::read() const {
  thread_local ReadBuffer buffer;
  std::optional<double> hottest;
  for (const KeptFile& file : files_)
    if (const auto value = degrees(file.read(buffer))) hottest = std::max(hottest.value_or(*value), *value);
  return hottest;
}

ProcessorEnergy::ProcessorEnergy(const std::string& sys) {
  const std::string folder = sys + "/class/powercap/";
  std::vector<std::string> others;
  for (const std::string& zone : names_in(folder)) {
    // intel-rapl:0 is a package (AMD's too); intel-rapl:0:1 a part of one, contained in it; intel-rapl-mmio:0 the same
    // package by another door; and the zone named psys is the whole board.
    if (!zone.starts_with("intel-rapl:") || zone.find(':', 11) != std::string::npos) continue;
    const std::string name = read_small(folder + zone + "/name");
    if (!name.starts_with("package")) {
      others.push_back(name);
      continue;
    }
    Package package;
    package.energy = KeptFile(folder + zone + "/energy_uj");
    package.range_uj = read_number(folder + zone + "/max_energy_range_uj");
    if (!package.energy.is_open() && why_.empty()) {
      why_ = why_unreadable(package.energy.path(), package.energy.error());
      if (package.energy.error() == EACCES) why_ += ". Only root may, unless the file's mode is changed";
    }
    packages_.push_back(std::move(package));
  }
  if (packages_.empty()) {
    why_ = str("no RAPL counter of the processor in '", sys, "/class/powercap'");
    if (!others.empty()) why_ += " (there are: " + joined(others) + ")";
  }
  if (why_.empty())
    source_ = source_text(packages_, [](const Package& package) { return package.energy.path(); });
  else
    packages_.clear();
}

void ProcessorEnergy::restart() {
  if (packages_.empty()) return;
  why_.clear();
  joules_ = 0;
  for (Package& package : packages_) package.last_uj.reset();
}

std::optional<double> ProcessorEnergy::read() {
  if (packages_.empty() || !why_.empty()) return std::nullopt;
  for (Package& package : packages_) {
    int error = EIO;
    auto text = package.energy.read(buffer_, &error);
    const auto now = text ? take_number(*text) : std::nullopt;
    if (!now) {
      why_ = why_unreadable(package.energy.path(), error);
      return std::nullopt;
    }
    if (package.last_uj) {
      int64_t spent = *now - *package.last_uj;
      if (spent < 0 && package.range_uj && *package.range_uj >= *package.last_uj) spent += *package.range_uj;
      if (spent < 0) {
        why_ = str("the counter '", package.energy.path(), "' fell from ", *package.last_uj, " to ", *now,
                   " and its range is unknown");
        return std::nullopt;
      }
      joules_ += 1e-6 * static_cast<double>(spent);
    }
    package.last_uj = now;
  }
  return joules_;
}

}  // namespace tandem::lab
