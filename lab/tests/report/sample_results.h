// A study's results made up for the tests of the report: two parts with three systems, one of them with a hostile name,
// epochs, traces, a gap with last words, numbers that are not finite.
#pragma once

#include <cmath>

#include "lab/src/record/record.h"

namespace tandem::lab::testing {

inline constexpr const char* kHostile = "<script>alert('x')</script>:\"é\"&";

inline Condition sample_condition(const std::string& phase, int64_t batch) {
  Condition c;
  c.workload = "lenet";
  c.phase = phase;
  c.batch = batch;
  c.input = {1, 28, 28};
  c.optimizer = phase == "infer" ? "" : "sgd";
  return c;
}

/// Run `block` of a system whose step takes about `step_s`.
inline Run sample_run(const std::string& part, const std::string& system, const Condition& condition,
                      int64_t block, double step_s) {
  Run run;
  run.part = part;
  run.system = system;
  run.condition = condition;
  run.block = block;
  run.started = "2026-01-02T03:04:05Z";
  const double wobble = 1 + 0.004 * std::sin(static_cast<double>(block) * 2.3 + step_s * 1000);
  run.metrics = {{"step.latency_s", step_s * wobble},
                 {"step.throughput_s", step_s * wobble * 0.97},
                 {"samples_per_s", static_cast<double>(condition.batch) / (step_s * wobble)},
                 {"cpu.percent", 80 + static_cast<double>(block % 3)},
                 {"rss.peak_mib", 300 + step_s * 10000}};
  run.data = "synthetic-mnist";
  run.unavailable = {{"gpu.percent", "libnvidia-ml.so.1 is not there"}};
  run.traces = {{"cpu.percent", "%", "/proc/stat", {0, 0.1, 0.2}, {70, 90, NAN}}};
  return run;
}

inline Json sample_figure(const char* kind, const std::vector<std::string>& metrics, const char* x = "") {
  return {{"kind", kind}, {"title", "A figure"}, {"counterpart", "Fig. 4"},
          {"note", ""},   {"metrics", metrics},  {"x", x}};
}

inline Results sample_results() {
  Results results;
  results.study = {
      {"name", "test"},
      {"title", "A study of <nothing> & more"},
      {"paper", "000"},
      {"question", "Which is faster?"},
      {"parts",
       {{{"name", "learning"},
         {"title", "Learning"},
         {"counterpart", "Fig. 4"},
         {"phase", "train"},
         {"track", "equal"},
         {"figures",
          {sample_figure("box", {"step.latency_s"}), sample_figure("bars", {"samples_per_s", "gpu.percent"}),
           sample_figure("lines", {"step.latency_s"}, "batch"), sample_figure("timeline", {"cpu.percent"}),
           sample_figure("table", {"step.latency_s", "rss.peak_mib", "gpu.percent"}),
           sample_figure("scatter", {"cpu.percent", "rss.peak_mib"})}}},
        {{"name", "curves"},
         {"title", "Curves"},
         {"phase", "fit"},
         {"track", "as_shipped"},
         {"figures",
          {sample_figure("convergence", {"fit.accuracy"}), sample_figure("confusion", {"fit.accuracy"}),
           sample_figure("spiral", {"fit.accuracy"})}}}}},
      {"missing", {{{"part", "later"}, {"what", "Table 7"}, {"why", "it needs four GPUs"}}}}};
  results.provenance = {{"cpu", {{"model", "A processor"}, {"flags", std::string(900, 'x')}}},
                        {"warnings", {"load average 3.1"}}};
  for (int64_t block = 0; block < 8; ++block) {
    for (const int64_t batch : {int64_t{32}, int64_t{64}}) {
      const Condition c = sample_condition("train", batch);
      const double scale = static_cast<double>(batch) / 64;
      results.runs.push_back(sample_run("learning", "tandem:graph", c, block, 0.003 * scale));
      results.runs.push_back(sample_run("learning", "pytorch:eager", c, block, 0.015 * scale));
      results.runs.push_back(sample_run("learning", kHostile, c, block, 0.02 * scale));
      Run control = sample_run("learning", "tandem:graph", c, block, 0.003 * scale);
      control.control = "A/A";
      results.runs.push_back(control);
    }
    Condition fit = sample_condition("fit", 64);
    fit.track = "as_shipped";
    Run run = sample_run("curves", "tandem:graph", fit, block, 0.003);
    for (int64_t epoch = 1; epoch <= 4; ++epoch) {
      const double rise = 1 - 0.5 / static_cast<double>(epoch);
      run.epochs.push_back({epoch,
                            1.5,
                            0.2,
                            1 - rise,
                            1 - rise,
                            {{"accuracy", rise}},
                            {{"accuracy", rise - 0.01 * static_cast<double>(block % 2)}}});
    }
    if (block == 7) run.epochs.back().loss = NAN;  // one that diverged
    run.confusion = {{9, 1}, {2, 8}};
    run.metrics["fit.accuracy"] = 0.87;
    results.runs.push_back(run);
  }
  Run crash = sample_run("learning", "jax:jit", sample_condition("train", 64), 0, 0.01);
  crash.status = Status::crashed;
  crash.why = "ended by signal 11";
  crash.last_words = "Segmentation fault </pre><b>\x01";
  crash.metrics.clear();
  results.runs.push_back(crash);
  return results;
}

}  // namespace tandem::lab::testing
