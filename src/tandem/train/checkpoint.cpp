// Writing, reading and finding checkpoints. Numbers that must come back to the bit are stored as their bits.
#include "tandem/train/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tandem/core/mutex.h"
#include "tandem/io/file.h"
#include "tandem/io/json.h"
#include "tandem/io/safetensors.h"
#include "tandem/io/sha256.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kFormat = "tandem-checkpoint";
constexpr const char* kVersion = "4";
const std::string &kPrefix = *new std::string("checkpoint-"), &kSuffix = *new std::string(".safetensors");

std::string state_json(const RunState& state) {
  ordered_json out = {{"epoch", state.epoch},
                      {"batch", state.batch},
                      {"step", state.step},
                      {"loss_sum", hex_bits(state.loss_sum)},
                      {"loss_weight", hex_bits(state.loss_weight)},
                      {"seconds", hex_bits(state.seconds)},
                      {"generator_seed", state.generator.seed},
                      {"generator_offset", state.generator.offset}};
  for (const EpochMetrics& row : state.history) {
    ordered_json values = ordered_json::array();
    for (const Metric& metric : row.values) values.push_back({metric.name, hex_bits(metric.value)});
    out["history"].push_back({row.epoch, row.step, hex_bits(row.lr), hex_bits(row.seconds), values});
  }
  for (const Choice& choice : state.choices)
    out["choices"].push_back({choice.key, choice.algorithm, choice.microseconds});
  if (state.switches) {
    out["frozen"] = state.switches->frozen;
    out["still"] = state.switches->still;
  }
  return out.dump();
}

RunState parse_state(const std::string& text) {
  const auto in = io::parse_json<ordered_json>("state: ", text);
  const auto whole = [](const ordered_json& value) {
    if (!value.is_number_integer() || value > INT64_MAX) throw std::invalid_argument("no whole number");
    return value.get<int64_t>();
  };
  RunState state;
  state.epoch = whole(in.at("epoch"));
  state.batch = whole(in.at("batch"));
  state.step = whole(in.at("step"));
  state.loss_sum = from_hex_bits(in.at("loss_sum").get<std::string>());
  state.loss_weight = from_hex_bits(in.at("loss_weight").get<std::string>());
  state.generator = {in.at("generator_seed").get<uint64_t>(), in.at("generator_offset").get<uint64_t>()};
  state.seconds = from_hex_bits(in.at("seconds").get<std::string>());
  for (const ordered_json& row : in.value("history", ordered_json::array())) {
    const auto number = [](const ordered_json& bits) { return from_hex_bits(bits.get<std::string>()); };
    EpochMetrics epoch{whole(row.at(0)), whole(row.at(1)), number(row.at(2)), number(row.at(3))};
    for (const ordered_json& metric : row.at(4))
      epoch.values.push_back({metric.at(0).get<std::string>(), number(metric.at(1))});
    state.history.push_back(std::move(epoch));
  }
  for (const ordered_json& row : in.value("choices", ordered_json::array()))
    state.choices.push_back(
        {row.at(0).get<std::string>(), row.at(1).get<std::string>(), row.at(2).get<double>()});
  if (in.contains("frozen"))
    state.switches = {.frozen = in.at("frozen").get<std::vector<std::string>>(),
                      .still = in.at("still").get<std::vector<std::string>>()};
  return state;
}

/// Over everything that a checkpoint holds, names, types and shapes included.
std::string sum_of(const std::string& settings, const std::string& state, const std::string& callbacks,
                   const io::NamedTensors& tensors) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : tensors)
    lines.push_back(str(name, " ", tensor.dtype(), " ", tensor.shape()));
  std::sort(lines.begin(), lines.end());
  std::string text = str(kFormat, " ", kVersion, "\n", settings, "\n", state, "\n", callbacks, "\n");
  for (const std::string& line : lines) text += line + "\n";
  return io::sha256(text + io::weights_sha256(tensors));
}

