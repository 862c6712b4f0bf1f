// Numbers for tests: values from an integer hash that make_golden.py computes too, plain arrays of doubles, and
// comparison by tolerance or by bits.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem::testing {

/// A well-mixed 32-bit number for (i, salt): the finaliser of MurmurHash3 over i + salt · 0x9e3779b9.
uint32_t hash32(uint32_t i, uint32_t salt);

/// Element i of the test data `salt`: in [low, high), with 24 random bits.
double hash_value(uint32_t i, uint32_t salt, double low = -1, double high = 1);

/// FNV-1a over the bytes of a name: the salt of a named parameter.
uint32_t name_salt(std::string_view name);

/// A small generator for the fuzzers (SplitMix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

 private:
  uint64_t state_;
};

/// A row-major array of doubles: what the references compute with.
struct Array {
  Dims shape;
  std::vector<double> values;

  Array() = default;
  explicit Array(const Dims& s) : shape(s), values(static_cast<size_t>(size_of(s)), 0.) {}
  Array(const Dims& s, std::vector<double> v) : shape(s), values(std::move(v)) {}
  int64_t size() const { return static_cast<int64_t>(values.size()); }
  double& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
  /// The element at a multi-index.
  double& at(const Dims& index);
  double at(const Dims& index) const { return const_cast<Array*>(this)->at(index); }
};

/// Calls f with every multi-index of a shape, in row-major order.
void each_index(const Dims& shape, const std::function<void(const Dims&)>& f);

/// Hash values of a shape.
Array hash_array(const Dims& shape, uint32_t salt, double low = -1, double high = 1);

/// To a tensor of the dtype (rounded, or truncated for integers) and back.
Tensor to_tensor(const Array& array, DType dtype, Device device = {});
Array to_array(const Tensor& tensor);

/// Same dtype, shape and bytes; a NaN equals any NaN. The message says where the first difference is.
::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b);

/// |got - want| <= tolerance · (1 + |want|) everywhere, and the same shape; NaN equals NaN.
::testing::AssertionResult near(const Array& got, const Array& want, double tolerance);

/// The norm of the difference over that of `want`; infinite where the shapes differ.
double relative_distance(const Array& got, const Array& want);

/// The message of the Error that f throws; fails the test where it throws none.
std::string error_of(const std::function<void()>& f);

}  // namespace tandem::testing
