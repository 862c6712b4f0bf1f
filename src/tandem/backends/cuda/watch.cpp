// CUPTI's activity records. The library is opened when a device is first watched, so that neither building nor running
// Tandem needs it.
#include "tandem/backends/cuda/watch.h"

#include "tandem/backends/cuda/device_state.h"
#include "tandem/core/activity.h"
#include "tandem/core/error.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace tandem::cuda {
namespace {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
using SetRecord = CUpti_ActivityMemset4;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
using SetRecord = CUpti_ActivityMemset4;
#endif

constexpr size_t kBufferBytes = size_t{4} << 20, kAlignment = 8;
constexpr CUpti_ActivityKind kWatched[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMSET};

/// The functions of CUPTI that are used.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
  decltype(&cuptiGetTimestamp) now = nullptr;
  decltype(&cuptiGetResultString) text = nullptr;
  std::string reason;  // why it cannot be used; empty: it can

  void check(CUptiResult status, const char* call) const {
    if (status == CUPTI_SUCCESS) return;
    const char* words = nullptr;
    text(status, &words);
    throw device_error("watch: ", call, " failed: ", words ? words : "unknown", ".");
  }
};

// Never destroyed: CUPTI's buffers come back on a thread of its own, until the process has ended.
Mutex& g_mutex = *new Mutex(LockOrder::turn, "watch");  // one at a time
Mutex& g_records_mutex = *new Mutex(LockOrder::activity);
std::vector<DeviceActivity>& g_records = *new std::vector<DeviceActivity>;
uint32_t g_device = 0;
const Cupti* g_cupti = nullptr;

std::string readable(const char* name) {
  if (!name) return "unknown";
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && plain ? plain : name;
  std::free(plain);
  return text;
}

const char* name_of_copy(uint8_t kind) {
  return kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy from host"
         : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to host"
         : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD ? "copy within"
                                                   : "copy";
}

template <class Record>
void keep(const CUpti_Activity* record, bool is_copy, std::string name) {
  const auto* const entry = reinterpret_cast<const Record*>(record);
  if (entry->deviceId != g_device || entry->end <= entry->start) return;
  int64_t bytes = 0;
  if constexpr (requires { entry->bytes; }) bytes = static_cast<int64_t>(entry->bytes);
  g_records.push_back({std::move(name), is_copy, static_cast<int64_t>(entry->start),
                       static_cast<int64_t>(entry->end), bytes});
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(g_records_mutex);
  CUpti_Activity* record = nullptr;
  while (g_cupti->next(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
      keep<KernelRecord>(record, false, readable(reinterpret_cast<const KernelRecord*>(record)->name));
    else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY)
      keep<CopyRecord>(record, true, name_of_copy(reinterpret_cast<const CopyRecord*>(record)->copyKind));
    else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET)
      keep<SetRecord>(record, true, "set");
  }
  std::free(buffer);
}

Cupti open_cupti() {
  Cupti cupti;
  const std::string file = str("libcupti.so.", CUDART_VERSION / 1000);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    cupti.reason = str(file, " could not be opened (", dlerror(), ")");
    return cupti;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) cupti.reason = str(file, " has no ", name);
  };
  find(cupti.register_callbacks, "cuptiActivityRegisterCallbacks");
  find(cupti.enable, "cuptiActivityEnable");
  find(cupti.disable, "cuptiActivityDisable");
  find(cupti.flush, "cuptiActivityFlushAll");
  find(cupti.next, "cuptiActivityGetNextRecord");
  find(cupti.now, "cuptiGetTimestamp");
  find(cupti.text, "cuptiGetResultString");
  return cupti;
}

/// Turns the records on, and off again when it goes.
class Records {
 public:
  explicit Records(const Cupti& cupti) : cupti_(cupti) {
    for (const CUpti_ActivityKind kind : kWatched) {
      if (const CUptiResult status = cupti.enable(kind); status != CUPTI_SUCCESS) {
        stop();
        cupti.check(status, "cuptiActivityEnable");
      }
      ++enabled_;
    }
  }
  ~Records() { stop(); }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

 private:
  void stop() noexcept {
    while (enabled_ > 0) (void)cupti_.disable(kWatched[--enabled_]);
  }
  const Cupti& cupti_;
  size_t enabled_ = 0;
};

}  // namespace

std::vector<DeviceActivity> watch(DeviceState& state, const std::function<void()>& work) {
  const std::lock_guard lock(g_mutex);
  static const Cupti* const cupti = new Cupti(open_cupti());  // buffers may come back until the process ends
  TD_CHECK(cupti->reason.empty(), "watch: watching a GPU needs CUPTI, which comes with the CUDA toolkit; ",
           cupti->reason, ". Add its folder to LD_LIBRARY_PATH.");
  if (!g_cupti) {
    g_cupti = cupti;
    cupti->check(cupti->register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  }
  state.synchronize();
  uint64_t device_now = 0;
  cupti->check(cupti->now(&device_now), "cuptiGetTimestamp");
  const int64_t to_host_clock = steady_now_ns() - static_cast<int64_t>(device_now);
  g_device = static_cast<uint32_t>(state.index);
  {
    const Records on(*cupti);
    {
      const std::lock_guard records(g_records_mutex);
      g_records.clear();
    }
    work();
    state.synchronize();
    cupti->check(cupti->flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  }
  const std::lock_guard records(g_records_mutex);
  std::vector<DeviceActivity> seen = std::move(g_records);
  g_records.clear();
  for (DeviceActivity& each : seen) {
    each.begin_ns += to_host_clock;
    each.end_ns += to_host_clock;
  }
  std::stable_sort(seen.begin(), seen.end(),
                   [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return seen;
}

}  // namespace tandem::cuda

#else

namespace tandem::cuda {

std::vector<DeviceActivity> watch(DeviceState&, const std::function<void()>&) {
  throw device_error(
      "watch: watching a GPU needs CUPTI, and this libtandem_cuda.so was built where cupti.h was not found. "
      "Build "
      "it with a CUDA toolkit that has it (package cuda-cupti-dev).");
}

}  // namespace tandem::cuda

#endif
