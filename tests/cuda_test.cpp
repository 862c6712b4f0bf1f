// The CUDA backend: memory, copies, errors from kernels, recordings, and the promises about bits. Op by op, CPU = CUDA is
// checked by the op cases. On a machine without a GPU every test here is skipped, by name.
// ctest: cuda
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "tandem/core/backend.h"
#include "tandem/core/choices.h"
#include "tandem/core/copy_queue.h"
#include "tandem/core/implementations.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/compose.h"
#include "tandem/data/loader.h"
#include "tandem/graph/compile.h"
#include "tandem/graph/cond.h"
#include "tandem/graph/scan.h"
#include "tandem/graph/while_loop.h"
#include "tandem/nn/recurrent.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/fused.h"
#include "tandem/ops/index.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/profile/profile.h"
#include "tests/support/control_flow_forms.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

constexpr Device kCpu{}, kGpu{DeviceKind::cuda, 0};

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  }
  Backend& gpu() { return backend(DeviceKind::cuda); }
};

/// Numbers of every size and sign, and the special ones.
Tensor assorted(int64_t n, DType dtype, uint64_t seed) {
  manual_seed(seed);
  std::vector<float> values = (normal({n}, 0, 3) * exp(normal({n}, 0, 2))).to_vector<float>();
  const float special[] = {0.f,    -0.f,   1.f,   -1.f,   0.5f,     2.f,      88.f,
                           -104.f, 1e-40f, 1e30f, -1e30f, INFINITY, -INFINITY};
  for (size_t i = 0; i < std::size(special); ++i) values[i] = special[i];
  return cast(from_vector(values, {n}), dtype);
}

/// A NaN equals any NaN: chips make different ones.
void expect_same(const Tensor& a, const Tensor& b, const std::string& what) {
  EXPECT_TRUE(same_bits(a, b)) << what;
}

bool is_recorded(const Compiled& compiled) {
  return compiled.reports()[0].executor.find("recorded, replayed as one") != std::string::npos;
}

struct ConvolutionsBy {
  explicit ConvolutionsBy(ChoiceMode mode) { set_convolution_choice({.mode = mode, .keep = false}); }
  ~ConvolutionsBy() { set_convolution_choice({}); }
};

TEST_F(Cuda, CopiesComeBackAsTheyWent) {
  for (const int64_t n : {1, 3, 1000, 1 << 20}) {
    const Tensor x = assorted(n < 16 ? 16 : n, DType::f32, 1);
    EXPECT_EQ(host_bytes(x), host_bytes(to(x, kGpu)));
    const Tensor turned = transpose(reshape(slice(x, 0, 0, 16), {4, 4}));
    EXPECT_EQ(host_bytes(turned), host_bytes(to(turned, kGpu)));
    EXPECT_EQ(host_bytes(x), host_bytes(to(to(x, kGpu), kCpu)));
  }
  EXPECT_TRUE(host_bytes(zeros({0, 3}, DType::f32, kGpu)).empty());
}

