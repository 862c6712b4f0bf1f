// Tensor: a handle to an n-dimensional array on some device. Copying a Tensor copies the handle. Operations
// (tandem/ops/*.h) return new tensors; views share memory; values change in place only through assign() and the
// functions whose names end in _into.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/device.h"
#include "tandem/core/dtype.h"
#include "tandem/core/error.h"
#include "tandem/core/refcount.h"
#include "tandem/core/shape.h"

namespace tandem {

class Tensor;
class TapeNode;
struct GradientHooks;
struct TensorImpl;

/// Tensors and the nodes of a tape hold each other in chains as long as the tape. Whatever dies while one of them is
/// destroyed waits in a list until that has ended, so that no chain is destroyed by recursion.
void destroy(TensorImpl* object);
void destroy(TapeNode* object);

/// A block of device memory. Views share it. `version` counts the assigns into it.
class Storage : public RefCounted {
 public:
  Storage(Device device, size_t bytes);  // from the device's allocator
  Storage(Device device, void* external, size_t bytes, void (*release)(void*), void* context);
  ~Storage();
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Device device_;
  std::atomic<uint32_t> version_{0};
  void (*release_)(void*) = nullptr;
  void* release_context_ = nullptr;
};

/// All of a tensor but its memory. Strides and offset count elements.
struct Meta {
  Dims shape;
  Dims strides;
  int64_t offset = 0;
  DType dtype = DType::f32;
  Device device;
};

/// Made by contiguous(shape, …): row-major, offset 0.
Meta contiguous_meta(const Dims& shape, DType dtype, Device device);
void set_contiguous(Meta& meta, const Dims& shape, DType dtype, Device device);

/// Marks a tensor that looks like a part of another one but is a copy of it, since its elements cannot be described by
/// strides: reshape() of a transposed tensor, index() with tensors. Whoever writes into it means the other one, which
/// would not change, so such a write is refused. Views inherit the mark. What a function computes has none, nor have
/// results of clone(), leaves that require a gradient and a module's parameters and buffers.
struct CopyMark {
  const char* function;  // that copied
  const char* instead;   // a sentence: how to change the other tensor
};

struct TensorImpl : RefCounted {
  TensorImpl();
  ~TensorImpl();
  Meta meta;
  Ref<Storage> storage;       // null while the tensor is a traced value
  int64_t trace_id = -1;      // value number in the trace `trace_serial`, where traced
  uint64_t trace_serial = 0;  // which trace; 0 = none
  bool requires_grad = false;
  uint32_t earlier_changes = 0;          // of memory that it had before rebind(): see version_of
  uint32_t node_output = 0;              // which output of `node` this is
  Ref<TapeNode> node;                    // null for leaves
  Ref<TensorImpl> grad;                  // leaves only
  std::shared_ptr<GradientHooks> hooks;  // leaves only; those of results are in their node
  const CopyMark* copied_by = nullptr;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  const Meta& meta() const { return content().meta; }
  const Dims& shape() const { return content().meta.shape; }
  const Dims& strides() const { return content().meta.strides; }
  int rank() const { return shape().rank(); }
  Dim size() const { return size_of(shape()); }  ///< number of elements
  Dim size(int64_t axis) const { return shape()[normal_axis("size", axis, rank())]; }
  DType dtype() const { return content().meta.dtype; }
  Device device() const { return content().meta.device; }
  bool is_contiguous() const { return tandem::is_contiguous(shape(), strides()); }
  bool is_traced() const { return content().trace_serial != 0; }

  /// The first element in memory. The tensor must be concrete and T its element type; on a GPU the pointer is
  /// a device pointer.
  template <class T>
  T* data() const {
    check_readable("data", dtype_of<T>());
    return static_cast<T*>(raw());
  }
  /// The same without a type check. Throws Error for a traced tensor.
  void* raw() const;

  /// The only element of a one-element tensor, on the host, converted to T.
  template <class T>
  T item() const;
  /// All elements in logical order, on the host. T must be the element type.
  template <class T>
  std::vector<T> to_vector() const;

  /// Row i (negative counts from the end): select(x, 0, i), a view. index() of ops/index.h takes slices and tensors.
  Tensor operator[](int64_t i) const;

