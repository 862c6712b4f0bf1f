// Threads: the same bits at any thread count, and many host threads at work at once.
// ctest: tsan
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/ops/unfold.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// Puts the thread count back.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(threads()) { set_threads(count); }
  ~ThreadCount() { set_threads(before_); }

 private:
  int before_;
};

Tensor values(const Dims& shape, uint32_t salt) { return to_tensor(hash_array(shape, salt), DType::f32); }

/// Forward and gradients of an op large enough to be split, at 1, 2 and 3 threads.
void expect_same_at_any_count(const std::vector<Dims>& shapes,
                              const std::function<Tensor(const std::vector<Tensor>&)>& call) {
  std::vector<std::vector<Tensor>> results;
  for (const int count : {1, 2, 3}) {
    const ThreadCount set(count);
    std::vector<Tensor> in;
    for (size_t i = 0; i < shapes.size(); ++i)
      in.push_back(values(shapes[i], static_cast<uint32_t>(i)).set_requires_grad());
    manual_seed(4);
    const Tensor y = call(in);
    std::vector<Tensor> found = {y.detach()};
    if (y.requires_grad()) {
      const std::vector<Tensor> gradients = grad(y, in, values(y.shape(), 99));
      found.insert(found.end(), gradients.begin(), gradients.end());
    }
    results.push_back(found);
  }
  for (size_t run = 1; run < results.size(); ++run) {
    ASSERT_EQ(results[run].size(), results[0].size());
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_TRUE(same_bits(results[run][i], results[0][i])) << run + 1 << " threads, result " << i;
  }
}

TEST(ThreadCounts, WindowsHaveTheSameBits) {
  expect_same_at_any_count({{9, 40, 14, 15}, {42, 40, 3, 3}}, [](const auto& in) {  // by Winograd
    return conv2d(in[0], in[1], {}, {.padding = 1});
  });
  expect_same_at_any_count({{3, 4, 6, 8, 9}, {6, 4, 3, 3, 3}},
                           [](const auto& in) { return conv3d(in[0], in[1], {}, {.padding = 1}); });
  expect_same_at_any_count({{3, 16, 30, 30}, {16, 1, 3, 3}}, [](const auto& in) {
    return conv2d(in[0], in[1], {}, {.padding = 1, .groups = 16});
  });
  expect_same_at_any_count({{8, 8, 30, 30}}, [](const auto& in) {
    return avg_pool2d(max_pool2d(in[0], {.kernel = 3, .stride = 1}), {.kernel = 3, .stride = 2});
  });
  expect_same_at_any_count({{8, 8, 30, 30}}, [](const auto& in) {
    return fold(unfold(interpolate(in[0], {.size = 40, .mode = "bilinear"}), {.kernel = 3}), {40, 40},
                {.kernel = 3});
  });
}

TEST(ThreadCounts, ConvolutionHasTheSameBits) {
  expect_same_at_any_count({{9, 6, 17, 15}, {16, 6, 5, 5}, {16}},
                           [](const auto& in) { return conv2d(in[0], in[1], in[2], {.padding = 2}); });
  expect_same_at_any_count({{7, 8, 13, 13}, {12, 4, 3, 3}}, [](const auto& in) {
    return conv2d(in[0], in[1], {}, {.stride = 2, .groups = 2});
  });
}

TEST(ThreadCounts, MatrixProductsHaveTheSameBits) {
  expect_same_at_any_count({{150, 301}, {301, 203}}, [](const auto& in) { return matmul(in[0], in[1]); });
  expect_same_at_any_count({{5, 60, 70}, {5, 70, 40}}, [](const auto& in) { return matmul(in[0], in[1]); });
  expect_same_at_any_count({{200, 300}, {120, 300}, {120}},
                           [](const auto& in) { return linear(in[0], in[1], in[2]); });
}

TEST(ThreadCounts, ReductionsHaveTheSameBits) {
  for (const Dims& axes : {Dims{}, Dims{0}, Dims{1}, Dims{0, 2}, Dims{2}}) {
    expect_same_at_any_count({{40, 50, 60}}, [&](const auto& in) { return sum(in[0], axes); });
    expect_same_at_any_count({{40, 50, 60}}, [&](const auto& in) { return max(in[0], axes); });
  }
  expect_same_at_any_count({{300001}}, [](const auto& in) { return sum(in[0]); });
}

TEST(ThreadCounts, PointwisePoolingSoftmaxAndRandomNumbersHaveTheSameBits) {
  expect_same_at_any_count({{300, 401}, {401}},
                           [](const auto& in) { return gelu(in[0] * in[1] + tanh(in[0])); });
  expect_same_at_any_count({{9, 7, 30, 30}}, [](const auto& in) { return max_pool2d(in[0]); });
  expect_same_at_any_count({{700, 113}}, [](const auto& in) { return log_softmax(in[0]); });
  expect_same_at_any_count({}, [](const auto&) { return normal({300, 301}); });
}

