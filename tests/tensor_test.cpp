// Tensors: memory, views, assign, versions, external memory, reading.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "tandem/core/backend.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

Tensor counting(const Dims& shape) { return reshape(arange(size_of(shape), DType::f32), shape); }
std::vector<double> values(const Tensor& x) { return to_array(x).values; }
using Numbers = std::vector<double>;

TEST(Views, ShareMemoryAndCostNoCopy) {
  const Tensor x = counting({3, 4});
  const Storage* memory = x.impl()->storage.get();
  for (const Tensor& view : {reshape(x, {12}), permute(x, {1, 0}), slice(x, 0, 1, 3),
                             expand(unsqueeze(x, 0), {5, 3, 4}), select(x, 1, 2), flatten(x), x.detach()})
    EXPECT_EQ(view.impl()->storage.get(), memory);
  EXPECT_EQ(values(transpose(slice(x, 0, 1, 3))), Numbers({4, 8, 5, 9, 6, 10, 7, 11}));
}

TEST(Views, ReshapeCopiesOnlyWhereStridesDoNotAllowAView) {
  const Tensor x = counting({2, 3, 4});
  const Tensor turned = permute(x, {1, 0, 2});
  EXPECT_EQ(reshape(turned, {3, 2, 2, 2}).impl()->storage.get(), x.impl()->storage.get());
  const Tensor copied = reshape(turned, {6, 4});
  EXPECT_NE(copied.impl()->storage.get(), x.impl()->storage.get());
  EXPECT_EQ(values(copied), values(turned));
  // A slice with a step can be split, but not merged with the axis before it.
  const Tensor stepped = slice(x, 2, 0, 4, 2);
  EXPECT_EQ(reshape(stepped, {6, 2}).impl()->storage.get(), x.impl()->storage.get());
}

TEST(Views, OfEveryShapeReadTheRightElements) {
  // Random chains of views against index arithmetic done by hand on a plain array.
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Tensor view = counting({4, 6, 5});
    Array want = to_array(view);
    for (int step = 0; step < 4; ++step) {
      const int rank = want.shape.rank();
      Array next;
      switch (random.below(4)) {
        case 0: {
          const int a = static_cast<int>(random.below(rank)), b = static_cast<int>(random.below(rank));
          Dims shape = want.shape;
          std::swap(shape[a], shape[b]);
          next = Array(shape);
          each_index(shape, [&](const Dims& i) {
            Dims j = i;
            std::swap(j[a], j[b]);
            next.at(i) = want.at(j);
          });
          view = transpose(view, a, b);
          break;
        }
        case 1: {
          const int axis = static_cast<int>(random.below(rank));
          const Dim start = random.below(want.shape[axis]), by = 1 + random.below(3);
          Dims shape = want.shape;
          shape[axis] = (shape[axis] - start + by - 1) / by;
          next = Array(shape);
          each_index(shape, [&](const Dims& i) {
            Dims j = i;
            j[axis] = start + i[axis] * by;
            next.at(i) = want.at(j);
          });
          view = slice(view, axis, start, want.shape[axis], by);
          break;
        }
        case 2: {
          const int axis = static_cast<int>(random.below(rank + 1));
          Dims shape = want.shape;
          if (rank >= 5) continue;
          shape.insert(axis, 1);
          next = Array(shape, want.values);
          view = unsqueeze(view, axis);
          break;
        }
        default: {
          next = Array(Dims{want.size()}, want.values);
          view = reshape(view, {-1});
        }
      }
      want = next;
      ASSERT_TRUE(near(to_array(view), want, 0)) << "seed " << seed;
      ASSERT_TRUE(near(to_array(clone(view)), want, 0)) << "seed " << seed;
    }
  }
}

