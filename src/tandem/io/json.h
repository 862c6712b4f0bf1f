// The one way in which JSON text is read, ours or foreign: what nobody writes on purpose is refused before it can overflow
// the stack or mislead. The parser's time is linear in the text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem::io {

inline constexpr int kMaxJsonDepth = 100;

/// The value that the text holds, or a discarded one (is_discarded()) with `why` set: "must be JSON in UTF-8; it breaks at
/// byte 12". Refused besides: more than kMaxJsonDepth levels of lists and objects, a key twice in one object, a whole
/// number that does not fit 64 bits, another number beyond f64's range. Json is nlohmann::json or ordered_json.
template <class Json>
Json try_parse_json(std::string_view text, std::string& why);

/// The same, or an Error: where, the rule, `what_to_do`.
template <class Json>
Json parse_json(const std::string& where, std::string_view text, const std::string& what_to_do = "");

}  // namespace tandem::io
