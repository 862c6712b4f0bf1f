// fork(), exit() and signals at any moment: while other threads compute and hold the library's locks, and after the
// process has begun to end.
// ctest: asan
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "tandem/core/activity.h"
#include "tandem/core/choices.h"
#include "tandem/core/mutex.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/data/compose.h"
#include "tandem/data/loader.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/child.h"

namespace tandem::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // whose own locks in malloc do not all survive a fork
#else
constexpr bool kSanitized = false;
#endif

class Numbers final : public data::Dataset {
 public:
  int64_t size() const override { return 64; }
  std::vector<Tensor> get(int64_t i) const override {
    return {full({16}, static_cast<double>(i)), full({}, static_cast<double>(i), DType::i64)};
  }
};

/// Allocations of all kinds, a job for the thread pool, scratch memory and a gradient; the sum of what came out.
double compute() {
  Tensor a = full({96, 96}, 0.5).set_requires_grad();
  const Tensor loss = sum(matmul(a, a) * 2.0) + sum(full({70000}, 1.0) + 1.0);
  backward(loss);
  return loss.item<double>() + sum(a.grad()).item<double>();
}
const double kComputed = 96 * 96 * 24 * 2 + 140000 + 2 * 96 * 96 * 96;

/// Convolutions of ever new shapes, whose algorithm is chosen by time, and transforms of ever new sizes.
void choose(int64_t i) {
  conv2d(full({1, 2, 6 + i % 50, 6 + i / 50 % 50}, 1), full({2, 2, 3, 3}, 1));
  rfft(full({16 + i % 900}, 1));
}

/// A sanitizer's allocator is not made for fork(): a child that is made while a worker allocates may wait for its lock
/// forever. Under one, the workers get the time to fill their slots, after which they wait.
void let_workers_rest() {
  if (kSanitized) std::this_thread::sleep_for(std::chrono::milliseconds(700));
}

double sum_of_batches(data::Loader& loader, int64_t epoch) {
  loader.start_epoch(epoch);
  double total = 0;
  while (const auto batch = loader.next()) total += sum(batch->tensors[0]).item<double>();
  return total;
}
constexpr double kBatches = 16 * 63 * 64 / 2;

/// Chooses algorithms by time, without a file, while it lives.
struct Profiled {
  Profiled() { set_convolution_choice({.mode = ChoiceMode::profile, .keep = false}); }
  ~Profiled() { set_convolution_choice(before); }
  ConvolutionChoice before = convolution_choice();
};

