// Google's neural machine translation (Wu et al. 2016), as MLPerf's reference has it: LSTMs of 1,024 units, four to read and four to
// write. The first one reads in both directions; from the third on, the input is added to the output. The first LSTM of the decoder
// asks an additive attention for a mean of what was read, which every later one takes beside its input. Since that first LSTM does not
// take the mean of the step before, as in the reference, all steps of a training batch run at once.
#include "tandem/nn/additive_attention.h"
#include "tandem/nn/dropout.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/encoder_decoder.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/recurrent.h"
#include "tandem/nn/signature.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/zoo/model_settings.h"
#include "tandem/zoo/zoo.h"

namespace tandem::zoo {
namespace {

constexpr int64_t kWords = 32000, kHidden = 1024, kLayers = 4;
constexpr double kDropout = 0.2, kBound = 0.1;  // of all weights, at the beginning

/// source i64 (N, S), how many are true i64 (N) -> (N, S, hidden).
class Encoder final : public nn::Module {
 public:
  Encoder(Module* parent, int64_t words, int64_t hidden, int64_t layers, double dropout)
      : Module(parent, "encoder"),
        embedding_(this, "embedding", words, hidden),
        drop_(this, "drop", dropout) {
    for (int64_t i = 0; i < layers; ++i)
      lstms_.push_back(std::make_unique<nn::LSTM>(this, str("lstm", i), i == 1 ? 2 * hidden : hidden, hidden,
                                                  nn::LSTM::Options{.bidirectional = i == 0}));
  }
  Tensor operator()(const Tensor& source, const Tensor& lengths) {
    Tensor x = embedding_(source);
    for (size_t i = 0; i < lstms_.size(); ++i) {
      const Tensor y = (*lstms_[i])(drop_(x), {.lengths = lengths}).output;
      x = i >= 2 ? y + x : y;
    }
    return x;
  }

 private:
  nn::Embedding embedding_;
  nn::Dropout drop_;
  std::vector<std::unique_ptr<nn::LSTM>> lstms_;
};

class Decoder final : public nn::Module {
 public:
  Decoder(Module* parent, int64_t words, int64_t hidden, int64_t layers, double dropout)
      : Module(parent, "decoder"),
        embedding_(this, "embedding", words, hidden),
        drop_(this, "drop", dropout),
        attention_(this, "attention", hidden, hidden, hidden),
        fc_(this, "fc", hidden, words) {
    for (int64_t i = 0; i < layers; ++i)
      lstms_.push_back(
          std::make_unique<nn::LSTM>(this, str("lstm", i), i == 0 ? hidden : 2 * hidden, hidden));
  }
  Tensor keys(const Tensor& memory) { return attention_.memory_layer(memory); }
  /// before i64 (N, T), memory (N, S, hidden) -> logits (N, T, words). states: h and c of each LSTM, (1, N, hidden), or none; then the new
  /// ones take their place.
  Tensor operator()(const Tensor& before, const Tensor& memory, const Tensor& lengths, const Tensor& keys,
                    std::vector<Tensor>* states = nullptr) {
    const auto run = [&](size_t i, const Tensor& x) {
      nn::LSTMInputs inputs;
      if (states) inputs = {.h = (*states)[2 * i], .c = (*states)[2 * i + 1]};
      const nn::LSTMResult result = (*lstms_[i])(drop_(x), inputs);
      if (states) {
        (*states)[2 * i] = result.h;
        (*states)[2 * i + 1] = result.c;
      }
      return result.output;
    };
    Tensor x = run(0, embedding_(before));
    const Tensor context = attention_(x, memory, lengths, keys).context;
    for (size_t i = 1; i < lstms_.size(); ++i) {
      const Tensor y = run(i, concat({x, context}, 2));
      x = i >= 2 ? y + x : y;
    }
    return fc_(x);
  }
  size_t layers() const { return lstms_.size(); }

 private:
  nn::Embedding embedding_;
  nn::Dropout drop_;
  nn::AdditiveAttention attention_;
  std::vector<std::unique_ptr<nn::LSTM>> lstms_;
  nn::Linear fc_;
};

/// source i64 (N, S), how many are true i64 (N), what stands before each target i64 (N, T) -> (N, T, outputs).
class Gnmt final : public nn::Model<Gnmt>, public nn::EncoderDecoder {
 public:
  static constexpr auto arguments = nn::names("source", "length", "before");
  static constexpr auto results = nn::names("words");
  Gnmt(int64_t words, int64_t outputs, int64_t hidden, int64_t layers, double dropout)
      : hidden_(hidden),
        encoder_(this, words, hidden, layers, dropout),
        decoder_(this, outputs, hidden, layers, dropout) {
    for (const Tensor& parameter : parameters()) nn::init::uniform_(parameter, -kBound, kBound);
  }
  using Model::forward;
  Tensor forward(const Tensor& source, const Tensor& length, const Tensor& before) {
    const Tensor memory = encoder_(source, length);
    return decoder_(before, memory, length, decoder_.keys(memory));
  }
  /// The memory, its lengths and keys, and the states of the LSTMs.
  std::vector<Tensor> read(const Tensor& source, const Tensor& lengths) override {
    const Tensor memory = encoder_(source, lengths);
    std::vector<Tensor> state = {memory, lengths, decoder_.keys(memory)};
    for (size_t i = 0; i < 2 * decoder_.layers(); ++i)
      state.push_back(zeros({source.size(0), hidden_}, memory.dtype(), memory.device()));
    return state;
  }
  Written write(const Tensor& tokens, const std::vector<Tensor>& state) override {
    std::vector<Tensor> states;
    for (size_t i = 3; i < state.size(); ++i) states.push_back(unsqueeze(state[i], 0));
    const Tensor logits = decoder_(unsqueeze(tokens, 1), state.at(0), state.at(1), state.at(2), &states);
    std::vector<Tensor> after(state.begin(), state.begin() + 3);
    for (const Tensor& s : states) after.push_back(select(s, 0, 0));
    return {select(logits, 1, 0), std::move(after)};
  }

 private:
  int64_t hidden_;
  Encoder encoder_;
  Decoder decoder_;
};

}  // namespace

std::unique_ptr<nn::Module> make_gnmt(const ModelOptions& options, int64_t outputs) {
  int64_t hidden = kHidden, layers = kLayers;
  set_by_name("gnmt", options.settings,
              {{"hidden", &hidden}, {.name = "layers", .whole = &layers, .least = 2, .most = 64}});
  return std::make_unique<Gnmt>(options.vocabulary.value_or(kWords), outputs, hidden, layers,
                                options.dropout.value_or(kDropout));
}

}  // namespace tandem::zoo
