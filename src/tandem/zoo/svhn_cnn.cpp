// The convolutional network for SVHN.
#include "tandem/zoo/svhn_cnn.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {

SvhnCnn::SvhnCnn(double block_dropout, double dense_dropout, int64_t classes) {
  int64_t in = 3;
  for (const int64_t out : {48, 64, 128, 160, 192, 192, 192, 192}) {
    const std::string number = std::to_string(convs_.size() + 1);
    adopt("conv" + number,
          convs_.emplace_back(nn::make<nn::Conv2d>(in, out, 3, nn::Conv2dLayerOptions{.padding = 1})));
    adopt("drop" + number, drops_.emplace_back(nn::make<nn::Dropout>(block_dropout)));
    in = out;
  }
  adopt("fc1", fc1_ = nn::make<nn::Linear>(in * 2 * 2, 512));
  adopt("drop9", drops_.emplace_back(nn::make<nn::Dropout>(dense_dropout)));
  adopt("fc2", fc2_ = nn::make<nn::Linear>(512, classes));
}

Tensor SvhnCnn::forward(const Tensor& x) {
  Tensor h = x;
  for (size_t i = 0; i < convs_.size(); ++i) {
    h = relu((*convs_[i])(h));
    if (i % 2 == 0) {
      h = max_pool2d(h);
    } else {  // keeps the size: of the windows of a padded image, those that begin inside it
      const Dim height = h.size(2), width = h.size(3);
      h = max_pool2d(h, {.kernel = 2, .stride = 1, .padding = 1});
      h = slice(slice(h, 2, 1, height + 1), 3, 1, width + 1);
    }
    h = (*drops_[i])(h);
  }
  return (*fc2_)((*drops_.back())(relu((*fc1_)(flatten(h, 1)))));
}

}  // namespace tandem::zoo
