// Indexing: elements are moved as bytes, one loop a width; sums run in the order of the index. Every index is checked
// before anything is written.
// levels: one
#include "tandem/ops/index.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/scatter_reduce.h"

namespace tandem::cpu::TD_ISA {

namespace {

/// An index tensor of i64 or i32.
struct Indices {
  explicit Indices(const Buffer& b) : data(b.data), wide(b.dtype == DType::i64) {}
  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
  const void* data;
  bool wide;
};

/// Refuses an index outside of low … size - 1 that is not `skip`.
void check_indices(IndexUse use, const Buffer& index, int64_t low, int64_t size, int64_t skip = kNoSkip) {
  const Indices at(index);
  const int64_t n = index.size();
  const auto is_bad = [&](int64_t i) { return (at[i] < low || at[i] >= size) && at[i] != skip; };
  // One loop without branches over all of them; only where it finds one is the first looked for.
  bool bad = false;
  for (int64_t i = 0; i < n; ++i) bad |= is_bad(i);
  if (!bad) return;
  int64_t i = 0;
  while (!is_bad(i)) ++i;
  throw Error(index_fault(use, low, size, at[i], str(" at element ", i)));
}

/// Calls f with an element that adds like the type: signed and unsigned integers wrap alike.
template <class F>
void by_addition(DType dtype, F&& f) {
  if (is_floating(dtype))
    visit_floating(dtype, f);
  else
    visit_width(bytes_of(dtype), f);
}

/// The places of an index tensor within a larger tensor of its rank, whose coordinate along `axis` the index gives. The
/// walk is cut into tasks that share no line along the axis.
/// A line is all places that differ in the axis alone. Index elements that go to one place are of one line, hence of
/// one task, which walks them in order: no two tasks write to one place, and a sum has one order.
struct Places {
  Places(const Buffer& i, const Buffer& l, int a) : index(i), large(l), axis(a), last(i.rank - 1) {
    if (axis == last) {
      for (int d = 0; d < last; ++d) lines *= index.shape[d];
      tasks = (lines + grain() - 1) / grain();
    } else {
      for (int d = 0; d < axis; ++d) lines *= index.shape[d];
      tasks = lines * ((index.shape[last] + kColumns - 1) / kColumns);
    }
  }

  /// Calls each(element of the index, offset in the large tensor), along the axis in order.
  template <class F>
  void walk(int64_t task, F&& each) const {
    if (large.strides[last] == 1)
      walk_by(std::integral_constant<int64_t, 1>(), task, each);
    else
      walk_by(large.strides[last], task, each);
  }
  /// unit: the stride of the last axis.
  template <class Unit, class F>
  void walk_by(Unit unit, int64_t task, F&& each) const {
    const Indices at(index);
    const int64_t step = large.strides[axis], width = index.shape[last];
    if (axis == last) {
      for (int64_t r = task * grain(); r < lines && r < (task + 1) * grain(); ++r) {
        const int64_t base = offset(r, last);
        for (int64_t j = 0; j < width; ++j) each(r * width + j, base + at[r * width + j] * unit);
      }
      return;
    }
    const int64_t pieces = (width + kColumns - 1) / kColumns, line = task / pieces;
    const int64_t from = task % pieces * kColumns, upto = from + kColumns < width ? from + kColumns : width;
    // A task takes kColumns columns of the last axis, and of these all rows of the line, so that places along the
    // axis stay with it.
    int64_t rows = 1, between = 1;  // rows of the last axis in this line; those at one place of the axis
    for (int d = axis; d < last; ++d) rows *= index.shape[d];
    for (int d = axis + 1; d < last; ++d) between *= index.shape[d];
    const int64_t outer = offset(line, axis);
    for (int64_t r = 0; r < rows; ++r) {
      int64_t base = outer, rest = r % between;
      for (int d = last - 1; d > axis; --d) {
        base += rest % index.shape[d] * large.strides[d];
        rest /= index.shape[d];
      }
      const int64_t first = (line * rows + r) * width;
      for (int64_t j = from; j < upto; ++j) each(first + j, base + j * unit + at[first + j] * step);
    }
  }

  static constexpr int64_t kColumns = 512;
  int64_t grain() const { return kGrain / (index.shape[last] + 1) + 1; }
  /// Where the i-th combination of the axes before `end` begins in the large tensor.
  int64_t offset(int64_t i, int end) const {
    int64_t base = 0;
    for (int d = end - 1; d >= 0; --d) {
      base += i % index.shape[d] * large.strides[d];
      i /= index.shape[d];
    }
    return base;
  }

