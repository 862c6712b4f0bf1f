// Names of a file of weights beside those of a model.
#include "tandem/nn/load_names.h"

#include <algorithm>
#include <unordered_set>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::nn::detail {

std::string prefix_in(const std::vector<std::string>& file, const std::vector<std::string>& model) {
  if (model.empty()) return "";
  const std::unordered_set<std::string> there(file.begin(), file.end());
  const std::string end = "." + model.front();
  for (const std::string& name : file) {
    if (!name.ends_with(end)) continue;
    const std::string prefix = name.substr(0, name.size() - model.front().size());
    if (std::all_of(model.begin(), model.end(),
                    [&](const std::string& wanted) { return there.contains(prefix + wanted); }))
      return prefix;
  }
  return "";
}

std::string few_names(const char* what, const std::vector<std::string>& names) {
  constexpr size_t kShown = 3, kLongest = 80;
  if (names.empty()) return str(" ", what, ": nothing.");
  std::string list;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i)
    list += (i > 0 ? ", " : "") + one_line(names[i], kLongest);
  if (names.size() > kShown) list += str(" and ", names.size() - kShown, " more");
  return str(" ", what, ": ", list, ".");
}

std::string missing_hint(const std::vector<std::string>& file, const std::vector<std::string>& alone,
                         const std::vector<std::string>& missing) {
  const std::string prefix = prefix_in(file, missing);
  if (prefix.empty())
    return alone.empty() ? few_names("The file holds", file) : few_names("In the file alone", alone);
  const char* who = prefix == "module."      ? ", which DistributedDataParallel puts there"
                    : prefix == "_orig_mod." ? ", which torch.compile puts there"
                                             : "";
  return str(" The file has the model's names behind '", one_line(prefix, 80), "'", who,
             ". Load it with LoadOptions{.prefix = \"", one_line(prefix, 80), "\"}.");
}

}  // namespace tandem::nn::detail
