// From a description to prepared steps. A layer with weights is a module of torch::nn; each step is a function that
// knows its layer and the numbers of the values that it reads and makes.
#include "network.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include <cmath>
#include <limits>

#include "../../listings/libtorch/models.h"
#include "loss.h"

namespace libtorch_driver {
namespace {

using Sizes = std::vector<int64_t>;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

Sizes sizes_of(const Json& value) { return value.get<Sizes>(); }

/// As libtorch's options take one number for each of D axes.
template <size_t D>
torch::ExpandingArray<D> array_of(const Sizes& sizes) {
  TORCH_CHECK(sizes.size() == D, "network: a setting must have ", D, " numbers; got ", sizes, ".");
  std::array<int64_t, D> all{};
  std::copy_n(sizes.begin(), D, all.begin());
  return torch::ExpandingArray<D>(all);
}

/// Zeros before and after each axis of a sample, first axis first.
struct Padding {
  Sizes before, after;

  explicit Padding(const Json& pairs) {
    for (const Json& pair : pairs) {
      before.push_back(pair.at(0).get<int64_t>());
      after.push_back(pair.at(1).get<int64_t>());
    }
  }
  bool even() const { return before == after; }
  /// As torch::constant_pad_nd wants it: the last axis first.
  Sizes flat() const {
    Sizes all;
    for (size_t i = before.size(); i-- > 0;) all.insert(all.end(), {before[i], after[i]});
    return all;
  }
};

Tensor max_pool(const Tensor& x, const Sizes& kernel, const Sizes& stride, const Sizes& padding,
                const Sizes& dilation, bool ceil) {
  if (kernel.size() == 1) return torch::max_pool1d(x, kernel, stride, padding, dilation, ceil);
  if (kernel.size() == 2) return torch::max_pool2d(x, kernel, stride, padding, dilation, ceil);
  return torch::max_pool3d(x, kernel, stride, padding, dilation, ceil);
}

Tensor avg_pool(const Tensor& x, const Sizes& kernel, const Sizes& stride, const Sizes& padding, bool ceil,
                bool count_pad) {
  if (kernel.size() == 1) return torch::avg_pool1d(x, kernel, stride, padding, ceil, count_pad);
  if (kernel.size() == 2) return torch::avg_pool2d(x, kernel, stride, padding, ceil, count_pad);
  return torch::avg_pool3d(x, kernel, stride, padding, ceil, count_pad);
}

Tensor adaptive_avg_pool(const Tensor& x, const Sizes& size) {
  if (size.size() == 1) return torch::adaptive_avg_pool1d(x, size);
  if (size.size() == 2) return torch::adaptive_avg_pool2d(x, size);
  return torch::adaptive_avg_pool3d(x, size);
}

Tensor adaptive_max_pool(const Tensor& x, const Sizes& size) {
  if (size.size() == 1) return std::get<0>(torch::adaptive_max_pool1d(x, size));
  if (size.size() == 2) return std::get<0>(torch::adaptive_max_pool2d(x, size));
  return std::get<0>(torch::adaptive_max_pool3d(x, size));
}

}  // namespace

/// Turns the calls of a description into the steps of a network.
class Builder {
 public:
  Builder(Network& network, const Cell& cell) : network_(network), cell_(cell) {
    for (const Value& input : cell.inputs) {
      slots_[input.name] = shapes_.size();
      shapes_.push_back(input.shape);
    }
    find_host_inputs();
    for (const Json& state : cell.network.at("states")) {
      states_[state.at("name").get<std::string>()] = network_.state_shapes_.size();
      network_.state_shapes_.push_back(sizes_of(state.at("shape")));
    }
    for (const Json& call : cell.network.at("calls")) add(call);
    for (const Value& output : cell.outputs) network_.outputs_.push_back(slot(output.value));
    network_.values_ = shapes_.size();
    end_values();
  }

