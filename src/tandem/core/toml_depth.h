// A look at TOML text before a parser gets it.
#pragma once

#include <string>
#include <string_view>

#include "tandem/core/standard.h"

namespace tandem {

struct TomlDepth {
  int parts = 20;   // of a dotted key
  int nested = 50;  // lists and tables within each other
};
/// Refuses what is nested so deep that building, copying or freeing it would overflow the stack: the parser takes dotted keys
/// of any length. `where` begins the message: "read 'a.toml'".
void check_toml_depth(std::string_view text, const std::string& where, const TomlDepth& most = {});

}  // namespace tandem
