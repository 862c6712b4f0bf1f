// Branches and loops whose conditions change from call to call, for tests that they run the same on every device and in
// every engine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem::testing {

/// Tensors from around, some of which the code changes.
struct AroundForm {
  explicit AroundForm(Device device);
  static Tensor make(const Dims& shape, uint32_t salt, Device device);
  Tensor number(double value) const;
  /// Changes `memory`, which gradients do not see.
  void note(const Tensor& by) const;
  Tensor w, u, v, memory, table;
};

/// Code over two inputs: x, f32 (3, 5), and n, one i64 that says which branch is taken, or how many runs there are.
struct ControlForm {
  using List = std::vector<Tensor>;
  const char* name;
  std::function<List(const AroundForm&, const Tensor& x, const Tensor& n)> code;
  bool has_gradient = true;

  /// recompute: of its loops.
  static std::vector<ControlForm> all(bool recompute);

  /// `inner`: the code is compiled, and gradients are taken outside; `whole`: they are part of it.
  enum class Way { eager, inner, whole };
  struct Seen {
    std::vector<List> calls;  // what each call left: results, gradients, memory from around
    std::string executor;     // that the report names; "": eager
    size_t traces = 0;
  };
  static constexpr int kCalls = 7;
  Seen run(Device device, Way way) const;
};

/// NaNs are alike.
void expect_same_bits(const ControlForm::Seen& a, const ControlForm::Seen& b, const std::string& what);

}  // namespace tandem::testing
