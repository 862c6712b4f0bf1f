#include "lab/src/measure/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "lab/src/driver/process.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

/// Counts columns as a terminal does: the lab's own texts hold letters of one column each, some of several bytes.
size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(std::string text, size_t width) {
  const size_t has = columns(text);
  if (has <= width) return text + std::string(width - has, ' ');
  size_t bytes = 0, seen = 0;
  while (bytes < text.size() && seen + 1 < width) {
    do ++bytes;
    while (bytes < text.size() && (text[bytes] & 0xC0) == 0x80);
    ++seen;
  }
  return text.substr(0, bytes) + "…";
}

/// On one line, without what would move the cursor: names come from a study's file, reasons from a driver.
std::string shown(const std::string& text) { return io::one_line(text, text.size()); }

struct Row {
  std::string system, condition, metric;
  int64_t runs = 0, wanted = 0;
  std::string status = "waits";
  std::vector<double> values;
  std::string median_text() const { return values.empty() ? "" : short_time_text(stats::median(values)); }
};

class TextProgress : public Progress {
 public:
  explicit TextProgress(std::FILE* stream) : stream_(stream), live_(::isatty(::fileno(stream))) {}

  void begin(const Plan& plan, const std::string& folder, int64_t blocks, int64_t runs_left) override {
    for (const Cell& cell : plan.cells)
      rows_.push_back({shown(cell.system + (cell.control.empty() ? "" : " (" + cell.control + ")")),
                       shown(cell.condition.text()),
                       headline_metric(cell.condition.phase),
                       0,
                       cell.effort.runs,
                       "waits",
                       {}});
    blocks_ = blocks;
    say(str("study ", plan.name, ": ", plan.cells.size(), " cells, ", blocks, " blocks, ", runs_left,
            " runs to take, into ", folder));
    for (const Missing& missing : plan.missing)
      say(str("not now: ", missing.part, missing.part.empty() ? "" : ", ", missing.what, ": ", missing.why));
  }
  void known(size_t cell, const Run& run) override { count(cell, run); }
  void start(size_t cell, int64_t block) override {
    current_ = cell, block_ = block;
    rows_[cell].status = "starts";
    draw(false);
  }
  void stage(const std::string& text) override {
    rows_[current_].status = shown(text);
    draw(false);
  }
  void done(size_t cell, const Run& run, double left_s) override {
    count(cell, run);
    left_s_ = left_s;
    if (live_) return draw(true);
    const Row& row = rows_[cell];
    const std::string left = left_s >= 0 ? ", " + duration_text(left_s) + " left" : "";
    if (run.status == Status::ok)
      say(str("block ", run.block + 1, "/", blocks_, "  ", row.system, "  ", row.condition, ": ",
              row.values.empty() ? "done" : short_time_text(row.values.back()),
              run.disturbed.empty() ? "" : ", disturbed: " + io::one_line(run.disturbed, 300), left));
    else
      say(str("block ", run.block + 1, "/", blocks_, "  ", row.system, "  ", row.condition, ": ",
              to_string(run.status), ": ", io::one_line(run.why, 300), left));
  }
  void give_up(size_t cell, const std::string&) override {
    if (rows_[cell].status == "waits") rows_[cell].status = "given up";
  }
  void note(const std::string& text) override {
    clear();
    say(text);
    draw(true);
  }
  void end() override {
    draw(true);
    std::fflush(stream_);
  }

 private:
  void count(size_t cell, const Run& run) {
    Row& row = rows_[cell];
    row.runs += run.status != Status::disturbed;
    row.status = run.status == Status::ok ? "" : to_string(run.status);
    if (const auto at = run.metrics.find(row.metric); run.status == Status::ok && at != run.metrics.end())
      row.values.push_back(at->second);
  }
  void say(const std::string& text) {
    std::fprintf(stream_, "%s\n", shown(text).c_str());
    std::fflush(stream_);
  }
  void clear() {
    if (drawn_ > 0) std::fprintf(stream_, "\033[%zuA\033[J", drawn_);
    drawn_ = 0;
  }

