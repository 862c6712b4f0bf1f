#include "lab/src/measure/gatekeeper.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "lab/src/files/json.h"
#include "lab/src/inputs/network.h"
#include "lab/src/protocol/trim.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/io/npy.h"

namespace tandem::lab {
namespace {

constexpr uint64_t kMoves = 2;
constexpr double kFirstStepPatience_s = 60;

bool trains(const Cell& cell) { return lab::trains(cell.condition.phase); }
bool loads(const Cell& cell) { return cell.condition.phase == "load"; }

/// The pipeline alone of a cell that trains from it.
Cell loading_of(Cell cell) {
  cell.condition.phase = "load";
  cell.condition.precision = "f32";
  cell.condition.optimizer.clear();
  cell.condition.switches.clear();
  cell.optimizer = nullptr;
  return cell;
}

/// Samples are of f32 everywhere.
std::string reference_precision(const Cell& cell) { return loads(cell) ? "f32" : "f64"; }

/// What one step of the 256 of a pixel is in a sample.
double level_of(const Workload& workload) {
  const std::vector<double>& std = workload.images->std;
  return 1 / (255 * *std::min_element(std.begin(), std.end()));
}

/// Whole epochs go over batches that are as long as their longest sample; steps over batches of one size.
bool is_trimmed(const Cell& cell, const Workload& workload) {
  return cell.condition.phase == "fit" && !workload.trim.empty();
}

/// Of a gate whose batches are all of one size nobody learns that others are right, too.
void check_sizes(const Preparation& p, int64_t batches) {
  std::set<int64_t> sizes;
  for (const auto& [length, rule] : p.trim.items()) {
    const Json& files = p.data.at("train");
    const std::vector<int64_t> lengths =
        io::load_npy(files.at(length).get<std::string>()).to_vector<int64_t>();
    const int64_t places =
        io::load_npy(files.at(rule.at("of").at(0).get<std::string>()).get<std::string>()).size(1);
    sizes.clear();
    for (int64_t b = 0; b < batches; ++b) {
      int64_t longest = 0;
      for (int64_t i = 0; i < p.batch; ++i)
        longest = std::max(longest, lengths[static_cast<size_t>(b * p.batch + i) % lengths.size()]);
      sizes.insert(trimmed_size(longest, rule.at("multiple"), places));
    }
    if (sizes.size() > 1) return;
  }
  throw DriverFailure(
      Status::failed,
      str("gate: its ", batches, " batches must have at least two sizes where they are trimmed; got ",
          *sizes.begin(), " alone. Set more steps in [gate], or a smaller multiple in [trim]."),
      "");
}

/// Everything that can change what the network computes.
std::string model_key(const Cell& cell, const Workload& workload) {
  const Condition& c = cell.condition;
  std::string key = str(c.workload, ", ", trains(cell) ? "train" : c.phase, ", input");
  for (const int64_t size : c.input) key += str(" ", size);
  if (trains(cell)) key += ", " + cell.optimizer.dump();
  if (is_trimmed(cell, workload)) key += ", trim " + workload.trim.dump();
  return key;
}

/// And everything that can change how: the system, its device, precision and switches.
std::string system_key(const Cell& cell, const Workload& workload) {
  const Condition& c = cell.condition;
  std::string key = str(cell.system, ", ", model_key(cell, workload), ", ", c.device, ", ", c.precision);
  for (const auto& [name, value] : c.switches)
    if (name != kStorage) key += str(", ", name, "=", value);
  return key;
}

Json to_json(const Checked& c) {
  Json outputs = Json::object();
  for (const auto& [name, output] : c.outputs)
    outputs[name] = {{"shape", output.shape}, {"values", output.values}};
  return {{"parameters", c.parameters},
          {"outputs", outputs},
          {"loss", c.loss},
          {"gradients", c.gradients},
          {"losses", c.losses}};
}

Checked checked_from(const Json& j) {
  Checked c;
  j.at("parameters").get_to(c.parameters);
  for (const auto& [name, output] : j.at("outputs").items())
    c.outputs[name] = {output.at("shape"), output.at("values")};
  j.at("loss").get_to(c.loss);
  j.at("gradients").get_to(c.gradients);
  j.at("losses").get_to(c.losses);
  return c;
}

/// JSON has no NaN: such a number was written as null.
double number_or_nan(const Json& j) { return j.is_number() ? j.get<double>() : NAN; }

GateResult result_from(const Json& j) {
  const Json& worst = j.at("worst");
  return {j.at("passed").get<bool>(),
          worst.at("what").get<std::string>(),
          number_or_nan(worst.at("reference")),
          number_or_nan(worst.at("system")),
          number_or_nan(worst.at("error")),
          number_or_nan(worst.at("tolerance")),
          j.value("kind", "model")};
}

}  // namespace

std::string framework_of(const std::string& system) { return system.substr(0, system.find(':')); }
std::string variant_of(const std::string& system) {
  const size_t colon = system.find(':');
  return colon == std::string::npos ? "" : system.substr(colon + 1);
}

std::string storage_of(const Condition& condition) {
  const auto at = condition.switches.find(kStorage);
  return at == condition.switches.end() ? "" : at->second;
}

bool takes_from_loader(const Condition& condition) {
  const auto feed = condition.switches.find("feed");
  return condition.phase == "load" || (feed != condition.switches.end() && feed->second == "loader");
}

Client Bench::start(const std::string& system, const std::string& device) const {
  const Launch launch = launcher(framework_of(system));
  if (!launch.absent.empty()) throw DriverFailure(Status::absent, launch.absent, "");
  ProcessOptions options;
  options.command = launch.command;
  options.environment = thread_environment(threads);
  // A cell on the processor sees no GPU: a framework that opened one would pay for it in time and memory, at every start.
  if (device == "cpu") options.environment.emplace_back("CUDA_VISIBLE_DEVICES", "");
  options.environment.insert(options.environment.end(), launch.environment.begin(), launch.environment.end());
  options.cpus = first_cpus(threads);
  options.stop = stop;
  return Client(options, patience);
}

Preparation preparation_for(const Cell& cell, const Workload& workload, int64_t threads, uint64_t seed) {
  const Condition& c = cell.condition;
  Preparation p;
  p.workload = workload.definition;
  if (!cell.optimizer.is_null()) p.workload["optimizer"] = cell.optimizer;
  p.variant = variant_of(cell.system);
  p.phase = trains(cell) ? "train" : c.phase;
  p.track = c.track;
  p.device = c.device;
  p.precision = c.precision;
  p.batch = c.batch;
  p.threads = threads;
  p.seed = seed;
  p.network = load_network(workload, c.input).json();
  p.switches = c.switches;
  p.switches.erase(kStorage);
  if (is_trimmed(cell, workload)) p.trim = workload.trim;
  return p;
}

Gatekeeper::Gatekeeper(std::string folder, const Bench& bench, Materials& materials)
    : path_(folder + "/gate.json"), bench_(bench), materials_(materials), known_(Json::object()) {
  if (!std::filesystem::exists(path_)) return;
  const auto bytes = io::read_file("gate", path_, int64_t{1} << 28);
  std::string why;
  known_ = try_parse_json<Json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, why);
  if (!known_.is_object()) known_ = Json::object();  // it holds nothing that cannot be found out anew
}

