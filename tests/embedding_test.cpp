// The embedding layer: its initial values, and its dense and sparse gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/embedding.h"
#include "tandem/ops/index.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/sgd_rows.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

struct Net : nn::Module {
  explicit Net(nn::EmbeddingLayerOptions options) : table(this, "table", 50, 8, options) {}
  Tensor forward(const Tensor& index) override { return table(index); }
  nn::Embedding table;
};

Tensor some_index(const Dims& shape, uint32_t salt = 5) {
  return to_tensor(hash_array(shape, salt, 0, 50), DType::i64);
}

Tensor loss_of(const Tensor& rows) {
  return sum(mul(mul(rows, rows), to_tensor(hash_array(rows.shape(), 6), DType::f32)));
}

TEST(Embedding, StartsNormalWithAPaddingRowOfZeros) {
  manual_seed(3);
  Net net({.padding_idx = -2});
  ASSERT_EQ(net.named_parameters().size(), 1u);
  EXPECT_EQ(net.named_parameters()[0].first, "table.weight");
  const Array weight = to_array(net.table.weight);
  double squares = 0;
  for (const double v : weight.values) squares += v * v;
  EXPECT_NEAR(squares / 400, 1, 0.25);
  for (Dim c = 0; c < 8; ++c) EXPECT_EQ(weight.at({48, c}), 0);
  const Tensor index = some_index({3, 4});
  const Tensor rows = net(index).detach();
  EXPECT_EQ(rows.shape(), (Dims{3, 4, 8}));
  EXPECT_TRUE(
      same_bits(reshape(rows, {12, 8}), index_select(net.table.weight.detach(), 0, reshape(index, {12}))));
}

TEST(Embedding, ThePaddingRowGetsNoGradient) {
  for (const bool sparse : {false, true}) {
    manual_seed(3);
    Net net({.padding_idx = 7, .sparse = sparse});
    const Tensor index = from_vector<int64_t>({7, 1, 7, 2}, {4});
    sum(net(index) + 1.0).backward();
    const Tensor gradient = sparse ? index_add(zeros({50, 8}), 0, from_vector<int64_t>({7, 1, 7, 2}, {4}),
                                               net.table.take_gradient().values)
                                   : net.table.weight.grad();
    const Array g = to_array(gradient);
    EXPECT_EQ(g.at({7, 0}), 0);
    EXPECT_EQ(g.at({1, 0}), 1);
    EXPECT_EQ(g.at({2, 7}), 1);
    EXPECT_EQ(g.at({3, 0}), 0);
  }
}

TEST(Embedding, ASparseStepMovesTheWeightAsADenseOneDoes) {
  manual_seed(3);
  Net dense({}), sparse({.sparse = true});
  {
    const NoGrad off;
    assign(sparse.table.weight, dense.table.weight);
  }
  for (uint32_t step = 0; step < 3; ++step) {
    const Tensor first = some_index({6, 5}, step), second = cast(some_index({4}, step + 10), DType::i32);
    (loss_of(dense(first)) + loss_of(dense(second))).backward();
    (loss_of(sparse(first)) + loss_of(sparse(second))).backward();
    const nn::SparseGradient gradient = sparse.table.take_gradient();
    EXPECT_EQ(gradient.indices.shape(), (Dims{34}));
    EXPECT_EQ(gradient.values.shape(), (Dims{34, 8}));
    EXPECT_FALSE(sparse.table.weight.grad().defined());
    {
      const NoGrad off;
      assign(dense.table.weight, dense.table.weight - dense.table.weight.grad() * 0.1);
    }
    dense.table.weight.zero_grad();
    optim::sgd_rows(sparse.table.weight, gradient, 0.1);
    EXPECT_TRUE(near(to_array(sparse.table.weight), to_array(dense.table.weight), 1e-6)) << "step " << step;
  }
  EXPECT_EQ(sparse.table.take_gradient().indices.size(), 0);
}

