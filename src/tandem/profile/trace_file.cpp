// A profile as a file in Chrome's trace event format. Two processes are shown: 1 is the host, with its threads; 2 the
// device, whose kernels and copies lie on as many rows as run at the same time.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/io/file.h"
#include "tandem/profile/profile.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int kHost = 1, kDevice = 2;
constexpr int kFirstCopyRow = 1000;

/// A line of the file, by the place of what it shows.
struct Line {
  enum class Of : uint8_t { host, activity, memory } of;
  size_t index;
  int row;  // activities
  int64_t begin_ns, end_ns;
};

/// The first row that is free at a time; it is taken then.
class Rows {
 public:
  int take(int64_t begin_ns, int64_t end_ns) {
    const auto free = std::find_if(ends_.begin(), ends_.end(), [&](int64_t end) { return end <= begin_ns; });
    if (free == ends_.end()) {
      ends_.push_back(end_ns);
      return static_cast<int>(ends_.size()) - 1;
    }
    *free = end_ns;
    return static_cast<int>(free - ends_.begin());
  }
  int count() const { return static_cast<int>(ends_.size()); }

 private:
  std::vector<int64_t> ends_;
};

class TraceFile {
 public:
  explicit TraceFile(const Profile& profile) : profile_(profile) { collect(); }

  void write(io::OutputFile& file) const {
    const ordered_json about = {{"device", to_string(profile_.device)},
                                {"kernels_seen_by", profile_.seen_by},
                                {"dropped_events", dropped()}};
    file.write(str("{\"displayTimeUnit\":\"ms\",\"otherData\":", text(about), ",\"traceEvents\":["));
    bool first = true;
    const auto add = [&](const ordered_json& event) {
      file.write(first ? "\n" : ",\n");
      first = false;
      file.write(text(event));
    };
    for (const ordered_json& name : names()) add(name);
    for (const Line& line : lines_) add(event(line));
    file.write("\n]}\n");
  }

  int64_t dropped() const { return profile_.dropped + dropped_activities_; }

 private:
  void collect() {
    const auto from = [&](int64_t ns) { return std::max<int64_t>(0, ns - profile_.begin_ns); };
    for (size_t i = 0; i < profile_.host.size(); ++i) {
      const HostEvent& event = profile_.host[i];
      const int64_t begin = from(event.begin_ns), end = std::max(begin, from(event.end_ns));
      threads_.insert(event.thread);
      lines_.push_back({Line::Of::host, i, 0, begin, end});
      if (event.kind == HostEvent::Kind::op) lines_.push_back({Line::Of::memory, i, 0, end, end});
    }
    const size_t most = static_cast<size_t>(profile_.most_events);
    for (size_t i = 0; i < profile_.activities.size() && i < most; ++i) {
      const DeviceActivity& each = profile_.activities[i];
      const int64_t begin = from(each.begin_ns), end = std::max(begin, from(each.end_ns));
      const int row = each.is_copy ? kFirstCopyRow + copies_.take(begin, end) : kernels_.take(begin, end);
      lines_.push_back({Line::Of::activity, i, row, begin, end});
    }
    dropped_activities_ =
        static_cast<int64_t>(profile_.activities.size() - std::min(most, profile_.activities.size()));
    std::stable_sort(lines_.begin(), lines_.end(), [](const Line& a, const Line& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
  }

  /// What the rows are called.
  std::vector<ordered_json> names() const {
    std::vector<ordered_json> list;
    const auto add = [&](const char* what, int process, int row, const std::string& name) {
      list.push_back(
          {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}});
    };
    add("process_name", kHost, 0, "host");
    add("process_name", kDevice, 0, to_string(profile_.device));
    for (int thread : threads_)
      add("thread_name", kHost, thread, thread == 0 ? "thread that profiles" : str("thread ", thread));
    const auto number = [](int row) { return row == 0 ? "" : str(" ", row + 1); };
    for (int row = 0; row < kernels_.count(); ++row)
      add("thread_name", kDevice, row, "kernels" + number(row));
    for (int row = 0; row < copies_.count(); ++row)
      add("thread_name", kDevice, kFirstCopyRow + row, "copies" + number(row));
    return list;
  }

  static double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

  ordered_json event(const Line& line) const {
    if (line.of == Line::Of::memory) {
      const HostEvent& op = profile_.host[line.index];
      return {{"ph", "C"},
              {"name", str("memory in use on ", op.device)},
              {"pid", kDevice},
              {"ts", microseconds(line.begin_ns)},
              {"args", {{"bytes", op.memory}}}};
    }
    ordered_json json = {{"ph", "X"},
                         {"name", ""},
                         {"cat", ""},
                         {"pid", line.of == Line::Of::host ? kHost : kDevice},
                         {"tid", line.row},
                         {"ts", microseconds(line.begin_ns)},
                         {"dur", microseconds(line.end_ns - line.begin_ns)}};
    if (line.of == Line::Of::activity) {
      const DeviceActivity& each = profile_.activities[line.index];
      json["name"] = each.name;
      json["cat"] = each.is_copy ? "copy" : "kernel";
      if (each.is_copy) json["args"] = {{"bytes", each.bytes}};
      return json;
    }
    const HostEvent& host = profile_.host[line.index];
    json["name"] = host.name;
    json["tid"] = host.thread;
    json["cat"] = host.kind == HostEvent::Kind::op ? "op" : "scope";
    if (host.kind == HostEvent::Kind::op)
      json["args"] = {{"what", host.detail},
                      {"device", to_string(host.device)},
                      {"flops", host.work.flops},
                      {"bytes", host.work.bytes}};
    return json;
  }

  /// One line; names may hold anything.
  static std::string text(const ordered_json& json) {
    return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }

  const Profile& profile_;
  std::vector<Line> lines_;
  std::set<int> threads_;
  Rows kernels_, copies_;
  int64_t dropped_activities_ = 0;
};

}  // namespace

int64_t write_trace(const std::string& path, const Profile& profile) {
  const TraceFile trace(profile);
  io::write_atomically(
      path, [&](io::OutputFile& file) { trace.write(file); }, io::Sync::no);
  return trace.dropped();
}

}  // namespace tandem
