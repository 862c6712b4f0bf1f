// What several commands share: numbers and folders that a user names, signals, tables, and how drivers are started.
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "lab/src/command/commands.h"
#include "lab/src/study/study.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/train/settings.h"

namespace tandem::lab {
namespace {

std::atomic<bool> g_stop{false};

size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

CLI::Option* add_whole(CLI::App& command, const std::string& flag, Whole range,
                       std::function<void(int64_t)> take, const std::string& help, const std::string& why) {
  const auto read = [=](const std::string& text) {
    int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || value < range.least || value > range.most)
      throw CLI::ValidationError(flag, str("must be a whole number from ", range.least, " to ", range.most,
                                           why, "; got '", io::one_line(text, 80), "'"));
    take(value);
  };
  return command.add_option_function<std::string>(flag, read, help)->type_name("INT");
}

void make_folder(const std::string& flag, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && !std::filesystem::is_directory(folder, error))
    error = std::make_error_code(std::errc::not_a_directory);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (error)
    throw UsageError(str(flag, ": must be a folder that can be made and written to; got '",
                         io::one_line(folder, 300), "': ", error.message(), ". Name another."));
}

int64_t usable_cores() { return static_cast<int64_t>(std::max<size_t>(1, first_cpus(CPU_SETSIZE).size())); }

Launcher catalogue_launcher(const std::string& further) {
  const Machine machine = Machine::here(lab_home());
  const auto drivers = std::make_shared<std::vector<DriverInfo>>(read_drivers(machine.home, further));
  return [machine, drivers](const std::string& framework) -> Launch {
    const DriverInfo& info = find_driver(*drivers, framework);
    const Availability found = availability(info, machine, *drivers);
    if (!found.available)
      return {{}, {}, str(info.title, ": ", found.why, found.fix.empty() ? "" : ". " + found.fix)};
    return {driver_command(info, machine), {}, "", resolve(info.definitions, info, machine), found.version};
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

size_t terminal_width() {
  winsize size{};
  return ::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void print_rows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)  // what ends a row needs no width: an error there pushes no other row apart
    for (size_t i = 0; i + 1 < row.size(); ++i) {
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
  for (const std::string& word : arguments) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

}  // namespace tandem::lab
