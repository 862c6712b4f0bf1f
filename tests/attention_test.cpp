// scaled_dot_product_attention and MultiheadAttention: PyTorch's values and gradients (golden/make_sequences.py), gradients
// by differences, the same bits in both engines, keys beyond a sample's length, and refusals.
// ctest: asan
#include "tandem/nn/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tandem/core/autocast.h"
#include "tandem/core/rng.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/additive_attention.h"
#include "tandem/nn/containers.h"
#include "tandem/ops/create.h"
#include "tandem/ops/reduce.h"
#include "tandem/optim/sgd.h"
#include "tests/support/golden.h"
#include "tests/support/numeric_gradient.h"
#include "tests/support/refusal.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Dim kSamples = 3, kQueries = 4, kKeys = 5, kWidth = 6, kHeads = 2;

Tensor values(const Dims& shape, uint32_t salt, DType dtype) {
  return to_tensor(hash_array(shape, salt, -2, 2), dtype);
}

Tensor to_lengths(const std::vector<int64_t>& lengths) {
  return from_vector<int64_t>(lengths, {static_cast<Dim>(lengths.size())});
}

/// Whether each step along the last axis but one is within its sample's length: 1 or 0, in x's shape.
Array within(const Dims& shape, const std::vector<int64_t>& lengths) {
  Array mask(shape);
  each_index(shape, [&](const Dims& at) {
    mask.at(at) = at[shape.rank() - 2] < lengths[static_cast<size_t>(at[0])];
  });
  return mask;
}
/// x with NaN in every such step that is not.
Tensor spoiled(const Tensor& x, const std::vector<int64_t>& lengths) {
  Array array = to_array(x);
  const Array mask = within(x.shape(), lengths);
  for (int64_t i = 0; i < array.size(); ++i)
    if (mask[i] == 0) array[i] = kNan;
  return to_tensor(array, x.dtype());
}

Tensor loss_of(const Tensor& y) { return sum(y * y * to_tensor(hash_array(y.shape(), 77), y.dtype())); }

const std::map<std::string, Array>& golden() {
  static const std::map<std::string, Array>& all = *[] {
    auto* const read = new std::map<std::string, Array>;
    for (const std::string& line : golden_lines("sequences.txt")) {
      std::istringstream in(line);
      std::string name, part;
      in >> name >> part;
      (*read)[name + " " + part] = read_array(in);
    }
    return read;
  }();
  return all;
}

struct Case {
  std::string name;
  bool bias = true, is_self = true, causal = false;
  std::vector<int64_t> lengths = {};
};
/// The rows of ATTENTIONS in golden/make_sequences.py.
std::vector<Case> cases() {
  return {{"attention"},
          {"attention_no_bias", false, true, true},
          {"attention_cross", true, false},
          {"attention_cross_lengths", true, false, false, {2, 5, 1}},
          {"attention_all", true, true, true, {3, 1, 4}}};
}

/// A layer with the weights of the script, and what a case calls it with; NaN stands beyond the lengths.
struct Fixture {
  Fixture(const Case& row, DType dtype) : layer(nullptr, "", kWidth, kHeads, {.bias = row.bias}) {
    layer.to(dtype);
    set_weights(layer);
    q = values({kSamples, kQueries, kWidth}, 900, dtype);
    k = row.is_self ? q : values({kSamples, kKeys, kWidth}, 901, dtype);
    v = row.is_self ? q : values({kSamples, kKeys, kWidth}, 902, dtype);
    options.causal = row.causal;
    if (!row.lengths.empty()) {
      options.lengths = to_lengths(row.lengths);
      k = spoiled(k, row.lengths);
      v = row.is_self ? k : spoiled(v, row.lengths);
      if (row.is_self) q = k, mask = to_tensor(within({kSamples, kQueries, 1}, row.lengths), dtype);
    }
    leaves = {{"q", q.set_requires_grad()}};
    if (!row.is_self)
      leaves.insert(leaves.end(), {{"k", k.set_requires_grad()}, {"v", v.set_requires_grad()}});
    for (const auto& parameter : layer.named_parameters()) leaves.push_back(parameter);
  }
  /// Of a sequence to itself without the steps that mean nothing.
  Tensor call() {
    const Tensor y = layer(q, k, v, options);
    return mask.defined() ? y * mask : y;
  }
  List tensors() const {
    List all;
    for (const auto& [name, leaf] : leaves) all.push_back(leaf);
    return all;
  }

