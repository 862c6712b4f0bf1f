// Reading and cutting text. Which characters are letters is a table of ranges, so that it is the same on every machine.
#include "tandem/data/text.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/io/csv_rows.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

constexpr const char* kTokens[] = {"words", "spaces", "bpe", "characters"};
constexpr std::string_view kMark = "\xEF\xBB\xBF";

/// The character at `at` of a valid text, and how many bytes it takes.
struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
};
Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i])); };
  const uint32_t first = byte(0);
  const size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (bytes == 1 || at + bytes > text.size()) return {first, 1};
  uint32_t code = first & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) code = code << 6 | (byte(i) & 0x3F);
  return {code, bytes};
}

void append(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const uint32_t lead = more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0;
  out += static_cast<char>(lead | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
}

bool is_between(uint32_t code, uint32_t first, uint32_t last) { return code >= first && code <= last; }

bool is_space(uint32_t c) {
  return c == ' ' || is_between(c, 0x09, 0x0D) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         is_between(c, 0x2000, 0x200B) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000 || c == 0xFEFF;
}

/// Written without spaces between words: each character is a token.
bool stands_alone(uint32_t c) {
  return is_between(c, 0x3041, 0x30FF) || is_between(c, 0x3400, 0x4DBF) || is_between(c, 0x4E00, 0x9FFF) ||
         is_between(c, 0xF900, 0xFAFF) || is_between(c, 0x20000, 0x3FFFF);
}

/// Letters, digits, and marks that belong to a letter.
bool is_letter(uint32_t c) {
  if (c < 0x80)
    return is_between(c, 'a', 'z') || is_between(c, 'A', 'Z') || is_between(c, '0', '9') || c == '_';
  if (c < 0xC0) return c == 0xAA || c == 0xB5 || c == 0xBA;
  if (c == 0xD7 || c == 0xF7) return false;
  if (c == 0x200C || c == 0x200D) return true;  // joiners, inside words of several scripts
  const bool is_sign = is_between(c, 0x2000, 0x2BFF) || is_between(c, 0x2E00, 0x2E7F) ||
                       is_between(c, 0x3000, 0x303F) || is_between(c, 0xFE10, 0xFE6F) ||
                       is_between(c, 0xFF01, 0xFF0F) || is_between(c, 0xFF1A, 0xFF20) ||
                       is_between(c, 0xFF3B, 0xFF40) || is_between(c, 0xFF5B, 0xFF65) ||
                       is_between(c, 0x1F000, 0x1FAFF) || is_between(c, 0xE000, 0xF8FF);
  if (is_sign || stands_alone(c)) return false;
  switch (c) {  // marks of sentences among the letters of their script
    case 0x037E:
    case 0x0387:
    case 0x0589:
    case 0x05BE:
    case 0x05C0:
    case 0x05C3:
    case 0x060C:
    case 0x061B:
    case 0x061F:
    case 0x06D4:
    case 0x0964:
    case 0x0965:
    case 0x0E2F:
    case 0x0E5A:
    case 0x0E5B:
      return false;
    default:
      return true;
  }
}

/// The small letter, where the character is a capital of a script that has both.
uint32_t small(uint32_t c) {
  if (is_between(c, 'A', 'Z')) return c + 32;
  if (c < 0xC0) return c;
  if (is_between(c, 0xC0, 0xDE)) return c == 0xD7 ? c : c + 32;
  // Latin, in pairs: capitals are even up to 0x137 and from 0x14A to 0x177, odd between and from 0x179 to 0x17D.
  if (is_between(c, 0x100, 0x137) || is_between(c, 0x14A, 0x177)) return c == 0x130 ? 'i' : c | 1;
  if (is_between(c, 0x139, 0x148) || is_between(c, 0x179, 0x17E)) return c % 2 == 1 ? c + 1 : c;
  if (c == 0x178) return 0xFF;
  if (is_between(c, 0x218, 0x21F) || is_between(c, 0x1E00, 0x1E95) || is_between(c, 0x1EA0, 0x1EFF))
    return c | 1;
  if (is_between(c, 0x391, 0x3AB)) return c == 0x3A2 ? c : c + 32;
  switch (c) {
    case 0x386:
      return 0x3AC;
    case 0x388:
    case 0x389:
    case 0x38A:
      return c + 37;
    case 0x38C:
      return 0x3CC;
    case 0x38E:
    case 0x38F:
      return c + 63;
    default:
      break;
  }
  if (is_between(c, 0x410, 0x42F)) return c + 32;
  if (is_between(c, 0x400, 0x40F)) return c + 80;
  if (is_between(c, 0x460, 0x481) || is_between(c, 0x48A, 0x4BF) || is_between(c, 0x4D0, 0x52F)) return c | 1;
  if (is_between(c, 0x4C1, 0x4CE)) return c % 2 == 1 ? c + 1 : c;
  if (is_between(c, 0x531, 0x556)) return c + 48;
  return c;
}

bool is_apostrophe(uint32_t c) { return c == '\'' || c == 0x2019; }

/// Where a sentence ends: after so many line breaks with nothing but space between.
class Ends {
 public:
  Ends(int breaks, std::vector<Token>& out) : needed_(breaks), out_(out) {}
  void space(uint32_t c) {
    if (c == '\n' && ++breaks_ == needed_ && !out_.empty() && !out_.back().ends) out_.push_back({"", true});
  }
  void word() { breaks_ = 0; }

 private:
  const int needed_;
  int breaks_ = 0;
  std::vector<Token>& out_;
};

std::vector<Token> cut_at_spaces(std::string_view text) {
  std::vector<Token> out;
  Ends ends(1, out);
  std::string word;
  for (size_t at = 0; at <= text.size();) {
    const Character c = at < text.size() ? character_at(text, at) : Character{' ', 1};
    if (!is_space(c.code)) {
      word.append(text.substr(at, c.bytes));
    } else {
      if (!word.empty()) {
        ends.word();
        out.push_back({std::move(word)});
        word.clear();
      }
      if (at < text.size()) ends.space(c.code);
    }
    at += c.bytes;
  }
  return out;
}

std::vector<Token> cut_into_words(std::string_view text) {
  std::vector<Token> out;
  Ends ends(2, out);
  std::string word;
  const auto finish = [&] {
    if (word.empty()) return;
    ends.word();
    out.push_back({std::move(word)});
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    at += c.bytes;
    if (is_letter(c.code)) {
      append(word, small(c.code));
      continue;
    }
    const bool is_inside =
        is_apostrophe(c.code) && !word.empty() && at < text.size() && is_letter(character_at(text, at).code);
    if (is_inside) {
      word += '\'';
      continue;
    }
    finish();
    if (is_space(c.code)) {
      ends.space(c.code);
      continue;
    }
    append(word, c.code);
    finish();
  }
  finish();
  return out;
}

std::vector<Token> cut_into_characters(std::string_view text) {
  std::vector<Token> out;
  bool has_space = false;  // before the next character
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    at += c.bytes;
    if (is_space(c.code)) {
      has_space = !out.empty();
      continue;
    }
    if (has_space) out.push_back({" "});
    has_space = false;
    append(out.emplace_back().text, small(c.code));
  }
  return out;
}

}  // namespace

