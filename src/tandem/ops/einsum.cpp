#include "tandem/ops/einsum.h"

#include <algorithm>

#include "tandem/core/autocast.h"
#include "tandem/ops/define.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

// A label is one index: 0..25 for A-Z, 26..51 for a-z, 52 + i for the i-th axis from the right under "...".
constexpr int kEllipsis = 52, kLabels = kEllipsis + kMaxRank;
using Labels = std::vector<int>;
using LabelSet = uint64_t;

LabelSet bit(int label) { return LabelSet{1} << label; }
bool has(LabelSet set, int label) { return set >> label & 1; }
LabelSet set_of(const Labels& labels) {
  LabelSet set = 0;
  for (int label : labels) set |= bit(label);
  return set;
}

/// One operand's part of the equation: letters, and where "..." stands among them (-1: nowhere).
struct Term {
  Labels letters;
  std::vector<size_t> places;  // of each letter in the equation, for messages
  int dots = -1;
};

struct Equation {
  std::vector<Term> terms;
  Term output;
  bool has_output = false;
};

Equation parse(std::string_view text) {
  Equation equation;
  equation.terms.emplace_back();
  Term* term = &equation.terms[0];
  const auto at = [&](size_t i) { return str(" at position ", i, " of '", text, "'."); };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c >= 'A' && c <= 'Z') {
      term->letters.push_back(c - 'A');
      term->places.push_back(i);
    } else if (c >= 'a' && c <= 'z') {
      term->letters.push_back(26 + c - 'a');
      term->places.push_back(i);
    } else if (c == '.') {
      TD_CHECK(text.substr(i, 3) == "...", "einsum: dots must come in threes; got one", at(i));
      TD_CHECK(term->dots < 0, "einsum: '...' may stand once in each operand; got a second", at(i));
      term->dots = static_cast<int>(term->letters.size());
      i += 2;
    } else if (c == ',') {
      TD_CHECK(!equation.has_output, "einsum: there is one output; got ','", at(i));
      term = &equation.terms.emplace_back();
    } else if (c == '-') {
      TD_CHECK(text.substr(i, 2) == "->", "einsum: '-' must be followed by '>'; got '-'", at(i));
      TD_CHECK(!equation.has_output, "einsum: '->' may stand once; got a second", at(i));
      equation.has_output = true;
      term = &equation.output;
      ++i;
    } else {
      throw Error(str("einsum: indices are letters; got '", c, "'", at(i)));
    }
  }
  return equation;
}

/// A tensor whose axes carry labels, each once, none of size 1.
struct Labelled {
  Tensor tensor;
  Labels labels;
  int axis_of(int label) const {
    return static_cast<int>(std::find(labels.begin(), labels.end(), label) - labels.begin());
  }
};

Tensor sum_axes(const Tensor& x, const Dims& axes) {
  if (axes.rank() == 0) return x;
  const Tensor total = sum(x, axes);
  return total.dtype() == x.dtype() ? total : cast(total, x.dtype());  // integers add up in i64
}

/// Axes i and j (of equal size) become one, at the end: every (n + 1)-th element of the two laid end to end.
Tensor diagonal_of(const Tensor& x, int i, int j) {
  Dims axes, shape;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (axis != i && axis != j) axes.push_back(axis), shape.push_back(x.shape()[axis]);
  const Dim n = x.shape()[i];
  axes.push_back(i);
  axes.push_back(j);
  shape.push_back(n * n);
  return slice(reshape(permute(x, axes), shape), -1, 0, n * n, n + 1);
}

