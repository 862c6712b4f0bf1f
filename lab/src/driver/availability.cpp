// Where a driver's environment, interpreter and packages lie on this machine, and whether it can start.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "lab/src/driver/catalogue.h"
#include "lab/src/driver/program.h"
#include "lab/src/driver/requirement.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

std::string from_environment(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value ? value : "";
}

std::string variable_of(const std::string& name) {
  std::string variable = "TANDEM_LAB_PYTHON_";
  for (const char c : name)
    variable += std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::toupper(c)) : '_';
  return variable;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// The path of a program, looked up in PATH where it has no slash; empty where there is none.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const std::string path = from_environment("PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string candidate = (end > begin ? path.substr(begin, end - begin) : ".") + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate)) return candidate;
    begin = end + 1;
  }
  return "";
}

/// Where an interpreter that the user named looks for packages. It knows best, so it is asked, once a program.
std::vector<std::string> asked_folders(const std::string& interpreter) {
  static std::map<std::string, std::vector<std::string>> known;
  const auto found = known.find(interpreter);
  if (found != known.end()) return found->second;
  std::vector<std::string>& folders = known[interpreter];
  const Printed printed =
      run_and_read({interpreter, "-c", "import sys; print('\\n'.join(filter(None, sys.path)))"});
  if (printed.status != 0) return folders;
  for (size_t begin = 0; begin < printed.text.size();) {
    const size_t end = std::min(printed.text.find('\n', begin), printed.text.size());
    if (end > begin) folders.push_back(printed.text.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

std::string replaced(std::string word, const std::string& name, const std::string& value) {
  for (size_t at = word.find(name); at != std::string::npos; at = word.find(name, at + value.size()))
    word.replace(at, name.size(), value);
  return word;
}

void check_braces(const std::string& word, const DriverInfo& info) {
  std::string rest = word;
  for (const char* known : {"{home}", "{lab}", "{python}", "{site}"}) rest = replaced(rest, known, "");
  TD_CHECK(rest.find('{') == std::string::npos, "drivers.toml: ", info.name,
           ": only {home}, {lab}, {python} and {site} may stand in braces; got '", word, "'.");
}

}  // namespace

Machine Machine::here(const std::string& home) {
  Machine machine;
  machine.home = home;
  std::error_code error;
  machine.lab = fs::read_symlink("/proc/self/exe", error).string();
  utsname names{};
  if (uname(&names) == 0) machine.platform = names.machine;
  return machine;
}

std::string environment_folder(const DriverInfo& info, const Machine& machine) {
  const std::string elsewhere = from_environment("TANDEM_LAB_ENVIRONMENTS");
  return (elsewhere.empty() ? machine.home + "/.venv-peers" : elsewhere) + "/" + info.environment;
}

Interpreter interpreter(const DriverInfo& info, const Machine& machine) {
  for (const std::string& variable :
       {variable_of(info.name), variable_of(info.environment), std::string("TANDEM_LAB_PYTHON")}) {
    const std::string given = from_environment(variable);
    if (!given.empty()) return {given, true, variable};
  }
  return {environment_folder(info, machine) + "/bin/python", false, ""};
}

std::vector<std::string> package_folders(const DriverInfo& info, const Machine& machine) {
  const Interpreter python = interpreter(info, machine);
  if (python.given)
    return find_program(python.path).empty() ? std::vector<std::string>{} : asked_folders(python.path);
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator entry(environment_folder(info, machine) + "/lib", error), end;
       !error && entry != end; entry.increment(error)) {
    const fs::path folder = entry->path() / "site-packages";
    if (entry->path().filename().string().rfind("python", 0) == 0 && is_file(folder.string()))
      folders.push_back(folder.string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<std::string> resolve(const std::vector<std::string>& words, const DriverInfo& info,
                                 const Machine& machine) {
  std::vector<std::string> made;
  for (const std::string& word : words) {
    check_braces(word, info);
    std::string text = word;
    if (text.find("{site}") != std::string::npos) {
      // The folder that holds the main package; a name that is nowhere, before there is one.
      std::string site = environment_folder(info, machine) + "/lib/python/site-packages";
      const std::string main = info.packages.empty() ? "" : parse_requirement(info.packages.front()).name;
      for (const std::string& folder : package_folders(info, machine))
        if (main.empty() || installed_build(main, {folder})) {
          site = folder;
          break;
        }
      text = replaced(text, "{site}", site);
    }
    text = replaced(text, "{home}", machine.home);
    text = replaced(text, "{lab}", machine.lab);
    text = replaced(text, "{python}", interpreter(info, machine).path);
    made.push_back(text);
  }
  return made;
}

std::vector<std::string> driver_command(const DriverInfo& info, const Machine& machine) {
  return resolve(info.command, info, machine);
}

bool needs_build(const DriverInfo& info, const Machine& machine) {
  const auto& platforms = info.build_platforms;
  return !info.build.empty() && (platforms.empty() || std::find(platforms.begin(), platforms.end(),
                                                                machine.platform) != platforms.end());
}

bool is_built(const DriverInfo& info, const Machine& machine) {
  const std::vector<std::string> files = resolve(info.built, info, machine);
  if (!std::all_of(files.begin(), files.end(), is_file)) return false;
  // Built from what is there now.
  std::error_code ignored;
  fs::file_time_type oldest = fs::file_time_type::max();
  for (const std::string& file : files) oldest = std::min(oldest, fs::last_write_time(file, ignored));
  const auto is_newer = [&](const fs::path& source) {
    return fs::is_regular_file(source, ignored) && fs::last_write_time(source, ignored) > oldest;
  };
  for (const std::string& source : resolve(info.sources, info, machine)) {
    if (is_newer(source)) return false;
    for (const auto& entry : fs::recursive_directory_iterator(source, ignored))
      if (is_newer(entry.path())) return false;
  }
  return true;
}

std::vector<std::string> required_packages(const DriverInfo& info, const std::vector<DriverInfo>& drivers) {
  return info.packages.empty() && info.environment != info.name
             ? find_driver(drivers, info.environment).packages
             : info.packages;
}

Availability availability(const DriverInfo& info, const Machine& machine,
                          const std::vector<DriverInfo>& drivers) {
  Availability answer;
  const auto remark = info.remarks.find(machine.platform);
  if (remark != info.remarks.end()) answer.remark = remark->second;
  const std::string setup = str("run 'tandem lab setup ", info.name, "'");
  const auto absent = [&](const std::string& why, const std::string& fix) {
    answer.why = why;
    answer.fix = fix;
    return answer;
  };
  const std::vector<std::string> packages = required_packages(info, drivers);
  const Interpreter python = interpreter(info, machine);
  const std::vector<std::string> folders =
      packages.empty() ? std::vector<std::string>{} : package_folders(info, machine);
  if (!packages.empty()) {
    const std::string main = parse_requirement(packages.front()).name;
    const auto version = installed_build(main, folders);
    answer.version = version.value_or("");
    if (python.given) {
      if (find_program(python.path).empty())
        return absent(str("$", python.variable, " names '", python.path, "', which is no program"),
                      str("set $", python.variable, " to a Python interpreter, or unset it"));
      if (!version)
        return absent(str("$", python.variable, " names '", python.path, "', which has no ", main),
                      str("install ", main, " there, or unset $", python.variable));
    } else {
      const auto why_not = info.why_not.find(machine.platform);
      if (!version && why_not != info.why_not.end()) return absent(why_not->second, "");
      if (!is_file(python.path)) return absent("its environment has not been made", setup);
      const std::vector<std::string> missing = missing_packages(packages, folders);
      if (!missing.empty()) return absent(str("its environment lacks ", missing.front()), setup);
    }
  }
  if (needs_build(info, machine) && !python.given && !is_built(info, machine))
    return absent(info.needs_python() ? "its environment is not complete: a library has not been built"
                                      : "its program has not been built, or before its sources were changed",
                  setup);
  for (const std::string& word : driver_command(info, machine)) {
    const bool ours = word.rfind(machine.home + "/", 0) == 0 || word == machine.lab;
    if (ours && !is_file(word)) return absent(str("there is no file '", word, "'"), setup);
  }
  answer.available = true;
  return answer;
}

}  // namespace tandem::lab
