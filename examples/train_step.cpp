// A network of your own, trained twice on the same data: eagerly, and compiled into one graph. Both end with the same
// bits.
#include <cstdio>

#include "tandem/tandem.h"

using namespace tandem;

struct Net : nn::Module {
  nn::Conv2d conv{this, "conv", 1, 8, 3, {.padding = 1}};
  nn::Linear out{this, "out", 8 * 14 * 14, 10};
  Tensor forward(const Tensor& x) override { return out(flatten(max_pool2d(relu(conv(x))), 1)); }
};

std::string train(bool compiled) {
  manual_seed(7);
  Net net;
  optim::Sgd sgd(net.named_parameters(), {.lr = 0.05});
  const std::vector<Tensor> parameters = net.parameters();
  TensorFunction step = [&](const std::vector<Tensor>& batch) -> std::vector<Tensor> {
    const Tensor loss = cross_entropy(net(batch[0]), batch[1]);
    sgd.update(grad(loss, parameters));
    return {loss};
  };
  if (compiled)
    step = [run = std::make_shared<Compiled>(step, CompileOptions{})](const auto& in) { return (*run)(in); };
  const auto digits = data::open_dataset("digits");
  const auto some = data::first(digits.train, 1000);
  data::Loader loader(*some, {.batch = 50});
  loader.start_epoch(0);
  double loss = 0;
  while (auto batch = loader.next()) loss = step(batch->tensors.values())[0].item<double>();
  std::printf("%s: last loss %.4f\n", compiled ? "graph" : "eager", loss);
  return io::weights_sha256(net.state());
}

int main() { return train(false) == train(true) ? 0 : 1; }
