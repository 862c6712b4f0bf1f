// A recurrent layer from its inputs on: by linear() and recurrent() (recurrent.h), or as one op by what a backend's library has for it
// (cuDNN), where mode `profile` of matrix products finds that faster.
#pragma once

#include <compare>
#include <functional>
#include <string>
#include <vector>

#include "tandem/ops/recurrent.h"

namespace tandem {

/// T steps of N samples, and the weights of one direction of one layer.
struct RecurrentLayerOperands {
  Tensor x;                           ///< (T, N, features)
  Tensor weight_ih, weight_hh;        ///< (gates · hidden, features), (gates · hidden, hidden)
  Tensor h, c = {};                   ///< (N, hidden), before the first step; c: lstm only
  Tensor bias_ih = {}, bias_hh = {};  ///< (gates · hidden), both or none
};
/// The steps of recurrent(), without regularisers, lengths and projections. from_end: the last step first.
RecurrentResult recurrent_layer(const RecurrentLayerOperands& operands, Recurrence kind,
                                bool from_end = false);

/// What the two ops know. In x, weight_ih, weight_hh, h, [c,] [bias_ih, bias_hh]; out output, h, [c,] and what the library keeps for the
/// gradient, u8. The gradient's inputs: these, output, what was kept, and the gradients of output, h [and c]; it gives those of the
/// forward op's inputs, in their order.
struct RecurrentLayerAttrs {
  Recurrence kind = Recurrence::lstm;
  bool has_bias = false;
  int64_t algorithm = 0;  // of the backend's LayerLibrary
  int64_t kept = 0;       // bytes for the gradient
  template <class Visit>
  static auto fields(Visit visit) {
    using A = RecurrentLayerAttrs;
    return visit(field("kind", &A::kind), field("has_bias", &A::has_bias), field("algorithm", &A::algorithm),
                 field("kept", &A::kept));
  }
};
OpDef& op_recurrent_layer();
OpDef& op_recurrent_layer_gradient();

/// The operands of both ops by name, for inference and kernels: A is Tensor or Buffer. Null: not there.
template <class A>
struct LayerOperands {
  const A *x, *weight_ih, *weight_hh, *h, *c, *bias_ih, *bias_hh;
  const A *output, *kept, *grad_output, *grad_h, *grad_c;  // of the gradient
  int count = 0;

  LayerOperands(const RecurrentLayerAttrs& a, bool gradient, const A* in) {
    const auto next = [&](bool is_there) { return is_there ? in + count++ : nullptr; };
    const bool lstm = a.kind == Recurrence::lstm;
    x = next(true), weight_ih = next(true), weight_hh = next(true), h = next(true), c = next(lstm);
    bias_ih = next(a.has_bias), bias_hh = next(a.has_bias);
    output = next(gradient), kept = next(gradient), grad_output = next(gradient), grad_h = next(gradient);
    grad_c = next(gradient && lstm);
  }
};

/// A layer as the choice of an algorithm sees it.
struct LayerProblem {
  DeviceKind device_kind = DeviceKind::cpu;
  int device_index = 0;
  DType dtype = DType::f32;
  Recurrence kind = Recurrence::lstm;
  bool has_bias = false;
  int64_t steps = 0, samples = 0, features = 0, hidden = 0;
  friend auto operator<=>(const LayerProblem&, const LayerProblem&) = default;
};
/// One of a library's algorithms for a layer.
struct LayerAlgorithm {
  std::string name;
  std::string why_not;  ///< a sentence that begins "it …"; empty: it can
  int64_t kept = 0;     ///< bytes that it keeps for the gradient
};
/// What a backend has for whole layers, beside its kernels of the two ops.
struct LayerLibrary {
  /// All of them, in the order in which RecurrentLayerAttrs::algorithm counts. Null: the backend has none.
  std::vector<LayerAlgorithm> (*algorithms)(const LayerProblem&) = nullptr;
  /// The device's time for what run() queues.
  double (*seconds)(Device device, const std::function<void()>& run) = nullptr;
  /// What times depend on besides the problem: the device and the library's version.
  std::string (*words)(Device device) = nullptr;
};
/// Filled by backends when they start.
LayerLibrary& layer_library(DeviceKind kind);
/// The name of what linear() and recurrent() do, beside the names of algorithms.
inline constexpr const char* kOwnLayer = "input product, then recurrent";

}  // namespace tandem
