// Where image files lie: what is refused, what leaves the page cache, and what is left in memory at the end: nothing.
#include "lab/src/measure/storage.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

bool has_ram_disk() { return storage_refusal("memory", "", 1 << 20).empty(); }

TEST(Storage, AFolderInMemoryIsNoDisk) {
  if (!has_ram_disk()) GTEST_SKIP() << "no " << kRamDisk << " here";
  const TempFolder folder{fs::path(kRamDisk)};
  const std::string why = storage_refusal("disk", folder.path(), 1);
  EXPECT_NE(why.find("storage disk: the study's folder must be on a disk"), std::string::npos) << why;
  EXPECT_NE(why.find(folder.path()), std::string::npos);
  EXPECT_NE(why.find("--out"), std::string::npos) << "the fix";
}

TEST(Storage, WhatIsNotInMemoryOrTooSmallIsNoRamDisk) {
  const TempFolder folder;
  const std::string nowhere = storage_refusal("memory", folder.path(), 1, folder / "nowhere");
  EXPECT_NE(nowhere.find("must be a file system in memory"), std::string::npos) << nowhere;
  if (!has_ram_disk()) GTEST_SKIP() << "no " << kRamDisk << " here";
  const std::string small = storage_refusal("memory", folder.path(), int64_t{1} << 60);
  EXPECT_NE(small.find("must have room for"), std::string::npos) << small;
  EXPECT_EQ(small.find('\n'), std::string::npos);
}

TEST(Storage, DroppedFilesAreReadFromTheDiskAgain) {
  const TempFolder folder;
  if (!storage_refusal("disk", folder.path(), 1).empty()) GTEST_SKIP() << "temporary files are not on a disk";
  EXPECT_TRUE(fs::is_empty(folder.path())) << "the file that was tried is gone";
  std::vector<std::string> paths;
  for (const char* name : {"a", "b"}) {
    paths.push_back(folder / name);
    testing::write_text(paths.back(), std::string(100'000, 'x'));
  }
  EXPECT_GT(cached_share(paths), 0.9);
  drop_from_cache(paths);
  EXPECT_LT(cached_share(paths), 0.05);
  testing::read_text(paths[0]);
  EXPECT_NEAR(cached_share(paths), 0.5, 0.05);
}

TEST(Storage, AFolderInMemoryIsGoneWithItsObjectAndThatOfAKilledProcessWithTheNext) {
  const TempFolder root;
  std::string path;
  {
    const RamFolder ram(root.path());
    path = ram.path();
    testing::write_text(path + "/a", "x");
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
  const pid_t child = ::fork();
  if (child == 0) {
    new RamFolder(root.path());  // and no destructor
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const std::string left = root / ("tandem-lab-" + std::to_string(child));
  EXPECT_TRUE(fs::exists(left));
  const std::string other = root / "tandem-lab-1", foreign = root / "tandem-laboratory";
  fs::create_directory(other), fs::create_directory(foreign);
  const RamFolder next(root.path());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(other)) << "process 1 lives";
  EXPECT_TRUE(fs::exists(foreign));
}

}  // namespace
}  // namespace tandem::lab
