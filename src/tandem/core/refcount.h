// Intrusive reference counting: Ref<T> is one pointer wide, and making one costs no allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "tandem/core/standard.h"

namespace tandem {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  /// True where this was the last reference: the caller then deletes the object. Who holds the only one needs no atomic
  /// subtraction: nobody else can take another meanwhile.
  bool release() const {
    return count_.load(std::memory_order_acquire) == 1 || count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  uint32_t use_count() const { return count_.load(std::memory_order_relaxed); }

 protected:
  ~RefCounted() = default;

 private:
  template <class T>
  friend class Ref;
  mutable std::atomic<uint32_t> count_{0};
};

/// Ends an object that nobody refers to any more. Types whose objects form long chains have their own (see tensor.h).
template <class T>
void destroy(T* object) {
  delete object;
}

template <class T>
class Ref {
 public:
  Ref() = default;
  /// The first reference to a new object.
  static Ref first(T* object) {
    object->count_.store(1, std::memory_order_relaxed);
    return taken(object);
  }
  /// A reference that is not counted, and whose destructor must not run; somebody else holds one all the while.
  static Ref borrowed(const Ref& other) { return taken(other.object_); }

  Ref(std::nullptr_t) {}
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ~Ref() { reset(); }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  void reset() {
    if (T* object = std::exchange(object_, nullptr); object && object->release()) destroy(object);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }

 private:
  static Ref taken(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  T* object_ = nullptr;
};

template <class T>
Ref<T> make_ref() {
  return Ref<T>::first(new T);  // not T(), which would fill it with zeros before its members are made
}
template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>::first(new T(std::forward<Args>(args)...));
}

}  // namespace tandem
