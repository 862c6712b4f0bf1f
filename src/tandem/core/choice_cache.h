// What kernels remember of choices (choices.h), until these may come out otherwise.
#pragma once

#include <map>
#include <mutex>

#include "tandem/core/mutex.h"

namespace tandem {

/// Grows whenever a choice may come out otherwise than before.
uint64_t choice_epoch();

/// What was made of a choice, by call. Emptied when the epoch changes; one value is made at a time.
template <class Key, class Value>
class ChoiceCache {
 public:
  template <class Make>
  Value get(const Key& key, Make&& make) {
    std::lock_guard lock(mutex_);
    renew();
    auto place = values_.find(key);
    if (place == values_.end()) place = values_.emplace(key, make()).first;
    return place->second;
  }
  /// The value, or `otherwise` where none was made yet.
  Value find(const Key& key, Value otherwise) {
    std::lock_guard lock(mutex_);
    renew();
    const auto place = values_.find(key);
    return place == values_.end() ? otherwise : place->second;
  }

 private:
  void renew() {
    if (epoch_ == choice_epoch()) return;
    values_.clear();
    epoch_ = choice_epoch();
  }
  Mutex mutex_{LockOrder::choice_cache};
  uint64_t epoch_ = 0;
  std::map<Key, Value> values_;
};

}  // namespace tandem
