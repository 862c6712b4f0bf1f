// State that a callable keeps in C++: what a replay would lose is refused, what it would not goes on.
// ctest: asan
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tandem/core/rng.h"
#include "tandem/core/scope.h"
#include "tandem/core/tape.h"
#include "tandem/core/warning.h"
#include "tandem/graph/checkpoint.h"
#include "tandem/graph/compile.h"
#include "tandem/graph/cond.h"
#include "tandem/graph/scan.h"
#include "tandem/nn/conv.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/recurrent.h"
#include "tandem/ops/create.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/ema.h"
#include "tandem/optim/lbfgs.h"
#include "tandem/optim/optimizer.h"
#include "tandem/optim/schedule.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
Tensor values(const Dims& shape, uint32_t salt) { return to_tensor(hash_array(shape, salt), DType::f32); }
/// A callable that is traced again only where it must be.
Compiled plain(TensorFunction function) { return compile(std::move(function), {.verify = false}); }

bool names(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (message.find(part) == std::string::npos) return false;
  return true;
}
#define EXPECT_NAMES(message, ...) EXPECT_TRUE(names(message, {__VA_ARGS__})) << message

constexpr const char* kKept = "compile: a callable must not keep tensors in C++ variables";
constexpr const char* kDiffers = "compile: a callable must do the same each time it is called";

TEST(KeptState, ThatIsReadAgainIsRefusedAtTheFirstCallAndNamesWhatMadeIt) {
  for (const bool verify : {false, true}) {
    Tensor state = zeros({2});
    Compiled f = compile(
        [&](const List& in) {
          const Scope scope("counting");
          state = state + in[0];
          return List{state};
        },
        {.verify = verify});
    EXPECT_NAMES(error_of([&] { f({ones({2})}); }), kKept, "f32 (2,)", "made by add in scope 'counting'",
                 "assign()", "buffer", "argument");
    EXPECT_NAMES(error_of([&] { f({ones({2})}); }), kKept, "made by add");  // and at every other one
  }
}

struct Cache : nn::Module {
  using Module::Module;
  nn::Linear project{this, "project", 3, 3};
  Tensor keys = zeros({1, 3});
  Tensor forward(const Tensor& x) override {
    keys = concat({keys, project(x)}, 0);
    return sum(keys, {0});
  }
};
struct Decoder : nn::Module {
  Cache cache{this, "cache"};
  Tensor forward(const Tensor& x) override { return cache(x) * 2; }
};

TEST(KeptState, AKeyValueCacheInAMemberIsRefusedWithItsLayer) {
  for (const bool grad : {true, false}) {
    const GradMode mode(grad);
    Decoder net;
    Compiled f = plain([&](const List& in) { return List{net(in[0])}; });
    EXPECT_NAMES(error_of([&] { f({values({1, 3}, 1)}); }), kKept, "made by concat in cache (Cache)");
  }
}

TEST(KeptState, AnInputThatIsKeptForTheNextCallIsRefused) {
  Tensor previous = zeros({2});
  Compiled f = plain([&](const List& in) {
    const Tensor change = in[0] - previous;
    previous = in[0];
    return List{change};
  });
  EXPECT_NAMES(error_of([&] { f({ones({2})}); }), kKept, "made by an input");
}

TEST(KeptState, ThatOnlyAnotherSignatureReadsIsRefusedThereWithItsName) {
  Tensor keys;
  Compiled f = plain([&](const List& in) {
    if (in[0].size(0) > 1) {
      keys = in[0] * 3;
      return List{sum(keys)};
    }
    return List{sum(keys) + sum(in[0])};
  });
  EXPECT_EQ(f({ones({4})})[0].item<float>(), 12);
  EXPECT_NAMES(error_of([&] { f({ones({1})}); }), kKept, "made by mul in an earlier call");
}

