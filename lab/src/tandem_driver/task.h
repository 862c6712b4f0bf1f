// The objective of a workload as a task of the library: fit, evaluate and steps of training then work as for any user.
#pragma once

#include <memory>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// What the test of the last epoch took for what, and what training got right: filled by the task below.
struct Followed {
  explicit Followed(Device device);
  void clear();  // at the beginning of an epoch
  /// Of the loss's places that count, in training: how many were right, and how many there were.
  Tensor right, places;
  /// The sum of the batches' losses, where they count places: the library's mean weighs them by these, the protocol's does not.
  Tensor loss;
  ConfusionMatrix confusion;
};

/// `epochs`: batches follow the protocol's order of epochs, else that of the file. `followed`: null, or what to keep.
TaskPtr make_task(const CellRequest& cell, bool epochs, std::shared_ptr<Followed> followed = nullptr);

/// The network's outputs for a batch (inputs, then targets), from `states` on, which become those it leaves, without a
/// gradient through them. Outputs of 16 bits come in f32.
std::vector<Tensor> outputs_of(const CellRequest& cell, nn::Module& model, const std::vector<Tensor>& fields,
                               std::vector<Tensor>& states);
/// A batch (inputs, then targets) and outputs with their names.
Named named_fields(const CellRequest& cell, std::vector<Tensor> fields);
Named named_outputs(const CellRequest& cell, std::vector<Tensor> outputs);
/// Zeros for each state.
std::vector<Tensor> first_states(const CellRequest& cell, int64_t batch);

/// The loss of the workload, 0-d.
Tensor loss_of(const CellRequest& cell, const Named& outputs, const Named& batch);

}  // namespace tandem::lab::tandem_driver
