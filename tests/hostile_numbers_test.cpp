// Public functions that take numbers, with numbers at the ends of int64 among them: see support/hostile.h.
// ctest: asan timeout=300
#include <gtest/gtest.h>

#include <array>

#include "tandem/core/tape.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/shape.h"
#include "tests/support/hostile.h"

namespace tandem::testing {
namespace {

/// Public functions with numbers for arguments.
struct Numbered {
  const char* name;
  std::function<std::vector<Tensor>(const Tensor& x, const std::array<int64_t, 4>& n)> call;
};

using Numbers = std::array<int64_t, 4>;
using Results = std::vector<Tensor>;

const std::vector<Numbered>& numbered_functions() {
  static const std::vector<Numbered> functions = {
      {"slice", [](const Tensor& x, const Numbers& n) { return Results{slice(x, n[0], n[1], n[2], n[3])}; }},
      {"slice_into_zeros",
       [](const Tensor& x, const Numbers& n) { return Results{slice_into_zeros(x, n[0], n[1], n[2], n[3])}; }},
      {"select", [](const Tensor& x, const Numbers& n) { return Results{select(x, n[0], n[1])}; }},
      {"narrow", [](const Tensor& x, const Numbers& n) { return Results{narrow(x, n[0], n[1], n[2])}; }},
      {"transpose", [](const Tensor& x, const Numbers& n) { return Results{transpose(x, n[0], n[1])}; }},
      {"unsqueeze", [](const Tensor& x, const Numbers& n) { return Results{unsqueeze(x, n[0])}; }},
      {"squeeze", [](const Tensor& x, const Numbers& n) { return Results{squeeze(x, n[0])}; }},
      {"flatten", [](const Tensor& x, const Numbers& n) { return Results{flatten(x, n[0], n[1])}; }},
      {"reshape", [](const Tensor& x, const Numbers& n) { return Results{reshape(x, {n[0], n[1], n[2]})}; }},
      {"expand", [](const Tensor& x, const Numbers& n) { return Results{expand(x, {n[0], n[1], n[2]})}; }},
      {"sum_to", [](const Tensor& x, const Numbers& n) { return Results{sum_to(x, {n[0], n[1]})}; }},
      {"permute", [](const Tensor& x, const Numbers& n) { return Results{permute(x, {n[0], n[1], n[2]})}; }},
      {"movedim", [](const Tensor& x, const Numbers& n) { return Results{movedim(x, n[0], n[1])}; }},
      {"unflatten", [](const Tensor& x, const Numbers& n) { return Results{unflatten(x, n[0], {n[1], n[2]})}; }},
      {"unfold_axis", [](const Tensor& x, const Numbers& n) { return Results{unfold_axis(x, n[0], n[1], n[2])}; }},
      {"split", [](const Tensor& x, const Numbers& n) { return split(x, n[0], n[1]); }},
      {"split/sizes", [](const Tensor& x, const Numbers& n) { return split(x, {n[0], n[1]}, n[2]); }},
      {"chunk", [](const Tensor& x, const Numbers& n) { return chunk(x, n[0], n[1]); }},
      {"unbind", [](const Tensor& x, const Numbers& n) { return unbind(x, n[0]); }},
      {"stack", [](const Tensor& x, const Numbers& n) { return Results{stack({x, x}, n[0])}; }},
      {"concat", [](const Tensor& x, const Numbers& n) { return Results{concat({x, x}, n[0])}; }},
      {"flip", [](const Tensor& x, const Numbers& n) { return Results{flip(x, {n[0], n[1]})}; }},
      {"roll", [](const Tensor& x, const Numbers& n) { return Results{roll(x, {n[0], n[1]}, {n[2], n[3]})}; }},
      {"rot90", [](const Tensor& x, const Numbers& n) { return Results{rot90(x, n[0], n[1], n[2])}; }},
      {"repeat", [](const Tensor& x, const Numbers& n) { return Results{repeat(x, {n[0], n[1], n[2]})}; }},
      {"repeat_interleave",
       [](const Tensor& x, const Numbers& n) { return Results{repeat_interleave(x, n[0], n[1])}; }},
      {"pad", [](const Tensor& x, const Numbers& n) { return Results{pad(x, {n[0], n[1], n[2], n[3]})}; }},
      {"pad/reflect",
       [](const Tensor& x, const Numbers& n) {
         return Results{pad(x, {n[0], n[1]}, {.mode = PadMode::reflect})};
       }},
      {"pad/circular",
       [](const Tensor& x, const Numbers& n) {
         return Results{pad(x, {n[0], n[1]}, {.mode = PadMode::circular})};
       }},
      {"diagonal", [](const Tensor& x, const Numbers& n) { return Results{diagonal(x, n[0], n[1], n[2])}; }},
      {"diag_embed", [](const Tensor& x, const Numbers& n) { return Results{diag_embed(x, n[0])}; }},
      {"diag", [](const Tensor& x, const Numbers& n) { return Results{diag(x, n[0])}; }},
      {"tril", [](const Tensor& x, const Numbers& n) { return Results{tril(x, n[0]), triu(x, n[1])}; }},
      {"eye", [](const Tensor&, const Numbers& n) { return Results{eye(n[0], n[1])}; }},
      {"arange", [](const Tensor&, const Numbers& n) { return Results{arange(n[0], n[1], n[2])}; }},
      {"arange/count", [](const Tensor&, const Numbers& n) { return Results{arange(n[0])}; }},
      {"linspace", [](const Tensor&, const Numbers& n) { return Results{linspace(0, 1, n[0])}; }},
      {"full", [](const Tensor&, const Numbers& n) { return Results{full({n[0], n[1], n[2]}, 1)}; }},
      {"uniform", [](const Tensor&, const Numbers& n) { return Results{uniform({n[0], n[1]})}; }},
      {"randint", [](const Tensor&, const Numbers& n) { return Results{randint(n[0], n[1], {n[2]})}; }},
      {"randperm", [](const Tensor&, const Numbers& n) { return Results{randperm(n[0])}; }},
      {"multinomial", [](const Tensor& x, const Numbers& n) { return Results{multinomial(x, n[0], n[1] > 0)}; }},
      {"empty", [](const Tensor&, const Numbers& n) { return Results{empty({n[0], n[1]})}; }},
      {"sum", [](const Tensor& x, const Numbers& n) { return Results{sum(x, {n[0], n[1]})}; }},
      {"max", [](const Tensor& x, const Numbers& n) { return Results{max(x, {n[0]}), argmax(x, n[1])}; }},
      {"cumsum", [](const Tensor& x, const Numbers& n) { return Results{cumsum(x, n[0])}; }},
      {"sort", [](const Tensor& x, const Numbers& n) { return Results{sort(x, n[0]).values}; }},
      {"topk", [](const Tensor& x, const Numbers& n) { return Results{topk(x, n[0], {.axis = n[1]}).values}; }},
      {"kthvalue", [](const Tensor& x, const Numbers& n) { return Results{kthvalue(x, n[0], n[1]).values}; }},
      {"one_hot",
       [](const Tensor& x, const Numbers& n) { return Results{one_hot(cast(x, DType::i64), n[0])}; }},
      {"bincount",
       [](const Tensor& x, const Numbers& n) {
         return Results{bincount(flatten(cast(x, DType::i64)), {.length = n[0]})};
       }},
      {"gather",
       [](const Tensor& x, const Numbers& n) {
         return Results{gather(x, n[0], full(x.shape(), static_cast<double>(n[1]), DType::i64))};
       }},
      {"scatter_add_zeros",
       [](const Tensor& x, const Numbers& n) {
         return Results{scatter_add_zeros(x, n[0], zeros(x.shape(), DType::i64), {n[1], n[2], n[3]})};
       }},
      {"index",
       [](const Tensor& x, const Numbers& n) {
         return Results{index(x, {n[0], Slice{n[1], n[2], n[3]}})};
       }},
      {"embedding",
       [](const Tensor& x, const Numbers& n) {
         return Results{embedding(x, full({2}, static_cast<double>(n[0]), DType::i64), {.padding_idx = n[1]})};
       }},
      {"conv1d",
       [](const Tensor& x, const Numbers& n) {
         return Results{conv1d(x, ones({2, 3, 2}), {}, {.stride = n[0], .padding = n[1], .dilation = n[2], .groups = n[3]})};
       }},
      {"conv_transpose1d",
       [](const Tensor& x, const Numbers& n) {
         return Results{conv_transpose1d(x, ones({3, 2, 2}), {},
                                         {.stride = n[0], .padding = n[1], .output_padding = n[2], .dilation = n[3]})};
       }},
      {"max_pool1d",
       [](const Tensor& x, const Numbers& n) {
         return Results{max_pool1d(x, {.kernel = n[0], .stride = n[1], .padding = n[2], .dilation = n[3]})};
       }},
      {"avg_pool1d",
       [](const Tensor& x, const Numbers& n) {
         return Results{avg_pool1d(x, {.kernel = n[0], .stride = n[1], .padding = n[2]})};
       }},
      {"fft", [](const Tensor& x, const Numbers& n) { return Results{rfft(x, {.n = n[0], .axis = n[1]})}; }},
  };
  return functions;
}

TEST(HostileNumbers, ThroughThePublicFunctions) {
  const auto body = [](const Numbered& function, Random& random) {
    static const Dims kShapes[] = {{2, 3, 4}, {3, 4}, {2, 1, 3}, {5}, {}, {0, 3}, {2, 3, 0}};
    static constexpr int64_t kUsual[] = {1, 1, 0, 2, 3, -1};
    const Tensor x = random.chance(0.8) ? uniform(kShapes[random.below(std::size(kShapes))])
                                        : ones(kShapes[random.below(std::size(kShapes))], DType::i64);
    Numbers n;
    for (int64_t& number : n)
      number = random.chance(0.7) ? kUsual[random.below(std::size(kUsual))] : hostile_integer(random);
    hostile_call(str(function.name, " of ", describe(x), " with ", n[0], ", ", n[1], ", ", n[2], ", ", n[3]),
                 [&] { return function.call(x, n); });
  };
  for (const Numbered& function : numbered_functions())
    expect_survives(function.name, [&](Random& random) { body(function, random); });
}

}  // namespace
}  // namespace tandem::testing
