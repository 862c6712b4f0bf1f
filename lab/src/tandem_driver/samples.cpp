// Samples and their order.
#include "lab/src/tandem_driver/samples.h"

#include <algorithm>
#include <numeric>

#include "lab/src/protocol/hash.h"

namespace tandem::lab::tandem_driver {

namespace {

/// The index of each field in a batch, by name.
std::map<std::string, size_t> places_of(const CellRequest& cell) {
  std::map<std::string, size_t> named;
  for (const auto* all : {&cell.line.inputs, &cell.objective.targets})
    for (const zoo::InputDescription& field : *all) named.emplace(field.name, named.size());
  return named;
}

/// Checks that the lengths that trim are from 1 to the number of places that they count.
void check_lengths(const std::string& part, const std::vector<Tensor>& fields, const CellRequest& cell) {
  const std::map<std::string, size_t> named = places_of(cell);
  for (const TrimRule& rule : cell.trim) {
    const Tensor& lengths = fields.at(named.at(rule.length));
    const int64_t places = fields.at(named.at(rule.of.front())).size(1);
    const int64_t* values = lengths.data<int64_t>();
    const auto [least, most] = std::minmax_element(values, values + lengths.size());
    TD_CHECK(*least >= 1 && *most <= places, "data.", part, ".", rule.length, ": lengths must be in 1 … ",
             places, ", the places of ", rule.of.front(), "; got ", *least, " … ", *most, ".");
  }
}

}  // namespace

std::vector<int64_t> epoch_order(int64_t samples, uint64_t seed, int64_t epoch) {
  const uint32_t stream = static_cast<uint32_t>(seed + 7919 * (static_cast<uint64_t>(epoch) + 1));
  std::vector<uint32_t> keys(static_cast<size_t>(samples));
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = hashed(static_cast<uint32_t>(i), stream);
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
  });
  return order;
}

std::unique_ptr<data::TensorSet> load_samples(const std::string& part, const DataFiles& files,
                                              const CellRequest& cell) {
  std::vector<Tensor> fields;
  for (const auto* all : {&cell.line.inputs, &cell.objective.targets}) {
    for (const zoo::InputDescription& field : *all) {
      const Tensor values = io::load_npy(files.at(field.name));
      Dims want = field.shape;
      want.insert(0, values.rank() > 0 ? values.size(0) : 0);
      TD_CHECK(values.dtype() == field.dtype && values.shape() == want && values.size(0) >= 1 &&
                   (fields.empty() || values.size(0) == fields[0].size(0)),
               "data.", part, ".", field.name, ": must be ", field.dtype, " of at least one sample of ",
               field.shape, ", as many as the others; got ", values.dtype(), " ", values.shape(), ".");
      fields.push_back(values);
      const auto below = cell.objective.below.find(field.name);
      if (below == cell.objective.below.end()) continue;
      const int64_t* labels = values.data<int64_t>();
      const auto [least, most] = std::minmax_element(labels, labels + values.size());
      TD_CHECK(*least >= 0 && *most < below->second, "data.", part, ".", field.name,
               ": labels must be in 0 … ", below->second - 1, "; got ", *least, " … ", *most, ".");
    }
  }
  check_lengths(part, fields, cell);
  return std::make_unique<data::TensorSet>(std::move(fields), part);
}

std::vector<Tensor> batch_of(const data::TensorSet& samples, int64_t index, int64_t size) {
  std::vector<int64_t> places(static_cast<size_t>(size));
  for (int64_t j = 0; j < size; ++j) places[static_cast<size_t>(j)] = (index * size + j) % samples.size();
  return samples.batch(places);
}

std::vector<Tensor> trimmed(const CellRequest& cell, std::vector<Tensor> fields) {
  if (cell.trim.empty()) return fields;
  const NoGrad off;
  const std::map<std::string, size_t> named = places_of(cell);
  for (const TrimRule& rule : cell.trim) {
    const std::vector<int64_t> lengths = fields.at(named.at(rule.length)).to_vector<int64_t>();
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    for (const std::string& name : rule.of) {
      Tensor& field = fields.at(named.at(name));
      const int64_t size = trimmed_size(longest, rule.multiple, field.size(1));
      if (size < field.size(1)) field = contiguous(slice(field, 1, 0, size));
    }
  }
  return fields;
}

}  // namespace tandem::lab::tandem_driver
