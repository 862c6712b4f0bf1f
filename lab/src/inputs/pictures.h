// Image files for workloads with [images]: photographs that are on this machine, or made-up pictures, written into a folder
// with a list of them. And the batches that every driver's pipeline must make of them, made by the lab to compare with.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/src/inputs/write_inputs.h"

namespace tandem::lab {

/// The files that a workload's `data` names: all .jpg below the folder of that name in the usual places of data sets
/// (or in data_dir), in the order of their paths. If there are none, pictures are made up.
std::vector<std::string> find_photographs(const Workload& workload, const std::string& data_dir = "");

/// Which pictures a workload with [images] gets. Reads no file.
DataChoice choose_pictures(const Workload& workload, const std::string& data_dir = "");

/// The most bytes that `count` files can take.
int64_t picture_bytes(const Workload& workload, int64_t count, const std::string& data_dir = "");

/// Writes files 000000.jpg … and list.txt, with a line LABEL <tab> PATH for each, in an order drawn with the seed. If there are
/// fewer photographs than `count`, each becomes several files. Writes 1 GiB at most. Labels are the photographs' folders if there
/// are no more of them than classes. Otherwise labels are drawn, as nothing is learned from them. Returns the path of the list.
std::string write_pictures(const std::string& folder, const Workload& workload, int64_t count, uint64_t seed,
                           const std::string& data_dir = "");

struct PictureFile {
  int64_t label = 0;
  std::string path;
};
std::vector<PictureFile> read_picture_list(const std::string& list);

/// `images` of the data in `prepare`.
Json images_request(const Workload& workload, const std::string& list);

/// The sample of one file, (3, height, width) and normalised: its middle or, with `position`, what the protocol cuts out for the
/// sample at that position in training.
Tensor picture_sample(const Workload& workload, const Dims& shape, const std::string& path);
Tensor picture_sample(const Workload& workload, const Dims& shape, const std::string& path, int64_t position,
                      uint64_t seed);

/// Sums over one batch, by the names of inputs and targets.
struct BatchSums {
  struct Sum {
    double sum = 0, size = 0;  // of the numbers, and of their absolute values
  };
  std::map<std::string, Sum> of;
  double cpu_s = 0;  // processor time of this thread for making the batch
};
/// Batch number `index` of a run in training.
BatchSums picture_sums(const Workload& workload, const Network& network, const std::string& list,
                       int64_t index, int64_t batch, uint64_t seed);
/// The same for arrays, {"x": PATH, …}.
BatchSums array_sums(const Json& files, int64_t index, int64_t batch);

}  // namespace tandem::lab
