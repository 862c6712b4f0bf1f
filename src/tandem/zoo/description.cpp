// Models from descriptions. A description is first worked out on shapes alone, which finds what does not fit and what
// would be too large; the model is then built from that straight line, with memory.
#include "tandem/zoo/description.h"

#include <algorithm>
#include <map>
#include <set>

#include "tandem/core/file.h"
#include "tandem/core/nearest.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/signature.h"
#include "tandem/nn/stateful.h"
#include "tandem/nn/summary.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/zoo/description_limits.h"
#include "tandem/zoo/layer_types.h"

namespace tandem::zoo {
namespace {

constexpr const char* kBefore = "before";  // in `from`: what the layer before gave

/// "conv1 (conv, line 7)".
std::string title(const LayerDescription& layer, const std::string& name) {
  return str(name, " (", one_line(layer.type, 60), layer.line > 0 ? str(", line ", layer.line) : "", ")");
}

Dims batch_of_one(Dims sample) {
  sample.insert(0, 1);
  return sample;
}

/// Works a description out. Must run where tensors are shapes alone (nn::shapes_of): layers are made and called there to
/// learn what they give.
class Flattener {
 public:
  explicit Flattener(const ModelDescription& description) : model_(description) {
    line_.name = description.name;
    line_.inputs = inputs_of(description);
    scopes_.emplace_back();
    for (const InputDescription& input : line_.inputs) {
      values_.emplace(input.name, zeros(batch_of_one(input.shape), input.dtype));
      scopes_.back().emplace(input.name, input.name);
    }
    Value last = add(description.layers, "", line_.inputs.front().name, 0);
    if (description.outputs.empty()) line_.outputs.push_back({"out", last, sample_of(last)});
    for (const std::string& name : description.outputs) {
      const Value value = named(name, "outputs");
      TD_CHECK(value.front() == 'v' && values_.contains(value) && !is_input(value), "model ", model_.name,
               ": outputs must be made by layers; got the input '", name, "'.");
      line_.outputs.push_back({name, value, sample_of(value)});
    }
  }
  StraightLine take() { return std::move(line_); }

 private:
  using Value = std::string;  // as calls name it

  static std::vector<InputDescription> inputs_of(const ModelDescription& d) {
    if (!d.inputs.empty()) return d.inputs;
    const bool of_indices = !d.layers.empty() && layer_type(d.layers[0].type).takes_indices;
    return {{"x", d.input, of_indices ? DType::i64 : DType::f32}};
  }
  bool is_input(const Value& value) const {
    return std::any_of(line_.inputs.begin(), line_.inputs.end(),
                       [&](const InputDescription& input) { return input.name == value; });
  }
  Dims sample_of(const Value& value) const {
    Dims shape = values_.at(value).shape();
    shape.erase(0);
    return shape;
  }

  Value named(const std::string& name, const char* what) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto at = scope->find(name); at != scope->end()) return at->second;
    std::vector<std::string> known;
    for (const auto& scope : scopes_)
      for (const auto& [each, value] : scope) known.push_back(each);
    std::string list;
    for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
    const std::string near = did_you_mean(name, known);
    throw Error(str(what, ": must name an input or what an earlier layer gave (", list, "); got '",
                    one_line(name, 60), "'.",
                    near.empty() ? " Give that layer to = \"" + one_line(name, 60) + "\"." : near));
  }

