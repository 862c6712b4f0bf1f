// What a device can do at best, by trial: the largest rates seen of matrix products, and of copies and sums.
#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/profile/profile.h"

namespace tandem {
namespace {

constexpr int64_t kTrialNs = 400'000'000;
constexpr int64_t kLongCallNs = 20'000'000;
constexpr int64_t kLargestMatrix = 8192;
constexpr int64_t kSmallestMove = 32 << 10;
constexpr int64_t kBytesAtOnce = 4 << 20;  // moved between two looks at the clock, at least

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

/// The best rate of a copy that moves so many bytes, half of them read and half written, and of a sum that reads as many.
double moving_rate(Device device, int64_t bytes, int64_t ns) {
  const int64_t half = bytes / 2;
  const Tensor from = full({half / 4}, 1, DType::f32, device), to = full({half / 4}, 0, DType::f32, device),
               all = full({bytes / 4}, 1, DType::f32, device);
  const int64_t calls = std::max<int64_t>(1, kBytesAtOnce / bytes);  // so that a clock's ticks do not count
  const auto repeated = [calls](const auto& work) {
    return [calls, work] {
      for (int64_t i = 0; i < calls; ++i) work();
    };
  };
  const int64_t copy = shortest(device, ns / 2, repeated([&] { assign(to, from); })),
                reading = shortest(device, ns / 2, repeated([&] { (void)sum(all); }));
  return static_cast<double>(calls * bytes) * 1e9 / static_cast<double>(std::min(copy, reading));
}

/// Of calls from kSmallestMove on to `largest`, each four times the one before. What a larger call reaches, a smaller one can.
std::vector<Peaks::Rate> moving_rates(Device device, int64_t largest) {
  std::vector<Peaks::Rate> rates;
  for (int64_t bytes = largest; bytes >= kSmallestMove; bytes /= 4) {
    const double rate = moving_rate(device, bytes, rates.empty() ? kTrialNs : kTrialNs / 8);
    rates.push_back({bytes, std::max(rate, rates.empty() ? 0 : rates.back().bytes_per_second)});
  }
  std::reverse(rates.begin(), rates.end());
  return rates;
}

}  // namespace

double Peaks::bytes_per_second_at(double bytes) const {
  for (const Rate& rate : rates)
    if (static_cast<double>(rate.bytes) >= bytes) return rate.bytes_per_second;
  return bytes_per_second;
}

Peaks measure_peaks(Device device, DType dtype) {
  TD_CHECK(is_floating(dtype), "measure_peaks: the type must be a floating one; got ", dtype, ".");
  refuse_while_tracing("measure_peaks", "it would measure nothing", "Call it outside.");
  const NoGrad off;
  const int64_t bytes = (device.is_cpu() ? int64_t{128} : int64_t{1024}) << 20;  // larger than caches
  const auto [flops, n] = product_rate(device, dtype);
  const std::vector<Peaks::Rate> rates = moving_rates(device, bytes);
  return {flops, rates.back().bytes_per_second,
          str("best of products of ", dtype, " matrices up to (", n, ", ", n, "), and of copies and sums of ",
              bytes >> 20, " MiB; of less, in caches, up to ",
              std::llround(rates.front().bytes_per_second / 1e8) / 10.0, " GB/s"),
          rates};
}

}  // namespace tandem
