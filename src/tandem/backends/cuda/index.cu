// Indexing. An index out of range reads as zero, writes nothing and leaves a report in host memory, which the next
// synchronisation turns into an Error. Sums run in the order of the index: the sources are sorted by where they go,
// stably, and each place adds up its own. What is put in place is sorted likewise, and the last one of a place is written.
#include <bit>
#include <vector>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/backends/cuda/sorting.h"
#include "tandem/core/op.h"
#include "tandem/ops/index.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/scatter_reduce.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;
unsigned blocks_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

Indices indices_of(const Buffer& index) { return {index.data, index.dtype == DType::i64}; }

/// What a checked index must satisfy, and where to report one that does not.
struct Range {
  long long low, limit, skip;
  IndexUse use;
  IndexReport* report;

  __device__ bool has(long long index) const { return index >= low && index < limit; }
  /// The same, with a report (the first stays).
  __device__ bool check(long long index) const {
    if (has(index)) return true;
    if (index == skip) return false;
    // No lock: of several threads that fail at once any may have the last word. The report names a bad index, which
    // need not be the first. The host looks at `op` to see whether there is one.
    volatile IndexReport* r = report;
    if (r->op == 0) {
      r->index = index;
      r->low = low;
      r->limit = limit;
      r->op = static_cast<int>(use);
    }
    return false;
  }
};

Range range_of(const KernelArgs& args, IndexUse use, int64_t limit, int64_t low = 0, int64_t skip = kNoSkip) {
  return {low, limit, skip, use, state_of(args).device_report};
}

/// Calls f with an element that adds like the type: signed and unsigned integers wrap alike.
template <class F>
void by_addition(DType dtype, const F& f) {
  if (is_floating(dtype))
    visit_floating(dtype, f);
  else
    visit_width(bytes_of(dtype), f);
}

/// Operands: x without its axis, the index, the output.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pick_kernel(const Layout<3> layout, const T* __restrict__ x, const Indices indices, int64_t index_base,
                T* __restrict__ out, int64_t axis_stride, const Range range) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= layout.size) return;
  int64_t at[3];
  layout.offsets(i, at);
  const long long index = indices[index_base + at[1]];
  out[at[2]] = range.check(index) ? x[at[0] + index * axis_stride] : T{};
}

void pick(const KernelArgs& args, int rank, const int64_t* shape, const int64_t* x_strides,
          const int64_t* index_strides, const int64_t* out_strides, int64_t axis_stride, const Range& range) {
  const Buffer &x = args.in[0], &out = args.out[0];
  const Indices indices = indices_of(args.in[1]);
  visit_width(bytes_of(x.dtype), [&](auto zero) {
    using T = decltype(zero);
    in_pieces<3>(rank, shape, {x_strides, index_strides, out_strides},
                 [&](const Layout<3>& layout, const int64_t(&at)[3]) {
                   pick_kernel<T><<<blocks_for(layout.size), kThreads, 0, stream_of(args)>>>(
                       layout, x.as<T>() + at[0], indices, at[1], out.as<T>() + at[2], axis_stride, range);
                   launched("pick_kernel");
                 });
  });
}

void gather_any(const KernelArgs& args) {
  const auto& a = args.attributes<IndexAttrs>();
  const Buffer &x = args.in[0], &out = args.out[0];
  int64_t strides[kMaxRank];
  for (int d = 0; d < x.rank; ++d) strides[d] = d == a.axis ? 0 : x.strides[d];
  pick(args, out.rank, out.shape, strides, out.strides, out.strides, x.strides[a.axis],
       range_of(args, a.use, x.shape[a.axis]));
}

/// (outer, along the axis, inner) of a row-major tensor.
struct Split {
  Split(const Buffer& b, int64_t axis) {
    for (int d = 0; d < b.rank; ++d) (d < axis ? outer : d == axis ? length : inner) *= b.shape[d];
  }
  int64_t outer = 1, length = 1, inner = 1;
};

void index_select_any(const KernelArgs& args) {
  const auto& a = args.attributes<IndexAttrs>();
  const Split from(args.in[0], a.axis), to(args.out[0], a.axis);
  const int64_t shape[3] = {to.outer, to.length, to.inner};
  const int64_t x_strides[3] = {from.length * from.inner, 0, 1}, index_strides[3] = {0, 1, 0},
                out_strides[3] = {to.length * to.inner, to.inner, 1};
  pick(args, 3, shape, x_strides, index_strides, out_strides, from.inner,
       range_of(args, a.use, from.length, 0, a.skip));
}

