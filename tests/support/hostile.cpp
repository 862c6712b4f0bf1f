// See hostile.h.
#include "tests/support/hostile.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <iostream>
#include <limits>

#include "tandem/core/tape.h"
#include "tests/support/fuzz_program.h"
#include "tests/support/recording_tracer.h"

#if defined(__SANITIZE_ADDRESS__)
// A request that cannot be served must reach the library, which refuses it; and this machine has other things to do.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:soft_rss_limit_mb=3000";
}
#endif

namespace tandem::testing {

namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(),
                  kHighest = std::numeric_limits<int64_t>::max();
constexpr int64_t kInts[] = {0,
                             1,
                             2,
                             -1,
                             -2,
                             3,
                             5,
                             100,
                             -100,
                             1 << 16,
                             int64_t{1} << 31,
                             int64_t{1} << 32,
                             int64_t{1} << 62,
                             kHighest,
                             kLowest,
                             kHighest - 1,
                             kLowest + 1,
                             int64_t{1} << 61};
constexpr double kNumbers[] = {0,
                               -1,
                               1e308,
                               -1e308,
                               1e-320,
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()};

/// A request between what is cheap and what no machine has: refused by this test, not by the library.
struct TooLarge {};

// What the parent sees of a child: the call it is in, or what was wrong.
struct Shared {
  char call[2000];
  char wrong[2000];
  long calls, refused, too_large;
};
Shared& shared() {
  static Shared* memory = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *memory;
}
void note(char (&field)[2000], const std::string& text) {
  std::strncpy(field, text.c_str(), sizeof(field) - 1);
}

}  // namespace

int64_t hostile_integer(Random& random) { return kInts[random.below(std::size(kInts))]; }
double hostile_number(Random& random) { return kNumbers[random.below(std::size(kNumbers))]; }

void hostile_call(const std::string& what, const std::function<std::vector<Tensor>()>& call) {
  Shared& s = shared();
  ++s.calls;
  note(s.call, what);
  RecordingTracer tracer(true);
  tracer.before = [](const OpDef& op, std::span<const Tensor>, std::span<const Meta> out) {
    if (op.is_view()) return;
    for (const Meta& meta : out) {
      const double bytes =
          static_cast<double>(size_of(meta.shape)) * static_cast<double>(bytes_of(meta.dtype));
      if (bytes > 0x1p22 && bytes < 0x1p49) throw TooLarge{};
    }
  };
  try {
    std::vector<Tensor> results;
    {
      const TraceScope scope(&tracer);
      results = call();
    }
    for (const Tensor& t : results)
      if (t.defined() && t.size() <= 1 << 20) host_bytes(t);
  } catch (const Error& error) {
    ++s.refused;
    if (!std::strstr(error.what(), ": ")) note(s.wrong, str("a refusal without a name: ", error.what()));
  } catch (const std::exception& error) {
    note(s.wrong, str("another exception: ", error.what()));
  } catch (const TooLarge&) {
    ++s.too_large;
  }
}

void hostile_failure(const std::string& what) { note(shared().wrong, what); }

void expect_survives(const std::string& name, const std::function<void(Random&)>& body) {
  const char* only = std::getenv("TANDEM_HOSTILE_OP");
  if (only && name != only) return;
  shared() = {};
  Random random(name_salt(name));
  const int64_t calls = number_from_environment("TANDEM_HOSTILE_CALLS", 300);
  const auto loop = [&] {
    const NoGrad off;
    while (shared().calls < calls && !shared().wrong[0]) {
      const long before = shared().calls;
      body(random);
      if (shared().calls == before) break;
    }
  };
  if (only) {
    loop();
  } else {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map terabytes
      const rlimit memory{rlim_t{4} << 30, rlim_t{4} << 30};         // the machine has other things to do
      setrlimit(RLIMIT_DATA, &memory);
#endif
      try {
        loop();
      } catch (const std::exception& error) {
        note(shared().wrong, str("outside of a call: ", error.what()));
      }
      _exit(shared().wrong[0] ? 3 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
      note(shared().wrong, "it did not end within 20 s");
    else if (WIFSIGNALED(status))
      note(shared().wrong, str("it crashed with signal ", WTERMSIG(status)));
    else if (status != 0 && !shared().wrong[0])
      note(shared().wrong, "it crashed; the report stands above");
  }
  EXPECT_EQ(std::string(shared().wrong), "")
      << name << ", after " << shared().calls << " calls: " << shared().call
      << "\nTo repeat: TANDEM_HOSTILE_OP=" << name;
  EXPECT_GT(shared().calls, 0) << name << " was never called";
  EXPECT_LT(shared().refused, shared().calls) << name << " is always refused: that tests little";
  if (only)
    std::cout << shared().calls << " calls, " << shared().refused << " refused, " << shared().too_large
              << " too large to try\n";
}

}  // namespace tandem::testing
