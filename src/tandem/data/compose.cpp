// Data sets made of data sets.
#include "tandem/data/compose.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "tandem/core/mutex.h"
#include "tandem/data/loader.h"

namespace tandem::data {

namespace {

void check_base(const char* what, const DatasetPtr& base) {
  TD_CHECK(base != nullptr, what, ": needs a data set; got none.");
}

/// What has its own get_at: the rest follows from it.
class Made : public Dataset {
 public:
  std::vector<Tensor> get(int64_t i) const final { return get_at(i, 0); }
  std::vector<Tensor> batch(std::span<const int64_t> indices) const final { return batch_at(indices, 0); }
  std::vector<Tensor> batch_at(std::span<const int64_t> indices, int64_t epoch) const override {
    return stack_samples(*this, indices, [&](int64_t i) { return get_at(i, epoch); });
  }
};

class Mapped final : public Made {
 public:
  Mapped(DatasetPtr base, std::function<Sample(Sample, SampleRandom&)> function, uint64_t seed, bool random,
         std::optional<std::vector<Field>> fields = {})
      : base_(std::move(base)),
        function_(std::move(function)),
        seed_(seed),
        random_(random),
        fields_(std::move(fields)) {}
  int64_t size() const override { return base_->size(); }
  std::vector<Field> fields() const override { return fields_ ? *fields_ : base_->fields(); }
  bool varies() const override { return random_ || base_->varies(); }
  std::string describe() const override { return base_->describe(); }
  std::string sample_name(int64_t i) const override { return base_->sample_name(i); }
  std::vector<Tensor> get_at(int64_t i, int64_t epoch) const override {
    SampleRandom random(seed_, epoch, i);
    return function_(base_->get_at(i, epoch), random);
  }

 private:
  DatasetPtr base_;
  std::function<Sample(Sample, SampleRandom&)> function_;
  uint64_t seed_;
  bool random_;
  std::optional<std::vector<Field>> fields_;  // other than the base's
};

class Shuffled final : public Reordered {
 public:
  Shuffled(DatasetPtr base, uint64_t seed) : Reordered("shuffle", std::move(base)), seed_(seed) {}
  int64_t size() const override { return base_->size(); }
  bool varies() const override { return true; }
  std::string describe() const override { return base_->describe() + ", shuffled"; }

 private:
  using Order = std::shared_ptr<const std::vector<int64_t>>;
  int64_t index_of(int64_t i, int64_t epoch) const override {
    return (*order(epoch))[static_cast<size_t>(i)];
  }
  /// Two orders are kept, as workers may still be in one epoch while others have begun the next.
  Order order(int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    Kept& kept = kept_[epoch & 1];
    if (!kept.order || kept.epoch != epoch)
      kept = {epoch, std::make_shared<std::vector<int64_t>>(shuffled_order(size(), seed_, epoch))};
    return kept.order;
  }

  struct Kept {
    int64_t epoch = -1;
    Order order;
  };
  uint64_t seed_;
  mutable Mutex mutex_{LockOrder::data};
  mutable Kept kept_[2];
};

class Concatenated final : public Made {
 public:
  explicit Concatenated(std::vector<DatasetPtr> bases) : bases_(std::move(bases)) {
    for (const DatasetPtr& base : bases_) {
      check_base("concat", base);
      TD_CHECK(base->fields() == bases_.front()->fields(),
               "concat: all data sets must have the same fields; those of ", base->describe(), " and of ",
               bases_.front()->describe(), " differ. Name them alike by with_fields().");
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + base->size());
    }
  }
  int64_t size() const override { return ends_.back(); }
  std::vector<Field> fields() const override { return bases_.front()->fields(); }
  bool varies() const override {
    return std::any_of(bases_.begin(), bases_.end(), [](const DatasetPtr& base) { return base->varies(); });
  }
  std::string describe() const override {
    std::string text;
    for (const DatasetPtr& base : bases_) text += (text.empty() ? "" : " + ") + base->describe();
    return text;
  }
  std::string sample_name(int64_t i) const override {
    const auto [base, index] = place(i);
    return base->sample_name(index);
  }
  int64_t length(int64_t i) const override {
    check_index("length", i, size());
    const auto [base, index] = place(i);
    return base->length(index);
  }
  std::vector<Tensor> get_at(int64_t i, int64_t epoch) const override {
    check_index("get", i, size());
    const auto [base, index] = place(i);
    return base->get_at(index, epoch);
  }

