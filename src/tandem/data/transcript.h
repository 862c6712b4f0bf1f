// What was said, as the labels of CTC: 0 is the blank, then come the apostrophe, the letters A to Z and the space.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::data {

inline constexpr int64_t kTranscriptLabels = 29;  ///< with the blank

/// The labels of a text. Small letters count as capitals, accents are left out (é is E), dashes and white space are one space, and
/// other punctuation is left out. Throws Error, beginning with `where`, for what is not spoken as it is written: digits, signs, letters of
/// other alphabets.
std::vector<int64_t> transcript_labels(std::string_view text, const std::string& where = "transcript: ");
/// The text of labels, without blanks. Throws Error for other numbers.
std::string transcript_text(std::span<const int64_t> labels);

}  // namespace tandem::data
