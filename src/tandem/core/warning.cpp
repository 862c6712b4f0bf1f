#include "tandem/core/warning.h"

#include <mutex>
#include <utility>

#include "tandem/core/mutex.h"

namespace tandem {

namespace {
struct Handler {
  Mutex mutex{LockOrder::ops};
  WarningHandler call;
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
