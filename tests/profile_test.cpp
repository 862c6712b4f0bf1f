// Profiles: what they see, the trace file, the sums, and the scopes that users and modules open.
#include "tandem/profile/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/work.h"
#include "tandem/train/profile_model.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem {
namespace {

using nlohmann::json;
using testing::read_text;
using testing::TempFolder;

struct Span {
  std::string name, kind;
  int64_t process, thread, begin_ns, end_ns;
  bool holds(const Span& other) const {
    return process == other.process && thread == other.thread && begin_ns <= other.begin_ns &&
           other.end_ns <= end_ns;
  }
};

struct Trace {
  std::vector<Span> spans;
  std::vector<std::pair<int64_t, int64_t>> memory;  // time, bytes
  json other;

  std::vector<Span> of(const std::string& kind, const std::string& name = "") const {
    std::vector<Span> found;
    for (const Span& span : spans)
      if (span.kind == kind && (name.empty() || span.name == name)) found.push_back(span);
    return found;
  }
};

int64_t ns_of(const json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

/// Writes and reads back; checks each event by itself, and that they come in order and nest in their rows.
Trace trace_of(const Profile& profile) {
  const TempFolder folder;
  const std::string path = folder / "trace.json";
  write_trace(path, profile);
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  const json file = json::parse(read_text(path));
  Trace trace;
  trace.other = file["otherData"];
  int64_t last = 0;
  std::map<std::pair<int64_t, int64_t>, std::vector<Span>> open;
  std::map<std::pair<int64_t, int64_t>, std::string> rows;
  for (const json& event : file["traceEvents"]) {
    const std::string kind = event["ph"];
    if (kind == "M") {
      rows[{event["pid"], event["tid"]}] = event["args"]["name"];
      continue;
    }
    const int64_t begin = ns_of(event["ts"]);
    EXPECT_GE(begin, last) << event;
    last = begin;
    if (kind == "C") {
      trace.memory.emplace_back(begin, event["args"]["bytes"].get<int64_t>());
      continue;
    }
    EXPECT_EQ(kind, "X") << event;
    EXPECT_GE(event["dur"].get<double>(), 0) << event;
    const Span span{event["name"], event["cat"], event["pid"],
                    event["tid"],  begin,        begin + ns_of(event["dur"])};
    EXPECT_FALSE(span.name.empty());
    EXPECT_TRUE(rows.count({span.process, span.thread})) << event << " lies on a row without a name";
    std::vector<Span>& around = open[{span.process, span.thread}];
    while (!around.empty() && around.back().end_ns <= span.begin_ns) around.pop_back();
    if (!around.empty()) {
      EXPECT_TRUE(around.back().holds(span)) << around.back().name << " and " << span.name;
    }
    around.push_back(span);
    trace.spans.push_back(span);
  }
  return trace;
}

/// Whether each span of an op of this name lies in one of this scope.
bool all_within(const Trace& trace, const std::string& op, const std::string& scope) {
  const std::vector<Span> ops = trace.of("op", op), scopes = trace.of("scope", scope);
  return !ops.empty() && std::all_of(ops.begin(), ops.end(), [&](const Span& span) {
    return std::any_of(scopes.begin(), scopes.end(), [&](const Span& each) { return each.holds(span); });
  });
}

Work work_by(const Profile& profile, const std::string& op) {
  for (const HostRecord::Sum& sum : profile.ops)
    if (sum.name == op) return sum.work;
  return {};
}

TEST(Profile, ShowsOpsKernelsAndMemory) {
  const Tensor x = randn({64, 64});
  const Profile seen = profile([&] { (void)sum(tanh(matmul(x, x))); });
  const Trace trace = trace_of(seen);
  for (const char* name : {"matmul", "tanh", "sum"}) {
    EXPECT_EQ(trace.of("op", name).size(), 1u) << name;
    EXPECT_EQ(trace.of("kernel", name).size(), 1u) << name;
  }
  EXPECT_EQ(seen.seen_by, "clock");
  EXPECT_EQ(trace.other["dropped_events"], 0);
  ASSERT_EQ(trace.memory.size(), trace.of("op").size());
  for (const auto& [when, bytes] : trace.memory) EXPECT_GE(bytes, 64 * 64 * 4) << "x alone";
  EXPECT_GE(summarize(seen).memory, size_t{2} * 64 * 64 * 4);
  EXPECT_TRUE(profile([] {}).host.empty()) << "nothing of before";
}

TEST(Profile, UserScopesEncloseTheirOps) {
  const Tensor x = randn({8, 8});
  const auto body = [&] {
    const Scope outer("encoder");
    Tensor h = exp(x);
    {
      const Scope inner("attention");
      h = matmul(h, h);
    }
    return sum(h);
  };
  const Trace trace = trace_of(profile([&] { (void)body(); }));
  EXPECT_TRUE(all_within(trace, "matmul", "attention"));
  for (const char* op : {"exp", "matmul", "sum"}) EXPECT_TRUE(all_within(trace, op, "encoder")) << op;
  EXPECT_FALSE(all_within(trace, "exp", "attention"));
  EXPECT_TRUE(trace.of("scope", "encoder")[0].holds(trace.of("scope", "attention")[0]));
}

TEST(Profile, AReplayShowsTheScopesOfItsTrace) {
  const Tensor x = randn({8, 8});
  const auto body = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    Tensor h;
    {
      const Scope scope("encoder");
      h = matmul(tanh(in[0]) * in[0], in[0]);
    }
    const Scope scope("head");
    return {sum(h)};
  };
  Compiled compiled = compile(body);
  const auto call = [&] {
    const Scope scope("call");
    (void)compiled({x});
  };
  const Trace first = trace_of(profile(call)), replay = trace_of(profile(call));
  for (const Trace* trace : {&first, &replay}) {
    EXPECT_TRUE(all_within(*trace, "matmul", "encoder"));
    EXPECT_TRUE(all_within(*trace, "fused chain", "encoder"));
    EXPECT_TRUE(all_within(*trace, "sum", "head"));
    EXPECT_FALSE(all_within(*trace, "sum", "encoder"));
    EXPECT_EQ(trace->of("scope", "call").size(), 1u) << "what was open around the trace is no part of it";
    EXPECT_TRUE(all_within(*trace, "matmul", "call"));
  }
  EXPECT_EQ(compiled({x})[0].item<float>(), body({x})[0].item<float>());
}

TEST(Profile, ModulesAreScopes) {
  nn::Sequential net;
  net.add(nn::make<nn::Linear>(4, 3));
  net.add(nn::make<nn::Linear>(3, 2));
  const Tensor x = randn({5, 4});
  Compiled compiled =
      compile([&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {net(in[0])}; });
  (void)compiled({x});
  for (const bool replayed : {false, true}) {
    const Trace trace = trace_of(profile([&] { replayed ? (void)compiled({x}) : (void)net(x); }));
    const std::vector<Span> ops = trace.of("op", "linear");
    ASSERT_EQ(ops.size(), 2u);
    for (const int layer : {0, 1}) {
      const auto scopes = trace.of("scope", str(layer, " (Linear)"));
      ASSERT_EQ(scopes.size(), 1u) << replayed;
      EXPECT_TRUE(scopes[0].holds(ops[static_cast<size_t>(layer)]));
      EXPECT_FALSE(scopes[0].holds(ops[static_cast<size_t>(1 - layer)]));
    }
    EXPECT_TRUE(all_within(trace, "linear", "Sequential"));
  }
}

TEST(Profile, AHookedModuleIsOneScope) {
  nn::Sequential net;
  net.add(nn::make<nn::Linear>(4, 3));
  net.add_forward_hook([](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>&) {});
  const Trace trace = trace_of(profile([&] { (void)net(ones({2, 4})); }));
  EXPECT_EQ(trace.of("scope", "Sequential").size(), 1u);
  EXPECT_EQ(trace.of("scope", "0 (Linear)").size(), 1u);
}

TEST(Profile, NamesMayHoldAnything) {
  const std::string odd = "a\"b\\c\n\x01{}\xc3\xa4", broken = "\xff\xfe";
  const Trace trace = trace_of(profile([&] {
    const Scope scope(odd), other(broken);
    (void)exp(ones({2}));
  }));
  EXPECT_EQ(trace.of("scope", odd).size(), 1u);
  EXPECT_EQ(trace.of("scope").size(), 2u);
}

TEST(Profile, DeepScopesAreToldApartUpToALimit) {
  const std::function<void(int)> nest = [&](int depth) {
    const Scope scope(str("depth ", depth));
    depth > 0 ? nest(depth - 1) : (void)exp(ones({2}));
  };
  const Trace trace = trace_of(profile([&] { nest(1000); }));
  EXPECT_EQ(trace.of("scope").size(), 64u);
  EXPECT_TRUE(all_within(trace, "exp", "depth 1000"));
}

TEST(Profile, ThreadsHaveRowsOfTheirOwn) {
  const Tensor x = randn({16, 16});
  const Trace trace = trace_of(profile([&] {
    (void)exp(x);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&, i] {
        const Scope scope(str("worker ", i));
        (void)tanh(x);
      });
    for (std::thread& thread : threads) thread.join();
  }));
  EXPECT_EQ(trace.of("op", "exp")[0].thread, 0);
  std::set<int64_t> rows;
  for (const Span& span : trace.of("op", "tanh")) rows.insert(span.thread);
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_FALSE(rows.count(0));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(trace.of("scope", str("worker ", i)).size(), 1u);
}

