#include "tests/support/golden.h"

#include <cmath>
#include <fstream>

#include "tandem/core/tape.h"
#include "tandem/ops/shape.h"
#include "tests/support/paths.h"

namespace tandem::testing {

std::vector<std::string> golden_lines(const std::string& file) {
  std::ifstream in(source_dir() / "tests" / "golden" / file);
  EXPECT_TRUE(in.good()) << file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Dims parse_shape(const std::string& text) {
  Dims shape;
  std::istringstream in(text == "-" ? "" : text);
  for (std::string part; std::getline(in, part, ',');) shape.push_back(std::stoll(part));
  return shape;
}

Array read_array(std::istringstream& in) {
  std::string shape;
  in >> shape;
  Array array(parse_shape(shape));
  for (double& v : array.values) in >> v;
  EXPECT_FALSE(in.fail()) << "the file is cut short";
  return array;
}

void set_weights(nn::Module& module, double gain) {
  const NoGrad off;
  for (const auto& [name, parameter] : module.named_parameters()) {
    double fan_in = 1;
    for (int axis = 1; axis < parameter.rank(); ++axis) fan_in *= static_cast<double>(parameter.size(axis));
    const double bound = parameter.rank() > 1 ? gain / std::sqrt(fan_in) : 0.1;
    assign(parameter, to_tensor(hash_array(parameter.shape(), name_salt(name), -bound, bound), DType::f64));
  }
}

}  // namespace tandem::testing
