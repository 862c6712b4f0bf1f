// The catalogue of drivers and `lab setup`, with an interpreter and a pip that are shell scripts in a temporary folder.
#include "lab/src/driver/catalogue.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lab/src/driver/environment.h"
#include "lab/src/driver/requirement.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

// Stands in for python3: answers the version, makes environments (copies of itself) and installs packages (empty dist-info
// folders of the version that a requirement names with ==, or 1.0). Calls are noted in $FAKE/calls. The package
// no_such_package makes pip fail, the file $FAKE/venv_fails makes venv fail.
constexpr const char* kFakePython = R"sh(#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
echo "$(basename "$0") $*" >> "$FAKE/calls"
case "$1" in
  -c) case "$2" in
        *version_info*) cat "$here/version" ;;
        *sys.path*) echo "$FAKE/system/packages" ;;
      esac ;;
  -m) case "$2" in
        venv) [ -e "$FAKE/venv_fails" ] && { mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "ensurepip is not available"; exit 1; }
              version=$(cat "$here/version")
              mkdir -p "$3/bin" "$3/lib/python$version/site-packages/pip-23.dist-info"
              cp "$0" "$3/bin/python"; cp "$here/version" "$3/bin/version" ;;
        pip) shift 3
             for word in "$@"; do
               case "$word" in
                 -*) ;;
                 no_such_package*) echo "Collecting $word"; echo "ERROR: No matching distribution found for $word"; exit 1 ;;
                 *) name=$(echo "$word" | sed 's/[=<>!~].*//'); number=$(echo "$word" | sed -n 's/.*==//p')
                    mkdir -p "$here/../lib/python$(cat "$here/version")/site-packages/$name-${number:-1.0}.dist-info" ;;
               esac
             done ;;
      esac ;;
  *) # a build script: makes the file that its second argument names
     [ "$2" = fails ] && { echo "fatal: no compiler"; exit 3; }
     mkdir -p "$(dirname "$2")" && : > "$2" ;;
esac
)sh";

constexpr const char* kDrivers = R"(
[own]
title = "Own"
variants = ["eager", "graph"]
command = ["{lab}", "driver"]
[old]
title = "An old framework"
variants = ["eager"]
command = ["{python}", "{home}/drivers/old.py"]
packages = ["old_frame==1.9.1", "numpy<1.24"]
more_packages = ["pictures"]
build_packages = ["wheel"]
pip_options = ["--no-build-isolation"]
python = ">=3.8,<3.12"
[native]
title = "A library in C++"
variants = ["eager"]
command = ["{home}/build-peers/native"]
build = ["{python}", "build.py", "{home}/build-peers/native"]
built = ["{home}/build-peers/native"]
environment = "old"
[gone]
title = "Gone"
variants = ["eager"]
command = ["{python}", "{home}/drivers/old.py"]
packages = ["gone"]
[gone.why_not]
arm = "its last wheels are for x86-64 only"
[gone.remarks]
x86_64 = "slow here"
)";

