// The call `breakdown`: what the graph engine made of a step, and where its time goes, kernel by kernel.
#include <algorithm>

#include "lab/src/tandem_driver/prepared_cell.h"

namespace tandem::lab::tandem_driver {
namespace {

constexpr size_t kShownOps = 10;
constexpr int64_t kSettling = 3;  // steps until a graph is recorded and replayed

void add_report(const GraphReport& report, Json& answer) {
  const auto nodes = static_cast<int64_t>(report.graph.nodes.size());
  answer["nodes_before"] = report.passes.empty() ? nodes : report.passes.front().nodes_before;
  answer["nodes_after"] = nodes;
  answer["passes"] = Json::object();
  for (const PassReport& pass : report.passes)
    answer["passes"][pass.pass] = {
        {"expensive", pass.removed_expensive}, {"cheap", pass.removed_cheap}, {"no_op", pass.removed_no_op}};
  answer["choices"] = Json::object();
  std::map<std::string, int> count;  // the first convolution is "conv 1"
  for (const GraphView::Node& node : report.graph.nodes)
    if (!node.algorithm.empty() && node.op.starts_with("conv"))
      answer["choices"][str(node.op, " ", ++count[node.op])] = node.algorithm;
}

/// [name, share of the steps' time, launches per step], the largest share first.
Json largest(const std::vector<DeviceActivity>& activities, int64_t steps, int64_t ns) {
  std::vector<KernelSum> sums = sums_by_name(activities);
  if (sums.size() > kShownOps) sums.resize(kShownOps);
  Json rows = Json::array();
  for (const KernelSum& sum : sums)
    rows.push_back({sum.name, static_cast<double>(sum.ns) / static_cast<double>(ns),
                    static_cast<double>(sum.count) / static_cast<double>(steps)});
  return rows;
}

}  // namespace

/// Takes `count` steps and returns how long they took, in nanoseconds.
int64_t PreparedCell::take_steps(int64_t count) {
  if (!feed_) resident();
  forget();
  const int64_t begin = now_ns();
  for (int64_t i = 0; i < count; ++i) step(take(i, count));
  synchronize();
  return now_ns() - begin;
}

Json PreparedCell::breakdown(const Json& request) {
  const int64_t steps = integer_field(request, "steps", 1, 100'000, 5);
  const bool on_cpu = request_.device.is_cpu();
  Json answer;
  take_steps(1);
  std::string source = "Tandem: ";
  if (request_.engine == Engine::graph) {
    const std::vector<GraphReport> reports = training_ ? training_->reports() : compiled_forward_->reports();
    TD_ASSERT(!reports.empty(), "a compiled step has a report");
    add_report(reports.back(), answer);
    source += "the graph engine's report; ";
  }
  // A GPU times its kernels itself, so their times are compared with steps that are not watched. On the CPU kernels and steps
  // are timed together, by one clock.
  if (!on_cpu) take_steps(kSettling);
  const int64_t plain = on_cpu ? 0 : take_steps(steps);
  int64_t watched = 0;
  std::vector<DeviceActivity> activities;
  try {
    activities = backend(request_.device).watch(request_.device, [&] { watched = take_steps(steps); });
  } catch (const Error& error) {  // the shares stay unknown
    answer["source"] = str(source, error.what());
    return answer;
  }
  const int64_t ns = on_cpu ? watched : plain;
  const auto share = [&](bool copies) {
    return static_cast<double>(covered_ns(activities, copies)) / static_cast<double>(ns);
  };
  answer["source"] = source + (on_cpu ? "its kernels on the clock" : "CUPTI, against steps without it");
  answer["ops"] = largest(activities, steps, ns);
  answer["kernel_share"] = share(false);
  if (!on_cpu) answer["copy_share"] = share(true);
  const auto kernels =
      std::count_if(activities.begin(), activities.end(), [](const auto& a) { return !a.is_copy; });
  answer["launches"] = static_cast<double>(kernels) / static_cast<double>(steps);
  return answer;
}

}  // namespace tandem::lab::tandem_driver
