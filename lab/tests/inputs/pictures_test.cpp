// Image files of workloads with [images]: found or made up, copied, listed.
#include "lab/src/inputs/pictures.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/tandem.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

Tensor plain_picture(float level) { return full({3, 90, 120}, level, DType::u8); }

void write_jpeg(const std::string& path, const Tensor& picture, const std::string& exif = "") {
  fs::create_directories(fs::path(path).parent_path());
  std::vector<uint8_t> bytes = io::encode_jpeg(picture, 90);
  if (!exif.empty()) bytes.insert(bytes.begin() + 2, exif.begin(), exif.end());  // behind the first marker
  testing::write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

TEST(PictureFiles, WithoutPhotographsTheyAreMadeUpAndSaySo) {
  const TempFolder folder;
  fs::create_directory(folder / "none");
  const Workload workload = load_workload("photos_cnn");
  const DataChoice choice = choose_pictures(workload, folder / "none");
  EXPECT_EQ(choice.name, "synthetic-photographs");
  EXPECT_FALSE(choice.is_real);
  EXPECT_NE(choice.why.find("$TANDEM_DATA/voc2012"), std::string::npos) << choice.why;
  const std::string list = write_pictures(folder / "p", workload, 40, 1, folder / "none");
  const std::vector<PictureFile> files = read_picture_list(list);
  ASSERT_EQ(files.size(), 40u);
  std::set<std::string> different;
  int64_t bytes = 0;
  for (const PictureFile& file : files) {
    EXPECT_GE(file.label, 0);
    EXPECT_LT(file.label, 20);
    const std::string content = testing::read_text(file.path);
    different.insert(content);
    bytes += static_cast<int64_t>(content.size());
  }
  EXPECT_EQ(different.size(), 32u) << "more files than pictures: some stand twice";
  EXPECT_LE(bytes, picture_bytes(workload, 40, folder / "none"));
  const Tensor picture = io::read_image(files[0].path);
  EXPECT_EQ(std::min(picture.size(1), picture.size(2)), 375);
  EXPECT_GT(fs::file_size(files[0].path), 20'000u) << "about as much detail as in a photograph";
}

TEST(PictureFiles, PhotographsAreTakenFromAnyFolderAndClassesFromTheirNames) {
  const TempFolder folder;
  const Workload workload = load_workload("photos_cnn");
  for (const char* name : {"cats/a.jpg", "cats/b.jpg", "dogs/old/c.jpeg"})
    write_jpeg(folder / ("voc2012/" + std::string(name)), plain_picture(90));
  testing::write_text(folder / "voc2012/cats/readme.txt", "no picture");
  ASSERT_EQ(find_photographs(workload, folder.path()).size(), 3u);
  EXPECT_EQ(choose_pictures(workload, folder.path()).name, "voc2012");
  const std::vector<PictureFile> files =
      read_picture_list(write_pictures(folder / "p", workload, 6, 1, folder.path()));
  ASSERT_EQ(files.size(), 6u);
  std::multiset<int64_t> labels;
  for (const PictureFile& file : files) labels.insert(file.label);
  EXPECT_EQ(labels.count(0), 4u);
  EXPECT_EQ(labels.count(1), 2u);
}

TEST(PictureFiles, OnesThatTheCameraWasTurnedForAreLeftOut) {
  const TempFolder folder;
  const Workload workload = load_workload("photos_cnn");
  // APP1 with an Exif part of one entry: orientation 6.
  const std::string turned(
      "\xFF\xE1\x00\x22"
      "Exif\0\0"
      "MM\0\x2A\0\0\0\x08"
      "\0\x01"
      "\x01\x12\0\x03\0\0\0\x01\0\x06\0\0"
      "\0\0\0\0",
      36);
  write_jpeg(folder / "voc2012/a.jpg", plain_picture(10), turned);
  EXPECT_THROW(write_pictures(folder / "p", workload, 2, 1, folder.path()), Error);
  write_jpeg(folder / "voc2012/b.jpg", plain_picture(200));
  const std::vector<PictureFile> files =
      read_picture_list(write_pictures(folder / "q", workload, 2, 1, folder.path()));
  ASSERT_EQ(files.size(), 2u);
  for (const PictureFile& file : files)
    EXPECT_NEAR(static_cast<double>(io::read_image(file.path).to_vector<uint8_t>()[0]), 200, 2);
}

TEST(PictureFiles, ArraysOfSuchAWorkloadAreTheMiddlesOfItsPictures) {
  const TempFolder folder;
  const Workload workload = load_workload("photos_cnn");
  write_jpeg(folder / "voc2012/a.jpg", plain_picture(128));
  const DataFolder data = write_data(folder / "d", workload, load_network(workload), 3, 0, 1, folder.path());
  EXPECT_EQ(data.name, "voc2012");
  EXPECT_TRUE(data.is_real);
  const Tensor x = io::load_npy(data.files["train"]["x"].get<std::string>());
  EXPECT_EQ(x.shape(), (Dims{3, 3, 64, 64}));
  const float red = (128 / 255.0f - 0.485f) / 0.229f;
  EXPECT_NEAR(x.to_vector<float>()[0], red, 0.03);
}

}  // namespace
}  // namespace tandem::lab