TEST(Profile, SumsAgreeWithTheTrace) {
  const Tensor x = randn({128, 128});
  const Profile seen = profile([&] {
    for (int i = 0; i < 3; ++i) (void)sum(exp(matmul(x, x)));
    (void)x.to_vector<float>();
  });
  const ProfileSummary sums = summarize(seen);
  const Trace trace = trace_of(seen);
  int64_t kernels = 0;
  for (const KernelSum& sum : sums.kernels) {
    int64_t ns = 0;
    const std::vector<Span> spans = trace.of(sum.is_copy ? "copy" : "kernel", sum.name);
    for (const Span& span : spans) ns += span.end_ns - span.begin_ns;
    EXPECT_EQ(static_cast<int64_t>(spans.size()), sum.count) << sum.name;
    EXPECT_EQ(ns, sum.ns) << sum.name;
    if (!sum.is_copy) kernels += ns;
  }
  // One thread: kernels do not overlap.
  EXPECT_NEAR(sums.kernel_share, static_cast<double>(kernels) / static_cast<double>(sums.ns), 1e-9);
  EXPECT_NEAR(sums.kernel_share + sums.copy_share + sums.idle_share, 1, 1e-9);
  EXPECT_EQ(sums.launches, 9);
  EXPECT_EQ(sums.copies, 1);
  EXPECT_EQ(covered_ns(seen.activities, false), kernels);
  const auto copy = std::find_if(sums.kernels.begin(), sums.kernels.end(), [](auto& s) { return s.is_copy; });
  ASSERT_NE(copy, sums.kernels.end());
  EXPECT_EQ(copy->work->bytes, 128 * 128 * 4);
  EXPECT_TRUE(std::is_sorted(sums.kernels.begin(), sums.kernels.end(),
                             [](const KernelSum& a, const KernelSum& b) { return a.ns > b.ns; }));
}

