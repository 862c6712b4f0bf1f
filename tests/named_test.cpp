// Tensors with names through a step: the lists of names, models that are called by name, data sets that name their fields, and compiled
// callables over named groups.
// ctest: asan
#include "tandem/core/named.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/compose.h"
#include "tandem/data/loader.h"
#include "tandem/graph/compile_named.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/signature.h"
#include "tandem/nn/stateful.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using data::Join;
using data::Role;

TEST(Names, OfOneListAreOneObjectInEveryThread) {
  const Names& first = Names::of({"input", "target"});
  EXPECT_EQ(&first, &Names::of({"input", "target"}));
  EXPECT_NE(&first, &Names::of({"target", "input"}));
  std::vector<const Names*> seen(8);
  std::vector<std::thread> threads;
  for (const Names*& each : seen)
    threads.emplace_back([&each] { each = &Names::of({"made", "by", "eight threads"}); });
  for (std::thread& thread : threads) thread.join();
  for (const Names* each : seen) EXPECT_EQ(each, seen[0]);
  EXPECT_HAS(refusal([] { Names::of({"a", "b", "a"}); }), "got 'a' twice");
  EXPECT_HAS(refusal([] { Names::of({"a", ""}); }), "number 2 of 2 is empty");
}

TEST(Named, ValuesAreFoundByNameAndByPlace) {
  Named batch{{"x", ones({2})}, {"mask", Tensor()}};
  EXPECT_TRUE(batch.has("x"));
  EXPECT_FALSE(batch.has("mask"));
  EXPECT_FALSE(batch.get("y").defined());
  EXPECT_TRUE(batch[0].same(batch["x"]));
  batch.set("mask", zeros({2}));
  EXPECT_TRUE(batch.has("mask"));
  EXPECT_HAS(refusal([&] { (void)batch["maks"]; }), "must be one of x, mask; got 'maks'");
  EXPECT_HAS(refusal([&] { (void)batch[2]; }), "must be below 2; got 2. The names are x, mask.");
  EXPECT_HAS(refusal([&] { batch.set("y", zeros({2})); }), "got 'y'");
  EXPECT_HAS(refusal([&] { batch.set_values({ones({2})}); }),
             "one value for each name; got 1 for the names x, mask");
  EXPECT_TRUE(Named().empty());
}

struct Masked : nn::Model<Masked> {
  static constexpr auto arguments = nn::names("ids", "mask?", "scale?");
  nn::Linear line{this, "line", 3, 2};
  using Model::forward;
  Tensor forward(const Tensor& ids, const Tensor& mask, const Tensor& scale) {
    Tensor x = mask.defined() ? ids * mask : ids;
    if (scale.defined()) x = x * scale;
    return line(x);
  }
};

struct Two : nn::Model<Two> {
  static constexpr auto arguments = nn::names("x");
  static constexpr auto results = nn::names("double", "half");
  struct Output {
    Tensor twice, half;
  };
  using Model::forward;
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override { return {in.at(0) * 2, in[0] * 0.5}; }
};

TEST(Model, IsCalledByPositionAndByNameAndAbsentArgumentsAreUndefined) {
  manual_seed(1);
  Masked net;
  const Tensor x = ones({4, 3}), mask = full({4, 3}, 0.5);
  const Tensor plain = net(x), masked = net(x, mask);
  EXPECT_TRUE(same_bits(plain, net.line(x)));
  EXPECT_TRUE(same_bits(masked, net(Named{{"mask", mask}, {"ids", x}})["output"]));
  EXPECT_TRUE(same_bits(net(x, mask, mask), net(Named{{"scale", mask}, {"ids", x}, {"mask", mask}})[0]));
  EXPECT_TRUE(same_bits(net(Named{{"ids", x}, {"scale", mask}})[0], masked));
  nn::Linear layer(nullptr, "", 3, 2);
  EXPECT_TRUE(same_bits(layer(Named{{"anything", x}})["output"], layer(x)));
  EXPECT_EQ(Two()(Named{{"x", x}})["half"].to_vector<float>()[0], 0.5f);
  EXPECT_EQ(Two().signature().results().text(), "double, half");
  EXPECT_FALSE(net.signature().is_optional(0));
  EXPECT_TRUE(net.signature().is_optional(2));

  EXPECT_HAS(refusal([&] {
               net(Named{{"mask", mask}, {"scale", mask}});
             }),
             "Masked: the argument 'ids' must be given; got mask, scale");
  EXPECT_HAS(refusal([&] {
               net(Named{{"ids", x}, {"maks", mask}});
             }),
             "Masked: its arguments are ids, mask, scale; got 'maks'. Did you mean mask?");
  EXPECT_HAS(refusal([&] {
               net(std::vector<Tensor>{x, mask, mask, mask});
             }),
             "takes 3 tensors (ids, mask, scale); got 4");
  EXPECT_HAS(refusal([&] { net(std::vector<Tensor>{}); }), "got 0 tensors without 'ids'");
}