 private:
  std::pair<const Dataset*, int64_t> place(int64_t i) const {
    // The first set that ends after i: empty ones are passed over.
    const auto k = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
    return {bases_[k].get(), i - (k == 0 ? 0 : ends_[k - 1])};
  }
  std::vector<DatasetPtr> bases_;
  std::vector<int64_t> ends_;
};

/// Every world-th sample, from `rank` on: the parts differ in size by one at most. wrap begins again at the front, so
/// that all parts are equally long.
class Sharded final : public Reordered {
 public:
  Sharded(DatasetPtr base, int64_t rank, int64_t world, LastBatch rest)
      : Reordered("shard", std::move(base)), rank_(rank), world_(world) {
    const int64_t all = base_->size();
    TD_CHECK(world >= 1 && rank >= 0 && rank < world, "shard: must have 0 <= rank < world; got rank ", rank,
             " of ", world, ".");
    TD_CHECK(rest == LastBatch::wrap ? all >= 1 : all / world >= (rest == LastBatch::drop ? 1 : 0),
             "shard: the data set must hold a sample for each of ", world, " parts; it holds ", all, ".");
    size_ = rest == LastBatch::keep   ? (all - rank + world - 1) / world
            : rest == LastBatch::drop ? all / world
                                      : (all + world - 1) / world;
  }
  int64_t size() const override { return size_; }
  std::string describe() const override { return str(base_->describe(), ", part ", rank_, " of ", world_); }

 private:
  int64_t index_of(int64_t i, int64_t) const override { return (rank_ + i * world_) % base_->size(); }
  int64_t rank_, world_, size_ = 0;
};

class Batched final : public Made {
 public:
  Batched(DatasetPtr base, int64_t batch, LastBatch last)
      : base_(std::move(base)), batch_(batch), last_(last) {
    check_base("batched", base_);
    TD_CHECK(batch >= 1, "batched: the batch must be at least 1; got ", batch, ".");
  }
  int64_t size() const override {
    return base_->size() / batch_ + (last_ != LastBatch::drop && base_->size() % batch_ != 0);
  }
  std::vector<Field> fields() const override {
    std::vector<Field> all = base_->fields();
    for (Field& field : all) field.join = Join::stack;  // a sample is a batch, whose samples had one shape
    return all;
  }
  bool varies() const override { return base_->varies(); }
  std::string describe() const override { return str(base_->describe(), ", in batches of ", batch_); }
  std::vector<Tensor> get_at(int64_t i, int64_t epoch) const override {
    check_index("get", i, size());
    std::vector<int64_t> indices;
    for (int64_t k = i * batch_; k < (i + 1) * batch_; ++k)
      if (k < base_->size() || last_ == LastBatch::wrap) indices.push_back(k % base_->size());
    return base_->batch_at(indices, epoch);
  }

 private:
  DatasetPtr base_;
  int64_t batch_;
  LastBatch last_;
};

/// Keeps samples as they come until the room is used up; nothing is ever dropped, as every epoch asks for every
/// sample.
class Cached final : public Made {
 public:
  Cached(DatasetPtr base, int64_t max_bytes)
      : base_(std::move(base)), room_(max_bytes), kept_(static_cast<size_t>(base_->size())) {}
  int64_t size() const override { return base_->size(); }
  std::vector<Field> fields() const override { return base_->fields(); }
  std::string describe() const override { return base_->describe(); }
  std::string sample_name(int64_t i) const override { return base_->sample_name(i); }
  int64_t length(int64_t i) const override { return base_->length(i); }
  std::vector<Tensor> get_at(int64_t i, int64_t) const override {
    check_index("get", i, size());
    std::vector<Tensor>& place = kept_[static_cast<size_t>(i)];
    {
      const std::lock_guard lock(mutex_);
      if (!place.empty()) return place;
    }
    std::vector<Tensor> sample = base_->get(i);  // without the lock: rather twice than wait
    int64_t bytes = 0;
    for (const Tensor& field : sample) bytes += field.size() * static_cast<int64_t>(bytes_of(field.dtype()));
    const std::lock_guard lock(mutex_);
    if (place.empty() && bytes <= room_) {
      place = sample;
      room_ -= bytes;
    }
    return sample;
  }

 private:
  DatasetPtr base_;
  mutable Mutex mutex_{LockOrder::data};
  mutable int64_t room_;
  mutable std::vector<std::vector<Tensor>> kept_;
};

}  // namespace

DatasetPtr map(DatasetPtr base, std::function<Sample(Sample)> function) {
  check_base("map", base);
  TD_CHECK(function, "map: needs a function; got none.");
  return std::make_shared<Mapped>(
      std::move(base),
      [function = std::move(function)](Sample sample, SampleRandom&) { return function(std::move(sample)); },
      0, false);
}

DatasetPtr map_random(DatasetPtr base, std::function<Sample(Sample, SampleRandom&)> function, uint64_t seed) {
  check_base("map_random", base);
  TD_CHECK(function, "map_random: needs a function; got none.");
  return std::make_shared<Mapped>(std::move(base), std::move(function), seed, true);
}

