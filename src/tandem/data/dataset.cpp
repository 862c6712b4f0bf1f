// Stacking samples, and subsets.
#include "tandem/data/dataset.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>

#include "tandem/core/rng.h"
#include "tandem/data/buckets.h"
#include "tandem/io/sha256.h"

namespace tandem::data {

void check_index(const char* what, int64_t i, int64_t size) {
  TD_CHECK(i >= 0 && i < size, what, ": an index must be at least 0 and less than ", size, "; got ", i, ".");
}

namespace {

/// Copies a sample's field into row `row` of a batch.
void put_row(const Tensor& field, const Tensor& stacked, size_t row) {
  const size_t bytes = static_cast<size_t>(field.size()) * bytes_of(field.dtype());
  if (bytes == 0) return;
  std::byte* to = static_cast<std::byte*>(stacked.raw()) + row * bytes;
  if (field.device().is_cpu() && field.is_contiguous())
    std::memcpy(to, field.raw(), bytes);
  else
    std::memcpy(to, host_bytes(field).data(), bytes);
}

std::vector<Tensor> named(const Dataset& set, int64_t i,
                          const std::function<std::vector<Tensor>(int64_t)>& get) {
  try {
    return get(i);
  } catch (Error& error) {
    const std::string name = i >= 0 && i < set.size() ? set.sample_name(i) : "";
    if (std::string(error.what()).find(name) == std::string::npos) error.prepend(name + ": ");
    throw;
  } catch (...) {
    detail::rethrow_from(str(set.sample_name(i), " of ", set.describe()));
  }
}

}  // namespace

void detail::rethrow_from(const std::string& where) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    std::throw_with_nested(Error(str(where, ": ", error.what()), ErrorKind::foreign));
  } catch (...) {
    std::throw_with_nested(
        Error(where + ": something was thrown that is no std::exception.", ErrorKind::foreign));
  }
}

std::vector<Tensor> sample_at(const Dataset& set, int64_t i, int64_t epoch) {
  return named(set, i, [&](int64_t at) { return set.get_at(at, epoch); });
}

std::vector<Tensor> stack_samples(const Dataset& set, std::span<const int64_t> indices,
                                  const std::function<std::vector<Tensor>(int64_t)>& get) {
  TD_CHECK(!indices.empty(), "batch: must ask for at least one sample; got none.");
  std::vector<Tensor> stacked;
  for (size_t row = 0; row < indices.size(); ++row) {
    const std::vector<Tensor> sample = named(set, indices[row], get);
    if (row == 0) {
      for (const Tensor& field : sample) {
        TD_CHECK(field.rank() < kMaxRank, "batch: samples must have fewer than ", kMaxRank, " axes; got ",
                 field.shape(), ".");
        Dims shape = field.shape();
        shape.insert(0, static_cast<Dim>(indices.size()));
        stacked.push_back(empty(shape, field.dtype()));
      }
    }
    TD_CHECK(sample.size() == stacked.size(), "batch: all samples must have as many fields; ",
             set.sample_name(indices[row]), " has ", sample.size(), " and ", set.sample_name(indices[0]),
             " has ", stacked.size(), ".");
    for (size_t f = 0; f < sample.size(); ++f) {
      Dims shape = stacked[f].shape();
      shape.erase(0);
      TD_CHECK(sample[f].shape() == shape && sample[f].dtype() == stacked[f].dtype(),
               "batch: all samples must have the same shapes and dtypes; ", set.sample_name(indices[row]),
               " has ", sample[f].dtype(), " ", sample[f].shape(), " and ", set.sample_name(indices[0]),
               " has ", stacked[f].dtype(), " ", shape, ". Resize or pad them first.");
      put_row(sample[f], stacked[f], row);
    }
  }
  return stacked;
}

std::vector<Tensor> Dataset::batch(std::span<const int64_t> indices) const {
  return stack_samples(*this, indices, [&](int64_t i) { return get(i); });
}

namespace {

/// What the fields of a sample with `count` tensors are called: `names`, which are those of its set, else those given.
std::vector<Field> names_for(std::vector<Field> names, std::span<const Field> given, size_t count) {
  if (!names.empty()) {
    TD_CHECK(names.size() == count, "data: a sample must have one tensor for each field of its set, ",
             names.size(), "; got ", count, ".");
    return names;
  }
  names.assign(given.begin(), given.end());
  if (names.empty()) names = {{"input"}, {"target", Role::target}};
  for (size_t i = names.size(); i < count && given.empty(); ++i) names.emplace_back(str("field ", i + 1));
  if (names.size() > count) names.erase(names.begin() + static_cast<std::ptrdiff_t>(count), names.end());
  return names;
}

Named with_names(const std::vector<Field>& fields, std::vector<Tensor> values) {
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  values.resize(names.size());
  return {Names::of(names), std::move(values)};
}

/// The batch of a set some of whose fields are padded.
Named padded_batch(const Dataset& set, const std::vector<Field>& fields, std::span<const int64_t> indices,
                   int64_t epoch, int64_t length) {
  std::vector<std::vector<Tensor>> columns(fields.size());
  for (const int64_t i : indices) {
    const std::vector<Tensor> sample = sample_at(set, i, epoch);
    TD_CHECK(sample.size() == fields.size(), "batch: a sample must have one tensor for each of ",
             fields.size(), " fields; ", set.sample_name(i), " has ", sample.size(), ".");
    for (size_t f = 0; f < fields.size(); ++f) {
      TD_CHECK(fields[f].join == Join::stack || sample[f].rank() >= 1,
               "batch: what is padded must have an axis; ", fields[f].name, " of ", set.sample_name(i),
               " is 0-d. Stack it.");
      columns[f].push_back(sample[f]);
    }
  }
  std::vector<std::string> names;
  std::vector<Tensor> values;
  for (size_t f = 0; f < fields.size(); ++f) {
    names.push_back(fields[f].name);
    if (fields[f].join == Join::stack) {
      values.push_back(stack_samples(set, indices, [&, at = size_t{0}](int64_t) mutable {
        return std::vector<Tensor>{columns[f][at++]};
      })[0]);
      continue;
    }
    int64_t longest = length;
    for (const Tensor& each : columns[f]) longest = std::max<int64_t>(longest, each.size(0));
    values.push_back(pad_stack(columns[f], longest, fields[f].fill));
  }
  for (size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].join == Join::stack) continue;
    std::vector<int64_t> counts;
    for (const Tensor& each : columns[f]) counts.push_back(each.size(0));
    names.push_back(fields[f].name + ".count");
    values.push_back(from_vector(counts, {static_cast<Dim>(counts.size())}));
  }
  return {Names::of(names), std::move(values)};
}

}  // namespace