  nn::MultiheadAttention layer;
  Tensor q, k, v, mask;
  AttentionOptions options;
  nn::NamedTensors leaves;
};

TEST(MultiheadAttention, GivesPyTorchsValuesAndGradientsAlsoWithNansBeyondTheLengths) {
  for (const Case& row : cases())
    for (const DType dtype : {DType::f64, DType::f32}) {
      SCOPED_TRACE(str(row.name, " in ", dtype));
      Fixture s(row, dtype);
      const double tolerance = dtype == DType::f64 ? 1e-9 : 1e-5;
      const Tensor y = s.call();
      EXPECT_TRUE(near(to_array(y), golden().at(row.name + " output"), tolerance));
      const List gradients = grad(loss_of(y), s.tensors());
      for (size_t i = 0; i < gradients.size(); ++i)
        EXPECT_TRUE(
            near(to_array(gradients[i]), golden().at(row.name + " d." + s.leaves[i].first), tolerance))
            << s.leaves[i].first;
    }
}

TEST(MultiheadAttention, GradientsAreThoseOfDifferences) {
  for (const Case& row : cases()) {
    SCOPED_TRACE(row.name);
    Fixture s(row, DType::f64);
    if (!row.lengths.empty()) {  // differences of a NaN are none; those beyond a length are 0
      const NoGrad off;
      for (const Tensor& x : {s.q, s.k, s.v}) assign(x, values(x.shape(), 903, DType::f64));
    }
    check_gradients_by_differences([&] { return loss_of(s.call()); }, s.leaves);
  }
}

