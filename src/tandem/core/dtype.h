// The table of element types and the one rule by which they combine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "tandem/core/half.h"
#include "tandem/core/standard.h"

namespace tandem {

/// Element types. The numbers are part of the file formats: append, never renumber. 13 and up are reserved
/// for 8-bit floats and complex numbers.
enum class DType : uint8_t { f64, f32, bf16, f16, i8, i16, i32, i64, u8, u16, u32, u64, boolean };
inline constexpr int kDTypeCount = 13;

/// Kinds of number, in the order in which they win over each other when two types meet.
enum class DTypeClass : uint8_t { boolean, integer, floating };

struct DTypeInfo {
  const char* name;
  const char* safetensors_name;
  uint8_t bytes;
  DTypeClass kind;
};

const DTypeInfo& info(DType dtype);
inline const char* name(DType dtype) { return info(dtype).name; }
inline size_t bytes_of(DType dtype) { return info(dtype).bytes; }
inline bool is_floating(DType dtype) { return dtype <= DType::f16; }
/// The largest finite number of a floating type.
double largest_of(DType dtype);
inline bool is_integer(DType dtype) { return dtype > DType::f16 && dtype != DType::boolean; }

/// The type of a result of a and b: the higher class wins; within a class the type that holds both
/// (u64 with a signed type gives f32, bf16 with f16 gives f32), as PyTorch does. A table stands in
/// docs/types.md.
DType promote(DType a, DType b);

/// Parses "f32", "bf16", "i64" …; throws Error with the list of names.
DType parse_dtype(std::string_view text);

std::ostream& operator<<(std::ostream& out, DType dtype);

/// The C++ type behind a dtype and back.
template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<Float16>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::i8;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return DType::i16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::u8;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return DType::u16;
}
template <>
constexpr DType dtype_of<uint32_t>() {
  return DType::u32;
}
template <>
constexpr DType dtype_of<uint64_t>() {
  return DType::u64;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::boolean;
}

/// Calls f with a value-initialised element of the C++ type of dtype: visit_dtype(d, [&](auto zero) {
/// using T = decltype(zero); … }).
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f16:
      return f(Float16{});
    case DType::i8:
      return f(int8_t{});
    case DType::i16:
      return f(int16_t{});
    case DType::i32:
      return f(int32_t{});
    case DType::i64:
      return f(int64_t{});
    case DType::u8:
      return f(uint8_t{});
    case DType::u16:
      return f(uint16_t{});
    case DType::u32:
      return f(uint32_t{});
    case DType::u64:
      return f(uint64_t{});
    case DType::boolean:
      break;
  }
  return f(bool{});
}

/// The same over the floating types only. The caller has checked is_floating(dtype).
template <class F>
decltype(auto) visit_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f16:
      return f(Float16{});
    default:
      return f(float{});
  }
}

/// Calls f with an unsigned integer of so many bytes, for code that only moves elements.
template <class F>
decltype(auto) visit_width(size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

}  // namespace tandem