  /// Adds the layers of a list, the first of which gets `value` unless it says otherwise; their names begin with `prefix`, and
  /// are numbers after `numbered`. Returns what the last gives.
  Value add(const std::vector<LayerDescription>& layers, const std::string& prefix, Value value, int depth,
            const std::string& numbered = "") {
    for (size_t place = 0; place < layers.size(); ++place) {
      const LayerDescription& layer = layers[place];
      const std::string name = prefix + (layer.name.empty() ? numbered + std::to_string(place) : layer.name);
      TD_CHECK(++count_ <= kMostLayers, "model ", model_.name, ": must have at most ", kMostLayers,
               " layers; got more.");
      try {
        check_layer(layer);
        check_name(layer.name, "the name of a layer");
        std::vector<Value> in;
        for (const std::string& from : layer.from)
          in.push_back(from == kBefore ? value : named(from, "from"));
        if (in.empty()) in = {value};
        const LayerType& type = layer_type(layer.type);
        TD_CHECK(static_cast<int>(in.size()) >= type.least_inputs &&
                     static_cast<int>(in.size()) <= type.most_inputs,
                 layer.type, ": takes ", type.least_inputs,
                 type.most_inputs == type.least_inputs ? ""
                 : type.most_inputs == kAnyNumber      ? " or more"
                                                       : str(" to ", type.most_inputs),
                 " values; got ", in.size(), ". Name them in from = [ … ].");
        const Dims shape = sample_of(in[0]);
        TD_CHECK(shape.rank() >= type.least_rank && shape.rank() <= type.most_rank, layer.type,
                 ": takes samples of rank ", type.least_rank, " to ", type.most_rank, "; got ", shape, ".",
                 type.advice, type.least_rank == 2 ? " The first axis is the channels." : "");
        value = type.make                ? add_leaf(layer, type, name, in)
                : layer.type == "repeat" ? add_repeat(layer, name, in[0], depth + 1)
                                         : add_residual(layer, name, in[0], depth + 1);
        if (!layer.to.empty()) {
          check_value_name(layer.to);
          TD_CHECK(scopes_.back().emplace(layer.to, value).second,
                   "to: the name of a value must be its own; got '", layer.to, "' twice. Rename one.");
        }
      } catch (Error& error) {
        if (!said_where_) error.prepend(str("model ", model_.name, ": layer ", title(layer, name), ": "));
        said_where_ = true;  // of the innermost layer, and once
        throw;
      }
    }
    return value;
  }

  /// The layers of a block, whose names for values end with it.
  Value add_inside(const std::vector<LayerDescription>& layers, const std::string& prefix, const Value& value,
                   int depth, const std::string& numbered = "") {
    TD_CHECK(depth <= kMostNested, "blocks must be nested at most ", kMostNested, " deep; got more.");
    scopes_.emplace_back();
    const Value out = add(layers, prefix, value, depth, numbered);
    scopes_.pop_back();
    return out;
  }

  Value add_repeat(const LayerDescription& layer, const std::string& name, Value value, int depth) {
    const int64_t times = std::get<int64_t>(layer.settings.at(0).second);
    for (int64_t turn = 0; turn < times; ++turn)
      value = add_inside(layer.layers, str(name, ".", turn, "."), value, depth);
    return value;
  }

  Value add_residual(const LayerDescription& layer, const std::string& name, const Value& value, int depth) {
    const Value main = add_inside(layer.layers, name + ".", value, depth);
    const Value around = add_inside(layer.shortcut, name + ".", value, depth, "shortcut.");
    const Dims straight = sample_of(main), other = sample_of(around);
    TD_CHECK(
        straight == other, "residual: layers and shortcut must give the same shape; got ", straight, " and ",
        other, layer.shortcut.empty() ? " (the input as it is)" : "",
        ". Give the block a shortcut with a convolution of kernel 1 that has the same stride and channels.");
    return add_leaf({.type = "add", .line = layer.line}, layer_type("add"), "", {main, around});
  }

  Value add_leaf(const LayerDescription& layer, const LayerType& type, const std::string& name,
                 const std::vector<Value>& in) {
    std::vector<Tensor> given;
    for (const Value& value : in) given.push_back(values_.at(value));
    const Dims shape = sample_of(in[0]);
    TD_CHECK(is_integer(given[0].dtype()) == type.takes_indices, layer.type, ": takes ",
             type.takes_indices ? "whole numbers" : "numbers with a point", "; got ", in[0], ", which has ",
             type.takes_indices ? "others. Give that input type = \"i64\", and put this layer first."
                                : "whole ones. Put an embedding before it.");
    LayerCall call;
    call.layer = {
        .type = layer.type, .name = name, .settings = full_settings(layer, shape), .line = layer.line};
    call.in = in;
    call.out = str("v", line_.calls.size() + 1);
    const nn::ModulePtr made = type.make(call.layer, shape);
    for (const auto& [own, tensor] : made->named_parameters()) {
      call.parameters.emplace_back(str(name, ".", own), tensor.shape());
      parameters_ = plus_capped(parameters_, tensor.size());
    }
    for (const auto& [own, tensor] : made->named_buffers())
      call.buffers.emplace_back(str(name, ".", own), tensor.shape());
    TD_CHECK(parameters_ <= kMostParameters, layer.type, ": the model must have at most ", kMostParameters,
             " parameters; got ", parameters_, " up to here. Make it smaller.");
    for (const auto& [own, sample] : states_of(call.layer)) {
      InputDescription& state = line_.states.emplace_back(InputDescription{str(name, ".", own), sample});
      call.states.push_back(state.name);
      given.push_back(zeros({sample[0], 1, sample[1]}));
    }
    Tensor out;
    try {
      made->eval();
      const NoGrad off;
      out = given.size() == 1 ? (*made)(given[0]) : (*made)(given)[0];
    } catch (Error& error) {
      error.prepend(str("cannot take samples of ", shape, ": "));
      throw;
    }
    if (!name.empty()) reserve(name);
    values_.emplace(call.out, out);
    call.shape = sample_of(call.out);
    TD_CHECK(size_of(call.shape) <= kMostElements, layer.type, ": a sample must have at most ", kMostElements,
             " elements; got ", call.shape, ".");
    line_.calls.push_back(std::move(call));
    return line_.calls.back().out;
  }