/// Losses and final weights of some training steps.
List trained(const Case& row, bool compiled) {
  manual_seed(5);
  nn::MultiheadAttention layer(nullptr, "", kWidth, kHeads, {.bias = row.bias});
  optim::Sgd sgd(layer.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  const auto step = [&](const List& in) {
    AttentionOptions options{.causal = row.causal};
    if (!row.lengths.empty()) options.lengths = in.back();
    const Tensor y = row.is_self ? layer(in[0], in[0], in[0], options) : layer(in[0], in[1], in[2], options);
    const Tensor loss = loss_of(y);
    sgd.update(grad(loss, layer.parameters()));
    return List{loss.detach()};
  };
  Compiled graph = compile(step);
  List out;
  for (uint32_t i = 0; i < 4; ++i) {
    List in = {values({kSamples, kQueries, kWidth}, 10 + i, DType::f32)};
    if (!row.is_self)
      for (const uint32_t salt : {20 + i, 30 + i})
        in.push_back(values({kSamples, kKeys, kWidth}, salt, DType::f32));
    if (!row.lengths.empty()) {
      std::vector<int64_t> lengths = row.lengths;  // others at each step
      lengths[i % 3] = 1 + i;
      for (size_t k = row.is_self ? 0 : 1; k < in.size(); ++k) in[k] = spoiled(in[k], lengths);
      in.push_back(to_lengths(lengths));
    }
    out.push_back(compiled ? graph(in)[0] : step(in)[0]);
    EXPECT_TRUE(std::isfinite(out.back().item<float>())) << "step " << i;
  }
  EXPECT_EQ(graph.reports().size(), compiled ? 1u : 0u);
  for (const Tensor& weight : layer.parameters()) out.push_back(weight.detach());
  return out;
}

TEST(MultiheadAttention, TrainingHasTheSameBitsInBothEngines) {
  for (const Case& row : cases()) {
    SCOPED_TRACE(row.name);
    const List eager = trained(row, false), graph = trained(row, true);
    ASSERT_EQ(eager.size(), graph.size());
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
  }
}

TEST(MultiheadAttention, OfAQueryWithOneKeyIsThatKeysValue) {
  nn::MultiheadAttention layer(nullptr, "", kWidth, kHeads);
  const NoGrad off;
  const Tensor x = values({2, 3, kWidth}, 1, DType::f32);
  const Tensor y = layer(x, x, x, {.causal = true}), first = layer(x, x, x, {.lengths = to_lengths({1, 1})});
  EXPECT_TRUE(near(to_array(select(y, 1, 0)), to_array(select(first, 1, 0)), 1e-6));
  const Tensor short_x = slice(x, 1, 0, 1);
  EXPECT_TRUE(near(to_array(select(y, 1, 0)), to_array(select(layer(short_x), 1, 0)), 1e-6));
}

TEST(MultiheadAttention, HasPyTorchsNamesAndStandsInContainers) {
  manual_seed(4);
  nn::Sequential net{nn::make<nn::MultiheadAttention>(kWidth, kHeads)};
  const Tensor x = values({2, 3, kWidth}, 1, DType::f32);
  const Tensor y = net(x).detach();
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_TRUE(same_bits((*net.clone())(x).detach(), y));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.in_proj_weight", "0.in_proj_bias", "0.out_proj.weight",
                                             "0.out_proj.bias"}));
  nn::MultiheadAttention plain(nullptr, "", kWidth, 1, {.bias = false});
  EXPECT_EQ(plain.state().size(), 2u);
  EXPECT_EQ(plain.in_proj_weight.shape(), (Dims{3 * kWidth, kWidth}));
  size_t inputs = 0;
  plain.add_forward_pre_hook([&](nn::Module&, List& in) { inputs = in.size(); });
  plain(x, x, x, {.lengths = to_lengths({1, 2})});
  EXPECT_EQ(inputs, 4u);
}

TEST(MultiheadAttention, RefusesWhatCannotBe) {
  EXPECT_HAS(
      refusal([] { nn::MultiheadAttention(nullptr, "a", 10, 3); }),
      "MultiheadAttention a: the width must be a multiple of the heads; got width 10 and 3 heads. The next "
      "one is 12.");
  refusal([] { nn::MultiheadAttention(nullptr, "", 0, 1); });
  refusal([] { nn::MultiheadAttention(nullptr, "", 4, 0); });
  refusal([] { nn::MultiheadAttention(nullptr, "", INT64_MAX, 1); });
  nn::MultiheadAttention layer(nullptr, "", kWidth, kHeads);
  const Tensor x = ones({2, 4, kWidth});
  EXPECT_HAS(
      refusal([&] {
        layer(x, x, ones({2, 3, kWidth}));
      }),
      "MultiheadAttention: the query must be (N, T, 6) and key and value (N, S, 6); got query f32 (2, 4, 6)");
  refusal([&] { layer(ones({4, kWidth})); });
  refusal([&] { layer(x, ones({3, 4, kWidth}), ones({3, 4, kWidth})); });
  refusal([&] { layer(x, x, Tensor()); });
  refusal([&] { layer(x, ones({2, 0, kWidth}), ones({2, 0, kWidth})); });
  refusal([&] { layer(cast(x, DType::f64)); });
  EXPECT_HAS(
      refusal([&] {
        layer(x, x, x, {.lengths = to_lengths({4, 0})});
      }),
      "MultiheadAttention: every length must be from 1 to 4, the size of the padded axis; got 0 for sample "
      "1. Leave such samples out.");
  EXPECT_HAS(refusal([&] { layer(x, x, x, {.lengths = to_lengths({5, 1})}); }), "got 5 for sample 0. Pad to");
  refusal([&] { layer(x, x, x, {.lengths = cast(to_lengths({4, 1}), DType::i32)}); });
}

