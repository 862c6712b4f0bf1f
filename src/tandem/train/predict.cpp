// What models make of samples, and saved runs of images.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/data/compose.h"
#include "tandem/data/image_ops.h"
#include "tandem/io/file.h"
#include "tandem/io/image.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/softmax.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"

namespace tandem {
namespace {

/// A file as a sample of the data that a run was trained on.
Tensor sample_from(const std::string& path, const data::ImageFormat& format, bool invert) {
  const Tensor image =
      io::read_image(path, {.channels = format.channels == 1 ? io::Channels::gray : io::Channels::rgb});
  Tensor pixels = data::image::resize(image, format.height, format.width);
  if (invert) pixels = sub(255, pixels);  // stays u8
  return data::image::normalise(pixels, format.mean, format.deviation);
}

/// The most probable classes of each row of logits.
void guess(const Tensor& logits, int64_t top, std::vector<Prediction>& predictions) {
  const NoGrad off;
  const int64_t classes = logits.size(1);
  const std::vector<double> shares = softmax(cast(logits, DType::f64), 1).to_vector<double>();
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double* row = shares.data() + static_cast<int64_t>(i) * classes;
    std::vector<int64_t> order(static_cast<size_t>(classes));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
    for (int64_t k = 0; k < std::min(top, classes); ++k)
      predictions[i].top.push_back({order[static_cast<size_t>(k)], row[order[static_cast<size_t>(k)]]});
  }
}

}  // namespace

Tensor predict(nn::Module& model, const data::Dataset& dataset, const PredictOptions& options) {
  check_between("batch", options.batch, 1, kMostBatch);
  return predict_all(model, dataset, options.batch, options.engine,
                     {.task = options.task, .autocast = options.autocast})
      .at(0);
}

void check(const PredictConfig& config) {
  check_data_name(config.data, config.data_dir);
  check_between("limit", config.limit, 1);
  check_between("top", config.top, 1);
  check_between("threads", config.threads, 1, kMostThreads);
  for (const int64_t index : config.indices) check_between("index", index, 0);
  TD_CHECK(config.files.empty() || (config.data.empty() && config.indices.empty()),
           "predict: takes files, or a data set and an index; got both. Leave one out.");
  TD_CHECK(!config.invert || !config.files.empty(), "invert: is for files; got none.");
}

PredictReport predict(const PredictConfig& config) {
  check(config);
  if (config.threads) set_threads(static_cast<int>(*config.threads));
  check_device(config.device);
  const SavedRun run = load_run("predict", config.folder, config.best);
  const std::unique_ptr<nn::Module> model = make_model(run, config.device);
  PredictReport report{run.model, run.path, {}, run.warnings};
  data::DatasetPtr inputs;
  if (!config.files.empty()) {
    TD_CHECK(run.format, "predict '", io::one_line(config.folder),
             "': its config.json does not say how images become inputs. Train again with this version.");
    std::vector<Tensor> samples;
    for (const std::string& file : config.files) {
      samples.push_back(sample_from(file, *run.format, config.invert));
      report.predictions.push_back({file, {}, {}});
    }
    inputs = std::make_shared<data::TensorSet>(std::vector<Tensor>{stack(samples)}, "files");
  } else {
    const OpenedData data =
        open_data(choose_model(run).info, config.data.empty() ? run.data : config.data, config.data_dir, {});
    std::vector<int64_t> indices = config.indices;
    if (indices.empty()) {
      indices.resize(static_cast<size_t>(std::min(config.limit, data.test->size())));
      std::iota(indices.begin(), indices.end(), int64_t{0});
    }
    inputs = std::make_shared<data::Subset>(data.test, indices);
    for (size_t i = 0; i < indices.size(); ++i)
      report.predictions.push_back(
          {cat(data.name, " ", indices[i]), inputs->get(static_cast<int64_t>(i)).at(1).item<int64_t>(), {}});
  }
  guess(predict(*model, *inputs, {.engine = config.engine, .autocast = run.autocast}), config.top,
        report.predictions);
  return report;
}

}  // namespace tandem
