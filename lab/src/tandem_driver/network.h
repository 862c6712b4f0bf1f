// The network of a cell: the zoo's model with the weights that the request names, and its optimiser.
#pragma once

#include <memory>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// With weights from the file or the hash (track equal), or as Tandem draws them with the seed; on the cell's device, in
/// its type. Seeds this thread's generator.
std::unique_ptr<nn::Module> make_network(const CellRequest& cell);

/// Track equal: the workload's settings with PyTorch's meaning and defaults. As shipped: the optimiser that the workload
/// names, with Tandem's defaults (the zoo's learning rate where it is the model's usual optimiser).
std::unique_ptr<optim::Optimizer> make_optimizer(const CellRequest& cell, const nn::Module& model);

/// Overwrites every parameter by the protocol's formula, and running statistics by 0 and 1.
void set_hash_weights(nn::Module& model, uint32_t seed);

}  // namespace tandem::lab::tandem_driver
