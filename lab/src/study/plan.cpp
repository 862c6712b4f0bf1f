// From a study's file to cells: lists are multiplied, options narrow them, and what cannot be had becomes a line of
// `missing` with its reason.
#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "lab/src/study/catalogue.h"
#include "lab/src/study/schema.h"
#include "lab/src/study/table.h"
#include "tandem/core/error.h"
#include "tandem/core/nearest.h"
#include "tandem/io/file.h"

namespace tandem::lab {

namespace fs = std::filesystem;

namespace {

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// With fewer pairs no signed-rank test can pass 5 %.
constexpr int64_t kFewestToDecide = 6;

/// `quick` where it names something, else `usual`.
template <class T>
const std::vector<T>& replaced(const std::vector<T>& usual, const std::vector<T>& quick) {
  return quick.empty() ? usual : quick;
}

/// `named`: whether workloads were asked for by name, which may then be any of the part's, with --quick too.
Axes effective_axes(const Part& part, bool quick, bool named) {
  if (!quick) return part.axes;
  const Axes& a = part.axes;
  const Axes& q = part.quick_axes;
  std::vector<std::string> workloads = replaced(a.workloads, q.workloads);
  if (named)
    for (const std::string& name : a.workloads)
      if (!contains(workloads, name)) workloads.push_back(name);
  return {replaced(a.frameworks, q.frameworks), workloads,
          replaced(a.device, q.device),         replaced(a.precision, q.precision),
          replaced(a.batch, q.batch),           replaced(a.input, q.input),
          replaced(a.optimizer, q.optimizer),   replaced(a.switches, q.switches)};
}

/// Expands one study under one set of options.
class Expansion {
 public:
  Expansion(const StudyFile& study, const PlanOptions& options)
      : study_(study),
        options_(options),
        known_(frameworks(options.drivers)),
        devices_there_(options.present ? *options.present : present_devices()) {
    if (options_.device == "cuda") options_.device = "cuda:0";
    for (const std::string& name : options_.workloads)
      study_.workloads.load(name);  // an unknown one is refused at once
    for (const std::string& name : options_.frameworks) systems_of(name, known_);
    std::vector<std::string> parts;
    for (const Part& part : study_.parts) parts.push_back(part.name);
    for (const std::string& name : options_.parts)
      TD_CHECK(contains(parts, name), "parts: the study '", study_.name, "' has ", listed(parts), "; got '",
               io::one_line(name, 80), "'.");
    TD_CHECK(!options_.runs || is_within(*options_.runs, limits::runs), "runs: there must be ",
             limits::runs.least, " to ", limits::runs.most, "; got ", *options_.runs,
             ". With fewer than 6 no paired rank test can decide at 5 %.");
  }

  Plan expand() {
    plan_.name = study_.name;
    plan_.workloads = study_.workloads;
    for (const Missing& line : study_.missing) miss(line.part, line.what, line.why);
    Json parts = Json::array();
    for (const Part& part : study_.parts) {
      if (options_.parts.empty() || contains(options_.parts, part.name)) parts.push_back(expand(part));
    }
    TD_CHECK(!plan_.cells.empty() || !plan_.missing.empty(), "study '", study_.name,
             "': the options must leave something to measure; got none of its parts. Leave out --frameworks, "
             "--workloads or --device.");
    describe(std::move(parts));
    return std::move(plan_);
  }

 private:
  void miss(const std::string& part, const std::string& what, const std::string& why) {
    for (const Missing& line : plan_.missing) {
      if (line.part == part && line.what == what) return;
    }
    plan_.missing.push_back({part, what, why});
  }

  /// Systems of a part. The command line replaces the study's list, and narrows a list that a part has of its own:
  /// such a part is about those systems.
  std::vector<std::string> systems(const Part& part, const Axes& axes) {
    std::vector<std::string> own;
    for (const std::string& name : axes.frameworks.empty() ? study_.axes.frameworks : axes.frameworks) {
      for (const std::string& system : checked_systems(part, name)) {
        if (!contains(own, system)) own.push_back(system);
      }
    }
    if (options_.frameworks.empty()) return own;
    std::vector<std::string> chosen;
    for (const std::string& name : options_.frameworks) {
      std::vector<std::string> wanted = systems_of(name, known_);
      std::vector<std::string> both;
      for (const std::string& system : wanted) {
        if (contains(own, system)) both.push_back(system);
      }
      // "tandem" alone means its systems of this study; only where there is none of them, all that the driver has.
      if (!both.empty() || !axes.frameworks.empty()) wanted = both;
      for (const std::string& system : wanted) {
        if (!contains(chosen, system)) chosen.push_back(system);
      }
    }
    return chosen;
  }

