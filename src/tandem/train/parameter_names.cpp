#include "tandem/train/parameter_names.h"

#include <algorithm>
#include <span>
#include <sstream>

#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem {
namespace {

using Parts = std::vector<std::string>;

Parts parts_of(const std::string& text) {
  Parts parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, '.');) parts.push_back(part);
  return parts;
}

/// One part, in which * stands for any letters. Takes time in proportion to the product of the lengths at most.
bool part_fits(const std::string& pattern, const std::string& part) {
  size_t p = 0, at = 0, star = std::string::npos, resume = 0;
  while (at < part.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = at;
    } else if (p < pattern.size() && pattern[p] == part[at]) {
      ++p;
      ++at;
    } else if (star != std::string::npos) {
      p = star + 1;
      at = ++resume;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(),
                     [](char c) { return c == '*'; });
}

bool fits(std::span<const std::string> pattern, std::span<const std::string> name) {
  // reached[k]: the pattern up to here takes exactly the first k parts.
  std::vector<bool> reached(name.size() + 1);
  reached[0] = true;
  for (const std::string& part : pattern) {
    std::vector<bool> next(name.size() + 1);
    for (size_t k = 1; k <= name.size(); ++k)
      next[k] = part == "*" ? reached[k - 1] || next[k - 1] : reached[k - 1] && part_fits(part, name[k - 1]);
    reached = std::move(next);
  }
  return std::find(reached.begin(), reached.end(), true) != reached.end();
}

}  // namespace

bool is_named_by(const std::string& pattern, const std::string& name) {
  return !pattern.empty() && fits(parts_of(pattern), parts_of(name));
}

bool is_named_by_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return is_named_by(pattern, name); });
}

void check_patterns(const char* setting, const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    const auto is_meant = [&](const std::string& name) { return is_named_by(pattern, name); };
    if (std::any_of(names.begin(), names.end(), is_meant)) continue;
    // A part from within is written with a star before it.
    const std::string inner = "*." + pattern;
    const bool is_inner = std::any_of(names.begin(), names.end(),
                                      [&](const std::string& name) { return is_named_by(inner, name); });
    throw Error(str(setting, ": must name layers or parameters of the model; '", io::one_line(pattern, 100),
                    "' is none of ", listed(names, 12), ".",
                    is_inner ? " Write " + io::one_line(inner, 100) + " for those within layers." : ""));
  }
}

std::string listed(const std::vector<std::string>& names, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > most ? str(out, " and ", names.size() - most, " more") : out;
}

}  // namespace tandem
