// Numbers of tables and arrays that would silently become categories or classes: written with a decimal comma or
// separators of thousands, or asked for as classes though nearly every row has its own.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/data/registry.h"
#include "tandem/data/table_columns.h"
#include "tandem/data/table_set.h"
#include "tandem/io/npy.h"
#include "tandem/ops/create.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::data {
namespace {

using testing::refusal;
using testing::TempFolder;

TEST(ForeignNumbers, AreToldFromOtherText) {
  for (const char* cell :
       {"86,8",    "-86,8",   "+0,25",    "1.234,5",    "1.234.567",    "1,234.5", "1,234,567",
        "1 234",   "1 234,5", "1'234.50", "1\u00a0234", "1\u202f234,5", "\u22125", "$86.80",
        "$ 1,234", "-$5",     "86,80 €",  "€86",        "5%",           "12,5 %",  "£1"})
    EXPECT_TRUE(is_otherwise_written(cell)) << cell;
  for (const char* cell :
       {"86.8",       "1e3",        "-5",     "",           "abc", "1,2,3", "1.2.3", "10.0.0.1", "12.05.2020",
        "12/05/2020", "2020-05-12", "12:30",  "12a",        "a12", "%",     "$",     ",5x",      "1,",
        ",",          "1..234,5",   "1.23,5", "1234.567,8", "(5)", "5 kg",  "1 23",  "0x12",     "--5"})
    EXPECT_FALSE(is_otherwise_written(cell)) << cell;
}

/// A table of 40 rows: x is `cell(i)`, kind alternates, y counts.
template <class F>
Table table_of(const F& cell) {
  std::string text = "x;kind;y\n";
  for (int i = 0; i < 40; ++i) text += str(cell(i), ";", i % 2 == 0 ? "a" : "b", ";", i * 0.5, "\n");
  TableOptions options;
  options.delimiter = ';';
  return parse_table(text, options, "p.csv");
}

TEST(ForeignNumbers, AColumnOfThemIsRefusedWithTheCauseAndTheWaysOut) {
  const Table commas = table_of([](int i) { return str(80 + i % 13, ",", i % 7); });
  EXPECT_EQ(refusal([&] { TableEncoder(commas, {.target = "y"}); }),
            "table 'p.csv': line 2, column 'x': numbers must have a decimal point, and neither separators of "
            "thousands nor a unit; got '80,0', and 40 of the column's 40 cells are written so. Write 86,8 as "
            "86.8 and "
            "1.234,5 as 1234.5; if the column holds categories, name it by `categories`, or leave it out by "
            "`ignore_columns`.");
  // Whole numbers among them, and a few words, change nothing.
  const Table mixed = table_of([](int i) { return i == 7 ? "none" : i % 3 == 0 ? str(i) : str(i, ",5"); });
  EXPECT_HAS(refusal([&] { TableEncoder(mixed, {.target = "y"}); }),
             "got '1,5', and 25 of the column's 40 cells");
  for (const Table* table : {&commas, &mixed}) {
    EXPECT_NO_THROW(TableEncoder(*table, {.target = "y", .categories = {"x"}}));
    EXPECT_NO_THROW(TableEncoder(*table, {.target = "y", .ignore = {"x"}}));
    EXPECT_NO_THROW(TableEncoder(*table, {.target = "y", .keep = {"x"}}));
  }
  const Table words = table_of([](int i) { return i % 2 == 0 ? str(i, ",5") : str("w", i % 5); });
  EXPECT_NO_THROW(TableEncoder(words, {.target = "y"})) << "half of the cells are words";
}

TEST(ForeignNumbers, ATargetOfThemIsRefusedWhateverTheTask) {
  const Table table = table_of([](int i) { return str(100 + i, ",5"); });
  EXPECT_HAS(refusal([&] { task_of(table, "x"); }), "and 1.234,5 as 1234.5.");
  EXPECT_HAS(refusal([&] { task_of(table, "x", TableTask::regression); }),
             "got '100,5', and 40 of the column's");
  EXPECT_EQ(refusal([&] { task_of(table, "x", TableTask::classification); }),
            "table 'p.csv': target 'x' must be classes with several rows each; its 40 cells are 40 different "
            "numbers, "
            "as a quantity has. Choose `task` regression (and write '100,5' with a decimal point, without "
            "separators "
            "of thousands or units); or, if they are classes, write them as names.");
  const Table few = table_of([](int i) { return str(i % 4, ",5"); });
  EXPECT_HAS(refusal([&] { task_of(few, "x"); }), "if these are classes, choose `task` classification.");
  EXPECT_EQ(task_of(few, "x", TableTask::classification), TableTask::classification);
}

TEST(ForeignNumbers, InRowsToPredictAreNamedAsSuch) {
  const Table plain = table_of([](int i) { return str(i, ".5"); }),
              commas = table_of([](int i) { return str(i, ",5"); });
  const TableEncoder by_x(plain, {.target = "y"}), of_x(plain, {.target = "x"});
  for (const TableEncoder* encoder : {&by_x, &of_x})
    EXPECT_HAS(refusal([&] { encoder->encode(commas); }),
               "must be a number with a decimal point, and neither separators of thousands nor a unit, as in "
               "training; "
               "got '0,5'. Fix the cell");
}

TEST(Classes, AClassPerRowOrNearlySoIsRefusedWithTheLikelyCause) {
  const auto asked = [](const auto& cell) {
    return [table = table_of(cell)] { return task_of(table, "x", TableTask::classification); };
  };
  EXPECT_EQ(refusal(asked([](int i) { return 1000 + i * 37 % 30 * 250; })),
            "table 'p.csv': target 'x' must be classes with several rows each; its 40 cells are 30 different "
            "numbers, "
            "as a quantity has. Choose `task` regression; or, if they are classes, write them as names.");
  EXPECT_HAS(refusal(asked([](int i) { return i; })), "40 different numbers") << "row numbers";
  EXPECT_HAS(refusal(asked([](int i) { return i % 30 * 0.25; })), "30 different numbers") << "fractions";
  EXPECT_HAS(refusal(asked([](int i) { return str("name ", i); })),
             "of its 40 texts 40 are different. Choose another target.");
  EXPECT_EQ(asked([](int i) { return 5 + i % 30; })(), TableTask::classification)
      << "most of the numbers between";
  EXPECT_EQ(asked([](int i) { return 1000 * (i % 20); })(), TableTask::classification);
  EXPECT_EQ(asked([](int i) { return str("name ", i % 30); })(), TableTask::classification);
}

TEST(Classes, ArraysOfPricesAreNoLabels) {
  const TempFolder folder;
  const auto open = [&](int64_t step) {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < 200; ++i) labels.push_back(i * 37 % 100 * step);
    io::save_npy(folder / "x.npy", full({200, 2}, 0.5));
    io::save_npy(folder / "y.npy", from_vector(labels, {200}));
    return open_dataset("npy", {.data_dir = folder.path()});
  };
  EXPECT_EQ(open(1).info.classes, 100);
  EXPECT_HAS(refusal([&] { open(50); }),
             "labels must be classes, which count from 0; got 100 different numbers up to 4950 for 200 "
             "samples, as a "
             "quantity has. Choose task regression, or number the classes from 0.");
}

}  // namespace
}  // namespace tandem::data