  const Buffer &index, &large;
  int axis, last;
  int64_t lines = 1, tasks = 0;
};

void gather(const KernelArgs& args) {
  const auto& a = args.attributes<IndexAttrs>();
  const Buffer &x = args.in[0], &index = args.in[1];
  const int axis = static_cast<int>(a.axis);
  if (index.size() == 0) return;
  check_indices(a.use, index, 0, x.shape[axis]);
  const Places places(index, x, axis);
  visit_width(bytes_of(x.dtype), [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.as<T>();
    T* out = args.out[0].as<T>();
    parallel_for(places.tasks, [&](int64_t task) {
      places.walk(task, [&](int64_t i, int64_t offset) { out[i] = from[offset]; });
    });
  });
}

void scatter_add_zeros(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterAttrs>();
  const Buffer &index = args.in[1], &out = args.out[0];
  const int axis = static_cast<int>(a.axis);
  const int64_t n = out.size();
  if (index.size() > 0) check_indices(a.use, index, 0, out.shape[axis]);
  by_addition(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;  // 16-bit floats add up in f32 and are rounded once
    const T* source = args.in[0].as<T>();
    C* sums;
    if constexpr (std::is_same_v<T, C>)
      sums = out.as<T>();
    else
      sums = static_cast<C*>(args.workspace(static_cast<size_t>(n) * sizeof(C)));
    std::memset(static_cast<void*>(sums), 0, static_cast<size_t>(n) * sizeof(C));
    if (index.size() > 0) {
      const Places places(index, out, axis);
      parallel_for(places.tasks, [&](int64_t task) {
        places.walk(task, [&](int64_t i, int64_t offset) {
          sums[offset] = static_cast<C>(sums[offset] + static_cast<C>(source[i]));
        });
      });
    }
    if constexpr (!std::is_same_v<T, C>)
      for (int64_t i = 0; i < n; ++i) out.as<T>()[i] = static_cast<T>(sums[i]);
  });
}

/// Takes the elements of source into `out`, which holds x, by combine(old, new), in the order of the index.
template <class T, class C, class F>
void take_in(const KernelArgs& args, C* out, const Places& places, F combine) {
  const T* source = args.in[1].as<T>();
  parallel_for(places.tasks, [&](int64_t task) {
    places.walk(task, [&](int64_t i, int64_t offset) {
      out[offset] = combine(out[offset], static_cast<C>(source[i]));
    });
  });
}

void scatter_reduce(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterReduceAttrs>();
  const Buffer &x = args.in[0], &index = args.in[2], &out = args.out[0];
  const int axis = static_cast<int>(a.axis);
  const int64_t n = out.size();
  if (index.size() > 0) check_indices(IndexUse::scatter_reduce, index, 0, out.shape[axis]);
  if (n == 0 || index.size() == 0) {
    std::memcpy(out.data, x.data, static_cast<size_t>(n) * bytes_of(out.dtype));
    return;
  }
  const Places places(index, out, axis);
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;  // products of 16-bit floats are taken in f32 and rounded once
    C* values;
    if constexpr (std::is_same_v<T, C>)
      values = out.as<T>();
    else
      values = static_cast<C*>(args.workspace(static_cast<size_t>(n) * sizeof(C)));
    for (int64_t i = 0; i < n; ++i) values[i] = static_cast<C>(x.as<T>()[i]);
    switch (static_cast<ScatterReduction>(a.reduction)) {
      case ScatterReduction::amax:
        take_in<T>(args, values, places, [](C a, C b) { return Maximum{}(a, b); });
        break;
      case ScatterReduction::amin:
        take_in<T>(args, values, places, [](C a, C b) { return Minimum{}(a, b); });
        break;
      default:
        take_in<T>(args, values, places, [](C a, C b) { return Mul{}(a, b); });
    }
    if constexpr (!std::is_same_v<T, C>)
      for (int64_t i = 0; i < n; ++i) out.as<T>()[i] = static_cast<T>(values[i]);
  });
}

void last_writer(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterAttrs>();
  const Buffer &index = args.in[0], &out = args.out[0];
  const int axis = static_cast<int>(a.axis);
  int64_t* winner = out.as<int64_t>();
  std::memset(winner, 0xff, static_cast<size_t>(out.size()) * sizeof(int64_t));  // -1
  if (index.size() == 0) return;
  check_indices(a.use, index, 0, out.shape[axis]);
  const Places places(index, out, axis);
  parallel_for(places.tasks, [&](int64_t task) {
    places.walk(task, [&](int64_t i, int64_t offset) { winner[offset] = i; });
  });
}

