// The one pointwise kernel: a functor of ops/scalar_functions.h over broadcast, strided inputs. Each thread
// takes kPerThread elements, kThreads apart, so that loads of a warp are neighbours and several are in
// flight. Compiled without contraction: the bits equal the CPU's.
//
// A functor is compiled for few types (nvcc is slow): f64, f32, one kernel for bf16 and f16, and one or two for all
// integers, computed in 64 bits. Storage says how elements come from memory and go back.
#pragma once

#pragma nv_diag_suppress 186  // "x < 0 is always false": functors written for all numbers meet unsigned ones

#include <cstdint>
#include <type_traits>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/core/dtype.h"
#include "tandem/core/op.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {

inline constexpr int kPointwiseThreads = 128;

/// How the elements of a buffer become values of the compute type C and back.
struct StoredDouble {
  using C = double;
  __device__ C load(const void* p, int64_t i) const { return static_cast<const double*>(p)[i]; }
  __device__ void store(void* p, int64_t i, C x) const { static_cast<double*>(p)[i] = x; }
};
struct StoredFloat {
  using C = float;
  __device__ C load(const void* p, int64_t i) const { return static_cast<const float*>(p)[i]; }
  __device__ void store(void* p, int64_t i, C x) const { static_cast<float*>(p)[i] = x; }
};
struct StoredHalf {
  using C = float;
  bool brain;  // bf16, else f16
  __device__ C load(const void* p, int64_t i) const {
    const unsigned short bits = static_cast<const unsigned short*>(p)[i];
    BFloat16 a;
    Float16 b;
    a.bits = b.bits = bits;
    return brain ? static_cast<float>(a) : static_cast<float>(b);
  }
  __device__ void store(void* p, int64_t i, C x) const {
    static_cast<unsigned short*>(p)[i] = brain ? BFloat16(x).bits : Float16(x).bits;
  }
};
/// Any floating type, computed in double.
struct StoredWide {
  using C = double;
  DType dtype;
  __device__ C load(const void* p, int64_t i) const {
    if (dtype == DType::f64) return StoredDouble{}.load(p, i);
    if (dtype == DType::f32) return StoredFloat{}.load(p, i);
    return StoredHalf{dtype == DType::bf16}.load(p, i);
  }
  __device__ void store(void* p, int64_t i, C x) const {
    if (dtype == DType::f64)
      StoredDouble{}.store(p, i, x);
    else if (dtype == DType::f32)
      StoredFloat{}.store(p, i, static_cast<float>(x));
    else
      StoredHalf{dtype == DType::bf16}.store(p, i, static_cast<float>(x));
  }
};
/// Any integer (or bool, a byte of 0 or 1), computed in 64 bits and cut off to its width.
struct StoredInteger {
  using C = int64_t;
  DType dtype;
  __device__ C load(const void* p, int64_t i) const {
    switch (dtype) {
      case DType::i8:
        return static_cast<const int8_t*>(p)[i];
      case DType::i16:
        return static_cast<const int16_t*>(p)[i];
      case DType::i32:
        return static_cast<const int32_t*>(p)[i];
      case DType::u16:
        return static_cast<const uint16_t*>(p)[i];
      case DType::u32:
        return static_cast<const uint32_t*>(p)[i];
      case DType::u8:
      case DType::boolean:
        return static_cast<const uint8_t*>(p)[i];
      default:
        return static_cast<const int64_t*>(p)[i];
    }
  }
  __device__ void store(void* p, int64_t i, C x) const {
    switch (dtype) {
      case DType::i8:
      case DType::u8:
      case DType::boolean:
        static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(x);
        break;
      case DType::i16:
      case DType::u16:
        static_cast<uint16_t*>(p)[i] = static_cast<uint16_t>(x);
        break;
      case DType::i32:
      case DType::u32:
        static_cast<uint32_t*>(p)[i] = static_cast<uint32_t>(x);
        break;
      default:
        static_cast<int64_t*>(p)[i] = x;
    }
  }
};
/// What is only moved.
template <class T>
struct StoredBytes {
  using C = T;
  __device__ C load(const void* p, int64_t i) const { return static_cast<const T*>(p)[i]; }
  __device__ void store(void* p, int64_t i, C x) const { static_cast<T*>(p)[i] = x; }
};

/// Functions made of many instructions take one element a thread, the others four.
template <class F, class S>
inline constexpr int kPerThread = std::is_same_v<F, Pow> || std::is_same_v<F, Remainder> ||
                                          std::is_same_v<F, Fmod> || std::is_same_v<F, FloorDivide> ||
                                          std::is_same_v<F, Erf> || std::is_same_v<F, Gelu> ||
                                          std::is_same_v<F, GeluGradient> ||
                                          std::is_same_v<typename S::C, int64_t> ||
                                          (std::is_same_v<typename S::C, double> && !std::is_same_v<F, Add>)
                                      ? 1
                                      : 4;

