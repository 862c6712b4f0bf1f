// AlexNet.
#include "tandem/zoo/alexnet.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {
namespace {

using nn::Conv2dLayerOptions;
using nn::make;

constexpr int64_t kGrid = 6, kLeast = 63;
const Pool2dOptions kPool = {.kernel = 3, .stride = 2};

}  // namespace

AlexNet::AlexNet(double dropout, int64_t classes)
    : features_(this, "features",
                {{"0", make<nn::Conv2d>(3, 64, 11, Conv2dLayerOptions{.stride = 4, .padding = 2})},
                 {"3", make<nn::Conv2d>(64, 192, 5, Conv2dLayerOptions{.padding = 2})},
                 {"6", make<nn::Conv2d>(192, 384, 3, Conv2dLayerOptions{.padding = 1})},
                 {"8", make<nn::Conv2d>(384, 256, 3, Conv2dLayerOptions{.padding = 1})},
                 {"10", make<nn::Conv2d>(256, 256, 3, Conv2dLayerOptions{.padding = 1})}}),
      classifier_(this, "classifier",
                  {{"0", make<nn::Dropout>(dropout)},
                   {"1", make<nn::Linear>(256 * kGrid * kGrid, 4096)},
                   {"3", make<nn::Dropout>(dropout)},
                   {"4", make<nn::Linear>(4096, 4096)},
                   {"6", make<nn::Linear>(4096, classes)}}) {}

Tensor AlexNet::forward(const Tensor& x) {
  TD_CHECK(x.rank() == 4 && x.size(2) >= kLeast && x.size(3) >= kLeast,
           "alexnet: the input must be (N, 3, H, W) with H and W at least ", kLeast, "; got ", x.shape(),
           ".");
  Tensor h = max_pool2d(relu(features_["0"](x)), kPool);
  h = max_pool2d(relu(features_["3"](h)), kPool);
  h = relu(features_["8"](relu(features_["6"](h))));
  h = adaptive_avg_pool2d(max_pool2d(relu(features_["10"](h)), kPool), kGrid);
  h = relu(classifier_["1"](classifier_["0"](flatten(h, 1))));
  h = relu(classifier_["4"](classifier_["3"](h)));
  return classifier_["6"](h);
}

}  // namespace tandem::zoo
