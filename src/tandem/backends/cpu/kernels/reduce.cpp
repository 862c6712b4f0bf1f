// Reductions. The result of each output element is a function of its elements in logical order alone: whatever the
// strides, the axes' places in memory or the number of threads, the bits are the same.
// sums.h says in which order sums are taken.
// loops: short
#include "tandem/ops/reduce.h"

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/backends/cpu/kernels/sums.h"
#include "tandem/core/threads.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

namespace {

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

template <class T, class Out = typename SumTypes<T>::Out>
Out finish(typename SumTypes<T>::Total total) {
  if constexpr (std::is_class_v<Out>)
    return Out(static_cast<float>(total));
  else
    return static_cast<Out>(total);
}

constexpr int kStrip = 256;  // neighbouring outputs summed at a time

/// Sums of one block of at most kSumBlock rows: `columns` neighbouring sequences at once, the same lanes for each.
/// Lanes that get no row are left out of the folding: they would add zero. So a column has the bits that block_sum
/// gives it alone.
template <class T, class Lane = typename SumTypes<T>::Lane>
void sum_strip(const T* x, int64_t row_stride, int64_t rows, int columns, Lane* out) {
  Lane lanes[kSumLanes][kStrip];
  const int used = rows < kSumLanes ? static_cast<int>(rows) : kSumLanes;
  for (int l = 0; l < used; ++l)
    for (int c = 0; c < columns; ++c) lanes[l][c] = 0;
  const int64_t step = kSumLanes * row_stride;
  int64_t i = 0;
  for (; i + 4 * kSumLanes <= rows; i += 4 * kSumLanes)  // four rows of each lane at a time
    for (int l = 0; l < kSumLanes; ++l) {
      const T* row = x + (i + l) * row_stride;
      Lane* __restrict lane = lanes[l];
      for (int c = 0; c < columns; ++c)
        lane[c] = (((lane[c] + static_cast<Lane>(row[c])) + static_cast<Lane>(row[step + c])) +
                   static_cast<Lane>(row[2 * step + c])) +
                  static_cast<Lane>(row[3 * step + c]);
    }
  for (; i < rows; ++i) {
    const T* row = x + i * row_stride;
    Lane* __restrict lane = lanes[i % kSumLanes];
    for (int c = 0; c < columns; ++c) lane[c] += static_cast<Lane>(row[c]);
  }
  for (int s = kSumLanes / 2; s > 0; s /= 2)
    for (int l = 0; l < s && l + s < used; ++l)
      for (int c = 0; c < columns; ++c) lanes[l][c] += lanes[l + s][c];
  for (int c = 0; c < columns; ++c) out[c] = lanes[0][c];
}

/// Where the elements of a sequence lie a row apart and those of neighbouring outputs beside each other.
/// A task is one block of rows of one strip of outputs. Blocks are added afterwards in order, in the wider type, as
/// in sum_blocks.
template <class T, class Out>
void sum_columns(const KernelArgs& args, const Split& s) {
  using Lane = typename SumTypes<T>::Lane;
  const int64_t width = s.kept.shape[s.kept.rank - 1], strips = (width + kStrip - 1) / kStrip;
  const int64_t blocks = (s.length + kSumBlock - 1) / kSumBlock, row_stride = s.reduced.strides[0];
  const T* x = static_cast<const T*>(args.in[0].data);
  auto* out = args.out[0].as<Out>();
  Lane* partial = blocks == 1 ? nullptr
                              : static_cast<Lane*>(args.workspace(static_cast<size_t>(s.outputs * blocks) *
                                                                  sizeof(Lane)));  // (block, output)
  const int64_t work = (s.length < kSumBlock ? s.length : kSumBlock) * (width < kStrip ? width : kStrip);
  parallel_ranges(s.outputs / width * strips * blocks, kGrain / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task % blocks, strip = task / blocks % strips, outer = task / blocks / strips;
      const int64_t first = outer * width + strip * kStrip, row = block * kSumBlock;
      const int columns = static_cast<int>(width - strip * kStrip < kStrip ? width - strip * kStrip : kStrip);
      Lane sums[kStrip];
      sum_strip(x + offset_of(s.kept, first) + row * row_stride, row_stride,
                s.length - row < kSumBlock ? s.length - row : kSumBlock, columns, sums);
      for (int c = 0; c < columns; ++c) {
        if (partial)
          partial[block * s.outputs + first + c] = sums[c];
        else
          out[first + c] = finish<T, Out>(sums[c]);
      }
    }
  });
  if (!partial) return;
  parallel_ranges(s.outputs, kTile, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      typename SumTypes<T>::Total total = 0;
      for (int64_t b = 0; b < blocks; ++b) total += partial[b * s.outputs + o];
      out[o] = finish<T, Out>(total);
    }
  });
}

