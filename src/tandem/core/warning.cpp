#include "tandem/core/warning.h"

#include <cstdio>
#include <mutex>
#include <utility>

#include "tandem/core/mutex.h"

namespace tandem {

namespace {
struct Handler {
  Mutex mutex{LockOrder::ops};
  WarningHandler call = [](const std::string& text) {
    std::fprintf(stderr, "tandem: warning: %s\n", text.c_str());
  };
};
Handler& the_handler() {
  static Handler& handler = *new Handler;
  return handler;
}
}  // namespace

WarningHandler set_warning_handler(WarningHandler handler) {
  std::lock_guard lock(the_handler().mutex);
  return std::exchange(the_handler().call, std::move(handler));
}

void warn(const std::string& text) {
  WarningHandler call;
  {
    std::lock_guard lock(the_handler().mutex);
    call = the_handler().call;
  }
  if (call) call(text);
}

}  // namespace tandem
