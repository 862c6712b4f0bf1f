// The catalogue of drivers, drivers/drivers.toml: what each needs, by which command it starts on this machine, and
// whether it can start here. lab/docs/setup.md describes the file's keys and the environment variables.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem::lab {

/// One table of drivers.toml.
struct DriverInfo {
  std::string name, title;
  std::vector<std::string> variants;
  std::vector<std::string> command;   // with {home}, {lab} and {python}
  std::vector<std::string> packages;  // pip's requirements, the framework itself first
  /// Installed with them, but not needed to start: an environment without them declines what needs them, by name.
  std::vector<std::string> more_packages;
  std::vector<std::string> build_packages;  // installed before them, where a package is built from its source
  std::vector<std::string> pip_options;     // further words for `pip install`
  std::string python;              // the versions of Python that have the packages: ">=3.8,<3.12"; empty: any
  std::string environment;         // the virtual environment that it lives in; its own name, or a shared one
  std::vector<std::string> build;  // what makes its program once the packages are there
  std::vector<std::string> built;  // the files that `build` leaves; {site} is the packages' folder
  std::vector<std::string>
      sources;  // the files, or folders of them, that it is built from: newer ones ask for a build
  std::vector<std::string> build_platforms;    // where `build` is needed; empty: everywhere
  std::vector<std::string> definitions;        // the files that define its networks: their lines are counted
  std::map<std::string, std::string> why_not;  // platform -> why no environment can be made there
  std::map<std::string, std::string> remarks;  // platform -> what a reader of `lab list` should know

  /// What `setup` installs: packages and more_packages.
  std::vector<std::string> all_packages() const;
  /// Starts with {python}, so that a virtual environment has to be there.
  bool needs_python() const;
};

/// What drivers.toml's words stand for on this machine.
struct Machine {
  std::string home;      // the folder that holds drivers/
  std::string lab;       // the running tandem-lab program
  std::string platform;  // "aarch64", "x86_64"

  /// With the platform of this machine and the path of this program.
  static Machine here(const std::string& home);
};

/// home/drivers/drivers.toml in the order of names, then those of a further file of the same form ("": none), which have
/// other names. Throws Error with file, table, key and rule.
std::vector<DriverInfo> read_drivers(const std::string& home, const std::string& further = "");
/// Those of a text, behind the ones that are known; `name` is what messages call it.
std::vector<DriverInfo> parse_drivers(const std::string& text, const std::string& name,
                                      std::vector<DriverInfo> known = {});
/// The driver of that name. Throws Error with the list of names.
const DriverInfo& find_driver(const std::vector<DriverInfo>& drivers, const std::string& name);

/// The folder of its virtual environment: $TANDEM_LAB_ENVIRONMENTS/NAME, or home/.venv-peers/NAME.
std::string environment_folder(const DriverInfo& info, const Machine& machine);
/// The interpreter: $TANDEM_LAB_PYTHON_NAME (of the driver, then of its environment), $TANDEM_LAB_PYTHON, or that of the
/// virtual environment. `given` says that a variable named it.
struct Interpreter {
  std::string path;
  bool given = false;
  std::string variable;  // that named it
};
Interpreter interpreter(const DriverInfo& info, const Machine& machine);
/// Where its packages lie. Those of a virtual environment are found without starting anything; an interpreter that a
/// variable names is asked, once.
std::vector<std::string> package_folders(const DriverInfo& info, const Machine& machine);
/// Its own packages, or those of the driver whose environment it shares.
std::vector<std::string> required_packages(const DriverInfo& info, const std::vector<DriverInfo>& drivers);
/// Whether `build` is to be run on this platform, and whether its files are there.
bool needs_build(const DriverInfo& info, const Machine& machine);
bool is_built(const DriverInfo& info, const Machine& machine);

/// The words with {home}, {lab}, {python} and {site} replaced. Throws Error for another word in braces.
std::vector<std::string> resolve(const std::vector<std::string>& words, const DriverInfo& info,
                                 const Machine& machine);
/// The command that starts the driver here.
std::vector<std::string> driver_command(const DriverInfo& info, const Machine& machine);

/// Whether the driver can start here. Looks at files, and starts no interpreter but one that a variable names.
struct Availability {
  bool available = false;
  std::string version;  // of the main package, where it is known
  std::string why;      // not available: the reason
  std::string fix;      // what to do about it; empty: nothing can be done on this platform
  std::string remark;   // of this platform, whether available or not
};
Availability availability(const DriverInfo& info, const Machine& machine,
                          const std::vector<DriverInfo>& drivers);

}  // namespace tandem::lab
