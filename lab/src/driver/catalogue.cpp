// Reads and checks drivers.toml. Where things lie on this machine is availability.cpp's matter.
#include "lab/src/driver/catalogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/src/driver/requirement.h"
#include "lab/src/files/toml.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

using Json = nlohmann::json;

/// One table of the file, with the place that messages begin with.
struct Table {
  const Json& values;
  std::string where;

  std::string text(const char* key) const {
    const Json& value = values.at(key);
    TD_CHECK(value.is_string() && !value.get_ref<const std::string&>().empty(), where, ".", key,
             ": must be a text; got ", value.dump(), ".");
    return value.get<std::string>();
  }
  std::string text_or(const char* key, const std::string& otherwise) const {
    return values.contains(key) ? text(key) : otherwise;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> found;
    if (!values.contains(key)) return found;
    const Json& list = values.at(key);
    TD_CHECK(list.is_array() && !list.empty(), where, ".", key, ": must be a list of texts; got ",
             list.dump(), ".");
    for (const Json& item : list) {
      TD_CHECK(item.is_string() && !item.get_ref<const std::string&>().empty(), where, ".", key,
               ": must be a list of texts; got ", list.dump(), ".");
      found.push_back(item.get<std::string>());
    }
    return found;
  }
  std::map<std::string, std::string> by_platform(const char* key) const {
    std::map<std::string, std::string> found;
    if (!values.contains(key)) return found;
    const Json& table = values.at(key);
    TD_CHECK(table.is_object(), where, ".", key, ": must be a table of texts by platform; got ", table.dump(),
             ".");
    for (const auto& [platform, words] : table.items()) {
      TD_CHECK(words.is_string(), where, ".", key, ".", platform, ": must be a text; got ", words.dump(),
               ".");
      found[platform] = words.get<std::string>();
    }
    return found;
  }
};

DriverInfo read_table(const std::string& name, const Table& table) {
  static const std::set<std::string> known = {"title",         "variants",        "command",     "packages",
                                              "more_packages", "build_packages",  "pip_options", "python",
                                              "build",         "environment",     "built",       "why_not",
                                              "remarks",       "build_platforms", "definitions", "sources"};
  for (const auto& [key, value] : table.values.items())
    TD_CHECK(known.count(key), table.where, ": there is no key '", key, "'. lab/docs/setup.md lists them.");
  for (const char* needed : {"title", "variants", "command"})
    TD_CHECK(table.values.contains(needed), table.where, ": must have the key '", needed, "'; it has not.");
  DriverInfo info;
  info.name = name;
  info.title = table.text("title");
  info.variants = table.texts("variants");
  info.command = table.texts("command");
  info.packages = table.texts("packages");
  info.more_packages = table.texts("more_packages");
  info.build_packages = table.texts("build_packages");
  info.pip_options = table.texts("pip_options");
  info.python = table.text_or("python", "");
  info.environment = table.text_or("environment", name);
  info.build = table.texts("build");
  info.built = table.texts("built");
  info.sources = table.texts("sources");
  info.build_platforms = table.texts("build_platforms");
  info.definitions = table.texts("definitions");
  info.why_not = table.by_platform("why_not");
  info.remarks = table.by_platform("remarks");
  try {
    meets("3", info.python);
  } catch (const Error& error) {
    throw Error(str(table.where, ".python: ", error.what()));
  }
  TD_CHECK(info.build.empty() == info.built.empty(), table.where,
           ": build and built go together, for the files tell whether it has been done; got one of them.");
  for (const auto* list : {&info.packages, &info.more_packages, &info.build_packages})
    for (const std::string& requirement : *list) {
      try {
        parse_requirement(requirement);
      } catch (const Error& error) {
        throw Error(str(table.where, ".packages: ", error.what()));
      }
    }
  return info;
}

}  // namespace

bool DriverInfo::needs_python() const {
  return std::any_of(command.begin(), command.end(),
                     [](const std::string& word) { return word.find("{python}") != std::string::npos; });
}

std::vector<std::string> DriverInfo::all_packages() const {
  std::vector<std::string> all = packages;
  all.insert(all.end(), more_packages.begin(), more_packages.end());
  return all;
}

std::vector<DriverInfo> parse_drivers(const std::string& text, const std::string& name,
                                      std::vector<DriverInfo> known) {
  const Json file = parse_toml(text, name);
  std::vector<DriverInfo> drivers = std::move(known);
  const auto is_there = [&](const std::string& driver) {
    return std::any_of(drivers.begin(), drivers.end(),
                       [&](const DriverInfo& other) { return other.name == driver; });
  };
  const size_t before = drivers.size();
  for (const auto& [driver, values] : file.items()) {
    TD_CHECK(values.is_object(), name, ": each driver must be a table; got ", driver, " = ", values.dump(),
             ".");
    TD_CHECK(!driver.empty() && driver.find(':') == std::string::npos, name,
             ": the name of a driver must have no colon, which comes before the variant; got '",
             io::one_line(driver, 80), "'.");
    TD_CHECK(!is_there(driver), name, ": the name of a driver must be its own; got ", driver,
             ", which the lab has. Rename it.");
    drivers.push_back(read_table(driver, {values, str(name, ": ", driver)}));
  }
  for (size_t i = before; i < drivers.size(); ++i)
    TD_CHECK(is_there(drivers[i].environment), name, ": ", drivers[i].name,
             ".environment: must be the name of a driver; got '", drivers[i].environment, "'.");
  return drivers;
}

std::vector<DriverInfo> read_drivers(const std::string& home, const std::string& further) {
  const auto read = [](const std::string& path, std::vector<DriverInfo> known) {
    const auto bytes = io::read_file("read", path, int64_t{1} << 20);
    return parse_drivers(std::string(bytes.begin(), bytes.end()), path, std::move(known));
  };
  std::vector<DriverInfo> drivers = read(home + "/drivers/drivers.toml", {});
  return further.empty() ? drivers : read(further, std::move(drivers));
}

const DriverInfo& find_driver(const std::vector<DriverInfo>& drivers, const std::string& name) {
  std::string names;
  for (const DriverInfo& info : drivers) {
    if (info.name == name) return info;
    names += (names.empty() ? "" : ", ") + info.name;
  }
  throw Error(str("there is no driver '", name, "'; there are ", names, ". 'tandem lab list' shows them."));
}

}  // namespace tandem::lab
