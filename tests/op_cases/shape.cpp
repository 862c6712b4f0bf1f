// Cases of the shape operations, of assign, and of the copies.
#include "tandem/ops/shape.h"

#include "tandem/core/tape.h"
#include "tandem/ops/random.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

void add_views(std::vector<OpCase>& cases) {
  using In = std::span<const Tensor>;
  cases.push_back(reshaping("reshape", {3, 4}, {2, 6}, [](In in) { return reshape(in[0], {2, 6}); }));
  cases.push_back(reshaping("reshape/inferred", {3, 4}, {6, 2}, [](In in) {
    return reshape(in[0], {-1, 2});
  }));
  cases.push_back(reshaping("reshape/empty", {0, 4}, {2, 0}, [](In in) { return reshape(in[0], {2, 0}); }));
  cases.push_back(moving(
      "reshape/after_permute", {3, 4}, {12}, [](In in) { return reshape(transpose(in[0]), {12}); },
      [](const Dims& i) {
        return Dims{i[0] % 3, i[0] / 3};
      }));
  cases.push_back(reshaping("flatten", {2, 3, 4}, {2, 12}, [](In in) { return flatten(in[0], 1); }));
  cases.push_back(moving(
      "permute", {2, 3, 4}, {4, 2, 3},
      [](In in) {
        return permute(in[0], {2, 0, 1});
      },
      [](const Dims& i) {
        return Dims{i[1], i[2], i[0]};
      }));
  cases.push_back(moving(
      "permute/empty", {0, 3}, {3, 0},
      [](In in) {
        return permute(in[0], {1, 0});
      },
      nullptr));
  cases.push_back(moving(
      "transpose", {2, 3, 4}, {2, 4, 3}, [](In in) { return transpose(in[0]); },
      [](const Dims& i) {
        return Dims{i[0], i[2], i[1]};
      }));
  cases.push_back(moving(
      "expand", {3, 1}, {2, 3, 4},
      [](In in) {
        return expand(in[0], {2, 3, 4});
      },
      [](const Dims& i) {
        return Dims{i[1], 0};
      }));
  cases.push_back(moving(
      "expand/empty", {1, 3}, {0, 3},
      [](In in) {
        return expand(in[0], {0, 3});
      },
      nullptr));
  cases.push_back(moving(
      "slice", {3, 9}, {3, 3}, [](In in) { return slice(in[0], 1, 1, 8, 3); },
      [](const Dims& i) {
        return Dims{i[0], 1 + 3 * i[1]};
      }));
  cases.push_back(moving(
      "slice/from_the_end", {3, 9}, {3, 3}, [](In in) { return slice(in[0], -1, -4, -1); },
      [](const Dims& i) {
        return Dims{i[0], 5 + i[1]};
      }));
  cases.push_back(moving(
      "slice/clamped", {3, 4}, {2, 4}, [](In in) { return slice(in[0], 0, 1, 1000); },
      [](const Dims& i) {
        return Dims{i[0] + 1, i[1]};
      }));
  cases.push_back(moving(
      "slice/empty", {3, 4}, {0, 4}, [](In in) { return slice(in[0], 0, 2, 2); }, nullptr));
  cases.push_back(moving(
      "select", {3, 4}, {3}, [](In in) { return select(in[0], 1, -2); },
      [](const Dims& i) {
        return Dims{i[0], 2};
      }));
  cases.push_back(reshaping("unsqueeze", {3, 4}, {3, 1, 4}, [](In in) { return unsqueeze(in[0], 1); }));
  cases.push_back(reshaping("squeeze", {3, 1, 4}, {3, 4}, [](In in) { return squeeze(in[0], 1); }));
  cases.push_back(moving(
      "contiguous", {3, 4}, {4, 3}, [](In in) { return contiguous(transpose(in[0])); },
      [](const Dims& i) {
        return Dims{i[1], i[0]};
      }));
  cases.push_back(moving(
      "clone", {3, 4}, {3, 4}, [](In in) { return clone(in[0]); }, [](const Dims& i) { return i; }));
  cases.push_back(moving(
      "clone/empty", {3, 0}, {3, 0}, [](In in) { return clone(in[0]); }, nullptr));
  cases.push_back(moving(
      "clone/large", {250, 301}, {301, 250}, [](In in) { return clone(transpose(in[0])); },
      [](const Dims& i) {
        return Dims{i[1], i[0]};
      }));
}

