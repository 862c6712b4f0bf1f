// Several devices in one process: the CPU's further devices, streams, events, copies beside computing, and a loader that
// hands batches out on a device.
// ctest: asan tsan
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tandem/core/backend.h"
#include "tandem/core/copy_queue.h"
#include "tandem/core/tape.h"
#include "tandem/data/loader.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/create.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/sgd.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/child.h"
#include "tests/support/fuzz_program.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

constexpr Device kOne{DeviceKind::cpu, 1}, kTwo{DeviceKind::cpu, 2};
Backend& cpu() { return backend(DeviceKind::cpu); }
Tensor values(const Dims& shape, uint32_t salt) { return to_tensor(hash_array(shape, salt), DType::f32); }

TEST(Devices, EachHasMemoryOfItsOwn) {
  const size_t host = cpu().memory({}).in_use, two = cpu().memory(kTwo).in_use;
  const size_t before = cpu().memory(kOne).in_use;
  {
    const Tensor there = full({1000}, 1, DType::f32, kOne);
    EXPECT_GE(cpu().memory(kOne).in_use, before + 4000);
    EXPECT_EQ(cpu().memory(kTwo).in_use, two);
    EXPECT_LE(cpu().memory({}).in_use, host + 1000);  // attributes and handles live elsewhere
  }
  EXPECT_EQ(cpu().memory(kOne).in_use, before);
  const MemoryStats kept = cpu().memory(kOne);
  EXPECT_GE(kept.largest_free, 4000u);
  EXPECT_GE(kept.fragmentation(), 0);
  EXPECT_LT(kept.fragmentation(), 1);
  cpu().empty_cache(kOne);
  EXPECT_EQ(cpu().memory(kOne).cached(), 0u);
}

TEST(Devices, ThatDoNotExistAreRefused) {
  const Device eighth{DeviceKind::cpu, 8};
  EXPECT_NE(error_of([&] { zeros({2}, DType::f32, eighth); }).find("cpu:8"), std::string::npos);
  EXPECT_NE(error_of([&] { to(zeros({2}), eighth); }).find("cpu:8"), std::string::npos);
  EXPECT_NE(error_of([&] {
              empty({2}, DType::f32, {DeviceKind::cpu, 255});
            }).find("cpu:255"),
            std::string::npos);
}

TEST(Devices, TensorsOfTwoAreNotMixed) {
  const Tensor here = zeros({2}), there = zeros({2}, DType::f32, kOne);
  const auto add = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] + in[1]}; };
  const std::string error = error_of([&] { add({here, there}); });
  EXPECT_NE(error.find("cpu:1"), std::string::npos) << error;
  EXPECT_NE(error_of([&] { compile(add)({here, there}); }).find("cpu:1"), std::string::npos);
}

TEST(Devices, TensorsMoveWithTheirGradients) {
  const Tensor x = values({3, 4}, 1).set_requires_grad();
  const Tensor far = to(to(transpose(x, 0, 1), kOne), kTwo);
  EXPECT_EQ(far.device(), kTwo);
  EXPECT_TRUE(same_bits(to(far, {}), contiguous(transpose(x.detach(), 0, 1))));
  const Tensor gradient = grad(sum(far * far), {x})[0];
  EXPECT_EQ(gradient.device(), Device{});
  EXPECT_TRUE(same_bits(gradient, x.detach() * 2));
}

/// The weights after three steps of LeNet on a device.
std::vector<Tensor> trained(Device device, bool compiled) {
  manual_seed(5);
  const auto net = zoo::make_model("lenet", {});
  net->to(device);
  optim::Sgd sgd(net->named_parameters(), {.lr = 0.1});
  const TensorFunction step = [&](const std::vector<Tensor>& in) {
    const Tensor loss = cross_entropy((*net)(in[0]), in[1]);
    sgd.update(grad(loss, net->parameters()));
    return std::vector<Tensor>{loss};
  };
  Compiled graph = compile(step);
  for (uint32_t i = 0; i < 3; ++i) {
    const std::vector<Tensor> in{to(values({4, 1, 28, 28}, i), device), full({4}, i, DType::i64, device)};
    compiled ? graph(in) : step(in);
  }
  std::vector<Tensor> weights;
  for (const Tensor& p : net->parameters()) weights.push_back(to(p.detach(), {}));
  return weights;
}

