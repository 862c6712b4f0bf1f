// Data sets by name: one table, one row a data set. Adding one is a row in registry.cpp and its reader.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/image_set.h"
#include "tandem/data/log_mel.h"
#include "tandem/data/table_encoder.h"
#include "tandem/data/text_set.h"

namespace tandem::data {

/// A file of a data set at its official source.
struct RemoteFile {
  std::string name;  // in the data set's folder
  std::string url;
  std::string checksum;  // "md5:…" or "sha256:…", as the source publishes it
};

struct DatasetInfo {
  std::string name;         // as in --data NAME
  std::string title;        // "Fashion-MNIST"
  std::string description;  // a line for a person
  Dims sample_shape = {};   // of one input; empty where only the files say it
  int64_t classes = 0;      // 0: only the files say it, and so for the sizes
  int64_t train_size = 0, test_size = 0;
  std::string how_to_get;              // a sentence
  std::vector<RemoteFile> files = {};  // what a download fetches; empty: it cannot be fetched
};

/// What the user says about a table (csv): how it is read, and what its columns are (table.h, table_encoder.h).
struct CsvOptions {
  std::string delimiter = {};             ///< one character, or "tab"; empty: found by the first line
  bool no_header = false;                 ///< the first line is a row; the columns are called c0, c1 …
  std::vector<std::string> missing = {};  ///< words for a missing value, besides the usual ones
  std::vector<std::string> categories = {}, keep = {}, ignore = {}, day_first = {}, month_first = {};
  int64_t max_values = TableEncoderOptions{}.max_values;
  bool operator==(const CsvOptions&) const = default;
};

/// How a data set is opened: what the user says about files of their own. An option that a data set does not take must
/// be left as it is here.
struct OpenOptions {
  std::string data_dir = {};                              ///< empty: the usual places (places.h)
  std::optional<std::array<int64_t, 2>> image_size = {};  ///< height, width of image-folder; unset: 224, 224
  double test_share = 0.2;  ///< of the samples, where the data has no test part: split off by chance
  uint64_t split_seed = 0;  ///< of that split
  /// image-folder, text-folder: files that cannot be read are left out, with a notice; else they stop the run by name.
  bool skip_bad = false;
  std::string target = {};  ///< csv: the column to predict; empty: the one called label or target
  std::string task = {};    ///< csv and npy: "classification" or "regression"; empty: by the target's type
  CsvOptions csv = {};      ///< csv alone
  TextOptions text = {};    ///< of sets of text (text_set.h)
  int64_t usual_vocabulary = 0,
          usual_length = 0;          ///< of text, where `text` leaves them open: the model's; 0: the data's
  TextEncoderPtr text_encoder = {};  ///< that of a run, in place of a new one
  /// What the model is made for (train/task.h), for data that serves several tasks; empty: the data's own.
  std::string usual_task = {};
};

/// What was opened. A sample is {input, target}: the target is i64 () for a class, f32 () or f32 (k) for regression. Of text:
/// see text_set.h; of speech: speech_set.h.
struct Splits {
  DatasetPtr train, test;
  DatasetInfo info;   // its shape, classes (0 for regression) and sizes are those of what was opened
  std::string name;   // = info.name
  std::string where;  // the folder that it was read from, or "built in"
  /// The training set with the augmentation that is usual for it, drawn from (seed, epoch, sample); empty where
  /// there is none.
  std::function<DatasetPtr(uint64_t seed)> augmented = {};
  std::string task = "classification";  ///< or the name of another task (train/task.h)
  bool split_off = false;               ///< the test part was taken from the training part, by chance
  std::vector<std::string> class_names =
      {};  ///< in the order of their numbers; empty: numbers alone, or no classes
  std::optional<ImageFormat> format =
      {};  ///< how images become inputs (image_to_input), where the data has images
  /// npy: true where the inputs are bytes, which are divided by 255; false where they are numbers taken as they are.
  std::optional<bool> byte_inputs = {};
  std::shared_ptr<const TableEncoder> encoder = {};  ///< csv: how rows become inputs
  TextEncoderPtr text = {};                          ///< how texts become inputs
  std::optional<LogMelOptions> sound = {};           ///< how sound becomes inputs
  DatasetPtr valid = {};                             ///< a part for validation, where the data has its own
  std::vector<std::string> notices = {};             ///< one line each, for the user
};

struct DatasetStatus {
  DatasetInfo info;
  bool found = false;
  std::string where;  // where found; empty otherwise
};

/// Opens a data set by name. Throws Error for an unknown name (with the list of names), for an option that the data set
/// does not take (with those that do), and where a file is missing or damaged.
Splits open_dataset(const std::string& name, const OpenOptions& options = {});

/// MNIST if found, else Fashion-MNIST, else the drawn digits; `name` says which. Where data_dir is given and
/// holds neither of the first two, that is an Error.
Splits open_default(const OpenOptions& options = {});

/// The names, in the order of the table, and a row of it. Throws Error for an unknown name.
std::vector<std::string> dataset_names();
const DatasetInfo& dataset_info(const std::string& name);

/// Every row, and whether its files are here. Reads no file.
std::vector<DatasetStatus> list_datasets(const std::string& data_dir = "");

}  // namespace tandem::data
