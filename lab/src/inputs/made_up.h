// Made-up samples, for workloads whose data is not here or which have none: they can be learned, come from a seed, and
// fit whatever inputs and targets there are.
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
  /// Sample i: the network's inputs in their order, then the workload's targets in that of their names.
  virtual std::vector<Tensor> get(int64_t i) const = 0;
};

/// Images with labels, where the network has one input (C, H, W) and the workload one label for each: every class has a
/// smooth pattern of its own, and a sample is its pattern, dimmed, under noise; about mean 0 and deviation 1.
/// Anything else: inputs are noise (whole numbers below the rows of the embedding that reads them, or in their range; those without axes are
/// lengths, behind which the first axis of the others is zero), and targets a fixed function of them: weighted sums of the same
/// and the last place where target and input have the same first axis, else of the mean over all true places.
/// Lengths are drawn evenly, or mostly short where the workload trims its batches. Samples of the test differ from those of training.
std::unique_ptr<MadeUp> make_up(const Workload& workload, const Network& network, uint64_t seed,
                                bool is_test);

/// A made-up photograph, u8 (3, height, width) of about the size and the detail of a real one: coarse to fine patches of
/// colour, two discs with sharp edges, and grain.
Tensor make_up_photograph(int64_t number, uint64_t seed);

}  // namespace tandem::lab
