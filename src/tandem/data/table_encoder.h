// TableEncoder: what the columns of a table mean and how their cells become numbers, learned from the training rows alone,
// kept as JSON text, and used on other rows.
//
// A column is, in this order:
//   category  where the caller says so;
//   number    where every cell that is not missing is a finite number;
//   date      where every one is yyyy-mm-dd, with a time or without; or dd.mm.yyyy, dd/mm/yyyy, mm/dd/yyyy or
//             mm.dd.yyyy, where the column's days tell the order (or the caller does: else it is refused);
//   category  otherwise: text, yes/no, true/false.
// A cell that is no number among others of which at least nine in ten are (or no date among dates) is refused by its line.
// Left out, with a notice: columns whose cells are all the same, and text of which nearly every value is different
// (more than 90 % of 20 or more cells), unless the caller keeps it.
//
// A number becomes (x - mean) / deviation. A date becomes year, month, day of the week (Monday is 1) and days since
// 1970-01-01, time of day included, each standardised like a number. A missing cell counts as the mean; where training
// had any in the column, a further feature is 1 for it and 0 otherwise. A category becomes one feature of 0 or 1 for each
// value of training, in sorted order; of more than max_values the most frequent have one. Rare and missing ones of
// training share one more. A value that training never saw has that feature set where it exists, and none otherwise.
//
// The target: text is classes. Numbers are classes where there are only two different ones, or where they are the whole
// numbers from 0 to k-1, each there, k at most 20; else they are a quantity, standardised. `task` overrides that.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/tensor.h"
#include "tandem/data/table.h"

namespace tandem::data {

enum class TableTask : uint8_t { automatic, classification, regression };
constexpr const char* name(TableTask task) {
  return task == TableTask::automatic        ? "automatic"
         : task == TableTask::classification ? "classification"
                                             : "regression";
}
/// The task of a name. Throws Error with the three names.
TableTask table_task(const std::string& name);

/// What the target column asks for, by the rule above; `asked` where that is not automatic. Throws for a date.
TableTask task_of(const Table& table, const std::string& target, TableTask asked = TableTask::automatic);

struct TableEncoderOptions {
  std::string target = {};                    ///< the column to be predicted
  TableTask task = TableTask::automatic;      ///< what the target asks for
  std::vector<std::string> categories = {};   ///< columns of numbers that are categories
  std::vector<std::string> keep = {};         ///< text columns kept though nearly every value is different
  std::vector<std::string> ignore = {};       ///< columns that are left out
  std::vector<std::string> day_first = {};    ///< columns of dates dd/mm/yyyy or dd.mm.yyyy
  std::vector<std::string> month_first = {};  ///< columns of dates mm/dd/yyyy or mm.dd.yyyy
  int64_t max_values = 64;                    ///< features of one category; 1 … 65,536
  /// The table that the training rows were taken from, where that is a larger one: all its rows decide what a column is,
  /// so that it does not depend on which were taken. It is looked at while the encoder learns.
  const Table* taken_from = nullptr;
};

enum class ColumnType : uint8_t { number, category, date, left_out };
enum class DateForm : uint8_t { iso, day_first, month_first };

/// Mean and deviation (the square root of the mean square difference; 1 where that is 0) of the training rows.
struct Scale {
  double mean = 0, deviation = 1;
};
/// The values of a category, sorted: as text, or by size where all are numbers below 2^53 ("3" and "3.0" are then the same;
/// larger ones are ids, which a double would not tell apart).
struct Categories {
  std::vector<std::string> values;
  bool are_numbers = false;
};
struct EncodedColumn {
  std::string name;
  ColumnType type = ColumnType::left_out;
  std::vector<Scale> scales = {};  ///< one of a number, four of a date
  Categories categories = {};
  DateForm form = DateForm::iso;
  bool has_missing = false;  ///< the further feature exists
};

struct EncodedTable {
  Tensor features;  ///< f32 (rows, features)
  Tensor
      target;  ///< i64 (rows,): classes; f32 (rows,): standardised numbers; undefined where the table has none
};

class TableEncoder {
 public:
  /// Learns from all rows of `train`, which must hold the target in each. Throws Error with column and line.
  TableEncoder(const Table& train, const TableEncoderOptions& options);

  /// Other rows, their columns in any order; ones that were left out may be missing. The target may be missing, too: as
  /// a column, or in all its cells. Throws Error for columns that are missing or unknown, cells that do not fit their
  /// column and classes that training did not have.
  EncodedTable encode(const Table& table) const;

  const std::string& target() const { return target_; }
  /// classification or regression.
  TableTask task() const { return task_; }
  /// One per feature, all different: "width", "width is missing", "city=Oslo", "city=other", "day year". Where two would be
  /// the same, as with a city that is called other, the second is "city=other (2)".
  const std::vector<std::string>& feature_names() const { return feature_names_; }
  /// In the order of their numbers; empty for regression.
  const std::vector<std::string>& class_names() const { return classes_.values; }
  /// How further tables are to be read, as the training rows were: read_table(path, encoder.reading()).
  const TableOptions& reading() const { return reading_; }
  /// All columns of training but the target, in their order.
  const std::vector<EncodedColumn>& columns() const { return columns_; }
  /// What a user should know: columns left out, categories that share a feature, how the target was taken. One line
  /// each; not saved.
  const std::vector<std::string>& notices() const { return notices_; }

  /// The target's own unit of a standardised number, for regression.
  double decode_target(double standardised) const;
  /// Errors (rmse, mae) in the target's unit are this many times the standardised ones.
  double target_deviation() const { return target_scale_.deviation; }

  /// JSON text that from_json reads, with the same numbers to the bit.
  std::string to_json() const;
  /// `where` is what messages begin with: "load 'runs/a/table.json': ".
  static TableEncoder from_json(std::string_view text, const std::string& where = "table encoder: ");

 private:
  TableEncoder() = default;
  void learn_target(const Table& train, const TableEncoderOptions& options);
  void name_features(const std::string& where);
  Tensor encode_target(const Table& table, const TextColumn& cells) const;

  std::string target_;
  TableTask task_ = TableTask::regression;
  Categories classes_;
  Scale target_scale_;
  TableOptions reading_;
  std::vector<EncodedColumn> columns_;
  std::vector<std::string> feature_names_, notices_;
};

}  // namespace tandem::data
