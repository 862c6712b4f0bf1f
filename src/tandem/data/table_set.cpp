// Tables as data sets.
#include "tandem/data/table_set.h"

#include "tandem/data/table_columns.h"

namespace tandem::data {

namespace {

std::vector<Tensor> fields_of(const Table& table, const TableEncoder& encoder) {
  EncodedTable encoded = encoder.encode(table);
  TD_CHECK(encoded.target.defined(), "table ", table.source, ": must have the target ",
           shown(encoder.target()),
           " to be a data set; it has none. To predict it, use TableEncoder::encode.");
  return {encoded.features, encoded.target};
}

}  // namespace

std::string usual_target(const Table& table) {
  const bool has_label = table.find("label").has_value();
  TD_CHECK(has_label != table.find("target").has_value(), "table ", table.source,
           ": the target, the column to predict, must be named; it is one of ", list_of(table.names),
           ". Name it with `target`.");
  return has_label ? "label" : "target";
}

TableSet::TableSet(const Table& table, TableEncoder encoder)
    : encoder_(std::move(encoder)),
      rows_(fields_of(table, encoder_)),
      source_(table.source),
      lines_(table.lines) {}

std::string TableSet::describe() const { return str("table ", source_, ": ", size(), " rows"); }

std::string TableSet::sample_name(int64_t i) const {
  check_index("sample_name", i, size());
  return str("line ", lines_[static_cast<size_t>(i)], " of ", source_);
}

TableSets open_tables(const std::string& path, const TableSetOptions& options) {
  TableParts parts = read_tables(path, options.reading);
  TableEncoderOptions encoding = options.encoding;
  if (encoding.target.empty()) encoding.target = usual_target(parts.train);
  std::vector<std::string> notices;
  bool split_off = false;
  if (parts.test && parts.train.find(encoding.target) && !parts.test->find(encoding.target)) {
    notices.push_back(str("table ", parts.test->source, " has no column ", shown(encoding.target),
                          ": it cannot test, and is left out."));
    parts.test.reset();
  }
  std::optional<Table> all;
  if (!parts.test) {
    all = std::move(parts.train);
    const TableTask task = task_of(*all, encoding.target, encoding.task);
    encoding.taken_from = &*all;
    parts = split(*all, options.test_share, options.seed,
                  task == TableTask::classification ? encoding.target : "");
    split_off = true;
    notices.push_back(str(parts.test->rows(), " of ", parts.test->rows() + parts.train.rows(),
                          " rows were split off for testing (seed ", options.seed, ")."));
  }
  TableEncoder encoder(parts.train, encoding);
  notices.insert(notices.end(), encoder.notices().begin(), encoder.notices().end());
  auto train = std::make_shared<TableSet>(parts.train, encoder);
  auto test = std::make_shared<TableSet>(*parts.test, std::move(encoder));
  return {std::move(train), std::move(test), std::move(notices), split_off};
}

TestTable open_test_table(const std::string& path, const TableEncoder& encoder, bool whole, double test_share,
                          uint64_t seed) {
  TableParts parts = read_tables(path, encoder.reading());
  if (parts.test && !parts.test->find(encoder.target())) parts.test.reset();
  if (parts.test) return {std::make_shared<TableSet>(*parts.test, encoder)};
  const auto part = [&] {
    const std::string by = encoder.task() == TableTask::classification ? encoder.target() : "";
    return std::make_shared<TableSet>(*split(parts.train, test_share, seed, by).test, encoder);
  };
  if (!whole) {
    const auto rows = part();
    return {rows, rows};
  }
  TestTable all{std::make_shared<TableSet>(parts.train, encoder)};
  try {
    all.part = part();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error&) {  // too few rows for a split: then it is no table that was split
  }
  return all;
}

}  // namespace tandem::data
