// Cutting CSV into rows.
#include "tandem/io/csv_rows.h"

#include <algorithm>
#include <charconv>

namespace tandem::io {

namespace {

constexpr std::string_view kMark = "\xef\xbb\xbf";  // UTF-8's byte order mark

/// Bytes of the UTF-8 character at the start of `text`, or 0 where it is none (too long, a surrogate, above U+10FFFF).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
    return 0;
  return length;
}

}  // namespace

std::optional<double> csv_number(std::string_view cell) {
  if (cell.starts_with('+')) {
    cell.remove_prefix(1);
    if (cell.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

void check_utf8(const std::string& where, std::string_view text) {
  using namespace std::string_view_literals;
  const char* other = text.starts_with("\xff\xfe\0\0"sv) || text.starts_with("\0\0\xfe\xff"sv) ? "UTF-32"
                      : text.starts_with("\xff\xfe"sv) || text.starts_with("\xfe\xff"sv)       ? "UTF-16"
                                                                                               : nullptr;
  TD_CHECK(!other, where, "must be text in UTF-8; byte 0 begins the mark of ", other ? other : "",
           ". Save it as UTF-8.");
  for (size_t at = 0; at < text.size();) {
    if (static_cast<signed char>(text[at]) > 0) {  // ASCII
      ++at;
      continue;
    }
    const size_t length = utf8_length(text.substr(at));
    if (length > 0 && text[at] != '\0') {
      at += length;
      continue;
    }
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
    const auto byte = static_cast<unsigned char>(text[at]);
    throw Error(
        str(where, "must be text in UTF-8; byte ", at, " (line ", line, ") is 0x",
            "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15],
            byte == 0 ? ", which no text holds. Is it a text file?" : ", which is none. Save it as UTF-8."));
  }
}

bool is_utf8(std::string_view text) {
  try {
    check_utf8("", text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

CsvRows::CsvRows(const std::string& where, std::string_view text, char delimiter, size_t max_columns)
    : where_(where), text_(text), delimiter_(delimiter), max_columns_(max_columns) {
  TD_CHECK(delimiter != '"' && delimiter != '\n' && delimiter != '\r', where,
           "the delimiter must not be a quote or a line break.");
  if (text_.starts_with(kMark)) at_ = kMark.size();
}

void CsvRows::skip_blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t') && text_[at_] != delimiter_) ++at_;
}

/// Counts the line that the character at `at_` ends, if it does: LF, or CR without LF.
void CsvRows::count_line() {
  const char c = text_[at_];
  line_ += c == '\n' || (c == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] != '\n'));
}

bool CsvRows::next(std::vector<std::string>& cells) {
  for (; at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r'); ++at_) count_line();
  if (at_ >= text_.size()) return false;
  row_line_ = line_;
  size_t count = 0;
  while (true) {
    TD_CHECK(count < max_columns_, where_, "must have at most ", max_columns_, " columns; got ", count + 1,
             " or more in line ", row_line_, ". Give another `delimiter`, or save the values as npy.");
    if (count == cells.size()) cells.emplace_back();
    cell(cells[count++]);
    if (at_end_of_line()) break;
    ++at_;  // the delimiter
  }
  cells.resize(count);
  return true;
}

void CsvRows::cell(std::string& out) {
  const int64_t opened = line_;
  const auto check_bytes = [&](size_t bytes) {
    TD_CHECK(bytes <= kMaxCellBytes, where_, "a cell must take at most ", kMaxCellBytes,
             " bytes; the one that begins in line ", opened,
             " is longer. Close its quotes, or give another `delimiter`.");
  };
  out.clear();
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != '"') {
    const size_t begin = at_;
    size_t end = at_;  // behind the last character that is no blank
    for (; !at_end_of_line() && text_[at_] != delimiter_; ++at_)
      if (text_[at_] != ' ' && text_[at_] != '\t') end = at_ + 1;
    check_bytes(end - begin);
    out = text_.substr(begin, end - begin);
    return;
  }
  for (++at_;; ++at_) {
    TD_CHECK(at_ < text_.size(), where_, "quotes must be closed; those of line ", opened,
             " are not. Close them, or give another `delimiter`.");
    if (text_[at_] == '"') {
      if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
      ++at_;
    }
    count_line();
    out += text_[at_];
    check_bytes(out.size());
  }
  ++at_;
  skip_blanks();
  TD_CHECK(at_end_of_line() || text_[at_] == delimiter_, where_,
           "after closing quotes a cell must end; in line ", line_,
           " it does not. Double the quotes inside a cell.");
}

char find_delimiter(const std::string& where, std::string_view text) {
  constexpr char kCandidates[] = {',', ';', '\t'};
  size_t counts[3] = {};
  size_t at = text.starts_with(kMark) ? kMark.size() : 0;
  while (at < text.size() && (text[at] == '\n' || text[at] == '\r')) ++at;
  bool quoted = false;
  for (; at < text.size() && (quoted || (text[at] != '\n' && text[at] != '\r')); ++at) {
    if (text[at] == '"') quoted = !quoted;
    for (size_t i = 0; i < 3 && !quoted; ++i) counts[i] += text[at] == kCandidates[i];
  }
  const size_t most = *std::max_element(counts, counts + 3);
  TD_CHECK(most == 0 || std::count(counts, counts + 3, most) == 1, where,
           "the delimiter must be clear from the first line; it has ", counts[0], " commas, ", counts[1],
           " semicolons and ", counts[2], " tabs. Give the delimiter.");
  return most == 0 ? ',' : kCandidates[std::max_element(counts, counts + 3) - counts];
}

}  // namespace tandem::io
