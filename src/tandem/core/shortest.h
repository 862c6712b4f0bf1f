// Numbers as text.
#pragma once

#include <string>

#include "tandem/core/standard.h"

namespace tandem {

/// The shortest text that reads as the same number: "0.1". (str() gives six digits, which are enough for a message.)
std::string shortest(double value);
std::string shortest(float value);

}  // namespace tandem
