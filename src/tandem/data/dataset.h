// Dataset: size() and get(i). Everything else (limits, subsets, loading in batches) is built on these two, and
// data sets compose. Samples live on the CPU. All const members may be called from several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/named.h"
#include "tandem/core/tensor.h"

namespace tandem::data {

/// What happens to the samples at the end that do not fill a batch, or do not make all shards equal.
enum class LastBatch : uint8_t {
  keep,  // a smaller batch
  drop,  // left out
  wrap,  // filled up from the start
};

/// What a field of a sample is for.
enum class Role : uint8_t {
  input,   // the model reads it
  target,  // the loss compares with it: it keeps its own type
  weight,  // how much a sample counts
  length,  // how many places of another field are true
};
/// How the samples of a batch are put together.
enum class Join : uint8_t {
  stack,  // all have one shape
  pad,  // they differ along their first axis, and are filled up; how long each is becomes a field "<name>.count"
};
/// One of the tensors of a sample.
struct Field {
  std::string name;
  Role role = Role::input;
  Join join = Join::stack;
  double fill = 0;  // what padding holds
  Field(const char* name, Role role = Role::input, Join join = Join::stack,
        double fill = 0)  // NOLINT: {"input"} is one
      : name(name), role(role), join(join), fill(fill) {}
  Field(std::string name, Role role = Role::input, Join join = Join::stack, double fill = 0)
      : name(std::move(name)), role(role), join(join), fill(fill) {}
  bool operator==(const Field&) const = default;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  /// The number of samples.
  virtual int64_t size() const = 0;
  /// The fields of a sample, in the order of get(). Empty (the default): they have no names of their own and are called what the
  /// task calls its fields, for most tasks "input" and "target".
  virtual std::vector<Field> fields() const { return {}; }
  /// Sample i, 0 <= i < size(): one tensor per field, e.g. {image f32 (1, 28, 28), label i64 ()}.
  virtual std::vector<Tensor> get(int64_t i) const = 0;
  /// The samples of these indices, stacked along a new first axis. The default stacks get(i).
  virtual std::vector<Tensor> batch(std::span<const int64_t> indices) const;
  /// A few words for a person, e.g. "MNIST, train".
  virtual std::string describe() const;

  /// Whether samples depend on the epoch: some shuffle or random transform takes part (compose.h).
  virtual bool varies() const { return false; }
  /// Sample i, or a batch, as an epoch sees them. The same as get and batch unless varies().
  virtual std::vector<Tensor> get_at(int64_t i, int64_t) const { return get(i); }
  virtual std::vector<Tensor> batch_at(std::span<const int64_t> indices, int64_t) const {
    return batch(indices);
  }
  /// The first axis of sample i's first field, where samples differ in it: of a text its tokens, of sound its frames. The default
  /// makes the sample; a set that knows better says it without.
  virtual int64_t length(int64_t i) const;
  /// What messages call sample i: "sample 17", or its file.
  virtual std::string sample_name(int64_t i) const;
};

using DatasetPtr = std::shared_ptr<const Dataset>;

/// Sample i as an epoch sees it. What get_at throws names the sample: an Error that does not name it gets the name before its
/// text; an exception of the program's own becomes an Error of kind foreign, "sample 17 of 46 samples: <what()>", with the
/// exception nested in it (std::rethrow_if_nested).
std::vector<Tensor> sample_at(const Dataset& set, int64_t i, int64_t epoch);

namespace detail {
/// In a catch (...) block: throws an exception of the program's own as such an Error, which begins with `where`; Errors, bugs of
/// Tandem and std::bad_alloc as they are.
[[noreturn]] void rethrow_from(const std::string& where);
}  // namespace detail

/// The samples of these indices as the tensors of a batch, joined as the set's fields say. `names`: of the fields of a set that names
/// none; without them they are "input", "target", "field 3" and so on. Fields beyond the names are left out, and a batch has fewer
/// than names where samples have. `length`: that padded fields must have room for, at least.
Named named_batch(const Dataset& set, std::span<const int64_t> indices, int64_t epoch, int64_t length = 0,
                  std::span<const Field> names = {});

/// The samples that `get` gives for these indices, stacked along a new first axis. Exceptions are as sample_at's.
std::vector<Tensor> stack_samples(const Dataset& set, std::span<const int64_t> indices,
                                  const std::function<std::vector<Tensor>(int64_t)>& get);

/// Samples of another data set in another order: index_of says which.
class Reordered : public Dataset {
 public:
  std::vector<Tensor> get(int64_t i) const final { return get_at(i, 0); }
  std::vector<Tensor> batch(std::span<const int64_t> indices) const final { return batch_at(indices, 0); }
  std::vector<Field> fields() const final { return base_->fields(); }
  bool varies() const override { return base_->varies(); }
  std::vector<Tensor> get_at(int64_t i, int64_t epoch) const final;
  std::vector<Tensor> batch_at(std::span<const int64_t> indices, int64_t epoch) const final;
  int64_t length(int64_t i) const final { return base_->length(index_of(i, 0)); }
  std::string sample_name(int64_t i) const final { return base_->sample_name(index_of(i, 0)); }

 protected:
  Reordered(const char* what, DatasetPtr base);
  /// 0 <= i < size().
  virtual int64_t index_of(int64_t i, int64_t epoch) const = 0;
  DatasetPtr base_;
};

/// Some samples of another data set, in the order of `indices`.
class Subset final : public Reordered {
 public:
  Subset(DatasetPtr base, std::vector<int64_t> indices);
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  std::string describe() const override;

 private:
  int64_t index_of(int64_t i, int64_t) const override { return indices_[static_cast<size_t>(i)]; }
  std::vector<int64_t> indices_;
};

/// The first n samples (all, where there are fewer). n must be at least 1.
DatasetPtr first(DatasetPtr base, int64_t n);

/// 64 hex digits that tell data sets of equal size apart: a SHA-256 over the size and, of samples spread evenly from the
/// first to the last, types, shapes and values as epoch 0 sees them. All samples of a small set; of a large one as many as
/// 4 MB hold, but at least 64 and at most 1,024: other images, another order or many other labels are noticed, a change
/// of a few samples among many may not be. Empty where reading a sample twice gives two results. Draws nothing from this
/// thread's generator.
std::string fingerprint(const Dataset& set);

/// Throws Error unless 0 <= i < size.
void check_index(const char* what, int64_t i, int64_t size);

}  // namespace tandem::data