  static const std::map<std::string, void (Builder::*)()>& makers() {
    static const std::map<std::string, void (Builder::*)()> all = {
        {"conv", &Builder::conv},
        {"conv_transpose", &Builder::conv_transpose},
        {"linear", &Builder::linear},
        {"matmul", &Builder::matmul},
        {"embedding", &Builder::embedding},
        {"relu", &Builder::activation},
        {"gelu", &Builder::activation},
        {"silu", &Builder::activation},
        {"selu", &Builder::activation},
        {"mish", &Builder::activation},
        {"hardswish", &Builder::activation},
        {"tanh", &Builder::activation},
        {"sigmoid", &Builder::activation},
        {"exp", &Builder::activation},
        {"erf", &Builder::activation},
        {"leaky_relu", &Builder::activation},
        {"elu", &Builder::activation},
        {"softplus", &Builder::activation},
        {"softmax", &Builder::activation},
        {"log_softmax", &Builder::activation},
        {"max_pool", &Builder::max_pools},
        {"avg_pool", &Builder::avg_pools},
        {"adaptive_avg_pool", &Builder::adaptive_pools},
        {"adaptive_max_pool", &Builder::adaptive_pools},
        {"global_avg_pool", &Builder::global_pool},
        {"batch_norm", &Builder::batch_norm},
        {"instance_norm", &Builder::instance_norm},
        {"group_norm", &Builder::group_norm},
        {"layer_norm", &Builder::last_axes_norm},
        {"rms_norm", &Builder::last_axes_norm},
        {"dropout", &Builder::dropout},
        {"channel_dropout", &Builder::dropout},
        {"flatten", &Builder::shaping},
        {"identity", &Builder::shaping},
        {"add", &Builder::join},
        {"multiply", &Builder::join},
        {"concat", &Builder::join},
        {"transpose", &Builder::shaping},
        {"mean", &Builder::mean},
        {"sum", &Builder::sum},
        {"lstm", &Builder::lstm},
        {"attention", &Builder::attention},
    };
    return all;
  }

 private:
  size_t slot(const std::string& name) const {
    const auto found = slots_.find(name);
    if (found == slots_.end())
      throw std::runtime_error("network: a call must read an input or the value of a call before it; got " +
                               name + ".");
    return found->second;
  }

  /// lstm's lengths are wanted on the CPU: copies of those inputs come after the inputs.
  void find_host_inputs() {
    for (const Json& call : cell_.network.at("calls")) {
      if (call.at("kind") != "lstm" || call.at("in").size() < 2) continue;
      const auto name = call.at("in").at(1).get<std::string>();
      if (slot(name) >= cell_.inputs.size() || host_.count(name)) continue;
      network_.host_inputs_.push_back(slot(name));
      host_[name] = shapes_.size();
      shapes_.push_back({});
    }
  }

  void add(const Json& call) {
    call_ = &call;
    kind_ = call.at("kind").get<std::string>();
    name_ = call.at("name").get<std::string>();
    in_.clear();
    for (const Json& name : call.at("in")) in_.push_back(slot(name.get<std::string>()));
    out_ = shapes_.size();
    const size_t made = network_.steps_.size();
    (this->*makers().at(kind_))();
    TORCH_INTERNAL_ASSERT(network_.steps_.size() == made + 1);
    shapes_.push_back(sizes_of(call.at("shape")));
    slots_[call.at("out").get<std::string>()] = out_;
    read_.push_back(in_);
    made_.push_back(out_);
  }

  /// Tells each step which values end with it: what is read by no later one, and is no output.
  void end_values() {
    std::vector<bool> needed(network_.values_, false);
    for (const size_t output : network_.outputs_) needed[output] = true;
    for (size_t i = network_.steps_.size(); i-- > 0;) {
      read_[i].push_back(made_[i]);
      for (const size_t value : read_[i]) {
        if (!needed[value]) network_.steps_[i].ended.push_back(value);
        needed[value] = true;
      }
    }
  }

