// Errors. `Error` means that Tandem cannot do what was asked, for a reason outside of it; its text has the form
//   op: the rule that must hold; got the actual values. What to do.
// and its kind says whose matter it is. `InternalError` means "Tandem is wrong", and is no Error, so that whoever catches
// a refusal does not catch a bug. The library throws; it never prints and never exits.
#pragma once

#include <cstdint>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

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
template <class... Parts>
[[gnu::noinline]] std::string join(const Parts&... parts) {
  std::ostringstream out;
  (void)(out << ... << parts);
  return out.str();
}
/// Texts of every length are one type, so that there are fewer joins.
template <class T>
const T& as_part(const T& part) {
  return part;
}
template <size_t n>
const char* as_part(const char (&text)[n]) {
  return text;
}
}  // namespace detail

/// Joins its arguments into one string with operator<<.
template <class... Parts>
std::string cat(const Parts&... parts) {
  return detail::join(detail::as_part(parts)...);
}

/// throw resource_error("save '", path, "': no space is left. …");
template <class... Parts>
Error resource_error(const Parts&... parts) {
  return Error(cat(parts...), ErrorKind::resource);
}
template <class... Parts>
Error device_error(const Parts&... parts) {
  return Error(cat(parts...), ErrorKind::device);
}

}  // namespace tandem

/// Refuses the user's input: TD_CHECK(a.rank() == 2, "matmul: a must be a matrix; got ", a.shape(), ". …").
#define TD_CHECK(condition, ...) \
  do { \
    if (!(condition)) [[unlikely]] \
      throw ::tandem::Error(::tandem::cat(__VA_ARGS__)); \
  } while (0)

/// States something that only a bug in Tandem can break.
#define TD_ASSERT(condition, ...) \
  do { \
    if (!(condition)) [[unlikely]] \
      throw ::tandem::InternalError(::tandem::cat(#condition " ", __VA_ARGS__)); \
  } while (0)
