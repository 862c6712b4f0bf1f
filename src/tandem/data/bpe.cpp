// Learning and applying byte pairs.
#include "tandem/data/bpe.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "tandem/core/error.h"

namespace tandem::data {
namespace {

constexpr size_t kMostChunk = 64;  // bytes: what encoding takes grows with its square
constexpr int64_t kBytes = 256;

uint64_t key_of(int64_t left, int64_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

enum class Kind : uint8_t { letter, digit, space, sign };
Kind kind_of_char(char c) {
  const auto byte = static_cast<uint8_t>(c);
  if (byte >= 0x80 || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '\'')
    return Kind::letter;
  if (byte >= '0' && byte <= '9') return Kind::digit;
  return byte == ' ' || (byte >= 0x09 && byte <= 0x0D) ? Kind::space : Kind::sign;
}

/// Calls f with each chunk of a text, in order; together they are the text.
template <class F>
void each_chunk(std::string_view text, const F& f) {
  for (size_t begin = 0; begin < text.size();) {
    size_t at = begin;
    // One space belongs to what follows it.
    const bool has_space =
        text[at] == ' ' && at + 1 < text.size() && kind_of_char(text[at + 1]) != Kind::space;
    if (has_space) ++at;
    const Kind kind = kind_of_char(text[at]);
    const auto goes_on = [&] {
      if (at >= text.size() || at - begin >= kMostChunk || kind_of_char(text[at]) != kind) return false;
      // Of a run of spaces the last one is left to the word behind it.
      return kind != Kind::space || at == begin || text[at] != ' ' || at + 1 >= text.size() ||
             kind_of_char(text[at + 1]) == Kind::space;
    };
    do ++at;
    while (goes_on());
    f(text.substr(begin, at - begin));
    begin = at;
  }
}

struct Word {
  std::vector<int64_t> pieces;
  int64_t count = 0;
};

/// What the learner knows of a pair.
struct Pair {
  int64_t count = 0;
  std::set<size_t> words;  // that it may be in
};

}  // namespace

BytePairs::BytePairs(std::vector<Merge> merges, const std::string& where) : merges_(std::move(merges)) {
  for (int64_t i = 0; i < kBytes; ++i) pieces_.emplace_back(1, static_cast<char>(i));
  for (const auto& [left, right] : merges_) {
    const int64_t next = size();
    TD_CHECK(left >= 0 && left < next && right >= 0 && right < next, where, "merge ", next - kBytes,
             " must join pieces before it, 0 to ", next - 1, "; got ", left, " and ", right, ".");
    TD_CHECK(piece(left).size() + piece(right).size() <= kMostChunk, where, "a piece must take at most ",
             kMostChunk, " bytes; merge ", next - kBytes, " makes ", piece(left).size() + piece(right).size(),
             ".");
    TD_CHECK(ranks_.emplace(key_of(left, right), next - kBytes).second, where, "merge ", next - kBytes,
             " must be new; ", left, " and ", right, " are joined before.");
    pieces_.push_back(piece(left) + piece(right));
  }
}

BytePairs BytePairs::learn(const std::vector<std::string_view>& texts, int64_t most, int64_t least) {
  std::map<std::string, int64_t, std::less<>> counted;
  for (const std::string_view text : texts)
    each_chunk(text, [&](std::string_view chunk) {
      const auto at = counted.find(chunk);
      if (at == counted.end())
        counted.emplace(chunk, 1);
      else
        ++at->second;
    });
  std::vector<Word> words;
  for (const auto& [text, count] : counted) {
    Word& word = words.emplace_back();
    word.count = count;
    for (const char c : text) word.pieces.push_back(static_cast<uint8_t>(c));
  }
  std::unordered_map<uint64_t, Pair> pairs;
  for (size_t w = 0; w < words.size(); ++w)
    for (size_t i = 0; i + 1 < words[w].pieces.size(); ++i) {
      Pair& pair = pairs[key_of(words[w].pieces[i], words[w].pieces[i + 1])];
      pair.count += words[w].count;
      pair.words.insert(w);
    }
  std::vector<std::string> pieces;
  for (int64_t i = 0; i < kBytes; ++i) pieces.emplace_back(1, static_cast<char>(i));
  struct Candidate {
    int64_t count, left, right;
  };
  // The last one is the best. Counts change: a candidate whose count is no longer true is passed over.
  const auto is_worse = [&](const Candidate& a, const Candidate& b) {
    if (a.count != b.count) return a.count < b.count;
    const auto text = [&](int64_t i) -> const std::string& { return pieces[static_cast<size_t>(i)]; };
    if (const int order = text(a.left).compare(text(b.left)); order != 0) return order > 0;
    if (const int order = text(a.right).compare(text(b.right)); order != 0) return order > 0;
    // Pieces of the same text that were joined in two ways.
    return std::pair(a.left, a.right) > std::pair(b.left, b.right);
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(is_worse)> queue(is_worse);
  const auto offer = [&](uint64_t key) {
    if (const int64_t count = pairs[key].count; count >= least)
      queue.push({count, static_cast<int64_t>(key >> 32), static_cast<int64_t>(key & 0xFFFFFFFF)});
  };
  for (const auto& row : pairs) offer(row.first);
  std::vector<Merge> merges;
  while (static_cast<int64_t>(merges.size()) < most && !queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const uint64_t key = key_of(best.left, best.right);
    if (pairs[key].count != best.count) continue;
    const auto joined = static_cast<int64_t>(pieces.size());
    pieces.push_back(pieces[static_cast<size_t>(best.left)] + pieces[static_cast<size_t>(best.right)]);
    merges.emplace_back(best.left, best.right);
    const std::set<size_t> inside = std::move(pairs[key].words);
    std::set<uint64_t> changed;
    for (const size_t w : inside) {
      Word& word = words[w];
      const auto add = [&](int64_t sign) {
        for (size_t i = 0; i + 1 < word.pieces.size(); ++i) {
          const uint64_t own = key_of(word.pieces[i], word.pieces[i + 1]);
          Pair& pair = pairs[own];
          pair.count += sign * word.count;
          if (sign > 0) pair.words.insert(w);
          changed.insert(own);
        }
      };
      add(-1);
      std::vector<int64_t> merged;
      for (size_t i = 0; i < word.pieces.size(); ++i) {
        const bool is_pair =
            i + 1 < word.pieces.size() && word.pieces[i] == best.left && word.pieces[i + 1] == best.right;
        merged.push_back(is_pair ? joined : word.pieces[i]);
        if (is_pair) ++i;
      }
      word.pieces = std::move(merged);
      add(1);
    }
    pairs[key].count = 0;
    for (const uint64_t own : changed)
      if (own != key) offer(own);
  }
  return BytePairs(std::move(merges));
}

std::vector<int64_t> BytePairs::encode_chunk(std::string_view chunk) const {
  std::vector<int64_t> pieces;
  for (const char c : chunk) pieces.push_back(static_cast<uint8_t>(c));
  while (pieces.size() > 1) {  // the merge that was learned first, everywhere
    int64_t best = -1;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      const auto at = ranks_.find(key_of(pieces[i], pieces[i + 1]));
      if (at != ranks_.end() && (best < 0 || at->second < best)) best = at->second;
    }
    if (best < 0) break;
    const auto [left, right] = merges_[static_cast<size_t>(best)];
    std::vector<int64_t> merged;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool is_pair = i + 1 < pieces.size() && pieces[i] == left && pieces[i + 1] == right;
      merged.push_back(is_pair ? kBytes + best : pieces[i]);
      if (is_pair) ++i;
    }
    pieces = std::move(merged);
  }
  return pieces;
}

std::vector<int64_t> BytePairs::encode(std::string_view text) const {
  std::vector<int64_t> out;
  std::unordered_map<std::string_view, std::vector<int64_t>> known;
  each_chunk(text, [&](std::string_view chunk) {
    auto at = known.find(chunk);
    if (at == known.end()) at = known.emplace(chunk, encode_chunk(chunk)).first;
    out.insert(out.end(), at->second.begin(), at->second.end());
  });
  return out;
}

}  // namespace tandem::data
