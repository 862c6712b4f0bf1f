// The exponential moving average of weights, which often tests better than the weights themselves. update() goes
// after the optimiser's, inside a compiled step too; a Scope lends the averages to the model for an evaluation:
//   { const optim::Ema::Scope averaged(ema); accuracy = evaluate(net, test_set).accuracy; }
#pragma once

#include "tandem/nn/module.h"

namespace tandem::optim {

struct EmaOptions {
  double decay = 0.999;
  /// The decay begins small: min(decay, (1 + t) / (10 + t)) at update t, from 0.
  bool warm_up = false;
};

/// a = decay · a + (1 - decay) · p at each update; the first one copies p. As PyTorch's AveragedModel with
/// get_ema_avg_fn. Averages of bf16 and f16 are kept in f32.
class Ema {
 public:
  explicit Ema(nn::NamedTensors parameters, const EmaOptions& options = {});
  /// `finite`, one bool: where it is false nothing changes, as for Optimizer::update.
  void update(const Tensor& finite = {});

  /// Overwrites the parameters by their averages.
  void copy_to_parameters() const;
  /// The averages by the parameters' names.
  nn::NamedTensors averages() const;

  /// Within a scope the parameters have the values of the averages.
  class Scope {
   public:
    explicit Scope(const Ema& ema);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Ema& ema_;
    std::vector<Tensor> before_;
  };

  /// What a checkpoint must hold: "updates", "average.conv1.weight" …
  nn::NamedTensors named_state() const;
  void load_state(const nn::NamedTensors& tensors, const std::string& source);

 private:
  nn::NamedTensors parameters_;
  EmaOptions options_;
  std::vector<Tensor> averages_;
  Tensor updates_;  // i64 ()
};

}  // namespace tandem::optim
