// What all optimisers share, and the table of their names.
#include "tandem/optim/optimizer.h"

#include <cmath>

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/adadelta.h"
#include "tandem/optim/adagrad.h"
#include "tandem/optim/adam.h"
#include "tandem/optim/adamax.h"
#include "tandem/optim/adamw.h"
#include "tandem/optim/lamb.h"
#include "tandem/optim/rmsprop.h"
#include "tandem/optim/sgd.h"

namespace tandem::optim {

Optimizer::Optimizer(nn::NamedTensors parameters, double lr) : parameters_(std::move(parameters)) {
  TD_CHECK(!parameters_.empty(), "optimizer: there must be at least one parameter; got none.");
  TD_CHECK(std::isfinite(lr) && lr >= 0, "optimizer: the learning rate must be at least 0; got ", lr, ".");
  const Tensor& first = parameters_.front().second;
  for (const auto& [name, tensor] : parameters_) {
    TD_CHECK(tensor.device() == first.device(), "optimizer: all parameters must be on one device; got ", name,
             " on ", tensor.device(), " and ", parameters_.front().first, " on ", first.device(), ".");
    TD_CHECK(is_floating(tensor.dtype()) && tensor.dtype() == first.dtype(),
             "optimizer: all parameters must have one floating type; got ", name, " as ", tensor.dtype(),
             " and ", parameters_.front().first, " as ", first.dtype(), ".");
  }
  const NoGrad off;
  lr_ = full({}, lr, promote(first.dtype(), DType::f32), first.device());
  if (first.dtype() != compute_dtype())
    for (const auto& [name, tensor] : parameters_) masters_.push_back(cast(tensor.detach(), compute_dtype()));
}

void Optimizer::update(std::span<const Tensor> gradients) {
  TD_CHECK(gradients.size() == parameters_.size(),
           "optimizer update: one gradient a parameter is needed; got ", gradients.size(), " for ",
           parameters_.size(), " parameters.");
  const NoGrad off;
  begin();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    const Tensor& gradient = gradients[i];
    if (!gradient.defined()) continue;  // frozen
    TD_CHECK(gradient.shape() == parameter.shape(), "optimizer update: the gradient of ",
             parameters_[i].first, " must have its shape ", parameter.shape(), "; got ", gradient.shape(),
             ".");
    const Tensor& value = masters_.empty() ? parameter : masters_[i];
    const Tensor changed =
        step(i, value, gradient.dtype() == compute_dtype() ? gradient : cast(gradient, compute_dtype()));
    assign(value, changed);
    if (!masters_.empty()) assign(parameter, changed);
  }
}

void Optimizer::set_lr(double lr) {
  TD_CHECK(std::isfinite(lr) && lr >= 0, "set_lr: the learning rate must be at least 0; got ", lr, ".");
  const NoGrad off;
  assign(lr_, full({}, lr, lr_.dtype(), lr_.device()));
}

double Optimizer::lr() const { return lr_.item<double>(); }

std::vector<Tensor> Optimizer::zeros_for_each() const {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : parameters_)
    tensors.push_back(zeros(tensor.shape(), compute_dtype(), tensor.device()));
  return tensors;
}

void Optimizer::append_state(nn::NamedTensors& out, const std::string& prefix,
                             const std::vector<Tensor>& tensors) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    out.emplace_back(prefix + "." + parameters_[i].first, tensors[i]);
}

nn::NamedTensors Optimizer::named_state() const {
  nn::NamedTensors state = {{"lr", lr_}};
  append_state(state, "master", masters_);
  return state;
}

void Optimizer::load_state(const nn::NamedTensors& tensors, const std::string& source) {
  nn::copy_named(named_state(), tensors, source, "optimiser state");
}

namespace {

struct Row {
  OptimizerInfo info;
  std::unique_ptr<Optimizer> (*make)(nn::NamedTensors, const Settings&);
};

/// The options that every optimiser has; the rest begin at their defaults.
template <class Options>
Options common(const Settings& s) {
  Options o;
  o.lr = s.lr;
  o.weight_decay = s.weight_decay.value_or(o.weight_decay);
  if constexpr (requires { o.epsilon; }) o.epsilon = s.epsilon.value_or(o.epsilon);
  if constexpr (requires { o.beta1; }) {
    o.beta1 = s.beta1;
    o.beta2 = s.beta2;
  }
  return o;
}

std::unique_ptr<Optimizer> make_sgd(nn::NamedTensors parameters, const Settings& s, bool nesterov) {
  auto o = common<SgdOptions>(s);
  o.momentum = s.momentum.value_or(0.9);
  o.nesterov = nesterov;
  return std::make_unique<Sgd>(std::move(parameters), o);
}

template <class T, class Options>
std::unique_ptr<Optimizer> make(nn::NamedTensors parameters, const Settings& s) {
  auto o = common<Options>(s);
  if constexpr (requires { o.rho; }) o.rho = s.decay.value_or(o.rho);
  if constexpr (requires { o.centered; }) {
    o.alpha = s.decay.value_or(o.alpha);
    o.momentum = s.momentum.value_or(o.momentum);
    o.centered = s.centered;
  }
  return std::make_unique<T>(std::move(parameters), o);
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"sgd", "stochastic gradient descent with momentum", 0.01, 0.9},
       [](nn::NamedTensors parameters, const Settings& s) {
         return make_sgd(std::move(parameters), s, false);
       }},
      {{"nesterov", "stochastic gradient descent with Nesterov's momentum", 0.01, 0.9},
       [](nn::NamedTensors parameters, const Settings& s) {
         return make_sgd(std::move(parameters), s, true);
       }},
      {{"adam", "Adam with bias correction", 0.001}, make<Adam, AdamOptions>},
      {{"adamw", "Adam with decoupled weight decay", 0.001}, make<AdamW, AdamWOptions>},
      {{"adamax", "Adam by the largest recent gradient", 0.002}, make<Adamax, AdamaxOptions>},
      {{"adadelta", "steps as large as recent steps", 1.0}, make<Adadelta, AdadeltaOptions>},
      {{"adagrad", "rates that fall with the sum of squared gradients", 0.01}, make<Adagrad, AdagradOptions>},
      {{"rmsprop", "rates by the mean of recent squared gradients", 0.01, 0.0},
       make<RmsProp, RmsPropOptions>},
      {{"lamb", "Adam scaled by the norm of each parameter", 0.001}, make<Lamb, LambOptions>},
  };
  return table;
}

const Row& row_named(const std::string& name) {
  for (const Row& row : rows())
    if (row.info.name == name) return row;
  throw Error(cat("optimizer: must be one of ", optimizer_names(), "; got '", name, "'."));
}

}  // namespace

const std::vector<OptimizerInfo>& optimizers() {
  static const std::vector<OptimizerInfo> list = [] {
    std::vector<OptimizerInfo> infos;
    for (const Row& row : rows()) infos.push_back(row.info);
    return infos;
  }();
  return list;
}

std::string optimizer_names() {
  std::string names;
  for (const Row& row : rows()) names += (names.empty() ? "" : ", ") + row.info.name;
  return names;
}

const OptimizerInfo& optimizer_info(const std::string& name) { return row_named(name).info; }

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, nn::NamedTensors parameters,
                                          const Settings& settings) {
  return row_named(name).make(std::move(parameters), settings);
}

}  // namespace tandem::optim
