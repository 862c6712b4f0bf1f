// The call `breakdown`: what the graph engine made of a step, and where its time goes.
#include <algorithm>
#include <cstdlib>

#include "lab/own/op_clock.h"
#include "lab/own/prepared_cell.h"

namespace tandem::lab::own {
namespace {

constexpr size_t kShownOps = 10;

/// "cpu: 38 kernels in order" -> 38; nothing where the text is another ("recorded, replayed as one").
std::optional<int64_t> kernels_in(const std::string& executor) {
  const size_t end = executor.find(" kernels");
  if (end == std::string::npos) return {};
  const size_t begin = executor.find_last_of(' ', end - 1) + 1;
  return std::strtoll(executor.c_str() + begin, nullptr, 10);
}

/// The operation and the algorithm of a node's line: "%6 f32 (2,) = conv[stride=1](%0 f32 (2,)); direct".
std::pair<std::string, std::string> op_and_algorithm(const std::string& line) {
  const size_t cut = line.rfind("); "), begin = line.find(" = ");
  if (cut == std::string::npos || begin == std::string::npos) return {};
  const size_t end = line.find_first_of("[({", begin + 3);
  return {line.substr(begin + 3, end - begin - 3), line.substr(cut + 3)};
}

void add_report(const GraphReport& report, Json& answer) {
  const auto nodes = static_cast<int64_t>(report.nodes.size());
  answer["nodes_before"] = report.passes.empty() ? nodes : report.passes.front().nodes_before;
  answer["nodes_after"] = nodes;
  answer["passes"] = Json::object();
  for (const PassReport& pass : report.passes)
    answer["passes"][pass.pass] = {
        {"expensive", pass.removed_expensive}, {"cheap", pass.removed_cheap}, {"no_op", pass.removed_no_op}};
  answer["choices"] = Json::object();
  std::map<std::string, int> count;  // the first convolution is "conv 1"
  for (const std::string& line : report.nodes)
    if (const auto [op, algorithm] = op_and_algorithm(line); !op.empty())
      answer["choices"][cat(op, " ", ++count[op])] = algorithm;
}

}  // namespace

Json PreparedCell::breakdown(const Json& request) {
  const int64_t steps = integer_field(request, "steps", 1, 100'000, 5);
  const Batches& batches = resident();
  const bool is_graph = request_.engine == Engine::graph;
  const auto run_steps = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) step(batches[static_cast<size_t>(i) % batches.size()]);
    synchronize();
  };
  // A graph keeps the kernels that it was compiled with: a fresh one has those of the clock.
  const auto compile_anew = [&] {
    compiled_forward_.reset();
    if (training_)
      training_ = std::make_unique<TrainingStep>(*model_, *optimizer_, request_.engine,
                                                 StepOptions{.compile = request_.compile});
  };
  Json answer;
  std::vector<OpTime> times;
  int64_t ns = 0;
  std::optional<int64_t> kernels;
  {
    std::optional<OpClock> clock;
    if (request_.device.is_cpu()) clock.emplace();
    compile_anew();
    run_steps(1);
    if (is_graph) {  // after one step: a second is recorded, where the device records, and shows no kernels any more
      const std::vector<GraphReport> reports =
          training_ ? training_->reports() : compiled_forward_->reports();
      TD_ASSERT(!reports.empty(), "a compiled step has a report");
      add_report(reports.back(), answer);
      kernels = kernels_in(reports.back().executor);
    }
    if (clock) clock->clear();
    const int64_t begin = now_ns();
    run_steps(steps);
    ns = now_ns() - begin;
    if (clock) times = clock->times();
  }
  compile_anew();
  answer["source"] =
      cat("Tandem: ", is_graph ? "the graph engine's report" : "", is_graph && !times.empty() ? " and " : "",
          times.empty() ? "" : "its kernels on the clock");
  if (!times.empty() && ns > 0) {
    int64_t in_kernels = 0, calls = 0;
    const auto share = [&](int64_t part) { return static_cast<double>(part) / static_cast<double>(ns); };
    const auto row = [&](const std::string& name, int64_t part, int64_t count) {
      return Json::array({name, share(part), static_cast<double>(count) / static_cast<double>(steps)});
    };
    answer["ops"] = Json::array();
    for (const OpTime& time : times) {
      in_kernels += time.ns;
      calls += time.calls;
      if (answer["ops"].size() < kShownOps) answer["ops"].push_back(row(time.op, time.ns, time.calls));
    }
    if (!is_graph) {
      answer["kernel_share"] = share(in_kernels);
      kernels = calls / steps;
    } else if (ns > in_kernels) {  // what no operation owns, the engine's own work with it
      answer["ops"].push_back(row("fused chains and the engine", ns - in_kernels, 0));
      answer["ops"].back()[2] =
          static_cast<double>(*kernels) - static_cast<double>(calls) / static_cast<double>(steps);
      std::stable_sort(answer["ops"].begin(), answer["ops"].end(),
                       [](const Json& a, const Json& b) { return a[1] > b[1]; });
      if (answer["ops"].size() > kShownOps) answer["ops"].erase(kShownOps);
    }
  }
  if (kernels) answer["launches"] = *kernels;
  return answer;
}

}  // namespace tandem::lab::own
