// Cases and refusals of indexing, sorting and searching.
#include "tandem/ops/index.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/core/tape.h"
#include "tandem/ops/random.h"
#include "tandem/ops/scatter_reduce.h"
#include "tandem/ops/shape.h"
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
  gather_case.name = str("gather", v.name);
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
  scatter.name = str("scatter_add_zeros", v.name);
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

using In = std::span<const Tensor>;
using Arrays = std::span<const Array>;

Dim whole(double value) { return static_cast<Dim>(value); }
Dim wrapped(double value, Dim size) { return whole(value) + (value < 0 ? size : 0); }

/// A case whose result holds elements of its inputs.
OpCase picking(const std::string& name, const std::vector<CaseInput>& inputs, CaseCall call,
               CaseReference reference) {
  OpCase op_case;
  op_case.name = name;
  op_case.inputs = inputs;
  op_case.call = std::move(call);
  op_case.reference = std::move(reference);
  op_case.tolerance = 0;
  op_case.half_ulps = 0;
  op_case.dtypes = kEvery;
  return op_case;
}
/// A case whose result holds sums of them.
OpCase summing(OpCase op_case) {
  op_case.tolerance = 2e-6;
  op_case.half_ulps = 8;
  op_case.dtypes = kNumbers;
  return op_case;
}
/// A case whose result holds integers.
OpCase counting(OpCase op_case) {
  op_case.gradient = op_case.second_order = false;
  return op_case;
}

CaseInput places(const Dims& shape, double low, double high) {
  return {shape, low, high, CaseInput::index64};
}

/// Of the elements that come together at one place, in order; the first is that of x where it counts.
double reduced_of(ScatterReduction reduction, const std::vector<double>& values) {
  double result = values[0];
  for (size_t i = 1; i < values.size(); ++i) switch (reduction) {
      case ScatterReduction::prod:
        result *= values[i];
        break;
      case ScatterReduction::amax:
        result = std::max(result, values[i]);
        break;
      case ScatterReduction::amin:
        result = std::min(result, values[i]);
        break;
      default:
        result += values[i];
    }
  return reduction == ScatterReduction::mean ? result / static_cast<double>(values.size()) : result;
}

void add_scatter_reduce(std::vector<OpCase>& cases, const std::string& name, ScatterReduction reduction,
                        bool include_self) {
  const auto add = [&](const std::string& suffix, const Dims& x, const Dims& index, int axis,
                       CaseInput::Kind kind, double low = 0.5) {
    OpCase op_case;
    op_case.name = str("scatter_reduce/", name, include_self ? "" : "_without_self", suffix);
    Dims larger = index;
    if (x.rank() > 1) larger[0] += 1;  // more than the index asks for
    op_case.inputs = {{x, low, 1.5}, {index, 0, static_cast<double>(x[axis]), kind}, {larger, low, 1.5}};
    op_case.call = [=](In in) { return scatter_reduce(in[0], axis, in[1], in[2], reduction, include_self); };
    op_case.reference = [=](Arrays in) {
      Array out(x);
      std::vector<std::vector<double>> found(static_cast<size_t>(out.size()));
      const auto number = [&](const Dims& place) {
        Dim at = 0;
        for (int d = 0; d < place.rank(); ++d) at = at * x[d] + place[d];
        return static_cast<size_t>(at);
      };
      if (include_self)
        for (Dim i = 0; i < out.size(); ++i) found[static_cast<size_t>(i)].push_back(in[0][i]);
      each_index(index, [&](const Dims& i) {
        Dims place = i;
        place[axis] = static_cast<Dim>(in[1].at(i));
        found[number(place)].push_back(in[2].at(i));
      });
      for (Dim i = 0; i < out.size(); ++i) {
        const auto& values = found[static_cast<size_t>(i)];
        out[i] = values.empty() ? in[0][i] : reduced_of(reduction, values);
      }
      return out;
    };
    op_case.tolerance = 4e-6;
    op_case.half_ulps = 8;
    op_case.dtypes = kHalves;
    if (reduction == ScatterReduction::amax || reduction == ScatterReduction::amin) op_case.dtypes = kNumbers;
    cases.push_back(op_case);
  };
  add("", {5, 4}, {3, 6}, 1, CaseInput::index64);
  add("/first", {3, 4, 2}, {8, 4, 2}, 0, CaseInput::index32);
  if (reduction == ScatterReduction::prod) add("/around_zero", {5, 4}, {3, 6}, 1, CaseInput::index64, -1.5);
  add("/empty", {3, 4}, {3, 0}, 1, CaseInput::index64);
  add("/nothing", {0, 4}, {0, 2}, 1, CaseInput::index64);
}

