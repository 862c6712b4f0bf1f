#include "tandem/zoo/layer_types.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/core/file.h"
#include "tandem/nn/activation.h"
#include "tandem/nn/dropout.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/pool.h"
#include "tandem/ops/reduce.h"

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
template <class T>
T get(const LayerDescription& layer, const char* name, T fallback) {
  const Setting* value = find(layer, name);
  return value ? std::get<T>(*value) : fallback;
}
int64_t count(const LayerDescription& layer, const char* name, int64_t fallback = 0) {
  return get<int64_t>(layer, name, fallback);
}

/// P is PerAxis or Padding.
template <class P>
P axes_of(const Setting& value) {
  if (const auto* every = std::get_if<int64_t>(&value)) return P(*every);
  const auto& list = std::get<std::vector<int64_t>>(value);
  if (list.size() == 1) return P({list[0]});
  return list.size() == 2 ? P({list[0], list[1]}) : P({list[0], list[1], list[2]});
}
PerAxis per_axis(const LayerDescription& layer, const char* name, PerAxis fallback) {
  const Setting* value = find(layer, name);
  return value ? axes_of<PerAxis>(*value) : fallback;
}
bool is_same(const LayerDescription& layer) {
  const Setting* value = find(layer, "padding");
  return value && std::holds_alternative<std::string>(*value);
}
Padding padding(const LayerDescription& layer) {
  if (is_same(layer)) return Padding("same");
  const Setting* value = find(layer, "padding");
  return value ? axes_of<Padding>(*value) : Padding(0);
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
  std::string type_name() const override { return cat("SameMaxPool", kAxes, "d"); }
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

// --- how each is made

ModulePtr make_conv(const LayerDescription& l, const Dims& in) {
  const nn::ConvLayerOptions options{.stride = per_axis(l, "stride", 1),
                                     .padding = padding(l),
                                     .dilation = per_axis(l, "dilation", 1),
                                     .groups = count(l, "groups", 1),
                                     .bias = get(l, "bias", true)};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<nn::Conv<kAxes>>(in[0], count(l, "channels"), per_axis(l, "kernel", 1), options);
  });
}

ModulePtr make_conv_transpose(const LayerDescription& l, const Dims& in) {
  const nn::ConvTransposeLayerOptions options{.stride = per_axis(l, "stride", 1),
                                              .padding = per_axis(l, "padding", 0),
                                              .output_padding = per_axis(l, "output_padding", 0),
                                              .dilation = per_axis(l, "dilation", 1),
                                              .groups = count(l, "groups", 1),
                                              .bias = get(l, "bias", true)};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<nn::ConvTranspose<kAxes>>(in[0], count(l, "channels"), per_axis(l, "kernel", 1), options);
  });
}

ModulePtr make_linear(const LayerDescription& l, const Dims& in) {
  return make<nn::Linear>(in.back(), count(l, "outputs"), nn::LinearOptions{get(l, "bias", true)});
}

ModulePtr make_max_pool(const LayerDescription& l, const Dims& in) {
  const PerAxis kernel = per_axis(l, "kernel", 2);
  if (is_same(l)) {
    const Setting *stride = find(l, "stride"), *dilation = find(l, "dilation");
    TD_CHECK(stride && *stride == Setting(int64_t{1}) && (!dilation || *dilation == Setting(int64_t{1})),
             "max_pool: padding = \"same\" keeps the size, so stride and dilation must be 1; got ",
             stride ? "others" : "no stride, which is the kernel then", ". Add stride = 1.");
    return by_axes(in, [&]<int kAxes>() -> ModulePtr { return make<SameMaxPool<kAxes>>(kernel); });
  }
  const MaxPoolOptions options{.kernel = kernel,
                               .stride = per_axis(l, "stride", {}),
                               .padding = per_axis(l, "padding", 0),
                               .dilation = per_axis(l, "dilation", 1),
                               .ceil_mode = get(l, "ceil_mode", false)};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<Chosen<kAxes, nn::MaxPool1d, nn::MaxPool2d, nn::MaxPool3d>>(options);
  });
}

