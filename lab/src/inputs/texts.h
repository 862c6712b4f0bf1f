// Samples of text data sets in the form that the lab's workloads need: padded, all of one size.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lab/src/inputs/network.h"
#include "tandem/data/registry.h"

namespace tandem::lab {

/// How a workload reads text.
struct TextUse {
  enum class Kind {
    /// Inputs: tokens (length) and their number without padding. Target: a class.
    classified,
    /// Input: tokens (length). Target: for each token the one that follows.
    continued,
    /// Inputs: tokens of a source (length), their number, and all but the last token of a translation (into_length). Targets: all
    /// but its first token (into_length), and their number.
    pairs
  };
  Kind kind;
  int64_t length, vocabulary;                    // vocabulary: rows of the embedding that reads the tokens
  int64_t into_length = 0, into_vocabulary = 0;  // of the translations, in pairs
};
/// Found from the network's inputs and the workload's targets. Nothing for workloads that do not read text.
std::optional<TextUse> text_use(const Workload& workload, const Network& network);

/// Opens the data set with a vocabulary and lengths that fit. Throws Error if its texts are for another use.
data::Splits open_texts(const TextUse& use, const std::string& name, const std::string& data_dir);

/// How many samples a part has. Of a continuous text only whole windows in whole batches count.
int64_t text_samples(const TextUse& use, const data::Dataset& set, int64_t batch);
/// The samples as one batch: the inputs, then the targets ordered by name. Of a continuous text, sample k of batch b is window b of
/// the k-th part of the text, so that each place of a batch goes on where it ended in the batch before. Of pairs, source and target
/// end with the end token, and zeros follow.
std::vector<Tensor> text_batch(const TextUse& use, const Workload& workload, const data::Dataset& set,
                               int64_t batch, std::span<const int64_t> indices);

}  // namespace tandem::lab
