// Tables of the user's own as a data set of the registry. How tables are read and encoded: table_test.cpp.
// ctest: asan
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/data/registry.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::message_of;
using testing::TempFolder;
using testing::write_text;
using Labels = std::vector<int64_t>;
using Strings = std::vector<std::string>;
namespace fs = std::filesystem;
using namespace std::string_view_literals;

Labels labels_of(const Dataset& set) {
  Labels labels;
  for (int64_t i = 0; i < set.size(); ++i) labels.push_back(set.get(i)[1].item<int64_t>());
  return labels;
}

std::string table_path(const char* name) {
  return (testing::source_dir() / "tests/data/tables" / name).string();
}

std::string refusal(const OpenOptions& options) {
  return message_of<Error>([&] { open_dataset("csv", options); });
}

TEST(Csv, IsOpenedFromAFileWithItsTarget) {
  const Splits iris = open_dataset("csv", {.data_dir = table_path("iris.csv"), .target = "species"});
  EXPECT_EQ(iris.task, "classification");
  EXPECT_EQ(iris.class_names, (Strings{"setosa", "versicolor", "virginica"}));
  EXPECT_EQ(iris.info.classes, 3);
  EXPECT_EQ(iris.info.sample_shape, (Dims{4}));
  EXPECT_EQ(iris.info.train_size, 120);
  EXPECT_EQ(iris.test->size(), 30);
  EXPECT_EQ(iris.notices, (Strings{"30 of 150 rows were split off for testing (seed 0)."}));
  ASSERT_TRUE(iris.encoder);
  EXPECT_EQ(iris.encoder->target(), "species");
  EXPECT_FALSE(iris.format);
  EXPECT_HAS(iris.test->sample_name(0), "iris.csv'");

  const Splits wine = open_dataset(
      "csv", {.data_dir = table_path("wine.csv"), .test_share = 0.5, .split_seed = 4, .target = "cultivar"});
  EXPECT_EQ(wine.class_names, (Strings{"0", "1", "2"}));
  EXPECT_EQ(wine.test->size(), 89);
  EXPECT_EQ(wine.info.sample_shape, (Dims{13}));

  const Splits diabetes =
      open_dataset("csv", {.data_dir = table_path("diabetes.csv"), .target = "progression"});
  EXPECT_EQ(diabetes.task, "regression");
  EXPECT_EQ(diabetes.info.classes, 0);
  EXPECT_TRUE(diabetes.class_names.empty());
  EXPECT_EQ(diabetes.train->get(0)[1].dtype(), DType::f32);
  EXPECT_EQ(diabetes.train->get(0)[1].shape(), Dims{});
  EXPECT_EQ(
      open_dataset("csv", {.data_dir = table_path("wine.csv"), .target = "cultivar", .task = "regression"})
          .info.classes,
      0);
}

TEST(Csv, KeepsTheNumbersOfTheClassesInATestTable) {
  TempFolder folder;
  write_text(folder / "train.csv", "a,label,b\n1,dog,2\n3,cat,4\n5,owl,6\n");
  write_text(folder / "test.csv", "b,a,label\n1,2,owl\n3,4,dog\n");
  const Splits splits = open_dataset("csv", {.data_dir = folder.path()});
  EXPECT_EQ(splits.info.classes, 3);
  EXPECT_EQ(labels_of(*splits.train), (Labels{1, 0, 2}));
  EXPECT_EQ(labels_of(*splits.test), (Labels{2, 1}));
  write_text(folder / "test.csv", "a,label,b\n1,fox,2\n");
  EXPECT_HAS(refusal({.data_dir = folder.path()}),
             "must be a class of the training rows (cat, dog, owl); got 'fox'");
}

TEST(Csv, AsksForTheTargetUnlessAColumnIsCalledSo) {
  TempFolder folder;
  const std::string path = folder / "t.csv";
  write_text(path, "a,b,target\n1,2,x\n2,1,y\n1,1,x\n2,2,y\n");
  EXPECT_EQ(open_dataset("csv", {.data_dir = path}).encoder->target(), "target");
  EXPECT_EQ(open_dataset("csv", {.data_dir = folder.path()}).encoder->target(), "target") << "the only file";
  EXPECT_HAS(refusal({.data_dir = path, .target = "kind"}), "must be one of a, b, target; got 'kind'");
  for (const char* names : {"a,b,kind", "a,label,target"}) {
    write_text(path, str(names, "\n1,2,x\n2,1,y\n"));
    EXPECT_HAS(refusal({.data_dir = path}),
               "the target, the column to predict, must be named; it is one of a, ");
    EXPECT_HAS(refusal({.data_dir = path}), "Name it with `target`.");
  }
}