/// Operands: the place in the output without its axis, the source. An index that goes nowhere gets the last key.
__global__ void __launch_bounds__(kThreads)
    place_keys_kernel(const Layout<2> layout, const Indices indices, int64_t place_base, int64_t source_base,
                      int64_t axis_stride, uint64_t nowhere, const Range range, uint64_t* __restrict__ keys,
                      uint32_t* __restrict__ sources) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= layout.size) return;
  int64_t at[2];
  layout.offsets(i, at);
  const int64_t source = source_base + at[1];
  const long long index = indices[source];
  const bool goes = index != range.skip && range.check(index);
  keys[source] = goes ? static_cast<uint64_t>(place_base + at[0] + index * axis_stride) : nowhere;
  sources[source] = static_cast<uint32_t>(source);
}

constexpr int kRun = 64;  // sorted sources that are added one after the other

/// The sorted sources as runs of kRun: the part of each run that goes on from the run before.
/// Thread t: run t / columns, column t % columns. Without the runs one thread would add all sources of a place that
/// many share; with them it adds at most kRun of its own and one head per run. The cut is by place among the sorted
/// sources, so that the order of additions depends on the index alone. A head that is not needed is not written, and
/// not read either.
template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    run_heads_kernel(int64_t size, int64_t columns, int64_t inner, int64_t count, uint64_t nowhere,
                     const uint64_t* __restrict__ keys, const uint32_t* __restrict__ order,
                     const T* __restrict__ source, C* __restrict__ heads) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= size) return;
  const int64_t run = t / columns, column = t - run * columns, first = run * kRun;
  const uint64_t key = keys[first];
  if (first == 0 || key == nowhere || keys[first - 1] != key) return;
  const int64_t o = column / inner, i = column - o * inner;
  C sum = C(0);
  for (int64_t q = first; q < first + kRun && q < count && keys[q] == key; ++q)
    sum = static_cast<C>(sum + static_cast<C>(source[(o * count + order[q]) * inner + i]));
  heads[t] = sum;
}

/// The first sorted source of a place adds up the rest of its run, then the heads of the runs that go on with it.
/// Exactly one thread writes an element of out, so that nothing is atomic. With `adds` the sum is complete before it
/// meets what was there.
template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    place_sums_kernel(int64_t size, int64_t columns, int64_t inner, int64_t count, int64_t length,
                      uint64_t nowhere, const uint64_t* __restrict__ keys, const uint32_t* __restrict__ order,
                      const T* __restrict__ source, const C* __restrict__ heads, bool adds,
                      T* __restrict__ out) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= size) return;
  const int64_t p = t / columns, column = t - p * columns;
  const uint64_t key = keys[p];
  if (key == nowhere || (p > 0 && keys[p - 1] == key)) return;
  const int64_t o = column / inner, i = column - o * inner;
  const int64_t end = (p / kRun + 1) * kRun;
  C sum = C(0);
  for (int64_t q = p; q < end && q < count && keys[q] == key; ++q)
    sum = static_cast<C>(sum + static_cast<C>(source[(o * count + order[q]) * inner + i]));
  for (int64_t q = end; q < count && keys[q] == key; q += kRun)
    sum = static_cast<C>(sum + heads[q / kRun * columns + column]);
  T& target = out[(o * length + static_cast<int64_t>(key)) * inner + i];
  target = static_cast<T>(adds ? static_cast<C>(static_cast<C>(target) + sum) : sum);
}

/// out (outer, length, inner) = (or +=) the sums of source (outer, count, inner) by the keys of its middle axis.
void sum_by_place(const KernelArgs& args, const Buffer& source, SortBuffers& sorted, int64_t outer,
                  int64_t count, int64_t inner, int64_t length, bool adds) {
  const Buffer& out = args.out[0];
  void* heads = sorted.rest;
  const uint64_t nowhere = static_cast<uint64_t>(length);
  // Only the bits that keys up to `nowhere` have are sorted by: fewer passes.
  sort_pairs(stream_of(args), sorted, count, std::bit_width(nowhere));
  const int64_t columns = outer * inner, runs = (count + kRun - 1) / kRun;
  by_addition(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    run_heads_kernel<T, C><<<blocks_for(runs * columns), kThreads, 0, stream_of(args)>>>(
        runs * columns, columns, inner, count, nowhere, sorted.keys, sorted.values, source.as<T>(),
        static_cast<C*>(heads));
    launched("run_heads_kernel");
    place_sums_kernel<T, C><<<blocks_for(count * columns), kThreads, 0, stream_of(args)>>>(
        count * columns, columns, inner, count, length, nowhere, sorted.keys, sorted.values, source.as<T>(),
        static_cast<const C*>(heads), adds, out.as<T>());
    launched("place_sums_kernel");
  });
}

