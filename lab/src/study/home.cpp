// Where the lab's files lie, and which studies, workloads and frameworks there are.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lab/src/driver/catalogue.h"
#include "lab/src/study/catalogue.h"
#include "lab/src/study/study.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {

namespace fs = std::filesystem;

namespace {

bool holds_studies(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "studies", ignored);
}

/// Names of the files FOLDER/NAME.toml, sorted.
std::vector<std::string> toml_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".toml") names.push_back(entry->path().stem().string());
  }
  TD_CHECK(!error, "list '", folder.string(), "': the folder must be readable; got: ", error.message(),
           ". Set TANDEM_LAB_HOME to the folder that holds studies/.");
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string lab_home() {
  if (const char* named = std::getenv("TANDEM_LAB_HOME"); named != nullptr && *named != 0) {
    TD_CHECK(holds_studies(named), "TANDEM_LAB_HOME: the folder must hold studies/; got '",
             io::one_line(named, 300), "'. Set it to the folder lab of the source tree, or unset it.");
    return fs::path(named).lexically_normal().string();
  }
  std::vector<fs::path> candidates;
#ifdef TANDEM_LAB_SOURCE_DIR
  candidates.emplace_back(TANDEM_LAB_SOURCE_DIR);
#endif
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) candidates.push_back(program.parent_path().parent_path() / "share" / "tandem" / "lab");
  for (const fs::path& candidate : candidates) {
    if (holds_studies(candidate)) return candidate.lexically_normal().string();
  }
  std::string looked;
  for (const fs::path& candidate : candidates) looked += (looked.empty() ? "" : ", ") + candidate.string();
  throw Error(str("lab: a folder that holds studies/ must be found; got none in ", looked,
                  ". Set TANDEM_LAB_HOME to the folder lab of the source tree."));
}

std::vector<std::string> study_names() {
  std::vector<std::string> names = toml_names(fs::path(lab_home()) / "studies");
  std::erase(names, "claims");  // the ledger is no study
  return names;
}

std::vector<std::string> workload_names() {
  return toml_names(fs::path(lab_home()) / "studies" / "workloads");
}

std::vector<Framework> frameworks(const std::string& further) {
  std::vector<Framework> all;
  for (const DriverInfo& info : read_drivers(lab_home(), further))
    all.push_back({info.name, info.title, info.variants});
  return all;
}

std::vector<std::string> systems_of(const std::string& name, const std::vector<Framework>& known) {
  const size_t colon = name.find(':');
  const std::string framework = name.substr(0, colon);
  std::vector<std::string> names;
  for (const Framework& candidate : known) {
    names.push_back(candidate.name);
    if (candidate.name != framework) continue;
    std::vector<std::string> systems;
    for (const std::string& variant : candidate.variants) {
      systems.push_back(framework + ":" + variant);
      if (colon != std::string::npos && variant == name.substr(colon + 1)) return {name};
    }
    if (colon == std::string::npos) return systems;
    std::string list;
    for (const std::string& system : systems) list += (list.empty() ? "" : ", ") + system;
    throw Error(str("frameworks: a variant of ", framework, " must be one of ", list, "; got '",
                    io::one_line(name, 80), "'. '", framework, "' alone means all of them."));
  }
  std::string list;
  for (const std::string& known_name : names) list += (list.empty() ? "" : ", ") + known_name;
  throw Error(str("frameworks: a framework must be one of drivers/drivers.toml: ", list, "; got '",
                  io::one_line(name, 80), "'. Fix the name, or add the driver to that file."));
}

std::vector<std::string> present_devices() {
  std::vector<std::string> devices = {"cpu"};
  std::error_code ignored;
  for (int i = 0; i < 64; ++i) {
    // The last two are how the GPU of a Jetson board and of Windows' Linux show themselves.
    const bool there =
        fs::exists("/dev/nvidia" + std::to_string(i), ignored) ||
        (i == 0 && (fs::exists("/dev/nvhost-gpu", ignored) || fs::exists("/dev/dxg", ignored)));
    if (there) devices.push_back("cuda:" + std::to_string(i));
  }
  return devices;
}

}  // namespace tandem::lab