TEST_F(Cuda, AllocatorReusesBlocksAndCountsThem) {
  gpu().synchronize(kGpu);
  const size_t before = gpu().memory(kGpu).in_use;
  void* first = gpu().allocate(kGpu, 100'000);
  EXPECT_GE(gpu().memory(kGpu).in_use, before + 100'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  gpu().free(kGpu, first, 100'000);
  const size_t reserved = gpu().memory(kGpu).reserved;
  void* second = gpu().allocate(kGpu, 99'900);
  EXPECT_EQ(first, second);
  EXPECT_EQ(gpu().memory(kGpu).reserved, reserved);
  gpu().free(kGpu, second, 99'900);
  EXPECT_EQ(gpu().memory(kGpu).in_use, before);
  gpu().reset_peak(kGpu);
  EXPECT_EQ(gpu().memory(kGpu).peak, before);
}

/// Of a scan all steps are part of the recording, of a while_loop one; sizes are no multiple of any alignment.
TEST_F(Cuda, LoopsAreRecordedAndHaveTheBitsOfTheEagerEngine) {
  using List = std::vector<Tensor>;
  const auto leaf = [](const Dims& shape, uint32_t salt) {
    return to(to_tensor(hash_array(shape, salt), DType::f32), kGpu).set_requires_grad();
  };
  const Tensor w = leaf({5, 5}, 1), u = leaf({5, 5}, 2), x = leaf({7, 3, 5}, 3), h = leaf({3, 5}, 4);
  for (bool is_scan : {true, false})
    for (bool recompute : {false, true}) {
      const auto cell = [&](const Tensor& s, const Tensor& in) {
        return dropout(tanh(matmul(in, w) + matmul(s, u)), 0.25) + s * 0.5;
      };
      const TensorFunction f = [&](const List&) {
        Tensor y;
        if (is_scan) {
          const ScanResult made = scan(
              [&](const List& s, const List& in) {
                const Tensor next = cell(s[0], in[0]);
                return ScanStep{{next}, {next * next}};
              },
              {h}, {x}, {.from_end = true, .recompute = recompute});
          y = sum(made.state[0]) + sum(made.outputs[0]);
        } else {
          y = sum(while_loop([](const List& s) { return less(s[1], 4); },
                             [&](const List& s) {
                               return List{cell(s[0], h), s[1] + 1};
                             },
                             {h, full({}, 0, DType::i64, kGpu)}, {.at_most = 6, .recompute = recompute})[0]);
        }
        List out = grad(y, {w, u, x, h}, {}, {}, true);
        out.push_back(y.detach());
        return out;
      };
      Compiled compiled = compile(f);
      for (int call = 0; call < 4; ++call) {
        manual_seed(5);
        const List eager = f({});
        manual_seed(5);
        const List graph = compiled({});
        for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
      }
      EXPECT_TRUE(is_recorded(compiled)) << compiled.reports()[0].executor;
    }
}

/// Conditions change from call to call, and are looked at by the device alone: the recording is made once.
TEST_F(Cuda, BranchesAndLoopsAreReplayedWithTheBitsOfTheEagerEngine) {
  using Way = ControlForm::Way;
  const bool before = tf32();
  set_tf32(false);
  for (bool recompute : {false, true})
    for (const ControlForm& form : ControlForm::all(recompute)) {
      const std::string what = str(form.name, recompute ? ", recomputed" : "");
      const ControlForm::Seen cpu = form.run(kCpu, Way::eager), eager = form.run(kGpu, Way::eager);
      for (const Way way : {Way::whole, Way::inner}) {
        const ControlForm::Seen compiled = form.run(kGpu, way);
        expect_same_bits(compiled, eager, what + (way == Way::whole ? ", whole" : ", inner"));
        EXPECT_EQ(compiled.executor, "cuda:0: recorded, replayed as one") << what;
        EXPECT_EQ(compiled.traces, 1u) << what;
      }
      for (size_t call = 0; call < cpu.calls.size(); ++call)
        for (size_t i = 0; i < cpu.calls[call].size(); ++i) {
          const auto want = to_array(cpu.calls[call][i]).values, got = to_array(eager.calls[call][i]).values;
          ASSERT_EQ(want.size(), got.size()) << what;
          for (size_t k = 0; k < want.size(); ++k)
            EXPECT_NEAR(got[k], want[k], 1e-3 * (1 + std::abs(want[k])))
                << what << ", call " << call << ", tensor " << i << ", element " << k;
        }
    }
  set_tf32(before);
}

/// Nothing of it was loaded, planned or chosen when it was recorded.
TEST_F(Cuda, ABranchThatHadNeverRunIsRecordedAsTheEagerEngineRunsIt) {
  Tensor kernel = to(to_tensor(hash_array({9, 3, 3, 3}, 1), DType::f32), kGpu).set_requires_grad();
  Tensor w = to(to_tensor(hash_array({9, 17}, 2), DType::f32), kGpu).set_requires_grad();
  const TensorFunction step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = cond(
        in[1],
        [&] {
          const Tensor h = relu(conv2d(in[0], kernel, {}, {.padding = 1}));
          return softmax(matmul(mean(h, {2, 3}), w), 1);
        },
        [&] {
          return matmul(mean(slice(in[0], 1, 0, 1), {2, 3}) * 2.0, slice(w, 0, 0, 1));
        });
    std::vector<Tensor> out = grad(sum(y * y), {kernel, w});
    out.push_back(y.detach());
    return out;
  };
  Compiled compiled = compile(step);
  const Tensor x = to(to_tensor(hash_array({4, 3, 11, 13}, 3), DType::f32), kGpu);
  const auto call = [&](bool holds) {
    const std::vector<Tensor> in = {x, full({}, holds, DType::boolean, kGpu)};
    const std::vector<Tensor> graph = compiled(in), eager = step(in);
    for (size_t i = 0; i < eager.size(); ++i)
      EXPECT_TRUE(same_bits(eager[i], graph[i])) << holds << ", " << i;
  };
  for (const bool holds : {false, false, false, true, true, false, true}) call(holds);
  EXPECT_TRUE(is_recorded(compiled)) << compiled.reports()[0].executor;
}

TEST_F(Cuda, AnIndexOutOfRangeEndsALoopThatIsRecorded) {
  const Tensor table = to(from_vector<float>({1, 2, 3, 4}, {4}), kGpu);
  Compiled compiled = compile([&](const Tensor& n) {
    return while_loop(
        [&](const std::vector<Tensor>& s) { return less(s[0], n); },
        [&](const std::vector<Tensor>& s) {
          return std::vector<Tensor>{s[0] + 1, s[1] + index_select(table, 0, reshape(s[0], {1}))};
        },
        {full({}, 0, DType::i64, kGpu), zeros({1}, DType::f32, kGpu)})[1];
  });
  const auto sum_of = [&](int64_t n) {
    return compiled(to(from_vector<int64_t>({n}, {}), kGpu)).item<float>();
  };
  for (int64_t n : {2, 4, 0, 3}) EXPECT_EQ(sum_of(n), static_cast<float>(n * (n + 1) / 2));
  EXPECT_TRUE(is_recorded(compiled)) << compiled.reports()[0].executor;
  EXPECT_THROW(sum_of(int64_t{1} << 40), Error);  // which would take days
  EXPECT_EQ(sum_of(4), 10);
}

TEST_F(Cuda, WatchingShowsKernelsAndCopiesOfPlainAndOfRecordedWork) {
  const Tensor host = ones({1 << 20}), x = to(host, kGpu);
  const auto count = [](const std::vector<DeviceActivity>& all, bool copies) {
    return std::count_if(all.begin(), all.end(), [&](const auto& each) { return each.is_copy == copies; });
  };
  const std::vector<DeviceActivity> plain = gpu().watch(kGpu, [&] {
    for (int i = 0; i < 3; ++i) (void)sum(x * x);
    (void)to(host, kGpu);
  });
  EXPECT_GE(count(plain, false), 6);
  EXPECT_GE(count(plain, true), 1);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_FALSE(plain[i].name.empty());
    EXPECT_LT(plain[i].begin_ns, plain[i].end_ns);
    EXPECT_LE(plain[i > 0 ? i - 1 : 0].begin_ns, plain[i].begin_ns);
  }
  Compiled compiled =
      compile([](const std::vector<Tensor>& in) { return std::vector<Tensor>{sum(exp(in[0]) * in[0])}; });
  for (int i = 0; i < 4; ++i) (void)compiled({x});
  EXPECT_GE(count(gpu().watch(kGpu, [&] { (void)compiled({x}); }), false), 1) << "a replay shows its kernels";
  EXPECT_TRUE(gpu().watch(kGpu, [] {}).empty()) << "nothing of before";
  EXPECT_THROW(gpu().watch(kGpu, [] { throw Error("mine"); }), Error);
  EXPECT_TRUE(gpu().watch(kGpu, [] {}).empty());
}

TEST_F(Cuda, WatchingByEventsShowsOpsCopiesAndRecordingsByTheirNames) {
  const Tensor host = ones({1 << 20}), x = to(host, kGpu);
  const auto names = [&](const std::function<void()>& work) {
    std::vector<std::string> list;
    int64_t last = 0;
    for (const DeviceActivity& each : gpu().watch_by_events(kGpu, work)) {
      EXPECT_LE(last, each.begin_ns);
      EXPECT_LE(each.begin_ns, each.end_ns);
      last = each.begin_ns;
      EXPECT_EQ(each.is_copy, each.name.starts_with("copy ")) << each.name;
      if (each.name == "copy from host") {
        EXPECT_EQ(each.bytes, 4 << 20);
      }
      list.push_back(each.name);
    }
    return list;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names([&] {
              (void)sum(exp(x));
              (void)to(host, kGpu);
            }),
            (Names{"exp", "sum", "copy from host"}));
  Compiled compiled =
      compile([](const std::vector<Tensor>& in) { return std::vector<Tensor>{sum(exp(in[0]) * in[0])}; });
  for (int i = 0; i < 4; ++i) (void)compiled({x});
  const Names replay = names([&] { (void)compiled({x}); });
  EXPECT_EQ(std::count(replay.begin(), replay.end(), "recorded graph"), 1);
  EXPECT_THROW(gpu().watch_by_events(kGpu, [] { throw Error("mine"); }), Error);
  EXPECT_TRUE(names([] {}).empty()) << "nothing of before";
}

TEST_F(Cuda, AProfileHasKernelsOfTheDeviceWithinItsTime) {
  const Tensor x = normal({512, 512}, 0, 1, DType::f32, kGpu);
  Compiled compiled = compile([](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Scope scope("product");
    return {sum(matmul(in[0], in[0]))};
  });
  for (int i = 0; i < 4; ++i) (void)compiled({x});
  for (const bool recorded : {false, true}) {
    const Profile seen = profile(
        [&] {
          const Scope scope("mine");
          recorded ? (void)compiled({x}) : (void)sum(matmul(x, x));
        },
        {.device = kGpu});
    const ProfileSummary sums = summarize(seen);
    EXPECT_GE(sums.launches, recorded && seen.kernels_are_ops ? 1 : 2) << seen.seen_by;
    EXPECT_EQ(sums.work.flops, int64_t{2} * 512 * 512 * 512 + 512 * 512);
    EXPECT_GT(sums.kernel_share, 0);
    EXPECT_GT(sums.memory, size_t{512} * 512 * 4);
    constexpr int64_t kSlack = 1'000'000;  // between the clocks of host and device
    for (const DeviceActivity& each : seen.activities) {
      EXPECT_GE(each.begin_ns, seen.begin_ns - kSlack);
      EXPECT_LE(each.end_ns, seen.end_ns + kSlack);
    }
    EXPECT_TRUE(std::any_of(seen.host.begin(), seen.host.end(),
                            [](const HostEvent& event) { return event.name == "mine"; }));
  }
  const Peaks peaks = measure_peaks(kGpu, DType::bf16);
  EXPECT_GT(peaks.flops_per_second, 1e12);
  EXPECT_GT(peaks.bytes_per_second, 1e10);
}

TEST_F(Cuda, ARequestBeyondTheMemoryNamesItsSize) {
  try {
    (void)gpu().allocate(kGpu, size_t{1} << 50);
    FAIL() << "an allocation of 2^50 bytes went through";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1125899906842624 bytes"), std::string::npos) << error.what();
  }
  EXPECT_EQ(full({4}, 7, DType::f32, kGpu).to_vector<float>(), std::vector<float>(4, 7.f));
}

TEST_F(Cuda, PointwiseOpsGiveTheBitsOfTheCpu) {
  const auto check = [](const std::string& what, const auto& f, DType dtype) {
    const Tensor a = assorted(4099, dtype, 2), b = assorted(4099, dtype, 3);
    expect_same(f(a, b), f(to(a, kGpu), to(b, kGpu)), what + " of " + name(dtype));
    // Broadcast and strided: a column of a against a turned b.
    const Tensor column = reshape(slice(a, 0, 0, 32), {32, 1}),
                 turned = transpose(reshape(slice(b, 0, 3, 1027), {32, 32}));
    expect_same(f(column, turned),
                f(to(column, kGpu), transpose(to(reshape(slice(b, 0, 3, 1027), {32, 32}), kGpu))),
                what + ", broadcast, of " + name(dtype));
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    check(
        "add", [](const Tensor& a, const Tensor& b) { return a + b; }, dtype);
    check(
        "sub", [](const Tensor& a, const Tensor& b) { return a - b; }, dtype);
    check(
        "mul", [](const Tensor& a, const Tensor& b) { return a * b; }, dtype);
    check(
        "div", [](const Tensor& a, const Tensor& b) { return a / b; }, dtype);
    check(
        "pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }, dtype);
    check(
        "maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }, dtype);
    check(
        "less", [](const Tensor& a, const Tensor& b) { return less(a, b); }, dtype);
    check(
        "where", [](const Tensor& a, const Tensor& b) { return where(less(a, b), a, b); }, dtype);
    check(
        "exp", [](const Tensor& a, const Tensor& b) { return exp(a) + b * 0; }, dtype);
    check(
        "log", [](const Tensor& a, const Tensor& b) { return log(abs(a)) + b * 0; }, dtype);
    check(
        "tanh", [](const Tensor& a, const Tensor& b) { return tanh(a) + b * 0; }, dtype);
    check(
        "erf", [](const Tensor& a, const Tensor& b) { return erf(a) + b * 0; }, dtype);
    check(
        "sigmoid", [](const Tensor& a, const Tensor& b) { return sigmoid(a) + b * 0; }, dtype);
    check(
        "gelu", [](const Tensor& a, const Tensor& b) { return gelu(a) + b * 0; }, dtype);
    check(
        "sin", [](const Tensor& a, const Tensor& b) { return sin(a) + b * 0; }, dtype);
    check(
        "cos", [](const Tensor& a, const Tensor& b) { return cos(a) + b * 0; }, dtype);
    check(
        "sqrt", [](const Tensor& a, const Tensor& b) { return sqrt(abs(a)) + b * 0; }, dtype);
    check(
        "rsqrt", [](const Tensor& a, const Tensor& b) { return rsqrt(abs(a)) + b * 0; }, dtype);
  }
  for (const DType dtype :
       {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16, DType::u32, DType::u64}) {
    check(
        "add", [](const Tensor& a, const Tensor& b) { return a + b; }, dtype);
    check(
        "mul", [](const Tensor& a, const Tensor& b) { return a * b; }, dtype);
    check(
        "less", [](const Tensor& a, const Tensor& b) { return less(a, b); }, dtype);
    check(
        "minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); }, dtype);
    check(
        "sign", [](const Tensor& a, const Tensor& b) { return sign(a) + b * 0; }, dtype);
  }
}

TEST_F(Cuda, PointwiseOpsOfExtremeArgumentsGiveTheBitsOfTheCpu) {
  const double inf = HUGE_VAL;
  const Tensor all = from_vector<double>({0.,
                                          -0.,
                                          inf,
                                          -inf,
                                          NAN,
                                          5e-324,
                                          -5e-324,
                                          1.7976931348623157e308,
                                          -1.7976931348623157e308,
                                          3.4e38,
                                          -3.4e38,
                                          65504.,
                                          -65504.,
                                          1e-45,
                                          1073741823.,
                                          1073741824.,
                                          -1073741825.,
                                          1e22,
                                          -1e30,
                                          8.,
                                          -8.,
                                          1000.,
                                          -1001.},
                                         {23});
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (Tensor (*f)(const Tensor&) : {sin, cos, tan, gelu, gelu_tanh, silu, sigmoid, tanh, exp, expm1, log1p,
                                       erf, erfc, relu6, hardsigmoid, hardswish}) {
      const Tensor x = cast(all, dtype);
      expect_same(f(x), f(to(x, kGpu)), str("extremes of ", dtype));
      const auto slope = [&](Device device) {
        const Tensor leaf = to(x, device).detach().set_requires_grad();
        return grad(sum(f(leaf)), std::vector<Tensor>{leaf})[0];
      };
      expect_same(slope(kCpu), slope(kGpu), str("slopes at extremes of ", dtype));
    }
}

TEST_F(Cuda, CastsGiveTheBitsOfTheCpu) {
  for (int from = 0; from < kDTypeCount; ++from)
    for (int to_type = 0; to_type < kDTypeCount; ++to_type) {
      const Tensor x = assorted(300, static_cast<DType>(from), 4);
      expect_same(cast(x, static_cast<DType>(to_type)), cast(to(x, kGpu), static_cast<DType>(to_type)),
                  str("cast of ", static_cast<DType>(from), " to ", static_cast<DType>(to_type)));
    }
}

TEST_F(Cuda, RandomNumbersAreThoseOfTheCpu) {
  const auto draw = [](Device device, DType dtype) {
    manual_seed(77);
    return std::vector<Tensor>{
        uniform({1001}, -2, 5, dtype, device),        normal({333}, 1, 2, dtype, device),
        bernoulli({55}, 0.3, dtype, device),          uniform({3}, 0, 1, dtype, device),
        uniform({100003}, 1000, 1001, dtype, device), exponential({1001}, 3, dtype, device),
        bernoulli({99991}, 1e-3, dtype, device)};
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const auto here = draw(kCpu, dtype), there = draw(kGpu, dtype);
    for (size_t i = 0; i < here.size(); ++i) expect_same(here[i], there[i], str("draw ", i, " of ", dtype));
  }
}

TEST_F(Cuda, AnIndexOutOfRangeIsAnErrorAtTheNextSynchronisation) {
  const Tensor x = arange(12, DType::f32, kGpu);
  const auto expect_error = [&](const Tensor& result, const std::string& op, const std::string& value) {
    try {
      (void)host_bytes(result);
      ADD_FAILURE() << op << " let " << value << " pass";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(op + ": every "), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("got " + value), std::string::npos) << error.what();
    }
    EXPECT_NO_THROW(gpu().synchronize(kGpu));  // said once
  };
  const auto index = [](int64_t bad) { return from_vector<int64_t>({0, bad, 3}, {3}, kGpu); };
  expect_error(gather(x, 0, index(12)), "gather", "12");
  expect_error(gather(x, 0, index(-1)), "gather", "-1");
  expect_error(scatter_add_zeros(slice(x, 0, 0, 3), 0, index(99), {12}), "scatter_add_zeros", "99");
  expect_error(one_hot(index(10), 10), "one_hot", "10");
  const Tensor table = reshape(x, {4, 3});
  expect_error(index_select(x, 0, index(12)), "index_select", "12");
  expect_error(index_add(x, 0, index(-1), slice(x, 0, 0, 3)), "index_add", "-1");
  expect_error(embedding(table, index(4)), "embedding", "4");
  expect_error(take(x, index(-13)), "take", "-13");
  expect_error(tandem::index(table, {1, index(-4)}), "index", "-4");
  expect_error(index_put(x, {index(12)}, 1), "index_put", "12");
  expect_error(scatter(x, 0, index(12), 1), "scatter", "12");
  const Tensor logits = reshape(x, {3, 4});
  expect_error(cross_entropy(logits, index(4)), "cross_entropy", "4");
  expect_error(nll_loss(logits, index(-1)), "nll_loss", "-1");
  expect_error(multi_margin_loss(logits, index(-100)), "multi_margin_loss", "-100");
  EXPECT_NO_THROW((void)cross_entropy(logits, index(-100)).item<float>());
  EXPECT_EQ(gather(x, 0, index(11)).to_vector<float>(), std::vector<float>({0, 11, 3}));
}

FusedProgram::Step step(const char* op, SmallVector<int, 3> in, DType dtype) {
  FusedProgram::Step s;
  s.op = find_op(op);
  s.in = in;
  s.dtype = dtype;
  return s;
}

/// Runs programs as one kernel, by hand. Outputs are row-major.
void run_fused(Backend& gpu, const std::vector<FusedProgram>& programs, const std::vector<Tensor>& in,
               const std::vector<Tensor>& out) {
  const auto buffer = [](const Tensor& t) {
    return Buffer{t.raw(), t.shape().data(), t.strides().data(), t.rank(), t.dtype()};
  };
  std::vector<Buffer> ins, outs;
  for (const Tensor& t : in) ins.push_back(buffer(t));
  for (const Tensor& t : out) outs.push_back(buffer(t));
  KernelArgs args;
  args.in = ins.data();
  args.n_in = static_cast<int>(ins.size());
  args.out = outs.data();
  args.n_out = static_cast<int>(outs.size());
  args.device = &gpu.context(kGpu);
  gpu.compile_fused(kGpu, programs)->run(args);
}

TEST_F(Cuda, AFusedProgramGivesTheBitsOfItsSteps) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const int64_t rows = 37, columns = 53;
    const Tensor a = to(reshape(assorted(rows * columns, dtype, 5), {rows, columns}), kGpu);
    const Tensor b = transpose(to(reshape(assorted(rows * columns, dtype, 6), {columns, rows}), kGpu));
    const Tensor c = to(assorted(columns, dtype, 7), kGpu);
    FusedProgram p;
    p.shape = {rows, columns};
    p.inputs = {{dtype, a.strides()}, {dtype, b.strides()}, {dtype, {0, 1}}};
    p.steps = {step("mul", {0, 1}, dtype), step("add", {3, 2}, dtype), step("tanh", {4}, dtype),
               step("less", {5, 0}, DType::boolean), step("where", {6, 4, 5}, dtype)};
    p.outputs = {5, 7};
    // The same again without strides, in the same kernel: it takes the wide path.
    FusedProgram q = p;
    q.inputs = {{dtype, a.strides()}, {dtype, a.strides()}, {dtype, {0, 0}}};
    const Tensor one = to(assorted(16, dtype, 8), kGpu), scalar = reshape(slice(one, 0, 9, 10), {});
    std::vector<Tensor> out;
    for (int i = 0; i < 4; ++i) out.push_back(empty({rows, columns}, dtype, kGpu));
    const Tensor a2 = contiguous(b);
    run_fused(gpu(), {p, q}, {a, b, c, a, a2, scalar}, out);
    const auto separate = [&](const Tensor& x, const Tensor& y, const Tensor& z) {
      const Tensor sum = x * y + z, t = tanh(sum);
      return std::vector<Tensor>{t, where(less(t, x), sum, t)};
    };
    const auto first = separate(a, b, c), second = separate(a, a2, scalar);
    for (size_t i = 0; i < 2; ++i) {
      expect_same(first[i], out[i], str("strided output ", i, " of ", dtype));
      expect_same(second[i], out[i + 2], str("flat output ", i, " of ", dtype));
    }
  }
}

TEST_F(Cuda, AFusedUpdateInPlaceReadsBeforeItWrites) {
  for (const int64_t n : {1, 7, 513, 4096}) {
    const Tensor p = to(slice(assorted(4200, DType::f32, 9), 0, 100, 100 + n), kGpu), g = p * 0.25,
                 m = p * 0.5;
    const Tensor want_m = m * 0.9f + g, want_p = p - want_m * 0.1f;
    FusedProgram program;
    program.shape = {n};
    program.inputs = {
        {DType::f32, {1}}, {DType::f32, {1}}, {DType::f32, {1}}, {DType::f32, {0}}, {DType::f32, {0}}};
    program.steps = {step("mul", {0, 3}, DType::f32), step("add", {5, 1}, DType::f32),
                     step("mul", {6, 4}, DType::f32), step("sub", {2, 7}, DType::f32)};
    program.outputs = {6, 8};
    run_fused(gpu(), {program}, {m, g, p, full({}, 0.9f, DType::f32, kGpu), full({}, 0.1f, DType::f32, kGpu)},
              {m, p});
    expect_same(want_m, m, str("momentum of ", n));
    expect_same(want_p, p, str("parameter of ", n));
  }
}

TEST_F(Cuda, ARecordingReplaysOnTheValuesOfTheMoment) {
  const Tensor x = full({1000}, 1, DType::f32, kGpu), total = zeros({}, DType::f32, kGpu);
  // Kernels with and without scratch, through plain calls into the kernel table.
  const Tensor big = full({300, 700}, 0.5, DType::f32, kGpu), column = empty({700}, DType::f32, kGpu);
  const auto call = [&](const OpDef& op, std::vector<Tensor> in, const Tensor& out, const void* attrs) {
    std::vector<Buffer> ins;
    for (const Tensor& t : in)
      ins.push_back({t.raw(), t.shape().data(), t.strides().data(), t.rank(), t.dtype()});
    Buffer to{out.raw(), out.shape().data(), out.strides().data(), out.rank(), out.dtype()};
    KernelArgs args;
    args.in = ins.data();
    args.n_in = static_cast<int>(ins.size());
    args.out = &to;
    args.n_out = 1;
    args.attrs = attrs;
    args.device = &gpu().context(kGpu);
    op.kernels[static_cast<int>(DeviceKind::cuda)](args);
  };
  ReduceAttrs all, first;
  all.axes = Dims{0};
  first.axes = Dims{0};
  const auto launch = [&] {
    call(*find_op("add"), {x, x}, x, nullptr);
    call(op_sum(), {x}, total, &all);
    call(op_sum(), {big}, column, &first);
  };
  launch();  // work runs once before it is recorded
  EXPECT_EQ(total.item<float>(), 2000.f);
  const std::unique_ptr<Recording> recording = gpu().record(kGpu, {{launch, {}}});
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(total.item<float>(), 2000.f);  // recording ran nothing
  for (int i = 0; i < 3; ++i) recording->replay();
  EXPECT_EQ(total.item<float>(), 16000.f);
  EXPECT_EQ(column.to_vector<float>(), std::vector<float>(700, 150.f));
}

/// A small convolutional net and one step of its training, made of ops alone.
struct Net {
  std::vector<Tensor> parameters;
  explicit Net(Device device) {
    manual_seed(5);
    for (const Dims& shape : {Dims{6, 1, 5, 5}, Dims{6}, Dims{16, 6, 5, 5}, Dims{16}, Dims{120, 400},
                              Dims{120}, Dims{10, 120}, Dims{10}})
      parameters.push_back(uniform(shape, -0.1, 0.1, DType::f32, device).set_requires_grad());
  }
  Tensor step(const Tensor& x, const Tensor& target) {
    auto& p = parameters;
    Tensor h = max_pool2d(relu(conv2d(x, p[0], p[1], {.padding = 2})));
    h = max_pool2d(relu(conv2d(h, p[2], p[3])));
    h = relu(linear(flatten(h, 1), p[4], p[5]));
    const Tensor loss = cross_entropy(linear(h, p[6], p[7]), target);
    const std::vector<Tensor> gradients = grad(loss, p);
    NoGrad off;
    for (size_t i = 0; i < p.size(); ++i) assign(p[i], p[i] - gradients[i] * 0.05);
    return loss.detach();
  }
};
std::vector<Tensor> batch(Device device) {
  manual_seed(6);
  const Tensor x = normal({100, 1, 28, 28});
  std::vector<int64_t> target(100);
  for (size_t i = 0; i < target.size(); ++i) target[i] = static_cast<int64_t>(i * 7 % 10);
  return {to(x, device), to(from_vector(target, {100}), device)};
}

TEST_F(Cuda, TrainingGivesTheSameBitsTwiceAndInBothEngines) {
  const std::vector<Tensor> data = batch(kGpu);
  for (const ChoiceMode mode : kChoiceModes) {
    const ConvolutionsBy by(mode);
    Net first(kGpu), second(kGpu), traced(kGpu);
    auto compiled = compile(
        [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{traced.step(in[0], in[1])}; });
    float loss = 0;
    for (int i = 0; i < 5; ++i) {
      loss = first.step(data[0], data[1]).item<float>();
      EXPECT_EQ(loss, second.step(data[0], data[1]).item<float>()) << name(mode);
      EXPECT_EQ(loss, compiled(data)[0].item<float>()) << name(mode);
    }
    for (size_t i = 0; i < first.parameters.size(); ++i) {
      EXPECT_EQ(host_bytes(first.parameters[i]), host_bytes(second.parameters[i]))
          << "parameter " << i << ", " << name(mode);
      EXPECT_EQ(host_bytes(first.parameters[i]), host_bytes(traced.parameters[i]))
          << "parameter " << i << ", " << name(mode);
    }
    int named = 0;  // every convolution says what computes it
    const std::vector<GraphReport> reports = compiled.reports();
    for (const GraphView::Node& node : reports.at(0).graph.nodes) {
      EXPECT_NE(node.algorithm, "not run yet") << node.op;
      named += node.algorithm.starts_with("cuDNN ") || node.algorithm.starts_with("small");
    }
    EXPECT_GE(named, 5) << name(mode);
  }
}

TEST_F(Cuda, ABranchIsChosenByAValueOnTheDeviceWithTheSameBitsInBothEngines) {
  Tensor w = to(to_tensor(hash_array({3, 3}, 2), DType::f32), kGpu).set_requires_grad();
  const Tensor state = zeros({3}, DType::f32, kGpu);
  const TensorFunction step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor h = matmul(in[0], w);
    const Tensor y = cond(
        greater(sum(in[0]), 0),
        [&] {
          const NoGrad off;
          assign(state, state + 1);
          const GradMode on(true);
          return dropout(tanh(h), 0.5) * state;
        },
        [&] { return matmul(h, w); });
    std::vector<Tensor> out = grad(sum(y * y), std::vector<Tensor>{w});
    out.push_back(y.detach());
    return out;
  };
  Compiled compiled = compile(step);
  std::vector<std::vector<std::byte>> seen[2];
  for (int engine = 0; engine < 2; ++engine) {
    manual_seed(4);
    assign(state, zeros({3}, DType::f32, kGpu));
    for (uint32_t call = 0; call < 6; ++call) {
      const Tensor x =
          to(to_tensor(hash_array({4, 3}, call, call % 3 ? -2 : 1, call % 3 ? -1 : 2), DType::f32), kGpu);
      for (const Tensor& t : engine ? compiled({x}) : step({x})) seen[engine].push_back(host_bytes(t));
      seen[engine].push_back(host_bytes(state));
    }
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(to_array(state).values[0], 2);
  EXPECT_TRUE(is_recorded(compiled)) << compiled.reports()[0].executor;
}

TEST_F(Cuda, TrainingFollowsTheCpuWithinTheRoundingOfTf32) {
  const std::vector<Tensor> here = batch(kCpu), there = batch(kGpu);
  Net on_cpu(kCpu), on_gpu(kGpu);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(on_cpu.step(here[0], here[1]).item<float>(), on_gpu.step(there[0], there[1]).item<float>(),
                2e-3);
}

TEST_F(Cuda, DeviceMemoryIsFlatOverManySteps) {
  const std::vector<Tensor> data = batch(kGpu);
  Net eager(kGpu), traced(kGpu);
  auto compiled =
      compile([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{traced.step(in[0], in[1])}; });
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      (void)eager.step(data[0], data[1]);
      (void)compiled(data);
    }
    gpu().synchronize(kGpu);
  };
  run(5);
  const MemoryStats before = gpu().memory(kGpu);
  run(200);
  const MemoryStats after = gpu().memory(kGpu);
  EXPECT_EQ(before.in_use, after.in_use);
  EXPECT_EQ(before.reserved, after.reserved);
}

