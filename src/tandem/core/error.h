// Errors. `Error` means that Tandem cannot do what was asked, for a reason outside of it; its text has the form
//   op: the rule that must hold; got the actual values. What to do.
// and its kind says whose matter it is. `InternalError` means "Tandem is wrong", and is no Error, so that whoever catches
// a refusal does not catch a bug. The library throws; it never exits, and prints nothing but warnings (warning.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace tandem {

/// What a program may decide by; texts are for people.
enum class ErrorKind : uint8_t {
  usage,     ///< the call or the input is wrong (a damaged file, too): the same call fails again
  resource,  ///< memory, disk, a file or a program is missing or full: it may work later or elsewhere
  device,    ///< an accelerator or its libraries are missing or failed
  internal,  ///< a bug in Tandem
  foreign    ///< thrown by the program's own code (a Dataset, a callback) or by another library
};
constexpr const char* name(ErrorKind kind) {
  return kind == ErrorKind::usage      ? "usage"
         : kind == ErrorKind::resource ? "resource"
         : kind == ErrorKind::device   ? "device"
         : kind == ErrorKind::internal ? "internal"
                                       : "foreign";
}

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ErrorKind kind = ErrorKind::usage)
      : std::runtime_error(what), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }
  /// Says where it happened and keeps what it is: catch (Error& error) { error.prepend("layer 3: "); throw; }
  void prepend(const std::string& text) {
    static_cast<std::runtime_error&>(*this) = std::runtime_error(text + what());
  }

 private:
  ErrorKind kind_;
};

/// No memory is left, of the system or of a device. (std::bad_alloc, which the standard library throws, means the same.)
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& what) : Error(what, ErrorKind::resource) {}
};

class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& what)
      : std::logic_error("internal error (a bug in Tandem): " + what) {}
};

/// The kind of any exception: an Error's own, internal for InternalError, resource for std::bad_alloc, else foreign.
inline ErrorKind kind_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->kind();
  if (dynamic_cast<const InternalError*>(&error)) return ErrorKind::internal;
  return dynamic_cast<const std::bad_alloc*>(&error) ? ErrorKind::resource : ErrorKind::foreign;
}

namespace detail {
/// One part of a text. It refers to the value that it was made from, and lives as long as the call.
class TextPart {
 public:
  TextPart(const char* text) : kind_(Kind::text) {
    value_.text = {text, std::char_traits<char>::length(text)};
  }
  template <class T>
  TextPart(const T& value) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      kind_ = Kind::text;
      const std::string_view text = value;
      value_.text = {text.data(), text.size()};
    } else if constexpr (std::is_same_v<T, char>) {
      kind_ = Kind::text;
      value_.text = {&value, 1};
    } else if constexpr (std::is_integral_v<T> && (sizeof(T) > 1 || std::is_same_v<T, bool>)) {
      kind_ = std::is_signed_v<T> ? Kind::integer : Kind::natural;
      if constexpr (std::is_signed_v<T>) {
        value_.integer = value;
      } else {
        value_.natural = value;
      }
    } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      kind_ = Kind::number;
      value_.number = value;
    } else {
      kind_ = Kind::streamed;
      value_.streamed = {
          &value, [](std::ostream& out, const void* object) { out << *static_cast<const T*>(object); }};
    }
  }

 private:
  friend std::string join(std::initializer_list<TextPart> parts);
  enum class Kind : uint8_t { text, integer, natural, number, streamed };
  Kind kind_;
  union {
    struct {
      const char* data;
      size_t size;
    } text;
    int64_t integer;
    uint64_t natural;
    double number;
    struct {
      const void* object;
      void (*write)(std::ostream&, const void*);
    } streamed;
  } value_;
};
std::string join(std::initializer_list<TextPart> parts);
}  // namespace detail

/// Joins its arguments into one string, each as operator<< writes it.
template <class... Parts>
std::string str(const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0) {
    return {};
  } else {
    return detail::join({parts...});
  }
}

/// throw resource_error("save '", path, "': no space is left. …");
template <class... Parts>
Error resource_error(const Parts&... parts) {
  return Error(str(parts...), ErrorKind::resource);
}
template <class... Parts>
Error device_error(const Parts&... parts) {
  return Error(str(parts...), ErrorKind::device);
}

}  // namespace tandem

/// Refuses the user's input: TD_CHECK(a.rank() == 2, "matmul: a must be a matrix; got ", a.shape(), ". …").
#define TD_CHECK(condition, ...) \
  do { \
    if (!(condition)) [[unlikely]] \
      throw ::tandem::Error(::tandem::str(__VA_ARGS__)); \
  } while (0)

/// States something that only a bug in Tandem can break.
#define TD_ASSERT(condition, ...) \
  do { \
    if (!(condition)) [[unlikely]] \
      throw ::tandem::InternalError(::tandem::str(#condition " ", __VA_ARGS__)); \
  } while (0)