  std::vector<std::string> checked_systems(const Part& part, const std::string& name) const {
    try {
      return systems_of(name, known_);
    } catch (const Error& error) {
      throw Error(str("read '", study_.path, "', part '", part.name, "': ", error.what()));
    }
  }

  std::vector<std::string> workloads(const Axes& axes) const {
    const std::vector<std::string>& own = axes.workloads.empty() ? study_.axes.workloads : axes.workloads;
    if (options_.workloads.empty()) return own;
    if (axes.workloads.empty()) return options_.workloads;
    std::vector<std::string> chosen;
    for (const std::string& name : own) {
      if (contains(options_.workloads, name)) chosen.push_back(name);
    }
    return chosen;
  }

  /// Devices of a part that the machine has; the others become lines of `missing`.
  std::vector<std::string> devices(const Part& part, const Axes& axes) {
    std::vector<std::string> list = axes.device.empty() ? study_.axes.device : axes.device;
    if (list.empty()) list = {"auto"};
    std::vector<std::string> chosen;
    for (std::string device : list) {
      const bool automatic = device == "auto";
      if (automatic) device = contains<std::string>(devices_there_, "cuda:0") ? "cuda:0" : "cpu";
      if (!options_.device.empty()) {
        if (automatic) device = options_.device;
        if (device != options_.device) continue;
      }
      if (device.find('-') != std::string::npos) {
        miss(part.name, "device " + device,
             "a cell runs on one device; cells of several devices are not there yet");
      } else if (!contains(devices_there_, device)) {
        miss(part.name, "device " + device, "this machine has only " + listed(devices_there_));
      } else if (!contains(chosen, device)) {
        chosen.push_back(device);
      }
    }
    return chosen;
  }

  Effort effort(const Part& part, const Workload& workload) const {
    Effort effort;
    apply(study_.effort, effort);
    apply(part.effort, effort);
    if (options_.quick) {
      apply(study_.quick_effort, effort);
      apply(part.quick_effort, effort);
    }
    if (options_.runs) effort.runs = *options_.runs;
    if (part.phase == "fit" && effort.epochs == 0 && workload.definition.contains("fit")) {
      effort.epochs = workload.definition["fit"].value("epochs", int64_t{1});
    }
    return effort;
  }

  /// The optimiser that an entry means for a workload: by name, one of the workload's.
  Json optimizer(const Part& part, const Json& entry, const Workload& workload) const {
    if (entry.is_object()) return entry;
    const std::string name = entry.get<std::string>();
    const Json& definition = workload.definition;
    if (definition.contains("optimizers") && definition["optimizers"].contains(name))
      return definition["optimizers"][name];
    if (definition["optimizer"]["name"] == name) return definition["optimizer"];
    throw Error(str("read '", study_.path, "', part '", part.name,
                    "': an optimizer must be one of the workload ", workload.name, "; got '",
                    io::one_line(name, 80), "'. Add it to its [optimizers], or write a table."));
  }

  std::string control(const Part& part, const std::vector<std::string>& systems) const {
    std::string control = part.control.value_or(study_.control);
    if (options_.quick && part.quick_control) control = *part.quick_control;
    if (control.empty() || systems.empty()) return "";
    if (contains(systems, control)) return control;
    TD_CHECK(!checked_systems(part, control).empty() && control.find(':') != std::string::npos, "read '",
             study_.path, "', part '", part.name,
             "': control must be one system such as \"tandem:graph\"; got '", control,
             "'. Name its variant.");
    return systems.front();  // the options left the control's system out: another one gives the noise floor
  }

