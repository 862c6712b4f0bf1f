#include "lab/src/monitor/calibration.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "lab/src/monitor/kept_file.h"

namespace tandem::lab {
namespace {

constexpr int64_t kSteps = 16'000'000;  // about 40 ms at 3 GHz

/// Where the result goes, so that no compiler leaves the loop out.
volatile double g_result;

/// Several chains side by side, of whole numbers and of others: enough to fill a core, so that whoever shares its units shows.
double arithmetic(uint64_t seed) {
  uint64_t a = seed, b = seed + 1, c = seed + 2;
  double x = 1, y = 2, z = 3;
  for (int64_t i = 0; i < kSteps; ++i) {
    a = a * 6364136223846793005u + 1442695040888963407u;
    b = b * 6364136223846793005u + 1442695040888963407u;
    c = c * 6364136223846793005u + 1442695040888963407u;
    x = x * 0.999 + 0.001;
    y = y * 0.999 + 0.001;
    z = z * 0.999 + 0.001;
  }
  return x + y + z + static_cast<double>(a ^ b ^ c);
}

Calibration one_core(int core) {
  if (core >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(core), &set);
    ::sched_setaffinity(0, sizeof set, &set);  // where that is refused the loop runs somewhere else
  }
  const double begun = now_s(), used = thread_cpu_s();
  g_result = arithmetic(static_cast<uint64_t>(core) + 1);
  const double seconds = std::max(now_s() - begun, 1e-9);
  return {seconds, std::min(1.0, (thread_cpu_s() - used) / seconds)};
}

}  // namespace

Calibration calibrate(const std::vector<int>& cores) {
  std::vector<int> all = cores.empty() ? std::vector<int>{-1} : cores;
  std::vector<Calibration> found(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&found, &all, i] { found[i] = one_core(all[i]); });
  for (std::thread& thread : threads) thread.join();
  Calibration worst;
  for (const Calibration& one : found) {
    worst.seconds = std::max(worst.seconds, one.seconds);
    worst.core_share = std::min(worst.core_share, one.core_share);
  }
  return worst;
}

}  // namespace tandem::lab
