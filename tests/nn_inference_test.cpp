// One model called from several threads of the host at once.
// ctest: tsan
#include <gtest/gtest.h>

#include <thread>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/nn/activation.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

constexpr size_t kThreads = 8, kCalls = 5;

/// Calls the model on kThreads threads, each with inputs of its own, and compares with what one thread gives.
void expect_right_from_many_threads(nn::Module& model, const Dims& shape) {
  model.eval();
  std::vector<Tensor> inputs, want(kThreads);
  for (size_t i = 0; i < kThreads; ++i) inputs.push_back(uniform(shape));
  const NoGrad off;
  for (size_t i = 0; i < kThreads; ++i) want[i] = model(inputs[i]);
  std::vector<std::vector<Tensor>> got(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      const NoGrad off_here;  // recording is a matter of each thread
      for (size_t call = 0; call < kCalls; ++call) got[i].push_back(model(inputs[i]));
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i)
    for (const Tensor& y : got[i]) EXPECT_TRUE(same_bits(y, want[i])) << "thread " << i;
}

TEST(Inference, OneModelOfTheZooAnswersSeveralThreadsAtOnce) {
  manual_seed(1);
  expect_right_from_many_threads(*zoo::make_model("lenet"), {3, 1, 28, 28});
  expect_right_from_many_threads(*zoo::make_model("mnist_cnn"), {1, 1, 28, 28});
}

TEST(Inference, OneContainerWithHooksAnswersSeveralThreadsAtOnce) {
  nn::Sequential net{nn::make<nn::Linear>(20, 30), nn::make<nn::ReLU>(), nn::make<nn::Dropout>(0.5),
                     nn::make<nn::Linear>(30, 5), nn::make<nn::Softmax>()};
  net[1].add_forward_hook(
      [](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& out) { out[0] = out[0] * 2; });
  expect_right_from_many_threads(net, {4, 20});
}

TEST(Inference, SeveralThreadsMayAlsoTakeGradientsOfOneModel) {
  manual_seed(2);
  const auto model = zoo::make_model("lenet");
  model->eval();
  const Tensor x = uniform({2, 1, 28, 28});
  const std::vector<Tensor> parameters = model->parameters();
  const auto gradients = [&] { return grad(sum((*model)(x)), parameters); };
  const std::vector<Tensor> want = gradients();
  std::vector<std::vector<Tensor>> got(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { got[i] = gradients(); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i)
    for (size_t k = 0; k < want.size(); ++k) EXPECT_TRUE(same_bits(got[i][k], want[k])) << "thread " << i;
}

}  // namespace
}  // namespace tandem::testing
