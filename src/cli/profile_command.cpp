// tandem profile MODEL: a trace that Perfetto opens, and a table of where the time goes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/setting_flags.h"
#include "cli/stopping.h"
#include "tandem/core/error.h"
#include "tandem/train/profile_model.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kShownKernels = 12;

struct Flags {
  std::string model;
  SettingFlags settings;
  TrainConfig config;
  std::string out;
  bool infer = false, json = false;
};

/// The bytes per second that a kernel's calls could reach, of the size that they have.
double byte_peak(const Peaks& peaks, const KernelSum& sum) {
  const auto calls = static_cast<double>(std::max<int64_t>(1, sum.count));
  return sum.work ? peaks.bytes_per_second_at(static_cast<double>(sum.work->bytes) / calls) : 0;
}

/// What both forms of the output tell.
struct Shown {
  const Flags& flags;
  const ModelProfile& profiled;
  ProfileSummary sums = summarize(profiled.profile);
  std::string path = {};
  int64_t dropped = 0;

  double steps() const { return static_cast<double>(profiled.steps); }
  double per_step(int64_t value) const { return static_cast<double>(value) / steps(); }
  /// Of the steps that nobody watched.
  double rate(int64_t work) const { return per_step(work) * 1e9 / profiled.unprofiled_ns; }
  /// How much of the steps' time their bytes would take, were each kernel's calls at their peak; all at the memory's, where
  /// the bytes of kernels are not known.
  double share_of_byte_peaks() const {
    if (!profiled.profile.kernels_are_ops)
      return profiled.peaks.bytes_per_second > 0 ? rate(sums.work.bytes) / profiled.peaks.bytes_per_second
                                                 : 0;
    double seconds = 0;
    for (const KernelSum& sum : sums.kernels)
      if (const double peak = byte_peak(profiled.peaks, sum); peak > 0)
        seconds += static_cast<double>(sum.work->bytes) / peak;
    return seconds / steps() * 1e9 / profiled.unprofiled_ns;
  }
  double share(const KernelSum& sum) const {
    return static_cast<double>(sum.ns) / static_cast<double>(std::max<int64_t>(1, sums.ns));
  }
};

double rate_of(int64_t work, const KernelSum& sum) {
  return static_cast<double>(work) * 1e9 / static_cast<double>(std::max<int64_t>(1, sum.ns));
}

/// The file to write: `out`, in it where it is a folder, or in this one.
std::string trace_path(const Flags& flags) {
  namespace fs = std::filesystem;
  const std::string name = fs::path(flags.config.model).stem().string() + ".trace.json";
  if (flags.out.empty()) return name;
  std::error_code ignored;
  if (fs::is_directory(flags.out, ignored)) return (fs::path(flags.out) / name).string();
  const fs::path folder = fs::path(flags.out).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    throw UsageError(str("out: must be a file in a folder that is there; got '", flags.out,
                         "'. Make the folder '", folder.string(), "' first."));
  return flags.out;
}

