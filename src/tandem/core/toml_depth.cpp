#include "tandem/core/toml_depth.h"

#include <algorithm>
#include <cstdint>

#include "tandem/core/error.h"

namespace tandem {
namespace {

/// Where the string that begins at `at` ends. One that is not closed ends with its line: the parser will say so.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const bool is_long = text.substr(at).starts_with(std::string(3, quote));
  const std::string_view mark = text.substr(at, is_long ? 3 : 1);
  for (at += mark.size(); at < text.size(); ++at) {
    if (text.substr(at).starts_with(mark)) return at + mark.size();
    if (text[at] == '\\' && quote == '"')
      ++at;
    else if (text[at] == '\n' && !is_long)
      return at;
  }
  return text.size();
}

}  // namespace

void check_toml_depth(std::string_view text, const std::string& where, const TomlDepth& most) {
  int parts = 1, nested = 0;
  int64_t line = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'' || c == '#') {
      const size_t end = c == '#' ? text.find('\n', at) : end_of_string(text, at);
      const std::string_view passed = text.substr(at, end == std::string_view::npos ? end : end - at);
      line += std::count(passed.begin(), passed.end(), '\n');
      at += passed.size();
      continue;
    }
    if (c == '\n') ++line;
    if (c == '.') ++parts;
    if (std::string_view(",=\n[]{}").find(c) != std::string_view::npos) parts = 1;
    if (c == '[' || c == '{') ++nested;
    if ((c == ']' || c == '}') && nested > 0) --nested;
    TD_CHECK(parts <= most.parts && nested <= most.nested, where, ", line ", line,
             ": keys must have at most ", most.parts, " parts, and lists and tables must be nested at most ",
             most.nested, " deep; got more. Write it flatter.");
    ++at;
  }
}

}  // namespace tandem
