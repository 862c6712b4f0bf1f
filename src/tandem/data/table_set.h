// Tables as data sets: the rows, encoded, and the way from a file to a training and a test set.
#pragma once

#include <memory>

#include "tandem/data/compose.h"
#include "tandem/data/table_encoder.h"

namespace tandem::data {

/// Rows of a table as samples: {features f32 (n), target i64 () or f32 ()}.
class TableSet final : public Dataset {
 public:
  /// Throws Error where the table lacks the target.
  TableSet(const Table& table, TableEncoder encoder);
  int64_t size() const override { return rows_.size(); }
  std::vector<Tensor> get(int64_t i) const override { return rows_.get(i); }
  std::vector<Tensor> batch(std::span<const int64_t> indices) const override { return rows_.batch(indices); }
  std::string describe() const override;
  /// "line 17 of 'house.csv'".
  std::string sample_name(int64_t i) const override;

  const TableEncoder& encoder() const { return encoder_; }
  const std::vector<std::string>& feature_names() const { return encoder_.feature_names(); }
  const std::vector<std::string>& class_names() const { return encoder_.class_names(); }

 private:
  TableEncoder encoder_;
  TensorSet rows_;
  std::string source_;
  std::vector<int64_t> lines_;
};

struct TableSetOptions {
  TableOptions reading = {};
  TableEncoderOptions encoding = {};
  double test_share = 0.2;  ///< of the rows, where no file holds rows for testing
  uint64_t seed = 0;        ///< of that split
};
/// The target where the caller named none: label or target. Throws Error where there is none such, or both.
std::string usual_target(const Table& table);

struct TableSets {
  std::shared_ptr<const TableSet> train, test;
  std::vector<std::string> notices;  ///< the encoder's, and whether the test rows were split off
  bool split_off = false;
};
/// From a file or folder (read_tables) to its two sets. Where no target is named, it is the column called label or
/// target; where there is none such, or both, that is an Error. Where there is no test.csv, or one without the target, rows
/// for testing are split off; for classification each class in equal shares.
TableSets open_tables(const std::string& path, const TableSetOptions& options);

/// The rows for testing as an encoder of other rows reads them: nothing is learned.
struct TestTable {
  std::shared_ptr<const TableSet> test;  ///< test.csv; without one all rows where `whole`, else `part`
  /// Without a test.csv: the rows that open_tables splits off with this share and seed; none where it cannot.
  std::shared_ptr<const TableSet> part = nullptr;
};
TestTable open_test_table(const std::string& path, const TableEncoder& encoder, bool whole,
                          double test_share = 0.2, uint64_t seed = 0);

}  // namespace tandem::data