TEST(Model, HooksSeeACallByNameAndClonesAreModels) {
  Masked net;
  size_t inputs = 0;
  net.add_forward_pre_hook([&](nn::Module&, std::vector<Tensor>& in) { inputs = in.size(); });
  net(Named{{"ids", ones({1, 3})}});
  EXPECT_EQ(inputs, 3u);
  const auto made = nn::make<Masked>();
  EXPECT_EQ((*made->clone())(Named{{"ids", ones({1, 3})}})[0].shape(), (Dims{1, 2}));
}

struct Rows final : data::Dataset {
  int64_t size() const override { return 7; }
  std::vector<data::Field> fields() const override {
    return {{"ids", Role::input, Join::pad, -1}, {"mask"}, {"kind", Role::target}};
  }
  std::vector<Tensor> get(int64_t i) const override {
    return {full({i % 3 + 1, 2}, static_cast<double>(i)), full({3}, 0.5),
            full({}, static_cast<double>(i % 2), DType::i64)};
  }
};

TEST(Fields, OfADataSetArePaddedCountedAndNamedInEachWrapper) {
  const auto rows = std::make_shared<Rows>();
  const Named batch = data::named_batch(*rows, std::vector<int64_t>{0, 2, 4}, 0);
  EXPECT_EQ(batch.names().text(), "ids, mask, kind, ids.count");
  EXPECT_EQ(batch["ids"].shape(), (Dims{3, 3, 2}));
  EXPECT_EQ(batch["ids"].to_vector<float>()[2], -1);  // behind the one row of the first sample
  EXPECT_EQ(batch["ids.count"].to_vector<int64_t>(), (std::vector<int64_t>{1, 3, 2}));
  EXPECT_EQ(data::named_batch(*rows, std::vector<int64_t>{0}, 0, 5)["ids"].size(1), 5);
  for (const data::DatasetPtr& each :
       {data::shuffle(rows, 1), data::subset(rows, 1, 3), data::shard(rows, 0, 2), data::cache(rows),
        data::concat({rows, rows}), data::map(rows, [](data::Sample sample) { return sample; })})
    EXPECT_EQ(each->fields(), rows->fields()) << each->describe();
  data::Loader loader(*rows, {.batch = 3, .shuffle = false, .workers = 2});
  loader.start_epoch(0);
  EXPECT_EQ(loader.next()->tensors["ids.count"].to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3}));

  const auto plain =
      std::make_shared<data::TensorSet>(std::vector<Tensor>{ones({3, 2}), ones({3}), ones({3})});
  EXPECT_EQ(data::named_batch(*plain, std::vector<int64_t>{0}, 0).names().text(), "input, target, field 3");
  const auto named = data::with_fields(plain, {{"a"}, {"b", Role::target}, {"c", Role::weight}});
  EXPECT_EQ(data::named_batch(*named, std::vector<int64_t>{0}, 0).names().text(), "a, b, c");
  EXPECT_HAS(refusal([&] {
               data::with_fields(plain, {{"a"}, {"b"}});
             }),
             "one field for each tensor of a sample; got 2 for samples of 3");
  EXPECT_HAS(refusal([&] { data::with_fields(plain, {{"a"}, {"b"}, {"a"}}); }), "got 'a' twice");
  EXPECT_HAS(refusal([&] { data::concat({plain, named}); }), "must have the same fields");
  EXPECT_HAS(refusal([&] {
               data::Loader mixed(*named,
                                  {.batch = 2, .transform = [](std::vector<Tensor> all, data::SampleRandom&) {
                                     all.pop_back();
                                     return all;
                                   }});
               mixed.start_epoch(0);
               mixed.next();
             }),
             "must leave a tensor for each field (a, b, c); it left 2");
}

