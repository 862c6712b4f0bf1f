#include "tandem/zoo/layer_types.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/core/file.h"
#include "tandem/core/nearest.h"
#include "tandem/nn/activation.h"
#include "tandem/nn/attention.h"
#include "tandem/nn/dropout.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/pool.h"
#include "tandem/nn/recurrent.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem::zoo {
namespace {

using nn::make;
using nn::ModulePtr;

constexpr double kMostSize = 1 << 24;    // of channels, outputs, rows
constexpr double kMostWindow = 1 << 16;  // of kernels, strides, paddings
constexpr double kMostNumber = 1e9;

// --- the settings of a layer

const Setting* find(const LayerDescription& layer, const char* name) {
  for (const auto& [key, value] : layer.settings)
    if (key == name) return &value;
  return nullptr;
}
/// Of a setting that is there: it must be given or has a default.
template <class T>
T get(const LayerDescription& layer, const char* name) {
  const Setting* value = find(layer, name);
  TD_ASSERT(value, "a layer that is made has all its settings");
  return std::get<T>(*value);
}
int64_t count(const LayerDescription& layer, const char* name) { return get<int64_t>(layer, name); }
bool truth_of(const LayerDescription& layer, const char* name) { return get<bool>(layer, name); }
double number_of(const LayerDescription& layer, const char* name) { return get<double>(layer, name); }
std::string word_of(const LayerDescription& layer, const char* name) {
  const Setting* value = find(layer, name);
  return value ? std::get<std::string>(*value) : "";
}

/// P is PerAxis or Padding.
template <class P>
P axes_of(const Setting& value) {
  if (const auto* every = std::get_if<int64_t>(&value)) return P(*every);
  const auto& list = std::get<std::vector<int64_t>>(value);
  if (list.size() == 1) return P({list[0]});
  return list.size() == 2 ? P({list[0], list[1]}) : P({list[0], list[1], list[2]});
}
PerAxis per_axis(const LayerDescription& layer, const char* name) {
  return axes_of<PerAxis>(*find(layer, name));
}
bool is_same(const LayerDescription& layer) {
  const Setting* value = find(layer, "padding");
  return value && std::holds_alternative<std::string>(*value);
}
Padding padding(const LayerDescription& layer) {
  if (is_same(layer)) return Padding("same");
  return axes_of<Padding>(*find(layer, "padding"));
}

/// Calls f.template operator()<axes>() for a sample (channels, …) of one to three spatial axes.
template <class F>
ModulePtr by_axes(const Dims& in, F&& f) {
  if (in.rank() == 2) return f.template operator()<1>();
  return in.rank() == 3 ? f.template operator()<2>() : f.template operator()<3>();
}
template <int kAxes, class One, class Two, class Three>
using Chosen = std::conditional_t<kAxes == 1, One, std::conditional_t<kAxes == 2, Two, Three>>;

// --- layers that nn has no class for

/// The mean over all spatial axes: (N, C, …) -> (N, C).
class GlobalAvgPool : public nn::Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override {
    Dims axes;
    for (int axis = 2; axis < x.rank(); ++axis) axes.push_back(axis);
    return mean(x, axes);
  }
};

/// A max pool of stride 1 that keeps the size. Of an even kernel, each window begins at its place and reaches one further
/// to the end than to the beginning, as in TensorFlow.
template <int kAxes>
class SameMaxPool : public nn::Module {
 public:
  SameMaxPool(Module* parent, const std::string& name, const PerAxis& kernel)
      : Module(parent, name), kernel_(kernel.over(kAxes, "max_pool", "kernel", 1)) {}
  std::string type_name() const override { return str("SameMaxPool", kAxes, "d"); }
  Tensor forward(const Tensor& x) override {
    constexpr auto pool = kAxes == 1 ? &max_pool1d : kAxes == 2 ? &max_pool2d : &max_pool3d;
    const auto over = [&](auto value) {
      if constexpr (kAxes == 1) return PerAxis(value(kernel_[2]));
      if constexpr (kAxes == 2) return PerAxis({value(kernel_[1]), value(kernel_[2])});
      if constexpr (kAxes == 3) return PerAxis({value(kernel_[0]), value(kernel_[1]), value(kernel_[2])});
    };
    Tensor h = pool(x, {.kernel = over([](int64_t k) { return k; }),
                        .stride = 1,
                        .padding = over([](int64_t k) { return k / 2; })});
    for (int axis = 2; axis < x.rank();
         ++axis)  // of the windows of a padded image, those that begin inside it
      if (kernel_[axis + 1 - kAxes] % 2 == 0) h = slice(h, axis, 1, x.size(axis) + 1);
    return h;
  }

 private:
  Axes3 kernel_;
};