TEST(MultiheadAttention, ACompiledCallableRefusesLengthsOutOfRangeWhenItRuns) {
  nn::MultiheadAttention layer(nullptr, "", kWidth, kHeads);
  const NoGrad off;
  Compiled run =
      compile([&](const List& in) { return List{layer(in[0], in[0], in[0], {.lengths = in[1]})}; });
  const Tensor x = ones({2, 4, kWidth}), good = to_lengths({1, 4});
  EXPECT_TRUE(same_bits(run({x, good})[0], layer(x, x, x, {.lengths = good})));
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{0, 4}, {1, 5}, {-1, 1}})
    refusal([&] { run({x, to_lengths(wrong)})[0].to_vector<float>(); });
}

TEST(MultiheadAttention, ComputesUnderAutocast) {
  manual_seed(4);
  nn::MultiheadAttention layer(nullptr, "", kWidth, kHeads);
  const auto step = [&](const List& in) {
    Tensor y;
    {
      const Autocast autocast(DType::bf16);
      y = cast(layer(in[0], in[0], in[0], {.causal = true, .lengths = in[1]}), DType::f32);
    }
    List out = grad(loss_of(y), layer.parameters());
    out.push_back(y.detach());
    return out;
  };
  const List in = {values({2, 4, kWidth}, 1, DType::f32), to_lengths({3, 2})}, eager = step(in),
             graph = compile(step)(in);
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
  const NoGrad off;
  EXPECT_LT(relative_distance(to_array(eager[4]),
                              to_array(layer(in[0], in[0], in[0], {.causal = true, .lengths = in[1]}))),
            0.03);
}

TEST(ScaledDotProductAttention, GivesPyTorchsValuesAndGradientsAlsoWithNansBeyondTheLengths) {
  const std::map<std::string, AttentionOptions> rows = {{"dot", {}},
                                                        {"dot_causal", {.causal = true, .scale = 0.7}},
                                                        {"dot_lengths", {.lengths = to_lengths({2, 5, 1})}}};
  for (const auto& [name, options] : rows)
    for (const DType dtype : {DType::f64, DType::f32}) {
      SCOPED_TRACE(str(name, " in ", dtype));
      Tensor q = values({3, 2, 4, 3}, 900, dtype), k = values({3, 2, 5, 3}, 901, dtype),
             v = values({3, 2, 5, 4}, 902, dtype);
      if (options.lengths.defined()) k = spoiled(k, {2, 5, 1}), v = spoiled(v, {2, 5, 1});
      for (Tensor* leaf : {&q, &k, &v}) leaf->set_requires_grad();
      const double tolerance = dtype == DType::f64 ? 1e-9 : 1e-5;
      const auto call = [&, options = options](const List& in) {
        const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], options);
        List out = grad(loss_of(y), in);
        out.push_back(y.detach());
        return out;
      };
      const List in = {q, k, v}, eager = call(in), graph = compile(call)(in);
      const char* const parts[] = {"d.q", "d.k", "d.v", "output"};
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(near(to_array(eager[i]), golden().at(str(name, " ", parts[i])), tolerance)) << parts[i];
        EXPECT_TRUE(same_bits(eager[i], graph[i])) << parts[i];
      }
    }
}

