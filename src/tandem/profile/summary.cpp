// Sums of a profile.
#include <algorithm>
#include <limits>
#include <map>

#include "tandem/profile/profile.h"

namespace tandem {
namespace {

template <class Takes>
int64_t covered(const std::vector<DeviceActivity>& activities, int64_t from, int64_t upto, Takes takes) {
  int64_t total = 0, reached = from;
  for (const DeviceActivity& each : activities) {
    if (!takes(each)) continue;
    const int64_t begin = std::max(each.begin_ns, reached), end = std::min(each.end_ns, upto);
    total += std::max<int64_t>(0, end - begin);
    reached = std::max(reached, end);
  }
  return total;
}

std::string plain_name(const std::string& kernel) {
  const std::string unnamed = "(anonymous namespace)::";
  std::string name = kernel;
  for (size_t at; (at = name.find(unnamed)) != std::string::npos;) name.erase(at, unnamed.size());
  name = name.substr(0, std::min(name.find('('), name.find('<')));
  if (const size_t colons = name.rfind("::"); colons != std::string::npos) name = name.substr(colons + 2);
  if (name.starts_with("void ")) name = name.substr(5);
  return name.empty() ? kernel : name;
}

}  // namespace

int64_t covered_ns(const std::vector<DeviceActivity>& activities, bool copies) {
  using Limits = std::numeric_limits<int64_t>;
  return covered(activities, Limits::min(), Limits::max(),
                 [&](const DeviceActivity& each) { return each.is_copy == copies; });
}

std::vector<KernelSum> sums_by_name(const std::vector<DeviceActivity>& activities) {
  std::map<std::pair<std::string, bool>, KernelSum> by_name;
  for (const DeviceActivity& each : activities) {
    const std::string name = plain_name(each.name);
    KernelSum& sum = by_name[{name, each.is_copy}];
    sum.name = name;
    sum.is_copy = each.is_copy;
    ++sum.count;
    sum.ns += each.end_ns - each.begin_ns;
    if (each.is_copy) {
      if (!sum.work) sum.work = Work{};
      sum.work->bytes += each.bytes;
    }
  }
  std::vector<KernelSum> sums;
  for (auto& [name, sum] : by_name) sums.push_back(std::move(sum));
  std::stable_sort(sums.begin(), sums.end(),
                   [](const KernelSum& a, const KernelSum& b) { return a.ns > b.ns; });
  return sums;
}

ProfileSummary summarize(const Profile& profile) {
  ProfileSummary summary;
  summary.ns = profile.end_ns - profile.begin_ns;
  const auto share = [&](auto takes) {
    if (summary.ns <= 0) return 0.0;
    return static_cast<double>(covered(profile.activities, profile.begin_ns, profile.end_ns, takes)) /
           static_cast<double>(summary.ns);
  };
  summary.kernel_share = share([](const DeviceActivity& each) { return !each.is_copy; });
  summary.copy_share = share([](const DeviceActivity& each) { return each.is_copy; });
  summary.idle_share = 1 - share([](const DeviceActivity&) { return true; });
  summary.kernels = sums_by_name(profile.activities);
  for (KernelSum& sum : summary.kernels) (sum.is_copy ? summary.copies : summary.launches) += sum.count;
  for (const HostRecord::Sum& op : profile.ops) {
    summary.work += op.work;
    if (!profile.kernels_are_ops) continue;
    for (KernelSum& sum : summary.kernels)
      if (!sum.is_copy && sum.name == op.name) sum.work = op.work;
  }
  for (const HostEvent& event : profile.host)
    if (event.kind == HostEvent::Kind::op && event.device == profile.device)
      summary.memory = std::max(summary.memory, event.memory);
  return summary;
}

}  // namespace tandem
