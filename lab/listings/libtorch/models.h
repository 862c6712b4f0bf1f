// Networks of the lab written by hand for libtorch, with the names that all drivers use for their weights (lab/docs/workloads.md).
#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <memory>
#include <string>
#include <vector>

namespace libtorch_driver {

using torch::Tensor;
namespace nn = torch::nn;

/// What a network is made for. `dropout` false: every probability is 0, for the gate.
struct ListingOptions {
  int64_t classes = 10;
  std::vector<int64_t> input;  // C, H, W of one sample
  bool dropout = true;

  double probability(double p) const { return dropout ? p : 0.0; }
};

/// A network of one input and one output.
struct Listing : nn::Module {
  /// x (N, C, H, W) -> logits (N, classes).
  virtual Tensor forward(Tensor x) = 0;

 protected:
  nn::Conv2d conv(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t padding = 0) {
    return register_module(name, nn::Conv2d(nn::Conv2dOptions(in, out, kernel).padding(padding)));
  }
  nn::Linear dense(const std::string& name, int64_t in, int64_t out) {
    return register_module(name, nn::Linear(in, out));
  }
  nn::Dropout drop(const std::string& name, double p) { return register_module(name, nn::Dropout(p)); }
};

inline Tensor pooled(const Tensor& x) { return torch::max_pool2d(x, 2); }

struct LeNet : Listing {
  explicit LeNet(const ListingOptions& o) : fc3(dense("fc3", 84, o.classes)) {}
  Tensor forward(Tensor x) override {
    x = pooled(torch::relu(conv1(x)));
    x = pooled(torch::relu(conv2(x)));
    x = torch::relu(fc1(torch::flatten(x, 1)));
    return fc3(torch::relu(fc2(x)));
  }
  nn::Conv2d conv1 = conv("conv1", 1, 6, 5, 2), conv2 = conv("conv2", 6, 16, 5);
  nn::Linear fc1 = dense("fc1", 16 * 5 * 5, 120), fc2 = dense("fc2", 120, 84), fc3;
};

struct MnistCnn : Listing {
  explicit MnistCnn(const ListingOptions& o)
      : drop1(drop("drop1", o.probability(0.25))),
        drop2(drop("drop2", o.probability(0.5))),
        fc2(dense("fc2", 128, o.classes)) {}
  Tensor forward(Tensor x) override {
    x = torch::relu(conv2(torch::relu(conv1(x))));
    x = drop1(pooled(x));
    return fc2(drop2(torch::relu(fc1(torch::flatten(x, 1)))));
  }
  nn::Conv2d conv1 = conv("conv1", 1, 32, 3), conv2 = conv("conv2", 32, 64, 3);
  nn::Dropout drop1;
  nn::Linear fc1 = dense("fc1", 64 * 12 * 12, 128);
  nn::Dropout drop2;
  nn::Linear fc2;
};

/// Pairs of 3×3 convolutions that keep the size, each pair with a pool and dropout; then two dense layers with dropout
/// between. cifar10_cnn and cifar100_cnn differ in numbers alone.
struct CifarCnn : Listing {
  CifarCnn(const ListingOptions& o, const std::vector<int64_t>& channels, const std::vector<double>& dropout,
           int64_t units) {
    int64_t in = 3;
    for (const int64_t out : channels) {
      const std::string first = "conv" + std::to_string(convs.size() + 1);
      convs.push_back(conv(first, in, out, 3, 1));
      const std::string second = "conv" + std::to_string(convs.size() + 1);
      convs.push_back(conv(second, out, out, 3, 1));
      in = out;
    }
    for (const double p : dropout)
      drops.push_back(drop("drop" + std::to_string(drops.size() + 1), o.probability(p)));
    const int64_t side = 32 >> channels.size();
    fc1 = dense("fc1", in * side * side, units);
    fc2 = dense("fc2", units, o.classes);
  }
  Tensor forward(Tensor x) override {
    for (size_t i = 0; i < convs.size(); i += 2)
      x = drops[i / 2](pooled(torch::relu(convs[i + 1](torch::relu(convs[i](x))))));
    return fc2(drops.back()(torch::relu(fc1(torch::flatten(x, 1)))));
  }
  std::vector<nn::Conv2d> convs;
  std::vector<nn::Dropout> drops;
  nn::Linear fc1{nullptr}, fc2{nullptr};
};

struct Cifar10Cnn : CifarCnn {
  explicit Cifar10Cnn(const ListingOptions& o) : CifarCnn(o, {32, 64}, {0.25, 0.25, 0.5}, 512) {}
};
struct Cifar100Cnn : CifarCnn {
  explicit Cifar100Cnn(const ListingOptions& o) : CifarCnn(o, {128, 256, 512}, {0.1, 0.25, 0.5, 0.5}, 1024) {}
};

struct SvhnCnn : Listing {
  explicit SvhnCnn(const ListingOptions& o) {
    int64_t in = 3;
    for (const int64_t out : {48, 64, 128, 160, 192, 192, 192, 192}) {
      const std::string number = std::to_string(convs.size() + 1);
      convs.push_back(conv("conv" + number, in, out, 3, 1));
      drops.push_back(drop("drop" + number, o.probability(0.2)));
      in = out;
    }
    fc1 = dense("fc1", in * 2 * 2, 512);
    drops.push_back(drop("drop9", o.probability(0.5)));
    fc2 = dense("fc2", 512, o.classes);
  }
  Tensor forward(Tensor x) override {
    for (size_t i = 0; i < convs.size(); ++i) {
      x = torch::relu(convs[i](x));
      if (i % 2 == 0) {
        x = pooled(x);
      } else {  // stride 1 keeps the size: of the windows of a padded image, those that begin inside it
        x = torch::max_pool2d(x, 2, /*stride=*/1, /*padding=*/1);
        x = x.slice(2, 1).slice(3, 1);
      }
      x = drops[i](x);
    }
    return fc2(drops.back()(torch::relu(fc1(torch::flatten(x, 1)))));
  }
  std::vector<nn::Conv2d> convs;
  std::vector<nn::Dropout> drops;
  nn::Linear fc1{nullptr}, fc2{nullptr};
};

inline nn::Conv2d plain_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
}

