// Autocast: mixed precision for a scope. Matrix products and convolutions compute in bf16 or f16, what needs the range of
// f32 (softmax, losses, norms, sums, exp, log …) computes in f32, and all else takes what it is given. Weights stay f32:
// they are cast by the ordinary op, on the tape, so that their gradients come back in f32.
//   {
//     const Autocast autocast(DType::bf16);
//     loss = cross_entropy(net(x), y);
//   }
//   const std::vector<Tensor> gradients = grad(loss, net.parameters());  // f32
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "tandem/core/op.h"

namespace tandem {

class Autocast;
namespace detail {
Autocast* current_autocast();  // the innermost scope of this thread, or null (op.cpp)
void set_autocast(Autocast* scope);
}  // namespace detail

/// Switches it on for bf16 or f16, or off (nothing given), for this thread and this scope. Backward passes run with the
/// types of the forward pass, with Autocast off inside.
///
/// A leaf that wants a gradient (a weight) is cast once within the outermost scope, however often it is used, until it is
/// changed by an op. That shows in time and memory alone: each use gives its gradient in f32 by itself.
///
/// A scope ends on the thread that it began on. Where an outer one ends first, the inner one stays in force until its own end.
class Autocast {
 public:
  explicit Autocast(std::optional<DType> dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  std::optional<DType> dtype() const { return dtype_; }
  /// What ops of this precision take in place of `in`; nothing where that is `in` itself. With keep, casts of weights may
  /// share the memory that the scope keeps: none may be handed on to who could write into it.
  std::optional<Tensors> inputs(Precision precision, std::span<const Tensor> in, bool keep = true);

 private:
  class Weights;
  Tensor cast(const Tensor& x, DType to, bool keep);

  std::optional<DType> dtype_;
  Autocast* previous_;
  std::shared_ptr<Weights> weights_;  // one for all nested scopes
};

/// Switches it off for a scope.
class NoAutocast : public Autocast {
 public:
  NoAutocast() : Autocast(std::nullopt) {}
};

/// The type that Autocast is on for, on this thread.
inline std::optional<DType> autocast_dtype() {
  const Autocast* const scope = detail::current_autocast();
  return scope ? scope->dtype() : std::nullopt;
}
inline bool autocast_is_on() { return autocast_dtype().has_value(); }

namespace detail {
/// The scope that as_one_op() works in; refused where Autocast is off.
Autocast& scope_of_one_op();
/// `result`, or a copy where its memory is that of a kept cast.
Tensor apart_from_kept(const Tensor& result, std::span<const Tensor> given,
                       const std::optional<Tensors>& cast);
}  // namespace detail

/// For functions made of several ops, which Autocast shall treat as one: calls `function` with the inputs as an op of this
/// precision takes them, and with Autocast off. The inputs may be undefined. Refused where Autocast is off already.
///   if (autocast_is_on())
///     return as_one_op(Precision::full, [&](const Tensor& x) { return mean(x, axes); }, x);
template <class F, class... T>
auto as_one_op(Precision precision, F&& function, const T&... in) {
  const Tensor given[] = {in...};
  const auto call = [&]<size_t... i>(const Tensor* at, std::index_sequence<i...>) {
    return function(at[i]...);
  };
  constexpr std::index_sequence_for<T...> each;
  // A function may return what it was given, or a view of it. Where that can be copied, the casts may be kept ones.
  constexpr bool gives_tensor = std::is_same_v<decltype(call(given, each)), Tensor>;
  const std::optional<Tensors> cast = detail::scope_of_one_op().inputs(precision, given, gives_tensor);
  const NoAutocast off;
  const Tensor* const at = cast ? cast->data() : given;
  if constexpr (gives_tensor)
    return detail::apart_from_kept(call(at, each), given, cast);
  else
    return call(at, each);
}

}  // namespace tandem
