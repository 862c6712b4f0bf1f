// Chooses and writes data, and writes weights.
#include "lab/src/inputs/write_inputs.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "lab/src/inputs/made_up.h"
#include "lab/src/inputs/pictures.h"
#include "lab/src/inputs/texts.h"
#include "tandem/tandem.h"

namespace tandem::lab {
namespace {

constexpr int64_t kPictures = 256;  // at most so many files become the arrays of a workload with [images]

/// A part of the data: train or test.
struct Source {
  /// The samples with these indices as one batch: the network's inputs, then the targets.
  std::function<std::vector<Tensor>(std::span<const int64_t>)> batch;
  int64_t size = 0;
  bool in_order = false;  // samples are written in their order, not in a drawn one
};

Source from_set(const data::DatasetPtr& set) {
  return {[set](std::span<const int64_t> indices) { return set->batch(indices); }, set->size()};
}

Source from_made_up(std::shared_ptr<const MadeUp> samples, int64_t size) {
  return {[samples](std::span<const int64_t> indices) {
            std::vector<std::vector<Tensor>> columns;
            for (const int64_t i : indices) {
              const std::vector<Tensor> sample = samples->get(i);
              columns.resize(sample.size());
              for (size_t k = 0; k < sample.size(); ++k) columns[k].push_back(sample[k]);
            }
            std::vector<Tensor> out;
            for (const std::vector<Tensor>& column : columns) out.push_back(stack(column, 0));
            return out;
          },
          size};
}

/// `size` samples: the middle of each file of the list, which is repeated.
Source from_pictures(const Workload& workload, const Network& network, const std::string& list,
                     int64_t size) {
  return {[files = read_picture_list(list), workload,
           shape = network.line.inputs[0].shape](std::span<const int64_t> indices) {
            std::vector<Tensor> pictures;
            std::vector<int64_t> labels;
            for (const int64_t i : indices) {
              const PictureFile& file = files[static_cast<size_t>(i) % files.size()];
              pictures.push_back(picture_sample(workload, shape, file.path));
              labels.push_back(file.label);
            }
            const auto count = static_cast<Dim>(labels.size());
            return std::vector<Tensor>{stack(pictures, 0), from_vector(labels, {count})};
          },
          size};
}

Source from_texts(const TextUse& use, const Workload& workload, const data::DatasetPtr& set) {
  return {[use, workload, set](std::span<const int64_t> indices) {
            return text_batch(use, workload, *set, workload.batch, indices);
          },
          text_samples(use, *set, workload.batch), use.kind == TextUse::Kind::continued};
}

/// Writes at most `samples` samples and returns how many it wrote. They are converted in pieces.
int64_t write_part(const Source& source, int64_t samples, uint64_t seed,
                   const std::vector<std::string>& paths) {
  const int64_t count = std::min(samples, source.size);
  std::vector<int64_t> order = data::shuffled_order(source.size, seed, 0);
  if (source.in_order) std::iota(order.begin(), order.end(), 0);
  std::vector<Tensor> whole;
  constexpr int64_t kPiece = 256;
  const NoGrad off;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, count);
    const std::vector<Tensor> batch =
        source.batch(std::span(order).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    TD_ASSERT(batch.size() == paths.size(), "a sample has a tensor for each name");
    for (size_t k = 0; k < paths.size(); ++k) {
      if (begin == 0) {
        Dims shape = batch[k].shape();
        shape[0] = count;
        whole.push_back(empty(shape, batch[k].dtype()));
      }
      assign(slice(whole[k], 0, begin, end), batch[k]);
    }
  }
  for (size_t k = 0; k < paths.size(); ++k) io::save_npy(paths[k], whole[k]);
  return count;
}

std::string sizes_text(const Dims& shape) {
  std::string text;
  for (const Dim size : shape) text += str(text.empty() ? "" : "x", size);
  return text;
}

}  // namespace

void write_weights(const std::string& path, const Network& network, uint64_t seed) {
  manual_seed(seed);
  io::save_safetensors(path, network.make()->state(),
                       {{"network", network.line.name}, {"seed", std::to_string(seed)}});
}

