#include "tandem/ops/lengths.h"

#include "tandem/core/trace.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem {

Tensor within_lengths(const char* op, const Tensor& lengths, Dim batch, Dim steps, Dim least) {
  TD_CHECK(lengths.defined() && lengths.dtype() == DType::i64 && lengths.shape() == Dims{batch}, op,
           ": the lengths must be i64, one for each of ", batch, " samples; got ", describe(lengths),
           ". cast() or reshape() them.");
  Tensor checked = lengths;
  if (!current_tracer() && lengths.device().is_cpu()) {
    const std::vector<int64_t> values = lengths.to_vector<int64_t>();
    for (size_t i = 0; i < values.size(); ++i)
      TD_CHECK(
          values[i] >= least && values[i] <= steps, op, ": every length must be from ", least, " to ", steps,
          ", the size of the padded axis; got ", values[i], " for sample ", i, ".",
          values[i] > steps ? " Pad to the longest sample, or cut the length." : " Leave such samples out.");
  } else {
    // Nobody can look at the values now: a table of all that are allowed refuses the others.
    checked = gather_as(arange(least, steps + 1, 1, DType::i64, lengths.device()), 0, lengths - least,
                        least == 0 ? IndexUse::lengths : IndexUse::positive_lengths);
  }
  return less(unsqueeze(arange(steps, DType::i64, lengths.device()), 0), unsqueeze(checked, 1));
}

}  // namespace tandem