/// Softmax over the last axis.
class LastSoftmax : public nn::Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return softmax(x, -1); }
};

class LastLogSoftmax : public nn::Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return log_softmax(x, -1); }
};

class Exp : public nn::Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return exp(x); }
};

class Erf : public nn::Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) override { return erf(x); }
};

/// x (…, in) times a weight (in, out): the product that Linear has with its weight transposed.
class Matmul : public nn::Module {
 public:
  Matmul(Module* parent, const std::string& name, int64_t in, int64_t out)
      : Module(parent, name), weight_(parameter("weight", nn::uniform_by_fan_in({in, out}, in))) {}
  Tensor forward(const Tensor& x) override { return matmul(x, weight_); }

 private:
  const Tensor weight_;
};

/// f of two or more tensors of one shape, from the first to the last.
template <Tensor (*f)(const Tensor&, const Tensor&)>
class Joined : public nn::Module {
 public:
  using Module::forward;
  using Module::Module;
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    std::vector<Tensor> out(1, in.at(0));
    for (size_t i = 1; i < in.size(); ++i) {
      TD_CHECK(in[i].shape() == out[0].shape(), "the values must have one shape; got ", out[0].shape(),
               " and ", in[i].shape(), ".");
      out[0] = f(out[0], in[i]);
    }
    return out;
  }
};
Tensor added(const Tensor& a, const Tensor& b) { return a + b; }
Tensor multiplied(const Tensor& a, const Tensor& b) { return a * b; }
using Sum = Joined<added>;
using Product = Joined<multiplied>;

class Concat : public nn::Module {
 public:
  Concat(Module* parent, const std::string& name, int64_t axis) : Module(parent, name), axis_(axis) {}
  using Module::forward;
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override { return {concat(in, axis_ + 1)}; }

 private:
  int64_t axis_;  // of a sample, as in the classes below
};

class Transpose : public nn::Module {
 public:
  Transpose(Module* parent, const std::string& name, int64_t first, int64_t second)
      : Module(parent, name), first_(first), second_(second) {}
  Tensor forward(const Tensor& x) override { return transpose(x, first_ + 1, second_ + 1); }

 private:
  int64_t first_, second_;
};

/// Which of the first axis' places of samples (N, length, …) are true, as ones of rank `rank`.
Tensor true_places(const Tensor& lengths, int64_t length, int rank, DType dtype) {
  TD_CHECK(is_integer(lengths.dtype()) && lengths.rank() == 1,
           "lengths must be whole numbers, one per sample; got ", describe(lengths), ".");
  Dims shape = {lengths.size(0), length};
  const Tensor mask = less(unsqueeze(arange(length, DType::i64, lengths.device()), 0), unsqueeze(lengths, 1));
  for (int axis = 2; axis < rank; ++axis) shape.push_back(1);
  return cast(reshape(mask, shape), dtype);
}

/// The mean over an axis; with lengths over the true places of the first.
class Mean : public nn::Module {
 public:
  Mean(Module* parent, const std::string& name, int64_t axis) : Module(parent, name), axis_(axis) {}
  Tensor forward(const Tensor& x) override { return mean(x, {axis_ + 1}); }
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    if (in.size() == 1) return {forward(in[0])};
    TD_CHECK(axis_ == 0, "mean: lengths belong to the first axis of a sample; got axis ", axis_, ".");
    const Tensor &x = in[0], &lengths = in[1];
    const Tensor places = true_places(lengths, x.size(1), x.rank(), DType::boolean);
    Dims divisor = {lengths.size(0)};
    for (int axis = 2; axis < x.rank(); ++axis) divisor.push_back(1);
    return {sum(where(places, x, zeros_like(x)), {1}) / reshape(cast(lengths, x.dtype()), divisor)};
  }

 private:
  int64_t axis_;
};

class SumOver : public nn::Module {
 public:
  SumOver(Module* parent, const std::string& name, int64_t axis) : Module(parent, name), axis_(axis) {}
  Tensor forward(const Tensor& x) override { return sum(x, {axis_ + 1}); }

 private:
  int64_t axis_;
};