  const Json& setting(const char* name) const { return call_->at("settings").at(name); }
  bool yes(const char* name) const { return setting(name).get<bool>(); }
  int64_t whole(const char* name) const { return setting(name).get<int64_t>(); }
  double number(const char* name) const { return setting(name).get<double>(); }
  const Sizes& shape(size_t i = 0) const { return shapes_[in_[i]]; }
  size_t axes() const { return shape().size() - 1; }  // of the grid, behind the channels

  void step(std::function<void(Tensors&)> run) { network_.steps_.push_back({std::move(run), {}}); }
  /// A step of one value.
  template <class F>
  void map(F f) {
    step([f, in = in_[0], out = out_](Tensors& v) { v[out] = f(v[in]); });
  }

  /// Puts the module among the network's layers under the call's name; -> the module. Calls of one name share it.
  template <class Holder>
  Holder layer(Holder holder) {
    using Module = typename Holder::ContainedType;
    return Holder(std::dynamic_pointer_cast<Module>(kept(holder.ptr())));
  }
  std::shared_ptr<nn::Module> kept(std::shared_ptr<nn::Module> module) {
    for (const auto& [name, layer] : network_.named_layers_)
      if (name == name_) return layer;
    network_.layers_->register_module("layer" + std::to_string(network_.named_layers_.size()), module);
    network_.named_layers_.emplace_back(name_, module);
    return module;
  }

  /// A step that is one layer.
  template <class Holder>
  void through(Holder holder) {
    map([layer = layer(holder).ptr()](const Tensor& x) { return layer->forward(x); });
  }

  template <size_t D, class Conv>
  void conv_over() {
    const Padding padding(setting("padding"));
    const auto array = [&](const char* name) { return array_of<D>(sizes_of(setting(name))); };
    nn::ConvOptions<D> options(shape()[0], whole("channels"), array("kernel"));
    options.stride(array("stride"))
        .dilation(array("dilation"))
        .groups(whole("groups"))
        .bias(yes("bias"))
        .padding(array_of<D>(padding.even() ? padding.before : Sizes(D, 0)));
    if (padding.even()) return through(Conv(options));
    map([conv = layer(Conv(options)).ptr(), pad = padding.flat()](const Tensor& x) {
      return conv->forward(torch::constant_pad_nd(x, pad, 0));
    });
  }
  void conv() {
    if (axes() == 1) return conv_over<1, nn::Conv1d>();
    if (axes() == 2) return conv_over<2, nn::Conv2d>();
    conv_over<3, nn::Conv3d>();
  }

  template <size_t D, class Conv>
  void conv_transpose_over() {
    const auto array = [&](const char* name) { return array_of<D>(sizes_of(setting(name))); };
    nn::ConvTransposeOptions<D> options(shape()[0], whole("channels"), array("kernel"));
    options.stride(array("stride"))
        .padding(array("padding"))
        .output_padding(array("output_padding"))
        .dilation(array("dilation"))
        .groups(whole("groups"))
        .bias(yes("bias"));
    through(Conv(options));
  }
  void conv_transpose() {
    if (axes() == 1) return conv_transpose_over<1, nn::ConvTranspose1d>();
    if (axes() == 2) return conv_transpose_over<2, nn::ConvTranspose2d>();
    conv_transpose_over<3, nn::ConvTranspose3d>();
  }

  void linear() {
    const nn::LinearOptions options = nn::LinearOptions(shape().back(), whole("outputs")).bias(yes("bias"));
    through(nn::Linear(options));
  }

  /// libtorch has no module of a product with a weight that is not transposed.
  void matmul() {
    const int64_t inputs = shape().back();
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    const auto made = std::make_shared<nn::Module>();
    made->register_parameter("weight", torch::empty({inputs, whole("outputs")}).uniform_(-bound, bound));
    map([weight = kept(made)->named_parameters()["weight"]](const Tensor& x) {
      return torch::matmul(x, weight);
    });
  }

