// Module: a piece of a network with named parameters, named buffers and named children. A child is declared as a
// member that names its parent and itself, so a layer is one line and nothing is registered by hand:
//   struct Net : nn::Module {
//     nn::Conv2d conv1{this, "conv1", 1, 6, 5, {.padding = 2}};
//     nn::Linear fc{this, "fc", 6 * 28 * 28, 10};
//     const Tensor scale = parameter("scale", ones({10}));
//     Tensor forward(const Tensor& x) override { return fc(flatten(relu(conv1(x)), 1)) * scale; }
//   };
// Parameters have dotted names, "conv1.weight", and PyTorch's layouts. The same layers can be owned by a container
// (nn/containers.h), made by nn::make<nn::Linear>(784, 10). Modules may be nested as deep as memory allows: building,
// walking and destroying them takes time in proportion to their number and no deeper a stack.
//
// Threads: any number may call one module at the same time while none changes it, as for inference in eval() mode. What changes
// it must be alone: training a layer with running statistics (BatchNorm, SpectralNorm) or sparse gradients, backward() into
// its parameters (grad() is free), an optimiser's update, modes, hooks, loading, moving, new children. WeightNorm and
// SpectralNorm are to be called by one thread at a time in any mode: a call puts the computed weight into the layer.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tandem/core/named.h"
#include "tandem/core/tensor.h"
#include "tandem/core/trace.h"

namespace tandem::nn {

class Module;
class Signature;
using ModulePtr = std::shared_ptr<Module>;

/// Tensors with their names: parameters, or the state of an optimiser.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Sees the inputs of a call before it runs, and may replace them.
using ForwardPreHook = std::function<void(Module& module, std::vector<Tensor>& in)>;
/// Sees inputs and outputs of a call after it ran, and may replace the outputs.
using ForwardHook =
    std::function<void(Module& module, const std::vector<Tensor>& in, std::vector<Tensor>& out)>;
/// Names a hook of one module.
enum class HookId : uint64_t {};

struct LoadOptions {
  bool strict = true;                 ///< refuse whatever does not fit, and change nothing then
  std::string source = "load_state";  ///< where the tensors come from, for messages: "load 'a.safetensors'"
  std::string hint = {};              ///< a last sentence for the messages
  /// Only tensors whose names begin with this are taken, under the rest of their names: "module." of a file that
  /// DistributedDataParallel wrote, "_orig_mod." of torch.compile's, "model." of a part of a larger file.
  std::string prefix = {};
};

/// What did not fit, by name.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the model, and not given
  std::vector<std::string> unexpected;  ///< given, and not in the model
  std::vector<std::string> mismatched;  ///< in both, of another shape or kind of type
  /// Behind which the file has all the names that are missing, where it has them so: what LoadOptions::prefix may be.
  std::string prefix = {};
  bool complete() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};

class Module {
 public:
  /// A module of its own.
  Module() = default;
  /// A child of `parent`, which must outlive it (members do). The name must be new in the parent and without a
  /// dot. A null parent makes a module of its own, whose name does not matter: how containers get theirs.
  Module(Module* parent, const std::string& name);
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// What the module computes. One of several inputs or outputs overrides the second form instead. One that takes something
  /// else than tensors leaves both alone and declares its own forward (after `using Module::forward;`) and operator(),
  /// which gives call() its inputs.
  virtual Tensor forward(const Tensor& x);
  virtual std::vector<Tensor> forward(const std::vector<Tensor>& in);
  /// forward, with the hooks around it. An Error from inside a child names it: "features.3 (Conv2d): conv2d: …", by
  /// its place below the module that was called first.
  Tensor operator()(const Tensor& x);
  std::vector<Tensor> operator()(const std::vector<Tensor>& in);
  /// The same by name: the arguments and the results of signature(). Throws Error where an argument is missing or unknown.
  Named operator()(const Named& in);
  /// The names of what the module takes and gives: "input" and "output" unless the class says otherwise (nn/signature.h).
  virtual const Signature& signature() const;
  /// The same for one output: net(x, y).
  template <class... T>
  requires(sizeof...(T) > 1 && (std::is_same_v<T, Tensor> && ...)) Tensor operator()(const T&... in) {
    return only((*this)(std::vector<Tensor>{in...}));
  }

  /// All parameters of this module and its children, a module's own first, then its children's in order of
  /// declaration. One that has several names (a shared tensor) comes once, under the first.
  NamedTensors named_parameters() const;
  std::vector<Tensor> parameters() const;
  /// Of this module alone.
  std::vector<Tensor> own_parameters() const;
  /// Those that are not frozen.
  NamedTensors trainable_parameters() const;
  /// The same for buffers: state that no gradient changes, like running means.
  NamedTensors named_buffers() const;

