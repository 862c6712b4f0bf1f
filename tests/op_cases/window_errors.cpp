// What the convolutions, pools, interpolation, unfold and fold refuse.
#include "tandem/ops/conv.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/unfold.h"
#include "tests/support/op_case.h"

namespace tandem::testing {

namespace {
Tensor of(const Dims& shape, DType dtype = DType::f32) { return empty(shape, dtype); }
constexpr int64_t kHuge = int64_t{1} << 62;
}  // namespace

void add_window_errors(std::vector<ErrorCase>& errors) {
  const auto refuse = [&](const char* name, std::function<void()> call, std::vector<std::string> texts) {
    errors.push_back({name, std::move(call), std::move(texts)});
  };
  refuse("conv1d/rank", [] { conv1d(of({1, 1, 4, 4}), of({1, 1, 3})); }, {"conv1d: ", "(1, 1, 4, 4)"});
  refuse("conv1d/numbers",
         [] {
           conv1d(of({1, 1, 4}), of({1, 1, 3}), {}, {.stride = {1, 2}});
         },
         {"conv1d: stride", "2 numbers"});
  refuse("conv1d/fits",
         [] {
           conv1d(of({1, 1, 4}), of({1, 1, 3}), {}, {.dilation = 2});
         },
         {"conv1d: ", "(1, 1, 4)", "dilation 2"});
  refuse("conv3d/rank", [] { conv3d(of({1, 1, 4, 4}), of({1, 1, 3, 3})); }, {"conv3d: ", "(1, 1, 4, 4)"});
  refuse("conv3d/kernel",
         [] {
           conv3d(of({1, 1, 4, 4, 4}), of({1, 1, 3, 0, 3}));
         },
         {"conv3d: ", "(1, 1, 3, 0, 3)"});
  refuse("conv2d/dtype",
         [] {
           conv2d(of({1, 1, 4, 4}, DType::i32), of({1, 1, 3, 3}, DType::i32));
         },
         {"conv2d: ", "i32"});
  refuse("conv2d/padding_word",
         [] {
           conv2d(of({1, 1, 4, 4}), of({1, 1, 3, 3}), {}, {.padding = "some"});
         },
         {"padding: ", "some"});
  refuse("conv2d/same_strided",
         [] {
           conv2d(of({1, 1, 4, 4}), of({1, 1, 3, 3}), {}, {.stride = 2, .padding = "same"});
         },
         {"conv2d: ", "same", "stride 2"});
  refuse("conv2d/huge_dilation",
         [] {
           conv2d(of({1, 1, 4, 4}), of({1, 1, 3, 3}), {}, {.dilation = kHuge});
         },
         {"conv2d: ", "dilation"});
  refuse("conv2d/huge_padding",
         [] {
           conv2d(of({1, 1, 4, 4}), of({1, 1, 3, 3}), {}, {.padding = kHuge});
         },
         {"conv2d: ", "padding"});
  refuse("conv2d/huge_groups",
         [] {
           conv2d(of({1, 1, 4, 4}), of({1, 1, 3, 3}), {}, {.groups = kHuge});
         },
         {"conv2d: ", "groups"});
  refuse("conv2d/negative_padding",
         [] {
           conv2d(of({1, 1, 4, 4}), of({1, 1, 3, 3}), {}, {.padding = {1, -1}});
         },
         {"conv2d: ", "padding", "-1"});
  refuse("conv2d/four_numbers",
         [] {
           conv2d(of({1, 1, 4, 4}), of({1, 1, 3, 3}), {}, {.stride = {1, 1, 1, 1}});
         },
         {"three numbers", "4"});
  refuse("conv_transpose2d/channels",
         [] {
           conv_transpose2d(of({1, 3, 4, 4}), of({2, 3, 3, 3}));
         },
         {"conv_transpose2d: ", "(1, 3, 4, 4)", "(2, 3, 3, 3)"});
  refuse("conv_transpose2d/output_padding",
         [] {
           conv_transpose2d(of({1, 2, 4, 4}), of({2, 3, 3, 3}), {}, {.stride = 2, .output_padding = 2});
         },
         {"conv_transpose2d: output_padding", "got 2"});
  refuse("conv_transpose2d/size",
         [] {
           conv_transpose2d(of({1, 2, 1, 1}), of({2, 3, 3, 3}), {}, {.padding = 2});
         },
         {"conv_transpose2d: ", "padding 2"});
  refuse("conv_transpose2d/bias",
         [] {
           conv_transpose2d(of({1, 2, 4, 4}), of({2, 3, 3, 3}), of({2}));
         },
         {"conv_transpose2d: the bias", "(2,)"});
  refuse("conv_transpose1d/rank",
         [] {
           conv_transpose1d(of({2, 4}), of({2, 3, 3}));
         },
         {"conv_transpose1d: ", "(2, 4)"});
  refuse("conv_transpose3d/empty",
         [] {
           conv_transpose3d(of({1, 2, 0, 4, 4}), of({2, 3, 1, 1, 1}));
         },
         {"conv_transpose3d: ", "(1, 2, 0, 4, 4)"});
  refuse("max_pool1d/rank", [] { max_pool1d(of({1, 1, 4, 4})); }, {"max_pool1d: ", "(1, 1, 4, 4)"});
  refuse("max_pool2d/empty_image",
         [] {
           max_pool2d(of({1, 1, 0, 4}), {.padding = 1});
         },
         {"max_pool2d: ", "(1, 1, 0, 4)"});
  refuse("max_pool2d/huge_kernel",
         [] {
           max_pool2d(of({1, 1, 4, 4}), {.kernel = kHuge});
         },
         {"max_pool2d: kernel"});
  refuse("max_pool2d/dilation",
         [] {
           max_pool2d(of({1, 1, 2, 4}), {.kernel = 2, .padding = 1, .dilation = 3});
         },
         {"max_pool2d: dilation", "(1, 1, 2, 4)"});
  refuse("max_pool2d/dtype", [] { max_pool2d(of({1, 1, 4, 4}, DType::i64)); }, {"max_pool2d: ", "i64"});
  refuse("max_pool3d/kernel",
         [] {
           max_pool3d(of({1, 1, 4, 4, 4}), {.kernel = {2, 2}});
         },
         {"max_pool3d: kernel", "2 numbers"});
  refuse("avg_pool2d/padding",
         [] {
           avg_pool2d(of({1, 1, 4, 4}), {.kernel = 2, .padding = 2});
         },
         {"avg_pool2d: ", "padding 2"});
  refuse("avg_pool2d/divisor", [] { avg_pool2d(of({1, 1, 4, 4}), {.divisor = -3}); }, {"avg_pool2d: ", "-3"});
  refuse("avg_pool1d/stride", [] { avg_pool1d(of({1, 1, 4}), {.stride = 0}); }, {"avg_pool1d: ", "stride 0"});
  refuse("adaptive_avg_pool2d/size",
         [] {
           adaptive_avg_pool2d(of({1, 1, 4, 4}), {2, 0});
         },
         {"adaptive_avg_pool2d: ", "0"});
  refuse("adaptive_avg_pool2d/none",
         [] {
           adaptive_avg_pool2d(of({1, 1, 4, 4}), {});
         },
         {"adaptive_avg_pool2d: size", "0 numbers"});
  refuse("adaptive_max_pool1d/rank",
         [] {
           adaptive_max_pool1d(of({4, 4}), 2);
         },
         {"adaptive_max_pool1d: ", "(4, 4)"});
  refuse("interpolate/mode",
         [] {
           interpolate(of({1, 1, 4, 4}), {.size = 8, .mode = "linear"});
         },
         {"interpolate: ", "linear", "rank 4"});
  refuse("interpolate/neither", [] { interpolate(of({1, 1, 4, 4}), {}); }, {"interpolate: ", "neither"});
  refuse("interpolate/both",
         [] {
           interpolate(of({1, 1, 4, 4}), {.size = 8, .scale = {2}});
         },
         {"interpolate: ", "both"});
  refuse("interpolate/scale",
         [] {
           interpolate(of({1, 1, 4, 4}), {.scale = {0.1}});
         },
         {"interpolate: ", "0.1"});
  refuse("interpolate/scale_nan",
         [] {
           interpolate(of({1, 1, 4, 4}), {.scale = {0.0 / 0.0}});
         },
         {"interpolate: "});
  refuse("interpolate/corners",
         [] {
           interpolate(of({1, 1, 4, 4}), {.size = 8, .align_corners = true});
         },
         {"interpolate: align_corners"});
  refuse("interpolate/rank", [] { interpolate(of({4, 4}), {.size = 8}); }, {"interpolate: ", "(4, 4)"});
  refuse("interpolate/size",
         [] {
           interpolate(of({1, 1, 4, 4}), {.size = {4, -1}});
         },
         {"interpolate: ", "-1"});
  refuse("pixel_shuffle/channels",
         [] {
           pixel_shuffle(of({1, 6, 2, 2}), 2);
         },
         {"pixel_shuffle: ", "(1, 6, 2, 2)"});
  refuse("pixel_shuffle/factor", [] { pixel_shuffle(of({1, 4, 2, 2}), 0); }, {"pixel_shuffle: ", "0"});
  refuse("pixel_unshuffle/sizes",
         [] {
           pixel_unshuffle(of({1, 4, 3, 2}), 2);
         },
         {"pixel_unshuffle: ", "(1, 4, 3, 2)"});
  refuse("unfold/kernel", [] { unfold(of({1, 1, 4, 4}), {.kernel = 5}); }, {"unfold: ", "kernel 5"});
  refuse("unfold/rank", [] { unfold(of({4, 4}), {}); }, {"unfold: ", "(4, 4)"});
  refuse("unfold/huge", [] { unfold(of({1, 1, 4, 4}), {.kernel = 2, .stride = kHuge}); }, {"unfold: "});
  refuse("fold/columns", [] { fold(of({1, 8, 5}), {4, 4}, {.kernel = 2}); }, {"fold: ", "9", "(1, 8, 5)"});
  refuse("fold/size", [] { fold(of({1, 8, 9}), {}, {.kernel = 2}); }, {"fold: the size"});
}

}  // namespace tandem::testing