TEST(KeptState, ATableMadeOnFirstUseIsRefusedAndOneMadeBeforeIsNot) {
  Tensor mask;
  const auto use = [&](const List& in) {
    if (!mask.defined()) mask = greater(reshape(arange(9), {3, 3}), 4);
    return List{where(mask, in[0], 0)};
  };
  Compiled late = plain(use);
  EXPECT_NAMES(error_of([&] { late({ones({3, 3})}); }), kKept, "made by greater", "before the first call");
  mask = greater(reshape(arange(9), {3, 3}), 4);
  Compiled early = plain(use);
  EXPECT_EQ(to_array(early({ones({3, 3})})[0]).values, (std::vector<double>{0, 0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(KeptState, ATableOfHostValuesMadeOnFirstUseIsKept) {
  for (const bool verify : {false, true}) {
    Tensor table;
    Compiled f = compile(
        [&](const List& in) {
          if (!table.defined()) table = from_vector<float>({1, 2, 3}, {3});
          return List{in[0] * table, table};
        },
        {.verify = verify});
    for (int i = 0; i < 3; ++i) {
      const List out = f({full({3}, 2)});
      EXPECT_EQ(to_array(out[0]).values, (std::vector<double>{2, 4, 6}));
      EXPECT_EQ(to_array(out[1]).values, (std::vector<double>{1, 2, 3}));
    }
    EXPECT_EQ(f.reports().size(), 1u);
  }
}

TEST(KeptState, ForDebuggingGoesOnAndHasNoValuesOutside) {
  Tensor seen, before;
  Compiled f = plain([&](const List& in) {
    before = in[0];
    seen = exp(in[0]);
    return List{seen * 2};
  });
  for (uint32_t i = 0; i < 3; ++i) {
    const Tensor x = values({3}, i);
    EXPECT_TRUE(same_bits(f({x})[0], exp(x) * 2));
    for (const Tensor& kept : {seen, before}) {
      EXPECT_NAMES(error_of([&] { kept.to_vector<float>(); }), "inside a compiled callable has no values");
      EXPECT_NAMES(error_of([&] { kept + 1; }), "compiled callable");
      EXPECT_NAMES(error_of([&] { f({kept}); }), "compile: every input must have values; got, as input 0");
    }
  }
}

TEST(KeptState, WhereNothingIsKeptTheCallableIsTracedOnce) {
  Tensor w = values({3}, 1).set_requires_grad();
  int calls = 0;
  Compiled f = plain([&](const List& in) {
    ++calls;
    const Tensor h = tanh(in[0] * w), unused = exp(h) * 3;
    return List{sum(h * h), h.detach(), in[0]};
  });
  for (uint32_t i = 0; i < 3; ++i) backward(f({values({3}, i)})[0]);
  EXPECT_EQ(calls, 1);
  calls = 0;
  Compiled step = plain([&](const List& in) {
    ++calls;
    w.zero_grad();
    const Tensor loss = sum(w * in[0] * w);
    loss.backward();
    const NoGrad off;
    assign(w, w - w.grad() * 0.1);
    return List{loss.detach()};
  });
  w.zero_grad();
  for (uint32_t i = 0; i < 3; ++i) step({values({3}, i)});
  EXPECT_EQ(calls, 1);
}

TEST(KeptState, OfOptimisersIsTracedTwiceAtMostAndComputesAsEagerly) {
  for (const optim::OptimizerInfo& info : optim::optimizers()) {
    List ends;
    for (const bool compiled : {false, true}) {
      manual_seed(1);
      nn::Linear net(nullptr, "", 3, 2);
      const auto optimizer = optim::make_optimizer(info.name, net.named_parameters(), {.lr = 0.1});
      int calls = 0;
      const auto step = [&](const List& in) {
        ++calls;
        const Tensor loss = sum(net(in[0]) * net(in[0]));
        optimizer->update(grad(loss, net.parameters()));
        return List{loss.detach()};
      };
      Compiled fast = plain(step);
      for (uint32_t i = 0; i < 4; ++i) {
        const List in = {values({4, 3}, i)};
        compiled ? fast(in) : step(in);
      }
      EXPECT_LE(calls, compiled ? 2 : 4) << info.name;
      ends.push_back(net.weight);
    }
    EXPECT_TRUE(same_bits(ends[0], ends[1])) << info.name;
  }
}

TEST(KeptState, ASecondTraceDrawsTheNumbersOfTheFirst) {
  Tensor kept;
  const auto noisy = [&](const List& in) {
    kept = dropout(in[0], 0.5);
    return List{kept + uniform({5})};
  };
  Compiled f = plain(noisy);
  const Tensor x = values({5}, 1);
  for (uint64_t seed = 0; seed < 2; ++seed) {
    manual_seed(seed);
    const Tensor wanted = noisy({x})[0];
    const GeneratorState after = generator_state();
    manual_seed(seed);
    EXPECT_TRUE(same_bits(f({x})[0], wanted));
    EXPECT_EQ(generator_state().offset, after.offset);
  }
}

TEST(KeptState, GradientsThatATraceDropsAreThereForTheSecond) {
  for (const bool verify : {false, true}) {
    Tensor w = values({3}, 1).set_requires_grad(), kept;
    w.set_grad(full({3}, 5));
    Compiled f = compile(
        [&](const List& in) {
          const Tensor before = w.grad().defined() ? w.grad() : zeros({3});
          w.zero_grad();
          sum(w * in[0]).backward();
          kept = before * 1;
          return List{before + w.grad()};
        },
        {.verify = verify});
    EXPECT_EQ(to_array(f({ones({3})})[0]).values, std::vector<double>(3, 6));
    EXPECT_EQ(to_array(w.grad()).values, std::vector<double>(3, 1));
  }
}

TEST(KeptState, OfAHookOnGradientsIsNotReadAsAnotherValue) {
  // Of a gradient that comes in from outside: the trace is continued for it, and taken back.
  Tensor w = values({3}, 1).set_requires_grad(), total = zeros({3}), last;
  const auto with_hook = [&](const GradientHook& hook) {
    return plain([&w, hook](const List& in) {
      const Tensor h = w * in[0];
      on_gradient(h, hook);
      return List{sum(h * 2)};
    });
  };
  Compiled adds_up = with_hook([&](const Tensor& g) {
    total = total + g;
    return Tensor();
  });
  EXPECT_NAMES(error_of([&] { backward(adds_up({ones({3})})[0]); }), "compiled callable");
  Compiled looks = with_hook([&](const Tensor& g) {
    last = g * 2;
    return Tensor();
  });
  for (int i = 1; i <= 2; ++i) {
    backward(looks({ones({3})})[0]);
    EXPECT_EQ(to_array(w.grad()).values, std::vector<double>(3, 2 * i));
  }
}

TEST(KeptState, InBodiesOfBranchesLoopsAndCheckpointsIsRefusedToo) {
  Tensor state;
  const auto counting = [&](const Tensor& x) {
    state = state + x;
    return state * 1;
  };
  const std::vector<std::pair<const char*, TensorFunction>> ways = {
      {"cond",
       [&](const List& in) {
         return List{cond(
             greater(sum(in[0]), 0), [&] { return counting(in[0]); }, [&] { return in[0] * 2; })};
       }},
      {"scan",
       [&](const List& in) {
         return scan(
                    [&](const List& s, const List&) {
                      return ScanStep{{counting(s[0])}, {}};
                    },
                    {in[0]}, {ones({2})})
             .state;
       }},
      {"checkpoint",
       [&](const List& in) { return checkpoint([&](const List& x) { return List{counting(x[0])}; }, in); }},
      {"a compiled callable inside",
       [&](const List& in) {
         Compiled inner = compile([&](const Tensor& x) { return counting(x); });
         return List{inner(in[0])};
       }},
  };
  for (const auto& [name, way] : ways)
    for (const bool wants_grad : {false, true}) {
      state = zeros({2});
      Compiled f = plain(way);
      Tensor x = ones({2});
      if (wants_grad) x.set_requires_grad();
      EXPECT_NAMES(error_of([&] { f({x}); }), "compile") << name;
    }
}

TEST(KeptState, InBodiesThatNobodyReadsGoesOn) {
  Tensor seen;
  const auto looking = [&](const Tensor& x) {
    seen = exp(x);
    return seen * 2;
  };
  Compiled f = plain([&](const List& in) {
    const Tensor a = cond(
        greater(sum(in[0]), 0), [&] { return looking(in[0]); }, [&] { return in[0] * 2; });
    return List{a, checkpoint([&](const Tensor& x) { return looking(x); }, in[0])};
  });
  const Tensor x = ones({2}).set_requires_grad();
  for (int i = 0; i < 2; ++i) {
    const List out = f({x});
    EXPECT_TRUE(same_bits(out[0].detach(), exp(x.detach()) * 2));
    EXPECT_TRUE(same_bits(grad(sum(out[1]), {x})[0], exp(x.detach()) * 2));
  }
}

TEST(Verify, RefusesANumberThatChangesFromCallToCall) {
  int step = 0;
  Compiled f =
      compile([&](const List& in) { return List{in[0] * static_cast<double>(++step)}; }, {.verify = true});
  EXPECT_NAMES(error_of([&] { f({ones({2})}); }), kDiffers, "1", "2", "assign()", "argument");
}

TEST(Verify, RefusesHostValuesThatChangeFromCallToCall) {
  float step = 0;
  Compiled f = compile(
      [&](const List& in) {
        step += 1;
        return List{in[0] * from_vector<float>({step}, {1})};
      },
      {.verify = true});
  EXPECT_NAMES(error_of([&] { f({ones({2})}); }), kDiffers);
}

TEST(Verify, RefusesAnotherTensorOrOtherOperationsFromCallToCall) {
  const List two = {values({3}, 1), values({3}, 2)};
  size_t call = 0;
  const auto check = [&](const TensorFunction& function) {
    call = 0;
    Compiled f = compile(function, {.verify = true});
    EXPECT_NAMES(error_of([&] { f({ones({3})}); }), kDiffers);
  };
  check([&](const List& in) { return List{in[0] * two[call++ % 2]}; });
  check([&](const List& in) { return List{call++ % 2 ? exp(in[0]) : tanh(in[0])}; });
  check([&](const List& in) { return List{in[0] + 1, call++ % 2 ? in[0] * 2 : in[0]}; });
  check([&](const List&) { return List{two[call++ % 2]}; });
  check([&](const List& in) {
    if (call++ % 2) uniform({3});
    return List{in[0] + uniform({3})};
  });
  check([&](const List& in) {
    return List{cond(
        greater(sum(in[0]), 0), [&] { return in[0] * static_cast<double>(call++); }, [&] { return in[0]; })};
  });
}

TEST(Verify, AcceptsWhatIsTheSameEachTime) {
  nn::Linear net(nullptr, "", 3, 3);
  Tensor table;
  Compiled f = compile(
      [&](const List& in) {
        const Tensor scale = from_vector<float>({1, 2, 3}, {3}),
                     shift = full({3}, std::numeric_limits<double>::quiet_NaN());
        const Tensor h = checkpoint([&](const Tensor& x) { return tanh(net(x)); }, in[0]);
        return List{where(isfinite(shift), h, h * scale) + uniform({3})};
      },
      {.verify = true});
  f({values({2, 3}, 1)});
  EXPECT_EQ(f.reports().size(), 1u);
}

TEST(OtherHandle, IsSeenWhereOnlyTheCallableHeldTheOldTensor) {
  for (const bool grad : {false, true}) {
    Tensor w = values({3}, 1).set_requires_grad(grad), kept = values({3}, 2);
    Compiled f = plain([&](const List& in) { return List{in[0] * w + kept}; });
    const Tensor x = values({3}, 3), longer = values({2, 3}, 4);
    List alive;  // the tape of earlier results holds the old tensor
    for (uint32_t i = 0; i < 3; ++i) {
      alive.push_back(f({x})[0]);
      EXPECT_TRUE(same_bits(alive.back().detach(), (x * w + kept).detach()));
      EXPECT_TRUE(same_bits(f({longer})[0].detach(), (longer * w + kept).detach()));
      f({x});
      w = values({3}, 10 + i).set_requires_grad(grad);
    }
    EXPECT_EQ(f.reports().size(), 2u);
  }
}

TEST(OtherHandle, CostsNoTraceWhereTensorsStay) {
  Tensor w = values({3}, 1).set_requires_grad();
  int calls = 0;
  Compiled f = plain([&](const List& in) {
    ++calls;
    return List{in[0] * w + from_vector<float>({1, 2, 3}, {3})};
  });
  List alive;
  for (uint32_t i = 0; i < 5; ++i) {
    alive.push_back(f({values({3}, i)})[0]);
    const NoGrad off;
    f({values({3}, i)});
  }
  EXPECT_EQ(calls, 2);
  calls = 0;
  Compiled step = plain([&](const List& in) {  // its results are on the tape, without a gradient
    ++calls;
    const Tensor loss = sum(w * in[0] * w);
    const Tensor g = grad(loss, {w})[0];
    const NoGrad off;
    assign(w, w - g * 0.1);
    return List{loss};
  });
  for (uint32_t i = 0; i < 5; ++i) alive.push_back(step({values({3}, i)})[0]);
  EXPECT_EQ(calls, 1);
}

TEST(HostSetters, RefuseWhileTracingAndSayWhatToDo) {
  nn::Linear net(nullptr, "", 3, 2);
  nn::LSTM lstm(nullptr, "", 3, 2);
  const auto adam = optim::make_optimizer("adam", net.named_parameters(), {});
  optim::Lbfgs lbfgs(net.named_parameters());
  optim::Plateau plateau(0.1);
  const auto refused = [&](const std::function<void()>& set, const std::vector<std::string>& parts) {
    Compiled f = plain([&](const List& in) {
      set();
      return in;
    });
    const std::string message = error_of([&] { f({ones({2})}); });
    EXPECT_TRUE(names(message, parts)) << message;
    EXPECT_TRUE(names(message, {"must not be called inside a compiled callable"})) << message;
  };
  refused([&] { adam->set_lr(0.5); }, {"set_lr: ", "Call it before the compiled step"});
  refused([&] { adam->set_lr(0.5, 0); }, {"set_lr: "});
  refused([&] { adam->load_state({}, "file"); }, {"load_state: "});
  refused([&] { lbfgs.set_lr(0.5); }, {"set_lr: "});
  refused([&] { plateau.measure(0.5); }, {"Plateau::measure: "});
  refused([&] { net.eval(); }, {"train: "});
  refused([&] { net.add_forward_hook([](nn::Module&, const List&, List&) {}); }, {"add_forward_hook: "});
  refused([&] { net.add_forward_pre_hook([](nn::Module&, List&) {}); }, {"add_forward_pre_hook: "});
  refused([&] { lstm.set_implementation(nn::RecurrentImplementation::cell); }, {"set_implementation: "});
  EXPECT_EQ(adam->lr(), 0.01);
}

TEST(HostSetters, OfAnImplementationTraceAgain) {
  manual_seed(1);
  nn::LSTM lstm(nullptr, "", 3, 4);
  Compiled f = plain([&](const List& in) { return List{lstm(in[0]).output}; });
  const Tensor x = values({5, 2, 3}, 1);
  f({x});
  for (const auto way : {nn::RecurrentImplementation::cell, nn::RecurrentImplementation::block,
                         nn::RecurrentImplementation::fused}) {
    lstm.set_implementation(way);
    EXPECT_TRUE(same_bits(f({x})[0], lstm(x).output));
  }
  EXPECT_EQ(f.reports().size(), 3u);
}

TEST(Warnings, TellOnceThatMoreSignaturesComeUpThanAreKept) {
  std::vector<std::string> warnings;
  const WarningHandler before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  Compiled f = compile([](const Tensor& x) { return x * 2; });
  for (int64_t n = 1; n <= 16; ++n) f(ones({n}));
  EXPECT_TRUE(warnings.empty());
  for (int64_t n = 17; n <= 20; ++n) f(ones({n}));
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NAMES(warnings[0], "CompileOptions::cache_size", "16");
}

// `h = h + x` in forward() would change the member alone, not what the module saves, moves and trains.
template <class M>
constexpr bool kCanReplaceWeight = requires(M& m, Tensor t) {
  m.weight = t;
};
template <class M>
constexpr bool kCanReplaceBias = requires(M& m, Tensor t) {
  m.bias = t;
};
static_assert(!kCanReplaceWeight<nn::Linear> && !kCanReplaceBias<nn::Linear>);
static_assert(!kCanReplaceWeight<nn::Conv2d> && !kCanReplaceBias<nn::Conv2d>);
static_assert(!kCanReplaceWeight<nn::ConvTranspose2d> && !kCanReplaceBias<nn::ConvTranspose2d>);
static_assert(!kCanReplaceWeight<nn::BatchNorm2d> && !kCanReplaceWeight<nn::LayerNorm>);
static_assert(!kCanReplaceWeight<nn::GroupNorm> && !kCanReplaceWeight<nn::RMSNorm>);
static_assert(!kCanReplaceWeight<nn::Embedding> && !kCanReplaceWeight<nn::EmbeddingBag>);
template <class M>
constexpr bool kCanReplaceMean = requires(M& m, Tensor t) {
  m.running_mean = t;
};
static_assert(!kCanReplaceMean<nn::BatchNorm2d>);
template <class M>
constexpr bool kCanReplaceRow = requires(M& m, Tensor t) {
  m.weights[0].ih = t;
};
static_assert(!kCanReplaceRow<nn::LSTM>);

}  // namespace
}  // namespace tandem::testing