TEST(Assign, IntoAViewChangesTheWhole) {
  const Tensor x = zeros({2, 3});
  assign(select(x, 0, 1), from_vector<float>({1, 2, 3}, {3}));
  EXPECT_EQ(values(x), Numbers({0, 0, 0, 1, 2, 3}));
  assign(transpose(x), counting({3, 2}));
  EXPECT_EQ(values(x), Numbers({0, 2, 4, 1, 3, 5}));
  assign(slice(x, 1, 0, 3, 2), full({}, 9));
  EXPECT_EQ(values(x), Numbers({9, 2, 9, 9, 3, 9}));
}

TEST(Assign, CastsAndBroadcastsTheSource) {
  const Tensor x = zeros({2, 2}, DType::i32);
  assign(x, from_vector<float>({1.9f, -2.9f}, {2}));
  EXPECT_EQ(values(x), Numbers({1, -2, 1, -2}));
}

TEST(Assign, WithinOneTensorReadsBeforeItWrites) {
  const Tensor x = counting({6});
  assign(slice(x, 0, 1, 6), slice(x, 0, 0, 5));
  EXPECT_EQ(values(x), Numbers({0, 0, 1, 2, 3, 4}));
  const Tensor y = counting({3, 3});
  assign(y, transpose(y));
  EXPECT_EQ(values(y), Numbers({0, 3, 6, 1, 4, 7, 2, 5, 8}));
}

TEST(Assign, CountsVersionsOfTheMemory) {
  const Tensor x = zeros({4}), view = slice(x, 0, 1, 3);
  const uint32_t before = x.impl()->storage->version();
  assign(view, ones({2}));
  EXPECT_EQ(x.impl()->storage->version(), before + 1);
  EXPECT_EQ(view.impl()->storage->version(), before + 1);
}

TEST(Assign, IntoAnExpandedViewIsRefused) {
  const std::string message = error_of([] { assign(expand(zeros({1, 3}), {2, 3}), ones({2, 3})); });
  EXPECT_NE(message.find("assign: "), std::string::npos) << message;
  EXPECT_NE(message.find("(2, 3)"), std::string::npos) << message;
}

TEST(Tensors, ThatAreUndefinedAreRefusedByEveryFunction) {
  const Tensor none;
  const std::vector<std::function<void()>> calls = {
      [&] { reshape(none, {-1}); },
      [&] { transpose(none); },
      [&] { slice(none, 0, 0, 1); },
      [&] { select(none, 0, 0); },
      [&] {
        concat({none, none});
      },
      [&] {
        stack({none, none});
      },
      [&] {
        pad(none, {1, 1});
      },
      [&] { roll(none, {1}); },
      [&] { contiguous(none); },
      [&] { zeros_like(none); },
      [&] { sort(none); },
      [&] { topk(none, 1); },
      [&] { unique(none); },
      [&] { gather(none, 0, none); },
      [&] { embedding(none, none); },
      [&] { index(none, {0}); },
      [&] { sum(none); },
      [&] { softmax(none); },
      [&] { matmul(none, none); },
      [&] { conv2d(none, none); },
      [&] { max_pool2d(none); },
      [&] { interpolate(none, {.size = 2}); },
      [&] { dropout(none, 0.5); },
      [&] { to(none, {}); },
      [&] { assign(none, none); },
      [&] { none + 1.0; },
      [&] { none[0]; },
      [&] { none.detach(); },
      [&] { none.item<double>(); },
      [&] { none.backward(); },
      [&] { none.grad(); },
      [&] { none.shape(); },
  };
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_THROW(calls[i](), Error) << "call " << i;
}

TEST(Shapes, WhoseBytesCannotBeCountedAreRefused) {
  for (const Dim size : {Dim{1} << 60, Dim{1} << 61, (Dim{1} << 62) + 1}) {
    EXPECT_THROW(empty({size}), Error) << size;
    EXPECT_THROW(zeros({size}, DType::f64), Error) << size;
    EXPECT_THROW(zeros({size}, DType::u8), Error) << size;
    EXPECT_THROW(arange(size), Error) << size;
    EXPECT_THROW(randperm(size), Error) << size;
    EXPECT_THROW(contiguous(expand(ones({1}), {size})), Error) << size;
  }
}

