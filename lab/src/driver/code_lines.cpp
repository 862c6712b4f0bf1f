#include "lab/src/driver/code_lines.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace tandem::lab {
namespace {

/// A top-level definition: the lines that count, and the words in them.
struct Definition {
  int64_t lines = 0;
  std::set<std::string> words;
};
/// By name. A class and its members that are defined outside of it share one.
using Definitions = std::map<std::string, Definition>;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (size_t at = 0; at < line.size();) {
    if (!is_word(line[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < line.size() && is_word(line[end])) ++end;
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t\r");
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

/// The name that a line at the left margin defines in Python; "" where it defines none.
std::string python_name(const std::string& line) {
  const auto words = words_of(line);
  return words.size() > 1 && (words[0] == "def" || words[0] == "class") ? words[1] : "";
}

/// The same in C++: of a class or struct its name, of a member defined outside its class's, of a function its own.
std::string cpp_name(const std::string& line) {
  const auto words = words_of(line);
  if (words.size() > 1 && (words[0] == "class" || words[0] == "struct"))
    return line.back() == ';' ? "" : words[1];
  const size_t open = line.find('(');
  if (open == std::string::npos || words.empty() || words[0] == "namespace" || words[0] == "using") return "";
  const auto before = words_of(line.substr(0, open));
  if (before.empty()) return "";
  const size_t scope = line.rfind("::", open);
  const bool member = scope != std::string::npos && scope > 0 && is_word(line[scope - 1]) &&
                      before.size() > 1 && line.find(' ', scope) > open;
  return member ? before[before.size() - 2] : before.back();
}

void add_file(const SourceText& source, Definitions& definitions) {
  const bool python = source.name.size() > 3 && source.name.substr(source.name.size() - 3) == ".py";
  std::istringstream text(source.text);
  std::string current;  // the definition that lines belong to
  bool docstring = false;
  for (std::string line; std::getline(text, line);) {
    std::string code = trimmed(line);
    if (docstring) {
      docstring = code.find("\"\"\"") == std::string::npos;
      continue;
    }
    if (code.empty() || code.rfind(python ? "#" : "//", 0) == 0) continue;
    if (python && code.rfind("\"\"\"", 0) == 0) {
      docstring = code.find("\"\"\"", 3) == std::string::npos;
      continue;
    }
    const bool margin = line[0] != ' ' && line[0] != '\t';
    if (margin && line[0] != ')' && line[0] != '}') {
      const std::string name = python ? python_name(line) : cpp_name(code);
      current = name;
    }
    if (!current.empty()) {
      Definition& definition = definitions[current];
      ++definition.lines;
      for (std::string& word : words_of(code)) definition.words.insert(std::move(word));
    }
    if (margin && !python && line[0] == '}') current.clear();
  }
}

/// "cifar10_cnn" and "Cifar10Cnn" alike.
std::string plain(const std::string& name) {
  std::string letters;
  for (const char c : name)
    if (c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

}  // namespace

std::optional<int64_t> code_lines(const std::vector<SourceText>& sources, const std::string& workload) {
  Definitions definitions;
  for (const SourceText& source : sources) add_file(source, definitions);
  std::vector<std::string> open;
  std::set<std::string> reached;
  for (const auto& [name, definition] : definitions)
    if (plain(name) == plain(workload) && reached.insert(name).second) open.push_back(name);
  if (open.empty()) return std::nullopt;
  int64_t lines = 0;
  while (!open.empty()) {
    const Definition& definition = definitions[open.back()];
    open.pop_back();
    lines += definition.lines;
    for (const auto& [name, other] : definitions)
      if (definition.words.contains(name) && reached.insert(name).second) open.push_back(name);
  }
  return lines;
}

std::optional<int64_t> code_lines_of_files(const std::vector<std::string>& paths,
                                           const std::string& workload) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
      if (const auto ending = entry.path().extension(); ending == ".h" || ending == ".cpp" || ending == ".py")
        files.push_back(entry.path());
  }
  std::vector<SourceText> sources;
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file);
    if (!in) return std::nullopt;
    std::ostringstream text;
    text << in.rdbuf();
    sources.push_back({file.string(), text.str()});
  }
  return code_lines(sources, workload);
}

}  // namespace tandem::lab
