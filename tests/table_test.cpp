// Tables of the user's own: reading CSV, what columns mean, encoding, splits, the data set, and linear models on real
// tables beside scikit-learn's.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "tandem/core/tape.h"
#include "tandem/data/table_set.h"
#include "tandem/ops/create.h"
#include "tandem/ops/linalg.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/lbfgs.h"
#include "tests/support/foreign_files.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::refusal;
using testing::TempFolder;
using testing::write_text;
using Strings = std::vector<std::string>;
namespace fs = std::filesystem;

/// The cells of a column, missing ones as "-".
Strings cells_of(const Table& table, std::string_view name) {
  const TextColumn& column = table.column(name);
  Strings cells;
  for (int64_t row = 0; row < table.rows(); ++row)
    cells.push_back(column.is_missing(row) ? "-" : std::string(column[row]));
  return cells;
}

std::vector<float> row_of(const Tensor& features, int64_t row) {
  const std::vector<float> all = features.to_vector<float>();
  const int64_t width = features.size(1);
  return {all.begin() + row * width, all.begin() + (row + 1) * width};
}

/// The features of the rows that the encoder learned from.
std::vector<float> learned_row(const TableEncoder& encoder, const Table& table, int64_t row) {
  return row_of(encoder.encode(table).features, row);
}

bool has_notice(const TableEncoder& encoder, const std::string& part) {
  for (const std::string& notice : encoder.notices())
    if (notice.find(part) != std::string::npos && notice.find('\n') == std::string::npos) return true;
  return false;
}

// --- Reading

