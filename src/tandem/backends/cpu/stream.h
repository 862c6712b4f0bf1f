// Streams of the CPU: threads that copy in the order in which they are told to.
#pragma once

#include <memory>

#include "tandem/core/backend.h"

namespace tandem::cpu {

std::unique_ptr<Stream> make_stream();
/// Of the CPU's own queue, whose work has always ended: kernels run in the thread that calls them.
std::shared_ptr<const Event> passed_event();

}  // namespace tandem::cpu
