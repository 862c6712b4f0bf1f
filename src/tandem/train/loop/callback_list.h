// The callbacks of a run, as one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/train/callbacks.h"

namespace tandem {

class CallbackList {
 public:
  CallbackList(std::vector<CallbackPtr> first, const std::vector<CallbackPtr>& then)
      : callbacks_(std::move(first)) {
    callbacks_.insert(callbacks_.end(), then.begin(), then.end());
  }

  template <class F>
  void each(const F& call) const {
    for (const CallbackPtr& callback : callbacks_) call(*callback);
  }
  void tell(const TrainEvent& event) const {
    each([&](Callback& callback) { callback.on_event(event); });
  }
  /// Makes all begin anew. Returns the settings of those that have some, by name (SettingsParts::callbacks). Throws Error
  /// where one is missing, or two have the same name.
  std::vector<std::pair<std::string, std::string>> begin(const Training& training);

  /// Their part of a checkpoint, and back. `source` is the checkpoint, for messages.
  void save(Checkpoint& to) const;
  void load(const Checkpoint& from, const std::string& source);

 private:
  std::vector<CallbackPtr> callbacks_;
};

}  // namespace tandem
