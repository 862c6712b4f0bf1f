// Whether a text is JSON that can be read without harm, for programs with a JSON reader of their own.
#pragma once

#include <string>
#include <string_view>

#include "tandem/core/standard.h"

namespace tandem::io {

inline constexpr int kMaxJsonDepth = 100;

/// False with `why` set: "must be JSON in UTF-8; it breaks at byte 12". Refused besides: more than kMaxJsonDepth levels of
/// lists and objects, a key twice in one object, a whole number that does not fit 64 bits, another number beyond f64's range.
bool check_json(std::string_view text, std::string& why);

}  // namespace tandem::io
