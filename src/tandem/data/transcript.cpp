// Texts as labels.
#include "tandem/data/transcript.h"

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::data {
namespace {

constexpr std::string_view kAlphabet =
    "_'ABCDEFGHIJKLMNOPQRSTUVWXYZ ";  // by label; the blank is never written
static_assert(kAlphabet.size() == kTranscriptLabels);
constexpr std::string_view kLeftOut = "!\"(),.:;?[]`{}<>";

/// What a character beyond ASCII is written as; "" where it is left out, null where it is none that we know.
const char* plain(std::string_view character) {
  struct Row {
    std::string_view characters;
    const char* plain;
  };
  static constexpr Row kRows[] = {
      {"ÀÁÂÃÄÅàáâãäå", "A"}, {"Çç", "C"},       {"ÈÉÊËèéêë", "E"}, {"ÌÍÎÏìíîï", "I"}, {"Ññ", "N"},
      {"ÒÓÔÕÖØòóôõöø", "O"}, {"ÙÚÛÜùúûü", "U"}, {"Ýýÿ", "Y"},      {"Ææ", "AE"},      {"Œœ", "OE"},
      {"ß", "SS"},           {"’‘", "'"},       {"–—\u00a0", " "}, {"“”„«»…", ""}};
  for (const Row& row : kRows)
    if (row.characters.find(character) != std::string_view::npos) return row.plain;
  return nullptr;
}

size_t bytes_at(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return std::min(bytes, text.size() - at);
}

}  // namespace

std::vector<int64_t> transcript_labels(std::string_view text, const std::string& where) {
  std::vector<int64_t> labels;
  constexpr auto kSpace = static_cast<int64_t>(kAlphabet.size() - 1);
  const auto add = [&](char c) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    const auto label = static_cast<int64_t>(kAlphabet.find(c));
    if (label == kSpace && (labels.empty() || labels.back() == kSpace)) return;  // one space between words
    labels.push_back(label);
  };
  for (size_t at = 0; at < text.size(); at += bytes_at(text, at)) {
    const std::string_view character = text.substr(at, bytes_at(text, at));
    const char c = character[0];
    const bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '\'';
    if (is_letter) {
      add(c);
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '-' || c == '/') {
      add(' ');
    } else if (kLeftOut.find(c) == std::string_view::npos) {
      const char* written = character.size() > 1 ? plain(character) : nullptr;
      TD_CHECK(written, where, "a text must be letters, apostrophes and spaces, as it is spoken; got '",
               one_line(character), "' in '", one_line(text, 60), "'. Write it in words.");
      for (const char* letter = written; *letter != 0; ++letter) add(*letter);
    }
  }
  if (!labels.empty() && labels.back() == kSpace) labels.pop_back();
  return labels;
}

std::string transcript_text(std::span<const int64_t> labels) {
  std::string out;
  for (const int64_t label : labels) {
    TD_CHECK(label >= 0 && label < kTranscriptLabels, "transcript_text: labels must be 0 to ",
             kTranscriptLabels - 1, "; got ", label, ".");
    if (label > 0) out += kAlphabet[static_cast<size_t>(label)];
  }
  return out;
}

}  // namespace tandem::data
