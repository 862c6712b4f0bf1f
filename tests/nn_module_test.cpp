// The mechanics of modules: buffers, containers, hooks, clones, freezing, shared parameters, loading that is not strict;
// activations as layers, initial values, and summaries.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/io/safetensors.h"
#include "tandem/nn/activation.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/summary.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/optim/sgd.h"
#include "tandem/train/step.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem {
namespace {

using testing::error_of;
using testing::same_bits;
using Names = std::vector<std::string>;

template <class Rows>
Names names(const Rows& rows) {
  Names all;
  for (const auto& [name, value] : rows) all.push_back(name);
  return all;
}

struct Counter : nn::Module {
  using Module::Module;
  const Tensor scale = parameter("scale", ones({2}));
  const Tensor mean = buffer("mean", zeros({2}));
  const Tensor count = buffer("count", zeros({}, DType::i64));
  Tensor forward(const Tensor& x) override { return x * scale - mean; }
};

struct Pair : nn::Module {
  Counter a{this, "a"}, b{this, "b"};
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};

TEST(Buffers, AreSavedLoadedAndMovedButNeitherTrainedNorCounted) {
  Pair net;
  EXPECT_EQ(names(net.named_parameters()), (Names{"a.scale", "b.scale"}));
  EXPECT_EQ(names(net.named_buffers()), (Names{"a.mean", "a.count", "b.mean", "b.count"}));
  EXPECT_EQ(names(net.state()), (Names{"a.scale", "a.mean", "a.count", "b.scale", "b.mean", "b.count"}));
  EXPECT_EQ(nn::count_parameters(net), 4);
  EXPECT_FALSE(net.a.mean.requires_grad());

  const testing::TempFolder folder;
  const std::string path = folder / "pair.safetensors";
  assign(net.a.count, full({}, 7, DType::i64));
  assign(net.a.mean, full({2}, 0.5));
  io::save_safetensors(path, net.state());
  Pair other;
  other.load_state(io::load_safetensors(path).tensors, "load");
  EXPECT_EQ(other.a.count.item<int64_t>(), 7);
  EXPECT_EQ(other.a.mean.to_vector<float>(), (std::vector<float>{0.5f, 0.5f}));

  other.to(DType::f64);
  EXPECT_EQ(other.a.mean.dtype(), DType::f64);
  EXPECT_EQ(other.a.count.dtype(), DType::i64);

  nn::NamedTensors wrong = net.state();
  wrong[1].second = zeros({3});
  EXPECT_EQ(error_of([&] { net.load_state(wrong, "load"); }),
            "load: buffer a.mean is (3,) in the file and (2,) in the model.");
}

TEST(Buffers, ThatAreNotSavedAreMovedOnly) {
  struct Table : nn::Module {
    Tensor table = buffer("table", ones({2}), false);
    Tensor kept = buffer("kept", ones({2}));
    Tensor forward(const Tensor& x) override { return x * table; }
  } net;
  EXPECT_EQ(names(net.named_buffers()), (Names{"table", "kept"}));
  EXPECT_EQ(names(net.state()), Names{"kept"});
  net.load_state(net.state());
  net.to(DType::f64);
  EXPECT_EQ(net.table.dtype(), DType::f64);
}

TEST(Buffers, RefuseWhatRequiresAGradientAndNamesThatAreTaken) {
  struct Bad : nn::Module {
    Tensor w = parameter("w", ones({1}));
    void add(const std::string& name, const Tensor& value) { buffer(name, value); }
  } bad;
  EXPECT_EQ(error_of([&] { bad.add("b", bad.w); }),
            "buffer b: must not require a gradient; got one that does. detach() it, or make it a parameter.");
  EXPECT_EQ(error_of([&] { bad.add("w", zeros({1})); }),
            "module: a name must be used once; got a second 'w'.");
  EXPECT_EQ(error_of([&] { bad.add("b", {}); }), "buffer b: must be a tensor; got an undefined handle.");
}

std::shared_ptr<nn::Sequential> small_net() {
  auto net = nn::make<nn::Sequential>();
  net->add(nn::make<nn::Conv2d>(1, 2, 3, nn::Conv2dLayerOptions{.padding = 1}))
      .add(nn::make<nn::ReLU>())
      .add(nn::make<nn::Flatten>())
      .add("head", nn::make<nn::Linear>(32, 3, nn::LinearOptions{.bias = false}));
  return net;
}

TEST(Containers, SequentialCallsItsChildrenInOrderUnderPyTorchsNames) {
  manual_seed(1);
  nn::Sequential net{nn::make<nn::Linear>(4, 3), nn::make<nn::Tanh>(), nn::make<nn::Linear>(3, 2)};
  EXPECT_EQ(names(net.named_parameters()), (Names{"0.weight", "0.bias", "2.weight", "2.bias"}));
  const Tensor x = uniform({5, 4});
  const auto& first = net.at<nn::Linear>(0);
  const auto& last = net.at<nn::Linear>(-1);
  EXPECT_TRUE(same_bits(net(x), linear(tanh(linear(x, first.weight, first.bias)), last.weight, last.bias)));
  EXPECT_EQ(net.size(), 3u);
  EXPECT_EQ(small_net()->named_children().back().first, "head");
  EXPECT_EQ((*small_net())(zeros({2, 1, 4, 4})).shape(), (Dims{2, 3}));

  struct Wrapped : nn::Module {
    nn::Sequential body{this, "body", {nn::make<nn::Linear>(4, 4), nn::make<nn::ReLU>()}};
    nn::Sequential empty{this, "empty"};
    Tensor forward(const Tensor& x) override { return empty(body(x)); }
  } wrapped;
  EXPECT_EQ(names(wrapped.named_parameters()), (Names{"body.0.weight", "body.0.bias"}));
  EXPECT_EQ(names(wrapped.named_modules()), (Names{"", "body", "body.0", "body.1", "empty"}));
  wrapped.eval();
  EXPECT_FALSE(wrapped.body[0].training());
  EXPECT_EQ(wrapped(zeros({1, 4})).shape(), (Dims{1, 4}));
}

TEST(Containers, ListsAndDictionariesHoldModulesThatTheirOwnerCalls) {
  nn::ModuleList list{nn::make<nn::Linear>(2, 2), nn::make<nn::Linear>(2, 2)};
  EXPECT_EQ(names(list.named_parameters()), (Names{"0.weight", "0.bias", "1.weight", "1.bias"}));
  nn::ModuleDict dict{{"up", nn::make<nn::Linear>(2, 4)}, {"down", nn::make<nn::Linear>(4, 2)}};
  EXPECT_EQ(dict["down"](dict["up"](zeros({1, 2}))).shape(), (Dims{1, 2}));
  EXPECT_TRUE(dict.contains("up"));
  EXPECT_FALSE(dict.contains("left"));
  EXPECT_EQ(error_of([&] { dict["left"]; }), "container: the name must be one of (up, down); got 'left'.");
  EXPECT_EQ(error_of([&] { list[2]; }),
            "container: the place must be below the number of children, 2; got 2.");
  EXPECT_EQ(error_of([&] { list.at<nn::ReLU>(0); }),
            "container: the child '0' must be of the class asked for; it is a Linear.");
  EXPECT_EQ(error_of([&] {
              list(zeros({1, 2}));
            }),
            "module ModuleList: forward must take one tensor to be called with one; this module takes "
            "something else. Call its own forward, or its parts.");
  EXPECT_EQ(error_of([&] { dict.add("up", nn::make<nn::ReLU>()); }),
            "module: a name must be used once; got a second 'up'.");
  EXPECT_EQ(error_of([&] { list.add(nullptr); }),
            "module: a child must be a module; got a null pointer for '2'.");
  const auto ring = nn::make<nn::Sequential>();
  EXPECT_EQ(error_of([&] { ring->add(ring); }), "module: a child must not hold its parent; '0' does.");
}

TEST(Containers, AModuleThatGoesEarlyLeavesItsParent) {
  struct Owner : nn::Module {
    std::unique_ptr<nn::Linear> layer = std::make_unique<nn::Linear>(this, "layer", 1, 1);
    Tensor forward(const Tensor& x) override { return x; }
  } owner;
  EXPECT_EQ(owner.parameters().size(), 2u);
  owner.layer.reset();
  EXPECT_EQ(owner.parameters().size(), 0u);
  std::unique_ptr<nn::Linear> survivor;
  {
    Owner second;
    survivor = std::move(second.layer);
  }
  EXPECT_EQ(survivor->parameters().size(), 2u);
}

TEST(Hooks, SeeAndReplaceInputsAndOutputsUntilRemoved) {
  nn::Identity layer;
  std::vector<std::string> calls;
  const nn::HookId before = layer.add_forward_pre_hook([&](nn::Module&, std::vector<Tensor>& in) {
    calls.push_back("before");
    in[0] = in[0] + 1;
  });
  const nn::HookId after =
      layer.add_forward_hook([&](nn::Module& m, const std::vector<Tensor>& in, std::vector<Tensor>& out) {
        calls.push_back("after " + m.type_name());
        EXPECT_EQ(in[0].item<float>(), 2);
        out[0] = out[0] * 10;
      });
  const Tensor x = ones({});
  EXPECT_EQ(layer(x).item<float>(), 20);
  EXPECT_EQ(calls, (std::vector<std::string>{"before", "after Identity"}));
  layer.remove_hook(after);
  EXPECT_EQ(layer(x).item<float>(), 2);
  layer.remove_hook(before);
  EXPECT_EQ(layer(x).item<float>(), 1);
  EXPECT_EQ(
      error_of([&] { layer.remove_hook(after); }),
      "remove_hook: module Identity must have the hook; got number 2, which it does not have (any more).");
  layer.add_forward_hook(
      [](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& out) { out.clear(); });
  EXPECT_EQ(error_of([&] { layer(x); }), "module Identity: a hook must leave 1 outputs; it left 0.");
}

TEST(Hooks, ReachModulesOfOtherSignatures) {
  struct Adder : nn::Module {
    using Module::forward;
    Tensor forward(const Tensor& a, const Tensor& b) { return a + b; }
    Tensor operator()(const Tensor& a, const Tensor& b) {
      return call({a, b}, [this](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{forward(in[0], in[1])};
      })[0];
    }
  } adder;
  size_t seen = 0;
  adder.add_forward_hook(
      [&](nn::Module&, const std::vector<Tensor>& in, std::vector<Tensor>&) { seen = in.size(); });
  EXPECT_EQ(adder(ones({}), ones({})).item<float>(), 2);
  EXPECT_EQ(seen, 2u);
}

TEST(Clone, HasTheSameValuesModesAndTypesAndSharesNothing) {
  manual_seed(5);
  const auto net = small_net();
  net->to(DType::f64);
  (*net)[0].freeze();
  (*net)[1].eval();
  const GeneratorState before = generator_state();
  const nn::ModulePtr copy = net->clone();
  EXPECT_EQ(generator_state().offset, before.offset);
  EXPECT_EQ(names(copy->state()), names(net->state()));
  const Tensor x = normal({2, 1, 4, 4}, 0, 1, DType::f64);
  const Tensor y = (*net)(x);
  EXPECT_TRUE(same_bits((*copy)(x).detach(), y.detach()));
  EXPECT_EQ(names(copy->trainable_parameters()), Names{"head.weight"});
  EXPECT_FALSE(copy->named_modules()[2].second->training());
  EXPECT_TRUE(copy->training());
  for (const Tensor& p : copy->parameters()) nn::init::zeros_(p);
  EXPECT_TRUE(same_bits((*net)(x).detach(), y.detach()));

  const auto model = zoo::make_model("lenet", {.classes = 7});
  const nn::ModulePtr twin = model->clone();
  EXPECT_EQ(io::weights_sha256(twin->state()), io::weights_sha256(model->state()));

  // What a module was made around is cloned with it; a child that is there twice stays one.
  struct Twice : nn::Module {
    explicit Twice(std::shared_ptr<nn::Module> inner) { adopt("inner", std::move(inner)); }
    Tensor forward(const Tensor& x) override { return (*named_children()[0].second)(x); }
  };
  const auto shared = nn::make<nn::Linear>(2, 2);
  const auto outer = nn::make<Twice>(std::static_pointer_cast<nn::Module>(shared));
  nn::init::zeros_(outer->clone()->parameters()[0]);
  EXPECT_NE(sum(abs(shared->weight)).item<float>(), 0);
  nn::Sequential both{shared, shared};
  EXPECT_EQ(both.clone()->parameters().size(), 2u);

  Pair plain;
  EXPECT_EQ(error_of([&] { plain.clone(); }),
            "clone: module Pair must have been made by nn::make, or hold only such modules. Make it so, or "
            "build a second one and use copy_state_from.");
  Pair second;
  nn::init::constant_(plain.a.scale, 3);
  second.copy_state_from(plain);
  EXPECT_EQ(second.a.scale.to_vector<float>(), (std::vector<float>{3, 3}));
}

TEST(Freezing, LeavesFrozenParametersOutOfTraining) {
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    manual_seed(2);
    const auto net = small_net();
    (*net)[0].freeze();
    EXPECT_EQ(names(net->trainable_parameters()), Names{"head.weight"});
    const std::vector<float> conv = net->at<nn::Conv2d>(0).weight.to_vector<float>();
    const std::vector<float> head = net->at<nn::Linear>("head").weight.to_vector<float>();
    optim::Sgd sgd(net->named_parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
    TrainingStep step(*net, sgd, engine);
    step(uniform({4, 1, 4, 4}), from_vector<int64_t>({0, 1, 2, 0}, {4}));
    EXPECT_EQ(net->at<nn::Conv2d>(0).weight.to_vector<float>(), conv);
    EXPECT_NE(net->at<nn::Linear>("head").weight.to_vector<float>(), head);
    net->unfreeze();
    EXPECT_EQ(net->trainable_parameters().size(), 3u);
    net->freeze();
    EXPECT_EQ(error_of([&] { TrainingStep(*net, sgd, engine); }),
              "training step: at least one parameter must not be frozen; all 3 are. unfreeze() some.");
  }
}

struct Tied : nn::Module {
  nn::Linear in{this, "in", 3, 3, {.bias = false}};
  nn::Linear out{this, "out", 3, 3};
  Tied() { tie(out.weight, in.weight); }
  Tensor forward(const Tensor& x) override { return out(in(x)); }
};

TEST(SharedParameters, AreOneTensorCountedAndSavedOnceAndLoadedUnderAnyName) {
  Tied net;
  EXPECT_TRUE(net.in.weight.same(net.out.weight));
  EXPECT_EQ(nn::count_parameters(net), 12);
  EXPECT_EQ(names(net.state()), (Names{"in.weight", "out.bias"}));
  net.to(DType::f64);
  EXPECT_EQ(net.out.weight.dtype(), DType::f64);

  Tied other;
  const nn::NamedTensors under_the_second = {{"out.weight", full({3, 3}, 2)}, {"out.bias", zeros({3})}};
  other.load_state(under_the_second);
  EXPECT_EQ(other.in.weight.to_vector<float>(), std::vector<float>(9, 2));
  nn::NamedTensors under_both = under_the_second;
  under_both.emplace_back("in.weight", full({3, 3}, 2));
  other.load_state(under_both);
  under_both.back().second = full({3, 3}, 3);
  EXPECT_EQ(
      error_of([&] { other.load_state(under_both); }),
      "load_state: in.weight and out.weight are one tensor in the model and have different values in the "
      "file.");
  sum(net(ones({1, 3}, DType::f64))).backward();
  EXPECT_TRUE(net.in.weight.grad().defined());
  struct Bad : Tied {
    Bad() { tie(in.weight, out.bias); }
  };
  EXPECT_EQ(error_of([] { Bad bad; }),
            "tie: both tensors must have one shape; got f32 (3, 3) on cpu and f32 (3,) on cpu.");
}

TEST(Loading, NotStrictlyTakesWhatFitsAndReportsTheRest) {
  Pair net;
  const nn::NamedTensors given = {{"a.scale", full({2}, 4)},
                                  {"a.mean", zeros({5})},
                                  {"b.scale", zeros({2}, DType::i64)},
                                  {"b.mean", full({2}, 6)},
                                  {"old", zeros({1})}};
  const nn::LoadReport report = net.load_state(given, {.strict = false});
  EXPECT_EQ(report.missing, (Names{"a.count", "b.count"}));
  EXPECT_EQ(report.unexpected, Names{"old"});
  EXPECT_EQ(report.mismatched, (Names{"a.mean", "b.scale"}));
  EXPECT_FALSE(report.complete());
  EXPECT_EQ(net.a.scale.to_vector<float>(), (std::vector<float>{4, 4}));
  EXPECT_EQ(net.b.mean.to_vector<float>(), (std::vector<float>{6, 6}));
  EXPECT_EQ(net.b.scale.to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_TRUE(net.load_state(net.state(), {.strict = false}).complete());
  EXPECT_NE(error_of([&] { net.load_state(given); }), "");
}

/// The state of a Pair as another program wrote it: each name behind `prefix`.
nn::NamedTensors written_behind(const std::string& prefix) {
  nn::NamedTensors given;
  for (const auto& [name, tensor] : Pair().state()) given.emplace_back(prefix + name, ones_like(tensor) * 3);
  return given;
}

TEST(Loading, NamesBehindAPrefixAreRefusedWithThePrefixAndLoadedWithIt) {
  const std::pair<const char*, const char*> prefixes[] = {
      {"module.", ", which DistributedDataParallel puts there"},
      {"_orig_mod.", ", which torch.compile puts there"},
      {"module._orig_mod.", ""},
      {"model.", ""}};
  for (const auto& [prefix, who] : prefixes) {
    Pair net;
    const nn::NamedTensors given = written_behind(prefix);
    EXPECT_EQ(
        error_of([&] { net.load_state(given, "load 'a.pt'"); }),
        str("load 'a.pt': parameter a.scale (2,) is not in the file. The file has the model's names behind '",
            prefix, "'", who, ". Load it with LoadOptions{.prefix = \"", prefix, "\"}."));
    EXPECT_EQ(net.load_state(given, {.strict = false}).prefix, prefix);
    EXPECT_EQ(net.a.scale.to_vector<float>(), (std::vector<float>{1, 1})) << "nothing is changed";
    EXPECT_TRUE(net.load_state(given, nn::LoadOptions{.prefix = prefix}).complete());
    for (const auto& [name, tensor] : net.state())
      EXPECT_TRUE(same_bits(tensor, ones_like(tensor) * 3)) << prefix << name;
  }
}

TEST(Loading, OfAPartOfAFileTakesThatPartAlone) {
  Pair net;
  nn::NamedTensors given = written_behind("model.");
  given.emplace_back("optimizer.step", zeros({}));
  given.emplace_back("a.scale", zeros({2}));
  EXPECT_TRUE(net.load_state(given, nn::LoadOptions{.prefix = "model."}).complete());
  EXPECT_EQ(net.a.scale.to_vector<float>(), (std::vector<float>{3, 3}));
  given.erase(given.begin());
  EXPECT_EQ(
      error_of([&] { net.load_state(given, nn::LoadOptions{.source = "load 'a.pt'", .prefix = "model."}); }),
      "load 'a.pt': parameter a.scale (2,) is not in the file. The file holds: model.a.mean, model.a.count, "
      "model.b.scale and 4 more.");
  EXPECT_EQ(
      error_of([&] { net.load_state(given, nn::LoadOptions{.source = "load 'a.pt'", .prefix = "net."}); }),
      "load 'a.pt': a name in the file must begin with 'net.', the prefix; none does. The file holds: "
      "model.a.mean, model.a.count, model.b.scale and 4 more.");
}

TEST(Loading, ANameThatIsMissingIsShownBesideThoseThatTheModelHasNot) {
  Pair net;
  EXPECT_EQ(error_of([&] {
              net.load_state({{"conv.weight", ones({1})}, {"a.scale", ones({2})}});
            }),
            "load_state: buffer a.mean (2,) is not in the file. In the file alone: conv.weight.");
  nn::NamedTensors more = net.state();
  more.emplace_back("conv.weight", ones({1}));
  EXPECT_EQ(
      error_of([&] { net.load_state(more); }),
      "load_state: parameter conv.weight (1,) is in the file and not in the model. The model holds: a.scale, "
      "a.mean, a.count and 3 more.");
}

TEST(Module, ApplyReachesEveryModuleAndZeroGradEveryParameter) {
  const auto net = small_net();
  Names types;
  net->apply([&](nn::Module& m) { types.push_back(m.type_name()); });
  EXPECT_EQ(types, (Names{"Sequential", "Conv2d", "ReLU", "Flatten", "Linear"}));
  sum((*net)(ones({1, 1, 4, 4}))).backward();
  EXPECT_TRUE(net->at<nn::Linear>("head").weight.grad().defined());
  net->zero_grad();
  for (const Tensor& p : net->parameters()) EXPECT_FALSE(p.grad().defined());
}

TEST(ActivationLayers, PReluLearnsASlopeForEachChannel) {
  const auto one = nn::make<nn::PReLU>();
  EXPECT_EQ((*one)(from_vector<float>({-4, 0, 2}, {3})).to_vector<float>(), (std::vector<float>{-1, 0, 2}));
  EXPECT_EQ(names(one->named_parameters()), Names{"weight"});
  const auto each = nn::make<nn::PReLU>(2, 0.5);
  nn::init::normal_(each->weight);
  const std::vector<float> a = each->weight.to_vector<float>();
  Tensor x = from_vector<float>({-1, 2, -3, -4}, {1, 2, 2});
  x.set_requires_grad();
  const Tensor y = (*each)(x);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{-a[0], 2, -3 * a[1], -4 * a[1]}));
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{a[0], 1, a[1], a[1]}));
  EXPECT_EQ(each->weight.grad().to_vector<float>(), (std::vector<float>{-1, -7}));
  EXPECT_EQ(error_of([&] {
              (*each)(zeros({2, 3}));
            }),
            "PReLU: axis 1 of the input must have the 2 channels of the layer; got (2, 3).");
  EXPECT_EQ(error_of([&] { nn::make<nn::PReLU>(0); }), "PReLU: there must be at least one channel; got 0.");
}

