// Samples of data sets of text, as the workloads of the lab take them: padded, all of one size.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lab/src/inputs/network.h"
#include "tandem/data/registry.h"

namespace tandem::lab {

/// How a workload reads text, where it does.
struct TextUse {
  enum class Kind {
    classified,  // inputs tokens (length) and their true number, and a class
    continued,   // tokens (length), and those that follow each
    pairs  // tokens of a source (length) and their true number, and of a target those before (into_length); those that it has
           // (into_length) and their true number
  };
  Kind kind;
  int64_t length, vocabulary;                    // vocabulary: rows of the embedding that reads the tokens
  int64_t into_length = 0, into_vocabulary = 0;  // of the targets of pairs
};
/// By the network's inputs and the workload's targets; nothing for other workloads.
std::optional<TextUse> text_use(const Workload& workload, const Network& network);

/// Opens the data set with words and lengths that fit. Throws Error where its texts are for another use.
data::Splits open_texts(const TextUse& use, const std::string& name, const std::string& data_dir);

/// How many samples of a part there are: of a text that goes on, whole windows in whole batches.
int64_t text_samples(const TextUse& use, const data::Dataset& set, int64_t batch);
/// Samples, one after the other: the inputs, then the targets in the order of their names. Of a text that goes on, sample k of batch b
/// is window b of the k-th part of the text, so that each place of a batch reads on where it was. Of pairs, source and target
/// end with the token for that, and what follows is 0.
std::vector<Tensor> text_batch(const TextUse& use, const Workload& workload, const data::Dataset& set,
                               int64_t batch, std::span<const int64_t> indices);

}  // namespace tandem::lab
