#include "tandem/train/program.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "tandem/core/error.h"
#include "tandem/train/settings.h"

namespace tandem {

int fail_with(const std::string& name, int status, std::string text) {
  text = with_flags(text);
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(' ') + 1);
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", name.c_str(), text.c_str());
  return status;
}

void as_usage(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

void fail_on_large_files() { ::signal(SIGXFSZ, SIG_IGN); }

int status_of_output(const std::string& name, int status) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return fail_with(name, 1, "cannot write to the standard output. Send it elsewhere.");
  return status;
}

int run_action(const std::string& name, const Action& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return fail_with(name, 2, error.what());
  } catch (const Interrupted& stopped) {
    return fail_with(name, 130, stopped.what());
  } catch (const std::bad_alloc&) {
    return fail_with(name, 1, "this machine has not enough memory. Try a smaller batch.");
  } catch (const std::exception& error) {
    return fail_with(name, 1, error.what());
  }
  return status_of_output(name, 0);
}

}  // namespace tandem
