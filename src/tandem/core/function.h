// Functions with a gradient of your own, made of operations alone: no kernel, no record. Both engines take them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/core/tape.h"

namespace tandem {

/// What one call keeps for its gradient.
class FunctionContext {
 public:
  /// Keeps a tensor - an input, a result or anything else - for the gradient rule, which finds it as saved(0), saved(1) …
  void save(const Tensor& tensor) { given_.push_back(tensor); }
  /// In the rule. Throws Error where the tensor was changed in place since.
  Tensor saved(size_t i) const;
  /// Whether input i wants a gradient.
  bool needs(size_t i) const { return i < needs_.size() && needs_[i]; }

 private:
  friend class CustomFunction;
  struct Kept {
    TapeNode::Saved saved;
    int output = -1;  // a result of the call: kept without the node, which would hold itself
  };
  std::string name_;
  std::vector<Tensor> given_;
  std::vector<Kept> kept_;
  std::vector<bool> needs_;
  TapeNode* node_ = nullptr;
};

class CustomFunction {
 public:
  /// Computes the results. Nothing inside is recorded.
  using Forward = std::function<std::vector<Tensor>(FunctionContext& context, const std::vector<Tensor>& in)>;
  /// One gradient per input, or an undefined tensor for none; `grads` has one per result, undefined where none arrived.
  /// Made of operations, it can be differentiated again.
  using Gradient =
      std::function<std::vector<Tensor>(const FunctionContext& context, const std::vector<Tensor>& grads)>;

  /// `name` stands in messages.
  CustomFunction(std::string name, Forward forward, Gradient gradient);
  std::vector<Tensor> operator()(const std::vector<Tensor>& in) const;

 private:
  std::string name_;
  Forward forward_;
  Gradient gradient_;
};

}  // namespace tandem
