// Tables as a data set of the registry.
#include "tandem/data/tables.h"

#include <algorithm>
#include <filesystem>

#include "tandem/data/places.h"
#include "tandem/data/table_columns.h"
#include "tandem/data/table_set.h"
#include "tandem/data/text_splits.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

/// What a place lacks: it is a file, or a folder with a .csv file.
std::string missing_table(const std::string& place) {
  if (is_file(place)) return "";
  std::error_code error;
  for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".csv" && is_file(at->path().string())) return "";
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

namespace {

/// The texts of a table's column with the classes of its target. Rows without a text are refused by their line.
std::vector<LabelledText> texts_of(const Table& table, const TextEncoder& meaning) {
  const TextColumn &texts = table.column(meaning.column), &classes = table.column(meaning.target);
  std::vector<LabelledText> out;
  for (int64_t i = 0; i < table.rows(); ++i) {
    TD_CHECK(!texts.is_missing(i), place_of(table, meaning.column, i),
             "must hold text; it is empty. Fill it, or remove the row.");
    TD_CHECK(!classes.is_missing(i), place_of(table, meaning.target, i),
             "the target must be there; it is missing. Fill it, or remove the row.");
    const auto at = std::find(meaning.classes.begin(), meaning.classes.end(), classes[i]);
    TD_CHECK(at != meaning.classes.end(), place_of(table, meaning.target, i), "must be a class of training, ",
             list_of(meaning.classes), "; got ", shown(classes[i]), ".");
    out.push_back({std::string(texts[i]), at - meaning.classes.begin(),
                   str("line ", table.lines[static_cast<size_t>(i)], " of ", table.source)});
  }
  return out;
}

/// A table with a column of text.
Splits open_text_table(const DatasetInfo& info, const OpenOptions& options, const std::string& place) {
  TD_CHECK(options.task != "regression", "task: text is classified; got regression. Leave `task` out.");
  const CsvOptions& csv = options.csv;
  TD_CHECK(csv.categories.empty() && csv.keep.empty() && csv.ignore.empty() && csv.day_first.empty() &&
               csv.month_first.empty() && csv.max_values == CsvOptions{}.max_values,
           "data csv: with `text.column` the target is predicted by that column alone; got settings of other "
           "columns. Leave them out.");
  // What the columns mean: as in the run, or by these rows.
  TextEncoder meaning{Vocabulary::of_words({}, {}), 1};
  if (options.text_encoder) {
    meaning = *options.text_encoder;
  } else {
    meaning.column = options.text.column;
    meaning.target = options.target;
    meaning.reading = reading_of(csv);
  }
  const TableParts parts = read_tables(place, meaning.reading);
  if (meaning.target.empty()) meaning.target = usual_target(parts.train);
  TD_CHECK(meaning.column != meaning.target, "text: must be another column than the target; got ",
           shown(meaning.column), " for both.");
  if (meaning.classes.empty()) {
    const TextColumn& target = parts.train.column(meaning.target);
    for (const Counted& row : counted_values(target, content_of(target)))
      meaning.classes.push_back(row.value);
    const auto count = static_cast<int64_t>(meaning.classes.size());
    TD_CHECK(count >= 2 && !nearly_all_different(count, parts.train.rows()), "table ", parts.train.source,
             ": the target ", shown(meaning.target),
             " must be classes, two or more with several rows each; it has ", count, " values in ",
             parts.train.rows(), " rows. Name another with `target`.");
  }
  const bool has_test = parts.test && parts.test->find(meaning.target);
  Splits splits = classified_splits(info, place, texts_of(parts.train, meaning),
                                    has_test ? texts_of(*parts.test, meaning) : std::vector<LabelledText>(),
                                    meaning.classes, options);
  meaning.vocabulary = splits.text->vocabulary;
  meaning.length = splits.text->length;
  splits.text = std::make_shared<TextEncoder>(std::move(meaning));
  if (parts.test && !has_test)
    splits.notices.push_back(str("table ", parts.test->source, " has no column ", shown(splits.text->target),
                                 ": it cannot test, and is left out."));
  return splits;
}

}  // namespace

Splits open_csv(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place = require_in(info, search_folders(info.name, options.data_dir), missing_table,
                                       "there must be a .csv file, or a folder with one");
  if (!options.text.column.empty() || (options.text_encoder && !options.text_encoder->column.empty()))
    return open_text_table(info, options, place);
  TD_CHECK(options.text == TextOptions{},
           "data csv: tokens, vocabulary, min-count and length are for text; got some. Name its column with "
           "`text.column`.");
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
