// Text: reading files of it, and cutting it into words. Everything is UTF-8; what is not is refused by the file's name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::data {

/// How a text is cut.
enum class Tokens : uint8_t {
  words,       ///< in lower case; words and punctuation apart
  spaces,      ///< at white space alone, as it is: for text that is cut already, such as Penn Treebank
  bpe,         ///< pieces learned from text, of bytes: any text comes back exactly (data/bpe.h)
  characters,  ///< each by itself, small; white space is one space
};
const char* name(Tokens tokens);
/// Throws Error with the names.
Tokens parse_tokens(const std::string& text);

/// The text of a file, plain or gzip, without a byte order mark. Throws Error, by the file, where it is empty or no UTF-8.
std::string read_text(const std::string& path);
/// The same of bytes that were read. `where` is what messages begin with: "read 'a.txt': ".
std::string checked_text(const std::string& where, std::string_view bytes);

/// One token of a text; `ends` where a sentence ends there, and then it has no text.
struct Token {
  std::string text;
  bool ends = false;
};
/// The words or characters of a text (all but bpe), in order.
///
/// words: letters and digits that stand together are a word, with apostrophes inside (don't); every other character that
/// is no space is a token of its own, and so is each ideograph and kana. Letters are made small where Unicode has a small one of Latin,
/// Greek, Cyrillic or Armenian. A sentence "ends" where a line is empty.
/// spaces: a sentence ends with its line.
/// characters: none at the ends of a text are white space; no sentence ends.
std::vector<Token> cut(std::string_view text, Tokens tokens);

/// Words as a person writes them: spaces between, none before a full stop or after an opening bracket.
std::string join_words(const std::vector<std::string>& words);

}  // namespace tandem::data
