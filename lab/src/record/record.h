// What a study leaves on disk: one record a run, appended to runs.jsonl as soon as the run ends, and read back for the
// statistics and the report. Nothing is computed here.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tandem::lab {

using Json = nlohmann::json;

/// What is held fixed when systems are compared. Two runs may be compared only where all of it is equal.
struct Condition {
  std::string workload;  // "lenet"
  std::string phase;     // "train", "infer", "fit" (whole epochs with tests) or "load" (batches of files)
  std::string track = "equal";  // or "as_shipped"
  std::string device = "cpu";   // or "cuda:0"
  std::string precision = "f32";
  int64_t batch = 0;
  std::vector<int64_t> input;                   // sizes of one sample
  std::string optimizer;                        // of phases train and fit; "" in the others
  std::map<std::string, std::string> switches;  // what the study turns; "" keys do not occur

  auto operator<=>(const Condition&) const = default;
  /// "lenet train, batch 100, cpu, f32": what distinguishes it, for people. Stable: used as a key in files too.
  std::string text() const;
};

/// The switch that the lab itself obeys: where image files lie. No driver is told of it.
inline constexpr const char* kStorage = "storage";

/// Whether a phase trains: it has an optimiser and a loss.
inline bool trains(const std::string& phase) { return phase == "train" || phase == "fit"; }

/// How a run ended. Only `ok` runs are measured; each other kind has its reason in `why`.
enum class Status {
  ok,
  absent,          // the driver is not installed
  declined,        // the driver says that it cannot obey, by name
  not_same_model,  // the equivalence gate failed
  dishonest,       // the driver's times or results contradict the lab's own observation
  disturbed,       // other work on the machine went beyond the limits of method.md
  out_of_memory,
  crashed,  // ended by itself: status or signal in `why`
  hung,     // no answer in time
  garbage,  // an answer that is not the protocol's
  failed,   // the driver said so
};
std::string to_string(Status status);
Status parse_status(const std::string& text);

/// One epoch of phase fit. Times in seconds.
struct Epoch {
  int64_t epoch = 0;
  double train_s = 0, test_s = 0;
  double loss = 0;
  std::optional<double> test_loss = {};
  std::map<std::string, double> metrics = {},
                                test_metrics = {};  // of training, where they were followed; of the test
  std::optional<double> rss_mib = {};               // of the driver's processes when it had ended
};

/// Readings of one monitor over a run, thinned for drawing: seconds since the first step, and the value.
struct Trace {
  std::string metric, unit, source;  // "cpu.percent", "%", "/proc/stat"
  std::vector<double> seconds, values;
};

struct Run {
  std::string part;     // the part of the study that asked for it: "training_time"
  std::string system;   // "pytorch:eager"
  std::string control;  // "": an ordinary run; "A/A": the second, identical member of the control
  Condition condition;
  int64_t block = 0;  // runs of one block are a pair: taken close together in random order
  int64_t order = 0;  // place within the block
  uint64_t seed = 0;
  std::string data;     // the samples that it saw: "mnist", "synthetic-mnist"; "" where it did not get so far
  std::string started;  // UTC, ISO 8601
  Status status = Status::ok;
  std::string why;         // one line, where status is not ok
  std::string last_words;  // the end of the driver's standard error, where status is not ok
  std::string
      disturbed;  // what other work the machine did beside it, beyond the limits; "": none, or not recorded

  /// Scalars of this run by name. Names and units stand in lab/docs/metrics.md; what could not be had is in
  /// `unavailable` with its reason, and never zero.
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> unavailable;
  std::map<std::string, std::string> sources;  // of monitors' numbers: the file or the library's function
  std::vector<std::string> notes;  // of monitors: what was read less often, a GPU that was throttled
  std::vector<double> step_s;      // latencies of the timed steps
  std::vector<Epoch> epochs;       // phase fit
  std::vector<std::vector<int64_t>> confusion;
  std::vector<Trace> traces;
  Json breakdown;  // the driver's answer, or null
  Json gate;       // what the gate compared: {"passed": true, "worst": {...}}
  Json hello;      // versions
};

/// Whether samples of that name are real ones, and not made up where a data set's files were not there. What is not known
/// is not real.
bool is_real_data(const std::string& name);

Json to_json(const Run& run);
Run run_from_json(const Json& json);

/// A study's folder, read.
struct Results {
  std::string folder;
  Json study;       // study.json: the plan as it was resolved, with title, paper, parts and options
  Json provenance;  // provenance.json
  std::vector<Run> runs;
};

/// Reads study.json, provenance.json and runs.jsonl, or runs.jsonl.gz as gzip makes it. A last line that a kill cut off is left out. Throws Error for a
/// folder that holds no study.
Results load_results(const std::string& folder);

/// Appends one record and makes it durable (fsync) before it returns. A torn last line of an earlier kill is cut first.
void append_run(const std::string& folder, const Run& run);

}  // namespace tandem::lab