/// Takes diagonals of repeated labels and drops axes of size 1.
Labelled simple(const Tensor& x, const Labels& labels) {
  Labelled result{x, labels};
  for (size_t j = 0; j < result.labels.size(); ++j) {
    const auto first =
        std::find(result.labels.begin(), result.labels.begin() + static_cast<long>(j), result.labels[j]);
    const size_t i = static_cast<size_t>(first - result.labels.begin());
    if (i == j) continue;
    const int label = result.labels[j];
    result.tensor = diagonal_of(result.tensor, static_cast<int>(i), static_cast<int>(j));
    result.labels.erase(result.labels.begin() + static_cast<long>(j));
    result.labels.erase(first);
    result.labels.push_back(label);
    j = 0;
  }
  Dims shape;
  Labels kept;
  for (int axis = 0; axis < result.tensor.rank(); ++axis)
    if (const Dim size = result.tensor.shape()[axis]; size != 1) {
      shape.push_back(size);
      kept.push_back(result.labels[static_cast<size_t>(axis)]);
    }
  return {reshape(result.tensor, shape), kept};
}

/// Sums over the labels that are not in `keep`.
Labelled summed(const Labelled& x, LabelSet keep) {
  Dims axes;
  Labels labels;
  for (size_t i = 0; i < x.labels.size(); ++i) {
    if (has(keep, x.labels[i]))
      labels.push_back(x.labels[i]);
    else
      axes.push_back(static_cast<int64_t>(i));
  }
  return {sum_axes(x.tensor, axes), labels};
}

/// x with its axes in the order of the three groups, each group one axis.
Tensor grouped(const Labelled& x, const Labels& a, const Labels& b, const Labels& c) {
  Dims axes, shape;
  for (const Labels* group : {&a, &b, &c}) {
    Dim size = 1;
    for (int label : *group) {
      axes.push_back(x.axis_of(label));
      size *= x.tensor.shape()[x.axis_of(label)];
    }
    shape.push_back(size);
  }
  return reshape(permute(x.tensor, axes), shape);
}

/// The sum of products of a and b over the labels that both have and nobody else (`keep`) needs.
Labelled contract(const Labelled& left, const Labelled& right, LabelSet keep) {
  const Labelled a = summed(left, keep | set_of(right.labels)), b = summed(right, keep | set_of(left.labels));
  const LabelSet in_a = set_of(a.labels), in_b = set_of(b.labels);
  Labels batch, inner, outer_a, outer_b, labels;
  for (int label : a.labels)
    (!has(in_b, label) ? outer_a : has(keep, label) ? batch : inner).push_back(label);
  for (int label : b.labels)
    if (!has(in_a, label)) outer_b.push_back(label);
  Dims shape;
  for (const Labels* group : {&batch, &outer_a, &outer_b})
    for (int label : *group) {
      labels.push_back(label);
      TD_CHECK(labels.size() <= static_cast<size_t>(kMaxRank),
               "einsum: a product of two operands has at most ", kMaxRank,
               " indices; got more. Contract fewer operands at a time.");
      const Labelled& owner = has(in_a, label) ? a : b;
      shape.push_back(owner.tensor.shape()[owner.axis_of(label)]);
    }
  if (inner.empty())  // every element is one product
    return {reshape(mul(grouped(a, batch, outer_a, {}), grouped(b, batch, {}, outer_b)), shape), labels};
  Tensor x = grouped(a, batch, outer_a, inner), y = grouped(b, batch, inner, outer_b);
  if (batch.empty()) x = squeeze(x, 0), y = squeeze(y, 0);
  return {reshape(matmul(x, y), shape), labels};
}

}  // namespace

