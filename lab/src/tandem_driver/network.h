// The network of a cell: the zoo's model with the weights that the request names, and its optimiser.
#pragma once

#include <memory>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// The weights come from the file or the hash (track equal), or Tandem draws them with the seed. They are on the cell's device,
/// in its type. Seeds this thread's generator.
std::unique_ptr<nn::Module> make_network(const CellRequest& cell);

/// Track equal: the workload's settings with PyTorch's meaning and defaults. Track as_shipped: the optimiser that the workload
/// names, with Tandem's defaults (if the zoo trains this model with that optimiser: with the zoo's learning rate).
std::unique_ptr<optim::Optimizer> make_optimizer(const CellRequest& cell, const nn::Module& model);

/// Sets every parameter by the protocol's formula, running means to 0 and running variances to 1.
void set_hash_weights(nn::Module& model, uint32_t seed);

}  // namespace tandem::lab::tandem_driver
