#include "lab/src/tandem_driver/steps.h"

#include <ctime>

#include "lab/src/protocol/hash.h"

namespace tandem::lab::tandem_driver {
namespace {

constexpr uint32_t kMostShown = 4096;  // `check` shows at most so many elements of an output

}  // namespace

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

StepsAsked read_run(const Json& request) {
  const std::string region = text_field(request, "region");
  if (region != "latency" && region != "throughput")
    throw Declined("region",
                   str("region: must be latency or throughput; got '", io::one_line(region, 80), "'."));
  return {region == "latency", integer_field(request, "steps", 1, kMostSteps)};
}

Json timed_steps(const StepsAsked& asked, const std::function<void(int64_t)>& step,
                 const std::function<void()>& synchronize) {
  synchronize();
  if (!asked.latency) {
    const int64_t begin = now_ns();
    for (int64_t i = 0; i < asked.steps; ++i) step(i);
    synchronize();
    return {{"begin", begin}, {"end", now_ns()}, {"count", asked.steps}};
  }
  std::vector<std::pair<int64_t, int64_t>> times;
  for (int64_t i = 0; i < asked.steps; ++i) {
    const int64_t begin = now_ns();
    step(i);
    synchronize();
    times.emplace_back(begin, now_ns());
  }
  return {{"steps", times}};
}

Json shown_values(const Tensor& output) {
  const std::vector<double> all = cast(to(output, Device{}), DType::f64).to_vector<double>();
  std::vector<double> shown = all;
  if (all.size() > kMostShown) {
    shown.clear();
    for (uint32_t k = 0; k < kMostShown; ++k) shown.push_back(all[hashed(k, kMostShown) % all.size()]);
  }
  return {{"shape", std::vector<int64_t>(output.shape().begin(), output.shape().end())}, {"values", shown}};
}

}  // namespace tandem::lab::tandem_driver
