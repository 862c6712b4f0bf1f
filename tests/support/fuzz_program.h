// Random programs for the graph fuzzer. A program is data: the forms of its inputs and of its captured state, a list of
// steps, and what happens between its calls. A step is a recipe with the numbers by which it chooses its arguments: from
// the shapes, types and flags of the values at hand, never from the values themselves, so that the same program does the
// same eagerly and under a trace, and with other input shapes. Recipes come from the op table (every op case is one, see
// fuzz_cases.cpp) and from fuzz_recipes.cpp. Steps keep their numbers when others are removed: that is how a failing
// program shrinks.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/rng.h"
#include "tandem/core/tensor.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tests/support/values.h"

namespace tandem::testing {

struct FuzzStep {
  uint32_t id = 0;      ///< names its results: v17
  uint32_t recipe = 0;  ///< into fuzz_recipes()
  std::array<uint32_t, 12> choice{};
};

/// What a caller does before a call.
struct FuzzEvent {
  enum Kind {
    assign_state,
    assign_view,
    rebind,
    rebind_type,
    toggle_requires_grad,
    toggle_grad_mode,
    toggle_training,
    freeze_net,
    add_hook,
    zero_gradients,
    set_gradient,
    other_shapes,
    toggle_input_leaf,
    alias_inputs,
    pass_state,
    kKinds,
    // Drawn by numbers of their own: the other programs stay what they are.
    other_handle = kKinds  ///< the variable stands for another tensor
  };
  uint32_t before_call = 1;
  Kind kind = assign_state;
  uint32_t choice = 0;
};

struct FuzzForm {
  Dims shape, other_shape;
  DType dtype = DType::f32;
  bool strided = false;  ///< a transposed view
  bool leaf = false;     ///< requires a gradient
};

struct FuzzProgram {
  uint64_t seed = 0;  ///< of the values
  Device device;
  uint32_t calls = 3;
  std::vector<FuzzForm> inputs, state;
  bool has_view = false;  ///< one more state tensor is a view of the first
  bool has_net = false;   ///< captures a module
  std::vector<FuzzStep> steps;
  std::vector<FuzzEvent> events;
  std::vector<FuzzStep> outputs;  ///< the values that it returns; recipe is not used
  std::vector<std::string> passes;
  std::optional<DType> autocast = {};  ///< the caller's, in the calls of autocast_calls; steps switch it, too
  uint32_t autocast_calls = 0;         ///< bit i: call i
  uint32_t named =
      0;  ///< not 0: compiled with named inputs and results; its bits say in which groups they are
  bool composed = false;  ///< ops that have a composed form run it
};

/// The program of a number.
FuzzProgram draw_program(uint64_t seed, Device device = {});

/// A module with parameters, buffers and a train/eval switch.
struct FuzzNet : nn::Module {
  nn::BatchNorm1d norm{this, "norm", 3};
  nn::Dropout dropout{this, "dropout", 0.25};
  Tensor forward(const Tensor& x) override { return dropout(norm(x)); }
};

/// What a program captures: one for each engine.
struct FuzzSide {
  explicit FuzzSide(const FuzzProgram& program);
  /// The caller's changes before a call.
  void happen(const FuzzProgram& program, uint32_t call);
  std::vector<Tensor> inputs(const FuzzProgram& program, uint32_t call) const;
  /// State, parameters and buffers, with their names.
  std::vector<std::pair<std::string, Tensor>> captured() const;

  std::vector<Tensor> state;
  std::unique_ptr<FuzzNet> net;
  mutable Compiled inner;  ///< a compiled callable that the program calls
  mutable Tensor kept;     ///< by a step, from call to call
  GeneratorState random;
  bool grad = true;
  std::optional<DType> autocast = {};
};

/// What one run tells beside its results.
struct FuzzNotes {
  std::string* log = nullptr;  ///< gets one line for each step, where set
  bool only_eagerly = false;   ///< it did what a compiled callable refuses, as documented
};

/// The program itself.
std::vector<Tensor> run_program(const FuzzProgram& program, const std::vector<Tensor>& inputs,
                                const FuzzSide& side, FuzzNotes& notes);

/// Runs the program eagerly and compiled. Empty where both do the same, else what differs: "call 1: kind: details".
std::string difference(const FuzzProgram& program);
using FuzzCheck = std::function<std::string(const FuzzProgram& program)>;
/// The smallest program found by removing and simplifying whose check still gives the same kind of difference.
FuzzProgram shrink(const FuzzProgram& program, const FuzzCheck& check);
/// The program as text: what it captures, its steps, and what happens between the calls.
std::string listing(const FuzzProgram& program);

/// Draws programs first, first + stride, … below count, and adds a failure, shrunk, to the running test for each that
/// differs; stops after three.
void fuzz_graphs(int64_t first, int64_t stride, int64_t count, Device device = {});
/// A number from the environment.
int64_t number_from_environment(const char* name, int64_t otherwise);

}  // namespace tandem::testing
