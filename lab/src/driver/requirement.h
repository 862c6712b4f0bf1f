// pip's requirements ("numpy<1.24"), as far as the names and versions of installed packages can answer them without pip.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::lab {

/// True where the version meets the conditions, "==1.9.1", ">=3.8,<3.12", "<1.24"; an empty text is met by all. Throws
/// Error for a condition that is none of ==, !=, <, <=, >, >=, ~= with a version of numbers and dots.
bool meets(const std::string& version, const std::string& conditions);

/// "jax[cuda12]>=0.4": the name as pip compares it (small letters, '-' for '_' and '.'), and the conditions.
struct Requirement {
  std::string name, conditions;
};
Requirement parse_requirement(const std::string& text);

/// The version of the package in these folders, from its dist-info or egg-info folder; none where it is not there.
std::optional<std::string> installed_version(const std::string& name,
                                             const std::vector<std::string>& folders);
/// The same for any of the package's builds: torch, mxnet-cu112, onnxruntime-gpu.
std::optional<std::string> installed_build(const std::string& name, const std::vector<std::string>& folders);

/// Which of the requirements these folders do not meet.
std::vector<std::string> missing_packages(const std::vector<std::string>& requirements,
                                          const std::vector<std::string>& folders);

}  // namespace tandem::lab