TEST(ActivationLayers, AreTheirFunctions) {
  const Tensor x = normal({3, 4});
  const auto layer = [&]<class T, class... A>(std::type_identity<T>, const A&... a) {
    return (*nn::make<T>(a...))(x);
  };
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::ReLU>()), relu(x)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::GELU>()), gelu(x)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Sigmoid>()), sigmoid(x)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Tanh>()), tanh(x)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::SELU>()), selu(x)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::SiLU>()), silu(x)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Hardswish>()), hardswish(x)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Mish>()), mish(x)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::LeakyReLU>(), 0.3), leaky_relu(x, 0.3)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::LeakyReLU>()), leaky_relu(x, 0.01)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::ELU>(), 0.7), elu(x, 0.7)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Softplus>(), 2.0, 5.0), softplus(x, 2, 5)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Hardtanh>(), -0.5, 0.25), hardtanh(x, -0.5, 0.25)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Identity>()), x));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Softmax>(), 0), softmax(x, 0)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::LogSoftmax>()), log_softmax(x, -1)));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Flatten>(), 0), reshape(x, {12})));
  EXPECT_TRUE(same_bits(layer(std::type_identity<nn::Unflatten>(), 1, Dims{2, -1}), reshape(x, {3, 2, 2})));
  EXPECT_EQ(error_of([&] {
              layer(std::type_identity<nn::Unflatten>(), -1, Dims{3, -1});
            }),
            "Unflatten: the sizes must multiply to axis 1 of the input; got (3, -1) for (3, 4).");
  EXPECT_EQ(error_of([&] {
              layer(std::type_identity<nn::Unflatten>(), 1, Dims{-2, -2});
            }),
            "Unflatten: sizes must be at least 0, or -1 for one of them; got (-2, -2).");
}

