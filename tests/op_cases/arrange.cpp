// Cases and refusals of the shape operations that are made of others, and of tensors made by a rule.
#include "tandem/ops/arrange.h"

#include <cmath>

#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

using In = std::span<const Tensor>;

/// One of the parts. Hostile calls of a case may get fewer.
Tensor part(const std::vector<Tensor>& parts, size_t i) {
  TD_CHECK(i < parts.size(), "part: there must be more than ", i, "; got ", parts.size(), ".");
  return parts[i];
}

void add_cuts(std::vector<OpCase>& cases) {
  OpCase join;
  join.name = "stack";
  join.inputs = {{{2, 3}}, {{2, 3}}};
  join.call = [](In in) { return stack({in[0], in[1]}, 1); };
  join.reference = [](std::span<const Array> in) {
    const Dims& shape = in[0].shape;
    Array out(Dims{shape[0], 2, shape[1]});
    each_index(out.shape, [&](const Dims& i) { out.at(i) = in[static_cast<size_t>(i[1])].at({i[0], i[2]}); });
    return out;
  };
  join.tolerance = 0;
  join.half_ulps = 0;
  join.dtypes = kEvery;
  cases.push_back(join);
  cases.push_back(with_shapes(join, "stack/empty", {{0, 3}, {0, 3}}));
  cases.push_back(reshaping("stack/one", {2, 3}, {2, 3, 1}, [](In in) { return stack({in[0]}, -1); }));

  const auto column = [](Dim from) { return [from](const Dims& i) { return Dims{i[0], from + i[1]}; }; };
  cases.push_back(moving(
      "split", {3, 5}, {3, 1}, [](In in) { return part(split(in[0], 2, 1), 2); }, column(4)));
  cases.push_back(moving(
      "split/sizes", {3, 6}, {3, 3},
      [](In in) {
        return part(split(in[0], {1, 3, 2}, 1), 1);
      },
      column(1)));
  cases.push_back(moving(
      "chunk", {3, 7}, {3, 3}, [](In in) { return part(chunk(in[0], 3, -1), 1); }, column(3)));
  cases.push_back(moving(
      "unbind", {3, 4}, {3}, [](In in) { return part(unbind(in[0], 1), 2); },
      [](const Dims& i) {
        return Dims{i[0], 2};
      }));
  cases.push_back(moving(
      "narrow", {3, 6}, {3, 2}, [](In in) { return narrow(in[0], 1, -3, 2); }, column(3)));
}

void add_axes(std::vector<OpCase>& cases) {
  cases.push_back(reshaping("squeeze/all", {1, 3, 1, 4}, {3, 4}, [](In in) { return squeeze(in[0]); }));
  cases.push_back(moving(
      "movedim", {2, 3, 4}, {3, 4, 2}, [](In in) { return movedim(in[0], 0, -1); },
      [](const Dims& i) {
        return Dims{i[2], i[0], i[1]};
      }));
  cases.push_back(moving(
      "movedim/two", {2, 3, 4}, {4, 3, 2},
      [](In in) {
        return movedim(in[0], {2, 0}, {0, 2});
      },
      [](const Dims& i) {
        return Dims{i[2], i[1], i[0]};
      }));
  cases.push_back(moving(
      "swapaxes", {2, 3, 4}, {4, 3, 2}, [](In in) { return swapaxes(in[0], 0, 2); },
      [](const Dims& i) {
        return Dims{i[2], i[1], i[0]};
      }));
  cases.push_back(reshaping("unflatten", {2, 12}, {2, 3, 4}, [](In in) {
    return unflatten(in[0], 1, {3, -1});
  }));
  cases.push_back(moving(
      "broadcast_to", {3, 1}, {2, 3, 4},
      [](In in) {
        return broadcast_to(in[0], {2, 3, 4});
      },
      [](const Dims& i) {
        return Dims{i[1], 0};
      }));
  OpCase both = moving(
      "broadcast_tensors", {3, 1}, {3, 4},
      [](In in) {
        return broadcast_tensors({in[0], in[1]})[0];
      },
      [](const Dims& i) {
        return Dims{i[0], 0};
      });
  both.inputs.push_back({{1, 4}});
  cases.push_back(both);
  const auto window = [](const Dims& i) { return Dims{i[0], 2 * i[1] + i[3], i[2]}; };
  cases.push_back(moving(
      "unfold_axis", {2, 8, 3}, {2, 3, 3, 3}, [](In in) { return unfold_axis(in[0], 1, 3, 2); }, window));
  cases.push_back(moving(
      "unfold_axis/empty", {0, 8, 3}, {0, 3, 3, 3}, [](In in) { return unfold_axis(in[0], 1, 3, 2); },
      nullptr));
}

