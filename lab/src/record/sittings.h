// The sittings of a study, as its provenance holds them: one for each time that it went on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::lab {

/// The programs that are others now than in the sitting of `before` that was the last one: "drivers/pytorch.py", "libtandem.so.0.1",
/// "drivers/frame.py, no longer used", "pytorch 2.15.0, now 2.16.0". A file that is recorded now alone is none: older records have fewer.
std::vector<std::string> changed_programs(const nlohmann::json& before, const nlohmann::json& now);

/// The lines that a person should read before trusting a time: {"warnings": …} of the object, and which programs changed between its
/// sittings.
std::vector<std::string> provenance_warnings(const nlohmann::json& provenance);

}  // namespace tandem::lab