  void embedding() { through(nn::Embedding(whole("rows"), whole("width"))); }

  void activation() {
    if (kind_ == "relu") return map([](const Tensor& x) { return torch::relu(x); });
    if (kind_ == "gelu") return map([](const Tensor& x) { return torch::gelu(x); });
    if (kind_ == "silu") return map([](const Tensor& x) { return torch::silu(x); });
    if (kind_ == "selu") return map([](const Tensor& x) { return torch::selu(x); });
    if (kind_ == "mish") return map([](const Tensor& x) { return torch::mish(x); });
    if (kind_ == "hardswish") return map([](const Tensor& x) { return torch::hardswish(x); });
    if (kind_ == "tanh") return map([](const Tensor& x) { return torch::tanh(x); });
    if (kind_ == "sigmoid") return map([](const Tensor& x) { return torch::sigmoid(x); });
    if (kind_ == "exp") return map([](const Tensor& x) { return torch::exp(x); });
    if (kind_ == "erf") return map([](const Tensor& x) { return torch::erf(x); });
    if (kind_ == "softmax") return map([](const Tensor& x) { return torch::softmax(x, -1); });
    if (kind_ == "log_softmax") return map([](const Tensor& x) { return torch::log_softmax(x, -1); });
    if (kind_ == "leaky_relu")
      return map([slope = number("slope")](const Tensor& x) { return torch::leaky_relu(x, slope); });
    if (kind_ == "elu")
      return map([alpha = number("alpha")](const Tensor& x) { return torch::elu(x, alpha); });
    map([beta = number("beta"), threshold = number("threshold")](const Tensor& x) {
      return torch::softplus(x, beta, threshold);
    });
  }

  /// PyTorch pads both sides alike, by half a window at most. Where the description differs, the windows that are not
  /// wanted are cut off where that is possible, else the value is padded before.
  void max_pools() {
    const Padding padding(setting("padding"));
    const Sizes kernel = sizes_of(setting("kernel")), stride = sizes_of(setting("stride")),
                dilation = sizes_of(setting("dilation")), made = sizes_of(call_->at("shape"));
    Sizes both, first, none(kernel.size(), 0);
    Padding wanted = padding;  // that the windows of the description need
    bool allowed = true, cut = true;
    for (size_t i = 0; i < kernel.size(); ++i) {
      const int64_t window = dilation[i] * (kernel[i] - 1) + 1, size = shape()[i + 1],
                    before = padding.before[i];
      both.push_back(std::max(before, padding.after[i]));
      allowed = allowed && 2 * both[i] <= kernel[i];
      first.push_back((both[i] - before) / stride[i]);
      cut = cut && (both[i] - before) % stride[i] == 0 &&
            (size + 2 * both[i] - window) / stride[i] + 1 >= first[i] + made[i + 1];
      wanted.after[i] = (made[i + 1] - 1) * stride[i] + window - size - before;
    }
    if (allowed && padding.even())
      return map([=, ceil = yes("ceil_mode")](const Tensor& x) {
        return max_pool(x, kernel, stride, both, dilation, ceil);
      });
    if (allowed && cut)
      return map([=](const Tensor& x) {
        Tensor y = max_pool(x, kernel, stride, both, dilation, false);
        for (size_t i = 0; i < first.size(); ++i)
          y = y.narrow(static_cast<int64_t>(i) + 2, first[i], made[i + 1]);
        return y;
      });
    map([=, pad = wanted.flat()](const Tensor& x) {
      return max_pool(torch::constant_pad_nd(x, pad, kLowest), kernel, stride, none, dilation, false);
    });
  }

