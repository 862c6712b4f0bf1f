// The lab's side of lab/docs/protocol.md: typed calls to one driver. Every answer is checked field by field; whatever goes
// wrong becomes a DriverFailure that says how the run ended, and the driver's last words.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/src/driver/process.h"
#include "lab/src/record/record.h"

namespace tandem::lab {

/// A call that came to nothing. what() is the reason, in one line.
class DriverFailure : public std::runtime_error {
 public:
  DriverFailure(Status status, const std::string& why, std::string last_words, std::string what = "")
      : std::runtime_error(why),
        status(status),
        last_words(std::move(last_words)),
        declined(std::move(what)) {}
  Status status;
  std::string last_words;
  std::string declined;  // of status declined: what the driver cannot obey
};

/// The user asked the lab to stop while it waited for a driver.
class Stopped : public std::runtime_error {
 public:
  Stopped() : std::runtime_error("stopped") {}
};

/// How long the lab waits for each answer, in seconds.
struct Patience {
  double hello_s = 180, prepare_s = 300, check_s = 600, first_step_s = 900, run_s = 120, epoch_s = 900,
         breakdown_s = 300;
  double quit_s = 10;
};

struct Hello {
  std::string framework, version;
  std::vector<std::string> variants, devices, kinds, losses, listings, phases, precisions;
  std::map<std::string, std::vector<std::string>> switches;
  bool trims = false;  // takes batches that are trimmed to their longest sample
  Json answer;         // whole, for the record
};

struct Preparation {
  Json workload;  // the definition, with the cell's optimiser in it
  Json network;   // as lab/docs/protocol.md has it
  std::string definition = "description";
  std::string variant, phase, track = "equal", device = "cpu", precision = "f32";
  int64_t batch = 1, threads = 1;
  uint64_t seed = 0;
  bool dropout = true;
  Json weights;  // {"file": …} or {"hash": …}; null: absent
  Json data;
  Json trim = nullptr;  // what lengths trim of each batch; null: absent
  std::map<std::string, std::string> switches;
  Json request() const;
};

struct Prepared {
  int64_t parameters = 0;
  double seconds = 0;
  std::map<std::string, std::string> obeyed;
  std::vector<std::string> notes;
};

/// An output of the network: all elements, or the protocol's choice of them.
struct CheckedOutput {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
struct Checked {
  int64_t parameters = 0;
  std::map<std::string, CheckedOutput> outputs;
  double loss = 0;
  std::map<std::string, double> gradients;
  std::vector<double> losses;
};

enum class Region { latency, throughput };

/// An answer to `run`, and when the lab asked and heard it, by the lab's own clock.
struct Timed {
  Region region = Region::latency;
  int64_t asked = 0;  // steps
  int64_t sent_ns = 0, received_ns = 0;
  std::vector<std::pair<int64_t, int64_t>> steps;  // latency
  int64_t begin_ns = 0, end_ns = 0,
          count = 0;  // throughput; of latency: the first begin, the last end, all steps
  std::optional<double> loss, output_sum;
  int64_t updates = 0;
  // Where batches come from the driver's pipeline: sums of the last one by name, and how long steps waited for theirs.
  std::optional<std::map<std::string, double>> samples_sum;
  std::optional<int64_t> wait_ns;
};

struct FitEpoch {
  int64_t epoch = 0, begin_ns = 0, train_end_ns = 0, end_ns = 0, received_ns = 0;
  double loss = 0;
  std::optional<double> test_loss;
  std::map<std::string, double> metrics, test_metrics;
};

struct Fitted {
  int64_t sent_ns = 0, received_ns = 0;
  std::vector<FitEpoch> epochs;
  bool capped = false;
  std::vector<std::vector<int64_t>> confusion;
  std::map<std::string, std::map<std::string, double>>
      tests;  // of further parts of the data, by name: metrics
};

class Client {
 public:
  /// Starts the driver. A program that cannot be started is a DriverFailure of status absent.
  explicit Client(const ProcessOptions& options, const Patience& patience = {});
  ~Client();
  Client(Client&&) noexcept;

  Hello hello();
  Prepared prepare(const Preparation& preparation);
  /// `steps` of 0 asks for what phases infer and load give: parameters and outputs.
  Checked check(int64_t steps);
  Timed run(Region region, int64_t steps, double patience_s);
  Fitted fit(int64_t epochs, double cap_s, const std::function<void(const FitEpoch&)>& on_epoch = {});
  Json breakdown(int64_t steps);
  /// Asks for the end, and makes sure of it. A driver that has answered everything and then ends badly is no failure.
  void quit();

  pid_t pid() const;
  const Patience& patience() const { return patience_; }
  std::string last_words();
  double start_s() const { return start_s_; }  // from the start of the process to its answer to hello

 private:
  Json call(Json request, double patience_s, const std::function<void(const Json&)>& on_progress = {});
  Json next_answer(const std::string& name, int64_t deadline_ns);
  [[noreturn]] void fail(Status status, const std::string& why);
  [[noreturn]] void fail_closed(const std::string& name, const std::string& rest);

  std::unique_ptr<Process> process_;
  Patience patience_;
  int64_t id_ = 0, started_ns_ = 0, sent_ns_ = 0, received_ns_ = 0;
  double start_s_ = 0;
};

}  // namespace tandem::lab