void add_rows(std::vector<OpCase>& cases) {
  const std::pair<const char*, ScatterReduction> reductions[] = {{"sum", ScatterReduction::sum},
                                                                 {"prod", ScatterReduction::prod},
                                                                 {"mean", ScatterReduction::mean},
                                                                 {"amax", ScatterReduction::amax},
                                                                 {"amin", ScatterReduction::amin}};
  for (const auto& [name, reduction] : reductions)
    for (const bool include_self : {true, false}) add_scatter_reduce(cases, name, reduction, include_self);

  OpCase rows = picking(
      "index_select", {{{2, 5, 3}}, places({7}, 0, 5)}, [](In in) { return index_select(in[0], 1, in[1]); },
      [](Arrays in) {
        Dims shape = in[0].shape;
        shape[1] = in[1].size();
        Array out(shape);
        each_index(shape, [&](const Dims& i) { out.at(i) = in[0].at({i[0], whole(in[1][i[1]]), i[2]}); });
        return out;
      });
  cases.push_back(rows);
  cases.push_back(with_shapes(rows, "index_select/empty", {{2, 5, 3}, {0}}));
  cases.push_back(with_shapes(rows, "index_select/last", {{4, 5, 1}, {9}}));
  cases.push_back(with_shapes(rows, "index_select/long", {{3, 5, 700}, {40}}));

  OpCase added = summing(picking(
      "index_add", {{{2, 5, 3}}, {{2, 7, 3}}, places({7}, 0, 5)},
      [](In in) { return index_add(in[0], 1, in[2], in[1], 2); },
      [](Arrays in) {
        Array out = in[0];
        each_index(in[1].shape, [&](const Dims& i) {
          out.at({i[0], whole(in[2][i[1]]), i[2]}) += 2 * in[1].at(i);
        });
        return out;
      }));
  cases.push_back(added);
  cases.push_back(with_shapes(added, "index_add/empty", {{2, 5, 3}, {2, 0, 3}, {0}}));
  cases.push_back(with_shapes(added, "index_add/long", {{2, 5, 1100}, {2, 30, 1100}, {30}}));

  // A copy of x is changed in place.
  OpCase into = counting(added);
  into.name = "index_add_into";
  into.inputs = {{{5, 3}}, {{7, 3}}, places({7}, 0, 5)};
  into.call = [](In in) {
    const NoGrad off;
    const Tensor copy = clone(in[0]);
    index_add_into(copy, in[2], in[1]);
    return copy;
  };
  into.reference = [](Arrays in) {
    Array out = in[0];
    each_index(in[1].shape, [&](const Dims& i) { out.at({whole(in[2][i[0]]), i[1]}) += in[1].at(i); });
    return out;
  };
  cases.push_back(into);
  cases.push_back(with_shapes(into, "index_add_into/empty", {{5, 3}, {0, 3}, {0}}));
  cases.push_back(with_shapes(into, "index_add_into/long", {{5, 1500}, {40, 1500}, {40}}));
  cases.back().half_ulps = 200;
  cases.back().tolerance = 2e-5;

  for (const bool padded : {false, true}) {
    OpCase table = picking(
        padded ? "embedding/padding" : "embedding", {{{6, 3}}, places({2, 4}, 0, 6)},
        [=](In in) {
          EmbeddingOptions options;
          if (padded) options.padding_idx = -4;
          return embedding(in[0], in[1], options);
        },
        [](Arrays in) {
          Dims shape = in[1].shape;
          shape.push_back(in[0].shape[1]);
          Array out(shape);
          each_index(shape, [&](const Dims& i) {
            out.at(i) = in[0].at({whole(in[1].at({i[0], i[1]})), i[2]});
          });
          return out;
        });
    // The gradient of the padding row is left out on purpose: differences would not agree.
    if (padded) table.gradient = table.second_order = false;
    cases.push_back(table);
  }

  OpCase take_case = picking(
      "take", {{{3, 4}}, places({2, 5}, -12, 12)}, [](In in) { return take(in[0], in[1]); },
      [](Arrays in) {
        Array out(in[1].shape);
        for (int64_t i = 0; i < out.size(); ++i) out[i] = in[0][wrapped(in[1][i], in[0].size())];
        return out;
      });
  cases.push_back(take_case);
}

void add_scatters(std::vector<OpCase>& cases) {
  cases.push_back(picking(
      "take_along", {{{3, 1, 4}}, places({1, 2, 6}, 0, 4)},
      [](In in) { return take_along(in[0], in[1], -1); },
      [](Arrays in) {
        Array out(Dims{3, 2, 6});
        each_index(out.shape, [&](const Dims& i) {
          out.at(i) = in[0].at({i[0], 0, whole(in[1].at({0, i[1], i[2]}))});
        });
        return out;
      }));

  const auto put = [](Arrays in, bool number) {
    Array out = in[0];
    const Array& index = in[1];
    each_index(index.shape, [&](const Dims& i) {
      Dims at = i;
      at[0] = whole(index.at(i));
      out.at(at) = number ? 3 : in[2].at(i);
    });
    return out;
  };
  OpCase values = picking(
      "scatter", {{{5, 4}}, places({1, 4}, 0, 5), {{2, 4}}},
      [](In in) { return scatter(in[0], 0, in[1], in[2]); }, [=](Arrays in) { return put(in, false); });
  cases.push_back(values);
  cases.push_back(with_shapes(values, "scatter/last_wins", {{5, 4}, {9, 3}, {9, 4}}));
  cases.push_back(with_shapes(values, "scatter/empty", {{5, 4}, {0, 4}, {0, 4}}));
  OpCase number = picking(
      "scatter/number", {{{5, 4}}, places({2, 3}, 0, 5)}, [](In in) { return scatter(in[0], 0, in[1], 3); },
      [=](Arrays in) { return put(in, true); });
  number.dtypes = kNumbers;
  cases.push_back(number);
  cases.push_back(summing(picking(
      "scatter_add", {{{5, 4}}, places({3, 6}, 0, 4), {{4, 7}}},
      [](In in) { return scatter_add(in[0], 1, in[1], in[2]); },
      [](Arrays in) {
        Array out = in[0];
        each_index(in[1].shape, [&](const Dims& i) { out.at({i[0], whole(in[1].at(i))}) += in[2].at(i); });
        return out;
      })));
  // A long axis that is not the last: the work is cut by columns.
  OpCase tall;
  tall = summing(picking(
      "scatter_add/tall", {{{3, 1300}}, places({40, 1300}, 0, 3), {{40, 1300}}},
      [](In in) { return scatter_add(in[0], 0, in[1], in[2]); },
      [](Arrays in) {
        Array out = in[0];
        each_index(in[1].shape, [&](const Dims& i) { out.at({whole(in[1].at(i)), i[1]}) += in[2].at(i); });
        return out;
      }));
  tall.tolerance = 1e-5;
  tall.half_ulps = 40;
  cases.push_back(tall);
}

/// index_copy and masked_scatter, and what is put in place: into a copy of x, and into a part of a larger tensor, of
/// which nothing else may change.
using Change = std::function<void(const Tensor& target, In in)>;

CaseCall changing_a_copy(Change change) {
  return [change](In in) {
    const NoGrad off;
    const Tensor copy = clone(in[0]);
    change(copy, in);
    return copy;
  };
}

