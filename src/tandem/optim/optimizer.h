// Optimisers. One holds its parameters, its state tensors (made up front, so that the first step does the same
// operations as every other) and the learning rate as a 0-d tensor on the parameters' device. update() is made
// of public operations and assign(), so that a compiled training step can hold it. A model may be moved or converted
// after its optimiser was made: the state follows in the next update.
//
// Parameters may come in groups with options of their own, chosen by name; the first group that takes a parameter
// has it, the rest keep the options given first:
//   optim::Adam adam(net.named_parameters(), {.lr = 0.001, .weight_decay = 0.1},
//                    {{optim::named("bias"), {.lr = 0.002}}});
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem::optim {

/// Some parameters with options of their own.
template <class Options>
struct Group {
  std::function<bool(const std::string& name)> takes;  ///< by the parameter's dotted name
  Options options;
};
template <class Options>
using Groups = std::vector<Group<Options>>;

/// Takes the names that contain `part`: named("bias").
std::function<bool(const std::string&)> named(std::string part);

/// An option of an optimiser, for people and for comparing.
using OptionValue = std::variant<bool, double, std::string>;
using OptionValues = std::vector<std::pair<std::string, OptionValue>>;

namespace detail {
/// Calls add(name, value) for the options that optimisers here have, in this order, where `o` has them. The rest of them, the
/// rate and the decay, are those of Optimizer.
template <class Options, class Add>
void list_options(const Options& o, const Add& add) {
  if constexpr (requires { o.momentum; }) add("momentum", o.momentum);
  if constexpr (requires { o.nesterov; }) add("nesterov", o.nesterov);
  if constexpr (requires { o.dampening; }) add("dampening", o.dampening);
  if constexpr (requires { o.beta1; }) add("beta1", o.beta1);
  if constexpr (requires { o.beta2; }) add("beta2", o.beta2);
  if constexpr (requires { o.rho; }) add("rho", o.rho);
  if constexpr (requires { o.alpha; }) add("alpha", o.alpha);
  if constexpr (requires { o.centered; }) add("centered", o.centered);
  if constexpr (requires { o.epsilon; }) add("epsilon", o.epsilon);
  if constexpr (requires { o.amsgrad; }) add("amsgrad", o.amsgrad);
  if constexpr (requires { o.lr_decay; }) add("lr_decay", o.lr_decay);
  if constexpr (requires { o.initial_sum; }) add("initial_sum", o.initial_sum);
  if constexpr (requires { o.momentum_decay; }) add("momentum_decay", o.momentum_decay);
}

/// At least one; each a leaf, under its own name and given once; all on one device and of one floating type. Throws Error.
void check_parameters(const nn::NamedTensors& parameters);
/// The last of these rules alone: all on one device and of one floating type.
void check_alike(const nn::NamedTensors& parameters);
}  // namespace detail

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Changes every parameter by one step. gradients[i] belongs to parameter i (tandem::grad gives them so); a
  /// parameter whose gradient is undefined (a frozen one) stays as it is. `finite`, one bool (optim/loss_scaler.h):
  /// where it is false, parameters and state keep their bits, whatever the gradients hold. `used[i]`, one bool: the same of
  /// parameter i and its state alone; undefined, or no `used` at all: it is true.
  void update(std::span<const Tensor> gradients, const Tensor& finite = {},
              std::span<const Tensor> used = {});

  /// Brings the state to the device of the parameters and to the type that belongs to theirs. update(), named_state() and
  /// load_state() do it first; whoever compiles a step may do it before.
  void follow_parameters() const;

  /// The learning rate, of group 0. set_lr assigns into the tensors that update reads, so that a compiled step sees
  /// it: group 0 gets `lr`, and every other group its own first rate times lr / group 0's first rate.
  void set_lr(double lr);
  double lr() const { return rates_.front(); }
  /// The same for one group alone. Group 0 has the parameters that no group takes.
  void set_lr(double lr, size_t group);
  double lr(size_t group) const;
  /// The rate that group 0 was made with.
  double first_lr() const { return groups_.front().lr; }

  size_t groups() const { return groups_.size(); }
  size_t group_of(size_t i) const { return group_of_[i]; }  ///< of parameter i

  /// What a checkpoint must hold: "lr", "lr.1" of the second group, "momentum.conv1.weight" …
  virtual nn::NamedTensors named_state() const;
  /// Overwrites the state; every entry must be there with its shape. See Module::load_state.
  void load_state(const nn::NamedTensors& tensors, const std::string& source);

  const nn::NamedTensors& parameters() const { return parameters_; }

  /// What its updates depend on besides gradients and state, by name, but the rate of group 0: "type", "weight_decay",
  /// "momentum", "momentum.1" of the second group … fit() compares it when a run is resumed. An optimiser with options that
  /// OptimizerWith does not know by name overrides it, and adds them to those of its base.
  virtual OptionValues settings() const;

 protected:
  /// What every optimiser does alike, by group.
  struct Common {
    double lr = 0;
    double weight_decay = 0;
    bool decoupled = false;  // value *= 1 - lr · weight_decay, else gradient += weight_decay · value
  };

  /// At least one parameter, all on one device, all of one floating type. group_for: by a parameter's name.
  Optimizer(nn::NamedTensors parameters, std::vector<Common> groups,
            const std::function<size_t(const std::string&)>& group_for);

  /// "momentum" of the first group, "momentum.1" of the second.
  static std::string name_in(size_t group, const std::string& name) {
    return group == 0 ? name : name + "." + std::to_string(group);
  }
  /// Assigns to a tensor of the state, unless this update is left out. begin() and step() change nothing otherwise, and
  /// read what they store from the value, not from the tensor.
  void store(const Tensor& target, const Tensor& value) const;
  /// Once an update, before the first step().
  virtual void begin() {}
  /// The new value of parameter i, from its value and gradient, both of type compute_dtype() and decayed.
  virtual Tensor step(size_t i, const Tensor& value, const Tensor& gradient) = 0;
  /// Whether step() does the decoupled decay itself.
  virtual bool decays_itself() const { return false; }

  /// The type of state and arithmetic: the parameters' own, f32 for bf16 and f16.
  DType compute_dtype() const { return lr_.front().dtype(); }
  Device device() const { return lr_.front().device(); }
  const Tensor& lr_tensor(size_t group) const { return lr_[group]; }
  /// A tensor for the state of a derived class, of type compute_dtype(): it is converted where the parameters are.
  Tensor state_tensor(const Dims& shape, double value = 0);
  /// One tensor of zeros for each parameter, made so.
  std::vector<Tensor> zeros_for_each();
  /// Appends "<prefix>.<parameter's name>" rows.
  void append_state(nn::NamedTensors& out, const std::string& prefix,
                    const std::vector<Tensor>& tensors) const;

 private:
  nn::NamedTensors parameters_;
  std::vector<Common> groups_;
  std::vector<size_t> group_of_;
  /// The value that a step begins from, in compute_dtype().
  Tensor value_of(size_t i) const;

  // 16-bit parameters are rounded copies of these f32 values: steps smaller than their rounding still add up. An element
  // counts while it rounds to the parameter's; where it does not, somebody else has written the parameter (load_state,
  // assign, an average), and the parameter counts. Empty for f32 and f64.
  mutable std::vector<Tensor> masters_;
  std::vector<Tensor> typed_state_;  // what state_tensor() made
  std::vector<Tensor> lr_;           // by group
  Tensor finite_;                    // of the update that is under way; undefined: nothing is left out
  std::vector<double>
      rates_;  // what these were set to, before rounding: nobody waits for the device to know it
};

