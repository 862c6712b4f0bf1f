// What all optimisers share, and the table of their names.
#include "tandem/optim/optimizer.h"

#include <cmath>
#include <map>
#include <set>

#include "tandem/core/autocast.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/adadelta.h"
#include "tandem/optim/adagrad.h"
#include "tandem/optim/adam.h"
#include "tandem/optim/adamax.h"
#include "tandem/optim/adamw.h"
#include "tandem/optim/lamb.h"
#include "tandem/optim/nadam.h"
#include "tandem/optim/radam.h"
#include "tandem/optim/rmsprop.h"
#include "tandem/optim/sgd.h"

namespace tandem::optim {

namespace {

void check_lr(const char* what, double lr) {
  TD_CHECK(std::isfinite(lr) && lr >= 0, what, ": the learning rate must be at least 0; got ", lr, ".");
}

}  // namespace

/// Each is a leaf of its own: a step writes into it, and what is computed or there twice would be changed in vain or twice.
void detail::check_parameters(const nn::NamedTensors& parameters) {
  TD_CHECK(!parameters.empty(), "optimizer: there must be at least one parameter; got none.");
  std::set<std::string_view> names;
  std::map<std::pair<const void*, int64_t>, const std::string*> places;  // storage and offset
  for (const auto& [name, tensor] : parameters) {
    TD_CHECK(tensor.defined(), "optimizer: every parameter must be a tensor; got an undefined handle for '",
             name, "'. Make it first, or leave it out.");
    TD_CHECK(tensor.is_leaf(),
             "optimizer: every parameter must be a leaf, which no operation computed; got '", name, "', ",
             describe(tensor),
             ", the result of an operation. Give what it was computed from, or detach() it and "
             "set_requires_grad().");
    TD_CHECK(names.insert(name).second,
             "optimizer: every parameter must have a name of its own; got two of '", name,
             "'. Rename one, or leave it out.");
    if (!tensor.impl()->storage || tensor.size() == 0) continue;
    const auto [at, is_new] = places.emplace(
        std::pair(static_cast<const void*>(tensor.impl()->storage.get()), tensor.meta().offset), &name);
    TD_CHECK(is_new, "optimizer: every parameter must be given once; got '", *at->second, "' and '", name,
             "', which are one tensor. Leave one out (named_parameters() gives each once).");
  }
  check_alike(parameters);
}

void detail::check_alike(const nn::NamedTensors& parameters) {
  const Tensor& first = parameters.front().second;
  for (const auto& [name, tensor] : parameters) {
    TD_CHECK(tensor.device() == first.device(), "optimizer: all parameters must be on one device; got ", name,
             " on ", tensor.device(), " and ", parameters.front().first, " on ", first.device(), ".");
    TD_CHECK(is_floating(tensor.dtype()) && tensor.dtype() == first.dtype(),
             "optimizer: all parameters must have one floating type; got ", name, " as ", tensor.dtype(),
             " and ", parameters.front().first, " as ", first.dtype(), ".");
  }
}

std::function<bool(const std::string&)> named(std::string part) {
  return [part = std::move(part)](const std::string& name) { return name.find(part) != std::string::npos; };
}

Optimizer::Optimizer(nn::NamedTensors parameters, std::vector<Common> groups,
                     const std::function<size_t(const std::string&)>& group_for)
    : parameters_(std::move(parameters)), groups_(std::move(groups)) {
  detail::check_parameters(parameters_);
  const Tensor& first = parameters_.front().second;
  for (const auto& [name, tensor] : parameters_) group_of_.push_back(group_for(name));
  const NoGrad off;
  for (const Common& group : groups_) {
    check_lr("optimizer", group.lr);
    TD_CHECK(group.weight_decay >= 0, "optimizer: weight_decay must be at least 0; got ", group.weight_decay,
             ".");
    rates_.push_back(group.lr);
    lr_.push_back(full({}, group.lr, promote(first.dtype(), DType::f32), first.device()));
  }
}

void Optimizer::follow_parameters() const {
  detail::check_alike(parameters_);
  const Tensor& first = parameters_.front().second;
  const DType type = promote(first.dtype(), DType::f32);
  if (device() == first.device() && compute_dtype() == type && masters_.empty() == (first.dtype() == type))
    return;
  // Within a trace too, what is made here is made once and belongs to nobody's graph.
  const TraceScope untraced(nullptr);
  const NoGrad off;
  const NoAutocast full_precision;
  const auto move = [&](Tensor tensor) {
    if (tensor.device() != first.device()) tensor.rebind(to(tensor.detach(), first.device()));
  };
  if (device() != first.device()) {
    for (const Tensor& lr : lr_) move(lr);  // first: named_state() comes back here
    for (const auto& [name, tensor] : named_state()) move(tensor);
  }
  if (compute_dtype() != type) {
    for (size_t g = 0; g < groups(); ++g) {
      Tensor lr = lr_[g];
      lr.rebind(full({}, rates_[g], type, first.device()));
    }
    for (Tensor tensor : typed_state_) tensor.rebind(cast(tensor.detach(), type));
  }
  if (first.dtype() == type) masters_.clear();
  if (first.dtype() != type && masters_.empty())
    for (const auto& [name, tensor] : parameters_) masters_.push_back(cast(tensor.detach(), type));
}

Tensor Optimizer::value_of(size_t i) const {
  const Tensor& parameter = parameters_[i].second;
  if (masters_.empty()) return parameter;
  const Tensor& master = masters_[i];
  return where(equal(cast(master, parameter.dtype()), parameter), master, cast(parameter, master.dtype()));
}

void Optimizer::store(const Tensor& target, const Tensor& value) const {
  assign(target, finite_.defined() ? where(finite_, value, target) : value);
}

void Optimizer::update(std::span<const Tensor> gradients, const Tensor& finite,
                       std::span<const Tensor> used) {
  TD_CHECK(gradients.size() == parameters_.size(),
           "optimizer update: one gradient a parameter is needed; got ", gradients.size(), " for ",
           parameters_.size(), " parameters.");
  TD_CHECK(!finite.defined() || (finite.dtype() == DType::boolean && finite.size() == 1),
           "optimizer update: finite must be one bool; got ", describe(finite), ".");
  follow_parameters();
  const NoGrad off;
  const NoAutocast full;
  struct Scope {
    Tensor& held;
    ~Scope() { held = Tensor(); }
  } scope{finite_};
  finite_ = finite;
  begin();
  std::vector<Tensor> keep(groups_.size());  // by group: what decoupled decay leaves of a value
  for (size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].decoupled && groups_[g].weight_decay != 0 && !decays_itself())
      keep[g] = 1.0 - lr_[g] * groups_[g].weight_decay;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    if (!gradients[i].defined()) continue;  // frozen
    TD_CHECK(gradients[i].shape() == parameter.shape(), "optimizer update: the gradient of ",
             parameters_[i].first, " must have its shape ", parameter.shape(), "; got ", gradients[i].shape(),
             ".");
    const bool may_be_unused = i < used.size() && used[i].defined();
    finite_ = !may_be_unused ? finite : finite.defined() ? logical_and(finite, used[i]) : used[i];
    const Common& group = groups_[group_of_[i]];
    Tensor value = value_of(i);
    Tensor gradient =
        gradients[i].dtype() == compute_dtype() ? gradients[i] : cast(gradients[i], compute_dtype());
    if (keep[group_of_[i]].defined())
      value = value * keep[group_of_[i]];
    else if (group.weight_decay != 0 && !group.decoupled)
      gradient = gradient + value * group.weight_decay;
    const Tensor changed = step(i, value, gradient);
    if (!masters_.empty()) store(masters_[i], changed);
    store(parameter, changed);
  }
}