  void avg_pools() {
    map([kernel = sizes_of(setting("kernel")), stride = sizes_of(setting("stride")),
         padding = sizes_of(setting("padding")), ceil = yes("ceil_mode"),
         count_pad = yes("count_include_pad")](const Tensor& x) {
      return avg_pool(x, kernel, stride, padding, ceil, count_pad);
    });
  }

  void adaptive_pools() {
    const Sizes size = sizes_of(setting("size"));
    if (kind_ == "adaptive_avg_pool")
      return map([size](const Tensor& x) { return adaptive_avg_pool(x, size); });
    map([size](const Tensor& x) { return adaptive_max_pool(x, size); });
  }

  void global_pool() {
    Sizes grid(axes());
    for (size_t i = 0; i < grid.size(); ++i) grid[i] = static_cast<int64_t>(i) + 2;
    map([grid](const Tensor& x) { return torch::mean(x, grid); });
  }

  void batch_norm() {
    const nn::BatchNormOptions options = nn::BatchNormOptions(shape()[0])
                                             .eps(number("eps"))
                                             .momentum(number("momentum"))
                                             .affine(yes("affine"))
                                             .track_running_stats(yes("track_running_stats"));
    if (axes() < 2) return through(nn::BatchNorm1d(options));
    if (axes() == 2) return through(nn::BatchNorm2d(options));
    through(nn::BatchNorm3d(options));
  }

  void instance_norm() {
    const nn::InstanceNormOptions options =
        nn::InstanceNormOptions(shape()[0]).eps(number("eps")).affine(yes("affine"));
    if (axes() == 1) return through(nn::InstanceNorm1d(options));
    if (axes() == 2) return through(nn::InstanceNorm2d(options));
    through(nn::InstanceNorm3d(options));
  }

  void group_norm() {
    const nn::GroupNormOptions options =
        nn::GroupNormOptions(whole("groups"), shape()[0]).eps(number("eps")).affine(yes("affine"));
    through(nn::GroupNorm(options));
  }

  /// layer_norm and rms_norm; libtorch has no module that leaves the bias out, nor one of rms_norm.
  void last_axes_norm() {
    const Sizes over(shape().end() - whole("axes"), shape().end());
    const bool affine = yes("affine"), shifted = kind_ == "layer_norm" && affine && yes("bias");
    const auto made = std::make_shared<nn::Module>();
    if (affine) made->register_parameter("weight", torch::ones(over));
    if (shifted) made->register_parameter("bias", torch::zeros(over));
    const auto named = kept(made)->named_parameters();
    const Tensor weight = affine ? named["weight"] : Tensor(), bias = shifted ? named["bias"] : Tensor();
    if (kind_ == "layer_norm")
      return map([=, eps = number("eps")](const Tensor& x) {
        return torch::layer_norm(x, over, weight, bias, eps);
      });
    // Without an eps it is the spacing of the type's numbers at 1.
    const std::optional<double> eps = number("eps") == 0 ? std::nullopt : std::optional(number("eps"));
    map([=](const Tensor& x) {
      return torch::rms_norm(x, over, weight.defined() ? std::optional<Tensor>(weight) : std::nullopt, eps);
    });
  }

  void dropout() {
    const torch::nn::Module* layers = network_.layers_.get();
    if (kind_ == "dropout")
      return map(
          [layers, p = number("p")](const Tensor& x) { return torch::dropout(x, p, layers->is_training()); });
    map([layers, p = number("p")](const Tensor& x) {
      return torch::feature_dropout(x, p, layers->is_training());
    });
  }

  void shaping() {
    if (kind_ == "flatten") return map([](const Tensor& x) { return torch::flatten(x, 1); });
    if (kind_ == "identity") return map([](const Tensor& x) { return x; });
    const Sizes changed = sizes_of(setting("axes"));
    map([a = changed.at(0) + 1, b = changed.at(1) + 1](const Tensor& x) {
      return torch::transpose(x, a, b);
    });
  }

