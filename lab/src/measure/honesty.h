// Whether a driver's times can be true. The lab does not take them on trust: it has its own clock around every request, and
// reads from the system how much processor time the driver's processes used and how long they waited for a core. A driver
// that contradicts what the lab saw gets the status `dishonest`, with the name of the rule that it broke. lab/docs/method.md
// lists the rules and says why the limits are what they are.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/src/driver/client.h"

namespace tandem::lab {

/// What the system says about a process and all that it started, since they began. Subtract two to get a window.
struct Witness {
  double cpu_s = 0;          // processor time of all of them
  double delay_s = 0;        // how long the thread that waited most stood ready without getting a core
  bool knows_delay = false;  // else the kernel does not tell, and delay_s is 0
  Witness operator-(const Witness& earlier) const {
    return {cpu_s - earlier.cpu_s, delay_s - earlier.delay_s, knows_delay && earlier.knows_delay};
  }
};
Witness witness(pid_t pid);

/// Whether a rule rests on clocks or processor time, which other work on the machine changes.
bool is_of_time(const std::string& rule);

/// A broken rule: its name and the numbers, in one line.
struct Contradiction {
  std::string rule, text;
};
using Objection = std::optional<Contradiction>;

/// The limits, in one place. Shares are of the lab's own window.
struct HonestyLimits {
  double clock_slack_s = 1e-4;     // stamps may be rounded
  double uncovered_share = 0.2;    // of a window, outside the steps
  double uncovered_s = 0.06;       // and so much besides: reading the loss, writing the answer
  double uncovered_first_s = 1.0;  // around the very first step
  double least_cpu_share = 0.25;   // of the claimed time, processor time used or waited for (device cpu)
  double least_throughput = 0.33;  // throughput step / latency step, on a CPU
  double least_throughput_gpu = 0.02;
  double most_throughput = 3;    // the same, the other way
  double least_work = 0.6;       // processor time a step, throughput / latency
  double least_decoding = 0.25;  // processor time a batch of phase load, of what the lab itself needs
  double measurable_s = 0.2;     // below this, processor times are too coarse to compare
  double cores = 1e9;            // that the driver may run on
};

/// The time that the driver claims for its steps.
double covered_s(const Timed& timed);

enum class Window { first_step, warm_up, timed };

/// One answer to `run` on its own. `updates_before`: those that the driver reported last.
Objection check_region(const Timed& timed, const Witness& seen, Window window, const std::string& phase,
                       const std::string& device, int64_t updates_before, const HonestyLimits& limits = {});

/// The two timed regions of one run against each other. `in_bursts`: samples that are made ahead come in bursts, so that a
/// synchronised step is the mean of all and not the median.
Objection check_regions(const Timed& throughput, const Witness& seen_throughput, const Timed& latency,
                        const Witness& seen_latency, const std::string& device,
                        const HonestyLimits& limits = {}, bool in_bursts = false);

/// The first step of a run, of training or inference, against the reference's, which are of f32. `numbers`: how many an output's sum
/// has. What the reference does not tell is not asked.
Objection check_first_step(const Timed& timed, const std::optional<double>& loss,
                           const std::optional<double>& output_sum, int64_t numbers,
                           const std::string& precision);

/// What all answers of one run say about the results: the loss must move (train), equal inputs must give equal sums (infer).
class ResultsWatch {
 public:
  /// `turns`: how many batches the driver takes in turns.
  ResultsWatch(std::string phase, int64_t turns, std::string precision);
  /// What the outputs of the last batch of a round add up to, by the reference; `numbers`: how many they are.
  void expect(double sum, int64_t numbers);
  Objection add(const Timed& timed);
  /// The loss at the end of the region before, where there was a finite one.
  std::optional<double> last_loss() const {
    return losses_.empty() ? std::nullopt : std::optional(losses_.back());
  }

 private:
  std::string phase_, precision_;
  double slack_ = 0;  // beside the reference
  int64_t turns_;
  std::vector<double> losses_;
  std::optional<double> reference_, sum_;
};

/// Phase fit. `tests`: how many test samples there are; 0: none. `parts`: the further parts of the data that are tested after the
/// last epoch; a driver that tests none of them says nothing wrong.
Objection check_fit(const Fitted& fit, const std::vector<std::string>& metrics, int64_t epochs, double cap_s,
                    int64_t tests, const Witness& seen, const HonestyLimits& limits = {},
                    const std::vector<std::string>& parts = {});

}  // namespace tandem::lab