/// An optimiser whose options are a struct with at least lr, weight_decay and decoupled.
template <class Options>
class OptimizerWith : public Optimizer {
 public:
  OptionValues settings() const override {
    OptionValues all = Optimizer::settings();
    for (size_t g = 0; g < options_.size(); ++g)
      detail::list_options(options_[g], [&](const std::string& name, const auto& value) {
        using Value = std::conditional_t<std::is_same_v<decltype(value), const bool&>, bool, double>;
        all.emplace_back(name_in(g, name), static_cast<Value>(value));
      });
    return all;
  }

 protected:
  OptimizerWith(nn::NamedTensors parameters, const Options& options, const Groups<Options>& groups)
      : Optimizer(std::move(parameters), common(options, groups),
                  [&](const std::string& name) {
                    for (size_t g = 0; g < groups.size(); ++g)
                      if (groups[g].takes(name)) return g + 1;
                    return size_t{0};
                  }),
        options_{options} {
    for (const Group<Options>& group : groups) options_.push_back(group.options);
  }
  /// Of the group of parameter i.
  const Options& options(size_t i) const { return options_[group_of(i)]; }
  const std::vector<Options>& options() const { return options_; }  // by group
  /// One tensor a group.
  template <class F>
  std::vector<Tensor> for_each_group(const F& make) const {
    std::vector<Tensor> out;
    for (size_t g = 0; g < options_.size(); ++g) out.push_back(make(options_[g], g));
    return out;
  }

 private:
  static std::vector<Common> common(const Options& options, const Groups<Options>& groups) {
    std::vector<Common> out = {{options.lr, options.weight_decay, options.decoupled}};
    for (const Group<Options>& group : groups)
      out.push_back({group.options.lr, group.options.weight_decay, group.options.decoupled});
    return out;
  }

  std::vector<Options> options_;
};

/// The settings of the optimisers by name; each takes what it knows. What is not given is the optimiser's own
/// default.
struct Settings {
  double lr = 0.01;
  std::optional<double> momentum = {};      ///< sgd and nesterov (0.9), rmsprop (0)
  double beta1 = 0.9;                       ///< adam, adamw, adamax, nadam, radam, lamb
  double beta2 = 0.999;                     ///< adam, adamw, adamax, nadam, radam, lamb
  std::optional<double> decay = {};         ///< of the mean square: rmsprop (0.99), adadelta (0.9)
  bool centered = false;                    ///< rmsprop
  std::optional<double> epsilon = {};       ///< all but sgd and nesterov
  std::optional<double> weight_decay = {};  ///< adamw and lamb (0.01), the rest (0)
  /// Whether the decay shrinks the value (true for adamw and lamb) or is added to the gradient (the rest).
  std::optional<bool> decoupled = {};
  double dampening = 0;  ///< sgd
  bool amsgrad = false;  ///< adam, adamw
};

struct OptimizerInfo {
  std::string name;
  std::string description;
  double lr = 0;                        // that it starts from where none is given
  std::optional<double> momentum = {};  // the same; empty where it takes none
};
const std::vector<OptimizerInfo>& optimizers();
/// "sgd, nesterov, adam …"
std::string optimizer_names();
/// The row of a name; throws Error with the list of names.
const OptimizerInfo& optimizer_info(const std::string& name);
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, nn::NamedTensors parameters,
                                          const Settings& settings, const Groups<Settings>& groups = {});

}  // namespace tandem::optim
