// One run of a program, as its recipes see it: the values at hand, and choices among them. See fuzz_program.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/fuzz_program.h"
#include "tests/support/op_case.h"

namespace tandem::testing {

class FuzzRun {
 public:
  FuzzRun(const FuzzProgram& program, const FuzzSide& side, FuzzNotes& notes)
      : program(program), side(side), notes(notes) {}

  const FuzzProgram& program;
  const FuzzSide& side;
  FuzzNotes& notes;
  std::vector<Tensor> leaves;  ///< what gradients are taken for, where it requires one
  bool called_inner = false;   ///< a Compiled, of which eager gradients of gradients agree but for rounding

  static constexpr int64_t kMostElements = 6000;

  void start(const std::vector<Tensor>& inputs);
  void step(const FuzzStep& step);
  std::vector<Tensor> outputs();

  // Choices of the step that runs. Zeros choose the plainest.
  uint32_t raw() { return next_ < step_->choice.size() ? step_->choice[next_++] : 0; }
  int64_t below(int64_t n) { return static_cast<int64_t>(raw()) % n; }
  bool chance(double p) { return raw() >= (1 - p) * 0x1p32; }

  /// One of the values, rather a late one.
  Tensor pick();
  Tensor pick_floating();
  Tensor pick_number();
  /// One of the inputs and captured tensors.
  Tensor pick_outer();
  /// Something that broadcasts with x; to x's shape where `to_shape` is set.
  Tensor partner(const Tensor& x, bool to_shape = false);
  /// A value made to fit: cut or repeated, converted, and brought into its range.
  Tensor fitted(const Tensor& x, const CaseInput& form, DType dtype, int64_t int_low = 0,
                int64_t int_high = 5);
  int axis_of(const Tensor& x) { return static_cast<int>(below(x.rank())); }
  Dims some_axes(const Tensor& x);
  DType some_type();

  /// A few steps of their own, by a number, whose values are gone afterwards; gives the last, made to fit.
  Tensor apart(uint32_t number, const CaseInput& form, DType dtype);
  int depth() const { return depth_; }  ///< of such steps within each other

  /// Takes a result into the values.
  void add(const std::string& what, const Tensor& result);
  /// Says in the log what was done.
  void say(const std::string& what);

 private:
  struct Value {
    uint32_t id;
    std::string name;
    Tensor tensor;
  };
  std::vector<Value> values_;
  size_t outer_ = 0;  // how many are inputs and captured
  const FuzzStep* step_ = nullptr;
  size_t next_ = 0;
  int depth_ = 0;
  std::string used_;  // names of the values that the step picked
};

/// Whether elements may share memory.
bool overlaps_itself(const Tensor& x);

struct FuzzRecipe {
  std::string name;
  double weight = 1;
  std::function<void(FuzzRun&)> run;
  bool gradients = false;  ///< only in programs that take gradients
  bool net = false;        ///< only in programs with a module
};
const std::vector<FuzzRecipe>& fuzz_recipes();
void add_plain_recipes(std::vector<FuzzRecipe>& recipes);
void add_gradient_recipes(std::vector<FuzzRecipe>& recipes);
void add_case_recipes(std::vector<FuzzRecipe>& recipes);

}  // namespace tandem::testing
