// Reductions. The result of each output element is a function of its elements in logical order alone: whatever the
// strides, the axes' places in memory or the number of threads, the bits are the same.
//
// The sum of a sequence: blocks of kBlock elements; within a block kLanes running sums (element i goes to lane
// i % kLanes) that are then added pairwise; the blocks' sums are added in order in the wider type.
#include "tandem/ops/reduce.h"

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

namespace {

constexpr int64_t kBlock = 4096;
constexpr int kLanes = 16;

/// The input seen as (kept axes) × (reduced axes), each in logical order.
struct Split {
  Walk kept, reduced;  // offsets of the outputs, and of a sequence's elements from its first
  int64_t outputs = 1, length = 1;
};

Split split_axes(const Buffer& x, const Dims& axes) {
  Split s;
  s.kept.data = s.reduced.data = static_cast<char*>(x.data);
  s.kept.width = s.reduced.width = static_cast<int64_t>(bytes_of(x.dtype));
  int at = 0;
  for (int i = 0; i < x.rank; ++i) {
    const bool is_reduced = at < axes.rank() && axes[at] == i;
    if (is_reduced) ++at;
    add_axis(is_reduced ? s.reduced : s.kept, x.shape[i], x.strides[i]);
    (is_reduced ? s.length : s.outputs) *= x.shape[i];
  }
  return s;
}

/// Element offset of output o.
int64_t offset_of(const Walk& kept, int64_t o) {
  int64_t at = 0;
  for (int i = kept.rank - 1; i >= 0; --i) {
    at += o % kept.shape[i] * kept.strides[i];
    o /= kept.shape[i];
  }
  return at;
}

template <class T>
struct SumTypes {  // Lane: within a block; Total: over blocks; Out: stored
  using Lane = int64_t;
  using Total = int64_t;
  using Out = int64_t;
};
template <>
struct SumTypes<double> {
  using Lane = double;
  using Total = double;
  using Out = double;
};
template <>
struct SumTypes<float> {
  using Lane = float;
  using Total = double;
  using Out = float;
};
template <>
struct SumTypes<BFloat16> {
  using Lane = float;
  using Total = double;
  using Out = BFloat16;
};
template <>
struct SumTypes<Float16> {
  using Lane = float;
  using Total = double;
  using Out = Float16;
};

template <class Lane>
Lane fold(Lane* lanes) {
  for (int s = kLanes / 2; s > 0; s /= 2)
    for (int i = 0; i < s; ++i) lanes[i] += lanes[i + s];
  return lanes[0];
}

/// One block of at most kBlock contiguous elements.
template <class T, class Lane = typename SumTypes<T>::Lane>
Lane block_sum(const T* x, int64_t n) {
  Lane lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] += static_cast<Lane>(x[i + l]);
  for (int l = 0; i < n; ++i, ++l) lanes[l] += static_cast<Lane>(x[i]);
  return fold(lanes);
}

template <class T>
typename SumTypes<T>::Out finish(typename SumTypes<T>::Total total) {
  using Out = typename SumTypes<T>::Out;
  if constexpr (std::is_class_v<Out>)
    return Out(static_cast<float>(total));
  else
    return static_cast<Out>(total);
}

/// Sequences whose elements lie across rows: `columns` neighbouring outputs at once, the same lanes for each.
template <class T>
void sum_columns(const T* x, int64_t row_stride, int64_t length, int columns,
                 typename SumTypes<T>::Out* out) {
  using Lane = typename SumTypes<T>::Lane;
  constexpr int kColumns = 32;
  typename SumTypes<T>::Total total[kColumns] = {};
  for (int64_t block = 0; block < length; block += kBlock) {
    const int64_t end = block + kBlock < length ? block + kBlock : length;
    Lane lanes[kLanes][kColumns] = {};
    for (int64_t i = block; i < end; ++i) {
      Lane* lane = lanes[(i - block) % kLanes];
      const T* row = x + i * row_stride;
      if (columns == kColumns)
        for (int c = 0; c < kColumns; ++c) lane[c] += static_cast<Lane>(row[c]);
      else
        for (int c = 0; c < columns; ++c) lane[c] += static_cast<Lane>(row[c]);
    }
    for (int s = kLanes / 2; s > 0; s /= 2)
      for (int l = 0; l < s; ++l)
        for (int c = 0; c < kColumns; ++c) lanes[l][c] += lanes[l + s][c];
    for (int c = 0; c < columns; ++c) total[c] += lanes[0][c];
  }
  for (int c = 0; c < columns; ++c) out[c] = finish<T>(total[c]);
}

