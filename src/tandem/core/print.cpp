// Tensors as text: nested lists of numbers.
#include <cstdio>
#include <ostream>

#include "tandem/core/tensor.h"
#include "tandem/core/trace.h"

namespace tandem {

namespace {

constexpr Dim kWhole = 1000;  // a tensor of more elements shows the ends of its axes only
constexpr Dim kEnds = 3;

template <class T>
void print_number(std::ostream& out, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_integral_v<T>) {
    out << +value;
  } else {
    char text[40];
    std::snprintf(text, sizeof(text), "%.6g", static_cast<double>(value));
    out << text;
  }
}

template <class T>
void print_axis(std::ostream& out, const T* values, const Dims& shape, int axis, bool whole) {
  if (axis == shape.rank()) return print_number(out, *values);
  Dim inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  out << '[';
  for (Dim i = 0; i < shape[axis]; ++i) {
    if (i) out << ", ";
    if (!whole && i == kEnds && shape[axis] > 2 * kEnds) {
      out << "…, ";
      i = shape[axis] - kEnds;
    }
    print_axis(out, values + i * inner, shape, axis + 1, whole);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  const bool unreadable = current_tracer() && current_tracer()->replays();  // values change from call to call
  if (!tensor.defined() || tensor.is_traced() || unreadable) return out << describe(tensor);
  const std::vector<std::byte> bytes = host_bytes(tensor);
  visit_dtype(tensor.dtype(), [&](auto zero) {
    print_axis(out, reinterpret_cast<const decltype(zero)*>(bytes.data()), tensor.shape(), 0,
               tensor.size() <= kWhole);
  });
  return out;
}

}  // namespace tandem
