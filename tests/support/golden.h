// Reading the files of PyTorch's values below tests/golden, which make_golden.py writes.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "tandem/nn/module.h"
#include "tests/support/values.h"

namespace tandem::testing {

/// The lines of a file below tests/golden. Fails the test where there is no such file.
std::vector<std::string> golden_lines(const std::string& file);

/// "2,3" as a shape; "-" is that of a number.
Dims parse_shape(const std::string& text);

/// The next words as a shape and its values.
Array read_array(std::istringstream& in);

/// Puts the hash values that make_golden.py uses into every parameter. `gain` widens those of weights: deep networks
/// without normalisation need it, or nothing of their input arrives at the end.
void set_weights(nn::Module& module, double gain = 1);

}  // namespace tandem::testing
