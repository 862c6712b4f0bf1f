// Models that carry state from call to call.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// A model that takes its states behind its inputs, model({x, h, c}), and gives the new ones behind its outputs, {y, h, c}.
/// The zoo's ptb_lstm is one, and so is a description with `carry = true`.
class Stateful {
 public:
  virtual ~Stateful() = default;
  /// What a first call begins with, by name, for a batch of this size: zeros, in the model's type, where the model is.
  virtual NamedTensors first_states(int64_t batch) const = 0;
};

}  // namespace tandem::nn
