// What models make of samples, and saved runs of images.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/data/image.h"
#include "tandem/io/file.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/softmax.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"

namespace tandem {
namespace {

/// Grey from colour by the weights of ITU-R BT.601, colour from grey by copying.
std::vector<double> with_channels(const Tensor& image, int64_t channels) {
  const std::vector<uint8_t> in = image.to_vector<uint8_t>();
  const size_t plane = in.size() / static_cast<size_t>(image.size(0));
  std::vector<double> out;
  out.reserve(plane * static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c)
    for (size_t i = 0; i < plane; ++i) {
      if (image.size(0) == channels)
        out.push_back(in[static_cast<size_t>(c) * plane + i]);
      else if (channels == 1)
        out.push_back(0.299 * in[i] + 0.587 * in[plane + i] + 0.114 * in[2 * plane + i]);
      else
        out.push_back(in[i]);
    }
  return out;
}

/// How much of each pixel of a row of `from` a pixel of a row of `to` is made of: a triangle as wide as the pixels are
/// apart, so that small images are interpolated and large ones averaged.
struct Share {
  int64_t first = 0;
  std::vector<double> weights;
};
std::vector<Share> shares(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
  std::vector<Share> out;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale - 0.5;
    Share share{std::max<int64_t>(0, static_cast<int64_t>(std::ceil(centre - reach))), {}};
    const auto last = std::min<int64_t>(from - 1, static_cast<int64_t>(std::floor(centre + reach)));
    double total = 0;
    for (int64_t k = share.first; k <= last; ++k) {
      share.weights.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(k) - centre) / reach));
      total += share.weights.back();
    }
    for (double& weight : share.weights) weight /= total;
    out.push_back(std::move(share));
  }
  return out;
}

/// A file as a sample of the data that a run was trained on.
std::vector<float> sample_from(const std::string& path, const data::ImageFormat& format, bool invert) {
  const Tensor image = data::read_image(path);
  const int64_t from_h = image.size(1), from_w = image.size(2);
  const std::vector<double> planes = with_channels(image, format.channels);
  const std::vector<Share> rows = shares(from_h, format.height), columns = shares(from_w, format.width);
  std::vector<float> out;
  for (int64_t c = 0; c < format.channels; ++c)
    for (const Share& row : rows)
      for (const Share& column : columns) {
        double value = 0;
        for (size_t y = 0; y < row.weights.size(); ++y)
          for (size_t x = 0; x < column.weights.size(); ++x)
            value += row.weights[y] * column.weights[x] *
                     planes[static_cast<size_t>((c * from_h + row.first + static_cast<int64_t>(y)) * from_w +
                                                column.first + static_cast<int64_t>(x))];
        const double byte = std::round(invert ? 255 - value : value);
        const auto channel = static_cast<size_t>(c);
        out.push_back((static_cast<float>(byte) / 255.0f - format.mean[channel]) / format.deviation[channel]);
      }
  return out;
}

/// Inputs held in memory, without targets.
class Inputs final : public data::Dataset {
 public:
  Inputs(std::vector<std::vector<float>> samples, const data::ImageFormat& format)
      : samples_(std::move(samples)), shape_{format.channels, format.height, format.width} {}
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  std::vector<Tensor> get(int64_t i) const override {
    data::check_index("get", i, size());
    return {from_vector(samples_[static_cast<size_t>(i)], shape_)};
  }

 private:
  std::vector<std::vector<float>> samples_;
  Dims shape_;
};

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
  return predict_all(model, dataset, options.batch, options.engine);
}

void check(const PredictConfig& config) {
  check_data_name(config.data, config.data_dir);
  check_at_least("limit", config.limit, 1);
  check_at_least("top", config.top, 1);
  check_at_least("threads", config.threads, 1);
  for (const int64_t index : config.indices) check_at_least("index", index, 0);
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
    std::vector<std::vector<float>> samples;
    for (const std::string& file : config.files) {
      samples.push_back(sample_from(file, *run.format, config.invert));
      report.predictions.push_back({file, {}, {}});
    }
    inputs = std::make_shared<Inputs>(std::move(samples), *run.format);
  } else {
    const OpenedData data =
        open_data(run.model, config.data.empty() ? run.data : config.data, config.data_dir, {});
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
  guess(predict(*model, *inputs, {.engine = config.engine}), config.top, report.predictions);
  return report;
}

}  // namespace tandem
