// The network that DLBench (003) trains on IMDB reviews: an embedding of 5,000 words in 32 numbers, an LSTM of 100 units that
// stops at the true end of each review, and a dense layer on its last state. Of two classes it gives one number, which a
// sigmoid makes the probability of the second (train/tasks/text_classification.cpp).
#include "tandem/nn/embedding.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/recurrent.h"
#include "tandem/nn/signature.h"
#include "tandem/ops/shape.h"
#include "tandem/zoo/layer_types.h"
#include "tandem/zoo/zoo.h"

namespace tandem::zoo {
namespace {

constexpr int64_t kWords = 5000, kWidth = 32, kHidden = 100, kLength = 500;
// What the weights begin with. Small words and gates that remember let the last state depend on the first words, without which
// the network learns nothing for epochs.
constexpr double kDeviation = 0.1, kForgetBias = 1;

/// tokens i64 (N, length), how many are true i64 (N) -> (N, outputs).
class ImdbLstm final : public nn::Model<ImdbLstm> {
 public:
  static constexpr auto arguments = nn::names("tokens", "length");
  static constexpr auto results = nn::names("classes");
  ImdbLstm(int64_t words, int64_t outputs)
      : embedding_(this, "embedding", words, kWidth),
        lstm_(this, "lstm", kWidth, kHidden),
        fc_(this, "fc", kHidden, outputs) {
    nn::init::normal_(embedding_.weight, 0, kDeviation);
    set_forget_bias(lstm_, kForgetBias);
  }
  using Model::forward;
  Tensor forward(const Tensor& tokens, const Tensor& length) {
    return fc_(select(lstm_(embedding_(tokens), {.lengths = length}).h, 0, 0));
  }

 private:
  nn::Embedding embedding_;
  nn::LSTM lstm_;
  nn::Linear fc_;
};

}  // namespace

std::unique_ptr<nn::Module> make_imdb_lstm(const ModelOptions& options, int64_t outputs) {
  return std::make_unique<ImdbLstm>(options.vocabulary.value_or(kWords), outputs);
}

ModelDescription imdb_lstm_description() {
  ModelDescription out{.name = "imdb_lstm", .input = {}, .layers = {}};
  out.inputs = {{"tokens", {kLength}, DType::i64}, {"length", {}, DType::i64}};
  out.layers = {
      {.type = "embedding",
       .name = "embedding",
       .settings = {{"rows", kWords}, {"width", kWidth}, {"init", "normal"}, {"init_std", kDeviation}},
       .from = {"tokens"}},
      {.type = "lstm",
       .name = "lstm",
       .settings = {{"hidden", kHidden}, {"output", "last"}, {"forget_bias", kForgetBias}},
       .from = {"before", "length"}},
      {.type = "linear", .name = "fc", .settings = {{"outputs", int64_t{1}}}}};
  return out;
}

}  // namespace tandem::zoo
