// Deep Speech 2 (Amodei et al. 2016) with the sizes of its usual reference in PyTorch: two convolutions over frequencies and time, five
// bidirectional GRUs of 800 units whose directions are added up, batch norm between all of them, and a dense layer. What lies behind the
// end of an utterance is masked after every layer and takes no part in the statistics of batch norm: padding changes nothing.
#include "tandem/nn/conv.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/recurrent.h"
#include "tandem/nn/signature.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/zoo/model_settings.h"
#include "tandem/zoo/zoo.h"

namespace tandem::zoo {
namespace {

constexpr int64_t kBins = 161;                     // frequencies of a frame (data/log_mel.h)
constexpr int64_t kChannels = 32, kBinsLeft = 41;  // of what the convolutions give
constexpr double kMost = 20;                       // of their clipped ReLU

struct Sizes {
  int64_t layers = 5, hidden = 800;
};

/// features (N, frames, 161) and how many frames are true i64 (N) -> logits (N, steps, labels) and how many steps are true i64 (N). There is a
/// step for every two frames.
class DeepSpeech2 final : public nn::Model<DeepSpeech2> {
 public:
  static constexpr auto arguments = nn::names("features", "length");
  static constexpr auto results = nn::names("labels", "steps");
  struct Output {
    Tensor labels, steps;
  };
  DeepSpeech2(const Sizes& sizes, int64_t labels)
      : hidden_(sizes.hidden),
        conv1_(this, "conv1", 1, kChannels, {41, 11}, {.stride = {2, 2}, .padding = {20, 5}}),
        norm1_(this, "norm1", kChannels),
        conv2_(this, "conv2", kChannels, kChannels, {21, 11}, {.stride = {2, 1}, .padding = {10, 5}}),
        norm2_(this, "norm2", kChannels) {
    for (int64_t i = 1; i <= sizes.layers; ++i) {
      if (i > 1) norms_.push_back(std::make_unique<nn::BatchNorm1d>(this, str("rnn", i, "_norm"), hidden_));
      rnns_.push_back(std::make_unique<nn::GRU>(this, str("rnn", i), i == 1 ? kChannels * kBinsLeft : hidden_,
                                                hidden_, nn::RecurrentLayerOptions{.bidirectional = true}));
    }
    norms_.push_back(std::make_unique<nn::BatchNorm1d>(this, "fc_norm", hidden_));
    fc_ = std::make_unique<nn::Linear>(this, "fc", hidden_, labels, nn::Linear::Options{.bias = false});
  }
  using Model::forward;
  Output forward(const Tensor& features, const Tensor& length) {
    TD_CHECK(features.rank() == 3 && features.size(2) == kBins && length.dtype() == DType::i64 &&
                 length.shape() == Dims{features.size(0)},
             "deepspeech2: takes features (N, frames, ", kBins, ") and their lengths i64 (N); got ",
             describe(features), " and ", describe(length), ".");
    const Dim samples = features.size(0);
    const Tensor heard = within_lengths("deepspeech2", length, samples, features.size(1), 1);  // (N, frames)
    Tensor x = where(unsqueeze(heard, 2), features, 0.0);
    x = conv1_(reshape(transpose(x, 1, 2), {samples, 1, kBins, -1}));
    const Dim steps = x.size(3);
    const Tensor lengths = floor_divide(length + 1, 2);
    const Tensor within = within_lengths("deepspeech2", lengths, samples, steps, 1);  // (N, steps)
    const Tensor beside = reshape(within, {samples, 1, 1, steps});
    // Zeros come out of the norms where nothing was heard, and clipped they are zeros.
    x = hardtanh(norm1_(x, beside), 0, kMost);
    x = hardtanh(norm2_(conv2_(x), beside), 0, kMost);
    x = transpose(reshape(x, {samples, kChannels * kBinsLeft, steps}), 1, 2);
    // Each step is a row to the other norms.
    const Tensor rows = reshape(within, {samples * steps, 1});
    const auto normalised = [&](nn::BatchNorm1d& norm) {
      return reshape(norm(reshape(x, {samples * steps, hidden_}), rows), {samples, steps, hidden_});
    };
    for (size_t i = 0; i < rnns_.size(); ++i) {
      if (i > 0) x = normalised(*norms_[i - 1]);
      const Tensor both = (*rnns_[i])(x, {.lengths = lengths}).output;
      x = sum(reshape(both, {samples, steps, 2, hidden_}), {2});
    }
    return {(*fc_)(normalised(*norms_.back())), lengths};
  }

 private:
  int64_t hidden_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
  std::vector<std::unique_ptr<nn::GRU>> rnns_;
  std::vector<std::unique_ptr<nn::BatchNorm1d>>
      norms_;  // before every GRU but the first, and before the dense layer
  std::unique_ptr<nn::Linear> fc_;
};

}  // namespace

std::unique_ptr<nn::Module> make_deepspeech2(const ModelOptions& options, int64_t labels) {
  Sizes sizes;
  set_by_name("deepspeech2", options.settings,
              {{"hidden", &sizes.hidden}, {.name = "layers", .whole = &sizes.layers, .most = 64}});
  return std::make_unique<DeepSpeech2>(sizes, labels);
}

}  // namespace tandem::zoo