void add_moves(std::vector<OpCase>& cases) {
  cases.push_back(moving(
      "flip", {3, 2, 4}, {3, 2, 4},
      [](In in) {
        return flip(in[0], {0, -1});
      },
      [](const Dims& i) {
        return Dims{2 - i[0], i[1], 3 - i[2]};
      }));
  cases.push_back(moving(
      "flip/empty", {0, 3}, {0, 3}, [](In in) { return flip(in[0], {1}); }, nullptr));
  cases.push_back(moving(
      "roll", {3, 5}, {3, 5},
      [](In in) {
        return roll(in[0], {1, -2}, {0, 1});
      },
      [](const Dims& i) {
        return Dims{(i[0] + 2) % 3, (i[1] + 2) % 5};
      }));
  cases.push_back(moving(
      "roll/flat", {3, 4}, {3, 4}, [](In in) { return roll(in[0], {5}); },
      [](const Dims& i) {
        const Dim at = (4 * i[0] + i[1] + 7) % 12;
        return Dims{at / 4, at % 4};
      }));
  cases.push_back(moving(
      "rot90", {3, 4}, {4, 3}, [](In in) { return rot90(in[0]); },
      [](const Dims& i) {
        return Dims{i[1], 3 - i[0]};
      }));
  cases.push_back(moving(
      "rot90/back", {3, 4}, {4, 3}, [](In in) { return rot90(in[0], -1); },
      [](const Dims& i) {
        return Dims{2 - i[1], i[0]};
      }));
  const auto modulo = [](const Dims& i) { return Dims{i[1] % 3, i[2] % 2}; };
  cases.push_back(moving(
      "repeat", {3, 2}, {2, 6, 6},
      [](In in) {
        return repeat(in[0], {2, 2, 3});
      },
      modulo));
  cases.push_back(moving(
      "repeat/never", {3, 2}, {0, 6, 6},
      [](In in) {
        return repeat(in[0], {0, 2, 3});
      },
      nullptr));
  cases.push_back(moving(
      "tile", {3, 2}, {3, 4}, [](In in) { return tile(in[0], {2}); },
      [](const Dims& i) {
        return Dims{i[0], i[1] % 2};
      }));
  cases.push_back(moving(
      "repeat_interleave", {2, 3}, {6, 3}, [](In in) { return repeat_interleave(in[0], 3, 0); },
      [](const Dims& i) {
        return Dims{i[0] / 3, i[1]};
      }));
  OpCase own = moving(
      "repeat_interleave/own", {2, 3}, {2, 4},
      [](In in) {
        return repeat_interleave(in[0], from_vector<int64_t>({3, 0, 1}, {3}, in[0].device()), 1);
      },
      [](const Dims& i) {
        return Dims{i[0], i[1] < 3 ? 0 : 2};
      });
  own.data_dependent = true;
  cases.push_back(own);
}

/// A case that pads; source gives -1 for an axis that lies in the padding.
OpCase padding(const std::string& name, const Dims& in, const Dims& out, const std::vector<int64_t>& widths,
               PadMode mode, double value, const std::function<Dims(const Dims&)>& source) {
  OpCase op_case = moving(
      name, in, out, [=](In x) { return pad(x[0], widths, {.mode = mode, .value = value}); }, source);
  op_case.reference = [=](std::span<const Array> x) {
    Array y(out);
    each_index(out, [&](const Dims& i) {
      const Dims from = source(i);
      bool inside = true;
      for (int d = 0; d < from.rank(); ++d) inside = inside && from[d] >= 0 && from[d] < in[d];
      y.at(i) = inside ? x[0].at(from) : value;
    });
    return y;
  };
  op_case.dtypes = {DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};
  return op_case;
}