void zero_output(const KernelArgs& args, int byte = 0) {
  const Buffer& out = args.out[0];
  check(
      cudaMemsetAsync(out.data, byte, static_cast<size_t>(out.size()) * bytes_of(out.dtype), stream_of(args)),
      "cudaMemsetAsync");
}

/// Strides of the places that an index tensor names in a larger one: without the axis.
void place_strides(const Buffer& large, int64_t axis, int64_t* strides) {
  for (int d = 0; d < large.rank; ++d) strides[d] = d == axis ? 0 : large.strides[d];
}

/// Scratch for the heads of the runs: 8 bytes hold a sum of any type.
size_t head_bytes(int64_t count, int64_t columns) {
  return static_cast<size_t>((count + kRun - 1) / kRun * columns) * 8;
}

void check_count(const char* op, int64_t count) {
  TD_CHECK(count < int64_t{1} << 31, op, ": on a GPU the index must have fewer than 2^31 elements; got ",
           count, ".");
}

void scatter_add_any(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterAttrs>();
  const Buffer &index = args.in[1], &out = args.out[0];
  const int64_t count = index.size();
  check_count(name_of(a.use), count);
  if (out.size() > 0) zero_output(args);
  if (count == 0) return;
  SortBuffers sorted = sort_buffers(args.workspace(sort_workspace(count, head_bytes(count, 1))), count);
  int64_t strides[kMaxRank];
  place_strides(out, a.axis, strides);
  in_pieces<2>(
      index.rank, index.shape, {strides, index.strides}, [&](const Layout<2>& layout, const int64_t(&at)[2]) {
        place_keys_kernel<<<blocks_for(layout.size), kThreads, 0, stream_of(args)>>>(
            layout, indices_of(index), at[0], at[1], out.strides[a.axis], static_cast<uint64_t>(out.size()),
            range_of(args, a.use, out.shape[a.axis]), sorted.keys, sorted.values);
        launched("place_keys_kernel");
      });
  sum_by_place(args, args.in[0], sorted, 1, count, 1, out.size(), false);
}

struct Multiplied {
  template <class C>
  static __device__ C of(C a, C b) {
    return Mul{}(a, b);
  }
};
struct Larger {
  template <class C>
  static __device__ C of(C a, C b) {
    return Maximum{}(a, b);
  }
};
struct Smaller {
  template <class C>
  static __device__ C of(C a, C b) {
    return Minimum{}(a, b);
  }
};

/// As run_heads_kernel and place_sums_kernel, for one column and any way to take two elements together: a run has at least one
/// element, so that none is needed to begin with.
template <class T, class C, class F>
__global__ void __launch_bounds__(kThreads)
    reduce_heads_kernel(int64_t runs, int64_t count, uint64_t nowhere, const uint64_t* __restrict__ keys,
                        const uint32_t* __restrict__ order, const T* __restrict__ source,
                        C* __restrict__ heads) {
  const int64_t run = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, first = run * kRun;
  if (run >= runs) return;
  const uint64_t key = keys[first];
  if (first == 0 || key == nowhere || keys[first - 1] != key) return;
  C value = static_cast<C>(source[order[first]]);
  for (int64_t q = first + 1; q < first + kRun && q < count && keys[q] == key; ++q)
    value = F::of(value, static_cast<C>(source[order[q]]));
  heads[run] = value;
}
/// `out` holds x on entry; its element comes first, then the sources in order.
template <class T, class C, class F>
__global__ void __launch_bounds__(kThreads)
    reduce_places_kernel(int64_t count, uint64_t nowhere, const uint64_t* __restrict__ keys,
                         const uint32_t* __restrict__ order, const T* __restrict__ source,
                         const C* __restrict__ heads, T* __restrict__ out) {
  const int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (p >= count) return;
  const uint64_t key = keys[p];
  if (key == nowhere || (p > 0 && keys[p - 1] == key)) return;
  const int64_t end = (p / kRun + 1) * kRun;
  C value = static_cast<C>(out[key]);
  for (int64_t q = p; q < end && q < count && keys[q] == key; ++q)
    value = F::of(value, static_cast<C>(source[order[q]]));
  for (int64_t q = end; q < count && keys[q] == key; q += kRun) value = F::of(value, heads[q / kRun]);
  out[key] = static_cast<T>(value);
}