/// x stands in columns 2, 3 … of the transposed larger tensor: no axis of the target lies together.
CaseCall changing_a_part(Change change) {
  return [change](In in) {
    const NoGrad off;
    const Tensor& x = in[0];
    const Tensor whole = zeros({x.size(1) + 3, x.size(0)}, x.dtype(), x.device());
    const Tensor part = transpose(slice(whole, 0, 2, 2 + x.size(1)));
    assign(part, x);
    change(part, in);
    return whole;
  };
}
CaseReference in_a_part(CaseReference reference) {
  return [reference](Arrays in) {
    const Array changed = reference(in);
    Array whole(Dims{changed.shape[1] + 3, changed.shape[0]});
    each_index(changed.shape, [&](const Dims& i) { whole.at({i[1] + 2, i[0]}) = changed.at(i); });
    return whole;
  };
}

void add_changes(std::vector<OpCase>& cases, const std::string& name, const OpCase& functional,
                 Change change) {
  OpCase copy = counting(functional);
  const size_t slash = functional.name.find('/');
  copy.name = name + (slash == std::string::npos ? "" : functional.name.substr(slash));
  copy.call = changing_a_copy(change);
  cases.push_back(copy);
  OpCase part = copy;
  part.name += copy.name == name ? "/part" : "_part";
  part.call = changing_a_part(change);
  part.reference = in_a_part(copy.reference);
  cases.push_back(part);
}

void add_puts_in_place(std::vector<OpCase>& cases) {
  // scatter along both axes.
  for (const int axis : {0, 1}) {
    const std::string suffix = axis ? "/last" : "";
    OpCase put =
        picking("scatter" + suffix, {{{5, 4}}, places({3, 2}, 0, 4), {{4, 2}}}, nullptr, [axis](Arrays in) {
          Array out = in[0];
          each_index(in[1].shape, [&](const Dims& i) {
            Dims at = i;
            at[axis] = whole(in[1].at(i));
            out.at(at) = in[2].at(i);
          });
          return out;
        });
    const Change change = [axis](const Tensor& target, In in) { scatter_into(target, axis, in[1], in[2]); };
    add_changes(cases, "scatter_into", put, change);
    add_changes(cases, "scatter_into",
                with_shapes(put, str("scatter/last_wins", axis), {{5, 4}, {5, 4}, {7, 9}}), change);
    add_changes(cases, "scatter_into",
                with_shapes(put, str("scatter/long", axis), {{40, 1100}, {40, 1100}, {40, 1100}}), change);
    add_changes(cases, "scatter_into", with_shapes(put, str("scatter/empty", axis), {{5, 4}, {0, 4}, {0, 4}}),
                change);
    put.name = str("scatter/index32_", axis);
    put.inputs[1].kind = CaseInput::index32;
    add_changes(cases, "scatter_into", put, change);
  }
  OpCase number = picking("scatter/number", {{{5, 4}}, places({2, 3}, 0, 5)}, nullptr, [](Arrays in) {
    Array out = in[0];
    each_index(in[1].shape, [&](const Dims& i) { out.at({whole(in[1].at(i)), i[1]}) = 3; });
    return out;
  });
  number.dtypes = kNumbers;
  add_changes(cases, "scatter_into", number,
              [](const Tensor& target, In in) { scatter_into(target, 0, in[1], 3); });

  for (const int axis : {0, 1}) {
    OpCase slices = picking(
        axis ? "index_copy/last" : "index_copy",
        {{{5, 4}}, {axis ? Dims{5, 2} : Dims{3, 4}}, places({axis ? 2 : 3}, 0, axis ? 4 : 5)},
        [axis](In in) { return index_copy(in[0], axis, in[2], in[1]); },
        [axis](Arrays in) {
          Array out = in[0];
          each_index(in[1].shape, [&](const Dims& i) {
            Dims at = i;
            at[axis] = whole(in[2][i[axis]]);
            out.at(at) = in[1].at(i);
          });
          return out;
        });
    const Change change = [axis](const Tensor& target, In in) {
      index_copy_into(target, axis, in[2], in[1]);
    };
    const Dim large = 17000;  // more than one piece
    for (const OpCase& variant :
         {slices,
          with_shapes(slices, str("index_copy/last_wins", axis),
                      {{5, 4}, axis ? Dims{5, 40} : Dims{40, 4}, {40}}),
          with_shapes(slices, str("index_copy/empty", axis), {{5, 4}, axis ? Dims{5, 0} : Dims{0, 4}, {0}}),
          with_shapes(slices, str("index_copy/of_nothing", axis),
                      {axis ? Dims{0, 4} : Dims{5, 0}, axis ? Dims{0, 3} : Dims{3, 0}, {3}})}) {
      cases.push_back(variant);
      add_changes(cases, "index_copy_into", variant, change);
    }
    OpCase many =
        with_shapes(slices, str("index_copy/long", axis),
                    {axis ? Dims{large, 4} : Dims{5, large}, axis ? Dims{large, 3} : Dims{3, large}, {3}});
    many.dtypes = {};
    add_changes(cases, "index_copy_into", many, change);
  }

  OpCase masked = picking(
      "masked_scatter", {{{3, 4}}, {{4}, 0, 2, CaseInput::boolean}, {{3, 5}}},
      [](In in) { return masked_scatter(in[0], in[1], in[2]); },
      [](Arrays in) {
        Array out = in[0];
        int64_t next = 0;
        each_index(out.shape, [&](const Dims& i) {
          if (stretched_at(in[1], i) != 0) out.at(i) = in[2][next++];
        });
        return out;
      });
  const Change put = [](const Tensor& target, In in) { masked_scatter_into(target, in[1], in[2]); };
  for (const OpCase& variant : {masked, with_shapes(masked, "masked_scatter/rows", {{6, 5}, {6, 1}, {30}}),
                                with_shapes(masked, "masked_scatter/long", {{70, 300}, {70, 300}, {21000}}),
                                with_shapes(masked, "masked_scatter/empty", {{0, 4}, {4}, {0}})}) {
    cases.push_back(variant);
    add_changes(cases, "masked_scatter_into", variant, put);
  }
  OpCase fill =
      picking("masked_fill", {{{3, 4}}, {{3, 1}, 0, 2, CaseInput::boolean}}, nullptr, [](Arrays in) {
        Array out = in[0];
        each_index(out.shape, [&](const Dims& i) {
          if (in[1][i[0]] != 0) out.at(i) = 2;
        });
        return out;
      });
  fill.dtypes = kNumbers;
  add_changes(cases, "masked_fill_into", fill,
              [](const Tensor& target, In in) { masked_fill_into(target, in[1], 2); });
}

