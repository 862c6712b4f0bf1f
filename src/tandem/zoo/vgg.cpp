// VGG-16.
#include "tandem/zoo/vgg.h"

#include "tandem/nn/init.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {
namespace {

using nn::make;

struct Group {
  int64_t channels;
  int convolutions;
};
constexpr Group kGroups[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
constexpr int64_t kShrink = 32;  // every group halves the size

void initialise(nn::Module& module) {  // as torchvision begins
  if (const auto* conv = dynamic_cast<const nn::Conv2d*>(&module)) {
    nn::init::kaiming_normal_(
        conv->weight, {.mode = nn::init::FanMode::fan_out, .nonlinearity = nn::init::Nonlinearity::relu});
    nn::init::zeros_(conv->bias);
  } else if (const auto* dense = dynamic_cast<const nn::Linear*>(&module)) {
    nn::init::normal_(dense->weight, 0, 0.01);
    nn::init::zeros_(dense->bias);
  }
}

}  // namespace

Vgg16::Vgg16(int64_t height, int64_t width, double dropout, int64_t classes)
    : height_(height), width_(width), features_(this, "features"), classifier_(this, "classifier") {
  TD_CHECK(height >= kShrink && width >= kShrink, "vgg16: height and width must be at least ", kShrink,
           "; got ", height, " and ", width, ".");
  int place = 0;
  int64_t in = 3;
  for (const Group& group : kGroups) {
    for (int i = 0; i < group.convolutions; ++i, place += 2, in = group.channels)
      features_.add(std::to_string(place),
                    make<nn::Conv2d>(in, group.channels, 3, nn::Conv2dLayerOptions{.padding = 1}));
    ++place;  // the pool
  }
  classifier_.add("0", make<nn::Linear>(in * (height / kShrink) * (width / kShrink), 4096))
      .add("2", make<nn::Dropout>(dropout))
      .add("3", make<nn::Linear>(4096, 4096))
      .add("5", make<nn::Dropout>(dropout))
      .add("6", make<nn::Linear>(4096, classes));
  apply(initialise);
}

Tensor Vgg16::forward(const Tensor& x) {
  TD_CHECK(x.rank() == 4 && x.size(2) == height_ && x.size(3) == width_, "vgg16: the input must be (N, 3, ",
           height_, ", ", width_, "); got ", x.shape(), ". Make the model for the size of its images.");
  Tensor h = x;
  int place = 0;
  for (const Group& group : kGroups) {
    for (int i = 0; i < group.convolutions; ++i, place += 2) h = relu(features_[std::to_string(place)](h));
    h = max_pool2d(h);
    ++place;
  }
  h = classifier_["2"](relu(classifier_["0"](flatten(h, 1))));
  h = classifier_["5"](relu(classifier_["3"](h)));
  return classifier_["6"](h);
}

}  // namespace tandem::zoo
