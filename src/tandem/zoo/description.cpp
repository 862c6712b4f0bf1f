// Models from descriptions. A model is built twice: first on shapes alone, which finds what does not fit and what would
// be too large, then with memory.
#include "tandem/zoo/description.h"

#include <algorithm>
#include <map>
#include <set>

#include "tandem/core/file.h"
#include "tandem/core/trace.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/summary.h"
#include "tandem/ops/pointwise.h"
#include "tandem/zoo/description_limits.h"
#include "tandem/zoo/layer_types.h"

namespace tandem::zoo {
namespace {

/// "conv1 (conv, line 7)".
std::string title(const LayerDescription& layer, const std::string& name) {
  return cat(name, " (", one_line(layer.type, 60), layer.line > 0 ? cat(", line ", layer.line) : "", ")");
}

/// The shape of one sample that `made` gives for one of shape `in`.
Dims shape_after(const LayerDescription& layer, nn::Module& made, Dims in) {
  if (layer_type(layer.type).takes_indices) {  // of whole numbers, which a summary by shape does not give
    in.push_back(
        std::get<int64_t>(std::find_if(layer.settings.begin(), layer.settings.end(), [](const auto& s) {
                            return s.first == "width";
                          })->second));
    return in;
  }
  in.insert(0, 1);
  const TraceScope off(nullptr);  // the summary has a tracer of its own
  Dims out = nn::summary(made, in).layers[0].outputs.at(0);
  out.erase(0);
  return out;
}

class DescribedModel : public nn::Module {
 public:
  explicit DescribedModel(const ModelDescription& description)
      : name_(description.name), input_(description.input), output_(description.input) {
    steps_ = add(description.layers, "", output_, 0);
    for (const auto& [layer, module] : to_initialise_) initialise(*layer, *module);
    to_initialise_.clear();
    groups_.clear();
    leaves_.clear();
  }

  Tensor forward(const Tensor& x) override {
    Dims sample = x.shape();
    if (x.rank() > 0) sample.erase(0);
    TD_CHECK(sample == input_, "model ", name_, ": takes a batch of samples of ", input_, "; got ", x.shape(),
             sample.rank() + 1 == input_.rank() ? ". Add the batch as the first axis."
                                                : ". Make the model for that input.");
    return run(steps_, x);
  }
  std::string type_name() const override { return name_; }
  const Dims& output() const { return output_; }

 private:
  /// A layer, or where that is null a residual block.
  struct Step {
    nn::Module* layer = nullptr;
    std::vector<Step> main = {}, shortcut = {};
  };

  static Tensor run(const std::vector<Step>& steps, Tensor x) {
    for (const Step& step : steps) {
      if (step.layer) {
        x = (*step.layer)(x);
        continue;
      }
      const Tensor h = run(step.main, x);
      x = h + (step.shortcut.empty() ? x : run(step.shortcut, x));
    }
    return x;
  }

  /// Adds the layers of a list. `shape` is what arrives at the first, and becomes what leaves the last; their names begin
  /// with `prefix`, and are numbers after `numbered`.
  std::vector<Step> add(const std::vector<LayerDescription>& layers, const std::string& prefix, Dims& shape,
                        int depth, const std::string& numbered = "") {
    std::vector<Step> steps;
    for (size_t place = 0; place < layers.size(); ++place) {
      const LayerDescription& layer = layers[place];
      const std::string name = prefix + (layer.name.empty() ? numbered + std::to_string(place) : layer.name);
      TD_CHECK(++count_ <= kMostLayers, "model ", name_, ": must have at most ", kMostLayers,
               " layers; got more.");
      try {
        check_layer(layer);
        check_name(layer.name, "the name of a layer");
        const LayerType& type = layer_type(layer.type);
        TD_CHECK(shape.rank() >= type.least_rank && shape.rank() <= type.most_rank, layer.type,
                 ": takes samples of rank ", type.least_rank, " to ", type.most_rank, "; got ", shape, ".",
                 type.advice, type.least_rank == 2 ? " The first axis is the channels." : "");
        steps.push_back(type.make ? add_leaf(layer, type, name, shape)
                                  : add_residual(layer, name, shape, depth + 1));
      } catch (Error& error) {
        if (!said_where_) error.prepend(cat("model ", name_, ": layer ", title(layer, name), ": "));
        said_where_ = true;  // of the innermost layer, and once
        throw;
      }
    }
    return steps;
  }