void add_subscripts(std::vector<OpCase>& cases) {
  OpCase two = picking(
      "index", {{{2, 4, 5, 3}}, places({6, 1}, -4, 4), places({7}, -5, 5)},
      [](In in) {
        return index(in[0], {Slice{}, in[1], in[2]});
      },
      [](Arrays in) {
        const Dim rows = in[1].shape[0], columns = in[2].shape[0];
        Array out(Dims{2, rows, columns, 3});
        each_index(out.shape, [&](const Dims& i) {
          out.at(i) = in[0].at({i[0], wrapped(in[1][i[1]], 4), wrapped(in[2][i[2]], 5), i[3]});
        });
        return out;
      });
  cases.push_back(two);
  cases.push_back(with_shapes(two, "index/empty", {{2, 4, 5, 3}, {0, 1}, {7}}));
  cases.push_back(picking(
      "index/apart", {{{4, 2, 5}}, places({6}, -4, 4), places({6}, -5, 5)},
      [](In in) {
        return index(in[0], {in[1], ellipsis, in[2]});
      },
      [](Arrays in) {
        Array out(Dims{6, 2});
        each_index(out.shape, [&](const Dims& i) {
          out.at(i) = in[0].at({wrapped(in[1][i[0]], 4), i[1], wrapped(in[2][i[0]], 5)});
        });
        return out;
      }));
  cases.push_back(picking(
      "index/mixed", {{{4, 6, 5}}, places({2, 2}, -4, 4)},
      [](In in) {
        return index(in[0], {in[1], Slice{-5, {}, 2}, new_axis, -2});
      },
      [](Arrays in) {
        Array out(Dims{2, 2, 3, 1});
        each_index(out.shape, [&](const Dims& i) {
          out.at(i) = in[0].at({wrapped(in[1].at({i[0], i[1]}), 4), 1 + 2 * i[2], 3});
        });
        return out;
      }));
  cases.push_back(moving(
      "index/row", {4, 6}, {6}, [](In in) { return in[0][-2]; },
      [](const Dims& i) {
        return Dims{2, i[0]};
      }));
  cases.push_back(moving(
      "index/backwards", {4, 7}, {4, 3},
      [](In in) {
        return index(in[0], {Slice{{}, {}, -1}, Slice{5, 0, -2}});
      },
      [](const Dims& i) {
        return Dims{3 - i[0], 5 - 2 * i[1]};
      }));
  OpCase masked = picking(
      "index/mask", {{{3, 4, 2}}, {{3, 4}, 0, 2, CaseInput::boolean}},
      [](In in) {
        return index(in[0], {in[1], 1});
      },
      [](Arrays in) {
        std::vector<double> found;
        for (int64_t i = 0; i < in[1].size(); ++i)
          if (in[1][i] != 0) found.push_back(in[0][2 * i + 1]);
        const Dim count = static_cast<Dim>(found.size());
        return Array({count}, found);
      });
  masked.data_dependent = true;
  cases.push_back(masked);

  for (const bool accumulate : {false, true}) {
    OpCase put = picking(
        accumulate ? "index_put/accumulate" : "index_put", {{{4, 5}}, places({1}, -4, 4), {{3}}},
        [=](In in) {
          return index_put(in[0], {in[1], Slice{1, {}, 2}}, slice(in[2], 0, 0, 2), accumulate);
        },
        [=](Arrays in) {
          Array out = in[0];
          for (int64_t k = 0; k < in[1].size(); ++k)
            for (Dim j = 0; j < 2; ++j) {
              double& at = out.at({wrapped(in[1][k], 4), 1 + 2 * j});
              at = in[2][j] + (accumulate ? at : 0);
            }
          return out;
        });
    if (accumulate) put = summing(put);
    cases.push_back(put);
    cases.push_back(with_shapes(put, put.name + "_repeated", {{4, 5}, {9}, {3}}));
  }
}

void add_masks(std::vector<OpCase>& cases) {
  OpCase fill = picking(
      "masked_fill", {{{3, 4}}, {{4}, 0, 2, CaseInput::boolean}},
      [](In in) { return masked_fill(in[0], in[1], 2); },
      [](Arrays in) {
        Array out = in[0];
        each_index(out.shape, [&](const Dims& i) {
          if (in[1][i[1]] != 0) out.at(i) = 2;
        });
        return out;
      });
  fill.dtypes = kNumbers;
  cases.push_back(fill);
  OpCase select_case = picking(
      "masked_select", {{{3, 1, 4}}, {{5, 1}, 0, 2, CaseInput::boolean}},
      [](In in) { return masked_select(in[0], in[1]); },
      [](Arrays in) {
        std::vector<double> found;
        each_index(stretched(in[0].shape, in[1].shape), [&](const Dims& i) {
          if (stretched_at(in[1], i) != 0) found.push_back(stretched_at(in[0], i));
        });
        const Dim count = static_cast<Dim>(found.size());
        return Array({count}, found);
      });
  select_case.data_dependent = true;
  cases.push_back(select_case);
  cases.push_back(with_shapes(select_case, "masked_select/empty", {{0, 1, 4}, {5, 1}}));

  const auto found = [](const Array& x) {
    std::vector<double> rows;
    Dim count = 0;
    each_index(x.shape, [&](const Dims& i) {
      if (x.at(i) == 0) return;
      ++count;
      for (const Dim at : i) rows.push_back(static_cast<double>(at));
    });
    return Array({count, x.shape.rank()}, rows);
  };
  const auto product = [](Arrays in) {
    Array x = in[0];
    for (int64_t i = 0; i < x.size(); ++i) x[i] *= in[1][i];
    return x;
  };
  // Products with 0 are zeros of either sign.
  OpCase nonzero_case = counting(picking(
      "nonzero", {{{5, 7}}, {{5, 7}, 0, 2, CaseInput::boolean}},
      [](In in) { return nonzero(mul(in[0], in[1])); }, [=](Arrays in) { return found(product(in)); }));
  nonzero_case.dtypes = kNumbers;
  nonzero_case.data_dependent = true;
  cases.push_back(nonzero_case);
  cases.push_back(with_shapes(nonzero_case, "nonzero/empty", {{5, 0}, {5, 0}}));
  cases.push_back(with_shapes(nonzero_case, "nonzero/scalar", {{}, {}}));
  cases.push_back(with_shapes(nonzero_case, "nonzero/long", {{70, 600}, {70, 600}}));
  nonzero_case.name = "where/places";
  nonzero_case.call = [](In in) { return where(mul(in[0], in[1]))[1]; };
  nonzero_case.reference = [=](Arrays in) {
    const Array all = found(product(in));
    Array out(Dims{all.shape[0]});
    for (int64_t i = 0; i < out.size(); ++i) out[i] = all[2 * i + 1];
    return out;
  };
  cases.push_back(nonzero_case);
}

