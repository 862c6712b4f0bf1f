// Cases of the matrix products.
#include "tandem/ops/matmul.h"

#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

/// a · b with PyTorch's rules for vectors and batches, by three nested sums.
Array matmul_reference(std::span<const Array> in) {
  Array a = in[0], b = in[1];
  const bool row = a.shape.rank() == 1, column = b.shape.rank() == 1;
  if (row) a.shape.insert(0, 1);
  if (column) b.shape.push_back(1);
  const auto batch_of = [](const Dims& s) {
    return Dims(std::span<const Dim>(s.data(), static_cast<size_t>(s.rank() - 2)));
  };
  const Dims batch = stretched(batch_of(a.shape), batch_of(b.shape));
  const Dim m = a.shape[a.shape.rank() - 2], k = a.shape.back(), n = b.shape.back();
  Dims shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  Array out(shape);
  each_index(shape, [&](const Dims& i) {
    double total = 0;
    Dims ia = i, ib = i;
    for (Dim j = 0; j < k; ++j) {
      ia[i.rank() - 1] = j;
      ib[i.rank() - 2] = j;
      const auto place = [](const Array& x, const Dims& index) {
        Dims own = x.shape;
        const int lead = index.rank() - own.rank();
        for (int axis = 0; axis < own.rank(); ++axis) {
          const bool is_batch = axis < own.rank() - 2;
          own[axis] = is_batch && x.shape[axis] == 1 ? 0 : index[lead + axis];
        }
        return x.at(own);
      };
      total += place(a, ia) * place(b, ib);
    }
    out.at(i) = total;
  });
  Dims final_shape = batch;
  if (!row) final_shape.push_back(m);
  if (!column) final_shape.push_back(n);
  out.shape = final_shape;
  return out;
}

Array linear_reference(std::span<const Array> in) {
  const Array &x = in[0], &w = in[1];
  const Dim inner = w.shape[1], outer = w.shape[0];
  Dims shape = x.shape;
  shape[shape.rank() - 1] = outer;
  Array out(shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t r = i / outer, c = i % outer;
    double total = in.size() > 2 ? in[2][c] : 0;
    for (Dim j = 0; j < inner; ++j) total += x[r * inner + j] * w[c * inner + j];
    out[i] = total;
  }
  return out;
}

struct Shapes {
  const char* name;
  Dims a, b;
};

}  // namespace

void add_matmul_cases(std::vector<OpCase>& cases) {
  const Shapes products[] = {
      {"", {3, 4}, {4, 5}},
      {"/batch", {2, 3, 4}, {2, 4, 5}},
      {"/broadcast_batch", {2, 1, 3, 4}, {3, 4, 2}},
      {"/row", {4}, {4, 3}},
      {"/column", {3, 4}, {4}},
      {"/dot", {5}, {5}},
      {"/batch_by_vector", {2, 3, 4}, {4}},
      {"/one_by_one", {1, 1}, {1, 1}},
      {"/empty", {0, 3}, {3, 2}},
      {"/empty_batch", {0, 2, 3}, {0, 3, 2}},
      {"/empty_sum", {2, 0}, {0, 3}},
      {"/odd_sizes", {37, 129}, {129, 67}},
      {"/deep", {5, 1200}, {1200, 19}},
      {"/wide", {9, 31}, {31, 530}},
      {"/one_row", {1, 331}, {331, 133}},
      {"/one_column", {133, 331}, {331, 1}},
      {"/one_row_deep", {1, 4301}, {4301, 9}},
      {"/four_columns", {75, 530}, {530, 4}},
      {"/six_rows", {6, 1037}, {1037, 75}},
      {"/seven_columns", {75, 530}, {530, 7}},
      {"/shallow", {130, 8}, {8, 210}},
  };
  for (const Shapes& s : products) {
    OpCase op_case;
    op_case.name = str("matmul", s.name);
    op_case.inputs = {{s.a}, {s.b}};
    op_case.call = [](std::span<const Tensor> in) { return matmul(in[0], in[1]); };
    op_case.reference = matmul_reference;
    op_case.int_high = 3;
    if (size_of(s.a) < 200) op_case.dtypes = kNumbers;
    op_case.tolerance = size_of(s.a) > 200 ? 2e-5 : 4e-6;
    op_case.half_ulps = 8;
    cases.push_back(op_case);
  }
  const Shapes layers[] = {{"", {4, 6}, {5, 6}},
                           {"/three_axes", {2, 3, 6}, {4, 6}},
                           {"/vector", {6}, {4, 6}},
                           {"/empty", {0, 6}, {4, 6}},
                           {"/larger", {50, 256}, {120, 256}}};
  for (const Shapes& s : layers) {
    OpCase op_case;
    op_case.name = str("linear", s.name);
    op_case.inputs = {{s.a}, {s.b}, {{s.b[0]}}};
    op_case.call = [](std::span<const Tensor> in) { return linear(in[0], in[1], in[2]); };
    op_case.reference = linear_reference;
    op_case.tolerance = size_of(s.a) > 200 ? 2e-5 : 4e-6;
    op_case.half_ulps = 8;
    cases.push_back(op_case);
  }
  OpCase plain = cases.back();
  plain.name = "linear/no_bias";
  plain.inputs = {{{4, 6}}, {{5, 6}}};
  plain.call = [](std::span<const Tensor> in) { return linear(in[0], in[1]); };
  cases.push_back(plain);
}

}  // namespace tandem::testing
