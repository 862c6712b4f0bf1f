#include "lab/src/driver/program_files.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "tandem/io/file.h"

namespace tandem::lab {

namespace fs = std::filesystem;
namespace {

/// The files that `import NAME` reads in this folder: those of the package of that name, or the module; none where it is elsewhere.
std::vector<std::string> imported(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  std::vector<std::string> files;
  if (fs::is_regular_file(folder / name / "__init__.py", ignored)) {
    for (const auto& entry : fs::directory_iterator(folder / name, ignored))
      if (entry.is_regular_file(ignored)) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
  } else if (fs::is_regular_file(folder / (name + ".py"), ignored)) {
    files.push_back((folder / (name + ".py")).string());
  }
  return files;
}

}  // namespace

std::vector<std::string> program_files(const std::vector<std::string>& command) {
  static const std::regex import_line("^[ \\t]*(?:import|from)[ \\t]+([A-Za-z_][A-Za-z0-9_]*)",
                                      std::regex::multiline);
  std::vector<std::string> found;
  std::vector<fs::path> folders;  // where each of them finds its imports
  std::set<std::string> seen;
  std::error_code ignored;
  for (const std::string& word : command)
    if (fs::is_regular_file(word, ignored) && seen.insert(word).second) {
      found.push_back(word);
      folders.push_back(fs::path(word).parent_path());
    }
  for (size_t i = 0; i < found.size(); ++i) {
    if (fs::path(found[i]).extension() != ".py") continue;
    const fs::path folder = folders[i];
    const auto bytes = io::read_file("read", found[i]);
    const std::string text(bytes.begin(), bytes.end());
    for (std::sregex_iterator at(text.begin(), text.end(), import_line), end; at != end; ++at)
      for (const std::string& file : imported(folder, (*at)[1].str()))
        if (seen.insert(file).second) {
          found.push_back(file);
          folders.push_back(folder);
        }
  }
  return found;
}

}  // namespace tandem::lab
