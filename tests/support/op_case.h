// Op cases: one definition of an operation's behaviour, run by ops_test.cpp in every mode - forward in each dtype
// against a float64 reference, gradient and second order against differences, eager = graph bitwise,
// non-contiguous inputs, CPU = CUDA, and values from PyTorch (golden_test.cpp).
//
// How to add one:
//   1. In tests/op_cases/<family>.cpp add a row to add_<family>_cases(): a name "op" or "op/what", the inputs (shape,
//      range, kind), the call through the public function, and a reference written naively over doubles that
//      shares nothing with the library (an op with a composed form may leave it to that).
//   2. Give a second row with an empty shape ("op/empty"), and in add_<family>_errors() one line for each input that
//      is refused.
//   3. To compare with PyTorch as well, add the same name and inputs to golden/ops/<family>.py and run make_golden.py.
// The test "every op has a case" fails for an op of all_ops() that no case calls.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"
#include "tests/support/recording_tracer.h"
#include "tests/support/values.h"

namespace tandem::testing {

/// One input. `real` inputs take the dtype under test and, in the gradient modes, a gradient; the other kinds
/// have a dtype of their own. Integers are drawn from low … high - 1.
struct CaseInput {
  enum Kind { real, index64, index32, boolean };
  Dims shape;
  double low = -1, high = 1;
  Kind kind = real;
};

using CaseCall = std::function<Tensor(std::span<const Tensor>)>;
/// May be left out for an op with a composed form, which then is the reference, in f64.
using CaseReference = std::function<Array(std::span<const Array>)>;

/// bf16 and f16.
std::vector<DType> half_types();

struct OpCase {
  std::string name;
  std::vector<CaseInput> inputs;
  CaseCall call;
  CaseReference reference;
  /// Allowed error of f32, relative to 1 + |value|. The other floating types scale with their precision.
  double tolerance = 2e-6;
  /// Allowed error of f64; by default 1e-7 of f32's.
  double tolerance64 = -1;
  /// Allowed error of bf16 and f16 in units of their last place (relative to 1 + |value|).
  double half_ulps = 4;
  /// Dtypes beside f32 and f64, for `real` inputs. Integers must give exact results.
  std::vector<DType> dtypes = half_types();
  /// Range of `real` inputs where the dtype is an integer.
  int64_t int_low = 0, int_high = 5;
  bool floating = true;               ///< takes f32 and f64
  bool gradient = true;               ///< first order is checked
  bool second_order = true;           ///< and second
  bool refuses_second_order = false;  ///< they must be refused: of an op that is a gradient, the first
  bool data_dependent =
      false;  ///< the result's size depends on the values: compiled callables must refuse it
};

/// A call that must be refused, with texts that the message must hold.
struct ErrorCase {
  std::string name;
  std::function<void()> call;
  std::vector<std::string> texts;
};

/// Every case and every error case of the library, file by file.
const std::vector<OpCase>& all_cases();
const std::vector<ErrorCase>& all_error_cases();
const OpCase* find_case(const std::string& name);

// The families: each file of op_cases/ defines `void add_NAME_cases(std::vector<OpCase>& cases)`, and with _errors what it
// refuses. The build lists them (cmake/list_functions.cmake).
#define TD_LISTED(family) void family(std::vector<OpCase>& cases);
#include "lists/op_cases.inc"
#undef TD_LISTED
#define TD_LISTED(family) void family(std::vector<ErrorCase>& errors);
#include "lists/op_errors.inc"
#undef TD_LISTED

/// The values of a case's inputs, rounded to the dtype under test; `salt` varies them.
std::vector<Array> case_values(const OpCase& op_case, DType dtype, uint32_t salt = 0);
/// The same as tensors. Real inputs want gradients where `leaves` is set.
std::vector<Tensor> case_tensors(const OpCase& op_case, DType dtype, uint32_t salt = 0, bool leaves = false,
                                 Device device = {});
/// Calls it from a fixed place of the random stream (seed 11).
Tensor run_case(const OpCase& op_case, std::span<const Tensor> in);
/// Error allowed for a dtype.
double case_tolerance(const OpCase& op_case, DType dtype);
/// Gradients of sum(y · y · w) with respect to the real inputs, y being what the case's call made of them and w a
/// hash array. Undefined for other inputs.
std::vector<Tensor> gradients_of(const OpCase& op_case, const Tensor& y, std::span<const Tensor> in,
                                 bool create_graph = false);
/// The same, for y = run_case(in).
std::vector<Tensor> case_gradients(const OpCase& op_case, std::span<const Tensor> in,
                                   bool create_graph = false);

// The modes: each adds failures to the running test.
void check_forward(const OpCase& op_case);
void check_gradient(const OpCase& op_case);
void check_second_order(const OpCase& op_case);
/// Gradients of both orders where a third of the inputs is exactly 0.
void check_zeros(const OpCase& op_case);
/// i64 and u64 beyond 2^53, and u64 beyond 2^63: what only moves, compares and adds them stays exact.
void check_large_integers(const OpCase& op_case, Device device);
void check_graph(const OpCase& op_case);
/// Where an op of the case has a composed form: it gives what the kernel gives (the same bits, if its record says so) and leaves
/// the random stream where the kernel does, with gradients; and in graphs, and for strided inputs, its own bits.
void check_composed(const OpCase& op_case);
/// What the case demands of inputs with these values.
Array reference_of(const OpCase& op_case, const std::vector<Array>& values);
void check_noncontiguous(const OpCase& op_case);
void check_device(const OpCase& op_case, Device device);

/// What the call passes to apply() for these inputs, in order. Nothing is computed.
std::vector<AppliedOp> ops_applied(const OpCase& op_case, std::span<const Tensor> in);
/// The names of these ops.
std::vector<std::string> ops_called(const OpCase& op_case);

}  // namespace tandem::testing
