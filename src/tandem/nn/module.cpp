// Modules: names, moving, hooks, clones, and loading of state. The tree itself (children, walking, destruction) is in
// module_tree.cpp.
#include "tandem/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <typeinfo>

#include "tandem/core/rng.h"
#include "tandem/core/scope.h"
#include "tandem/core/tape.h"
#include "tandem/nn/load_names.h"
#include "tandem/nn/signature.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {

Tensor Module::forward(const Tensor& x) {
  // Where neither form is overridden, each would call the other.
  constinit thread_local const Module* asked = nullptr;
  if (asked == this)
    throw Error(str("module ", type_name(),
                    ": forward must take one tensor to be called with one; this module takes something else. "
                    "Call its own forward, or its parts."));
  struct Asking {
    const Module* before;
    ~Asking() { asked = before; }
  } const asking{std::exchange(asked, this)};
  return only(forward(std::vector<Tensor>{x}));
}

std::vector<Tensor> Module::forward(const std::vector<Tensor>& in) {
  TD_CHECK(in.size() == 1, "module ", type_name(), ": takes one tensor; got ", in.size(),
           ". Override forward(const std::vector<Tensor>&) for a module that takes several.");
  return {forward(in[0])};
}

Tensor Module::only(std::vector<Tensor> out) const {
  TD_CHECK(out.size() == 1, "module ", type_name(), ": must have one output to be called so; it has ",
           out.size(), ". Call it with a list of tensors, which gives a list.");
  return std::move(out[0]);
}

namespace {
/// As much of a long name as helps.
std::string shortened(std::string path) {
  constexpr size_t kLongest = 300;
  return path.size() <= kLongest ? path : "…" + path.substr(path.size() - kLongest);
}
}  // namespace

/// While tracing, names the layer whose code runs: the graph keeps that for the errors of its replays. While tracing or
/// profiling, a scope of that name.
struct Module::TracedLayer {
  explicit TracedLayer(const Module& of) : module(of) {
    if (!scopes_are_noted()) [[likely]]
      return;
    if (innermost && &innermost->module == &of) return;  // operator() is here already
    is_noted = true;
    outer = std::exchange(innermost, this);
    if (outer) {
      const std::string name = outer->module.name_of(&module);
      path = shortened(outer->path.empty() || name.empty() ? name : outer->path + "." + name);
    }
    const std::string type = of.type_name(), text = path.empty() ? type : str(path, " (", type, ")");
    if (current_tracer()) layer.emplace(path.empty() ? nullptr : std::make_shared<const std::string>(text));
    scope.emplace(text);
  }
  ~TracedLayer() {
    if (is_noted) innermost = outer;
  }
  TracedLayer(const TracedLayer&) = delete;
  TracedLayer& operator=(const TracedLayer&) = delete;

  static thread_local TracedLayer* innermost;
  const Module& module;
  TracedLayer* outer = nullptr;
  std::string path;
  bool is_noted = false;
  std::optional<LayerScope> layer;
  std::optional<Scope> scope;
};
thread_local Module::TracedLayer* Module::TracedLayer::innermost = nullptr;

Tensor Module::operator()(const Tensor& x) {
  detail::check_stack("module");
  read_switch(changes_);
  const TracedLayer layer(*this);
  try {
    if (pre_hooks_.empty() && hooks_.empty()) return forward(x);
    return call({x},
                [this](const std::vector<Tensor>& in) { return std::vector<Tensor>{forward(in[0])}; })[0];
  } catch (Error& error) {
    name_layer(error);
    throw;
  }
}

std::vector<Tensor> Module::operator()(const std::vector<Tensor>& in) {
  if (!pre_hooks_.empty() || !hooks_.empty())
    return call(in, [this](const std::vector<Tensor>& now) { return forward(now); });
  detail::check_stack("module");
  read_switch(changes_);
  const TracedLayer layer(*this);
  try {
    return forward(in);  // without the copy that hooks could change
  } catch (Error& error) {
    name_layer(error);
    throw;
  }
}