template <class F>
void reduce_places(const KernelArgs& args, const SortBuffers& sorted, int64_t count) {
  const Buffer &source = args.in[1], &out = args.out[0];
  const int64_t runs = (count + kRun - 1) / kRun;
  const auto nowhere = static_cast<uint64_t>(out.size());
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    auto* heads = reinterpret_cast<C*>(sorted.rest);
    reduce_heads_kernel<T, C, F><<<blocks_for(runs), kThreads, 0, stream_of(args)>>>(
        runs, count, nowhere, sorted.keys, sorted.values, source.as<T>(), heads);
    launched("reduce_heads_kernel");
    reduce_places_kernel<T, C, F><<<blocks_for(count), kThreads, 0, stream_of(args)>>>(
        count, nowhere, sorted.keys, sorted.values, source.as<T>(), heads, out.as<T>());
    launched("reduce_places_kernel");
  });
}

void scatter_reduce_any(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterReduceAttrs>();
  const Buffer &x = args.in[0], &index = args.in[2], &out = args.out[0];
  const int64_t count = index.size();
  check_count("scatter_reduce", count);
  if (out.size() > 0)
    check(cudaMemcpyAsync(out.data, x.data, static_cast<size_t>(out.size()) * bytes_of(out.dtype),
                          cudaMemcpyDeviceToDevice, stream_of(args)),
          "cudaMemcpyAsync on the device");
  if (count == 0) return;
  SortBuffers sorted = sort_buffers(args.workspace(sort_workspace(count, head_bytes(count, 1))), count);
  const auto nowhere = static_cast<uint64_t>(out.size());
  int64_t strides[kMaxRank];
  place_strides(out, a.axis, strides);
  in_pieces<2>(index.rank, index.shape, {strides, index.strides},
               [&](const Layout<2>& layout, const int64_t(&at)[2]) {
                 place_keys_kernel<<<blocks_for(layout.size), kThreads, 0, stream_of(args)>>>(
                     layout, indices_of(index), at[0], at[1], out.strides[a.axis], nowhere,
                     range_of(args, IndexUse::scatter_reduce, out.shape[a.axis]), sorted.keys, sorted.values);
                 launched("place_keys_kernel");
               });
  sort_pairs(stream_of(args), sorted, count, std::bit_width(nowhere));
  switch (static_cast<ScatterReduction>(a.reduction)) {
    case ScatterReduction::amax:
      return reduce_places<Larger>(args, sorted, count);
    case ScatterReduction::amin:
      return reduce_places<Smaller>(args, sorted, count);
    default:
      return reduce_places<Multiplied>(args, sorted, count);
  }
}

/// The sums of the slices of source by an index of one axis.
void add_slices(const KernelArgs& args, const Buffer& source, bool adds) {
  const auto& a = args.attributes<ScatterAttrs>();
  const Buffer &index = args.in[1], &out = args.out[0];
  const Split to(out, a.axis);
  const int64_t count = index.size(), columns = to.outer * to.inner;
  check_count(name_of(a.use), count);
  if (count == 0) return;
  SortBuffers sorted = sort_buffers(args.workspace(sort_workspace(count, head_bytes(count, columns))), count);
  const int64_t none = 0;  // the place is the index itself
  in_pieces<2>(1, index.shape, {&none, index.strides}, [&](const Layout<2>& layout, const int64_t(&at)[2]) {
    place_keys_kernel<<<blocks_for(layout.size), kThreads, 0, stream_of(args)>>>(
        layout, indices_of(index), at[0], at[1], 1, static_cast<uint64_t>(to.length),
        range_of(args, a.use, to.length, 0, a.skip), sorted.keys, sorted.values);
    launched("place_keys_kernel");
  });
  if (columns > 0) sum_by_place(args, source, sorted, to.outer, count, to.inner, to.length, adds);
}

