// Searching for data sets.
#include "tandem/data/places.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tandem/io/file.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

std::string from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

}  // namespace

std::vector<std::string> search_folders(const std::string& name, const std::string& data_dir,
                                        const std::string& system_folder) {
  if (!data_dir.empty()) {
    fs::path given(data_dir);
    std::vector<std::string> folders{(given / name).string()};
    if (!given.has_filename()) given = given.parent_path();  // a slash at the end
    const std::vector<std::string> names = dataset_names();
    const bool is_of_another =
        given.filename() != name && std::find(names.begin(), names.end(), given.filename()) != names.end();
    if (!is_of_another) folders.push_back(given.string());
    return folders;
  }
  std::vector<std::string> folders;
  if (const std::string root = from_environment("TANDEM_DATA"); !root.empty())
    folders.push_back((fs::path(root) / name).string());
  if (const std::string home = from_environment("HOME"); !home.empty())
    folders.push_back((fs::path(home) / ".cache/tandem" / name).string());
  folders.push_back("./data/" + name);
  if (!system_folder.empty()) folders.push_back(system_folder);
  return folders;
}

std::string download_folder(const std::string& name, const std::string& data_dir) {
  return search_folders(name, data_dir)[0];
}

std::optional<std::string> locate_in(const std::vector<std::string>& folders, const MissingIn& missing) {
  for (const std::string& folder : folders)
    if (missing(folder).empty()) return folder;
  return std::nullopt;
}

std::string require_in(const DatasetInfo& info, const std::vector<std::string>& folders,
                       const MissingIn& missing, const std::string& rule) {
  if (const std::optional<std::string> found = locate_in(folders, missing)) return *found;
  std::string searched;
  for (const std::string& folder : folders) {
    std::error_code ignored;
    searched +=
        str(searched.empty() ? "" : "; ", io::one_line(folder), " (",
            fs::is_directory(folder, ignored) ? missing(folder) + " is missing" : "no such folder", ")");
  }
  throw resource_error("data ", info.name, ": ", rule, "; searched ", searched, ". ", info.how_to_get);
}

}  // namespace tandem::data