struct BasicBlock : nn::Module {
  BasicBlock(int64_t in, int64_t out, int64_t stride)
      : conv1(register_module("conv1", plain_conv(in, out, 3, stride, 1))),
        bn1(register_module("bn1", nn::BatchNorm2d(out))),
        conv2(register_module("conv2", plain_conv(out, out, 3, 1, 1))),
        bn2(register_module("bn2", nn::BatchNorm2d(out))) {
    if (stride != 1 || in != out)
      downsample = register_module("downsample",
                                   nn::Sequential(plain_conv(in, out, 1, stride, 0), nn::BatchNorm2d(out)));
  }
  Tensor forward(Tensor x) {
    const Tensor kept = downsample ? downsample->forward(x) : x;
    x = torch::relu(bn1(conv1(x)));
    return torch::relu(bn2(conv2(x)) + kept);
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Sequential downsample{nullptr};
};

struct ResNet18 : Listing {
  explicit ResNet18(const ListingOptions& o) : fc(dense("fc", 512, o.classes)) {}
  Tensor forward(Tensor x) override {
    x = torch::max_pool2d(torch::relu(bn1(conv1(x))), 3, 2, 1);
    x = layer4->forward(layer3->forward(layer2->forward(layer1->forward(x))));
    return fc(torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1));
  }
  nn::Sequential stage(const std::string& name, int64_t in, int64_t out, int64_t stride) {
    return register_module(name, nn::Sequential(std::make_shared<BasicBlock>(in, out, stride),
                                                std::make_shared<BasicBlock>(out, out, 1)));
  }
  nn::Conv2d conv1 = register_module("conv1", plain_conv(3, 64, 7, 2, 3));
  nn::BatchNorm2d bn1 = register_module("bn1", nn::BatchNorm2d(64));
  nn::Sequential layer1 = stage("layer1", 64, 64, 1), layer2 = stage("layer2", 64, 128, 2),
                 layer3 = stage("layer3", 128, 256, 2), layer4 = stage("layer4", 256, 512, 2);
  nn::Linear fc;
};

struct Vgg16 : Listing {
  explicit Vgg16(const ListingOptions& o) {
    struct Group {
      int64_t channels;
      int convolutions;
    };
    int64_t in = 3;
    for (const Group group : {Group{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}) {
      for (int i = 0; i < group.convolutions; ++i, in = group.channels) {
        features->push_back(nn::Conv2d(nn::Conv2dOptions(in, group.channels, 3).padding(1)));
        features->push_back(nn::ReLU(nn::ReLUOptions(/*inplace=*/true)));
      }
      features->push_back(nn::MaxPool2d(2));
    }
    const nn::ReLU relu(nn::ReLUOptions(/*inplace=*/true));
    classifier = nn::Sequential(nn::Linear(in * (o.input[1] / 32) * (o.input[2] / 32), 4096), relu,
                                nn::Dropout(o.probability(0.5)), nn::Linear(4096, 4096), relu,
                                nn::Dropout(o.probability(0.5)), nn::Linear(4096, o.classes));
    register_module("features", features);
    register_module("classifier", classifier);
  }
  Tensor forward(Tensor x) override { return classifier->forward(torch::flatten(features->forward(x), 1)); }
  nn::Sequential features, classifier;
};

inline const std::vector<std::string>& listing_names() {
  static const std::vector<std::string> names = {"lenet",    "mnist_cnn", "cifar10_cnn", "cifar100_cnn",
                                                 "svhn_cnn", "resnet18",  "vgg16"};
  return names;
}

/// The network by its workload's name, one of listing_names().
inline std::shared_ptr<Listing> make_listing(const std::string& name, const ListingOptions& o) {
  if (name == "lenet") return std::make_shared<LeNet>(o);
  if (name == "mnist_cnn") return std::make_shared<MnistCnn>(o);
  if (name == "cifar10_cnn") return std::make_shared<Cifar10Cnn>(o);
  if (name == "cifar100_cnn") return std::make_shared<Cifar100Cnn>(o);
  if (name == "svhn_cnn") return std::make_shared<SvhnCnn>(o);
  if (name == "resnet18") return std::make_shared<ResNet18>(o);
  return std::make_shared<Vgg16>(o);
}

}  // namespace libtorch_driver
