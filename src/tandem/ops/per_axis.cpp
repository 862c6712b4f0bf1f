#include "tandem/ops/per_axis.h"

#include <ostream>

#include "tandem/core/error.h"

namespace tandem {

std::ostream& operator<<(std::ostream& out, const Axes3& axes) {
  return out << '(' << axes[0] << ", " << axes[1] << ", " << axes[2] << ')';
}

PerAxis::PerAxis(std::initializer_list<int64_t> values) : count_(static_cast<int>(values.size())) {
  TD_CHECK(values.size() <= 3,
           "options: there must be at most three numbers, one for each spatial axis; got ", values.size(),
           ".");
  int i = 0;
  for (const int64_t value : values) values_[i++] = value;
}

Axes3 PerAxis::over(int axes, const char* op, const char* what, int64_t unused) const {
  TD_CHECK(count_ == 1 || count_ == axes, op, ": ", what, " must be one number or one for each of the ", axes,
           " spatial axes; got ", count_, " numbers.");
  Axes3 out{{unused, unused, unused}};
  for (int i = 0; i < axes; ++i) out[3 - axes + i] = values_[count_ == 1 ? 0 : i];
  return out;
}

Padding::Padding(std::string_view word) : PerAxis(0), same_(word == "same") {
  TD_CHECK(same_ || word == "valid", "padding: a word must be \"same\" or \"valid\"; got \"", word, "\".");
}

}  // namespace tandem
