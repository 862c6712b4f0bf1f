// A network from a container, its summary, and its body reused frozen under a new head.
#include <cstdio>

#include "tandem/tandem.h"

using namespace tandem;

int main() {
  manual_seed(0);
  const auto body = nn::make<nn::Sequential>();
  body->add(nn::make<nn::Conv2d>(1, 8, 3, nn::Conv2dLayerOptions{.padding = 1}))
      .add(nn::make<nn::ReLU>())
      .add(nn::make<nn::Flatten>())
      .add(nn::make<nn::Linear>(8 * 8 * 8, 32))
      .add(nn::make<nn::Tanh>());
  body->apply([](nn::Module& module) {
    if (auto* layer = dynamic_cast<nn::Linear*>(&module)) nn::init::orthogonal_(layer->weight);
  });

  // A copy of its own, frozen, with a head that learns.
  const nn::ModulePtr frozen = body->clone();
  frozen->freeze();
  nn::Sequential net{frozen, nn::make<nn::Linear>(32, 2)};
  std::printf("%s\n", nn::to_string(nn::summary(net, {16, 1, 8, 8})).c_str());

  optim::Sgd sgd(net.trainable_parameters(), {.lr = 0.5});
  const Tensor x = normal({16, 1, 8, 8});
  const Tensor y = cast(greater(mean(x, {1, 2, 3}), 0), DType::i64);
  Compiled step = compile([&](const std::vector<Tensor>& in) {
    const Tensor loss = cross_entropy(net(in[0]), in[1]);
    std::vector<Tensor> trained;
    for (const auto& [name, tensor] : net.trainable_parameters()) trained.push_back(tensor);
    sgd.update(grad(loss, trained));
    return std::vector<Tensor>{loss.detach()};
  });
  double first = 0, last = 0;
  for (int i = 0; i < 100; ++i) (i == 0 ? first : last) = step({x, y})[0].item<double>();
  std::printf("loss %.3f, then %.3f; the body is as it was: %s\n", first, last,
              io::weights_sha256(frozen->state()) == io::weights_sha256(body->state()) ? "yes" : "no");
  return last < 0.5 * first ? 0 : 1;
}
