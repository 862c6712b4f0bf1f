// A study's file in a folder of its own, removed at the end of the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "lab/src/study/study.h"
#include "tandem/core/error.h"

namespace tandem::lab {

class StudyText {
 public:
  StudyText(const std::string& name, const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "tandem-study-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw Error("study file: a temporary folder must be made. Free some space.");
    folder_ = pattern;
    std::ofstream(path_ = folder_ + "/" + name + ".toml") << text;
  }
  ~StudyText() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  StudyText(const StudyText&) = delete;
  StudyText& operator=(const StudyText&) = delete;

  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_, path_;
};

}  // namespace tandem::lab