  Step add_residual(const LayerDescription& layer, const std::string& name, Dims& shape, int depth) {
    TD_CHECK(depth <= kMostNested, "residual: blocks must be nested at most ", kMostNested,
             " deep; got more.");
    Dims straight = shape, around = shape;
    Step step;
    step.main = add(layer.layers, name + ".", straight, depth);
    step.shortcut = add(layer.shortcut, name + ".", around, depth, "shortcut.");
    TD_CHECK(
        straight == around, "residual: layers and shortcut must give the same shape; got ", straight, " and ",
        around, layer.shortcut.empty() ? " (the input as it is)" : "",
        ". Give the block a shortcut with a convolution of kernel 1 that has the same stride and channels.");
    shape = straight;
    return step;
  }

  Step add_leaf(const LayerDescription& layer, const LayerType& type, const std::string& name, Dims& shape) {
    TD_CHECK(!type.takes_indices || count_ == 1, layer.type,
             ": must be the first layer, since it takes whole numbers; got it further down.");
    const nn::ModulePtr made = type.make(layer, shape);
    for (const Tensor& parameter : made->own_parameters())
      parameters_ = plus_capped(parameters_, parameter.size());
    TD_CHECK(parameters_ <= kMostParameters, layer.type, ": the model must have at most ", kMostParameters,
             " parameters; got ", parameters_, " up to here. Make it smaller.");
    Dims out;
    try {
      out = shape_after(layer, *made, shape);
    } catch (Error& error) {
      error.prepend(cat("cannot take samples of ", shape, ": "));
      throw;
    }
    TD_CHECK(size_of(out) <= kMostElements, layer.type, ": a sample must have at most ", kMostElements,
             " elements; got ", out, ".");
    shape = out;
    place(name, made);
    to_initialise_.emplace_back(&layer, made.get());
    return {made.get()};
  }

  /// Puts a layer where its dotted name says, in containers that are made as they are needed.
  void place(const std::string& name, const nn::ModulePtr& made) {
    const auto check_free = [&](const std::string& part, bool is_group) {
      if (!leaves_.contains(part) && (is_group || !groups_.contains(part))) return;
      // Where the part is a group: the first layer in it. Names of a group are neighbours in the set.
      const std::string other = leaves_.contains(part) ? part : *leaves_.lower_bound(part + ".");
      TD_CHECK(other != name, "the name of a layer must be its own; got '", name, "' twice. Rename one.");
      throw Error(cat("the name of a layer must not be the beginning of another's, up to a dot; got '", name,
                      "' beside '", other, "'. Rename one, for example '", part, "' to '", part, "_0'."));
    };
    nn::ModuleDict* parent = nullptr;  // null: the model
    size_t begin = 0;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
      const std::string group = name.substr(0, dot), last = name.substr(begin, dot - begin);
      check_free(group, true);
      nn::ModuleDict*& known = groups_[group];
      if (!known) {
        const auto fresh = nn::make<nn::ModuleDict>();
        known = fresh.get();
        put(parent, last, fresh);
      }
      parent = known;
      begin = dot + 1;
    }
    check_free(name, false);
    leaves_.insert(name);
    put(parent, name.substr(begin), made);
  }
  void put(nn::ModuleDict* parent, const std::string& name, const nn::ModulePtr& child) {
    if (parent)
      parent->add(name, child);
    else
      adopt(name, child);
  }