/// x, then the lengths where there are some, then the states where they are carried; gives them back behind the output.
class LstmLayer : public nn::LSTM {
 public:
  LstmLayer(Module* parent, const std::string& name, int64_t features, int64_t hidden,
            const nn::LSTMOptions& options, bool last, bool carry)
      : LSTM(parent, name, features, hidden, options), options_(options), last_(last), carry_(carry) {}
  using LSTM::forward;
  std::string type_name() const override { return "LSTM"; }
  Tensor forward(const Tensor& x) override { return only(forward(std::vector<Tensor>{x})); }
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    nn::LSTMInputs inputs;
    const size_t states = carry_ ? 2 : 0;
    TD_CHECK(in.size() == 1 + states || in.size() == 2 + states, "lstm: takes a sequence",
             carry_ ? ", two states" : "", " and lengths; got ", in.size(), " tensors.");
    if (carry_) inputs.h = in[in.size() - 2], inputs.c = in.back();
    if (in.size() == 2 + states) inputs.lengths = in[1];
    const nn::LSTMResult result = LSTM::forward(in[0], inputs);
    std::vector<Tensor> out = {last_ ? last_of(result.h) : result.output};
    if (carry_) out.insert(out.end(), {result.h, result.c});
    return out;
  }

 private:
  /// h of the last layer: (N, hidden · directions).
  Tensor last_of(const Tensor& h) const {
    const int64_t rows = h.size(0);
    if (!options_.bidirectional) return select(h, 0, rows - 1);
    return concat({select(h, 0, rows - 2), select(h, 0, rows - 1)}, 1);
  }
  nn::LSTMOptions options_;
  bool last_, carry_;
};

/// One tensor is query, key and value, three are each; lengths of the keys may come behind them.
class AttentionLayer : public nn::MultiheadAttention {
 public:
  AttentionLayer(Module* parent, const std::string& name, int64_t width, int64_t heads,
                 const nn::MultiheadAttentionOptions& options, bool causal)
      : MultiheadAttention(parent, name, width, heads, options), causal_(causal) {}
  using MultiheadAttention::forward;
  std::string type_name() const override { return "MultiheadAttention"; }
  Tensor forward(const Tensor& x) override { return only(forward(std::vector<Tensor>{x})); }
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    AttentionOptions options;
    options.causal = causal_;
    const bool has_lengths = is_integer(in.back().dtype());
    if (has_lengths) options.lengths = in.back();
    const size_t count = in.size() - (has_lengths ? 1 : 0);
    TD_CHECK(count == 1 || count == 3,
             "attention: takes one sequence or three (query, key and value), and lengths; got ", count,
             " sequences.");
    return {MultiheadAttention::forward(in[0], in[count == 1 ? 0 : 1], in[count == 1 ? 0 : 2], options)};
  }

 private:
  bool causal_;
};

// --- how each is made

ModulePtr make_lstm(const LayerDescription& l, const Dims& in) {
  const nn::LSTMOptions options{.layers = count(l, "layers"),
                                .bidirectional = truth_of(l, "bidirectional"),
                                .bias = truth_of(l, "bias")};
  TD_CHECK(!(options.bidirectional && truth_of(l, "carry")),
           "lstm: states are carried forwards alone; got carry with bidirectional. Leave one out.");
  return make<LstmLayer>(in[1], count(l, "hidden"), options, word_of(l, "output") == "last",
                         truth_of(l, "carry"));
}

ModulePtr make_attention(const LayerDescription& l, const Dims& in) {
  return make<AttentionLayer>(in[1], count(l, "heads"), nn::MultiheadAttentionOptions{truth_of(l, "bias")},
                              truth_of(l, "causal"));
}

ModulePtr make_concat(const LayerDescription& l, const Dims& in) {
  TD_CHECK(count(l, "axis") < in.rank(), "concat: axis must be one of the sample's; got ", count(l, "axis"),
           " of ", in, ". The batch is not counted.");
  return make<Concat>(count(l, "axis"));
}

ModulePtr make_transpose(const LayerDescription& l, const Dims& in) {
  const int64_t first = count(l, "first"), second = count(l, "second");
  TD_CHECK(first < in.rank() && second < in.rank() && first != second,
           "transpose: first and second must be two axes of a sample; got ", first, " and ", second, " of ",
           in, ". The batch is not counted.");
  return make<Transpose>(first, second);
}

/// Layer is Mean or SumOver.
template <class Layer>
ModulePtr make_over_axis(const LayerDescription& l, const Dims& in) {
  TD_CHECK(count(l, "axis") < in.rank(), l.type, ": axis must be one of the sample's; got ", count(l, "axis"),
           " of ", in, ". The batch is not counted.");
  return make<Layer>(count(l, "axis"));
}

ModulePtr make_conv(const LayerDescription& l, const Dims& in) {
  const nn::ConvLayerOptions options{.stride = per_axis(l, "stride"),
                                     .padding = padding(l),
                                     .dilation = per_axis(l, "dilation"),
                                     .groups = count(l, "groups"),
                                     .bias = truth_of(l, "bias")};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<nn::Conv<kAxes>>(in[0], count(l, "channels"), per_axis(l, "kernel"), options);
  });
}

