// A study's file, read and checked but not yet expanded. lab/docs/studies.md describes it for people.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/src/study/study.h"

namespace tandem::lab {

/// Changes of an Effort: only what the file names.
struct EffortChange {
  std::optional<int64_t> runs, warmup_steps, timed_steps, epochs;
  std::optional<double> timed_s, least_s, cap_s;
  std::optional<bool> breakdown;
};
void apply(const EffortChange& change, Effort& effort);

/// What a part multiplies. An empty list means: as the study says, or as the workload says.
struct Axes {
  std::vector<std::string> frameworks, workloads, device, precision;
  std::vector<int64_t> batch;
  std::vector<std::vector<int64_t>> input;
  std::vector<Json> optimizer;  // names, or tables with a name
  std::vector<std::map<std::string, std::string>> switches;
};

/// What a figure or table of the report shows of a part.
struct Figure {
  std::string kind;  // "box", "bars", "lines", "convergence", "timeline", "table", "confusion", "scatter"
  std::string counterpart;  // "Fig. 4"
  std::string title, note;
  std::vector<std::string> metrics;
  std::string
      x;  // of lines and bars: "batch", "input", "precision", "device", "optimizer", "switches", "workload", "system"
};

struct Part {
  std::string name, title, counterpart, note;
  std::string phase, track;
  Axes axes;
  std::optional<std::string> control;  // unset: the study's; "": none
  EffortChange effort;
  // With --quick: lists that replace those of `axes`, further changes of effort, or the reason to leave it all out.
  Axes quick_axes;
  EffortChange quick_effort;
  std::optional<std::string> quick_control;
  std::string quick_skip;
  std::vector<Figure> figures;
};

struct StudyFile {
  std::string name, path, title, paper, question, control;
  std::vector<std::string> hypotheses;
  Axes axes;  // frameworks, workloads and device that parts inherit
  EffortChange effort, quick_effort;
  std::vector<Part> parts;
  std::vector<Missing> missing;  // what the file itself says that it cannot have
  Workloads workloads = {};      // with those that it brings along
};

/// An optimiser as workloads and studies write it: a name, a learning rate and what else that optimiser takes
/// (protocol/optimizer.h). Throws Error, in the name of the table that holds it.
void check_optimizer(const Table& owner, const std::string& key, const Json& optimizer);
/// Refuses metrics of a figure of that kind that nothing can measure.
void check_metrics(const Table& owner, const std::string& kind, const std::vector<std::string>& wanted);
/// The sizes of a sample, each within its limits already: together they must be, too.
void check_sample(const Table& owner, const std::string& key, const std::vector<int64_t>& sizes);

/// A workload as a file or a study's [[workload]] has it. `where` begins messages, "" at the top of a file.
Workload read_workload(const std::string& file, const std::string& where, const Json& json);

/// Throws Error for a file that breaks a rule.
StudyFile read_study(const std::string& name, const std::string& path);

/// The cells of a study, from a file or made in code. Throws Error for names that nobody knows.
Plan expand_study(const StudyFile& study, const PlanOptions& options);

}  // namespace tandem::lab
