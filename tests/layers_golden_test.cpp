// Every layer against PyTorch's (golden/layers.py): names, shapes and order of its state, its output, the gradients of
// its input and its parameters, and what it starts with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/nn/activation.h"
#include "tandem/nn/attention.h"
#include "tandem/nn/conv.h"
#include "tandem/nn/dropout.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/pad.h"
#include "tandem/nn/pool.h"
#include "tandem/nn/recurrent.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"

namespace tandem::testing {
namespace {

struct NamedLayer {
  std::string name;
  nn::ModulePtr (*make)();
};

// A macro, so that a row's name cannot be another class's than the one that it makes.
#define LAYER(suffix, type, ...) \
  NamedLayer { \
#type suffix, []() -> nn::ModulePtr { return nn::make<nn::type>(__VA_ARGS__); } \
  }

/// The rows of LAYERS in golden/layers.py.
const std::vector<NamedLayer>& layers() {
  using namespace nn;
  static const std::vector<NamedLayer> rows = {
      LAYER("", Linear, 5, 4),
      LAYER(".no_bias", Linear, 5, 4, LinearOptions{.bias = false}),

      LAYER("", Conv1d, 3, 4, 3),
      LAYER(".all", Conv1d, 4, 6, 3,
            ConvLayerOptions{.stride = 2, .padding = 2, .dilation = 2, .groups = 2, .bias = false}),
      LAYER(".same", Conv1d, 3, 4, 4, ConvLayerOptions{.padding = "same"}),
      LAYER("", Conv2d, 3, 4, 3),
      LAYER(".all", Conv2d, 4, 6, PerAxis{3, 2},
            ConvLayerOptions{
                .stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2, .bias = false}),
      LAYER(".depthwise", Conv2d, 3, 6, 3, ConvLayerOptions{.padding = "same", .groups = 3}),
      LAYER("", Conv3d, 2, 3, 2),
      LAYER(
          ".all", Conv3d, 4, 2, PerAxis{1, 2, 3},
          ConvLayerOptions{
              .stride = {1, 2, 1}, .padding = {0, 1, 2}, .dilation = {1, 1, 2}, .groups = 2, .bias = false}),

      LAYER("", ConvTranspose1d, 3, 4, 3),
      LAYER(".all", ConvTranspose1d, 4, 6, 3,
            ConvTransposeLayerOptions{
                .stride = 3, .padding = 1, .output_padding = 2, .dilation = 2, .groups = 2, .bias = false}),
      LAYER("", ConvTranspose2d, 3, 2, 3),
      LAYER(".all", ConvTranspose2d, 4, 2, PerAxis{3, 2},
            ConvTransposeLayerOptions{.stride = {2, 3},
                                      .padding = {1, 0},
                                      .output_padding = {1, 2},
                                      .dilation = {2, 1},
                                      .groups = 2}),
      LAYER("", ConvTranspose3d, 2, 3, 2),
      LAYER(".all", ConvTranspose3d, 2, 4, PerAxis{1, 2, 3},
            ConvTransposeLayerOptions{.stride = {1, 2, 2},
                                      .padding = {0, 1, 1},
                                      .output_padding = {0, 1, 0},
                                      .groups = 2,
                                      .bias = false}),

      LAYER("", MaxPool1d),
      LAYER(".all", MaxPool1d,
            MaxPoolOptions{.kernel = 3, .stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true}),
      LAYER("", MaxPool2d),
      LAYER(
          ".all", MaxPool2d,
          MaxPoolOptions{
              .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .ceil_mode = true}),
      LAYER("", MaxPool3d),
      LAYER(
          ".all", MaxPool3d,
          MaxPoolOptions{.kernel = {1, 2, 3}, .stride = {1, 2, 2}, .padding = {0, 1, 1}, .ceil_mode = true}),
      LAYER("", AvgPool1d),
      LAYER(".all", AvgPool1d,
            AvgPoolOptions{
                .kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false}),
      LAYER("", AvgPool2d),
      LAYER(".all", AvgPool2d,
            AvgPoolOptions{.kernel = {3, 2},
                           .stride = {2, 1},
                           .padding = {1, 1},
                           .ceil_mode = true,
                           .count_include_pad = false}),
      LAYER(".divisor", AvgPool2d, AvgPoolOptions{.kernel = 3, .stride = 2, .padding = 1, .divisor = 5}),
      LAYER("", AvgPool3d),
      LAYER(".all", AvgPool3d,
            AvgPoolOptions{.kernel = {1, 2, 3},
                           .stride = {1, 2, 2},
                           .padding = {0, 1, 1},
                           .ceil_mode = true,
                           .count_include_pad = false}),
      LAYER("", AdaptiveAvgPool1d, 3),
      LAYER("", AdaptiveAvgPool2d, 3),
      LAYER(".sizes", AdaptiveAvgPool2d, PerAxis{1, 6}),
      LAYER("", AdaptiveAvgPool3d, 2),
      LAYER(".sizes", AdaptiveAvgPool3d, PerAxis{2, 1, 3}),
      LAYER("", AdaptiveMaxPool1d, 3),
      LAYER("", AdaptiveMaxPool2d, 3),
      LAYER(".sizes", AdaptiveMaxPool2d, PerAxis{1, 6}),
      LAYER("", AdaptiveMaxPool3d, 2),
      LAYER(".sizes", AdaptiveMaxPool3d, PerAxis{2, 1, 3}),
      LAYER("", Upsample, InterpolateOptions{.scale = {2}}),
      LAYER(".size", Upsample, InterpolateOptions{.size = {5, 3}, .mode = "nearest-exact"}),
      LAYER(".linear", Upsample, InterpolateOptions{.size = 7, .mode = "linear"}),
      LAYER(".bilinear", Upsample,
            InterpolateOptions{.scale = {1.5, 2}, .mode = "bilinear", .align_corners = true}),
      LAYER(".bicubic", Upsample, InterpolateOptions{.size = {6, 5}, .mode = "bicubic"}),
      LAYER(".trilinear", Upsample, InterpolateOptions{.scale = {2}, .mode = "trilinear"}),

      LAYER("", Embedding, 6, 4),
      LAYER(".padding", Embedding, 6, 4, EmbeddingLayerOptions{.padding_idx = 2}),
      LAYER("", EmbeddingBag, 6, 4),
      LAYER(".sum", EmbeddingBag, 6, 4, EmbeddingBagOptions{.mode = BagMode::sum, .padding_idx = 2}),
      LAYER(".max", EmbeddingBag, 6, 4, EmbeddingBagOptions{.mode = BagMode::max}),
      LAYER(".max_padding", EmbeddingBag, 3, 4, EmbeddingBagOptions{.mode = BagMode::max, .padding_idx = -3}),
      LAYER(".mean_padding", EmbeddingBag, 3, 4, EmbeddingBagOptions{.padding_idx = 0}),

      LAYER("", LSTM, 4, 3),
      LAYER(".all", LSTM, 4, 3, LSTMOptions{.layers = 2, .bidirectional = true, .bias = false}),
      LAYER("", GRU, 4, 3),
      LAYER("", RNN, 4, 3),
      LAYER("", MultiheadAttention, 6, 2),
      LAYER(".no_bias", MultiheadAttention, 6, 3, MultiheadAttentionOptions{.bias = false}),

      LAYER("", ZeroPad1d, 1),
      LAYER(".sides", ZeroPad1d, (std::vector<int64_t>{2, 1})),
      LAYER("", ZeroPad2d, 1),
      LAYER(".sides", ZeroPad2d, (std::vector<int64_t>{2, 1, 0, 3})),
      LAYER("", ZeroPad3d, 1),
      LAYER(".sides", ZeroPad3d, (std::vector<int64_t>{1, 2, 0, 1, 2, 1})),
      LAYER("", ReflectionPad1d, 1),
      LAYER(".sides", ReflectionPad1d, (std::vector<int64_t>{2, 1})),
      LAYER("", ReflectionPad2d, 1),
      LAYER(".sides", ReflectionPad2d, (std::vector<int64_t>{2, 1, 0, 3})),
      LAYER("", ReflectionPad3d, 1),
      LAYER(".sides", ReflectionPad3d, (std::vector<int64_t>{1, 2, 0, 1, 2, 1})),
      LAYER("", ReplicationPad1d, 1),
      LAYER(".sides", ReplicationPad1d, (std::vector<int64_t>{2, 1})),
      LAYER("", ReplicationPad2d, 1),
      LAYER(".sides", ReplicationPad2d, (std::vector<int64_t>{2, 1, 0, 3})),
      LAYER("", ReplicationPad3d, 1),
      LAYER(".sides", ReplicationPad3d, (std::vector<int64_t>{1, 2, 0, 1, 2, 1})),
      LAYER("", CircularPad1d, 1),
      LAYER(".sides", CircularPad1d, (std::vector<int64_t>{2, 1})),
      LAYER("", CircularPad2d, 1),
      LAYER(".sides", CircularPad2d, (std::vector<int64_t>{2, 1, 0, 3})),
      LAYER("", CircularPad3d, 1),
      LAYER(".sides", CircularPad3d, (std::vector<int64_t>{1, 2, 0, 1, 2, 1})),
      LAYER("", ConstantPad1d, 1, 0.75),
      LAYER(".cut", ConstantPad1d, (std::vector<int64_t>{-1, 1}), -1.5),
      LAYER("", ConstantPad2d, 1, 0.75),
      LAYER(".cut", ConstantPad2d, (std::vector<int64_t>{-1, 1, 0, 3}), -1.5),
      LAYER("", ConstantPad3d, 1, 0.75),
      LAYER(".cut", ConstantPad3d, (std::vector<int64_t>{-1, 2, 0, 1, 2, 1}), -1.5),

      LAYER("", ReLU),
      LAYER("", GELU),
      LAYER("", Sigmoid),
      LAYER("", Tanh),
      LAYER("", SELU),
      LAYER("", SiLU),
      LAYER("", Hardswish),
      LAYER("", Mish),
      LAYER("", LeakyReLU),
      LAYER(".slope", LeakyReLU, 0.3),
      LAYER("", ELU),
      LAYER(".alpha", ELU, 0.4),
      LAYER("", Softplus),
      LAYER(".all", Softplus, 2.0, 1.5),
      LAYER("", Hardtanh),
      LAYER(".range", Hardtanh, -0.5, 1.5),
      LAYER("", PReLU),
      LAYER(".channels", PReLU, 4, 0.1),
      LAYER("", Identity),
      LAYER("", Softmax),
      LAYER(".axis", Softmax, 1),
      LAYER("", LogSoftmax),
      LAYER(".axis", LogSoftmax, 0),
      LAYER("", Flatten),
      LAYER(".axes", Flatten, 0, -3),
      LAYER("", Unflatten, 1, Dims{2, 3}),
      LAYER(".inferred", Unflatten, -1, Dims{2, -1, 2}),
      LAYER("", Dropout, 0.5),
      LAYER("", Dropout1d, 0.5),
      LAYER("", Dropout2d, 0.5),
      LAYER("", Dropout3d, 0.5),
      LAYER("", AlphaDropout, 0.5),

      LAYER("", LayerNorm, Dims{4, 5}),
      LAYER(".no_bias", LayerNorm, Dims{5}, LayerNormOptions{.eps = 0.1, .bias = false}),
      LAYER(".plain", LayerNorm, Dims{5}, LayerNormOptions{.affine = false}),
      LAYER("", RMSNorm, Dims{5}),
      LAYER(".all", RMSNorm, Dims{4, 5}, RmsNormOptions{.eps = 0.1, .affine = false}),
      LAYER("", GroupNorm, 2, 6),
      LAYER(".all", GroupNorm, 3, 6, GroupNormOptions{.eps = 0.1, .affine = false}),
      LAYER("", BatchNorm1d, 4),
      LAYER(".all", BatchNorm1d, 4, BatchNormLayerOptions{.eps = 0.1, .momentum = 0.3, .affine = false}),
      LAYER("", BatchNorm2d, 3),
      LAYER(".untracked", BatchNorm2d, 3, BatchNormLayerOptions{.eps = 0.1, .track_running_stats = false}),
      LAYER("", BatchNorm3d, 2),
      LAYER(".all", BatchNorm3d, 2, BatchNormLayerOptions{.eps = 0.1, .affine = false}),
      LAYER("", InstanceNorm1d, 3),
      LAYER(".all", InstanceNorm1d, 3, InstanceNormOptions{.eps = 0.1, .affine = true}),
      LAYER("", InstanceNorm2d, 3),
      LAYER(".all", InstanceNorm2d, 3, InstanceNormOptions{.eps = 0.1, .affine = true}),
      LAYER("", InstanceNorm3d, 3),
      LAYER(".all", InstanceNorm3d, 3, InstanceNormOptions{.eps = 0.1, .affine = true}),
  };
  return rows;
}

/// The rows of INITIAL in golden/layers.py.
const std::vector<NamedLayer>& large_layers() {
  using namespace nn;
  static const std::vector<NamedLayer> rows = {
      LAYER("", Linear, 300, 2000),
      LAYER("", Conv1d, 40, 2000, 3, ConvLayerOptions{.groups = 2}),
      LAYER("", Conv2d, 8, 2000, PerAxis{3, 5}),
      LAYER("", Conv3d, 8, 2000, PerAxis{1, 2, 3}),
      LAYER("", ConvTranspose1d, 40, 2000, 3, ConvTransposeLayerOptions{.groups = 2}),
      LAYER("", ConvTranspose2d, 8, 2000, PerAxis{3, 5}),
      LAYER("", ConvTranspose3d, 8, 2000, PerAxis{1, 2, 3}),
      LAYER("", Embedding, 2000, 100),
      LAYER("", PReLU),
      LAYER(".channels", PReLU, 4, 0.1),
      LAYER("", LayerNorm, Dims{4, 5}),
      LAYER("", RMSNorm, Dims{5}),
      LAYER("", GroupNorm, 2, 6),
      LAYER("", BatchNorm1d, 4),
      LAYER("", BatchNorm2d, 4),
      LAYER("", BatchNorm3d, 4),
      LAYER("", InstanceNorm1d, 4, InstanceNormOptions{.affine = true}),
      LAYER("", InstanceNorm2d, 4, InstanceNormOptions{.affine = true}),
      LAYER("", InstanceNorm3d, 4, InstanceNormOptions{.affine = true}),
      LAYER("", EmbeddingBag, 2000, 100),
      LAYER("", LSTM, 80, 300, LSTMOptions{.bidirectional = true}),
      LAYER("", GRU, 80, 300),
      LAYER("", RNN, 80, 300),
      LAYER("", MultiheadAttention, 200, 4),
  };
  return rows;
}
#undef LAYER

/// Of a gradient: its sum weighted by hash values, and its norm.
struct Measure {
  std::string name;
  double sum = 0, norm = 0;
};

struct GoldenLayer {
  std::string name, mode, kind;
  Dims input;
  double low = 0, high = 0;
  std::vector<std::pair<std::string, Dims>> state;
  Array output;
  std::vector<Measure> gradients;
};

/// What a state tensor starts with: its smallest and largest value and the quantiles between.
struct GoldenInitial {
  std::string layer, key, kind;
  Dims shape;
  std::vector<double> quantiles;
};

struct Golden {
  std::vector<GoldenLayer> layers;
  std::vector<GoldenInitial> initial;
};

Golden read_golden() {
  Golden golden;
  for (const std::string& line : golden_lines("layers.txt")) {
    std::istringstream in(line);
    std::string word, shape;
    in >> word;
    if (word == "layer") {
      GoldenLayer& row = golden.layers.emplace_back();
      in >> row.name >> row.mode >> shape >> row.low >> row.high >> row.kind;
      row.input = parse_shape(shape);
    } else if (word == "state") {
      std::string name;
      in >> name >> shape;
      golden.layers.back().state.emplace_back(name, parse_shape(shape));
    } else if (word == "output") {
      golden.layers.back().output = read_array(in);
    } else if (word == "gradient") {
      Measure& gradient = golden.layers.back().gradients.emplace_back();
      in >> gradient.name >> gradient.sum >> gradient.norm;
    } else {
      GoldenInitial& row = golden.initial.emplace_back();
      in >> row.layer >> row.key >> row.kind >> shape;
      row.shape = parse_shape(shape);
      for (double quantile; in >> quantile;) row.quantiles.push_back(quantile);
      continue;  // read to its end
    }
    EXPECT_FALSE(in.fail()) << line;
  }
  return golden;
}

void check_layer(const GoldenLayer& golden, nn::Module& layer, DType dtype) {
  SCOPED_TRACE(str(golden.name, " in ", dtype));
  layer.to(dtype);
  layer.train(golden.mode == "train");
  set_weights(layer);
  std::vector<std::pair<std::string, Dims>> state;
  for (const auto& [name, tensor] : layer.state()) state.emplace_back(name, tensor.shape());
  EXPECT_EQ(state, golden.state);

  const bool real = golden.kind == "real";
  Tensor x = to_tensor(hash_array(golden.input, 900, golden.low, golden.high), real ? dtype : DType::i64);
  if (real) x.set_requires_grad();
  const Tensor y = layer(x);
  EXPECT_EQ(y.dtype(), dtype);
  const double tolerance = dtype == DType::f64 ? 1e-9 : 5e-6;
  EXPECT_TRUE(near(to_array(y), golden.output, tolerance));

  nn::NamedTensors leaves = layer.named_parameters();
  if (real) leaves.insert(leaves.begin(), {"input", x});
  ASSERT_EQ(leaves.size(), golden.gradients.size());
  sum(y * y * to_tensor(hash_array(y.shape(), 77), dtype)).backward();
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto& [name, leaf] = leaves[i];
    const Measure& want = golden.gradients[i];
    EXPECT_EQ(name, want.name);
    ASSERT_TRUE(leaf.grad().defined()) << name;
    const Array gradient = to_array(leaf.grad()), weights = hash_array(leaf.shape(), 78);
    ASSERT_EQ(gradient.shape, weights.shape) << name;
    double weighted = 0, squares = 0;
    for (int64_t k = 0; k < gradient.size(); ++k)
      weighted += gradient[k] * weights[k], squares += gradient[k] * gradient[k];
    EXPECT_NEAR(weighted, want.sum, 5 * tolerance * (1 + want.norm)) << name;
    EXPECT_NEAR(std::sqrt(squares), want.norm, 5 * tolerance * (1 + want.norm)) << name;
  }
}

TEST(GoldenLayers, HaveTheStateTheOutputAndTheGradientsOfPyTorch) {
  const Golden golden = read_golden();
  ASSERT_EQ(golden.layers.size(), layers().size());
  for (size_t i = 0; i < layers().size(); ++i) {
    ASSERT_EQ(golden.layers[i].name, layers()[i].name) << "rows must be in the order of layers.py";
    for (const DType dtype : {DType::f64, DType::f32})
      check_layer(golden.layers[i], *layers()[i].make(), dtype);
  }
}

/// The value below which the share q of the sorted values lies, between two of them by a line.
double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

TEST(GoldenLayers, StartWithValuesOfPyTorchsDistributions) {
  const std::vector<double> shares = {0, 0.1, 0.25, 0.5, 0.75, 0.9, 1};
  const Golden golden = read_golden();
  manual_seed(1);
  size_t at = 0;
  double fan_in = 0;
  for (const NamedLayer& row : large_layers())
    for (const auto& [key, tensor] : row.make()->state()) {
      ASSERT_LT(at, golden.initial.size());
      const GoldenInitial& want = golden.initial[at++];
      ASSERT_EQ(row.name + " " + key, want.layer + " " + want.key);
      SCOPED_TRACE(row.name + " " + key);
      ASSERT_EQ(tensor.shape(), want.shape);
      ASSERT_EQ(want.quantiles.size(), shares.size());
      std::vector<double> values = to_array(tensor).values;
      std::sort(values.begin(), values.end());
      const double half = (want.quantiles.back() - want.quantiles.front()) / 2;
      for (size_t i = 0; i < shares.size(); ++i) {
        const bool end = i == 0 || i + 1 == shares.size();
        // The ends of a uniform distribution are met closely, those of a normal one are not; a quantile of n draws is
        // off by about deviation / √n, and PyTorch's own is a draw too.
        double tolerance = 1e-9;
        if (want.kind == "uniform")
          tolerance = half * (end ? 0.01 : 4 / std::sqrt(static_cast<double>(values.size())));
        if (want.kind == "normal") tolerance = end ? 1.5 : 8 / std::sqrt(static_cast<double>(values.size()));
        EXPECT_NEAR(quantile(values, shares[i]), want.quantiles[i], tolerance) << "share " << shares[i];
      }
      if (want.kind != "uniform") continue;
      // Never outside 1 / √fan_in, the fan of the weight being counted from its second size on; the bias has the same. Of
      // a recurrent layer the fan is its hidden size, of the projections into attention that of xavier_uniform, (in + out) / 6.
      if (key.ends_with("weight")) fan_in = static_cast<double>(tensor.size() / tensor.size(0));
      if (row.name == "LSTM" || row.name == "GRU" || row.name == "RNN") fan_in = 300;
      if (key == "in_proj_weight") fan_in = (200 + 600) / 6.0;
      EXPECT_LE(std::max(-values.front(), values.back()), (1 + 1e-6) / std::sqrt(fan_in));
      EXPECT_NEAR(half, 1 / std::sqrt(fan_in), 0.01 * half);
    }
  EXPECT_EQ(at, golden.initial.size());
}

/// The classes of the headers of tandem/nn that can be used as layers: those that come from Module by one or more
/// steps, and the names given to instances of templates of such. Left out are containers, losses, and classes that are
/// there for others to come from.
std::set<std::string> layer_classes() {
  std::map<std::string, std::string> base_of;  // class -> base
  std::set<std::string> bases, templates;
  for (const auto& file : std::filesystem::directory_iterator(source_dir() / "src" / "tandem" / "nn")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    std::string text;
    for (std::string line; std::getline(in, line);) text += line.substr(0, line.find("//")) + '\n';
    static const std::regex kClass(
        R"((template\s*<[^;{]*>\s*)?\b(?:class|struct)\s+(\w+)(?:\s+final)?\s*:\s*(?:public\s+)?(?:nn::)?(\w+))");
    static const std::regex kAlias(R"(\busing\s+(\w+)\s*=\s*(\w+)\s*<)");
    for (std::sregex_iterator match(text.begin(), text.end(), kClass), end; match != end; ++match) {
      base_of[(*match)[2]] = (*match)[3];
      bases.insert((*match)[3]);
      if ((*match)[1].matched) templates.insert((*match)[2]);
    }
    for (std::sregex_iterator match(text.begin(), text.end(), kAlias), end; match != end; ++match)
      base_of[(*match)[1]] = (*match)[2];
  }
  std::set<std::string> found;
  for (const auto& [name, base] : base_of) {
    std::set<std::string> ancestors;
    for (std::string at = name; base_of.contains(at) && ancestors.insert(base_of[at]).second;)
      at = base_of[at];
    if (ancestors.contains("Module") && !ancestors.contains("Container") && !bases.contains(name) &&
        !templates.contains(name) && !name.ends_with("Loss") &&
        !name.ends_with("Cell") &&    // equal to the layers step by step: recurrent_cells_test.cpp
        name != "LocationAttention")  // takes several tensors: attention_test.cpp
      found.insert(name);
  }
  return found;
}

std::string class_of(const std::string& row) { return row.substr(0, row.find('.')); }

TEST(GoldenLayers, ThereIsARowForEveryLayerClass) {
  std::set<std::string> rows, with_state, started;
  for (const GoldenLayer& row : read_golden().layers) {
    rows.insert(class_of(row.name));
    if (!row.state.empty()) with_state.insert(class_of(row.name));
  }
  for (const NamedLayer& row : large_layers()) started.insert(class_of(row.name));
  const std::set<std::string> classes = layer_classes();
  EXPECT_GE(classes.size(), 50u);
  for (const std::string& name : classes)
    EXPECT_TRUE(rows.contains(name)) << name << " must have a row in golden/layers.py and in layers() above";
  for (const std::string& name : rows)
    EXPECT_TRUE(classes.contains(name)) << name << " is no class of tandem/nn";
  EXPECT_EQ(with_state, started) << "layers with state must have a row of initial values";
}

}  // namespace
}  // namespace tandem::testing