ModulePtr make_conv_transpose(const LayerDescription& l, const Dims& in) {
  const nn::ConvTransposeLayerOptions options{.stride = per_axis(l, "stride"),
                                              .padding = per_axis(l, "padding"),
                                              .output_padding = per_axis(l, "output_padding"),
                                              .dilation = per_axis(l, "dilation"),
                                              .groups = count(l, "groups"),
                                              .bias = truth_of(l, "bias")};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<nn::ConvTranspose<kAxes>>(in[0], count(l, "channels"), per_axis(l, "kernel"), options);
  });
}

ModulePtr make_linear(const LayerDescription& l, const Dims& in) {
  return make<nn::Linear>(in.back(), count(l, "outputs"), nn::LinearOptions{truth_of(l, "bias")});
}

ModulePtr make_matmul(const LayerDescription& l, const Dims& in) {
  return make<Matmul>(in.back(), count(l, "outputs"));
}

ModulePtr make_max_pool(const LayerDescription& l, const Dims& in) {
  const PerAxis kernel = per_axis(l, "kernel");
  if (is_same(l)) {
    for (const char* name : {"stride", "dilation"}) {
      const auto& steps = get<std::vector<int64_t>>(l, name);
      TD_CHECK(std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step == 1; }),
               "max_pool: padding = \"same\" keeps the size, so stride and dilation must be 1; got ",
               steps[0], " as ", name, " (no stride means the kernel). Add stride = 1.");
    }
    return by_axes(in, [&]<int kAxes>() -> ModulePtr { return make<SameMaxPool<kAxes>>(kernel); });
  }
  const MaxPoolOptions options{.kernel = kernel,
                               .stride = per_axis(l, "stride"),
                               .padding = per_axis(l, "padding"),
                               .dilation = per_axis(l, "dilation"),
                               .ceil_mode = truth_of(l, "ceil_mode")};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<Chosen<kAxes, nn::MaxPool1d, nn::MaxPool2d, nn::MaxPool3d>>(options);
  });
}

ModulePtr make_avg_pool(const LayerDescription& l, const Dims& in) {
  const AvgPoolOptions options{.kernel = per_axis(l, "kernel"),
                               .stride = per_axis(l, "stride"),
                               .padding = per_axis(l, "padding"),
                               .ceil_mode = truth_of(l, "ceil_mode"),
                               .count_include_pad = truth_of(l, "count_include_pad")};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<Chosen<kAxes, nn::AvgPool1d, nn::AvgPool2d, nn::AvgPool3d>>(options);
  });
}

ModulePtr make_adaptive_avg_pool(const LayerDescription& l, const Dims& in) {
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    using Pool = Chosen<kAxes, nn::AdaptiveAvgPool1d, nn::AdaptiveAvgPool2d, nn::AdaptiveAvgPool3d>;
    return make<Pool>(per_axis(l, "size"));
  });
}

ModulePtr make_adaptive_max_pool(const LayerDescription& l, const Dims& in) {
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    using Pool = Chosen<kAxes, nn::AdaptiveMaxPool1d, nn::AdaptiveMaxPool2d, nn::AdaptiveMaxPool3d>;
    return make<Pool>(per_axis(l, "size"));
  });
}

ModulePtr make_batch_norm(const LayerDescription& l, const Dims& in) {
  const nn::BatchNormLayerOptions options{.eps = number_of(l, "eps"),
                                          .momentum = number_of(l, "momentum"),
                                          .affine = truth_of(l, "affine"),
                                          .track_running_stats = truth_of(l, "track_running_stats")};
  if (in.rank() <= 2) return make<nn::BatchNorm1d>(in[0], options);
  if (in.rank() == 3) return make<nn::BatchNorm2d>(in[0], options);
  return make<nn::BatchNorm3d>(in[0], options);
}

ModulePtr make_instance_norm(const LayerDescription& l, const Dims& in) {
  const nn::InstanceNormOptions options{.eps = number_of(l, "eps"), .affine = truth_of(l, "affine")};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    using Norm = Chosen<kAxes, nn::InstanceNorm1d, nn::InstanceNorm2d, nn::InstanceNorm3d>;
    return make<Norm>(in[0], options);
  });
}

ModulePtr make_group_norm(const LayerDescription& l, const Dims& in) {
  return make<nn::GroupNorm>(
      count(l, "groups"), in[0],
      nn::GroupNormOptions{.eps = number_of(l, "eps"), .affine = truth_of(l, "affine")});
}

