// How often a trace refers to tensors: what is held more often is held by others. For made_tensors.cpp and entry.cpp.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tandem/core/tape.h"

namespace tandem::graph {

/// Adds up references, those along the tape of a trace included. What rules of functions hold is not seen.
class References {
 public:
  void add(const Ref<TensorImpl>& tensor) {
    if (!tensor) return;
    ++count_[tensor.get()];
    if (seen_.insert(tensor.get()).second) tensors_.push_back(tensor.get());
  }
  /// Goes along the tape from all that was added.
  void follow() {
    while (!tensors_.empty() || !nodes_.empty()) {
      if (tensors_.empty()) {
        const TapeNode& node = *nodes_.back();
        nodes_.pop_back();
        visit(node);
      } else {
        const TensorImpl& tensor = *tensors_.back();
        tensors_.pop_back();
        if (!tensor.trace_serial) continue;  // from outside
        add(tensor.grad);
        add(tensor.node);
      }
    }
  }
  uint32_t to(const TensorImpl* tensor) const {
    const auto found = count_.find(tensor);
    return found == count_.end() ? 0 : found->second;
  }
  const std::unordered_map<const TensorImpl*, uint32_t>& counts() const { return count_; }

 private:
  void add(const Ref<TapeNode>& node) {
    if (node && seen_.insert(node.get()).second) nodes_.push_back(node.get());
  }
  void visit(const TapeNode& node) {
    if (!node.trace) return;  // from outside
    for (const TapeNode::Saved& saved : node.saved_in) add(saved.value);
    for (const TapeNode::Saved& saved : node.saved_out) add(saved.value);
    for (const TapeNode::Edge& edge : node.edges) {
      add(edge.leaf);
      add(edge.node);
    }
  }

  std::unordered_map<const TensorImpl*, uint32_t> count_;
  std::unordered_set<const void*> seen_;
  std::vector<const TensorImpl*> tensors_;
  std::vector<const TapeNode*> nodes_;
};

}  // namespace tandem::graph