TEST_F(Cuda, TransformsOfAPartThatBeginsAnywhereAgreeWithTheCpu) {
  for (DType dtype : {DType::f32, DType::f64})
    for (Dim start = 0; start < 4; ++start) {
      const Tensor x = to_tensor(hash_array({40}, 1), dtype);
      const auto transforms = [&](Device device) {
        const Tensor part = slice(to(x, device), 0, start, start + 18);
        return std::vector<Tensor>{rfft(part), fft(reshape(part, {9, 2}))};
      };
      const std::vector<Tensor> want = transforms(kCpu), got = transforms(kGpu);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto a = to_array(got[i]).values, b = to_array(want[i]).values;
        for (size_t k = 0; k < a.size(); ++k)
          EXPECT_NEAR(a[k], b[k], dtype == DType::f32 ? 1e-5 : 1e-13) << start << ", " << i << ", " << k;
      }
    }
}

TEST_F(Cuda, SumsDoNotDependOnTheLayout) {
  manual_seed(8);
  const Tensor x = normal({60, 70, 30}, 0, 1, DType::f32, kGpu);
  const Tensor laid_out_otherwise = permute(contiguous(permute(x, {2, 0, 1})), {1, 2, 0});
  for (const Dims& axes : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{1, 2}, Dims{0, 2}, Dims{0, 1, 2}}) {
    expect_same(sum(x, axes), sum(laid_out_otherwise, axes), str("sum over ", axes));
    const Tensor want = sum(cast(to(x, kCpu), DType::f64), axes);
    const std::vector<double> exact = want.to_vector<double>();
    const std::vector<float> got = sum(x, axes).to_vector<float>();
    ASSERT_EQ(exact.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(exact[i], got[i], 2e-3) << "sum over " << axes;
  }
}

