// Attributes of an operation: an immutable struct whose fields can be visited. A struct T becomes attributes
// by naming its fields once,
//   struct PoolAttrs {
//     int64_t kernel = 2; …
//     template <class Visit>
//     static auto fields(Visit visit) { return visit(field("kernel", &PoolAttrs::kernel), …); }
//   };
// and from that come equality, hashing, printing, and reading and setting by name. The struct must stand outside of functions, where C++ allows no
// member templates; in return a program that includes it pays nothing for it. Attrs holds any such struct inline, with
// no allocation.
// Structs must be trivially copyable and at most kMaxAttrBytes long. Fields are integers, floats, bools, enums, DType, Dims,
// and Text and IntList for what has any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

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

/// Text of any length as a field: equal texts share one copy, which stays for the life of the process.
class Text {
 public:
  Text() = default;
  Text(const std::string& text);
  Text(const char* text) : Text(std::string(text)) {}
  const std::string& str() const;
  friend bool operator==(const Text&, const Text&) = default;

 private:
  const std::string* text_ = nullptr;  // null: empty
};
/// The same for a list of integers.
class IntList {
 public:
  IntList() = default;
  IntList(const std::vector<int64_t>& values);
  const std::vector<int64_t>& values() const;
  friend bool operator==(const IntList&, const IntList&) = default;

 private:
  const std::vector<int64_t>* values_ = nullptr;  // null: empty
};
std::ostream& operator<<(std::ostream& out, const Text& text);
std::ostream& operator<<(std::ostream& out, const IntList& list);

/// The value of one attribute, whatever its type: what printing, saving and other languages see.
struct AttrValue {
  enum class Kind : uint8_t { integer, number, truth, text, list };
  Kind kind = Kind::integer;
  int64_t integer = 0;  // of a truth: 0 or 1
  double number = 0;
  std::string text = {};  // of text, and of a dtype its name
  std::vector<int64_t> list = {};

  static AttrValue of(int64_t value);
  static AttrValue of(double value);
  static AttrValue of(bool value);
  static AttrValue of(const std::string& value);
  static AttrValue of(const std::vector<int64_t>& value);
  /// "3", "0.5", "true", "f32", "[1, 2]"
  std::string print() const;
  friend bool operator==(const AttrValue&, const AttrValue&) = default;
};
struct Attribute {
  std::string name;
  AttrValue value;
};

namespace detail {
/// How a field is stored.
enum class FieldType : uint8_t { integer, unsigned_integer, truth, number, dims, dtype, numbers, text, list };
struct FieldInfo {
  const char* name;
  uint16_t offset, bytes;
  FieldType type;
};

template <class M>
constexpr FieldType field_type() {
  if constexpr (std::is_same_v<M, Dims>)
    return FieldType::dims;
  else if constexpr (std::is_same_v<M, DType>)
    return FieldType::dtype;
  else if constexpr (std::is_same_v<M, Text>)
    return FieldType::text;
  else if constexpr (std::is_same_v<M, IntList>)
    return FieldType::list;
  else if constexpr (std::is_same_v<M, bool>)
    return FieldType::truth;
  else if constexpr (std::is_floating_point_v<M>)
    return FieldType::number;
  else if constexpr (std::is_enum_v<M>)
    return FieldType::unsigned_integer;
  else if constexpr (std::is_integral_v<M>)
    return std::is_signed_v<M> ? FieldType::integer : FieldType::unsigned_integer;
  else {
    static_assert(std::is_array_v<decltype(M::v)> && sizeof(M) == sizeof(M::v),
                  "a struct around an array of int64_t");
    return FieldType::numbers;
  }
}

/// The fields of a struct. What is done with them is plain code in attrs.cpp, one for all structs.
struct AttrType {
  static constexpr size_t kMostFields = 16;
  FieldInfo fields[kMostFields];
  size_t count = 0;
};

template <class T>
const AttrType* attr_type() {
  static const AttrType type = [] {
    AttrType made{};
    alignas(T) static const std::byte place[sizeof(T)] = {};
    T::fields([&](auto... f) {
      static_assert(sizeof...(f) <= AttrType::kMostFields);
      const auto add = [&]<class M>(const Field<T, M>& each) {
        const auto* member = &(reinterpret_cast<const T*>(place)->*each.member);
        made.fields[made.count++] = {
            each.name, static_cast<uint16_t>(reinterpret_cast<const std::byte*>(member) - place),
            static_cast<uint16_t>(sizeof(M)), field_type<M>()};
      };
      (add(f), ...);
    });
    return made;
  }();
  return &type;
}

/// Whether both name the same fields at the same places. Each shared object that hides its symbols has its own AttrType of
/// a struct.
bool same_fields(const AttrType& a, const AttrType& b);
bool equal_fields(const AttrType& type, const std::byte* a, const std::byte* b);
size_t hash_fields(const AttrType& type, const std::byte* a);
}  // namespace detail

/// Any attribute struct, or none.
class Attrs {
 public:
  Attrs() {}  // not = default: {} would fill the bytes with zeros first
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
  /// Whether the struct is a T, so that as<T>() may be called.
  template <class T>
  bool holds() const {
    const detail::AttrType* wanted = detail::attr_type<T>();
    return type_ == wanted || (type_ && detail::same_fields(*type_, *wanted));
  }
  const void* data() const { return bytes_; }
  bool empty() const { return type_ == nullptr; }
  size_t hash() const { return type_ ? detail::hash_fields(*type_, bytes_) : 0; }
  /// "stride=2, padding=1"
  std::string print() const;
  /// All attributes, by name, in order of declaration.
  std::vector<Attribute> list() const;
  /// Reads or sets one by name. Throws Error for a name that is none, and for a value of another kind.
  AttrValue get(const std::string& name) const;
  void set(const std::string& name, const AttrValue& value);
  friend bool operator==(const Attrs& a, const Attrs& b) {
    return a.type_ == b.type_ && (!a.type_ || detail::equal_fields(*a.type_, a.bytes_, b.bytes_));
  }

 private:
  const detail::AttrType* type_ = nullptr;
  alignas(8) std::byte bytes_[kMaxAttrBytes];
};

}  // namespace tandem