  std::string no_such_workload(const std::string& name) const {
    std::vector<std::string> names = workload_names();
    for (const Workload& own : study_.workloads.own()) names.push_back(own.name);
    const std::string near = nearest_name(name, names);
    return str("there is no studies/workloads/", io::one_line(name, 80), ".toml; ",
               near.empty() ? "`tandem lab list` shows those that there are" : "the nearest name is " + near);
  }

  /// Why a workload cannot stand in a part; "": it can.
  std::string unfit(const Part& part, const Axes& axes, const Workload& workload) const {
    const auto on_storage = [](const auto& turned) { return turned.contains(kStorage); };
    if (workload.images && part.phase == "fit")
      return "phase fit trains on arrays, and its samples are image files";
    if (workload.images) {
      const auto is_cut = [&](const std::vector<int64_t>& size) {
        return size.size() == 3 && size[0] == 3 && std::max(size[1], size[2]) <= workload.images->resize;
      };
      return std::all_of(axes.input.begin(), axes.input.end(), is_cut)
                 ? ""
                 : str("its samples are cut out of pictures of at least ", workload.images->resize, " by ",
                       workload.images->resize, " pixels, and another input is asked for");
    }
    if (part.phase == "load") return "phase load makes samples of image files, and it has no [images]";
    if (std::any_of(axes.switches.begin(), axes.switches.end(), on_storage))
      return "storage is that of image files, and it has no [images]";
    return "";
  }

  Json expand(const Part& part) {
    const Axes axes = effective_axes(part, options_.quick, !options_.workloads.empty());
    const std::vector<std::string> systems = this->systems(part, axes);
    const std::string control = this->control(part, systems);
    const size_t before = plan_.cells.size();
    std::vector<std::string> used_workloads, used_devices;
    if (options_.quick && !part.quick_skip.empty()) {
      miss(part.name, "the whole part", "left out with --quick: " + part.quick_skip);
    } else if (!systems.empty()) {
      used_workloads = workloads(axes);
      used_devices = used_workloads.empty() ? std::vector<std::string>{} : devices(part, axes);
    }
    for (const std::string& name : used_workloads) {
      if (!study_.workloads.has(name)) {
        miss(part.name, "workload " + name, no_such_workload(name));
        continue;
      }
      const Workload workload = study_.workloads.load(name);
      if (const std::string why = unfit(part, axes, workload); !why.empty())
        miss(part.name, "workload " + name, why);
      else
        expand(part, axes, workload, used_devices, systems, control);
    }
    const Effort shown = effort(part, Workload{});
    Json figures = Json::array();
    for (const Figure& figure : part.figures) {
      figures.push_back({{"kind", figure.kind},
                         {"counterpart", figure.counterpart},
                         {"title", figure.title},
                         {"note", figure.note},
                         {"metrics", figure.metrics},
                         {"x", figure.x}});
    }
    return {{"name", part.name},
            {"title", part.title},
            {"counterpart", part.counterpart},
            {"note", part.note},
            {"phase", part.phase},
            {"track", part.track},
            {"frameworks", systems},
            {"workloads", used_workloads},
            {"devices", used_devices},
            {"control", control},
            {"runs", shown.runs},
            {"timed_steps", shown.timed_steps},
            {"warmup_steps", shown.warmup_steps},
            {"cells", plan_.cells.size() - before},
            {"figures", figures}};
  }

  void expand(const Part& part, const Axes& axes, const Workload& workload,
              const std::vector<std::string>& devices, const std::vector<std::string>& systems,
              const std::string& control) {
    const auto batches = axes.batch.empty() ? std::vector<int64_t>{workload.batch} : axes.batch;
    const auto inputs = axes.input.empty() ? std::vector<std::vector<int64_t>>{workload.input} : axes.input;
    const auto precisions =
        axes.precision.empty() ? std::vector<std::string>{workload.precision} : axes.precision;
    const auto switches =
        axes.switches.empty() ? std::vector<std::map<std::string, std::string>>{{}} : axes.switches;
    std::vector<Json> optimizers = {Json()};
    if (trains(part.phase)) {
      optimizers = {workload.definition["optimizer"]};
      if (!axes.optimizer.empty()) optimizers.clear();
      for (const Json& entry : axes.optimizer) optimizers.push_back(optimizer(part, entry, workload));
    }
    for (const std::string& device : devices)
      for (const std::string& precision : precisions)
        for (const auto& input : inputs)
          for (const int64_t batch : batches)
            for (const Json& optimizer : optimizers)
              for (const auto& turned : switches) {
                const std::string name = optimizer.is_null() ? "" : optimizer["name"].get<std::string>();
                const Condition condition{workload.name, part.phase, part.track, device, precision,
                                          batch,         input,      name,       turned};
                for (const std::string& system : systems)
                  add(part, system, "", condition, workload, optimizer);
                add_controls(part, systems, control, condition, workload, optimizer);
              }
  }