/// Convolutions that go to our small kernels, to cuDNN and (bf16, groups, dilation …) to whatever serves them,
/// all against the CPU in f64.
TEST_F(Cuda, ConvolutionsOfManyFormsAgreeWithTheCpu) {
  struct Form {
    Dims x, weight;
    Conv2dOptions options;
  };
  const Form forms[] = {
      {{3, 1, 28, 28}, {6, 1, 5, 5}, {.padding = 2}},
      {{130, 6, 14, 14}, {16, 6, 5, 5}, {}},
      {{2, 3, 17, 13}, {7, 3, 3, 2}, {.stride = 2, .padding = 1}},
      {{2, 1, 26, 26}, {32, 1, 3, 3}, {}},
      {{1, 5, 9, 9}, {9, 5, 1, 1}, {}},
      {{2, 32, 12, 12}, {64, 32, 3, 3}, {.padding = 1}},
      {{2, 4, 11, 11}, {6, 2, 3, 3}, {.padding = 2, .dilation = 2, .groups = 2}},
      {{2, 8, 8, 8}, {8, 1, 3, 3}, {.stride = 3, .padding = 1, .groups = 8}},
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const Form& form : forms) {
      const auto run = [&](Device device, DType type) {
        manual_seed(10);
        const auto make = [&](const Dims& shape) {
          return to(cast(cast(uniform(shape, -1, 1), dtype), type), device).set_requires_grad();
        };
        const Tensor x = make(form.x), weight = make(form.weight), bias = make({form.weight[0]});
        const Tensor y = conv2d(x, weight, bias, form.options);
        const Tensor seed = to(cast(cast(uniform(y.shape(), -1, 1), dtype), type), device);
        std::vector<Tensor> all = grad(y, std::vector<Tensor>{x, weight, bias}, seed);
        all.push_back(y.detach());
        return all;
      };
      const auto want = run(kCpu, DType::f64);
      const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::bf16 ? 2e-2 : 2e-3;
      for (const ChoiceMode mode : kChoiceModes) {
        const ConvolutionsBy by(mode);
        const auto got = run(kGpu, dtype);
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_LE(relative_distance(to_array(got[i]), to_array(want[i])), tolerance)
              << "result " << i << " of x " << form.x << ", weight " << form.weight << ", " << dtype << ", "
              << name(mode);
      }
    }
}

