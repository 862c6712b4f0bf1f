// The main of all tests. Beside GoogleTest's flags it takes --file=NAME, which runs the tests written in that
// file: this is how ctest has one entry a file.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "tandem/graph/compile.h"

namespace {

/// The full names of the tests of a file, as a filter; empty where there are none.
std::string filter_of_file(std::string_view file) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      std::string_view path = test.file() ? test.file() : "";
      if (path.substr(path.rfind('/') + 1) != file) continue;
      if (!filter.empty()) filter += ':';
      filter.append(suite.name()).append(".").append(test.name());
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  tandem::set_verify_graphs(true);
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFileFlag = "--file=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool is_file = argument.substr(0, kFileFlag.size()) == kFileFlag;
    const std::string filter = is_file ? filter_of_file(argument.substr(kFileFlag.size())) : "";
    if (filter.empty()) {
      std::fprintf(stderr, "tandem_tests: --file=NAME must name a file that holds tests; got %s.\n", argv[i]);
      return 2;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