ModulePtr make_avg_pool(const LayerDescription& l, const Dims& in) {
  const AvgPoolOptions options{.kernel = per_axis(l, "kernel", 2),
                               .stride = per_axis(l, "stride", {}),
                               .padding = per_axis(l, "padding", 0),
                               .ceil_mode = get(l, "ceil_mode", false),
                               .count_include_pad = get(l, "count_include_pad", true)};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<Chosen<kAxes, nn::AvgPool1d, nn::AvgPool2d, nn::AvgPool3d>>(options);
  });
}

ModulePtr make_adaptive_avg_pool(const LayerDescription& l, const Dims& in) {
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    using Pool = Chosen<kAxes, nn::AdaptiveAvgPool1d, nn::AdaptiveAvgPool2d, nn::AdaptiveAvgPool3d>;
    return make<Pool>(per_axis(l, "size", 1));
  });
}

ModulePtr make_adaptive_max_pool(const LayerDescription& l, const Dims& in) {
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    using Pool = Chosen<kAxes, nn::AdaptiveMaxPool1d, nn::AdaptiveMaxPool2d, nn::AdaptiveMaxPool3d>;
    return make<Pool>(per_axis(l, "size", 1));
  });
}

ModulePtr make_batch_norm(const LayerDescription& l, const Dims& in) {
  const nn::BatchNormLayerOptions options{.eps = get(l, "eps", 1e-5),
                                          .momentum = get(l, "momentum", 0.1),
                                          .affine = get(l, "affine", true),
                                          .track_running_stats = get(l, "track_running_stats", true)};
  if (in.rank() <= 2) return make<nn::BatchNorm1d>(in[0], options);
  if (in.rank() == 3) return make<nn::BatchNorm2d>(in[0], options);
  return make<nn::BatchNorm3d>(in[0], options);
}

ModulePtr make_instance_norm(const LayerDescription& l, const Dims& in) {
  const nn::InstanceNormOptions options{.eps = get(l, "eps", 1e-5), .affine = get(l, "affine", false)};
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    using Norm = Chosen<kAxes, nn::InstanceNorm1d, nn::InstanceNorm2d, nn::InstanceNorm3d>;
    return make<Norm>(in[0], options);
  });
}

ModulePtr make_group_norm(const LayerDescription& l, const Dims& in) {
  return make<nn::GroupNorm>(
      count(l, "groups"), in[0],
      nn::GroupNormOptions{.eps = get(l, "eps", 1e-5), .affine = get(l, "affine", true)});
}

/// The last `axes` sizes of a sample.
Dims last_sizes(const LayerDescription& l, const Dims& in) {
  const int64_t axes = count(l, "axes", 1);
  TD_CHECK(axes <= in.rank(), l.type, ": axes must be at most those of a sample; got ", axes, " of ", in,
           ". Give fewer.");
  Dims sizes;
  for (int64_t i = in.rank() - axes; i < in.rank(); ++i) sizes.push_back(in[static_cast<int>(i)]);
  return sizes;
}
ModulePtr make_layer_norm(const LayerDescription& l, const Dims& in) {
  return make<nn::LayerNorm>(last_sizes(l, in), nn::LayerNormOptions{.eps = get(l, "eps", 1e-5),
                                                                     .affine = get(l, "affine", true),
                                                                     .bias = get(l, "bias", true)});
}
ModulePtr make_rms_norm(const LayerDescription& l, const Dims& in) {
  return make<nn::RMSNorm>(last_sizes(l, in),
                           nn::RmsNormOptions{.eps = get(l, "eps", 0.), .affine = get(l, "affine", true)});
}

