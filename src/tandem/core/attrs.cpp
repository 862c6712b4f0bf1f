#include "tandem/core/attrs.h"

#include <mutex>
#include <ostream>
#include <set>

#include "tandem/core/mutex.h"

namespace tandem {

namespace {
size_t hash_bytes(const void* data, size_t bytes, size_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t h = seed ^ 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 0x100000001b3ull;
  return h;
}
}  // namespace

namespace {
/// The one copy of a value. Never freed: attributes of static objects may outlive every other object.
template <class T>
const T* shared_copy(const T& value) {
  static Mutex& mutex = *new Mutex(LockOrder::plans);
  static std::set<T>& copies = *new std::set<T>;
  if (value.empty()) return nullptr;
  std::lock_guard lock(mutex);
  return &*copies.insert(value).first;
}
template <class T>
const T& or_empty(const T* value) {
  static const T& empty = *new T;
  return value ? *value : empty;
}
[[maybe_unused]] const bool g_made_at_start = [] {  // in no fork's way
  shared_copy(std::string());
  shared_copy(std::vector<int64_t>());
  or_empty<std::string>(nullptr);
  or_empty<std::vector<int64_t>>(nullptr);
  return true;
}();
std::string print_list(const std::vector<int64_t>& values) {
  std::string text;
  for (int64_t value : values) text += str(text.empty() ? "" : ", ", value);
  return "[" + text + "]";
}
}  // namespace

Text::Text(const std::string& text) : text_(shared_copy(text)) {}
const std::string& Text::str() const { return or_empty(text_); }
IntList::IntList(const std::vector<int64_t>& values) : values_(shared_copy(values)) {}
const std::vector<int64_t>& IntList::values() const { return or_empty(values_); }
std::ostream& operator<<(std::ostream& out, const Text& text) { return out << text.str(); }
std::ostream& operator<<(std::ostream& out, const IntList& list) { return out << print_list(list.values()); }

AttrValue AttrValue::of(int64_t value) { return {.kind = Kind::integer, .integer = value}; }
AttrValue AttrValue::of(double value) { return {.kind = Kind::number, .number = value}; }
AttrValue AttrValue::of(bool value) { return {.kind = Kind::truth, .integer = value}; }
AttrValue AttrValue::of(const std::string& value) { return {.kind = Kind::text, .text = value}; }
AttrValue AttrValue::of(const std::vector<int64_t>& value) { return {.kind = Kind::list, .list = value}; }

std::string AttrValue::print() const {
  switch (kind) {
    case Kind::integer:
      return str(integer);
    case Kind::number:
      return str(number);
    case Kind::truth:
      return integer ? "true" : "false";
    case Kind::text:
      return text;
    case Kind::list:
      return print_list(list);
  }
  return {};
}

namespace detail {
namespace {

/// A field of the struct at `at`.
template <class T>
const T& held(const FieldInfo& field, const std::byte* at) {
  return *reinterpret_cast<const T*>(at + field.offset);
}
template <class T>
T& held(const FieldInfo& field, std::byte* at) {
  return *reinterpret_cast<T*>(at + field.offset);
}

int64_t integer_at(const FieldInfo& field, const std::byte* at) {
  const bool is_signed = field.type == FieldType::integer;
  switch (field.bytes) {
    case 1:
      return is_signed ? held<int8_t>(field, at) : held<uint8_t>(field, at);
    case 2:
      return is_signed ? held<int16_t>(field, at) : held<uint16_t>(field, at);
    case 4:
      return is_signed ? held<int32_t>(field, at) : held<uint32_t>(field, at);
    default:
      return held<int64_t>(field, at);
  }
}

AttrValue read(const FieldInfo& field, const std::byte* at) {
  switch (field.type) {
    case FieldType::truth:
      return AttrValue::of(held<bool>(field, at));
    case FieldType::number:
      return AttrValue::of(field.bytes == 4 ? static_cast<double>(held<float>(field, at))
                                            : held<double>(field, at));
    case FieldType::dims: {
      const Dims& dims = held<Dims>(field, at);
      return AttrValue::of(std::vector<int64_t>(dims.begin(), dims.end()));
    }
    case FieldType::numbers: {
      const int64_t* first = &held<int64_t>(field, at);
      return AttrValue::of(std::vector<int64_t>(first, first + field.bytes / sizeof(int64_t)));
    }
    case FieldType::dtype:
      return AttrValue::of(std::string(name(held<DType>(field, at))));
    case FieldType::text:
      return AttrValue::of(held<Text>(field, at).str());
    case FieldType::list:
      return AttrValue::of(held<IntList>(field, at).values());
    default:
      return AttrValue::of(integer_at(field, at));
  }
}

void require(const FieldInfo& field, const AttrValue& value, AttrValue::Kind kind, const char* what) {
  TD_CHECK(value.kind == kind, "attribute ", field.name, ": must be ", what, "; got ", value.print(), ".");
}

void write_integer(const FieldInfo& field, std::byte* at, const AttrValue& value) {
  require(field, value, AttrValue::Kind::integer, "an integer");
  const bool is_signed = field.type == FieldType::integer;
  const int bits = 8 * field.bytes - (is_signed ? 1 : 0);
  const int64_t high = bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1, low = is_signed ? -high - 1 : 0;
  TD_CHECK(value.integer >= low && value.integer <= high, "attribute ", field.name, ": must be from ", low,
           " to ", high, "; got ", value.integer, ".");
  std::memcpy(at + field.offset, &value.integer,
              field.bytes);  // little-endian, as all machines are that Tandem runs on
}

void write(const FieldInfo& field, std::byte* at, const AttrValue& value) {
  using Kind = AttrValue::Kind;
  switch (field.type) {
    case FieldType::truth:
      require(field, value, Kind::truth, "true or false");
      held<bool>(field, at) = value.integer != 0;
      return;
    case FieldType::number: {
      if (value.kind != Kind::integer) require(field, value, Kind::number, "a number");
      const double number = value.kind == Kind::integer ? static_cast<double>(value.integer) : value.number;
      if (field.bytes == 4)
        held<float>(field, at) = static_cast<float>(number);
      else
        held<double>(field, at) = number;
      return;
    }
    case FieldType::dims:
      require(field, value, Kind::list, "a list of integers");
      held<Dims>(field, at) = Dims(std::span<const Dim>(value.list));
      return;
    case FieldType::numbers: {
      require(field, value, Kind::list, "a list of integers");
      const size_t count = field.bytes / sizeof(int64_t);
      TD_CHECK(value.list.size() == count, "attribute ", field.name, ": must have ", count, " numbers; got ",
               value.list.size(), ".");
      std::memcpy(at + field.offset, value.list.data(), field.bytes);
      return;
    }
    case FieldType::dtype:
      require(field, value, Kind::text, "the name of a type");
      held<DType>(field, at) = parse_dtype(value.text);
      return;
    case FieldType::text:
      require(field, value, Kind::text, "a text");
      held<Text>(field, at) = value.text;
      return;
    case FieldType::list:
      require(field, value, Kind::list, "a list of integers");
      held<IntList>(field, at) = value.list;
      return;
    default:
      write_integer(field, at, value);
  }
}

}  // namespace

bool same_fields(const AttrType& a, const AttrType& b) {
  bool same = a.count == b.count;
  for (size_t i = 0; same && i < a.count; ++i) {
    const FieldInfo &x = a.fields[i], &y = b.fields[i];
    same = std::strcmp(x.name, y.name) == 0 && x.offset == y.offset && x.bytes == y.bytes && x.type == y.type;
  }
  return same;
}

/// Floats compare by bits: equal attributes must mean the same computation (0.0 is not -0.0). Texts and lists that are
/// equal are one object.
bool equal_fields(const AttrType& type, const std::byte* a, const std::byte* b) {
  for (size_t i = 0; i < type.count; ++i) {
    const FieldInfo& field = type.fields[i];
    const bool same = field.type == FieldType::dims
                          ? held<Dims>(field, a) == held<Dims>(field, b)
                          : std::memcmp(a + field.offset, b + field.offset, field.bytes) == 0;
    if (!same) return false;
  }
  return true;
}

size_t hash_fields(const AttrType& type, const std::byte* a) {
  size_t seed = 17;
  for (size_t i = 0; i < type.count; ++i) {
    const FieldInfo& field = type.fields[i];
    if (field.type == FieldType::dims) {
      const Dims& dims = held<Dims>(field, a);
      seed = hash_bytes(dims.data(), sizeof(Dim) * static_cast<size_t>(dims.rank()),
                        seed + static_cast<size_t>(dims.rank()));
    } else {
      seed = hash_bytes(a + field.offset, field.bytes, seed);
    }
  }
  return seed;
}
}  // namespace detail

std::string Attrs::print() const {
  std::string text;
  for (const Attribute& each : list())
    text += str(text.empty() ? "" : ", ", each.name, "=", each.value.print());
  return text;
}

std::vector<Attribute> Attrs::list() const {
  std::vector<Attribute> all;
  for (size_t i = 0; type_ && i < type_->count; ++i)
    all.push_back({type_->fields[i].name, detail::read(type_->fields[i], bytes_)});
  return all;
}

AttrValue Attrs::get(const std::string& name) const {
  for (size_t i = 0; type_ && i < type_->count; ++i)
    if (name == type_->fields[i].name) return detail::read(type_->fields[i], bytes_);
  throw Error(str("attribute ", name, ": there is none of this name; there are: ", print(), "."));
}

void Attrs::set(const std::string& name, const AttrValue& value) {
  for (size_t i = 0; type_ && i < type_->count; ++i)
    if (name == type_->fields[i].name) return detail::write(type_->fields[i], bytes_, value);
  throw Error(str("attribute ", name, ": there is none of this name; there are: ", print(), "."));
}

}  // namespace tandem
