// Models that carry state from call to call.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// A model that takes its states as arguments and gives the new ones as results of the same names: its signature() has "tokens", "h",
/// "c" and "logits", "h", "c". Its first argument and its first result are no states. The zoo's ptb_lstm is one, and so is a
/// description with `carry = true`.
class Stateful {
 public:
  virtual ~Stateful() = default;
  /// What a first call begins with for a batch of this size: zeros, in the model's type, where the model is.
  virtual Named first_states(int64_t batch) const = 0;
};

/// Calls a model with its first argument and its states, by name. Throws Error where its signature does not name them.
Named step(Module& model, const Tensor& input, const Named& states);

}  // namespace tandem::nn
