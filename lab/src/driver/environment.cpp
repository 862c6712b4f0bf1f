// `tandem lab setup`: a virtual environment, its packages, and what is built on them. Each step is looked at before it is
// taken, so a second setup does nothing.
#include "lab/src/driver/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lab/src/driver/program.h"
#include "lab/src/driver/requirement.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& words, const char* between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// The cause that a log ends with: pip's last line that begins with ERROR, or else the last line.
std::string cause_in(const std::string& log) {
  std::ifstream file(log);
  std::string line, last, error;
  while (std::getline(file, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    if (line.rfind("ERROR:", 0) == 0) error = line.substr(line.find_first_not_of(" ", 6));
  }
  const std::string cause = io::one_line(error.empty() ? last : error, 300);
  return cause.empty() ? "it said nothing" : cause;
}

/// "3.11" for a Python; empty for what is none.
std::string version_of(const std::string& interpreter) {
  const Printed printed =
      run_and_read({interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"});
  const std::string text = printed.text.substr(0, printed.text.find('\n'));
  return printed.status == 0 && text.find_first_not_of("0123456789.") == std::string::npos ? text : "";
}

/// One driver's setup.
class Setup {
 public:
  Setup(const DriverInfo& info, const Machine& machine, const SetupOptions& options)
      : info_(info),
        machine_(machine),
        options_(options),
        folder_(environment_folder(info, machine)),
        python_(interpreter(info, machine)) {}

  /// True where something was done.
  bool packages() {
    if (python_.given) {
      check_given();
      return false;
    }
    const std::string log = folder_ + "/setup.log";
    bool changed = false;
    if (!has_environment()) {
      make_environment(log);
      changed = true;
    }
    check_version();
    const std::vector<std::string> missing =
        missing_packages(info_.all_packages(), package_folders(info_, machine_));
    if (missing.empty()) {
      say(str("all packages are there (", joined(info_.all_packages()), ")"));
      return changed;
    }
    if (!info_.build_packages.empty()) install(info_.build_packages, {}, log);
    install(info_.all_packages(), info_.pip_options, log);
    const std::vector<std::string> left =
        missing_packages(info_.all_packages(), package_folders(info_, machine_));
    TD_CHECK(left.empty(), "setup ", info_.name, ": pip must leave all packages in place; ", joined(left),
             " is not there. See '", log, "', or remove '", folder_, "' and run setup once more.");
    return true;
  }

  /// True where it was built now.
  bool build() {
    if (!options_.build || !needs_build(info_, machine_) || (python_.given && info_.needs_python()))
      return false;
    if (is_built(info_, machine_) && !options_.rebuild) {
      say("its build is there");
      return false;
    }
    const std::vector<std::string> command = resolve(info_.build, info_, machine_);
    say("building: " + joined(command, " "));
    std::error_code error;
    fs::create_directories(folder_, error);
    const std::string log = folder_ + "/build_" + info_.name + ".log";
    fs::remove(log, error);
    const int status = run_program(command, log);
    TD_CHECK(status == 0, "setup ", info_.name, ": the build must end with status 0; got ", status, ": ",
             cause_in(log), ". See '", log, "'.");
    TD_CHECK(is_built(info_, machine_), "setup ", info_.name, ": the build must leave ",
             joined(resolve(info_.built, info_, machine_)), "; it did not. See '", log, "'.");
    return true;
  }

  void say(const std::string& text) const {
    if (options_.say) options_.say(info_.name + ": " + text);
  }

 private:
  void check_given() const {
    const std::string main = parse_requirement(info_.packages.front()).name;
    const auto version = installed_build(main, package_folders(info_, machine_));
    TD_CHECK(version, "setup ", info_.name, ": $", python_.variable, " names '", python_.path,
             "', which must have ", main,
             "; it has not, and setup installs nothing outside its own environments. Install ", main,
             " there, or unset the variable.");
    say(str("$", python_.variable, " names '", python_.path, "', which has ", main, " ", *version));
  }

  /// One that was broken off while it was made has no pip, and is made afresh.
  bool has_environment() const {
    std::error_code error;
    const std::vector<std::string> folders = package_folders(info_, machine_);
    return fs::exists(python_.path, error) &&
           (installed_version("pip", folders) || missing_packages(info_.packages, folders).empty());
  }

  void make_environment(const std::string& log) {
    const auto [program, version] = choose_interpreter();
    say(str("making ", folder_, " with ", program, " (Python ", version, ")"));
    std::error_code error;
    fs::remove_all(folder_, error);
    fs::create_directories(folder_, error);
    TD_CHECK(!error, "setup ", info_.name, ": the folder '", folder_, "' must be made; got ", error.message(),
             ". $TANDEM_LAB_ENVIRONMENTS can name another place.");
    const int status = run_program({program, "-m", "venv", folder_}, log);
    if (status == 0 && has_environment()) return;
    fs::remove_all(folder_ + "/bin", error);
    throw Error(str("setup ", info_.name, ": '", program,
                    " -m venv' must make an environment with pip; it ended with status ", status, ": ",
                    cause_in(log),
                    ". Install Python's module venv (python3-venv on Debian and Ubuntu); see '", log, "'."));
  }

  std::pair<std::string, std::string> choose_interpreter() const {
    std::vector<std::string> candidates = options_.interpreters;
    if (candidates.empty())
      candidates = {"python3",    "python3.13", "python3.12", "python3.11",
                    "python3.10", "python3.9",  "python3.8"};
    std::string seen;
    for (const std::string& candidate : candidates) {
      const std::string version = version_of(candidate);
      if (version.empty()) continue;
      if (meets(version, info_.python)) return {candidate, version};
      seen += str(seen.empty() ? "" : ", ", candidate, " (", version, ")");
    }
    throw Error(str("setup ", info_.name, ": needs Python", info_.python.empty() ? " 3" : " " + info_.python,
                    "; found ", seen.empty() ? "none" : seen,
                    ". Install one under a name such as python3.11."));
  }

  void check_version() const {
    for (const std::string& folder : package_folders(info_, machine_)) {
      const std::string name = fs::path(folder).parent_path().filename().string();  // python3.11
      const std::string version = name.substr(std::min<size_t>(6, name.size()));
      TD_CHECK(meets(version, info_.python), "setup ", info_.name, ": its packages need Python ",
               info_.python, "; '", folder_, "' has ", version,
               ". Remove that folder and run setup once more.");
    }
  }

  void install(const std::vector<std::string>& packages, const std::vector<std::string>& further,
               const std::string& log) {
    say("installing " + joined(packages));
    std::vector<std::string> command = {python_.path, "-m",         "pip",
                                        "install",    "--no-input", "--disable-pip-version-check"};
    command.insert(command.end(), further.begin(), further.end());
    command.insert(command.end(), packages.begin(), packages.end());
    std::error_code error;
    fs::remove(log, error);
    const int status = run_program(command, log);
    TD_CHECK(status == 0, "setup ", info_.name, ": pip must install ", joined(packages),
             "; it ended with status ", status, ": ", cause_in(log), ". See '", log,
             "'. Without a network, put the wheels into a folder and set PIP_NO_INDEX=1 and "
             "PIP_FIND_LINKS=FOLDER.");
  }

  const DriverInfo& info_;
  const Machine& machine_;
  const SetupOptions& options_;
  std::string folder_;
  Interpreter python_;
};

}  // namespace

SetupResult setup(const DriverInfo& info, const Machine& machine, const std::vector<DriverInfo>& drivers,
                  const SetupOptions& options) {
  Setup own(info, machine, options);
  const bool shares = info.environment != info.name;
  const DriverInfo& owner = shares ? find_driver(drivers, info.environment) : info;
  for (const DriverInfo* one : {&info, &owner}) {
    const auto why_not = one->why_not.find(machine.platform);
    if (why_not != one->why_not.end() && !interpreter(*one, machine).given) {
      own.say(str("cannot be set up on ", machine.platform, ": ", why_not->second));
      return SetupResult::impossible;
    }
  }
  bool changed = false;
  if (shares) changed = setup(owner, machine, drivers, options) == SetupResult::ready;
  if (!info.packages.empty()) changed = own.packages() || changed;
  changed = own.build() || changed;
  const Availability now = availability(info, machine, drivers);
  if (options.build)
    TD_CHECK(now.available, "setup ", info.name, ": everything was done, and yet ", now.why, ".");
  own.say(str("ready", now.version.empty() ? "" : " (version " + now.version + ")"));
  if (!now.remark.empty()) own.say("note: " + now.remark);
  return changed ? SetupResult::ready : SetupResult::was_ready;
}

}  // namespace tandem::lab
