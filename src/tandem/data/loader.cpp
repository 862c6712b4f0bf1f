// The loader's threads. Workers claim batch numbers in order, make them without a lock, and put them into a ring
// of slots; next() takes them out in order. A forked child has no workers: its loader hires others when it is next used,
// and hands out the same batches.
#include "tandem/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "tandem/core/copy_queue.h"
#include "tandem/core/mutex.h"
#include "tandem/core/rng.h"

namespace tandem::data {

namespace {
constexpr uint64_t kShuffleStream =
    0x73687566666c6521;                                // keeps the shuffle apart from the ops' random numbers
constexpr uint64_t kBatchStream = 0x6261746368657321;  // and the batches' numbers apart from the samples'
/// Tensors of these names, and "field 3" and so on for those behind them.
Named with_more(const Names& names, std::vector<Tensor> values) {
  std::vector<std::string> all(names.begin(), names.end());
  while (all.size() < values.size()) all.push_back(str("field ", all.size() + 1));
  return {Names::of(all), std::move(values)};
}

}  // namespace

std::vector<int64_t> shuffled_order(int64_t size, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  // Fisher and Yates. Epoch and place are both below 2^32, so that no two draws share a counter.
  for (int64_t i = size - 1; i > 0; --i) {
    const uint64_t counter = static_cast<uint64_t>(epoch) << 32 ^ static_cast<uint64_t>(i);
    const PhiloxBlock block = philox(seed ^ kShuffleStream, counter);
    // 64 random bits scaled to 0 … i by the high half of a product: any bias is below 2^-31.
    const uint64_t bits = uint64_t{block.x[1]} << 32 | block.x[0];
    const auto j =
        static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(i + 1) >> 64);
    std::swap(order[static_cast<size_t>(i)], order[j]);
  }
  return order;
}

struct Loader::State {
  State(const Dataset& dataset, LoaderOptions options);
  ~State() { dismiss(); }
  void start_epoch(int64_t epoch, int64_t first_batch);
  std::optional<Batch> next();

  /// The samples of an epoch: one after the other, or by buckets.
  struct Plan {
    std::vector<int64_t> samples;
    std::vector<BucketBatch> batches;  // empty without buckets
  };
  using Order = std::shared_ptr<const Plan>;
  struct Made {
    Batch batch;
    std::optional<CopyQueue::Arriving>
        arriving;  // its tensors, where they are on their way to another device
  };
  struct Slot {
    std::optional<Made> made;
    std::exception_ptr error;
  };
  Order plan(int64_t epoch) const;
  Batch make(const Plan& plan, int64_t epoch, int64_t index) const;
  /// "batch 2 of epoch 0 of 46 samples (sample 5, sample 17, sample 3 and 5 more)".
  std::string name_of(std::span<const int64_t> indices, int64_t epoch, int64_t index) const;
  /// Begins to move a batch to the device; waits for it.
  Made send(CopyQueue* queue, Batch batch) const;
  static Batch take(CopyQueue* queue, Made made);
  /// The workers and what they share with the caller's thread, under `mutex`.
  struct Crew {
    Mutex mutex{LockOrder::loader};
    std::condition_variable_any room, filled;
    int64_t next_claim = 0;   // the first batch that no worker has begun
    uint64_t generation = 0;  // counts start_epoch: a batch begun before the latest is thrown away
    std::vector<Slot> slots;  // a batch lies in slot index % prefetch until it is taken
    bool stopping = false;
    std::unique_ptr<CopyQueue> queue;  // to another device than the host
    std::vector<std::thread> workers;
  };
  void hire();
  void dismiss();
  /// The crew of this process.
  Crew& crew() {
    if (hired_in_ != fork_count()) [[unlikely]] {
      dismiss();
      hire();
    }
    return *crew_;
  }
  void work(Crew& crew);

  const Dataset& dataset_;
  const LoaderOptions options_;
  int64_t batches_ = 0;

  // Changed by the caller's thread alone, under the crew's mutex.
  int64_t epoch_ = -1;
  int64_t next_batch_ = 0;
  Order order_;

  std::unique_ptr<Crew> crew_;
  uint64_t hired_in_ = 0;  // fork_count() of the process that the workers run in
};

Loader::Loader(const Dataset& dataset, LoaderOptions options)
    : state_(std::make_unique<State>(dataset, std::move(options))) {}
Loader::~Loader() = default;
void Loader::start_epoch(int64_t epoch, int64_t first_batch) { state_->start_epoch(epoch, first_batch); }
std::optional<Batch> Loader::next() { return state_->next(); }
int64_t Loader::batches() const { return state_->batches_; }
int64_t Loader::epoch() const { return state_->epoch_; }
int64_t Loader::next_batch() const { return state_->next_batch_; }
const LoaderOptions& Loader::options() const { return state_->options_; }

