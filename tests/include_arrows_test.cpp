// Reads the #includes of src/ and fails on an arrow that points the wrong way. The house, from the bottom up:
//   core <- ops <- {backends, graph, nn, data};  nn <- {optim, zoo, io};  graph <- zoo;  core <- dist;  io <- profile;
//   all of these <- train <- search <- cli;  train <- lab
// The table below is the law. To allow a new arrow, add it there, and say so in ARCHITECTURE.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace {

namespace fs = std::filesystem;

/// Part of the house -> the parts that it may include, itself aside. `start` is backends/start.{h,cpp}, the one
/// start-up file that names the backends; `surface` is tandem.h, a list of the public headers.
const std::map<std::string, std::set<std::string>> kAllowed = {
    {"core", {}},
    {"ops", {"core"}},
    {"backends/cpu", {"core", "ops"}},
    {"backends/cuda", {"core", "ops"}},
    {"start", {"core", "ops", "backends/cpu", "backends/cuda"}},
    {"graph", {"core", "ops"}},
    {"nn", {"core", "ops"}},
    {"optim", {"core", "ops", "nn"}},
    {"zoo", {"core", "ops", "graph", "nn"}},
    {"io", {"core", "ops", "nn"}},
    {"data", {"core", "ops", "io"}},
    {"dist", {"core"}},
    {"profile", {"core", "ops", "io"}},
    {"train", {"core", "ops", "graph", "nn", "optim", "zoo", "io", "data", "dist", "profile", "start"}},
    {"search", {"core", "optim", "zoo", "io", "data", "train"}},
    {"surface",
     {"core", "ops", "graph", "nn", "optim", "zoo", "io", "data", "dist", "profile", "train", "search",
      "start"}},
    {"cli",
     {"core", "ops", "graph", "nn", "optim", "zoo", "io", "data", "dist", "profile", "train", "search",
      "start", "surface"}},
    // The lab sees the library as its users do, and its own parts from the bottom up (lab/CMakeLists.txt).
    {"lab/files", {"core", "io"}},
    {"lab/protocol", {"zoo", "optim"}},
    {"lab/stats", {"core"}},
    {"lab/record", {"core", "io", "lab/files"}},
    {"lab/analysis", {"core", "lab/stats", "lab/record"}},
    {"lab/monitor", {"core", "io", "train", "lab/files", "lab/record"}},
    {"lab/driver", {"core", "io", "lab/files", "lab/record"}},
    {"lab/study", {"core", "io", "lab/files", "lab/protocol", "lab/record", "lab/analysis", "lab/driver"}},
    {"lab/inputs", {"surface", "core", "data", "io", "ops", "zoo", "lab/files", "lab/protocol", "lab/study"}},
    {"lab/tandem_driver", {"surface", "io", "zoo", "lab/files", "lab/protocol"}},
    {"lab/measure",
     {"core", "io", "lab/files", "lab/protocol", "lab/stats", "lab/record", "lab/monitor", "lab/driver",
      "lab/study", "lab/inputs"}},
    {"lab/claims", {"core", "io", "lab/files", "lab/stats", "lab/record", "lab/study", "lab/analysis"}},
    {"lab/report", {"core", "io", "lab/stats", "lab/record", "lab/study", "lab/analysis", "lab/claims"}},
    {"lab/command",
     {"core", "io", "train", "lab/files", "lab/record", "lab/monitor", "lab/driver", "lab/study",
      "lab/inputs", "lab/tandem_driver", "lab/measure", "lab/analysis", "lab/claims", "lab/report"}},
};

/// The part of the house that a path belongs to, or "" for a place that the table does not know. Paths are as includes
/// write them: below src/, or lab/src/… from the root.
std::string part_of(const fs::path& path) {
  std::vector<std::string> steps;
  for (const fs::path& step : path) steps.push_back(step.string());
  if (steps.empty()) return "";
  if (steps[0] == "lab") return steps.size() > 3 && steps[1] == "src" ? "lab/" + steps[2] : "";
  if (steps[0] != "tandem") return steps[0];
  if (steps.size() == 2) return steps[1] == "tandem.h" ? "surface" : "";
  if (steps.size() > 2 && steps[1] == "backends") {
    return steps.size() == 3 ? (path.stem() == "start" ? "start" : "") : "backends/" + steps[2];
  }
  return steps.size() > 2 ? steps[1] : "";
}

/// The paths between quotes of the #include lines of a text.
std::vector<std::string> quoted_includes(std::istream& text) {
  std::vector<std::string> found;
  for (std::string line; std::getline(text, line);) {
    const size_t hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#') continue;
    const size_t word = line.find_first_not_of(" \t", hash + 1);
    if (word == std::string::npos || line.compare(word, 7, "include") != 0) continue;
    const size_t open = line.find('"', word);
    const size_t close = open == std::string::npos ? open : line.find('"', open + 1);
    if (close != std::string::npos) found.push_back(line.substr(open + 1, close - open - 1));
  }
  return found;
}

