// How kernels choose among their algorithms; core/choices.h is what users see of it.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/core/choices.h"
#include "tandem/core/mutex.h"

namespace tandem {

/// Grows whenever a choice may come out otherwise than before.
uint64_t choice_epoch();

/// The index of the algorithm that the table has for a call, or of the fastest, which is then put there. `what`: all that
/// the times depend on but this library's version. seconds(i) runs algorithm i once; a negative time means that it
/// cannot do this. One of them must.
size_t choose_by_time(const std::string& what, const std::vector<std::string>& names,
                      const std::function<double(size_t)>& seconds);

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