TEST(Profile, KernelsAreSummedByThePlainNamesOfTheirFunctions) {
  const std::vector<DeviceActivity> activities = {
      {"void tandem::cuda::(anonymous namespace)::sum_rows<float, 4>(float*)", false, 0, 10, 0},
      {"tandem::cuda::sum_rows(double*)", false, 5, 25, 0},
      {"copy within", true, 20, 30, 7}};
  const std::vector<KernelSum> sums = sums_by_name(activities);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0].name, "sum_rows");
  EXPECT_EQ(sums[0].count, 2);
  EXPECT_EQ(sums[0].ns, 30);
  EXPECT_FALSE(sums[0].work);
  EXPECT_EQ(sums[1].work->bytes, 7);
  EXPECT_EQ(covered_ns(activities, false), 25) << "what overlaps counts once";
}

TEST(Profile, EventsBeyondTheLimitAreCountedAndTheSumsKnowThem) {
  const Tensor x = ones({4});
  const Profile seen = profile(
      [&] {
        for (int i = 0; i < 20; ++i) (void)exp(x);
      },
      {.most_events = 5});
  const TempFolder folder;
  EXPECT_EQ(seen.host.size(), 5u);
  EXPECT_EQ(seen.dropped, 15);
  EXPECT_EQ(write_trace(folder / "trace.json", seen), 15 + 15);
  EXPECT_EQ(trace_of(seen).other["dropped_events"], 30);
  EXPECT_EQ(trace_of(seen).of("kernel").size(), 5u);
  EXPECT_EQ(summarize(seen).launches, 20);
  EXPECT_EQ(summarize(seen).work.flops, 20 * 4);
}

