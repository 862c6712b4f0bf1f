#include "lab/src/study/table.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {

using nlohmann::json;

namespace {

/// A value as messages show it: JSON has no word for what is no finite number.
std::string shown(const json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return str(value.get<double>());
  return io::one_line(value.dump(-1, ' ', false, json::error_handler_t::replace), 120);
}

}  // namespace

bool is_within(const json& value, Whole range) {
  return value.is_number_integer() && value.get<int64_t>() >= range.least &&
         value.get<int64_t>() <= range.most;
}
bool is_within(const json& value, Real range) {
  return value.is_number() && value.get<double>() >= range.least && value.get<double>() <= range.most;
}

std::string listed(const std::vector<std::string>& names, size_t limit) {
  std::string text;
  const size_t count = std::min(names.size(), limit);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += i + 1 == count && count == names.size() ? " and " : ", ";
    text += names[i];
  }
  if (count < names.size()) text += ", …";
  return text;
}

Table::Table(std::string file, std::string where, const json& json)
    : file_(std::move(file)), where_(std::move(where)), json_(&json) {
  TD_CHECK(json.is_object(), place(), ": this must be a table; got ", shown(json),
           ". Write [name] and keys below it.");
}

std::string Table::place() const {
  return "read '" + io::one_line(file_, 300) + "'" + (where_.empty() ? "" : ", " + where_);
}

void Table::refuse(const std::string& key, const std::string& rule, const std::string& fix) const {
  const std::string got = json_->contains(key) ? shown(json_->at(key)) : "nothing";
  throw Error(str(place(), ": ", key, " must ", rule, "; got ", got, ".", fix));
}

const json* Table::find(const std::string& key) {
  asked_.insert(key);
  const auto found = json_->find(key);
  return found == json_->end() ? nullptr : &*found;
}

std::string Table::text(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr || !value->is_string() || value->get_ref<const std::string&>().empty()) {
    refuse(key, "be a text that is not empty");
  }
  return value->get<std::string>();
}

std::string Table::text(const std::string& key, const std::string& otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(key, "be a text");
  return value->get<std::string>();
}

int64_t Table::integer(const std::string& key, int64_t otherwise, Whole range) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!is_within(*value, range)) refuse(key, str("be a whole number from ", range.least, " to ", range.most));
  return value->get<int64_t>();
}

double Table::number(const std::string& key, double otherwise, Real range) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!is_within(*value, range)) refuse(key, str("be a number from ", range.least, " to ", range.most));
  return value->get<double>();
}

bool Table::flag(const std::string& key, bool otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "be true or false");
  return value->get<bool>();
}

std::vector<std::string> Table::texts(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (value->is_string() && !value->get_ref<const std::string&>().empty()) return {value->get<std::string>()};
  if (!value->is_array() || value->empty()) refuse(key, "be a list of at least one text");
  std::vector<std::string> texts;
  for (const json& entry : *value) {
    if (!entry.is_string() || entry.get_ref<const std::string&>().empty())
      refuse(key, "be a list of texts, none empty");
    if (std::find(texts.begin(), texts.end(), entry.get<std::string>()) != texts.end()) {
      refuse(key,
             str("name each entry once, and names '", io::one_line(entry.get<std::string>(), 80), "' twice"));
    }
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

std::vector<int64_t> Table::integers(const std::string& key, Whole range) {
  const json* value = find(key);
  if (value == nullptr) return {};
  const std::string rule = str("be a list of whole numbers from ", range.least, " to ", range.most);
  if (!value->is_array() || value->empty()) refuse(key, rule);
  std::vector<int64_t> integers;
  for (const json& entry : *value) {
    if (!is_within(entry, range)) refuse(key, rule);
    integers.push_back(entry.get<int64_t>());
  }
  return integers;
}

std::vector<double> Table::numbers(const std::string& key, Real range) {
  const json* value = find(key);
  if (value == nullptr) return {};
  const json list = value->is_number() ? json::array({*value}) : *value;
  const std::string rule =
      str("be a number from ", range.least, " to ", range.most, ", or a list of such numbers");
  if (!list.is_array() || list.empty()) refuse(key, rule);
  std::vector<double> numbers;
  for (const json& entry : list) {
    if (!is_within(entry, range)) refuse(key, rule);
    numbers.push_back(entry.get<double>());
  }
  return numbers;
}

std::map<std::string, std::string> Table::text_map(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_object()) refuse(key, "be a table of texts, such as { conv = \"profile\" }");
  std::map<std::string, std::string> map;
  for (const auto& [name, entry] : value->items()) {
    if (name.empty() || !entry.is_string())
      refuse(key, "be a table of texts, such as { conv = \"profile\" }");
    map[name] = entry.get<std::string>();
  }
  return map;
}

std::vector<json> Table::tables(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr) return {};
  const std::string rule = "be tables, each under its own [[" + key + "]]";
  if (!value->is_array()) refuse(key, rule);
  for (const json& entry : *value) {
    if (!entry.is_object()) refuse(key, rule);
  }
  return value->get<std::vector<json>>();
}

json Table::table(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr) return json::object();
  if (!value->is_object()) refuse(key, "be a table");
  return *value;
}

json Table::any(const std::string& key) {
  const json* value = find(key);
  return value == nullptr ? json() : *value;
}

std::string Table::choice(const std::string& key, const std::string& otherwise,
                          const std::vector<std::string>& allowed) {
  const std::string value = text(key, otherwise);
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    refuse(key, "be one of " + listed(allowed));
  return value;
}

void Table::require(const std::string& key, const std::vector<std::string>& values,
                    const std::vector<std::string>& allowed) const {
  for (const std::string& value : values) {
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      throw Error(str(place(), ": ", key, " must name some of ", listed(allowed), "; got '",
                      io::one_line(value, 80), "'. Fix the name."));
    }
  }
}

void Table::finish() const {
  for (const auto& [key, value] : json_->items()) {
    if (!asked_.contains(key)) {
      throw Error(str(place(), ": the keys here must be some of ", listed({asked_.begin(), asked_.end()}),
                      "; got '", io::one_line(key, 80), "'. Fix the name or leave it out."));
    }
  }
}

}  // namespace tandem::lab