  void join() {
    if (kind_ == "concat")
      return step([in = in_, out = out_, axis = whole("axis") + 1](Tensors& v) {
        Tensors parts;
        for (const size_t i : in) parts.push_back(v[i]);
        v[out] = torch::cat(parts, axis);
      });
    const bool sum = kind_ == "add";
    step([in = in_, out = out_, sum](Tensors& v) {
      Tensor all = v[in[0]];
      for (size_t i = 1; i < in.size(); ++i) all = sum ? all + v[in[i]] : all * v[in[i]];
      v[out] = all;
    });
  }

  void mean() {
    if (in_.size() == 1)
      return map([axis = whole("axis") + 1](const Tensor& x) { return torch::mean(x, axis); });
    step([x = in_[0], n = in_[1], out = out_](Tensors& v) {
      const Tensor sum = v[x].masked_fill(counted(v[n], v[x]).logical_not(), 0).sum(1);
      Sizes sizes(static_cast<size_t>(sum.dim()), 1);
      sizes[0] = -1;
      v[out] = sum / v[n].view(sizes);
    });
  }

  void sum() {
    map([axis = whole("axis") + 1](const Tensor& x) { return torch::sum(x, axis); });
  }

  void lstm() {
    const nn::LSTMOptions options = nn::LSTMOptions(shape().back(), whole("hidden"))
                                        .num_layers(whole("layers"))
                                        .bidirectional(yes("bidirectional"))
                                        .bias(yes("bias"))
                                        .batch_first(true);
    const std::shared_ptr<nn::LSTMImpl> lstm = layer(nn::LSTM(options)).ptr();
    const bool last = setting("output") == "last", carry = yes("carry"), both = yes("bidirectional");
    size_t h = 0, c = 0;
    if (carry) h = states_.at(name_ + ".h"), c = states_.at(name_ + ".c");
    // The last layer's states: of both directions one after the other.
    const auto last_of = [both](const Tensor& hidden) {
      return both ? torch::cat({hidden[-2], hidden[-1]}, 1) : hidden[-1];
    };
    using Start = torch::optional<std::tuple<Tensor, Tensor>>;
    const auto start = [this_ = &network_, carry, h, c]() {
      return carry ? Start(std::make_tuple(this_->states[h], this_->states[c])) : Start();
    };
    const auto keep = [this_ = &network_, carry, h, c](const std::tuple<Tensor, Tensor>& hidden) {
      if (!carry) return;
      this_->states[h] = std::get<0>(hidden).detach();
      this_->states[c] = std::get<1>(hidden).detach();
    };
    if (in_.size() == 1)
      return step([=, x = in_[0], out = out_](Tensors& v) mutable {
        auto [sequence, hidden] = lstm->forward(v[x], start());
        keep(hidden);
        v[out] = last ? last_of(std::get<0>(hidden)) : sequence;
      });
    const auto found = host_.find(call_->at("in").at(1).get<std::string>());
    if (found == host_.end())
      throw Declined("lstm", "lstm: the lengths must be an input of the network; got the value of a call.");
    step([=, x = in_[0], n = found->second, out = out_](Tensors& v) mutable {
      const auto packed = nn::utils::rnn::pack_padded_sequence(v[x], v[n], true, /*enforce_sorted=*/false);
      auto [sequence, hidden] = lstm->forward_with_packed_input(packed, start());
      keep(hidden);
      v[out] = last ? last_of(std::get<0>(hidden))
                    : std::get<0>(nn::utils::rnn::pad_packed_sequence(sequence, true, 0.0, v[x].size(1)));
    });
  }