void index_add_any(const KernelArgs& args) {
  if (args.out[0].size() > 0) zero_output(args);
  add_slices(args, args.in[0], false);
}
void index_add_into_any(const KernelArgs& args) { add_slices(args, args.in[2], true); }

/// Operands: the place in the target without its axis, the source without its axis, the number among the sorted indices.
/// Of equal keys the last one writes.
/// The sort is stable: of equal keys the last is the last in the order of the index.
template <class T>
__global__ void __launch_bounds__(kThreads)
    write_last_kernel(const Layout<3> layout, int64_t sorted_base, int64_t count, uint64_t nowhere,
                      const uint64_t* __restrict__ keys, const uint32_t* __restrict__ order,
                      const T* __restrict__ source, int64_t source_stride, T* __restrict__ out,
                      int64_t out_stride) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= layout.size) return;
  int64_t at[3];
  layout.offsets(i, at);
  const int64_t p = sorted_base + at[2];
  const uint64_t key = keys[p];
  if (key == nowhere || (p + 1 < count && keys[p + 1] == key)) return;
  out[at[0] + static_cast<int64_t>(key) * out_stride] = source[at[1] + order[p] * source_stride];
}

void write_last(const KernelArgs& args, const SortBuffers& sorted, uint64_t nowhere, int rank,
                const int64_t* shape, const int64_t* out_strides, const int64_t* source_strides,
                const int64_t* sorted_strides, int64_t out_stride, int64_t source_stride) {
  const Buffer &out = args.out[0], &source = args.in[2];
  visit_width(bytes_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    in_pieces<3>(rank, shape, {out_strides, source_strides, sorted_strides},
                 [&](const Layout<3>& layout, const int64_t(&at)[3]) {
                   write_last_kernel<T><<<blocks_for(layout.size), kThreads, 0, stream_of(args)>>>(
                       layout, at[2], args.in[1].size(), nowhere, sorted.keys, sorted.values,
                       source.as<T>() + at[1], source_stride, out.as<T>() + at[0], out_stride);
                   launched("write_last_kernel");
                 });
  });
}

/// The key of a place is where it lies in memory.
void scatter_into_any(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterAttrs>();
  const Buffer &index = args.in[1], &out = args.out[0];
  const int64_t count = index.size();
  check_count("scatter_into", count);
  if (count == 0) return;
  // Behind the last element of out in memory, whatever its strides.
  uint64_t nowhere = 1;
  for (int d = 0; d < out.rank; ++d)
    if (out.shape[d] > 1) nowhere += static_cast<uint64_t>((out.shape[d] - 1) * out.strides[d]);
  SortBuffers sorted = sort_buffers(args.workspace(sort_workspace(count, 0)), count);
  int64_t strides[kMaxRank];
  place_strides(out, a.axis, strides);
  in_pieces<2>(index.rank, index.shape, {strides, index.strides},
               [&](const Layout<2>& layout, const int64_t(&at)[2]) {
                 place_keys_kernel<<<blocks_for(layout.size), kThreads, 0, stream_of(args)>>>(
                     layout, indices_of(index), at[0], at[1], out.strides[a.axis], nowhere,
                     range_of(args, a.use, out.shape[a.axis]), sorted.keys, sorted.values);
                 launched("place_keys_kernel");
               });
  if (count > 1) sort_pairs(stream_of(args), sorted, count, std::bit_width(nowhere));
  const int64_t zero = 0, one = 1;
  write_last(args, sorted, nowhere, 1, &count, &zero, &zero, &one, 1, 1);
}

void index_copy_into_any(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterAttrs>();
  const Buffer &index = args.in[1], &source = args.in[2], &out = args.out[0];
  const int64_t count = index.size(), length = out.shape[a.axis];
  check_count("index_copy_into", count);
  if (count == 0) return;
  SortBuffers sorted = sort_buffers(args.workspace(sort_workspace(count, 0)), count);
  const int64_t none = 0;  // the place is the index itself
  in_pieces<2>(1, index.shape, {&none, index.strides}, [&](const Layout<2>& layout, const int64_t(&at)[2]) {
    place_keys_kernel<<<blocks_for(layout.size), kThreads, 0, stream_of(args)>>>(
        layout, indices_of(index), at[0], at[1], 1, static_cast<uint64_t>(length),
        range_of(args, a.use, length), sorted.keys, sorted.values);
    launched("place_keys_kernel");
  });
  if (count > 1) sort_pairs(stream_of(args), sorted, count, std::bit_width(static_cast<uint64_t>(length)));
  int64_t out_strides[kMaxRank], source_strides[kMaxRank], sorted_strides[kMaxRank];
  place_strides(out, a.axis, out_strides);
  place_strides(source, a.axis, source_strides);
  for (int d = 0; d < out.rank; ++d) sorted_strides[d] = d == a.axis;
  write_last(args, sorted, static_cast<uint64_t>(length), out.rank, source.shape, out_strides, source_strides,
             sorted_strides, out.strides[a.axis], source.strides[a.axis]);
}

