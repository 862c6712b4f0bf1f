// LJSpeech-1.1 (Ito and Johnson 2017): one speaker who reads aloud, 13,100 utterances at 22,050 Hz. metadata.csv has a line for each, ID|text|text in
// words; the sound is wavs/ID.wav.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/data/speech_set.h"

namespace tandem::data {

/// The utterances of a folder with metadata.csv and wavs/, in the order of its lines, with their texts in words. Throws Error for a line
/// without a text, and where a file of sound is missing.
std::vector<Utterance> read_ljspeech(const std::string& folder);

std::optional<std::string> locate_ljspeech(const DatasetInfo& info, const std::string& data_dir);
Splits open_ljspeech(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
