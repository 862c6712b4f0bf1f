// The machine and the build.
#include "tandem/train/environment.h"

#include <sys/utsname.h>
#include <zlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tandem/core/backend.h"
#include "tandem/core/error.h"
#include "tandem/core/threads.h"
#include "tandem/io/file.h"
#if __has_include(<tandem_commit.h>)
#include <tandem_commit.h>  // written by the build (cmake/commit.cmake)
#else
#define TANDEM_COMMIT ""
#endif

namespace tandem {

using nlohmann::ordered_json;

std::vector<DeviceRow> device_rows() {
  std::vector<DeviceRow> rows;
  for (int k = 0; k < kDeviceKinds; ++k) {
    const auto kind = static_cast<DeviceKind>(k);
    try {
      Backend& owner = backend(kind);
      const int count =
          kind == DeviceKind::cpu ? 1 : owner.device_count();  // its others are the same once more
      for (int i = 0; i < count; ++i) {
        const Device device{kind, static_cast<uint8_t>(i)};
        rows.push_back({to_string(device), owner.describe(device), true});
      }
    } catch (const Error& error) {
      const std::string name = to_string(Device{kind, 0});
      rows.push_back({name.substr(0, name.find(':')), error.what(), false});
    }
  }
  return rows;
}

std::string environment_json(Device device) {
  utsname system{};
  ::uname(&system);
  ordered_json out = {{"tandem", TANDEM_VERSION},
                      {"commit", std::string(TANDEM_COMMIT).empty() ? ordered_json() : TANDEM_COMMIT},
#ifdef __clang__
                      {"compiler", "clang " __VERSION__},
#else
                      {"compiler", "g++ " __VERSION__},
#endif
                      {"system", str(system.sysname, " ", system.release)},
                      {"processor", processor()},
                      {"cores", std::thread::hardware_concurrency()},
                      {"threads", threads()},
                      {"libraries",
                       {{"zlib", zlibVersion()},
                        {"nlohmann_json", str(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR,
                                              ".", NLOHMANN_JSON_VERSION_PATCH)}}}};
  // Not all of the machine's: opening a GPU that is not used takes a while.
  for (const Device each : {Device{}, device}) out["devices"][to_string(each)] = backend(each).describe(each);
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void save_environment(const std::string& folder, Device device) {
  io::write_atomically((std::filesystem::path(folder) / "environment.json").string(),
                       [&](io::OutputFile& file) { file.write(environment_json(device)); });
}

}  // namespace tandem
