// The network that DLBench (003) trains to translate: an encoder of an embedding of 256 numbers and an LSTM of 256 units, whose last
// state is the first one of a decoder of the same sizes, and a dense layer over the words.
#include "tandem/nn/embedding.h"
#include "tandem/nn/encoder_decoder.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/recurrent.h"
#include "tandem/nn/signature.h"
#include "tandem/ops/shape.h"
#include "tandem/zoo/layer_types.h"
#include "tandem/zoo/model_settings.h"
#include "tandem/zoo/zoo.h"

namespace tandem::zoo {
namespace {

constexpr int64_t kWords = 10000, kHidden = 256;
constexpr double kDeviation = 0.1, kForgetBias = 1;  // at the beginning: see imdb_lstm.cpp

/// source i64 (N, S), how many are true i64 (N), what stands before each target i64 (N, T) -> (N, T, outputs).
class Seq2Seq final : public nn::Model<Seq2Seq>, public nn::EncoderDecoder {
 public:
  static constexpr auto arguments = nn::names("source", "length", "before");
  static constexpr auto results = nn::names("words");
  Seq2Seq(int64_t words, int64_t outputs, int64_t hidden)
      : encoder_embedding_(this, "encoder_embedding", words, hidden),
        encoder_(this, "encoder", hidden, hidden),
        decoder_embedding_(this, "decoder_embedding", outputs, hidden),
        decoder_(this, "decoder", hidden, hidden),
        fc_(this, "fc", hidden, outputs) {
    for (nn::Embedding* embedding : {&encoder_embedding_, &decoder_embedding_})
      nn::init::normal_(embedding->weight, 0, kDeviation);
    for (nn::LSTM* lstm : {&encoder_, &decoder_}) set_forget_bias(*lstm, kForgetBias);
  }
  using Model::forward;
  /// `before`: what stands before each target (N, T).
  Tensor forward(const Tensor& source, const Tensor& length, const Tensor& before) {
    const nn::LSTMResult state = encoder_(encoder_embedding_(source), {.lengths = length});
    return fc_(decoder_(decoder_embedding_(before), {.h = state.h, .c = state.c}).output);
  }
  std::vector<Tensor> read(const Tensor& source, const Tensor& lengths) override {
    const nn::LSTMResult state = encoder_(encoder_embedding_(source), {.lengths = lengths});
    return {select(state.h, 0, 0), select(state.c, 0, 0)};
  }
  Written write(const Tensor& tokens, const std::vector<Tensor>& state) override {
    const nn::LSTMResult next = decoder_(decoder_embedding_(unsqueeze(tokens, 1)),
                                         {.h = unsqueeze(state.at(0), 0), .c = unsqueeze(state.at(1), 0)});
    return {fc_(select(next.output, 1, 0)), {select(next.h, 0, 0), select(next.c, 0, 0)}};
  }

 private:
  nn::Embedding encoder_embedding_;
  nn::LSTM encoder_;
  nn::Embedding decoder_embedding_;
  nn::LSTM decoder_;
  nn::Linear fc_;
};

}  // namespace

std::unique_ptr<nn::Module> make_seq2seq(const ModelOptions& options, int64_t outputs) {
  int64_t hidden = kHidden;
  set_by_name("seq2seq", options.settings, {{"hidden", &hidden}});
  return std::make_unique<Seq2Seq>(options.vocabulary.value_or(kWords), outputs, hidden);
}

}  // namespace tandem::zoo
