// How the lab reads JSON: by nlohmann's reader, after the library has found nothing in it that could do harm.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/io/json_check.h"

namespace tandem::lab {

/// The value, or a discarded one (is_discarded()) with `why` set. Json is nlohmann::json or ordered_json.
template <class Json>
Json try_parse_json(std::string_view text, std::string& why) {
  return io::check_json(text, why) ? Json::parse(text) : Json(Json::value_t::discarded);
}

/// The value, or an Error: where, the rule, `what_to_do`.
template <class Json>
Json parse_json(const std::string& where, std::string_view text, const std::string& what_to_do = "") {
  std::string why;
  Json value = try_parse_json<Json>(text, why);
  if (value.is_discarded()) throw Error(str(where, why, ".", what_to_do.empty() ? "" : " ", what_to_do));
  return value;
}

}  // namespace tandem::lab
