// A TableEncoder as JSON text. Reading is strict: every field is there, none besides, and each holds what learning could
// have put there.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/data/table_columns.h"
#include "tandem/data/table_encoder.h"
#include "tandem/io/csv_rows.h"
#include "tandem/io/json.h"

namespace tandem::data {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tandem table encoder 1";
constexpr const char* kTypes[] = {"number", "category", "date", "left out"};  // by ColumnType
constexpr const char* kForms[] = {"yyyy-mm-dd", "day first", "month first"};  // by DateForm
constexpr size_t kMaxWords = 1000;                                            // for a missing value
constexpr const char* kFix = " Train again, or take the file of another run.";

Json json_of(const Scale& scale) { return {{"mean", scale.mean}, {"deviation", scale.deviation}}; }

void add_values(Json& to, const char* name, const Categories& categories) {
  to[name] = categories.values;
  to["numbers"] = categories.are_numbers;
}

/// Reads the fields of one object; `where` begins messages and says which object it is.
class Fields {
 public:
  Fields(std::string where, const Json& object) : where_(std::move(where)), object_(object) {
    check(object.is_object(), "must be an object");
  }
  const std::string& where() const { return where_; }
  template <class... Parts>
  void check(bool holds, const Parts&... rule) const {
    TD_CHECK(holds, where_, str(rule...), ".", kFix);
  }

  const Json& at(const char* name) {
    const auto found = object_.find(name);
    check(found != object_.end(), "must have a field '", name, "'");
    read_.insert(name);
    return *found;
  }
  std::string text(const char* name, size_t max_bytes) {
    const Json& value = at(name);
    check(value.is_string(), "'", name, "' must be text");
    const auto& text = value.get_ref<const std::string&>();
    check(!text.empty() && text.size() <= max_bytes, "'", name, "' must take 1 to ", max_bytes,
          " bytes; got ", text.size());
    return text;
  }
  /// The place of a text in a list of names.
  template <size_t n>
  size_t choice(const char* name, const char* const (&names)[n]) {
    const std::string text = this->text(name, 100);
    for (size_t i = 0; i < n; ++i)
      if (text == names[i]) return i;
    std::string list;
    for (size_t i = 0; i < n; ++i) list += (i ? ", " : "") + std::string(names[i]);
    check(false, "'", name, "' must be one of ", list, "; got ", shown(text));
    return 0;
  }
  bool boolean(const char* name) {
    const Json& value = at(name);
    check(value.is_boolean(), "'", name, "' must be true or false");
    return value.get<bool>();
  }
  double number(const char* name) {
    const Json& value = at(name);
    check(value.is_number() && std::isfinite(value.get<double>()), "'", name, "' must be a finite number");
    return value.get<double>();
  }
  Scale scale() {
    const Scale scale{number("mean"), number("deviation")};
    check(scale.deviation > 0, "'deviation' must be above 0; got ", scale.deviation);
    return scale;
  }
  const Json& list(const char* name, size_t most) {
    const Json& value = at(name);
    check(value.is_array() && value.size() <= most, "'", name, "' must be a list of at most ", most);
    return value;
  }
  Categories categories(const char* name, size_t least) {
    Categories categories;
    categories.are_numbers = boolean("numbers");
    const Json& values = list(name, static_cast<size_t>(kMaxFeatures));
    check(values.size() >= least, "'", name, "' must hold at least ", least, "; got ", values.size());
    for (const Json& value : values) {
      check(value.is_string(), "'", name, "' must hold texts");
      const auto& text = value.get_ref<const std::string&>();
      check(!text.empty() && text.size() <= kMaxValueBytes, "texts of '", name, "' must take 1 to ",
            kMaxValueBytes, " bytes; got ", text.size());
      const std::optional<double> number = finite_number(text);
      check(!categories.are_numbers || (number && number_text(*number) == text), "'", name,
            "' must hold numbers in their shortest form; got ", shown(text));
      if (!categories.values.empty()) {
        const std::string& last = categories.values.back();
        check(categories.are_numbers ? *finite_number(last) < *number : last < text, "'", name,
              "' must be sorted and hold each value once; got ", shown(text), " after ", shown(last));
      }
      categories.values.push_back(text);
    }
    return categories;
  }
  /// Refuses fields that nobody asked for.
  void end() const {
    for (const auto& [name, value] : object_.items())
      check(read_.contains(name), "must not have a field ", shown(name));
  }

