// How the lab reads JSON: with nlohmann's parser, after the library has checked that the text can do no harm.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/io/json_check.h"

namespace tandem::lab {

/// Returns the value. If the text is bad, the value is a discarded one (is_discarded()) and `why` says the reason. Json is
/// nlohmann::json or ordered_json.
template <class Json>
Json try_parse_json(std::string_view text, std::string& why) {
  return io::check_json(text, why) ? Json::parse(text) : Json(Json::value_t::discarded);
}

/// Returns the value. If the text is bad, throws Error with `where`, the reason and `what_to_do`.
template <class Json>
Json parse_json(const std::string& where, std::string_view text, const std::string& what_to_do = "") {
  std::string why;
  Json value = try_parse_json<Json>(text, why);
  if (value.is_discarded()) throw Error(str(where, why, ".", what_to_do.empty() ? "" : " ", what_to_do));
  return value;
}

}  // namespace tandem::lab
