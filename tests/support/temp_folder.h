// A folder for a test's files, removed when the test ends.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem::testing {

class TempFolder {
 public:
  /// Below `place`; empty: where the system has its temporary files.
  explicit TempFolder(const std::filesystem::path& place = {}) {
    path_ =
        ((place.empty() ? std::filesystem::temp_directory_path() : place) / "tandem-test-XXXXXX").string();
    if (!mkdtemp(path_.data())) throw std::runtime_error("cannot make the folder " + path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

/// A new file: overwriting one in place makes some file systems wait for the disk.
inline void write_text(const std::string& path, std::string_view text) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace tandem::testing