namespace {
/// With what was left unset.
LoaderOptions completed(LoaderOptions options) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int usual = options.device.kind == DeviceKind::cpu ? 1 : std::clamp(cores - 1, 1, 12);
  if (!options.workers) options.workers = usual;
  if (!options.prefetch)
    options.prefetch = static_cast<int>(std::clamp<int64_t>(*options.workers, 2, kMostWorkers)) + 2;
  return options;
}
}  // namespace

Loader::State::State(const Dataset& dataset, LoaderOptions options)
    : dataset_(dataset), options_(completed(std::move(options))) {
  const int64_t size = dataset.size();
  TD_CHECK(options_.batch >= 1, "batch: must be at least 1; got ", options_.batch, ".");
  TD_CHECK(*options_.workers >= 0 && *options_.workers <= kMostWorkers, "workers: must be 0 to ",
           kMostWorkers, "; got ", *options_.workers, ".");
  TD_CHECK(*options_.prefetch >= 1, "prefetch: must be at least 1 batch; got ", *options_.prefetch, ".");
  TD_CHECK(size >= 1, "loader: the data set must hold at least one sample; got none.");
  TD_CHECK(size < int64_t{1} << 32, "loader: the data set must hold fewer than 2^32 samples; got ", size,
           ".");
  TD_CHECK(!options_.buckets || static_cast<int64_t>(options_.buckets->lengths.size()) == size,
           "buckets: there must be one length per sample; got ",
           options_.buckets ? options_.buckets->lengths.size() : 0, " for ", size, " samples.");
  const bool whole_only = options_.last_batch == LastBatch::drop;
  batches_ = options_.buckets ? static_cast<int64_t>(plan(0)->batches.size())
             : whole_only     ? size / options_.batch
                              : (size - 1) / options_.batch + 1;
  TD_CHECK(batches_ >= 1, "batch: must be at most the ", size, " samples of the data set; got ",
           options_.batch, ". Lower it, or keep the last batch.");
  hire();
}

/// A crew goes on from the next batch to be taken, whatever the one before it had prepared.
void Loader::State::hire() {
  crew_ = std::make_unique<Crew>();
  hired_in_ = fork_count();
  Crew& crew = *crew_;
  crew.slots.resize(static_cast<size_t>(*options_.prefetch));
  crew.next_claim = next_batch_;
  if (options_.device != Device{}) crew.queue = std::make_unique<CopyQueue>(options_.device);
  try {
    for (int i = 0; i < *options_.workers; ++i) crew.workers.emplace_back([this, &crew] { work(crew); });
  } catch (const std::system_error& error) {
    const size_t granted = crew.workers.size();
    dismiss();
    throw resource_error("workers: the system must grant ", *options_.workers, " threads; got ", granted,
                         " (", error.what(), "). Use fewer.");
  }
}

void Loader::State::dismiss() {
  if (!crew_) return;
  if (hired_in_ != fork_count()) {
    // In a forked child: the threads are gone, so they cannot be joined, nor can what they waited for be destroyed.
    static auto& abandoned = *new std::vector<Crew*>;
    crew_->slots.clear();
    crew_->queue.reset();
    abandoned.push_back(crew_.release());
    return;
  }
  {
    std::lock_guard lock(crew_->mutex);
    crew_->stopping = true;
  }
  crew_->room.notify_all();
  for (std::thread& worker : crew_->workers) worker.join();
  crew_.reset();
}

void Loader::State::start_epoch(int64_t epoch, int64_t first_batch) {
  TD_CHECK(epoch >= 0 && epoch < int64_t{1} << 32, "start_epoch: the epoch must be 0 to 2^32-1; got ", epoch,
           ".");
  TD_CHECK(first_batch >= 0 && first_batch <= batches_, "start_epoch: the first batch must be 0 to ",
           batches_, "; got ", first_batch, ".");
  const Order order = options_.shuffle || !order_ ? plan(epoch) : order_;
  Crew& crew = this->crew();
  {
    std::lock_guard lock(crew.mutex);
    ++crew.generation;
    epoch_ = epoch;
    order_ = order;
    crew.next_claim = next_batch_ = first_batch;
    for (Slot& slot : crew.slots) slot = {};
  }
  crew.room.notify_all();
}

Loader::State::Order Loader::State::plan(int64_t epoch) const {
  auto made = std::make_shared<Plan>();
  if (options_.shuffle) {
    made->samples = shuffled_order(dataset_.size(), options_.seed, epoch);
  } else {
    made->samples.resize(static_cast<size_t>(dataset_.size()));
    std::iota(made->samples.begin(), made->samples.end(), int64_t{0});
  }
  if (options_.buckets)
    made->batches = bucket_batches(*options_.buckets, made->samples, options_.batch, options_.last_batch);
  return made;
}

