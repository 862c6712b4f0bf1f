// Sums, largest and smallest elements over any axes. The order in which elements combine is a function of the
// shape and the axes alone: `lanes` threads each take every lanes-th element of a chunk in order, a binary tree
// joins the lanes, and the last block to finish joins the chunks, again lane by lane in order. Which thread
// plays which lane follows the strides (neighbouring threads read neighbouring memory) and changes no result.
#include <type_traits>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/core/op.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

// Each reduction: the value of one element, how two values join, and what is written.
template <class T>
inline constexpr bool kFloating = std::is_floating_point_v<typename ComputeType<T>::type>;
template <class T, class Written = std::conditional_t<kFloating<T>, T, int64_t>>
struct Sum {
  using In = T;
  using Value = std::conditional_t<kFloating<T>, typename ComputeType<T>::type, long long>;
  using Out = Written;
  __device__ static Value none() { return Value(0); }
  __device__ static Value one(T x, uint32_t) {
    return static_cast<Value>(static_cast<typename ComputeType<T>::type>(x));
  }
  __device__ static Value join(Value a, Value b) { return a + b; }
  __device__ static Out finish(Value v) { return static_cast<Out>(v); }
};

/// Products of f32 are carried in f64, so that a long one does not leave the range on its way.
template <class T>
struct Product {
  using In = T;
  using C = typename ComputeType<T>::type;
  using Value = std::conditional_t<std::is_same_v<T, float>, double, C>;
  using Out = T;
  __device__ static Value none() { return Value(1); }
  __device__ static Value one(T x, uint32_t) { return static_cast<Value>(static_cast<C>(x)); }
  __device__ static Value join(Value a, Value b) { return a * b; }
  __device__ static Out finish(Value v) { return static_cast<Out>(static_cast<C>(v)); }
};

/// Largest (kMax) or smallest element with its place: NaN beats all, then the earlier of two equals.
template <class T, bool kMax>
struct Best {
  using In = T;
  using C = typename ComputeType<T>::type;
  struct Value {
    C value;
    uint32_t index;
  };
  static constexpr uint32_t kNobody = 0xffffffffu;
  __device__ static Value none() { return {C(0), kNobody}; }
  __device__ static Value one(T x, uint32_t r) { return {static_cast<C>(x), r}; }
  __device__ static Value join(Value a, Value b) {
    if (b.index == kNobody) return a;
    if (a.index == kNobody) return b;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    bool b_wins;
    if (a_nan || b_nan)
      b_wins = b_nan && (!a_nan || b.index < a.index);
    else if (a.value == b.value)
      b_wins = b.index < a.index;
    else
      b_wins = kMax ? b.value > a.value : b.value < a.value;
    if (b_wins) a = b;
    return a;
  }
};
template <class T, bool kMax>
struct BestValue : Best<T, kMax> {
  using Out = T;
  __device__ static Out finish(typename Best<T, kMax>::Value v) { return static_cast<Out>(v.value); }
};
template <class T>
struct BestPlace : Best<T, true> {
  using Out = int64_t;
  __device__ static Out finish(typename Best<T, true>::Value v) { return static_cast<Out>(v.index); }
};

struct Plan {
  Layout<1> kept, reduced;
  uint32_t outputs = 1, count = 1;  // elements of the output; elements that make one of them
  int lanes = 1;                    // a power of two up to kThreads
  uint32_t length = 1;              // of a chunk
  int chunks = 1;
  bool lanes_are_neighbours = true;
};

/// The value of the thread `by` lanes further in the warp.
template <class V>
__device__ V shuffle_down(const V& value, int by) {
  static_assert(sizeof(V) % 4 == 0);
  union {
    V value;
    unsigned words[sizeof(V) / 4];
  } copy;
  copy.value = value;
#pragma unroll
  for (int w = 0; w < static_cast<int>(sizeof(V) / 4); ++w)
    copy.words[w] = __shfl_down_sync(0xffffffffu, copy.words[w], by);
  return copy.value;
}

