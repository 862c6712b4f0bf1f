// The classes of samples.
#include "tandem/data/labels.h"

#include "tandem/core/threads.h"
#include "tandem/data/image_set.h"

namespace tandem::data {
namespace {

class WithLabels final : public Dataset, public Labelled {
 public:
  WithLabels(DatasetPtr made, std::vector<int64_t> labels)
      : made_(std::move(made)), labels_(std::move(labels)) {}
  int64_t size() const override { return made_->size(); }
  std::vector<Field> fields() const override { return made_->fields(); }
  std::vector<Tensor> get(int64_t i) const override { return made_->get(i); }
  std::vector<Tensor> batch(std::span<const int64_t> indices) const override { return made_->batch(indices); }
  std::string describe() const override { return made_->describe(); }
  bool varies() const override { return made_->varies(); }
  std::vector<Tensor> get_at(int64_t i, int64_t epoch) const override { return made_->get_at(i, epoch); }
  std::vector<Tensor> batch_at(std::span<const int64_t> indices, int64_t epoch) const override {
    return made_->batch_at(indices, epoch);
  }
  int64_t length(int64_t i) const override { return made_->length(i); }
  std::string sample_name(int64_t i) const override { return made_->sample_name(i); }
  int64_t label(int64_t i) const override {
    check_index("label", i, size());
    return labels_[static_cast<size_t>(i)];
  }

 private:
  DatasetPtr made_;
  std::vector<int64_t> labels_;
};

}  // namespace

std::vector<int64_t> class_labels(const Dataset& set) {
  const auto* known = dynamic_cast<const Labelled*>(&set);
  const auto* images = dynamic_cast<const ImageDataset*>(&set);
  std::vector<int64_t> labels(static_cast<size_t>(set.size()));
  if (known || images) {
    for (int64_t i = 0; i < set.size(); ++i)
      labels[static_cast<size_t>(i)] = known ? known->label(i) : images->label(i);
    return labels;
  }
  parallel_for(set.size(),
               [&](int64_t i) { labels[static_cast<size_t>(i)] = set.get(i).at(1).item<int64_t>(); });
  return labels;
}

DatasetPtr labelled(DatasetPtr made, std::vector<int64_t> labels) {
  TD_CHECK(made != nullptr, "labelled: needs a data set; got none.");
  TD_CHECK(made->size() == static_cast<int64_t>(labels.size()),
           "labelled: there must be a class for each of ", made->size(), " samples; got ", labels.size(),
           ".");
  return std::make_shared<WithLabels>(std::move(made), std::move(labels));
}

}  // namespace tandem::data
