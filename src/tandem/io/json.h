// The one way in which JSON text is read, ours or foreign: what nobody writes on purpose is refused before it can overflow
// the stack or mislead. The parser's time is linear in the text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/io/json_check.h"

namespace tandem::io {

/// Reads the text into `value`, or returns false with `why` set, as check_json does.
bool read_json(std::string_view text, nlohmann::json& value, std::string& why);
bool read_json(std::string_view text, nlohmann::ordered_json& value, std::string& why);

/// The value, or a discarded one (is_discarded()) with `why` set. Json is nlohmann::json or ordered_json.
template <class Json>
Json try_parse_json(std::string_view text, std::string& why) {
  Json value;
  if (!read_json(text, value, why)) return Json(Json::value_t::discarded);
  return value;
}

/// The value, or an Error: where, the rule, `what_to_do`.
template <class Json>
Json parse_json(const std::string& where, std::string_view text, const std::string& what_to_do = "") {
  Json value;
  std::string why;
  if (!read_json(text, value, why))
    throw Error(str(where, why, ".", what_to_do.empty() ? "" : " ", what_to_do));
  return value;
}

}  // namespace tandem::io