TEST(Embedding, TheDenseGradientStandsInACompiledCallableAndTheSparseOneIsRefused) {
  manual_seed(3);
  Net dense({}), sparse({.sparse = true});
  const Tensor index = some_index({6});
  Compiled step = compile([&](const std::vector<Tensor>& in) {
    return grad(loss_of(dense(in[0])), std::vector<Tensor>{dense.table.weight});
  });
  const Tensor want = grad(loss_of(dense(index)), std::vector<Tensor>{dense.table.weight})[0];
  EXPECT_TRUE(same_bits(step({index})[0], want));
  Compiled refused =
      compile([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{sparse(in[0])}; });
  EXPECT_NE(error_of([&] { refused({index}); }).find("compiled callable"), std::string::npos);
  sparse.eval();
  const NoGrad off;
  EXPECT_TRUE(same_bits(refused({index})[0], index_select(sparse.table.weight, 0, index)));
}

TEST(Embedding, RefusesWhatCannotBe) {
  struct Parent : nn::Module {
    Tensor forward(const Tensor& x) override { return x; }
  } parent, other;
  EXPECT_NE(error_of([&] { nn::Embedding(&parent, "a", 0, 3); }).find("Embedding a: "), std::string::npos);
  EXPECT_NE(error_of([&] { nn::Embedding(&other, "b", 4, 3, {.padding_idx = 4}); }).find("got 4"),
            std::string::npos);
  Net dense({});
  EXPECT_NE(error_of([&] { dense.table.take_gradient(); }).find("sparse"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::sgd_rows(dense.table.weight, {}, -1); }).find("-1"), std::string::npos);
}

/// The bits do not depend on the threads: sorts of a long line and of many, sums by place.
TEST(EmbeddingBag, WrongOffsetsAreRefusedInBothEngines) {
  for (const nn::BagMode mode : {nn::BagMode::sum, nn::BagMode::mean, nn::BagMode::max})
    for (const bool has_last : {false, true}) {
      nn::EmbeddingBag bag(nullptr, "", 7, 2, {.mode = mode, .include_last_offset = has_last});
      const NoGrad off;
      const Tensor index = from_vector<int64_t>({1, 2, 3}, {3});
      const TensorFunction call = [&](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{bag(index, in[0])};
      };
      Compiled compiled = compile(call);
      const std::vector<Tensor> right = {from_vector<int64_t>({0, 1, 3}, {3})};
      EXPECT_TRUE(same_bits(compiled(right)[0], call(right)[0]));
      for (const std::vector<int64_t>& wrong :
           {std::vector<int64_t>{0, 2, 1}, {-2, 2, 3}, {1, 2, 3}, {0, 2, 9}, {0, -1, 3}}) {
        const std::vector<Tensor> in = {from_vector<int64_t>(wrong, {3})};
        EXPECT_THROW(call(in), Error) << wrong[0] << " " << wrong[1] << " " << wrong[2];
        EXPECT_THROW(compiled(in)[0].to_vector<float>(), Error)
            << wrong[0] << " " << wrong[1] << " " << wrong[2];
      }
      EXPECT_TRUE(same_bits(compiled(right)[0], call(right)[0]));
    }
}

TEST(Indexing, HasTheSameBitsAtAnyThreadCount) {
  const Tensor x = to_tensor(hash_array({200000}, 1), DType::f32);
  const Tensor rows = to_tensor(hash_array({5000, 40}, 2), DType::f32);
  const Tensor index = to_tensor(hash_array({5000}, 3, 0, 37), DType::i64);
  const Tensor wide = to_tensor(hash_array({5000, 40}, 4, 0, 30), DType::i64);
  const int before = threads();
  std::vector<std::vector<Tensor>> results;
  for (const int count : {1, 2, 3}) {
    set_threads(count);
    results.push_back({argsort(x, 0), argsort(cast(x, DType::f64), 0, true), topk(x, 9000).values,
                       argsort(rows, 0), argsort(rows, 1), index_add(zeros({37, 40}), 0, index, rows),
                       scatter_add(zeros({30, 40}), 0, wide, rows),
                       scatter_add(zeros({5000, 30}), 1, wide, rows), scatter(zeros({30, 40}), 0, wide, rows),
                       gather(rows, 0, wide), nonzero(greater(rows, 0)),
                       unique(wide, {.inverse = true}).inverse});
  }
  set_threads(before);
  for (size_t run = 1; run < results.size(); ++run)
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_TRUE(same_bits(results[run][i], results[0][i])) << run + 1 << " threads, result " << i;
}

}  // namespace
}  // namespace tandem::testing