TEST(Devices, AModelTrainsToTheSameBitsOnEachInBothEngines) {
  const std::vector<Tensor> want = trained({}, false);
  for (const bool compiled : {false, true}) {
    const std::vector<Tensor> got = trained(kOne, compiled);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i << compiled;
  }
}

TEST(Devices, FuzzedProgramsAgreeOnAFurtherDevice) { fuzz_graphs(0, 1, 300, kOne); }

TEST(Memory, TheErrorSaysWhatWasAskedHeldAndFreeAndWhatWouldHelp) {
  const Tensor held = zeros({1 << 20}, DType::f32, kOne);
  const std::string error = error_of([] { empty({int64_t{1} << 58}, DType::u8, kOne); });
  for (const char* part : {"cpu:1", "288230376151711744 bytes", "free of", "tensors hold", "the cache keeps",
                           "smaller batch", "checkpoint()", "bf16"})
    EXPECT_NE(error.find(part), std::string::npos) << part << ": " << error;
}

TEST(Streams, CopyInOrderAndWaitForEachOther) {
  const auto first = cpu().make_stream(kOne), second = cpu().make_stream(kOne);
  std::vector<char> a(1 << 20, 'a'), b(1 << 20), c(1 << 20);
  for (int round = 0; round < 50; ++round) {
    std::fill(b.begin(), b.end(), 0);
    std::fill(c.begin(), c.end(), 0);
    a[a.size() - 1] = static_cast<char>(round);
    first->copy(b.data(), a.data(), a.size());
    second->wait(*first->mark());
    second->copy(c.data(), b.data(), b.size());
    const auto end = second->mark();
    end->wait();
    EXPECT_TRUE(end->has_passed());
    ASSERT_EQ(std::memcmp(a.data(), c.data(), a.size()), 0) << round;
  }
  EXPECT_TRUE(cpu().mark(kOne)->has_passed());
}

TEST(Streams, MemoryInUseByACopyIsNotHandedOutBefore) {
  const std::vector<char> zeros_(size_t{8} << 20, 0);
  const auto stream = cpu().make_stream(kOne);
  for (int round = 0; round < 20; ++round) {
    void* const block = cpu().allocate(kOne, zeros_.size());
    for (int i = 0; i < 4; ++i) stream->copy(block, zeros_.data(), zeros_.size());
    cpu().hold_until(kOne, block, stream->mark());
    cpu().free(kOne, block, zeros_.size());
    auto* const again = static_cast<char*>(cpu().allocate(kOne, zeros_.size()));
    std::memset(again, 7, zeros_.size());  // a copy that still ran would write zeros over this
    std::this_thread::yield();
    ASSERT_EQ(again[0], 7);
    ASSERT_EQ(again[zeros_.size() - 1], 7);
    cpu().free(kOne, again, zeros_.size());
  }
}

#ifndef __SANITIZE_THREAD__  // which does not follow a fork() beside other threads
TEST(Streams, AForkedChildUsesThemAnew) {
  const auto stream = cpu().make_stream(kOne);
  std::vector<char> from(1000, 'x'), to(1000);
  stream->copy(to.data(), from.data(), from.size());
  EXPECT_EQ(end_of_child([&] {
              const auto before = stream->mark();
              before->wait();
              std::vector<char> mine(1000);
              stream->copy(mine.data(), from.data(), from.size());
              stream->mark()->wait();
              if (mine != from) std::abort();
            }),
            "exit 0");
  stream->mark()->wait();
  EXPECT_EQ(from, to);
}
#endif