/// read(sequence, begin, n, buffer) gives n elements of a sequence as T.
template <class T, class Out, class Read>
void sum_blocks(const KernelArgs& args, const Split& s, Read&& read) {
  using Types = SumTypes<T>;
  using Lane = typename Types::Lane;
  auto* out = args.out[0].as<Out>();
  // One task for each (output, block); the blocks of an output are added afterwards in their order.
  const int64_t blocks = (s.length + kSumBlock - 1) / kSumBlock;
  const auto block_of = [&](int64_t o, int64_t b) {
    alignas(64) T buffer[kSumBlock];
    Walk sequence = s.reduced;
    sequence.data += offset_of(s.kept, o) * sequence.width;
    const int64_t begin = b * kSumBlock, n = s.length - begin < kSumBlock ? s.length - begin : kSumBlock;
    return block_sum<Lane>(
        0, n, [](auto v) { return v; }, read(sequence, begin, n, buffer));
  };
  // Few and long sequences: threads share the blocks of one. The same sums in the same order as below.
  if (blocks > 1 && s.outputs < 64) {
    auto* partial =
        static_cast<Lane*>(args.workspace(static_cast<size_t>(s.outputs * blocks) * sizeof(Lane)));
    parallel_ranges(s.outputs * blocks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) partial[i] = block_of(i / blocks, i % blocks);
    });
    for (int64_t o = 0; o < s.outputs; ++o) {
      typename Types::Total total = 0;
      for (int64_t b = 0; b < blocks; ++b) total += partial[o * blocks + b];
      out[o] = finish<T, Out>(total);
    }
    return;
  }
  const int64_t grain = s.length >= kGrain ? 1 : kGrain / (s.length + 1) + 1;
  parallel_ranges(s.outputs, grain, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      typename Types::Total total = 0;
      for (int64_t b = 0; b < blocks; ++b) total += block_of(o, b);
      out[o] = finish<T, Out>(total);
    }
  });
}

template <class T>
const T* run_as(const Walk& sequence, int64_t begin, int64_t n, T* buffer) {
  return static_cast<const T*>(run_of(sequence, begin, n, buffer));
}

/// Integers narrower than i64 are widened as they are read, so that they need no loops of their own.
const int64_t* widened_run(DType dtype, const Walk& sequence, int64_t begin, int64_t n, int64_t* buffer) {
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_class_v<T> && !std::is_floating_point_v<T>) {
      T narrow[kSumBlock];
      const T* x = static_cast<const T*>(run_of(sequence, begin, n, narrow));
      for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<int64_t>(x[i]);
    }
  });
  return buffer;
}

/// Which of the two runs depends on the strides; their bits are the same.
template <class T, class Out = typename SumTypes<T>::Out>
void sum_typed(const KernelArgs& args, const Split& s) {
  const int last = s.kept.rank - 1;
  if (s.length > 0 && s.reduced.rank == 1 && last >= 0 && s.kept.strides[last] == 1 &&
      s.kept.shape[last] >= 4)
    sum_columns<T, Out>(args, s);
  else
    sum_blocks<T, Out>(args, s, run_as<T>);
}

void sum(const KernelArgs& args) {
  const Split s = split_axes(args.in[0], args.attributes<ReduceAttrs>().axes);
  const DType dtype = args.in[0].dtype;
  if (s.outputs == 0) return;
  if (is_floating(dtype))
    visit_floating(dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_class_v<T>)
        if (args.out[0].dtype == DType::f32) return sum_typed<T, float>(args, s);
      sum_typed<T>(args, s);
    });
  else if (dtype == DType::i64 || dtype == DType::u64)
    sum_typed<int64_t>(args, s);
  else
    sum_blocks<int64_t, int64_t>(args, s,
                                 [dtype](const Walk& sequence, int64_t begin, int64_t n, int64_t* buffer) {
                                   return widened_run(dtype, sequence, begin, n, buffer);
                                 });
}

/// For each output: state = begin_output(), piece(state, index in the sequence, elements, count) for every piece of its
/// sequence in order, end_output(state, output). Outputs in parallel.
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
    using T = std::conditional_t<std::is_same_v<decltype(zero), bool>, uint8_t, decltype(zero)>;
    using C = typename ComputeType<T>::type;
    struct Best {
      C value{};
      bool any = false;
    };
    T* out = args.out[0].as<T>();
    for_sequences<T>(
        args, [] { return Best{}; },
        [](Best& best, int64_t, const T* x, int64_t n) {
          const C value = extreme_of<F, C>(x, n);
          best = {best.any ? F{}(best.value, value) : value, true};
        },
        [&](const Best& best, int64_t o) { out[o] = static_cast<T>(best.value); });
  });
}

/// Products of a sequence run in order, in the type that sums of blocks have (f32 for bf16 and f16).
template <class T>
void prod_typed(const KernelArgs& args) {
  using Total = std::conditional_t<std::is_class_v<T>, float, typename SumTypes<T>::Total>;
  T* out = args.out[0].as<T>();
  for_sequences<T>(
      args, [] { return Total(1); },
      [](Total& product, int64_t, const T* x, int64_t n) {
        for (int64_t i = 0; i < n; ++i) product *= static_cast<Total>(x[i]);
      },
      [&](Total product, int64_t o) { out[o] = finish<T>(product); });
}

void prod(const KernelArgs& args) {
  if (args.in[0].dtype == DType::i64)
    prod_typed<int64_t>(args);
  else
    visit_floating(args.in[0].dtype, [&](auto zero) { prod_typed<decltype(zero)>(args); });
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
  op_prod().kernels[cpu] = prod;
}

}  // namespace tandem::cpu::TD_ISA
