// Studies and workloads: what is to be measured. A study's file names parts (each a table or figure of a paper), and a
// part expands to cells: one system under one condition. lab/docs/studies.md describes the files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/src/record/record.h"
#include "lab/src/study/table.h"

namespace tandem::lab {

/// What the numbers of a study's or a workload's file may be, and the flags that stand for them.
namespace limits {
inline constexpr Whole runs{1, 10'000}, warmup_steps{0, 100'000}, timed_steps{1, 1'000'000},
    epochs{1, 1'000'000}, batch{1, 1 << 20}, size{1, 1 << 16}, picture{1, 1 << 13}, classes{1, 1 << 24},
    gate_steps{0, 1000}, stride{1, 1024}, samples{0, 1 << 20}, seed{0, INT64_MAX};
inline constexpr Real seconds{0, 7 * 86'400}, accuracy{0, 1}, learning_rate{0, 1e6}, noise{0, 1000};
inline constexpr Real number{-1e15, 1e15};  // what a paper published, and the bounds of a claim
inline constexpr int64_t sample = 1 << 28;  // numbers of one sample
inline constexpr size_t cells = 10'000;     // of a study
}  // namespace limits

/// Where studies/ and drivers/ lie: $TANDEM_LAB_HOME, or lab/ of the source tree that the program was built from, or
/// share/tandem/lab beside an installed program. Throws Error where none holds studies/.
std::string lab_home();

/// How samples are made of image files: [images] of a workload. Each is cut to the size of the network's input.
struct ImageRule {
  int64_t resize = 256;  // pixels of the shorter side
  std::vector<double> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};  // of each channel, 0 to 1
};

/// A workload, checked: studies/workloads/NAME.toml, or one that a study brings along. `definition` is the whole of it.
struct Workload {
  std::string name, title, network, data;
  std::string file;  // that it stands in
  Json description;  // of the network, as its file would say it; null: it is networks/NETWORK.toml
  std::vector<int64_t>
      input;           // sizes of a sample, where the network's only input shall have others than its own
  Json targets, loss;  // as the protocol has them; every target with its type and shape
  std::vector<std::string> metrics;
  Json trim = Json::
      object();  // phase fit: {LENGTH: {"of": [names], "multiple": n}}; lengths whose longest in a batch trims it
  std::vector<double> noise;  // deviations of what is added to the inputs of further tests after `fit`
  int64_t batch = 0;
  int64_t samples = 0;  // how many are made up for phase fit; 0: as many as fit into a bound
  std::string precision = "f32";
  std::optional<ImageRule> images;  // unset: samples are arrays
  Json definition;

  /// The loss as a list: those that a sum adds up, or itself alone.
  Json loss_terms() const;
  /// Of the target of a cross-entropy; 0: there are none.
  int64_t classes() const;
};
std::vector<std::string> workload_names();
Workload load_workload(const std::string& name);

/// All workloads by name: those that a study brings along, and the files.
class Workloads {
 public:
  Workloads() = default;
  explicit Workloads(std::vector<Workload> own) : own_(std::move(own)) {}

  const std::vector<Workload>& own() const { return own_; }
  bool has(const std::string& name) const;
  /// Throws Error, with the names that there are.
  Workload load(const std::string& name) const;

 private:
  std::vector<Workload> own_;
};

/// How long a cell's run is.
struct Effort {
  int64_t runs = 8;           // blocks: fresh processes per cell
  int64_t warmup_steps = 10;  // at least; goes on until steady, at most 10 times as many
  int64_t timed_steps = 200;  // a region; more where they last less than least_s
  double timed_s = 20;        // a run's timed steps end after this many seconds, but not before 5 steps
  double least_s = 0.5;       // a region of short steps goes on so long: monitors need time to see something
  int64_t epochs = 0;         // phase fit; 0: the workload's
  double cap_s = 600;  // phase fit: training stops after the epoch in which this passed; the curve is kept
  bool breakdown = false;  // ask the driver where a step's time goes, after the timed steps of the first run
};

/// One system under one condition.
struct Cell {
  std::string part, system;
  std::string control;  // "A/A" for the second, identical member of the control pair
  Condition condition;
  Effort effort;
  Json optimizer;  // the workload's or the study's, as `prepare` carries it; null in phase infer
};

/// Something that the study asks for and that cannot be run now: a model, a device or a framework that is not there.
struct Missing {
  std::string part, what, why;
};

/// What the command line narrows or changes.
struct PlanOptions {
  std::vector<std::string> frameworks;  // "tandem", "pytorch:eager"; empty: the study's
  std::vector<std::string> workloads;   // empty: the study's
  std::vector<std::string> parts;       // empty: all
  std::string device;                   // empty: the study's
  std::string drivers;                  // a file with further drivers; empty: none
  bool quick = false;
  std::optional<int64_t> runs;
  std::optional<std::vector<std::string>> present;  // devices of the machine; unset: looked for
};

struct Plan {
  std::string name;  // "000"
  Json study;        // the file, resolved: title, paper, question, parts, options; goes into study.json
  std::vector<Cell> cells;  // in the order of the file; the runner interleaves
  std::vector<Missing> missing;
  Workloads workloads = {};  // that the cells name
};

std::vector<std::string> study_names();
/// `name`: a study of studies/, or the path of a file. Throws Error for a file that breaks a rule: which and where.
Plan make_plan(const std::string& name, const PlanOptions& options = {});
/// Those of the study, by its name or its file's path.
Workloads workloads_of(const std::string& name);

}  // namespace tandem::lab
