// The loader's threads. Workers claim batch numbers in order, make them without a lock, and put them into a ring
// of slots; next() takes them out in order.
#include "tandem/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "tandem/core/rng.h"

namespace tandem::data {

namespace {
constexpr int kMaxWorkers = 256;
constexpr uint64_t kShuffleStream =
    0x73687566666c6521;                                // keeps the shuffle apart from the ops' random numbers
constexpr uint64_t kBatchStream = 0x6261746368657321;  // and the batches' numbers apart from the samples'
}  // namespace

std::vector<int64_t> shuffled_order(int64_t size, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
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
  ~State() { stop(); }
  void start_epoch(int64_t epoch, int64_t first_batch);
  std::optional<Batch> next();

  using Order = std::shared_ptr<const std::vector<int64_t>>;
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };
  Batch make(const std::vector<int64_t>& order, int64_t epoch, int64_t index) const;
  void work();
  void stop();

  const Dataset& dataset_;
  const LoaderOptions options_;
  int64_t batches_ = 0;

  // Changed by the caller's thread alone, under mutex_ where workers read it.
  int64_t epoch_ = -1;
  int64_t next_batch_ = 0;
  Order order_;

  // Shared with the workers, under mutex_. A batch lies in slot index % prefetch until it is taken.
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  int64_t next_claim_ = 0;   // the first batch that no worker has begun
  uint64_t generation_ = 0;  // counts start_epoch: a batch begun before the latest is thrown away
  std::vector<Slot> slots_;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
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

Loader::State::State(const Dataset& dataset, LoaderOptions options) : dataset_(dataset), options_(options) {
  const int64_t size = dataset.size();
  TD_CHECK(options.batch >= 1, "batch: must be at least 1; got ", options.batch, ".");
  TD_CHECK(options.workers >= 0 && options.workers <= kMaxWorkers, "workers: must be 0 to ", kMaxWorkers,
           "; got ", options.workers, ".");
  TD_CHECK(options.prefetch >= 1, "prefetch: must be at least 1 batch; got ", options.prefetch, ".");
  TD_CHECK(size >= 1, "loader: the data set must hold at least one sample; got none.");
  TD_CHECK(size < int64_t{1} << 32, "loader: the data set must hold fewer than 2^32 samples; got ", size,
           ".");
  const bool whole_only = options.last_batch == LastBatch::drop;
  batches_ = whole_only ? size / options.batch : (size - 1) / options.batch + 1;
  TD_CHECK(batches_ >= 1, "batch: must be at most the ", size, " samples of the data set; got ",
           options.batch, ". Lower it, or keep the last batch.");
  slots_.resize(static_cast<size_t>(options.prefetch));
  try {
    for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop();
    throw resource_error("workers: the system must grant ", options.workers, " threads; got ",
                         workers_.size(), " (", error.what(), "). Use fewer.");
  }
}

void Loader::State::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Loader::State::start_epoch(int64_t epoch, int64_t first_batch) {
  TD_CHECK(epoch >= 0 && epoch < int64_t{1} << 32, "start_epoch: the epoch must be 0 to 2^32-1; got ", epoch,
           ".");
  TD_CHECK(first_batch >= 0 && first_batch <= batches_, "start_epoch: the first batch must be 0 to ",
           batches_, "; got ", first_batch, ".");
  Order order;
  if (options_.shuffle) {
    order = std::make_shared<std::vector<int64_t>>(shuffled_order(dataset_.size(), options_.seed, epoch));
  } else if (!(order = order_)) {
    auto plain = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(dataset_.size()));
    std::iota(plain->begin(), plain->end(), int64_t{0});
    order = plain;
  }
  {
    std::lock_guard lock(mutex_);
    ++generation_;
    epoch_ = epoch;
    order_ = order;
    next_claim_ = next_batch_ = first_batch;
    for (Slot& slot : slots_) slot = {};
  }
  room_.notify_all();
}

Batch Loader::State::make(const std::vector<int64_t>& order, int64_t epoch, int64_t index) const {
  const auto size = static_cast<int64_t>(order.size());
  const int64_t begin = index * options_.batch;
  const int64_t end = std::min(begin + options_.batch, size);
  std::span<const int64_t> indices(order.data() + begin, static_cast<size_t>(end - begin));
  std::vector<int64_t> wrapped;
  if (options_.last_batch == LastBatch::wrap && end - begin < options_.batch) {
    for (int64_t k = begin; k < begin + options_.batch; ++k)
      wrapped.push_back(order[static_cast<size_t>(k % size)]);
    indices = wrapped;
  }
  std::vector<Tensor> tensors = dataset_.batch_at(indices, epoch);
  if (options_.transform) {
    SampleRandom random = SampleRandom(options_.seed, epoch, index).stream(kBatchStream);
    tensors = options_.transform(std::move(tensors), random);
  }
  return {epoch, index, static_cast<int64_t>(indices.size()), std::move(tensors)};
}

void Loader::State::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    room_.wait(lock, [&] {
      return stopping_ || (order_ && next_claim_ < std::min(batches_, next_batch_ + options_.prefetch));
    });
    if (stopping_) return;
    const int64_t index = next_claim_++, epoch = epoch_;
    const uint64_t generation = generation_;
    const Order order = order_;
    lock.unlock();
    Slot made;
    try {
      made.batch = make(*order, epoch, index);
    } catch (...) {
      made.error = std::current_exception();
    }
    lock.lock();
    if (generation == generation_) {
      slots_[static_cast<size_t>(index % options_.prefetch)] = std::move(made);
      filled_.notify_one();
    }
  }
}

std::optional<Batch> Loader::State::next() {
  TD_CHECK(epoch_ >= 0, "next: the loader must have been started; call start_epoch(0) first.");
  if (next_batch_ == batches_) return std::nullopt;
  if (workers_.empty()) {
    Batch batch = make(*order_, epoch_, next_batch_);
    ++next_batch_;
    return batch;
  }
  std::optional<Batch> batch;
  {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[static_cast<size_t>(next_batch_ % options_.prefetch)];
    filled_.wait(lock, [&] { return slot.batch || slot.error; });
    if (slot.error) std::rethrow_exception(slot.error);  // and again, if asked again
    batch = std::move(slot.batch);
    slot = {};
    ++next_batch_;
  }
  room_.notify_one();
  return batch;
}

}  // namespace tandem::data
