#include "tandem/zoo/zoo_descriptions.h"

namespace tandem::zoo {
namespace {

using Layers = std::vector<LayerDescription>;

LayerDescription layer(const std::string& type, const std::string& name,
                       std::vector<std::pair<std::string, Setting>> settings = {}) {
  return {.type = type, .name = name, .settings = std::move(settings)};
}
LayerDescription relu() { return {.type = "relu"}; }
LayerDescription flatten() { return {.type = "flatten"}; }
LayerDescription max_pool() { return {.type = "max_pool"}; }  // 2×2
LayerDescription conv(const std::string& name, int64_t channels, int64_t kernel, int64_t padding = 0) {
  LayerDescription out = layer("conv", name, {{"channels", channels}, {"kernel", kernel}});
  if (padding != 0) out.settings.emplace_back("padding", padding);
  return out;
}
LayerDescription linear(const std::string& name, int64_t outputs) {
  return layer("linear", name, {{"outputs", outputs}});
}
LayerDescription dropout(double p, const std::string& name = "") {
  return layer("dropout", name, {{"p", p}});
}

/// Pairs of 3×3 convolutions with a pool and dropout after each, and two dense layers.
Layers cifar_layers(const std::vector<std::pair<int64_t, double>>& pairs, int64_t units, int64_t classes) {
  Layers out;
  int number = 0;
  for (const auto& [channels, p] : pairs) {
    for (int i = 0; i < 2; ++i) {
      out.push_back(conv("conv" + std::to_string(++number), channels, 3, 1));
      out.push_back(relu());
    }
    out.push_back(max_pool());
    out.push_back(dropout(p));
  }
  for (const LayerDescription& last :
       {flatten(), linear("fc1", units), relu(), dropout(0.5), linear("fc2", classes)})
    out.push_back(last);
  return out;
}

/// Names every layer of a list by its place, as torchvision's lists do: "features.0".
Layers numbered(const std::string& list, Layers layers) {
  for (size_t i = 0; i < layers.size(); ++i) layers[i].name = list + "." + std::to_string(i);
  return layers;
}

LayerDescription resnet_conv(const std::string& name, int64_t channels, int64_t kernel, int64_t stride) {
  LayerDescription out = conv(name, channels, kernel, kernel / 2);
  if (stride != 1) out.settings.emplace_back("stride", stride);
  out.settings.emplace_back("bias", false);
  out.settings.emplace_back("init", "kaiming_normal_fan_out");
  return out;
}
LayerDescription batch_norm(const std::string& name) { return layer("batch_norm", name); }

}  // namespace

ModelDescription lenet_description() {
  return {"lenet",
          {1, 28, 28},
          {conv("conv1", 6, 5, 2), relu(), max_pool(), conv("conv2", 16, 5), relu(), max_pool(), flatten(),
           linear("fc1", 120), relu(), linear("fc2", 84), relu(), linear("fc3", 10)}};
}

ModelDescription mlp_description() {
  return {"mlp",
          {1, 28, 28},
          {flatten(), linear("fc1", 256), relu(), linear("fc2", 128), relu(), linear("fc3", 10)}};
}

ModelDescription mnist_cnn_description() {
  return {"mnist_cnn",
          {1, 28, 28},
          {conv("conv1", 32, 3), relu(), conv("conv2", 64, 3), relu(), max_pool(), dropout(0.25), flatten(),
           linear("fc1", 128), relu(), dropout(0.5), linear("fc2", 10)}};
}

ModelDescription cifar10_cnn_description() {
  return {"cifar10_cnn", {3, 32, 32}, cifar_layers({{32, 0.25}, {64, 0.25}}, 512, 10)};
}
ModelDescription cifar100_cnn_description() {
  return {"cifar100_cnn", {3, 32, 32}, cifar_layers({{128, 0.1}, {256, 0.25}, {512, 0.5}}, 1024, 100)};
}

ModelDescription svhn_cnn_description() {
  const LayerDescription keep = layer("max_pool", "", {{"kernel", 2}, {"stride", 1}, {"padding", "same"}});
  Layers layers;
  int number = 0;
  for (const int64_t channels : {48, 64, 128, 160, 192, 192, 192, 192}) {
    layers.push_back(conv("conv" + std::to_string(++number), channels, 3, 1));
    layers.push_back(relu());
    layers.push_back(number % 2 == 1 ? max_pool() : keep);
    layers.push_back(dropout(0.2));
  }
  for (const LayerDescription& last :
       {flatten(), linear("fc1", 512), relu(), dropout(0.5), linear("fc2", 10)})
    layers.push_back(last);
  return {"svhn_cnn", {3, 32, 32}, layers};
}

ModelDescription alexnet_description() {
  const LayerDescription pool = layer("max_pool", "", {{"kernel", 3}, {"stride", 2}});
  LayerDescription first = conv("", 64, 11, 2);
  first.settings.emplace_back("stride", 4);
  Layers layers =
      numbered("features", {first, relu(), pool, conv("", 192, 5, 2), relu(), pool, conv("", 384, 3, 1),
                            relu(), conv("", 256, 3, 1), relu(), conv("", 256, 3, 1), relu(), pool});
  layers.push_back(layer("adaptive_avg_pool", "avgpool", {{"size", 6}}));
  layers.push_back(layer("flatten", "flatten"));
  for (const LayerDescription& dense :
       numbered("classifier", {dropout(0.5), linear("", 4096), relu(), dropout(0.5), linear("", 4096), relu(),
                               linear("", 1000)}))
    layers.push_back(dense);
  return {"alexnet", {3, 224, 224}, layers};
}

ModelDescription resnet18_description() {
  Layers layers = {resnet_conv("conv1", 64, 7, 2), batch_norm("bn1"), layer("relu", "relu"),
                   layer("max_pool", "maxpool", {{"kernel", 3}, {"stride", 2}, {"padding", 1}})};
  int64_t channels = 64;
  for (int stage = 1; stage <= 4; ++stage, channels *= 2) {
    for (int block = 0; block < 2; ++block) {
      const std::string name = "layer" + std::to_string(stage) + "." + std::to_string(block);
      const int64_t stride = stage > 1 && block == 0 ? 2 : 1;
      LayerDescription residual = layer("residual", name);
      residual.layers = {resnet_conv("conv1", channels, 3, stride), batch_norm("bn1"), relu(),
                         resnet_conv("conv2", channels, 3, 1), batch_norm("bn2")};
      if (stride != 1)
        residual.shortcut = {resnet_conv("downsample.0", channels, 1, stride), batch_norm("downsample.1")};
      layers.push_back(residual);
      layers.push_back(layer("relu", name + ".relu"));
    }
  }
  layers.push_back(layer("global_avg_pool", "avgpool"));
  layers.push_back(linear("fc", 10));
  return {"resnet18", {3, 32, 32}, layers};
}

ModelDescription vgg16_description() {
  Layers features;
  const std::pair<int64_t, int> groups[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
  for (const auto& [channels, convolutions] : groups) {
    for (int i = 0; i < convolutions; ++i) {
      features.push_back(conv("", channels, 3, 1));
      features.back().settings.emplace_back("init", "kaiming_normal_fan_out");
      features.push_back(relu());
    }
    features.push_back(max_pool());
  }
  const auto dense = [](int64_t outputs) {
    LayerDescription out = linear("", outputs);
    out.settings.emplace_back("init", "normal");
    out.settings.emplace_back("init_std", 0.01);
    return out;
  };
  Layers layers = numbered("features", features);
  layers.push_back(layer("flatten", "flatten"));
  for (const LayerDescription& last : numbered(
           "classifier", {dense(4096), relu(), dropout(0.5), dense(4096), relu(), dropout(0.5), dense(1000)}))
    layers.push_back(last);
  return {"vgg16", {3, 224, 224}, layers};
}

}  // namespace tandem::zoo