TEST(Operations, NeverChangeTheirInputs) {
  const Tensor x = counting({5}), y = x + 1;
  EXPECT_EQ(values(x), Numbers({0, 1, 2, 3, 4}));
  EXPECT_EQ(values(y), Numbers({1, 2, 3, 4, 5}));
  assign(y, zeros({5}));
  EXPECT_EQ(values(x), Numbers({0, 1, 2, 3, 4}));
}

TEST(FromBlob, OfAlignedMemoryIsNotCopied) {
  static int released = 0;
  released = 0;
  float* memory = static_cast<float*>(std::aligned_alloc(64, 64));
  for (int i = 0; i < 16; ++i) memory[i] = static_cast<float>(i);
  {
    Tensor view;
    {
      const Tensor x = from_blob(
          memory, {4, 4}, DType::f32, {}, [](void* p) { std::free(p), ++released; }, memory);
      EXPECT_EQ(x.data<float>(), memory);
      view = select(x, 0, 2);
      assign(view, full({}, -1));
    }
    EXPECT_EQ(released, 0);
    EXPECT_EQ(memory[8], -1.f);
    EXPECT_EQ(memory[7], 7.f);
  }
  EXPECT_EQ(released, 1);
}

TEST(FromBlob, OfUnalignedMemoryIsCopied) {
  alignas(64) float memory[20] = {};
  for (int i = 0; i < 20; ++i) memory[i] = static_cast<float>(i);
  int released = 0;
  const Tensor x = from_blob(
      memory + 1, {4}, DType::f32, {}, [](void* p) { ++*static_cast<int*>(p); }, &released);
  EXPECT_NE(x.data<float>(), memory + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw()) % 64, 0u);
  EXPECT_EQ(values(x), Numbers({1, 2, 3, 4}));
  EXPECT_EQ(released, 1) << "the caller's memory is free again at once";
}

TEST(FromBlob, RefusesNullForAShapeWithElements) {
  EXPECT_NE(error_of([] { from_blob(nullptr, {2}, DType::f32); }).find("from_blob: "), std::string::npos);
  EXPECT_EQ(from_blob(nullptr, {0, 3}, DType::f32).size(), 0);
}

TEST(Memory, IsAlignedForEverySize) {
  for (const int64_t n : {0, 1, 3, 17, 1000, 100000})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(empty({n}).raw()) % 64, 0u) << n;
}

TEST(Memory, GoesBackToTheAllocator) {
  Backend& cpu = backend(DeviceKind::cpu);
  const size_t before = cpu.memory({}).in_use;
  {
    const Tensor x = zeros({1000, 1000});
    EXPECT_GE(cpu.memory({}).in_use, before + 4000000);
  }
  EXPECT_EQ(cpu.memory({}).in_use, before);
  EXPECT_GE(cpu.memory({}).peak, before + 4000000);
}

TEST(Reading, ItemConvertsFromEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    EXPECT_EQ(ones({1, 1}, dtype).item<int>(), 1) << dtype;
    EXPECT_EQ(ones({}, dtype).item<double>(), 1.) << dtype;
  }
}