TEST(Tasks, AModelOfSeveralArgumentsIsTrainedOnTheFieldsThatItNames) {
  const Tensor ids = to_tensor(hash_array({60, 3}, 1), DType::f32), mask = full({60, 3}, 0.5),
               kind = to_tensor(hash_array({60}, 2, 0, 2), DType::i64);
  const data::TensorSet set(Named{{"mask", mask}, {"target", kind}, {"ids", ids}});
  std::string shas[3];
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    manual_seed(2);
    Masked net;
    shas[engine == Engine::graph] =
        fit(net, set, {.test = &set, .engine = engine, .epochs = 2, .batch = 20, .lr = 0.1}).weights_sha256;
  }
  EXPECT_EQ(shas[0], shas[1]);
  {  // the same as one input that is masked already, whatever its name
    struct Plain : nn::Module {
      nn::Linear line{this, "line", 3, 2};
      Tensor forward(const Tensor& x) override { return line(x); }
    };
    manual_seed(2);
    Plain net;
    const auto one =
        data::with_fields(std::make_shared<data::TensorSet>(std::vector<Tensor>{ids * mask, kind}),
                          {{"pixels"}, {"class", Role::target}});
    shas[2] = fit(net, *one, {.test = one.get(), .epochs = 2, .batch = 20, .lr = 0.1}).weights_sha256;
  }
  EXPECT_EQ(shas[0], shas[2]);
  Masked net;
  EXPECT_EQ(predict(net, set).shape(), (Dims{60, 2}));
  EXPECT_HAS(
      refusal([&] {
        fit(net, data::TensorSet(Named{{"ids", ids}, {"mask", mask}}), {.epochs = 1});
      }),
      "data: a sample must have 2 fields (input, target) for this task; got 2 (ids, mask), without 'target'");
  EXPECT_HAS(
      refusal([&] {
        fit(net, data::TensorSet(Named{{"mask", mask}, {"target", kind}, {"more", ids}}), {.epochs = 1});
      }),
      "the argument 'ids' must be given; got mask");
}

TEST(Tasks, APaddedDataSetIsTrainedInBucketsOfFewLengths) {
  struct Steps final : data::Dataset {
    int64_t size() const override { return 120; }
    std::vector<data::Field> fields() const override {
      return {{"ids", Role::input, Join::pad}, {"kind", Role::target}};
    }
    std::vector<Tensor> get(int64_t i) const override {
      return {full({1 + i % 60, 3}, 0.5), full({}, static_cast<double>(i % 2), DType::i64)};
    }
  };
  struct Total : nn::Module {
    nn::Linear line{this, "line", 3, 2};
    std::set<int64_t> lengths;
    Tensor forward(const Tensor& x) override {
      lengths.insert(x.size(1));
      return line(sum(x, {1}));
    }
  };
  manual_seed(1);
  Total net;
  const Steps set;
  fit(net, set, {.epochs = 2, .batch = 10});
  EXPECT_LE(net.lengths.size(), static_cast<size_t>(data::kMostBuckets));
  EXPECT_EQ(predict(net, set).shape(), (Dims{120, 2}));
}

TEST(CompiledNamed, HasTheBitsOfThePlainCallForEverySetOfNames) {
  const NamedFunction function = [](const std::vector<Named>& in) -> std::vector<Named> {
    const Named &batch = in.at(0), &state = in.at(1);
    const Tensor x = batch["x"], mask = batch.get("mask");
    const Tensor y = mask.defined() ? x * mask : x + 1;
    return {{{"y", y}, {"masked", mask.defined() ? sum(mask) : Tensor()}},
            {state.names(), {state["total"] + sum(y)}}};
  };
  CompiledNamed compiled(function, {.verify = true});
  const Tensor x = to_tensor(hash_array({4}, 1), DType::f32),
               mask = to_tensor(hash_array({4}, 2), DType::f32);
  for (int repeat = 0; repeat < 2; ++repeat)
    for (const Named& batch : {Named{{"x", x}}, Named{{"x", x}, {"mask", mask}},
                               Named{{"mask", mask}, {"x", x}}, Named{{"x", x}, {"mask", Tensor()}}}) {
      const Named state{{"total", full({}, 3)}};
      const std::vector<Named> want = function({batch, state}), got = compiled({batch, state});
      ASSERT_EQ(got.size(), 2u);
      EXPECT_EQ(&got[0].names(), &want[0].names());
      EXPECT_TRUE(same_bits(got[0]["y"], want[0]["y"]));
      EXPECT_EQ(got[0].has("masked"), want[0].has("masked"));
      EXPECT_TRUE(same_bits(got[1]["total"], want[1]["total"]));
    }
  const std::vector<GraphReport> reports = compiled.reports();
  ASSERT_EQ(reports.size(), 4u);
  EXPECT_EQ(reports[1].input_names, (std::vector<std::string>{"x", "mask", "total"}));
  EXPECT_EQ(reports[1].result_names, (std::vector<std::string>{"y", "masked", "total"}));
  EXPECT_HAS(reports[1].signature, "x f32 (4,) cpu, mask f32 (4,) cpu, total f32 () cpu");
}