Tensor einsum(std::string_view text, const std::vector<Tensor>& operands) {
  if (autocast_is_on()) {
    const std::optional<Tensors> low = detail::current_autocast()->inputs(Precision::low, operands);
    const NoAutocast off;
    return low ? einsum(text, {low->begin(), low->end()}) : einsum(text, operands);
  }
  Equation equation = parse(text);
  TD_CHECK(equation.terms.size() == operands.size(), "einsum: '", text,
           "' must name the axes of each operand; it names ", equation.terms.size(), "; got ",
           operands.size(), " operands.");
  // The labels of every axis, and each label's size.
  Dim sizes[kLabels];
  std::fill(sizes, sizes + kLabels, Dim{-1});
  int count[kLabels] = {}, dotted = 0;
  std::vector<Labels> labels(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& x = operands[i];
    Term& term = equation.terms[i];
    TD_CHECK(x.defined(), "einsum: operand ", i, " must be a tensor; got an undefined handle.");
    TD_CHECK(x.dtype() == operands[0].dtype() && x.dtype() != DType::boolean,
             "einsum: all types must be equal and not bool; got ", operands[0].dtype(), " and ", x.dtype(),
             ". cast() one of them.");
    const int named = static_cast<int>(term.letters.size()), hidden = x.rank() - named;
    TD_CHECK(term.dots < 0 ? hidden == 0 : hidden >= 0, "einsum: operand ", i, " of '", text,
             "' must have one axis for each letter; got ", named, " letters for shape ", x.shape(), ".",
             hidden > 0 && term.dots < 0 ? " '...' stands for the axes without a letter." : "");
    labels[i] = term.letters;
    term.dots = std::max(term.dots, 0);
    for (int h = 0; h < hidden; ++h)
      labels[i].insert(labels[i].begin() + term.dots + h, kEllipsis + hidden - 1 - h);
    dotted = std::max(dotted, hidden);
    for (int axis = 0; axis < x.rank(); ++axis) {
      const int label = labels[i][static_cast<size_t>(axis)];
      const Dim size = x.shape()[axis];
      ++count[label];
      const int before = axis - (axis < term.dots ? 0 : hidden);
      const std::string where = label >= kEllipsis
                                    ? " under '...'"
                                    : str(" at position ", term.places[static_cast<size_t>(before)]);
      for (int earlier = 0; earlier < axis; ++earlier)
        TD_CHECK(labels[i][static_cast<size_t>(earlier)] != label || x.shape()[earlier] == size,
                 "einsum: axes with the same letter in one operand must have one size; got ",
                 x.shape()[earlier], " and ", size, where, " of '", text, "', operand ", i, " ", x.shape(),
                 ".");
      TD_CHECK(sizes[label] == -1 || sizes[label] == 1 || size == 1 || sizes[label] == size,
               "einsum: axes with the same letter must have one size or be 1; got ", sizes[label], " and ",
               size, where, " of '", text, "', operand ", i, " ", x.shape(), ".");
      if (sizes[label] == -1 || sizes[label] == 1) sizes[label] = size;
    }
  }
  // The labels of the output.
  Labels wanted;
  const auto add_dotted = [&] {
    for (int h = dotted - 1; h >= 0; --h) wanted.push_back(kEllipsis + h);
  };
  if (equation.has_output) {
    const Term& out = equation.output;
    for (size_t i = 0; i <= out.letters.size(); ++i) {
      if (out.dots == static_cast<int>(i)) add_dotted();
      if (i == out.letters.size()) break;
      const int label = out.letters[i];
      const char letter = text[out.places[i]];
      TD_CHECK(count[label], "einsum: every output index must be an index of an operand; got '", letter,
               "' at position ", out.places[i], " of '", text, "'.");
      TD_CHECK(std::find(wanted.begin(), wanted.end(), label) == wanted.end(),
               "einsum: an output index may stand once; got '", letter, "' again at position ", out.places[i],
               " of '", text, "'.");
      wanted.push_back(label);
    }
  } else {
    add_dotted();
    for (int label = 0; label < kEllipsis; ++label)
      if (count[label] == 1) wanted.push_back(label);
  }
  TD_CHECK(wanted.size() <= static_cast<size_t>(kMaxRank), "einsum: a tensor has at most ", kMaxRank,
           " axes; got ", wanted.size(), " in the output of '", text, "'.");

  std::vector<Labelled> parts;
  for (size_t i = 0; i < operands.size(); ++i) parts.push_back(simple(operands[i], labels[i]));
  const auto needed = [&](size_t without_a, size_t without_b) {
    LabelSet set = set_of(wanted);
    for (size_t i = 0; i < parts.size(); ++i)
      if (i != without_a && i != without_b) set |= set_of(parts[i].labels);
    return set;
  };
  while (parts.size() > 1) {
    size_t best_a = 0, best_b = 1;
    if (parts.size() > 2) {
      double least = 0;
      for (size_t a = 0; a < parts.size(); ++a)
        for (size_t b = a + 1; b < parts.size(); ++b) {
          const LabelSet both = set_of(parts[a].labels) | set_of(parts[b].labels), keep = needed(a, b);
          double size = 1;
          for (int label = 0; label < kLabels; ++label)
            if (has(both & keep, label)) size *= static_cast<double>(sizes[label]);
          const double gain = size - static_cast<double>(parts[a].tensor.size() + parts[b].tensor.size());
          if ((a == 0 && b == 1) || gain < least) least = gain, best_a = a, best_b = b;
        }
    }
    parts[best_a] = contract(parts[best_a], parts[best_b], needed(best_a, best_b));
    parts.erase(parts.begin() + static_cast<long>(best_b));
  }
  const Labelled last = summed(parts[0], set_of(wanted));
  Dims axes, shape;
  for (int label : wanted) {
    shape.push_back(sizes[label]);
    if (sizes[label] != 1) axes.push_back(last.axis_of(label));
  }
  const Tensor out = reshape(permute(last.tensor, axes), shape);
  static constexpr CopyMark kMark{"einsum", "Write into the operand itself, with values in its order."};
  const bool only_moves = operands.size() == 1 && last.labels.size() == parts[0].labels.size();
  return only_moves ? part_of(operands[0], out, kMark) : without_mark(out);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& axes_a, const Dims& axes_b) {
  TD_CHECK(a.defined() && b.defined(), "tensordot: both inputs must be tensors; got an undefined handle.");
  TD_CHECK(axes_a.rank() == axes_b.rank(), "tensordot: both lists of axes must have one length; got ", axes_a,
           " and ", axes_b, ".");
  const auto order = [](const Tensor& x, const Dims& axes, bool summed_last, Dims& rest) {
    Dims inner, outer;
    unsigned seen = 0;
    for (Dim wanted : axes) {
      const int axis = normal_axis("tensordot", wanted, x.rank());
      TD_CHECK(!(seen >> axis & 1), "tensordot: an axis may be named once; got ", axes, " for shape ",
               x.shape(), ".");
      seen |= 1u << axis;
      inner.push_back(axis);
    }
    for (int axis = 0; axis < x.rank(); ++axis)
      if (!(seen >> axis & 1)) outer.push_back(axis), rest.push_back(x.shape()[axis]);
    Dims all = summed_last ? outer : inner;
    for (Dim axis : summed_last ? inner : outer) all.push_back(axis);
    return permute(x, all);
  };
  Dims rest_a, rest_b;
  const Tensor x = order(a, axes_a, true, rest_a), y = order(b, axes_b, false, rest_b);
  Dim inner = 1;
  for (int i = 0; i < axes_a.rank(); ++i) {
    const Dim found = x.shape()[rest_a.rank() + i];
    TD_CHECK(found == y.shape()[i], "tensordot: paired axes must have one size; got axes ", axes_a, " of ",
             a.shape(), " and ", axes_b, " of ", b.shape(), ".");
    inner *= found;
  }
  TD_CHECK(rest_a.rank() + rest_b.rank() <= kMaxRank, "tensordot: a tensor has at most ", kMaxRank,
           " axes; got ", rest_a.rank() + rest_b.rank(), " in the result.");
  Dims shape = rest_a;
  for (Dim size : rest_b) shape.push_back(size);
  return reshape(matmul(reshape(x, {size_of(rest_a), inner}), reshape(y, {inner, size_of(rest_b)})), shape);
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t axes) {
  TD_CHECK(a.defined() && b.defined(), "tensordot: both inputs must be tensors; got an undefined handle.");
  TD_CHECK(axes >= 0 && axes <= a.rank() && axes <= b.rank(),
           "tensordot: both inputs need as many axes as are summed; got ", axes, " for shapes ", a.shape(),
           " and ", b.shape(), ".");
  Dims last, first;
  for (int64_t i = 0; i < axes; ++i) last.push_back(a.rank() - axes + i), first.push_back(i);
  return tensordot(a, b, last, first);
}

}  // namespace tandem
