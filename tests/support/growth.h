// Whether a cost grows in proportion to a size. No time is held against a limit: a machine may be slow or busy.
#pragma once

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>

namespace tandem::testing {

/// Seconds of the processor that this thread spends on the work.
template <class Work>
double cpu_seconds(const Work& work) {
  const auto now = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

/// Whether work(32 * size) costs about 32 times what work(size) costs. A quadratic cost is 1,024 times as high; what
/// no longer fits the processor's caches was seen to cost up to 4 times as much a piece. So 8 times is the limit. A
/// busy machine can make one attempt look worse than it is, but hardly five.
template <class Work>
::testing::AssertionResult in_proportion(int size, const Work& work) {
  constexpr int kMore = 32, kAttempts = 5;
  constexpr double kLimit = 8;
  double few = 1e9, many = 1e9;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    few = 1e9;
    for (int i = 0; i < 3; ++i) few = std::min(few, cpu_seconds([&] { work(size); }));
    many = cpu_seconds([&] { work(kMore * size); });
    if (many < kLimit * kMore * few) return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << kMore << " times the size (" << size << ") costs " << many / few << " times as much, in each of "
         << kAttempts << " attempts: " << few << " s and " << many << " s";
}

}  // namespace tandem::testing
