// Encoding rows, and what the target asks for.
#include "tandem/data/table_encoder.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "tandem/data/table_columns.h"
#include "tandem/data/table_dates.h"

namespace tandem::data {

namespace {

constexpr int64_t kMostClassNumbers = 20;

float standardised(const Table& table, const std::string& name, int64_t row, const Scale& scale,
                   double value) {
  const auto result = static_cast<float>((value - scale.mean) / scale.deviation);
  TD_CHECK(std::isfinite(result), place_of(table, name, row),
           "must be of the size of the training rows' numbers (mean ", scale.mean, ", deviation ",
           scale.deviation, "); got ", value, ".");
  return result;
}

/// The place of each value.
std::unordered_map<std::string_view, int64_t> places_of(const Categories& categories) {
  std::unordered_map<std::string_view, int64_t> places;
  for (const std::string& value : categories.values)
    places.emplace(value, static_cast<int64_t>(places.size()));
  return places;
}

/// The cell as the categories spell it.
std::string key_of(const Categories& categories, std::string_view cell) {
  if (categories.are_numbers)
    if (const std::optional<double> value = finite_number(cell)) return number_text(*value);
  return std::string(cell);
}

/// What a cell must be that is no number, with the likely cause.
const char* number_for(std::string_view cell) {
  return is_otherwise_written(cell)
             ? "a number with a decimal point, and neither separators of thousands nor a unit"
             : "a number";
}

/// The features of a column, in this order: its scaled numbers (one, or four of a date), one for each category, one
/// for missing or unknown cells. encode_column and name_features go by it.
int64_t features_of(const EncodedColumn& column) {
  if (column.type == ColumnType::left_out) return 0;
  return static_cast<int64_t>(column.scales.size() + column.categories.values.size()) + column.has_missing;
}

/// Writes the features of one column of all rows; `out` is its first feature in the first row.
void encode_column(const Table& table, const EncodedColumn& column, const TextColumn& cells, float* out,
                   int64_t width) {
  const auto places = places_of(column.categories);
  const auto own = static_cast<size_t>(features_of(column) - column.has_missing);
  for (int64_t row = 0; row < cells.size(); ++row, out += width) {
    std::fill(out, out + features_of(column), 0.0f);
    const std::string_view cell = cells[row];
    const auto must_be = [&](const char* what) {
      return str(place_of(table, column.name, row), "must be ", what, ", as in training; got ", shown(cell),
                 ". Fix the cell, or leave it empty.");
    };
    bool other = cells.is_missing(row);
    if (!other && column.type == ColumnType::category) {
      const auto found = places.find(key_of(column.categories, cell));
      other = found == places.end();
      if (!other) out[found->second] = 1;
    } else if (!other && column.type == ColumnType::number) {
      const std::optional<double> value = finite_number(cell);
      TD_CHECK(value, must_be(number_for(cell)));
      out[0] = standardised(table, column.name, row, column.scales[0], *value);
    } else if (!other) {
      const std::optional<DateParts> date = parse_date(cell, column.form);
      TD_CHECK(date, must_be(column.form == DateForm::iso         ? "a date yyyy-mm-dd"
                             : column.form == DateForm::day_first ? "a date dd.mm.yyyy or dd/mm/yyyy"
                                                                  : "a date mm/dd/yyyy or mm.dd.yyyy"));
      const double numbers[4] = {date->year, date->month, date->weekday, date->days};
      for (size_t i = 0; i < 4; ++i)
        out[i] = standardised(table, column.name, row, column.scales[i], numbers[i]);
    }
    if (other && column.has_missing) out[own] = 1;
  }
}

void check_options(const Table& train, const TableEncoderOptions& options) {
  TD_CHECK(!options.target.empty(), "table ", train.source,
           ": the target column must be named; it is one of ", list_of(train.names), ".");
  train.column(options.target);
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {
      {"`categories`", &options.categories},
      {"`keep`", &options.keep},
      {"`ignore`", &options.ignore},
      {"`day_first`", &options.day_first},
      {"`month_first`", &options.month_first}};
  for (const auto& [name, list] : lists)
    for (const std::string& column : *list) {
      TD_CHECK(train.find(column), "table ", train.source, ": ", name, " must name columns (",
               list_of(train.names), "); got ", shown(column), ".");
      TD_CHECK(list != &options.ignore || column != options.target, "table ", train.source,
               ": `ignore` must not name the target; got ", shown(column), ".");
    }
  TD_CHECK(options.max_values >= 1 && options.max_values <= kMaxFeatures, "table: max_values must be 1 to ",
           kMaxFeatures, "; got ", options.max_values, ".");
}

/// Any two numbers, or 0, 1, 2 … without a gap.
bool are_class_numbers(const std::vector<Counted>& values) {
  if (values.size() == 2) return true;
  if (values.size() > static_cast<size_t>(kMostClassNumbers)) return false;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].value != std::to_string(i)) return false;
  return values.size() > 1;
}

