// Losses as layers, with PyTorch's names: for code that is given its loss, and for weights that move with a model. Each is its
// function of ops/loss.h, which says what it computes, and nothing more.
//   nn::CrossEntropyLoss loss(nullptr, "", {.label_smoothing = 0.1});
//   loss(net(x), y).backward();
#pragma once

#include "tandem/nn/module.h"
#include "tandem/ops/loss.h"

namespace tandem::nn {

/// What losses of a prediction and a target share.
class LossOfTwo : public Module {
 public:
  using Module::forward;
  using Module::Module;
  virtual Tensor forward(const Tensor& prediction, const Tensor& target) = 0;
  /// forward, with the hooks around it.
  Tensor operator()(const Tensor& prediction, const Tensor& target);

 protected:
  /// Makes a weight that was given a buffer: a copy of it, which moves with the module.
  void keep(const char* name, Tensor& weight);
};

/// The same of three tensors.
class LossOfThree : public Module {
 public:
  using Module::forward;
  using Module::Module;
  virtual Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c) = 0;
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& c);
};

/// -log_probabilities[target]. Its weight is a buffer, as PyTorch's.
class NLLLoss : public LossOfTwo {
 public:
  using Options = NllLossOptions;
  explicit NLLLoss(Module* parent = nullptr, const std::string& name = "", const NllLossOptions& options = {})
      : LossOfTwo(parent, name), options_(options) {
    keep("weight", options_.weight);
  }
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return nll_loss(prediction, target, options_);
  }

 private:
  NllLossOptions options_;
};

/// Of logits, with targets that are classes or probabilities. Its weight is a buffer.
class CrossEntropyLoss : public LossOfTwo {
 public:
  using Options = CrossEntropyOptions;
  explicit CrossEntropyLoss(Module* parent = nullptr, const std::string& name = "",
                            const CrossEntropyOptions& options = {})
      : LossOfTwo(parent, name), options_(options) {
    keep("weight", options_.weight);
  }
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return cross_entropy(prediction, target, options_);
  }

 private:
  CrossEntropyOptions options_;
};

/// Its weight is a buffer.
class MultiMarginLoss : public LossOfTwo {
 public:
  using Options = MultiMarginOptions;
  explicit MultiMarginLoss(Module* parent = nullptr, const std::string& name = "",
                           const MultiMarginOptions& options = {})
      : LossOfTwo(parent, name), options_(options) {
    keep("weight", options_.weight);
  }
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return multi_margin_loss(prediction, target, options_);
  }

 private:
  MultiMarginOptions options_;
};

/// Of probabilities. Its weight is a buffer.
class BCELoss : public LossOfTwo {
 public:
  using Options = BinaryCrossEntropyOptions;
  explicit BCELoss(Module* parent = nullptr, const std::string& name = "",
                   const BinaryCrossEntropyOptions& options = {})
      : LossOfTwo(parent, name), options_(options) {
    keep("weight", options_.weight);
  }
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return binary_cross_entropy(prediction, target, options_);
  }

 private:
  BinaryCrossEntropyOptions options_;
};

/// Of logits. weight and pos_weight are buffers.
class BCEWithLogitsLoss : public LossOfTwo {
 public:
  using Options = BinaryCrossEntropyWithLogitsOptions;
  explicit BCEWithLogitsLoss(Module* parent = nullptr, const std::string& name = "",
                             const BinaryCrossEntropyWithLogitsOptions& options = {})
      : LossOfTwo(parent, name), options_(options) {
    keep("weight", options_.weight);
    keep("pos_weight", options_.pos_weight);
  }
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return binary_cross_entropy_with_logits(prediction, target, options_);
  }

 private:
  BinaryCrossEntropyWithLogitsOptions options_;
};

class HingeLoss : public LossOfTwo {
 public:
  explicit HingeLoss(Module* parent = nullptr, const std::string& name = "", double margin = 1,
                     Reduction reduction = Reduction::mean)
      : LossOfTwo(parent, name), margin_(margin), reduction_(reduction) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return hinge_loss(prediction, target, margin_, reduction_);
  }

 private:
  double margin_;
  Reduction reduction_;
};

class HingeEmbeddingLoss : public LossOfTwo {
 public:
  explicit HingeEmbeddingLoss(Module* parent = nullptr, const std::string& name = "", double margin = 1,
                              Reduction reduction = Reduction::mean)
      : LossOfTwo(parent, name), margin_(margin), reduction_(reduction) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return hinge_embedding_loss(prediction, target, margin_, reduction_);
  }

 private:
  double margin_;
  Reduction reduction_;
};

