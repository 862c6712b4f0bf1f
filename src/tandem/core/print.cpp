// Tensors as text: nested lists of numbers.
#include <atomic>
#include <cstdio>
#include <ostream>

#include "tandem/core/tensor.h"
#include "tandem/core/trace.h"

namespace tandem {

namespace {

std::atomic<int> g_precision{PrintOptions().precision};
std::atomic<Dim> g_whole{PrintOptions().whole}, g_ends{PrintOptions().ends};

template <class T>
void print_number(std::ostream& out, T value, int precision) {
  if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_integral_v<T>) {
    out << +value;
  } else {
    char text[40];
    std::snprintf(text, sizeof(text), "%.*g", precision, static_cast<double>(value));
    out << text;
  }
}

template <class T>
void print_axis(std::ostream& out, const T* values, const Dims& shape, int axis, bool whole,
                const PrintOptions& options) {
  if (axis == shape.rank()) return print_number(out, *values, options.precision);
  Dim inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  out << '[';
  for (Dim i = 0; i < shape[axis]; ++i) {
    if (i) out << ", ";
    if (!whole && i == options.ends && shape[axis] - options.ends > options.ends) {
      out << "…, ";
      i = shape[axis] - options.ends;
    }
    print_axis(out, values + i * inner, shape, axis + 1, whole, options);
  }
  out << ']';
}

}  // namespace

PrintOptions print_options() { return {g_precision, g_whole, g_ends}; }
void set_print_options(const PrintOptions& options) {
  TD_CHECK(options.precision >= 1 && options.precision <= 17,
           "set_print_options: precision must be 1 to 17; got ", options.precision, ".");
  TD_CHECK(options.whole >= 0, "set_print_options: whole must not be negative; got ", options.whole, ".");
  TD_CHECK(options.ends >= 1, "set_print_options: ends must be at least 1; got ", options.ends, ".");
  g_precision = options.precision;
  g_whole = options.whole;
  g_ends = options.ends;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  const bool unreadable = current_tracer() && current_tracer()->replays();  // values change from call to call
  if (!tensor.defined() || tensor.is_traced() || unreadable) return out << describe(tensor);
  const std::vector<std::byte> bytes = host_bytes(tensor);
  const PrintOptions options = print_options();
  visit_dtype(tensor.dtype(), [&](auto zero) {
    print_axis(out, reinterpret_cast<const decltype(zero)*>(bytes.data()), tensor.shape(), 0,
               tensor.size() <= options.whole, options);
  });
  return out;
}

}  // namespace tandem
