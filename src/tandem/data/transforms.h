// Transforms: what happens to an image between its file and its batch. Each takes its random numbers from a stream of
// its own of (seed, epoch, sample), so that results depend neither on the number of workers nor on where a run was
// interrupted. Images are u8 or f32 (channels, height, width); see image_ops.h for what each operation means.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tandem/data/compose.h"
#include "tandem/data/image_ops.h"
#include "tandem/data/loader.h"

namespace tandem::data {

struct Transform {
  std::function<Tensor(const Tensor& image, SampleRandom& random)> apply;
  bool random = false;  // whether it draws numbers
};

namespace transforms {

/// One after the other; transform k draws from stream k.
Transform compose(std::vector<Transform> list);

Transform to_float();
Transform normalise(std::vector<float> mean, std::vector<float> deviation);
Transform resize(int64_t height, int64_t width, Interpolation interpolation = Interpolation::bilinear);
Transform resize_short_side(int64_t side, Interpolation interpolation = Interpolation::bilinear);
Transform crop(int64_t top, int64_t left, int64_t height, int64_t width);
Transform center_crop(int64_t height, int64_t width);
Transform pad(image::Padding padding, double fill = 0);
Transform grayscale(int64_t channels = 1);

struct RandomCropOptions {
  int64_t height = 0, width = 0;
  int64_t padding = 0;  // a border on all sides first
  double fill = 0;
};
Transform random_crop(RandomCropOptions options);

struct RandomResizedCropOptions {
  int64_t height = 0, width = 0;
  double min_area = 0.08, max_area = 1;               // of the image
  double min_aspect = 3.0 / 4, max_aspect = 4.0 / 3;  // width by height
  Interpolation interpolation = Interpolation::bilinear;
};
/// A part of random size, place and proportions, resized.
Transform random_resized_crop(RandomResizedCropOptions options);

Transform random_horizontal_flip(double chance = 0.5);
Transform random_vertical_flip(double chance = 0.5);
/// By an angle of -degrees … degrees.
Transform random_rotation(double degrees, Interpolation interpolation = Interpolation::nearest,
                          double fill = 0);

/// Each amount a: a factor of max(0, 1 - a) … 1 + a; hue: a shift of -hue … hue (at most 0.5). In random order.
struct ColorJitterOptions {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
};
Transform color_jitter(ColorJitterOptions options);

struct RandomEraseOptions {
  double chance = 0.5;
  double min_area = 0.02, max_area = 0.33;
  double min_aspect = 0.3, max_aspect = 3.3;
  std::optional<double> value = 0.0;  // unset: noise of the standard normal distribution (f32 images only)
};
Transform random_erase(RandomEraseOptions options);

// On whole batches {images f32 (n, …), labels i64 (n,)}: the labels become f32 (n, classes) that add up to 1. Sample i
// is mixed with sample i-1. Lambda is drawn from Beta(alpha, alpha), once per batch.
/// lambda · x[i] + (1 - lambda) · x[i-1].
BatchTransform mixup(int64_t classes, double alpha = 1);
/// A box of x[i-1] pasted over x[i].
BatchTransform cutmix(int64_t classes, double alpha = 1);

}  // namespace transforms

/// The data set with its images (field `field` of each sample) transformed.
DatasetPtr transform(DatasetPtr base, Transform transform, uint64_t seed = 0, size_t field = 0);

}  // namespace tandem::data
