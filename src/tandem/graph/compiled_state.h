// What a compiled callable is: what Compiled and CompiledNamed, which is one callable for several layouts of its inputs, stand on.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/core/mutex.h"
#include "tandem/graph/compile.h"
#include "tandem/graph/entry.h"

namespace tandem {

/// Held by its owner, and by the backward passes of its results.
struct CompiledState : std::enable_shared_from_this<CompiledState> {
  using Entry = graph::Entry;
  /// A layout says what the tensors of the list are; each has entries of its own. Compiled has layout 0 alone.
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&, size_t layout)>;

  CompiledState(Function function, CompileOptions options);

  using InputNames = std::vector<std::string>;  // for messages and reports; empty: by their numbers
  std::vector<Tensor> call(const std::vector<Tensor>& inputs, size_t layout, const InputNames& names);
  /// One for each entry, the oldest first, with its layout.
  std::vector<std::pair<size_t, GraphReport>> reports();
  /// The owner goes.
  void leave();

  graph::Arena& arena_of(const graph::Executor& executor) {
    const Device device = executor.graph().device;
    return arenas[{static_cast<int>(device.kind), device.index}];
  }
  Entry& entry_for(const std::vector<Tensor>& inputs, size_t layout, const InputNames& names);
  /// All that hold captured tensors.
  std::vector<graph::EntryInUse> entries_in_use();
  /// graph::captures_are_held(), mostly by a look at the numbers of references alone.
  bool captures_are_held(const Entry& entry);
  graph::Backward& backward_for(Entry& entry, std::span<const Tensor> grads);

  const Function function;
  const CompileOptions options;
  Mutex mutex{LockOrder::turn, "compiled callable"};   // one call at a time: the arena is shared
  std::atomic<bool> has_owner{true};                   // else what the function refers to may be gone
  std::list<std::shared_ptr<Entry>> entries;           // most recently used first
  std::vector<std::weak_ptr<Entry>> dropped;           // which the tape of some results may still hold
  graph::LeftBehind left_behind;                       // by all traces
  bool has_warned = false;                             // that signatures were dropped
  std::map<std::pair<int, int>, graph::Arena> arenas;  // by device

 private:
  using EntryAt = std::list<std::shared_ptr<Entry>>::iterator;
  EntryAt drop(EntryAt at) {
    dropped.push_back(*at);
    return entries.erase(at);
  }
  void drop_oldest_of(size_t layout);
};

}  // namespace tandem
