#include "tandem/train/loop/callback_list.h"

#include <set>

#include "tandem/core/error.h"

namespace tandem {

std::vector<std::pair<std::string, std::string>> CallbackList::begin(const Training& training) {
  std::set<std::string> names;
  std::vector<std::pair<std::string, std::string>> settings;
  for (const CallbackPtr& callback : callbacks_) {
    TD_CHECK(callback, "callbacks: must all be there; got an empty pointer.");
    if (callback->name().empty()) continue;
    TD_CHECK(names.insert(callback->name()).second,
             "callbacks: each must have a name of its own; got two of '", callback->name(), "'.");
    callback->load_state("", {});
    if (std::string text = callback->settings(training); !text.empty())
      settings.emplace_back(callback->name(), std::move(text));
  }
  return settings;
}

void CallbackList::save(Checkpoint& to) const {
  each([&](Callback& callback) {
    if (callback.name().empty()) return;
    to.callbacks.push_back({callback.name(), callback.state(), callback.tensors()});
  });
}

void CallbackList::load(const Checkpoint& from, const std::string& source) {
  for (const Checkpoint::CallbackState& row : from.callbacks)
    each([&](Callback& callback) {
      if (callback.name() != row.name) return;
      try {
        callback.load_state(row.state, row.tensors);
      } catch (const std::exception&) {
        throw Error(
            str("load ", source, ": the state of ", row.name,
                " cannot be read; it was written by another version. Begin a new run in another `out`."));
      }
    });
}

}  // namespace tandem
