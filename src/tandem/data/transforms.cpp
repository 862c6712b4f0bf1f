// Transforms.
#include "tandem/data/transforms.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tandem::data {

namespace transforms {

namespace {

template <class F>
Transform fixed(F function) {
  return {[function = std::move(function)](const Tensor& image, SampleRandom&) { return function(image); },
          false};
}

template <class F>
Transform drawn(F function) {
  return {std::move(function), true};
}

void check_side(const char* what, int64_t height, int64_t width) {
  TD_CHECK(height >= 1 && width >= 1, what, ": the size must be at least 1 by 1; got ", height, " by ", width,
           ".");
}

void check_chance(const char* what, double chance) {
  TD_CHECK(chance >= 0 && chance <= 1, what, ": the chance must be 0 to 1; got ", chance, ".");
}

void check_ranges(const char* what, double min_area, double max_area, double min_aspect, double max_aspect) {
  TD_CHECK(min_area > 0 && min_area <= max_area && max_area <= 1, what,
           ": must have 0 < min_area <= max_area <= 1; got ", min_area, " and ", max_area, ".");
  TD_CHECK(min_aspect > 0 && min_aspect <= max_aspect && std::isfinite(max_aspect), what,
           ": must have 0 < min_aspect <= max_aspect; got ", min_aspect, " and ", max_aspect, ".");
}

struct Box {
  int64_t top, left, height, width;
};

/// A box of random area and proportions that fits, or nothing after ten tries.
std::optional<Box> random_box(SampleRandom& random, int64_t height, int64_t width, double min_area,
                              double max_area, double min_aspect, double max_aspect) {
  const auto pixels = static_cast<double>(height * width);
  // Even in the logarithm: 1:2 is as likely as 2:1.
  const double low = std::log(min_aspect), high = std::log(max_aspect);
  for (int tries = 0; tries < 10; ++tries) {
    const double area = pixels * random.between(min_area, max_area),
                 aspect = std::exp(random.between(low, high));
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(area * aspect)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(area / aspect)));
    if (w >= 1 && h >= 1 && w <= width && h <= height) {
      const int64_t top = random.below(height - h + 1), left = random.below(width - w + 1);
      return Box{top, left, h, w};
    }
  }
  return std::nullopt;
}

}  // namespace

Transform compose(std::vector<Transform> list) {
  for (const Transform& step : list)
    TD_CHECK(step.apply, "compose: every transform must be one; got an empty one.");
  const bool random =
      std::any_of(list.begin(), list.end(), [](const Transform& step) { return step.random; });
  return {[list = std::move(list)](const Tensor& image, SampleRandom& draws) {
            Tensor made = image;
            for (size_t k = 0; k < list.size(); ++k) {
              // Each step has numbers of its own: how many one draws does not change the next.
              SampleRandom own = draws.stream(k);
              made = list[k].apply(made, own);
            }
            return made;
          },
          random};
}

Transform to_float() {
  return fixed([](const Tensor& image) { return image::to_float(image); });
}

Transform normalise(std::vector<float> mean, std::vector<float> deviation) {
  return fixed([mean = std::move(mean), deviation = std::move(deviation)](const Tensor& image) {
    return image::normalise(image, mean, deviation);
  });
}

Transform resize(int64_t height, int64_t width, Interpolation interpolation) {
  check_side("resize", height, width);
  return fixed([=](const Tensor& image) { return image::resize(image, height, width, interpolation); });
}

Transform resize_short_side(int64_t side, Interpolation interpolation) {
  check_side("resize_short_side", side, side);
  return fixed([=](const Tensor& image) { return image::resize_short_side(image, side, interpolation); });
}

Transform crop(int64_t top, int64_t left, int64_t height, int64_t width) {
  check_side("crop", height, width);
  return fixed([=](const Tensor& image) { return image::crop(image, top, left, height, width); });
}

Transform center_crop(int64_t height, int64_t width) {
  check_side("center_crop", height, width);
  return fixed([=](const Tensor& image) { return image::center_crop(image, height, width); });
}

