// The call `fit`: the library's fit, with a test after each epoch, as a user would write it.
#include <limits>

#include "lab/src/tandem_driver/prepared_cell.h"

namespace tandem::lab::tandem_driver {
namespace {

/// After each epoch: runs the test, sends the progress to the lab, and stops the training if `cap_s` seconds have passed.
class EpochReporter final : public Callback {
 public:
  EpochReporter(const CellRequest& cell, nn::Module& model, const data::Dataset* test, int64_t batches,
                std::shared_ptr<Followed> followed, double cap_s, std::function<void(const Json&)> progress)
      : device_(cell.device),
        batch_(cell.batch),
        batches_(batches),
        counts_places_(cell.objective.counts_places()),
        test_(test),
        followed_(std::move(followed)),
        metrics_(cell.objective.metrics),
        cap_s_(cap_s),
        progress_(std::move(progress)),
        evaluation_(model, cell.engine,
                    {.task = make_task(cell, false, followed_), .autocast = cell.autocast()}) {}

  void on_start(Training&) override { start_ = begin_ = now_ns(); }
  void on_epoch(Training& training) override {
    backend(device_).synchronize(device_);
    const int64_t train_end = now_ns();
    ++epochs_;
    Json line = {{"epoch", epochs_},          {"begin", begin_},
                 {"train_end", train_end},    {"loss", training.state().history.back()["train_loss"]},
                 {"metrics", Json::object()}, {"test_loss", Json()},
                 {"test_metrics", Json()}};
    if (counts_places_) line["loss"] = followed_->loss.item<double>() / static_cast<double>(batches_);
    const int64_t places = followed_->places.item<int64_t>();
    if (places > 0)
      line["metrics"]["accuracy"] =
          static_cast<double>(followed_->right.item<int64_t>()) / static_cast<double>(places);
    if (test_) {
      const Metrics measured = evaluation_(*test_, batch_);
      line["test_loss"] = measured["loss"];
      line["test_metrics"] = Json::object();
      for (const std::string& name : metrics_) line["test_metrics"][name] = measured[name];
    }
    followed_->clear();
    begin_ = now_ns();
    line["end"] = begin_;
    progress_(line);
    const double seconds = static_cast<double>(begin_ - start_) * 1e-9;
    capped_ = seconds >= cap_s_ && training.state().step < training.planned_steps();
    if (capped_) training.stop("the cap has passed");
  }
  Metrics tested(const data::Dataset& test) { return evaluation_(test, batch_); }
  int64_t epochs() const { return epochs_; }
  bool capped() const { return capped_; }

 private:
  Device device_;
  int64_t batch_, batches_;
  bool counts_places_;
  const data::Dataset* test_;
  std::shared_ptr<Followed> followed_;
  std::vector<std::string> metrics_;
  double cap_s_;
  std::function<void(const Json&)> progress_;
  Evaluation evaluation_;
  int64_t start_ = 0, begin_ = 0, epochs_ = 0;
  bool capped_ = false;
};

}  // namespace

Json PreparedCell::fit(const Json& request, const std::function<void(const Json&)>& progress) {
  if (!request_.trains) throw Declined("fit", "fit: the cell must be prepared in phase train; got infer.");
  const int64_t epochs = integer_field(request, "epochs", 1, 1'000'000);
  const Json cap = request.value("cap_s", Json());
  TD_CHECK(cap.is_null() || (cap.is_number() && cap.get<double>() >= 0),
           "cap_s: must be a number of seconds, at least 0; got ", io::one_line(cap.dump(), 80), ".");
  const double cap_s = cap.is_null() ? std::numeric_limits<double>::infinity() : cap.get<double>();
  const int64_t batches = train_->size() / request_.batch;
  TD_CHECK(batches >= 1, "fit: an epoch must have a whole batch; got ", train_->size(), " samples and batch ",
           request_.batch, ".");
  const auto followed = std::make_shared<Followed>(request_.device);
  const auto reporter =
      std::make_shared<EpochReporter>(request_, *model_, test_.get(), batches, followed, cap_s, progress);
  tandem::fit(*model_, *train_,
              {.task = make_task(request_, true, followed),
               .engine = request_.engine,
               .epochs = epochs,
               .batch = request_.batch,
               .own_optimizer = optimizer_.get(),
               .autocast = request_.autocast(),
               .callbacks = {reporter},
               .compile = request_.compile});
  is_fresh_ = false;
  updates_ += batches * reporter->epochs();
  Json confusion;
  if (test_ && followed->confusion.samples() > 0) {
    const int64_t classes = followed->confusion.classes();
    confusion = Json::array();
    for (int64_t i = 0; i < classes; ++i) {
      confusion.push_back(Json::array());
      for (int64_t j = 0; j < classes; ++j) confusion.back().push_back(followed->confusion.count(i, j));
    }
  }
  Json answer = {{"epochs", reporter->epochs()}, {"capped", reporter->capped()}, {"confusion", confusion}};
  for (const auto& [part, files] : request_.more_tests) {
    const Metrics measured = reporter->tested(*load_samples(part, files, request_));
    answer["tests"][part] = {{"loss", measured["loss"]}, {"metrics", Json::object()}};
    for (const std::string& name : request_.objective.metrics)
      answer["tests"][part]["metrics"][name] = measured[name];
  }
  return answer;
}

}  // namespace tandem::lab::tandem_driver
