// The graph itself: values, uses, changing it, and what verify() finds; costs that grow with the number of nodes;
// attributes by name.
// ctest: asan
#include "tandem/graph/graph.h"

#include <gtest/gtest.h>

#include "tandem/core/tape.h"
#include "tandem/graph/tracer.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/growth.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using graph::Graph;
using graph::kNone;
using List = std::vector<Tensor>;

graph::Graph traced(const TensorFunction& body, const List& in) {
  return std::move(graph::trace(body, in)->graph);
}

std::vector<std::string> ops_of(const Graph& g) {
  std::vector<std::string> names;
  for (int n = g.first(); n != kNone; n = g.next(n)) names.push_back(g.node(n).what());
  return names;
}

std::string what_verify_says(const Graph& g) {
  try {
    g.verify("a test");
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(GraphStructure, KnowsWhoUsesAValueAndWhoMadeIt) {
  Graph t = traced(
      [](const List& in) {
        const Tensor a = in[0] + 1;
        return List{a * a, a};
      },
      {zeros({2})});
  const Graph& g = t;
  EXPECT_EQ(ops_of(g), (std::vector<std::string>{"full", "add", "mul"}));
  const int a = g.outputs()[1];
  EXPECT_EQ(g.uses_of(a).size(), 3u) << "twice by mul, once as a result";
  EXPECT_STREQ(g.node(g.value(a).maker).op->name, "add");
  EXPECT_EQ(what_verify_says(g), "");
}

TEST(GraphStructure, AReplacedValueLeavesItsUsesAndViewsToTheOther) {
  Graph t = traced(
      [](const List& in) {
        const Tensor a = in[0] + 1, b = in[0] + 1, view = transpose(b);
        return List{a, exp(view), b};
      },
      {zeros({2, 2})});
  Graph& g = t;
  const int a = g.outputs()[0], b = g.outputs()[2];
  const int twin = g.value(b).maker;
  g.erase(twin);
  g.replace(b, a);
  EXPECT_EQ(g.outputs(), (std::vector<int>{a, g.outputs()[1], a}));
  EXPECT_TRUE(g.uses_of(b).empty());
  EXPECT_EQ(what_verify_says(g), "");
}

TEST(GraphStructure, VerifyFindsWhatAWrongPassWouldDo) {
  const Tensor state = zeros({3});
  const auto body = [&](const List& in) {
    const Tensor before = state * 2;
    assign(state, in[0]);
    return List{before, state + 1};
  };
  {
    Graph t = traced(body, {zeros({3})});
    Graph& g = t;
    int mul = g.first();
    while (g.node(mul).what() != "mul") mul = g.next(mul);
    g.append(g.erase(mul));  // behind the assign
    EXPECT_NE(what_verify_says(g).find("changed less or more often"), std::string::npos);
  }
  {
    Graph t = traced(body, {zeros({3})});
    Graph& g = t;
    int assigns = g.first();
    while (g.node(assigns).what() != "assign") assigns = g.next(assigns);
    g.erase(assigns);
    EXPECT_NE(what_verify_says(g).find("changed less or more often"), std::string::npos);
  }
  {
    Graph t = traced([](const List& in) { return List{exp(in[0] * in[0])}; }, {zeros({3})});
    Graph& g = t;
    graph::Node mul = g.erase(g.first());
    EXPECT_NE(what_verify_says(g).find("before it is made"), std::string::npos);
    g.append(std::move(mul));
    EXPECT_NE(what_verify_says(g).find("before it is made"), std::string::npos);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kNodes = 100;
#else
constexpr int kNodes = 1000;
#endif

TEST(CompileTime, GrowsWithTheNumberOfNodes) {
  const Tensor x = full({2, 2}, 0.5);
  const auto compile_chain = [&](const std::function<Tensor(const Tensor&, const Tensor&)>& step) {
    return [&x, step](int nodes) {
      compile([&](const List& in) {
        Tensor y = in[0];
        for (int i = 0; i < nodes; ++i) y = step(y, in[0]);
        return List{y};
      })({x});
    };
  };
  EXPECT_TRUE(in_proportion(kNodes, compile_chain([](const Tensor& y, const Tensor& in) { return y * in; })))
      << "pointwise";
  EXPECT_TRUE(
      in_proportion(kNodes, compile_chain([](const Tensor& y, const Tensor& in) { return matmul(y, in); })))
      << "products";
  EXPECT_TRUE(in_proportion(
      kNodes, compile_chain([](const Tensor& y, const Tensor&) { return sum(exp(y), {0}, true) + y; })))
      << "mixed";
}

TEST(CompileTime, OfATrainingStepGrowsWithTheNumberOfNodes) {
  EXPECT_TRUE(in_proportion(kNodes / 4, [](int nodes) {
    Tensor w = full({2, 2}, 0.5).set_requires_grad();
    const Tensor velocity = zeros({2, 2});
    compile([&](const List& in) {
      Tensor y = in[0];
      for (int i = 0; i < nodes; ++i) y = tanh(matmul(y, w));
      const Tensor g = grad(sum(y), List{w})[0];
      const NoGrad off;
      assign(velocity, velocity * 0.9 + g);
      assign(w, w - velocity);
      return List{};
    })({full({2, 2}, 0.5)});
  }));
}

TEST(CompileTime, OfManyReadersAndWritersOfOneTensorGrowsWithTheirNumber) {
  EXPECT_TRUE(in_proportion(kNodes, [](int nodes) {
    const Tensor state = zeros({4}), other = zeros({4});
    compile([&](const List& in) {
      for (int i = 0; i < nodes / 2; ++i) {
        assign(state, state + in[0]);
        assign(other, other + exp(in[0]));
      }
      return List{};
    })({zeros({4})});
  }));
}

struct EveryField {
  int64_t count = 3;
  double rate = 0.5;
  bool on = true;
  DType dtype = DType::bf16;
  Dims shape = {2, 3};
  uint8_t small = 7;
  Text text = "a long text that no field could hold inline, whatever its size may be";
  IntList list = std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("count", &EveryField::count), field("rate", &EveryField::rate),
                 field("on", &EveryField::on), field("dtype", &EveryField::dtype),
                 field("shape", &EveryField::shape), field("small", &EveryField::small),
                 field("text", &EveryField::text), field("list", &EveryField::list));
  }
};

TEST(Attributes, AreReadAndSetByName) {
  Attrs attrs = EveryField{};
  std::string names;
  for (const Attribute& attribute : attrs.list())
    names += attribute.name + "=" + attribute.value.print() + ";";
  EXPECT_EQ(names,
            "count=3;rate=0.5;on=true;dtype=bf16;shape=[2, 3];small=7;text=a long text that no field could "
            "hold inline, "
            "whatever its size may be;list=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10];");
  const Attrs same = EveryField{};
  EXPECT_TRUE(attrs == same);
  EXPECT_EQ(attrs.hash(), same.hash());
  attrs.set("count", AttrValue::of(int64_t{4}));
  attrs.set("rate", AttrValue::of(0.25));
  attrs.set("on", AttrValue::of(false));
  attrs.set("dtype", AttrValue::of(std::string("f64")));
  attrs.set("shape", AttrValue::of(std::vector<int64_t>{5}));
  attrs.set("text", AttrValue::of(std::string("short")));
  attrs.set("list", AttrValue::of(std::vector<int64_t>{}));
  EXPECT_FALSE(attrs == same);
  const EveryField& now = attrs.as<EveryField>();
  EXPECT_EQ(now.count, 4);
  EXPECT_EQ(now.rate, 0.25);
  EXPECT_FALSE(now.on);
  EXPECT_EQ(now.dtype, DType::f64);
  EXPECT_EQ(now.shape, Dims({5}));
  EXPECT_EQ(now.text.str(), "short");
  EXPECT_TRUE(now.list.values().empty());
  EXPECT_EQ(attrs.get("count"), AttrValue::of(int64_t{4}));
}

TEST(Attributes, OfAnotherNameKindOrRangeAreRefused) {
  Attrs attrs = EveryField{};
  EXPECT_NE(error_of([&] { attrs.get("colour"); }).find("colour"), std::string::npos);
  EXPECT_NE(error_of([&] { attrs.set("colour", AttrValue::of(int64_t{1})); }).find("colour"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { attrs.set("count", AttrValue::of(0.5)); }),
            "attribute count: must be an integer; got 0.5.");
  EXPECT_EQ(error_of([&] { attrs.set("small", AttrValue::of(int64_t{256})); }),
            "attribute small: must be from 0 to 255; got 256.");
  EXPECT_NE(error_of([&] { attrs.set("dtype", AttrValue::of(std::string("f12"))); }).find("f12"),
            std::string::npos);
  EXPECT_TRUE(attrs == Attrs(EveryField{})) << "nothing was changed";
}

}  // namespace
}  // namespace tandem::testing
