// Random programs for the fuzzer. A program is a seed: run() draws operations one after the other from the shapes
// and types of the values at hand, never from the values themselves, so that the same seed gives the same
// program eagerly and under a trace.
#pragma once

#include <string>
#include <vector>

#include "tandem/core/tensor.h"
#include "tests/support/values.h"

namespace tandem::testing {

class FuzzProgram {
 public:
  explicit FuzzProgram(uint64_t seed);

  /// Fresh input tensors of the program's shapes and types; `call` varies the values.
  std::vector<Tensor> inputs(uint32_t call) const;
  /// Fresh state: captured tensors that the program may change. Some are leaves where it takes gradients.
  std::vector<Tensor> state() const;
  /// Overwrites a state tensor from outside, as a caller would between two calls.
  void disturb(const std::vector<Tensor>& state, uint32_t call) const;

  /// The program. `log`, where given, gets one line an operation.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& state,
                          std::string* log = nullptr) const;

 private:
  struct Form {
    Dims shape;
    DType dtype;
    bool strided = false;  // an input handed over as a transposed view
  };
  uint64_t seed_;
  bool takes_gradients_ = false;
  bool has_view_ = false;  // the last state tensor is a view of the first
  std::vector<Form> inputs_, state_;
};

}  // namespace tandem::testing
