#include "tests/support/values.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "tandem/ops/shape.h"

namespace tandem::testing {

uint32_t hash32(uint32_t i, uint32_t salt) {
  uint32_t h = i + salt * 0x9e3779b9u;
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  h ^= h >> 16;
  return h;
}

double hash_value(uint32_t i, uint32_t salt, double low, double high) {
  return low + (high - low) * (static_cast<double>(hash32(i, salt) >> 8) * 0x1p-24);
}

uint32_t name_salt(std::string_view name) {
  uint32_t h = 2166136261u;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 16777619u;
  return h;
}

uint64_t Random::next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

double& Array::at(const Dims& index) {
  int64_t i = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) i = i * shape[axis] + index[axis];
  return values[static_cast<size_t>(i)];
}

void each_index(const Dims& shape, const std::function<void(const Dims&)>& f) {
  Dims index = Dims::filled(shape.rank(), 0);
  for (int64_t left = size_of(shape); left > 0; --left) {
    f(index);
    for (int axis = shape.rank() - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
  }
}

Array hash_array(const Dims& shape, uint32_t salt, double low, double high) {
  Array array(shape);
  for (int64_t i = 0; i < array.size(); ++i) array[i] = hash_value(static_cast<uint32_t>(i), salt, low, high);
  return array;
}

Tensor to_tensor(const Array& array, DType dtype, Device device) {
  return visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<std::byte> bytes(array.values.size() * sizeof(T));
    for (size_t i = 0; i < array.values.size(); ++i) {
      const double value = array.values[i];
      T element;
      if constexpr (std::is_class_v<T>)
        element = T(static_cast<float>(value));
      else if constexpr (std::is_same_v<T, bool>)
        element = value != 0;
      else
        element = static_cast<T>(value);
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
    return from_host(bytes.data(), array.shape, dtype, device);
  });
}

Array to_array(const Tensor& tensor) {
  Array array(tensor.shape());
  const std::vector<std::byte> bytes = host_bytes(tensor);
  visit_dtype(tensor.dtype(), [&](auto zero) {
    for (size_t i = 0; i < array.values.size(); ++i) {
      std::memcpy(&zero, bytes.data() + i * sizeof(zero), sizeof(zero));
      if constexpr (std::is_class_v<decltype(zero)>)
        array.values[i] = static_cast<float>(zero);
      else
        array.values[i] = static_cast<double>(zero);
    }
  });
  return array;
}

::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape()))
    return ::testing::AssertionFailure() << describe(a) << " is not " << describe(b);
  const std::vector<std::byte> left = host_bytes(a), right = host_bytes(b);
  if (left == right) return ::testing::AssertionSuccess();
  const size_t width = bytes_of(a.dtype());
  const Array x = to_array(a), y = to_array(b);
  size_t differing = 0, first = 0;
  for (size_t i = 0; i < x.values.size(); ++i) {
    if (std::memcmp(left.data() + i * width, right.data() + i * width, width) == 0) continue;
    if (std::isnan(x.values[i]) && std::isnan(y.values[i])) continue;
    if (differing++ == 0) first = i;
  }
  if (differing == 0) return ::testing::AssertionSuccess();
  std::ostringstream text;
  text.precision(17);
  text << describe(a) << ": " << differing << " of " << x.values.size() << " elements differ, first element "
       << first << ": " << x.values[first] << " and " << y.values[first];
  return ::testing::AssertionFailure() << text.str();
}

::testing::AssertionResult near(const Array& got, const Array& want, double tolerance) {
  if (!(got.shape == want.shape))
    return ::testing::AssertionFailure() << "the shape is " << got.shape << " and should be " << want.shape;
  double worst = 0;
  int64_t where = -1;
  for (int64_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (got[i] == want[i]) continue;
    double distance = std::abs(got[i] - want[i]) / (1 + std::abs(want[i]));
    if (!(distance < 1e300)) distance = 1e300;  // a NaN or infinity on one side
    if (distance > tolerance && distance > worst) worst = distance, where = i;
  }
  if (where < 0) return ::testing::AssertionSuccess();
  std::ostringstream text;
  text.precision(17);
  text << "element " << where << " of " << got.shape << " is " << got[where] << " and should be "
       << want[where] << " within " << tolerance << " (distance " << worst << ")";
  return ::testing::AssertionFailure() << text.str();
}

double relative_distance(const Array& got, const Array& want) {
  if (!(got.shape == want.shape)) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "expected an Error; got another exception: " << other.what();
    return other.what();
  }
  ADD_FAILURE() << "expected an Error; nothing was thrown";
  return {};
}

}  // namespace tandem::testing