/// The last `axes` sizes of a sample.
Dims last_sizes(const LayerDescription& l, const Dims& in) {
  const int64_t axes = count(l, "axes");
  TD_CHECK(axes <= in.rank(), l.type, ": axes must be at most those of a sample; got ", axes, " of ", in,
           ". Give fewer.");
  Dims sizes;
  for (int64_t i = in.rank() - axes; i < in.rank(); ++i) sizes.push_back(in[static_cast<int>(i)]);
  return sizes;
}
ModulePtr make_layer_norm(const LayerDescription& l, const Dims& in) {
  return make<nn::LayerNorm>(last_sizes(l, in), nn::LayerNormOptions{.eps = number_of(l, "eps"),
                                                                     .affine = truth_of(l, "affine"),
                                                                     .bias = truth_of(l, "bias")});
}
ModulePtr make_rms_norm(const LayerDescription& l, const Dims& in) {
  return make<nn::RMSNorm>(last_sizes(l, in),
                           nn::RmsNormOptions{.eps = number_of(l, "eps"), .affine = truth_of(l, "affine")});
}

ModulePtr make_dropout(const LayerDescription& l, const Dims&) {
  return make<nn::Dropout>(number_of(l, "p"));
}
ModulePtr make_channel_dropout(const LayerDescription& l, const Dims& in) {
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<Chosen<kAxes, nn::Dropout1d, nn::Dropout2d, nn::Dropout3d>>(number_of(l, "p"));
  });
}

ModulePtr make_embedding(const LayerDescription& l, const Dims&) {
  return make<nn::Embedding>(count(l, "rows"), count(l, "width"));
}

template <class Layer>
ModulePtr make_plain(const LayerDescription&, const Dims&) {
  return make<Layer>();
}

// --- the table

using K = SettingKind;

SettingRule with_default(SettingRule rule, Setting otherwise) {
  rule.otherwise = std::move(otherwise);
  return rule;
}
SettingRule size(const char* name) { return {name, K::count, true, 1, kMostSize}; }
SettingRule size(const char* name, int64_t otherwise) {
  return with_default({name, K::count, false, 1, kMostSize}, otherwise);
}
SettingRule truth(const char* name, bool otherwise) { return with_default({name, K::truth}, otherwise); }
SettingRule number(const char* name, double least, double most, double otherwise) {
  return with_default({name, K::number, false, least, most}, otherwise);
}
/// A window must be given, or has a default, or (-1) is worked out elsewhere.
SettingRule window(const char* name) { return {name, K::per_axis, true, 1, kMostWindow}; }
SettingRule window(const char* name, double least, int64_t otherwise) {
  SettingRule rule{name, K::per_axis, false, least, kMostWindow};
  return otherwise < 0 ? rule : with_default(rule, otherwise);
}
SettingRule any_padding() { return with_default({"padding", K::padding, false, 0, kMostWindow}, int64_t{0}); }
SettingRule word(const char* name, std::vector<std::string> words) {  // the first is the default
  const std::string first = words[0];
  return with_default({name, K::word, false, 0, 0, std::move(words)}, first);
}
SettingRule probability() {
  SettingRule rule{"p", K::number, true, 0, 1};
  rule.below_most = true;
  return rule;
}
SettingRule init() {
  return {"init",
          K::word,
          false,
          0,
          0,
          {"kaiming_normal", "kaiming_normal_fan_out", "kaiming_uniform", "xavier_normal", "xavier_uniform",
           "normal"}};
}
SettingRule init_std() { return {"init_std", K::number, false, 0, 1e6}; }
SettingRule eps() { return number("eps", 1e-12, 1, 1e-5); }
SettingRule axes() { return with_default({"axes", K::count, false, 1, 4}, int64_t{1}); }
SettingRule axis(const char* name, int64_t otherwise) {
  return with_default({name, K::count, false, 0, 3}, otherwise);
}

template <class Layer>
LayerType plain(const char* name) {
  return {name, 1, 4, {}, make_plain<Layer>};
}