/// Threads that repeat something until the object goes.
class Busy {
 public:
  explicit Busy(const std::vector<std::function<void(int64_t)>>& works) {
    for (const auto& work : works)
      threads_.emplace_back([this, work] {
        for (int64_t i = 0; !stop_.load(); ++i) work(i);
      });
  }
  ~Busy() {
    stop_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST(Fork, WhileOtherThreadsHoldEveryLockLeavesAChildThatWorks) {
  if (kSanitized) GTEST_SKIP();
  const int before = threads();
  set_threads(3);
  const Profiled profiled;
  const Numbers numbers;
  const auto composed = data::shuffle(data::cache(std::make_shared<Numbers>()), 3);
  {
    const Busy busy({
        [](int64_t) { compute(); },
        [](int64_t i) { empty({i % 7000 + 1}); },
        [](int64_t i) { empty({(i % 7 + 1) << 18}); },
        [](int64_t i) { choose(i); },
        [&](int64_t i) {
          data::Loader loader(numbers, {.batch = 5, .workers = 2});
          sum_of_batches(loader, i);
        },
        [&](int64_t i) { composed->get_at(i % 64, i / 64); },
        [](int64_t) { watch_kernels([] { compute(); }); },
        [](int64_t) {
          Compiled function = compile(
              [](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {in[0] * 2.0 + 1.0}; });
          function({full({100}, 1)});
        },
    });
    for (int i = 0; i < 24; ++i) {
      const std::string end = end_of_child([&] {
        if (compute() != kComputed) _exit(1);
        for (int64_t k = 0; k < 5; ++k) choose(10000 + k);
        data::Loader loader(numbers, {.batch = 5, .workers = 2});
        if (sum_of_batches(loader, 0) != kBatches) _exit(2);
        for (int64_t k = 0; k < 64; ++k)
          if (composed->get_at(k, 7).size() != 2) _exit(3);
        Compiled function =
            compile([](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {in[0] * 2.0 + 1.0}; });
        if (sum(function({full({100}, 1)})[0]).item<double>() != 300) _exit(4);
        set_threads(2);
        if (compute() != kComputed) _exit(5);
      });
      ASSERT_EQ(end, "exit 0") << "fork " << i;
    }
  }
  set_threads(before);
}

TEST(Fork, LeavesALoaderThatHandsOutTheSameBatches) {
  const Numbers numbers;
  for (const int workers : {0, 1, 3}) {
    data::Loader loader(numbers, {.batch = 4, .workers = workers});
    loader.start_epoch(2);
    loader.next();
    // In the midst of an epoch: the rest of it, and the next one.
    const auto rest = [&] {
      std::vector<float> all;
      while (const auto batch = loader.next()) {
        const std::vector<float> values = batch->tensors[0].to_vector<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    let_workers_rest();
    EXPECT_EQ(end_of_child([&] {
                const std::vector<float> all = rest();
                if (all.size() != 60 * 16) _exit(1);
                if (write(pipe_ends[1], all.data(), all.size() * 4) != 60 * 16 * 4) _exit(2);
                if (sum_of_batches(loader, 3) != kBatches) _exit(3);
              }),
              "exit 0")
        << workers << " workers";
    close(pipe_ends[1]);  // a child that wrote nothing must not be waited for
    std::vector<float> theirs(60 * 16);
    EXPECT_EQ(read(pipe_ends[0], theirs.data(), theirs.size() * 4), 60 * 16 * 4);
    EXPECT_EQ(theirs, rest());
    close(pipe_ends[0]);
  }
}

TEST(Fork, LeavesALoaderThatCanBeDestroyed) {
  const Numbers numbers;
  auto loader = std::make_unique<data::Loader>(numbers, data::LoaderOptions{.batch = 4, .workers = 2});
  loader->start_epoch(0);
  let_workers_rest();
  EXPECT_EQ(end_of_child([&] { loader.reset(); }), "exit 0");
  // And its child, too.
  EXPECT_EQ(end_of_child([&] {
              loader->next();
              let_workers_rest();
              if (end_of_child([&] {
                    loader->next();
                    loader.reset();
                  }) != "exit 0")
                _exit(1);
            }),
            "exit 0");
}

TEST(Fork, InsideAParallelBodyIsRefusedWhereTheChildReturns) {
  const int before = threads();
  set_threads(2);
  std::atomic<bool> forked{false};
  std::atomic<int> done{0};
  const std::thread::id caller = std::this_thread::get_id();
  std::string end;
  bool is_child = false;
  try {
    parallel_for(64, [&](int64_t) {
      done.fetch_add(1);
      if (std::this_thread::get_id() != caller || forked.exchange(true)) return;
      std::fflush(nullptr);
      const pid_t child = fork();
      if (child == 0) {
        is_child = true;
        return;
      }
      int status = 0;
      waitpid(child, &status, 0);
      end = WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status)) : "signal";
    });
    if (is_child) _exit(1);
  } catch (const Error& error) {
    _exit(is_child && std::strstr(error.what(), "parallel_for: ") ? 0 : 2);
  }
  EXPECT_EQ(end, "exit 0");
  EXPECT_EQ(done.load(), 64);
  set_threads(before);
}

TEST(Fork, RefusesInTheChildWhatAnotherThreadWasInside) {
  std::atomic<bool> inside{false}, leave{false};
  const Compiled* called = nullptr;
  Compiled function = compile([&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    inside.store(true);
    while (!leave.load()) std::this_thread::yield();
    return {in[0] + 1.0};
  });
  called = &function;
  std::thread other([&] { function({full({3}, 1)}); });
  while (!inside.load()) std::this_thread::yield();
  EXPECT_EQ(end_of_child([&] {
              try {
                called->reports();
              } catch (const Error& error) {
                _exit(std::strstr(error.what(), "fork: a compiled callable") ? 0 : 2);
              }
              _exit(1);
            }),
            "exit 0");
  leave.store(true);
  other.join();
  EXPECT_EQ(function({full({3}, 1)})[0].to_vector<float>(), std::vector<float>({2, 2, 2}));
}

TEST(Mutexes, ExcludeEachOtherAndWakeThoseThatWait) {
  Mutex mutex(LockOrder::data);
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const std::lock_guard lock(mutex);
        ++count;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 80000);
  mutex.lock();
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

// ---- exit

/// Computes when it is destroyed, in static storage: after the thread_local objects of its thread.
struct ComputesAtTheEnd {
  ~ComputesAtTheEnd() {
    if (!armed) return;
    if (compute() != kComputed) _exit(1);
    choose(3);
    Compiled function = compile(
        [](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {exp(in[0]) * 2.0 + 1.0}; });
    if (sum(function({full({100000}, 0)})[0]).item<double>() != 300000) _exit(2);
    kept = Tensor();
    _exit(7);
  }
  bool armed = false;
  Tensor kept;
};

TEST(Exit, ADestructorOfAStaticObjectMayCompute) {
  EXPECT_EQ(end_of_child([] {
              static ComputesAtTheEnd last;
              last.armed = true;
              last.kept = full({1000}, 1);
              compute();
              choose(1);
              Compiled function = compile([](const std::vector<Tensor>& in) -> std::vector<Tensor> {
                return {exp(in[0]) * 2.0 + 1.0};
              });
              function({full({100000}, 0)});
              std::exit(0);
            }),
            "exit 7");
}

TEST(Exit, ADestructorOfAThreadLocalObjectMayCompute) {
  struct Computes {
    ~Computes() { result = compute(); }
    double& result;
  };
  double result = 0;
  std::thread([&] {
    thread_local Computes last{result};  // made before the thread's scratch, so destroyed after it
    (void)last;
    compute();
  }).join();
  EXPECT_EQ(result, kComputed);
}

TEST(Exit, WhileThreadsComputeIsClean) {
  for (int i = 0; i < 12; ++i)
    ASSERT_EQ(end_of_child([&] {
                set_threads(3);
                set_convolution_choice({.mode = ChoiceMode::profile, .keep = false});
                std::atomic<int> begun{0};
                for (int t = 0; t < 4; ++t)
                  std::thread([&begun, t] {
                    for (int64_t k = 0;; ++k) {
                      t % 2 ? void(compute()) : choose(k);
                      begun.fetch_add(1);
                    }
                  }).detach();
                while (begun.load() < 8 + i) std::this_thread::yield();
                std::exit(0);
              }),
              "exit 0")
        << i;
}

#ifdef __linux__
TEST(Exit, TheLibraryHasNoStaticObjectThatIsDestroyed) {
  if (kSanitized) GTEST_SKIP();
  std::ifstream maps("/proc/self/maps");
  std::string path;
  for (std::string line; path.empty() && std::getline(maps, line);)
    if (const size_t at = line.find('/');
        at != std::string::npos && line.find("libtandem.so") != std::string::npos)
      path = line.substr(at);
  ASSERT_FALSE(path.empty());
  // Its object files: what a compiler's own start-up code brings is not ours.
  namespace fs = std::filesystem;
  int objects = 0;
  for (const auto& folder :
       fs::directory_iterator(fs::path(path).parent_path().parent_path() / "CMakeFiles")) {
    if (folder.path().filename().string().rfind("tandem", 0) != 0) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".o") continue;
      ++objects;
      std::ostringstream file;
      file << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      // CUB includes <iostream>, which has such an object of its own before gcc 13.
      if (entry.path().string().ends_with(".cu.o") &&
          file.str().find("_ZNSt8ios_base4InitC1Ev") != std::string::npos)
        continue;
      EXPECT_EQ(file.str().find(std::string("\0__cxa_atexit\0", 14)), std::string::npos)
          << entry.path()
          << ": a static object with a destructor: threads may use it until the process has ended. Write\n"
          << "  static T& object = *new T;";
    }
  }
  EXPECT_GT(objects, 100);
}
#endif

