// Fetching files: by the program curl, into NAME.part beside the target, resumed where an earlier try broke off,
// compared with a checksum, and only then renamed. A file under its own name is always whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/data/registry.h"

namespace tandem::data {

struct DownloadOptions {
  /// "md5:…" or "sha256:…" in hex; empty: not compared.
  std::string checksum = {};
  /// Called now and then with the bytes that are here; throwing ends the download (what is here stays for the next).
  std::function<void(int64_t bytes)> progress = {};
  int tries = 3;                 ///< a connection that breaks after giving something is taken up again
  std::string program = "curl";  ///< what is run
};

/// Fetches `url` (http, https, ftp or file) to `path`, unless a file with that checksum is there. Throws Error with
/// the cause: no curl, no such host, an answer like 404, a full disk, another checksum.
void download(const std::string& url, const std::string& path, const DownloadOptions& options = {});

/// Fetches all files of a data set to the folder where open_dataset finds them (download_folder in places.h), which
/// is returned. `progress` gets the file's name and the bytes of it that are here.
std::string download_dataset(
    const std::string& name, const std::string& data_dir = "",
    const std::function<void(const std::string& file, int64_t bytes)>& progress = {});

/// The checksum of a file: kind is "md5" or "sha256".
std::string checksum_of(const std::string& kind, const std::string& path);

}  // namespace tandem::data
