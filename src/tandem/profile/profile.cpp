// Running code under watch.
#include "tandem/profile/profile.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/trace.h"
#include "tandem/ops/work.h"

namespace tandem {
namespace {

/// Kernels by the backend's best means; where these are missing, by events.
std::vector<DeviceActivity> watch_device(Profile& profile, const std::function<void()>& work) {
  Backend& backend = tandem::backend(profile.device);
  bool began = false;
  std::string reason;
  try {
    profile.seen_by = profile.device.is_cpu() ? "clock" : "CUPTI";
    profile.kernels_are_ops = profile.device.is_cpu();
    return backend.watch(profile.device, [&] {
      began = true;
      work();
    });
  } catch (const Error& error) {
    if (began) throw;
    reason = error.what();
  }
  profile.seen_by = "events, op by op: " + reason;
  profile.kernels_are_ops = true;
  return backend.watch_by_events(profile.device, work);
}

/// Whether this thread is in the work of a profile. (Those of other threads wait for each other.)
constinit thread_local bool t_is_profiling = false;
struct Profiling {
  Profiling() { t_is_profiling = true; }
  ~Profiling() { t_is_profiling = false; }
};

}  // namespace

Profile profile(const std::function<void()>& work, const ProfileOptions& options) {
  TD_CHECK(work, "profile: the work must be a function; got none.");
  TD_CHECK(options.most_events >= 0, "profile: most_events must be at least 0; got ", options.most_events,
           ".");
  TD_CHECK(!t_is_profiling,
           "profile: must not be called in the work of another profile; got such a call. Profile once around "
           "all of it, "
           "and give its parts names with Scope.");
  refuse_while_tracing("profile", "it would act only while the callable is traced",
                       "Profile calls of the compiled callable instead.");
  TD_CHECK(options.device.index < backend(options.device).device_count(),
           "profile: the device must exist; got ", options.device, " of ",
           backend(options.device).device_count(), ".");
  const Profiling now;
  Profile result;
  result.device = options.device;
  result.most_events = options.most_events;
  const auto run = [&] {
    result.begin_ns = steady_now_ns();
    work();
    backend(result.device).synchronize(result.device);
    result.end_ns = steady_now_ns();
  };
  HostRecord record;
  result.activities = watch_device(result, [&] {
    record = record_host(run, static_cast<WorkOf>(work_of), static_cast<size_t>(options.most_events));
  });
  result.host = std::move(record.events);
  result.ops = std::move(record.ops);
  result.dropped = record.dropped;
  std::stable_sort(result.host.begin(), result.host.end(), [](const HostEvent& a, const HostEvent& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  return result;
}

}  // namespace tandem