Transform pad(image::Padding padding, double fill) {
  return fixed([=](const Tensor& image) { return image::pad(image, padding, fill); });
}

Transform grayscale(int64_t channels) {
  TD_CHECK(channels == 1 || channels == 3, "grayscale: must be to 1 or 3 channels; got ", channels, ".");
  return fixed([=](const Tensor& image) { return image::grayscale(image, channels); });
}

Transform random_crop(RandomCropOptions options) {
  check_side("random_crop", options.height, options.width);
  TD_CHECK(options.padding >= 0, "random_crop: the padding must be at least 0; got ", options.padding, ".");
  return drawn([=](const Tensor& image, SampleRandom& random) {
    const int64_t p = options.padding;
    const Tensor in = p > 0 ? image::pad(image, {p, p, p, p}, options.fill) : image;
    TD_CHECK(in.defined() && in.rank() == 3 && in.size(1) >= options.height && in.size(2) >= options.width,
             "random_crop: the image must be at least ", options.height, " by ", options.width, "; got ",
             in.defined() ? tandem::describe(in) : "nothing", ". Resize or pad it first.");
    const int64_t top = random.below(in.size(1) - options.height + 1),
                  left = random.below(in.size(2) - options.width + 1);
    return image::crop(in, top, left, options.height, options.width);
  });
}

Transform random_resized_crop(RandomResizedCropOptions options) {
  check_side("random_resized_crop", options.height, options.width);
  check_ranges("random_resized_crop", options.min_area, options.max_area, options.min_aspect,
               options.max_aspect);
  return drawn([=](const Tensor& image, SampleRandom& random) {
    TD_CHECK(image.defined() && image.rank() == 3,
             "random_resized_crop: must be (channels, height, width); got ",
             image.defined() ? tandem::describe(image) : "nothing", ".");
    const int64_t height = image.size(1), width = image.size(2);
    std::optional<Box> box = random_box(random, height, width, options.min_area, options.max_area,
                                        options.min_aspect, options.max_aspect);
    if (!box) {  // the middle, as large as the proportions allow
      const double aspect = static_cast<double>(width) / static_cast<double>(std::max<int64_t>(height, 1));
      int64_t h = height, w = width;
      if (aspect < options.min_aspect)
        h = static_cast<int64_t>(std::nearbyint(static_cast<double>(w) / options.min_aspect));
      else if (aspect > options.max_aspect)
        w = static_cast<int64_t>(std::nearbyint(static_cast<double>(h) * options.max_aspect));
      h = std::clamp<int64_t>(h, 1, std::max<int64_t>(height, 1));
      w = std::clamp<int64_t>(w, 1, std::max<int64_t>(width, 1));
      box = Box{(height - h) / 2, (width - w) / 2, h, w};
    }
    return image::resize(image::crop(image, box->top, box->left, box->height, box->width), options.height,
                         options.width, options.interpolation);
  });
}

Transform random_horizontal_flip(double chance) {
  check_chance("random_horizontal_flip", chance);
  return drawn([=](const Tensor& image, SampleRandom& random) {
    return random.chance(chance) ? image::flip_horizontal(image) : image;
  });
}

Transform random_vertical_flip(double chance) {
  check_chance("random_vertical_flip", chance);
  return drawn([=](const Tensor& image, SampleRandom& random) {
    return random.chance(chance) ? image::flip_vertical(image) : image;
  });
}

Transform random_rotation(double degrees, Interpolation interpolation, double fill) {
  TD_CHECK(std::isfinite(degrees) && degrees >= 0, "random_rotation: the degrees must be at least 0; got ",
           degrees, ".");
  return drawn([=](const Tensor& image, SampleRandom& random) {
    return image::rotate(image, random.between(-degrees, degrees), interpolation, fill);
  });
}