void add_copies(std::vector<OpCase>& cases) {
  OpCase into;
  into.name = "slice_into_zeros";
  into.inputs = {{{3, 3}}};
  into.call = [](std::span<const Tensor> in) { return slice_into_zeros(in[0], 1, 1, 3, 9); };
  into.reference = [](std::span<const Array> in) {
    Array out(Dims{in[0].shape[0], 9});
    each_index(in[0].shape, [&](const Dims& i) { out.at({i[0], 1 + 3 * i[1]}) = in[0].at(i); });
    return out;
  };
  into.tolerance = 0;
  into.half_ulps = 0;
  into.dtypes = kEvery;
  cases.push_back(into);
  cases.push_back(with_shapes(into, "slice_into_zeros/empty", {{0, 3}}));

  OpCase join;
  join.name = "concat";
  join.inputs = {{{2, 3}}, {{2, 1}}, {{2, 4}}};
  join.call = [](std::span<const Tensor> in) { return concat({in.begin(), in.end()}, 1); };
  join.reference = [](std::span<const Array> in) {
    Dim width = 0;
    for (const Array& part : in) width += part.shape[1];
    Array out(Dims{in[0].shape[0], width});
    Dim start = 0;
    for (const Array& part : in) {
      each_index(part.shape, [&](const Dims& i) { out.at({i[0], start + i[1]}) = part.at(i); });
      start += part.shape[1];
    }
    return out;
  };
  join.tolerance = 0;
  join.half_ulps = 0;
  join.dtypes = kEvery;
  cases.push_back(join);
  cases.push_back(with_shapes(join, "concat/one_empty", {{2, 3}, {2, 0}, {2, 4}}));
  cases.push_back(with_shapes(join, "concat/empty", {{0, 3}, {0, 2}, {0, 1}}));

  OpCase reduce;
  reduce.name = "sum_to";
  reduce.inputs = {{{2, 3, 4}}};
  reduce.call = [](std::span<const Tensor> in) { return sum_to(in[0], {3, 1}); };
  reduce.reference = [](std::span<const Array> in) {
    Array out(Dims{3, 1});
    each_index(in[0].shape, [&](const Dims& i) { out.at({i[1], 0}) += in[0].at(i); });
    return out;
  };
  cases.push_back(reduce);

  // assign: a strided part of a copy of x is overwritten with y, which is broadcast.
  OpCase overwrite;
  overwrite.name = "assign";
  overwrite.inputs = {{{4, 6}}, {{3}}};
  overwrite.call = [](std::span<const Tensor> in) {
    const NoGrad off;
    const Tensor copy = clone(in[0]);
    assign(slice(slice(copy, 0, 1, 3), 1, 0, 6, 2), in[1]);
    return copy;
  };
  overwrite.reference = [](std::span<const Array> in) {
    Array out = in[0];
    for (Dim r = 1; r < 3 && r < out.shape[0]; ++r)
      for (Dim c = 0; c < 3; ++c) out.at({r, 2 * c}) = in[1][c];
    return out;
  };
  overwrite.tolerance = 0;
  overwrite.half_ulps = 0;
  overwrite.dtypes = kEvery;
  overwrite.gradient = overwrite.second_order = false;
  cases.push_back(overwrite);
  cases.push_back(with_shapes(overwrite, "assign/empty", {{0, 6}, {3}}));
  overwrite.name = "assign/cast";
  overwrite.inputs = {{{4, 6}}, {{4, 6}, 0, 9, CaseInput::index64}};
  overwrite.call = [](std::span<const Tensor> in) {
    const NoGrad off;
    const Tensor copy = clone(in[0]);
    assign(copy, in[1]);
    return copy;
  };
  overwrite.reference = [](std::span<const Array> in) { return in[1]; };
  overwrite.dtypes = kNumbers;
  cases.push_back(overwrite);
}

}  // namespace

void add_shape_cases(std::vector<OpCase>& cases) {
  add_views(cases);
  add_copies(cases);
}

}  // namespace tandem::testing
