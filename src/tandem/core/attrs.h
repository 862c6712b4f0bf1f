// Attributes of an operation: an immutable struct whose fields can be visited. A struct T becomes attributes
// by naming its fields once,
//   struct PoolAttrs {
//     int64_t kernel = 2; …
//     template <class Visit>
//     static auto fields(Visit visit) { return visit(field("kernel", &PoolAttrs::kernel), …); }
//   };
// and from that come equality, hashing and printing. The struct must stand outside of functions, where C++ allows no
// member templates; in return a program that includes it pays nothing for it. Attrs holds any such struct inline, with
// no allocation.
// Structs must be trivially copyable and at most kMaxAttrBytes long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "tandem/core/device.h"
#include "tandem/core/dtype.h"
#include "tandem/core/error.h"
#include "tandem/core/shape.h"

namespace tandem {

inline constexpr size_t kMaxAttrBytes = 152;

template <class S, class M>
struct Field {
  const char* name;
  M S::*member;
};
template <class S, class M>
constexpr Field<S, M> field(const char* name, M S::*member) {
  return {name, member};
}

namespace detail {
size_t hash_bytes(const void* data, size_t bytes, size_t seed);

template <class T>
size_t hash_field(const T& value, size_t seed) {
  if constexpr (std::is_same_v<T, Dims>) {
    return hash_bytes(value.data(), sizeof(Dim) * static_cast<size_t>(value.rank()),
                      seed + static_cast<size_t>(value.rank()));
  } else {
    static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);
    return hash_bytes(&value, sizeof(T), seed);
  }
}
/// Floats compare by bits: equal attributes must mean the same computation (0.0 is not -0.0).
template <class T>
bool same_field(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  else
    return a == b;
}

struct AttrType {
  bool (*equal)(const void*, const void*);
  size_t (*hash)(const void*);
  std::string (*print)(const void*);
};

template <class T>
const AttrType* attr_type() {
  static const AttrType type{
      [](const void* a, const void* b) {
        return T::fields([&](auto... f) {
          return (same_field(static_cast<const T*>(a)->*(f.member), static_cast<const T*>(b)->*(f.member)) &&
                  ... && true);
        });
      },
      [](const void* a) {
        size_t seed = 17;
        T::fields(
            [&](auto... f) { ((seed = hash_field(static_cast<const T*>(a)->*(f.member), seed)), ...); });
        return seed;
      },
      [](const void* a) {
        std::string text;
        T::fields([&](auto... f) {
          ((text += cat(text.empty() ? "" : ", ", f.name, "=", static_cast<const T*>(a)->*(f.member))), ...);
        });
        return text;
      }};
  return &type;
}
}  // namespace detail

/// Any attribute struct, or none.
class Attrs {
 public:
  Attrs() = default;
  template <class T>
  requires(!std::is_same_v<std::decay_t<T>, Attrs>) Attrs(const T& value) : type_(detail::attr_type<T>()) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxAttrBytes && alignof(T) <= 8);
    std::memcpy(bytes_, &value, sizeof(T));
  }
  Attrs(const Attrs& other) : type_(other.type_) {
    if (type_) std::memcpy(bytes_, other.bytes_, kMaxAttrBytes);
  }
  Attrs& operator=(const Attrs& other) {
    type_ = other.type_;
    if (type_) std::memcpy(bytes_, other.bytes_, kMaxAttrBytes);
    return *this;
  }

  template <class T>
  const T& as() const {
    return *reinterpret_cast<const T*>(bytes_);
  }
  const void* data() const { return bytes_; }
  bool empty() const { return type_ == nullptr; }
  size_t hash() const { return type_ ? type_->hash(bytes_) : 0; }
  std::string print() const { return type_ ? type_->print(bytes_) : std::string(); }
  friend bool operator==(const Attrs& a, const Attrs& b) {
    return a.type_ == b.type_ && (!a.type_ || a.type_->equal(a.bytes_, b.bytes_));
  }

 private:
  const detail::AttrType* type_ = nullptr;
  alignas(8) std::byte bytes_[kMaxAttrBytes];
};

}  // namespace tandem