TEST(Profile, RefusesWhatItCannotDoAndLetsErrorsThrough) {
  EXPECT_THROW(profile({}), Error);
  EXPECT_THROW(profile([] {}, {.most_events = -1}), Error);
  EXPECT_THROW(profile([] {}, {.device = {DeviceKind::cpu, 200}}), Error);
  EXPECT_EQ(testing::error_of([] { profile([] { profile([] {}); }); }),
            "profile: must not be called in the work of another profile; got such a call. Profile once "
            "around all of it, "
            "and give its parts names with Scope.");
  Compiled traced = compile([](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    profile([] {});
    return in;
  });
  EXPECT_THROW(traced({ones({2})}), Error);
  try {
    profile([] {
      const Scope scope("mine");
      throw Error("mine");
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "mine");
  }
  EXPECT_EQ(profile([] { (void)exp(ones({2})); }).ops.size(), 2u) << "the next one works";
  EXPECT_THROW(write_trace("no/such/folder/trace.json", profile([] {})), Error);
}

TEST(Work, CountsProductsAndConvolutionsExactly) {
  const Tensor x = randn({3, 4, 9, 8}), weight = randn({6, 2, 3, 2}).set_requires_grad(), bias = randn({6});
  const Tensor input = randn({3, 4, 9, 8}).set_requires_grad();
  const ConvOptions options{.stride = 2, .padding = 1, .groups = 2};
  const Tensor out = conv2d(x, weight, bias, options);
  ASSERT_EQ(out.shape(), Dims({3, 6, 5, 5}));
  const int64_t outputs = 3 * 6 * 5 * 5, terms = 2 * 3 * 2;
  const Profile seen = profile([&] {
    const Tensor y = conv2d(input, weight, bias, options);
    (void)grad(sum(y), {input, weight});
  });
  EXPECT_EQ(work_by(seen, "conv").flops, outputs * (2 * terms + 1));
  EXPECT_EQ(work_by(seen, "conv_input_gradient").flops, outputs * 2 * terms);
  EXPECT_EQ(work_by(seen, "conv_weight_gradient").flops, outputs * 2 * terms);
  EXPECT_EQ(work_by(seen, "conv").bytes, 4 * (3 * 4 * 9 * 8 + 6 * terms + 6 + outputs));

  const Profile products = profile([&] {
    (void)matmul(ones({5, 7, 3}), ones({5, 3, 4}));
    (void)(expand(ones({1, 6}), {50, 6}) + ones({50, 6}));
    (void)cast(ones({50, 6}), DType::f64);
  });
  EXPECT_EQ(work_by(products, "matmul").flops, 2 * 5 * 7 * 3 * 4);
  EXPECT_EQ(work_by(products, "matmul").bytes, 4 * 5 * (7 * 3 + 3 * 4 + 7 * 4));
  EXPECT_EQ(work_by(products, "add").flops, 50 * 6);
  EXPECT_EQ(work_by(products, "add").bytes, 4 * (6 + 50 * 6 + 50 * 6)) << "a broadcast row is read once";
  EXPECT_EQ(work_by(products, "cast").flops, 0);
  EXPECT_EQ(work_by(products, "cast").bytes, (4 + 8) * 50 * 6);
}

TEST(Work, OfATrainingStepOfLeNetIsAsCountedByHand) {
  constexpr int64_t kBatch = 4;
  TrainConfig config;
  config.model = "lenet";
  config.batch = kBatch;
  config.steps = 2;
  // Terms and outputs of each layer, (out, in) for a sample.
  const int64_t conv1 = 6 * 28 * 28 * 25, conv2 = 16 * 10 * 10 * 150, fc = 400 * 120 + 120 * 84 + 84 * 10;
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    config.engine = engine;
    const ModelProfile model = profile_model(config);
    const Profile& seen = model.profile;
    const int64_t samples = kBatch * model.steps;
    EXPECT_EQ(work_by(seen, "conv").flops, samples * (2 * (conv1 + conv2) + 6 * 28 * 28 + 16 * 10 * 10));
    EXPECT_EQ(work_by(seen, "conv_weight_gradient").flops, samples * 2 * (conv1 + conv2));
    EXPECT_EQ(work_by(seen, "conv_input_gradient").flops, samples * 2 * conv2) << "none for the images";
    EXPECT_EQ(work_by(seen, "linear").flops, samples * (2 * fc + 120 + 84 + 10));
    EXPECT_EQ(work_by(seen, "matmul").flops, samples * 2 * 2 * fc) << "of inputs and weights";
    const Trace trace = trace_of(seen);
    EXPECT_EQ(trace.of("scope", "step 1").size(), 1u);
    EXPECT_EQ(trace.of("scope", "step 2").size(), 1u);
    EXPECT_TRUE(all_within(trace, "conv", "forward"));
    EXPECT_TRUE(all_within(trace, "conv_weight_gradient", "backward"));
    EXPECT_EQ(trace.of("op", "conv").size(), 4u);
    const auto layer = trace.of("scope", "conv1 (Conv2d)");
    ASSERT_EQ(layer.size(), 2u) << name(engine);
    EXPECT_TRUE(layer[0].holds(trace.of("op", "conv")[0]));
    EXPECT_GT(model.unprofiled_ns, 0);
  }
}

