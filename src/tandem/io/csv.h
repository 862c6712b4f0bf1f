// Tables of text: comma-separated values (RFC 4180: quotes, doubled quotes, line breaks inside quotes), with another
// delimiter where asked. Numbers become a tensor, the label column classes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"
#include "tandem/io/file.h"

namespace tandem::io {

/// What happens to a cell that is empty, NA or NaN.
enum class Missing : uint8_t {
  refuse,    // an Error that names row and column
  nan,       // not a number
  fill,      // CsvOptions::fill
  drop_row,  // the whole row is left out
};

struct CsvOptions {
  char delimiter = ',';
  std::optional<bool> header = {};  // unset: there is one where the first row holds a cell that is no number
  std::string label = {};           // column of the labels: a name, a number from 0, "last", or "" for none
  bool label_or_last = false;       // where no column is called so, the last one holds the labels
  Missing missing = Missing::refuse;
  double fill = 0;
  int64_t max_bytes = reading_limits().bytes;
};

struct CsvTable {
  std::vector<std::string> columns;  // names of the features ("0", "1" … without a header)
  Tensor features;                   // f32 (rows, columns)
  Tensor labels;                     // i64 (rows,); undefined without a label column
  std::vector<std::string> classes;  // label -> its text, where labels are text (sorted); else empty
};

/// Throws Error, with row and column, for rows of another length, cells that are no numbers and open quotes.
CsvTable load_csv(const std::string& path, const CsvOptions& options = {});

}  // namespace tandem::io