struct PointwiseInputs {
  const void* data[3];
};

template <class F, class S, int N>
__device__ __forceinline__ auto call_functor(const S& stored, const PointwiseInputs& in, const int64_t* at) {
  if constexpr (N == 1)
    return F{}(stored.load(in.data[0], at[0]));
  else if constexpr (N == 2)
    return F{}(stored.load(in.data[0], at[0]), stored.load(in.data[1], at[1]));
  else if constexpr (std::is_same_v<F, Where>)
    return F{}(static_cast<const bool*>(in.data[0])[at[0]], stored.load(in.data[1], at[1]),
               stored.load(in.data[2], at[2]));
  else
    return F{}(stored.load(in.data[0], at[0]), stored.load(in.data[1], at[1]),
               stored.load(in.data[2], at[2]));
}

template <class F, class S, int N>
__global__ void __launch_bounds__(kPointwiseThreads)
    pointwise_kernel(const Layout<N + 1> layout, const PointwiseInputs in, void* out, const S stored) {
  using Result = decltype(call_functor<F, S, N>(stored, in, nullptr));
  constexpr int kCount = kPerThread<F, S>;
  const uint32_t first = blockIdx.x * (kPointwiseThreads * kCount) + threadIdx.x;
  Result result[kCount];
  int64_t place[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const uint32_t i = first + j * kPointwiseThreads;
    if (i >= layout.size) break;
    int64_t at[N + 1];
    layout.offsets(i, at);
    result[j] = call_functor<F, S, N>(stored, in, at);
    place[j] = at[N];
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j)
    if (first + j * kPointwiseThreads < layout.size) {
      if constexpr (std::is_same_v<Result, bool>)
        static_cast<bool*>(out)[place[j]] = result[j];
      else
        stored.store(out, place[j], result[j]);
    }
}

template <class F, class S, int N>
void run_pointwise(const KernelArgs& args, const S& stored) {
  const Buffer& out = args.out[0];
  const int64_t* strides[N + 1];
  int64_t aligned[N][kMaxRank];  // the inputs' strides over the shape of the output
  for (int n = 0; n < N; ++n) {
    const Buffer& in = args.in[n];
    for (int d = 0; d < out.rank; ++d) {
      const int e = d - (out.rank - in.rank);
      aligned[n][d] = e < 0 || (in.shape[e] == 1 && out.shape[d] != 1) ? 0 : in.strides[e];
    }
    strides[n] = aligned[n];
  }
  strides[N] = out.strides;
  const auto element = [](const Buffer& buffer, int64_t at) {
    return buffer.as<char>() + at * static_cast<int64_t>(bytes_of(buffer.dtype));
  };
  in_pieces<N + 1>(out.rank, out.shape, strides, [&](const Layout<N + 1>& layout, const int64_t(&at)[N + 1]) {
    PointwiseInputs in{};
    for (int n = 0; n < N; ++n) in.data[n] = element(args.in[n], at[n]);
    const uint32_t per_block = kPointwiseThreads * kPerThread<F, S>;
    pointwise_kernel<F, S, N>
        <<<(layout.size + per_block - 1) / per_block, kPointwiseThreads, 0, stream_of(args)>>>(
            layout, in, element(out, at[N]), stored);
    launched("pointwise_kernel");
  });
}

/// One row of the kernel table: picks the instance for the element type of the last input.
template <class F, int N, bool kFloats, bool kIntegers>
void pointwise(const KernelArgs& args) {
  const DType dtype = args.in[N - 1].dtype;
  if constexpr (std::is_same_v<F, Where>) {
    const size_t width = bytes_of(dtype);
    if (width == 1) return run_pointwise<F, StoredBytes<uint8_t>, N>(args, {});
    if (width == 2) return run_pointwise<F, StoredBytes<uint16_t>, N>(args, {});
    if (width == 4) return run_pointwise<F, StoredBytes<uint32_t>, N>(args, {});
    return run_pointwise<F, StoredBytes<uint64_t>, N>(args, {});
  } else {
    if constexpr (kFloats && kWide<F>) {
      if (is_floating(dtype)) return run_pointwise<F, StoredWide, N>(args, {dtype});
    } else if constexpr (kFloats) {
      if (dtype == DType::f32) return run_pointwise<F, StoredFloat, N>(args, {});
      if (dtype == DType::f64) return run_pointwise<F, StoredDouble, N>(args, {});
      if (is_floating(dtype)) return run_pointwise<F, StoredHalf, N>(args, {dtype == DType::bf16});
    }
    if constexpr (kIntegers) {
      if constexpr (!kSignless<F>)
        if (dtype == DType::u64) return run_pointwise<F, StoredBytes<uint64_t>, N>(args, {});
      return run_pointwise<F, StoredInteger, N>(args, {dtype});
    }
    throw InternalError(str("cuda: no pointwise kernel for ", name(dtype)));
  }
}

}  // namespace tandem::cuda
