// What messages call settings: members in C++, flags on the command line.
#include <algorithm>

#include "tandem/train/settings.h"

namespace tandem {
namespace {

/// "early_stop" for "early-stop".
std::string as_member(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// The flag for a member's name, or "" where the command has none.
std::string flag_of(const std::string& member) {
  if (member == "model") return "MODEL";
  if (member == "autocast") return "--dtype";
  for (const char* other : {"beams", "budget", "space", "temperature", "trials"})  // of other commands
    if (member == other) return "--" + member;
  for (const Setting& s : settings())
    if (s.member == member || as_member(s.name) == member) return "--" + s.name;
  for (const Setting& s : settings())
    if (s.member.ends_with("." + member)) return "--" + s.name;
  return "";
}

}  // namespace

std::string named_setting(const std::string& name) {
  for (const Setting& s : settings())
    if (s.name == name) return "`" + s.member + "`";
  return name;
}

std::string with_flags(const std::string& text) {
  std::string out;
  size_t done = 0;
  for (size_t begin = text.find('`'); begin != std::string::npos; begin = text.find('`', begin)) {
    const size_t end = text.find('`', begin + 1);
    if (end == std::string::npos) break;
    const std::string flag = flag_of(text.substr(begin + 1, end - begin - 1));
    if (flag.empty()) {  // no member: its end may be where one begins
      begin = end;
      continue;
    }
    out += text.substr(done, begin - done) + flag;
    done = begin = end + 1;
  }
  return out + text.substr(done);
}

}  // namespace tandem