TEST(Table, ReadsQuotesDelimitersLineBreaksInsideQuotesAndAByteOrderMark) {
  const Table table = parse_table(
      "\xef\xbb\xbfname,\"size, cm\",note\r\n"
      "Ann,1.5,\"says \"\"hi\"\"\"\r\n"
      "\r\n"
      "Bob, 2 ,\"two\nlines\"\r\n"
      "Çelik, \"3\" ,\n");
  EXPECT_EQ(table.names, (Strings{"name", "size, cm", "note"}));
  EXPECT_EQ(table.rows(), 3);
  EXPECT_EQ(cells_of(table, "name"), (Strings{"Ann", "Bob", "Çelik"}));
  EXPECT_EQ(cells_of(table, "size, cm"), (Strings{"1.5", "2", "3"}));
  EXPECT_EQ(cells_of(table, "note"), (Strings{"says \"hi\"", "two\nlines", "-"}));
  EXPECT_EQ(table.lines, (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(cells_of(parse_table("a\rx\ry\r"), "a"), (Strings{"x", "y"})) << "lines that end with CR alone";
}

TEST(Table, FindsTheDelimiterInTheFirstLineOrTakesTheGivenOne) {
  EXPECT_EQ(parse_table("a;b;\"c,d,e\"\n1;2;3\n").names, (Strings{"a", "b", "c,d,e"}));
  EXPECT_EQ(parse_table("a\tb,c\td\n1\t2\t3\n").names, (Strings{"a", "b,c", "d"}));
  EXPECT_EQ(parse_table("a;b\n1;2\n", {.delimiter = ','}).names, (Strings{"a;b"}));
  EXPECT_EQ(parse_table("a|b\n1|2\n", {.delimiter = '|'}).names, (Strings{"a", "b"}));
  EXPECT_HAS(refusal([] { parse_table("a,b;c\n1,2;3\n"); }), "1 commas, 1 semicolons and 0 tabs");
  EXPECT_HAS(refusal([] { parse_table("a\n1\n", {.delimiter = '"'}); }), "must not be a quote");
}

TEST(Table, MarksCellsWithoutAValueByTheListOfWords) {
  EXPECT_EQ(cells_of(parse_table("a,b\n1,x\nNA,x\nN/A,x\nNaN,x\nnull,x\n?,x\n,x\n\"\",x\nna,x\n"), "a"),
            (Strings{"1", "-", "-", "-", "-", "-", "-", "-", "na"}));
  EXPECT_EQ(cells_of(parse_table("a,b\n1,x\nNA,x\n-999,x\n,x\n", {.missing = {"-999"}}), "a"),
            (Strings{"1", "NA", "-", "-"}));
}

TEST(Table, WantsAHeaderUnlessToldThatThereIsNone) {
  EXPECT_HAS(
      refusal([] { parse_table("5.1,3.5\n4.9,3\n", {}, "x.csv"); }),
      "parse_table 'x.csv': the first line must name the columns; it has only numbers (5.1, 3.5). Add a "
      "line of names, or give `no_header` (header = false)");
  const Table table = parse_table("5.1,3.5\n4.9,3\n", {.header = false});
  EXPECT_EQ(table.names, (Strings{"c0", "c1"}));
  EXPECT_EQ(cells_of(table, "c0"), (Strings{"5.1", "4.9"}));
  EXPECT_EQ(parse_table("2019,price\n1,2\n").names, (Strings{"2019", "price"}));
}

TEST(Table, RefusesFilesThatAreNoTablesByFileLineAndCounts) {
  TempFolder folder;
  const std::string path = folder / "x.csv";
  const auto of = [&](std::string_view content, const TableOptions& options = {}) {
    write_text(path, content);
    const std::string message = refusal([&] { read_table(path, options); });
    EXPECT_HAS(message, "load '" + path + "': ");
    return message;
  };
  EXPECT_HAS(of("a,b\n1,2\n\n\"x\ny\",2,3\n"), "every row must have 2 cells as the first line; line 4 has 3");
  EXPECT_HAS(of("a,b,a\n1,2,3\n"), "columns 1 and 3 are both called 'a'. Rename one");
  EXPECT_HAS(of(",b\n1,2\n"), "column 1 of 2 has none");
  EXPECT_HAS(of(""), "it is empty");
  EXPECT_HAS(of("\n\r\n"), "it is empty");
  EXPECT_HAS(of("a,b\n"), "must hold rows below the names of the columns (a, b); got none");
  EXPECT_HAS(of("a,b\n1,\"x\n"), "quotes must be closed; those of line 2");
  EXPECT_HAS(of("a,b\n\"1\"2,3\n"), "after closing quotes a cell must end; in line 2");
  EXPECT_HAS(of(std::string(1001, 'n') + ",b\n1,2\n"), "at most 1000 bytes; that of column 1 takes 1001");
  EXPECT_HAS(of("a,b\n1,2\n1,2\n", {.max_bytes = 11}), "at most 11 bytes");
  EXPECT_HAS(of("a,b\n1,2\n1,2\n", {.max_bytes = 30}),
             "a table must take at most 30 bytes in memory (its text, and 8 for each cell and each row); it "
             "takes more from "
             "line 3 on");
}

TEST(Table, RefusesOtherEncodingsWithTheByte) {
  const auto of = [](std::string_view text) { return refusal([&] { parse_table(text); }); };
  using namespace std::string_view_literals;
  EXPECT_HAS(of("\xff\xfe"sv
                "a\0,\0b\0\n\0"sv),
             "byte 0 begins the mark of UTF-16. Save it as UTF-8");
  EXPECT_HAS(of("\xfe\xff\0a\0\n"sv), "UTF-16");
  EXPECT_HAS(of("\xff\xfe\0\0a\0\0\0"sv), "UTF-32");
  EXPECT_HAS(of("a,b\nM\xfcller,2\n"), "must be text in UTF-8; byte 5 (line 2) is 0xfc");
  EXPECT_HAS(of("a,b\n1,\0\n"sv), "byte 6 (line 2) is 0x00, which no text holds");
  for (const char* wrong :
       {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80", "\xf8\x88\x80\x80\x80"})
    EXPECT_HAS(of(str("a\n", wrong)), "must be text in UTF-8; byte 2 (line 2)");
  EXPECT_EQ(cells_of(parse_table("a,b\n\xf0\x9f\x90\xb1\xe2\x82\xac\xc3\xbc,1\n"), "a"),
            (Strings{"\xf0\x9f\x90\xb1\xe2\x82\xac\xc3\xbc"}));
}

TEST(Table, IsReadFromAFolderWithTrainAndTestOrOneFile) {
  TempFolder folder;
  const auto rows = [&](const std::string& path) {
    const TableParts parts = read_tables(path);
    return std::pair(parts.train.rows(), parts.test ? parts.test->rows() : 0);
  };
  EXPECT_HAS(refusal([&] { rows(folder.path()); }), "it holds no .csv file");
  write_text(folder / "a.csv", "x\n1a\n2\n");
  EXPECT_EQ(rows(folder.path()), std::pair(int64_t{2}, int64_t{0}));
  EXPECT_EQ(rows(folder / "a.csv"), std::pair(int64_t{2}, int64_t{0}));
  write_text(folder / "test.csv", "x\n1\n");
  EXPECT_HAS(refusal([&] { rows(folder.path()); }),
             "or one .csv file; it holds a.csv, test.csv. Name the file");
  write_text(folder / "train.csv", testing::gzip("x\n1\n2\n3\n"));
  EXPECT_EQ(rows(folder.path()), std::pair(int64_t{3}, int64_t{1}));
  fs::remove(folder / "a.csv");
  fs::remove(folder / "train.csv");
  EXPECT_HAS(refusal([&] { rows(folder.path()); }), "it holds test.csv");
  EXPECT_HAS(refusal([&] { rows(folder / "none.csv"); }), "none.csv");
}

// --- Hostile files

TEST(Table, RefusesHugeCellsAndManyColumns) {
  const auto of = [](const std::string& text) { return refusal([&] { parse_table(text); }); };
  EXPECT_HAS(of("a,b\n1," + std::string(100'000'000, 'x') + "\n"),
             "a cell must take at most 1048576 bytes; the one that begins in line 2 is longer");
  EXPECT_HAS(of("a,b\n1,\"" + std::string(100'000'000, 'x') + "\"\n"), "a cell must take at most 1048576");
  EXPECT_HAS(of("a,b\n1," + std::string(100'000'001, '"')), "a cell must take at most 1048576");
  std::string wide = "c0";
  for (int i = 1; i < 1'000'000; ++i) wide += str(",c", i);
  EXPECT_HAS(of(wide + "\n"), "must have at most 65536 columns; got 65537 or more in line 1");
  EXPECT_HAS(of("a,b\n" + std::string(10'000'000, ',') + "\n"), "got 65537 or more in line 2");
  EXPECT_HAS(of(std::string(1000, '\0')), "byte 0 (line 1) is 0x00");
  const Table long_cell = parse_table("a,b\n1," + std::string(1 << 20, 'x') + "\n");
  EXPECT_EQ(long_cell.column("b")[0].size(), size_t{1} << 20);
}

TEST(Table, RefusesASmallFileThatUnpacksToAGigabyteOfQuotes) {
  TempFolder folder;
  std::string packed;  // members of gzip, one after the other
  const std::string member = testing::gzip(std::string(50'000'000, '"'));
  for (int i = 0; i < 20; ++i) packed += member;
  write_text(folder / "x.csv", packed);
  EXPECT_HAS(refusal([&] { read_table(folder / "x.csv"); }), "times its size");
}

// --- What columns mean

TEST(TableEncoder, StandardisesNumbersAndMarksMissingOnes) {
  const Table table = parse_table("a,b,y\n1,10,0.5\n3,,1.5\n5,30,7\n");
  const TableEncoder encoder(table, {.target = "y"});
  EXPECT_EQ(encoder.feature_names(), (Strings{"a", "b", "b is missing"}));
  const float a = static_cast<float>(2 / std::sqrt(8.0 / 3));  // 1, 3, 5: mean 3, deviation sqrt(8/3)
  EXPECT_EQ(learned_row(encoder, table, 0), (std::vector<float>{-a, -1, 0}));
  EXPECT_EQ(learned_row(encoder, table, 1), (std::vector<float>{0, 0, 1}));
  EXPECT_EQ(learned_row(encoder, table, 2), (std::vector<float>{a, 1, 0}));
  // Other rows: 7 deviates from the training rows' mean; a missing cell of a column that had none counts as the mean.
  const EncodedTable other = encoder.encode(parse_table("a,b\n,50\n7,20\n"));
  EXPECT_EQ(row_of(other.features, 0), (std::vector<float>{0, 3, 0}));
  EXPECT_EQ(row_of(other.features, 1), (std::vector<float>{2 * a, 0, 0}));
  EXPECT_FALSE(other.target.defined());
}

TEST(TableEncoder, GivesCategoriesOneFeatureAValueInSortedOrder) {
  const Table table = parse_table("city,on,y\nRome,yes,1.5\nOslo,no,2\n,yes,3\nRome,no,4\n");
  const TableEncoder encoder(table, {.target = "y"});
  EXPECT_EQ(encoder.feature_names(), (Strings{"city=Oslo", "city=Rome", "city=other", "on=no", "on=yes"}));
  EXPECT_EQ(learned_row(encoder, table, 0), (std::vector<float>{0, 1, 0, 0, 1}));
  EXPECT_EQ(learned_row(encoder, table, 2), (std::vector<float>{0, 0, 1, 0, 1}));
  EXPECT_EQ(row_of(encoder.encode(parse_table("city,on\nParis,maybe\n")).features, 0),
            (std::vector<float>{0, 0, 1, 0, 0}))
      << "values that training did not have: 'other' where it exists, else nothing";
}

TEST(TableEncoder, TakesWholeNumbersAsCategoriesWhereTheCallerSaysSo) {
  const Table table = parse_table("zip,y\n10,1.5\n9,2\n10.0,3\n");
  EXPECT_EQ(TableEncoder(table, {.target = "y"}).feature_names(), (Strings{"zip"}));
  const TableEncoder encoder(table, {.target = "y", .categories = {"zip"}});
  EXPECT_EQ(encoder.feature_names(), (Strings{"zip=9", "zip=10"})) << "by size";
  EXPECT_EQ(learned_row(encoder, table, 2), (std::vector<float>{0, 1}));
  EXPECT_EQ(row_of(encoder.encode(parse_table("zip\n09.0\n")).features, 0), (std::vector<float>{1, 0}));
}

TEST(TableEncoder, KeepsTheMostFrequentValuesOfACategoryWithTooMany) {
  std::string text = "k,y\n";
  for (int i = 0; i < 10; ++i)
    for (int k = 0; k <= i; ++k) text += str("v", i, ",", i, ".", k, "\n");  // v9 ten times … v0 once
  const Table table = parse_table(text);
  const TableEncoder encoder(table, {.target = "y", .max_values = 3});
  EXPECT_EQ(encoder.feature_names(), (Strings{"k=v7", "k=v8", "k=v9", "k=other"}));
  EXPECT_TRUE(has_notice(encoder,
                         "column 'k' has 10 different values: the 3 most frequent have a feature each, "
                         "the others share one (28 of 55 cells)"));
  EXPECT_EQ(learned_row(encoder, table, 0), (std::vector<float>{0, 0, 0, 1}));
}

TEST(TableEncoder, LeavesOutNamesAndConstantsWithANotice) {
  std::string text = "id,same,none,x,note,y\n";
  for (int i = 0; i < 40; ++i)
    text += str("p", i, ",7,,", i % 5, ",", i < 30 ? str(i) : str("t", i), ",", i * 0.5, "\n");
  const Table table = parse_table(text);
  const TableEncoder encoder(table, {.target = "y"});
  EXPECT_EQ(encoder.feature_names(), (Strings{"x"}));
  EXPECT_TRUE(has_notice(encoder,
                         "column 'id' is left out: nearly every value is different (40 of 40 cells). Name "
                         "it by `keep`"));
  EXPECT_TRUE(has_notice(encoder, "column 'same' is left out: all its cells are the same."));
  EXPECT_TRUE(has_notice(encoder, "column 'none' is left out: it has no values."));
  EXPECT_TRUE(has_notice(encoder, "30 of its 40 cells are numbers; 't30' in line 32 is not"));
  EXPECT_EQ(TableEncoder(table, {.target = "y", .keep = {"id"}, .ignore = {"x"}}).feature_names().size(),
            40u);
  EXPECT_EQ(encoder.encode(parse_table("x\n1\n")).features.shape(), (Dims{1, 1})) << "not asked for again";
}

TEST(TableEncoder, SplitsDatesIntoYearMonthWeekdayAndDays) {
  const Table table = parse_table("d,y\n2020-02-29,1.5\n2021-03-01T12:00,2\n,3\n2022-03-06 18:00:00.5Z,5\n");
  const TableEncoder encoder(table, {.target = "y"});
  EXPECT_EQ(encoder.feature_names(), (Strings{"d year", "d month", "d weekday", "d days", "d is missing"}));
  const std::vector<Scale>& scales = encoder.columns()[0].scales;
  EXPECT_DOUBLE_EQ(scales[0].mean, 2021);
  EXPECT_DOUBLE_EQ(scales[1].mean, 8.0 / 3);
  EXPECT_DOUBLE_EQ(scales[2].mean, (6 + 1 + 7) / 3.0) << "Saturday, Monday, Sunday";
  EXPECT_DOUBLE_EQ(scales[3].mean, (18321 + 18687.5 + 19057.75) / 3) << "days since 1970-01-01";
  EXPECT_FLOAT_EQ(learned_row(encoder, table, 3)[0], static_cast<float>(std::sqrt(1.5)));
  EXPECT_EQ(learned_row(encoder, table, 2), (std::vector<float>{0, 0, 0, 0, 1}));
  EXPECT_HAS(
      refusal([&] { encoder.encode(parse_table("d\n2021-02-29\n", {}, "new.csv")); }),
      "table 'new.csv': line 2, column 'd': must be a date yyyy-mm-dd, as in training; got '2021-02-29'");
}

TEST(TableEncoder, TellsTheOrderOfDayAndMonthByTheWholeColumnOrAsks) {
  const auto form = [](const std::string& first, const std::string& second,
                       TableEncoderOptions options = {}) {
    options.target = "y";
    const TableEncoder encoder(parse_table("d,y\n" + first + ",1.5\n" + second + ",2\n,3\n"), options);
    EXPECT_EQ(encoder.columns()[0].type, ColumnType::date);
    return encoder.columns()[0].form;
  };
  EXPECT_EQ(form("01.02.2020", "13.2.2020"), DateForm::day_first);
  EXPECT_EQ(form("01/02/2020", "02/13/2020"), DateForm::month_first);
  EXPECT_EQ(form("01/02/2020", "13/02/2020"), DateForm::day_first);
  EXPECT_HAS(
      refusal([&] { form("01/02/2020", "03/04/2020"); }),
      "line 2, column 'd': what is the day and what the month in '01/02/2020'? No date of the column tells. "
      "Name the column by `day_first` or `month_first`");
  EXPECT_EQ(form("01/02/2020", "03/04/2020", {.day_first = {"d"}}), DateForm::day_first);
  EXPECT_EQ(form("01/02/2020", "03/04/2020", {.month_first = {"d"}}), DateForm::month_first);
  EXPECT_HAS(refusal([&] { form("01/13/2020", "03/04/2020", {.day_first = {"d"}}); }), "as `day_first` says");
  const Table mixed = parse_table("d,y\n13/01/2020,1.5\n01/13/2020,2\n2020-13-01,3\n");
  EXPECT_EQ(TableEncoder(mixed, {.target = "y"}).columns()[0].type, ColumnType::category);
}

// --- The target

TEST(TableEncoder, ChoosesTheTaskByTheTargetsValues) {
  const auto task = [](const std::string& values, TableTask asked = TableTask::automatic) {
    std::string text = "x,y\n";
    int row = 0;
    for (char value : values) text += str(++row, ",", value, "\n");
    return task_of(parse_table(text), "y", asked);
  };
  EXPECT_EQ(task("abab"), TableTask::classification);
  EXPECT_EQ(task("0120"), TableTask::classification) << "0, 1, 2: class numbers";
  EXPECT_EQ(task("1313"), TableTask::classification) << "two numbers";
  EXPECT_EQ(task("1231"), TableTask::regression) << "not from 0";
  EXPECT_EQ(task("0131"), TableTask::regression) << "a gap";
  EXPECT_EQ(task("1231", TableTask::classification), TableTask::classification);
  EXPECT_EQ(task("0120", TableTask::regression), TableTask::regression);
  EXPECT_HAS(refusal([&] { task("01a", TableTask::regression); }),
             "line 4, column 'y': a target of regression must be a number; got 'a'");
  std::string many = "x,y\n", names = "x,y\n";
  for (int i = 0; i < 21; ++i) many += str(i, ",", i, "\n");
  for (int i = 0; i < 30; ++i) names += str(i, ",", i < 25 ? str(i) : str("abc", i), "\n");
  EXPECT_EQ(task_of(parse_table(many), "y"), TableTask::regression) << "more than 20";
  const std::string message = refusal([&] { task_of(parse_table(names), "y"); });
  EXPECT_HAS(message, "target 'y' must hold numbers or classes; of its 30 texts 30 are different");
  EXPECT_HAS(message, "25 of its 30 cells are numbers; 'abc25' in line 27 is not");
  EXPECT_HAS(refusal([] { task_of(parse_table("y,x\n2020-01-01,1\n"), "y"); }), "it holds dates");
  EXPECT_EQ(table_task("regression"), TableTask::regression);
  EXPECT_HAS(refusal([] { table_task("ranking"); }),
             "automatic, classification or regression; got 'ranking'");
}

TEST(TableEncoder, NumbersClassesInOrderAndScalesQuantities) {
  const Table table = parse_table("x,y\n1,10\n2,9\n3,10\n4,0\n");
  const TableEncoder classes(table, {.target = "y", .task = TableTask::classification});
  EXPECT_EQ(classes.class_names(), (Strings{"0", "9", "10"}));
  EXPECT_EQ(classes.encode(table).target.to_vector<int64_t>(), (std::vector<int64_t>{2, 1, 2, 0}));
  EXPECT_HAS(refusal([&] { (void)classes.decode_target(0); }), "class_names()");
  EXPECT_HAS(refusal([&] { classes.encode(parse_table("x,y\n1,8\n")); }),
             "line 2, column 'y': must be a class of the training rows (0, 9, 10); got '8'");

  const TableEncoder quantity(table, {.target = "y"});
  EXPECT_EQ(quantity.task(), TableTask::regression);
  EXPECT_TRUE(quantity.class_names().empty());
  EXPECT_TRUE(
      has_notice(quantity, "target 'y' is taken as a quantity; it has only 3 different whole numbers"));
  const std::vector<float> target = quantity.encode(table).target.to_vector<float>();
  EXPECT_NEAR(std::accumulate(target.begin(), target.end(), 0.0), 0, 1e-6);
  EXPECT_NEAR(quantity.decode_target(target[1]), 9, 1e-6);
  EXPECT_NEAR((10 - 9) / static_cast<double>(target[0] - target[1]), quantity.target_deviation(), 1e-5);
}

TEST(TableEncoder, RefusesTargetsThatCannotBeLearned) {
  const auto of = [](const std::string& text, const TableEncoderOptions& options) {
    return refusal([&] { TableEncoder(parse_table(text), options); });
  };
  EXPECT_HAS(of("a,y\n1,2\n2,3\n", {}), "the target column must be named; it is one of a, y");
  EXPECT_HAS(of("a,y\n1,2\n2,3\n", {.target = "z"}), "the column must be one of a, y; got 'z'");
  EXPECT_HAS(of("a,y\n1,2\n2,\n3,4\n", {.target = "y"}),
             "line 3, column 'y': the target must not be missing in a training row");
  EXPECT_HAS(of("a,y\n1,2\n2,2\n", {.target = "y"}), "at least two different values; all are '2'");
  EXPECT_HAS(of("a,y\n1,\n2,\n", {.target = "y"}), "all its cells are missing");
  EXPECT_HAS(of("y\n1\n2\n", {.target = "y"}), "must have a column to learn from beside the target 'y'");
  EXPECT_HAS(of("a,y\n1,2\n2,3\n", {.target = "y", .ignore = {"b"}}),
             "`ignore` must name columns (a, y); got 'b'");
  EXPECT_HAS(of("a,y\n1,2\n2,3\n", {.target = "y", .ignore = {"y"}}), "`ignore` must not name the target");
  EXPECT_HAS(of("a,y\n1,2\n2,3\n", {.target = "y", .max_values = 0}), "max_values must be 1 to 65536; got 0");
  EXPECT_HAS(of("a,y\n1e300,2\n-1e300,3\n", {.target = "y"}), "column 'a': numbers must be small enough");
}

// --- Other rows

TEST(TableEncoder, EncodesColumnsInAnyOrderAndRefusesMissingAndUnknownOnesByName) {
  const Table table = parse_table("a,k,y\n1,u,0.5\n3,v,1.5\n5,u,7\n");
  const TableEncoder encoder(table, {.target = "y"});
  const auto of = [&](const std::string& text) {
    return refusal([&] { encoder.encode(parse_table(text, {}, "new.csv")); });
  };
  const EncodedTable turned = encoder.encode(parse_table("y,k,a\n0.5,u,1\n1.5,v,3\n7,u,5\n")),
                     straight = encoder.encode(table);
  EXPECT_EQ(turned.features.to_vector<float>(), straight.features.to_vector<float>());
  EXPECT_EQ(turned.target.to_vector<float>(), straight.target.to_vector<float>());
  EXPECT_HAS(of("a,y\n1,2\n"),
             "table 'new.csv': must have the columns of training; 'k' is missing. It has a, y");
  EXPECT_HAS(of("a,k,b\n1,u,2\n"), "'b' is not one of them. Remove or rename it");
  EXPECT_HAS(of("a,k\n1,u\nx,u\n"),
             "table 'new.csv': line 3, column 'a': must be a number, as in training; got 'x'");
  EXPECT_HAS(of("a,k\ninf,u\n"), "must be a number, as in training; got 'inf'");
  EXPECT_HAS(of("a,k\n1e300,u\n"), "must be of the size of the training rows' numbers");
  EXPECT_HAS(of("a,k,y\n1,u,2\n1,u,\n"), "line 3, column 'y': the target must be in all rows or in none");
  EXPECT_FALSE(encoder.encode(parse_table("a,k,y\n1,u,\n1,u,NA\n")).target.defined());
}

TEST(TableEncoder, CutsLongTextsInMessagesBetweenCharacters) {
  std::string euros;
  for (int i = 0; i < 40; ++i) euros += "€";  // three bytes each: 50 bytes end inside the 17th
  const std::string message = refusal([&] { parse_table("x\n1a\n").column(euros); });
  EXPECT_HAS(message, "got '" + euros.substr(0, 48) + "…'");
}

TEST(TableEncoder, RefusesTablesPutTogetherWrongly) {
  const Table good = parse_table("a,k,y\n1,u,0.5\n3,v,1.5\n5,u,7\n");
  const TableEncoder encoder(good, {.target = "y"});
  Table short_column = good, nameless = good;
  short_column.lines.push_back(9);
  nameless.names.pop_back();
  const auto check = [&](const Table& table, const std::string& part) {
    EXPECT_HAS(refusal([&] { encoder.encode(table); }), part);
    EXPECT_HAS(refusal([&] { TableEncoder(table, {.target = "a"}); }), part);
    EXPECT_HAS(refusal([&] { task_of(table, "a"); }), part);
    EXPECT_HAS(refusal([&] { split(table, 0.5, 1); }), part);
    EXPECT_HAS(refusal([&] { take_rows(table, std::vector<int64_t>{0}); }), part);
  };
  check(short_column, "column 'a' must have a cell for each of 4 rows (lines); got 3");
  check(nameless, "every column must have a name; got 3 columns and 2 names");
}

TEST(TableEncoder, IsReadFromItsJsonWithTheSameBits) {
  const Table table = parse_table(
      "a,k,z,d,same,y\n0.1,\"u,\"\"ü\",3,2020-01-31,1,yes\n0.7,v,4,2021-05-01,1,no\n,,3,2020-01-30,1,yes\n");
  for (TableTask task : {TableTask::classification, TableTask::regression}) {
    const bool classes = task == TableTask::classification;
    const TableEncoder encoder(
        table, {.target = classes ? "y" : "z", .categories = classes ? Strings{"z"} : Strings{}});
    ASSERT_EQ(encoder.task(), classes ? task : TableTask::classification);  // 3 and 4: two numbers
    const TableEncoder chosen(table, {.target = classes ? "y" : "z", .task = task});
    for (const TableEncoder* one : {&encoder, &chosen}) {
      const std::string json = one->to_json();
      const TableEncoder back = TableEncoder::from_json(json);
      EXPECT_EQ(back.to_json(), json);
      EXPECT_EQ(back.target(), one->target());
      EXPECT_EQ(back.task(), one->task());
      EXPECT_EQ(back.feature_names(), one->feature_names());
      EXPECT_EQ(back.class_names(), one->class_names());
      EXPECT_EQ(back.encode(table).features.to_vector<float>(),
                one->encode(table).features.to_vector<float>());
      EXPECT_EQ(host_bytes(back.encode(table).target), host_bytes(one->encode(table).target));
    }
  }
}

TEST(TableEncoder, KeepsHowFurtherTablesAreRead) {
  const TableOptions reading{.delimiter = '|', .header = false, .missing = {"-", "none", ""}};
  const Table table = parse_table("1|x\n-|y\n3|x\n4|y\n", reading);
  const TableEncoder back =
      TableEncoder::from_json(TableEncoder(split(table, 0.3, 1, "c1").train, {.target = "c1"}).to_json());
  EXPECT_EQ(back.reading().delimiter, '|');
  EXPECT_FALSE(back.reading().header);
  EXPECT_EQ(back.reading().missing, (Strings{"-", "none"})) << "an empty cell is missing in any case";
  EXPECT_EQ(back.encode(parse_table("none\n2\n", back.reading())).features.shape(), (Dims{2, 2}));
  const Table plain = parse_table("a,k\n1,u\n2,v\n");
  const std::string json = TableEncoder(plain, {.target = "k"}).to_json();
  EXPECT_FALSE(TableEncoder::from_json(json).reading().delimiter) << "found anew in each table";
  EXPECT_EQ(TableEncoder::from_json(json).reading().missing, TableOptions{}.missing);
  const auto of = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    text.replace(text.find(from), from.size(), to);
    return refusal([&] { TableEncoder::from_json(text); });
  };
  EXPECT_HAS(of("\"delimiter\": null", "\"delimiter\": \"\\n\""), "reading: 'delimiter' must not be a quote");
  EXPECT_HAS(of("\"delimiter\": null", "\"delimiter\": \";;\""), "must take 1 to 1 bytes; got 2");
  EXPECT_HAS(of("\"header\": true", "\"header\": \"yes\""), "'header' must be true or false");
  EXPECT_HAS(of("\"NA\"", "7"), "'missing' must hold texts");
  EXPECT_HAS(of("\"NA\"", "\"\""), "texts of 'missing' must take 1 to 1000 bytes");
}

TEST(TableEncoder, KeepsClassesAndCategoriesApartThatADoubleWouldMerge) {
  // 2^53 and the two after it: as doubles the first two are one.
  const std::string ids[] = {"9007199254740992", "9007199254740993", "9007199254740994"};
  std::string text = "x,id,y\n";
  for (int i = 0; i < 3; ++i) text += str(i, ",", ids[i], ",", ids[i], "\n");
  const Table table = parse_table(text);
  const TableEncoder encoder(table, {.target = "y", .task = TableTask::classification, .categories = {"id"}});
  EXPECT_EQ(encoder.class_names(), std::vector<std::string>(std::begin(ids), std::end(ids)));
  EXPECT_EQ(encoder.encode(table).target.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(encoder.feature_names(),
            (std::vector<std::string>{"x", "id=" + ids[0], "id=" + ids[1], "id=" + ids[2]}));
  const TableEncoder back = TableEncoder::from_json(encoder.to_json(), "load 'e.json': ");
  EXPECT_EQ(back.encode(table).target.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_HAS(refusal([&] { encoder.encode(parse_table("x,id,y\n1,1,9007199254740995\n")); }),
             "must be a class of the training rows");
  // Two classes are found without being asked for; below 2^53 numbers are numbers, and the next above is none of them.
  EXPECT_EQ(task_of(parse_table(str("x,y\n1,-", ids[0], "\n2,-", ids[1], "\n")), "y"),
            TableTask::classification);
  const TableEncoder below(parse_table("x,y\n1,9007199254740991\n2,9007199254740990\n"), {.target = "y"});
  EXPECT_EQ(below.class_names(), (std::vector<std::string>{"9007199254740990", "9007199254740991"}));
  EXPECT_EQ(below.encode(parse_table("x,y\n1,9007199254740990.0\n")).target.to_vector<int64_t>(),
            (std::vector<int64_t>{0}));
  EXPECT_HAS(refusal([&] { below.encode(parse_table("x,y\n1,9007199254740992\n")); }),
             "must be a class of the training rows");
}

TEST(TableEncoder, NamesItsFeaturesDifferently) {
  const auto names = [](const std::string& text, const TableEncoderOptions& options) {
    const TableEncoder encoder(parse_table(text), options);
    EXPECT_EQ(TableEncoder::from_json(encoder.to_json(), "load: ").feature_names(), encoder.feature_names());
    return encoder.feature_names();
  };
  EXPECT_EQ(names("x,y\nother,1\nthis,2\n,4\n", {.target = "y", .task = TableTask::regression}),
            (std::vector<std::string>{"x=other", "x=this", "x=other (2)"}));
  EXPECT_EQ(names("x,x is missing,y\n1,5,1\n,7,2\n2,8,4\n", {.target = "y", .task = TableTask::regression}),
            (std::vector<std::string>{"x", "x is missing", "x is missing (2)"}));
}

TEST(TableEncoder, RefusesJsonThatLearningCouldNotHaveWritten) {
  const Table table = parse_table("a,k,d,y\n0.5,u,2020-01-31,1.5\n0.75,v,2021-05-01,2\n,u,2020-01-30,4\n");
  const std::string json = TableEncoder(table, {.target = "y"}).to_json();
  const auto of = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << json;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    const std::string message = refusal([&] { TableEncoder::from_json(text, "load 'e.json': "); });
    EXPECT_EQ(message.rfind("load 'e.json': ", 0), 0u) << message;
    return message;
  };
  EXPECT_HAS(of("encoder 1", "encoder 2"), "'format' must be 'tandem table encoder 1'");
  EXPECT_HAS(of("\"target\": {", "\"target\": {\"more\": 1,"), "target: must not have a field 'more'");
  EXPECT_HAS(of("\"type\": \"number\",", ""), "column 0: must have a field 'type'");
  EXPECT_HAS(of("\"number\"", "\"words\""), "must be one of number, category, date, left out; got 'words'");
  EXPECT_HAS(of("\"mean\": 0.625", "\"mean\": \"x\""), "column 0: scale 0: 'mean' must be a finite number");
  EXPECT_HAS(of("\"deviation\": 0.125", "\"deviation\": 0"), "'deviation' must be above 0; got 0");
  EXPECT_HAS(of("\"missing\": true", "\"missing\": 1"), "'missing' must be true or false");
  EXPECT_HAS(of("\"u\"", "\"w\""),
             "column 1: 'values' must be sorted and hold each value once; got 'v' after 'w'");
  EXPECT_HAS(of("\"u\"", "1"), "'values' must hold texts");
  EXPECT_HAS(of("\"numbers\": false", "\"numbers\": true"),
             "must hold numbers in their shortest form; got 'u'");
  EXPECT_HAS(of("\"name\": \"k\"", "\"name\": \"a\""), "'a' is there twice");
  EXPECT_HAS(of("\"name\": \"k\"", "\"name\": \"y\""), "'y' is there twice");
  EXPECT_HAS(of("\"regression\"", "\"automatic\""), "'task' must be one of classification, regression");
  EXPECT_HAS(of("\"yyyy-mm-dd\"", "\"iso\""), "'form' must be one of");
  EXPECT_HAS(of("{", "["), "must be JSON");
  const std::string long_text = "\"" + std::string(1001, 'u') + "\"";
  EXPECT_HAS(of("\"u\"", long_text), "must take 1 to 1000 bytes; got 1001");
  const io::ReadingLimits before = io::reading_limits();
  io::ReadingLimits narrow = before;
  narrow.header_bytes = 100;
  io::set_reading_limits(narrow);
  EXPECT_HAS(of("", ""), "must take at most 100 bytes");
  EXPECT_HAS(refusal([&] { (void)TableEncoder(table, {.target = "y"}).to_json(); }),
             "at most 100 bytes as JSON");
  io::set_reading_limits(before);
}

// --- Splits and sets

std::string table_path(const char* name) {
  return (testing::source_dir() / "tests/data/tables" / name).string();
}

/// The rows of the table that a part holds, from 0 (each has one line, below the header).
std::vector<int64_t> rows_of(const Table& part) {
  std::vector<int64_t> rows;
  for (int64_t line : part.lines) rows.push_back(line - 2);
  return rows;
}

TEST(TableSplit, TakesTheRowsThatThePythonScriptTakes) {
  // tests/golden/make_tables.py has the generator and the rule once more.
  const auto test_rows = [](const char* file, double share, uint64_t seed, const std::string& by) {
    const Table table = read_table(table_path(file));
    const TableParts parts = split(table, share, seed, by);
    std::vector<int64_t> all = rows_of(parts.train), test = rows_of(*parts.test);
    all.insert(all.end(), test.begin(), test.end());
    std::sort(all.begin(), all.end());
    std::vector<int64_t> expected(static_cast<size_t>(table.rows()));
    std::iota(expected.begin(), expected.end(), int64_t{0});
    EXPECT_EQ(all, expected) << "each row is in one part";
    return test;
  };
  const auto check = [](const std::vector<int64_t>& rows, size_t size, const std::vector<int64_t>& first,
                        int64_t sum) {
    EXPECT_EQ(rows.size(), size);
    EXPECT_EQ(std::vector<int64_t>(rows.begin(), rows.begin() + 8), first);
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), sum);
  };
  check(test_rows("iris.csv", 0.3, 7, "species"), 45, {0, 2, 4, 5, 7, 13, 16, 19}, 3359);
  check(test_rows("wine.csv", 0.3, 7, "cultivar"), 53, {0, 1, 3, 4, 7, 16, 19, 20}, 4594);
  check(test_rows("diabetes.csv", 0.2, 3, ""), 88, {12, 29, 30, 36, 41, 43, 45, 50}, 19175);
  EXPECT_NE(test_rows("diabetes.csv", 0.2, 4, ""), test_rows("diabetes.csv", 0.2, 3, ""));
}

TEST(TableSplit, GivesEachClassItsShareAndKeepsOneRowOfEachForTraining) {
  std::string text = "x,k\n";
  for (int i = 0; i < 60; ++i) text += str(i, ",", i < 40 ? "a" : i < 59 ? "b" : "c", "\n");
  const TableParts parts = split(parse_table(text), 0.25, 1, "k");
  const Strings test = cells_of(*parts.test, "k"), train = cells_of(parts.train, "k");
  EXPECT_EQ(test.size(), 15u);
  EXPECT_EQ(std::count(test.begin(), test.end(), "a"), 10);
  EXPECT_EQ(std::count(test.begin(), test.end(), "b"), 5);
  EXPECT_EQ(std::count(train.begin(), train.end(), "c"), 1);
  EXPECT_HAS(refusal([] { split(parse_table("x,k\n1,a\n2,b\n"), 0.5, 1, "k"); }),
             "each of the 2 rows has its own");
  EXPECT_HAS(refusal([] { split(parse_table("x\n1a\n"), 0.5, 1); }), "at least 2 rows; got 1");
  for (double share : {0.0, 1.0, -0.5, std::nan("")})
    EXPECT_HAS(refusal([&] { split(parse_table("x\n1a\n2\n"), share, 1); }), "above 0 and below 1");
  EXPECT_HAS(refusal([] { split(parse_table("x\n1a\n2\n"), 0.5, 1, "z"); }), "must be one of x; got 'z'");
  EXPECT_HAS(refusal([] { take_rows(parse_table("x\n1a\n"), std::vector<int64_t>{1}); }),
             "less than 1; got 1");
}

TEST(TableSet, GivesSamplesBatchesNamesAndAFingerprint) {
  const Table table = parse_table("a,k\n1,u\n\n3,v\n5,u\n", {}, "t.csv");
  const TableEncoder encoder(table, {.target = "k"});
  const TableSet set(table, encoder);
  EXPECT_EQ(set.size(), 3);
  EXPECT_EQ(set.get(1)[0].shape(), (Dims{1}));
  EXPECT_EQ(set.get(1)[0].dtype(), DType::f32);
  EXPECT_EQ(set.get(1)[1].shape(), Dims{});
  EXPECT_EQ(set.get(1)[1].item<int64_t>(), 1);
  EXPECT_EQ(set.batch(std::vector<int64_t>{2, 1})[1].to_vector<int64_t>(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(set.class_names(), (Strings{"u", "v"}));
  EXPECT_EQ(set.feature_names(), (Strings{"a"}));
  EXPECT_EQ(set.sample_name(1), "line 4 of 't.csv'");
  EXPECT_EQ(set.describe(), "table 't.csv': 3 rows");
  EXPECT_EQ(fingerprint(set).size(), 64u);
  EXPECT_EQ(fingerprint(set), fingerprint(TableSet(table, encoder)));
  EXPECT_NE(fingerprint(set), fingerprint(TableSet(parse_table("a,k\n1,u\n3,v\n5,v\n"), encoder)));
  EXPECT_HAS(refusal([&] { TableSet(parse_table("a\n1\n", {}, "u.csv"), encoder); }),
             "table 'u.csv': must have the target 'k' to be a data set; it has none");
}

TEST(TableSet, IsOpenedFromAFolderWithTestRowsOrSplitFromTheTrainingRows) {
  TempFolder folder;
  std::string train = "a,k\n";
  for (int i = 0; i < 20; ++i) train += str(i, ",", i % 2 ? "u" : "v", "\n");
  write_text(folder / "train.csv", train);
  const TableSetOptions options{.encoding = {.target = "k"}, .test_share = 0.3, .seed = 5};
  const TableSets split_off = open_tables(folder.path(), options);
  EXPECT_EQ(split_off.train->size(), 14);
  EXPECT_EQ(split_off.test->size(), 6);
  EXPECT_EQ(split_off.notices[0], "6 of 20 rows were split off for testing (seed 5).");
  int64_t u = 0;
  for (int64_t i = 0; i < 6; ++i) u += split_off.test->get(i)[1].item<int64_t>() == 0;
  EXPECT_EQ(u, 3) << "classes in equal shares";
  EXPECT_EQ(fingerprint(*open_tables(folder.path(), options).test), fingerprint(*split_off.test));

  write_text(folder / "test.csv", "k,a\nu,100\n");
  const TableSets given = open_tables(folder.path(), options);
  EXPECT_EQ(given.train->size(), 20);
  EXPECT_EQ(given.test->size(), 1);
  EXPECT_TRUE(given.notices.empty());
  EXPECT_NEAR(given.train->encoder().columns()[0].scales[0].mean, 9.5, 1e-12)
      << "from the training rows alone";
  write_text(folder / "test.csv", "a\n100\n");
  const TableSets blind = open_tables(folder.path(), options);
  EXPECT_EQ(blind.test->size(), 6);
  EXPECT_HAS(blind.notices[0], "test.csv' has no column 'k': it cannot test, and is left out");
}

// --- Linear models beside scikit-learn's: the figures are those that tests/golden/make_tables.py prints

std::vector<Tensor> all_of(const TableSet& set) {
  std::vector<int64_t> indices(static_cast<size_t>(set.size()));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return set.batch(indices);
}

Tensor with_ones(const Tensor& x) {
  return tandem::concat({cast(x, DType::f64), ones({x.size(0), 1}, DType::f64)}, 1);
}

TEST(TableSet, LeastSquaresOnDiabetesHasScikitLearnsFigures) {
  const TableSets sets = open_tables(table_path("diabetes.csv"),
                                     {.encoding = {.target = "progression"}, .test_share = 0.2, .seed = 3});
  const TableEncoder& encoder = sets.train->encoder();
  ASSERT_EQ(encoder.task(), TableTask::regression);
  ASSERT_EQ(sets.test->size(), 88);
  const std::vector<Tensor> train = all_of(*sets.train), test = all_of(*sets.test);
  const Tensor x = with_ones(train[0]), y = cast(train[1], DType::f64);
  const Tensor xt = transpose(x, 0, 1);
  const Tensor w = solve(matmul(xt, x), reshape(matmul(xt, reshape(y, {-1, 1})), {-1}));
  EXPECT_NEAR(w.to_vector<double>()[2] * encoder.target_deviation(), 20.432644538752307, 1e-4);
  EXPECT_NEAR(encoder.decode_target(w.to_vector<double>()[10]), 153.03672316384177, 1e-4);

  const std::vector<double> predicted = matmul(with_ones(test[0]), reshape(w, {-1, 1})).to_vector<double>();
  const std::vector<float> target = test[1].to_vector<float>();
  double mean = 0, squares = 0, spread = 0;
  for (float t : target) mean += encoder.decode_target(t) / static_cast<double>(target.size());
  for (size_t i = 0; i < target.size(); ++i) {
    const double truth = encoder.decode_target(target[i]);
    squares += std::pow(truth - encoder.decode_target(predicted[i]), 2);
    spread += std::pow(truth - mean, 2);
  }
  EXPECT_NEAR(1 - squares / spread, 0.4752646244907961, 1e-6);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(target.size())), 56.19439283948563, 1e-4);
}

struct Logistic {
  double accuracy = 0, loss = 0, coefficient = 0;
};

/// Multinomial logistic regression with scikit-learn's penalty (C = 1), by L-BFGS in f64.
Logistic logistic_on(const char* file, const std::string& target) {
  const TableSets sets =
      open_tables(table_path(file), {.encoding = {.target = target}, .test_share = 0.3, .seed = 7});
  const TableEncoder& encoder = sets.train->encoder();
  EXPECT_EQ(encoder.task(), TableTask::classification);
  const auto classes = static_cast<Dim>(encoder.class_names().size());
  const std::vector<Tensor> train = all_of(*sets.train), test = all_of(*sets.test);
  const Dim width = train[0].size(1);
  const Tensor w = zeros({width, classes}, DType::f64).set_requires_grad(),
               b = zeros({classes}, DType::f64).set_requires_grad();
  const auto logits = [&](const Tensor& x) { return matmul(cast(x, DType::f64), w) + b; };
  optim::Lbfgs lbfgs(
      {{"w", w}, {"b", b}},
      {.max_iterations = 500, .gradient_tolerance = 1e-9, .change_tolerance = 1e-14, .strong_wolfe = true});
  const auto rows = static_cast<double>(train[0].size(0));
  for (int i = 0; i < 5; ++i)
    lbfgs.step([&] { return cross_entropy(logits(train[0]), train[1]) * rows + sum(w * w) * 0.5; });
  const NoGrad no_gradients;
  const Tensor out = logits(test[0]);
  const double hits = sum(cast(equal(argmax(out, 1), test[1]), DType::f64)).item<double>();
  return {hits / static_cast<double>(test[1].size()), cross_entropy(out, test[1]).item<double>(),
          w.to_vector<double>()[0]};
}

TEST(TableSet, LogisticRegressionOnIrisAndWineHasScikitLearnsFigures) {
  const Logistic iris = logistic_on("iris.csv", "species");
  EXPECT_NEAR(iris.accuracy, 0.9777777777777777, 1e-12);
  EXPECT_NEAR(iris.loss, 0.1306641197229651, 1e-6);
  EXPECT_NEAR(iris.coefficient, -0.9743843086260328, 1e-5);
  const Logistic wine = logistic_on("wine.csv", "cultivar");
  EXPECT_EQ(wine.accuracy, 1.0);
  EXPECT_NEAR(wine.loss, 0.03161692996006295, 1e-6);
  EXPECT_NEAR(wine.coefficient, 0.8321058927251956, 1e-5);
}

}  // namespace
}  // namespace tandem::data
