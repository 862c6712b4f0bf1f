// A request of the driver protocol (lab/docs/protocol.md), read and checked: what `prepare` asks for, as far as Tandem can
// obey it.
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

/// Something that this driver cannot obey. `what` names it: a switch, "precision", a call.
class Declined : public std::runtime_error {
 public:
  Declined(std::string what, const std::string& message)
      : std::runtime_error(message), what_(std::move(what)) {}
  const std::string& named() const { return what_; }

 private:
  std::string what_;
};

/// Fields of a JSON object; Error where one is absent or of another kind. `path` is what messages call it, where that is
/// more than its name.
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
  size_t output = 0;    // of the network's
  std::string target;   // a name of the workload's targets
  std::string lengths;  // an input or a target that says how many places count; empty: all
  int64_t stride = 1;   // of ctc: places of `lengths` for each step of the output
};

/// What is learned, and by which loss and metrics: of the workload.
struct Objective {
  std::vector<LossTerm> terms;  // the loss is their sum
  bool is_sum = false;          // the workload says so, and has no metrics
  std::vector<zoo::InputDescription> targets;
  std::map<std::string, int64_t> below;  // of targets that are whole numbers
  int64_t classes = 0;                   // of a cross-entropy
  std::vector<std::string> metrics;

  const LossTerm& first() const { return terms.at(0); }
  /// Whether batches differ in how many places their loss is a mean of. ctc is one over samples.
  bool counts_places() const { return !first().lengths.empty() && first().kind != "ctc"; }
  /// Of ctc and sum there is the loss alone.
  bool has_metrics() const { return !is_sum && first().kind != "ctc"; }
};

/// A NumPy file for each input and target, by name; empty where the request has none.
using DataFiles = std::map<std::string, std::string>;

struct Images;  // feed.h

/// The request `prepare`.
struct CellRequest {
  std::string model;                  // the network's name
  bool in_zoo = false;                // the zoo has a class of that name, which is what is built
  bool is_whole = false;              // its only call is a class of the zoo (protocol/whole_model.h)
  zoo::ModelDescription description;  // the network as the request gives it
  zoo::StraightLine line;             // worked out again
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
  std::map<std::string, DataFiles> more_tests;  // by the names of their parts
  std::shared_ptr<const Images> images;         // null: none
  std::vector<TrimRule> trim;                   // of every batch; empty: batches are whole
  Json switches = Json::object();               // as set
  CompileOptions compile;                       // what the switches make of it

  DType dtype() const;  // of the weights: f64 or f32
  /// Whether the batches of `run` come from the pipeline, and do not lie on the device already.
  bool takes_from_loader() const { return switches.value("feed", "resident") == "loader"; }
  std::optional<DType> autocast() const;  // bf16 and f16: as the peers do it
};

/// Throws Error for a field that breaks a rule, Declined for one that asks for more than Tandem has.
CellRequest read_prepare(const Json& request);

/// Reads `network` into the cell: its name, its description and what that makes. Throws Error where it is none, Declined
/// for a kind of layer that Tandem has not.
void read_network(const Json& network, CellRequest& cell);

/// The kinds of layers that it may hold.
std::vector<std::string> kind_names();
const std::vector<std::string>& loss_names();
/// The variants that are methods of search, beside eager and graph.
const std::vector<std::string>& search_names();
const std::vector<std::string>& phase_names();
/// The devices of this machine by name: "cpu", "cuda:0" …
std::vector<std::string> device_names();
std::vector<std::string> precision_names();
/// Each switch with the values that it obeys: conv, feed, graph, and graph.PASS for every pass of CompileOptions.
std::map<std::string, std::vector<std::string>> known_switches();

}  // namespace tandem::lab::tandem_driver