TEST(CopyQueue, SendsFromManyThreadsAndTensorsMayBeDropped) {
  CopyQueue queue(kOne);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 60; ++i) {
        const Tensor x = values({64, 1 + i % 7}, 100 * t + i);
        const Tensor more = values({1 + i % 5}, i);
        CopyQueue::Arriving arriving = queue.send({i % 2 ? x : transpose(x, 0, 1), more});
        if (i % 3 == 0) continue;  // dropped on its way
        const std::vector<Tensor> there = queue.take(std::move(arriving));
        if (there[0].device() != kOne || there[1].device() != kOne || !same_bits(to(there[1], {}), more) ||
            !same_bits(to(there[0], {}), i % 2 ? x : contiguous(transpose(x, 0, 1))))
          ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(queue.take(queue.send({zeros({0, 3})})).at(0).shape(), Dims({0, 3}));
  EXPECT_TRUE(queue.take(queue.send({})).empty());
  EXPECT_NE(error_of([&] { queue.send({Tensor()}); }).find("host memory"), std::string::npos);
  EXPECT_NE(error_of([&] { queue.take({}); }).find("send()"), std::string::npos);
}

TEST(CopyQueue, RefusesADeviceThatDoesNotExist) {
  const std::string text = error_of([] { CopyQueue queue({DeviceKind::cpu, 200}); });
  EXPECT_NE(text.find("CopyQueue: the device must exist; got cpu:200 of "), std::string::npos) << text;
}

class Rows final : public data::Dataset {
 public:
  int64_t size() const override { return 23; }
  std::vector<Tensor> get(int64_t i) const override {
    TD_CHECK(i != bad, "rows: sample ", i, " is bad.");
    return {full({3}, static_cast<double>(i)), full({}, static_cast<double>(i), DType::i64)};
  }
  int64_t bad = -1;
};

std::vector<double> all_of(const data::Dataset& set, data::LoaderOptions options, int64_t first = 0) {
  data::Loader loader(set, options);
  std::vector<double> got;
  loader.start_epoch(2, first);
  while (const auto batch = loader.next())
    for (const Tensor& tensor : batch->tensors.values()) {
      EXPECT_EQ(tensor.device(), options.device);
      for (const double x : cast(tensor, DType::f64).to_vector<double>()) got.push_back(x);
    }
  return got;
}

TEST(Loader, HandsTheSameBatchesOutOnADevice) {
  const Rows rows;
  for (const int workers : {0, 1, 3})
    for (const int64_t first : {0, 2}) {
      const std::vector<double> host = all_of(rows, {.batch = 5, .seed = 3, .workers = workers}, first);
      EXPECT_EQ(all_of(rows, {.batch = 5, .seed = 3, .workers = workers, .device = kOne}, first), host);
    }
}

TEST(Loader, OnADeviceBatchesThatNobodyTakesAndErrorsDoNoHarm) {
  Rows rows;
  rows.bad = 7;
  const size_t before = cpu().memory(kOne).in_use;
  {
    data::Loader loader(rows, {.batch = 4, .shuffle = false, .workers = 2, .device = kOne});
    loader.start_epoch(0);
    EXPECT_TRUE(loader.next());
    EXPECT_NE(error_of([&] { loader.next(); }).find("sample 7"), std::string::npos);
    loader.start_epoch(1, 2);
    EXPECT_EQ(loader.next()->tensors[0].device(), kOne);
  }
  EXPECT_EQ(cpu().memory(kOne).in_use, before);
}

#ifndef __SANITIZE_THREAD__
TEST(Loader, OnADeviceAForkedChildGetsItsOwn) {
  const Rows rows;
  data::Loader loader(rows, {.batch = 5, .seed = 1, .device = kOne});
  loader.start_epoch(0);
  loader.next();
  EXPECT_EQ(end_of_child([&] {
              int64_t count = 1;
              while (loader.next()) ++count;
              if (count != loader.batches()) std::abort();
            }),
            "exit 0");
}
#endif

}  // namespace
}  // namespace tandem::testing
