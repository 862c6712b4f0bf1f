// Profiles: what a piece of code did, op by op and kernel by kernel, as a trace that ui.perfetto.dev and chrome://tracing
// open, and as sums.
//   const Profile seen = profile([&] { for (int i = 0; i < 10; ++i) step(x, y); });
//   write_trace("step.trace.json", seen);
// Name parts of the code by Scope (core/scope.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/activity.h"
#include "tandem/core/device.h"
#include "tandem/core/dtype.h"

namespace tandem {

struct ProfileOptions {
  Device device = {};  ///< whose kernels and copies are seen; ops are seen on all
  int64_t most_events =
      200'000;  ///< that are kept of the host, and written of the device; the rest is counted
};

struct Profile {
  Device device;
  int64_t begin_ns = 0,
          end_ns = 0;           ///< of the whole, on the steady clock, until the device has done its work
  std::vector<HostEvent> host;  ///< ops and scopes, by their beginnings, the outer ones first
  std::vector<DeviceActivity> activities;  ///< kernels and copies of the device, by their beginnings
  std::vector<HostRecord::Sum> ops;        ///< by name: all ops, whether their events were kept or not
  int64_t dropped = 0;                     ///< events of the host that were not kept
  int64_t most_events = 0;                 ///< ProfileOptions::most_events
  std::string seen_by;           ///< how kernels were seen: "clock", "CUPTI", or "events" and the reason
  bool kernels_are_ops = false;  ///< kernels go by the names of ops: on the CPU, and by events
};

/// Runs `work` and tells what it did. Only one at a time in a process, and not in a compiled callable. An Error of `work`
/// reaches the caller.
Profile profile(const std::function<void()>& work, const ProfileOptions& options = {});

/// Writes a profile as JSON in Chrome's trace event format, replacing the file whole or not at all: ops and scopes by
/// thread of the host, kernels and copies of the device, the memory in use after each op. Returns how many events were
/// left out, those of Profile::dropped included.
int64_t write_trace(const std::string& path, const Profile& profile);

/// All kernels (or copies) of one name.
struct KernelSum {
  std::string name;
  bool is_copy = false;
  int64_t count = 0, ns = 0;
  std::optional<Work> work;  ///< where known: of kernels that are ops, and the bytes of copies
};
struct ProfileSummary {
  int64_t ns = 0;                                           ///< that the whole took
  double kernel_share = 0, copy_share = 0, idle_share = 0;  ///< of that time; kernels and copies may overlap
  int64_t launches = 0, copies = 0;                         ///< kernels and copies that ran
  Work work;                                                ///< of all ops
  size_t memory = 0;                                        ///< most bytes in use after an op, on the device
  std::vector<KernelSum> kernels;                           ///< the largest first
};
ProfileSummary summarize(const Profile& profile);

/// How long at least one of the activities ran, of kernels or of copies; they come by their beginnings.
int64_t covered_ns(const std::vector<DeviceActivity>& activities, bool copies);
/// Sums by name, the largest first. Kernels of a GPU go by the plain name of their function: "sum_rows" for
/// "void tandem::cuda::sum_rows<float, 4>(…)".
std::vector<KernelSum> sums_by_name(const std::vector<DeviceActivity>& activities);

/// What this machine can do at best, by trial.
struct Peaks {
  double flops_per_second = 0;  ///< of matrix products, the best of several sizes
  double bytes_per_second = 0;  ///< read and written by a copy that is larger than caches: that of the memory
  std::string how = {};         ///< one line
  /// What calls that move so many bytes each reach, the smaller ones in caches; by rising bytes and falling rates.
  struct Rate {
    int64_t bytes;
    double bytes_per_second;
  };
  std::vector<Rate> rates = {};

  /// The peak for a kernel that moves so many bytes per call: the best rate of calls that move as many or more.
  double bytes_per_second_at(double bytes) const;
};
/// Takes a second or so; each is the best of several.
Peaks measure_peaks(Device device = {}, DType dtype = DType::f32);

}  // namespace tandem