TEST(ScaledDotProductAttention, TakesMatricesAndRefusesWhatCannotBe) {
  const Tensor q = ones({2, 3}), k = ones({4, 3}), v = reshape(arange(8, DType::f32), {4, 2});
  EXPECT_TRUE(near(to_array(scaled_dot_product_attention(q, k, v)), Array({2, 2}, {3, 4, 3, 4}), 1e-6));
  EXPECT_HAS(
      refusal([&] {
        scaled_dot_product_attention(q, ones({4, 2}), v);
      }),
      "scaled_dot_product_attention: q must be (…, T, d), k (…, S, d) and v (…, S, e), with equal leading "
      "axes; got q (2, 3), k (4, 2) and v (4, 2).");
  refusal([&] { scaled_dot_product_attention(q, k, ones({5, 2})); });
  refusal([&] { scaled_dot_product_attention(ones({3}), k, v); });
  refusal([&] { scaled_dot_product_attention(q, k, Tensor()); });
  refusal([&] { scaled_dot_product_attention(q, ones({0, 3}), ones({0, 2})); });
  refusal([&] { scaled_dot_product_attention(q, k, v, {.scale = kNan}); });
  EXPECT_HAS(refusal([&] {
               scaled_dot_product_attention(q, k, v, {.lengths = to_lengths({1, 1})});
             }),
             "lengths need a first axis of samples");
  EXPECT_HAS(refusal([&] {
               scaled_dot_product_attention(ones({2, 1, 3}), ones({2, 4, 3}), ones({2, 4, 2}),
                                            {.lengths = to_lengths({0, 1})});
             }),
             "scaled_dot_product_attention: every length must be from 1 to 4, the size of the padded axis; "
             "got 0 for "
             "sample 0.");
}

/// The last rows of golden/make_sequences.py; NaN stands beyond the lengths.
struct ReadCase {
  std::string name;
  Dim queries;
  std::vector<int64_t> lengths;
  bool location = false;
};
std::vector<ReadCase> read_cases() {
  return {{"additive", 2, {}}, {"additive_lengths", 1, {2, 5, 1}}, {"location", 1, {2, 5, 1}, true}};
}
struct ReadFixture {
  ReadFixture(const ReadCase& row, DType dtype)
      : plain(nullptr, "", 3, 4, 6), location(nullptr, "", 3, 4, 6, {.filters = 4, .kernel = 3}), row(row) {
    nn::Module& layer = row.location ? static_cast<nn::Module&>(location) : plain;
    layer.to(dtype);
    set_weights(layer);
    q = values({kSamples, row.queries, 3}, 900, dtype);
    memory = values({kSamples, kKeys, 4}, 901, dtype);
    if (!row.lengths.empty()) {
      lengths = to_lengths(row.lengths);
      memory = spoiled(memory, row.lengths);
    }
    leaves = {{"q", q.set_requires_grad()}, {"memory", memory.set_requires_grad()}};
    if (row.location) {
      before = values({kSamples, kKeys}, 902, dtype).set_requires_grad();
      sum_before = values({kSamples, kKeys}, 903, dtype).set_requires_grad();
      leaves.insert(leaves.end(), {{"before", before}, {"sum", sum_before}});
    }
    for (const auto& parameter : layer.named_parameters()) leaves.push_back(parameter);
  }
  /// (N, queries, …), and what the script differentiates.
  nn::AttentionRead call() {
    if (!row.location) return plain(q, memory, lengths);
    const nn::AttentionRead read = location(squeeze(q, 1), memory, before, sum_before, lengths);
    return {unsqueeze(read.context, 1), unsqueeze(read.weights, 1)};
  }
  static Tensor loss(const nn::AttentionRead& read) {
    const Tensor second =
        read.weights * read.weights * to_tensor(hash_array(read.weights.shape(), 78), read.weights.dtype());
    return loss_of(read.context) + sum(second);
  }
  List tensors() const {
    List all;
    for (const auto& [name, leaf] : leaves) all.push_back(leaf);
    return all;
  }
  nn::AdditiveAttention plain;
  nn::LocationAttention location;
  ReadCase row;
  Tensor q, memory, before, sum_before, lengths;
  nn::NamedTensors leaves;
};