void print_profile_json(const Shown& shown) {
  const TrainConfig& config = shown.flags.config;
  const ProfileSummary& s = shown.sums;
  const Peaks& peaks = shown.profiled.peaks;
  ordered_json kernels = ordered_json::array();
  for (const KernelSum& sum : s.kernels) {
    ordered_json& row = kernels.emplace_back();
    row = {{"name", sum.name},
           {"kind", sum.is_copy ? "copy" : "kernel"},
           {"count", sum.count},
           {"total_ns", sum.ns},
           {"mean_ns", static_cast<double>(sum.ns) / static_cast<double>(sum.count)},
           {"share", shown.share(sum)}};
    if (!sum.work) continue;
    row["flops"] = sum.work->flops;
    row["bytes"] = sum.work->bytes;
    row["flops_per_second"] = rate_of(sum.work->flops, sum);
    row["bytes_per_second"] = rate_of(sum.work->bytes, sum);
    row["peak_bytes_per_second"] = byte_peak(peaks, sum);
  }
  const ordered_json line = {{"model", config.model},
                             {"mode", shown.flags.infer ? "infer" : "train"},
                             {"engine", name(config.engine)},
                             {"device", to_string(config.device)},
                             {"dtype", name(config.dtype)},
                             {"autocast", config.autocast ? ordered_json(name(*config.autocast)) : nullptr},
                             {"batch", config.batch},
                             {"threads", shown.profiled.threads},
                             {"steps", shown.profiled.steps},
                             {"trace", shown.path},
                             {"dropped_events", shown.dropped},
                             {"kernels_seen_by", shown.profiled.profile.seen_by},
                             {"total_ns", s.ns},
                             {"step_ns", shown.per_step(s.ns)},
                             {"unprofiled_step_ns", shown.profiled.unprofiled_ns},
                             {"kernel_share", s.kernel_share},
                             {"copy_share", s.copy_share},
                             {"idle_share", s.idle_share},
                             {"launches_per_step", shown.per_step(s.launches)},
                             {"copies_per_step", shown.per_step(s.copies)},
                             {"flops_per_step", shown.per_step(s.work.flops)},
                             {"bytes_per_step", shown.per_step(s.work.bytes)},
                             {"flops_per_second", shown.rate(s.work.flops)},
                             {"bytes_per_second", shown.rate(s.work.bytes)},
                             {"memory_bytes", s.memory},
                             {"peaks",
                              {{"flops_per_second", peaks.flops_per_second},
                               {"bytes_per_second", peaks.bytes_per_second},
                               {"how", peaks.how}}},
                             {"kernels", kernels}};
  print_line(line);
}

/// "12.3 G", to go before a unit.
std::string scaled(double value) {
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t step = 0;
  for (; value >= 1000 && step < 5; ++step) value /= 1000;
  return fixed(value, step == 0 ? 0 : 2) + " " + prefixes[step];
}

std::string of_peak(double rate, double peak) { return percent(peak > 0 ? rate / peak : 0); }

void print_totals(const Shown& shown) {
  const ProfileSummary& s = shown.sums;
  const Peaks& peaks = shown.profiled.peaks;
  const double flops = shown.rate(s.work.flops), bytes = shown.rate(s.work.bytes);
  Table table;
  table.add({"time per step", fixed(shown.per_step(s.ns) / 1e6, 3) + " ms profiled, " +
                                  fixed(shown.profiled.unprofiled_ns / 1e6, 3) + " ms unprofiled"});
  table.add({"in kernels", percent(s.kernel_share)});
  table.add({"in copies", percent(s.copy_share)});
  table.add({"idle", percent(s.idle_share)});
  table.add({"launches per step", fixed(shown.per_step(s.launches), 1) + " kernels, " +
                                      fixed(shown.per_step(s.copies), 1) + " copies"});
  table.add({"work per step",
             scaled(shown.per_step(s.work.flops)) + "FLOP, " + scaled(shown.per_step(s.work.bytes)) + "B"});
  table.add({"achieved", scaled(flops) + "FLOP/s, " + of_peak(flops, peaks.flops_per_second) +
                             " of the peak; " + scaled(bytes) + "B/s, " +
                             percent(shown.share_of_byte_peaks())});
  table.add({"peaks", scaled(peaks.flops_per_second) + "FLOP/s, " + scaled(peaks.bytes_per_second) +
                          "B/s: " + peaks.how});
  table.add({"memory", bytes_text(s.memory) + " in use at most after an op"});
  table.print();
}