const Signature& Module::signature() const {
  static constexpr std::array<std::string_view, 1> input = {"input"}, output = {"output"};
  static const Signature& of_layers = *new Signature(input, output);
  return of_layers;
}

Named Module::operator()(const Named& in) {
  const Signature& names = signature();
  const std::vector<Tensor> list = names.bind(in, type_name());
  std::vector<Tensor> out =
      list.size() == 1 && names.results().size() == 1 ? std::vector<Tensor>{(*this)(list[0])} : (*this)(list);
  TD_CHECK(out.size() == names.results().size(), type_name(), ": must give ", names.results().text(),
           "; it gave ", out.size(), " tensors.");
  return {names.results(), std::move(out)};
}

std::vector<Tensor> Module::call(std::vector<Tensor> in,
                                 const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body) {
  detail::check_stack("module");
  read_switch(changes_);
  const TracedLayer layer(*this);
  try {
    const size_t inputs = in.size();
    // Copies, since a hook may remove itself.
    for (const auto& [id, hook] : std::vector(pre_hooks_)) hook(*this, in);
    TD_CHECK(in.size() == inputs, "module ", type_name(), ": a pre-hook must leave ", inputs,
             " inputs; it left ", in.size(), ".");
    std::vector<Tensor> out = body(in);
    const size_t outputs = out.size();
    for (const auto& [id, hook] : std::vector(hooks_)) hook(*this, in, out);
    TD_CHECK(out.size() == outputs, "module ", type_name(), ": a hook must leave ", outputs,
             " outputs; it left ", out.size(), ".");
    return out;
  } catch (Error& error) {
    name_layer(error);
    throw;
  }
}

void Module::name_layer(Error& error) const {
  // The Error that this thread is passing up, and what is known of its layer. Holding the exception keeps its address
  // from being used again.
  struct Trail {
    std::exception_ptr error;
    const Module* at = nullptr;      // the outermost module so far
    std::string path, type, text{};  // of the innermost one, below `at`; the Error's own words
  };
  thread_local Trail trail;
  if (const std::exception_ptr now = std::current_exception(); now != trail.error) {
    trail = {now, this, "", type_name(), error.what()};
    return;
  }
  const std::string way = name_of(trail.at);
  if (way.empty()) return;  // this very module, or one that it only points to
  trail.path = shortened(trail.path.empty() ? way : way + "." + trail.path);
  trail.at = this;
  // The object stays what it is, a class derived from Error included; only its text changes.
  static_cast<std::runtime_error&>(error) =
      std::runtime_error(str(trail.path, " (", trail.type, "): ", trail.text));
}

namespace {
void refuse_new_hook(const char* what) {
  refuse_while_tracing(what, "each later call would have to add another one",
                       "Add the hook before the compiled callable.");
}
}  // namespace

HookId Module::add_forward_pre_hook(ForwardPreHook hook) {
  refuse_new_hook("add_forward_pre_hook");
  TD_CHECK(hook, "add_forward_pre_hook: the hook must be a function; got none.");
  ++*changes_;
  return pre_hooks_.emplace_back(HookId{++last_hook_}, std::move(hook)).first;
}

HookId Module::add_forward_hook(ForwardHook hook) {
  refuse_new_hook("add_forward_hook");
  TD_CHECK(hook, "add_forward_hook: the hook must be a function; got none.");
  ++*changes_;
  return hooks_.emplace_back(HookId{++last_hook_}, std::move(hook)).first;
}

void Module::remove_hook(HookId id) {
  const auto has_id = [id](const auto& row) { return row.first == id; };
  TD_CHECK(std::erase_if(pre_hooks_, has_id) + std::erase_if(hooks_, has_id) == 1, "remove_hook: module ",
           type_name(), " must have the hook; got number ", static_cast<uint64_t>(id),
           ", which it does not have (any more).");
  ++*changes_;
}

Tensor Module::parameter(const std::string& name, Tensor initial) {
  check_new_name(name);
  TD_CHECK(initial.defined(), "parameter ", name, ": must be a tensor; got an undefined handle.");
  initial.set_requires_grad();
  entries_.push_back({name, initial, Kind::parameter});
  return initial;
}

