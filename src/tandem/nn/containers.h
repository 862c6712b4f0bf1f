// Modules that own other modules:
//   nn::Sequential net{nn::make<nn::Linear>(784, 128), nn::make<nn::ReLU>(), nn::make<nn::Linear>(128, 10)};
// Children have PyTorch's names: "0", "1" … or those they were given. Each of the first three can be a member of another
// module too: nn::Sequential features{this, "features", {…}}.
#pragma once

#include <initializer_list>

#include "tandem/nn/module.h"

namespace tandem::nn {

using NamedModule = std::pair<std::string, ModulePtr>;

/// What the three share: children in order, by place or by name.
class Container : public Module {
 public:
  using Module::Module;

  size_t size() const { return children_.size(); }
  /// The child at a place; negative places count from the end.
  Module& operator[](int64_t index) const;
  Module& operator[](const std::string& name) const;
  bool contains(const std::string& name) const;
  /// Children as what they are: at<Linear>(0).weight.
  template <std::derived_from<Module> T, class Key>
  T& at(const Key& key) const {
    Module& module = (*this)[key];
    T* typed = dynamic_cast<T*>(&module);
    TD_CHECK(typed, "container: the child '", key, "' must be of the class asked for; it is a ",
             module.type_name(), ".");
    return *typed;
  }

 protected:
  /// Adds fresh ones of all children to an empty container.
  void clone_children_into(Container& empty) const;
};

/// Calls its children one after the other, each with the result of the one before.
class Sequential : public Container {
 public:
  Sequential() = default;
  Sequential(std::initializer_list<ModulePtr> modules) : Sequential(nullptr, "", modules) {}
  Sequential(Module* parent, const std::string& name, std::initializer_list<ModulePtr> modules = {});

  Tensor forward(const Tensor& x) override;
  /// Adds at the end, under the next number or a name. Returns this container: net.add(…).add(…).
  Sequential& add(ModulePtr module) { return add(std::to_string(size()), std::move(module)); }
  Sequential& add(const std::string& name, ModulePtr module);

 protected:
  ModulePtr make_fresh() const override;
};

/// Holds modules in a row; what calls them is up to its owner.
class ModuleList : public Container {
 public:
  ModuleList() = default;
  ModuleList(std::initializer_list<ModulePtr> modules) : ModuleList(nullptr, "", modules) {}
  ModuleList(Module* parent, const std::string& name, std::initializer_list<ModulePtr> modules = {});

  ModuleList& add(ModulePtr module);

 protected:
  ModulePtr make_fresh() const override;
};

/// Holds modules by name, in the order in which they were added.
class ModuleDict : public Container {
 public:
  ModuleDict() = default;
  ModuleDict(std::initializer_list<NamedModule> modules) : ModuleDict(nullptr, "", modules) {}
  ModuleDict(Module* parent, const std::string& name, std::initializer_list<NamedModule> modules = {});

  ModuleDict& add(const std::string& name, ModulePtr module);

 protected:
  ModulePtr make_fresh() const override;
};

/// A module put together at run time, without a class of its own: by an interpreter, or from a description.
///   auto scale = std::make_shared<nn::RuntimeModule>("Scale", [](nn::RuntimeModule& self, const std::vector<Tensor>& in) {
///     return std::vector<Tensor>{in[0] * self.tensor("factor")};
///   });
///   scale->add_parameter("factor", ones({3}));
/// It is trained, saved, moved, hooked and cloned like any other; clones share the function.
class RuntimeModule : public Container {
 public:
  using Forward = std::function<std::vector<Tensor>(RuntimeModule& self, const std::vector<Tensor>& in)>;
  /// `type` is what type_name() says.
  RuntimeModule(std::string type, Forward forward);

  Tensor add_parameter(const std::string& name, Tensor initial) {
    return parameter(name, std::move(initial));
  }
  Tensor add_buffer(const std::string& name, Tensor initial, bool saved = true) {
    return buffer(name, std::move(initial), saved);
  }
  void add_child(const std::string& name, ModulePtr child) { adopt(name, std::move(child)); }
  /// A parameter or buffer of this module alone; children are self["name"] or self.at<Linear>("name").
  Tensor tensor(const std::string& name) const;

  std::string type_name() const override { return type_; }
  using Module::forward;
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override { return forward_(*this, in); }

 protected:
  ModulePtr make_fresh() const override;

 private:
  std::string type_;
  Forward forward_;
};

}  // namespace tandem::nn
