// Tables as a data set of the registry.
#include "tandem/data/tables.h"

#include <filesystem>

#include "tandem/data/places.h"
#include "tandem/data/table_columns.h"
#include "tandem/data/table_set.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// What a place lacks: it is a file, or a folder with a .csv file.
std::string missing_table(const std::string& place) {
  if (is_file(place)) return "";
  std::error_code error;
  for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".csv" && is_file(at->path())) return "";
  return "a .csv file";
}

TableOptions reading_of(const CsvOptions& options) {
  TableOptions reading{.header = !options.no_header};
  const std::string& delimiter = options.delimiter;
  if (delimiter == "tab" || delimiter == "\\t") {
    reading.delimiter = '\t';
  } else if (!delimiter.empty()) {
    TD_CHECK(delimiter.size() == 1 && delimiter.find_first_of("\"\n\r") == std::string::npos,
             "delimiter: must be one character, not a quote or the end of a line, or tab; got ",
             shown(delimiter), ".");
    reading.delimiter = delimiter[0];
  }
  reading.missing.insert(reading.missing.end(), options.missing.begin(), options.missing.end());
  return reading;
}

}  // namespace

std::optional<std::string> locate_csv(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_table);
}

Splits open_csv(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place = require_in(info, search_folders(info.name, options.data_dir), missing_table,
                                       "there must be a .csv file, or a folder with one");
  const TableTask task = options.task.empty() ? TableTask::automatic : table_task(options.task);
  const CsvOptions& csv = options.csv;
  TableSets sets = open_tables(place, {.reading = reading_of(csv),
                                       .encoding = {.target = options.target,
                                                    .task = task,
                                                    .categories = csv.categories,
                                                    .keep = csv.keep,
                                                    .ignore = csv.ignore,
                                                    .day_first = csv.day_first,
                                                    .month_first = csv.month_first,
                                                    .max_values = csv.max_values},
                                       .test_share = options.test_share,
                                       .seed = options.split_seed});
  const TableEncoder& encoder = sets.train->encoder();
  Splits splits{sets.train, sets.test, info, info.name, place};
  splits.info.sample_shape = {static_cast<Dim>(encoder.feature_names().size())};
  splits.info.classes = static_cast<int64_t>(encoder.class_names().size());
  splits.info.train_size = sets.train->size();
  splits.info.test_size = sets.test->size();
  splits.task = name(encoder.task());
  splits.class_names = encoder.class_names();
  splits.split_off = sets.split_off;
  splits.encoder = std::shared_ptr<const TableEncoder>(sets.train, &encoder);
  splits.notices = std::move(sets.notices);
  return splits;
}

}  // namespace tandem::data