class Drivers : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "tandem_lab_drivers_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    root_ = folder;
    fs::create_directories(root_ / "home/drivers");
    write(root_ / "home/drivers/old.py", "");
    write(root_ / "lab", "");
    python("python3", "3.13");
    python("python3.9", "3.9");
    machine_ = {(root_ / "home").string(), (root_ / "lab").string(), "x86_64"};
    drivers_ = parse_drivers(kDrivers, "drivers.toml");
    setenv("FAKE", root_.c_str(), 1);
    for (const char* variable : {"TANDEM_LAB_ENVIRONMENTS", "TANDEM_LAB_PYTHON", "TANDEM_LAB_PYTHON_OLD"})
      unsetenv(variable);
  }
  void TearDown() override {
    for (const char* variable :
         {"FAKE", "TANDEM_LAB_ENVIRONMENTS", "TANDEM_LAB_PYTHON", "TANDEM_LAB_PYTHON_OLD"})
      unsetenv(variable);
    fs::remove_all(root_);
  }

  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  /// An interpreter in a folder of its own, with its version beside it.
  void python(const std::string& name, const std::string& version) {
    const fs::path folder = root_ / "programs" / name;
    write(folder / name, kFakePython);
    write(folder / "version", version + "\n");
    chmod((folder / name).c_str(), 0755);
    interpreters_.push_back((folder / name).string());
  }
  const DriverInfo& driver(const std::string& name) const { return find_driver(drivers_, name); }
  Availability look(const std::string& name) const { return availability(driver(name), machine_, drivers_); }
  SetupResult set_up(const std::string& name) {
    said_.clear();
    SetupOptions options;
    options.interpreters = interpreters_;
    options.say = [this](const std::string& line) { said_ += line + "\n"; };
    return setup(driver(name), machine_, drivers_, options);
  }
  std::string refusal(const std::string& name) {
    try {
      set_up(name);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }
  std::string calls() const {
    std::stringstream text;
    text << std::ifstream(root_ / "calls").rdbuf();
    return text.str();
  }
  std::string packages() const {
    return (root_ / "home/.venv-peers/old/lib/python3.9/site-packages").string();
  }

  fs::path root_;
  Machine machine_;
  std::vector<DriverInfo> drivers_;
  std::vector<std::string> interpreters_;
  std::string said_;
};