  /// A layer's name must leave room for the others: dots make groups.
  void reserve(const std::string& name) {
    const auto check_free = [&](const std::string& part, bool is_group) {
      if (!leaves_.contains(part) && (is_group || !groups_.contains(part))) return;
      // Where the part is a group: the first layer in it. Names of a group are neighbours in the set.
      const std::string other = leaves_.contains(part) ? part : *leaves_.lower_bound(part + ".");
      TD_CHECK(other != name, "the name of a layer must be its own; got '", name, "' twice. Rename one.");
      throw Error(str("the name of a layer must not be the beginning of another's, up to a dot; got '", name,
                      "' beside '", other, "'. Rename one, for example '", part, "' to '", part, "_0'."));
    };
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      check_free(name.substr(0, dot), true);
      groups_.insert(name.substr(0, dot));
    }
    check_free(name, false);
    leaves_.insert(name);
  }

  const ModelDescription& model_;
  StraightLine line_;
  std::set<std::string> groups_, leaves_;             // of layers' names
  std::map<Value, Tensor> values_;                    // without values, a batch of one sample each
  std::vector<std::map<std::string, Value>> scopes_;  // names that a description gives, the innermost last
  int64_t count_ = 0, parameters_ = 0;
  bool said_where_ = false;
};

class DescribedModel : public nn::Module {
 public:
  explicit DescribedModel(const StraightLine& line) : name_(line.name), inputs_(line.inputs) {
    std::map<std::string, size_t> slots;
    std::map<std::string, Dims> shapes;
    for (const InputDescription& input : line.inputs) {
      slots.emplace(input.name, slots.size());
      shapes.emplace(input.name, input.shape);
    }
    for (const InputDescription& state : line.states) slots.emplace(state.name, slots.size());
    states_ = line.states.size();
    std::map<size_t, size_t> last_use;  // slot -> step
    for (const LayerCall& call : line.calls) {
      const nn::ModulePtr made = layer_type(call.layer.type).make(call.layer, shapes.at(call.in[0]));
      if (!call.parameters.empty() || !call.buffers.empty() || !call.layer.name.empty())
        place(call.layer.name, made);
      else
        unnamed_.push_back(made);
      to_initialise_.emplace_back(&call.layer, made.get());
      Step step{.layer = made.get(), .in = {}, .out = slots.size()};
      for (const std::string& value : call.in) step.in.push_back(slots.at(value));
      for (const std::string& state : call.states) step.states.push_back(slots.at(state));
      for (const size_t slot : step.in) last_use[slot] = steps_.size();
      slots.emplace(call.out, step.out);
      shapes.emplace(call.out, call.shape);
      steps_.push_back(std::move(step));
    }
    for (const StraightLine::Output& output : line.outputs) {
      outputs_.push_back(slots.at(output.value));
      last_use.erase(outputs_.back());
    }
    for (const auto& [slot, step] : last_use) steps_[step].done.push_back(slot);
    slots_ = slots.size();
    std::vector<std::string_view> arguments, results;
    for (const InputDescription& input : line.inputs) arguments.push_back(input.name);
    for (const StraightLine::Output& output : line.outputs) results.push_back(output.name);
    for (const InputDescription& state : line.states) {
      arguments.push_back(state.name);
      results.push_back(state.name);
    }
    signature_ = std::make_unique<const nn::Signature>(arguments, results);
    for (const auto& [layer, module] : to_initialise_) draw_weights(*layer, *module);
    to_initialise_.clear();
    groups_.clear();
  }

  const nn::Signature& signature() const override { return *signature_; }

