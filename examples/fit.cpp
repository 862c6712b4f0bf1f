// The ready-made loop on a network of your own: a schedule, early stopping, logs and plots in the folder of the run, and
// the confusion matrix at the end.
#include <cstdio>

#include "tandem/tandem.h"

using namespace tandem;

int main() {
  manual_seed(1);
  nn::Sequential net{nn::make<nn::Conv2d>(1, 16, 5, nn::Conv2dLayerOptions{.stride = 2}),
                     nn::make<nn::ReLU>(),
                     nn::make<nn::Flatten>(),
                     nn::make<nn::Linear>(16 * 12 * 12, 64),
                     nn::make<nn::ReLU>(),
                     nn::make<nn::Linear>(64, 10)};
  const data::Splits digits = data::open_dataset("digits");
  const auto train_set = data::first(digits.train, 3000), test_set = data::first(digits.test, 1000);

  FitOptions options;
  options.test = test_set.get();
  options.epochs = 4;
  options.batch = 50;
  options.optimizer = "adamw";
  options.callbacks = {learning_rate({.kind = "cosine", .warm_up = 20}), early_stopping({.patience = 2}),
                       listen([](const EpochEvent& e) {
                         std::printf("epoch %d: loss %.3f, accuracy %.1f %%\n", static_cast<int>(e.epoch),
                                     e["train_loss"], 100 * e["test_accuracy"]);
                       })};
  const FitResult result = fit(net, *train_set, options);

  const ConfusionMatrix confusion = evaluate(net, *test_set).confusion;
  std::printf("\nis \\ taken for");
  for (int64_t j = 0; j < 10; ++j) std::printf("%5d", static_cast<int>(j));
  for (int64_t i = 0; i < 10; ++i) {
    std::printf("\n%14d", static_cast<int>(i));
    for (int64_t j = 0; j < 10; ++j) std::printf("%5d", static_cast<int>(confusion.count(i, j)));
  }
  std::printf("\n");
  return result["test_accuracy"] > 0.9 ? 0 : 1;
}
