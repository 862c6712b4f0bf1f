// Softmax and log-softmax along one axis of a row-major tensor, seen as (outer, axis, inner).
#include "tandem/ops/softmax.h"

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/shape.h"

namespace tandem::cpu::TD_ISA {

namespace {

/// One row of n elements, `stride` apart. The sum runs in order.
template <bool is_log, class T>
void softmax_row(const T* x, T* out, int64_t n, int64_t stride) {
  using C = typename ComputeType<T>::type;
  C largest = static_cast<C>(x[0]);
  for (int64_t i = 1; i < n; ++i) largest = Maximum{}(largest, static_cast<C>(x[i * stride]));
  C total = 0;
  for (int64_t i = 0; i < n; ++i) total += exp_(static_cast<C>(x[i * stride]) - largest);
  if constexpr (is_log) {
    const C log_total = log_(total);
    for (int64_t i = 0; i < n; ++i)
      out[i * stride] = static_cast<T>(static_cast<C>(x[i * stride]) - largest - log_total);
  } else {
    for (int64_t i = 0; i < n; ++i)
      out[i * stride] = static_cast<T>(exp_(static_cast<C>(x[i * stride]) - largest) / total);
  }
}

template <bool is_log>
void softmax(const KernelArgs& args) {
  const int axis = static_cast<int>(args.attributes<AxisAttrs>().axis);
  const Buffer &in = args.in[0], &out = args.out[0];
  if (in.size() == 0) return;
  int64_t inner = 1;
  for (int i = axis + 1; i < in.rank; ++i) inner *= in.shape[i];
  const int64_t n = in.shape[axis], rows = in.size() / n;
  visit_floating(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_ranges(rows, kGrain / n + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = r / inner * n * inner + r % inner;
        softmax_row<is_log>(in.as<T>() + at, out.as<T>() + at, n, inner);
      }
    });
  });
}

}  // namespace

void register_softmax_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_softmax().kernels[cpu] = softmax<false>;
  op_log_softmax().kernels[cpu] = softmax<true>;
}

}  // namespace tandem::cpu::TD_ISA