/// Refuses classes that the user asked for and that have a row each, or nearly so: a model could learn none of them.
void check_classes(const std::string& what, const std::vector<Counted>& values, const Content& content) {
  const auto different = static_cast<int64_t>(values.size());
  const bool is_per_row = nearly_all_different(different, content.cells),
             are_numbers = content.all_numbers() || content.has_foreign_numbers();
  const bool is_quantity =
      are_numbers && (is_per_row || look_like_quantities(different, content.cells, content.values));
  TD_CHECK(!is_quantity, what, " must be classes with several rows each; its ", content.cells, " cells are ",
           different, " different numbers, as a quantity has. Choose `task` regression",
           content.has_foreign_numbers()
               ? str(" (and write ", shown(values[0].value),
                     " with a decimal point, without separators of thousands or units)")
               : std::string(),
           "; or, if they are classes, write them as names.");
  TD_CHECK(are_numbers || !is_per_row, what, " must be classes with several rows each; of its ",
           content.cells, " texts ", different, " are different. Choose another target.");
}

}  // namespace

TableTask table_task(const std::string& name) {
  for (TableTask task : {TableTask::automatic, TableTask::classification, TableTask::regression})
    if (name == data::name(task)) return task;
  throw Error(str("task: must be automatic, classification or regression; got ", shown(name), "."));
}

// A guess that could well be wrong is refused rather than made: dates, and texts that nearly all differ, are no
// target.
TableTask task_of(const Table& table, const std::string& target, TableTask asked) {
  check_table(table);
  const TextColumn& cells = table.column(target);
  const Content content = content_of(cells);
  const std::string what = str("table ", table.source, ": target ", shown(target));
  TD_CHECK(content.cells > 0, what, " must have values; all its cells are missing.");
  const std::vector<Counted> values = counted_values(cells, content);
  if (asked == TableTask::classification) {
    check_classes(what, values, content);
    return asked;
  }
  const bool may_be_classes = asked == TableTask::automatic &&
                              !look_like_quantities(static_cast<int64_t>(values.size()), content.cells, {});
  check_plain_numbers(table, target, cells, content,
                      may_be_classes ? "; if these are classes, choose `task` classification." : ".");
  if (asked == TableTask::regression)
    TD_CHECK(content.all_numbers(), place_of(table, target, content.first_text),
             "a target of regression must be a number; got ", shown(cells[content.first_text]),
             ". Fix the cell, or choose classification.");
  if (asked != TableTask::automatic) return asked;
  check_nearly_numbers(table, target, cells, content,
                       "; if these are classes, choose `task` classification.");
  if (content.all_numbers())
    return are_class_numbers(values) ? TableTask::classification : TableTask::regression;
  for (DateForm form : {DateForm::iso, DateForm::day_first, DateForm::month_first})
    TD_CHECK(!are_dates(cells, form), what, " must hold numbers or classes; it holds dates (",
             shown(values[0].value), "). Choose another target, or `task` classification for classes.");
  TD_CHECK(!nearly_all_different(static_cast<int64_t>(values.size()), content.cells), what,
           " must hold numbers or classes; of its ", content.cells, " texts ", values.size(),
           " are different. Choose another target, or `task` classification.",
           mixed_hint(table, cells, content));
  return TableTask::classification;
}

TableEncoder::TableEncoder(const Table& train, const TableEncoderOptions& options)
    : target_(options.target), reading_(train.reading) {
  check_table(train);
  check_options(train, options);
  TD_CHECK(train.rows() >= 1, "table ", train.source, ": must have rows to learn from; got none.");
  learn_target(train, options);
  for (size_t i = 0; i < train.names.size(); ++i)
    if (train.names[i] != target_) columns_.push_back(learn_column(train, i, options, notices_));
  name_features(str("table ", train.source, ": "));
}

void TableEncoder::learn_target(const Table& train, const TableEncoderOptions& options) {
  const TextColumn& cells = train.column(target_);
  task_ = task_of(options.taken_from ? *options.taken_from : train, target_, options.task);
  for (int64_t row = 0; row < cells.size(); ++row)
    TD_CHECK(!cells.is_missing(row), place_of(train, target_, row),
             "the target must not be missing in a training row; got ", shown(cells[row]),
             ". Remove the row.");
  const Content content = content_of(cells);
  const std::vector<Counted> values = counted_values(cells, content);
  const std::string what = str("table ", train.source, ": target ", shown(target_));
  TD_CHECK(values.size() > 1, what, " must have at least two different values; all are ",
           shown(values[0].value), ".");
  const bool asked = options.task != TableTask::automatic;
  if (task_ == TableTask::regression) {
    target_scale_ = scale_of(what, content.values);
    const bool whole = std::all_of(content.values.begin(), content.values.end(),
                                   [](double value) { return value == std::floor(value); });
    if (!asked && whole && values.size() <= static_cast<size_t>(kMostClassNumbers))
      notices_.push_back(str("target ", shown(target_), " is taken as a quantity; it has only ",
                             values.size(),
                             " different whole numbers. Choose classification if they are classes."));
    return;
  }
  TD_CHECK(values.size() <= static_cast<size_t>(kMaxFeatures), what, " must have at most ", kMaxFeatures,
           " classes; got ", values.size(), ".");
  classes_.are_numbers = content.compare_as_numbers();
  for (const Counted& value : values) {
    TD_CHECK(value.value.size() <= kMaxValueBytes, what, ": a class must take at most ", kMaxValueBytes,
             " bytes; got ", value.value.size(), " (", shown(value.value), ").");
    classes_.values.push_back(value.value);
  }
  if (!asked && content.all_numbers())
    notices_.push_back(str("target ", shown(target_), " is taken as ", values.size(), " classes (",
                           list_of(classes_.values), "). Choose regression if it is a quantity."));
}

