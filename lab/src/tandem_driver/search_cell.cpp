#include "lab/src/tandem_driver/search_cell.h"

#include <algorithm>
#include <filesystem>

#include "lab/src/tandem_driver/prepared_cell.h"

namespace tandem::lab::tandem_driver {
namespace {

namespace fs = std::filesystem;

/// A temporary folder with links to the lab's arrays, named as `--data npy` expects. The destructor removes it.
class ArrayFolder {
 public:
  explicit ArrayFolder(const CellRequest& request) {
    std::string name = (fs::temp_directory_path() / "tandem_lab_search_XXXXXX").string();
    TD_CHECK(::mkdtemp(name.data()), "fit: a folder for the search must be made in ",
             fs::temp_directory_path().string(), "; it cannot be. Set TMPDIR to another place.");
    path_ = name;
    const std::string x = request.line.inputs[0].name, y = request.objective.first().target;
    for (const auto& [part, files] : {std::pair{"train", &request.train}, std::pair{"test", &request.test}}) {
      link(part, "x", files->at(x));
      link(part, "y", files->at(y));
    }
  }
  ~ArrayFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ArrayFolder(const ArrayFolder&) = delete;
  ArrayFolder& operator=(const ArrayFolder&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  void link(const std::string& part, const std::string& name, const std::string& file) const {
    fs::create_directories(path_ / "data");
    fs::create_symlink(fs::absolute(file), path_ / "data" / str(part, "_", name, ".npy"));
  }
  fs::path path_;
};

double named(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& metric : metrics)
    if (metric.name == name) return metric.value;
  throw Error(str("fit: the search must measure ", name, "; it does not."));
}

}  // namespace

SearchCell::SearchCell(CellRequest request) : request_(std::move(request)) {
  if (request_.equal)
    throw Declined(
        "track",
        "track: a search changes network and settings, so it has no equal; got equal. Take as_shipped.");
  if (!request_.trim.empty())
    throw Declined("trim", "trim: a search takes samples of one size; got lengths to trim them by.");
  if (!request_.trains) throw Declined("phase", "phase: a search trains; got infer.");
  if (request_.precision != "f32")
    throw Declined("precision", str("precision: a search computes in f32; got ", request_.precision, "."));
  TD_CHECK(!request_.test.empty(), "data: a search is judged by the part test; got train alone.");
  if (!request_.in_zoo || request_.is_whole ||
      request_.objective.metrics != std::vector<std::string>{"accuracy"})
    throw Declined("network",
                   str("network: a search begins with a model of Tandem's zoo that classifies; got ",
                       request_.model, "."));
}

Json SearchCell::prepared() const {
  const auto first = zoo::make_model(
      request_.model, {.classes = request_.objective.classes, .input = request_.line.inputs[0].shape});
  return {{"parameters", nn::count_parameters(*first)},
          {"obeyed", request_.switches},
          {"notes",
           {str("search: ", request_.search, " from ", request_.model,
                ", whose number of parameters this is; a tenth of the training part judges the trials.")}}};
}

Json SearchCell::fit(const Json& request, const std::function<void(const Json&)>& progress) const {
  const int64_t epochs = integer_field(request, "epochs", 1, 1'000'000);
  if (epochs != 1)
    throw Declined("epochs", str("epochs: a search is one, of cap_s seconds; got ", epochs, ". Ask for 1."));
  const Json cap = request.value("cap_s", Json());
  TD_CHECK(cap.is_number() && cap.get<double>() > 0,
           "cap_s: a search needs a number of seconds above 0; got ", io::one_line(cap.dump(), 80), ".");
  const ArrayFolder folder(request_);
  search::SearchConfig config;
  config.base.model = request_.model;
  config.base.data = "npy";
  config.base.data_dir = folder.path("data");
  config.base.device = request_.device;
  config.base.machine.threads = request_.threads;
  config.base.seed = request_.seed;
  config.base.out = folder.path("search");
  config.method = request_.search;
  config.budget = cap.get<double>();
  const int64_t begin = now_ns();
  const search::SearchResult found = search::search(config);
  const int64_t end = now_ns();
  const auto failed = std::find_if(found.trials.begin(), found.trials.end(),
                                   [](const search::Trial& trial) { return !trial.failed.empty(); });
  TD_CHECK(found.winner, "fit: a trial must finish an epoch within ", *config.budget, " s; none did",
           failed == found.trials.end() ? "" : str(" (", failed->failed, ")"), ". Give more cap_s.");
  const search::Trial& winner = found.trials[*found.winner];
  const size_t best = *winner.best_epoch(found.metric.higher_is_better);
  progress({{"epoch", 1},
            {"begin", begin},
            {"train_end", end},
            {"end", end},
            {"loss", winner.losses[best]},
            {"metrics", {{"accuracy", winner.values[best]}}},
            {"test_loss", named(found.test, "test_loss")},
            {"test_metrics", {{"accuracy", named(found.test, "test_accuracy")}}}});
  return {{"epochs", 1}, {"capped", false}, {"confusion", Json()}};
}

}  // namespace tandem::lab::tandem_driver