  /// Each system against itself: the one that the study names in every block, the others in half of the blocks, and only where so
  /// many runs can decide anything.
  void add_controls(const Part& part, const std::vector<std::string>& systems, const std::string& control,
                    const Condition& condition, const Workload& workload, const Json& optimizer) {
    if (control.empty()) return;
    add(part, control, "A/A", condition, workload, optimizer);
    for (const std::string& system : systems) {
      if (system == control || effort(part, workload).runs < kFewestToDecide) continue;
      add(part, system, "A/A", condition, workload, optimizer);
      Effort& shorter = plan_.cells.back().effort;
      shorter.runs = (shorter.runs + 1) / 2;
    }
  }

  void add(const Part& part, const std::string& system, const std::string& control,
           const Condition& condition, const Workload& workload, const Json& optimizer) {
    TD_CHECK(seen_.insert({system, control, condition}).second, "read '", study_.path, "', part '", part.name,
             "': each cell must be measured in one part alone; got ", system, " with ", condition.text(),
             " twice. Take it out of one part and let a figure of the other show it.");
    TD_CHECK(plan_.cells.size() < limits::cells, "read '", study_.path, "': a study must have at most ",
             limits::cells, " cells; got more in part '", part.name, "'. Shorten its lists.");
    plan_.cells.push_back({part.name, system, control, condition, effort(part, workload), optimizer});
  }

  void describe(Json parts) {
    Json missing = Json::array();
    for (const Missing& line : plan_.missing)
      missing.push_back({{"part", line.part}, {"what", line.what}, {"why", line.why}});
    plan_.study = {{"name", study_.name},
                   {"title", study_.title},
                   {"paper", study_.paper},
                   {"question", study_.question},
                   {"hypotheses", study_.hypotheses},
                   {"parts", std::move(parts)},
                   {"missing", std::move(missing)},
                   {"options",
                    {{"quick", options_.quick},
                     {"frameworks", options_.frameworks},
                     {"workloads", options_.workloads},
                     {"parts", options_.parts},
                     {"device", options_.device},
                     {"runs", options_.runs ? Json(*options_.runs) : Json()}}}};
    if (!options_.drivers.empty()) plan_.study["options"]["drivers"] = options_.drivers;
    // What the study itself says of them must be the same where it goes on; files are in the provenance.
    for (const Workload& own : study_.workloads.own())
      plan_.study["workloads"][own.name] = {{"definition", own.definition}, {"network", own.description}};
  }

  const StudyFile& study_;
  PlanOptions options_;
  std::vector<Framework> known_;
  std::vector<std::string> devices_there_;
  std::set<std::tuple<std::string, std::string, Condition>> seen_;
  Plan plan_;
};

}  // namespace

Plan expand_study(const StudyFile& study, const PlanOptions& options) {
  return Expansion(study, options).expand();
}

namespace {

StudyFile study_named(const std::string& name) {
  std::string path = name;
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".toml");
  if (!is_path) {
    const std::vector<std::string> names = study_names();
    TD_CHECK(contains(names, name), "study: the name must be one of ", listed(names),
             ", or a file's path; got '", io::one_line(name, 80), "'. `tandem lab list` shows them.");
    path = (fs::path(lab_home()) / "studies" / (name + ".toml")).string();
  }
  return read_study(fs::path(path).stem().string(), path);
}

}  // namespace

Plan make_plan(const std::string& name, const PlanOptions& options) {
  return expand_study(study_named(name), options);
}

Workloads workloads_of(const std::string& name) { return study_named(name).workloads; }

}  // namespace tandem::lab
