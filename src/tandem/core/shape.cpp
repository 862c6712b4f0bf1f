#include "tandem/core/shape.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/small_vector.h"

namespace tandem {

Dims::Dims(std::span<const Dim> values) {
  TD_CHECK(values.size() <= kMaxRank, "shape: at most ", kMaxRank, " axes are supported; got ", values.size(),
           ".");
  std::copy(values.begin(), values.end(), values_);
  rank_ = static_cast<int>(values.size());
}

void Dims::refuse(uint64_t value) {
  throw Error(str("shape: a size or axis must fit 63 bits; got ", value, "."));
}

Dims Dims::filled(int rank, Dim value) {
  TD_CHECK(rank >= 0 && rank <= kMaxRank, "shape: at most ", kMaxRank, " axes are supported; got ", rank,
           ".");
  Dims out;
  out.rank_ = rank;
  std::fill_n(out.values_, rank, value);
  return out;
}

void Dims::push_back(Dim value) { insert(rank_, value); }

void Dims::erase(int i) {
  std::copy(values_ + i + 1, values_ + rank_, values_ + i);
  --rank_;
}

void Dims::insert(int i, Dim value) {
  TD_CHECK(rank_ < kMaxRank, "shape: at most ", kMaxRank, " axes are supported; one more was asked of ",
           *this, ".");
  std::copy_backward(values_ + i, values_ + rank_, values_ + rank_ + 1);
  values_[i] = value;
  ++rank_;
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  out << '(';
  for (int i = 0; i < dims.rank(); ++i) out << (i ? ", " : "") << dims[i];
  return out << (dims.rank() == 1 ? ",)" : ")");
}

namespace {
constexpr Dim kTooMany = Dim{1} << 60;  // elements: fewer can be counted in bytes, whatever their type

[[noreturn]] void refuse_sizes(const Dims& shape) {
  for (Dim d : shape) TD_CHECK(d >= 0, "shape: sizes must not be negative; got ", shape, ".");
  throw Error(str("shape: the number of elements, at 8 bytes each, must fit 63 bits; got ", shape, "."));
}
}  // namespace

Dim size_of(const Dims& shape) {
  Dim total = 1;
  bool is_empty = false;
  for (Dim d : shape) {
    if (d == 0) {
      is_empty = true;
      continue;
    }
    if (d < 0 || __builtin_mul_overflow(total, d, &total) || total >= kTooMany) [[unlikely]]
      refuse_sizes(shape);
  }
  return is_empty ? 0 : total;
}

Dims contiguous_strides(const Dims& shape) {
  Dims strides = shape;
  Dim step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const Dim size = std::max<Dim>(shape[i], 1);
    strides[i] = step;
    if (shape[i] < 0 || __builtin_mul_overflow(step, size, &step) || step >= kTooMany) [[unlikely]]
      refuse_sizes(shape);
  }
  return strides;
}

bool is_contiguous(const Dims& shape, const Dims& strides) {
  Dim step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

bool has_overlap(const Dims& shape, const Dims& strides) {
  SmallVector<std::pair<Dim, Dim>, kMaxRank> axes;  // stride, size
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] > 1) axes.push_back({strides[i], shape[i]});
  }
  std::sort(axes.begin(), axes.end());
  Dim extent = 0;  // from the first to the last element so far
  for (const auto& [stride, size] : axes) {
    if (stride <= extent) return true;
    extent += (size - 1) * stride;
  }
  return false;
}

Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b) {
  if (a == b) return a;
  Dims out = a.rank() >= b.rank() ? a : b;
  const Dims& shorter = a.rank() >= b.rank() ? b : a;
  const int lead = out.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    const Dim x = out[lead + i], y = shorter[i];
    if (x == y || y == 1) continue;
    TD_CHECK(x == 1, op, ": sizes must be equal or 1, compared from the last axis; got a ", a, " and b ", b,
             ". Reshape one of them so that the axes line up.");
    out[lead + i] = y;
  }
  return out;
}

int normal_axis(const char* op, int64_t axis, int rank) {
  TD_CHECK(axis >= -rank && axis < rank, op, ": the axis must lie in ", -rank, "..", rank - 1, "; got ", axis,
           " for a tensor of ", rank, " axes.");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace tandem