  Tensor forward(const Tensor& x) override { return only(forward(std::vector<Tensor>{x})); }

  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    const size_t inputs = inputs_.size();
    TD_CHECK(in.size() == inputs + states_, "model ", name_, ": takes ", inputs, " tensors",
             states_ > 0 ? str(" and ", states_, " states behind them") : "", "; got ", in.size(), ".");
    std::vector<Tensor> values(slots_);
    for (size_t i = 0; i < inputs; ++i) {
      Dims sample = in[i].shape();
      if (in[i].rank() > 0) sample.erase(0);
      const bool is_text =
          inputs_[i].dtype == DType::i64 && inputs_[i].shape.rank() == 1 && sample.rank() == 1;
      TD_CHECK(in[i].rank() > 0 && (is_text || sample == inputs_[i].shape), "model ", name_,
               ": takes a batch of samples of ", inputs_[i].shape, inputs > 1 ? " as " + inputs_[i].name : "",
               "; got ", in[i].shape(),
               sample.rank() + 1 == inputs_[i].shape.rank() ? ". Add the batch as the first axis."
                                                            : ". Make the model for that input.");
      values[i] = in[i];
    }
    for (size_t i = inputs; i < in.size(); ++i) values[i] = in[i];
    for (const Step& step : steps_) {
      if (step.in.size() + step.states.size() == 1) {
        values[step.out] = (*step.layer)(values[step.in[0]]);
      } else {
        std::vector<Tensor> given;
        given.reserve(step.in.size() + step.states.size());
        for (const size_t slot : step.in) given.push_back(values[slot]);
        for (const size_t slot : step.states) given.push_back(values[slot]);
        std::vector<Tensor> out = (*step.layer)(given);
        values[step.out] = std::move(out[0]);
        for (size_t i = 0; i < step.states.size(); ++i) values[step.states[i]] = std::move(out[i + 1]);
      }
      for (const size_t slot : step.done) values[slot] = {};
    }
    std::vector<Tensor> out;
    for (const size_t slot : outputs_) out.push_back(values[slot]);
    for (size_t i = inputs; i < in.size(); ++i) out.push_back(values[i]);
    return out;
  }
  std::string type_name() const override { return name_; }

 private:
  struct Step {
    nn::Module* layer;
    std::vector<size_t> in;
    size_t out;
    std::vector<size_t> states = {}, done = {};  // `done`: values that nothing later reads
  };

  /// Puts a layer where its dotted name says, in containers that are made as they are needed.
  void place(const std::string& name, const nn::ModulePtr& made) {
    nn::ModuleDict* parent = nullptr;  // null: the model
    size_t begin = 0;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
      const std::string group = name.substr(0, dot), last = name.substr(begin, dot - begin);
      nn::ModuleDict*& known = groups_[group];
      if (!known) {
        const auto fresh = nn::make<nn::ModuleDict>();
        known = fresh.get();
        put(parent, last, fresh);
      }
      parent = known;
      begin = dot + 1;
    }
    put(parent, name.substr(begin), made);
  }
  void put(nn::ModuleDict* parent, const std::string& name, const nn::ModulePtr& child) {
    if (parent)
      parent->add(name, child);
    else
      adopt(name, child);
  }

  std::string name_;
  std::unique_ptr<const nn::Signature> signature_;
  std::vector<InputDescription> inputs_;
  size_t states_ = 0, slots_ = 0;
  std::vector<Step> steps_;
  std::vector<size_t> outputs_;
  std::vector<nn::ModulePtr> unnamed_;  // sums of residual blocks
  // While it is built.
  std::map<std::string, nn::ModuleDict*> groups_;
  std::vector<std::pair<const LayerDescription*, nn::Module*>> to_initialise_;
};

/// One with states.
class StatefulModel final : public DescribedModel, public nn::Stateful {
 public:
  explicit StatefulModel(const StraightLine& line) : DescribedModel(line), states_(line.states) {}
  Named first_states(int64_t batch) const override {
    const Tensor like = this->parameters().at(0);
    std::vector<std::string> names;
    std::vector<Tensor> values;
    for (const InputDescription& state : states_) {
      names.push_back(state.name);
      values.push_back(zeros({state.shape[0], batch, state.shape[1]}, like.dtype(), like.device()));
    }
    return {Names::of(names), std::move(values)};
  }

 private:
  std::vector<InputDescription> states_;
};

void check_shape(const std::string& model, const std::string& what, const Dims& shape) {
  int64_t elements = 1;
  for (const Dim size : shape) {
    TD_CHECK(size >= 1, "model ", model, ": the sizes of ", what, " must be at least 1; got ", shape, ".");
    elements = times_capped(elements, size);
  }
  TD_CHECK(elements <= kMostElements, "model ", model, ": ", what, " must have at most ", kMostElements,
           " elements; got ", shape, ".");
}