  /// The whole table, at most ten times per second: drawing must not disturb what is measured.
  void draw(bool now) {
    if (!live_) return;
    const int64_t at = now_ns();
    if (!now && at - drawn_at_ < 100'000'000) return;
    drawn_at_ = at;
    winsize size{};
    if (::ioctl(::fileno(stream_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
      size.ws_col = 100, size.ws_row = 40;
    const size_t width = std::max<size_t>(60, size.ws_col) - 1;
    const size_t room = std::max<size_t>(4, size.ws_row) - 3;
    size_t systems = 6;
    for (const Row& row : rows_) systems = std::max(systems, columns(row.system));
    systems = std::min<size_t>(systems, 26);
    const size_t conditions = width > systems + 44 ? width - systems - 44 : 16;
    // Where not all rows fit, those around the one that runs are shown.
    size_t first = 0, last = rows_.size();
    if (rows_.size() > room) {
      first = current_ > room / 2 ? std::min(current_ - room / 2, rows_.size() - room) : 0;
      last = first + room;
    }
    clear();
    std::string text = "  " + padded("system", systems) + "  " + padded("condition", conditions) + "  " +
                       padded("runs", 7) + padded("median", 10) + "status\n";
    for (size_t i = first; i < last; ++i) {
      const Row& row = rows_[i];
      text += (i == current_ ? "> " : "  ") + padded(row.system, systems) + "  " +
              padded(row.condition, conditions) + "  " + padded(str(row.runs, "/", row.wanted), 7) +
              padded(row.median_text(), 10) + padded(row.status, 20) + "\n";
    }
    text += str("  block ", block_ + 1, " of ", blocks_,
                left_s_ >= 0 ? ", " + duration_text(left_s_) + " left" : "", "\n");
    std::fputs(text.c_str(), stream_);
    std::fflush(stream_);
    drawn_ = last - first + 2;
  }

  std::FILE* stream_;
  bool live_;
  std::vector<Row> rows_;
  size_t current_ = 0, drawn_ = 0;
  int64_t block_ = 0, blocks_ = 0, drawn_at_ = 0;
  double left_s_ = -1;
};

class JsonProgress : public Progress {
 public:
  explicit JsonProgress(std::FILE* stream) : stream_(stream) {}
  void begin(const Plan& plan, const std::string& folder, int64_t blocks, int64_t runs_left) override {
    Json missing = Json::array();
    for (const Missing& m : plan.missing)
      missing.push_back({{"part", m.part}, {"what", m.what}, {"why", m.why}});
    print({{"event", "begin"},
           {"study", plan.name},
           {"folder", folder},
           {"cells", plan.cells.size()},
           {"blocks", blocks},
           {"runs_left", runs_left},
           {"missing", missing}});
  }
  void start(size_t, int64_t) override {}
  void stage(const std::string&) override {}
  void known(size_t, const Run&) override {}
  void done(size_t, const Run& run, double left_s) override {
    Json line = {{"event", "run"},
                 {"part", run.part},
                 {"system", run.system},
                 {"condition", run.condition.text()},
                 {"block", run.block},
                 {"order", run.order},
                 {"status", to_string(run.status)},
                 {"metrics", run.metrics}};
    if (!run.control.empty()) line["control"] = run.control;
    if (run.status != Status::ok) line["why"] = run.why;
    if (!run.disturbed.empty()) line["disturbed"] = run.disturbed;
    if (left_s >= 0) line["left_s"] = left_s;
    print(line);
  }
  void give_up(size_t, const std::string&) override {}
  void note(const std::string& text) override { print({{"event", "note"}, {"text", text}}); }
  void warn(const std::string& text) override { print({{"event", "warning"}, {"text", text}}); }
  void end() override {}

 private:
  void print(const Json& line) {
    std::fprintf(stream_, "%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    std::fflush(stream_);
  }
  std::FILE* stream_;
};

class NoProgress : public Progress {
  void begin(const Plan&, const std::string&, int64_t, int64_t) override {}
  void start(size_t, int64_t) override {}
  void stage(const std::string&) override {}
  void known(size_t, const Run&) override {}
  void done(size_t, const Run&, double) override {}
  void give_up(size_t, const std::string&) override {}
  void note(const std::string&) override {}
  void end() override {}
};

}  // namespace

std::string headline_metric(const std::string& phase) {
  return phase == "fit" ? "fit.total_s" : "step.throughput_s";
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::lround(std::max(0.0, seconds)));
  char buffer[48];
  if (s >= 3600)
    std::snprintf(buffer, sizeof buffer, "%d h %02d min", static_cast<int>(s / 3600),
                  static_cast<int>(s / 60 % 60));
  else if (s >= 60)
    std::snprintf(buffer, sizeof buffer, "%d min %02d s", static_cast<int>(s / 60), static_cast<int>(s % 60));
  else
    std::snprintf(buffer, sizeof buffer, "%d s", static_cast<int>(s));
  return buffer;
}

std::string short_time_text(double seconds) {
  char buffer[32];
  if (seconds < 1e-3)
    std::snprintf(buffer, sizeof buffer, "%.1f µs", seconds * 1e6);
  else if (seconds < 1)
    std::snprintf(buffer, sizeof buffer, "%.2f ms", seconds * 1e3);
  else
    std::snprintf(buffer, sizeof buffer, "%.2f s", seconds);
  return buffer;
}

std::unique_ptr<Progress> text_progress(std::FILE* stream) { return std::make_unique<TextProgress>(stream); }
std::unique_ptr<Progress> json_progress(std::FILE* stream) { return std::make_unique<JsonProgress>(stream); }
std::unique_ptr<Progress> no_progress() { return std::make_unique<NoProgress>(); }

}  // namespace tandem::lab