TEST(Reading, ToVectorFollowsLogicalOrder) {
  EXPECT_EQ(transpose(counting({2, 3})).to_vector<float>(), std::vector<float>({0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(from_vector<bool>({true, false}, {2}).to_vector<bool>(), std::vector<bool>({true, false}));
  EXPECT_TRUE(zeros({0, 3}).to_vector<float>().empty());
  EXPECT_EQ(from_vector<int64_t>({1, -2}, {2}).to_vector<int64_t>(), std::vector<int64_t>({1, -2}));
}

TEST(Rebind, KeepsTheHandleAndTakesTheValue) {
  Tensor x = zeros({2}).set_requires_grad();
  const Tensor handle = x;
  x.rebind(full({2}, 3));
  EXPECT_EQ(values(handle), Numbers({3, 3}));
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_NE(error_of([&] { x.rebind(zeros({3})); }).find("rebind: "), std::string::npos);
}

TEST(Philox, GivesTheKnownAnswers) {
  // The vectors published with Random123 for philox4x32-10; our counter fills the first two words.
  const PhiloxBlock zero = philox(0, 0);
  EXPECT_EQ(zero.x[0], 0x6627e8d5u);
  EXPECT_EQ(zero.x[1], 0xe169c58du);
  EXPECT_EQ(zero.x[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.x[3], 0x9b00dbd8u);
}

TEST(RandomNumbers, FollowTheSeedAndThePosition) {
  manual_seed(3);
  const Tensor first = uniform({10}), second = uniform({10});
  EXPECT_EQ(generator_state().offset, 6u);  // three blocks of four each
  EXPECT_FALSE(same_bits(first, second));
  manual_seed(3);
  EXPECT_TRUE(same_bits(uniform({10}), first));
  set_generator_state({3, 3});
  EXPECT_TRUE(same_bits(uniform({10}), second));
  manual_seed(4);
  EXPECT_FALSE(same_bits(uniform({10}), first));
}

TEST(RandomNumbers, HaveTheRightMoments) {
  manual_seed(1);
  const auto moments = [](const Tensor& x) {
    const double m = mean(x).item<double>();
    return std::vector<double>{m, mean((x - m) * (x - m)).item<double>()};
  };
  const std::vector<double> flat = moments(cast(uniform({200000}, -1, 3), DType::f64));
  EXPECT_NEAR(flat[0], 1, 0.02);
  EXPECT_NEAR(flat[1], 16. / 12, 0.02);
  const std::vector<double> bell = moments(cast(normal({200000}, 2, 3), DType::f64));
  EXPECT_NEAR(bell[0], 2, 0.04);
  EXPECT_NEAR(bell[1], 9, 0.2);
  EXPECT_NEAR(mean(bernoulli({200000}, 0.3)).item<double>(), 0.3, 0.01);
  const Tensor x = uniform({100000});
  EXPECT_GE(min(x).item<float>(), 0.f);
  EXPECT_LT(max(x).item<float>(), 1.f);
}

TEST(SpecialValues, NanWinsComparisonsOfSizeAndReductions) {
  const float nan = std::nanf("");
  const Tensor x = from_vector<float>({1, nan, 3}, {3}), y = from_vector<float>({nan, 2, 1}, {3});
  const Array top = to_array(maximum(x, y)), low = to_array(minimum(x, y));
  EXPECT_TRUE(std::isnan(top[0]) && std::isnan(top[1]) && top[2] == 3);
  EXPECT_TRUE(std::isnan(low[0]) && std::isnan(low[1]) && low[2] == 1);
  EXPECT_TRUE(std::isnan(max(x).item<float>()));
  EXPECT_TRUE(std::isnan(min(x).item<float>()));
  EXPECT_EQ(argmax(x, 0).item<int64_t>(), 1);
  EXPECT_TRUE(std::isnan(relu(x).to_vector<float>()[1]));
}

TEST(SpecialValues, FunctionsAtTheirEnds) {
  const float inf = INFINITY;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = to_tensor(Array({5}, {-inf, -0., 0, inf, NAN}), dtype);
    const auto check = [&](const Tensor& got, const Numbers& want) {
      EXPECT_TRUE(near(to_array(got), Array({5}, want), 0)) << dtype;
    };
    check(exp(x), {0, 1, 1, inf, NAN});
    check(tanh(x), {-1, 0, 0, 1, NAN});
    check(sigmoid(x), {0, 0.5, 0.5, 1, NAN});
    check(log(x), {NAN, -inf, -inf, inf, NAN});
    check(sqrt(x), {NAN, 0, 0, inf, NAN});
    check(erf(x), {-1, 0, 0, 1, NAN});
    check(abs(x), {inf, 0, 0, inf, NAN});
  }
}

}  // namespace
}  // namespace tandem::testing
