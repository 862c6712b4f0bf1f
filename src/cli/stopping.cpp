#include "cli/stopping.h"

#include <signal.h>
#include <unistd.h>

#include "tandem/train/settings.h"

namespace tandem::cli {

namespace {
std::atomic<bool> g_stop{false};
}
const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    if (g_stop.exchange(true) && number != SIGPIPE) ::_exit(130);
  };
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    const bool by_nohup = number == SIGHUP && before.sa_handler == SIG_IGN;
    if (!by_nohup) ::sigaction(number, &action, nullptr);
  }
  return g_stop;
}

std::string resume_command(const std::vector<std::string>& arguments, const std::string& out) {
  std::string text = "tandem";
  bool has_out = false, has_resume = false;
  for (size_t i = 1; i < arguments.size(); ++i) {
    text += " " + shell_word(arguments[i]);
    has_out = has_out || arguments[i] == "--out" || arguments[i].starts_with("--out=");
    has_resume = has_resume || arguments[i] == "--resume";
  }
  return text + (has_out ? "" : " --out " + shell_word(out)) + (has_resume ? "" : " --resume");
}

}  // namespace tandem::cli
