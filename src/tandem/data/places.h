// Where the files of data sets are looked for, and how a missing one is told.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/data/registry.h"

namespace tandem::data {

/// The folders that are searched for a data set's files, in order. With a data_dir: data_dir/name, then data_dir
/// itself (unless its own name is another data set's); nothing else. Without: $TANDEM_DATA/name,
/// ~/.cache/tandem/name, ./data/name, then `system_folder` where there is one.
std::vector<std::string> search_folders(const std::string& name, const std::string& data_dir,
                                        const std::string& system_folder = "");

/// Where a download puts the files: data_dir/name, else $TANDEM_DATA/name, else ~/.cache/tandem/name.
std::string download_folder(const std::string& name, const std::string& data_dir);

/// The first folder for which `missing` returns "", or nothing. `missing` names what a folder lacks.
using MissingIn = std::function<std::string(const std::string& folder)>;
std::optional<std::string> locate_in(const std::vector<std::string>& folders, const MissingIn& missing);

/// The same; where there is none, throws Error with what each folder lacks and how to get it. `rule` says what must be
/// there, e.g. "its four idx files must be in one folder".
std::string require_in(const DatasetInfo& info, const std::vector<std::string>& folders,
                       const MissingIn& missing, const std::string& rule);

}  // namespace tandem::data
