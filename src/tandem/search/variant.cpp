#include "tandem/search/variant.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tandem::search {
namespace {

using zoo::LayerDescription;
using zoo::Setting;
using Layers = std::vector<LayerDescription>;

bool is_one_of(const std::string& type, const std::set<std::string>& types) { return types.contains(type); }
bool is_conv(const LayerDescription& l) { return is_one_of(l.type, {"conv", "conv_transpose"}); }
bool is_linear(const LayerDescription& l) { return l.type == "linear"; }
bool has_weights(const LayerDescription& l) { return is_conv(l) || is_linear(l) || l.type == "residual"; }
bool is_norm(const LayerDescription& l) {
  return is_one_of(l.type, {"batch_norm", "instance_norm", "group_norm", "layer_norm", "rms_norm"});
}
bool is_activation(const LayerDescription& l) {
  return is_one_of(l.type, {"relu", "gelu", "silu", "selu", "mish", "hardswish", "tanh", "sigmoid",
                            "leaky_relu", "elu", "softplus"});
}
/// What may stand between the weights of one block.
bool keeps_shape(const LayerDescription& l) {
  return is_norm(l) || is_activation(l) || is_one_of(l.type, {"dropout", "channel_dropout", "identity"});
}

const Setting* find(const LayerDescription& l, const char* name) {
  for (const auto& [key, value] : l.settings)
    if (key == name) return &value;
  return nullptr;
}
void set(LayerDescription& l, const char* name, Setting value) {
  for (auto& [key, old] : l.settings)
    if (key == name) {
      old = std::move(value);
      return;
    }
  l.settings.emplace_back(name, std::move(value));
}
void drop(LayerDescription& l, const char* name) {
  std::erase_if(l.settings, [&](const auto& row) { return row.first == name; });
}

/// The place of the last layer with weights: its outputs are the model's. The number of layers where there is none.
size_t last_weights(const Layers& layers) {
  for (size_t i = layers.size(); i-- > 0;)
    if (has_weights(layers[i])) return i;
  return layers.size();
}

/// The layer at `spared` gives the model's outputs, whose number is the task's. Lists inside a layer spare none.
void widen(Layers& layers, double factor, size_t spared) {
  const auto scaled = [&](LayerDescription& l, const char* name) {
    if (const Setting* value = find(l, name))
      set(l, name,
          std::max<int64_t>(1, std::llround(static_cast<double>(std::get<int64_t>(*value)) * factor)));
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i == spared) continue;
    LayerDescription& l = layers[i];
    const Setting *channels = find(l, "channels"), *groups = find(l, "groups");
    if (is_conv(l) && channels && groups && *channels == *groups)
      scaled(l, "groups");  // one for each channel
    if (is_conv(l)) scaled(l, "channels");
    if (is_linear(l)) scaled(l, "outputs");
    widen(l.layers, factor, l.layers.size());
    widen(l.shortcut, factor, l.shortcut.size());
  }
}

void activate(Layers& layers, const std::string& type, size_t spared) {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (is_activation(layers[i]) && i != spared) {
      layers[i].type = type;
      layers[i].settings.clear();
    }
    activate(layers[i].layers, type, layers[i].layers.size());
    activate(layers[i].shortcut, type, layers[i].shortcut.size());
  }
}

void normalise(Layers& layers, bool on, size_t spared) {
  Layers out;
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerDescription l = layers[i];
    if (!on && l.type == "batch_norm") {
      // Before a batch norm a bias does nothing and is left out: without the norm it is wanted again.
      if (!out.empty() && (is_conv(out.back()) || is_linear(out.back()))) drop(out.back(), "bias");
      continue;
    }
    normalise(l.layers, on, l.layers.size());
    normalise(l.shortcut, on, l.shortcut.size());
    out.push_back(std::move(l));
    const bool followed = i + 1 < layers.size() && is_norm(layers[i + 1]);
    if (on && i != spared && (is_conv(layers[i]) || is_linear(layers[i])) && !followed)
      out.push_back({.type = "batch_norm"});
  }
  layers = std::move(out);
}