class SoftMarginLoss : public LossOfTwo {
 public:
  explicit SoftMarginLoss(Module* parent = nullptr, const std::string& name = "",
                          Reduction reduction = Reduction::mean)
      : LossOfTwo(parent, name), reduction_(reduction) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return soft_margin_loss(prediction, target, reduction_);
  }

 private:
  Reduction reduction_;
};

class MSELoss : public LossOfTwo {
 public:
  explicit MSELoss(Module* parent = nullptr, const std::string& name = "",
                   Reduction reduction = Reduction::mean)
      : LossOfTwo(parent, name), reduction_(reduction) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return mse_loss(prediction, target, reduction_);
  }

 private:
  Reduction reduction_;
};

class L1Loss : public LossOfTwo {
 public:
  explicit L1Loss(Module* parent = nullptr, const std::string& name = "",
                  Reduction reduction = Reduction::mean)
      : LossOfTwo(parent, name), reduction_(reduction) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return l1_loss(prediction, target, reduction_);
  }

 private:
  Reduction reduction_;
};

class SmoothL1Loss : public LossOfTwo {
 public:
  explicit SmoothL1Loss(Module* parent = nullptr, const std::string& name = "", double beta = 1,
                        Reduction reduction = Reduction::mean)
      : LossOfTwo(parent, name), beta_(beta), reduction_(reduction) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return smooth_l1_loss(prediction, target, beta_, reduction_);
  }

 private:
  double beta_;
  Reduction reduction_;
};

class HuberLoss : public LossOfTwo {
 public:
  explicit HuberLoss(Module* parent = nullptr, const std::string& name = "", double delta = 1,
                     Reduction reduction = Reduction::mean)
      : LossOfTwo(parent, name), delta_(delta), reduction_(reduction) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return huber_loss(prediction, target, delta_, reduction_);
  }

 private:
  double delta_;
  Reduction reduction_;
};

class LogCoshLoss : public LossOfTwo {
 public:
  explicit LogCoshLoss(Module* parent = nullptr, const std::string& name = "",
                       Reduction reduction = Reduction::mean)
      : LossOfTwo(parent, name), reduction_(reduction) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return log_cosh_loss(prediction, target, reduction_);
  }

 private:
  Reduction reduction_;
};

/// Of logarithms of probabilities.
class KLDivLoss : public LossOfTwo {
 public:
  using Options = KlDivOptions;
  explicit KLDivLoss(Module* parent = nullptr, const std::string& name = "", const KlDivOptions& options = {})
      : LossOfTwo(parent, name), options_(options) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return kl_div(prediction, target, options_);
  }

 private:
  KlDivOptions options_;
};

class PoissonNLLLoss : public LossOfTwo {
 public:
  using Options = PoissonNllOptions;
  explicit PoissonNLLLoss(Module* parent = nullptr, const std::string& name = "",
                          const PoissonNllOptions& options = {})
      : LossOfTwo(parent, name), options_(options) {}
  Tensor forward(const Tensor& prediction, const Tensor& target) override {
    return poisson_nll_loss(prediction, target, options_);
  }

 private:
  PoissonNllOptions options_;
};

/// Of two vectors and whether they belong together.
class CosineEmbeddingLoss : public LossOfThree {
 public:
  explicit CosineEmbeddingLoss(Module* parent = nullptr, const std::string& name = "", double margin = 0,
                               Reduction reduction = Reduction::mean)
      : LossOfThree(parent, name), margin_(margin), reduction_(reduction) {}
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target) override {
    return cosine_embedding_loss(a, b, target, margin_, reduction_);
  }

 private:
  double margin_;
  Reduction reduction_;
};

/// Of two values and which should be larger.
class MarginRankingLoss : public LossOfThree {
 public:
  explicit MarginRankingLoss(Module* parent = nullptr, const std::string& name = "", double margin = 0,
                             Reduction reduction = Reduction::mean)
      : LossOfThree(parent, name), margin_(margin), reduction_(reduction) {}
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target) override {
    return margin_ranking_loss(a, b, target, margin_, reduction_);
  }

 private:
  double margin_;
  Reduction reduction_;
};

/// Of anchor, positive and negative.
class TripletMarginLoss : public LossOfThree {
 public:
  using Options = TripletMarginOptions;
  explicit TripletMarginLoss(Module* parent = nullptr, const std::string& name = "",
                             const TripletMarginOptions& options = {})
      : LossOfThree(parent, name), options_(options) {}
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) override {
    return triplet_margin_loss(anchor, positive, negative, options_);
  }

 private:
  TripletMarginOptions options_;
};

}  // namespace tandem::nn