void Gatekeeper::save() {
  io::write_atomically(path_, [&](io::OutputFile& file) { file.write(known_.dump(1) + "\n"); });
}

Checked Gatekeeper::check(const std::string& system, const Cell& cell, const Workload& workload,
                          const std::string& precision, const Move& move) {
  const Json gate = workload.definition.value("gate", Json::object());
  const int64_t batch = gate.value("batch", int64_t{16});
  const int64_t steps = trains(cell) ? gate.value("steps", int64_t{10}) : 0;
  Preparation p = preparation_for(cell, workload, bench_.threads, 1);
  p.variant = variant_of(system);
  p.precision = precision;
  p.batch = batch;
  // For inference dropout stays as defined: a driver that leaves it on in test mode must fail.
  p.dropout = !trains(cell);
  if (loads(cell)) {
    p.data = {{"images", materials_.pictures(workload, batch, "").images}};
  } else {
    p.weights = materials_.weights(workload, cell.condition.input);
    p.data = materials_.samples(workload, cell.condition.input, batch * std::max<int64_t>(1, steps)).data;
  }
  if (!p.trim.is_null()) check_sizes(p, steps);
  if (move.by > 0) {
    std::vector<std::string> inputs;
    for (const Json& input : p.network.at("inputs")) inputs.push_back(input.at("name"));
    p.data = materials_.moved(p.data, inputs, move.by, move.seed);
  }
  // The reference is one for all devices and switches.
  if (system == bench_.reference && precision == reference_precision(cell))
    p.device = "cpu", p.switches.clear();
  Client client = bench_.start(system, p.device);
  client.hello();
  client.prepare(p);
  Checked out = client.check(steps);
  client.quit();
  return out;
}