void TableEncoder::name_features(const std::string& where) {
  static constexpr const char* kParts[] = {" year", " month", " weekday", " days"};
  int64_t count = 0;
  for (const EncodedColumn& column : columns_) count += features_of(column);
  TD_CHECK(count >= 1, where, "must have a column to learn from beside the target ", shown(target_),
           "; got none.");
  TD_CHECK(count <= kMaxFeatures, where, "columns must make at most ", kMaxFeatures, " features; they make ",
           count, ". Lower `max_values`, or leave columns out by `ignore`.");
  std::set<std::string> taken;
  const auto add = [&](const std::string& name) {
    std::string own = name;
    for (int more = 2; !taken.insert(own).second; ++more) own = str(name, " (", more, ")");
    feature_names_.push_back(own);
  };
  for (const EncodedColumn& column : columns_) {
    if (column.type == ColumnType::left_out) continue;
    for (size_t i = 0; i < column.scales.size(); ++i)
      add(column.name + (column.type == ColumnType::date ? kParts[i] : ""));
    for (const std::string& value : column.categories.values) add(column.name + "=" + value);
    if (column.has_missing)
      add(column.name + (column.type == ColumnType::category ? "=other" : " is missing"));
  }
}

EncodedTable TableEncoder::encode(const Table& table) const {
  check_table(table);
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < table.names.size(); ++i) places.emplace(table.names[i], i);
  const auto width = static_cast<int64_t>(feature_names_.size());
  std::set<std::string_view> known = {target_};
  for (const EncodedColumn& column : columns_) {
    known.insert(column.name);
    TD_CHECK(column.type == ColumnType::left_out || places.contains(column.name), "table ", table.source,
             ": must have the columns of training; ", shown(column.name), " is missing. It has ",
             list_of(table.names), ".");
  }
  for (const std::string& name : table.names)
    TD_CHECK(known.contains(name), "table ", table.source, ": must have the columns of training alone; ",
             shown(name), " is not one of them. Remove or rename it.");
  EncodedTable encoded{empty({table.rows(), width}, DType::f32), {}};
  float* out = encoded.features.data<float>();
  for (const EncodedColumn& column : columns_) {
    if (column.type == ColumnType::left_out) continue;
    encode_column(table, column, table.columns[places[column.name]], out, width);
    out += features_of(column);
  }
  if (places.contains(target_)) encoded.target = encode_target(table, table.columns[places[target_]]);
  return encoded;
}

Tensor TableEncoder::encode_target(const Table& table, const TextColumn& cells) const {
  int64_t missing = -1, count = 0;  // the first such row, and how many
  for (int64_t row = cells.size() - 1; row >= 0; --row)
    if (cells.is_missing(row)) {
      missing = row;
      ++count;
    }
  if (count == cells.size()) return {};
  TD_CHECK(count == 0, place_of(table, target_, missing),
           "the target must be in all rows or in none; it is missing in ", count, " of ", cells.size(),
           ". Remove these rows.");
  const bool classes = task_ == TableTask::classification;
  const Tensor out = empty({cells.size()}, classes ? DType::i64 : DType::f32);
  const auto places = places_of(classes_);
  for (int64_t row = 0; row < cells.size(); ++row) {
    if (classes) {
      const auto found = places.find(key_of(classes_, cells[row]));
      TD_CHECK(found != places.end(), place_of(table, target_, row), "must be a class of the training rows (",
               list_of(classes_.values), "); got ", shown(cells[row]), ".");
      out.data<int64_t>()[row] = found->second;
    } else {
      const std::optional<double> value = finite_number(cells[row]);
      TD_CHECK(value, place_of(table, target_, row), "must be ", number_for(cells[row]),
               ", as in training; got ", shown(cells[row]), ". Fix the cell.");
      out.data<float>()[row] = standardised(table, target_, row, target_scale_, *value);
    }
  }
  return out;
}

double TableEncoder::decode_target(double standardised) const {
  TD_CHECK(task_ == TableTask::regression, "decode_target: the task must be regression; target ",
           shown(target_), " is one of ", classes_.values.size(), " classes. class_names() has their names.");
  return standardised * target_scale_.deviation + target_scale_.mean;
}

}  // namespace tandem::data
