// What `run` and `check` answer for any kind of step: its times, and the numbers of an output.
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

/// Takes the steps; -> `steps`, or `begin`, `end` and `count` of the answer.
Json timed_steps(const StepsAsked& asked, const std::function<void(int64_t)>& step,
                 const std::function<void()>& synchronize);

/// `shape` and `values` of an output, as `check` tells them: of many, those that the hash picks.
Json shown_values(const Tensor& output);

}  // namespace tandem::lab::tandem_driver
