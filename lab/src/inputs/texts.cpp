#include "lab/src/inputs/texts.h"

#include <algorithm>

#include "tandem/tandem.h"

namespace tandem::lab {
namespace {

using Kind = TextUse::Kind;

std::vector<int64_t> shape_of(const Json& target) { return target.value("shape", std::vector<int64_t>{}); }

/// Sentences and their translations: three inputs and two targets. One target is the length of the other.
std::optional<TextUse> pairs_use(const Workload& workload, const Network& network) {
  const auto& in = network.line.inputs;
  if (in.size() != 3 || workload.targets.size() != 2 || workload.loss_terms().size() != 1) return {};
  const auto is_text = [&](const zoo::InputDescription& input) {
    return input.dtype == DType::i64 && input.shape.rank() == 1 && embedding_rows(network, input.name) > 0;
  };
  if (!is_text(in[0]) || in[1].dtype != DType::i64 || in[1].shape.rank() != 0 || !is_text(in[2])) return {};
  const Json term = workload.loss_terms()[0];
  const std::string lengths = term.value("lengths", "");
  const Json& target = workload.targets.at(term.at("target").get<std::string>());
  if (!workload.targets.contains(lengths) || !shape_of(workload.targets[lengths]).empty()) return {};
  const int64_t length = in[2].shape[0], rows = embedding_rows(network, in[2].name);
  if (shape_of(target) != std::vector<int64_t>{length} || target.value("below", int64_t{0}) != rows)
    return {};
  return TextUse{Kind::pairs, in[0].shape[0], embedding_rows(network, in[0].name), length, rows};
}

/// Appends a row of `size` numbers: the tokens, then zeros.
void append(std::vector<int64_t>& rows, std::span<const int64_t> tokens, int64_t size) {
  rows.insert(rows.end(), tokens.begin(), tokens.end());
  rows.resize(rows.size() + static_cast<size_t>(size) - tokens.size());
}

std::vector<Tensor> pairs_batch(const TextUse& use, const Workload& workload, const data::Dataset& set,
                                std::span<const int64_t> indices) {
  std::vector<int64_t> sources, lengths, before, targets, words;
  for (const int64_t i : indices) {
    const std::vector<Tensor> sample = set.get(i);
    const std::vector<int64_t> source = sample[0].to_vector<int64_t>(),
                               target = sample[1].to_vector<int64_t>();
    const std::span<const int64_t> all(target);
    append(sources, source, use.length);
    lengths.push_back(static_cast<int64_t>(source.size()));
    append(before, all.first(all.size() - 1), use.into_length);
    append(targets, all.subspan(1), use.into_length);
    words.push_back(static_cast<int64_t>(all.size()) - 1);
  }
  const auto count = static_cast<Dim>(indices.size());
  std::vector<Tensor> out = {from_vector(sources, {count, use.length}), from_vector(lengths, {count}),
                             from_vector(before, {count, use.into_length})};
  for (const auto& [name, target] : workload.targets.items())
    out.push_back(shape_of(target).empty() ? from_vector(words, {count})
                                           : from_vector(targets, {count, use.into_length}));
  return out;
}

const char* task_of(Kind kind) {
  return kind == Kind::classified  ? "text-classification"
         : kind == Kind::continued ? "language-modelling"
                                   : "translation";
}

}  // namespace

std::optional<TextUse> text_use(const Workload& workload, const Network& network) {
  const auto& inputs = network.line.inputs;
  if (const auto pairs = pairs_use(workload, network)) return pairs;
  if (inputs.empty() || inputs.size() > 2 || workload.targets.size() != 1) return {};
  const auto& tokens = inputs[0];
  const int64_t rows = embedding_rows(network, tokens.name);
  if (tokens.dtype != DType::i64 || tokens.shape.rank() != 1 || rows == 0) return {};
  const bool is_classified = inputs.size() == 2;
  const TextUse use{is_classified ? Kind::classified : Kind::continued, tokens.shape[0], rows};
  const Json& target = workload.targets.begin().value();
  const std::vector<int64_t> shape = shape_of(target);
  if (!target.contains("below")) return {};
  const bool has_lengths = is_classified && inputs[1].dtype == DType::i64 && inputs[1].shape.rank() == 0;
  if (is_classified) return has_lengths && shape.empty() ? std::optional(use) : std::nullopt;
  return shape == std::vector<int64_t>{use.length} && target["below"] == rows ? std::optional(use)
                                                                              : std::nullopt;
}

data::Splits open_texts(const TextUse& use, const std::string& name, const std::string& data_dir) {
  // The length of a data set does not count the token that ends a source or a target of a pair.
  const bool is_pairs = use.kind == Kind::pairs;
  const int64_t length = is_pairs ? std::min(use.length, use.into_length) - 1 : use.length,
                words = is_pairs ? std::min(use.vocabulary, use.into_vocabulary) : use.vocabulary;
  TD_CHECK(length >= 1, "data: a pair of texts must have room for a word and its end; got ", length + 1,
           " places.");
  data::Splits splits =
      data::open_dataset(name, {.data_dir = data_dir, .usual_vocabulary = words, .usual_length = length});
  TD_CHECK(splits.task == task_of(use.kind), "data: the workload needs texts for ", task_of(use.kind),
           "; those of ", name, " are for ", splits.task, ". Name another data set.");
  const auto check = [&](int64_t found, int64_t rows) {
    TD_CHECK(found <= rows, "data: the words of ", name, " must have a row of the embedding each; got ",
             found, " for ", rows, " rows.");
  };
  check(splits.text->vocabulary.size(), use.vocabulary);
  if (is_pairs) check(splits.text->into->size(), use.into_vocabulary);
  return splits;
}

int64_t text_samples(const TextUse& use, const data::Dataset& set, int64_t batch) {
  if (use.kind != Kind::continued) return set.size();
  // The last window is padded, and left out.
  return std::max<int64_t>(1, (set.size() - 1) / batch) * std::min(batch, set.size());
}

std::vector<Tensor> text_batch(const TextUse& use, const Workload& workload, const data::Dataset& set,
                               int64_t batch, std::span<const int64_t> indices) {
  if (use.kind == Kind::pairs) return pairs_batch(use, workload, set, indices);
  const bool is_classified = use.kind == Kind::classified;
  std::vector<int64_t> tokens, lengths, targets;
  const int64_t rows = std::min(batch, set.size()), part = text_samples(use, set, batch) / rows;
  for (const int64_t i : indices) {
    const std::vector<Tensor> sample = set.get(is_classified ? i : i % rows * part + i / rows);
    const std::vector<int64_t> own = sample[0].to_vector<int64_t>(), target = sample[1].to_vector<int64_t>();
    append(tokens, own, use.length);
    lengths.push_back(std::max<int64_t>(1, static_cast<int64_t>(own.size())));
    targets.insert(targets.end(), target.begin(), target.end());
  }
  const auto count = static_cast<Dim>(indices.size());
  std::vector<Tensor> out = {from_vector(tokens, {count, use.length})};
  if (is_classified) out.push_back(from_vector(lengths, {count}));
  out.push_back(is_classified ? from_vector(targets, {count}) : from_vector(targets, {count, use.length}));
  return out;
}

}  // namespace tandem::lab
