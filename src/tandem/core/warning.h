// Warnings of the library: the one thing that it prints by itself, a line on stderr for each, unless the program says where they go.
#pragma once

#include <functional>
#include <string>

#include "tandem/core/standard.h"

namespace tandem {

/// Gets each warning, a sentence or two without a line end, on the thread that it is about. It must not throw.
using WarningHandler = std::function<void(const std::string& text)>;
/// For all threads; returns the one before. Empty: warnings go nowhere.
WarningHandler set_warning_handler(WarningHandler handler);

/// Hands a warning to the handler.
void warn(const std::string& text);

}  // namespace tandem
