// The constants were fitted to 205 problems (forward and both gradients of the zoo's CNNs; tf32, f32 and bf16) that were timed with
// every algorithm on an H200. What the model takes needs 1 % more time in sum than the fastest in tf32, and 3 % in f32 and bf16. The
// first proposal of cuDNN's own heuristic needs 6 % more in tf32, where it takes FFTs whose workspace costs more to write and read than
// a plain algorithm costs in all.
#include "tandem/backends/cuda/conv_cost.h"

#include <algorithm>

#include "tandem/backends/cuda/check.h"

namespace tandem::cuda {
namespace {

constexpr double kProductShare = 0.45;      // of the f32 rate, by the implicit products
constexpr double kMatrixUnits = 4.5;        // the rate on matrix units in terms of the f32 rate
constexpr double kSlowProductShare = 0.27;  // of the f32 rate, by the products that precompute nothing
constexpr double kWinogradWork = 0.37;      // multiplications that are left of those of a product
constexpr double kFftWork = 0.4;
constexpr double kTraffic = 1.25;        // how much longer moving bytes takes than at the full rate
constexpr double kWinogradStart = 3e-6;  // seconds for the launches of several kernels
constexpr double kFftStart = 20e-6;
constexpr int64_t kTile = 64;         // rows and columns of a product that one block computes
constexpr int64_t kPartOfSum = 6000;  // weight gradients cut their long sums into parts about this long

int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The blocks of a pass that is computed as a matrix product.
int64_t blocks_of(const ConvProblem& problem) {
  const Convolution& s = problem.shape;
  const int64_t in_plane = s.in[0] * s.in[1] * s.in[2];
  const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
  const int64_t c = s.c / s.groups, o = s.o / s.groups;
  int64_t rows = 0, columns = 0, parts = 1;
  switch (problem.pass) {
    case Pass::forward:
      rows = s.n * s.out_plane();
      columns = o;
      break;
    case Pass::input_gradient:
      rows = s.n * in_plane;
      columns = c;
      break;
    case Pass::weight_gradient:
      rows = o;
      columns = c * taps;
      parts = std::max<int64_t>(1, s.n * s.out_plane() / kPartOfSum);
      break;
  }
  return divided(rows, kTile) * divided(columns, kTile) * parts * s.groups;
}

double attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

DeviceRates rates_of(int device) {
  constexpr double kPerClock = 2 * 128;  // f32 operations of a multiprocessor
  const double processors = attribute(cudaDevAttrMultiProcessorCount, device);
  const double clock = 1e3 * attribute(cudaDevAttrClockRate, device);
  const double memory_clock = 1e3 * attribute(cudaDevAttrMemoryClockRate, device);
  const double bus_bytes = attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8;
  return {processors * kPerClock * clock, 2 * memory_clock * bus_bytes, static_cast<int>(processors)};
}

double estimated_seconds(const ConvProblem& problem, LibraryAlgorithm algorithm, bool matrix_units,
                         size_t workspace, const DeviceRates& device) {
  const Convolution& s = problem.shape;
  const double flops = 2.0 * static_cast<double>(s.y_size()) * static_cast<double>(s.c / s.groups) *
                       static_cast<double>(s.kernel[0] * s.kernel[1] * s.kernel[2]);
  const double tensors =
      static_cast<double>(bytes_of(s.dtype)) * static_cast<double>(s.x_size() + s.y_size() + s.weight_size());
  const double moving = kTraffic * (tensors + 2 * static_cast<double>(workspace)) / device.bytes;
  const double busy =
      std::min(1.0, static_cast<double>(blocks_of(problem)) / static_cast<double>(device.multiprocessors));
  switch (algorithm) {
    case LibraryAlgorithm::matrix_product:
      return flops / (device.flops * (matrix_units ? kMatrixUnits : kProductShare) * busy) + moving;
    case LibraryAlgorithm::slow_product:
      return flops / (device.flops * kSlowProductShare * busy) + moving;
    case LibraryAlgorithm::winograd:
      return flops * kWinogradWork / (device.flops * kProductShare) + moving + kWinogradStart;
    case LibraryAlgorithm::fft:
      break;
  }
  return flops * kFftWork / (device.flops * kProductShare) + moving + kFftStart;
}

}  // namespace tandem::cuda
