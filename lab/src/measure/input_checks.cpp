#include "lab/src/measure/input_checks.h"

#include <cmath>

#include "tandem/core/error.h"

namespace tandem::lab {

Objection check_samples(const Timed& timed, const BatchSums& made, double share, bool waits,
                        const HonestyLimits& limits) {
  if (!timed.samples_sum)
    return Contradiction{"samples", "the sums of the last batch's samples must be told; got none"};
  for (const auto& [name, sum] : *timed.samples_sum)
    if (!made.of.contains(name))
      return Contradiction{"samples", str("the sums must be of inputs and targets; got one of ", name)};
  for (const auto& [name, wanted] : made.of) {
    const auto got = timed.samples_sum->find(name);
    if (got == timed.samples_sum->end())
      return Contradiction{"samples", str("the sums must be of every input and target; got none of ", name)};
    if (std::abs(got->second - wanted.sum) > share * wanted.size + 1e-6)
      return Contradiction{"samples",
                           str("batch ", timed.asked - 1, " must be made of its own samples; its ", name,
                               " adds up to ", wanted.sum, ", and the driver's to ", got->second)};
  }
  if (!waits) return {};
  if (!timed.wait_ns)
    return Contradiction{"wait", "the time that steps waited for samples must be told; got none"};
  const double waited = static_cast<double>(*timed.wait_ns) / 1e9, covered = covered_s(timed);
  if (waited < 0 || waited > covered + limits.clock_slack_s)
    return Contradiction{
        "wait", str("steps can wait for samples only while they last, ", covered, " s; got ", waited, " s")};
  return {};
}

Objection check_decoding(const Timed& timed, const Witness& seen, const BatchSums& made,
                         const HonestyLimits& limits) {
  const double steps = static_cast<double>(timed.count), used = seen.cpu_s + std::max(0.0, seen.delay_s);
  if (made.cpu_s * steps < limits.measurable_s || used >= limits.least_decoding * made.cpu_s * steps)
    return {};
  return Contradiction{
      "decoding", str("every batch must be made of its files; the driver's processes used ", used / steps,
                      " s of processor time a batch, and the lab ", made.cpu_s, " s to make one")};
}

}  // namespace tandem::lab