struct Moments {
  double mean = 0, deviation = 0, low = 1e30, high = -1e30;
};
Moments moments(const Tensor& tensor) {
  Moments m;
  const std::vector<double> values = testing::to_array(tensor).values;
  for (double v : values) {
    m.mean += v;
    m.low = std::min(m.low, v);
    m.high = std::max(m.high, v);
  }
  m.mean /= static_cast<double>(values.size());
  for (double v : values) m.deviation += (v - m.mean) * (v - m.mean);
  m.deviation = std::sqrt(m.deviation / static_cast<double>(values.size()));
  return m;
}

TEST(InitialValues, HaveTheMomentsAndBoundsOfTheirDistributions) {
  namespace init = nn::init;
  manual_seed(11);
  const Tensor weight = zeros({120, 40, 3, 3}), matrix = zeros({300, 200}, DType::f64);
  const double fan_in = 360, fan_out = 1080;
  EXPECT_EQ(init::fans_of(weight).in, 360);
  EXPECT_EQ(init::fans_of(weight).out, 1080);
  const auto expect_uniform = [](const Tensor& t, double bound) {
    const Moments m = moments(t);
    EXPECT_NEAR(m.mean, 0, 0.02 * bound);
    EXPECT_NEAR(m.deviation, bound / std::sqrt(3.0), 0.02 * bound);
    EXPECT_GE(m.low, -bound);
    EXPECT_LE(m.high, bound);
    EXPECT_GT(m.high, 0.99 * bound);
  };
  const auto expect_normal = [](const Tensor& t, double deviation) {
    const Moments m = moments(t);
    EXPECT_NEAR(m.mean, 0, 0.02 * deviation);
    EXPECT_NEAR(m.deviation, deviation, 0.02 * deviation);
    EXPECT_GT(m.high, 3 * deviation);
  };
  expect_uniform(init::uniform_(matrix, -0.3, 0.3), 0.3);
  expect_normal(init::normal_(matrix, 0, 0.7), 0.7);
  expect_uniform(init::xavier_uniform_(weight, 2), 2 * std::sqrt(6 / (fan_in + fan_out)));
  expect_normal(init::xavier_normal_(weight, 2), 2 * std::sqrt(2 / (fan_in + fan_out)));
  expect_uniform(init::kaiming_uniform_(weight, {.a = std::sqrt(5.0)}), 1 / std::sqrt(fan_in));
  expect_normal(init::kaiming_normal_(
                    weight, {.mode = init::FanMode::fan_out, .nonlinearity = init::Nonlinearity::relu}),
                std::sqrt(2 / fan_out));
  EXPECT_NEAR(init::calculate_gain(init::Nonlinearity::leaky_relu, 0.2), std::sqrt(2 / 1.04), 1e-15);
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::tanh), 5.0 / 3);
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::selu), 0.75);
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::linear), 1);

  // A normal cut at ±2 deviations has 0.8796 of its deviation; one cut in its tail stays there.
  const Moments cut = moments(init::trunc_normal_(matrix, 0, 0.5, -1, 1));
  EXPECT_NEAR(cut.deviation, 0.5 * 0.87963, 0.005);
  EXPECT_NEAR(cut.mean, 0, 0.01);
  EXPECT_LE(cut.high, 1);
  EXPECT_GT(cut.high, 0.98);
  const Moments tail = moments(init::trunc_normal_(matrix, 0, 1, 3, 4));
  EXPECT_NEAR(tail.mean, 3.2601, 0.01);  // (φ(3) - φ(4)) / (Φ(4) - Φ(3))
  EXPECT_GE(tail.low, 3);

  EXPECT_EQ(moments(init::constant_(matrix, 0.1)).low, 0.1);  // exactly, in f64
  EXPECT_EQ(moments(init::ones_(matrix)).deviation, 0);
  const std::vector<float> eye = init::eye_(zeros({2, 3})).to_vector<float>();
  EXPECT_EQ(eye, (std::vector<float>{1, 0, 0, 0, 1, 0}));
  Tensor parameter = zeros({2, 2});
  parameter.set_requires_grad();
  EXPECT_TRUE(init::ones_(parameter).requires_grad());
}

