// What the CPU's allocator keeps: bounded by what is in use, given back, and never asked for twice in a loop that
// repeats itself.
// ctest: serial
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "tandem/backends/cpu/allocator.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/child.h"

namespace tandem::testing {
namespace {

constexpr double kMb = 1e6;

MemoryStats stats() { return backend(DeviceKind::cpu).memory({}); }
void empty_cache() { backend(DeviceKind::cpu).empty_cache({}); }

/// Megabytes of this process that lie in memory, or of its address space.
double resident_mb(bool address_space = false) {
  std::ifstream file("/proc/self/statm");
  double whole = 0, resident = 0;
  file >> whole >> resident;
  return (address_space ? whole : resident) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / kMb;
}

/// Tensors of `mb` megabytes together, every page written, in pieces of `piece_kb`.
std::vector<Tensor> live(double mb, double piece_kb) {
  std::vector<Tensor> all;
  for (double left = mb * 1e3; left > 0; left -= piece_kb)
    all.push_back(full({static_cast<Dim>(std::min(left, piece_kb) * 250)}, 1));
  return all;
}

/// A training step of a small dense net; its peak is a few MB.
void step(Tensor& w1, Tensor& w2, const Tensor& x) {
  backward(mean(square(matmul(relu(matmul(x, w1)), w2))));
  const NoGrad off;
  for (Tensor* w : {&w1, &w2}) {
    assign(*w, *w - w->grad() * 0.01);
    w->zero_grad();
  }
}

TEST(Memory, OfOpsOnBytesHoldsNoIndexOfEightBytesForEachOfThem) {
  const Dims shape{4000, 4000};
  const Tensor bytes = ones(shape, DType::u8), bools = ones(shape, DType::boolean);
  const double size = 16;  // MB
  const struct {
    const char* name;
    std::function<Tensor()> call;
    double times;  // the size of the input, results included
  } rows[] = {
      {"flip", [&] { return flip(reshape(bytes, {-1}), {0}); }, 1},
      {"flip of two axes",
       [&] {
         return flip(bytes, {0, 1});
       },
       1},
      {"rot90", [&] { return rot90(bytes); }, 1},
      {"pad by reflection",
       [&] {
         return pad(bytes, {3999, 0}, {.mode = PadMode::reflect});
       },
       3},
      {"tril", [&] { return tril(bytes); }, 2},
      {"triu", [&] { return triu(bools); }, 2},
      {"count_nonzero of bytes", [&] { return count_nonzero(bytes); }, 1},
      {"count_nonzero of bools", [&] { return count_nonzero(bools); }, 0},
      {"any", [&] { return any(bools); }, 0},
      {"all", [&] { return all(bools); }, 1},
  };
  for (const auto& row : rows) {
    empty_cache();
    backend(DeviceKind::cpu).reset_peak({});
    const auto before = static_cast<double>(stats().in_use) / kMb;
    const Tensor result = row.call();
    EXPECT_LE(static_cast<double>(stats().peak) / kMb - before, size * row.times + 4) << row.name;
  }
}

TEST(Memory, OfChangingShapesIsBoundedByWhatIsInUse) {
  empty_cache();
  backend(DeviceKind::cpu).reset_peak({});
  const double before = resident_mb();
  double reserved = 0, resident = 0, most = 0;
  // Each round the same amount in other pieces: of 0.3 to 60 MB, growing and shrinking.
  for (int round = 0; round < 40; ++round) {
    const double piece_kb = 300 * std::pow(200.0, (round * 7 % 40) / 40.0);
    const std::vector<Tensor> tensors = live(120, piece_kb);
    most = std::max(most, static_cast<double>(stats().in_use) / kMb);
    reserved = std::max(reserved, static_cast<double>(stats().reserved) / kMb);
    resident = std::max(resident, resident_mb() - before);
  }
  // Half as much again as is in use, or 67 MB more.
  const double bound = std::max(1.5 * most, most + 68) + 10;
  EXPECT_LT(reserved, bound) << "in use: at most " << most;
  EXPECT_LT(resident, bound + 20) << "in use: at most " << most;
  EXPECT_GT(resident, 100);
}

TEST(Memory, AfterALargePhaseGoesBackToTheSystemWhileASmallOneRuns) {
  empty_cache();
  const double before = resident_mb();
  for (int i = 0; i < 3; ++i) live(400, 2000);
  EXPECT_GT(static_cast<double>(stats().reserved) / kMb, 390);
  // Two windows of about 2 s pass until the large phase is forgotten.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (static_cast<double>(stats().reserved - stats().in_use) / kMb > 80 &&
         std::chrono::steady_clock::now() < end)
    live(4, 50);
  EXPECT_LT(static_cast<double>(stats().reserved - stats().in_use) / kMb, 80);
  EXPECT_LT(resident_mb() - before, 100);
}

TEST(Memory, OfALoopThatRepeatsItselfIsNotAskedForAgain) {
  Tensor w1 = full({512, 512}, 0.01).set_requires_grad(), w2 = full({512, 64}, 0.01).set_requires_grad();
  const Tensor x = full({1024, 512}, 1);
  for (int i = 0; i < 5; ++i) step(w1, w2, x);
  const size_t reserved = stats().reserved;
  rusage first{}, last{};
  getrusage(RUSAGE_SELF, &first);
  for (int i = 0; i < 60; ++i) step(w1, w2, x);
  getrusage(RUSAGE_SELF, &last);
  // On a busy machine a thread of the pool may join late, with scratch memory of its own.
  EXPECT_LT(stats().reserved, reserved + (size_t{1} << 20));
  EXPECT_LT(last.ru_minflt - first.ru_minflt, 500) << "pages that the system made anew";
}

TEST(Memory, ThatIsKeptGoesBackWhenAsked) {
  { live(200, 700); }
  { live(20, 30); }
  EXPECT_GT(stats().reserved, stats().in_use + 100'000'000);
  const double before = resident_mb();
  empty_cache();
  EXPECT_LE(stats().reserved, stats().in_use + (size_t{9} << 20) * 8);  // other threads keep small blocks
  EXPECT_LT(resident_mb(), before - 100);
  const std::vector<Tensor> after = live(10, 700);
  EXPECT_GE(stats().reserved, stats().in_use);
}

TEST(Memory, UnderALimitOfTheSystemIsTakenFromTheCacheFirst) {
  EXPECT_EQ(end_of_child([] {
              empty_cache();
              const auto limit = static_cast<rlim_t>((resident_mb(true) + 260) * kMb);
              const rlimit both{limit, limit};
              setrlimit(RLIMIT_AS, &both);
              // 150 MB at a time in ever other pieces: more than the limit, were all of them kept.
              for (int round = 0; round < 12; ++round) live(150, 1200 * std::pow(1.4, round));
              try {
                live(1000, 20000);
                _exit(1);
              } catch (const Error& error) {
                if (std::string(error.what()).find("memory: ") != 0) _exit(2);
              }
              live(150, 5000);  // goes on
            }),
            "exit 0");
}

TEST(Memory, OfThisProcessHasALimitThatIsKnown) {
  const size_t limit = cpu::memory_limit();
  EXPECT_GT(limit, size_t{64} << 20);
  const size_t machine =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  EXPECT_LE(limit, machine);
}

TEST(Memory, IsAlignedAndItsOwnForEverySize) {
  std::vector<Tensor> all;
  for (double bytes = 1; bytes < 3e7; bytes *= 1.07) {
    all.push_back(empty({static_cast<Dim>(bytes)}, DType::u8));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(all.back().raw()) % 64, 0u);
    std::memset(all.back().raw(), static_cast<int>(all.size() % 251), static_cast<size_t>(all.back().size()));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const auto* data = static_cast<const uint8_t*>(all[i].raw());
    const auto wanted = static_cast<uint8_t>((i + 1) % 251);
    EXPECT_TRUE(data[0] == wanted && data[all[i].size() - 1] == wanted) << i;
  }
}

}  // namespace
}  // namespace tandem::testing
