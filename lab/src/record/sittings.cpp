#include "lab/src/record/sittings.h"

#include <map>
#include <set>

#include "tandem/core/error.h"

namespace tandem::lab {

using nlohmann::json;

namespace {

/// A file's name without the folders of one machine; publishing leaves "…/NAME" of a path.
std::string short_name(const std::string& file) {
  const bool is_path = file.starts_with("/") || file.starts_with("…/");
  return is_path ? file.substr(file.find_last_of('/') + 1) : file;
}

/// Programs by their short name, and frameworks by theirs with their version. Text that says what is measured is part of the study.
std::map<std::string, std::string> programs_of(const json& sitting) {
  std::map<std::string, std::string> out;
  if (const json files = sitting.value("files", json::object()); files.is_object())
    for (const auto& [file, entry] : files.items())
      if (!file.ends_with(".toml") && entry.is_object() && entry.contains("sha256"))
        out[short_name(file)] = entry["sha256"].dump();
  return out;
}

}  // namespace

std::vector<std::string> changed_programs(const json& before, const json& now) {
  const json& last =
      before.contains("sittings") && !before["sittings"].empty() ? before["sittings"].back() : before;
  std::vector<std::string> changed;
  const auto there = programs_of(last);
  std::set<std::string> met;  // of those there
  for (const auto& [name, sum] : programs_of(now)) {
    // Older records have drivers without their folder.
    auto at = there.find(name);
    if (at == there.end()) at = there.find(name.substr(name.find_last_of('/') + 1));
    if (at == there.end()) continue;
    met.insert(at->first);
    if (at->second != sum) changed.push_back(name);
  }
  for (const auto& [name, sum] : there)
    if (!met.contains(name)) changed.push_back(name + ", no longer used");
  const json versions = now.value("frameworks", json::object()),
             old = last.value("frameworks", json::object());
  for (const auto& [name, version] : versions.items())
    if (old.contains(name) && old[name] != version)
      changed.push_back(str(name, " ", old[name].get<std::string>(), ", now ", version.get<std::string>()));
  return changed;
}

std::vector<std::string> provenance_warnings(const json& provenance) {
  std::vector<std::string> lines;
  if (provenance.is_object() && provenance.contains("warnings") && provenance["warnings"].is_array())
    for (const json& line : provenance["warnings"])
      if (line.is_string()) lines.push_back(line.get<std::string>());
  if (!provenance.is_object() || !provenance.contains("sittings")) return lines;
  json until = provenance;
  until["sittings"] = json::array();
  for (const json& sitting : provenance["sittings"]) {
    std::string names;
    for (const std::string& name : changed_programs(until, sitting))
      names += (names.empty() ? "" : "; ") + name;
    if (!names.empty())
      lines.push_back(str("from ", sitting.value("time", "another time"),
                          " on other programs were measured than before: ", names));
    until["sittings"].push_back(sitting);
  }
  return lines;
}

}  // namespace tandem::lab
