#include "lab/src/driver/program_files.h"

#include <filesystem>
#include <regex>
#include <set>

#include "tandem/io/file.h"

namespace tandem::lab {

namespace fs = std::filesystem;

std::vector<std::string> program_files(const std::vector<std::string>& command) {
  static const std::regex import_line("^[ \\t]*(?:import|from)[ \\t]+([A-Za-z_][A-Za-z0-9_]*)",
                                      std::regex::multiline);
  std::vector<std::string> found;
  std::set<std::string> seen;
  std::error_code ignored;
  for (const std::string& word : command)
    if (fs::is_regular_file(word, ignored) && seen.insert(word).second) found.push_back(word);
  for (size_t i = 0; i < found.size(); ++i) {
    const fs::path file = found[i];
    if (file.extension() != ".py") continue;
    const auto bytes = io::read_file("read", found[i]);
    const std::string text(bytes.begin(), bytes.end());
    for (std::sregex_iterator at(text.begin(), text.end(), import_line), end; at != end; ++at) {
      const std::string beside = (file.parent_path() / ((*at)[1].str() + ".py")).string();
      if (fs::is_regular_file(beside, ignored) && seen.insert(beside).second) found.push_back(beside);
    }
  }
  return found;
}

}  // namespace tandem::lab