TEST(ModelProfile, ComputesInTheTypesOfItsSettings) {
  TrainConfig config;
  config.model = "lenet";
  config.batch = 2;
  config.steps = 1;
  const auto convolutions = [&](bool infer) {
    std::string types;
    for (const HostEvent& event : profile_model(config, infer).profile.host)
      if (event.kind == HostEvent::Kind::op && event.name == "conv") types = event.detail.substr(0, 4);
    return types;
  };
  EXPECT_EQ(convolutions(false), "f32 ");
  config.autocast = DType::bf16;
  EXPECT_EQ(convolutions(false), "bf16");
  EXPECT_EQ(convolutions(true), "bf16");
  EXPECT_NE(profile_model(config, true).peaks.how.find("bf16"), std::string::npos);
}

TEST(Peaks, AreMeasured) {
  const Peaks peaks = measure_peaks();
  EXPECT_GT(peaks.flops_per_second, 1e6);
  EXPECT_GT(peaks.bytes_per_second, 1e6);
  EXPECT_NE(peaks.how.find("f32"), std::string::npos);
  EXPECT_THROW(measure_peaks({}, DType::i32), Error);
  ASSERT_GE(peaks.rates.size(), 3u);
  for (size_t i = 1; i < peaks.rates.size(); ++i) {
    EXPECT_GT(peaks.rates[i].bytes, peaks.rates[i - 1].bytes);
    EXPECT_LE(peaks.rates[i].bytes_per_second, peaks.rates[i - 1].bytes_per_second);
  }
  EXPECT_EQ(peaks.bytes_per_second, peaks.rates.back().bytes_per_second) << "the memory's";
}

TEST(Peaks, AKernelIsComparedWithCallsThatMoveAsMuchOrMore) {
  const Peaks peaks{.bytes_per_second = 10, .rates = {{1000, 90}, {4000, 40}, {16000, 10}}};
  for (const auto& [bytes, rate] :
       {std::pair(0.0, 90.0), {1000.0, 90.0}, {1000.5, 40.0}, {4000.0, 40.0}, {5000.0, 10.0}, {1e12, 10.0}})
    EXPECT_EQ(peaks.bytes_per_second_at(bytes), rate) << bytes;
  EXPECT_EQ((Peaks{.bytes_per_second = 7}.bytes_per_second_at(5)), 7);
}

}  // namespace
}  // namespace tandem