Batch Loader::State::make(const Plan& plan, int64_t epoch, int64_t index) const {
  std::span<const int64_t> indices;
  std::vector<int64_t> wrapped;
  int64_t length = 0;
  if (options_.buckets) {
    const BucketBatch& batch = plan.batches[static_cast<size_t>(index)];
    indices = batch.samples;
    length = batch.length;
  } else {
    const auto size = static_cast<int64_t>(plan.samples.size());
    const int64_t begin = index * options_.batch;
    const int64_t end = std::min(begin + options_.batch, size);
    indices = {plan.samples.data() + begin, static_cast<size_t>(end - begin)};
    if (options_.last_batch == LastBatch::wrap && end - begin < options_.batch) {
      for (int64_t k = begin; k < begin + options_.batch; ++k)
        wrapped.push_back(plan.samples[static_cast<size_t>(k % size)]);
      indices = wrapped;
    }
  }
  try {
    Named tensors = options_.collate ? options_.collate(dataset_, indices, epoch, length)
                                     : named_batch(dataset_, indices, epoch, length);
    if (options_.transform) {
      SampleRandom random = SampleRandom(options_.seed, epoch, index).stream(kBatchStream);
      std::vector<Tensor> changed = options_.transform(tensors.values(), random);
      TD_CHECK(changed.size() >= tensors.size(),
               "loader: a batch transform must leave a tensor for each field (", tensors.names().text(),
               "); it left ", changed.size(), ".");
      tensors = with_more(tensors.names(), std::move(changed));
    }
    return {epoch, index, static_cast<int64_t>(indices.size()), std::move(tensors)};
  } catch (...) {
    detail::rethrow_from(name_of(indices, epoch, index));
  }
}

std::string Loader::State::name_of(std::span<const int64_t> indices, int64_t epoch, int64_t index) const {
  constexpr size_t kShown = 3;
  std::string names;
  for (const int64_t i : indices.first(std::min(kShown, indices.size())))
    names += (names.empty() ? "" : ", ") + dataset_.sample_name(i);
  if (indices.size() > kShown) names += str(" and ", indices.size() - kShown, " more");
  return str("batch ", index, " of epoch ", epoch, " of ", dataset_.describe(), " (", names, ")");
}

Loader::State::Made Loader::State::send(CopyQueue* queue, Batch batch) const {
  Made made{std::move(batch), {}};
  if (!queue) return made;
  made.arriving = queue->send(made.batch.tensors.values());
  made.batch.tensors.set_values(std::vector<Tensor>(made.batch.tensors.size()));
  return made;
}

Batch Loader::State::take(CopyQueue* queue, Made made) {
  if (made.arriving) made.batch.tensors.set_values(queue->take(std::move(*made.arriving)));
  return std::move(made.batch);
}

void Loader::State::work(Crew& crew) {
  std::unique_lock lock(crew.mutex);
  while (true) {
    crew.room.wait(lock, [&] {
      return crew.stopping ||
             (order_ && crew.next_claim < std::min(batches_, next_batch_ + *options_.prefetch));
    });
    if (crew.stopping) return;
    const int64_t index = crew.next_claim++, epoch = epoch_;
    const uint64_t generation = crew.generation;
    const Order order = order_;
    lock.unlock();
    Slot made;
    try {
      made.made = send(crew.queue.get(), make(*order, epoch, index));
    } catch (...) {
      made.error = std::current_exception();
    }
    lock.lock();
    // Of an epoch that has been left meanwhile: thrown away. Slot index % prefetch is free, since no batch is begun
    // that is prefetch or more ahead of the next to be taken.
    if (generation == crew.generation) {
      crew.slots[static_cast<size_t>(index % *options_.prefetch)] = std::move(made);
      crew.filled.notify_one();
    }
  }
}

std::optional<Batch> Loader::State::next() {
  TD_CHECK(epoch_ >= 0, "next: the loader must have been started; call start_epoch(0) first.");
  if (next_batch_ == batches_) return std::nullopt;
  Crew& crew = this->crew();
  if (*options_.workers == 0) {
    Batch batch = take(crew.queue.get(), send(crew.queue.get(), make(*order_, epoch_, next_batch_)));
    ++next_batch_;
    return batch;
  }
  std::optional<Made> made;
  {
    std::unique_lock lock(crew.mutex);
    Slot& slot = crew.slots[static_cast<size_t>(next_batch_ % *options_.prefetch)];
    crew.filled.wait(lock, [&] { return slot.made || slot.error; });
    // An error comes at its batch, after all batches before it.
    if (slot.error) std::rethrow_exception(slot.error);  // and again, if asked again
    made = std::move(slot.made);
    slot = {};
    ++next_batch_;
  }
  crew.room.notify_one();
  return take(crew.queue.get(), std::move(*made));
}

}  // namespace tandem::data