TEST(InitialValues, OrthogonalAndSparseMatricesAreThat) {
  manual_seed(3);
  for (const Dims& shape : {Dims{20, 50}, Dims{50, 20}, Dims{8, 2, 3, 3}, Dims{30, 30}}) {
    const Tensor w = nn::init::orthogonal_(zeros(shape, DType::f64), 1.5);
    const Tensor flat = reshape(w, {shape[0], -1});
    const bool wide = flat.size(0) <= flat.size(1);
    const Tensor product = wide ? matmul(flat, transpose(flat)) : matmul(transpose(flat), flat);
    const Tensor want = nn::init::eye_(zeros(product.shape(), DType::f64)) * 2.25;
    EXPECT_LT(max(abs(product - want)).item<double>(), 1e-13) << shape;
  }
  const Tensor sparse = nn::init::sparse_(zeros({40, 30}), 0.25);
  const Tensor zeros_in_column = sum(equal(sparse, 0), {0});
  EXPECT_EQ(min(zeros_in_column).item<int64_t>(), 10);
  EXPECT_EQ(max(zeros_in_column).item<int64_t>(), 10);
  EXPECT_NEAR(moments(sparse).deviation, 0.01 * std::sqrt(0.75), 0.001);
}

TEST(InitialValues, RefuseShapesAndSettingsThatCannotBe) {
  namespace init = nn::init;
  const Tensor vector = zeros({3});
  EXPECT_EQ(error_of([&] { init::xavier_uniform_(vector); }),
            "init: a weight must have at least two axes, (out, in, kernel…); got f32 (3,) on cpu.");
  EXPECT_EQ(error_of([&] { init::eye_(vector); }), "eye_: the tensor must be a matrix; got f32 (3,) on cpu.");
  EXPECT_EQ(error_of([&] { init::normal_(vector, 0, -1); }),
            "normal_: the deviation must be at least 0; got -1.");
  EXPECT_EQ(error_of([&] { init::trunc_normal_(vector, 0, 1, 2, -2); }),
            "trunc_normal_: the deviation must be above 0 and low below high; got 1, 2 and -2.");
  EXPECT_EQ(error_of([&] { init::trunc_normal_(vector, 0, 1, 50, 60); }),
            "trunc_normal_: the interval must hold some of the distribution; got 50 to 60 for mean 0 and "
            "deviation 1.");
  EXPECT_EQ(error_of([&] {
              init::orthogonal_(zeros({2, 0}));
            }),
            "orthogonal_: the tensor must have at least two axes and an element; got f32 (2, 0) on cpu.");
  EXPECT_EQ(error_of([&] {
              init::sparse_(zeros({2, 2}), 2);
            }),
            "sparse_: the share of zeros must be between 0 and 1; got 2.");
}