OptionValues Optimizer::settings() const {
  OptionValues all = {{"type", nn::detail::class_name(typeid(*this))}};
  for (size_t g = 0; g < groups(); ++g) {
    if (g > 0) all.emplace_back(name_in(g, "lr"), groups_[g].lr);
    all.emplace_back(name_in(g, "weight_decay"), groups_[g].weight_decay);
    all.emplace_back(name_in(g, "decoupled"), groups_[g].decoupled);
    if (g == 0) continue;
    std::string names;
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (group_of_[i] == g) names += (names.empty() ? "" : " ") + parameters_[i].first;
    all.emplace_back(name_in(g, "parameters"), names);
  }
  return all;
}

void Optimizer::set_lr(double lr) {
  check_lr("set_lr", lr);
  const double first = first_lr();
  TD_CHECK(groups() == 1 || first > 0,
           "set_lr: the first group's rate must be above 0 to scale the others by it; got ", first,
           ". Set each group's rate by itself.");
  set_lr(lr, 0);
  for (size_t g = 1; g < groups(); ++g) set_lr(groups_[g].lr * (lr / first), g);
}

void Optimizer::set_lr(double lr, size_t group) {
  refuse_while_tracing("set_lr", "the rate would be set only while the callable is traced",
                       "Call it before the compiled step, which reads the new rate.");
  check_lr("set_lr", lr);
  TD_CHECK(group < groups(), "set_lr: the group must be below ", groups(), "; got ", group, ".");
  const NoGrad off;
  assign(lr_[group], full({}, lr, compute_dtype(), device()));
  rates_[group] = lr;
}

