// Reads and checks requests of the driver protocol (lab/docs/protocol.md), above all `prepare`, and declines what Tandem
// cannot do.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/src/protocol/trim.h"
#include "tandem/tandem.h"

namespace tandem::lab::tandem_driver {

using Json = nlohmann::json;

/// Thrown where a request asks for something that this driver cannot do. `what` names it: a switch, "precision", a call.
class Declined : public std::runtime_error {
 public:
  Declined(std::string what, const std::string& message)
      : std::runtime_error(message), what_(std::move(what)) {}
  const std::string& named() const { return what_; }

 private:
  std::string what_;
};

/// Fields of a JSON object. Throw Error if the field is absent or of another type. `path`: what messages call the field; empty:
/// its name.
std::string text_field(const Json& holder, const std::string& name, const std::string& path = "");
int64_t integer_field(const Json& holder, const std::string& name, int64_t least, int64_t most,
                      std::optional<int64_t> otherwise = {}, const std::string& path = "");
const Json& object_field(const Json& holder, const std::string& name, const std::string& path = "");
const Json& list_field(const Json& holder, const std::string& name, const std::string& path = "");
Dims sizes_field(const Json& holder, const std::string& name, const std::string& path);
DType type_field(const Json& holder, const std::string& path);
bool flag_field(const Json& holder, const std::string& name, bool otherwise);

/// A loss of one output and one target.
struct LossTerm {
  std::string kind;     // cross_entropy, mse, mae, bce or ctc
  size_t output = 0;    // index of the network's output
  std::string target;   // name of the workload's target
  std::string lengths;  // name of the input or target that says how many places count; empty: all do
  int64_t stride = 1;   // in ctc, a step of the output stands for so many places of `lengths`
};

/// The workload's loss, targets and metrics.
struct Objective {
  std::vector<LossTerm> terms;  // the loss is the sum of these
  bool is_sum = false;          // the loss is of kind `sum`; such a workload has no metrics
  std::vector<zoo::InputDescription> targets;
  std::map<std::string, int64_t> below;  // the labels of a target of whole numbers are below this
  int64_t classes = 0;                   // of a cross-entropy; else 0
  std::vector<std::string> metrics;

  const LossTerm& first() const { return terms.at(0); }
  /// Whether a batch's loss is a mean over places, whose number differs from batch to batch. That of ctc is a mean over samples.
  bool counts_places() const { return !first().lengths.empty() && first().kind != "ctc"; }
  /// Workloads of ctc and sum have only the loss.
  bool has_metrics() const { return !is_sum && first().kind != "ctc"; }
};

/// The NumPy file of each input and target, by name; empty if the request has none.
using DataFiles = std::map<std::string, std::string>;

struct Images;  // feed.h

/// The request `prepare`.
struct CellRequest {
  std::string model;      // the network's name
  bool in_zoo = false;    // the zoo has a class of that name, and it is built instead of the description
  bool is_whole = false;  // its only call is a class of the zoo (protocol/whole_model.h)
  zoo::ModelDescription description;  // the network as the request gives it
  zoo::StraightLine line;             // the same with all shapes, worked out by the library
  std::map<std::string, std::vector<int64_t>> parameters;  // as the request lists them
  Objective objective;
  Engine engine = Engine::eager;
  std::string search;  // a method of search_names(); empty: the network itself is trained
  bool trains = true;  // phase train, else infer or load
  bool loads = false;  // phase load
  bool equal = true;   // track equal, else as_shipped
  std::string precision = "f32";
  Device device;
  int64_t batch = 1, threads = 1;
  uint64_t seed = 0;
  bool dropout = true;
  Json optimizer;  // name, lr, …
  std::string weights_file;
  std::optional<uint32_t> weights_hash;
  DataFiles train, test;
  std::map<std::string, DataFiles> more_tests;  // the parts test_*, by name
  std::shared_ptr<const Images> images;         // null if there are none
  std::vector<TrimRule> trim;                   // applied to every batch; empty: batches stay whole
  Json switches = Json::object();               // as the request sets them
  CompileOptions compile;                       // the options that the switches ask for

  DType dtype() const;  // of the weights: f64 or f32
  /// Whether the batches of `run` come from the loader. Otherwise they are on the device before the first step.
  bool takes_from_loader() const { return switches.value("feed", "resident") == "loader"; }
  std::optional<DType> autocast() const;  // in bf16 and f16: mixed precision, as in the peers
};

/// Throws Error for a field that breaks a rule, Declined for one that asks for what Tandem cannot do.
CellRequest read_prepare(const Json& request);

/// Reads `network` into the cell: its name, description, straight line and parameters. Throws Error if it breaks a rule, Declined
/// for a kind of layer that Tandem does not have.
void read_network(const Json& network, CellRequest& cell);

/// The kinds of calls that a network may have.
std::vector<std::string> kind_names();
const std::vector<std::string>& loss_names();
/// The variants that are search methods. The other variants are eager and graph.
const std::vector<std::string>& search_names();
const std::vector<std::string>& phase_names();
/// The devices of this machine by name: "cpu", "cuda:0" …
std::vector<std::string> device_names();
std::vector<std::string> precision_names();
/// Each switch with the values that it may have: conv, feed, graph, lstm, and graph.PASS for every pass of CompileOptions.
std::map<std::string, std::vector<std::string>> known_switches();

}  // namespace tandem::lab::tandem_driver
