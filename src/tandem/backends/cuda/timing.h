// The device's time of a call, by which implementations are chosen.
#pragma once

#include <functional>

#include "tandem/core/kernel.h"

namespace tandem::cuda {

/// The device's time alone for run(), which queues work on the call's stream: several runs are queued while the stream is
/// held up, so that it never waits for the host, as in a recording that is replayed.
double device_seconds(const KernelArgs& args, const std::function<void()>& run);

/// Whether the call's stream is being recorded, so that nothing can be timed.
bool is_recording(const KernelArgs& args);

}  // namespace tandem::cuda
