// The one pointwise kernel: a functor of ops/scalar_functions.h over broadcast, strided inputs. Each thread
// takes kPerThread elements, kThreads apart, so that loads of a warp are neighbours and several are in
// flight. Compiled without contraction: the bits equal the CPU's.
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

/// Functions made of many instructions take one element a thread, the others four.
template <class F, class T>
inline constexpr int kPerThread = std::is_same_v<F, Pow> || std::is_same_v<F, Sin> ||
                                          std::is_same_v<F, Cos> || std::is_same_v<F, Erf> ||
                                          std::is_same_v<F, Gelu> ||
                                          (std::is_same_v<T, double> && !std::is_same_v<F, Add>)
                                      ? 1
                                      : 4;

/// Integer results that do not depend on the sign: one kernel serves both types of a width.
template <class F>
inline constexpr bool kSignless =
    std::is_same_v<F, Add> || std::is_same_v<F, Sub> || std::is_same_v<F, Mul> || std::is_same_v<F, Neg> ||
    std::is_same_v<F, Equal> || std::is_same_v<F, NotEqual> || std::is_same_v<F, LogicalAnd> ||
    std::is_same_v<F, LogicalOr> || std::is_same_v<F, LogicalNot> || std::is_same_v<F, Where>;

struct PointwiseInputs {
  const void* data[3];
};

template <class F, class T, int N>
__device__ __forceinline__ auto call_functor(const PointwiseInputs& in, const int64_t* at) {
  using C = typename ComputeType<T>::type;
  if constexpr (N == 1)
    return F{}(static_cast<C>(static_cast<const T*>(in.data[0])[at[0]]));
  else if constexpr (N == 2)
    return F{}(static_cast<C>(static_cast<const T*>(in.data[0])[at[0]]),
               static_cast<C>(static_cast<const T*>(in.data[1])[at[1]]));
  else
    return F{}(static_cast<const bool*>(in.data[0])[at[0]],
               static_cast<C>(static_cast<const T*>(in.data[1])[at[1]]),
               static_cast<C>(static_cast<const T*>(in.data[2])[at[2]]));
}

template <class F, class T, int N>
__global__ void __launch_bounds__(kPointwiseThreads)
    pointwise_kernel(const Layout<N + 1> layout, const PointwiseInputs in, void* out) {
  using Result = decltype(call_functor<F, T, N>(in, nullptr));
  using Out = std::conditional_t<std::is_same_v<Result, bool>, bool, T>;
  constexpr int kCount = kPerThread<F, T>;
  const uint32_t first = blockIdx.x * (kPointwiseThreads * kCount) + threadIdx.x;
  Result result[kCount];
  int64_t place[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const uint32_t i = first + j * kPointwiseThreads;
    if (i >= layout.size) break;
    int64_t at[N + 1];
    layout.offsets(i, at);
    result[j] = call_functor<F, T, N>(in, at);
    place[j] = at[N];
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j)
    if (first + j * kPointwiseThreads < layout.size)
      static_cast<Out*>(out)[place[j]] = static_cast<Out>(result[j]);
}

template <class F, class T, int N>
void run_pointwise(const KernelArgs& args) {
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
  using Out =
      std::conditional_t<std::is_same_v<decltype(call_functor<F, T, N>(PointwiseInputs{}, nullptr)), bool>,
                         bool, T>;
  in_pieces<N + 1>(out.rank, out.shape, strides, [&](const Layout<N + 1>& layout, const int64_t(&at)[N + 1]) {
    PointwiseInputs in{};
    for (int n = 0; n < N; ++n)
      in.data[n] = N == 3 && n == 0 ? static_cast<const void*>(args.in[n].as<bool>() + at[n])
                                    : static_cast<const void*>(args.in[n].as<T>() + at[n]);
    const uint32_t per_block = kPointwiseThreads * kPerThread<F, T>;
    pointwise_kernel<F, T, N>
        <<<(layout.size + per_block - 1) / per_block, kPointwiseThreads, 0, stream_of(args)>>>(
            layout, in, out.as<Out>() + at[N]);
    launched("pointwise_kernel");
  });
}

/// One row of the kernel table: picks the instance for the element type of the last input.
template <class F, int N, bool kIntegers, bool kBool>
void pointwise(const KernelArgs& args) {
  const DType dtype = args.in[N - 1].dtype;
  switch (dtype) {
    case DType::f64:
      return run_pointwise<F, double, N>(args);
    case DType::f32:
      return run_pointwise<F, float, N>(args);
    case DType::bf16:
      return run_pointwise<F, BFloat16, N>(args);
    case DType::f16:
      return run_pointwise<F, Float16, N>(args);
    default:
      break;
  }
  if constexpr (kIntegers) {
    switch (dtype) {
      case DType::i8:
        return run_pointwise<F, int8_t, N>(args);
      case DType::i16:
        return run_pointwise<F, int16_t, N>(args);
      case DType::i32:
        return run_pointwise<F, int32_t, N>(args);
      case DType::i64:
        return run_pointwise<F, int64_t, N>(args);
      case DType::u8:
        return run_pointwise<F, std::conditional_t<kSignless<F>, int8_t, uint8_t>, N>(args);
      case DType::u16:
        return run_pointwise<F, std::conditional_t<kSignless<F>, int16_t, uint16_t>, N>(args);
      case DType::u32:
        return run_pointwise<F, std::conditional_t<kSignless<F>, int32_t, uint32_t>, N>(args);
      case DType::u64:
        return run_pointwise<F, std::conditional_t<kSignless<F>, int64_t, uint64_t>, N>(args);
      default:
        break;
    }
  }
  // A bool is stored as a byte 0 or 1, and every function of bools gives the same as on such bytes.
  if constexpr (kBool)
    if (dtype == DType::boolean)
      return run_pointwise<F, std::conditional_t<kSignless<F>, int8_t, uint8_t>, N>(args);
  throw InternalError(cat("cuda: no pointwise kernel for ", name(dtype)));
}

}  // namespace tandem::cuda