Tensor Module::give_up_parameter(const std::string& name) {
  const auto row = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.kind == Kind::parameter && entry.name == name;
  });
  TD_CHECK(row != entries_.end(), "module ", type_name(),
           ": must have the parameter that is taken from it; has no '", name, "'.");
  const Tensor taken = row->tensor;
  entries_.erase(row);
  names_.clear();
  return taken;
}

Tensor Module::buffer(const std::string& name, Tensor initial, bool saved) {
  check_new_name(name);
  TD_CHECK(initial.defined(), "buffer ", name, ": must be a tensor; got an undefined handle.");
  TD_CHECK(!initial.requires_grad(), "buffer ", name,
           ": must not require a gradient; got one that does. detach() it, or make it a parameter.");
  initial.impl()->copied_by = nullptr;  // the module's own from now on
  entries_.push_back({name, initial, Kind::buffer, saved});
  return initial;
}

void detail::replace_handle(const Tensor& member, Tensor value) {
  Tensor* const place = const_cast<Tensor*>(&member);
  std::destroy_at(place);
  std::construct_at(place, std::move(value));
}

void Module::tie(const Tensor& member, const Tensor& shared) {
  TD_CHECK(member.defined() && shared.defined() && member.shape() == shared.shape(),
           "tie: both tensors must have one shape; got ", describe(member), " and ", describe(shared), ".");
  Tensor one = shared;
  bool found = member.same(shared);
  apply([&](Module& module) {
    for (Entry& entry : module.entries_) {
      if (!entry.tensor.same(member) || entry.kind != Kind::parameter) continue;
      entry.tensor = one;
      found = true;
    }
  });
  TD_CHECK(found, "tie: the first tensor must be a parameter of this module or of one below it; it is none.");
  detail::replace_handle(member, one);
  one.set_requires_grad();
}

NamedTensors Module::named_parameters() const {
  return unique_entries([](const Entry& entry) { return entry.kind == Kind::parameter; });
}
NamedTensors Module::named_buffers() const {
  return unique_entries([](const Entry& entry) { return entry.kind == Kind::buffer; });
}

NamedTensors Module::trainable_parameters() const {
  NamedTensors all = named_parameters();
  std::erase_if(all, [](const auto& row) { return !row.second.requires_grad(); });
  return all;
}

std::vector<Tensor> Module::parameters() const {
  return unique_tensors([](const Entry& entry) { return entry.kind == Kind::parameter; });
}

std::vector<Tensor> Module::own_parameters() const {
  std::vector<Tensor> all;
  for (const Entry& entry : entries_)
    if (entry.kind == Kind::parameter) all.push_back(entry.tensor);
  return all;
}

std::string Module::type_name() const { return detail::class_name(typeid(*this)); }

std::string detail::class_name(const std::type_info& type) {
  const char* mangled = type.name();
  int status = 0;
  char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string text = status == 0 ? readable : mangled;
  std::free(readable);
  const size_t colon = text.rfind("::", text.find('<'));  // arguments of templates have colons too
  if (colon != std::string::npos) text.erase(0, colon + 2);
  const size_t n = text.size();  // Conv<2> is Conv2d
  if (n > 3 && text[n - 3] == '<' && text[n - 1] == '>') text.replace(n - 3, 3, {text[n - 2], 'd'});
  return text;
}

void Module::set_training(bool on) {
  refuse_while_tracing("train", "the mode would change only while the callable is traced",
                       "Call train() or eval() before the compiled callable.");
  *training_ = on;
}

void Module::train(bool on) {
  apply([on](Module& module) { module.set_training(on); });
}

void Module::set_requires_grad(bool on) {
  for (Tensor& tensor : parameters()) tensor.set_requires_grad(on);
}

void Module::zero_grad() {
  for (Tensor& tensor : parameters()) tensor.zero_grad();
}

