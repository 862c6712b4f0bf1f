// cast: every element type to every other, by CastTo of ops/scalar_functions.h. One kernel a source type; the
// target type is a switch that all threads take alike.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/core/op.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

template <class To, class From>
__device__ __forceinline__ void store(void* out, int64_t at, From x) {
  static_cast<To*>(out)[at] = CastTo<To, From>::apply(x);
}

template <class From>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(const Layout<2> layout, const From* in, void* out, const DType to) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= layout.size) return;
  int64_t at[2];
  layout.offsets(i, at);
  const From x = in[at[0]];
  switch (to) {
    case DType::f64:
      return store<double>(out, at[1], x);
    case DType::f32:
      return store<float>(out, at[1], x);
    case DType::bf16:
      return store<BFloat16>(out, at[1], x);
    case DType::f16:
      return store<Float16>(out, at[1], x);
    case DType::i8:
      return store<int8_t>(out, at[1], x);
    case DType::i16:
      return store<int16_t>(out, at[1], x);
    case DType::i32:
      return store<int32_t>(out, at[1], x);
    case DType::i64:
      return store<int64_t>(out, at[1], x);
    case DType::u8:
      return store<uint8_t>(out, at[1], x);
    case DType::u16:
      return store<uint16_t>(out, at[1], x);
    case DType::u32:
      return store<uint32_t>(out, at[1], x);
    case DType::u64:
      return store<uint64_t>(out, at[1], x);
    case DType::boolean:
      return store<bool>(out, at[1], x);
  }
}

void cast_any(const KernelArgs& args) {
  const Buffer &in = args.in[0], &out = args.out[0];
  const int64_t to_bytes = static_cast<int64_t>(bytes_of(out.dtype));
  visit_dtype(in.dtype, [&](auto zero) {
    using From = decltype(zero);
    in_pieces<2>(
        out.rank, out.shape, {in.strides, out.strides}, [&](const Layout<2>& layout, const int64_t(&at)[2]) {
          cast_kernel<From><<<(layout.size + kThreads - 1) / kThreads, kThreads, 0, stream_of(args)>>>(
              layout, in.as<From>() + at[0], out.as<char>() + at[1] * to_bytes, out.dtype);
          launched("cast_kernel");
        });
  });
}

}  // namespace

void register_cast_kernels() { op_cast().kernels[static_cast<int>(DeviceKind::cuda)] = &cast_any; }

}  // namespace tandem::cuda
