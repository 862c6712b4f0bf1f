// SmallVector: a vector whose first N elements live inside the object, for the short lists on every
// operation's way.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "tandem/core/standard.h"

namespace tandem {

template <class T, size_t N>
class SmallVector {
 public:
  SmallVector() {}  // not = default, by which SmallVector() and {} would fill the place with zeros first
  SmallVector(std::initializer_list<T> values) {
    for (const T& v : values) push_back(v);
  }
  explicit SmallVector(size_t size) { resize(size); }
  SmallVector(const SmallVector& other) {
    for (const T& v : other) push_back(v);
  }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(SmallVector other) noexcept {
    clear();
    take(other);
    return *this;
  }
  ~SmallVector() { clear(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  operator std::span<const T>() const { return {data_, size_}; }

  T& push_back(T value) {
    if (size_ == capacity_) grow(2 * capacity_);
    return *new (data_ + size_++) T(std::move(value));
  }
  T& emplace_back() {
    if (size_ == capacity_) grow(2 * capacity_);
    return *new (data_ + size_++) T();
  }
  void resize(size_t size) {
    if (size > capacity_) grow(size);
    while (size_ > size) data_[--size_].~T();
    while (size_ < size) new (data_ + size_++) T();
  }
  void clear() {
    std::destroy_n(data_, size_);
    if (data_ != inline_data()) ::operator delete (data_, std::align_val_t{alignof(T)});
    data_ = inline_data();
    size_ = 0;
    capacity_ = N;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(inline_); }
  void grow(size_t capacity) {
    T* fresh = static_cast<T*>(::operator new (capacity * sizeof(T), std::align_val_t{alignof(T)}));
    std::uninitialized_move_n(data_, size_, fresh);
    const size_t size = size_;
    clear();
    data_ = fresh;
    size_ = size;
    capacity_ = capacity;
  }
  /// Moves other's elements into this empty vector.
  void take(SmallVector& other) {
    if (other.data_ != other.inline_data()) {
      data_ = std::exchange(other.data_, other.inline_data());
      size_ = std::exchange(other.size_, 0);
      capacity_ = std::exchange(other.capacity_, N);
    } else {
      std::uninitialized_move_n(other.data_, other.size_, data_);
      size_ = other.size_;
      other.clear();
    }
  }

  T* data_ = inline_data();
  size_t size_ = 0;
  size_t capacity_ = N;
  alignas(T) std::byte inline_[N * sizeof(T)];
};

}  // namespace tandem