void Module::to(Device device) {
  const NoGrad off;
  for (Tensor& tensor : unique_tensors([](const Entry&) { return true; })) {
    if (tensor.device() == device) continue;
    tensor.zero_grad();
    tensor.rebind(tandem::to(tensor.detach(), device));
  }
}

void Module::to(DType dtype) {
  TD_CHECK(is_floating(dtype), "module to: parameters must have a floating type; got ", dtype, ".");
  const NoGrad off;
  for (Tensor& tensor : unique_tensors([](const Entry&) { return true; })) {
    if (tensor.dtype() == dtype || !is_floating(tensor.dtype())) continue;
    tensor.zero_grad();
    tensor.rebind(cast(tensor.detach(), dtype));
  }
}

NamedTensors Module::state() const {
  NamedTensors all = unique_entries([](const Entry& entry) { return entry.saved; });
  for (auto& [name, tensor] : all) tensor = tensor.detach();
  return all;
}

namespace {

bool fits(const Tensor& given, const Tensor& wanted) {
  return given.shape() == wanted.shape() && is_floating(given.dtype()) == is_floating(wanted.dtype());
}

/// How a tensor of the file and one of the model differ; for messages.
std::string difference(const Tensor& given, const Tensor& wanted) {
  return given.shape() == wanted.shape()
             ? str(given.dtype(), " in the file and ", wanted.dtype(), " in the model.")
             : str(given.shape(), " in the file and ", wanted.shape(), " in the model.");
}

std::vector<std::string> names_of(const std::map<std::string, const Tensor*>& tensors) {
  std::vector<std::string> names;
  for (const auto& row : tensors) names.push_back(row.first);
  return names;
}

bool same_values(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && host_bytes(a) == host_bytes(b);
}

}  // namespace

LoadReport Module::load_state(const NamedTensors& tensors, const LoadOptions& options) {
  const std::string& source = options.source;
  const std::string last = options.hint.empty() ? "" : " " + options.hint;
  std::map<std::string, const Tensor*> given;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(options.prefix)) given.emplace(name.substr(options.prefix.size()), &tensor);
  std::vector<std::string> in_file, in_model;
  for (const auto& row : tensors) in_file.push_back(row.first);
  TD_CHECK(!given.empty() || options.prefix.empty(), source, ": a name in the file must begin with '",
           options.prefix, "', the prefix; none does.", detail::few_names("The file holds", in_file), last);

  // One row a tensor of the model, with what is given under any of its names.
  struct Target {
    Entry entry;
    std::string found;  // the name
    const Tensor* value = nullptr;
  };
  std::vector<Target> targets;
  std::map<const TensorImpl*, size_t> rows;
  LoadReport report;
  for (const Entry& entry : collect()) {
    if (!entry.saved) continue;
    const auto [row, is_new] = rows.emplace(entry.tensor.impl(), targets.size());
    if (is_new) targets.push_back({entry, "", nullptr});
    Target& target = targets[row->second];
    const auto at = given.find(entry.name);
    if (at == given.end()) continue;
    if (!target.value) {
      target.found = entry.name;
      target.value = at->second;
    } else {
      TD_CHECK(same_values(*target.value, *at->second), source, ": ", target.found, " and ", entry.name,
               " are one tensor in the model and have different values in the file.", last);
    }
    given.erase(at);
  }
  for (const std::string& name : ignored_names()) given.erase(name);
  for (const Target& target : targets)
    (target.value ? in_model : report.missing).push_back(target.entry.name);
  if (options.prefix.empty() && !report.missing.empty())
    report.prefix = detail::prefix_in(in_file, report.missing);
  for (const Target& target : targets) {
    const std::string& name = target.entry.name;
    const Tensor& tensor = target.entry.tensor;
    const char* word = target.entry.kind == Kind::parameter ? "parameter" : "buffer";
    if (!target.value) {
      TD_CHECK(!options.strict, source, ": ", word, " ", name, " ", tensor.shape(), " is not in the file.",
               detail::missing_hint(in_file, names_of(given), report.missing), last);
    } else if (!fits(*target.value, tensor)) {
      TD_CHECK(!options.strict, source, ": ", word, " ", target.found, " is ",
               difference(*target.value, tensor), last);
      report.mismatched.push_back(target.found);
    }
  }
  for (const auto& [name, tensor] : given) report.unexpected.push_back(name);
  TD_CHECK(!options.strict || given.empty(), source, ": parameter ", given.begin()->first, " ",
           given.begin()->second->shape(), " is in the file and not in the model.",
           detail::few_names("The model holds", in_model), last);

  const NoGrad off;
  for (const Target& target : targets)
    if (target.value && fits(*target.value, target.entry.tensor))
      assign(target.entry.tensor, tandem::to(target.value->detach(), target.entry.tensor.device()));
  return report;
}