Transform color_jitter(ColorJitterOptions options) {
  for (double amount : {options.brightness, options.contrast, options.saturation, options.hue})
    TD_CHECK(std::isfinite(amount) && amount >= 0, "color_jitter: an amount must be at least 0; got ", amount,
             ".");
  TD_CHECK(options.hue <= 0.5, "color_jitter: the hue must be at most 0.5; got ", options.hue, ".");
  return drawn([=](const Tensor& image, SampleRandom& random) {
    const auto factor = [&](double amount) { return random.between(std::max(0.0, 1 - amount), 1 + amount); };
    // All numbers are drawn first, so that leaving a part out does not change the others.
    const double brightness = factor(options.brightness), contrast = factor(options.contrast),
                 saturation = factor(options.saturation), hue = random.between(-options.hue, options.hue);
    int order[4] = {0, 1, 2, 3};
    for (int i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    Tensor made = image;
    for (int part : order) {
      if (part == 0 && options.brightness > 0) made = image::adjust_brightness(made, brightness);
      if (part == 1 && options.contrast > 0) made = image::adjust_contrast(made, contrast);
      if (part == 2 && options.saturation > 0) made = image::adjust_saturation(made, saturation);
      if (part == 3 && options.hue > 0) made = image::adjust_hue(made, hue);
    }
    return made;
  });
}

Transform random_erase(RandomEraseOptions options) {
  check_chance("random_erase", options.chance);
  check_ranges("random_erase", options.min_area, options.max_area, options.min_aspect, options.max_aspect);
  return drawn([=](const Tensor& image, SampleRandom& random) -> Tensor {
    TD_CHECK(image.defined() && image.rank() == 3 &&
                 (image.dtype() == DType::f32 || (image.dtype() == DType::u8 && options.value)),
             "random_erase: must be f32 (channels, height, width), or u8 with a value; got ",
             image.defined() ? tandem::describe(image) : "nothing", ".");
    if (!random.chance(options.chance)) return image;
    const int64_t height = image.size(1), width = image.size(2);
    const std::optional<Box> box = random_box(random, height, width, options.min_area, options.max_area,
                                              options.min_aspect, options.max_aspect);
    if (!box) return image;
    Tensor made = from_host(host_bytes(image).data(), image.shape(), image.dtype());
    for (int64_t c = 0; c < image.size(0); ++c)
      for (int64_t y = box->top; y < box->top + box->height; ++y)
        for (int64_t x = box->left; x < box->left + box->width; ++x) {
          const int64_t at = (c * height + y) * width + x;
          if (made.dtype() == DType::u8)
            made.data<uint8_t>()[at] = static_cast<uint8_t>(std::clamp(*options.value, 0.0, 255.0));
          else
            made.data<float>()[at] = static_cast<float>(options.value ? *options.value : random.normal());
        }
    return made;
  });
}

namespace {

struct MixParts {
  Tensor images, labels;
  int64_t count;
};

MixParts check_mix(const char* what, const std::vector<Tensor>& batch, int64_t classes) {
  TD_CHECK(batch.size() == 2 && batch[0].dtype() == DType::f32 && batch[0].rank() >= 2 &&
               batch[0].is_contiguous() && batch[1].dtype() == DType::i64 && batch[1].rank() == 1 &&
               batch[0].size(0) == batch[1].size(0),
           what, ": a batch must be images f32 (n, …) and labels i64 (n,); got ", batch.size(), " fields",
           batch.empty() ? std::string() : " beginning with " + tandem::describe(batch[0]), ".");
  for (int64_t label : batch[1].to_vector<int64_t>())
    TD_CHECK(label >= 0 && label < classes, what, ": labels must be 0 to ", classes - 1, "; got ", label,
             ".");
  return {batch[0], batch[1], batch[0].size(0)};
}

/// Sample i is mixed with the one before it, the first with the last. Both labels may be one class.
Tensor mixed_labels(const MixParts& parts, int64_t classes, float lambda) {
  Tensor mixed = empty({parts.count, classes}, DType::f32);
  float* out = mixed.data<float>();
  std::fill_n(out, parts.count * classes, 0.0f);
  const int64_t* labels = parts.labels.data<int64_t>();
  for (int64_t i = 0; i < parts.count; ++i) {
    out[i * classes + labels[i]] += lambda;
    out[i * classes + labels[(i + parts.count - 1) % parts.count]] += 1.0f - lambda;
  }
  return mixed;
}

void check_mix_options(const char* what, int64_t classes, double alpha) {
  TD_CHECK(classes >= 1, what, ": there must be at least one class; got ", classes, ".");
  TD_CHECK(std::isfinite(alpha) && alpha > 0, what, ": alpha must be above 0; got ", alpha, ".");
}

}  // namespace

BatchTransform mixup(int64_t classes, double alpha) {
  check_mix_options("mixup", classes, alpha);
  return [=](std::vector<Tensor> batch, SampleRandom& random) -> std::vector<Tensor> {
    const MixParts parts = check_mix("mixup", batch, classes);
    const auto lambda = static_cast<float>(random.symmetric_beta(alpha));
    Tensor mixed = empty(parts.images.shape(), DType::f32);
    const int64_t size = parts.count == 0 ? 0 : parts.images.size() / parts.count;
    const float* from = parts.images.data<float>();
    for (int64_t i = 0; i < parts.count; ++i) {
      const float *own = from + i * size, *other = from + (i + parts.count - 1) % parts.count * size;
      float* to = mixed.data<float>() + i * size;
      for (int64_t k = 0; k < size; ++k) to[k] = lambda * own[k] + (1.0f - lambda) * other[k];
    }
    return {mixed, mixed_labels(parts, classes, lambda)};
  };
}

BatchTransform cutmix(int64_t classes, double alpha) {
  check_mix_options("cutmix", classes, alpha);
  return [=](std::vector<Tensor> batch, SampleRandom& random) -> std::vector<Tensor> {
    const MixParts parts = check_mix("cutmix", batch, classes);
    TD_CHECK(parts.images.rank() == 4, "cutmix: images must be (n, channels, height, width); got ",
             parts.images.shape(), ".");
    const int64_t height = parts.images.size(2), width = parts.images.size(3), planes = parts.images.size(1);
    const double lambda = random.symmetric_beta(alpha);
    const int64_t x = random.below(std::max<int64_t>(width, 1)),
                  y = random.below(std::max<int64_t>(height, 1));
    const double half = 0.5 * std::sqrt(1 - lambda);
    const auto half_w = static_cast<int64_t>(half * static_cast<double>(width)),
               half_h = static_cast<int64_t>(half * static_cast<double>(height));
    const int64_t x0 = std::max<int64_t>(x - half_w, 0), x1 = std::min(x + half_w, width),
                  y0 = std::max<int64_t>(y - half_h, 0), y1 = std::min(y + half_h, height);
    Tensor mixed = from_host(host_bytes(parts.images).data(), parts.images.shape(), DType::f32);
    for (int64_t i = 0; i < parts.count; ++i)
      for (int64_t c = 0; c < planes; ++c)
        for (int64_t row = y0; row < y1; ++row) {
          const int64_t other = (i + parts.count - 1) % parts.count;
          std::copy_n(parts.images.data<float>() + ((other * planes + c) * height + row) * width + x0,
                      x1 - x0, mixed.data<float>() + ((i * planes + c) * height + row) * width + x0);
        }
    // The box is cut at the edges of the image, so that the labels go by what was really pasted, not by lambda.
    const double area = static_cast<double>((x1 - x0) * (y1 - y0)),
                 whole = static_cast<double>(std::max<int64_t>(height * width, 1));
    return {mixed, mixed_labels(parts, classes, static_cast<float>(1 - area / whole))};
  };
}

}  // namespace transforms

DatasetPtr transform(DatasetPtr base, Transform transform, uint64_t seed, size_t field) {
  TD_CHECK(transform.apply, "transform: needs a transform; got an empty one.");
  const auto run = [field, apply = transform.apply](Sample sample, SampleRandom& random) {
    TD_CHECK(field < sample.size(), "transform: the sample must have a field ", field, "; it has ",
             sample.size(), ".");
    sample[field] = apply(sample[field], random);
    return sample;
  };
  if (transform.random) return map_random(std::move(base), run, seed);
  return map(std::move(base), [run](Sample sample) {
    SampleRandom none(0, 0, 0);
    return run(std::move(sample), none);
  });
}

}  // namespace tandem::data
