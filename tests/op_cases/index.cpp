// Cases of gather, scatter_add_zeros and one_hot.
#include "tandem/ops/index.h"

#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

struct Variant {
  const char* name;
  Dims x, index;
  int axis;
  CaseInput::Kind kind = CaseInput::index64;
};

void add_gather(std::vector<OpCase>& cases, const Variant& v) {
  const double size = static_cast<double>(v.x[v.axis]);
  OpCase gather_case;
  gather_case.name = cat("gather", v.name);
  gather_case.inputs = {{v.x}, {v.index, 0, size, v.kind}};
  gather_case.call = [v](std::span<const Tensor> in) { return gather(in[0], v.axis, in[1]); };
  gather_case.reference = [v](std::span<const Array> in) {
    Array out(v.index);
    each_index(v.index, [&](const Dims& i) {
      Dims place = i;
      place[v.axis] = static_cast<Dim>(in[1].at(i));
      out.at(i) = in[0].at(place);
    });
    return out;
  };
  gather_case.tolerance = 0;
  gather_case.half_ulps = 0;
  gather_case.dtypes = kEvery;
  cases.push_back(gather_case);

  OpCase scatter;
  scatter.name = cat("scatter_add_zeros", v.name);
  scatter.inputs = {{v.index}, {v.index, 0, size, v.kind}};
  scatter.call = [v](std::span<const Tensor> in) { return scatter_add_zeros(in[0], v.axis, in[1], v.x); };
  scatter.reference = [v](std::span<const Array> in) {
    Array out(v.x);
    each_index(v.index, [&](const Dims& i) {
      Dims place = i;
      place[v.axis] = static_cast<Dim>(in[1].at(i));
      out.at(place) += in[0].at(i);
    });
    return out;
  };
  scatter.half_ulps = 8;
  scatter.dtypes = kNumbers;
  cases.push_back(scatter);
}

}  // namespace

void add_index_cases(std::vector<OpCase>& cases) {
  const Variant variants[] = {
      {"", {5, 4}, {3, 4}, 0},
      {"/last", {5, 4}, {5, 6}, 1},
      {"/fewer_rows", {5, 4}, {3, 2}, 1},
      {"/middle", {2, 5, 3}, {2, 7, 3}, 1},
      {"/index32", {5, 4}, {5, 1}, 1, CaseInput::index32},
      {"/empty", {5, 4}, {0, 4}, 0},
      {"/long", {700, 31}, {700, 40}, 1},
  };
  for (const Variant& v : variants) add_gather(cases, v);

  OpCase hot;
  hot.name = "one_hot";
  hot.inputs = {{{3, 4}, 0, 6, CaseInput::index64}};
  hot.call = [](std::span<const Tensor> in) { return one_hot(in[0], 6); };
  hot.reference = [](std::span<const Array> in) {
    Dims shape = in[0].shape;
    shape.push_back(6);
    Array out(shape);
    for (int64_t i = 0; i < in[0].size(); ++i) out[i * 6 + static_cast<int64_t>(in[0][i])] = 1;
    return out;
  };
  hot.dtypes = {};
  hot.gradient = hot.second_order = false;
  cases.push_back(hot);
  hot.name = "one_hot/index32";
  hot.inputs[0].kind = CaseInput::index32;
  cases.push_back(hot);
  cases.push_back(with_shapes(hot, "one_hot/empty", {{0}}));
}

}  // namespace tandem::testing
