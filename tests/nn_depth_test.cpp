// Modules nested deep: time in proportion to their number, no deep recursion, and errors that name the layer.
// ctest: asan timeout=300
#include <gtest/gtest.h>

#include <thread>

#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/activation.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/summary.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tests/support/growth.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem {
namespace {

std::string message(const std::function<void()>& call) { return testing::message_of<Error>(call); }

/// A module made around another, as nn::make makes it: its recipe holds that one, too.
struct Around : nn::Module {
  nn::Sequential inner{this, "inner"};
  explicit Around(const nn::ModulePtr& module) { inner.add(module); }
  Tensor forward(const Tensor& x) override { return inner(x); }
};

/// Ways to nest modules `depth` deep around one linear layer.
using Nest = std::function<nn::ModulePtr(int depth)>;
nn::ModulePtr from_within(int depth) {
  nn::ModulePtr at = nn::make<nn::Linear>(2, 2);
  for (int i = 0; i < depth; ++i) {
    const auto outer = nn::make<nn::Sequential>();
    outer->add(at);
    at = outer;
  }
  return at;
}
nn::ModulePtr from_outside(int depth) {
  const auto top = nn::make<nn::Sequential>();
  nn::Sequential* at = top.get();
  for (int i = 1; i < depth; ++i) {
    const auto below = nn::make<nn::Sequential>();
    at->add(below);
    at = below.get();
  }
  at->add(nn::make<nn::Linear>(2, 2));
  return top;
}
/// Two at a time: each pair is there before what it holds is put into it.
nn::ModulePtr by_pairs(int depth) {
  nn::ModulePtr at = nn::make<nn::Linear>(2, 2);
  for (int i = 0; i < depth; i += 2) {
    const auto outer = nn::make<nn::Sequential>(), middle = nn::make<nn::Sequential>();
    outer->add(middle);
    middle->add(at);
    at = outer;
  }
  return at;
}
nn::ModulePtr as_members(int depth) {
  nn::ModulePtr at = std::make_shared<nn::Linear>(nullptr, "", 2, 2);
  for (int i = 0; i < depth; i += 2) {
    const auto outer = std::make_shared<Around>(at);
    // The recipe holds the inner module, as that of nn::make would.
    outer->set_recipe([at]() -> nn::ModulePtr { return at; });
    at = outer;
  }
  return at;
}
const std::pair<const char*, Nest> kNests[] = {{"from within", from_within},
                                               {"from outside", from_outside},
                                               {"by pairs", by_pairs},
                                               {"as members", as_members}};

/// All that walks over a tree.
void use(nn::Module& net) {
  EXPECT_EQ(net.parameters().size(), 2u);
  EXPECT_EQ(net.named_parameters().size(), 2u);
  EXPECT_EQ(nn::count_parameters(net), 6);
  net.eval();
  net.train();
  net.to(DType::f64);
  net.to(DType::f32);
  net.freeze();
  net.unfreeze();
  net.zero_grad();
  net.load_state(net.state(), "itself");
}

TEST(ModuleDepth, CostsTimeInProportion) {
  for (const auto& [name, nest] : kNests) {
    const auto all = [nest = nest](int depth) {
      const nn::ModulePtr net = nest(depth);
      use(*net);  // without named_modules(): all names together are as long as the depth squared
    };
    EXPECT_TRUE(testing::in_proportion(200, all)) << name;
  }
  EXPECT_TRUE(testing::in_proportion(500, [](int count) {
    nn::ModuleList list;
    const auto one = nn::make<nn::ReLU>();
    for (int i = 0; i < count; ++i) list.add(i % 2 ? one : nn::make<nn::ReLU>());
    list.eval();
  })) << "side by side";
}

TEST(ModuleDepth, OfAHundredThousandIsNoProblem) {
  // In a thread with a small stack: what recurses ends here at once.
  for (const auto& [name, nest] : kNests) {
    std::thread thread([nest = nest] {
      const nn::ModulePtr net = nest(100000);
      use(*net);
    });
    thread.join();
  }
}

TEST(ModuleDepth, BeyondTheStackIsRefused) {
  const nn::ModulePtr net = from_within(200000);
  const Tensor x = ones({1, 2});
  const std::string text = message([&] { (*net)(x); });
  EXPECT_NE(text.find("modules that call each other must fit on the stack of the thread"), std::string::npos)
      << text.substr(0, 400);
  EXPECT_LT(text.size(), 1000u);
  EXPECT_NE(message([&] { nn::summary(*net, {1, 2}); }), "");
  EXPECT_NE(message([&] { net->clone(); }), "");
  const nn::ModulePtr few = from_within(1000);
  EXPECT_NO_THROW((*few)(x));
  EXPECT_EQ(nn::summary(*few, {1, 2}).layers.size(), 1001u);
  EXPECT_EQ(few->clone()->state().size(), 2u);
}

TEST(ModuleDepth, ARingIsRefusedHoweverItIsBuilt) {
  const auto a = nn::make<nn::Sequential>(), b = nn::make<nn::Sequential>(), c = nn::make<nn::Sequential>();
  a->add(b);
  b->add(c);
  EXPECT_NE(message([&] { c->add(a); }).find("a child must not hold its parent"), std::string::npos);
  EXPECT_NE(message([&] { a->add(a); }).find("a child must not hold its parent"), std::string::npos);
  const auto around = std::make_shared<Around>(a);
  EXPECT_NE(message([&] { c->add(around); }).find("a child must not hold its parent"), std::string::npos);
  c->add("again", nn::make<nn::ReLU>());  // and the tree is as it was
  EXPECT_EQ(a->named_modules().size(), 4u);
}

TEST(ModuleDepth, AModuleOfTwoParentsOutlivesEither) {
  const auto shared = nn::make<nn::Linear>(2, 2);
  auto a = nn::make<nn::Sequential>(), b = nn::make<nn::Sequential>();
  a->add(shared);
  a->add(shared);
  b->add(shared);
  a.reset();
  const auto c = nn::make<nn::Sequential>();
  c->add(b);
  b.reset();
  EXPECT_EQ(c->parameters().size(), 2u);
}

// ---- names of layers in errors

struct Net : nn::Module {
  nn::Sequential features{
      this, "features", {nn::make<nn::Linear>(4, 3), nn::make<nn::ReLU>(), nn::make<nn::Linear>(5, 2)}};
  nn::Linear head{this, "head", 2, 2};
  bool own = false;
  Tensor forward(const Tensor& x) override {
    if (own) return x + ones({7, 7});
    return head(features(x));
  }
};

TEST(LayerErrors, NameTheLayerInBothEngines) {
  Net net;
  const Tensor x = ones({2, 4});
  const std::string plain = message([&] { net.features[2](ones({2, 3})); });
  EXPECT_EQ(plain.find("linear: "), 0u) << plain;  // a layer that is called by itself needs no name
  EXPECT_EQ(message([&] { net(x); }), "features.2 (Linear): " + plain);
  auto compiled = compile([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{net(in[0])}; });
  EXPECT_EQ(message([&] { compiled({x}); }), "features.2 (Linear): " + plain);
  EXPECT_EQ(message([&] { net.features(x); }), "2 (Linear): " + plain);
  // The same with hooks around the calls, and again: nothing of the Error before is left.
  net.features.add_forward_hook([](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>&) {});
  net.add_forward_pre_hook([](nn::Module&, std::vector<Tensor>&) {});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(message([&] { net(x); }), "features.2 (Linear): " + plain);
  // An Error of the net's own forward has no layer to name.
  net.own = true;
  EXPECT_EQ(message([&] { net(x); }).find("add: "), 0u);
  nn::Sequential outer{nn::make<nn::ReLU>()};
  outer.add("net", nn::make<Net>());
  outer.at<Net>("net").own = true;
  EXPECT_EQ(message([&] { outer(x); }).find("net (Net): add: "), 0u) << message([&] { outer(x); });
}

TEST(LayerErrors, KeepTheirClass) {
  struct Special : Error {
    int code = 7;
    using Error::Error;
  };
  struct Thrower : nn::Module {
    Tensor forward(const Tensor&) override { throw Special("special: no."); }
  };
  nn::Sequential net{nn::make<nn::ReLU>(), nn::make<Thrower>()};
  try {
    net(ones({1}));
    FAIL();
  } catch (const Special& error) {
    EXPECT_EQ(error.code, 7);
    EXPECT_STREQ(error.what(), "1 (Thrower): special: no.");
  }
}

TEST(LayerErrors, ThatAreCaughtOnTheWayAreForgotten) {
  struct Catcher : nn::Module {
    nn::Linear a{this, "a", 3, 3}, b{this, "b", 5, 5};
    Tensor forward(const Tensor& x) override {
      try {
        a(x);
      } catch (const Error&) {
      }
      return b(x);
    }
  };
  nn::Sequential net;
  net.add("catcher", nn::make<Catcher>());
  EXPECT_EQ(message([&] {
              net(ones({2, 4}));
            }).find("catcher.b (Linear): linear: "),
            0u)
      << message([&] {
           net(ones({2, 4}));
         });
}

TEST(LoadState, TakesPyTorchsCountOfBatches) {
  nn::Sequential net{nn::make<nn::Conv2d>(1, 2, 3), nn::make<nn::BatchNorm2d>(2)};
  nn::NamedTensors file = net.state();
  const Tensor count = from_vector<int64_t>({17}, {});
  file.emplace_back("1.num_batches_tracked", count);
  EXPECT_NO_THROW(net.load_state(file, "load"));
  EXPECT_TRUE(net.load_state(file, nn::LoadOptions{.strict = false}).complete());
  EXPECT_EQ(net.state().size(), file.size() - 1);
  file.emplace_back("0.num_batches_tracked", count);  // a convolution has none
  EXPECT_NE(message([&] { net.load_state(file, "load"); }).find("0.num_batches_tracked"), std::string::npos);
}

}  // namespace
}  // namespace tandem