template <class T>
void sum_typed(const KernelArgs& args) {
  using Types = SumTypes<T>;
  Split s = split_axes(args.in[0], args.attributes<ReduceAttrs>().axes);
  typename Types::Out* out = args.out[0].as<typename Types::Out>();
  if (s.outputs == 0) return;
  const T* x = static_cast<const T*>(args.in[0].data);
  if (s.reduced.rank <= 1 && s.kept.rank == 1 && s.kept.strides[0] == 1 && s.length > 1) {
    const int64_t stride = s.reduced.strides[0];
    parallel_ranges(s.outputs, 32, [&](int64_t begin, int64_t end) {
      sum_columns(x + begin, stride, s.length, static_cast<int>(end - begin), out + begin);
    });
    return;
  }
  // One task for each (output, block); the blocks of an output are added afterwards in their order.
  const int64_t blocks = (s.length + kBlock - 1) / kBlock;
  const auto block_of = [&](int64_t o, int64_t b) {
    alignas(64) T buffer[kBlock];
    Walk sequence = s.reduced;
    sequence.data += offset_of(s.kept, o) * sequence.width;
    const int64_t begin = b * kBlock, n = s.length - begin < kBlock ? s.length - begin : kBlock;
    return block_sum(static_cast<const T*>(run_of(sequence, begin, n, buffer)), n);
  };
  if (blocks > 1 && s.outputs < 64) {
    auto* partial = static_cast<typename Types::Lane*>(
        args.workspace(static_cast<size_t>(s.outputs * blocks) * sizeof(typename Types::Lane)));
    parallel_ranges(s.outputs * blocks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) partial[i] = block_of(i / blocks, i % blocks);
    });
    for (int64_t o = 0; o < s.outputs; ++o) {
      typename Types::Total total = 0;
      for (int64_t b = 0; b < blocks; ++b) total += partial[o * blocks + b];
      out[o] = finish<T>(total);
    }
    return;
  }
  const int64_t grain = s.length >= kGrain ? 1 : kGrain / (s.length + 1) + 1;
  parallel_ranges(s.outputs, grain, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      typename Types::Total total = 0;
      for (int64_t b = 0; b < blocks; ++b) total += block_of(o, b);
      out[o] = finish<T>(total);
    }
  });
}

void sum(const KernelArgs& args) {
  visit_dtype(args.in[0].dtype, [&](auto zero) { sum_typed<decltype(zero)>(args); });
}

/// Calls visit(output, index in the sequence, elements, count) for every piece of every output's sequence in order,
/// outputs in parallel.
template <class T, class Begin, class Piece, class End>
void for_sequences(const KernelArgs& args, Begin&& begin_output, Piece&& piece, End&& end_output) {
  const Split s = split_axes(args.in[0], args.attributes<ReduceAttrs>().axes);
  const int64_t grain = s.length >= kGrain ? 1 : kGrain / (s.length + 1) + 1;
  parallel_ranges(s.outputs, grain, [&](int64_t first, int64_t last) {
    alignas(64) T buffer[kTile];
    for (int64_t o = first; o < last; ++o) {
      Walk sequence = s.reduced;
      sequence.data += offset_of(s.kept, o) * sequence.width;
      auto state = begin_output();
      for (int64_t at = 0; at < s.length; at += kTile) {
        const int64_t n = s.length - at < kTile ? s.length - at : kTile;
        piece(state, at, static_cast<const T*>(run_of(sequence, at, n, buffer)), n);
      }
      end_output(state, o);
    }
  });
}

template <class F>
void extreme(const KernelArgs& args) {
  visit_dtype(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    struct Best {
      C value{};
      bool any = false;
    };
    T* out = args.out[0].as<T>();
    for_sequences<T>(
        args, [] { return Best{}; },
        [](Best& best, int64_t, const T* x, int64_t n) {
          C value = best.any ? best.value : static_cast<C>(x[0]);
          for (int64_t i = 0; i < n; ++i) value = F{}(value, static_cast<C>(x[i]));
          best = {value, true};
        },
        [&](const Best& best, int64_t o) { out[o] = static_cast<T>(best.value); });
  });
}

void argmax(const KernelArgs& args) {
  visit_dtype(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    struct Best {
      C value{};
      int64_t index = -1;
    };
    int64_t* out = args.out[0].as<int64_t>();
    for_sequences<T>(
        args, [] { return Best{}; },
        [](Best& best, int64_t at, const T* x, int64_t n) {
          for (int64_t i = 0; i < n; ++i) {
            const C value = static_cast<C>(x[i]);
            const bool is_nan = value != value, best_is_nan = best.value != best.value;
            if (best.index < 0 || (!best_is_nan && (is_nan || value > best.value))) best = {value, at + i};
          }
        },
        [&](const Best& best, int64_t o) { out[o] = best.index; });
  });
}

}  // namespace

void register_reduce_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_sum().kernels[cpu] = sum;
  op_max().kernels[cpu] = extreme<Maximum>;
  op_min().kernels[cpu] = extreme<Minimum>;
  op_argmax().kernels[cpu] = argmax;
}

}  // namespace tandem::cpu::TD_ISA
