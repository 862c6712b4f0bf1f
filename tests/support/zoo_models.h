// One small training step of any model of the zoo, for tests of whole models.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/train/step.h"
#include "tandem/zoo/zoo.h"

namespace tandem::testing {

/// A model as published; those for large images and large vocabularies smaller and with few classes, for speed.
zoo::ModelOptions small(const zoo::ModelInfo& info);
/// The shape of a batch of two for it.
Dims batch_of(const zoo::ModelInfo& info);

/// A model of the zoo, made and trained for one step from fixed random numbers, which are the same on every device.
struct TrainedModel {
  nn::NamedTensors before;  ///< its state as it was made
  nn::NamedTensors after;   ///< "loss", and its state after one step, dropout included
};
TrainedModel train_once(const zoo::ModelInfo& info, Engine engine, Device device = {});

std::vector<std::string> model_names();

}  // namespace tandem::testing