TEST_F(Cuda, ProductsOfManyShapesAndLayoutsAgreeWithTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const Dims& size : {Dims{1, 1, 1}, Dims{100, 400, 120}, Dims{17, 33, 9}, Dims{300, 785, 70},
                             Dims{64, 2000, 5}, Dims{130, 5003, 36}, Dims{2000, 8, 3000}}) {
      manual_seed(11);
      const Tensor a = cast(uniform({size[0], size[1]}, -1, 1), dtype),
                   b = cast(uniform({size[1], size[2]}, -1, 1), dtype);
      const Tensor want = matmul(cast(a, DType::f64), cast(b, DType::f64));
      const Tensor ga = to(a, kGpu), gb = to(b, kGpu);
      const Tensor at = transpose(contiguous(transpose(ga))), bt = transpose(contiguous(transpose(gb)));
      const Tensor stepped = slice(concat({gb, gb}, 1), 1, 0, 2 * size[2], 2);  // neither stride is 1
      const Tensor half = slice(concat({b, b}, 1), 1, 0, 2 * size[2], 2);
      const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::bf16 ? 1e-2 : 2e-3;
      const auto expect_near = [&](const Tensor& got, const Tensor& exact, const char* what) {
        EXPECT_LE(relative_distance(to_array(got), to_array(exact)), tolerance)
            << what << " " << size << " " << dtype;
      };
      expect_near(matmul(ga, gb), want, "a b");
      expect_near(matmul(at, gb), want, "aᵀᵀ b");
      expect_near(matmul(ga, bt), want, "a bᵀᵀ");
      expect_near(matmul(at, bt), want, "aᵀᵀ bᵀᵀ");
      expect_near(matmul(ga, stepped), matmul(cast(a, DType::f64), cast(half, DType::f64)),
                  "a with steps in b");
      const Tensor bias = cast(uniform({size[2]}, -1, 1), dtype);
      expect_near(linear(ga, transpose(gb), to(bias, kGpu)), want + cast(bias, DType::f64), "linear");
    }
}

