// What the answers to `run` and `check` have in every kind of cell: the times of steps, and the numbers of an output.
#pragma once

#include <functional>

#include "lab/src/tandem_driver/request.h"

namespace tandem::lab::tandem_driver {

/// CLOCK_MONOTONIC, in nanoseconds.
int64_t now_ns();

inline constexpr int64_t kMostSteps = 10'000'000;

struct StepsAsked {
  bool latency = true;  // else throughput
  int64_t steps = 1;
};
StepsAsked read_run(const Json& request);

/// Takes the steps. Returns fields of the answer: `steps` for latency; `begin`, `end` and `count` for throughput.
Json timed_steps(const StepsAsked& asked, const std::function<void(int64_t)>& step,
                 const std::function<void()>& synchronize);

/// `shape` and `values` of an output, as the answer to `check` has them. Of a large output the hash picks the values.
Json shown_values(const Tensor& output);

}  // namespace tandem::lab::tandem_driver
