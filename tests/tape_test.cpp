// The tape: gradients, their accumulation and order, what is refused, and gradients of gradients.
// ctest: asan
#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <functional>
#include <thread>

#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/growth.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

Tensor leaf(const std::vector<double>& values, DType dtype = DType::f64) {
  Tensor x = to_tensor(Array({static_cast<Dim>(values.size())}, values), dtype);
  return x.set_requires_grad();
}
std::vector<double> values(const Tensor& x) { return to_array(x).values; }
using Numbers = std::vector<double>;

TEST(Backward, FillsTheLeavesAndAddsUp) {
  Tensor x = leaf({1, 2, 3});
  backward(sum(x * x));
  EXPECT_EQ(values(x.grad()), Numbers({2, 4, 6}));
  sum(x * 3.0).backward();
  EXPECT_EQ(values(x.grad()), Numbers({5, 7, 9}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Backward, ReachesALeafByEveryPath) {
  Tensor x = leaf({2});
  const Tensor a = x * 3.0, b = a * x, c = b + a;
  backward(sum(c * b));  // c·b = (3x² + 3x)·3x² = 9x⁴ + 9x³
  EXPECT_EQ(values(x.grad()), Numbers({36 * 8 + 27 * 4}));
}

TEST(Backward, TakesASeed) {
  Tensor x = leaf({1, 2});
  backward(x * x, to_tensor(Array({2}, {10, 100}), DType::f64));
  EXPECT_EQ(values(x.grad()), Numbers({20, 400}));
}

TEST(Backward, OfALeafItselfIsTheSeed) {
  Tensor x = leaf({5});
  backward(sum(x));
  EXPECT_EQ(values(x.grad()), Numbers({1}));
  EXPECT_EQ(values(grad(x, std::vector<Tensor>{x}, ones({1}, DType::f64))[0]), Numbers({1}));
}

TEST(Backward, RefusesWhatHasNoGradient) {
  EXPECT_NE(error_of([] { backward(zeros({})); }).find("backward: "), std::string::npos);
  const std::string shape = error_of([] { backward(leaf({1, 2}) * 2.0); });
  EXPECT_NE(shape.find("backward: "), std::string::npos) << shape;
  EXPECT_NE(shape.find("(2,)"), std::string::npos) << shape;
  const std::string seed = error_of([] { backward(leaf({1, 2}) * 2.0, zeros({3}, DType::f64)); });
  EXPECT_NE(seed.find("(3,)"), std::string::npos) << seed;
  const std::string undefined = error_of([] { backward(Tensor()); });
  EXPECT_NE(undefined.find("backward: "), std::string::npos) << undefined;
}

TEST(Backward, RefusesASavedValueThatWasChanged) {
  Tensor x = leaf({1, 2});
  const Tensor doubled = (x * 2.0).detach();
  const Tensor y = sum(x * doubled);
  assign(doubled, zeros({2}, DType::f64));
  const std::string message = error_of([&] { backward(y); });
  EXPECT_NE(message.find("mul: "), std::string::npos) << message;
  EXPECT_NE(message.find("assign"), std::string::npos) << message;
  EXPECT_FALSE(x.grad().defined());
}

TEST(Backward, RefusesAChangeThroughAView) {
  Tensor x = leaf({1, 2});
  const Tensor memory = ones({3, 2}, DType::f64);
  const Tensor y = sum(x * select(memory, 0, 1));
  assign(select(memory, 0, 2), zeros({2}, DType::f64));
  EXPECT_NE(error_of([&] { backward(y); }).find("mul: "), std::string::npos);
}

TEST(Backward, AllowsAChangeOfAValueThatNoRuleReads) {
  Tensor x = leaf({1, 2});
  const Tensor other = ones({2}, DType::f64);
  const Tensor y = sum(x + other);
  assign(other, zeros({2}, DType::f64));
  backward(y);
  EXPECT_EQ(values(x.grad()), Numbers({1, 1}));
}

TEST(Backward, SumsOverBroadcastAxesOnce) {
  Tensor x = leaf({1, 2, 3}), scale = to_tensor(Array({}, {2}), DType::f64).set_requires_grad();
  const Tensor y = ones({4, 3}, DType::f64) * x * scale;
  backward(sum(y));
  EXPECT_EQ(values(x.grad()), Numbers({8, 8, 8}));
  EXPECT_EQ(values(scale.grad()), Numbers({24}));
  EXPECT_EQ(scale.grad().rank(), 0);
}

TEST(Backward, TwiceOverTheSameTapeGivesTheSameGradient) {
  Tensor x = leaf({1, 2});
  const Tensor y = sum(exp(x));
  backward(y);
  const Numbers first = values(x.grad());
  x.zero_grad();
  backward(y);
  EXPECT_EQ(values(x.grad()), first);
}

TEST(Leaves, AreMarkedOnlyWhereTheyAreFloatingLeaves) {
  EXPECT_NE(error_of([] { (leaf({1}) * 2.0).set_requires_grad(false); }).find("detach"), std::string::npos);
  EXPECT_NE(error_of([] { zeros({2}, DType::i32).set_requires_grad(); }).find("i32"), std::string::npos);
  Tensor x = leaf({1});
  EXPECT_TRUE(x.is_leaf());
  const Tensor y = x * 2.0;
  EXPECT_FALSE(y.is_leaf());
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(y.detach().requires_grad());
  EXPECT_FALSE(greater(x, 0).requires_grad());
}

TEST(Leaves, TakeOnlyAGradientThatFits) {
  Tensor x = leaf({1, 2});
  EXPECT_NE(error_of([&] { x.set_grad(zeros({3}, DType::f64)); }).find("(3,)"), std::string::npos);
  EXPECT_NE(error_of([&] { x.set_grad(zeros({2}, DType::f32)); }).find("f32"), std::string::npos);
  x.set_grad(ones({2}, DType::f64));
  EXPECT_EQ(values(x.grad()), Numbers({1, 1}));
}

TEST(NoGradScope, RecordsNothingAndEnds) {
  Tensor x = leaf({1});
  {
    const NoGrad off;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE((x * 2.0).requires_grad());
    {
      const GradMode on(true);
      EXPECT_TRUE((x * 2.0).requires_grad());
    }
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE((x * 2.0).requires_grad());
  try {
    const NoGrad off;
    throw 1;
  } catch (int) {
  }
  EXPECT_TRUE(grad_enabled());
}

TEST(GradFunction, LeavesEveryGradAloneAndTakesInnerTensors) {
  Tensor x = leaf({3}), y = leaf({4});
  const Tensor product = x * y, z = sum(product * product);
  const std::vector<Tensor> gradients = grad(z, std::vector<Tensor>{x, y, product, x});
  EXPECT_EQ(values(gradients[0]), Numbers({2 * 12 * 4}));
  EXPECT_EQ(values(gradients[1]), Numbers({2 * 12 * 3}));
  EXPECT_EQ(values(gradients[2]), Numbers({24}));
  EXPECT_EQ(values(gradients[3]), values(gradients[0]));
  EXPECT_FALSE(x.grad().defined());
}

TEST(GradFunction, NamesAnUnusedInputOrGivesZeros) {
  Tensor x = leaf({3}), unused = leaf({1, 2});
  const Tensor z = sum(x * x);
  const std::string message = error_of([&] { grad(z, std::vector<Tensor>{x, unused}); });
  EXPECT_NE(message.find("grad: "), std::string::npos) << message;
  EXPECT_NE(message.find("input 1"), std::string::npos) << message;
  const std::vector<Tensor> gradients = grad(z, std::vector<Tensor>{x, unused}, {}, {}, true);
  EXPECT_EQ(values(gradients[1]), Numbers({0, 0}));
}

TEST(HigherOrder, DerivativesOfAPowerAreExact) {
  Tensor x = leaf({2});
  Tensor y = sum(x * x * x * x);
  BackwardOptions keep;
  keep.create_graph = true;
  const Numbers want = {32, 48, 48, 24};
  for (const double expected : want) {
    y = sum(grad(y, std::vector<Tensor>{x}, {}, keep)[0]);
    EXPECT_DOUBLE_EQ(y.item<double>(), expected);
  }
}

TEST(HigherOrder, AGradientPenaltyTrainsThroughTheGradient) {
  Tensor w = leaf({0.5, -1});
  const Tensor x = to_tensor(Array({2}, {3, 4}), DType::f64);
  BackwardOptions keep;
  keep.create_graph = true;
  const Tensor loss = sum(tanh(w * x));
  const Tensor g = grad(loss, std::vector<Tensor>{w}, {}, keep)[0];
  backward(sum(g * g));
  for (size_t i = 0; i < 2; ++i) {
    const double xi = i ? 4 : 3, t = std::tanh((i ? -1 : 0.5) * xi), slope = xi * (1 - t * t);
    EXPECT_NEAR(to_array(w.grad()).values[i], 2 * slope * (-2 * xi * xi * t * (1 - t * t)), 1e-9);
  }
}

TEST(HigherOrder, WithoutCreateGraphTheGradientIsCutOff) {
  Tensor x = leaf({2});
  EXPECT_FALSE(grad(sum(x * x * x), std::vector<Tensor>{x})[0].requires_grad());
}

TEST(OnGradReady, IsCalledOncePerLeafAsSoonAsItIsComplete) {
  // The layers nearest the loss are complete first; a leaf used twice only after its second use.
  Tensor first = leaf({1}), second = leaf({2}), third = leaf({3});
  const Tensor h = first * 2.0 * second, z = sum(h * third * second);
  std::vector<std::pair<const TensorImpl*, double>> calls;
  BackwardOptions options;
  options.on_grad_ready = [&](const Tensor& tensor, const Tensor& gradient) {
    calls.emplace_back(tensor.impl(), gradient.item<double>());
  };
  backward(z, {}, options);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].first, third.impl());
  EXPECT_EQ(calls[1].first, second.impl());
  EXPECT_EQ(calls[2].first, first.impl());
  EXPECT_DOUBLE_EQ(calls[0].second, 1 * 2 * 2 * 2);
  EXPECT_DOUBLE_EQ(calls[1].second, 2 * 3 * 2 * 2);
  EXPECT_DOUBLE_EQ(calls[2].second, 2 * 2 * 2 * 3);
}

TEST(DeepTapes, OfAHundredThousandOpsNeitherBackwardNorFreeingOverflowsTheStack) {
  Tensor x = leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = y + x;
    backward(sum(y));
  }
  EXPECT_EQ(values(x.grad()), Numbers({100001}));
  // The same for rules that save their inputs and outputs, dropped without a backward.
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = tanh(y * x);
  y = Tensor();
  SUCCEED();
}

