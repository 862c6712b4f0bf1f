#include "tandem/zoo/model_settings.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/nearest.h"

namespace tandem::zoo {

void set_by_name(const char* model, std::span<const std::pair<std::string, double>> given,
                 const std::vector<NamedNumber>& known) {
  for (const auto& [name, value] : given) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const NamedNumber& each) { return name == each.name; });
    if (found == known.end()) {
      std::vector<std::string> names;
      std::string list;
      for (const NamedNumber& each : known) {
        names.emplace_back(each.name);
        list += str(list.empty() ? "" : ", ", each.name);
      }
      throw Error(str("model ", model, ": its settings are ", list, "; got '", one_line(name, 60), "'.",
                      did_you_mean(name, names)));
    }
    if (found->whole) {
      TD_CHECK(value >= static_cast<double>(found->least) && value <= static_cast<double>(found->most) &&
                   value == std::floor(value),
               "model ", model, ": ", name, " must be a whole number from ", found->least, " to ",
               found->most, "; got ", value, ".");
      *found->whole = static_cast<int64_t>(value);
    } else {
      TD_CHECK(value >= 0 && value < 1, "model ", model, ": ", name, " must be at least 0 and below 1; got ",
               value, ".");
      *found->probability = value;
    }
  }
}

}  // namespace tandem::zoo