bool set_dropout(Layers& layers, double p) {
  bool found = false;
  for (LayerDescription& l : layers) {
    if (is_one_of(l.type, {"dropout", "channel_dropout"})) {
      set(l, "p", p);
      found = true;
    }
    found = set_dropout(l.layers, p) || found;
  }
  return found;
}

/// A block that may stand again: from its first layer to before `end`.
struct Block {
  size_t begin, end;
};

/// What may be repeated: residual blocks that keep their shape; else the last convolution of each run of them; else
/// linear layers. Never the last layer with weights.
std::vector<Block> blocks_of(const Layers& layers) {
  const size_t last = last_weights(layers);
  const auto collect = [&](const auto& begins) {
    std::vector<Block> out;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i == last || !begins(layers[i])) continue;
      size_t end = i + 1;
      while (end < layers.size() && keeps_shape(layers[end])) ++end;
      out.push_back({i, end});
    }
    return out;
  };
  std::vector<Block> found =
      collect([](const LayerDescription& l) { return l.type == "residual" && l.shortcut.empty(); });
  if (!found.empty()) return found;
  found = collect([](const LayerDescription& l) { return l.type == "conv"; });
  std::vector<Block> stages;  // of convolutions in a row, the last
  for (size_t i = 0; i < found.size(); ++i)
    if (i + 1 == found.size() || found[i].end != found[i + 1].begin) stages.push_back(found[i]);
  return stages.empty() ? collect(is_linear) : stages;
}

/// From the last block to the first, so that the places of those before stay right. A copy keeps the shape: no stride,
/// padding "same", and one group.
void deepen(Layers& layers, int64_t times) {
  const std::vector<Block> blocks = blocks_of(layers);
  for (size_t b = blocks.size(); b-- > 0;) {
    const auto [begin, end] = blocks[b];
    Layers added;
    for (int64_t copy = 2; copy <= times; ++copy)
      for (size_t i = begin; i < end; ++i) {
        LayerDescription l = layers[i];
        if (!l.name.empty()) l.name += "_" + std::to_string(copy);
        if (l.type == "conv") {
          drop(l, "stride");
          drop(l, "groups");
          set(l, "padding", std::string("same"));
        }
        added.push_back(std::move(l));
      }
    layers.insert(layers.begin() + static_cast<ptrdiff_t>(end), added.begin(), added.end());
  }
}

}  // namespace

// Norms and activations come before the depth, so that copies have them, too.
zoo::ModelDescription vary(zoo::ModelDescription d, const Variant& v) {
  if (v.width) widen(d.layers, *v.width, last_weights(d.layers));
  if (v.activation) activate(d.layers, *v.activation, d.layers.size() - 1);
  if (v.batch_norm) normalise(d.layers, *v.batch_norm, last_weights(d.layers));
  if (v.depth && *v.depth > 1) deepen(d.layers, *v.depth);
  if (v.dropout && !set_dropout(d.layers, *v.dropout) && *v.dropout > 0) {
    const size_t last = last_weights(d.layers);
    if (last < d.layers.size() && last > 0 && is_linear(d.layers[last]))
      d.layers.insert(d.layers.begin() + static_cast<ptrdiff_t>(last),
                      {.type = "dropout", .settings = {{"p", *v.dropout}}});
  }
  return d;
}

zoo::ModelDescription template_model(const Dims& input, int64_t outputs) {
  const auto dense = [](int64_t n) {
    return LayerDescription{.type = "linear", .settings = {{"outputs", n}}};
  };
  const LayerDescription relu{.type = "relu"};
  if (input.rank() == 3 && std::min(input[1], input[2]) >= 8) {
    const auto conv = [](int64_t channels) {
      return LayerDescription{
          .type = "conv", .settings = {{"channels", channels}, {"kernel", int64_t{3}}, {"padding", "same"}}};
    };
    const LayerDescription pool{.type = "max_pool"};
    return {
        "simple_cnn",
        input,
        {conv(16), relu, pool, conv(32), relu, pool, {.type = "flatten"}, dense(64), relu, dense(outputs)}};
  }
  Layers layers;
  if (input.rank() > 1) layers.push_back({.type = "flatten"});
  for (const LayerDescription& l : {dense(128), relu, dense(64), relu, dense(outputs)}) layers.push_back(l);
  return {"simple_mlp", input, layers};
}

}  // namespace tandem::search