/// The order of the lines of x along an axis: places, or the values there; the first `count` of it.
Array ordered(const Array& x, int axis, bool descending, Dim count, bool values) {
  Dims shape = x.shape;
  shape[axis] = count;
  Array out(shape);
  Dims lines = shape;
  lines[axis] = count > 0;
  each_index(lines, [&](const Dims& line) {
    std::vector<Dim> order(static_cast<size_t>(x.shape[axis]));
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](Dim i) {
      Dims place = line;
      place[axis] = i;
      return x.at(place);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](Dim a, Dim b) { return descending ? at(a) > at(b) : at(a) < at(b); });
    for (Dim i = 0; i < count; ++i) {
      Dims place = line;
      place[axis] = i;
      const Dim from = order[static_cast<size_t>(i)];
      out.at(place) = values ? at(from) : static_cast<double>(from);
    }
  });
  return out;
}

void add_orders(std::vector<OpCase>& cases) {
  for (const bool descending : {false, true}) {
    const char* suffix = descending ? "/descending" : "";
    const int axis = descending ? 0 : 1;
    OpCase values = picking(
        str("sort", suffix), {{{6, 9}}}, [=](In in) { return sort(in[0], axis, descending).values; },
        [=](Arrays in) { return ordered(in[0], axis, descending, in[0].shape[axis], true); });
    cases.push_back(values);
    // Too close to each other for differences.
    cases.push_back(counting(with_shapes(values, str("sort/long", descending), {{1500, 3}})));
    cases.push_back(counting(with_shapes(values, str("sort/longer", descending), {{2, 3000}})));
    cases.push_back(with_shapes(values, str("sort/empty", descending), {{0, 4}}));
    OpCase indices = counting(values);
    indices.name = str("argsort", suffix);
    indices.call = [=](In in) { return argsort(in[0], axis, descending); };
    indices.reference = [=](Arrays in) { return ordered(in[0], axis, descending, in[0].shape[axis], false); };
    cases.push_back(indices);
    OpCase some = values;
    some.name = descending ? "topk" : "topk/smallest";
    some.call = [=](In in) { return topk(in[0], 2, {.axis = axis, .largest = descending}).values; };
    some.reference = [=](Arrays in) { return ordered(in[0], axis, descending, 2, true); };
    cases.push_back(some);
    cases.push_back(
        with_shapes(some, str(some.name, "_of_many"), {descending ? Dims{900, 2} : Dims{2, 900}}));
    OpCase where_some = counting(some);
    where_some.name = str(some.name, "_indices");
    where_some.call = [=](In in) { return topk(in[0], 2, {.axis = axis, .largest = descending}).indices; };
    where_some.reference = [=](Arrays in) { return ordered(in[0], axis, descending, 2, false); };
    cases.push_back(where_some);
  }
  cases.push_back(picking(
      "kthvalue", {{{4, 7}}}, [](In in) { return kthvalue(in[0], 3).values; },
      [](Arrays in) {
        const Array first = ordered(in[0], 1, false, 3, true);
        Array out(Dims{in[0].shape[0]});
        for (Dim i = 0; i < out.size(); ++i) out[i] = first.at({i, 2});
        return out;
      }));

  const auto middle_of = [](Arrays in) {
    const Dim rows = in[0].shape[0], middle = (in[0].shape[1] - 1) / 2;
    const Array order = ordered(in[0], 1, false, in[0].shape[1], true);
    Array out(Dims{rows});
    for (Dim i = 0; i < rows; ++i) out[i] = order.at({i, middle});
    return out;
  };
  cases.push_back(picking(
      "median", {{{4, 7}}}, [](In in) { return median(in[0], 1).values; }, middle_of));
  cases.push_back(picking(
      "median/even", {{{5, 6}}}, [](In in) { return median(in[0], -1).values; }, middle_of));
  cases.push_back(picking(
      "median/empty", {{{0, 6}}}, [](In in) { return median(in[0], -1).values; }, middle_of));
  cases.push_back(picking(
      "median/all", {{{5, 6}}}, [](In in) { return median(in[0]); },
      [](Arrays in) {
        std::vector<double> values = in[0].values;
        std::sort(values.begin(), values.end());
        return Array({}, {values[(values.size() - 1) / 2]});
      }));
  cases.push_back(counting(picking(
      "median_indices", {{{6, 4}}}, [](In in) { return median(in[0], 0, true).indices; },
      [](Arrays in) {
        const Array order = ordered(in[0], 0, false, in[0].shape[0], false);
        Array out(Dims{1, in[0].shape[1]});
        for (Dim i = 0; i < out.size(); ++i) out[i] = order.at({2, i});
        return out;
      })));
  const auto quantile_of = [](std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    const double rank = q * static_cast<double>(values.size() - 1);
    const size_t below = static_cast<size_t>(rank), above = std::min(below + 1, values.size() - 1);
    return values[below] + (rank - static_cast<double>(below)) * (values[above] - values[below]);
  };
  OpCase parts = picking(
      "quantile", {{{3, 7, 2}}},
      [](In in) {
        return quantile(in[0], {0, 0.3, 0.5, 1}, 1);
      },
      [=](Arrays in) {
        const double q[] = {0, 0.3, 0.5, 1};
        const Dims& shape = in[0].shape;
        Array out(Dims{4, shape[0], shape[2]});
        each_index(out.shape, [&](const Dims& i) {
          std::vector<double> line;
          for (Dim k = 0; k < shape[1]; ++k) line.push_back(in[0].at({i[1], k, i[2]}));
          out.at(i) = quantile_of(line, q[i[0]]);
        });
        return out;
      });
  parts.tolerance = 1e-6;
  parts.half_ulps = 4;
  parts.dtypes = kHalves;
  cases.push_back(parts);
  cases.push_back(with_shapes(parts, "quantile/empty", {{0, 7, 2}}));
  parts.name = "quantile/all";
  parts.inputs = {{{3, 5}}};
  parts.call = [](In in) { return quantile(in[0], 0.35, {}, true); };
  parts.reference = [=](Arrays in) { return Array({1, 1}, {quantile_of(in[0].values, 0.35)}); };
  cases.push_back(parts);

  const auto search = [](const Array& sequence, Dim row, double value, bool right) {
    Dim at = 0;
    const Dim n = sequence.shape.back();
    while (at < n && (sequence[row * n + at] < value || (right && sequence[row * n + at] == value))) ++at;
    return static_cast<double>(at);
  };
  for (const bool right : {false, true}) {
    OpCase rows = counting(picking(
        right ? "searchsorted/right" : "searchsorted", {{{3, 8}}, {{3, 5}}},
        [=](In in) { return searchsorted(sort(in[0]).values, in[1], right); },
        [=](Arrays in) {
          const Array sequence = ordered(in[0], 1, false, in[0].shape[1], true);
          Array out(in[1].shape);
          for (int64_t i = 0; i < out.size(); ++i)
            out[i] = search(sequence, i / out.shape[1], in[1][i], right);
          return out;
        }));
    cases.push_back(rows);
    cases.push_back(with_shapes(rows, str(rows.name, "_empty"), {{3, 0}, {3, 5}}));
    OpCase one = counting(rows);
    one.name = right ? "bucketize/right" : "bucketize";
    one.inputs = {{{2, 6}}, {{9}}};
    one.call = [=](In in) { return bucketize(in[0], sort(in[1]).values, right); };
    one.reference = [=](Arrays in) {
      const Array sequence = ordered(in[1], 0, false, in[1].size(), true);
      Array out(in[0].shape);
      for (int64_t i = 0; i < out.size(); ++i) out[i] = search(sequence, 0, in[0][i], right);
      return out;
    };
    cases.push_back(one);
  }
}

