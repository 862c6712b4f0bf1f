#include "tandem/zoo/tacotron2.h"

#include <cmath>

#include "tandem/core/tape.h"
#include "tandem/nn/init.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/zoo/model_settings.h"
#include "tandem/zoo/zoo.h"

namespace tandem::zoo {
namespace {

constexpr const char* kName = "tacotron2";
constexpr int64_t kMostSize = 1 << 16, kMostLayers = 64, kMostFrames = 1'000'000;

/// What may be set by name.
struct Size {
  const char* name;
  int64_t Tacotron2Options::*member;
  int64_t most = kMostSize;
};
constexpr Size kSizes[] = {{"mels", &Tacotron2Options::mels},
                           {"embedding", &Tacotron2Options::embedding},
                           {"encoder_layers", &Tacotron2Options::encoder_layers, kMostLayers},
                           {"encoder_kernel", &Tacotron2Options::encoder_kernel},
                           {"prenet", &Tacotron2Options::prenet},
                           {"attention_rnn", &Tacotron2Options::attention_rnn},
                           {"decoder_rnn", &Tacotron2Options::decoder_rnn},
                           {"attention", &Tacotron2Options::attention},
                           {"filters", &Tacotron2Options::filters},
                           {"location_kernel", &Tacotron2Options::location_kernel},
                           {"postnet", &Tacotron2Options::postnet},
                           {"postnet_layers", &Tacotron2Options::postnet_layers, kMostLayers},
                           {"postnet_kernel", &Tacotron2Options::postnet_kernel},
                           {"longest", &Tacotron2Options::longest, kMostFrames}};
struct Chance {
  const char* name;
  double Tacotron2Options::*member;
};
constexpr Chance kChances[] = {{"conv_dropout", &Tacotron2Options::conv_dropout},
                               {"prenet_dropout", &Tacotron2Options::prenet_dropout},
                               {"zoneout", &Tacotron2Options::zoneout},
                               {"decoder_dropout", &Tacotron2Options::decoder_dropout}};

/// x (N, C, time), zeros where `within` (N, 1, time) is false.
Tensor cleared(const Tensor& x, const Tensor& within) { return where(within, x, 0.0); }

}  // namespace

void check(const Tacotron2Options& options) {
  for (const Size& size : kSizes) {
    const int64_t value = options.*size.member;
    TD_CHECK(value >= 1 && value <= size.most, kName, ": ", size.name, " must be a whole number from 1 to ",
             size.most, "; got ", value, ".");
    TD_CHECK(value % 2 == 1 || !std::string(size.name).ends_with("kernel"), kName, ": ", size.name,
             " must be odd, so that it has a middle; got ", value, ".");
  }
  for (const Chance& chance : kChances) {
    const double value = options.*chance.member;
    TD_CHECK(value >= 0 && value < 1, kName, ": ", chance.name, " must be at least 0 and below 1; got ",
             value, ".");
  }
  TD_CHECK(options.embedding % 2 == 0, kName,
           ": embedding must be even, as each direction of the encoder's LSTM gives one half of it; got ",
           options.embedding, ".");
  TD_CHECK(options.symbols >= 1, kName, ": there must be at least one symbol; got ", options.symbols, ".");
}

void set_by_name(Tacotron2Options& options, std::span<const std::pair<std::string, double>> settings) {
  std::vector<NamedNumber> known;
  for (const Size& size : kSizes)
    known.push_back({.name = size.name, .whole = &(options.*size.member), .most = size.most});
  for (const Chance& chance : kChances)
    known.push_back({.name = chance.name, .whole = nullptr, .probability = &(options.*chance.member)});
  set_by_name(kName, settings, known);
  check(options);
}

TimeConv::TimeConv(Module* parent, const std::string& name, int64_t in, int64_t out, int64_t kernel,
                   double gain)
    : Module(parent, name),
      conv_(this, "conv", in, out, kernel, {.padding = (kernel - 1) / 2}),
      norm_(this, "norm", out) {
  nn::init::xavier_uniform_(conv_.weight, gain);
}

Tacotron2::Tacotron2(const Tacotron2Options& options)
    : options_((check(options), options)),
      embedding_(this, "embedding", options.symbols, options.embedding),
      encoder_(this, "encoder"),
      lstm_(this, "lstm", options.embedding, options.embedding / 2, {.bidirectional = true}),
      decoder_(this, "decoder", options),
      postnet_(this, "postnet") {
  using nn::init::Nonlinearity;
  const double relu_gain = nn::init::calculate_gain(Nonlinearity::relu),
               tanh_gain = nn::init::calculate_gain(Nonlinearity::tanh);
  for (int64_t i = 0; i < options.encoder_layers; ++i)
    encoder_.add(nn::make<TimeConv>(options.embedding, options.embedding, options.encoder_kernel, relu_gain));
  for (int64_t i = 0; i < options.postnet_layers; ++i) {
    const bool is_first = i == 0, is_last = i + 1 == options.postnet_layers;
    postnet_.add(nn::make<TimeConv>(is_first ? options.mels : options.postnet,
                                    is_last ? options.mels : options.postnet, options.postnet_kernel,
                                    is_last ? 1.0 : tanh_gain));
  }
  const double bound = std::sqrt(6.0 / static_cast<double>(options.symbols + options.embedding));
  nn::init::uniform_(embedding_.weight, -bound, bound);
}

Tensor Tacotron2::encoded(const Tensor& characters, const Tensor& lengths) {
  const Tensor within =
      unsqueeze(within_lengths(kName, lengths, characters.size(0), characters.size(1), 1), 1);  // (N, 1, S)
  Tensor x = cleared(transpose(embedding_(characters), 1, 2), within);
  for (size_t i = 0; i < encoder_.size(); ++i) {
    x = relu(encoder_[static_cast<int64_t>(i)](x));
    if (training() && options_.conv_dropout > 0) x = dropout(x, options_.conv_dropout);
    x = cleared(x, within);
  }
  return lstm_(transpose(x, 1, 2), {.lengths = lengths}).output;
}

/// mels (N, T, mels) and what the post-net adds; within (N, 1, T).
Tensor Tacotron2::corrected(const Tensor& mels, const Tensor& within) {
  const Tensor before = cleared(transpose(mels, 1, 2), within);
  Tensor x = before;
  for (size_t i = 0; i < postnet_.size(); ++i) {
    x = postnet_[static_cast<int64_t>(i)](x);
    if (i + 1 < postnet_.size()) x = tanh(x);
    if (training() && options_.conv_dropout > 0) x = dropout(x, options_.conv_dropout);
    x = cleared(x, within);
  }
  return transpose(before + x, 1, 2);
}

Tacotron2::Output Tacotron2::forward(const Tensor& characters, const Tensor& length, const Tensor& mels,
                                     const Tensor& frames) {
  TD_CHECK(characters.rank() == 2 && mels.rank() == 3 && mels.size(0) == characters.size(0) &&
               characters.size(1) >= 1 && mels.size(1) >= 1 && mels.size(2) == options_.mels,
           kName, ": characters must be (N, S) and frames (N, T, ", options_.mels,
           ") of as many samples; got ", characters.shape(), " and ", mels.shape(), ".");
  const Tensor within =
      unsqueeze(within_lengths(kName, frames, mels.size(0), mels.size(1), 1), 1);  // (N, 1, T)
  const Tensor memory = encoded(characters, length);
  const Tacotron2Decoder::Frames made = decoder_.forced(memory, length, mels);
  return {made.mels, corrected(made.mels, within), made.gates, made.weights};
}

Tacotron2::Speech Tacotron2::speak(const Tensor& characters, const Tensor& lengths) {
  const NoGrad off;
  TD_CHECK(!training(), kName, ": speaks in evaluation mode; it is training. Call eval().");
  TD_CHECK(characters.rank() == 2 && characters.size(0) >= 1 && characters.size(1) >= 1, kName,
           ": characters must be (N, S) of at least one text; got ", characters.shape(), ".");
  const Tensor memory = encoded(characters, lengths);
  Tacotron2Decoder::Spoken made = decoder_.spoken(memory, lengths, options_.longest);
  const Dim n = characters.size(0), frames = made.frames.mels.size(1);
  const Tensor within =
      unsqueeze(within_lengths(kName, from_vector(made.lengths, {n}, characters.device()), n, frames, 1), 1);
  return {.mels = corrected(made.frames.mels, within),
          .weights = made.frames.weights,
          .lengths = std::move(made.lengths),
          .ended = std::move(made.ended)};
}

std::unique_ptr<nn::Module> make_tacotron2(const ModelOptions& options, int64_t /*outputs*/) {
  Tacotron2Options sizes;
  sizes.symbols = options.vocabulary.value_or(sizes.symbols);
  if (options.dropout) sizes.conv_dropout = sizes.prenet_dropout = *options.dropout;
  set_by_name(sizes, options.settings);
  return std::make_unique<Tacotron2>(sizes);
}

}  // namespace tandem::zoo