TEST(CompiledNamed, ErrorsNameTheInputAndResultsKeepTheirNames) {
  const Tensor sum_of = zeros({2});
  CompiledNamed adds([&](const std::vector<Named>& in) -> std::vector<Named> {
    assign(sum_of, sum_of + in[0]["x"]);
    return {{{"y", in[0]["x"] * 2}}};
  });
  EXPECT_HAS(refusal([&] { adds({{{"x", sum_of}}}); }), "input 'x' shares memory with a captured tensor");
  CompiledNamed changes([](const std::vector<Named>& in) -> std::vector<Named> {
    if (in[0]["x"].size(0) == 2) return {{{"two", in[0]["x"]}}};
    return {{{"other", in[0]["x"]}}};
  });
  changes({{{"x", zeros({2})}}});
  EXPECT_HAS(refusal([&] { changes({{{"x", zeros({3})}}}); }), "results of the same names");
}

TEST(CompiledNamed, SeesAnotherTensorInAHandleWhateverNamesItWasCalledWith) {
  Tensor w = full({1}, 2);
  CompiledNamed scales([&](const std::vector<Named>& in) -> std::vector<Named> {
    return {{{"y", in[0]["x"] * w}}};
  });
  const Named alone{{"x", ones({1})}}, masked{{"x", ones({1})}, {"mask", ones({1})}};
  for (const float value : {2.f, 5.f, 7.f}) {
    w = full({1}, value);
    for (const Named& batch : {alone, masked}) EXPECT_EQ(scales({batch})[0]["y"].item<float>(), value);
  }
  EXPECT_EQ(scales.reports().size(), 2u) << "what no handle stands for is dropped";
}

TEST(TrainingStep, TakesABatchInAnyOrderOfItsNamesAndRefusesOneWithoutATarget) {
  const Tensor x = to_tensor(hash_array({8, 3}, 1), DType::f32),
               y = to_tensor(hash_array({8}, 2, 0, 2), DType::i64);
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    std::vector<float> after[2];
    for (const bool turned : {false, true}) {
      manual_seed(4);
      nn::Linear net(nullptr, "", 3, 2);
      const auto sgd = make_optimizer({}, net);
      TrainingStep step(net, *sgd, engine);
      for (int i = 0; i < 3; ++i)
        step(turned ? Named{{"target", y}, {"input", x}} : Named{{"input", x}, {"target", y}});
      after[turned] = net.weight.to_vector<float>();
      EXPECT_HAS(refusal([&] { step(Named{{"input", x}}); }), "got 1 (input), without 'target'");
      EXPECT_HAS(refusal([&] { step(Named{{"x", x}, {"target", y}}); }), "got 'input'");
    }
    EXPECT_EQ(after[0], after[1]);
  }
}

TEST(Stateful, AModelWhoseSignatureDoesNotNameItsStatesIsTold) {
  struct Silent : nn::Module, nn::Stateful {
    nn::Linear line{this, "line", 3, 2};
    std::vector<Tensor> forward(const std::vector<Tensor>& in) override { return in; }
    using Module::forward;
    Named first_states(int64_t) const override { return {{"h", zeros({1})}}; }
  };
  Silent net;
  EXPECT_HAS(
      refusal([&] {
        nn::step(net, ones({1, 3}), net.first_states(1));
      }),
      "its signature must have the state 'h' among its arguments and its results; got input and output");
}

}  // namespace
}  // namespace tandem::testing
