// The space that a search looks through: named parameters with a range or a list of values each. A person writes it as a
// TOML file (docs/reference/search.md).
//   lr = { low = 1e-4, high = 0.1, scale = "log" }
//   optimizer = ["sgd", "adam"]
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::search {

enum class Scale : uint8_t {
  linear,   ///< a number of a range
  log,      ///< the same, evenly over the logarithm
  whole,    ///< a whole number of a range
  ordered,  ///< one of a list of rising numbers
  choice    ///< one of a list without an order
};

/// One dimension. A coordinate is what a search works with: 0 to 1 for a range, the place in the list for a list.
struct Parameter {
  std::string name;
  Scale scale = Scale::choice;
  double low = 0, high = 0;              ///< of ranges, both allowed
  std::vector<std::string> values = {};  ///< of lists, as text

  bool is_list() const { return scale == Scale::ordered || scale == Scale::choice; }
  /// The value at a coordinate: "0.003", "cosine", "true".
  std::string text(double coordinate) const;
  /// The number at a coordinate; of a list, of its text. NaN for a word.
  double number(double coordinate) const;
  /// The coordinate whose value is nearest to `value`: of a list of words that one, or the first.
  double nearest(const std::string& value) const;
};

/// A coordinate for each parameter of a space.
using Point = std::vector<double>;
/// Names and values as text, in the order of the space.
using Settings = std::vector<std::pair<std::string, std::string>>;

struct Space {
  std::vector<Parameter> parameters;

  const Parameter* find(const std::string& name) const;
  Settings settings(const Point& point) const;
  /// The point nearest to given values; parameters without one are in the middle of their range.
  Point nearest(const Settings& values) const;
  /// The text of a file that parse_space reads: equal texts are equal spaces.
  std::string to_toml() const;
};

/// What may be searched, and what its values must be.
struct ParameterRule {
  const char* name;
  const char* meaning;
  double least = 0, most = 0;           ///< of numbers, both allowed
  bool whole = false;                   ///< numbers must be whole
  std::vector<std::string> words = {};  ///< of words: those allowed; empty: see `any_word`
  bool any_word = false;                ///< words that are checked elsewhere (names of models)
  bool of_model = false;                ///< changes the description of the model, else how it is trained
};
const std::vector<ParameterRule>& parameter_rules();

/// Throws Error for an unknown name, an empty range or list, a value that cannot be. `where` begins messages.
void check(const Space& space, const std::string& where = "space");

/// Reads TOML. Throws Error with the line and what is allowed there.
Space parse_space(const std::string& text, const std::string& source = "space");
Space read_space(const std::string& path);

/// What is searched where no file says otherwise: how it is trained and, with `of_model`, the model's own shape.
Space default_space(bool of_model = true);

}  // namespace tandem::search
