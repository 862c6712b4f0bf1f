// How long an algorithm of cuDNN should take for a convolution: a model with constants that were fitted to measured times.
#pragma once

#include <cstddef>

#include "tandem/backends/cuda/convolution.h"

namespace tandem::cuda {

/// What the model knows of a device.
struct DeviceRates {
  double flops;  ///< f32 operations per second, without matrix units
  double bytes;  ///< of device memory per second
  int multiprocessors;
};
DeviceRates rates_of(int device);

/// The kinds of algorithm that the model tells apart.
enum class LibraryAlgorithm { matrix_product, slow_product, winograd, fft };

/// Seconds. `matrix_units`: whether it multiplies on them.
double estimated_seconds(const ConvProblem& problem, LibraryAlgorithm algorithm, bool matrix_units,
                         size_t workspace, const DeviceRates& device);

}  // namespace tandem::cuda