TEST(Csv, OfBadTablesIsRefusedInOneLineThatNamesTheFile) {
  TempFolder folder;
  const std::string path = folder / "t.csv";
  const auto of = [&](std::string_view text, const char* target = "k") {
    write_text(path, text);
    const std::string message = refusal({.data_dir = path, .target = target});
    EXPECT_HAS(message, "t.csv'");
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  };
  EXPECT_HAS(of("a,k\n1,x\n2\n3,y\n"), "every row must have 2 cells as the first line; line 3 has 1");
  EXPECT_HAS(of("a,k\n1,x\n2,y,z\n"), "line 3 has 3");
  EXPECT_HAS(of("a,k\n1,\"x\"\"\n\ny\"\n2,z,\n"), "line 5 has 3") << "lines in quotes count, too";
  EXPECT_HAS(of("a,k\n1,\"x\n2,y\n"), "Close");
  EXPECT_HAS(of("a,k\n1,M\xfcller\n"), "must be text in UTF-8; byte 7 (line 2) is 0xfc");
  EXPECT_HAS(of("\xff\xfe"
                "a\0,\0k\0"sv),
             "UTF-16");
  EXPECT_HAS(of("a,k\n1,x\n2,\n3,y\n4,y\n5,x\n"), "column 'k': the target must not be missing");
  EXPECT_HAS(of("a,k\n1,\n2,NA\n"), "target 'k' must have values; all its cells are missing");
  EXPECT_HAS(of("a,k\n1,x\n2,x\n3,x\n"), "target 'k' must have at least two different values; all are 'x'");
  EXPECT_HAS(of("a,k\n1,x\n2,y\n"), "each of the 2 rows has its own");
  EXPECT_HAS(of("a,k\n"), "must hold rows below the names of the columns");
  EXPECT_HAS(of(""), "it is empty");
  EXPECT_HAS(of("k\nx\ny\nx\ny\n"), "must have a column to learn from beside the target 'k'");
  write_text(path, "a,k\n1,\"x,\n\"\"q\"\"\"\n2,y\n3,\"x,\n\"\"q\"\"\"\n4,y\n");
  EXPECT_EQ(open_dataset("csv", {.data_dir = path, .target = "k"}).class_names, (Strings{"x,\n\"q\"", "y"}));
}

TEST(Csv, ACellThatIsNoNumberAmongNumbersIsRefusedWhateverTheSplit) {
  TempFolder folder;
  const std::string path = folder / "t.csv";
  // 40 rows; the cells of column a that are given stand in lines 12, 22 …
  const auto make = [&](const Strings& bad, const char* k = "x") {
    std::string text = "a,d,k\n";
    for (int i = 0; i < 40; ++i) {
      const bool is_bad = i % 10 == 0 && i > 0 && static_cast<size_t>(i / 10) <= bad.size();
      text += str(is_bad ? bad[static_cast<size_t>(i / 10 - 1)] : std::to_string(i * 7 % 40), ",2020-01-",
                  10 + i % 18, ",", i % 2 == 0 ? k : "y", "\n");
    }
    write_text(path, text);
  };
  const auto said = [&](OpenOptions options, const char* target = "k") {
    options.data_dir = path;
    options.target = target;
    std::string first;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      options.split_seed = seed;
      const std::string message = refusal(options);
      if (seed == 0) first = message;
      EXPECT_EQ(message, first) << "seed " << seed;
    }
    return first;
  };
  make({});
  EXPECT_EQ(said({}), "");
  for (const char* bad : {"12x", "inf", "1e400"}) {
    make({bad});
    EXPECT_EQ(said({}),
              str("table '", path, "': line 12, column 'a': must be a finite number, as 39 of the ",
                  "column's 40 cells are; got '", bad, "'. Fix the cell; if it means missing, give ",
                  "`missing` '", bad, "'; if the column holds categories, name it by `categories`."));
    EXPECT_EQ(said({.csv = {.missing = {bad}}}), "");
    EXPECT_EQ(said({.csv = {.categories = {"a"}}}), "");
    EXPECT_EQ(said({.csv = {.ignore = {"a"}}}), "");
    EXPECT_HAS(said({}, "a"), "if these are classes, choose `task` classification.") << "the target";
  }
  // Texts among few numbers are categories, with each split: none is a column of numbers by chance.
  write_text(path, "a,k\n1,x\n2,y\n3,x\n4,y\nfive,x\n6,y\n");
  EXPECT_EQ(said({}), "");
  for (uint64_t seed = 0; seed < 8; ++seed)
    EXPECT_EQ(open_dataset("csv", {.data_dir = path, .split_seed = seed, .target = "k"})
                  .encoder->columns()
                  .at(0)
                  .type,
              ColumnType::category);
  write_text(path, "a,k\n1,x\n2,y\ninf,x\n4,y\ninf,x\n6,y\n");
  EXPECT_HAS(said({}),
             "line 4, column 'a': must be a finite number, as 4 of the column's 6 cells are; got 'inf'");
  std::string dates = "d,k\n";
  for (int i = 0; i < 40; ++i)
    dates += str(i == 9 ? "2020-02-31" : str("2020-01-", 10 + i % 18), i % 2 ? ",x\n" : ",y\n");
  write_text(path, dates);
  EXPECT_HAS(said({}),
             "line 11, column 'd': must be a date, as 39 of the column's 40 cells are; got '2020-02-31'");
}

TEST(Csv, FoldersWithoutATableOrWithSeveralAreRefused) {
  TempFolder folder;
  EXPECT_HAS(refusal({.data_dir = folder.path()}), "(a .csv file is missing)");
  EXPECT_HAS(refusal({.data_dir = folder / "none.csv"}), "no such folder");
  write_text(folder / "a.csv", "a,label\n1,x\n2,y\n");
  write_text(folder / "b.csv", "a,label\n1,x\n2,y\n");
  EXPECT_HAS(refusal({.data_dir = folder.path()}), "or one .csv file; it holds a.csv, b.csv");
}

}  // namespace
}  // namespace tandem::data