DatasetPtr with_fields(DatasetPtr base, std::vector<Field> fields) {
  check_base("with_fields", base);
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  Names::of(names);  // refuses two of one name
  TD_CHECK(base->size() == 0 || base->get(0).size() == fields.size(),
           "with_fields: there must be one field for each tensor of a sample; got ", fields.size(),
           " for samples of ", base->get(0).size(), ".");
  return std::make_shared<Mapped>(
      std::move(base), [](Sample sample, SampleRandom&) { return sample; }, 0, false, std::move(fields));
}

DatasetPtr shuffle(DatasetPtr base, uint64_t seed) {
  return std::make_shared<Shuffled>(std::move(base), seed);
}

DatasetPtr concat(std::vector<DatasetPtr> bases) {
  TD_CHECK(!bases.empty(), "concat: needs at least one data set; got none.");
  return std::make_shared<Concatenated>(std::move(bases));
}

DatasetPtr subset(DatasetPtr base, std::vector<int64_t> indices) {
  return std::make_shared<Subset>(std::move(base), std::move(indices));
}

DatasetPtr subset(DatasetPtr base, int64_t begin, int64_t end) {
  check_base("subset", base);
  TD_CHECK(begin >= 0 && begin <= end && end <= base->size(),
           "subset: must have 0 <= begin <= end <= ", base->size(), "; got ", begin, " to ", end, ".");
  std::vector<int64_t> indices(static_cast<size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return subset(std::move(base), std::move(indices));
}

DatasetPtr shard(DatasetPtr base, int64_t rank, int64_t world, LastBatch rest) {
  return std::make_shared<Sharded>(std::move(base), rank, world, rest);
}

DatasetPtr batched(DatasetPtr base, int64_t batch, LastBatch last) {
  return std::make_shared<Batched>(std::move(base), batch, last);
}

DatasetPtr cache(DatasetPtr base, int64_t max_bytes) {
  check_base("cache", base);
  TD_CHECK(!base->varies(),
           "cache: the data set must be the same in every epoch; it has random transforms or a "
           "shuffle. Put the cache before them.");
  TD_CHECK(max_bytes >= 0, "cache: max_bytes must be at least 0; got ", max_bytes, ".");
  return std::make_shared<Cached>(std::move(base), max_bytes);
}

TensorSet::TensorSet(const Named& fields, std::string name) : TensorSet(fields.values(), std::move(name)) {
  for (const std::string& each : fields.names())
    names_.emplace_back(each, each == "target" ? Role::target : Role::input);
}

TensorSet::TensorSet(std::vector<Tensor> fields, std::string name) : name_(std::move(name)) {
  TD_CHECK(!fields.empty(), "tensor set: needs at least one tensor; got none.");
  for (const Tensor& field : fields) {
    TD_CHECK(field.defined() && field.rank() >= 1 && field.size(0) == fields[0].size(0),
             "tensor set: all tensors must have as many rows; got ",
             field.defined() ? tandem::describe(field) : std::string("an undefined tensor"), " beside ",
             tandem::describe(fields[0]), ".");
    if (field.device().is_cpu() && field.is_contiguous())
      fields_.push_back(field.detach());
    else
      fields_.push_back(from_host(host_bytes(field).data(), field.shape(), field.dtype()));
  }
}

std::vector<Tensor> TensorSet::get(int64_t i) const {
  check_index("get", i, size());
  std::vector<Tensor> sample;
  for (const Tensor& field : fields_) {
    Dims shape = field.shape();
    shape.erase(0);
    const size_t bytes = static_cast<size_t>(size_of(shape)) * bytes_of(field.dtype());
    sample.push_back(from_host(static_cast<const std::byte*>(field.raw()) + static_cast<size_t>(i) * bytes,
                               shape, field.dtype()));
  }
  return sample;
}

std::vector<Tensor> TensorSet::batch(std::span<const int64_t> indices) const {
  TD_CHECK(!indices.empty(), "batch: must ask for at least one sample; got none.");
  for (int64_t i : indices) check_index("batch", i, size());
  std::vector<Tensor> stacked;
  for (const Tensor& field : fields_) {
    Dims shape = field.shape();
    shape[0] = static_cast<Dim>(indices.size());
    stacked.push_back(empty(shape, field.dtype()));
    const size_t bytes =
        static_cast<size_t>(stacked.back().size()) / indices.size() * bytes_of(field.dtype());
    if (bytes == 0) continue;
    for (size_t row = 0; row < indices.size(); ++row)
      std::memcpy(static_cast<std::byte*>(stacked.back().raw()) + row * bytes,
                  static_cast<const std::byte*>(field.raw()) + static_cast<size_t>(indices[row]) * bytes,
                  bytes);
  }
  return stacked;
}

std::string TensorSet::describe() const { return str(name_, ": ", size(), " samples"); }

}  // namespace tandem::data