const char* name(Tokens tokens) { return kTokens[static_cast<size_t>(tokens)]; }

Tokens parse_tokens(const std::string& text) {
  for (size_t i = 0; i < std::size(kTokens); ++i)
    if (text == kTokens[i]) return static_cast<Tokens>(i);
  throw Error(str("tokens: must be words, spaces, bpe or characters; got '", io::one_line(text, 60), "'."));
}

std::string checked_text(const std::string& where, std::string_view bytes) {
  if (bytes.starts_with(kMark)) bytes.remove_prefix(kMark.size());
  io::check_utf8(where, bytes);
  const bool has_text = std::any_of(bytes.begin(), bytes.end(), [](char c) {
    return !is_space(static_cast<uint8_t>(c)) || static_cast<uint8_t>(c) >= 0x80;
  });
  TD_CHECK(has_text, where, "must hold text; it is empty. Remove the file, or fill it.");
  return std::string(bytes);
}

std::string read_text(const std::string& path) {
  const std::vector<uint8_t> bytes = io::read_maybe_gzip("read", path);
  return checked_text(str("read '", io::one_line(path), "': "),
                      {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::vector<Token> cut(std::string_view text, Tokens tokens) {
  TD_CHECK(tokens != Tokens::bpe,
           "cut: takes words, spaces or characters; pieces of bpe are Vocabulary::encode's.");
  if (tokens == Tokens::characters) return cut_into_characters(text);
  return tokens == Tokens::words ? cut_into_words(text) : cut_at_spaces(text);
}

std::string join_words(const std::vector<std::string>& words) {
  static constexpr std::string_view kClose[] = {".", ",", ";", ":", "!", "?", ")",
                                                "]", "}", "%", "…", "”", "»"};
  static constexpr std::string_view kOpen[] = {"(", "[", "{", "“", "«", "$", "#", "¿", "¡"};
  const auto is_one_of = [](const auto& list, const std::string& word) {
    return std::find(std::begin(list), std::end(list), word) != std::end(list);
  };
  std::string out;
  bool glue = true;  // nothing comes between
  for (const std::string& word : words) {
    if (word == "\n") {
      out += word;
      glue = true;
      continue;
    }
    if (!glue && !is_one_of(kClose, word)) out += ' ';
    out += word;
    glue = is_one_of(kOpen, word);
  }
  return out;
}

}  // namespace tandem::data