TEST_F(Cuda, NormalisationOfLongAndOfManyStatisticsAgreesWithTheCpu) {
  // Whole statistics a block, and parts of them; runs of elements that divide by four, and others.
  const Dims shapes[] = {{7, 3, 40, 50}, {3, 5, 61, 67}, {600, 40},      {9000, 33},
                         {2, 6000, 3},   {1, 2, 300000}, {30, 130, 8, 8}};
  using Norm = Tensor (*)(const Tensor& x, const Tensor& weight, const Tensor& bias);
  const std::pair<const char*, Norm> norms[] = {
      {"batch_norm", [](const Tensor& x, const Tensor& w,
                        const Tensor& b) { return batch_norm(x, {}, {}, w, b, {.training = true}); }},
      {"group_norm",
       [](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 1, w, b); }},
      {"instance_norm",
       [](const Tensor& x, const Tensor& w, const Tensor& b) { return instance_norm(x, w, b); }},
      {"layer_norm", [](const Tensor& x, const Tensor& w, const Tensor& b) {
         const Tensor turned = transpose(x, 1, -1);  // channels last
         return layer_norm(turned, {turned.size(-1)}, w, b);
       }}};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const auto& [name, norm] : norms)
      for (const Dims& shape : shapes) {
        if (shape.rank() == 2 && name == std::string("instance_norm"))
          continue;  // there is nothing to average
        const auto run = [&, norm = norm](Device device, DType type) {
          manual_seed(12);
          const auto make = [&](const Dims& size) {
            return to(cast(cast(normal(size, 1, 2), dtype), type), device).set_requires_grad();
          };
          const Tensor x = make(shape), weight = make({shape[1]}), bias = make({shape[1]});
          // Seen from its second sample on where there is one: contiguous, but not as aligned as an allocation.
          const Tensor y = norm(shape[0] > 1 ? slice(x, 0, 1, shape[0]) : x, weight, bias);
          std::vector<Tensor> all = grad(y, std::vector<Tensor>{x, weight, bias}, make(y.shape()).detach());
          all.push_back(y.detach());
          return all;
        };
        const auto want = run(kCpu, DType::f64), got = run(kGpu, dtype);
        const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::bf16 ? 2e-2 : 3e-5;
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_LE(relative_distance(to_array(got[i]), to_array(want[i])), tolerance)
              << name << ", result " << i << " of " << shape << ", " << dtype;
      }
}