void add_padding(std::vector<OpCase>& cases) {
  const auto shifted = [](Dim rows, Dim columns) {
    return [=](const Dims& i) { return Dims{i[0] - rows, i[1] - columns}; };
  };
  cases.push_back(padding("pad", {3, 4}, {6, 7}, {1, 2, 3, 0}, PadMode::constant, 0, shifted(3, 1)));
  cases.push_back(padding("pad/value", {3, 4}, {3, 7}, {1, 2}, PadMode::constant, 2, shifted(0, 1)));
  cases.push_back(padding("pad/cut", {3, 4}, {4, 3}, {-2, 1, 1, 0}, PadMode::constant, 3, shifted(1, -2)));
  cases.push_back(padding("pad/empty", {0, 4}, {1, 4}, {0, 0, 1, 0}, PadMode::constant, 0, shifted(1, 0)));
  const auto reflected = [](Dim i, Dim n) { return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i; };
  cases.push_back(
      padding("pad/reflect", {3, 4}, {6, 7}, {2, 1, 1, 2}, PadMode::reflect, 0, [=](const Dims& i) {
        return Dims{reflected(i[0] - 1, 3), reflected(i[1] - 2, 4)};
      }));
  const auto clamped = [](Dim i, Dim n) { return i < 0 ? 0 : i >= n ? n - 1 : i; };
  cases.push_back(
      padding("pad/replicate", {3, 4}, {6, 7}, {2, 1, 1, 2}, PadMode::replicate, 0, [=](const Dims& i) {
        return Dims{clamped(i[0] - 1, 3), clamped(i[1] - 2, 4)};
      }));
  cases.push_back(
      padding("pad/circular", {3, 4}, {6, 7}, {2, 1, 1, 2}, PadMode::circular, 0, [](const Dims& i) {
        return Dims{(i[0] + 2) % 3, (i[1] + 2) % 4};
      }));
}

void add_matrices(std::vector<OpCase>& cases) {
  cases.push_back(moving(
      "diagonal", {2, 4, 3}, {4, 2}, [](In in) { return diagonal(in[0], 1, 0, 2); },
      [](const Dims& i) {
        return Dims{i[1], i[0], i[1] + 1};
      }));
  cases.push_back(moving(
      "diagonal/below", {4, 3}, {2}, [](In in) { return diagonal(in[0], -2); },
      [](const Dims& i) {
        return Dims{i[0] + 2, i[0]};
      }));
  cases.push_back(moving(
      "diagonal/outside", {4, 3}, {0}, [](In in) { return diagonal(in[0], 3); }, nullptr));
  cases.push_back(moving(
      "diag/matrix", {3, 4}, {3}, [](In in) { return diag(in[0]); },
      [](const Dims& i) {
        return Dims{i[0], i[0]};
      }));
  const auto embedded = [](const std::string& name, const Dims& in, Dim offset, CaseCall call) {
    const Dim n = in.back() + std::abs(offset);
    Dims out = in;
    out[out.rank() - 1] = n;
    out.push_back(n);
    OpCase op_case = moving(name, in, out, std::move(call), nullptr);
    op_case.reference = [=](std::span<const Array> x) {
      Array y(out);
      each_index(in, [&](const Dims& i) {
        Dims at = i;
        at[at.rank() - 1] += offset < 0 ? -offset : 0;
        at.push_back(i.back() + (offset > 0 ? offset : 0));
        y.at(at) = x[0].at(i);
      });
      return y;
    };
    return op_case;
  };
  cases.push_back(embedded("diag", {3}, 1, [](In in) { return diag(in[0], 1); }));
  cases.push_back(embedded("diag_embed", {2, 3}, -1, [](In in) { return diag_embed(in[0], -1); }));
  cases.push_back(embedded("diag_embed/empty", {2, 0}, 2, [](In in) { return diag_embed(in[0], 2); }));
  for (const bool lower : {true, false}) {
    const Dim offset = lower ? 1 : -1;
    OpCase part = moving(
        lower ? "tril" : "triu", {2, 4, 5}, {2, 4, 5},
        [=](In in) { return lower ? tril(in[0], offset) : triu(in[0], offset); }, nullptr);
    part.reference = [=](std::span<const Array> x) {
      Array y = x[0];
      each_index(y.shape, [&](const Dims& i) {
        if (lower ? i[2] - i[1] > offset : i[2] - i[1] < offset) y.at(i) = 0;
      });
      return y;
    };
    cases.push_back(part);
  }
}