/// Runs `work` on a thread whose stack is too small for any recursion along a tape.
void on_a_small_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{1} << 20);
  pthread_t thread;
  const auto run = [](void* context) -> void* {
    (*static_cast<const std::function<void()>*>(context))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kDeep = 100000;
#else
constexpr int kDeep = 1000000;
#endif

using Link = std::function<Tensor(const Tensor& y, const Tensor& x)>;
const std::vector<std::pair<const char*, Link>>& links() {
  static const auto& all = *new std::vector<std::pair<const char*, Link>>{
      {"y * y", [](const Tensor& y, const Tensor&) { return y * y; }},
      {"square(y)", [](const Tensor& y, const Tensor&) { return square(y); }},
      {"matmul(y, y)", [](const Tensor& y, const Tensor&) { return matmul(y, y); }},
      {"y * x", [](const Tensor& y, const Tensor& x) { return y * x; }},
      {"tanh(y)", [](const Tensor& y, const Tensor&) { return tanh(y); }},
      {"concat(y, y)",
       [](const Tensor& y, const Tensor&) {
         return slice(concat({y, y}, 0), 0, 0, 1);
       }},
  };
  return all;
}

TEST(DeepTapes, OfAMillionOpsAreRecordedDifferentiatedAndDestroyedOnASmallStack) {
  on_a_small_stack([] {
    const auto chain = [](const Link& link, const Tensor& x, int depth) {
      Tensor y = x;
      for (int i = 0; i < depth; ++i) y = link(y, x);
      return y;
    };
    {  // the value stays 1: the gradient of y * x is the number of products and one more, modulo rounding
      Tensor x = full({1, 1}, 1, DType::f64).set_requires_grad();
      backward(chain(links()[3].second, x, kDeep));
      EXPECT_EQ(x.grad().item<double>(), kDeep + 1);
      const Tensor inputs[] = {x};
      EXPECT_EQ(grad(chain(links()[3].second, x, kDeep), inputs)[0].item<double>(), kDeep + 1);
    }
    for (const auto& [name, link] : links()) {
      SCOPED_TRACE(name);
      Tensor x = full({1, 1}, 1, DType::f64).set_requires_grad();
      chain(link, x, kDeep / 10);  // dropped without a backward
      const Tensor y = chain(link, x, kDeep / 20);
      backward(y, {}, {.create_graph = true});
      EXPECT_TRUE(x.grad().defined());
      // The gradient's own tape, held by the leaf's grad: let go of from there.
      x.zero_grad();
      const Tensor inputs[] = {x};
      std::vector<Tensor> gradient = grad(y, inputs, {}, {.create_graph = true});
      gradient.clear();
    }
  });
}

TEST(DeepTapes, ThatHangTogetherByGradientsAndClosuresAreDestroyedOnASmallStack) {
  on_a_small_stack([] {
    // Each tensor is the gradient of the next.
    Tensor last = full({1}, 1);
    for (int i = 0; i < kDeep / 10; ++i) {
      Tensor next = full({1}, 1).set_requires_grad();
      next.set_grad(last);
      last = next;
    }
    last = Tensor();
    // Each lies in memory whose release lets go of the one before.
    for (int i = 0; i < kDeep / 10; ++i) {
      alignas(64) static float memory[16];
      last = from_blob(
          memory, {1}, DType::f32, {}, [](void* before) { delete static_cast<Tensor*>(before); },
          new Tensor(last));
    }
    last = Tensor();
  });
}

TEST(DeepTapes, CostTimeInProportionToTheirDepth) {
  EXPECT_TRUE(in_proportion(kDeep / 500, [](int depth) {
    Tensor x = full({1, 1}, 1).set_requires_grad();
    Tensor y = x;
    for (int i = 0; i < depth; ++i) y = y * y;
    backward(y);
  }));
}

TEST(Assign, OfATensorThatTheTapeNeedsIsRefused) {
  Tensor x = leaf({1, 2});
  const std::string target = error_of([&] { assign(x, zeros({2}, DType::f64)); });
  EXPECT_NE(target.find("assign: "), std::string::npos) << target;
  EXPECT_NE(target.find("NoGrad"), std::string::npos) << target;
  EXPECT_NE(error_of([&] { assign(zeros({2}, DType::f64), x); }).find("assign: "), std::string::npos);
  const NoGrad off;
  assign(x, zeros({2}, DType::f64));
  EXPECT_EQ(values(x), Numbers({0, 0}));
}

TEST(AnomalyMode, NamesTheOpThatFirstMadeANan) {
  set_anomaly_mode(true);
  const std::string message = error_of([] {
    const Tensor x = full({2, 3}, -1);
    sum(exp(log(x) + 1));
  });
  const std::string division = error_of([] { div(ones({2}), zeros({2})); });
  set_anomaly_mode(false);
  EXPECT_NE(message.find("log"), std::string::npos) << message;
  EXPECT_NE(message.find("(2, 3)"), std::string::npos) << message;
  EXPECT_EQ(message.find("exp"), std::string::npos) << message;
  EXPECT_NE(division.find("div"), std::string::npos) << division;
  EXPECT_TRUE(std::isnan(log(full({}, -1)).item<float>()));
}

TEST(AnomalyMode, FindsANanInTheBackwardPass) {
  Tensor x = leaf({0});
  const Tensor y = sum(sqrt(x));
  set_anomaly_mode(true);
  const std::string message = error_of([&] { backward(y); });
  set_anomaly_mode(false);
  EXPECT_NE(message.find("div"), std::string::npos) << message;
}

TEST(GradMode, BelongsToTheThread) {
  const NoGrad off;
  bool other = false;
  std::thread([&] { other = grad_enabled(); }).join();
  EXPECT_TRUE(other);
}

}  // namespace
}  // namespace tandem::testing