void Module::load_state(const NamedTensors& tensors, const std::string& source, const std::string& hint) {
  load_state(tensors, LoadOptions{.source = source, .hint = hint});
}

void Module::copy_state_from(const Module& other) { load_state(other.state(), "copy_state_from"); }

ModulePtr Module::make_fresh() const {
  detail::check_stack("clone");
  TD_CHECK(recipe_, "clone: module ", type_name(),
           " must have been made by nn::make, or hold only such modules. Make it so, or build a second one "
           "and use copy_state_from.");
  return recipe_();
}

ModulePtr Module::clone() const {
  const GeneratorState random = generator_state();  // what a fresh one draws is overwritten
  const ModulePtr copy = make_fresh();
  set_generator_state(random);
  std::vector<Entry> from = collect(), to = copy->collect();
  std::vector<Module*> modules, copies;
  const_cast<Module*>(this)->apply([&](Module& module) { modules.push_back(&module); });
  copy->apply([&](Module& module) { copies.push_back(&module); });
  const bool same_structure =
      modules.size() == copies.size() && state().size() == copy->state().size() &&
      std::equal(from.begin(), from.end(), to.begin(), to.end(), [](const Entry& a, const Entry& b) {
        return a.name == b.name && a.kind == b.kind && a.tensor.shape() == b.tensor.shape();
      });
  TD_CHECK(same_structure, "clone: module ", type_name(),
           " must be as nn::make made it; it was changed since. Build a second one and use "
           "copy_state_from.");
  const NoGrad off;
  for (size_t i = 0; i < from.size(); ++i) {
    to[i].tensor.rebind(tandem::clone(from[i].tensor.detach()));
    to[i].tensor.set_requires_grad(from[i].tensor.requires_grad());
  }
  for (size_t i = 0; i < modules.size(); ++i) copies[i]->set_training(*modules[i]->training_ != 0);
  return copy;
}

int64_t count_parameters(const Module& module) {
  int64_t count = 0;
  for (const Tensor& tensor : module.parameters()) count += tensor.size();
  return count;
}

std::string label(const char* type, const std::string& name) {
  return name.empty() ? type : str(type, " ", name);
}

void copy_named(const NamedTensors& to, const NamedTensors& from, const std::string& source, const char* kind,
                const std::string& hint) {
  const std::string last = hint.empty() ? "" : " " + hint;
  std::map<std::string, const Tensor*> given;
  for (const auto& [name, tensor] : from) given.emplace(name, &tensor);
  for (const auto& [name, tensor] : to) {
    const auto at = given.find(name);
    TD_CHECK(at != given.end(), source, ": ", kind, " ", name, " ", tensor.shape(), " is not in the file.",
             last);
    TD_CHECK(fits(*at->second, tensor), source, ": ", kind, " ", name, " is ",
             difference(*at->second, tensor), last);
    given.erase(at);
  }
  TD_CHECK(given.empty(), source, ": ", kind, " ", given.begin()->first, " ", given.begin()->second->shape(),
           " is in the file and not in the model.", last);

  const NoGrad off;
  for (const auto& [name, tensor] : from) given.emplace(name, &tensor);
  for (const auto& [name, tensor] : to) assign(tensor, tandem::to(given[name]->detach(), tensor.device()));
}

}  // namespace tandem::nn
