// A study's records as others get them.
#pragma once

#include <string>
#include <vector>

#include "lab/src/record/record.h"

namespace tandem::lab {

/// Every path of two folders or more in a text without its folders: "/home/me/lab/driver.py" becomes "…/driver.py". What
/// the system has on every machine (/proc, /sys, /dev) stays.
std::string without_folders(const std::string& text);

/// Writes study.json, gate.json, provenance.json and runs.jsonl.gz of a study to the folder `to`, without the folders of this
/// machine and without variables that name some; `tandem lab report` reads them there. Gives the files' names. Throws
/// Error where `from` holds no run, or `to` holds something else.
std::vector<std::string> publish(const std::string& from, const std::string& to);

}  // namespace tandem::lab
