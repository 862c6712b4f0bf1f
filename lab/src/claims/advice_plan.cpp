// The sweep behind `advise`: systems × batch sizes × precisions of one workload.
#include <algorithm>

#include "lab/src/claims/advise.h"
#include "lab/src/study/catalogue.h"
#include "lab/src/study/schema.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

/// The systems that are tried: all that drivers.toml lists but the frameworks of the past, which 003 alone asks for. Quick:
/// without those that compile for longer than they are measured.
std::vector<std::string> systems_to_try(const std::string& phase, bool gpu, bool quick) {
  std::vector<std::string> systems = {"tandem:eager", "tandem:graph", "pytorch:eager", "tensorflow:function",
                                      "jax:jit"};
  if (!quick) systems.insert(systems.end(), {"pytorch:compile", "libtorch:eager", "tensorflow:xla"});
  if (gpu) systems.push_back("pytorch:captured");
  if (phase == "infer") systems.push_back("onnxruntime:graph");
  return systems;
}

/// A quarter of the workload's batch, the batch, and four and sixteen times it; quick: the batch and four times it. For
/// memory the smaller ones matter instead.
std::vector<int64_t> batches_to_try(int64_t usual, Goal goal, bool quick, const std::string& phase) {
  std::vector<int64_t> batches;
  const auto add = [&](int64_t batch) {
    if (batch >= 1 && std::find(batches.begin(), batches.end(), batch) == batches.end())
      batches.push_back(batch);
  };
  if (phase == "infer") add(1);
  if (goal == Goal::memory || !quick) add(std::max<int64_t>(1, usual / 4));
  add(usual);
  if (goal != Goal::memory) add(usual * 4);
  if (goal != Goal::memory && !quick) add(usual * 16);
  std::sort(batches.begin(), batches.end());
  return batches;
}

}  // namespace

std::string to_string(Goal goal) {
  switch (goal) {
    case Goal::time:
      return "time";
    case Goal::memory:
      return "memory";
    case Goal::energy:
      return "energy";
  }
  return "?";
}

Goal parse_goal(const std::string& text) {
  for (const Goal goal : {Goal::time, Goal::memory, Goal::energy}) {
    if (text == to_string(goal)) return goal;
  }
  throw Error(str("advise: the goal must be time, memory or energy; got '", io::one_line(text, 80),
                  "'. Choose one of them."));
}

Plan make_advice_plan(const std::string& model, const std::string& device, Goal goal, bool quick,
                      const std::string& phase) {
  TD_CHECK(phase == "train" || phase == "infer", "advise: the phase must be train or infer; got '",
           io::one_line(phase, 80), "'. Choose one of them.");
  const Workload workload = load_workload(model);
  const std::vector<std::string> there = present_devices();
  const bool first_gpu = std::find(there.begin(), there.end(), "cuda:0") != there.end();
  const std::string chosen = device.empty() || device == "auto" ? (first_gpu ? "cuda:0" : "cpu")
                             : device == "cuda"                 ? "cuda:0"
                                                                : device;
  std::string have;
  for (const std::string& name : there) have += (have.empty() ? "" : ", ") + name;
  TD_CHECK(std::find(there.begin(), there.end(), chosen) != there.end(),
           "advise: the device must be one of this machine, ", have, "; got '", io::one_line(chosen, 80),
           "'. Leave --device out to take the first GPU, or the processor.");
  const bool gpu = chosen != "cpu";

  StudyFile study;
  study.name = "advise";
  study.path = "advise " + model;
  study.title = "Advice for " + workload.title + " on " + chosen;
  study.question = "Which framework, engine, batch size and precision take least " + to_string(goal) + "?";
  study.control = "tandem:graph";
  study.axes.frameworks = systems_to_try(phase, gpu, quick);

  Part part;
  part.name = "sweep";
  part.title = phase == "train" ? "Training steps" : "Inference";
  part.phase = phase;
  part.track = "equal";
  part.axes.workloads = {model};
  part.axes.device = {chosen};
  part.axes.batch = batches_to_try(workload.batch, goal, quick, phase);
  part.axes.precision = {"f32"};
  if (gpu) part.axes.precision.push_back("tf32");
  if (gpu || !quick) part.axes.precision.push_back("bf16");
  part.effort.runs = quick ? 6 : 12;
  part.effort.warmup_steps = quick ? 3 : 10;
  part.effort.timed_steps = quick ? 60 : 200;
  part.effort.timed_s = quick ? 2.0 : 10.0;
  part.effort.breakdown = true;
  part.figures = {
      {"lines", "", "Samples a second by batch size", "", {"samples_per_s"}, "batch"},
      {"table",
       "",
       "The sweep",
       "",
       {"step.throughput_s", "samples_per_s", "rss.peak_mib", "gpu.memory_peak_mib", "step.energy_j"},
       ""}};
  study.parts.push_back(std::move(part));

  PlanOptions options;
  options.quick = quick;
  Plan plan = expand_study(study, options);
  plan.study["advise"] = {{"model", model}, {"device", chosen}, {"goal", to_string(goal)}, {"phase", phase}};
  return plan;
}

}  // namespace tandem::lab