  void attention() {
    const int64_t heads = whole("heads"), width = shape().back();
    const auto held =
        layer(nn::MultiheadAttention(nn::MultiheadAttentionOptions(width, heads).bias(yes("bias"))));
    const bool causal = yes("causal"), one = in_.size() <= 2, masked = in_.size() % 2 == 0;
    const auto split = [heads](const Tensor& x) { return x.unflatten(-1, {heads, -1}).transpose(1, 2); };
    step([=, in = in_, out = out_](Tensors& v) {
      const Tensor &weight = held->in_proj_weight, &bias = held->in_proj_bias;
      Tensors parts;
      if (one) {
        parts = torch::linear(v[in[0]], weight, bias).chunk(3, -1);
      } else {
        const Tensors weights = weight.chunk(3), biases = bias.defined() ? bias.chunk(3) : Tensors(3);
        for (size_t i = 0; i < 3; ++i) parts.push_back(torch::linear(v[in[i]], weights[i], biases[i]));
      }
      for (Tensor& part : parts) part = split(part);
      std::optional<Tensor> mask;
      if (masked) {
        mask = places_below(v[in.back()], parts[1].size(2)).unsqueeze(1).unsqueeze(1);
        if (causal) mask = *mask & torch::ones({parts[0].size(2), parts[1].size(2)}, mask->options()).tril();
      }
      const Tensor mixed =
          torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], mask, 0.0, causal && !masked);
      v[out] = torch::linear(mixed.transpose(1, 2).flatten(2), held->out_proj->weight, held->out_proj->bias);
    });
  }

  Network& network_;
  const Cell& cell_;
  std::map<std::string, size_t> slots_, host_, states_;
  std::vector<Sizes> shapes_;              // of each value, without the batch
  std::vector<std::vector<size_t>> read_;  // by each step
  std::vector<size_t> made_;
  const Json* call_ = nullptr;  // the call that is being built, with its kind, name and values
  std::string kind_, name_;
  std::vector<size_t> in_;
  size_t out_ = 0;
};

const std::vector<std::string>& Network::kinds() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& maker : Builder::makers()) all.push_back(maker.first);
    return all;
  }();
  return names;
}

const std::vector<std::string>& Network::listings() { return listing_names(); }

Network::Network(const Cell& cell) {
  if (cell.listing) {
    const auto listing = make_listing(cell.name, {cell.classes, cell.inputs[0].shape, cell.dropout});
    layers_ = listing;
    named_layers_.emplace_back("", listing);
    steps_.push_back({[listing](Tensors& v) { v[1] = listing->forward(v[0]); }, {}});
    values_ = 2;
    outputs_ = {1};
    return;
  }
  layers_ = std::make_shared<torch::nn::Module>();
  Builder(*this, cell);
  for (const auto& [name, tensor] : parameters()) {
    const auto wanted = cell.parameters.find(name);
    if (wanted == cell.parameters.end() || wanted->second != tensor.sizes().vec())
      throw std::runtime_error("network: " + name + " must be a parameter of the description in the shape " +
                               Json(tensor.sizes().vec()).dump() + "; it is not.");
  }
}

Tensors Network::forward(Tensors values) {
  values.resize(values_);
  for (const Step& step : steps_) {
    step.run(values);
    for (const size_t value : step.ended) values[value] = Tensor();
  }
  Tensors outputs;
  for (const size_t value : outputs_) outputs.push_back(values[value]);
  return outputs;
}

void Network::reset_states(int64_t batch, const torch::TensorOptions& options) {
  states.clear();
  for (const Sizes& shape : state_shapes_) {
    Sizes sizes = shape;
    sizes.insert(sizes.begin() + 1, batch);  // (layers · directions, batch, hidden)
    states.push_back(torch::zeros(sizes, options));
  }
}

std::map<std::string, Tensor> Network::named(bool statistics) const {
  std::map<std::string, Tensor> all;
  for (const auto& [name, layer] : named_layers_)
    for (const auto& item : statistics ? layer->named_buffers() : layer->named_parameters())
      if (!statistics || item.key().find("running_") != std::string::npos)
        all[name.empty() ? item.key() : name + "." + item.key()] = item.value();
  return all;
}

}  // namespace libtorch_driver
