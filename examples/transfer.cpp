// Transfer: a network learns the digits 0 to 4; its features are frozen, and a new last layer learns 5 to 9 from a tenth of
// the samples.
#include <cstdio>

#include "tandem/tandem.h"

using namespace tandem;

struct Net : nn::Module {
  nn::Conv2d conv1{this, "conv1", 1, 8, 5, {.stride = 2}};
  nn::Conv2d conv2{this, "conv2", 8, 16, 5, {.stride = 2}};
  nn::Linear out{this, "out", 16 * 4 * 4, 5};
  Tensor forward(const Tensor& x) override { return out(flatten(relu(conv2(relu(conv1(x)))), 1)); }
};

/// Samples first … first + 4 of a set, labelled 0 to 4; at most `most` of them.
data::TensorSet digits_from(const data::Dataset& all, int64_t first, int64_t most) {
  std::vector<Tensor> images, labels;
  for (int64_t i = 0; static_cast<int64_t>(images.size()) < most; ++i) {
    const std::vector<Tensor> sample = all.get(i);
    const int64_t label = sample[1].item<int64_t>() - first;
    if (label < 0 || label > 4) continue;
    images.push_back(sample[0]);
    labels.push_back(full({}, static_cast<double>(label), DType::i64));
  }
  return data::TensorSet({stack(images), stack(labels)});
}

int main() {
  manual_seed(1);
  const data::Splits digits = data::open_dataset("digits");
  const auto low = digits_from(*digits.train, 0, 2000), high = digits_from(*digits.train, 5, 200);
  const auto test_high = digits_from(*digits.test, 5, 500);

  Net net;
  fit(net, low, {.epochs = 3, .batch = 50, .optimizer = "adam"});

  net.conv1.freeze();
  net.conv2.freeze();
  nn::init::kaiming_uniform_(net.out.weight);
  nn::init::zeros_(net.out.bias);
  const std::vector<float> before = net.conv1.weight.to_vector<float>();
  fit(net, high, {.epochs = 20, .batch = 20, .optimizer = "adam"});

  const double accuracy = evaluate(net, test_high).accuracy;
  std::printf("5 to 9 from 200 samples: %.1f %% right; %lld of %lld parameters trained\n", 100 * accuracy,
              static_cast<long long>(net.out.weight.size() + net.out.bias.size()),
              static_cast<long long>(count_parameters(net)));
  return accuracy > 0.8 && net.conv1.weight.to_vector<float>() == before ? 0 : 1;
}
