// The characters that speech is made from.
#pragma once

#include "tandem/data/text_set.h"

namespace tandem::data {

/// Padding, unknown, a space, the small letters of English, and !'"(),-.:;? (40 in all). Texts are taken whole. Digits are unknown: write
/// numbers as they are spoken.
TextEncoderPtr speech_characters();

}  // namespace tandem::data
