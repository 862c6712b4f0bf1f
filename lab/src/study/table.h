// Reading of one table of a TOML file with checks: every key must be known, of the right type and within its rule. A
// file that breaks a rule is refused with the file, the key and the rule.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace tandem::lab {

/// What a number of a file may be, ends included. Every number has both ends: one without an upper end makes a study that
/// never ends, or overflows on the way.
struct Whole {
  int64_t least, most;
};
struct Real {
  double least, most;
};

/// False for every other type, and for what is no number at all.
bool is_within(const nlohmann::json& value, Whole range);
bool is_within(const nlohmann::json& value, Real range);

/// A table that is being read. Each call names a key; finish() refuses the keys that no call named. The table must
/// outlive the reader.
class Table {
 public:
  /// `file` and `where` ("part 'training'", or "" for the top) begin each message.
  Table(std::string file, std::string where, const nlohmann::json& json);

  bool has(const std::string& key) const { return json_->contains(key); }

  std::string text(const std::string& key);  // must be there and not empty
  std::string text(const std::string& key, const std::string& otherwise);
  int64_t integer(const std::string& key, int64_t otherwise, Whole range);
  double number(const std::string& key, double otherwise, Real range);
  bool flag(const std::string& key, bool otherwise);
  std::vector<std::string> texts(
      const std::string& key);  // absent: empty; a single text counts as a list of one
  std::vector<int64_t> integers(const std::string& key, Whole range);   // absent: empty
  std::vector<double> numbers(const std::string& key, Real range);      // absent: empty; a single number: one
  std::map<std::string, std::string> text_map(const std::string& key);  // absent: empty
  /// The tables of [[key]]; absent: empty.
  std::vector<nlohmann::json> tables(const std::string& key);
  /// A table; absent: an empty one.
  nlohmann::json table(const std::string& key);
  /// Whatever stands there; absent: null. The caller checks it.
  nlohmann::json any(const std::string& key);

  /// One of `allowed`; absent: `otherwise`.
  std::string choice(const std::string& key, const std::string& otherwise,
                     const std::vector<std::string>& allowed);
  /// Refuses all of `values` that are not among `allowed`.
  void require(const std::string& key, const std::vector<std::string>& values,
               const std::vector<std::string>& allowed) const;

  /// Throws Error where the table has keys that nobody asked for, and names those that it may have.
  void finish() const;

  /// Throws Error: "studies/000.toml, part 'x': KEY must RULE; got VALUE. FIX". `fix` begins with a space.
  [[noreturn]] void refuse(const std::string& key, const std::string& rule,
                           const std::string& fix = "") const;
  std::string place() const;  // "read 'studies/000.toml', part 'x'"

 private:
  const nlohmann::json* find(const std::string& key);

  std::string file_, where_;
  const nlohmann::json* json_;
  std::set<std::string> asked_;
};

/// "a, b and c"; at most `limit` of them.
std::string listed(const std::vector<std::string>& names, size_t limit = 40);

}  // namespace tandem::lab
