// The objective of a workload as a Task of the library, so that fit, evaluate and training steps work as for any user.
#pragma once

#include <memory>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// What make_task's task records: correct places and losses of an epoch of training, and the confusion matrix of the last test.
struct Followed {
  explicit Followed(Device device);
  void clear();  // for the next epoch of training
  /// In training: how many of the places that count were predicted correctly, and how many there were.
  Tensor right, places;
  /// The sum of the batches' losses, where these are means over places. The library weighs each batch by its number of places when it
  /// averages, and the protocol does not.
  Tensor loss;
  ConfusionMatrix confusion;
};

/// `epochs`: batches follow the protocol's order of each epoch, else the order of the file. `followed`: where to record; may be null.
TaskPtr make_task(const CellRequest& cell, bool epochs, std::shared_ptr<Followed> followed = nullptr);

/// The network's outputs for a batch (inputs, then targets). It begins with `states`, which then become the states after the
/// batch; no gradient goes through them. Outputs of 16 bits are converted to f32.
std::vector<Tensor> outputs_of(const CellRequest& cell, nn::Module& model, const std::vector<Tensor>& fields,
                               std::vector<Tensor>& states);
/// A batch (inputs, then targets) with the names of its fields, and outputs with theirs.
Named named_fields(const CellRequest& cell, std::vector<Tensor> fields);
Named named_outputs(const CellRequest& cell, std::vector<Tensor> outputs);
/// Zeros for each state.
std::vector<Tensor> first_states(const CellRequest& cell, int64_t batch);

/// The loss of the workload, 0-d.
Tensor loss_of(const CellRequest& cell, const Named& outputs, const Named& batch);

}  // namespace tandem::lab::tandem_driver
