// Errors. `Error` means "your input is wrong": its text has the form
//   op: the rule that must hold; got the actual values. What to do.
// `InternalError` means "Tandem is wrong". The library throws; it never prints and never exits.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tandem {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& what)
      : std::logic_error("internal error (a bug in Tandem): " + what) {}
};

/// Joins its arguments into one string with operator<<.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (void)(out << ... << parts);
  return out.str();
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