DataChoice choose_data(const Workload& workload, const Network& network, const std::string& data_dir) {
  if (workload.images) return choose_pictures(workload, data_dir);
  const std::string& wanted = workload.data;
  const auto& inputs = network.line.inputs;
  const bool is_synthetic = wanted.starts_with("synthetic");
  if (text_use(workload, network)) {
    if (is_synthetic) return {"synthetic", false};
    for (const data::DatasetStatus& row : data::list_datasets(data_dir))
      if (row.info.name == wanted)
        return row.found ? DataChoice{wanted, true}
                         : DataChoice{"synthetic", false,
                                      str("the files of ", wanted, " are not here. ", row.info.how_to_get)};
  }
  // Other data sets have one input and one label. For a network with other inputs or targets, all samples are made up.
  if (inputs.size() != 1 || workload.targets.size() != 1 || workload.classes() == 0)
    return {"synthetic", false,
            is_synthetic
                ? ""
                : str("a data set has one input and one label for each sample, and this workload others.")};
  const Dims& sizes = inputs[0].shape;
  const int64_t classes = workload.classes();
  std::string why =
      str("Tandem has no data set '", io::one_line(wanted, 80), "'. 'tandem datasets' lists those it has.");
  std::string name = "synthetic-" + sizes_text(sizes);
  for (const data::DatasetStatus& row : data::list_datasets(data_dir)) {
    const bool fits = row.info.sample_shape == sizes && row.info.classes <= classes;
    if (row.info.name == wanted && fits && row.found) return {wanted, !is_synthetic};
    if (row.info.name == wanted && !fits)
      why = str("the samples of ", wanted, " are ", row.info.sample_shape, " of ", row.info.classes,
                " classes, and these are ", sizes, " of ", classes, ".");
    else if (row.info.name == wanted)
      why = str("the files of ", wanted, " are not here. ", row.info.how_to_get);
    if (row.info.name == "synthetic-" + wanted && fits && row.found) name = row.info.name;
  }
  // A workload that asks for made-up samples gets what it asks for.
  return {name, false, is_synthetic ? "" : why};
}

DataFolder write_data(const std::string& folder, const Workload& workload, const Network& network,
                      int64_t train_samples, int64_t test_samples, uint64_t seed,
                      const std::string& data_dir) {
  TD_CHECK(train_samples >= 1 && test_samples >= 0, "data: must have at least one sample to train on; got ",
           train_samples, " and ", test_samples, " to test on.");
  const DataChoice choice = choose_data(workload, network, data_dir);
  DataFolder out{choice.name, "built in", choice.is_real, 0, 0, Json::object()};
  Source train, test;
  const std::vector<std::string> sets = data::dataset_names();
  if (workload.images) {
    train = from_pictures(
        workload, network,
        write_pictures(folder + "/pictures", workload,
                       std::min(kPictures, std::max(train_samples, test_samples)), seed, data_dir),
        train_samples);
    test = train;
  } else if (const auto use = text_use(workload, network); use && choice.is_real) {
    const data::Splits splits = open_texts(*use, choice.name, data_dir);
    train = from_texts(*use, workload, splits.train);
    test = from_texts(*use, workload, splits.test);
    out.where = splits.where;
  } else if (std::find(sets.begin(), sets.end(), choice.name) != sets.end()) {
    const data::Splits splits = data::open_dataset(choice.name, {.data_dir = choice.is_real ? data_dir : ""});
    train = from_set(splits.train);
    test = from_set(splits.test);
    out.where = splits.where;
  } else {
    train = from_made_up(make_up(workload, network, seed, false), train_samples);
    test = from_made_up(make_up(workload, network, seed, true), std::max<int64_t>(test_samples, 1));
  }
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* part, const Source& source, int64_t samples) {
    std::vector<std::string> paths;
    const auto add = [&](const std::string& name) {
      paths.push_back(str(folder, "/", part, "_", name, ".npy"));
      out.files[part][name] = paths.back();
    };
    for (const zoo::InputDescription& input : network.line.inputs) add(input.name);
    for (const auto& [name, rule] : workload.targets.items()) add(name);
    return write_part(source, samples, seed, paths);
  };
  out.train = write("train", train, train_samples);
  if (test_samples > 0) out.test = write("test", test, test_samples);
  return out;
}

}  // namespace tandem::lab