/// (outer, along the axis, inner) of a row-major tensor.
struct Split {
  Split(const Buffer& b, int64_t axis) {
    for (int d = 0; d < b.rank; ++d) (d < axis ? outer : d == axis ? length : inner) *= b.shape[d];
  }
  int64_t outer = 1, length = 1, inner = 1;
};

void index_select(const KernelArgs& args) {
  const auto& a = args.attributes<IndexAttrs>();
  const Buffer &x = args.in[0], &out = args.out[0];
  if (args.in[1].size() > 0) check_indices(a.use, args.in[1], 0, x.shape[a.axis], a.skip);
  if (out.size() == 0) return;
  const Indices at(args.in[1]);
  const Split from(x, a.axis), to(out, a.axis);
  const int64_t grain = kGrain / (to.inner + 1) + 1;
  visit_width(bytes_of(x.dtype), [&](auto zero) {
    using T = decltype(zero);
    parallel_ranges(to.outer * to.length, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t o = r / to.length, i = at[r - o * to.length];
        T* target = out.as<T>() + r * to.inner;
        const bool reads = i >= 0 && i < from.length;
        const T* source = x.as<T>() + (o * from.length + (reads ? i : 0)) * to.inner;
        if (to.inner == 1)
          *target = reads ? *source : T{};
        else if (reads)
          std::memcpy(target, source, static_cast<size_t>(to.inner) * sizeof(T));
        else
          std::memset(target, 0, static_cast<size_t>(to.inner) * sizeof(T));
      }
    });
  });
}

constexpr int64_t kThin = 8;

/// Slices of few elements are added straight to their places: the same sums in the same order.
void add_thin_slices(const KernelArgs& args, const Split& from, const Split& to) {
  const int64_t skip = args.attributes<ScatterAttrs>().skip, size = to.length * to.inner;
  const Buffer &source = args.in[0], &out = args.out[0];
  const Indices at(args.in[1]);
  by_addition(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    C* sums;
    if constexpr (std::is_same_v<T, C>)
      sums = out.as<T>();
    else
      sums = static_cast<C*>(args.workspace(static_cast<size_t>(to.outer * size) * sizeof(C)));
    parallel_for(to.outer, [&](int64_t o) {
      C* row = sums + o * size;
      std::memset(static_cast<void*>(row), 0, static_cast<size_t>(size) * sizeof(C));
      const T* x = source.as<T>() + o * from.length * to.inner;
      for (int64_t i = 0; i < from.length; ++i, x += to.inner) {
        if (at[i] == skip) continue;
        C* place = row + at[i] * to.inner;
        for (int64_t k = 0; k < to.inner; ++k) place[k] = static_cast<C>(place[k] + static_cast<C>(x[k]));
      }
      if constexpr (!std::is_same_v<T, C>)
        for (int64_t i = 0; i < size; ++i) out.as<T>()[o * size + i] = static_cast<T>(row[i]);
    });
  });
}

/// The slices are listed by the place they go to, in order; then each place of the output adds up its own.
void index_add_zeros(const KernelArgs& args) {
  const auto& a = args.attributes<ScatterAttrs>();
  const Buffer &source = args.in[0], &index = args.in[1], &out = args.out[0];
  check_indices(a.use, index, 0, out.shape[a.axis], a.skip);
  if (out.size() == 0) return;
  const Split from(source, a.axis), to(out, a.axis);
  if (to.inner < kThin) return add_thin_slices(args, from, to);
  const Indices at(index);
  int64_t* first =
      static_cast<int64_t*>(args.workspace(static_cast<size_t>(to.length + 1 + from.length) * 8));
  // A counting sort: counts, then starts, then the slices of each place in the order of the index.
  int64_t* order = first + to.length + 1;
  std::memset(first, 0, static_cast<size_t>(to.length + 1) * 8);
  for (int64_t i = 0; i < from.length; ++i)
    if (at[i] != a.skip) ++first[at[i] + 1];
  for (int64_t d = 0; d < to.length; ++d) first[d + 1] += first[d];
  for (int64_t i = 0; i < from.length; ++i)
    if (at[i] != a.skip) order[first[at[i]]++] = i;  // first[d] becomes the end of d's slices
  const int64_t grain = kGrain / (to.inner + 1) + 1;
  by_addition(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    parallel_ranges(to.outer * to.length, grain, [&](int64_t begin, int64_t end) {
      C sums[kTile];
      for (int64_t r = begin; r < end; ++r) {
        const int64_t o = r / to.length, d = r - o * to.length;
        const T* x = source.as<T>() + o * from.length * to.inner;
        T* target = out.as<T>() + r * to.inner;
        for (int64_t c = 0; c < to.inner; c += kTile) {
          const int64_t n = to.inner - c < kTile ? to.inner - c : kTile;
          for (int64_t k = 0; k < n; ++k) sums[k] = C(0);
          for (int64_t i = d ? first[d - 1] : 0; i < first[d]; ++i) {
            const T* row = x + order[i] * to.inner + c;
            for (int64_t k = 0; k < n; ++k) sums[k] = static_cast<C>(sums[k] + static_cast<C>(row[k]));
          }
          for (int64_t k = 0; k < n; ++k) target[c + k] = static_cast<T>(sums[k]);
        }
      }
    });
  });
}

