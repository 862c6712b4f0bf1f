// The one thread pool of the process. Work is cut into chunks whose sizes never depend on the number of
// threads, so that results have the same bits at any thread count.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tandem/core/standard.h"

namespace tandem {

/// The number of threads that parallel_for uses, the caller included. Default: the cores this process may run
/// on.
int threads();
void set_threads(int count);  ///< count >= 1; throws Error otherwise
/// How many a parallel_for would use here: 1 inside of a body.
int threads_here();

namespace detail {
using ChunkFn = void (*)(void* context, int64_t chunk);
void run_chunks(int64_t chunks, ChunkFn run, void* context);
}  // namespace detail

/// Calls body(chunk) for chunk = 0 … chunks-1, each exactly once, on up to threads() threads, and returns
/// when all are done. An exception thrown by a body reaches the caller. Nested calls run inline.
template <class F>
void parallel_for(int64_t chunks, F&& body) {
  if (chunks <= 1) {
    if (chunks == 1) body(int64_t{0});
    return;
  }
  using Body = std::remove_reference_t<F>;
  detail::run_chunks(
      chunks, [](void* context, int64_t chunk) { (*static_cast<Body*>(context))(chunk); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

/// Calls body(begin, end) over [0, size) in pieces of `grain`.
template <class F>
void parallel_ranges(int64_t size, int64_t grain, F&& body) {
  parallel_for((size + grain - 1) / grain, [&](int64_t chunk) {
    const int64_t begin = chunk * grain;
    body(begin, begin + grain < size ? begin + grain : size);
  });
}

}  // namespace tandem
