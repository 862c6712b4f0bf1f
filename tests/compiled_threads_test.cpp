// One Compiled and one module called by several threads at the same time: the contracts of graph/compile.h and nn/module.h.
// ctest: tsan
#include <gtest/gtest.h>

#include <thread>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
constexpr int kThreads = 4, kCalls = 12;
Tensor values(const Dims& shape, uint32_t salt) { return to_tensor(hash_array(shape, salt), DType::f32); }

/// Calls f(thread) on several threads at once.
void on_threads(const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&f, i] { f(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(CompiledByThreads, GivesEachItsOwnResultsWhileSignaturesAreTracedAndDropped) {
  const Tensor w = values({3}, 1);
  Compiled f = compile([&](const List& in) { return List{exp(in[0] * w), sum(in[0])}; }, {.cache_size = 2});
  on_threads([&](int thread) {
    for (int call = 0; call < kCalls; ++call) {
      const Tensor x = values({1 + (thread + call) % 3, 3}, static_cast<uint32_t>(100 * thread + call));
      const List out = f({x});
      EXPECT_TRUE(same_bits(out[0], exp(x * w)));
      EXPECT_TRUE(same_bits(out[1], sum(x)));
    }
  });
}

TEST(CompiledByThreads, TakesTurnsSoThatStateLosesNoCall) {
  const Tensor count = zeros({}, DType::i64);
  Compiled f = compile([&](const List& in) {
    assign(count, count + 1);
    return List{in[0] * 2};
  });
  on_threads([&](int) {
    for (int call = 0; call < kCalls; ++call) f({ones({2})});
  });
  EXPECT_EQ(count.item<int64_t>(), kThreads * kCalls);
}

TEST(CompiledByThreads, HasTheGradientsGradModeAndRandomNumbersOfItsCaller) {
  Tensor w = values({4}, 1).set_requires_grad();
  Compiled f = compile([&](const List& in) { return List{sum(dropout(in[0] * w, 0.5) * w)}; });
  const auto run = [&](const TensorFunction& call, int thread) {
    manual_seed(static_cast<uint64_t>(thread));
    List out;
    for (int i = 0; i < kCalls; ++i) {
      const Tensor x = values({4}, static_cast<uint32_t>(thread + i));
      if (const GradMode mode(i % 3 != 0); grad_enabled())
        out.push_back(grad(call({x})[0], {w})[0]);
      else
        out.push_back(call({x})[0]);
    }
    return out;
  };
  std::vector<List> got(kThreads);
  on_threads([&](int thread) {
    got[static_cast<size_t>(thread)] = run([&](const List& in) { return f(in); }, thread);
  });
  for (int thread = 0; thread < kThreads; ++thread) {
    const List want = run([&](const List& in) { return List{sum(dropout(in[0] * w, 0.5) * w)}; }, thread);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_bits(got[static_cast<size_t>(thread)][i], want[i])) << thread << " " << i;
  }
}

TEST(ModulesByThreads, InEvaluationMayBeCalledAndDifferentiatedAtTheSameTime) {
  manual_seed(1);
  nn::Sequential net{nn::make<nn::Linear>(3, 8), nn::make<nn::BatchNorm1d>(8), nn::make<nn::Dropout>(0.5),
                     nn::make<nn::Linear>(8, 2)};
  net.eval();
  const auto run = [&](int thread) {
    const Tensor x = values({5, 3}, static_cast<uint32_t>(thread));
    List out = grad(sum(net(x)), net.parameters());
    const NoGrad off;
    out.push_back(net(x));
    return out;
  };
  std::vector<List> got(kThreads);
  on_threads([&](int thread) { got[static_cast<size_t>(thread)] = run(thread); });
  for (int thread = 0; thread < kThreads; ++thread) {
    const List want = run(thread);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_bits(got[static_cast<size_t>(thread)][i], want[i])) << thread << " " << i;
  }
}

}  // namespace
}  // namespace tandem::testing
