// Training or evaluation mode for a while.
#pragma once

#include <unordered_map>

#include "tandem/nn/module.h"

namespace tandem::nn {

/// Puts a module and all below it into one mode for a scope. Afterwards, also after an exception, each of them has the
/// mode that it had: a batch norm that somebody keeps in evaluation mode stays there.
///   { const nn::ModeScope testing(net, /*training=*/false); y = net(x); }
class ModeScope {
 public:
  ModeScope(Module& module, bool training);
  ~ModeScope();
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  Module& module_;
  std::unordered_map<const Module*, bool> before_;
};

}  // namespace tandem::nn
