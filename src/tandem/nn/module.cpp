// Modules: names, moving, and strict loading of state.
#include "tandem/nn/module.h"

#include <algorithm>
#include <map>

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {

Module::Module(Module* parent, std::string name) : name_(std::move(name)) {
  parent->check_new_name(name_);
  parent->children_.push_back(this);
}

void Module::check_new_name(const std::string& name) const {
  TD_CHECK(!name.empty() && name.find('.') == std::string::npos,
           "module: a name must have at least one character and no dot; got '", name, "'.");
  const bool is_child =
      std::any_of(children_.begin(), children_.end(), [&](const Module* m) { return m->name_ == name; });
  const bool is_parameter =
      std::any_of(parameters_.begin(), parameters_.end(), [&](const auto& row) { return row.first == name; });
  TD_CHECK(!is_child && !is_parameter, "module: a name must be used once; got a second '", name, "'.");
}

Tensor Module::parameter(const std::string& name, Tensor initial) {
  check_new_name(name);
  initial.set_requires_grad();
  parameters_.emplace_back(name, initial);
  return initial;
}

void Module::collect(const std::string& prefix, NamedTensors& out) const {
  for (const auto& [name, tensor] : parameters_) out.emplace_back(prefix + name, tensor);
  for (const Module* child : children_) child->collect(prefix + child->name_ + ".", out);
}

NamedTensors Module::named_parameters() const {
  NamedTensors all;
  collect("", all);
  return all;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (auto& [name, tensor] : named_parameters()) all.push_back(tensor);
  return all;
}

void Module::train(bool on) {
  *training_ = on;
  for (Module* child : children_) child->train(on);
}

void Module::to(Device device) {
  const NoGrad off;
  for (auto& [name, tensor] : named_parameters()) {
    if (tensor.device() == device) continue;
    tensor.zero_grad();
    tensor.rebind(tandem::to(tensor.detach(), device));
  }
}

void Module::to(DType dtype) {
  TD_CHECK(is_floating(dtype), "module to: parameters must have a floating type; got ", dtype, ".");
  const NoGrad off;
  for (auto& [name, tensor] : named_parameters()) {
    if (tensor.dtype() == dtype) continue;
    tensor.zero_grad();
    tensor.rebind(cast(tensor.detach(), dtype));
  }
}

NamedTensors Module::state() const {
  NamedTensors all = named_parameters();
  for (auto& [name, tensor] : all) tensor = tensor.detach();
  return all;
}

void Module::load_state(const NamedTensors& tensors, const std::string& source, const std::string& hint) {
  copy_named(named_parameters(), tensors, source, "parameter", hint);
}

int64_t count_parameters(const Module& module) {
  int64_t count = 0;
  for (const Tensor& tensor : module.parameters()) count += tensor.size();
  return count;
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
    TD_CHECK(at->second->shape() == tensor.shape(), source, ": ", kind, " ", name, " is ",
             at->second->shape(), " in the file and ", tensor.shape(), " in the model.", last);
    TD_CHECK(is_floating(at->second->dtype()) == is_floating(tensor.dtype()), source, ": ", kind, " ", name,
             " is ", at->second->dtype(), " in the file and ", tensor.dtype(), " in the model.", last);
    given.erase(at);
  }
  TD_CHECK(given.empty(), source, ": ", kind, " ", given.begin()->first, " ", given.begin()->second->shape(),
           " is in the file and not in the model.", last);

  const NoGrad off;
  for (const auto& [name, tensor] : from) given.emplace(name, &tensor);
  for (const auto& [name, tensor] : to) assign(tensor, tandem::to(given[name]->detach(), tensor.device()));
}

}  // namespace tandem::nn