void print_kernels(const Shown& shown) {
  const ProfileSummary& s = shown.sums;
  const Peaks& peaks = shown.profiled.peaks;
  Table table({"kernel", "calls", "total ms", "mean us", "share", "FLOP/s", "of peak", "B/s", "of peak"},
              {1, 2, 3, 4, 5, 6, 7, 8});
  const auto achieved = [](std::vector<std::string>& row, double rate, double peak) {
    row.push_back(rate > 0 ? scaled(rate) : "-");
    row.push_back(rate > 0 ? of_peak(rate, peak) : "-");
  };
  int64_t rest_calls = 0, rest_ns = 0;
  for (size_t i = 0; i < s.kernels.size(); ++i) {
    const KernelSum& sum = s.kernels[i];
    if (i >= kShownKernels) {
      rest_calls += sum.count;
      rest_ns += sum.ns;
      continue;
    }
    std::vector<std::string> row = {
        sum.name, grouped(sum.count), fixed(static_cast<double>(sum.ns) / 1e6, 3),
        fixed(static_cast<double>(sum.ns) / 1e3 / static_cast<double>(sum.count), 1),
        percent(shown.share(sum))};
    achieved(row, sum.work ? rate_of(sum.work->flops, sum) : 0, peaks.flops_per_second);
    achieved(row, sum.work ? rate_of(sum.work->bytes, sum) : 0, byte_peak(peaks, sum));
    table.add(std::move(row));
  }
  if (rest_calls > 0)
    table.add({str(s.kernels.size() - kShownKernels, " others"), grouped(rest_calls),
               fixed(static_cast<double>(rest_ns) / 1e6, 3),
               fixed(static_cast<double>(rest_ns) / 1e3 / static_cast<double>(rest_calls), 1),
               percent(static_cast<double>(rest_ns) / static_cast<double>(std::max<int64_t>(1, s.ns)))});
  table.print();
}

void print_profile_text(const Shown& shown) {
  const TrainConfig& config = shown.flags.config;
  const std::string on = config.device.is_cpu() ? str(config.device, ", ", shown.profiled.threads, " threads")
                                                : to_string(config.device);
  const std::string types =
      str(config.dtype, config.autocast ? str(" with ", *config.autocast, " products") : "");
  const bool one = shown.profiled.steps == 1;
  std::printf("%lld %s%s of %s: batch %lld, %s, %s engine, %s\n\n",
              static_cast<long long>(shown.profiled.steps),
              shown.flags.infer ? "forward pass" : "training step",
              one                 ? ""
              : shown.flags.infer ? "es"
                                  : "s",
              config.model.c_str(), static_cast<long long>(config.batch), types.c_str(), name(config.engine),
              on.c_str());
  print_totals(shown);
  std::printf("\n");
  print_kernels(shown);
  std::printf("\n");
  const Profile& profile = shown.profiled.profile;
  const auto is_recorded = [](const HostRecord::Sum& op) { return op.name == "recorded graph"; };
  if (std::any_of(profile.ops.begin(), profile.ops.end(), is_recorded))
    std::printf(
        "The compiled step is replayed as one recording, whose ops and scopes are not seen one by one; with "
        "--engine eager they are.\n");
  if (profile.seen_by.starts_with("events"))
    std::printf("Kernels were seen by %s\n", profile.seen_by.c_str());
  if (shown.dropped > 0)
    std::printf("The trace leaves out %s events beyond its limit of %s; the table counts all.\n",
                grouped(shown.dropped).c_str(), grouped(profile.most_events).c_str());
  std::printf("Trace: %s (open it in https://ui.perfetto.dev or chrome://tracing)\n", shown.path.c_str());
}

void run(Flags& flags) {
  std::string path;
  as_usage([&] {
    flags.config = flags.settings.config({{"model", flags.model}});
    check(flags.config);
    check_between("steps", flags.config.steps, 1, kMostProfiledSteps);
    path = trace_path(flags);
  });
  const std::atomic<bool>& stop = stop_on_signals();
  flags.config.stop = &stop;
  const ModelProfile profiled = profile_model(flags.config, flags.infer);
  if (stop) throw Interrupted("stopped before the profile was complete; no trace was written.");
  Shown shown{flags, profiled};
  shown.path = path;
  shown.dropped = write_trace(path, profiled.profile);
  (flags.json ? print_profile_json : print_profile_text)(shown);
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd =
      app.add_subcommand("profile", "show where the time of a model's step goes, and write a trace");
  cmd->add_option("MODEL", flags->model, setting("model").help)->required();
  cmd->add_flag("--infer", flags->infer, "forward passes in evaluation mode, not training steps");
  std::vector<std::string> names = kStepSettings;
  names.push_back("steps");
  flags->settings.add(*cmd, names, {{"steps", str("steps to profile (default: ", kProfiledSteps, ")")}});
  cmd->add_option("--out", flags->out, "file of the trace, or its folder (default: MODEL.trace.json)");
  cmd->add_flag("--json", flags->json, "print one JSON object");
  cmd->callback([flags, &action] { action = [flags] { run(*flags); }; });
}

}  // namespace tandem::cli