/// The step in a file's name, or -1 where it is no checkpoint's.
int64_t step_in_name(const std::string& file) {
  if (file.size() <= kPrefix.size() + kSuffix.size() || !file.starts_with(kPrefix) ||
      !file.ends_with(kSuffix))
    return -1;
  const std::string digits = file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
  if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

/// The names of what is in a folder; none where there is no folder. One that cannot be read must not look empty.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  TD_CHECK(!error || error == std::errc::no_such_file_or_directory, "load '", io::one_line(folder),
           "': cannot list the folder: ", error.message(), ". Check the path and the disk.");
  return names;
}

/// Whether files could be used when this process last wrote or read them, and what they looked like then. Reading a
/// checkpoint to find out takes as long as writing one; a file that looks as it did is not read again.
using Look = std::array<int64_t, 6>;
struct Known {
  Look look;
  bool usable;
};
struct KnownFiles {
  Mutex mutex{LockOrder::data};
  std::map<std::string, Known> by_path;
};
KnownFiles& known_files() {
  static KnownFiles& files = *new KnownFiles;
  return files;
}

std::optional<Look> look_of(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return std::nullopt;
  return Look{static_cast<int64_t>(s.st_dev),
              static_cast<int64_t>(s.st_ino),
              static_cast<int64_t>(s.st_size),
              static_cast<int64_t>(s.st_mtim.tv_sec),
              static_cast<int64_t>(s.st_mtim.tv_nsec),
              static_cast<int64_t>(s.st_ctim.tv_sec) * 1000000000 + static_cast<int64_t>(s.st_ctim.tv_nsec)};
}

/// `look`: from before the file was read.
void remember(const std::string& path, const std::optional<Look>& look, bool usable) {
  std::lock_guard lock(known_files().mutex);
  if (look)
    known_files().by_path[path] = {*look, usable};
  else
    known_files().by_path.erase(path);
}

