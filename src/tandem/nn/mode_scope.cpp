#include "tandem/nn/mode_scope.h"

namespace tandem::nn {
namespace {

/// Writes only what differs: threads may share a model whose mode is right already.
void set_mode(Module& module, bool training) {
  if (module.training() != training) module.set_training(training);
}

}  // namespace

ModeScope::ModeScope(Module& module, bool training) : module_(module) {
  module_.apply([&](Module& each) { before_.emplace(&each, each.training()); });
  module_.apply([&](Module& each) { set_mode(each, training); });
}

/// Walks the tree again: modules may have left it since. One that joined it gets the mode of the outermost one.
ModeScope::~ModeScope() {
  const bool usual = before_.at(&module_);
  module_.apply([&](Module& each) {
    const auto known = before_.find(&each);
    set_mode(each, known == before_.end() ? usual : known->second);
  });
}

}  // namespace tandem::nn