/// A layer with every regulariser that its kind has.
std::unique_ptr<nn::RecurrentLayer> recurrent_layer(const std::string& kind, int64_t hidden) {
  manual_seed(6);
  nn::RecurrentLayerOptions options{
      .bidirectional = true, .zoneout_h = 0.2, .state_dropout = 0.1, .weight_drop = 0.1};
  if (kind == "gru") return std::make_unique<nn::GRU>(nullptr, "", 5, hidden, options);
  if (kind == "rnn") return std::make_unique<nn::RNN>(nullptr, "", 5, hidden, options);
  options.zoneout_c = options.recurrent_dropout = 0.1;
  return std::make_unique<nn::LSTM>(nullptr, "", 5, hidden, options);
}

TEST_F(Cuda, RecurrentLayersOfAllSizesAgreeWithTheCpuWithTheSameMasks) {
  // One block and many, parts of warps, several passes, weights that fit shared memory and weights that do not, more
  // samples than fit at once; small ones also by the implementation that takes any.
  const Dims sizes[] = {{1, 1, 1},    {3, 4, 5},     {20, 7, 200},  {20, 3, 650},  {33, 5, 128},
                        {70, 3, 64},  {7, 2, 1100},  {300, 2, 33},  {9, 2, 2100},  {9000, 2, 8},
                        {64, 9, 256}, {264, 4, 100}, {133, 3, 250}, {700, 2, 130}, {40, 3, 1024}};
  for (const std::string kind : {"lstm", "gru", "rnn"})
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (const Dims& size : sizes) {
        if (dtype != DType::f32 && size[2] > 700) continue;  // takes the CPU long
        const auto run = [&](Device device, DType type) {
          const std::unique_ptr<nn::RecurrentLayer> layer = recurrent_layer(kind, size[2]);
          layer->to(dtype);
          layer->to(type);
          layer->to(device);
          const Tensor x =
              to(cast(cast(normal({size[0], size[1], 5}), dtype), type), device).set_requires_grad();
          std::vector<int64_t> lengths;
          for (int64_t n = 0; n < size[0]; ++n) lengths.push_back(size[1] - n % 2);
          const nn::RecurrentLayerResult y =
              (*layer)(x, {.lengths = to(from_vector(lengths, {size[0]}), device)});
          std::vector<Tensor> leaves = layer->parameters();
          leaves.push_back(x);
          std::vector<Tensor> all = grad(sum(y.output * y.output) + sum(y.h), leaves);
          all.insert(all.end(), {y.output.detach(), y.h.detach()});
          return all;
        };
        const auto want = run(kCpu, DType::f64);
        const double tolerance = dtype == DType::f64    ? 1e-11
                                 : dtype == DType::bf16 ? 6e-2
                                                        : 5e-3;  // tf32 around it
        const auto expect_near = [&](const std::string& way) {
          const auto got = run(kGpu, dtype);
          set_matmul_choice({});
          for (size_t i = 0; i < want.size(); ++i)
            EXPECT_LE(relative_distance(to_array(got[i]), to_array(want[i])), tolerance)
                << kind << ", result " << i << " of " << size << ", " << dtype << ", " << way;
        };
        for (const ChoiceMode mode : {ChoiceMode::heuristic, ChoiceMode::fixed}) {
          set_matmul_choice({.mode = mode});
          expect_near(name(mode));
        }
        for (const char* way : {"tensor cores", "tensor clusters", "clusters",
                                "resident"}) {  // where it can, whether it pays or not
          const ForcedImplementation forced(way);
          set_matmul_choice({.mode = ChoiceMode::profile, .keep = false});
          expect_near(way);
        }
      }
}

