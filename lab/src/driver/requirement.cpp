// Requirements against dist-info folders. Versions are compared by their leading numbers: 2.11.0+cpu is 2.11.0.
#include "lab/src/driver/requirement.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> numbers_of(const std::string& version) {
  std::vector<int64_t> numbers;
  size_t at = 0;
  while (at < version.size() && std::isdigit(static_cast<unsigned char>(version[at]))) {
    int64_t number = 0;
    for (; at < version.size() && std::isdigit(static_cast<unsigned char>(version[at])); ++at)
      number = std::min<int64_t>(number * 10 + (version[at] - '0'), int64_t{1} << 50);
    numbers.push_back(number);
    if (at >= version.size() || version[at] != '.') break;
    ++at;
  }
  return numbers;
}

/// Below, at or above zero; missing numbers count as 0.
int compare(std::vector<int64_t> a, std::vector<int64_t> b) {
  a.resize(std::max(a.size(), b.size()));
  b.resize(a.size());
  return a < b ? -1 : a == b ? 0 : 1;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool meets_one(const std::string& version, const std::string& condition) {
  const size_t cut = condition.find_first_not_of("=<>!~");
  const std::string sign = condition.substr(0, cut);
  const std::string bound = cut == std::string::npos ? "" : trimmed(condition.substr(cut));
  const bool plain = !bound.empty() && bound.find_first_not_of("0123456789.") == std::string::npos;
  TD_CHECK(plain && (sign == "==" || sign == "!=" || sign == "<" || sign == "<=" || sign == ">" ||
                     sign == ">=" || sign == "~="),
           "a condition must be one of ==, !=, <, <=, >, >=, ~= and a version of numbers and dots; got '",
           condition, "'.");
  std::vector<int64_t> wanted = numbers_of(bound);
  const std::vector<int64_t> given = numbers_of(version);
  const int order = compare(given, wanted);
  if (sign == "==") return order == 0;
  if (sign == "!=") return order != 0;
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  if (sign == ">") return order > 0;
  if (sign == ">=" || order < 0) return order >= 0;
  // ~=2.1.3 is at least that, and below 2.2.
  TD_CHECK(wanted.size() >= 2, "~= must have a version of at least two numbers; got '", condition, "'.");
  wanted.pop_back();
  ++wanted.back();
  return compare(given, wanted) < 0;
}

std::string normal(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != '.')
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (plain.empty() || plain.back() != '-')
      plain += '-';
  }
  return plain;
}

using Accepts = std::function<bool(const std::string&)>;

std::optional<std::string> find_version(const std::vector<std::string>& folders, const Accepts& accepts) {
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const std::string file = entry->path().filename().string();
      const std::string stem = entry->path().stem().string(), kind = entry->path().extension().string();
      if (kind != ".dist-info" && kind != ".egg-info") continue;
      const size_t dash = stem.find('-');  // names have '_' for '-' here
      if (dash == std::string::npos || !accepts(normal(stem.substr(0, dash)))) continue;
      return stem.substr(dash + 1, stem.find('-', dash + 1) - dash - 1);
    }
  }
  return std::nullopt;
}

}  // namespace

bool meets(const std::string& version, const std::string& conditions) {
  bool met = true;
  for (size_t begin = 0; begin < conditions.size();) {
    const size_t comma = std::min(conditions.find(',', begin), conditions.size());
    met = meets_one(version, trimmed(conditions.substr(begin, comma - begin))) && met;
    begin = comma + 1;
  }
  return met;
}

Requirement parse_requirement(const std::string& text) {
  const size_t end = std::min(text.find_first_of("[=<>!~ "), text.size());
  TD_CHECK(end > 0 && text.find_first_of(";@") == std::string::npos,
           "a requirement must be a name with conditions, such as numpy<1.24; got '", text, "'.");
  size_t conditions = end;
  if (conditions < text.size() && text[conditions] == '[') {
    conditions = text.find(']', conditions);
    TD_CHECK(conditions != std::string::npos, "a requirement's extras must end with ']'; got '", text, "'.");
    ++conditions;
  }
  Requirement made{normal(text.substr(0, end)), trimmed(text.substr(conditions))};
  meets("0", made.conditions);  // throws where they are not well formed
  return made;
}

std::optional<std::string> installed_version(const std::string& name,
                                             const std::vector<std::string>& folders) {
  return find_version(folders, [wanted = normal(name)](const std::string& found) { return found == wanted; });
}

std::optional<std::string> installed_build(const std::string& name, const std::vector<std::string>& folders) {
  return find_version(folders, [wanted = normal(name)](const std::string& found) {
    if (found == wanted) return true;
    for (const char* build : {"-cu", "-gpu", "-cpu", "-rocm"})
      if (found.rfind(wanted + build, 0) == 0) return true;
    return false;
  });
}

std::vector<std::string> missing_packages(const std::vector<std::string>& requirements,
                                          const std::vector<std::string>& folders) {
  std::vector<std::string> missing;
  for (const std::string& text : requirements) {
    const Requirement wanted = parse_requirement(text);
    const auto version = installed_version(wanted.name, folders);
    if (!version || !meets(*version, wanted.conditions)) missing.push_back(text);
  }
  return missing;
}

}  // namespace tandem::lab