/// The largest number of a source wins, in whatever order they come.
__global__ void __launch_bounds__(kThreads)
    last_writer_kernel(const Layout<2> layout, const Indices indices, int64_t place_base, int64_t source_base,
                       int64_t axis_stride, const Range range, long long* winner) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= layout.size) return;
  int64_t at[2];
  layout.offsets(i, at);
  const int64_t source = source_base + at[1];
  const long long index = indices[source];
  if (range.check(index))
    atomicMax(winner + place_base + at[0] + index * axis_stride, static_cast<long long>(source));
}

void last_writer_any(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterAttrs>();
  const Buffer &index = args.in[0], &out = args.out[0];
  if (out.size() > 0) zero_output(args, 0xff);  // -1
  int64_t strides[kMaxRank];
  place_strides(out, a.axis, strides);
  in_pieces<2>(index.rank, index.shape, {strides, index.strides},
               [&](const Layout<2>& layout, const int64_t(&at)[2]) {
                 last_writer_kernel<<<blocks_for(layout.size), kThreads, 0, stream_of(args)>>>(
                     layout, indices_of(index), at[0], at[1], out.strides[a.axis],
                     range_of(args, a.use, out.shape[a.axis]), static_cast<long long*>(out.data));
                 launched("last_writer_kernel");
               });
}

struct RavelInputs {
  Indices indices[kMaxRank];
  long long sizes[kMaxRank];
  int count;
};

/// An index out of range makes the whole place -1, which then reads as zero and writes nothing.
__global__ void __launch_bounds__(kThreads)
    ravel_kernel(int64_t size, const RavelInputs in, Range range, int64_t* __restrict__ out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  long long place = 0;
  bool valid = true;
  for (int k = 0; k < in.count; ++k) {
    const long long index = in.indices[k][i];
    range.low = -in.sizes[k];
    range.limit = in.sizes[k];
    valid = range.check(index) && valid;
    place = place * in.sizes[k] + (index < 0 ? index + in.sizes[k] : index);
  }
  out[i] = valid ? place : -1;
}

void ravel_any(const KernelArgs& args) {
  const auto& a = args.attributes<RavelAttrs>();
  const int64_t size = args.out[0].size();
  if (size == 0) return;
  RavelInputs in{};
  in.count = args.n_in;
  for (int k = 0; k < args.n_in; ++k) {
    in.indices[k] = indices_of(args.in[k]);
    in.sizes[k] = a.sizes[k];
  }
  ravel_kernel<<<blocks_for(size), kThreads, 0, stream_of(args)>>>(size, in, range_of(args, a.use, 0),
                                                                   args.out[0].as<int64_t>());
  launched("ravel_kernel");
}

__global__ void __launch_bounds__(kThreads)
    one_hot_kernel(int64_t size, const Indices indices, int64_t classes, int64_t* __restrict__ out,
                   const Range range) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t row = i / classes, c = i - row * classes;
  const long long index = indices[row];
  // One thread of the row reports.
  if (c == 0) range.check(index);
  out[i] = index == c ? 1 : 0;
}

void one_hot_any(const KernelArgs& args) {
  const int64_t size = args.out[0].size(), classes = args.attributes<OneHotAttrs>().classes;
  if (size == 0) return;
  one_hot_kernel<<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
      size, indices_of(args.in[0]), classes, args.out[0].as<int64_t>(),
      range_of(args, IndexUse::one_hot, classes));
  launched("one_hot_kernel");
}

constexpr int kRounds = 8, kPerBlock = kRounds * kThreads;  // elements that a block looks at