  /// This module, under the name "", and all below it, each once; or its direct children.
  std::vector<std::pair<std::string, Module*>> named_modules();
  std::vector<std::pair<std::string, Module*>> named_children();
  /// Calls fn for this module and all below it, parents first.
  void apply(const std::function<void(Module&)>& fn);
  /// "Conv2d": the class, without its namespace.
  virtual std::string type_name() const;

  /// Training (the default) or evaluation, for this module and its children. Dropout asks for it.
  void train(bool on = true);
  void eval() { train(false); }
  /// The same for this module alone.
  void set_training(bool on);
  bool training() const { return read_switch(training_) != 0; }

  /// Switches gradients off (on) for all parameters here and below. Training steps leave alone what is frozen when they
  /// are called, whenever they were made.
  void freeze() { set_requires_grad(false); }
  void unfreeze() { set_requires_grad(true); }
  void set_requires_grad(bool on);
  void zero_grad();

  /// Moves every parameter and buffer to a device, or converts the floating ones to a floating type. Handles taken
  /// before stay valid.
  void to(Device device);
  void to(DType dtype);

  /// The values of parameters and buffers as they are now, without gradients: what a file of weights holds. A
  /// shared tensor is there once, under its first name, as safetensors files want it.
  NamedTensors state() const;
  /// Overwrites every parameter and buffer by the tensor of its name. A shared tensor may be given under any of its
  /// names, or under several with equal values. Strict: every one must be there with its shape, and nothing else may
  /// be (but what a layer ignores by name: PyTorch's num_batches_tracked of batch norms); nothing is changed where one
  /// does not fit. Otherwise what fits is loaded and the rest reported.
  LoadReport load_state(const NamedTensors& tensors, const LoadOptions& options = {});
  void load_state(const NamedTensors& tensors, const std::string& source, const std::string& hint = "");
  /// Takes the values of another module with the same names and shapes, keeping its own type and device.
  void copy_state_from(const Module& other);

  /// A second module of the same structure, type, device and values, which shares no memory with this one. Train or
  /// eval mode and frozen parameters are copied, hooks are not. Modules that nn::make or zoo::make_model made and
  /// containers of such can be cloned; of any other, build a second one and use copy_state_from.
  ModulePtr clone() const;

  /// Hooks run at every call through operator(), in the order in which they were added. What they compute with tensors
  /// is part of a compiled callable; one that gets or loses a hook is traced again.
  HookId add_forward_pre_hook(ForwardPreHook hook);
  HookId add_forward_hook(ForwardHook hook);
  void remove_hook(HookId id);

  /// How a fresh one is made, for clone(). nn::make and the zoo say it.
  void set_recipe(std::function<ModulePtr()> recipe) { recipe_ = std::move(recipe); }

 protected:
  /// Makes `initial` a parameter of this module and returns it, for a const member: the module keeps a handle of its own, so
  /// that `w = w + x` would change the member alone (assign(w, w + x) changes both). A tensor that is another module's parameter
  /// already becomes shared by both.
  Tensor parameter(const std::string& name, Tensor initial);
  /// Makes `initial` a buffer of this module and returns it, for a const member: saved, loaded and moved like a parameter, but neither
  /// trained nor counted. Change it by assign(). One that is not `saved` (a table that can be made again) is only
  /// moved.
  Tensor buffer(const std::string& name, Tensor initial, bool saved = true);
  /// Takes a parameter of this module alone away from it and returns it: for a class that computes it from others.
  Tensor give_up_parameter(const std::string& name);
  /// Names a tensor that files of other programs hold for this module and that has no use here: load_state passes it
  /// over.
  void ignore(const std::string& name) { ignored_.push_back(name); }
  /// Makes `member`, a parameter of this module or of one below, the same tensor as `shared`:
  ///   tie(decoder.weight, embedding.weight);
  void tie(const Tensor& member, const Tensor& shared);
  /// Takes a module as a child.
  void adopt(const std::string& name, ModulePtr child);
  /// The one output of a call; refused where there are several.
  Tensor only(std::vector<Tensor> out) const;
  /// Runs body(inputs) with the hooks around it.
  std::vector<Tensor> call(std::vector<Tensor> in,
                           const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body);
  /// A module of the same structure, with values of its own: clone() puts in those of this one. Throws Error where
  /// modules are nested too deep for the stack.
  virtual ModulePtr make_fresh() const;

