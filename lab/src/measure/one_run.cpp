#include "lab/src/measure/one_run.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "lab/src/driver/code_lines.h"
#include "lab/src/inputs/network.h"
#include "lab/src/measure/energy.h"
#include "lab/src/measure/fit_metrics.h"
#include "lab/src/measure/input_checks.h"
#include "lab/src/monitor/process_tree.h"
#include "lab/src/protocol/whole_model.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

// By how much the sum of a batch may differ, of the size of its numbers. Decoders differ by parts of a level, which add up to
// nothing; another batch of photographs is some per cent away.
constexpr double kSamePictures = 3e-3, kSameArrays = 1e-5;

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string utc_now() {
  const time_t now = ::time(nullptr);
  tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::vector<double> step_seconds(const Timed& timed) {
  std::vector<double> out;
  for (const auto& [begin, end] : timed.steps) out.push_back(seconds(end - begin));
  return out;
}

bool holds(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

[[noreturn]] void decline(const std::string& what, const std::string& got,
                          const std::vector<std::string>& known) {
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  throw DriverFailure(Status::declined,
                      str(what, ": the driver has ", names.empty() ? "none" : names, "; got ", got), "",
                      what);
}

/// Declines what the driver did not offer in hello, before anything is written or loaded for it.
void check_offer(const Hello& hello, const Preparation& p) {
  if (!holds(hello.variants, p.variant)) decline("variant", p.variant, hello.variants);
  if (!holds(hello.devices, p.device)) decline("device", p.device, hello.devices);
  if (!holds(hello.phases, p.phase)) decline("phase", p.phase, hello.phases);
  for (const Json& call : p.network.at("calls"))
    if (const std::string kind = call.at("kind"); p.phase != "load" && !holds(hello.kinds, kind))
      decline("kind", kind, hello.kinds);
  if (const std::string loss = p.workload.at("loss").at("kind");
      p.phase == "train" && !holds(hello.losses, loss))
    decline("loss", loss, hello.losses);
  if (!p.trim.is_null() && !hello.trims)
    throw DriverFailure(
        Status::declined,
        "trim: the driver takes batches of one size alone, and this workload's are trimmed to their "
        "longest sample",
        "", "trim");
  if (!holds(hello.precisions, p.precision)) decline("precision", p.precision, hello.precisions);
  for (const auto& [name, value] : p.switches) {
    const auto at = hello.switches.find(name);
    if (at == hello.switches.end()) decline(name, str(name, " = ", value), {});
    if (!holds(at->second, value)) decline(name, value, at->second);
  }
}

/// Resident memory of the driver's processes, as they stand.
void add_memory_at_start(Run& run, pid_t driver) {
  ProcessTree tree("/proc", driver);
  tree.find_children();
  if (const auto reading = tree.read())
    run.metrics["rss.start_mib"] = reading->rss_bytes / (1 << 20);
  else
    run.unavailable["rss.start_mib"] = tree.why();
}

/// What the timed steps held beyond it.
void add_memory_over_start(Run& run) {
  const auto start = run.metrics.find("rss.start_mib"), peak = run.metrics.find("rss.peak_mib");
  if (start != run.metrics.end() && peak != run.metrics.end())
    run.metrics["rss.over_start_mib"] = peak->second - start->second;
  else
    run.unavailable["rss.over_start_mib"] = "the process's memory could not be read at both times";
}

/// Takes one cell's run with a driver that has answered hello.
class Taker {
 public:
  Taker(const Cell& cell, const Turn& turn, const RunSetting& setting, const Workload& workload, Run& run,
        Client& client, RunWatch& watch)
      : cell_(cell),
        turn_(turn),
        setting_(setting),
        workload_(workload),
        run_(run),
        client_(client),
        watch_(watch),
        input_(cell.condition.input),
        network_(load_network(workload, input_)),
        storage_(storage_of(cell.condition)),
        is_fed_(takes_from_loader(cell.condition)),
        limits_(setting.limits),
        turns_(turns_for(cell.condition.batch, network_.sample_bytes())),
        results_(cell.condition.phase, turns_, cell.condition.precision) {
    limits_.cores = static_cast<double>(setting.bench.threads);
    // Who waits for a disk, or for a GPU, does not use the processor.
    if (storage_ == "disk" || cell.condition.device != "cpu") limits_.least_cpu_share = 0;
  }

  void steps(Preparation p) {
    place_samples(p);
    prepare(p);
    setting_.stage("first step");
    const Timed first = region(Region::latency, 1, Window::first_step, client_.patience().first_step_s).timed;
    run_.metrics["first_step_s"] = step_seconds(first)[0];
    check_network(first, p);
    setting_.stage("warm-up");
    const double step_s = warm_up();

    Monitor monitor(
        {.pid = client_.pid(), .interval_s = setting_.interval_s, .gpu = gpu_of(cell_.condition.device)});
    monitor.start();
    setting_.stage("timing, throughput");
    const double half = cell_.effort.timed_s / 2;
    const int64_t least = std::min<int64_t>(5, cell_.effort.timed_steps);
    // Whole rounds of the batches, where there is time for one: then both regions see the same inputs.
    const auto fitting = [&](double step) {
      const auto within = [&](double s) { return static_cast<int64_t>(s / std::max(step, 1e-7)); };
      const int64_t wanted = std::max(cell_.effort.timed_steps, within(cell_.effort.least_s));
      const int64_t count = std::max(least, std::min(wanted, within(half)));
      return count >= turns_ ? count / turns_ * turns_ : count;
    };
    monitor.begin_window();
    watch_.begin_timed(client_.pid());
    const Seen throughput =
        region(Region::throughput, fitting(step_s), Window::timed, patience(step_s, fitting(step_s)));
    const double now_s = seconds(throughput.timed.end_ns - throughput.timed.begin_ns) /
                         static_cast<double>(throughput.timed.count);
    setting_.stage("timing, latency");
    const Seen latency =
        region(Region::latency, fitting(now_s), Window::timed, patience(now_s, fitting(now_s)));
    watch_.end_timed();
    add_report(run_, monitor.end_window());
    add_memory_over_start(run_);
    if (const Objection found = check_regions(throughput.timed, throughput.seen, latency.timed, latency.seen,
                                              cell_.condition.device, limits_, is_fed_))
      contradict(*found);

    run_.step_s = step_seconds(latency.timed);
    if (cell_.condition.phase == "load")
      run_.unavailable["step.latency_s"] =
          "batches that are made ahead come in bursts, so that one wait says nothing";
    else
      run_.metrics["step.latency_s"] = stats::median(run_.step_s);
    if (latency.timed.wait_ns && cell_.condition.phase != "load")
      run_.metrics["input.wait_share"] =
          std::min(1.0, seconds(*latency.timed.wait_ns) / covered_s(latency.timed));
    if (storage_ == "disk")
      run_.metrics["input.cold_share"] =
          std::min(1.0, static_cast<double>(pictures_.paths.size()) /
                            static_cast<double>(cell_.condition.batch * throughput.timed.count));
    run_.metrics["step.throughput_s"] = now_s;
    run_.metrics["step.call_s"] = now_s / static_cast<double>(p.network.at("calls").size());
    run_.metrics["samples_per_s"] = static_cast<double>(cell_.condition.batch) / now_s;
    add_energy_per_step(run_, throughput.timed.count + latency.timed.count);
    breakdown();
  }

  void fit(Preparation p) {
    const SampleFiles files = setting_.materials.whole(workload_, input_);
    p.data = files.data;
    run_.data = files.name;
    prepare(p);
    const int64_t epochs =
        cell_.effort.epochs > 0
            ? cell_.effort.epochs
            : workload_.definition.value("fit", Json::object()).value("epochs", int64_t{1});
    setting_.stage("epoch 1");
    Monitor monitor(
        {.pid = client_.pid(), .interval_s = setting_.interval_s, .gpu = gpu_of(cell_.condition.device)});
    monitor.start();
    const Witness before = witness(client_.pid());
    const int64_t window_begun = now_ns();
    monitor.begin_window();
    watch_.begin_timed(client_.pid());
    ProcessTree tree("/proc", client_.pid());
    std::vector<std::optional<double>> memory;  // after each epoch
    const Fitted fitted = client_.fit(epochs, cell_.effort.cap_s, [&](const FitEpoch& e) {
      tree.find_children();
      const auto reading = tree.read();
      memory.push_back(reading ? std::optional(reading->rss_bytes / (1 << 20)) : std::nullopt);
      setting_.stage(str("epoch ", e.epoch + 1 > epochs ? epochs : e.epoch + 1,
                         e.test_metrics.empty() || workload_.metrics.empty()
                             ? ""
                             : str(", ", workload_.metrics[0], " ",
                                   std::round(e.test_metrics.at(workload_.metrics[0]) * 1e4) / 1e4)));
    });
    watch_.end_timed();
    add_report(run_, monitor.end_window());
    add_memory_over_start(run_);
    const Witness seen = witness(client_.pid()) - before;
    watch_.add_wait(wait_of(seen));
    std::vector<std::string> parts;
    for (const auto& [part, paths] : files.data.items())
      if (part.starts_with("test_")) parts.push_back(part);
    if (const Objection found = check_fit(fitted, workload_.metrics, epochs, cell_.effort.cap_s, files.test,
                                          seen, limits_, parts))
      contradict(*found);
    run_.confusion = fitted.confusion;
    add_fit_metrics(run_, fitted, workload_, memory, window_begun);
    breakdown();
  }

 private:
  struct Seen {
    Timed timed;
    Witness seen;
  };

  static std::optional<double> wait_of(const Witness& seen) {
    return seen.knows_delay ? std::optional(std::max(0.0, seen.delay_s)) : std::nullopt;
  }

  /// Writes what `run` takes, and names it in the request and in the record.
  void place_samples(Preparation& p) {
    p.data = Json::object();
    if (cell_.condition.phase != "load") {
      const SampleFiles files = setting_.materials.samples(workload_, input_, turns_ * cell_.condition.batch);
      p.data = files.data;
      run_.data = files.name;
    }
    if (!is_fed_ || !workload_.images) {
      arrays_ = p.data.value("train", Json::object());
      return;
    }
    setting_.stage("image files");
    const int64_t count = pictures_for(cell_.condition.batch, cell_.effort.timed_steps);
    pictures_ = setting_.materials.pictures(workload_, count, storage_);
    p.data["images"] = pictures_.images;
    run_.data = pictures_.name;
  }

  /// That the process which is timed runs the network which passed the gate. Dropout draws other numbers in every framework, and
  /// pictures are decoded a little differently: such losses say nothing.
  void check_network(const Timed& first, const Preparation& p) {
    // A whole model may draw numbers in test mode, too, as the pre-net of Tacotron 2 does.
    if (cell_.condition.track != "equal" || is_fed_ ||
        (has_dropout(network_) && (p.phase == "train" || network_.is_whole)))
      return;
    const FirstStep wanted = setting_.gatekeeper.first_step(cell_, workload_, p, turns_, setting_.stage);
    if (!wanted.why.empty())
      run_.notes.push_back("the first step was not held against the reference's: " + wanted.why);
    int64_t numbers = 0;
    for (const auto& output : network_.line.outputs) numbers += cell_.condition.batch * size_of(output.shape);
    if (const Objection found =
            check_first_step(first, wanted.loss, wanted.output_sum, numbers, cell_.condition.precision))
      contradict(*found);
    if (wanted.last_output_sum) results_.expect(*wanted.last_output_sum, numbers);
  }

  /// Of batches that the driver's pipeline made: whether they are the right ones.
  void check_input(const Seen& got) {
    const int64_t last = got.timed.asked - 1, batch = cell_.condition.batch;
    const bool loads = cell_.condition.phase == "load";
    const BatchSums made =
        pictures_.paths.empty()
            ? array_sums(arrays_, last, batch)
            : picture_sums(workload_, network_, pictures_.images.at("list"), last, batch, run_.seed);
    const double share = pictures_.paths.empty() ? kSameArrays : kSamePictures;
    if (const Objection found = check_samples(got.timed, made, share, !loads, limits_)) contradict(*found);
    if (loads)
      if (const Objection found = check_decoding(got.timed, got.seen, made, limits_)) contradict(*found);
  }

  [[noreturn]] void contradict(const Contradiction& found) {
    throw DriverFailure(Status::dishonest, str(found.rule, ": ", found.text), client_.last_words());
  }

  double patience(double step_s, int64_t steps) const {
    return client_.patience().run_s + 20 * step_s * static_cast<double>(steps);
  }

  void prepare(const Preparation& p) {
    setting_.stage("prepare");
    const int64_t sent = now_ns();
    const Prepared prepared = client_.prepare(p);
    const double window = seconds(now_ns() - sent);
    if (prepared.seconds > window + limits_.clock_slack_s)
      contradict({"clock", str("prepare cannot take longer than the lab waited for it, ", window, " s; got ",
                               prepared.seconds, " s")});
    run_.metrics["prepare_s"] = prepared.seconds;
  }

  Seen region(Region kind, int64_t count, Window window, double patience_s) {
    if (storage_ == "disk") drop_from_cache(pictures_.paths);
    const Witness before = witness(client_.pid());
    Seen out{client_.run(kind, count, patience_s), {}};
    out.seen = witness(client_.pid()) - before;
    if (window == Window::timed) watch_.add_wait(wait_of(out.seen));
    if (trains(cell_.condition.phase) && !out.timed.loss && results_.last_loss())
      throw DriverFailure(Status::failed,
                          str("the training diverged: the loss was ", *results_.last_loss(),
                              " before the last ", count, " steps and is no finite number after them"),
                          client_.last_words());
    if (const Objection found = check_region(out.timed, out.seen, window, cell_.condition.phase,
                                             cell_.condition.device, updates_, limits_))
      contradict(*found);
    if (const Objection found = results_.add(out.timed)) contradict(*found);
    if (is_fed_) check_input(out);
    updates_ = out.timed.updates;
    return out;
  }

  /// Takes chunks of steps until two in a row have the same median, and returns that. Bounded in steps and in time.
  double warm_up() {
    const int64_t least = std::max<int64_t>(1, cell_.effort.warmup_steps), most = 10 * least;
    const int64_t begun = now_ns();
    int64_t taken = 1, chunk = std::max<int64_t>(1, std::min<int64_t>(2, least));
    double before = NAN, now = NAN;
    bool steady = false;
    double step_s = run_.metrics["first_step_s"];
    while (taken < most && !steady) {
      const auto timed =
          region(Region::latency, std::min(chunk, most - taken), Window::warm_up, patience(step_s, chunk))
              .timed;
      taken += timed.count;
      before = now;
      // Batches that are made ahead come in bursts: their mean tells.
      now = step_s =
          is_fed_ ? covered_s(timed) / static_cast<double>(timed.count) : stats::median(step_seconds(timed));
      steady = taken >= least && std::abs(now - before) <= kSteady * now;
      const double spent = seconds(now_ns() - begun);
      if (taken >= std::min<int64_t>(least, 3) && spent > cell_.effort.timed_s) break;
      // Short steps come in chunks of about a quarter of a second, so that one that is late does not decide.
      chunk = std::clamp(static_cast<int64_t>(0.25 / std::max(now, 1e-6)), std::max<int64_t>(1, least / 5),
                         std::max<int64_t>(1, most / 4));
    }
    if (steady)
      run_.metrics["warmup_steps"] = static_cast<double>(taken);
    else
      run_.unavailable["warmup_steps"] =
          str("the times were not steady after ", taken, " steps: the last two medians were ", before,
              " s and ", now, " s");
    return now;
  }

  void breakdown() {
    if (!cell_.effort.breakdown || turn_.block != 0) return;
    setting_.stage("breakdown");
    try {
      run_.breakdown = client_.breakdown(5);
      for (const char* name : {"kernel_share", "copy_share", "launches", "nodes_before", "nodes_after"})
        if (run_.breakdown.contains(name) && run_.breakdown[name].is_number())
          run_.metrics[str("breakdown.", name)] = run_.breakdown[name].get<double>();
        else
          run_.unavailable[str("breakdown.", name)] = "the driver's profiler does not tell";
    } catch (const DriverFailure& failure) {
      // The times are taken already: a profiler that fails costs its own numbers alone.
      for (const char* name : {"kernel_share", "copy_share", "launches", "nodes_before", "nodes_after"})
        run_.unavailable[str("breakdown.", name)] = failure.what();
    }
  }

  const Cell& cell_;
  const Turn& turn_;
  const RunSetting& setting_;
  const Workload& workload_;
  Run& run_;
  Client& client_;
  RunWatch& watch_;
  std::vector<int64_t> input_;
  Network network_;
  std::string storage_;  // of the switch; "": none
  bool is_fed_;          // batches come from the driver's pipeline
  HonestyLimits limits_;
  PictureFiles pictures_;
  Json arrays_;  // files of `run`
  int64_t turns_, updates_ = 0;
  ResultsWatch results_;
};

/// All that a driver is asked for, from its start to its end; what goes wrong is in the record. The driver is gone when it returns.
void take(const Cell& cell, const Turn& turn, const RunSetting& setting, const Workload& workload, Run& run,
          RunWatch& watch) {
  try {
    const bool equal = cell.condition.track == "equal";
    Preparation p = preparation_for(cell, workload, setting.bench.threads, run.seed);
    Client client = setting.bench.start(cell.system, cell.condition.device);
    const Hello hello = client.hello();
    run.hello = hello.answer;
    run.metrics["start_s"] = client.start_s();
    add_memory_at_start(run, client.pid());
    check_offer(hello, p);
    if (equal) {
      watch.pause();
      const GateResult gate = setting.gatekeeper.pass(cell, workload, setting.stage);
      watch.resume();
      run.gate = gate.to_json();
      if (!gate.passed) throw DriverFailure(Status::not_same_model, gate.why(), client.last_words());
      if (cell.condition.phase != "load")
        p.weights = setting.materials.weights(workload, cell.condition.input);
    }
    Taker taker(cell, turn, setting, workload, run, client, watch);
    if (cell.condition.phase == "fit")
      taker.fit(p);
    else
      taker.steps(p);
    client.quit();
    const std::vector<std::string> files = setting.bench.launcher(framework_of(cell.system)).definitions;
    if (cell.condition.phase == "load")
      run.unavailable["code.lines"] = "phase load has no network";
    else if (const auto lines = code_lines_of_files(files, workload.network))
      run.metrics["code.lines"] = static_cast<double>(*lines);
    else
      run.unavailable["code.lines"] =
          "the driver's sources do not show the definition of " + workload.network;
  } catch (const DriverFailure& failure) {
    run.status = failure.status;
    run.why = io::one_line(failure.what(), 1000);
    run.last_words = failure.last_words;
    if (run.status == Status::dishonest) run.metrics.clear(), run.step_s.clear();
  }
}

}  // namespace

Run take_run(const Cell& cell, const Turn& turn, const RunSetting& setting) {
  Run run;
  run.part = cell.part;
  run.system = cell.system;
  run.control = cell.control;
  run.condition = cell.condition;
  run.block = turn.block;
  run.order = turn.order;
  run.seed = seed_of_block(setting.seed, turn.block);
  run.started = utc_now();
  const Workload workload = setting.workloads.load(cell.condition.workload);
  RunWatch watch(setting.machine);
  take(cell, turn, setting, workload, run, watch);
  watch.end(run);
  return run;
}

}  // namespace tandem::lab