// ---- signals

TEST(Signals, EndAProcessWhoseThreadsCompute) {
  for (int i = 0; i < 8; ++i)
    ASSERT_EQ(end_of_child([&] {
                std::atomic<int> begun{0};
                for (int t = 0; t < 3; ++t)
                  std::thread([&begun] {
                    for (;;) {
                      compute();
                      begun.fetch_add(1);
                    }
                  }).detach();
                while (begun.load() < 4 + i) std::this_thread::yield();
                raise(SIGTERM);
              }),
              "signal 15");
}

TEST(Signals, ThatInterruptEveryThreadChangeNothing) {
  EXPECT_EQ(end_of_child([] {
              struct sigaction action {};
              action.sa_handler = [](int) {};  // without SA_RESTART: every wait is interrupted
              sigaction(SIGUSR1, &action, nullptr);
              set_threads(3);
              const Numbers numbers;
              std::vector<pthread_t> targets{pthread_self()};
              std::atomic<bool> stop{false};
              std::atomic<int> wrong{0};
              std::vector<std::thread> threads;
              for (int t = 0; t < 2; ++t)
                threads.emplace_back([&] {
                  data::Loader loader(numbers, {.batch = 5, .workers = 1});
                  for (int64_t k = 0; !stop.load(); ++k) {
                    if (compute() != kComputed) wrong.fetch_add(1);
                    if (sum_of_batches(loader, k) != kBatches) wrong.fetch_add(1);
                  }
                });
              for (std::thread& thread : threads) targets.push_back(thread.native_handle());
              for (int i = 0; i < 300; ++i) {
                for (const pthread_t target : targets) pthread_kill(target, SIGUSR1);
                std::this_thread::sleep_for(std::chrono::microseconds(200));
              }
              stop.store(true);
              for (std::thread& thread : threads) thread.join();
              _exit(wrong.load() == 0 && compute() == kComputed ? 0 : 1);
            }),
            "exit 0");
}

}  // namespace
}  // namespace tandem::testing