/// __syncthreads_count is a barrier: threads past the end count as false, and none returns early.
template <class T>
__global__ void __launch_bounds__(kThreads)
    count_nonzero_kernel(int64_t size, const T* __restrict__ x, T mask, int64_t* __restrict__ counts) {
  int64_t count = 0;
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kPerBlock + r * kThreads + threadIdx.x;
    count += __syncthreads_count(i < size && (x[i] & mask) != 0);
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

struct Sizes {
  int64_t of[kMaxRank];
  int rank;
};

/// starts[block] rows lie before this block's first. In each round a thread's row follows those of the rounds before,
/// of the warps before and of the lanes before: the rows come out in the order of the elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    write_nonzero_kernel(int64_t size, const T* __restrict__ x, T mask, const int64_t* __restrict__ starts,
                         const Sizes shape, int64_t* __restrict__ out) {
  __shared__ int warps[kThreads / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t row = starts[blockIdx.x];
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kPerBlock + r * kThreads + threadIdx.x;
    const bool found = i < size && (x[i] & mask) != 0;
    const unsigned votes = __ballot_sync(~0u, found);
    // Barriers: all counts stand before any is read, and (at the end of the round) all are read before the next
    // round.
    if (lane == 0) warps[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1)), all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) before += warps[w];
      all += warps[w];
    }
    if (found) {
      int64_t rest = i, *to = out + (row + before) * shape.rank;
      for (int d = shape.rank - 1; d >= 0; --d) {
        to[d] = rest % shape.of[d];
        rest /= shape.of[d];
      }
    }
    row += all;
    __syncthreads();
  }
}

/// The one kernel that waits: the host must know the size.
void nonzero_any(const KernelArgs& args) {
  const Buffer& x = args.in[0];
  const int64_t size = x.size(), blocks = (size + kPerBlock - 1) / kPerBlock;
  Sizes shape{};
  shape.rank = x.rank;
  for (int d = 0; d < x.rank; ++d) shape.of[d] = x.shape[d];
  int64_t result[2] = {0, x.rank};
  if (size == 0) return args.allocate_output(0, result);
  const cudaStream_t stream = stream_of(args);
  const size_t bytes = static_cast<size_t>(blocks) * sizeof(int64_t);
  auto* counts = static_cast<int64_t*>(args.workspace(bytes));
  visit_width(bytes_of(x.dtype), [&](auto zero) {
    using T = decltype(zero);
    // A floating number is zero whatever its sign.
    const T all = static_cast<T>(~T(0)), mask = is_floating(x.dtype) ? static_cast<T>(all >> 1) : all;
    count_nonzero_kernel<T>
        <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(size, x.as<T>(), mask, counts);
    launched("count_nonzero_kernel");
    std::vector<int64_t> starts(static_cast<size_t>(blocks));
    check(cudaMemcpyAsync(starts.data(), counts, bytes, cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync to host");
    state_of(args).synchronize();
    // Counts become starts; result[0] ends as the number of rows.
    for (int64_t& start : starts) {
      const int64_t count = start;
      start = result[0];
      result[0] += count;
    }
    args.allocate_output(0, result);
    if (result[0] * result[1] == 0) return;
    // The starts take the place of the counts. From pageable memory the call returns when the data has been taken.
    check(cudaMemcpyAsync(counts, starts.data(), bytes, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync to device");
    write_nonzero_kernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        size, x.as<T>(), mask, counts, shape, args.out[0].as<int64_t>());
    launched("write_nonzero_kernel");
  });
}

}  // namespace

void register_index_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_gather().kernels[kCuda] = &gather_any;
  op_scatter_add_zeros().kernels[kCuda] = &scatter_add_any;
  op_scatter_reduce().kernels[kCuda] = &scatter_reduce_any;
  op_index_select().kernels[kCuda] = &index_select_any;
  op_index_add_zeros().kernels[kCuda] = &index_add_any;
  op_index_add_into().kernels[kCuda] = &index_add_into_any;
  op_scatter_into().kernels[kCuda] = &scatter_into_any;
  op_index_copy_into().kernels[kCuda] = &index_copy_into_any;
  op_last_writer().kernels[kCuda] = &last_writer_any;
  op_ravel_index().kernels[kCuda] = &ravel_any;
  op_one_hot().kernels[kCuda] = &one_hot_any;
  op_nonzero().kernels[kCuda] = &nonzero_any;
}

}  // namespace tandem::cuda