Checked Gatekeeper::reference(const Cell& cell, const Workload& workload, const Move& move) {
  try {
    return check(bench_.reference, cell, workload, reference_precision(cell), move);
  } catch (const DriverFailure& failure) {
    throw DriverFailure(
        Status::failed,
        str("the gate's reference, ", bench_.reference, ", could not be had: ", failure.what()),
        failure.last_words);
  }
}

// Answers are kept in gate.json by all that they depend on, so that a study that goes on asks nobody twice. The
// reference is computed once per network, in f64 on the processor.
GateResult Gatekeeper::pass(const Cell& cell, const Workload& workload,
                            const std::function<void(const std::string&)>& stage) {
  // A pipeline that makes other samples is no way to feed the same network.
  if (trains(cell) && takes_from_loader(cell.condition) && workload.images)
    if (GateResult samples = pass(loading_of(cell), workload, stage); !samples.passed) return samples;
  const std::string key = system_key(cell, workload),
                    reference_key = "reference: " + model_key(cell, workload);
  if (known_.contains(key)) return result_from(known_[key]);
  if (!known_.contains(reference_key)) {
    stage("gate, reference");
    known_[reference_key] = to_json(reference(cell, workload, {}));
    save();
  }
  stage("gate");
  const std::string& precision = cell.condition.precision;
  const Checked wanted = checked_from(known_[reference_key]),
                system = check(cell.system, cell, workload, precision, {});
  GateResult result = loads(cell) ? compare_samples(wanted, system, level_of(workload))
                                  : compare(wanted, system, precision, trains(cell));
  // Some networks let the least rounding grow from step to step, in every framework alike. Whether this is one, the
  // reference shows: it is asked only where it matters.
  if (const auto by = moved_by(precision); by && !result.passed && result.tolerance > 0 && trains(cell)) {
    stage("gate, the reference with moved samples");
    result = compare(wanted, system, precision, true, moved(cell, workload, *by));
  }
  known_[key] = result.to_json();
  save();
  return result;
}

FirstStep Gatekeeper::first_step(const Cell& cell, const Workload& workload, Preparation p, int64_t turns,
                                 const std::function<void(const std::string&)>& stage) {
  const std::string key = str("first step: ", model_key(cell, workload), ", batch ", p.batch);
  if (!known_.contains(key)) {
    stage("gate, the reference's first step");
    p.variant = variant_of(bench_.reference);
    p.precision = "f32", p.device = "cpu";
    p.switches.clear();
    try {
      Client client = bench_.start(bench_.reference, p.device);
      client.hello();
      client.prepare(p);
      const auto number = [](const std::optional<double>& n) { return n ? Json(*n) : Json(); };
      const Timed timed = client.run(Region::latency, 1, kFirstStepPatience_s);
      known_[key] = {{"loss", number(timed.loss)}, {"output_sum", number(timed.output_sum)}};
      if (p.phase == "infer") try {  // a whole round may take it longer than it has
          const Timed round = turns == 1 ? timed : client.run(Region::latency, turns, kFirstStepPatience_s);
          known_[key]["last_output_sum"] = number(round.output_sum);
        } catch (const DriverFailure&) {
        }
      client.quit();
    } catch (const DriverFailure& failure) {
      known_[key] = {{"why", io::one_line(failure.what(), 300)}};
    }
    save();
  }
  FirstStep out;
  const Json& there = known_[key];
  if (const Json loss = there.value("loss", Json()); loss.is_number()) out.loss = loss.get<double>();
  if (const Json sum = there.value("output_sum", Json()); sum.is_number()) out.output_sum = sum.get<double>();
  if (const Json sum = there.value("last_output_sum", Json()); sum.is_number())
    out.last_output_sum = sum.get<double>();
  out.why = there.value("why", "");
  return out;
}

std::vector<Checked> Gatekeeper::moved(const Cell& cell, const Workload& workload, double by) {
  const std::string key = str("reference, samples moved by ", by, ": ", model_key(cell, workload));
  if (!known_.contains(key)) {
    Json answers = Json::array();
    for (uint64_t seed = 1; seed <= kMoves; ++seed)
      answers.push_back(to_json(reference(cell, workload, {by, seed})));
    known_[key] = answers;
  }
  std::vector<Checked> out;
  for (const Json& answer : known_[key]) out.push_back(checked_from(answer));
  return out;
}

}  // namespace tandem::lab