/// Joins values[lane] over the lanes of each output, lane with lane + half for half = lanes / 2 … 1; the result
/// is in lane 0. Both ways below join the same pairs.
template <class R>
__device__ typename R::Value join_lanes(typename R::Value mine, typename R::Value* shared, int slot, int lane,
                                        int lanes, bool lanes_are_neighbours) {
  if (!lanes_are_neighbours || sizeof(typename R::Value) > 8) {
    if (lanes > 1) shared[slot * lanes + lane] = mine;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane >= half) continue;
      mine = R::join(mine, shared[slot * lanes + lane + half]);
      shared[slot * lanes + lane] = mine;
    }
    return mine;
  }
  if (lanes > 32) {  // down to one warp an output: every thread of it joins up to eight
    shared[slot * lanes + lane] = mine;
    __syncthreads();
    if (lane >= 32) return mine;
    constexpr int kMost = kThreads / 32;
    const int warps = lanes / 32;
    typename R::Value values[kMost];
#pragma unroll
    for (int w = 0; w < kMost; ++w) values[w] = shared[slot * lanes + lane + 32 * (w < warps ? w : 0)];
#pragma unroll
    for (int half = kMost / 2; half > 0; half /= 2)
      if (half < warps)
#pragma unroll
        for (int w = 0; w < half; ++w) values[w] = R::join(values[w], values[w + half]);
    mine = values[0];
  }
  for (int half = (lanes < 32 ? lanes : 32) / 2; half > 0; half /= 2)
    mine = R::join(mine, shuffle_down(mine, half));
  return mine;
}

/// Joins elements begin + lane, begin + lane + lanes … below end, in that order; kBatch of them are read before
/// the first is joined. offset(r) says where element r lies.
template <class R, int kBatch, class F>
__device__ typename R::Value join_elements(const typename R::In* from, uint32_t begin, uint32_t end, int lane,
                                           int lanes, const F& offset) {
  typename R::Value mine = R::none();
  for (uint32_t first = begin + lane; first < end; first += kBatch * lanes) {
    typename R::In read[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const uint32_t r = first + u * lanes;
      read[u] = from[offset(r < end ? r : first)];
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const uint32_t r = first + u * lanes;
      if (r < end) mine = R::join(mine, R::one(read[u], r));
    }
  }
  return mine;
}

/// Reads what other blocks wrote, past this multiprocessor's own cache.
template <class V>
__device__ V load_fresh(const V* from) {
  static_assert(sizeof(V) % 4 == 0);
  union {
    V value;
    unsigned words[sizeof(V) / 4];
  } copy;
#pragma unroll
  for (int w = 0; w < static_cast<int>(sizeof(V) / 4); ++w)
    copy.words[w] = __ldcg(reinterpret_cast<const unsigned*>(from) + w);
  return copy.value;
}

