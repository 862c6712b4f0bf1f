// Modules that own other modules.
#include "tandem/nn/containers.h"

#include <algorithm>
#include <map>
#include <typeinfo>

#include "tandem/ops/shape.h"

namespace tandem::nn {

Module& Container::operator[](int64_t index) const {
  const auto count = static_cast<int64_t>(children_.size());
  TD_CHECK(index >= -count && index < count, "container: the place must be below the number of children, ",
           count, "; got ", index, ".");
  return *children_[static_cast<size_t>(index < 0 ? index + count : index)].module;
}

Module& Container::operator[](const std::string& name) const {
  for (const Child& child : children_)
    if (child.name == name) return *child.module;
  std::string names;
  for (const Child& child : children_) names += (names.empty() ? "" : ", ") + child.name;
  throw Error(str("container: the name must be one of (", names, "); got '", name, "'."));
}

bool Container::contains(const std::string& name) const {
  return std::any_of(children_.begin(), children_.end(), [&](const Child& c) { return c.name == name; });
}

void Container::clone_children_into(Container& empty) const {
  detail::check_stack("clone");
  std::map<const Module*, ModulePtr> copies;  // a module that is there twice is one module in the clone too
  for (const Child& child : children_) {
    ModulePtr& copy = copies[child.module];
    if (!copy) copy = child.module->make_fresh();
    empty.adopt(child.name, copy);
  }
}

Sequential::Sequential(Module* parent, const std::string& name, std::initializer_list<ModulePtr> modules)
    : Container(parent, name) {
  for (const ModulePtr& module : modules) add(module);
}

Sequential& Sequential::add(const std::string& name, ModulePtr module) {
  adopt(name, std::move(module));
  return *this;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor h = x;
  for (size_t i = 0; i < size(); ++i) h = (*this)[static_cast<int64_t>(i)](h);
  return h;
}

ModulePtr Sequential::make_fresh() const {
  if (typeid(*this) != typeid(Sequential)) return Module::make_fresh();  // a class of the user's
  const auto copy = std::make_shared<Sequential>();
  clone_children_into(*copy);
  return copy;
}

ModuleList::ModuleList(Module* parent, const std::string& name, std::initializer_list<ModulePtr> modules)
    : Container(parent, name) {
  for (const ModulePtr& module : modules) add(module);
}

ModuleList& ModuleList::add(ModulePtr module) {
  adopt(std::to_string(size()), std::move(module));
  return *this;
}

ModulePtr ModuleList::make_fresh() const {
  if (typeid(*this) != typeid(ModuleList)) return Module::make_fresh();
  const auto copy = std::make_shared<ModuleList>();
  clone_children_into(*copy);
  return copy;
}

ModuleDict::ModuleDict(Module* parent, const std::string& name, std::initializer_list<NamedModule> modules)
    : Container(parent, name) {
  for (const auto& [key, module] : modules) add(key, module);
}

ModuleDict& ModuleDict::add(const std::string& name, ModulePtr module) {
  adopt(name, std::move(module));
  return *this;
}

ModulePtr ModuleDict::make_fresh() const {
  if (typeid(*this) != typeid(ModuleDict)) return Module::make_fresh();
  const auto copy = std::make_shared<ModuleDict>();
  clone_children_into(*copy);
  return copy;
}

RuntimeModule::RuntimeModule(std::string type, Forward forward)
    : type_(std::move(type)), forward_(std::move(forward)) {
  TD_CHECK(!type_.empty() && forward_, "RuntimeModule: must have a name for its type and a function; got ",
           type_.empty() ? "no name." : "no function.");
}

Tensor RuntimeModule::tensor(const std::string& name) const {
  std::string names;
  for (const Entry& entry : entries_) {
    if (entry.name == name) return entry.tensor;
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  throw Error(
      str("module ", type_, ": the name must be one of its own tensors (", names, "); got '", name, "'."));
}

ModulePtr RuntimeModule::make_fresh() const {
  if (typeid(*this) != typeid(RuntimeModule)) return Module::make_fresh();
  const auto copy = std::make_shared<RuntimeModule>(type_, forward_);
  clone_children_into(*copy);
  for (const Entry& entry : entries_) {
    const Tensor like = tandem::clone(entry.tensor.detach());
    if (entry.kind == Kind::parameter)
      copy->add_parameter(entry.name, like);
    else
      copy->add_buffer(entry.name, like, entry.saved);
  }
  return copy;
}

}  // namespace tandem::nn