 private:
  struct Child {
    std::string name;
    Module* module;
    ModulePtr owner;  // null for members
  };
  enum class Kind : uint8_t { parameter, buffer };
  struct Entry {
    std::string name;  // dotted
    Tensor tensor;
    Kind kind;
    bool saved = true;
  };
  /// Calls visit(module, prefix) for this module and all below it, parents first; prefix is what the names of its
  /// entries begin with: "" or "features.3.". A module with several names comes once, under the first, unless
  /// `every_name`.
  template <class Visit>
  void walk(const Visit& visit, bool every_name = false) const;
  /// Everything with every name, shared tensors several times.
  std::vector<Entry> collect() const;
  std::vector<std::string> ignored_names() const;
  /// Those that `wanted` takes, each tensor once.
  NamedTensors unique_entries(bool (*wanted)(const Entry&)) const;
  std::vector<Tensor> unique_tensors(bool (*wanted)(const Entry&)) const;
  void check_new_name(const std::string& name) const;
  void take_child(const std::string& name, Module* module, ModulePtr owner);
  /// Whether `module` is this one or below it.
  bool holds(const Module* module) const;
  /// "features.3" for a module below this one; empty where it is none.
  std::string name_of(const Module* module) const;
  /// Called while an Error passes: puts the name of the layer that it came from before its text.
  void name_layer(Error& error) const;
  struct TracedLayer;

  std::vector<Module*> parents_;  // that have this as a child; guarded, since threads may share a child
  std::vector<Child> children_;
  std::vector<Entry> entries_;  // of this module alone
  std::vector<std::string> ignored_;
  mutable std::unordered_set<std::string> names_;  // of many children and entries; of a few they are compared
  std::vector<std::pair<HookId, ForwardPreHook>> pre_hooks_;
  std::vector<std::pair<HookId, ForwardHook>> hooks_;
  uint64_t last_hook_ = 0;
  std::function<ModulePtr()> recipe_;
  // Shared, so that a compiled step can ask later whether they still stand as they did while tracing.
  std::shared_ptr<uint64_t> training_ = std::make_shared<uint64_t>(1);
  std::shared_ptr<uint64_t> changes_ =
      std::make_shared<uint64_t>(0);  // counts hooks added and removed, and children

  friend class Container;
  friend class RuntimeModule;
};

/// How many elements the parameters have; shared ones count once.
int64_t count_parameters(const Module& module);

/// "Linear fc1", or "Linear" where there is no name: how messages of constructors begin.
std::string label(const char* type, const std::string& name);

/// Writes each tensor of `from` into the tensor of its name in `to`; the rules and messages of load_state, with
/// `kind` as the word for one of them ("parameter").
void copy_named(const NamedTensors& to, const NamedTensors& from, const std::string& source, const char* kind,
                const std::string& hint = "");

namespace detail {
/// Throws Error where little is left of this thread's stack: a call within a call within … of modules ends so, and not
/// in a crash.
void check_stack(const char* what);
/// Has a const member stand for another tensor, as C++20 allows for members. For what must: tied parameters, and layers that
/// compute their weight at each call.
void replace_handle(const Tensor& member, Tensor value);

/// "Conv2d" of the type tandem::nn::Conv<2>: the class, without its namespace.
std::string class_name(const std::type_info& type);

template <class A>
A copy_argument(const A& argument) {
  return argument;
}
/// What a module was made around is not shared by its clones.
template <std::derived_from<Module> M>
std::shared_ptr<M> copy_argument(const std::shared_ptr<M>& module) {
  return module ? std::static_pointer_cast<M>(module->clone()) : nullptr;
}
}  // namespace detail

/// Makes a module that a container or a handle owns: make<Linear>(784, 10) is what `Linear fc{this, "fc", 784, 10}` is
/// as a member. A layer's Options come last, in braces: make<Conv2d>(1, 6, 5, {.padding = 2}).
template <std::derived_from<Module> T, class... A>
std::shared_ptr<T> make(const A&... arguments) {
  std::shared_ptr<T> module;
  if constexpr (std::is_constructible_v<T, Module*, std::string, const A&...>)
    module = std::make_shared<T>(static_cast<Module*>(nullptr), std::string(), arguments...);
  else
    module = std::make_shared<T>(arguments...);
  module->set_recipe([arguments...]() -> ModulePtr { return make<T>(detail::copy_argument(arguments)...); });
  return module;
}
template <std::derived_from<Module> T>
std::shared_ptr<T> make(const typename T::Options& options) {
  return make<T, typename T::Options>(options);
}
template <std::derived_from<Module> T, class A>
std::shared_ptr<T> make(const A& a, const typename T::Options& options) {
  return make<T, A, typename T::Options>(a, options);
}
template <std::derived_from<Module> T, class A, class B>
std::shared_ptr<T> make(const A& a, const B& b, const typename T::Options& options) {
  return make<T, A, B, typename T::Options>(a, b, options);
}
template <std::derived_from<Module> T, class A, class B, class C>
std::shared_ptr<T> make(const A& a, const B& b, const C& c, const typename T::Options& options) {
  return make<T, A, B, C, typename T::Options>(a, b, c, options);
}

}  // namespace tandem::nn
