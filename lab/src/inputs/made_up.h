// Made-up samples, for workloads whose data set is not on this machine or that have none. They come from a seed, fit any inputs
// and targets, and can be learned.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lab/src/inputs/network.h"
#include "tandem/core/tensor.h"

namespace tandem::lab {

class MadeUp {
 public:
  virtual ~MadeUp() = default;
  /// Sample i: the network's inputs in their order, then the workload's targets, ordered by name.
  virtual std::vector<Tensor> get(int64_t i) const = 0;
};

/// If the network has one input (C, H, W) and the workload one label per sample: images. Every class has a smooth pattern. A sample
/// is the pattern of its class, scaled, plus noise; its mean is about 0 and its deviation about 1.
/// Otherwise inputs are noise. Whole numbers are below the number of rows of the embedding that reads them, or in the input's range.
/// Inputs without axes are lengths: the other inputs are zero after so many places of their first axis. Targets are a fixed function
/// of the inputs. Where target and input have the same first axis, it is a weighted sum over the same place and the one before;
/// else over the mean of all places within the length. Lengths are drawn evenly or, if the workload trims its batches, so that most
/// are short.
/// Samples of the test differ from those of training.
std::unique_ptr<MadeUp> make_up(const Workload& workload, const Network& network, uint64_t seed,
                                bool is_test);

/// A made-up photograph, u8 (3, height, width), with about the size and the detail of a real one: patches of colour from coarse
/// to fine, two discs with sharp edges, and grain.
Tensor make_up_photograph(int64_t number, uint64_t seed);

}  // namespace tandem::lab
