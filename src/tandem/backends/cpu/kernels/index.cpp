// gather, scatter_add_zeros and one_hot. Every index is checked.
#include "tandem/ops/index.h"

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/shape.h"

namespace tandem::cpu::TD_ISA {

namespace {

int64_t checked_index(const char* op, const Buffer& index, int64_t i, int64_t size) {
  const int64_t at = index.dtype == DType::i64 ? index.as<int64_t>()[i] : index.as<int32_t>()[i];
  TD_CHECK(at >= 0 && at < size, op, ": every index must lie in 0..", size - 1, "; got ", at, " at element ",
           i, ".");
  return at;
}

/// Calls each(element of the index, offset in the large tensor) for every element of the index, in order.
template <class F>
void for_places(const char* op, const Buffer& index, const Buffer& large, int axis, F&& each) {
  const int64_t n = index.size();
  int64_t at[kMaxRank] = {};
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = checked_index(op, index, i, large.shape[axis]) * large.strides[axis];
    for (int d = 0; d < index.rank; ++d)
      if (d != axis) offset += at[d] * large.strides[d];
    each(i, offset);
    for (int d = index.rank - 1; d >= 0 && ++at[d] == index.shape[d]; --d) at[d] = 0;
  }
}

void gather(const KernelArgs& args) {
  const int axis = static_cast<int>(args.attributes<AxisAttrs>().axis);
  visit_dtype(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.in[0].as<T>();
    T* out = args.out[0].as<T>();
    for_places("gather", args.in[1], args.in[0], axis,
               [&](int64_t i, int64_t offset) { out[i] = x[offset]; });
  });
}

void scatter_add_zeros(const KernelArgs& args) {
  const int axis = static_cast<int>(args.attributes<ScatterAttrs>().axis);
  const Buffer& out = args.out[0];
  const int64_t n = out.size();
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;  // 16-bit floats add up in f32 and are rounded once
    const T* source = args.in[0].as<T>();
    C* sums;
    if constexpr (std::is_same_v<T, C>)
      sums = out.as<T>();
    else
      sums = static_cast<C*>(args.workspace(static_cast<size_t>(n) * sizeof(C)));
    std::memset(static_cast<void*>(sums), 0, static_cast<size_t>(n) * sizeof(C));
    for_places("scatter_add_zeros", args.in[1], out, axis, [&](int64_t i, int64_t offset) {
      sums[offset] = static_cast<C>(sums[offset] + static_cast<C>(source[i]));
    });
    if constexpr (!std::is_same_v<T, C>)
      for (int64_t i = 0; i < n; ++i) out.as<T>()[i] = static_cast<T>(sums[i]);
  });
}

void one_hot(const KernelArgs& args) {
  const int64_t classes = args.attributes<OneHotAttrs>().classes, n = args.in[0].size();
  int64_t* out = args.out[0].as<int64_t>();
  std::memset(out, 0, static_cast<size_t>(n * classes) * sizeof(int64_t));
  for (int64_t i = 0; i < n; ++i) out[i * classes + checked_index("one_hot", args.in[0], i, classes)] = 1;
}

}  // namespace

void register_index_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_gather().kernels[cpu] = gather;
  op_scatter_add_zeros().kernels[cpu] = scatter_add_zeros;
  op_one_hot().kernels[cpu] = one_hot;
}

}  // namespace tandem::cpu::TD_ISA