std::vector<LayerType> make_table() {
  return {
      {"conv",
       2,
       4,
       {size("channels"), window("kernel"), window("stride", 1, 1), any_padding(), window("dilation", 1, 1),
        size("groups", 1), truth("bias", true), init(), init_std()},
       make_conv},
      {"conv_transpose",
       2,
       4,
       {size("channels"), window("kernel"), window("stride", 1, 1), window("padding", 0, 0),
        window("output_padding", 0, 0), window("dilation", 1, 1), size("groups", 1), truth("bias", true),
        init(), init_std()},
       make_conv_transpose},
      {"linear",
       1,
       2,
       {size("outputs"), truth("bias", true), init(), init_std()},
       make_linear,
       false,
       " Put a flatten layer before it."},
      {"matmul",
       1,
       2,
       {size("outputs"), init(), init_std()},
       make_matmul,
       false,
       " Put a flatten layer before it."},
      {"embedding", 0, 2, {size("rows"), size("width"), init(), init_std()}, make_embedding, true},
      {"lstm",
       2,
       2,
       {size("hidden"), with_default({"layers", K::count, false, 1, 64}, int64_t{1}),
        truth("bidirectional", false), truth("bias", true), word("output", {"sequence", "last"}),
        truth("carry", false), SettingRule{"forget_bias", K::number, false, -100, 100}},
       make_lstm,
       false,
       " Samples are (time, features).",
       1,
       2},
      {"attention",
       2,
       2,
       {with_default({"heads", K::count, false, 1, 1024}, int64_t{1}), truth("causal", false),
        truth("bias", true)},
       make_attention,
       false,
       " Samples are (time, width).",
       1,
       4},
      plain<nn::ReLU>("relu"),
      plain<nn::GELU>("gelu"),
      plain<nn::SiLU>("silu"),
      plain<nn::SELU>("selu"),
      plain<nn::Mish>("mish"),
      plain<nn::Hardswish>("hardswish"),
      plain<nn::Tanh>("tanh"),
      plain<nn::Sigmoid>("sigmoid"),
      plain<Exp>("exp"),
      plain<Erf>("erf"),
      plain<LastSoftmax>("softmax"),
      plain<LastLogSoftmax>("log_softmax"),
      {"leaky_relu",
       1,
       4,
       {number("slope", -kMostNumber, kMostNumber, 0.01)},
       [](const LayerDescription& l, const Dims&) -> ModulePtr {
         return make<nn::LeakyReLU>(number_of(l, "slope"));
       }},
      {"elu",
       1,
       4,
       {number("alpha", -kMostNumber, kMostNumber, 1)},
       [](const LayerDescription& l, const Dims&) -> ModulePtr {
         return make<nn::ELU>(number_of(l, "alpha"));
       }},
      {"softplus",
       1,
       4,
       {number("beta", 1e-6, kMostNumber, 1), number("threshold", 0, kMostNumber, 20)},
       [](const LayerDescription& l, const Dims&) -> ModulePtr {
         return make<nn::Softplus>(number_of(l, "beta"), number_of(l, "threshold"));
       }},
      {"max_pool",
       2,
       4,
       {window("kernel", 1, 2), window("stride", 1, -1), any_padding(), window("dilation", 1, 1),
        truth("ceil_mode", false)},
       make_max_pool},
      {"avg_pool",
       2,
       4,
       {window("kernel", 1, 2), window("stride", 1, -1), window("padding", 0, 0), truth("ceil_mode", false),
        truth("count_include_pad", true)},
       make_avg_pool},
      {"adaptive_avg_pool", 2, 4, {window("size")}, make_adaptive_avg_pool},
      {"adaptive_max_pool", 2, 4, {window("size")}, make_adaptive_max_pool},
      {"global_avg_pool", 2, 4, {}, make_plain<GlobalAvgPool>},
      {"batch_norm",
       1,
       4,
       {eps(), number("momentum", 0, 1, 0.1), truth("affine", true), truth("track_running_stats", true)},
       make_batch_norm},
      {"instance_norm", 2, 4, {eps(), truth("affine", false)}, make_instance_norm},
      {"group_norm", 1, 4, {size("groups"), eps(), truth("affine", true)}, make_group_norm},
      {"layer_norm", 1, 4, {axes(), eps(), truth("affine", true), truth("bias", true)}, make_layer_norm},
      {"rms_norm", 1, 4, {axes(), number("eps", 0, 1, 0), truth("affine", true)}, make_rms_norm},
      {"dropout", 1, 4, {probability()}, make_dropout},
      {"channel_dropout", 2, 4, {probability()}, make_channel_dropout},
      {"flatten", 1, 4, {}, make_plain<nn::Flatten>},
      {"identity", 0, 4, {}, make_plain<nn::Identity>},
      {"add", 0, 4, {}, make_plain<Sum>, false, "", 2, kAnyNumber},
      {"multiply", 0, 4, {}, make_plain<Product>, false, "", 2, kAnyNumber},
      {"concat", 1, 4, {axis("axis", 0)}, make_concat, false, "", 2, kAnyNumber},
      {"transpose", 2, 4, {axis("first", 0), axis("second", 1)}, make_transpose},
      {"mean", 1, 4, {axis("axis", 0)}, make_over_axis<Mean>, false, "", 1, 2},
      {"sum", 1, 4, {axis("axis", 0)}, make_over_axis<SumOver>},
      {"residual", 1, 4, {}, nullptr},
      {"repeat", 1, 4, {{"times", K::count, true, 1, 1000}}, nullptr},
  };
}

/// "a, b, c".
template <class Rows>
std::string names_of(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}
template <class Rows>
std::vector<std::string> list_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

