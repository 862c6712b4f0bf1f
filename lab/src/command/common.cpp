// What several commands share: durations, signals, tables, and how drivers are started.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "lab/src/command/commands.h"
#include "lab/src/study/study.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

std::atomic<bool> g_stop{false};

size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

double parse_duration(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit == "s" || unit.empty()    ? 1
                       : unit == "m" || unit == "min" ? 60
                       : unit == "h"                  ? 3600
                                                      : 0;
  if (end == text.c_str() || scale == 0 || !std::isfinite(number) || number <= 0 || number * scale > 1e8)
    throw UsageError(cat("budget: must be a time such as 90s, 30m or 2h; got '", text, "'."));
  return number * scale;
}

int64_t usable_cores() { return static_cast<int64_t>(std::max<size_t>(1, first_cpus(CPU_SETSIZE).size())); }

Launcher catalogue_launcher() {
  const Machine machine = Machine::here(lab_home());
  const auto drivers = std::make_shared<std::vector<DriverInfo>>(read_drivers(machine.home));
  return [machine, drivers](const std::string& framework) -> Launch {
    const DriverInfo& info = find_driver(*drivers, framework);
    const Availability found = availability(info, machine, *drivers);
    if (!found.available)
      return {{}, {}, cat(info.title, ": ", found.why, found.fix.empty() ? "" : ". " + found.fix)};
    return {driver_command(info, machine), {}, "", resolve(info.definitions, info, machine)};
  };
}

const std::atomic<bool>* stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    if (g_stop.exchange(true)) ::_exit(130);
  };
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    // What the caller ignores (nohup) stays ignored.
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
  return &g_stop;
}

void print_rows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i >= widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], columns(row[i]));
    }
  for (const auto& row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < row.size(); ++i)
      line += io::one_line(row[i], row[i].size()) +
              (i + 1 < row.size() ? std::string(widths[i] - columns(row[i]) + 2, ' ') : "");
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
}

std::string quoted(const std::vector<std::string>& arguments) {
  std::string out;
  for (const std::string& word : arguments) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                            "-_=+:,./@%") == std::string::npos;
    std::string text = word;
    if (!plain) {
      text = "'";
      for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
      text += "'";
    }
    out += (out.empty() ? "" : " ") + text;
  }
  return out;
}

}  // namespace tandem::lab