/// Grid: (groups of outputs, chunks). A block has kThreads / lanes outputs, which are its slots. The specialised
/// walks for one and two axes find the same elements in the same order as the general one.
template <class R>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(const Plan plan, const typename R::In* __restrict__ in, typename R::Out* __restrict__ out,
                  typename R::Value* partial, unsigned* counters) {
  using Value = typename R::Value;
  __shared__ Value shared[kThreads];
  const int slots = kThreads / plan.lanes;  // outputs of this block
  const int slot = plan.lanes_are_neighbours ? threadIdx.x / plan.lanes : threadIdx.x % slots;
  const int lane = plan.lanes_are_neighbours ? threadIdx.x % plan.lanes : threadIdx.x / slots;
  const uint32_t o = blockIdx.x * slots + slot;
  Value mine = R::none();
  if (o < plan.outputs) {
    const typename R::In* from = in + plan.kept.offset(o);
    const uint32_t begin = blockIdx.y * plan.length;
    const uint32_t end = ::min(plan.count, begin + plan.length);
    if (plan.reduced.rank == 1) {
      const int64_t stride = plan.reduced.strides[0][0];
      mine = join_elements<R, 8>(from, begin, end, lane, plan.lanes, [&](uint32_t r) { return r * stride; });
    } else if (plan.reduced.rank == 2) {
      const FastDivide by_inner = plan.reduced.sizes[1];
      const int64_t outer = plan.reduced.strides[0][0], inner = plan.reduced.strides[0][1];
      mine = join_elements<R, 8>(from, begin, end, lane, plan.lanes, [&](uint32_t r) {
        const uint32_t q = by_inner.divide(r);
        return q * outer + (r - q * by_inner.divisor) * inner;
      });
    } else {
      mine = join_elements<R, 4>(from, begin, end, lane, plan.lanes,
                                 [&](uint32_t r) { return plan.reduced.offset(r); });
    }
  }
  mine = join_lanes<R>(mine, shared, slot, lane, plan.lanes, plan.lanes_are_neighbours);
  if (plan.chunks == 1) {
    if (lane == 0 && o < plan.outputs) out[o] = R::finish(mine);
    return;
  }
  // Several chunks: whoever finishes last finds all of them in memory and joins them in order.
  // The fence and the barrier put the block's values into memory before it counts itself. The last to count sees all
  // of them; it takes the chunks in order, so that it does not matter which block it is.
  if (lane == 0 && o < plan.outputs) partial[static_cast<size_t>(o) * plan.chunks + blockIdx.y] = mine;
  __threadfence();
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0)
    is_last = atomicAdd(&counters[blockIdx.x], 1u) == static_cast<unsigned>(plan.chunks) - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  mine = R::none();
  if (o < plan.outputs)
    for (int c = lane; c < plan.chunks; c += plan.lanes)
      mine = R::join(mine, load_fresh(partial + static_cast<size_t>(o) * plan.chunks + c));
  mine = join_lanes<R>(mine, shared, slot, lane, plan.lanes, plan.lanes_are_neighbours);
  if (lane == 0 && o < plan.outputs) out[o] = R::finish(mine);
  // As the next launch expects to find it.
  if (threadIdx.x == 0) counters[blockIdx.x] = 0;
}

/// Cuts the work: by shape and axes only.
Plan make_plan(const Buffer& in, const Dims& axes) {
  Plan plan;
  bool reduces[kMaxRank] = {};
  for (int i = 0; i < axes.rank(); ++i) reduces[axes[i]] = true;
  int64_t kept_shape[kMaxRank] = {}, kept_strides[kMaxRank] = {}, reduced_shape[kMaxRank] = {},
          reduced_strides[kMaxRank] = {};
  int kept = 0, reduced = 0;
  int64_t outputs = 1, count = 1, inner = 1;  // inner: outputs that lie beside each other in logical order
  bool inner_is_open = true, inner_reduced = false;
  // From the last axis on: inner_reduced where the innermost axis of more than one element is reduced; else `inner`
  // counts the outputs up to the first reduced axis.
  for (int d = in.rank - 1; d >= 0; --d) {
    if (in.shape[d] == 1) continue;
    if (reduces[d]) {
      if (inner_is_open) inner_reduced = inner == 1;
      inner_is_open = false;
    } else if (inner_is_open) {
      inner *= in.shape[d];
    }
  }
  for (int d = 0; d < in.rank; ++d) {
    if (reduces[d]) {
      reduced_shape[reduced] = in.shape[d];
      reduced_strides[reduced++] = in.strides[d];
      count *= in.shape[d];
    } else {
      kept_shape[kept] = in.shape[d];
      kept_strides[kept++] = in.strides[d];
      outputs *= in.shape[d];
    }
  }
  TD_CHECK(outputs < (int64_t{1} << 31) && count < (int64_t{1} << 31),
           "reduce: on a GPU at most 2^31 - 1 elements make one result, and there are at most as many "
           "results; got ",
           outputs, " results of ", count, " elements. Reduce one axis at a time.");
  plan.outputs = static_cast<uint32_t>(outputs);
  plan.count = static_cast<uint32_t>(count);
  if (outputs == 0) return plan;
  plan.kept = make_layout<1>(kept, kept_shape, {kept_strides});
  if (count > 0) plan.reduced = make_layout<1>(reduced, reduced_shape, {reduced_strides});
  int lanes = kThreads;
  if (!inner_reduced) {  // leave up to 32 neighbouring outputs to a block
    int beside = 1;
    while (beside < 32 && beside < inner) beside *= 2;
    lanes = kThreads / beside;
  }
  // Every lane should have four elements or more.
  while (lanes > 1 && int64_t{lanes} * 4 > count) lanes /= 2;
  plan.lanes = lanes;
  const int64_t slots = kThreads / lanes, blocks = (outputs + slots - 1) / slots;
  const int64_t work = (count + 8 * lanes - 1) / (8 * lanes);  // chunks worth having
  int64_t chunks = 1;
  // Chunks only where blocks alone do not fill the device. So there are fewer than 128 counters in use, of kCounters.
  if (work >= 4 && blocks < 128) chunks = work < 256 / blocks ? work : 256 / blocks;
  int64_t length = (count + chunks - 1) / chunks;
  // Whole rounds of lanes: element r is always lane r % lanes of its chunk.
  length = (length + lanes - 1) / lanes * lanes;
  if (length == 0) length = lanes;
  plan.length = static_cast<uint32_t>(length);
  plan.chunks = count == 0 ? 1 : static_cast<int>((count + length - 1) / length);
  // Only a matter of speed: neighbouring threads should read neighbouring elements.
  const int64_t along = count > 1 ? plan.reduced.strides[0][plan.reduced.rank - 1] : 0;
  const int64_t across = outputs > 1 ? plan.kept.strides[0][plan.kept.rank - 1] : 0;
  plan.lanes_are_neighbours = across == 0 || (along != 0 && along <= across);
  return plan;
}

