// compile(): turns a callable into one that is traced once per signature, optimised, planned and replayed.
// What it computes has the same bits as calling it eagerly.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/core/tensor.h"
#include "tandem/graph/graph_view.h"

namespace tandem {

/// A callable over tensors: inputs in, results out. Tensors that it captures (parameters, optimiser state)
/// are read anew at each call and may be changed with assign(). Whatever else its trace depended on - requires_grad of
/// captured tensors, train/eval mode, hooks, grad mode - is asked for again at each call, and a change traces anew. What
/// cannot be (reading values, seeding, rebinding, setting a learning rate) is refused. A training step - forward, backward,
/// update - is such a callable.
///
/// Plain C++ around it runs only while tracing, which may call it twice. So state from call to call lives in tensors made
/// outside and changed with assign(), such as a module's buffers, or comes in as an argument and goes out as a result. A tensor
/// that the callable keeps in a C++ variable and reads at its next call is refused, where it was made; one that is kept and
/// not read (for debugging) has no values. A number that C++ code changes from call to call (step++) is found by `verify`
/// alone. What a C++ handle stands for is looked up while tracing: `w = other` between two calls is seen where nothing else
/// holds the old tensor, such as another handle or the gradient of a checkpoint, branch or loop in the callable. Else the
/// old one is used. Use assign(w, other) or w.rebind(other).
using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// The passes, in the order in which they run by default.
std::vector<std::string> all_passes();

/// Whether callables are traced twice and every pass is followed by a look at the whole graph (CompileOptions::verify). Off
/// by default, on in sanitizer builds; Tandem's own tests switch it on.
bool verify_graphs();
void set_verify_graphs(bool on);

struct CompileOptions {
  /// The passes to run, in order.
  std::vector<std::string> passes = all_passes();
  /// Whether values whose lives do not meet share memory. Off, every value has memory of its own.
  bool plan_memory = true;
  /// Signatures kept; the one unused longest is dropped, which warn() tells once (core/warning.h).
  size_t cache_size = 16;
  /// Traces every signature twice, and refuses a callable that does not do the same both times. Checks after each pass
  /// that the graph still is one that computes what was traced.
  bool verify = verify_graphs();
  /// What messages and reports call the inputs; empty: by their numbers. CompiledNamed sets it.
  std::vector<std::string> input_names = {};
};

/// The passes and "plan_memory": what can be switched on and off by name, as `tandem explain --passes` and the lab do.
std::vector<std::string> all_stages();
CompileOptions with_stages(const std::vector<std::string>& names);

struct CompiledState;

/// Any number of threads may call one at the same time: calls take turns, tracing included. Grad mode, autocast, anomaly mode
/// and the random stream are those of the calling thread. Captured tensors must not be changed by another thread during
/// a call, and moving or destroying a Compiled must be the only thing done with it.
class Compiled {
 public:
  Compiled(TensorFunction function, CompileOptions options);
  Compiled(Compiled&&) noexcept;
  Compiled& operator=(Compiled&&) noexcept;
  ~Compiled();

  /// Replays, tracing first where the signature is new. Results are fresh tensors, or, where the callable returns an
  /// input, a captured tensor or a view of one, share its memory as they would eagerly. They are on the tape as they would
  /// be after the plain call, with gradients of the same bits: while gradients are recorded, a call keeps what its
  /// backward pass needs. Under NoGrad, and where the callable detaches its results or changes what their gradient needs (a
  /// training step), it keeps nothing; backward() of the latter is refused, as eagerly. Gradients of such gradients
  /// (create_graph) run the callable again, eagerly, and have those of the plain call but for rounding.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);
  /// The same for a callable that returns one tensor: f(x), f(x, y).
  template <class... T>
  requires(sizeof...(T) > 0 && (std::is_same_v<T, Tensor> && ...)) Tensor operator()(const T&... inputs) {
    return only((*this)(std::vector<Tensor>{inputs...}));
  }
  /// One report for each signature traced so far.
  std::vector<GraphReport> reports() const;

 private:
  static Tensor only(std::vector<Tensor> results);
  CompiledState& state() const;
  std::shared_ptr<CompiledState> state_;  // its results' backward passes hold it, too
};

Compiled compile(TensorFunction function, CompileOptions options = {});

namespace detail {
[[noreturn]] void refuse_inputs(size_t got, size_t takes);

/// A callable of `sizeof...(i)` tensors as one of a list.
template <class F, size_t... i>
TensorFunction of_list(F call, std::index_sequence<i...>) {
  return [call = std::move(call)](const std::vector<Tensor>& in) mutable -> std::vector<Tensor> {
    if (in.size() != sizeof...(i)) refuse_inputs(in.size(), sizeof...(i));
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(call(in[i]...))>, Tensor>)
      return {call(in[i]...)};
    else
      return call(in[i]...);
  };
}
/// By the number of tensors that it takes.
template <class F>
TensorFunction of_list(F call) {
  if constexpr (std::is_invocable_v<F&, const Tensor&>)
    return of_list(std::move(call), std::make_index_sequence<1>());
  else if constexpr (std::is_invocable_v<F&, const Tensor&, const Tensor&>)
    return of_list(std::move(call), std::make_index_sequence<2>());
  else if constexpr (std::is_invocable_v<F&, const Tensor&, const Tensor&, const Tensor&>)
    return of_list(std::move(call), std::make_index_sequence<3>());
  else
    return of_list(std::move(call), std::make_index_sequence<4>());
}
}  // namespace detail

/// The same for callables of one to four tensors, with one result or a list of them: compile([](const Tensor& x) { … }); and
/// for modules: compile(net), which must then outlive it, or compile(pointer_to_net), which it holds.
template <class F>
requires(!std::is_constructible_v<TensorFunction, F> ||
         !std::is_copy_constructible_v<std::remove_cvref_t<F>>) Compiled
    compile(F&& callable, CompileOptions options = {}) {
  using Callable = std::remove_cvref_t<F>;
  using List = std::vector<Tensor>;
  if constexpr (requires {
                  { (*callable)(std::declval<const List&>()) } -> std::same_as<List>;
                })
    return compile(TensorFunction([callable](const List& in) { return (*callable)(in); }),
                   std::move(options));
  else if constexpr (std::is_lvalue_reference_v<F> && !std::is_copy_constructible_v<Callable> && requires {
                       { callable(std::declval<const List&>()) } -> std::same_as<List>;
                     })
    return compile(TensorFunction([&callable](const List& in) { return callable(in); }), std::move(options));
  else if constexpr (requires { (*callable)(std::declval<const Tensor&>()); })
    return compile(detail::of_list([callable](const Tensor& x) { return (*callable)(x); }),
                   std::move(options));
  else if constexpr (std::is_lvalue_reference_v<F> && !std::is_copy_constructible_v<Callable>)
    return compile(detail::of_list([&callable](const Tensor& x) { return callable(x); }), std::move(options));
  else
    return compile(detail::of_list(Callable(std::forward<F>(callable))), std::move(options));
}

}  // namespace tandem
