// Numbers that no reasonable program passes, in every place of every op that takes a number: each call is refused with an
// Error or gives a tensor whose shape can be counted and whose elements can be read.
// ctest: asan
#include <gtest/gtest.h>

#include <functional>

#include "tandem/core/tape.h"
#include "tandem/graph/scan.h"
#include "tandem/graph/while_loop.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/einsum.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/grid_sample.h"
#include "tandem/ops/index.h"
#include "tandem/ops/linalg.h"
#include "tandem/ops/linear_cross_entropy.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/scatter_reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/ops/unfold.h"

namespace tandem::testing {
namespace {

// Sizes among them are either small, or too large for any machine: what is not refused for its shape is refused by the
// system when memory is asked for.
constexpr int64_t kNumbers[] = {INT64_MIN,
                                INT64_MIN + 1,
                                -(int64_t{1} << 62),
                                -(int64_t{1} << 32),
                                -3,
                                -1,
                                0,
                                1,
                                2,
                                3,
                                (int64_t{1} << 59) - 1,
                                int64_t{1} << 59,
                                int64_t{1} << 60,
                                int64_t{1} << 62,
                                INT64_MAX - 1,
                                INT64_MAX};

using Call = std::function<Tensor(int64_t n)>;
struct Place {
  const char* name;
  Call call;
};

Tensor counting(const Dims& shape) { return reshape(arange(size_of(shape), DType::f32), shape); }
Tensor numbers(const std::vector<int64_t>& values) {
  return from_vector(values, {static_cast<Dim>(values.size())});
}
/// Stretched to n elements, without memory.
Tensor stretched(const Dims& shape) { return expand(counting(Dims::filled(shape.rank(), 1)), shape); }

const Tensor& image() {
  static const Tensor& x = *new Tensor(counting({1, 2, 5, 5}));
  return x;
}
const Tensor& weight() {
  static const Tensor& w = *new Tensor(counting({2, 2, 3, 3}));
  return w;
}

std::vector<Place> places_of_shape_ops() {
  const Tensor x = counting({3, 4});
  return {
      {"slice start", [=](int64_t n) { return slice(x, 1, n, 4); }},
      {"slice stop", [=](int64_t n) { return slice(x, 1, 0, n); }},
      {"slice step", [=](int64_t n) { return slice(x, 1, 1, 4, n); }},
      {"slice stop and step", [=](int64_t n) { return slice(x, 1, 0, n, n); }},
      {"slice axis", [=](int64_t n) { return slice(x, n, 0, 1); }},
      {"slice_into_zeros start", [=](int64_t n) { return slice_into_zeros(x, 1, n, 1, 9); }},
      {"slice_into_zeros step", [=](int64_t n) { return slice_into_zeros(x, 1, 0, n, 9); }},
      {"slice_into_zeros size", [=](int64_t n) { return slice_into_zeros(x, 1, 0, 1, n); }},
      {"slice_into_zeros step and size", [=](int64_t n) { return slice_into_zeros(x, 1, 0, n, n); }},
      {"slice_into_zeros start and size", [=](int64_t n) { return slice_into_zeros(x, 1, n, 2, n); }},
      {"slice_into_zeros of one element, size",
       [](int64_t n) {
         return slice_into_zeros(ones({1000, 1}), 1, 0, 1, n);
       }},
      {"slice_into_zeros of one element, step",
       [](int64_t n) {
         return slice_into_zeros(ones({5, 1}), 1, 0, n, 3);
       }},
      {"slice_into_zeros of nothing",
       [](int64_t n) {
         return slice_into_zeros(ones({5, 0}), 1, n, n, n);
       }},
      {"reshape",
       [=](int64_t n) {
         return reshape(x, {n, 4});
       }},
      {"reshape with an open size",
       [=](int64_t n) {
         return reshape(x, {n, n, -1});
       }},
      {"reshape of nothing",
       [](int64_t n) {
         return reshape(ones({0, 3}), {0, n, n});
       }},
      {"expand",
       [](int64_t n) {
         return expand(ones({1, 3}), {n, 3});
       }},
      {"expand twice",
       [](int64_t n) {
         return expand(ones({1}), {n, n});
       }},
      {"expand of nothing",
       [](int64_t n) {
         return expand(ones({0, 1}), {n, 0, n});
       }},
      {"broadcast",
       [](int64_t n) {
         return add(stretched({n, 1}), stretched({1, n}));
       }},
      {"concat", [](int64_t n) { return concat(std::vector<Tensor>(20, stretched({n})), 0); }},
      {"stack",
       [](int64_t n) {
         return stack({stretched({n}), stretched({n})}, 0);
       }},
      {"flatten",
       [](int64_t n) {
         return flatten(stretched({n, 1, n}));
       }},
      {"permute",
       [=](int64_t n) {
         return permute(x, {n, 0});
       }},
      {"select", [=](int64_t n) { return select(x, 0, n); }},
      {"narrow start", [=](int64_t n) { return narrow(x, 1, n, 2); }},
      {"narrow length", [=](int64_t n) { return narrow(x, 1, 1, n); }},
      {"split", [=](int64_t n) { return split(x, n, 1)[0]; }},
      {"split sizes",
       [=](int64_t n) {
         return split(x, std::vector<int64_t>{n, n}, 1)[0];
       }},
      {"chunk", [=](int64_t n) { return chunk(x, n, 1)[0]; }},
      {"scan of many",
       [](int64_t n) {
         return scan(
                    [](const auto&, const auto& in) {
                      return ScanStep{{}, {in[0] * 2.0}};
                    },
                    {}, {stretched({n})})
             .outputs[0];
       }},
      {"scan of nothing",
       [](int64_t n) {
         return scan(
                    [](const auto&, const auto& in) {
                      return ScanStep{{}, in};
                    },
                    {}, {stretched({n, 0})})
             .outputs[0];
       }},
      {"while_loop at_most",
       [=](int64_t n) {
         return while_loop([](const auto& s) { return less(sum(s[0]), 100); },
                           [](const auto& s) { return std::vector<Tensor>{s[0] + 1.0}; }, {x},
                           {.at_most = n})[0];
       }},
      {"unflatten",
       [=](int64_t n) {
         return unflatten(x, 1, {n, n, -1});
       }},
      {"unfold_axis size", [=](int64_t n) { return unfold_axis(x, 1, n, 1); }},
      {"unfold_axis step", [=](int64_t n) { return unfold_axis(x, 1, 2, n); }},
      {"unfold_axis of many", [](int64_t n) { return unfold_axis(stretched({n}), 0, n > 0 ? n / 2 : n, 1); }},
      {"roll", [=](int64_t n) { return roll(x, {n}, {1}); }},
      {"rot90", [=](int64_t n) { return rot90(x, n, 0, 1); }},
      {"repeat",
       [=](int64_t n) {
         return repeat(x, {n, n});
       }},
      {"repeat of nothing",
       [](int64_t n) {
         return repeat(ones({0, 3}), {1, n});
       }},
      {"tile",
       [=](int64_t n) {
         return tile(x, {n, 1, 1});
       }},
      {"repeat_interleave", [=](int64_t n) { return repeat_interleave(x, n, 1); }},
      {"repeat_interleave by numbers",
       [=](int64_t n) {
         return repeat_interleave(x, numbers({n, n, n, n}), 1);
       }},
      {"pad",
       [=](int64_t n) {
         return pad(x, {n, 1});
       }},
      {"pad both sides",
       [=](int64_t n) {
         return pad(x, {n, n}, {.value = 2});
       }},
      {"pad reflect",
       [=](int64_t n) {
         return pad(x, {n, 0}, {.mode = PadMode::reflect});
       }},
      {"pad replicate",
       [=](int64_t n) {
         return pad(x, {n, n}, {.mode = PadMode::replicate});
       }},
      {"pad circular",
       [=](int64_t n) {
         return pad(x, {0, n}, {.mode = PadMode::circular});
       }},
      {"diagonal", [=](int64_t n) { return diagonal(x, n); }},
      {"diag_embed", [](int64_t n) { return diag_embed(ones({3}), n); }},
      {"tril", [=](int64_t n) { return tril(x, n); }},
      {"triu", [=](int64_t n) { return triu(x, n); }},
      {"eye", [](int64_t n) { return eye(n, n); }},
      {"arange", [](int64_t n) { return arange(n, DType::i64); }},
      {"arange stop", [](int64_t n) { return arange(-1, n, int64_t{1} << 61); }},
      {"arange start", [](int64_t n) { return arange(n, 3, int64_t{1} << 61); }},
      {"arange step", [](int64_t n) { return arange(INT64_MIN, INT64_MAX, n); }},
      {"linspace", [](int64_t n) { return linspace(0, 1, n); }},
      {"zeros", [](int64_t n) { return zeros({n}); }},
      {"zeros of u8", [](int64_t n) { return zeros({n}, DType::u8); }},
      {"zeros with an empty axis",
       [](int64_t n) {
         return zeros({0, n, n});
       }},
      {"empty with an empty axis",
       [](int64_t n) {
         return empty({n, 0, n});
       }},
      {"uniform",
       [](int64_t n) {
         return uniform({n, 2});
       }},
      {"rand",
       [](int64_t n) {
         return rand({n, 2});
       }},
      {"randn",
       [](int64_t n) {
         return randn({n, 2});
       }},
      {"randperm", [](int64_t n) { return randperm(n); }},
      {"randint", [](int64_t n) { return randint(INT64_MIN, n, {2}); }},
      {"meshgrid",
       [](int64_t n) {
         return meshgrid({stretched({n}), stretched({n})})[0];
       }},
  };
}

std::vector<Place> places_of_index_ops() {
  const Tensor x = counting({3, 4}), zero = numbers({0});
  return {
      {"linear_cross_entropy rows",
       [](int64_t n) {
         return linear_cross_entropy(ones({3, 2}), ones({4, 2}), {}, numbers({0, 1, 3}), {.rows = n});
       }},
      {"linear_cross_entropy target",
       [](int64_t n) {
         return linear_cross_entropy(ones({1, 2}), ones({4, 2}), {}, numbers({n}));
       }},
      {"linear_cross_entropy ignore_index",
       [](int64_t n) {
         return linear_cross_entropy(ones({1, 2}), ones({4, 2}), {}, numbers({1}), {.ignore_index = n});
       }},
      {"one_hot", [=](int64_t n) { return one_hot(zero, n); }},
      {"one_hot index", [](int64_t n) { return one_hot(numbers({n}), 3); }},
      {"gather", [=](int64_t n) { return gather(counting({4}), 0, numbers({n})); }},
      {"take", [=](int64_t n) { return take(x, numbers({n})); }},
      {"take_along",
       [](int64_t n) {
         return take_along(stretched({n, 1}), zeros({1, 2}, DType::i64), 1);
       }},
      {"index_select", [=](int64_t n) { return index_select(x, 1, numbers({n})); }},
      {"index number", [=](int64_t n) { return index(x, {n}); }},
      {"index slice",
       [=](int64_t n) {
         return index(x, {Slice{n, n, n}});
       }},
      {"index slice backwards",
       [=](int64_t n) {
         return index(x, {Slice{}, Slice{n, {}, -2}});
       }},
      {"index slice backwards to",
       [=](int64_t n) {
         return index(x, {Slice{{}, n, -1}});
       }},
      {"index_put backwards",
       [=](int64_t n) {
         return index_put(x, {Slice{{}, {}, n}}, 1);
       }},
      {"index_put", [=](int64_t n) { return index_put(x, {n}, 1); }},
      {"index_add alpha",
       [=](int64_t n) {
         return index_add(zeros({3}, DType::i64), 0, zero, numbers({1}), static_cast<double>(n));
       }},
      {"scatter_add_zeros", [=](int64_t n) { return scatter_add_zeros(ones({1}), 0, zero, {n}); }},
      {"scatter index", [](int64_t n) { return scatter(ones({3}), 0, numbers({n}), 1); }},
      {"scatter_reduce axis",
       [=](int64_t n) { return scatter_reduce(ones({3}), n, zero, ones({1}), ScatterReduction::amax); }},
      {"scatter_reduce index",
       [](int64_t n) {
         return scatter_reduce(ones({3}), 0, numbers({n}), ones({1}), ScatterReduction::mean, false);
       }},
      {"embedding padding_idx", [=](int64_t n) { return embedding(x, zero, {.padding_idx = n}); }},
      {"topk", [=](int64_t n) { return topk(x, n).values; }},
      {"kthvalue", [=](int64_t n) { return kthvalue(x, n).values; }},
      {"median axis", [=](int64_t n) { return median(x, n).values; }},
      {"quantile axis", [=](int64_t n) { return quantile(x, 0.5, n); }},
      {"quantile q", [=](int64_t n) { return quantile(x, static_cast<double>(n)); }},
      {"bincount min_length", [=](int64_t n) { return bincount(zero, {.min_length = n}); }},
      {"bincount length", [=](int64_t n) { return bincount(zero, {.length = n}); }},
      {"bincount value", [](int64_t n) { return bincount(numbers({n})); }},
      {"multinomial", [](int64_t n) { return multinomial(ones({3}), n, true); }},
      {"multinomial without replacement", [](int64_t n) { return multinomial(ones({3}), n, false); }},
      {"cumsum axis", [=](int64_t n) { return cumsum(x, n); }},
      {"sum axis", [=](int64_t n) { return sum(x, {n}); }},
      {"softmax axis", [=](int64_t n) { return softmax(x, n); }},
      {"sort axis", [=](int64_t n) { return sort(x, n).values; }},
      {"tensordot", [=](int64_t n) { return tensordot(x, x, n); }},
  };
}

std::vector<Place> places_of_window_ops() {
  return {
      {"conv stride", [](int64_t n) { return conv2d(image(), weight(), {}, {.stride = n}); }},
      {"conv padding", [](int64_t n) { return conv2d(image(), weight(), {}, {.padding = n}); }},
      {"conv dilation", [](int64_t n) { return conv2d(image(), weight(), {}, {.dilation = n}); }},
      {"conv groups", [](int64_t n) { return conv2d(image(), weight(), {}, {.groups = n}); }},
      {"conv groups of nothing",
       [](int64_t n) {
         return conv2d(zeros({0, 4, 3, 3}), stretched({n > 0 ? n : 1, int64_t{1} << 50, 1, 1}), {},
                       {.groups = n});
       }},
      {"conv_transpose stride",
       [](int64_t n) { return conv_transpose2d(image(), weight(), {}, {.stride = n}); }},
      {"conv_transpose padding",
       [](int64_t n) { return conv_transpose2d(image(), weight(), {}, {.padding = n}); }},
      {"conv_transpose output_padding",
       [](int64_t n) { return conv_transpose2d(image(), weight(), {}, {.output_padding = n}); }},
      {"conv_transpose groups",
       [](int64_t n) { return conv_transpose2d(image(), weight(), {}, {.groups = n}); }},
      {"max_pool kernel", [](int64_t n) { return max_pool2d(image(), {.kernel = n}); }},
      {"max_pool stride", [](int64_t n) { return max_pool2d(image(), {.kernel = 2, .stride = n}); }},
      {"max_pool padding", [](int64_t n) { return max_pool2d(image(), {.kernel = 2, .padding = n}); }},
      {"max_pool dilation", [](int64_t n) { return max_pool2d(image(), {.kernel = 2, .dilation = n}); }},
      {"avg_pool kernel", [](int64_t n) { return avg_pool2d(image(), {.kernel = n}); }},
      {"avg_pool divisor", [](int64_t n) { return avg_pool2d(image(), {.kernel = 2, .divisor = n}); }},
      {"adaptive_avg_pool", [](int64_t n) { return adaptive_avg_pool2d(image(), n); }},
      {"adaptive_max_pool", [](int64_t n) { return adaptive_max_pool2d(image(), n); }},
      {"interpolate", [](int64_t n) { return interpolate(image(), {.size = n}); }},
      {"affine_grid",
       [](int64_t n) {
         return affine_grid(ones({1, 2, 3}), {1, 1, n, 2});
       }},
      {"affine_grid of many",
       [](int64_t n) {
         return affine_grid(stretched({n, 2, 3}), {n, 1, 2, 2});
       }},
      {"grid_sample of many",
       [](int64_t n) {
         return grid_sample(stretched({1, n, 1, 1}), stretched({1, n, 2, 2}));
       }},
      {"grid_sample of a long image",
       [](int64_t n) {
         return grid_sample(stretched({1, 1, n, 1}), ones({1, 1, 1, 2}));
       }},
      {"grid_sample at",
       [](int64_t n) {
         return grid_sample(image(), full({1, 2, 2, 2}, static_cast<double>(n)),
                            {.padding = GridPadding::reflection});
       }},
      {"pixel_shuffle",
       [](int64_t n) {
         return pixel_shuffle(zeros({1, 0, 2, 2}), n);
       }},
      {"pixel_shuffle of a long image",
       [](int64_t n) {
         return pixel_shuffle(stretched({1, 0, n, 1}), 32767);
       }},
      {"pixel_unshuffle of many channels",
       [](int64_t n) {
         return pixel_unshuffle(stretched({1, n, 0, 1 << 20}), 32768 / 2);
       }},
      {"unfold kernel", [](int64_t n) { return unfold(image(), {.kernel = n}); }},
      {"unfold padding", [](int64_t n) { return unfold(image(), {.kernel = 2, .padding = n}); }},
      {"unfold of many channels",
       [](int64_t n) {
         return unfold(stretched({0, n, 500, 500}), {.kernel = 400});
       }},
      {"fold size",
       [](int64_t n) {
         return fold(zeros({1, 4, 4}), {n, n}, {.kernel = 2});
       }},
      {"group_norm groups", [](int64_t n) { return group_norm(image(), n); }},
      {"group_norm of no channels",
       [](int64_t n) {
         return group_norm(zeros({3, 0, 2}), n);
       }},
  };
}

std::vector<Place> places_of_other_ops() {
  const Tensor z = counting({4, 2});
  return {
      {"fft", [=](int64_t n) { return fft(z, {.n = n}); }},
      {"rfft", [](int64_t n) { return rfft(counting({8}), {.n = n}); }},
      {"irfft", [=](int64_t n) { return irfft(z, {.n = n}); }},
      {"stft n_fft", [](int64_t n) { return stft(counting({16}), {.n_fft = n}); }},
      {"stft hop", [](int64_t n) { return stft(counting({16}), {.n_fft = 4, .hop = n}); }},
      {"istft hop",
       [](int64_t n) {
         return istft(counting({3, 5, 2}), {.n_fft = 4, .hop = n});
       }},
      {"istft length",
       [](int64_t n) {
         return istft(counting({3, 5, 2}), {.n_fft = 4}, n);
       }},
      {"hann_window", [](int64_t n) { return hann_window(n); }},
      {"mel_filter_bank frequencies", [](int64_t n) { return mel_filter_bank(n, {}); }},
      {"mel_filter_bank bands", [](int64_t n) { return mel_filter_bank(9, {.bands = n}); }},
      {"kron",
       [](int64_t n) {
         return kron(stretched({n, 1}), stretched({n, 1}));
       }},
      {"kron of nothing",
       [](int64_t n) {
         return kron(stretched({0, n}), stretched({1, n}));
       }},
      {"matmul",
       [](int64_t n) {
         return matmul(stretched({n, 1}), stretched({1, n}));
       }},
      {"matmul of a batch",
       [](int64_t n) {
         return matmul(stretched({n, 1, 1}), stretched({n, 1, 1, 1}));
       }},
      {"polygamma order", [](int64_t n) { return polygamma(n, ones({3})); }},
      {"isclose rtol", [](int64_t n) { return isclose(counting({3}), ones({3}), static_cast<double>(n)); }},
      {"isclose atol",
       [](int64_t n) { return isclose(counting({3}), ones({3}), 0, static_cast<double>(n)); }},
      {"nan_to_num",
       [](int64_t n) {
         const double x = static_cast<double>(n);
         return nan_to_num(counting({3}) / 0, x, x, x);
       }},
      {"cross axis",
       [](int64_t n) {
         return cross(ones({3, 3}), ones({3, 3}), n);
       }},
      {"cdist p",
       [](int64_t n) {
         return cdist(counting({2, 3}), counting({2, 3}), static_cast<double>(n));
       }},
      {"cdist of many",
       [](int64_t n) {
         return cdist(stretched({n, 2}), stretched({n, 2}));
       }},
      {"outer", [](int64_t n) { return outer(stretched({n}), stretched({n})); }},
      {"einsum",
       [](int64_t n) {
         return einsum("i,j->ij", {stretched({n}), stretched({n})});
       }},
  };
}

void expect_sound(const std::vector<Place>& places) {
  for (const Place& place : places)
    for (const int64_t n : kNumbers) {
      SCOPED_TRACE(str(place.name, " = ", n));
      try {
        const Tensor y = place.call(n);
        EXPECT_LT(size_of(y.shape()), Dim{1} << 60);
        if (y.size() <= 1000000) {
          EXPECT_EQ(host_bytes(y).size(), static_cast<size_t>(y.size()) * bytes_of(y.dtype()));
        }
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(": "), std::string::npos) << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "not an Error: " << error.what();
      }
    }
}

TEST(HostileArguments, OfShapeOpsAreRefusedOrRight) { expect_sound(places_of_shape_ops()); }
TEST(HostileArguments, OfIndexOpsAreRefusedOrRight) { expect_sound(places_of_index_ops()); }
TEST(HostileArguments, OfWindowOpsAreRefusedOrRight) { expect_sound(places_of_window_ops()); }
TEST(HostileArguments, OfOtherOpsAreRefusedOrRight) { expect_sound(places_of_other_ops()); }

TEST(HostileArguments, ThatAreTakenHaveRightGradients) {
  // Steps beyond the end reach one element; so do their gradients.
  Tensor x = counting({2, 3}).set_requires_grad();
  for (const int64_t step : {int64_t{3}, int64_t{1} << 62, INT64_MAX}) {
    const Tensor y = slice(x, 1, 1, INT64_MAX, step);
    EXPECT_EQ(y.shape(), Dims({2, 1}));
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>({1, 4}));
    const Tensor inputs[] = {x};
    EXPECT_EQ(grad(sum(y * y), inputs)[0].to_vector<float>(), std::vector<float>({0, 2, 0, 0, 8, 0}));
    Tensor one = counting({2, 1}).set_requires_grad();
    const Tensor wide = slice_into_zeros(one, 1, 2, step, 4);
    EXPECT_EQ(wide.to_vector<float>(), std::vector<float>({0, 0, 0, 0, 0, 0, 1, 0}));
    const Tensor ones_input[] = {one};
    EXPECT_EQ(grad(sum(wide * wide), ones_input)[0].to_vector<float>(), std::vector<float>({0, 2}));
    const Tensor windows = unfold_axis(x, 1, 2, step);
    EXPECT_EQ(windows.shape(), Dims({2, 1, 2}));
    EXPECT_EQ(grad(sum(windows * windows), inputs)[0].to_vector<float>(),
              std::vector<float>({0, 2, 0, 6, 8, 0}));
  }
}

}  // namespace
}  // namespace tandem::testing