template <class R>
void run_reduce(const KernelArgs& args) {
  const Buffer &in = args.in[0], &out = args.out[0];
  const Plan plan = make_plan(in, args.attributes<ReduceAttrs>().axes);
  if (plan.outputs == 0) return;
  typename R::Value* partial = nullptr;
  if (plan.chunks > 1)
    partial = static_cast<typename R::Value*>(
        args.workspace(sizeof(typename R::Value) * plan.outputs * static_cast<size_t>(plan.chunks)));
  const unsigned slots = kThreads / plan.lanes;
  const dim3 grid((plan.outputs + slots - 1) / slots, plan.chunks);
  reduce_kernel<R><<<grid, kThreads, 0, stream_of(args)>>>(plan, in.as<typename R::In>(),
                                                           out.as<typename R::Out>(), partial,
                                                           thread_scratch(state_of(args)).counters());
  launched("reduce_kernel");
}

/// bool is read as the byte that it is; T = bool never needs kernels of its own.
template <template <class> class R>
void reduce_any(const KernelArgs& args) {
  visit_dtype(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    run_reduce<R<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>>(args);
  });
}
template <class T>
using PlainSum = Sum<T>;
/// Sums of 16-bit types may come out in f32, in which they are taken.
void reduce_sum(const KernelArgs& args) {
  const DType in = args.in[0].dtype;
  if (args.out[0].dtype != DType::f32 || in == DType::f32)
    reduce_any<PlainSum>(args);
  else if (in == DType::bf16)
    run_reduce<Sum<BFloat16, float>>(args);
  else
    run_reduce<Sum<Float16, float>>(args);
}
void reduce_product(const KernelArgs& args) {
  if (args.in[0].dtype == DType::i64)
    run_reduce<Product<int64_t>>(args);
  else
    visit_floating(args.in[0].dtype, [&](auto zero) { run_reduce<Product<decltype(zero)>>(args); });
}
template <class T>
using Largest = BestValue<T, true>;
template <class T>
using Smallest = BestValue<T, false>;

}  // namespace

void register_reduce_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_sum().kernels[kCuda] = &reduce_sum;
  op_max().kernels[kCuda] = &reduce_any<Largest>;
  op_min().kernels[kCuda] = &reduce_any<Smallest>;
  op_argmax().kernels[kCuda] = &reduce_any<BestPlace>;
  op_prod().kernels[kCuda] = &reduce_product;
}

}  // namespace tandem::cuda