/// "a whole number from 1 to 65536".
std::string describe(const SettingRule& rule) {
  const auto whole = [&] {
    return str("a whole number from ", static_cast<int64_t>(rule.least), " to ",
               static_cast<int64_t>(rule.most));
  };
  switch (rule.kind) {
    case K::count:
      return whole();
    case K::number:
      if (rule.below_most) return str("a number of at least ", rule.least, " and below ", rule.most);
      return str("a number from ", rule.least, " to ", rule.most);
    case K::truth:
      return "true or false";
    case K::per_axis:
      return whole() + ", or a list of one for each axis";
    case K::padding:
      return whole() + ", a list of one for each axis, or \"same\"";
    case K::word:
      break;
  }
  std::string words;
  for (const std::string& word : rule.words) words += (words.empty() ? "" : ", ") + word;
  return "one of " + words;
}

std::string describe(const Setting& value) {
  struct Text {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const {  // as a floating-point number, which 4.0 is
      const std::string text = str(v);
      return std::isfinite(v) && text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const std::string& v) const { return "\"" + one_line(v, 60) + "\""; }
    std::string operator()(const std::vector<int64_t>& v) const {
      std::string list;
      for (size_t i = 0; i < std::min<size_t>(v.size(), 4); ++i) list += str(i ? ", " : "", v[i]);
      return "[" + list + (v.size() > 4 ? ", …]" : "]");
    }
  };
  return std::visit(Text{}, value);
}

bool fits(const SettingRule& rule, const Setting& value) {
  const auto inside = [&](auto v) {
    const auto number = static_cast<double>(v);
    return number >= rule.least && (rule.below_most ? number < rule.most : number <= rule.most);
  };
  const auto* whole = std::get_if<int64_t>(&value);
  const auto* word = std::get_if<std::string>(&value);
  switch (rule.kind) {
    case K::count:
      return whole && inside(*whole);
    case K::number: {
      const auto* real = std::get_if<double>(&value);
      return real && std::isfinite(*real) && inside(*real);
    }
    case K::truth:
      return std::holds_alternative<bool>(value);
    case K::word:
      return word && std::find(rule.words.begin(), rule.words.end(), *word) != rule.words.end();
    case K::padding:
      if (word) return *word == "same";
      [[fallthrough]];
    case K::per_axis:
      break;
  }
  if (whole) return inside(*whole);
  const auto* list = std::get_if<std::vector<int64_t>>(&value);
  return list && !list->empty() && list->size() <= 3 && std::all_of(list->begin(), list->end(), inside);
}

/// What to write in place of 4.0 where a whole number fits.
std::string without_point(const SettingRule& rule, const Setting& value) {
  const auto* real = std::get_if<double>(&value);
  if (!real || *real != std::floor(*real) || std::abs(*real) > kMostNumber) return "";
  const Setting whole = static_cast<int64_t>(*real);
  return fits(rule, whole) ? str(" Write ", describe(whole), ", without the point.") : "";
}

}  // namespace

const std::vector<LayerType>& layer_types() {
  static const auto& table = *new std::vector<LayerType>(make_table());
  return table;
}

const LayerType& layer_type(const std::string& name) {
  for (const LayerType& type : layer_types())
    if (type.name == name) return type;
  throw Error(str("the type of a layer must be one of ", names_of(layer_types()), "; got '",
                  one_line(name, 60), "'.", did_you_mean(name, list_of(layer_types()))));
}

bool has_setting(const LayerType& type, const std::string& name) {
  return std::any_of(type.settings.begin(), type.settings.end(),
                     [&](const SettingRule& rule) { return rule.name == name; });
}

const SettingRule& setting_rule(const LayerType& type, const std::string& name) {
  for (const SettingRule& rule : type.settings)
    if (rule.name == name) return rule;
  const std::string names = names_of(type.settings);
  throw Error(str(type.name, ": the settings must be among type, name, from, to", names.empty() ? "" : ", ",
                  names,
                  type.make                                 ? ""
                  : std::string_view(type.name) == "repeat" ? ", layer"
                                                            : ", layer, shortcut",
                  "; got '", one_line(name, 60), "'.", did_you_mean(name, list_of(type.settings))));
}

Setting checked_setting(const LayerType& type, const std::string& name, Setting value) {
  const SettingRule& rule = setting_rule(type, name);
  const Setting given = value;
  if (const auto* whole = std::get_if<int64_t>(&value); whole && rule.kind == K::number)
    value = static_cast<double>(*whole);
  TD_CHECK(fits(rule, value), type.name, ": ", name, " must be ", describe(rule), "; got ", describe(given),
           ".", without_point(rule, given));
  return value;
}

