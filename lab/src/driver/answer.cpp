#include "lab/src/driver/answer.h"

#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {

std::string shortened(const Json& value, size_t limit) {
  return io::one_line(value.dump(-1, ' ', false, Json::error_handler_t::replace), limit);
}

Answer::Answer(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) throw Malformed(str(where_, ": must be a JSON object; got ", shortened(object)));
}

void Answer::refuse(const char* name, const char* kind, const Json& got) const {
  throw Malformed(str(where_, ": the field '", name, "' must be ", kind, "; got ", shortened(got)));
}

const Json& Answer::field(const char* name) const {
  if (!object_.contains(name))
    throw Malformed(str(where_, ": the field '", name, "' must be there; got ", shortened(object_)));
  return object_[name];
}

std::string Answer::text(const char* name) const {
  const Json& value = field(name);
  if (!value.is_string()) refuse(name, "a text", value);
  return value.get<std::string>();
}

bool Answer::truth(const char* name) const {
  const Json& value = field(name);
  if (!value.is_boolean()) refuse(name, "true or false", value);
  return value.get<bool>();
}

int64_t Answer::integer(const Json& value, const char* name) const {
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
    refuse(name, "an integer of 63 bits", value);
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::abs(number) < 9e15 && number == std::floor(number)) return static_cast<int64_t>(number);
  }
  refuse(name, "an integer", value);
}

double Answer::number(const Json& value, const char* name) const {
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(name, "a finite number", value);
  return value.get<double>();
}

const Json& Answer::list(const Json& value, const char* name) const {
  if (!value.is_array()) refuse(name, "a list", value);
  return value;
}

const Json& Answer::table(const char* name) const {
  const Json& value = field(name);
  if (!value.is_object()) refuse(name, "an object", value);
  return value;
}

int64_t Answer::integer(const char* name) const { return integer(field(name), name); }
double Answer::number(const char* name) const { return number(field(name), name); }

std::vector<std::string> Answer::texts(const char* name) const {
  std::vector<std::string> out;
  for (const Json& value : list(field(name), name)) {
    if (!value.is_string()) refuse(name, "a list of texts", value);
    out.push_back(value.get<std::string>());
  }
  return out;
}

std::vector<double> Answer::numbers(const char* name) const {
  std::vector<double> out;
  for (const Json& value : list(field(name), name)) out.push_back(number(value, name));
  return out;
}

}  // namespace tandem::lab
