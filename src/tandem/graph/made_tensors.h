// The tensors that a trace makes, to see which of them outlive it. For tracer.cpp.
#pragma once

#include "tandem/graph/tracer.h"

namespace tandem::graph {

class MadeTensors {
 public:
  /// `what` makes it, where this thread is.
  void add(const Ref<TensorImpl>& tensor, const char* what);
  size_t count() const { return made_.size(); }
  /// The trace `trace` goes back to when it had so many values, and this list was so long. Whoever kept a tensor made since,
  /// such as a hook, holds one of no trace from then on: the numbers of its values are given out again.
  void forget_since(size_t count, uint64_t trace, int64_t values);
  /// At the end of a trace: those that others hold, as references show that neither the trace nor the tape of its results
  /// accounts for. What rules of functions hold is not seen, so that some may be named that only such a rule holds.
  /// `inputs`: what the tracer itself refers to. The list is empty then.
  std::vector<Survivor> outliving(const Trace& trace, const std::vector<Tensor>& inputs);

 private:
  struct Made {
    Ref<TensorImpl> tensor;
    const char* what = nullptr;
    std::shared_ptr<const std::string> layer = {};
    ScopeChain scope = {};
  };
  static std::string text_of(const Made& made);
  std::vector<Made> made_;
};

}  // namespace tandem::graph
