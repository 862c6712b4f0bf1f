// How CPU kernels walk strided operands: an operand is read as one run of elements in the logical (row-major) order of
// some shape, a piece at a time. Work on pieces is then plain contiguous loops.
#pragma once

#include <cstdint>
#include <cstring>

#include "tandem/core/kernel.h"
#include "tandem/core/shape.h"

namespace tandem::cpu::TD_ISA {

/// A strided operand laid over a shape, with neighbouring axes merged where they lie evenly in memory.
struct Walk {
  char* data = nullptr;
  int64_t width = 0;  // bytes per element
  int rank = 0;       // after merging; 0 = one element for every place
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];  // in elements; 0 where broadcast

  bool is_scalar() const { return rank == 0 || (rank == 1 && strides[0] == 0); }
  bool is_contiguous() const { return rank == 1 && strides[0] == 1; }
};

/// Adds an axis (from the outermost in) to a walk, merging it with the one before where possible.
inline void add_axis(Walk& w, int64_t size, int64_t stride) {
  if (size == 1) return;
  if (w.rank > 0 && w.strides[w.rank - 1] == stride * size) {
    w.shape[w.rank - 1] *= size;
    w.strides[w.rank - 1] = stride;
    return;
  }
  w.shape[w.rank] = size;
  w.strides[w.rank] = stride;
  ++w.rank;
}

/// `b` broadcast over `shape` (right-aligned).
inline Walk walk_over(const Buffer& b, const int64_t* shape, int rank) {
  Walk w;
  w.data = static_cast<char*>(b.data);
  w.width = static_cast<int64_t>(bytes_of(b.dtype));
  const int lead = rank - b.rank;
  for (int i = 0; i < rank; ++i) {
    const bool real = i >= lead && b.shape[i - lead] == shape[i];
    add_axis(w, shape[i], real ? b.strides[i - lead] : 0);
  }
  return w;
}

namespace detail {

template <class T>
void load_strided(const char* from, int64_t stride, int64_t n, char* to) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  if (stride == 0) {
    const T value = source[0];
    for (int64_t i = 0; i < n; ++i) target[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) target[i] = source[i * stride];
  }
}

template <class T>
void store_strided(const char* from, int64_t stride, int64_t n, char* to) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) target[i * stride] = source[i];
}

/// Calls piece(address of first element, stride, count) for the places [begin, begin + n) in logical order.
template <class F>
void for_pieces(const Walk& w, int64_t begin, int64_t n, F&& piece) {
  if (n == 0) return;
  if (w.rank == 0) {
    piece(w.data, int64_t{0}, n);
    return;
  }
  int64_t index[kMaxRank];
  int64_t rest = begin, at = 0;
  for (int i = w.rank - 1; i >= 0; --i) {
    index[i] = rest % w.shape[i];
    rest /= w.shape[i];
    at += index[i] * w.strides[i];
  }
  const int last = w.rank - 1;
  while (n > 0) {
    const int64_t left = w.shape[last] - index[last];
    const int64_t count = left < n ? left : n;
    piece(w.data + at * w.width, w.strides[last], count);
    n -= count;
    if (n == 0) break;
    at += count * w.strides[last];
    index[last] += count;
    for (int i = last; i > 0 && index[i] == w.shape[i]; --i) {
      at += w.strides[i - 1] - w.shape[i] * w.strides[i];
      index[i] = 0;
      ++index[i - 1];
    }
  }
}

}  // namespace detail

/// Copies the places [begin, begin + n) into contiguous memory.
inline void load_run(const Walk& w, int64_t begin, int64_t n, void* to_memory) {
  char* to = static_cast<char*>(to_memory);
  detail::for_pieces(w, begin, n, [&](const char* from, int64_t stride, int64_t count) {
    if (stride == 1)
      std::memcpy(to, from, static_cast<size_t>(count * w.width));
    else if (w.width == 4)
      detail::load_strided<uint32_t>(from, stride, count, to);
    else if (w.width == 8)
      detail::load_strided<uint64_t>(from, stride, count, to);
    else if (w.width == 2)
      detail::load_strided<uint16_t>(from, stride, count, to);
    else
      detail::load_strided<uint8_t>(from, stride, count, to);
    to += count * w.width;
  });
}

/// The reverse: writes n contiguous elements to the places [begin, begin + n).
inline void store_run(const Walk& w, int64_t begin, int64_t n, const void* from_memory) {
  const char* from = static_cast<const char*>(from_memory);
  detail::for_pieces(w, begin, n, [&](char* to, int64_t stride, int64_t count) {
    if (stride == 1)
      std::memcpy(to, from, static_cast<size_t>(count * w.width));
    else if (w.width == 4)
      detail::store_strided<uint32_t>(from, stride, count, to);
    else if (w.width == 8)
      detail::store_strided<uint64_t>(from, stride, count, to);
    else if (w.width == 2)
      detail::store_strided<uint16_t>(from, stride, count, to);
    else
      detail::store_strided<uint8_t>(from, stride, count, to);
    from += count * w.width;
  });
}

/// A pointer to the places [begin, begin + n): into the operand itself where they lie together, else into `buffer`,
/// which is filled.
inline const void* run_of(const Walk& w, int64_t begin, int64_t n, void* buffer) {
  if (w.is_contiguous()) return w.data + begin * w.width;
  load_run(w, begin, n, buffer);
  return buffer;
}

/// Elements worked on at a time, and handed to a thread at a time.
inline constexpr int64_t kTile = 1024;
inline constexpr int64_t kGrain = 16 * kTile;

}  // namespace tandem::cpu::TD_ISA