TEST(Summary, GivesShapesParametersAndOperationsOfEachLayer) {
  const auto lenet = zoo::make_model("lenet");
  lenet->named_modules()[2].second->eval();
  const nn::Summary s = nn::summary(*lenet, {10, 1, 28, 28});
  ASSERT_EQ(s.layers.size(), 6u);
  EXPECT_EQ(s.layers[0].type, "LeNet");
  EXPECT_EQ(s.layers[0].outputs, std::vector<Dims>{(Dims{10, 10})});
  EXPECT_EQ(s.layers[1].name, "conv1");
  EXPECT_EQ(s.layers[1].type, "Conv2d");
  EXPECT_EQ(s.layers[1].outputs, std::vector<Dims>{(Dims{10, 6, 28, 28})});
  EXPECT_EQ(s.layers[1].parameters, 156);
  EXPECT_EQ(s.layers[1].flops, 10 * 6 * 28 * 28 * (2 * 25 + 1));
  EXPECT_EQ(s.layers[3].flops, 10 * 120 * (2 * 400 + 1));
  EXPECT_EQ(s.layers[3].activation_bytes, 10 * 120 * 4);
  // ReLUs, and pools by what they read.
  EXPECT_EQ(s.layers[0].flops, 10 * 2 * (6 * 28 * 28 + 16 * 100) + 10 * (120 + 84));
  EXPECT_EQ(s.parameters, 61706);
  EXPECT_EQ(s.state_bytes, 4 * 61706);
  int64_t flops = 0;
  for (const nn::LayerSummary& layer : s.layers) flops += layer.flops;
  EXPECT_EQ(s.flops, flops);
  // The model is as before: in its modes, without hooks, with the tracer gone.
  EXPECT_TRUE(lenet->training());
  EXPECT_FALSE(lenet->named_modules()[2].second->training());
  EXPECT_EQ((*lenet)(zeros({1, 1, 28, 28})).to_vector<float>().size(), 10u);
  const std::string text = nn::to_string(s);
  EXPECT_NE(text.find("  conv1    Conv2d  (10, 6, 28, 28)          156"), std::string::npos) << text;
  EXPECT_NE(text.find("61,706 of 61,706 parameters trainable, 246.82 kB of weights"), std::string::npos)
      << text;
  EXPECT_NE(error_of([&] { nn::summary(*lenet, {1, 3, 28, 28}); }), "");
  EXPECT_TRUE(lenet->training());
  EXPECT_NE(error_of([&] { nn::summary(*lenet, {-1, 1, 28, 28}); }), "");
}

TEST(Summary, CountsSharedLayersOnceAndSeveralInputs) {
  const auto layer = nn::make<nn::Linear>(4, 4);
  nn::Sequential net{layer, layer};
  const nn::Summary s = nn::summary(net, {2, 4});
  EXPECT_EQ(s.parameters, 20);
  EXPECT_EQ(s.layers[1].calls, 2);
  layer->set_training(false);  // alone: its parent still trains
  nn::summary(net, {2, 4});
  EXPECT_FALSE(layer->training());
  EXPECT_TRUE(net.training());
  EXPECT_EQ(s.flops, 2 * 2 * 4 * 9);
  const nn::Summary two = nn::summary(net, {zeros({2, 4}), zeros({4, 3})},
                                      [&](const std::vector<Tensor>& in) { matmul(net(in[0]), in[1]); });
  EXPECT_EQ(two.flops, s.flops + 2 * 2 * 4 * 3);
  const nn::Summary large = nn::summary(*zoo::make_model("lenet"), {1 << 20, 1, 28, 28});
  EXPECT_GT(large.activation_bytes, int64_t{1} << 34);  // which nobody allocated
}

}  // namespace
}  // namespace tandem
