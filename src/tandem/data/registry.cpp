// The table of data sets.
#include "tandem/data/registry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "tandem/data/arrays.h"
#include "tandem/data/cifar.h"
#include "tandem/data/drawn_digits.h"
#include "tandem/data/image_folder.h"
#include "tandem/data/ljspeech.h"
#include "tandem/data/mnist.h"
#include "tandem/data/svhn.h"
#include "tandem/data/synthetic.h"
#include "tandem/data/tables.h"
#include "tandem/io/file.h"

namespace tandem::data {

// Readers that nobody else calls, each in the file of its name.
std::optional<std::string> locate_imdb(const DatasetInfo& info, const std::string& data_dir);
Splits open_imdb(const DatasetInfo& info, const OpenOptions& options);
std::optional<std::string> locate_ptb(const DatasetInfo& info, const std::string& data_dir);
Splits open_ptb(const DatasetInfo& info, const OpenOptions& options);
std::optional<std::string> locate_manythings(const DatasetInfo& info, const std::string& data_dir);
Splits open_manythings(const DatasetInfo& info, const OpenOptions& options);
std::optional<std::string> locate_parallel_text(const DatasetInfo& info, const std::string& data_dir);
Splits open_parallel_text(const DatasetInfo& info, const OpenOptions& options);
std::optional<std::string> locate_text(const DatasetInfo& info, const std::string& data_dir);
Splits open_text(const DatasetInfo& info, const OpenOptions& options);
std::optional<std::string> locate_text_folder(const DatasetInfo& info, const std::string& data_dir);
Splits open_text_folder(const DatasetInfo& info, const OpenOptions& options);
std::optional<std::string> locate_librispeech(const DatasetInfo& info, const std::string& data_dir);
Splits open_librispeech(const DatasetInfo& info, const OpenOptions& options);
Splits open_synthetic_librispeech(const DatasetInfo& info, const OpenOptions& options);
Splits open_synthetic_imdb(const DatasetInfo& info, const OpenOptions& options);
Splits open_synthetic_ptb(const DatasetInfo& info, const OpenOptions& options);
Splits open_synthetic_pairs(const DatasetInfo& info, const OpenOptions& options);
Splits open_synthetic_ljspeech(const DatasetInfo& info, const OpenOptions& options);

namespace {

struct Row {
  DatasetInfo info;
  /// Where the files are, or nothing. Must not read them.
  std::optional<std::string> (*locate)(const DatasetInfo& info, const std::string& data_dir);
  Splits (*open)(const DatasetInfo& info, const OpenOptions& options);
  std::vector<std::string_view> takes = {};  // options beside data_dir, as kOptions names them
};

/// The sentence for a set that can be fetched.
std::string how_to(const std::string& name, const std::string& source, const std::string& files) {
  return str("'tandem datasets --download ", name, "' fetches it; or put ", files, " from ", source,
             " there, or name their folder with `data_dir`.");
}

std::vector<RemoteFile> idx_files(const std::string& source, const std::array<const char*, 4>& sums) {
  std::vector<RemoteFile> files;
  size_t i = 0;
  for (const char* part :
       {"train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"}) {
    const std::string name = std::string(part) + "-ubyte.gz";
    files.push_back({name, source + name, std::string("md5:") + sums[i++]});
  }
  return files;
}

const std::vector<Row>& rows() {
  static const std::vector<Row>& table = *new std::vector<Row>([] {
    const std::string mnist = "https://ossci-datasets.s3.amazonaws.com/mnist/",
                      fashion = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                      cifar = "https://www.cs.toronto.edu/~kriz/",
                      svhn = "http://ufldl.stanford.edu/housenumbers/",
                      imdb = "https://ai.stanford.edu/~amaas/data/sentiment/";
    std::vector<Row> made = {
        {{.name = "mnist",
          .title = "MNIST",
          .description = "handwritten digits, grey, 28 by 28",
          .sample_shape = {1, 28, 28},
          .classes = 10,
          .train_size = 60000,
          .test_size = 10000,
          .how_to_get = how_to("mnist", mnist, "the four .gz files"),
          .files =
              idx_files(mnist, {"f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
                                "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"})},
         locate_mnist,
         open_mnist},
        {{.name = "fashion-mnist",
          .title = "Fashion-MNIST",
          .description = "articles of clothing, grey, 28 by 28",
          .sample_shape = {1, 28, 28},
          .classes = 10,
          .train_size = 60000,
          .test_size = 10000,
          .how_to_get = "Install the package dataset-fashion-mnist (Debian, Ubuntu); " +
                        how_to("fashion-mnist", fashion, "the four .gz files"),
          .files =
              idx_files(fashion, {"8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
                                  "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"})},
         locate_fashion_mnist,
         open_fashion_mnist},
        {{.name = "cifar10",
          .title = "CIFAR-10",
          .description = "small photographs of ten kinds, RGB, 32 by 32",
          .sample_shape = {3, 32, 32},
          .classes = 10,
          .train_size = 50000,
          .test_size = 10000,
          .how_to_get = how_to("cifar10", cifar, "cifar-10-binary.tar.gz"),
          .files = {{"cifar-10-binary.tar.gz", cifar + "cifar-10-binary.tar.gz",
                     "md5:c32a1d4ab5d03f1284b67883e8d87530"}}},
         locate_cifar,
         open_cifar},
        {{.name = "cifar100",
          .title = "CIFAR-100",
          .description = "small photographs of a hundred kinds, RGB, 32 by 32",
          .sample_shape = {3, 32, 32},
          .classes = 100,
          .train_size = 50000,
          .test_size = 10000,
          .how_to_get = how_to("cifar100", cifar, "cifar-100-binary.tar.gz"),
          .files = {{"cifar-100-binary.tar.gz", cifar + "cifar-100-binary.tar.gz",
                     "md5:03b5dce01913d631647c71ecec9e9cb8"}}},
         locate_cifar,
         open_cifar},
        {{.name = "svhn",
          .title = "SVHN",
          .description = "house numbers, cropped digits, RGB, 32 by 32",
          .sample_shape = {3, 32, 32},
          .classes = 10,
          .train_size = 73257,
          .test_size = 26032,
          .how_to_get = how_to("svhn", svhn, "train_32x32.mat and test_32x32.mat"),
          .files = {{"train_32x32.mat", svhn + "train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373"},
                    {"test_32x32.mat", svhn + "test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3"}}},
         locate_svhn,
         open_svhn},
        {{.name = "imdb",
          .title = "IMDB reviews",
          .description = "film reviews, good or bad, as words",
          .sample_shape = {500},
          .classes = 2,
          .train_size = 25000,
          .test_size = 25000,
          .how_to_get = how_to("imdb", imdb, "aclImdb_v1.tar.gz"),
          .files = {{"aclImdb_v1.tar.gz", imdb + "aclImdb_v1.tar.gz",
                     "md5:7c2ac02c03563afcf9b574c7e56c153a"}}},
         locate_imdb,
         open_imdb,
         {"tokens"}},
        {{.name = "ptb",
          .title = "Penn Treebank",
          .description = "news text to predict word by word, 10,000 words",
          .sample_shape = {35},
          .how_to_get = "Put ptb.train.txt, ptb.valid.txt and ptb.test.txt (of Mikolov's "
                        "simple-examples.tgz) there, or "
                        "name their folder with `data_dir`."},
         locate_ptb,
         open_ptb,
         {"tokens"}},
        {{.name = "librispeech",
          .title = "LibriSpeech",
          .description = "books read aloud, as spectrograms of 161 frequencies, and their texts",
          .sample_shape = {1600, 161},
          .classes = 29,
          .how_to_get =
              "Unpack train-clean-100.tar.gz, dev-clean.tar.gz and test-clean.tar.gz of "
              "https://www.openslr.org/12 there, or name the folder that holds them with `data_dir`."},
         locate_librispeech,
         open_librispeech,
         {"test_share"}},
        {{.name = "ljspeech",
          .title = "LJSpeech",
          .description =
              "one speaker who reads aloud, as spectrograms, and the texts: to recognise, or to speak",
          .sample_shape = {1000, 161},
          .classes = 29,
          .how_to_get = "Unpack LJSpeech-1.1.tar.bz2 of https://keithito.com/LJ-Speech-Dataset there, or "
                        "name its folder "
                        "with `data_dir`."},
         locate_ljspeech,
         open_ljspeech,
         {"test_share"}},
        {{.name = "manythings",
          .title = "Many Things",
          .description = "English sentences and their translations, 80,000 pairs and 20,000 to test",
          .sample_shape = {24},
          .train_size = 80000,
          .test_size = 20000,
          .how_to_get = "Put spa-eng.zip (or another language's archive) of Many Things there, or name its "
                        "folder with `data_dir`."},
         locate_manythings,
         open_manythings,
         {"tokens"}},
        {{.name = "image-folder",
          .title = "image folder",
          .description = "your JPEG and PNG files, a folder per class, in train/ and test/ or by themselves",
          .sample_shape = {3, 224, 224},
          .how_to_get =
              "Name with `data_dir` a folder with a folder per class, in train/ and test/ or by themselves."},
         locate_image_folder,
         open_image_folder,
         {"image_size", "test_share", "skip_bad"}},
        {{.name = "npy",
          .title = "NumPy arrays",
          .description = "your arrays: x and y, or train_x, train_y, test_x, test_y; .npy files or one .npz",
          .how_to_get = "Name with `data_dir` a folder with x.npy and y.npy, or with train_x.npy, "
                        "train_y.npy, test_x.npy "
                        "and test_y.npy, or with one .npz of these names."},
         locate_arrays,
         open_arrays,
         {"test_share", "task"}},
        {{.name = "csv",
          .title = "tables",
          .description = "your table: a .csv file, or train.csv and test.csv; `target` names the column to "
                         "predict, `text.column` "
                         "one of text to predict it by",
          .how_to_get =
              "Name with `data_dir` a .csv file, or a folder with one or with train.csv and test.csv."},
         locate_csv,
         open_csv,
         {"test_share", "target", "task", "csv", "text", "tokens"}},
        {{.name = "text",
          .title = "text",
          .description = "your plain text, to predict word by word: a file, or a folder of .txt files",
          .sample_shape = {35},
          .how_to_get = "Name with `data_dir` a text file, or a folder with .txt files, such as train.txt "
                        "and test.txt."},
         locate_text,
         open_text,
         {"test_share", "tokens"}},
        {{.name = "text-folder",
          .title = "text folder",
          .description = "your .txt files, a folder per class, in train/ and test/ or by themselves",
          .sample_shape = {500},
          .how_to_get =
              "Name with `data_dir` a folder with a folder per class, in train/ and test/ or by themselves."},
         locate_text_folder,
         open_text_folder,
         {"test_share", "skip_bad", "tokens"}},
        {{.name = "parallel-text",
          .title = "parallel text",
          .description = "your sentences and their translations: two files of lines, such as train.en and "
                         "train.de, or one with a tab between",
          .sample_shape = {50},
          .how_to_get = "Name with `data_dir` a folder with train.en and train.de (and valid and test), or a "
                        "file of pairs with a tab between."},
         locate_parallel_text,
         open_parallel_text,
         {"test_share", "tokens", "source"}},
        {{.name = "digits",
          .title = "drawn digits",
          .description = "digits drawn by a formula, grey, 28 by 28; needs no files",
          .sample_shape = {1, 28, 28},
          .classes = 10,
          .train_size = kDrawnTrainSize,
          .test_size = kDrawnTestSize,
          .how_to_get = "It is built in."},
         locate_built_in,
         open_drawn_digits},
    };
    for (const SyntheticKind& kind : synthetic_kinds())
      made.push_back(
          {{.name = std::string("synthetic-") + kind.name,
            .title = std::string("synthetic ") + kind.name,
            .description = str("patterns made by a formula in the shapes of ", kind.name, "; needs no files"),
            .sample_shape = {kind.channels, kind.side, kind.side},
            .classes = kind.classes,
            .train_size = kind.train_size,
            .test_size = kind.test_size,
            .how_to_get = "It is built in."},
           locate_built_in,
           open_synthetic});
    made.push_back({{.name = "synthetic-imdb",
                     .title = "synthetic imdb",
                     .description = "words made by a formula in the shapes of imdb; needs no files",
                     .sample_shape = {500},
                     .classes = 2,
                     .train_size = 25000,
                     .test_size = 25000,
                     .how_to_get = "It is built in."},
                    locate_built_in,
                    open_synthetic_imdb});
    made.push_back({{.name = "synthetic-ptb",
                     .title = "synthetic ptb",
                     .description = "words made by a formula in the shapes of ptb; needs no files",
                     .sample_shape = {35},
                     .how_to_get = "It is built in."},
                    locate_built_in,
                    open_synthetic_ptb});
    made.push_back(
        {{.name = "synthetic-librispeech",
          .title = "synthetic librispeech",
          .description = "sounds and letters made by a formula in the shapes of librispeech; needs no files",
          .sample_shape = {1600, 161},
          .classes = 29,
          .train_size = 28539,
          .test_size = 2620,
          .how_to_get = "It is built in."},
         locate_built_in,
         open_synthetic_librispeech});
    made.push_back(
        {{.name = "synthetic-manythings",
          .title = "synthetic manythings",
          .description = "pairs of texts made by a formula in the shapes of manythings; needs no files",
          .sample_shape = {24},
          .train_size = 80000,
          .test_size = 20000,
          .how_to_get = "It is built in."},
         locate_built_in,
         open_synthetic_pairs});
    made.push_back(
        {{.name = "synthetic-wmt16",
          .title = "synthetic wmt16",
          .description = "pairs of texts made by a formula: 32,000 words, up to 50 a text, as gnmt reads "
                         "WMT16; needs no files",
          .sample_shape = {50},
          .train_size = 100000,
          .test_size = 3000,
          .how_to_get = "It is built in."},
         locate_built_in,
         open_synthetic_pairs});
    made.push_back({{.name = "synthetic-ljspeech",
                     .title = "synthetic ljspeech",
                     .description = "speech made by a formula in the shapes of ljspeech; needs no files",
                     .sample_shape = {200},
                     .train_size = 12600,
                     .test_size = 500,
                     .how_to_get = "It is built in."},
                    locate_built_in,
                    open_synthetic_ljspeech});
    return made;
  }());
  return table;
}

// What open_default tries, in order. The last one is built in, so that it is always found.
constexpr const char* kDefaults[] = {"mnist", "fashion-mnist", "digits"};

const Row& row_named(const std::string& name) {
  std::string names;
  for (const Row& row : rows()) {
    if (row.info.name == name) return row;
    names += (names.empty() ? "" : ", ") + row.info.name;
  }
  throw Error(
      str("data: must be one of ", names, "; got '", io::one_line(name), "'. 'tandem datasets' lists them."));
}

/// The options beside data_dir, and what the user gave for them: "" where that is nothing.
struct Option {
  std::string_view name;
  std::string (*given)(const OpenOptions& options);
};
constexpr Option kOptions[] = {
    {"image_size",
     [](const OpenOptions& o) {
       return o.image_size ? str((*o.image_size)[0], " by ", (*o.image_size)[1]) : std::string();
     }},
    {"test_share",
     [](const OpenOptions& o) {
       return o.test_share != OpenOptions{}.test_share ? str(o.test_share) : std::string();
     }},
    {"skip_bad", [](const OpenOptions& o) { return std::string(o.skip_bad ? "true" : ""); }},
    {"target",
     [](const OpenOptions& o) { return o.target.empty() ? "" : "'" + io::one_line(o.target, 50) + "'"; }},
    {"task", [](const OpenOptions& o) { return o.task.empty() ? "" : "'" + io::one_line(o.task, 50) + "'"; }},
    {"csv",
     [](const OpenOptions& o) {
       return std::string(o.csv == CsvOptions{} ? "" : "some of delimiter, no-header, missing, categories …");
     }},
    {"text",
     [](const OpenOptions& o) {
       return o.text.column.empty() ? "" : "'" + io::one_line(o.text.column, 50) + "'";
     }},
    {"source",
     [](const OpenOptions& o) {
       return o.text.source.empty() ? "" : "'" + io::one_line(o.text.source, 50) + "'";
     }},
    {"tokens",
     [](const OpenOptions& o) {
       TextOptions given = o.text;
       given.column.clear();
       given.source.clear();
       return std::string(given == TextOptions{} ? "" : "some of tokens, vocabulary, min-count and length");
     }},
};

bool takes(const Row& row, std::string_view option) {
  return std::find(row.takes.begin(), row.takes.end(), option) != row.takes.end();
}

/// Refuses options that the data set would pass over, and values that none takes.
void check_options(const Row& row, const OpenOptions& options) {
  for (const Option& option : kOptions) {
    const std::string given = option.given(options);
    if (given.empty() || takes(row, option.name)) continue;
    std::string others;
    for (const Row& other : rows())
      if (takes(other, option.name)) others += (others.empty() ? "" : ", ") + other.info.name;
    throw Error(str("data ", row.info.name, ": does not take ", option.name, ", which is for ", others,
                    "; got ", given, ". Leave it out."));
  }
  TD_CHECK(options.test_share > 0 && options.test_share < 1, "test_share: must be above 0 and below 1; got ",
           options.test_share, ".");
  TD_CHECK(options.task.empty() || options.task == "classification" || options.task == "regression",
           "task: must be classification or regression; got '", io::one_line(options.task, 50), "'.");
}

Splits open_row(const Row& row, const OpenOptions& options) {
  check_options(row, options);
  Splits splits = row.open(row.info, options);
  if (const auto* images = dynamic_cast<const ImageDataset*>(splits.train.get()))
    splits.format = images->format();
  return splits;
}

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.push_back(row.info.name);
  return names;
}

const DatasetInfo& dataset_info(const std::string& name) { return row_named(name).info; }

Splits open_dataset(const std::string& name, const OpenOptions& options) {
  return open_row(row_named(name), options);
}

Splits open_default(const OpenOptions& options) {
  for (const std::string name : kDefaults) {
    const Row& row = row_named(name);
    const std::optional<std::string> where = row.locate(row.info, options.data_dir);
    if (!where) continue;
    TD_CHECK(options.data_dir.empty() || *where != kBuiltIn, "data-dir '", io::one_line(options.data_dir),
             "': must hold the files of mnist or fashion-mnist, in itself or in a folder of that name; found "
             "neither. Give their folder, or `data` ",
             name, " for the built-in set.");
    return open_row(row, options);
  }
  throw InternalError("no default data set is built in");
}

std::vector<DatasetStatus> list_datasets(const std::string& data_dir) {
  std::vector<DatasetStatus> list;
  for (const Row& row : rows()) {
    const std::optional<std::string> where = row.locate(row.info, data_dir);
    list.push_back({row.info, where.has_value(), where.value_or("")});
  }
  return list;
}

}  // namespace tandem::data
