// Reading a driver's answer: every field by name and kind. What breaks the protocol is thrown as text, to which the client
// adds whose answer it was.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/src/record/record.h"

namespace tandem::lab {

class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The value as text, cut for a message.
std::string shortened(const Json& value, size_t limit = 160);

class Answer {
 public:
  /// `where` is how messages name the object: "prepare", "progress".
  Answer(const Json& object, std::string where);

  bool has(const char* name) const { return object_.contains(name) && !object_[name].is_null(); }
  const Json& field(const char* name) const;
  std::string text(const char* name) const;
  bool truth(const char* name) const;
  int64_t integer(const char* name) const;  // also a float that is whole
  double number(const char* name) const;    // finite
  std::vector<std::string> texts(const char* name) const;
  std::vector<double> numbers(const char* name) const;

  /// Of a value inside the field `name`.
  double number(const Json& value, const char* name) const;
  int64_t integer(const Json& value, const char* name) const;
  const Json& list(const Json& value, const char* name) const;
  const Json& table(const char* name) const;

 private:
  [[noreturn]] void refuse(const char* name, const char* kind, const Json& got) const;
  const Json& object_;
  std::string where_;
};

}  // namespace tandem::lab
