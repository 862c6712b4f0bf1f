// What reductions, scans, normalisations, softmax and losses refuse, and what the message must say.
#include <cmath>

#include "tandem/ops/loss.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/softmax.h"
#include "tests/support/op_case.h"

namespace tandem::testing {

void add_norm_errors(std::vector<ErrorCase>& errors) {
  const auto of = [](const Dims& shape, DType dtype = DType::f32) { return zeros(shape, dtype); };
  const auto add = [&](const std::string& name, std::function<void()> call, std::vector<std::string> texts) {
    errors.push_back({name, std::move(call), std::move(texts)});
  };
  const Tensor none, x = of({2, 3}), whole = of({2, 3}, DType::i32), index = of({2}, DType::i64);
  // Reductions and scans
  add("argmin/empty", [=] { argmin(of({2, 0}), 1); }, {"argmin: ", "(2, 0)", "; got "});
  add("argmin/axis", [=] { argmin(x, 2); }, {"argmin: ", "2"});
  add("prod/axis", [=] { prod(x, {-3}); }, {"prod: ", "-3"});
  add("prod/undefined", [=] { prod(none); }, {"prod: ", "undefined"});
  add("var/dtype", [=] { var(whole); }, {"var: ", "i32", "; got "});
  add("stddev/axis", [=] { stddev(x, {0, 0}); }, {"stddev: ", "(0, 0)"});
  add("norm/dtype", [=] { norm(whole); }, {"norm: ", "i32"});
  add("norm/empty", [=] { norm(of({2, 0}), HUGE_VAL, {1}); }, {"norm: ", "(2, 0)", "; got "});
  add("norm/nan", [=] { norm(x, NAN); }, {"norm: ", "NaN"});
  add("logsumexp/dtype", [=] { logsumexp(whole); }, {"logsumexp: ", "i32"});
  add("any/axis", [=] { any(x, {7}); }, {"any: ", "7"});
  add("all/undefined", [=] { all(none); }, {"all: ", "undefined"});
  add("count_nonzero/axis", [=] { count_nonzero(x, {2}); }, {"count_nonzero: ", "2"});
  add("cumsum/axis", [=] { cumsum(x, 2); }, {"cumsum: ", "2"});
  add("cumsum/scalar", [=] { cumsum(of({}), 0); }, {"cumsum: ", "0"});
  add("cumprod/undefined", [=] { cumprod(none, 0); }, {"cumprod: ", "undefined"});
  add("cummax/axis", [=] { cummax(x, -3); }, {"cummax: ", "-3"});
  add("linear_scan/shapes", [=] { linear_scan(x, of({2}), 0); }, {"linear_scan: ", "(2, 3)", "(2,)"});
  // Normalisation
  add("layer_norm/shape", [=] { layer_norm(x, {4}); }, {"layer_norm: ", "(4,)", "(2, 3)", "; got "});
  add("layer_norm/rank", [=] { layer_norm(x, {5, 2, 3}); }, {"layer_norm: ", "(5, 2, 3)"});
  add("layer_norm/weight", [=] { layer_norm(x, {3}, of({2})); }, {"layer_norm: ", "weight", "(2,)"});
  add("layer_norm/dtype", [=] { layer_norm(whole, {3}); }, {"layer_norm: ", "i32"});
  add("layer_norm/eps", [=] { layer_norm(x, {3}, none, none, -1); }, {"layer_norm: ", "eps", "-1"});
  add("group_norm/groups", [=] { group_norm(x, 2); }, {"group_norm: ", "2 groups", "(2, 3)"});
  add("group_norm/none", [=] { group_norm(x, 0); }, {"group_norm: ", "0 groups"});
  add("group_norm/rank", [=] { group_norm(of({3}), 1); }, {"group_norm: ", "(3,)"});
  add("instance_norm/bias", [=] { instance_norm(x, none, of({2})); }, {"instance_norm: ", "bias", "(2,)"});
  add("batch_norm/one",
      [=] {
        batch_norm(of({1, 3}), none, none, none, none, {.training = true});
      },
      {"batch_norm: ", "(1, 3)"});
  add("batch_norm/statistics", [=] { batch_norm(x, none, none); }, {"batch_norm: ", "running"});
  add("batch_norm/running", [=] { batch_norm(x, of({2}), of({3})); },
      {"batch_norm: ", "running mean", "(2,)"});
  const auto masked = [=](const Tensor& mask) {
    batch_norm(x, none, none, none, none, {.training = true, .mask = mask});
  };
  add("batch_norm/mask_dtype",
      [=] {
        masked(of({2, 1}));
      },
      {"batch_norm: ", "mask must be bool", "f32 (2, 1)"});
  add("batch_norm/mask_channels",
      [=] {
        masked(of({2, 3}, DType::boolean));
      },
      {"batch_norm: ", "of size 1 on that of the channels", "bool (2, 3)", "x (2, 3)"});
  add("batch_norm/mask_rank", [=] { masked(of({2}, DType::boolean)); }, {"batch_norm: ", "the axes of x"});
  add("rms_norm/shape", [=] { rms_norm(x, {2}); }, {"rms_norm: ", "(2,)", "(2, 3)"});
  add("normalize/axis", [=] { normalize(x, 2, 2); }, {"normalize: ", "2"});
  add("local_response_norm/size", [=] { local_response_norm(x, 0); }, {"local_response_norm: ", "0"});
  // Softmax
  add("softmin/dtype", [=] { softmin(whole); }, {"softmin: ", "i32"});
  add("gumbel_softmax/tau", [=] { gumbel_softmax(x, {.tau = 0}); }, {"gumbel_softmax: ", "tau", "0"});
  add("gumbel_softmax/axis", [=] { gumbel_softmax(x, {.axis = 2}); }, {"gumbel_softmax: ", "2"});
  // Losses
  add("nll_loss/sizes", [=] { nll_loss(of({3, 4}), index); }, {"nll_loss: ", "(3, 4)", "(2,)"});
  add("nll_loss/weight", [=] { nll_loss(x, index, {.weight = of({2})}); }, {"nll_loss: ", "weight", "(2,)"});
  add("cross_entropy/smoothing", [=] { cross_entropy(x, index, {.label_smoothing = 1.5}); },
      {"cross_entropy: ", "label_smoothing", "1.5"});
  add("cross_entropy/probabilities_ignore", [=] { cross_entropy(x, x, {.ignore_index = 0}); },
      {"cross_entropy: ", "ignore_index"});
  add("cross_entropy/scalar", [=] { cross_entropy(of({}), of({}, DType::i64)); }, {"cross_entropy: ", "()"});
  add("multi_margin_loss/p", [=] { multi_margin_loss(x, index, {.p = 3}); },
      {"multi_margin_loss: ", "p", "3"});
  add("multi_margin_loss/rank", [=] { multi_margin_loss(of({3}), index); }, {"multi_margin_loss: ", "(3,)"});
  add("l1_loss/shapes", [=] { l1_loss(x, of({4})); }, {"l1_loss: ", "(2, 3)", "(4,)"});
  add("l1_loss/dtype", [=] { l1_loss(whole, x); }, {"l1_loss: ", "i32"});
  add("smooth_l1_loss/beta", [=] { smooth_l1_loss(x, x, -1); }, {"smooth_l1_loss: ", "beta", "-1"});
  add("huber_loss/delta", [=] { huber_loss(x, x, 0); }, {"huber_loss: ", "delta", "0"});
  add("binary_cross_entropy/undefined", [=] { binary_cross_entropy(x, none); },
      {"binary_cross_entropy: ", "undefined"});
  add("binary_cross_entropy/probability", [] { binary_cross_entropy(full({2}, 1.5), ones({2})); },
      {"binary_cross_entropy: every probability must lie in 0..1; got 1.5. Apply sigmoid() "
       "first"});
  add("binary_cross_entropy/nan", [] { binary_cross_entropy(full({2}, NAN), ones({2})); },
      {"binary_cross_entropy: every probability must lie in 0..1; got nan."});
  add("binary_cross_entropy/target",
      [=] {
        binary_cross_entropy(full({2}, 0.5), from_vector<float>({1, -1}, {2}));
      },
      {"binary_cross_entropy: every target must lie in 0..1; got -1. Scale the targets"});
  add("kl_div/shapes", [=] { kl_div(x, of({4})); }, {"kl_div: ", "(2, 3)", "(4,)"});
  add("kl_div/batch", [=] { kl_div(of({}), of({}), {.batch_mean = true}); }, {"kl_div: ", "batch_mean"});
  add("cosine_similarity/shapes", [=] { cosine_similarity(x, of({4})); }, {"cosine_similarity: ", "(4,)"});
  add("cdist/p", [=] { cdist(of({2, 3}), of({2, 3}), -1); }, {"cdist: ", "-1"});
  add("cdist/nan", [=] { cdist(of({2, 3}), of({2, 3}), NAN); }, {"cdist: ", "nan"});
  add("cdist/rank", [=] { cdist(of({3}), of({2, 3})); }, {"cdist: ", "(3,)", "unsqueeze"});
  add("cdist/width", [=] { cdist(of({2, 3}), of({2, 4})); }, {"cdist: ", "(2, 3)", "(2, 4)"});
  add("cdist/batch", [=] { cdist(of({2, 4, 3}), of({3, 4, 3})); }, {"cdist: ", "(2, 4, 1, 3)"});
  add("cdist/type", [=] { cdist(zeros({2, 3}, DType::i64), of({2, 3})); }, {"cdist: ", "i64"});
  add("pairwise_distance/scalar", [=] { pairwise_distance(of({}), of({})); }, {"pairwise_distance: ", "()"});
  add("cosine_embedding_loss/target", [=] { cosine_embedding_loss(x, x, of({3})); },
      {"cosine_embedding_loss: ", "(3,)"});
  add("margin_ranking_loss/shapes", [=] { margin_ranking_loss(x, of({4}), x); },
      {"margin_ranking_loss: ", "(4,)"});
  add("triplet_margin_loss/shapes", [=] { triplet_margin_loss(x, x, of({4})); },
      {"triplet_margin_loss: ", "(4,)"});
}

}  // namespace tandem::testing