void add_sets(std::vector<OpCase>& cases) {
  enum Part { values, inverse, counts };
  for (const Part part : {values, inverse, counts}) {
    OpCase set = counting(picking(
        part == values    ? "unique"
        : part == inverse ? "unique/inverse"
                          : "unique/counts",
        {{{6, 5}, 0, 7}},
        [=](In in) {
          const Unique found = unique(floor(in[0]), {.inverse = part == inverse, .counts = part == counts});
          return part == values ? found.values : part == inverse ? found.inverse : found.counts;
        },
        [=](Arrays in) {
          std::vector<double> all = in[0].values;
          for (double& v : all) v = std::floor(v);
          std::vector<double> different = all;
          std::sort(different.begin(), different.end());
          different.erase(std::unique(different.begin(), different.end()), different.end());
          const Dim count = static_cast<Dim>(different.size());
          if (part == values) return Array({count}, different);
          if (part == inverse) {
            Array out(in[0].shape);
            for (size_t i = 0; i < all.size(); ++i)
              out.values[i] = static_cast<double>(std::find(different.begin(), different.end(), all[i]) -
                                                  different.begin());
            return out;
          }
          Array out(Dims{count});
          for (Dim i = 0; i < count; ++i)
            out[i] =
                static_cast<double>(std::count(all.begin(), all.end(), different[static_cast<size_t>(i)]));
          return out;
        }));
    set.dtypes = {DType::bf16, DType::f16};
    set.data_dependent = true;
    cases.push_back(set);
    cases.push_back(with_shapes(set, str(set.name, "_empty"), {{0, 5}}));
  }

  const auto bins = [](Dim length, Arrays in) {
    Array out(Dims{length});
    for (int64_t i = 0; i < in[0].size(); ++i) out[whole(in[0][i])] += in.size() > 1 ? in[1][i] : 1;
    return out;
  };
  OpCase plain = counting(picking(
      "bincount", {places({20}, 0, 6)}, [](In in) { return bincount(in[0], {.min_length = 9}); },
      [=](Arrays in) { return bins(9, in); }));
  plain.dtypes = {};
  plain.data_dependent = true;
  cases.push_back(plain);
  cases.push_back(with_shapes(plain, "bincount/empty", {{0}}));
  OpCase open = plain;
  open.name = "bincount/open";
  open.call = [](In in) { return bincount(in[0]); };
  open.reference = [=](Arrays in) {
    return bins(1 + whole(*std::max_element(in[0].values.begin(), in[0].values.end())), in);
  };
  cases.push_back(open);
  OpCase weighted = summing(picking(
      "bincount/weights", {places({20}, 0, 6), {{20}}},
      [](In in) { return bincount(in[0], {.weights = in[1], .length = 8}); },
      [=](Arrays in) { return bins(8, in); }));
  cases.push_back(weighted);
}

Tensor of(const Dims& shape, DType dtype = DType::f32) { return zeros(shape, dtype); }
Tensor list(const std::vector<int64_t>& values) {
  return from_vector(values, {static_cast<Dim>(values.size())});
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

  add_rows(cases);
  add_scatters(cases);
  add_puts_in_place(cases);
  add_subscripts(cases);
  add_masks(cases);
  add_orders(cases);
  add_sets(cases);
}