  std::string name_;
  Dims input_, output_;
  std::vector<Step> steps_;
  // While it is built.
  int64_t count_ = 0, parameters_ = 0;
  bool said_where_ = false;
  std::map<std::string, nn::ModuleDict*> groups_;
  std::set<std::string> leaves_;
  std::vector<std::pair<const LayerDescription*, nn::Module*>> to_initialise_;
};

void check_input(const ModelDescription& d) {
  TD_CHECK(d.input.rank() >= 1 && d.input.rank() <= 4, "model ", d.name,
           ": input must be the sizes of one sample, one to four of them; got ", d.input,
           ". Leave the batch out, as in input = [1, 28, 28].");
  int64_t elements = 1;
  for (const Dim size : d.input) {
    TD_CHECK(size >= 1, "model ", d.name, ": the sizes of input must be at least 1; got ", d.input, ".");
    elements = times_capped(elements, size);
  }
  TD_CHECK(elements <= kMostElements, "model ", d.name, ": input must have at most ", kMostElements,
           " elements; got ", d.input, ".");
}

/// On shapes alone: finds whatever is wrong, and takes no memory for weights.
std::unique_ptr<nn::Module> checked(const ModelDescription& description) {
  TD_CHECK(!description.name.empty(), "model: must have a name; got none. Give it one.");
  check_name(description.name, "the name of a model");
  check_input(description);
  TD_CHECK(!description.layers.empty(), "model ", description.name,
           ": must have at least one layer; got none. Add layer = [ … ].");
  const TraceScope off(nullptr);
  return nn::shapes_of([&] { return std::make_unique<DescribedModel>(description); });
}

/// Calls f with every layer, those of residual blocks too.
template <class F>
void each_layer(std::vector<LayerDescription>& layers, const F& f, int depth = 0) {
  if (depth > kMostNested) return;  // refused when it is built
  for (LayerDescription& layer : layers) {
    f(layer);
    each_layer(layer.layers, f, depth + 1);
    each_layer(layer.shortcut, f, depth + 1);
  }
}

void set(LayerDescription& layer, const std::string& name, Setting value) {
  for (auto& [key, old] : layer.settings)
    if (key == name) old = value;
}

}  // namespace

void check_name(const std::string& name, const char* what) {
  if (name.empty()) return;
  bool is_good = name.size() <= kMostName && std::count(name.begin(), name.end(), '.') < kMostNameParts;
  char before = '.';
  for (const char c : name + ".") {
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    is_good = is_good && (is_letter || (c == '.' && before != '.'));
    before = c;
  }
  TD_CHECK(is_good, what, " must have at most ", kMostName, " letters, digits, _ and -, in at most ",
           kMostNameParts, " parts with a dot between; got '", one_line(name, 60), "'.");
}

ModelDescription with_options(ModelDescription d, const ModelOptions& options) {
  if (options.input) d.input = *options.input;
  if (options.dropout)
    each_layer(d.layers, [&](LayerDescription& layer) {
      if (has_setting(layer_type(layer.type), "p")) set(layer, "p", *options.dropout);
    });
  if (!options.classes) return d;
  TD_CHECK(*options.classes >= 1, "model ", d.name, ": there must be at least one class; got ",
           *options.classes, ".");
  const auto last = std::find_if(d.layers.rbegin(), d.layers.rend(), [](const LayerDescription& layer) {
    return has_setting(layer_type(layer.type), "outputs");
  });
  TD_CHECK(last != d.layers.rend(), "model ", d.name,
           ": must have a linear layer that gives the classes, outside of residual blocks; got none.");
  set(*last, "outputs", *options.classes);
  return d;
}

Dims output_shape(const ModelDescription& description) {
  return static_cast<const DescribedModel&>(*checked(description)).output();
}

std::unique_ptr<nn::Module> make_model(const ModelDescription& description, const ModelOptions& options) {
  const ModelDescription wanted = with_options(description, options);
  checked(wanted);
  auto model = std::make_unique<DescribedModel>(wanted);
  model->set_recipe([wanted]() -> nn::ModulePtr { return make_model(wanted); });
  return model;
}

}  // namespace tandem::zoo