void check_layer(const LayerDescription& layer) {
  const LayerType& type = layer_type(layer.type);
  for (size_t i = 0; i < layer.settings.size(); ++i) {
    const auto& [name, value] = layer.settings[i];
    const Setting checked = checked_setting(type, name, value);
    TD_CHECK(checked.index() == value.index(), type.name, ": ", name,
             " must be a floating-point number; got a whole one. Write ", name, " as a double.");
    for (size_t j = 0; j < i; ++j)
      TD_CHECK(layer.settings[j].first != name, type.name, ": a setting must be given once; got ", name,
               " twice.");
  }
  for (const SettingRule& rule : type.settings)
    TD_CHECK(!rule.required || find(layer, rule.name), type.name, ": must have the setting ", rule.name, ", ",
             describe(rule), "; got none. Add it.");
  TD_CHECK(!find(layer, "init_std") || word_of(layer, "init") == "normal", type.name,
           ": init_std belongs to init = \"normal\"; got it without. Leave it out, or add that.");
  TD_CHECK(type.make || !layer.layers.empty(), type.name,
           ": must have layers of its own; got none. Add layer = [ … ].");
  TD_CHECK(!type.make || layer.layers.empty(), type.name,
           ": must have no layers of its own; got some. Only residual and repeat have.");
  TD_CHECK(layer.shortcut.empty() || layer.type == "residual", type.name,
           ": must have no shortcut; got one. Only residual has.");
}

std::vector<std::pair<std::string, Setting>> full_settings(const LayerDescription& layer, const Dims& in) {
  const LayerType& type = layer_type(layer.type);
  const auto axes = static_cast<size_t>(std::max(1, in.rank() - 1));
  std::vector<std::pair<std::string, Setting>> all;
  const auto filled = [&](const char* name) -> const Setting* {
    for (const auto& [key, value] : all)
      if (key == name) return &value;
    return nullptr;
  };
  for (const SettingRule& rule : type.settings) {
    const Setting* given = find(layer, rule.name);
    if (!given && rule.otherwise) given = &*rule.otherwise;
    if (!given && std::string_view(rule.name) == "stride") given = filled("kernel");  // of a pool
    if (!given) continue;
    Setting value = *given;
    const bool of_axes = rule.kind == SettingKind::per_axis || rule.kind == SettingKind::padding;
    if (const auto* every = std::get_if<int64_t>(&value); every && of_axes)
      value = std::vector<int64_t>(axes, *every);
    all.emplace_back(rule.name, std::move(value));
  }
  return all;
}

std::vector<std::pair<std::string, Dims>> states_of(const LayerDescription& layer) {
  if (layer.type != "lstm" || !truth_of(layer, "carry")) return {};
  const Dims shape = {count(layer, "layers") * (truth_of(layer, "bidirectional") ? 2 : 1),
                      count(layer, "hidden")};
  return {{"h", shape}, {"c", shape}};
}

void set_forget_bias(nn::LSTM& lstm, double value) {
  for (const nn::LSTM::Weights& weights : lstm.weights) {
    const int64_t hidden = weights.hh.size(1);
    // The gates are i, f, g, o.
    nn::init::constant_(slice(weights.bias_ih.detach(), 0, hidden, 2 * hidden), value);
    nn::init::zeros_(slice(weights.bias_hh.detach(), 0, hidden, 2 * hidden));
  }
}

void draw_weights(const LayerDescription& layer, nn::Module& made) {
  namespace init = nn::init;
  if (layer.type == "lstm" && find(layer, "forget_bias")) {
    TD_CHECK(truth_of(layer, "bias"),
             "lstm: forget_bias belongs to bias = true; got it without. Leave one out.");
    set_forget_bias(static_cast<nn::LSTM&>(made), number_of(layer, "forget_bias"));
  }
  const std::string how = word_of(layer, "init");
  if (how.empty()) return;
  for (const auto& [name, parameter] : made.named_parameters()) {
    // The functions take a weight as (out, in).
    const Tensor tensor = layer.type == "matmul" ? transpose(parameter.detach(), 0, 1) : parameter;
    const init::KaimingOptions kaiming{
        .mode = how == "kaiming_normal_fan_out" ? init::FanMode::fan_out : init::FanMode::fan_in,
        .nonlinearity = init::Nonlinearity::relu};
    if (name == "bias")
      init::zeros_(tensor);
    else if (how == "kaiming_uniform")
      init::kaiming_uniform_(tensor, kaiming);
    else if (how == "xavier_normal")
      init::xavier_normal_(tensor);
    else if (how == "xavier_uniform")
      init::xavier_uniform_(tensor);
    else if (how == "normal")
      init::normal_(tensor, 0, find(layer, "init_std") ? number_of(layer, "init_std") : 0.01);
    else
      init::kaiming_normal_(tensor, kaiming);
  }
}

}  // namespace tandem::zoo