void add_index_errors(std::vector<ErrorCase>& errors) {
  const auto refused = [&](const std::string& name, std::function<void()> call,
                           std::vector<std::string> texts) {
    texts.insert(texts.begin(), name.substr(0, name.find('/')) + ": ");
    texts.push_back("; got ");
    errors.push_back({name, std::move(call), std::move(texts)});
  };
  const Tensor bad = list({0, 7, 1});
  refused("index_select/range", [=] { index_select(of({2, 3}), 1, bad); }, {"7", "element 1"});
  refused("index_select/rank", [] { index_select(of({2, 3}), 1, of({2, 2}, DType::i64)); }, {"(2, 2)"});
  refused("index_select/dtype", [] { index_select(of({2, 3}), 1, of({2})); }, {"f32", "i64"});
  const auto reduce = [](const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source) {
    return scatter_reduce(x, axis, index, source, ScatterReduction::prod);
  };
  refused("scatter_reduce/range", [=] { reduce(of({3}), 0, bad, of({3})); }, {"7", "element 1"});
  refused("scatter_reduce/range_of_sum",
          [=] { scatter_reduce(of({3}), 0, bad, of({3}), ScatterReduction::sum); }, {"7", "element 1"});
  refused("scatter_reduce/axis", [=] { reduce(of({3}), 1, bad, of({3})); }, {"1"});
  refused("scatter_reduce/index", [=] { reduce(of({3}), 0, of({3}), of({3})); }, {"f32", "cast()"});
  refused("scatter_reduce/dtype", [=] { reduce(of({3}), 0, bad, of({3}, DType::f64)); }, {"f32", "f64"});
  refused("scatter_reduce/bool", [=] { reduce(of({3}, DType::boolean), 0, bad, of({3}, DType::boolean)); },
          {"bool"});
  refused("scatter_reduce/source", [=] { reduce(of({3}), 0, bad, of({2})); }, {"(3,)", "(2,)"});
  refused("scatter_reduce/rank", [=] { reduce(of({3, 2}), 0, bad, of({3})); }, {"(3, 2)", "(3,)"});
  refused("scatter_reduce/reduction",
          [=] { scatter_reduce(of({3}), 0, bad, of({3}), static_cast<ScatterReduction>(9)); }, {"9"});
  refused("scatter_reduce/undefined", [=] { reduce(Tensor(), 0, bad, of({3})); }, {"undefined"});
  refused("index_add/range", [=] { index_add(of({2, 3}), 1, bad, of({2, 3})); }, {"7", "element 1"});
  refused("index_add/shape", [=] { index_add(of({2, 3}), 1, bad, of({2, 4})); }, {"(2, 3)", "(2, 4)"});
  refused("index_add/dtype", [=] { index_add(of({2, 3}), 1, bad, of({2, 3}, DType::f64)); }, {"f32", "f64"});
  refused("index_add/alpha", [] { index_add(of({2}, DType::i64), 0, list({0}), of({1}, DType::i64), 0.5); },
          {"0.5"});
  refused("index_add_into/range", [=] { index_add_into(of({2, 3}), bad, of({3, 3})); }, {"7", "element 1"});
  refused("index_add_into/shape", [=] { index_add_into(of({2, 3}), bad, of({2, 3})); }, {"(2, 3)", "(3,)"});
  refused("index_add_into/strided",
          [=] {
            index_add_into(transpose(of({3, 2})), bad, of({3, 3}));
          },
          {"row-major"});
  const Tensor two = list({0, 1});
  refused("scatter_into/range", [=] { scatter_into(of({2}), 0, bad, of({3})); }, {"7", "element 1", "0..1"});
  refused("scatter_into/shape",
          [] {
            scatter_into(of({2, 3}), 1, of({3, 2}, DType::i64), of({3, 2}));
          },
          {"(3, 2)", "(2, 3)"});
  refused("scatter_into/source", [=] { scatter_into(of({2}), 0, two, of({1})); }, {"(1,)", "(2,)"});
  refused("scatter_into/dtype", [=] { scatter_into(of({2}), 0, two, of({2}, DType::i32)); }, {"f32", "i32"});
  refused("scatter_into/index", [=] { scatter_into(of({2}), 0, of({2}), of({2})); }, {"f32", "i64"});
  refused("scatter_into/expanded", [=] { scatter_into(expand(of({1}), {2}), 0, two, 1); },
          {"must not share memory"});
  refused("scatter_into/gradient", [=] { scatter_into(of({2}).set_requires_grad(), 0, two, 1); }, {"NoGrad"});
  refused("index_copy/range", [=] { index_copy(of({2, 3}), 0, bad, of({3, 3})); }, {"7", "element 1"});
  refused("index_copy/shape", [=] { index_copy(of({2, 3}), 0, two, of({2, 2})); }, {"(2, 2)", "(2, 3)"});
  refused("index_copy/rank",
          [] {
            index_copy(of({2, 3}), 0, of({1, 1}, DType::i64), of({1, 3}));
          },
          {"(1, 1)"});
  refused("index_copy/dtype", [=] { index_copy(of({2}), 0, two, of({2}, DType::i32)); }, {"f32", "i32"});
  refused("index_copy_into/range",
          [=] {
            index_copy_into(of({2, 3}), 0, bad, of({3, 3}));
          },
          {"7", "element 1"});
  refused("index_copy_into/shape",
          [=] {
            index_copy_into(of({2, 3}), 1, two, of({2, 3}));
          },
          {"(2, 3)", "(2, 2)"});
  refused("index_copy_into/dtype", [=] { index_copy_into(of({2}), 0, two, of({2}, DType::i32)); },
          {"f32", "i32"});
  refused("index_copy_into/expanded", [=] { index_copy_into(expand(of({1}), {2}), 0, two, of({2})); },
          {"must not share memory"});
  refused("index_copy_into/gradient", [=] { index_copy_into(of({2}), 0, two, of({2}).set_requires_grad()); },
          {"NoGrad"});
  const Tensor all = ones({3}, DType::boolean);
  refused("masked_scatter/few", [=] { masked_scatter(of({3}), all, of({2})); }, {"2 elements", "number 3"});
  refused("masked_scatter/mask", [=] { masked_scatter(of({3}), of({3}), of({3})); }, {"f32", "bool"});
  refused("masked_scatter/shape", [=] { masked_scatter(of({1}), all, of({3})); }, {"(3,)", "(1,)"});
  refused("masked_scatter/dtype", [=] { masked_scatter(of({3}), all, of({3}, DType::i32)); }, {"f32", "i32"});
  refused("masked_scatter_into/few", [=] { masked_scatter_into(of({3}), all, of({2})); },
          {"2 elements", "number 3"});
  refused("masked_scatter_into/expanded", [=] { masked_scatter_into(expand(of({1}), {3}), all, of({3})); },
          {"must not share memory"});
  refused("masked_scatter_into/gradient",
          [=] { masked_scatter_into(of({3}).set_requires_grad(), all, of({3})); }, {"NoGrad"});
  refused("masked_fill_into/shape", [=] { masked_fill_into(of({1}), all, 1); }, {"(3,)", "(1,)"});
  refused("masked_fill_into/expanded", [=] { masked_fill_into(expand(of({1}), {3}), all, 1); },
          {"must not share memory"});
  refused("embedding/range", [=] { embedding(of({4, 3}), bad); }, {"7", "element 1"});
  refused("embedding/rank", [=] { embedding(of({4}), bad); }, {"(4,)"});
  refused("embedding/padding",
          [=] {
            embedding(of({4, 3}), list({0}), {.padding_idx = 4});
          },
          {"4", "(4, 3)"});
  refused("take/range", [=] { take(of({2, 3}), list({0, -7})); }, {"-7", "element 1"});
  refused("take/empty", [=] { take(of({0}), list({0})); }, {"0"});
  refused("take_along/shapes",
          [] {
            take_along(of({2, 3}), of({3, 1}, DType::i64), 1);
          },
          {"(2, 1)", "(3, 1)"});
  refused("take_along/range", [] { take_along(of({2, 3}), full({1, 1}, 3, DType::i64), 1); }, {"3"});
  refused("scatter/place", [] { scatter(of({2, 3}), 1, full({1, 1}, 3, DType::i64), of({1, 1})); }, {"3"});
  refused("scatter/source",
          [] {
            scatter(of({2, 3}), 1, of({2, 2}, DType::i64), of({2, 1}));
          },
          {"(2, 1)", "(2, 2)"});
  refused("scatter/shape",
          [] {
            scatter(of({2, 3}), 1, of({3, 2}, DType::i64), of({3, 2}));
          },
          {"(3, 2)", "(2, 3)"});
  refused("scatter/dtype", [] { scatter(of({2}), 0, of({1}, DType::i64), of({1}, DType::i32)); },
          {"f32", "i32"});
  refused("scatter_add/place",
          [] {
            scatter_add(of({2, 3}), 1, full({1, 1}, -1, DType::i64), of({1, 1}));
          },
          {"-1"});
  refused("index/range", [=] { index(of({4, 3}), {Slice{}, bad}); }, {"7", "element 1", "-3..2"});
  refused("index/number", [] { index(of({4, 3}), {1, 3}); }, {"3", "(3,)"});
  refused("index/many", [] { index(of({4}), {1, 1}); }, {"2", "(4,)"});
  refused("index/ellipses", [] { index(of({4}), {ellipsis, ellipsis}); }, {"2"});
  refused("index/step", [] { index(of({4}), {Slice{{}, {}, 0}}); }, {"step", "0", "backwards"});
  refused("index/mask", [] { index(of({4}), {of({3}, DType::boolean)}); }, {"(3,)", "(4,)"});
  refused("index/shapes", [] { index(of({4, 5}), {list({0, 1}), list({0, 1, 2})}); }, {"(2,)", "(3,)"});
  refused("index/dtype", [] { index(of({4}), {of({1})}); }, {"f32"});
  refused("index_put/range", [=] { index_put(of({4}), {bad}, 1); }, {"7", "element 1"});
  refused("index_put/values", [] { index_put(of({4}), {list({0, 1})}, of({3})); }, {"(3,)", "(2,)"});
  refused("masked_fill/mask", [] { masked_fill(of({2}), of({2}), 1); }, {"f32"});
  refused("masked_fill/shape",
          [] {
            masked_fill(of({2}), of({3, 2}, DType::boolean), 1);
          },
          {"(3, 2)", "(2,)"});
  refused("masked_select/mask", [] { masked_select(of({2}), of({2})); }, {"f32"});
  refused("sort/axis", [] { sort(of({2}), 1); }, {"1"});
  refused("sort/scalar", [] { sort(of({})); }, {"-1", "0"});
  refused("topk/k", [] { topk(of({2, 3}), 4); }, {"4", "(2, 3)"});
  refused("kthvalue/k", [] { kthvalue(of({2, 3}), 0); }, {"0", "(2, 3)"});
  refused("median/axis", [] { median(of({2, 3}), 2); }, {"2"});
  refused("median/empty", [] { median(of({2, 0}), 1); }, {"(2, 0)"});
  refused("median/nothing", [] { median(of({0})); }, {"(0,)"});
  refused("median/undefined", [] { median(Tensor()); }, {"undefined"});
  refused("quantile/q", [] { quantile(of({3}), 1.5); }, {"0..1", "1.5"});
  refused("quantile/nan", [] { quantile(of({3}), {0.5, NAN}); }, {"0..1", "nan"});
  refused("quantile/none", [] { quantile(of({3}), std::vector<double>{}); }, {"none"});
  refused("quantile/dtype", [] { quantile(of({3}, DType::i64), 0.5); }, {"i64"});
  refused("quantile/axis", [] { quantile(of({3}), 0.5, 1); }, {"1"});
  refused("quantile/empty", [] { quantile(of({2, 0}), 0.5, 1); }, {"(2, 0)"});
  refused("bincount/dtype", [] { bincount(of({2})); }, {"f32"});
  refused("bincount/negative", [] { bincount(list({0, -3})); }, {"-3"});
  refused("bincount/length", [] { bincount(list({0, 3}), {.length = 3}); }, {"3"});
  refused("bincount/weights", [] { bincount(list({0, 3}), {.weights = of({3})}); }, {"(2,)", "(3,)"});
  refused("searchsorted/shapes", [] { searchsorted(of({2, 3}), of({3, 3})); }, {"(2, 3)", "(3, 3)"});
  refused("searchsorted/dtype", [] { searchsorted(of({2}), of({3}, DType::f64)); }, {"f32", "f64"});
  refused("bucketize/rank", [] { bucketize(of({2}), of({2, 2})); }, {"(2, 2)"});
}

}  // namespace tandem::testing