void add_rules(std::vector<OpCase>& cases) {
  const auto made = [&](const std::string& name, const Array& want, const std::function<Tensor()>& call) {
    OpCase op_case;
    op_case.name = name;
    op_case.call = [call](In) { return call(); };
    op_case.reference = [want](std::span<const Array>) { return want; };
    op_case.tolerance64 = 2e-7;
    op_case.dtypes = {};
    op_case.gradient = op_case.second_order = false;
    cases.push_back(op_case);
  };
  made("eye", Array({2, 3}, {1, 0, 0, 0, 1, 0}), [] { return eye(2, 3); });
  made("eye/empty", Array({0, 0}, {}), [] { return eye(0); });
  made("arange/whole", Array({4}, {7, 4, 1, -2}), [] { return arange(7, -5, -3); });
  made("arange/part", Array({5}, {0.5, 0.75, 1, 1.25, 1.5}), [] { return arange(0.5, 1.6, 0.25); });
  made("arange/none", Array({0}, {}), [] { return arange(3, 3); });
  made("linspace", Array({5}, {-1, -0.25, 0.5, 1.25, 2}), [] { return linspace(-1, 2, 5); });
  made("linspace/one", Array({1}, {3}), [] { return linspace(3, 9, 1); });
  OpCase like = moving(
      "full_like", {2, 3}, {2, 3}, [](In in) { return full_like(in[0], 3); }, nullptr);
  like.reference = [](std::span<const Array>) { return Array({2, 3}, std::vector<double>(6, 3.)); };
  like.dtypes = kNumbers;
  like.gradient = like.second_order = false;
  cases.push_back(like);
  for (const bool xy : {false, true}) {
    OpCase grid = moving(
        xy ? "meshgrid/xy" : "meshgrid", {3}, xy ? Dims{4, 3} : Dims{3, 4},
        [=](In in) {
          return meshgrid({in[0], in[1]}, xy)[0];
        },
        [=](const Dims& i) { return Dims{i[xy ? 1 : 0]}; });
    grid.inputs.push_back({{4}});
    cases.push_back(grid);
  }
}

Tensor of(const Dims& shape, DType dtype = DType::f32) { return zeros(shape, dtype); }

}  // namespace

void add_arrange_cases(std::vector<OpCase>& cases) {
  add_cuts(cases);
  add_axes(cases);
  add_moves(cases);
  add_padding(cases);
  add_matrices(cases);
  add_rules(cases);
}

