// The network that DLBench (003) trains on Penn Treebank: an embedding of 10,000 words in 128 numbers, two LSTMs of 1,024 units,
// dropout of 0.5 and a dense layer over the words, for the word that follows each. The states go from call to call
// (nn/stateful.h). 003 names a dropout before the dense layer; as Zaremba et al. (2014) do, there is one before each LSTM, too,
// without which such a network learns its training text by heart.
#include "tandem/nn/dropout.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/recurrent.h"
#include "tandem/nn/signature.h"
#include "tandem/nn/stateful.h"
#include "tandem/ops/create.h"
#include "tandem/zoo/zoo.h"

namespace tandem::zoo {
namespace {

constexpr int64_t kWords = 10000, kWidth = 128, kHidden = 1024, kLength = 35;
constexpr double kDropout = 0.5, kDeviation = 0.1;  // of the words, at the beginning

/// tokens i64 (N, length), h and c of each LSTM (1, N, hidden) -> (N, length, outputs), and the states anew.
class PtbLstm final : public nn::Model<PtbLstm>, public nn::Stateful {
 public:
  static constexpr auto arguments = nn::names("tokens", "lstm1.h", "lstm1.c", "lstm2.h", "lstm2.c");
  static constexpr auto results = nn::names("words", "lstm1.h", "lstm1.c", "lstm2.h", "lstm2.c");
  PtbLstm(int64_t words, int64_t outputs, double dropout)
      : embedding_(this, "embedding", words, kWidth),
        drop0_(this, "drop0", dropout),
        lstm1_(this, "lstm1", kWidth, kHidden),
        drop1_(this, "drop1", dropout),
        lstm2_(this, "lstm2", kHidden, kHidden),
        drop2_(this, "drop2", dropout),
        fc_(this, "fc", kHidden, outputs) {
    nn::init::normal_(embedding_.weight, 0, kDeviation);
  }
  using Model::forward;
  std::vector<Tensor> forward(const Tensor& tokens, const Tensor& h1, const Tensor& c1, const Tensor& h2,
                              const Tensor& c2) {
    const nn::LSTMResult first = lstm1_(drop0_(embedding_(tokens)), {.h = h1, .c = c1}),
                         second = lstm2_(drop1_(first.output), {.h = h2, .c = c2});
    return {fc_(drop2_(second.output)), first.h, first.c, second.h, second.c};
  }
  Named first_states(int64_t batch) const override {
    const auto state = [&] { return zeros({1, batch, kHidden}, fc_.weight.dtype(), fc_.weight.device()); };
    return {{"lstm1.h", state()}, {"lstm1.c", state()}, {"lstm2.h", state()}, {"lstm2.c", state()}};
  }

 private:
  nn::Embedding embedding_;
  nn::Dropout drop0_;
  nn::LSTM lstm1_;
  nn::Dropout drop1_;
  nn::LSTM lstm2_;
  nn::Dropout drop2_;
  nn::Linear fc_;
};

}  // namespace

std::unique_ptr<nn::Module> make_ptb_lstm(const ModelOptions& options, int64_t outputs) {
  return std::make_unique<PtbLstm>(options.vocabulary.value_or(kWords), outputs,
                                   options.dropout.value_or(kDropout));
}

ModelDescription ptb_lstm_description() {
  ModelDescription out{.name = "ptb_lstm", .input = {}, .layers = {}};
  out.inputs = {{"tokens", {kLength}, DType::i64}};
  const auto drop = [](const char* name) {
    return LayerDescription{.type = "dropout", .name = name, .settings = {{"p", kDropout}}};
  };
  const auto lstm = [](const char* name) {
    return LayerDescription{.type = "lstm", .name = name, .settings = {{"hidden", kHidden}, {"carry", true}}};
  };
  out.layers = {
      {.type = "embedding",
       .name = "embedding",
       .settings = {{"rows", kWords}, {"width", kWidth}, {"init", "normal"}, {"init_std", kDeviation}}},
      drop("drop0"),
      lstm("lstm1"),
      drop("drop1"),
      lstm("lstm2"),
      drop("drop2"),
      {.type = "linear", .name = "fc", .settings = {{"outputs", kWords}}}};
  return out;
}

}  // namespace tandem::zoo