TEST(ThreadCounts, CompiledChainsHaveTheSameBits) {
  const Tensor x = values({200, 501}, 1), y = values({501}, 2);
  std::vector<Tensor> results;
  for (const int count : {1, 2, 3}) {
    const ThreadCount set(count);
    Compiled f = compile([&](const std::vector<Tensor>& in) {
      const Tensor h = exp(in[0] * y) + sigmoid(in[0]);
      return std::vector<Tensor>{sum(h * h, {1}), h};
    });
    for (const Tensor& result : f({x})) results.push_back(result);
  }
  for (size_t i = 2; i < results.size(); ++i) EXPECT_TRUE(same_bits(results[i], results[i % 2]));
}

TEST(Pool, RunsEveryChunkOnceAndPassesExceptionsOn) {
  const ThreadCount set(3);
  for (const int64_t chunks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> hits(static_cast<size_t>(chunks));
    parallel_for(chunks, [&](int64_t i) { ++hits[static_cast<size_t>(i)]; });
    for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
  }
  EXPECT_THROW(parallel_for(100,
                            [](int64_t i) {
                              if (i == 57) throw Error("here");
                            }),
               Error);
  std::atomic<int> total{0};
  parallel_for(10, [&](int64_t) { parallel_for(10, [&](int64_t) { ++total; }); });
  EXPECT_EQ(total.load(), 100);
}

/// A small convolutional network with fixed weights.
struct Network {
  Tensor kernel = values({8, 1, 5, 5}, 1).set_requires_grad();
  Tensor weight = values({10, 8 * 7 * 7}, 2).set_requires_grad();
  Tensor bias = values({10}, 3).set_requires_grad();

  Tensor logits(const Tensor& x) const {
    const Tensor h = max_pool2d(relu(conv2d(x, kernel, {}, {.padding = 2})), {.kernel = 2});
    return linear(flatten(h, 1), weight, bias);
  }
};

/// Runs body(i) on `count` host threads at once and fails the test where one throws.
void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> workers;
  std::atomic<int> failed{0};
  for (int i = 0; i < count; ++i)
    workers.emplace_back([&, i] {
      try {
        body(i);
      } catch (const std::exception& error) {
        ++failed;
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(failed.load(), 0);
}

TEST(HostThreads, RunInferenceOnOneModelAtOnce) {
  const ThreadCount set(2);
  const Network network;
  std::vector<Tensor> inputs, want;
  for (uint32_t i = 0; i < 6; ++i) {
    const NoGrad off;
    inputs.push_back(values({3, 1, 14, 14}, 10 + i));
    want.push_back(network.logits(inputs.back()));
  }
  std::vector<std::vector<Tensor>> got(6);
  on_threads(6, [&](int i) {
    const NoGrad off;
    for (int repeat = 0; repeat < 8; ++repeat)
      got[static_cast<size_t>(i)].push_back(network.logits(inputs[static_cast<size_t>(i)]));
  });
  for (size_t i = 0; i < got.size(); ++i)
    for (const Tensor& result : got[i]) EXPECT_TRUE(same_bits(result, want[i])) << "thread " << i;
}

TEST(HostThreads, DifferentiateThroughOneModelAtOnceWithoutTouchingIt) {
  const Network network;
  const Tensor x = values({3, 1, 14, 14}, 20);
  const Tensor target = to_tensor(Array({3}, {1, 7, 3}), DType::i64);
  const std::vector<Tensor> parameters = {network.kernel, network.weight, network.bias};
  const std::vector<Tensor> want = grad(cross_entropy(network.logits(x), target), parameters);
  std::vector<std::vector<Tensor>> got(4);
  on_threads(4, [&](int i) {
    for (int repeat = 0; repeat < 4; ++repeat)
      got[static_cast<size_t>(i)] = grad(cross_entropy(network.logits(x), target), parameters);
  });
  for (const auto& gradients : got)
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(gradients[i], want[i]));
  EXPECT_FALSE(network.kernel.grad().defined());
}

TEST(HostThreads, HaveTheirOwnRandomStreamAndModes) {
  std::vector<Tensor> got(4);
  on_threads(4, [&](int i) {
    manual_seed(static_cast<uint64_t>(i % 2));
    for (int repeat = 0; repeat < 10; ++repeat) got[static_cast<size_t>(i)] = uniform({100});
  });
  EXPECT_TRUE(same_bits(got[0], got[2]));
  EXPECT_TRUE(same_bits(got[1], got[3]));
  EXPECT_FALSE(same_bits(got[0], got[1]));
}

TEST(HostThreads, CompileAndReplayTheirOwnCallablesAtOnce) {
  const Network network;
  const Tensor x = values({2, 1, 14, 14}, 30);
  const Tensor want = [&] {
    const NoGrad off;
    return network.logits(x);
  }();
  std::vector<Tensor> got(4);
  on_threads(4, [&](int i) {
    const NoGrad off;
    Compiled f =
        compile([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{network.logits(in[0])}; });
    for (int repeat = 0; repeat < 3; ++repeat) got[static_cast<size_t>(i)] = f({x})[0];
  });
  for (const Tensor& result : got) EXPECT_TRUE(same_bits(result, want));
}

}  // namespace
}  // namespace tandem::testing