ModulePtr make_dropout(const LayerDescription& l, const Dims&) { return make<nn::Dropout>(get(l, "p", 0.5)); }
ModulePtr make_channel_dropout(const LayerDescription& l, const Dims& in) {
  return by_axes(in, [&]<int kAxes>() -> ModulePtr {
    return make<Chosen<kAxes, nn::Dropout1d, nn::Dropout2d, nn::Dropout3d>>(get(l, "p", 0.5));
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

SettingRule size(const char* name) { return {name, K::count, true, 1, kMostSize}; }
SettingRule truth(const char* name) { return {name, K::truth}; }
SettingRule number(const char* name, double least, double most, bool required = false) {
  return {name, K::number, required, least, most};
}
SettingRule window(const char* name, double least, bool required = false) {
  return {name, K::per_axis, required, least, kMostWindow};
}
SettingRule any_padding() { return {"padding", K::padding, false, 0, kMostWindow}; }
SettingRule groups(bool required) { return {"groups", K::count, required, 1, kMostSize}; }
SettingRule probability() {
  SettingRule rule = number("p", 0, 1, true);
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
SettingRule init_std() { return number("init_std", 0, 1e6); }
SettingRule eps() { return number("eps", 1e-12, 1); }
SettingRule axes() { return {"axes", K::count, false, 1, 4}; }

template <class Layer>
LayerType plain(const char* name) {
  return {name, 1, 4, {}, make_plain<Layer>};
}

std::vector<LayerType> make_table() {
  return {
      {"conv",
       2,
       4,
       {size("channels"), window("kernel", 1, true), window("stride", 1), any_padding(),
        window("dilation", 1), groups(false), truth("bias"), init(), init_std()},
       make_conv},
      {"conv_transpose",
       2,
       4,
       {size("channels"), window("kernel", 1, true), window("stride", 1), window("padding", 0),
        window("output_padding", 0), window("dilation", 1), groups(false), truth("bias"), init(), init_std()},
       make_conv_transpose},
      {"linear",
       1,
       2,
       {size("outputs"), truth("bias"), init(), init_std()},
       make_linear,
       false,
       " Put a flatten layer before it."},
      {"embedding", 1, 2, {size("rows"), size("width")}, make_embedding, true},
      plain<nn::ReLU>("relu"),
      plain<nn::GELU>("gelu"),
      plain<nn::SiLU>("silu"),
      plain<nn::SELU>("selu"),
      plain<nn::Mish>("mish"),
      plain<nn::Hardswish>("hardswish"),
      plain<nn::Tanh>("tanh"),
      plain<nn::Sigmoid>("sigmoid"),
      {"leaky_relu",
       1,
       4,
       {number("slope", -kMostNumber, kMostNumber)},
       [](const LayerDescription& l, const Dims&) -> ModulePtr {
         return make<nn::LeakyReLU>(get(l, "slope", 0.01));
       }},
      {"elu",
       1,
       4,
       {number("alpha", -kMostNumber, kMostNumber)},
       [](const LayerDescription& l, const Dims&) -> ModulePtr {
         return make<nn::ELU>(get(l, "alpha", 1.));
       }},
      {"softplus",
       1,
       4,
       {number("beta", 1e-6, kMostNumber), number("threshold", 0, kMostNumber)},
       [](const LayerDescription& l, const Dims&) -> ModulePtr {
         return make<nn::Softplus>(get(l, "beta", 1.), get(l, "threshold", 20.));
       }},
      {"max_pool",
       2,
       4,
       {window("kernel", 1), window("stride", 1), any_padding(), window("dilation", 1), truth("ceil_mode")},
       make_max_pool},
      {"avg_pool",
       2,
       4,
       {window("kernel", 1), window("stride", 1), window("padding", 0), truth("ceil_mode"),
        truth("count_include_pad")},
       make_avg_pool},
      {"adaptive_avg_pool", 2, 4, {window("size", 1, true)}, make_adaptive_avg_pool},
      {"adaptive_max_pool", 2, 4, {window("size", 1, true)}, make_adaptive_max_pool},
      {"global_avg_pool", 2, 4, {}, make_plain<GlobalAvgPool>},
      {"batch_norm",
       1,
       4,
       {eps(), number("momentum", 0, 1), truth("affine"), truth("track_running_stats")},
       make_batch_norm},
      {"instance_norm", 2, 4, {eps(), truth("affine")}, make_instance_norm},
      {"group_norm", 1, 4, {groups(true), eps(), truth("affine")}, make_group_norm},
      {"layer_norm", 1, 4, {axes(), eps(), truth("affine"), truth("bias")}, make_layer_norm},
      {"rms_norm", 1, 4, {axes(), eps(), truth("affine")}, make_rms_norm},
      {"dropout", 1, 4, {probability()}, make_dropout},
      {"channel_dropout", 2, 4, {probability()}, make_channel_dropout},
      {"flatten", 1, 4, {}, make_plain<nn::Flatten>},
      {"identity", 1, 4, {}, make_plain<nn::Identity>},
      {"residual", 1, 4, {}, nullptr},
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
std::string hint(const std::string& word, const std::vector<std::string>& words) {
  const std::string near = nearest(word, words);
  return near.empty() ? "" : " Did you mean " + near + "?";
}

/// "a whole number from 1 to 65536".
std::string describe(const SettingRule& rule) {
  const auto whole = [&] {
    return cat("a whole number from ", static_cast<int64_t>(rule.least), " to ",
               static_cast<int64_t>(rule.most));
  };
  switch (rule.kind) {
    case K::count:
      return whole();
    case K::number:
      if (rule.below_most) return cat("a number of at least ", rule.least, " and below ", rule.most);
      return cat("a number from ", rule.least, " to ", rule.most);
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
      const std::string text = cat(v);
      return std::isfinite(v) && text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const std::string& v) const { return "\"" + one_line(v, 60) + "\""; }
    std::string operator()(const std::vector<int64_t>& v) const {
      std::string list;
      for (size_t i = 0; i < std::min<size_t>(v.size(), 4); ++i) list += cat(i ? ", " : "", v[i]);
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
  return fits(rule, whole) ? cat(" Write ", describe(whole), ", without the point.") : "";
}

/// How many letters must be added, dropped or changed to turn a into b.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  std::string best;
  size_t distance = 3;  // anything further away is no slip of the hand
  for (const std::string& candidate : words) {
    const size_t d = edit_distance(word.substr(0, 64), candidate);
    if (d >= distance) continue;
    distance = d;
    best = candidate;
  }
  return best;
}

const std::vector<LayerType>& layer_types() {
  static const auto& table = *new std::vector<LayerType>(make_table());
  return table;
}

const LayerType& layer_type(const std::string& name) {
  for (const LayerType& type : layer_types())
    if (type.name == name) return type;
  throw Error(cat("the type of a layer must be one of ", names_of(layer_types()), "; got '",
                  one_line(name, 60), "'.", hint(name, list_of(layer_types()))));
}

bool has_setting(const LayerType& type, const std::string& name) {
  return std::any_of(type.settings.begin(), type.settings.end(),
                     [&](const SettingRule& rule) { return rule.name == name; });
}

const SettingRule& setting_rule(const LayerType& type, const std::string& name) {
  for (const SettingRule& rule : type.settings)
    if (rule.name == name) return rule;
  const std::string names = names_of(type.settings);
  throw Error(cat(type.name, ": the settings must be among type, name", names.empty() ? "" : ", ", names,
                  type.make ? "" : ", layer, shortcut", "; got '", one_line(name, 60), "'.",
                  hint(name, list_of(type.settings))));
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
  TD_CHECK(!find(layer, "init_std") || get<std::string>(layer, "init", "") == "normal", type.name,
           ": init_std belongs to init = \"normal\"; got it without. Leave it out, or add that.");
  const bool is_residual = !type.make;
  TD_CHECK(is_residual || (layer.layers.empty() && layer.shortcut.empty()), type.name,
           ": must have no layers of its own; got some. Only residual has.");
  TD_CHECK(!is_residual || !layer.layers.empty(),
           "residual: must have layers of its own; got none. Add layer = [ … ].");
}

void initialise(const LayerDescription& layer, nn::Module& made) {
  namespace init = nn::init;
  const std::string how = get<std::string>(layer, "init", "");
  if (how.empty()) return;
  for (const auto& [name, tensor] : made.named_parameters()) {
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
      init::normal_(tensor, 0, get(layer, "init_std", 0.01));
    else
      init::kaiming_normal_(tensor, kaiming);
  }
}

}  // namespace tandem::zoo
