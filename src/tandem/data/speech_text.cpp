#include "tandem/data/speech_text.h"

namespace tandem::data {

TextEncoderPtr speech_characters() {
  constexpr int64_t kMostLength = 1'000'000;
  std::vector<std::string> characters;
  for (const char c : std::string_view(" abcdefghijklmnopqrstuvwxyz!'\"(),-.:;?"))
    characters.emplace_back(1, c);
  return std::make_shared<TextEncoder>(TextEncoder{
      Vocabulary::of_words(characters, {.tokens = Tokens::characters, .padding = true}), kMostLength});
}

}  // namespace tandem::data
