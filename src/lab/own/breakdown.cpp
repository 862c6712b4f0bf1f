// The call `breakdown`: what the graph engine made of a step, and where its time goes.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "lab/own/op_clock.h"
#include "lab/own/prepared_cell.h"
#include "tandem/core/backend.h"

namespace tandem::lab::own {
namespace {

constexpr size_t kShownOps = 10;
constexpr int64_t kSettling = 3;  // steps until a graph is recorded and replayed

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

/// The shares of a step that has `steps` equal ones in `ns`: of the kernels by name, the longest first.
class Shares {
 public:
  Shares(int64_t steps, int64_t ns) : steps_(static_cast<double>(steps)), ns_(static_cast<double>(ns)) {}
  double of(int64_t part) const { return static_cast<double>(part) / ns_; }
  Json ops(const std::vector<OpTime>& times) const {
    Json rows = Json::array();
    for (const OpTime& time : times)
      if (rows.size() < kShownOps)
        rows.push_back({time.op, of(time.ns), static_cast<double>(time.calls) / steps_});
    return rows;
  }

 private:
  double steps_, ns_;
};

/// How long at least one of them ran. They come in the order of their beginnings.
int64_t covered(const std::vector<DeviceActivity>& activities, bool copies) {
  int64_t total = 0, reached = std::numeric_limits<int64_t>::min();
  for (const DeviceActivity& each : activities)
    if (each.is_copy == copies) {
      total += std::max<int64_t>(0, each.end_ns - std::max(each.begin_ns, reached));
      reached = std::max(reached, each.end_ns);
    }
  return total;
}

/// "void tandem::cuda::(anonymous namespace)::sum_rows<float, 4>(…)" -> "sum_rows".
std::string short_name(const std::string& kernel) {
  const std::string unnamed = "(anonymous namespace)::";
  std::string name = kernel;
  for (size_t at; (at = name.find(unnamed)) != std::string::npos;) name.erase(at, unnamed.size());
  name = name.substr(0, std::min(name.find('('), name.find('<')));
  if (const size_t space = name.rfind(' '); space != std::string::npos) name = name.substr(space + 1);
  if (const size_t colons = name.rfind("::"); colons != std::string::npos) name = name.substr(colons + 2);
  return name.empty() ? kernel : name;
}

std::vector<OpTime> by_kernel(const std::vector<DeviceActivity>& activities) {
  std::map<std::string, OpTime> sums;
  for (const DeviceActivity& each : activities) {
    const std::string name = each.is_copy ? each.name : short_name(each.name);
    OpTime& sum = sums[name];
    sum.op = name;
    ++sum.calls;
    sum.ns += each.end_ns - each.begin_ns;
  }
  std::vector<OpTime> times;
  for (auto& [name, sum] : sums) times.push_back(std::move(sum));
  std::stable_sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
  return times;
}

}  // namespace

/// Compiles afresh: a graph keeps the kernels that it was compiled with.
void PreparedCell::compile_anew() {
  compiled_forward_.reset();
  if (training_)
    training_ = std::make_unique<TrainingStep>(*model_, *optimizer_, request_.engine,
                                               StepOptions{.compile = request_.compile});
}

/// Takes so many steps; -> how long they took, in nanoseconds.
int64_t PreparedCell::take_steps(int64_t count) {
  const Batches& batches = resident();
  const int64_t begin = now_ns();
  for (int64_t i = 0; i < count; ++i) step(batches[static_cast<size_t>(i) % batches.size()]);
  synchronize();
  return now_ns() - begin;
}

/// What the graph engine made of the step that was taken last; -> the kernels that it starts, where it tells.
std::optional<int64_t> PreparedCell::add_graph_report(Json& answer) {
  const std::vector<GraphReport> reports = training_ ? training_->reports() : compiled_forward_->reports();
  TD_ASSERT(!reports.empty(), "a compiled step has a report");
  add_report(reports.back(), answer);
  return kernels_in(reports.back().executor);
}

/// On the CPU by operation: kernels stand on the clock, and so does the step.
void PreparedCell::break_down_cpu(int64_t steps, Json& answer) {
  const bool is_graph = request_.engine == Engine::graph;
  std::optional<int64_t> launches;
  std::vector<OpTime> times;
  int64_t ns = 0;
  {
    OpClock clock;
    compile_anew();
    take_steps(1);
    if (is_graph) launches = add_graph_report(answer);
    clock.clear();
    ns = take_steps(steps);
    times = clock.times();
  }
  compile_anew();
  answer["source"] = is_graph ? "Tandem: the graph engine's report and its kernels on the clock"
                              : "Tandem: its kernels on the clock";
  const Shares shares(steps, ns);
  answer["ops"] = shares.ops(times);
  int64_t in_kernels = 0, calls = 0;
  for (const OpTime& time : times) {
    in_kernels += time.ns;
    calls += time.calls;
  }
  if (!is_graph) {
    answer["kernel_share"] = shares.of(in_kernels);
    launches = calls / steps;
  } else if (launches && ns > in_kernels) {  // what no operation owns, the engine's own work with it
    answer["ops"].push_back(
        {"fused chains and the engine", shares.of(ns - in_kernels),
         static_cast<double>(*launches) - static_cast<double>(calls) / static_cast<double>(steps)});
    std::stable_sort(answer["ops"].begin(), answer["ops"].end(),
                     [](const Json& a, const Json& b) { return a[1] > b[1]; });
    if (answer["ops"].size() > kShownOps) answer["ops"].erase(kShownOps);
  }
  if (launches) answer["launches"] = *launches;
}

/// On a GPU by kernel, from the device's own clock, against the time of as many steps that nobody watched.
void PreparedCell::break_down_device(int64_t steps, Json& answer) {
  take_steps(1);
  answer["source"] = "Tandem: ";
  if (request_.engine == Engine::graph) {
    if (const auto launches = add_graph_report(answer)) answer["launches"] = *launches;
    answer["source"] = "Tandem: the graph engine's report; ";
  }
  take_steps(kSettling);
  const int64_t ns = take_steps(steps);
  std::vector<DeviceActivity> activities;
  try {
    activities = backend(request_.device).trace(request_.device, [&] { take_steps(steps); });
  } catch (const Error& error) {  // the shares stay unknown
    answer["source"] = cat(answer["source"].get<std::string>(), error.what());
    return;
  }
  const Shares shares(steps, ns);
  answer["source"] = cat(answer["source"].get<std::string>(), "CUPTI, against steps without it");
  answer["ops"] = shares.ops(by_kernel(activities));
  answer["kernel_share"] = shares.of(covered(activities, false));
  answer["copy_share"] = shares.of(covered(activities, true));
  const auto kernels =
      std::count_if(activities.begin(), activities.end(), [](const auto& a) { return !a.is_copy; });
  answer["launches"] = static_cast<double>(kernels) / static_cast<double>(steps);
}

Json PreparedCell::breakdown(const Json& request) {
  const int64_t steps = integer_field(request, "steps", 1, 100'000, 5);
  Json answer;
  if (request_.device.is_cpu())
    break_down_cpu(steps, answer);
  else
    break_down_device(steps, answer);
  return answer;
}

}  // namespace tandem::lab::own
