// The machine as it is now: processor, memory, limits of the container, load, and who else is busy.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::lab {

/// Model, flags, cores, caches, frequencies, governor, boost, throttling.
nlohmann::json processor_json(const std::string& proc, const std::string& sys);
/// Sizes in MiB.
nlohmann::json memory_json(const std::string& proc, const std::string& sys);
/// Kernel, operating system, load average, uptime, limits of the control group, clock source, mains.
nlohmann::json system_json(const std::string& proc, const std::string& sys, const std::string& etc);

/// What happens in `seconds`: percent of the processor stolen by the hypervisor, and processes that take more than a
/// tenth of a core, without this one. {"steal_percent": 0.1, "busy": [{"name": …, "pid": …, "percent": …}]}.
nlohmann::json watch_others(const std::string& proc, double seconds);

/// Variables that change what a framework does, by the beginnings of their names; those whose name sounds like a secret
/// are left out.
nlohmann::json environment_variables(const char* const* environment);

/// The commit of the git tree that holds the folder, read from its files; null where there is none.
nlohmann::json git_commit(const std::string& folder);

/// SHA-256 and bytes of a file, or {"error": …}.
nlohmann::json file_json(const std::string& path);

}  // namespace tandem::lab