TEST_F(Cuda, RecordedStepsOfRecurrentLayersHaveTheBitsOfEagerOnes) {
  for (const auto& [kind, hidden] : {std::pair<std::string, int64_t>{"lstm", 70},
                                     {"gru", 70},
                                     {"rnn", 70},
                                     {"lstm", 1000},  // on tensor cores
                                     {"gru", 900},
                                     {"lstm", 2100},  // whose weight does not fit shared memory
                                     {"gru", 2500}}) {
    const auto steps = [&](bool compiled) {
      const std::unique_ptr<nn::RecurrentLayer> layer = recurrent_layer(kind, hidden);
      layer->to(kGpu);
      const auto step = [&](const std::vector<Tensor>& in) {
        return grad(sum((*layer)(in[0]).output), layer->parameters());
      };
      Compiled graph = compile(step);
      std::vector<Tensor> all;
      for (int i = 0; i < 4; ++i) {
        const std::vector<Tensor> in = {to(normal({6, 9, 5}), kGpu)};
        for (const Tensor& t : compiled ? graph(in) : step(in)) all.push_back(t);
      }
      if (compiled) {
        EXPECT_NE(graph.reports()[0].executor.find("replayed as one"), std::string::npos);
      }
      return all;
    };
    const auto eager = steps(false), graph = steps(true);
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << kind << " " << i;
  }
}

TEST_F(Cuda, StreamsCopyBesideTheDevicesQueueAndWaitForEachOther) {
  constexpr size_t kBytes = size_t{16} << 20;
  const auto first = gpu().make_stream(kGpu), second = gpu().make_stream(kGpu);
  auto* const from = static_cast<char*>(gpu().allocate_pinned(kBytes));
  auto* const back = static_cast<char*>(gpu().allocate_pinned(kBytes));
  void* const a = gpu().allocate(kGpu, kBytes);
  void* const b = gpu().allocate(kGpu, kBytes);
  for (int round = 0; round < 5; ++round) {
    std::fill(from, from + kBytes, static_cast<char>(round + 1));
    std::fill(back, back + kBytes, char{0});
    first->copy(a, from, kBytes);
    second->wait(*first->mark());
    second->copy(b, a, kBytes);
    gpu().wait(kGpu, *second->mark());
    first->wait(*gpu().mark(kGpu));
    first->copy(back, b, kBytes);
    const auto end = first->mark();
    end->wait();
    EXPECT_TRUE(end->has_passed());
    EXPECT_TRUE(std::all_of(back, back + kBytes, [&](char c) { return c == round + 1; })) << round;
  }
  gpu().free(kGpu, a, kBytes);
  gpu().free(kGpu, b, kBytes);
  gpu().free_pinned(from, kBytes);
  gpu().free_pinned(back, kBytes);
}

TEST_F(Cuda, TensorsArriveWhileTheDeviceComputesAndMayBeDroppedOnTheirWay) {
  CopyQueue queue(kGpu);
  const Tensor busy = normal({2048, 2048}, 0, 1, DType::f32, kGpu);
  Tensor work = busy;
  for (int i = 0; i < 40; ++i) {
    const Tensor x = full({1 << 18}, i);
    const Tensor few = full({3}, -i, DType::i64);
    CopyQueue::Arriving arriving = queue.send({x, few});
    work = matmul(work, busy) * 1e-3;
    if (i % 3 == 0) continue;
    const std::vector<Tensor> there = queue.take(std::move(arriving));
    EXPECT_TRUE(same_bits(to(there.at(0) + 1, kCpu), x + 1)) << i;
    EXPECT_TRUE(same_bits(to(there.at(1), kCpu), few)) << i;
  }
}

TEST_F(Cuda, ARecordingIsMadeWhileOtherThreadsCopyAndCompute) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread other([&] {
    CopyQueue queue(kGpu);
    for (int i = 0; !stop; ++i) {
      const Tensor x = full({50000}, i % 100);
      const Tensor there = queue.take(queue.send({x}))[0];
      if (!same_bits(to(there * 2, kCpu), x * 2)) ++wrong;
    }
  });
  const Tensor x = to(assorted(5000, DType::f32, 3), kGpu),
               weight = normal({5000, 8}, 0, 1, DType::f32, kGpu);
  for (int k = 0; k < 30; ++k) {
    const TensorFunction body = [&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{sum(tanh(in[0] * k), {0}), matmul(reshape(tanh(in[0]), {1, 5000}), weight)};
    };
    Compiled compiled = compile(body);
    const std::vector<Tensor> want = body({x});
    for (int call = 0; call < 4; ++call) {
      const std::vector<Tensor> got = compiled({x});
      for (size_t i = 0; i < want.size(); ++i)
        expect_same(got[i], want[i], str("callable ", k, " call ", call));
    }
  }
  stop = true;
  other.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Cuda, ALoaderHandsTheSameBatchesOutOnTheDevice) {
  const data::TensorSet set({uniform({1003, 1, 28, 28}, 0, 1), full({1003}, 3, DType::i64)});
  data::Loader host(set, {.batch = 100, .seed = 4}),
      device(set, {.batch = 100, .seed = 4, .workers = 2, .device = kGpu});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    host.start_epoch(epoch);
    device.start_epoch(epoch);
    while (const auto want = host.next()) {
      const auto got = device.next();
      ASSERT_TRUE(got);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(got->tensors[i].device(), kGpu);
        EXPECT_TRUE(same_bits(to(got->tensors[i], kCpu), want->tensors[i])) << epoch << " " << want->index;
      }
    }
    EXPECT_FALSE(device.next());
  }
}

TEST_F(Cuda, TheErrorOfADeviceWithoutMemorySaysWhatWasAskedHeldAndFree) {
  const std::string error = error_of([] { empty({int64_t{1} << 46}, DType::u8, kGpu); });
  for (const char* part :
       {"cuda:0 must have 70368744177664 bytes", "free of", "tensors hold", "the cache keeps"})
    EXPECT_NE(error.find(part), std::string::npos) << part << ": " << error;
  EXPECT_EQ((full({3}, 1, DType::f32, kGpu) + 1).to_vector<float>(), std::vector<float>(3, 2.f));
}

TEST_F(Cuda, MemoryThatIsNoLongerNeededGoesBack) {
  gpu().empty_cache(kGpu);
  const size_t before = gpu().memory(kGpu).reserved;
  { const Tensor large = full({int64_t{1} << 30}, 1, DType::f32, kGpu); }
  EXPECT_GE(gpu().memory(kGpu).cached(), size_t{4} << 30);
  EXPECT_GE(gpu().memory(kGpu).largest_free, size_t{4} << 30);
  gpu().empty_cache(kGpu);
  EXPECT_LE(gpu().memory(kGpu).reserved, before);
}

}  // namespace
}  // namespace tandem::testing
