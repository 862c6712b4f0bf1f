// What a column of a table holds and what that makes it: shared by the encoder's parts.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/table_encoder.h"

namespace tandem::data {

inline constexpr int64_t kMaxFeatures = int64_t{1} << 16;
inline constexpr size_t kMaxValueBytes = 1000;  // of a category or class

/// For messages: 'text', cut and on one line; "a, b, c …"; "table 'house.csv': line 7, column 'price': ".
std::string shown(std::string_view text);
std::string list_of(const std::vector<std::string>& names);
std::string place_of(const Table& table, const std::string& column, int64_t row);

/// Refuses a table that somebody put together wrongly: columns without a name, or not as long as there are rows.
void check_table(const Table& table);

std::optional<double> finite_number(std::string_view cell);
/// A number that a person reads and csv_number does not: with a decimal comma (86,8), separators of thousands (1.234,5 or
/// 1 234 or 1,234.5), a percent sign or a sign of money.
bool is_otherwise_written(std::string_view cell);
/// One text for equal numbers.
std::string number_text(double value);

/// What a column holds, counted.
struct Content {
  int64_t cells = 0;        // that are not missing
  int64_t numbers = 0;      // finite ones among them
  int64_t missing = 0;      // cells
  int64_t infinite = 0;     // cells that are numbers beyond a double's range, or infinity
  int64_t otherwise = 0;    // cells that are numbers by is_otherwise_written
  int64_t first_text = -1;  // the row of the first cell that is no finite number
  int64_t first_otherwise = -1;
  std::vector<double> values;  // the numbers
  bool all_numbers() const { return cells > 0 && numbers == cells; }
  /// Nearly all cells are numbers in some form, and some are written otherwise than as csv_number.
  bool has_foreign_numbers() const { return otherwise > 0 && (numbers + otherwise) * 10 >= cells * 9; }
  /// Whether values are told apart as numbers. From 2^53 on a double stands for several whole numbers, so that ids of that
  /// size are texts.
  bool compare_as_numbers() const;
};
Content content_of(const TextColumn& column);

/// The different values of a column with their counts, in sorted order: by size where they are compared as numbers.
struct Counted {
  std::string value;
  int64_t count = 0;
};
std::vector<Counted> counted_values(const TextColumn& column, const Content& content);

/// Names or ids rather than categories.
bool nearly_all_different(int64_t different, int64_t cells);
/// All cells that are not missing are dates of this form.
bool are_dates(const TextColumn& column, DateForm form);
/// Refuses a cell that is no finite number where nearly all of the column are, or where the others are infinite. `fix`
/// ends the message.
void check_nearly_numbers(const Table& table, const std::string& name, const TextColumn& column,
                          const Content& content, const char* fix);
/// Refuses a column of numbers that are written otherwise: each different one would become a category. `fix` ends the message.
void check_plain_numbers(const Table& table, const std::string& name, const TextColumn& column,
                         const Content& content, const char* fix);
/// Whether numbers, of which so many are different, are no classes: there are many of them, with few samples each, and they
/// are not most of the whole numbers between the least and the largest.
bool look_like_quantities(int64_t different, int64_t samples, std::span<const double> numbers);
/// Where a text column has numbers in it: a sentence on the cell that kept it from being one of numbers. Else "".
std::string mixed_hint(const Table& table, const TextColumn& column, const Content& content);
/// `what` begins the message: "table 'house.csv': column 'price'".
Scale scale_of(const std::string& what, std::span<const double> values);

/// The meaning of column `place` by the rules of table_encoder.h. Adds to the notices what a user should know.
EncodedColumn learn_column(const Table& table, size_t place, const TableEncoderOptions& options,
                           std::vector<std::string>& notices);

}  // namespace tandem::data