Named named_batch(const Dataset& set, std::span<const int64_t> indices, int64_t epoch, int64_t length,
                  std::span<const Field> names) {
  const std::vector<Field> own = set.fields();
  if (std::any_of(own.begin(), own.end(), [](const Field& field) { return field.join == Join::pad; }))
    return padded_batch(set, own, indices, epoch, length);
  std::vector<Tensor> values = set.batch_at(indices, epoch);
  const std::vector<Field> fields = names_for(own, names, values.size());
  return with_names(fields, std::move(values));
}

std::string Dataset::describe() const { return str(size(), " samples"); }

int64_t Dataset::length(int64_t i) const {
  const std::vector<Tensor> sample = named(*this, i, [&](int64_t at) { return get(at); });
  TD_CHECK(!sample.empty() && sample[0].rank() >= 1,
           "data: a sample of different lengths must begin with a tensor of one axis or more; ",
           sample_name(i), " does not.");
  return sample[0].size(0);
}

std::string Dataset::sample_name(int64_t i) const { return str("sample ", i); }

Reordered::Reordered(const char* what, DatasetPtr base) : base_(std::move(base)) {
  TD_CHECK(base_ != nullptr, what, ": needs a data set; got none.");
}

std::vector<Tensor> Reordered::get_at(int64_t i, int64_t epoch) const {
  check_index("get", i, size());
  return base_->get_at(index_of(i, epoch), epoch);
}

std::vector<Tensor> Reordered::batch_at(std::span<const int64_t> indices, int64_t epoch) const {
  std::vector<int64_t> mapped;
  mapped.reserve(indices.size());
  for (int64_t i : indices) {
    check_index("batch", i, size());
    mapped.push_back(index_of(i, epoch));
  }
  return base_->batch_at(mapped, epoch);
}

Subset::Subset(DatasetPtr base, std::vector<int64_t> indices)
    : Reordered("subset", std::move(base)), indices_(std::move(indices)) {
  for (int64_t i : indices_) check_index("subset", i, base_->size());
}

std::string Subset::describe() const { return str(base_->describe(), ", ", size(), " of ", base_->size()); }

DatasetPtr first(DatasetPtr base, int64_t n) {
  TD_CHECK(n >= 1, "limit: must be at least 1 sample; got ", n, ".");
  TD_CHECK(base != nullptr, "limit: needs a data set; got none.");
  if (n >= base->size()) return base;
  std::vector<int64_t> indices(static_cast<size_t>(n));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return std::make_shared<Subset>(std::move(base), std::move(indices));
}

namespace {

/// Types, shapes and values of a sample. One that cannot be read is no reason to stop here: the run may never ask for it.
std::string sum_of_sample(const Dataset& set, int64_t i, int64_t& bytes) {
  io::Sha256 sum;
  const auto add = [&](const std::string& text) { sum.update(text.data(), text.size()); };
  try {
    for (const Tensor& field : set.get_at(i, 0)) {
      const std::vector<std::byte> values = host_bytes(field);
      add(str(field.dtype(), " ", field.shape(), "\n"));
      sum.update(values.data(), values.size());
      bytes += static_cast<int64_t>(values.size());
    }
  } catch (const Error&) {
    add("cannot be read\n");
  } catch (const std::exception& error) {
    if (kind_of(error) != ErrorKind::foreign) throw;
    add("cannot be read\n");
  }
  return sum.hex();
}

}  // namespace

std::string fingerprint(const Dataset& set) {
  constexpr int64_t kBytes = int64_t{4} << 20, kLeast = 64, kMost = 1024;
  const GeneratorState random = generator_state();
  struct Restore {
    const GeneratorState& state;
    ~Restore() { set_generator_state(state); }
  } restore{random};
  const int64_t size = set.size();
  if (size <= 0) return "";
  int64_t bytes = 0, again = 0;
  const std::string first = sum_of_sample(set, 0, bytes);
  if (sum_of_sample(set, 0, again) != first) return "";
  const int64_t count = std::min(size, std::clamp(kBytes / std::max<int64_t>(bytes, 1), kLeast, kMost));
  std::string text = str(size, " samples\n", first);
  const int64_t gaps = std::max<int64_t>(count - 1, 1), step = (size - 1) / gaps, rest = (size - 1) % gaps;
  for (int64_t k = 1; k < count; ++k) text += sum_of_sample(set, k * step + k * rest / gaps, bytes);
  return io::sha256(text);
}

}  // namespace tandem::data