double Optimizer::lr(size_t group) const {
  TD_CHECK(group < groups(), "lr: the group must be below ", groups(), "; got ", group, ".");
  return rates_[group];
}

Tensor Optimizer::state_tensor(const Dims& shape, double value) {
  return typed_state_.emplace_back(full(shape, value, compute_dtype(), device()));
}

std::vector<Tensor> Optimizer::zeros_for_each() {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : parameters_) tensors.push_back(state_tensor(tensor.shape()));
  return tensors;
}

void Optimizer::append_state(nn::NamedTensors& out, const std::string& prefix,
                             const std::vector<Tensor>& tensors) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    out.emplace_back(prefix + "." + parameters_[i].first, tensors[i]);
}

nn::NamedTensors Optimizer::named_state() const {
  follow_parameters();
  nn::NamedTensors state = {{"lr", lr_[0]}};
  for (size_t g = 1; g < groups(); ++g) state.emplace_back(str("lr.", g), lr_[g]);
  append_state(state, "master", masters_);
  return state;
}

void Optimizer::load_state(const nn::NamedTensors& tensors, const std::string& source) {
  refuse_while_tracing("load_state", "rates would be set only while the callable is traced",
                       "Load before the compiled step.");
  follow_parameters();  // before named_state(), which lists what is there when it begins
  nn::copy_named(named_state(), tensors, source, "optimiser state");
  for (size_t g = 0; g < groups(); ++g) {
    const auto held = lr_[g].item<double>();
    const bool is_rounded = compute_dtype() != DType::f64 && held == static_cast<float>(rates_[g]);
    if (!is_rounded) rates_[g] = held;
  }
}

