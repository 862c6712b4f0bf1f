#include "lab/src/record/publish.h"

#include <cctype>
#include <filesystem>

#include "lab/src/files/json.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {

namespace fs = std::filesystem;

namespace {

bool is_of_a_path(char c) {
  return c == '/' || c == '.' || c == '-' || c == '_' || c == '+' || c == '~' ||
         std::isalnum(static_cast<unsigned char>(c)) || (c & 0x80);
}

/// Texts and names of fields, all the way down.
Json scrubbed(const Json& value) {
  if (value.is_string()) return without_folders(value.get<std::string>());
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& each : value) out.push_back(scrubbed(each));
    return out;
  }
  if (!value.is_object()) return value;
  Json out = Json::object();
  for (const auto& [name, each] : value.items()) out[without_folders(name)] = scrubbed(each);
  return out;
}

void write(const std::string& path, const std::string& text) {
  io::write_atomically(path, [&](io::OutputFile& file) { file.write(text); });
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json read_json(const std::string& path) {
  const auto bytes = io::read_file("publish", path);
  return parse_json<Json>("publish '" + io::one_line(path) + "': the file ",
                          {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::string without_folders(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const bool begins = text[i] == '/' && (i == 0 || !is_of_a_path(text[i - 1]));
    if (!begins) {
      out += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_of_a_path(text[end])) ++end;
    const std::string path = text.substr(i, end - i);
    const size_t last = path.find_last_of('/', path.find_last_not_of('/'));
    const bool is_everywhere =
        path.starts_with("/proc/") || path.starts_with("/sys/") || path.starts_with("/dev/");
    out += is_everywhere || last == 0 || last == std::string::npos ? path : "…" + path.substr(last);
    i = end;
  }
  return out;
}

std::vector<std::string> publish(const std::string& from, const std::string& to) {
  const Results results = load_results(from);
  TD_CHECK(!results.runs.empty(), "publish '", io::one_line(from), "': the study must have a run; got none.");
  std::error_code ignored;
  fs::create_directories(to, ignored);
  TD_CHECK(fs::is_directory(to, ignored) && (fs::is_empty(to, ignored) || fs::exists(to + "/runs.jsonl.gz")),
           "publish to '", io::one_line(to),
           "': it must be a new folder, or one of an earlier publish; got something else. Name another.");
  if (fs::exists(to + "/study.json", ignored)) {
    const Json there = read_json(to + "/study.json"), cells = scrubbed(results.study.value("cells", Json()));
    TD_CHECK(
        there.value("name", "") == results.study.value("name", "") && there.value("cells", Json()) == cells,
        "publish to '", io::one_line(to),
        "': it must hold the same study, of the same cells; it holds another, '",
        io::one_line(there.value("name", ""), 60), "'. Remove that, or name another folder.");
  }
  std::vector<std::string> files;
  const auto put = [&](const char* name, const std::string& text) {
    files.push_back(to + "/" + name);
    write(files.back(), text);
  };
  put("study.json", text_of(scrubbed(results.study), 1));
  if (fs::exists(from + "/gate.json")) put("gate.json", text_of(scrubbed(read_json(from + "/gate.json")), 1));
  if (results.provenance.is_object()) {
    Json provenance = results.provenance;
    if (provenance.contains("environment") && provenance["environment"].is_object()) {
      Json kept = Json::object();
      for (const auto& [name, value] : provenance["environment"].items())
        if (value.is_string() && value.get<std::string>().find('/') == std::string::npos) kept[name] = value;
      provenance["environment"] = kept;
    }
    put("provenance.json", text_of(scrubbed(provenance), 1));
  }
  std::string lines;
  for (const Run& run : results.runs) lines += text_of(scrubbed(to_json(run)), -1);
  const auto packed = io::pack_gzip({reinterpret_cast<const uint8_t*>(lines.data()), lines.size()});
  put("runs.jsonl.gz", std::string(packed.begin(), packed.end()));
  return files;
}

}  // namespace tandem::lab
