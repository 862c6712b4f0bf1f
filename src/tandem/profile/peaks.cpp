// What a device can do at best, by trial: the largest rates seen of a matrix product and of a copy.
#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/shape.h"
#include "tandem/profile/profile.h"

namespace tandem {
namespace {

constexpr int64_t kTrialNs = 400'000'000;
constexpr int64_t kLongCallNs = 20'000'000;
constexpr int64_t kLargestMatrix = 8192;

int64_t time_of(Device device, const std::function<void()>& work) {
  const int64_t begin = steady_now_ns();
  work();
  backend(device).synchronize(device);
  return std::max<int64_t>(1, steady_now_ns() - begin);
}

/// The shortest of as many calls as the time allows, three at least.
int64_t shortest(Device device, int64_t ns, const std::function<void()>& work) {
  const int64_t start = steady_now_ns();
  int64_t best = time_of(device, work);
  for (int calls = 1; calls < 3 || steady_now_ns() - start < ns; ++calls)
    best = std::min(best, time_of(device, work));
  return best;
}

/// The best rate of products of growing size, and the largest size. On a busy machine a shorter one may be the best.
std::pair<double, int64_t> product_rate(Device device, DType dtype) {
  double best = 0;
  for (int64_t n = 256;; n *= 2) {
    const Tensor a = full({n, n}, 0.5, dtype, device), b = full({n, n}, 0.25, dtype, device);
    const int64_t ns = shortest(device, kTrialNs / 5, [&] { (void)matmul(a, b); });
    const double side = static_cast<double>(n);
    best = std::max(best, 2 * side * side * side * 1e9 / static_cast<double>(ns));
    if (n == kLargestMatrix || ns >= kLongCallNs) return {best, n};
  }
}

double copy_rate(Device device, int64_t bytes) {
  const Tensor from = full({bytes / 4}, 1, DType::f32, device), to = full({bytes / 4}, 0, DType::f32, device);
  return 2.0 * static_cast<double>(bytes) * 1e9 /
         static_cast<double>(shortest(device, kTrialNs, [&] { assign(to, from); }));
}

}  // namespace

Peaks measure_peaks(Device device, DType dtype) {
  TD_CHECK(is_floating(dtype), "measure_peaks: the type must be a floating one; got ", dtype, ".");
  refuse_while_tracing("measure_peaks", "it would measure nothing", "Call it outside.");
  const NoGrad off;
  const int64_t bytes = (device.is_cpu() ? int64_t{64} : int64_t{512}) << 20;  // larger than caches
  const auto [flops, n] = product_rate(device, dtype);
  return {flops, copy_rate(device, bytes),
          str("best of products of ", dtype, " matrices up to (", n, ", ", n, "), and of a copy of ",
              bytes >> 20, " MiB, read and written")};
}

}  // namespace tandem
