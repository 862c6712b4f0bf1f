// What a study's file may name: the frameworks of drivers/drivers.toml with their variants, and the machine's devices.
#pragma once

#include <string>
#include <vector>

namespace tandem::lab {

struct Framework {
  std::string name, title;
  std::vector<std::string> variants;
};

/// drivers/drivers.toml, in the order of names, and those of a further file of its form ("": none).
std::vector<Framework> frameworks(const std::string& further = "");

/// "pytorch:eager" gives itself, "pytorch" all its variants. Throws Error for a name that is not in `known`.
std::vector<std::string> systems_of(const std::string& name, const std::vector<Framework>& known);

/// "cpu", and one "cuda:N" for each NVIDIA GPU that the system shows. No driver is loaded for it.
std::vector<std::string> present_devices();

}  // namespace tandem::lab
