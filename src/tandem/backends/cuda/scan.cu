// Scans along one axis of contiguous tensors: a block of threads takes one sequence in tiles. Within a tile the values
// join in log2 steps, each thread's with that of the thread 1, 2, 4 … before it; the carry of the tiles before comes
// first. The order depends on nothing but the length.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/scan.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

/// What a value is carried in: f32 in f64, 16-bit types in f32, integers as they are.
template <class T>
struct Carry {
  using type = typename ComputeType<T>::type;
};
template <>
struct Carry<float> {
  using type = double;
};

// Each scan: the value of one place, how an earlier value joins a later, and what is written.
template <class T>
struct RunningSum {
  using Element = T;
  using C = typename Carry<T>::type;
  using Value = C;
  __device__ static Value one(const T* x, const T*, int64_t at, int64_t) { return static_cast<C>(x[at]); }
  __device__ static Value join(Value a, Value b) { return a + b; }
  __device__ static void write(Value v, T* out, int64_t*, int64_t at) {
    out[at] = static_cast<T>(static_cast<typename ComputeType<T>::type>(v));
  }
};
template <class T>
struct RunningProduct : RunningSum<T> {
  using Value = typename RunningSum<T>::Value;
  __device__ static Value join(Value a, Value b) { return a * b; }
};

/// s -> scale · s + offset
template <class T>
struct Linear {
  using Element = T;
  using C = typename Carry<T>::type;
  struct Value {
    C scale, offset;
  };
  __device__ static Value one(const T* a, const T* b, int64_t at, int64_t) {
    return {static_cast<C>(a[at]), static_cast<C>(b[at])};
  }
  /// a comes first, then b: b.scale · (a.scale · s + a.offset) + b.offset.
  __device__ static Value join(Value a, Value b) {
    return {a.scale * b.scale, b.scale * a.offset + b.offset};
  }
  /// From s = 0, so that the scale of the first element never counts.
  __device__ static void write(Value v, T* out, int64_t*, int64_t at) {
    out[at] = static_cast<T>(static_cast<typename ComputeType<T>::type>(v.offset));
  }
};

template <class T, bool kMax>
struct Extreme {
  using Element = T;
  using C = typename ComputeType<T>::type;
  struct Value {
    C value;
    int64_t place;
  };
  __device__ static Value one(const T* x, const T*, int64_t at, int64_t k) {
    return {static_cast<C>(x[at]), k};
  }
  /// The later of two equals wins, and NaN over everything, the later NaN over the earlier.
  __device__ static Value join(Value a, Value b) {
    const bool later =
        b.value != b.value || (a.value == a.value && (kMax ? b.value >= a.value : b.value <= a.value));
    return later ? b : a;
  }
  __device__ static void write(Value v, T* out, int64_t* place, int64_t at) {
    out[at] = static_cast<T>(v.value);
    place[at] = v.place;
  }
};
template <class T>
using RunningMax = Extreme<T, true>;
template <class T>
using RunningMin = Extreme<T, false>;

/// One block per sequence: element k lies at base + k · inner, from the end with `reverse`.
template <class S>
__global__ void __launch_bounds__(kThreads)
    scan_kernel(const typename S::Element* x, const typename S::Element* y, typename S::Element* out,
                int64_t* place, int64_t n, int64_t inner, bool reverse) {
  using Value = typename S::Value;
  __shared__ Value shared[kThreads];
  const int64_t sequence = blockIdx.x;
  const int64_t base = sequence / inner * n * inner + sequence % inner;
  Value carry{};
  for (int64_t tile = 0; tile < n; tile += kThreads) {
    const int64_t k = tile + threadIdx.x;
    const int64_t at = base + (reverse ? n - 1 - k : k) * inner;
    Value mine{};
    if (k < n) mine = S::one(x, y, at, k);
    // Thread 0 takes the carry in; the steps below hand it on to the others as part of its value.
    if (threadIdx.x == 0 && tile > 0) mine = S::join(carry, mine);
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int by = 1; by < kThreads; by *= 2) {
      // All read, then all write: a barrier between the two, and one before the next step reads. Threads past n hold
      // a value that means nothing, but values only move to later threads, so that none reaches an element; and a
      // tile with such threads is the last, whose carry nobody uses.
      const bool joins = static_cast<int>(threadIdx.x) >= by;
      Value before{};
      if (joins) before = shared[threadIdx.x - by];
      __syncthreads();
      if (joins) shared[threadIdx.x] = mine = S::join(before, mine);
      __syncthreads();
    }
    carry = shared[kThreads - 1];
    // The barrier below: every thread has its carry before the next tile writes over it.
    if (k < n) S::write(mine, out, place, at);
    __syncthreads();
  }
}

template <class S>
void run_scan(const KernelArgs& args) {
  const Buffer& x = args.in[0];
  const auto& attrs = args.attributes<ScanAttrs>();
  if (x.size() == 0) return;
  int64_t inner = 1;
  for (int d = static_cast<int>(attrs.axis) + 1; d < x.rank; ++d) inner *= x.shape[d];
  const int64_t n = x.shape[attrs.axis], sequences = x.size() / n;
  TD_CHECK(sequences < (int64_t{1} << 31), "scan: on a GPU there may be at most 2^31 - 1 sequences; got ",
           sequences, ".");
  using T = typename S::Element;
  scan_kernel<S><<<static_cast<unsigned>(sequences), kThreads, 0, stream_of(args)>>>(
      x.as<T>(), args.n_in > 1 ? args.in[1].as<T>() : nullptr, args.out[0].as<T>(),
      args.n_out > 1 ? args.out[1].as<int64_t>() : nullptr, n, inner, attrs.reverse);
  launched("scan_kernel");
}

template <template <class> class S>
void scan_floating(const KernelArgs& args) {
  visit_floating(args.in[0].dtype, [&](auto zero) { run_scan<S<decltype(zero)>>(args); });
}
template <template <class> class S>
void scan_any(const KernelArgs& args) {
  if (args.in[0].dtype == DType::i64)
    run_scan<S<int64_t>>(args);
  else
    scan_floating<S>(args);
}

template <template <class> class S>
void scan_extreme(const KernelArgs& args) {
  if (args.in[0].dtype == DType::u64)
    run_scan<S<uint64_t>>(args);
  else
    scan_any<S>(args);
}

}  // namespace

void register_scan_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_cumsum().kernels[kCuda] = &scan_any<RunningSum>;
  op_cumprod().kernels[kCuda] = &scan_any<RunningProduct>;
  op_linear_scan().kernels[kCuda] = &scan_floating<Linear>;
  op_cummax().kernels[kCuda] = &scan_extreme<RunningMax>;
  op_cummin().kernels[kCuda] = &scan_extreme<RunningMin>;
}

}  // namespace tandem::cuda
