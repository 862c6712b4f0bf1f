// The monitor's thread. Only the thread reads the sources; the other functions hand it a command and wait for the answer.
#include "lab/src/monitor/monitor.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "lab/src/monitor/sampler.h"
#include "tandem/core/error.h"

namespace tandem::lab {

struct Monitor::State {
  enum class Command { none, begin, end, quit };

  explicit State(const MonitorOptions& options) : sampler(options) {}

  Sampler sampler;
  std::thread thread;
  std::mutex mutex;
  std::condition_variable wakes_thread, answered;
  Command command = Command::none;
  bool window_open = false;
  MonitorReport report;
  std::string failure;

  void work();
  bool obey();
  void tell(Command what);
};

/// Runs in the thread, under the lock. Returns false when the thread is to end.
bool Monitor::State::obey() {
  const Command asked = command;
  if (asked == Command::quit) return false;
  try {
    if (asked == Command::begin) sampler.begin();
    if (asked == Command::end) report = sampler.end();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  window_open = asked == Command::begin;
  command = Command::none;
  answered.notify_all();
  return true;
}

void Monitor::State::work() {
  pthread_setname_np(pthread_self(), "lab-monitor");
  std::unique_lock lock(mutex);
  for (;;) {
    const auto asked = [this] { return command != Command::none; };
    if (!window_open) {
      wakes_thread.wait(lock, asked);
    } else {
      double next = 0;
      try {
        next = sampler.tick();
      } catch (const std::exception& error) {
        failure = error.what();
        window_open = false;
        continue;
      }
      const auto seconds = std::chrono::duration<double>(std::max(next - now_s(), 0.0));
      wakes_thread.wait_for(lock, std::chrono::duration_cast<std::chrono::nanoseconds>(seconds), asked);
    }
    if (command != Command::none && !obey()) return;
  }
}

void Monitor::State::tell(Command what) {
  std::unique_lock lock(mutex);
  command = what;
  wakes_thread.notify_all();
  answered.wait(lock, [this] { return command == Command::none; });
  if (!failure.empty()) {
    const std::string why = std::move(failure);
    failure.clear();
    throw Error(str("monitor: readings must not fail; got: ", why,
                    ". Close other programs, or run without the monitor."));
  }
}

Monitor::Monitor(const MonitorOptions& options) {
  TD_CHECK(options.interval_s >= 0.001 && options.interval_s <= 60,
           "monitor: the interval must lie between 0.001 and 60 seconds; got ", options.interval_s,
           ". 0.1 is usual.");
  TD_CHECK(options.share > 0 && options.share <= 1,
           "monitor: the share of a core must lie between 0 and 1; got ", options.share, ". 0.008 is usual.");
  TD_CHECK(options.pid >= 0, "monitor: the process must be a number from 1, or 0 for none; got ", options.pid,
           ".");
  state_ = std::make_unique<State>(options);
}

Monitor::~Monitor() {
  if (!state_->thread.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->command = State::Command::quit;
    state_->wakes_thread.notify_all();
  }
  state_->thread.join();
}

void Monitor::start() {
  TD_CHECK(!state_->thread.joinable(),
           "monitor: start() must be called once; got a second call. Leave it out.");
  // Signals are the business of the program's other threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state_->thread = std::thread([state = state_.get()] { state->work(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Monitor::begin_window() {
  TD_CHECK(state_->thread.joinable(),
           "monitor: start() must come before begin_window(); got none. Call start().");
  state_->tell(State::Command::begin);
}

MonitorReport Monitor::end_window() {
  bool is_open = false;
  {
    const std::lock_guard lock(state_->mutex);
    is_open = state_->window_open || !state_->failure.empty();
  }
  TD_CHECK(is_open,
           "monitor: begin_window() must come before end_window(); got no open window. Call begin_window().");
  state_->tell(State::Command::end);
  return std::move(state_->report);
}

std::optional<double> Monitor::current_temperature() const { return state_->sampler.temperature(); }

}  // namespace tandem::lab
