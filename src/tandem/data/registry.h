// Data sets by name: one table, one row a data set. Adding one is a row in registry.cpp and its reader.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"

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

struct Splits {
  DatasetPtr train, test;
  DatasetInfo info;
  std::string name;   // = info.name
  std::string where;  // the folder that it was read from, or "built in"
  /// The training set with the augmentation that is usual for it, drawn from (seed, epoch, sample); empty where
  /// there is none.
  std::function<DatasetPtr(uint64_t seed)> augmented = {};
};

struct DatasetStatus {
  DatasetInfo info;
  bool found = false;
  std::string where;  // where found; empty otherwise
};

/// Opens a data set by name. `data_dir` empty: the usual places (see places.h). Throws Error for an unknown name
/// (with the list of names) or where a file is missing or damaged.
Splits open_dataset(const std::string& name, const std::string& data_dir = "");

/// MNIST if found, else Fashion-MNIST, else the drawn digits; `name` says which. Where data_dir is given and
/// holds neither of the first two, that is an Error.
Splits open_default(const std::string& data_dir = "");

/// The names, in the order of the table, and a row of it. Throws Error for an unknown name.
std::vector<std::string> dataset_names();
const DatasetInfo& dataset_info(const std::string& name);

/// Every row, and whether its files are here. Reads no file.
std::vector<DatasetStatus> list_datasets(const std::string& data_dir = "");

}  // namespace tandem::data