void check_inputs(const ModelDescription& d) {
  if (d.inputs.empty()) {
    TD_CHECK(d.input.rank() >= 1 && d.input.rank() <= 4, "model ", d.name,
             ": input must be the sizes of one sample, one to four of them; got ", d.input,
             ". Leave the batch out, as in input = [1, 28, 28].");
    return check_shape(d.name, "input", d.input);
  }
  TD_CHECK(d.input.rank() == 0, "model ", d.name,
           ": must have either input or inputs; got both. Put it into the list.");
  std::set<std::string> names;
  for (const InputDescription& input : d.inputs) {
    TD_CHECK(!input.name.empty(), "model ", d.name, ": an input must have a name; got none.");
    check_value_name(input.name);
    TD_CHECK(names.insert(input.name).second, "model ", d.name,
             ": the name of an input must be its own; got '", input.name, "' twice.");
    TD_CHECK(input.dtype == DType::f32 || input.dtype == DType::i64, "model ", d.name, ": the type of input ",
             input.name, " must be f32 or i64; got ", input.dtype, ".");
    TD_CHECK(input.shape.rank() <= 4, "model ", d.name, ": input ", input.name,
             " must have at most four sizes, without the batch; got ", input.shape, ".");
    check_shape(d.name, input.name, input.shape);
  }
}

/// Calls f with every layer, those of blocks too.
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

void check_value_name(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  bool is_good = !name.empty() && name.size() <= kMostName && is_letter(name[0]);
  for (const char c : name) is_good = is_good && (is_letter(c) || is_digit(c));
  // v1, v2 … are what straight_line calls values.
  const bool is_taken = name == kBefore || (name.size() > 1 && name[0] == 'v' &&
                                            std::all_of(name.begin() + 1, name.end(), is_digit));
  TD_CHECK(is_good && !is_taken, "the name of a value must be at most ", kMostName,
           " letters, digits and _, must not begin with a digit, and must not be v and a number, nor ",
           kBefore, "; got '", one_line(name, 60), "'. Rename it.");
}

ModelDescription with_options(ModelDescription d, const ModelOptions& options) {
  if (options.input) {
    const auto sized = std::count_if(d.inputs.begin(), d.inputs.end(),
                                     [](const InputDescription& input) { return input.shape.rank() > 0; });
    TD_CHECK(sized <= 1, "model ", d.name, ": has ", d.inputs.size(),
             " inputs, so that one size cannot replace theirs; got ", *options.input, ".");
    (d.inputs.empty() ? d.input : d.inputs[0].shape) = *options.input;
  }
  if (options.vocabulary) {
    const auto first = std::find_if(d.layers.begin(), d.layers.end(),
                                    [](const LayerDescription& layer) { return layer.type == "embedding"; });
    TD_CHECK(first != d.layers.end(), "model ", d.name,
             ": must have an embedding, outside of blocks, to take text; it has none.");
    set(*first, "rows", *options.vocabulary);
  }
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
           ": must have a linear layer that gives the classes, outside of blocks; got none.");
  set(*last, "outputs", *options.classes);
  return d;
}

StraightLine straight_line(const ModelDescription& description) {
  TD_CHECK(!description.name.empty(), "model: must have a name; got none. Give it one.");
  check_name(description.name, "the name of a model");
  check_inputs(description);
  TD_CHECK(!description.layers.empty(), "model ", description.name,
           ": must have at least one layer; got none. Add layer = [ … ].");
  StraightLine line;
  const TraceScope off(nullptr);
  nn::shapes_of([&]() -> std::unique_ptr<nn::Module> {
    line = Flattener(description).take();
    return nullptr;
  });
  return line;
}

Dims output_shape(const ModelDescription& description) {
  const StraightLine line = straight_line(description);
  TD_CHECK(line.outputs.size() == 1, "model ", description.name, ": must have one output here; it has ",
           line.outputs.size(), ".");
  return line.outputs[0].shape;
}

std::unique_ptr<nn::Module> make_model(const ModelDescription& description, const ModelOptions& options) {
  const ModelDescription wanted = with_options(description, options);
  const StraightLine line = straight_line(wanted);
  std::unique_ptr<nn::Module> model;
  if (line.states.empty())
    model = std::make_unique<DescribedModel>(line);
  else
    model = std::make_unique<StatefulModel>(line);
  model->set_recipe([wanted]() -> nn::ModulePtr { return make_model(wanted); });
  return model;
}

}  // namespace tandem::zoo