/// As above, with the places found by a sort: the work depends on the slices alone.
/// The slices of a place are summed before they meet what the place holds.
void index_add_into(const KernelArgs& args) {
  const Buffer &out = args.out[0], &index = args.in[1], &source = args.in[2];
  check_indices(IndexUse::index_add_into, index, 0, out.shape[0]);
  const Indices at(index);
  const int64_t n = index.size();
  int64_t inner = 1;
  for (int d = 1; d < out.rank; ++d) inner *= out.shape[d];
  std::vector<int64_t> order(static_cast<size_t>(n)), starts;
  for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return at[a] < at[b]; });
  for (int64_t i = 0; i < n; ++i)
    if (i == 0 || at[order[static_cast<size_t>(i - 1)]] != at[order[static_cast<size_t>(i)]])
      starts.push_back(i);
  starts.push_back(n);
  by_addition(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    const int64_t grain = kGrain / (inner + 1) + 1;
    parallel_ranges(static_cast<int64_t>(starts.size()) - 1, grain, [&](int64_t begin, int64_t end) {
      C sums[kTile];
      for (int64_t s = begin; s < end; ++s) {
        const int64_t first = starts[static_cast<size_t>(s)], last = starts[static_cast<size_t>(s + 1)];
        T* row = out.as<T>() + at[order[static_cast<size_t>(first)]] * inner;
        for (int64_t c = 0; c < inner; c += kTile) {
          const int64_t count = inner - c < kTile ? inner - c : kTile;
          for (int64_t k = 0; k < count; ++k) sums[k] = C(0);
          for (int64_t i = first; i < last; ++i) {
            const T* from = source.as<T>() + order[static_cast<size_t>(i)] * inner + c;
            for (int64_t k = 0; k < count; ++k) sums[k] = static_cast<C>(sums[k] + static_cast<C>(from[k]));
          }
          for (int64_t k = 0; k < count; ++k)
            row[c + k] = static_cast<T>(static_cast<C>(row[c + k]) + sums[k]);
        }
      }
    });
  });
}

/// Along the axis the values are put in order, so that the last one stays.
void scatter_into(const KernelArgs& args) {
  const int axis = static_cast<int>(args.attributes<ScatterAttrs>().axis);
  const Buffer &out = args.out[0], &index = args.in[1];
  if (index.size() == 0) return;
  check_indices(IndexUse::scatter_into, index, 0, out.shape[axis]);
  const Places places(index, out, axis);
  visit_width(bytes_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    const T* source = args.in[2].as<T>();
    T* to = out.as<T>();
    parallel_for(places.tasks, [&](int64_t task) {
      places.walk(task, [&](int64_t i, int64_t offset) { to[offset] = source[i]; });
    });
  });
}

/// Slice i of b along an axis, as a walk over its elements.
Walk slice_walk(const Buffer& b, int axis, int64_t i) {
  Walk w;
  w.width = static_cast<int64_t>(bytes_of(b.dtype));
  w.data = static_cast<char*>(b.data) + i * b.strides[axis] * w.width;
  for (int d = 0; d < b.rank; ++d)
    if (d != axis) add_axis(w, b.shape[d], b.strides[d]);
  return w;
}