std::string error_of(const std::string& toml) {
  try {
    parse_drivers(toml, "d.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Requirements, VersionsMeetTheirConditions) {
  EXPECT_TRUE(meets("1.9.1", "==1.9.1"));
  EXPECT_FALSE(meets("1.9.10", "==1.9.1"));
  EXPECT_TRUE(meets("1.23.5", "<1.24"));
  EXPECT_FALSE(meets("1.24.0", "<1.24"));
  EXPECT_TRUE(meets("3.10", ">=3.8,<3.12"));
  EXPECT_FALSE(meets("3.12", ">=3.8,<3.12"));
  EXPECT_FALSE(meets("3.7", ">=3.8,<3.12"));
  EXPECT_TRUE(meets("2.11.0+cpu", "==2.11"));
  EXPECT_TRUE(meets("2.1.9", "~=2.1.3"));
  EXPECT_FALSE(meets("2.2.0", "~=2.1.3"));
  EXPECT_FALSE(meets("2.1", "!=2.1.0"));
  EXPECT_TRUE(meets("7", ""));
  EXPECT_THROW(meets("1", "about 3"), Error);
  EXPECT_THROW(meets("1", "==1.x"), Error);
  EXPECT_THROW(meets("1", "=>1"), Error);
}

TEST(Requirements, NamesAreComparedAsPipComparesThem) {
  EXPECT_EQ(parse_requirement("Old_Frame.Extra[cuda12] >= 1.2").name, "old-frame-extra");
  EXPECT_EQ(parse_requirement("Old_Frame[cuda12] >= 1.2").conditions, ">= 1.2");
  EXPECT_THROW(parse_requirement("<1.2"), Error);
  EXPECT_THROW(parse_requirement("a; python_version<'3'"), Error);
  EXPECT_THROW(parse_requirement("a[b"), Error);
}

TEST_F(Drivers, TheCatalogueOfTheSourceTreeIsRead) {
  const std::vector<DriverInfo> all = read_drivers(TANDEM_SOURCE_DIR "/lab");
  EXPECT_EQ(find_driver(all, "keras").environment, "tensorflow");
  EXPECT_EQ(find_driver(all, "libtorch").environment, "pytorch");
  EXPECT_EQ(find_driver(all, "tandem").variants, (std::vector<std::string>{"eager", "graph"}));
  for (const DriverInfo& info : all) {
    SCOPED_TRACE(info.name);
    EXPECT_NO_THROW(driver_command(info, machine_));
    EXPECT_NO_THROW(availability(info, machine_, all));
    EXPECT_NO_THROW(resolve(info.build, info, machine_));
  }
}

TEST_F(Drivers, AMistakeInTheFileIsNamedWithItsPlace) {
  EXPECT_TRUE(
      has(error_of("[a]\ntitle = \"A\"\nvariants = [\"x\"]\n"), "d.toml: a: must have the key 'command'"));
  const std::string good = "[a]\ntitle = \"A\"\nvariants = [\"x\"]\ncommand = [\"y\"]\n";
  EXPECT_EQ(error_of(good), "none");
  EXPECT_TRUE(has(error_of(good + "colour = 1\n"), "there is no key 'colour'"));
  EXPECT_TRUE(
      has(error_of(good + "packages = \"numpy\"\n"), "a.packages: must be a list of texts; got \"numpy\""));
  EXPECT_TRUE(has(error_of(good + "packages = [\"numpy about 3\"]\n"), "a.packages: a condition must be"));
  EXPECT_TRUE(has(error_of(good + "python = \"three\"\n"), "a.python: a condition must be"));
  EXPECT_TRUE(
      has(error_of(good + "environment = \"b\"\n"), "a.environment: must be the name of a driver; got 'b'"));
  EXPECT_TRUE(has(error_of(good + "build = [\"z\"]\n"), "build and built go together"));
  EXPECT_TRUE(has(error_of(good + "why_not = [1]\n"), "by platform"));
  EXPECT_TRUE(has(error_of("a = 1\n"), "each driver must be a table"));
}

TEST_F(Drivers, AFurtherFileAddsDriversOfOtherNames) {
  const std::string home = TANDEM_SOURCE_DIR "/lab", path = machine_.home + "/more.toml";
  const auto reading = [&](const std::string& text) -> std::string {
    std::ofstream(path) << text;
    try {
      read_drivers(home, path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string rest = "]\ntitle = \"A\"\nvariants = [\"eager\"]\ncommand = [\"/bin/sh\"]\n";
  EXPECT_EQ(reading("[tandem_old" + rest), "");
  const std::vector<DriverInfo> all = read_drivers(home, path);
  EXPECT_EQ(all.back().name, "tandem_old");
  EXPECT_EQ(all.size(), read_drivers(home).size() + 1);
  EXPECT_TRUE(availability(all.back(), machine_, all).available);
  EXPECT_EQ(driver_command(all.back(), machine_), std::vector<std::string>{"/bin/sh"});
  EXPECT_EQ(reading("[torch_new" + rest + "environment = \"pytorch\"\n"), "") << "one of the lab's";
  EXPECT_TRUE(has(reading("[tandem" + rest), "the name of a driver must be its own; got tandem"));
  EXPECT_TRUE(has(reading("[\"a:b\"" + rest), "must have no colon"));
  EXPECT_TRUE(has(reading("[a" + rest + "environment = \"b\"\n"), "must be the name of a driver; got 'b'"));
}

TEST_F(Drivers, AnUnknownNameGivesTheList) {
  try {
    driver("caffe");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "there is no driver 'caffe'; there are gone, native, old, own. 'tandem lab list' shows them.");
  }
}

TEST_F(Drivers, CommandsAreResolvedForTheMachine) {
  EXPECT_EQ(driver_command(driver("own"), machine_), (std::vector<std::string>{machine_.lab, "driver"}));
  EXPECT_EQ(driver_command(driver("old"), machine_),
            (std::vector<std::string>{machine_.home + "/.venv-peers/old/bin/python",
                                      machine_.home + "/drivers/old.py"}));
  setenv("TANDEM_LAB_ENVIRONMENTS", "elsewhere", 1);
  EXPECT_EQ(driver_command(driver("old"), machine_)[0], "elsewhere/old/bin/python");
  setenv("TANDEM_LAB_PYTHON", "python3", 1);
  EXPECT_EQ(driver_command(driver("old"), machine_)[0], "python3");
  setenv("TANDEM_LAB_PYTHON_OLD", "some/python", 1);
  EXPECT_EQ(driver_command(driver("old"), machine_)[0], "some/python");
  EXPECT_EQ(resolve({"{python}"}, driver("native"), machine_)[0], "some/python")
      << "it lives in old's environment";
  EXPECT_THROW(resolve({"{temper}"}, driver("old"), machine_), Error);
}

TEST_F(Drivers, WhatIsAbsentHasAReasonAndAMend) {
  EXPECT_TRUE(look("own").available);
  EXPECT_EQ(look("old").why, "its environment has not been made");
  EXPECT_EQ(look("old").fix, "run 'tandem lab setup old'");
  EXPECT_EQ(look("gone").remark, "slow here");
  machine_.platform = "arm";
  EXPECT_FALSE(look("gone").available);
  EXPECT_EQ(look("gone").why, "its last wheels are for x86-64 only");
  EXPECT_EQ(look("gone").fix, "");
  fs::remove(root_ / "lab");
  EXPECT_FALSE(look("own").available);
}

TEST_F(Drivers, SetupMakesAnEnvironmentWithAnInterpreterOfTheRange) {
  EXPECT_EQ(set_up("old"), SetupResult::ready);
  EXPECT_TRUE(has(said_, "python3.9 (Python 3.9)\n")) << said_;
  EXPECT_TRUE(has(said_, "old: installing wheel\nold: installing old_frame==1.9.1, numpy<1.24, pictures\n"))
      << said_;
  EXPECT_TRUE(has(said_, "old: ready (version 1.9.1)\n")) << said_;
  EXPECT_TRUE(has(calls(), "--no-build-isolation old_frame==1.9.1 numpy<1.24 pictures")) << calls();
  const Availability now = look("old");
  EXPECT_TRUE(now.available) << now.why;
  EXPECT_EQ(now.version, "1.9.1");
}

TEST_F(Drivers, ASecondSetupCallsNoPip) {
  set_up("old");
  fs::remove(root_ / "calls");
  EXPECT_EQ(set_up("old"), SetupResult::was_ready);
  EXPECT_EQ(calls(), "");
  EXPECT_TRUE(has(said_, "all packages are there")) << said_;
}

TEST_F(Drivers, APackageOfTheWrongVersionIsMissing) {
  set_up("old");
  fs::rename(packages() + "/numpy-1.0.dist-info", packages() + "/numpy-1.25.0.dist-info");
  EXPECT_EQ(look("old").why, "its environment lacks numpy<1.24");
  fs::remove(root_ / "calls");
  fs::remove_all(packages() + "/numpy-1.25.0.dist-info");
  EXPECT_EQ(set_up("old"), SetupResult::ready);
  EXPECT_TRUE(has(calls(), "pip install")) << calls();
}

TEST_F(Drivers, OneThatLacksAFurtherPackageStartsAndIsCompletedBySetup) {
  set_up("old");
  fs::remove_all(packages() + "/pictures-1.0.dist-info");
  EXPECT_TRUE(look("old").available) << look("old").why;
  EXPECT_EQ(set_up("old"), SetupResult::ready);
  EXPECT_TRUE(fs::exists(packages() + "/pictures-1.0.dist-info"));
}

TEST_F(Drivers, AFailingPipIsOneLineWithItsCauseAndKeepsItsLog) {
  drivers_ = parse_drivers(
      "[bad]\ntitle = \"Bad\"\nvariants = [\"x\"]\ncommand = [\"{python}\"]\npackages = "
      "[\"no_such_package\"]\n",
      "d.toml");
  const std::string error = refusal("bad");
  EXPECT_TRUE(has(
      error,
      "setup bad: pip must install no_such_package; it ended with status 1: No matching distribution found"))
      << error;
  EXPECT_TRUE(has(error, "PIP_FIND_LINKS")) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_TRUE(fs::exists(root_ / "home/.venv-peers/bad/setup.log"));
  EXPECT_FALSE(look("bad").available);
}

TEST_F(Drivers, AnEnvironmentThatFailedHalfwayIsMadeAfresh) {
  write(root_ / "venv_fails", "");
  const std::string error = refusal("old");
  EXPECT_TRUE(has(error, "ensurepip is not available")) << error;
  EXPECT_TRUE(has(error, "python3-venv")) << error;
  EXPECT_FALSE(look("old").available);
  fs::remove(root_ / "venv_fails");
  // One that was killed in between leaves its interpreter and no pip.
  write(root_ / "home/.venv-peers/old/bin/python", "");
  EXPECT_EQ(set_up("old"), SetupResult::ready);
}

TEST_F(Drivers, NoInterpreterOfTheRangeIsSaidWithWhatWasFound) {
  interpreters_.pop_back();
  const std::string error = refusal("old");
  EXPECT_TRUE(has(error, "setup old: needs Python >=3.8,<3.12; found ")) << error;
  EXPECT_TRUE(has(error, "(3.13)")) << error;
}

TEST_F(Drivers, AnEnvironmentOfAnotherPythonIsRefused) {
  set_up("old");
  fs::rename(root_ / "home/.venv-peers/old/lib/python3.9", root_ / "home/.venv-peers/old/lib/python3.13");
  EXPECT_TRUE(has(refusal("old"), "its packages need Python >=3.8,<3.12")) << refusal("old");
}

TEST_F(Drivers, ASharedEnvironmentIsSetUpFirstAndThenItsProgramIsBuilt) {
  EXPECT_EQ(look("native").why, "its environment has not been made");
  EXPECT_EQ(set_up("native"), SetupResult::ready);
  EXPECT_TRUE(has(said_, "old: ready")) << said_;
  EXPECT_TRUE(has(said_, "native: building: ")) << said_;
  EXPECT_TRUE(look("native").available) << look("native").why;
  fs::remove(root_ / "home/build-peers/native");
  EXPECT_EQ(look("native").why, "its program has not been built, or before its sources were changed");
  EXPECT_EQ(set_up("native"), SetupResult::ready);
  EXPECT_EQ(set_up("native"), SetupResult::was_ready);

  for (DriverInfo& info : drivers_)
    if (info.name == "native") info.sources = {"{home}/native", "{home}/nosuch"};
  fs::create_directories(root_ / "home/native/more");
  std::ofstream(root_ / "home/native/more/network.cpp") << "old";
  fs::last_write_time(root_ / "home/native/more/network.cpp",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_TRUE(look("native").available) << look("native").why;
  fs::last_write_time(root_ / "home/native/more/network.cpp",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_FALSE(look("native").available) << "a source is newer";
  fs::last_write_time(root_ / "home/native/more/network.cpp",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
}

TEST_F(Drivers, AFailingBuildIsOneLineWithItsCause) {
  set_up("old");
  for (DriverInfo& info : drivers_)
    if (info.name == "native") info.build = {"{python}", "build.py", "fails"};
  EXPECT_TRUE(has(refusal("native"), "the build must end with status 0; got 3: fatal: no compiler"))
      << refusal("native");
}

TEST_F(Drivers, APlatformWithoutPackagesIsToldWhy) {
  machine_.platform = "arm";
  EXPECT_EQ(set_up("gone"), SetupResult::impossible);
  EXPECT_EQ(said_, "gone: cannot be set up on arm: its last wheels are for x86-64 only\n");
  EXPECT_EQ(calls(), "");
}

TEST_F(Drivers, AnInterpreterThatAVariableNamesIsUsedAsItIs) {
  setenv("TANDEM_LAB_PYTHON", interpreters_[0].c_str(), 1);
  fs::create_directories(root_ / "system/packages");
  EXPECT_TRUE(has(look("old").why, "which has no old-frame")) << look("old").why;
  EXPECT_TRUE(has(refusal("old"), "setup installs nothing outside its own environments")) << refusal("old");
  fs::create_directories(root_ / "system/packages/old_frame_cu112-2.0.dist-info");
  const Availability now = look("old");
  EXPECT_TRUE(now.available) << now.why;
  EXPECT_EQ(now.version, "2.0");
  EXPECT_EQ(set_up("old"), SetupResult::was_ready);
  EXPECT_FALSE(has(calls(), "pip")) << calls();
  setenv("TANDEM_LAB_PYTHON_OLD", "no/such/python", 1);
  EXPECT_EQ(look("old").why, "$TANDEM_LAB_PYTHON_OLD names 'no/such/python', which is no program");
}

}  // namespace
}  // namespace tandem::lab