 private:
  std::string where_;
  const Json& object_;
  std::set<std::string, std::less<>> read_;
};

Json json_of(const EncodedColumn& column) {
  Json json = {{"name", column.name}, {"type", kTypes[static_cast<size_t>(column.type)]}};
  if (column.type == ColumnType::left_out) return json;
  json["missing"] = column.has_missing;
  if (column.type == ColumnType::category) add_values(json, "values", column.categories);
  if (column.type == ColumnType::date) json["form"] = kForms[static_cast<size_t>(column.form)];
  if (column.type != ColumnType::category) {
    json["scales"] = Json::array();
    for (const Scale& scale : column.scales) json["scales"].push_back(json_of(scale));
  }
  return json;
}

EncodedColumn column_of(const std::string& where, const Json& json) {
  Fields fields(where, json);
  EncodedColumn column{fields.text("name", kMaxValueBytes)};
  column.type = static_cast<ColumnType>(fields.choice("type", kTypes));
  if (column.type != ColumnType::left_out) column.has_missing = fields.boolean("missing");
  if (column.type == ColumnType::category) column.categories = fields.categories("values", 1);
  if (column.type == ColumnType::date) column.form = static_cast<DateForm>(fields.choice("form", kForms));
  if (column.type == ColumnType::number || column.type == ColumnType::date) {
    const size_t count = column.type == ColumnType::date ? 4 : 1;
    const Json& scales = fields.list("scales", count);
    fields.check(scales.size() == count, "'scales' must hold ", count, "; got ", scales.size());
    for (const Json& scale : scales) {
      Fields one(str(where, "scale ", column.scales.size(), ": "), scale);
      column.scales.push_back(one.scale());
      one.end();
    }
  }
  fields.end();
  return column;
}

TableOptions reading_of(const std::string& where, const Json& json) {
  Fields fields(where, json);
  TableOptions reading;
  if (!fields.at("delimiter").is_null()) {
    const std::string text = fields.text("delimiter", 1);
    fields.check(text != "\"" && text != "\n" && text != "\r",
                 "'delimiter' must not be a quote or end a line");
    reading.delimiter = text[0];
  }
  reading.header = fields.boolean("header");
  reading.missing.clear();
  for (const Json& word : fields.list("missing", kMaxWords)) {
    fields.check(word.is_string(), "'missing' must hold texts");
    const auto& text = word.get_ref<const std::string&>();
    fields.check(!text.empty() && text.size() <= kMaxValueBytes, "texts of 'missing' must take 1 to ",
                 kMaxValueBytes, " bytes; got ", text.size());
    reading.missing.push_back(text);
  }
  fields.end();
  return reading;
}

}  // namespace

std::string TableEncoder::to_json() const {
  Json target = {{"name", target_}, {"task", name(task_)}};
  if (task_ == TableTask::classification)
    add_values(target, "classes", classes_);
  else
    target.update(json_of(target_scale_));
  Json reading = {{"delimiter", nullptr}, {"header", reading_.header}, {"missing", Json::array()}};
  if (reading_.delimiter) reading["delimiter"] = std::string(1, *reading_.delimiter);
  for (const std::string& word : reading_.missing)
    if (!word.empty()) reading["missing"].push_back(word);  // an empty cell is missing in any case
  Json columns = Json::array();
  for (const EncodedColumn& column : columns_) columns.push_back(json_of(column));
  std::string text;
  try {
    text = Json{{"format", kFormat}, {"reading", reading}, {"target", target}, {"columns", columns}}.dump(1) +
           "\n";
  } catch (const Json::exception&) {
    throw Error("table encoder: names and values must be UTF-8; some are not. Read the table by read_table.");
  }
  const int64_t limit = io::reading_limits().header_bytes;
  TD_CHECK(static_cast<int64_t>(text.size()) <= limit, "table encoder: must take at most ", limit,
           " bytes as JSON; it takes ", text.size(),
           ". Lower `max_values`, or raise the limit (TANDEM_READING_LIMITS=header_bytes=…).");
  return text;
}

TableEncoder TableEncoder::from_json(std::string_view text, const std::string& where) {
  const int64_t limit = io::reading_limits().header_bytes;
  TD_CHECK(static_cast<int64_t>(text.size()) <= limit, where, "must take at most ", limit,
           " bytes; it takes ", text.size(),
           ". Where you trust it, raise the limit (TANDEM_READING_LIMITS=header_bytes=…).");
  const Json json = io::parse_json<Json>(where, text);
  TableEncoder encoder;
  Fields fields(where, json);
  const std::string format = fields.text("format", 100);
  fields.check(format == kFormat, "'format' must be '", kFormat, "'; got ", shown(format));

  Fields target(where + "target: ", fields.at("target"));
  encoder.target_ = target.text("name", kMaxValueBytes);
  static constexpr const char* kTasks[] = {"classification", "regression"};
  encoder.task_ = target.choice("task", kTasks) == 0 ? TableTask::classification : TableTask::regression;
  if (encoder.task_ == TableTask::classification)
    encoder.classes_ = target.categories("classes", 2);
  else
    encoder.target_scale_ = target.scale();
  target.end();

  encoder.reading_ = reading_of(where + "reading: ", fields.at("reading"));

  std::set<std::string_view> names = {encoder.target_};
  const Json& columns = fields.list("columns", static_cast<size_t>(kMaxFeatures));
  for (const Json& column : columns)
    encoder.columns_.push_back(column_of(str(where, "column ", encoder.columns_.size(), ": "), column));
  for (const EncodedColumn& column : encoder.columns_)
    fields.check(names.insert(column.name).second, "every column must have a name of its own; ",
                 shown(column.name), " is there twice");
  fields.end();
  encoder.name_features(where);
  return encoder;
}

}  // namespace tandem::data
