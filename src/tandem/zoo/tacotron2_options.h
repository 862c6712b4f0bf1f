// The sizes of Tacotron 2, and their names on the command line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::zoo {

/// Those of NVIDIA's public model, with the zoneout of the paper (Shen et al. 2018).
struct Tacotron2Options {
  int64_t symbols = 40;     ///< rows of the embedding
  int64_t mels = 80;        ///< numbers of a frame
  int64_t embedding = 512;  ///< of a symbol, and of each step of the encoder's output; even
  int64_t encoder_layers = 3, encoder_kernel = 5;
  int64_t prenet = 256;
  int64_t attention_rnn = 1024, decoder_rnn = 1024;
  int64_t attention = 128, filters = 32, location_kernel = 31;
  int64_t postnet = 512, postnet_layers = 5, postnet_kernel = 5;
  double conv_dropout = 0.5;    ///< of the encoder's and the post-net's convolutions
  double prenet_dropout = 0.5;  ///< while training and after: the paper wants it so
  double zoneout = 0.1;         ///< of both LSTMs of the decoder
  double decoder_dropout = 0;   ///< on their h: what implementations that lack zoneout do, 0.1 with zoneout 0
  int64_t longest = 1000;       ///< frames that are spoken at most
};

/// Throws Error for a size below 1, an even kernel and a probability outside of 0 … 1, by its name.
void check(const Tacotron2Options& options);

/// Sets members by their names, "embedding" and so on. Throws Error for an unknown name, with the list and the nearest one, and
/// for a number that cannot be.
void set_by_name(Tacotron2Options& options, std::span<const std::pair<std::string, double>> settings);

}  // namespace tandem::zoo
