// Samples of data sets of text, as the workloads of the lab take them: padded, all of one size.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lab/src/material/network.h"
#include "tandem/data/registry.h"

namespace tandem::lab {

/// How a workload reads text, where it does.
struct TextUse {
  /// true: inputs tokens (length) and their true number, and a class. false: tokens (length), and those that follow each.
  bool is_classified;
  int64_t length, vocabulary;  // vocabulary: rows of the embedding that reads the tokens
};
/// By the network's inputs and the workload's target; nothing for other workloads.
std::optional<TextUse> text_use(const Workload& workload, const Network& network);

/// Opens the data set with words and lengths that fit. Throws Error where its texts are for another use.
data::Splits open_texts(const TextUse& use, const std::string& name, const std::string& data_dir);

/// How many samples of a part there are: of a text that goes on, whole windows in whole batches.
int64_t text_samples(const TextUse& use, const data::Dataset& set, int64_t batch);
/// Samples, one after the other: the inputs, then the target. Of a text that goes on, sample k of batch b is window b of the
/// k-th part of the text, so that each place of a batch reads on where it was.
std::vector<Tensor> text_batch(const TextUse& use, const data::Dataset& set, int64_t batch,
                               std::span<const int64_t> indices);

}  // namespace tandem::lab
