#include "lab/src/material/texts.h"

#include <algorithm>

#include "tandem/tandem.h"

namespace tandem::lab {
std::optional<TextUse> text_use(const Workload& workload, const Network& network) {
  const auto& inputs = network.line.inputs;
  if (inputs.empty() || inputs.size() > 2 || workload.targets.size() != 1) return {};
  const auto& tokens = inputs[0];
  const int64_t rows = embedding_rows(network, tokens.name);
  if (tokens.dtype != DType::i64 || tokens.shape.rank() != 1 || rows == 0) return {};
  const TextUse use{inputs.size() == 2, tokens.shape[0], rows};
  const Json& target = workload.targets.begin().value();
  const std::vector<int64_t> shape = target.value("shape", std::vector<int64_t>{});
  if (!target.contains("below")) return {};
  const bool has_lengths = use.is_classified && inputs[1].dtype == DType::i64 && inputs[1].shape.rank() == 0;
  if (use.is_classified) return has_lengths && shape.empty() ? std::optional(use) : std::nullopt;
  return shape == std::vector<int64_t>{use.length} && target["below"] == rows ? std::optional(use)
                                                                              : std::nullopt;
}

data::Splits open_texts(const TextUse& use, const std::string& name, const std::string& data_dir) {
  data::Splits splits = data::open_dataset(
      name, {.data_dir = data_dir, .usual_vocabulary = use.vocabulary, .usual_length = use.length});
  const char* const wanted = use.is_classified ? "text-classification" : "language-modelling";
  TD_CHECK(splits.task == wanted, "data: the workload needs texts for ", wanted, "; those of ", name,
           " are for ", splits.task, ". Name another data set.");
  TD_CHECK(splits.text->vocabulary.size() <= use.vocabulary, "data: the words of ", name,
           " must have a row of the embedding each; got ", splits.text->vocabulary.size(), " for ",
           use.vocabulary, " rows.");
  return splits;
}

int64_t text_samples(const TextUse& use, const data::Dataset& set, int64_t batch) {
  if (use.is_classified) return set.size();
  // The last window is filled up with what does not count.
  return std::max<int64_t>(1, (set.size() - 1) / batch) * std::min(batch, set.size());
}

std::vector<Tensor> text_batch(const TextUse& use, const data::Dataset& set, int64_t batch,
                               std::span<const int64_t> indices) {
  std::vector<int64_t> tokens, lengths, targets;
  const int64_t rows = std::min(batch, set.size()), part = text_samples(use, set, batch) / rows;
  for (const int64_t i : indices) {
    const std::vector<Tensor> sample = set.get(use.is_classified ? i : i % rows * part + i / rows);
    const std::vector<int64_t> own = sample[0].to_vector<int64_t>(), target = sample[1].to_vector<int64_t>();
    tokens.insert(tokens.end(), own.begin(), own.end());
    tokens.resize(tokens.size() + static_cast<size_t>(use.length) - own.size());
    lengths.push_back(std::max<int64_t>(1, static_cast<int64_t>(own.size())));
    targets.insert(targets.end(), target.begin(), target.end());
  }
  const auto count = static_cast<Dim>(indices.size());
  std::vector<Tensor> out = {from_vector(tokens, {count, use.length})};
  if (use.is_classified) out.push_back(from_vector(lengths, {count}));
  out.push_back(use.is_classified ? from_vector(targets, {count})
                                  : from_vector(targets, {count, use.length}));
  return out;
}

}  // namespace tandem::lab