TEST(AdditiveAttention, GivesPyTorchsValuesAndGradientsAlsoWithNansBeyondTheLengths) {
  for (const ReadCase& row : read_cases())
    for (const DType dtype : {DType::f64, DType::f32}) {
      SCOPED_TRACE(str(row.name, " in ", dtype));
      ReadFixture s(row, dtype);
      const double tolerance = dtype == DType::f64 ? 1e-9 : 1e-5;
      const nn::AttentionRead read = s.call();
      EXPECT_TRUE(near(to_array(read.context), golden().at(row.name + " context"), tolerance));
      EXPECT_TRUE(near(to_array(read.weights), golden().at(row.name + " weights"), tolerance));
      const List gradients = grad(ReadFixture::loss(read), s.tensors());
      for (size_t i = 0; i < gradients.size(); ++i) {
        Array got = to_array(gradients[i]), want = golden().at(row.name + " d." + s.leaves[i].first);
        EXPECT_TRUE(near(got, want, tolerance)) << s.leaves[i].first;
      }
    }
}

TEST(AdditiveAttention, HasTheSameBitsInBothEnginesAndWithKeysComputedBefore) {
  for (const ReadCase& row : read_cases()) {
    SCOPED_TRACE(row.name);
    ReadFixture s(row, DType::f32);
    const auto step = [&](const List&) { return grad(ReadFixture::loss(s.call()), s.tensors()); };
    const List eager = step({}), graph = compile(step)({});
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
    const NoGrad off;
    if (row.location) {
      const nn::AttentionRead whole =
                                  s.location(squeeze(s.q, 1), s.memory, s.before, s.sum_before, s.lengths),
                              parts = s.location(squeeze(s.q, 1), s.location.prepare(s.memory, s.lengths),
                                                 s.before, s.sum_before);
      EXPECT_TRUE(same_bits(whole.weights, parts.weights));
      EXPECT_TRUE(same_bits(whole.context, parts.context));
      continue;
    }
    const Tensor clean = values({kSamples, kKeys, 4}, 901, DType::f32);
    const Tensor keys = s.plain.memory_layer(clean);
    const nn::AttentionRead before = s.plain(s.q, clean, s.lengths, keys),
                            now = s.plain(s.q, clean, s.lengths);
    EXPECT_TRUE(same_bits(before.weights, now.weights));
    EXPECT_TRUE(same_bits(before.context, now.context));
  }
}

TEST(AdditiveAttention, RefusesWhatCannotBe) {
  EXPECT_HAS(refusal([] { nn::AdditiveAttention(nullptr, "a", 0, 4, 6); }),
             "AdditiveAttention a: sizes must be at least 1");
  EXPECT_HAS(refusal([] { nn::LocationAttention(nullptr, "", 3, 4, 6, {.kernel = 4}); }),
             "the kernel must be odd");
  nn::AdditiveAttention plain(nullptr, "", 3, 4, 6);
  nn::LocationAttention location(nullptr, "", 3, 4, 6);
  const Tensor memory = ones({2, 5, 4}), q = ones({2, 3});
  EXPECT_HAS(refusal([&] { plain(ones({2, 4}), memory); }), "the query must be (2, 3) or (2, T, 3)");
  EXPECT_HAS(refusal([&] { plain(q, ones({2, 5, 3})); }), "the memory must be (N, S, 4)");
  EXPECT_HAS(refusal([&] { plain(q, memory, to_lengths({0, 5})); }), "from 1 to 5");
  EXPECT_HAS(refusal([&] { plain(q, memory, {}, ones({2, 5, 5})); }), "keys must be memory_layer(memory)");
  EXPECT_HAS(refusal([&] { location(q, memory, ones({2, 4}), ones({2, 5})); }), "Begin with zeros");
  EXPECT_HAS(refusal([&] {
               location(q, {memory, {}, {}}, ones({2, 5}), ones({2, 5}));
             }),
             "Make it by prepare()");
  refusal([&] { plain(Tensor(), memory); });
  refusal([&] { location(q, memory, Tensor(), Tensor()); });
}

}  // namespace
}  // namespace tandem::testing