bool is_usable(const std::string& path) {
  const std::optional<Look> look = look_of(path);
  if (!look) return false;
  {
    std::lock_guard lock(known_files().mutex);
    const auto at = known_files().by_path.find(path);
    if (at != known_files().by_path.end() && at->second.look == *look) return at->second.usable;
  }
  try {
    load_checkpoint(path);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Leaves `saved`, which was just written, and the newest other one that can be used; what is older goes. Damaged files
/// count for nothing: those that are newer than the two stay where they are, the others go with the rest. What cannot be
/// removed stays: it is in nobody's way.
void remove_old(const std::string& folder, const std::string& saved) {
  std::error_code ignored;
  bool has_other = false;
  for (const std::string& path : list_checkpoints(folder)) {
    if (path == saved) continue;
    if (!has_other) {
      has_other = is_usable(path);
    } else if (fs::remove(path, ignored)) {
      remember(path, std::nullopt, false);
    }
  }
  for (const std::string& file : files_in(folder))
    if (file.ends_with(".tmp") && step_in_name(file.substr(0, file.size() - 4)) >= 0)
      fs::remove(fs::path(folder) / file, ignored);
}

}  // namespace

std::string hex_bits(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  std::string text(16, '0');
  for (int i = 0; i < 16; ++i) text[15 - i] = "0123456789abcdef"[bits >> (4 * i) & 15];
  return text;
}

double from_hex_bits(const std::string& text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw std::invalid_argument("not 16 hex digits");
  return std::bit_cast<double>(static_cast<uint64_t>(std::stoull(text, nullptr, 16)));
}

std::string save_checkpoint(const std::string& folder, const Checkpoint& checkpoint) {
  io::NamedTensors tensors;
  const auto add = [&](const std::string& prefix, const nn::NamedTensors& part) {
    for (const auto& [name, tensor] : part) tensors.emplace_back(prefix + name, tensor);
  };
  add("model.", checkpoint.model);
  add("optimizer.", checkpoint.optimizer);
  add("ema.", checkpoint.ema);
  add("scaler.", checkpoint.scaler);
  add("carried.", checkpoint.carried);
  ordered_json callback_states = ordered_json::array();
  for (const Checkpoint::CallbackState& row : checkpoint.callbacks) {
    callback_states.push_back({row.name, row.state});
    add("callback." + row.name + ".", row.tensors);
  }
  const std::string state = state_json(checkpoint.state), callbacks = callback_states.dump();
  const std::string path = (fs::path(folder) / str(kPrefix, checkpoint.state.step, kSuffix)).string();
  io::save_safetensors(path, tensors,
                       {{"format", kFormat},
                        {"version", kVersion},
                        {"settings", checkpoint.settings},
                        {"state", state},
                        {"callbacks", callbacks},
                        {"sha256", sum_of(checkpoint.settings, state, callbacks, tensors)}});
  remember(path, look_of(path), true);
  try {
    remove_old(folder, path);
  } catch (const Error&) {  // the checkpoint is written; what is too old goes with the next
  }
  return path;
}

namespace {

Checkpoint read_checkpoint(const std::string& path) {
  const io::SafetensorsFile file = io::load_safetensors(path);
  const std::string what = str("load '", io::one_line(path), "': ");
  const auto entry = [&](const char* key) {
    const auto at = file.metadata.find(key);
    return at == file.metadata.end() ? std::string() : at->second;
  };
  TD_CHECK(entry("format") == kFormat, what, "this is a safetensors file but no checkpoint of Tandem.");
  TD_CHECK(entry("version") == kVersion, what, "the checkpoint must be of version ", kVersion, "; got '",
           io::one_line(entry("version")), "'. Resume with the version of Tandem that wrote it.");
  TD_CHECK(entry("sha256") == sum_of(entry("settings"), entry("state"), entry("callbacks"), file.tensors),
           what, "the checkpoint is damaged: its content does not have the sum that it was written with.");
  Checkpoint checkpoint;
  try {
    checkpoint.state = parse_state(entry("state"));
    checkpoint.settings = io::parse_json<ordered_json>("settings: ", entry("settings")).dump();
    for (const ordered_json& row : io::parse_json<ordered_json>("callbacks: ", entry("callbacks")))
      checkpoint.callbacks.push_back({row.at(0).get<std::string>(), row.at(1).get<std::string>(), {}});
  } catch (const std::exception&) {
    throw Error(what + "the checkpoint's settings or position cannot be read; it was not written by Tandem.");
  }
  for (const auto& row : file.tensors) {
    const auto take = [&row](const std::string& prefix, nn::NamedTensors& into) {
      if (row.first.starts_with(prefix)) into.emplace_back(row.first.substr(prefix.size()), row.second);
    };
    take("model.", checkpoint.model);
    take("optimizer.", checkpoint.optimizer);
    take("ema.", checkpoint.ema);
    take("scaler.", checkpoint.scaler);
    take("carried.", checkpoint.carried);
    for (Checkpoint::CallbackState& callback : checkpoint.callbacks)
      take("callback." + callback.name + ".", callback.tensors);
  }
  return checkpoint;
}

}  // namespace

Checkpoint load_checkpoint(const std::string& path) {
  const std::optional<Look> look = look_of(path);
  try {
    Checkpoint checkpoint = read_checkpoint(path);
    remember(path, look, true);
    return checkpoint;
  } catch (const Error&) {
    remember(path, look, false);
    throw;
  }
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& file : files_in(folder))
    if (const int64_t step = step_in_name(file); step >= 0)
      found.emplace_back(step, (fs::path(folder) / file).string());
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::optional<FoundCheckpoint> newest_checkpoint(const std::string& folder,
                                                 std::vector<std::string>& warnings) {
  const std::vector<std::string> paths = list_checkpoints(folder);
  for (const std::string& path : paths) {
    try {
      return FoundCheckpoint{load_checkpoint(path), path};
    } catch (const OutOfMemory&) {  // not the checkpoint's fault: an older one would be taken in its place
      throw;
    } catch (const Error& error) {
      warnings.push_back(error.what());
    }
  }
  TD_CHECK(paths.empty(), "resume '", io::one_line(folder), "': none of its ", paths.size(),
           " checkpoints can be used. Begin a new run in another `out`. The newest: ", warnings.front());
  return std::nullopt;
}

}  // namespace tandem