/// The slices that no later one overwrites are found by a sort; then each is copied, in pieces.
void index_copy_into(const KernelArgs& args) {
  const int axis = static_cast<int>(args.attributes<ScatterAttrs>().axis);
  const Buffer &out = args.out[0], &index = args.in[1], &source = args.in[2];
  check_indices(IndexUse::index_copy_into, index, 0, out.shape[axis]);
  if (source.size() == 0) return;
  const Indices at(index);
  const int64_t n = index.size(), size = source.size() / n;
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return at[a] < at[b]; });
  size_t kept = 0;
  for (size_t i = 0; i < order.size(); ++i)
    if (i + 1 == order.size() || at[order[i]] != at[order[i + 1]]) order[kept++] = order[i];
  const int64_t pieces = (size + kGrain - 1) / kGrain;
  const int64_t grain = kGrain / (size + 1) + 1;  // tasks that a thread takes at a time
  parallel_ranges(static_cast<int64_t>(kept) * pieces, grain, [&](int64_t begin, int64_t end) {
    alignas(64) char tile[kTile * 8];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t i = order[static_cast<size_t>(task / pieces)], first = task % pieces * kGrain;
      const int64_t last = first + kGrain < size ? first + kGrain : size;
      const Walk from = slice_walk(source, axis, i), to = slice_walk(out, axis, at[i]);
      for (int64_t k = first; k < last; k += kTile) {
        const int64_t count = last - k < kTile ? last - k : kTile;
        store_run(to, k, count, run_of(from, k, count, tile));
      }
    }
  });
}

void ravel_index(const KernelArgs& args) {
  const auto& a = args.attributes<RavelAttrs>();
  const int64_t n = args.out[0].size();
  int64_t* out = args.out[0].as<int64_t>();
  for (int k = 0; k < args.n_in; ++k) {
    const int64_t size = a.sizes[k];
    check_indices(a.use, args.in[k], -size, size);
    const Indices at(args.in[k]);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t wrapped = at[i] < 0 ? at[i] + size : at[i];
      out[i] = k ? out[i] * size + wrapped : wrapped;
    }
  }
}

void one_hot(const KernelArgs& args) {
  const int64_t classes = args.attributes<OneHotAttrs>().classes, n = args.in[0].size();
  check_indices(IndexUse::one_hot, args.in[0], 0, classes);
  const Indices at(args.in[0]);
  int64_t* out = args.out[0].as<int64_t>();
  std::memset(out, 0, static_cast<size_t>(n * classes) * sizeof(int64_t));
  for (int64_t i = 0; i < n; ++i) out[i * classes + at[i]] = 1;
}

/// Blocks are counted, then written from where the blocks before them end.
void nonzero(const KernelArgs& args) {
  const Buffer& x = args.in[0];
  const int64_t n = x.size(), blocks = (n + kGrain - 1) / kGrain;
  int64_t* starts = static_cast<int64_t*>(args.workspace(static_cast<size_t>(blocks + 1) * 8));
  visit_width(bytes_of(x.dtype), [&](auto zero) {
    using T = decltype(zero);
    // A floating number is zero whatever its sign.
    const T mask = is_floating(x.dtype) ? static_cast<T>(static_cast<T>(~T(0)) >> 1) : static_cast<T>(~T(0));
    const T* data = x.as<T>();
    starts[0] = 0;
    parallel_for(blocks, [&](int64_t b) {
      const int64_t end = (b + 1) * kGrain < n ? (b + 1) * kGrain : n;
      int64_t count = 0;
      for (int64_t i = b * kGrain; i < end; ++i) count += (data[i] & mask) != 0;
      starts[b + 1] = count;
    });
    for (int64_t b = 0; b < blocks; ++b) starts[b + 1] += starts[b];
    const int64_t shape[2] = {starts[blocks], x.rank};
    args.allocate_output(0, shape);
    int64_t* out = args.out[0].as<int64_t>();
    parallel_for(blocks, [&](int64_t b) {
      const int64_t end = (b + 1) * kGrain < n ? (b + 1) * kGrain : n;
      int64_t* to = out + starts[b] * x.rank;
      for (int64_t i = b * kGrain; i < end; ++i) {
        if ((data[i] & mask) == 0) continue;
        int64_t rest = i;
        for (int d = x.rank - 1; d >= 0; --d) {
          to[d] = rest % x.shape[d];
          rest /= x.shape[d];
        }
        to += x.rank;
      }
    });
  });
}

}  // namespace

void register_index_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_gather().kernels[cpu] = gather;
  op_scatter_add_zeros().kernels[cpu] = scatter_add_zeros;
  op_scatter_reduce().kernels[cpu] = scatter_reduce;
  op_last_writer().kernels[cpu] = last_writer;
  op_index_select().kernels[cpu] = index_select;
  op_index_add_zeros().kernels[cpu] = index_add_zeros;
  op_index_add_into().kernels[cpu] = index_add_into;
  op_scatter_into().kernels[cpu] = scatter_into;
  op_index_copy_into().kernels[cpu] = index_copy_into;
  op_ravel_index().kernels[cpu] = ravel_index;
  op_one_hot().kernels[cpu] = one_hot;
  op_nonzero().kernels[cpu] = nonzero;
}

}  // namespace tandem::cpu::TD_ISA