namespace {

struct Row {
  OptimizerInfo info;
  std::unique_ptr<Optimizer> (*make)(nn::NamedTensors, const Settings&, const Groups<Settings>&);
};

/// The options of one optimiser: what is not set keeps its default.
template <class Options>
Options options_of(const Settings& s) {
  Options o;
  o.lr = s.lr;
  o.weight_decay = s.weight_decay.value_or(o.weight_decay);
  o.decoupled = s.decoupled.value_or(o.decoupled);
  if constexpr (requires { o.epsilon; }) o.epsilon = s.epsilon.value_or(o.epsilon);
  if constexpr (requires { o.beta1; }) {
    o.beta1 = s.beta1;
    o.beta2 = s.beta2;
  }
  if constexpr (requires { o.rho; }) o.rho = s.decay.value_or(o.rho);
  if constexpr (requires { o.alpha; }) {
    o.alpha = s.decay.value_or(o.alpha);
    o.momentum = s.momentum.value_or(o.momentum);
    o.centered = s.centered;
  }
  if constexpr (requires { o.nesterov; }) {
    o.momentum = s.momentum.value_or(0.9);
    o.dampening = s.dampening;
  }
  if constexpr (requires { o.amsgrad; }) o.amsgrad = s.amsgrad;
  return o;
}

template <class T, class Options>
std::unique_ptr<Optimizer> make(nn::NamedTensors parameters, const Settings& s,
                                const Groups<Settings>& groups, void (*change)(Options&) = nullptr) {
  const auto options = [&](const Settings& of) {
    auto o = options_of<Options>(of);
    if (change) change(o);
    return o;
  };
  Groups<Options> mine;
  for (const Group<Settings>& group : groups) mine.push_back({group.takes, options(group.options)});
  return std::make_unique<T>(std::move(parameters), options(s), mine);
}

/// The same as a plain function, for the table.
template <class T, class Options>
std::unique_ptr<Optimizer> plain(nn::NamedTensors parameters, const Settings& s,
                                 const Groups<Settings>& groups) {
  return make<T, Options>(std::move(parameters), s, groups);
}

const std::vector<Row>& rows() {
  static const std::vector<Row>& table = *new std::vector<Row>{
      {{"sgd", "stochastic gradient descent with momentum", 0.01, 0.9}, plain<Sgd, SgdOptions>},
      {{"nesterov", "stochastic gradient descent with Nesterov's momentum", 0.01, 0.9},
       [](nn::NamedTensors parameters, const Settings& s, const Groups<Settings>& groups) {
         return make<Sgd, SgdOptions>(std::move(parameters), s, groups,
                                      [](SgdOptions& o) { o.nesterov = true; });
       }},
      {{"adam", "Adam with bias correction", 0.001}, plain<Adam, AdamOptions>},
      {{"adamw", "Adam with decoupled weight decay", 0.001}, plain<AdamW, AdamWOptions>},
      {{"adamax", "Adam by the largest recent gradient", 0.002}, plain<Adamax, AdamaxOptions>},
      {{"nadam", "Adam with Nesterov's momentum", 0.002}, plain<NAdam, NAdamOptions>},
      {{"radam", "Adam that waits until its second moment is known", 0.001}, plain<RAdam, RAdamOptions>},
      {{"adadelta", "steps as large as recent steps", 1.0}, plain<Adadelta, AdadeltaOptions>},
      {{"adagrad", "rates that fall with the sum of squared gradients", 0.01},
       plain<Adagrad, AdagradOptions>},
      {{"rmsprop", "rates by the mean of recent squared gradients", 0.01, 0.0},
       plain<RmsProp, RmsPropOptions>},
      {{"lamb", "Adam scaled by the norm of each parameter", 0.001}, plain<Lamb, LambOptions>},
  };
  return table;
}

const Row& row_named(const std::string& name) {
  for (const Row& row : rows())
    if (row.info.name == name) return row;
  throw Error(str("optimizer: must be one of ", optimizer_names(), "; got '", name, "'."));
}

}  // namespace

const std::vector<OptimizerInfo>& optimizers() {
  static const auto& list = *new std::vector<OptimizerInfo>([] {
    std::vector<OptimizerInfo> infos;
    for (const Row& row : rows()) infos.push_back(row.info);
    return infos;
  }());
  return list;
}

std::string optimizer_names() {
  std::string names;
  for (const Row& row : rows()) names += (names.empty() ? "" : ", ") + row.info.name;
  return names;
}

const OptimizerInfo& optimizer_info(const std::string& name) { return row_named(name).info; }

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, nn::NamedTensors parameters,
                                          const Settings& settings, const Groups<Settings>& groups) {
  return row_named(name).make(std::move(parameters), settings, groups);
}

}  // namespace tandem::optim