  // Autograd
  bool requires_grad() const;
  bool is_leaf() const { return !content().node; }
  /// Marks a leaf as wanting a gradient (floating types only) and returns it. It is a tensor in its own right then.
  Tensor& set_requires_grad(bool value = true);
  const Tensor& set_requires_grad(bool value = true) const {
    Tensor(*this).set_requires_grad(value);
    return *this;
  }
  /// The gradient that backward() left here; undefined where there is none.
  Tensor grad() const;
  void set_grad(const Tensor& grad);
  void set_grad(const Tensor& grad) const { Tensor(*this).set_grad(grad); }
  void zero_grad();
  void zero_grad() const { Tensor(*this).zero_grad(); }
  /// Back-propagates from this scalar into the leaves' grad (see core/tape.h for more control).
  void backward() const;
  /// The same values, cut off from the tape.
  Tensor detach() const;

  /// Makes this handle's tensor stand for `value` (same shape), e.g. after a move to another device. Leaves
  /// only.
  void rebind(const Tensor& value);

  TensorImpl* impl() const { return impl_.get(); }
  const Ref<TensorImpl>& ref() const { return impl_; }
  friend bool operator==(const Tensor&, const Tensor&) = delete;  // see equal() and same()
  bool same(const Tensor& other) const { return impl_ == other.impl_; }

 private:
  /// What the handle stands for; an Error where that is nothing.
  TensorImpl& content() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return *impl_;
  }
  [[noreturn]] static void throw_undefined();
  void check_readable(const char* what, DType wanted) const;
  Ref<TensorImpl> impl_;
};

/// Refuses to write into a tensor that is marked as a copy, or whose elements share memory (an expanded view).
void check_target(const char* op, const Tensor& target);
/// The same tensor without a mark: another handle where it has one.
Tensor without_mark(const Tensor& tensor);

/// Uninitialised memory.
Tensor empty(const Dims& shape, DType dtype = DType::f32, Device device = {});
/// A copy of host values.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Dims& shape, Device device = {});
Tensor from_host(const void* values, const Dims& shape, DType dtype, Device device = {});
/// Memory that stays the caller's, without a copy where it is aligned to 64 bytes (otherwise copied, since
/// kernels may choose by alignment). `release(context)` runs when the last view is gone.
Tensor from_blob(void* data, const Dims& shape, DType dtype, Device device = {},
                 void (*release)(void*) = nullptr, void* context = nullptr);
/// All elements on the host in logical order, as raw bytes.
std::vector<std::byte> host_bytes(const Tensor& tensor);

/// "f32 (2, 3) on cpu": for messages.
std::string describe(const Tensor& tensor);
/// Its values as nested lists, "[[1, 2], [3, 4]]"; of a large tensor the ends of each axis.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
/// How tensors are printed, in all threads.
struct PrintOptions {
  int precision = 6;  ///< digits of a floating number, 1 to 17
  Dim whole = 1000;   ///< a tensor of more elements shows the ends of its axes only
  Dim ends = 3;       ///< so many elements at each end
};
PrintOptions print_options();
void set_print_options(const PrintOptions& options);

template <class T>
Tensor from_vector(const std::vector<T>& values, const Dims& shape, Device device) {
  TD_CHECK(static_cast<Dim>(values.size()) == size_of(shape),
           "from_vector: the shape must hold as many elements as there are values; got ", values.size(),
           " values and shape ", shape, ".");
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    return from_host(bytes.data(), shape, DType::boolean, device);
  } else {
    return from_host(values.data(), shape, dtype_of<T>(), device);
  }
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  check_readable("to_vector", dtype_of<T>());
  const std::vector<std::byte> bytes = host_bytes(*this);
  std::vector<T> values(bytes.size() / sizeof(T));
  if constexpr (std::is_same_v<T, bool>)
    for (size_t i = 0; i < values.size(); ++i) values[i] = bytes[i] != std::byte{0};
  else if (!bytes.empty())
    std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <class T>
T Tensor::item() const {
  TD_CHECK(size() == 1, "item: the tensor must have one element; got shape ", shape(), ".");
  const std::vector<std::byte> bytes = host_bytes(*this);
  return visit_dtype(dtype(), [&](auto zero) {
    std::memcpy(&zero, bytes.data(), sizeof(zero));
    if constexpr (sizeof(zero) == 2 && std::is_class_v<decltype(zero)>)
      return static_cast<T>(static_cast<float>(zero));
    else
      return static_cast<T>(zero);
  });
}

}  // namespace tandem
