// The decoder of Tacotron 2: two LSTMs and an attention that moves along the text, one frame of speech at a time.
#pragma once

#include "tandem/nn/additive_attention.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/recurrent_cells.h"
#include "tandem/zoo/tacotron2_options.h"

namespace tandem::zoo {

class Tacotron2Decoder : public nn::Module {
 public:
  Tacotron2Decoder(Module* parent, const std::string& name, const Tacotron2Options& options);

  struct Frames {
    Tensor mels;     // (N, T, mels)
    Tensor gates;    // (N, T): the logit of "this is the last frame"
    Tensor weights;  // (N, T, S) of the attention
  };
  /// Teacher forcing: frame t is made from the true one before. memory (N, S, embedding), lengths i64 (N), mels (N, T, mels).
  /// The loop is a scan (graph/scan.h).
  Frames forced(const Tensor& memory, const Tensor& lengths, const Tensor& mels);

  /// From its own frames, until every sample's gate has opened, or `longest` frames. Reads values: not for a compiled callable.
  struct Spoken {
    Frames frames;
    std::vector<int64_t> lengths;  // of each sample, its last frame included
    std::vector<bool> ended;       // whether the gate opened
  };
  Spoken spoken(const Tensor& memory, const Tensor& lengths, int64_t longest);

 private:
  struct Loop;
  Tensor prenet(const Tensor& frames) const;
  Frames projected(const Tensor& hidden, const Tensor& contexts, const Tensor& weights);

  Tacotron2Options options_;
  nn::Linear prenet1_, prenet2_;
  nn::LSTMCell attention_rnn_;
  nn::LocationAttention attention_;
  nn::LSTMCell decoder_rnn_;
  nn::Linear projection_, gate_;
};

}  // namespace tandem::zoo
