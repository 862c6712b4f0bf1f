// What `prepare` asks for, checked against what the driver offers. What it does not offer is declined by name.
#pragma once

#include <nlohmann/json.hpp>

#include "inputs.h"

namespace libtorch_driver {

using Json = nlohmann::json;

/// An input or an output of the network; sizes are those of one sample.
struct Value {
  std::string name, type;  // of an input: f32 or i64
  std::string value;       // of an output: the name of the call's value
  std::vector<int64_t> shape;
};

struct Loss {
  std::string kind, target, lengths;  // lengths: empty where every place counts
  size_t output = 0;                  // number of the output
  std::vector<int64_t> target_shape;
};

/// One prepared cell; the fields have the protocol's names.
struct Cell {
  std::string name;  // of the network
  std::string phase, track, device, precision;
  int64_t batch = 0, threads = 1, seed = 0;
  bool dropout = true, listing = false;
  Json network;  // where dropout is false, every p is 0
  std::vector<Value> inputs, outputs;
  Shapes parameters;
  Loss loss;
  std::vector<std::string> metrics;
  int64_t classes = 0;  // `below` of the loss's target; 0: not given
  Json optimizer, weights, switches;
  std::unique_ptr<Samples> train, test;
  std::map<std::string, Samples> more_tests;  // data's further parts, tested once after the last epoch of fit

  /// The samples of check and run: those to train on, or the test's where there are no others.
  const Samples& samples() const { return train ? *train : *test; }
  bool measures(const std::string& metric) const {
    return std::find(metrics.begin(), metrics.end(), metric) != metrics.end();
  }
};

Cell cell_of(const Json& request, const Json& hello);

/// The value if `offered` has it; else declined by the name of `what`.
std::string must_be_one_of(const std::string& what, const Json& value, const Json& offered);

/// The field of this name, null where there is none.
Json field(const Json& holder, const std::string& name);

int64_t whole_number(const Json& holder, const std::string& name, int64_t least);

}  // namespace libtorch_driver