/// What is wrong with `file` including `target`; "" where nothing is. Both are as part_of takes them.
std::string complaint(const fs::path& file, const fs::path& target) {
  const std::string from = part_of(file);
  const std::string to = part_of(target);
  const auto row = kAllowed.find(from);
  const std::string arrow = file.string() + " includes " + target.string() + ": ";
  if (row == kAllowed.end()) return arrow + "the table has no row for the part '" + from + "'.";
  if (!kAllowed.contains(to)) return arrow + "the table does not know the part '" + to + "'.";
  if (from == to || row->second.contains(to)) return "";
  return arrow + from + " must not know " + to + ".";
}

/// A quoted include is relative to src/ (of the lab: to the root) or, failing that, to the file's own folder.
fs::path resolve(const fs::path& src, const fs::path& file, const std::string& include) {
  const fs::path beside = (file.parent_path() / include).lexically_normal();
  return !fs::exists(src / include) && fs::exists(src / beside) ? beside : fs::path(include);
}

/// Complaints about the files below `folder`, whose includes are relative to `base`; the number of files.
int check_files(const fs::path& folder, const fs::path& base) {
  const std::set<std::string> kinds = {".h", ".cpp", ".cu", ".cuh"};
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || !kinds.contains(entry.path().extension().string())) continue;
    ++files;
    const fs::path file = entry.path().lexically_relative(base);
    EXPECT_TRUE(kAllowed.contains(part_of(file))) << file << " lies in no part that the table knows.";
    std::ifstream text(entry.path());
    for (const std::string& include : quoted_includes(text)) {
      if (include.starts_with("lists/")) continue;  // made by the build, of functions of the same part
      const std::string wrong = complaint(file, resolve(base, file, include));
      EXPECT_EQ(wrong, "");
    }
  }
  return files;
}

TEST(IncludeArrows, EveryIncludePointsDownTheHouse) {
  const fs::path root = tandem::testing::source_dir();
  EXPECT_GT(check_files(root / "src", root / "src"), 0);
  EXPECT_GT(check_files(root / "lab" / "src", root), 0);
}

TEST(IncludeArrows, TheTableHasNoCycle) {
  // Parts are taken away while some part needs only what was taken before; a cycle would never be taken.
  std::set<std::string> placed;
  for (size_t before = 0; placed.size() < kAllowed.size(); before = placed.size()) {
    for (const auto& [part, below] : kAllowed) {
      if (std::includes(placed.begin(), placed.end(), below.begin(), below.end())) placed.insert(part);
    }
    ASSERT_GT(placed.size(), before) << "some parts of the table include each other in a circle.";
  }
}

TEST(IncludeArrows, WrongArrowsAreFound) {
  EXPECT_NE(complaint("tandem/core/tensor.h", "tandem/ops/conv.h"), "");
  EXPECT_NE(complaint("tandem/ops/conv.cpp", "tandem/backends/cpu/gemm.h"), "");
  EXPECT_NE(complaint("tandem/graph/graph.cpp", "tandem/backends/start.h"), "");
  EXPECT_NE(complaint("tandem/nn/linear.cpp", "tandem/train/loop.h"), "");
  EXPECT_NE(complaint("tandem/backends/cpu/gemm.cpp", "tandem/backends/cuda/stream.h"), "");
  EXPECT_NE(complaint("tandem/train/loop.cpp", "cli/options.h"), "");
  EXPECT_NE(complaint("tandem/train/loop.cpp", "tandem/search/search.h"), "");
  EXPECT_NE(complaint("tandem/core/tensor.h", "tandem/tandem.h"), "");
  EXPECT_NE(complaint("tandem/attic/old.cpp", "tandem/core/tensor.h"), "");
  EXPECT_EQ(complaint("tandem/ops/conv.cpp", "tandem/core/tensor.h"), "");
  EXPECT_EQ(complaint("tandem/backends/start.cpp", "tandem/backends/cpu/cpu.h"), "");
  EXPECT_EQ(complaint("tandem/data/mnist.cpp", "tandem/io/file.h"), "");
}

TEST(IncludeArrows, IncludesAreReadWhateverTheirSpacing) {
  std::istringstream text(
      "#include \"a.h\"\n  #  include   \"b/c.h\"  // why\n#include <vector>\n// #include \"no.h\"\n");
  EXPECT_EQ(quoted_includes(text), (std::vector<std::string>{"a.h", "b/c.h"}));
}

}  // namespace