void add_arrange_errors(std::vector<ErrorCase>& errors) {
  const auto refused = [&](const std::string& name, std::function<void()> call,
                           std::vector<std::string> texts) {
    texts.insert(texts.begin(), name.substr(0, name.find('/')) + ": ");
    texts.push_back("; got ");
    errors.push_back({name, std::move(call), std::move(texts)});
  };
  const int64_t huge = int64_t{1} << 62;
  refused("stack/shapes", [] { stack({of({2}), of({3})}); }, {"(2,)", "(3,)"});
  refused("stack/none", [] { stack({}); }, {});
  refused("stack/axis", [] { stack({of({2})}, 2); }, {"2"});
  refused("split/size", [] { split(of({2, 3}), 0, 1); }, {"0", "(2, 3)"});
  refused("split/sizes", [] { split(of({2, 3}), {1, 1}, 1); }, {"2", "(2, 3)"});
  refused("split/negative", [] { split(of({2, 3}), {4, -1}, 1); }, {"4", "(2, 3)"});
  refused("chunk/count", [] { chunk(of({2}), 0); }, {"0"});
  refused("unbind/axis", [] { unbind(of({2}), 1); }, {"1"});
  refused("narrow/length", [] { narrow(of({2, 3}), 1, 2, 2); }, {"2", "(2, 3)"});
  refused("narrow/huge", [=] { narrow(of({2, 3}), 1, 1, huge); }, {"(2, 3)"});
  refused("movedim/twice", [] { movedim(of({2, 3}), {0, 0}, {0, 1}); }, {"(0, 0)"});
  refused("unflatten/sizes", [] { unflatten(of({2, 6}), 1, {4, -1}); }, {"(4, -1)", "(2, 6)"});
  refused("unflatten/huge", [=] { unflatten(of({2, 6}), 1, {huge, huge}); }, {"(2, 6)"});
  refused("broadcast_to/shape", [] { broadcast_to(of({3}), {2}); }, {"(3,)", "(2,)"});
  refused("unfold_axis/size", [] { unfold_axis(of({2, 3}), 1, 4, 1); }, {"4", "(2, 3)"});
  refused("unfold_axis/step", [] { unfold_axis(of({2, 3}), 1, 2, 0); }, {"0", "(2, 3)"});
  refused("flip/twice", [] { flip(of({2, 3}), {0, -2}); }, {"(0, -2)"});
  refused("roll/axes", [] { roll(of({2, 3}), {1}, {0, 1}); }, {"(1,)", "(0, 1)"});
  refused("rot90/axes", [] { rot90(of({2, 3}), 1, 0, 0); }, {"(2, 3)"});
  refused("repeat/rank", [] { repeat(of({2, 3}), {2}); }, {"(2,)", "(2, 3)"});
  refused("repeat/negative", [] { repeat(of({2, 3}), {2, -1}); }, {"(2, -1)"});
  errors.push_back({"repeat/huge", [=] { repeat(of({2, 3}), {huge, huge}); }, {"shape: ", "63 bits"}});
  refused("tile/negative", [] { tile(of({2}), {-1}); }, {"(-1,)"});
  refused("repeat_interleave/negative", [] { repeat_interleave(of({2}), -1, 0); }, {"-1"});
  refused("repeat_interleave/numbers",
          [] {
            repeat_interleave(of({2}), from_vector<int64_t>({1, -4}, {2}), 0);
          },
          {"-4", "element 1"});
  refused("repeat_interleave/shape", [] { repeat_interleave(of({2}), of({3}, DType::i64), 0); },
          {"(3,)", "(2,)"});
  refused("pad/widths", [] { pad(of({2}), {1, 1, 1}); }, {"3", "(2,)"});
  refused("pad/cut", [] { pad(of({2}), {-2, -1}); }, {"-2", "-1", "(2,)"});
  refused("pad/reflect", [] { pad(of({2}), {2, 0}, {.mode = PadMode::reflect}); }, {"2", "(2,)"});
  refused("pad/circular", [] { pad(of({2}), {3, 0}, {.mode = PadMode::circular}); }, {"3", "(2,)"});
  refused("pad/replicate", [] { pad(of({0}), {1, 0}, {.mode = PadMode::replicate}); }, {"(0,)"});
  refused("pad/negative", [] { pad(of({4}), {-1, 0}, {.mode = PadMode::reflect}); }, {"-1"});
  refused("pad/huge", [=] { pad(of({4}), {huge, 0}); }, {});
  refused("diagonal/axes", [] { diagonal(of({2, 3}), 0, 1, 1); }, {"(2, 3)"});
  refused("diag/rank", [] { diag(of({2, 3, 4})); }, {"(2, 3, 4)"});
  refused("diag_embed/rank", [] { diag_embed(of({})); }, {"()"});
  refused("tril/rank", [] { tril(of({2})); }, {"(2,)"});
  refused("triu/rank", [] { triu(of({2})); }, {"(2,)"});
  refused("eye/negative", [] { eye(-1); }, {"-1"});
  refused("arange/direction", [] { arange(1, 5, -1); }, {"1", "5", "-1"});
  refused("arange/step", [] { arange(1, 5, 0); }, {"0"});
  refused("arange/nan", [] { arange(0., std::nan("")); }, {"nan"});
  refused("linspace/count", [] { linspace(0, 1, -1); }, {"-1"});
  refused("meshgrid/rank", [] { meshgrid({of({2, 3})}); }, {"(2, 3)"});
  errors.push_back({"assign/windows",
                    [] {
                      assign(unfold_axis(of({6}), 0, 3, 1), of({4, 3}));
                    },
                    {"assign: ", "must not share memory", "; got "}});
}

}  // namespace tandem::testing
