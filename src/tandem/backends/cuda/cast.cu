// cast: every element type to every other, by CastTo of ops/scalar_functions.h. One kernel for each type that sources
// are computed in (float, double, 64-bit integers); both types are switches that all threads take alike.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/pointwise.cuh"
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

template <class S>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(const Layout<2> layout, const void* in, void* out, const S stored, const DType to) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= layout.size) return;
  int64_t at[2];
  layout.offsets(i, at);
  const typename S::C x = stored.load(in, at[0]);
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

template <class S>
void run_cast(const KernelArgs& args, const S& stored) {
  const Buffer &in = args.in[0], &out = args.out[0];
  const int64_t from_bytes = static_cast<int64_t>(bytes_of(in.dtype)),
                to_bytes = static_cast<int64_t>(bytes_of(out.dtype));
  in_pieces<2>(
      out.rank, out.shape, {in.strides, out.strides}, [&](const Layout<2>& layout, const int64_t(&at)[2]) {
        cast_kernel<S><<<(layout.size + kThreads - 1) / kThreads, kThreads, 0, stream_of(args)>>>(
            layout, in.as<char>() + at[0] * from_bytes, out.as<char>() + at[1] * to_bytes, stored, out.dtype);
        launched("cast_kernel");
      });
}

void cast_any(const KernelArgs& args) {
  const DType from = args.in[0].dtype;
  if (from == DType::f64) return run_cast(args, StoredDouble{});
  if (from == DType::f32) return run_cast(args, StoredFloat{});
  if (is_floating(from)) return run_cast(args, StoredHalf{from == DType::bf16});
  if (from == DType::u64) return run_cast(args, StoredBytes<uint64_t>{});
  run_cast(args, StoredInteger{from});
}

}  // namespace

void register_cast_kernels() { op_cast().kernels[static_cast<int>(DeviceKind::cuda)] = &cast_any; }

}  // namespace tandem::cuda
