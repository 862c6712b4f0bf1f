// Tacotron 2 (Shen et al. 2018): characters in, frames of a mel spectrogram out. An encoder of convolutions and a bidirectional LSTM,
// a decoder that attends to it frame by frame (tacotron2_decoder.h), and a post-net of convolutions that corrects the frames.
#pragma once

#include <vector>

#include "tandem/nn/containers.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/recurrent.h"
#include "tandem/nn/signature.h"
#include "tandem/zoo/tacotron2_decoder.h"

namespace tandem::zoo {

/// A convolution over time that keeps the length, and batch norm.
class TimeConv : public nn::Module {
 public:
  TimeConv(Module* parent, const std::string& name, int64_t in, int64_t out, int64_t kernel, double gain);
  Tensor forward(const Tensor& x) override { return norm_(conv_(x)); }

 private:
  nn::Conv1d conv_;
  nn::BatchNorm1d norm_;
};

/// What is beyond a text's or a clip's length is zero before every convolution, and the attention does not read it: in evaluation mode
/// padding changes nothing. (While training it is part of the statistics of the batch norms.)
class Tacotron2 final : public nn::Model<Tacotron2> {
 public:
  static constexpr auto arguments = nn::names("characters", "length", "mels", "frames");
  static constexpr auto results = nn::names("first_mels", "mels", "gates", "attention");
  explicit Tacotron2(const Tacotron2Options& options);
  using Model::forward;
  struct Output {
    Tensor first_mels, mels;  // before the post-net and after it (N, T, mels)
    Tensor gates;             // logits (N, T)
    Tensor attention;         // weights (N, T, S)
  };
  /// characters i64 (N, S), how many are true i64 (N), mels (N, T, mels), how many frames are true i64 (N).
  Output forward(const Tensor& characters, const Tensor& length, const Tensor& mels, const Tensor& frames);

  struct Speech {
    Tensor mels;                   // (N, T, mels), after the post-net; zeros beyond a sample's length
    Tensor weights;                // (N, T, S)
    std::vector<int64_t> lengths;  // frames of each sample
    std::vector<bool> ended;       // whether its gate opened, in place of the limit of options().longest
  };
  /// What it makes of texts, in evaluation mode. Reads values: not for a compiled callable.
  Speech speak(const Tensor& characters, const Tensor& lengths);
  const Tacotron2Options& options() const { return options_; }

 private:
  Tensor encoded(const Tensor& characters, const Tensor& lengths);
  Tensor corrected(const Tensor& mels, const Tensor& within);

  Tacotron2Options options_;
  nn::Embedding embedding_;
  nn::ModuleList encoder_;
  nn::LSTM lstm_;
  Tacotron2Decoder decoder_;
  nn::ModuleList postnet_;
};

}  // namespace tandem::zoo
