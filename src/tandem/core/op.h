// OpDef: the one record of an operation, and apply(): the one door through which operations run.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/attrs.h"
#include "tandem/core/kernel.h"
#include "tandem/core/small_vector.h"
#include "tandem/core/tensor.h"

namespace tandem {

struct Candidates;  // candidates.h
using Tensors = SmallVector<Tensor, 4>;

/// What inference sees and produces. It checks the attributes and the inputs (throwing Error) and describes each output.
/// Whoever calls apply() may pass anything: kernels and gradient rules rely on what inference let through.
struct InferArgs {
  const char* op;              // its name, for messages
  std::span<const Tensor> in;  // as many as OpDef::inputs allows; all defined and on one device
  const Attrs& given;
  SmallVector<Meta, 2> out;
  const void* context = nullptr;  // OpDef::context

  /// The attributes; refused where they are of another kind than A.
  template <class A>
  const A& attributes() const {
    if (!given.holds<A>()) [[unlikely]]
      refuse_attributes(op, given, *detail::attr_type<A>());
    return given.as<A>();
  }
  /// Adds a fresh row-major output on the device of the inputs.
  void add(const Dims& shape, DType dtype) { set_contiguous(out.emplace_back(), shape, dtype, device); }
  Device device;  // common to all inputs (ops without inputs set it from their attributes before add)

 private:
  [[noreturn]] static void refuse_attributes(const char* op, const Attrs& given,
                                             const detail::AttrType& wanted);
};

/// The inputs of an op by name, and so how many there are: {"x", "weight", "bias?"} takes two or three, {"parts..."} one or
/// more. What may be left out ("?", and all of "...") stands last. By number alone, for ops whose inputs have no names: 2, or
/// {1, 3} for one to three; {3, 13, "x", "weight", "state..."} gives the number of "..." a limit. Without anything: any
/// number, which inference must then check.
struct OpInputs {
  static constexpr int kAny = 1 << 30, kMostNames = 8;
  int least = 0, most = kAny;
  std::array<const char*, kMostNames> names{};  // null: from here on they have none

  constexpr OpInputs() = default;
  constexpr OpInputs(int exactly) : least(exactly), most(exactly) {}
  constexpr OpInputs(int from, int upto) : least(from), most(upto) {}
  template <class... Rest>
  requires(std::convertible_to<Rest, const char*>&&...) constexpr OpInputs(const char* first, Rest... rest)
      : names{first, rest...} {
    static_assert(sizeof...(Rest) < kMostNames);
    most = 0;
    for (const char* name : names) {
      if (!name) break;
      const char last = last_of(name);
      least += last != '?';
      most = last == '.' ? kAny : most + 1;
    }
  }
  template <class... Names>
  requires(sizeof...(Names) > 0 && (std::convertible_to<Names, const char*> &&
                                    ...)) constexpr OpInputs(int from, int upto, Names... all)
      : OpInputs(all...) {
    least = from;
    most = upto;
  }
  /// "weight" for input 1, "parts[2]" of "parts..."; "input 1" where it has no name.
  std::string name(size_t i) const;

 private:
  static constexpr char last_of(const char* text) {
    while (text[1]) ++text;
    return *text;
  }
};

/// What a tensor is, without its memory.
struct Description {
  Dims shape;
  DType dtype = DType::f32;
  Device device;
};

struct OpDef;
/// What a gradient rule sees. Undefined entries of the result mean "no gradient".
struct GradArgs {
  const Attrs& attributes;
  std::span<const Tensor> in;            // those the op saves; others undefined
  std::span<const Tensor> out;           // likewise
  std::span<const Tensor> grad;          // one an output; undefined where none arrived
  std::span<const Description> in_meta;  // of every input
  std::span<const bool> needs;           // which inputs want a gradient
  const OpDef& op;
  const void* context = nullptr;  // OpDef::context
};
using GradRule = Tensors (*)(const GradArgs&);

/// What a composed form sees.
struct ComposedArgs {
  const Attrs& attributes;
  std::span<const Tensor> in;
  const void* context = nullptr;  // OpDef::context
};
using ComposedForm = Tensors (*)(const ComposedArgs&);

/// How much work an op is, for reports.
enum class Cost : uint8_t { expensive, cheap, no_op };

/// One contiguous run of a pointwise op on CPU. step[i] is 1 (array) or 0 (one value for the whole run).
using TileFn = void (*)(const void* const* in, const int64_t* step, void* out, int64_t n);

/// Things outside of all tensors that an op may touch.
enum class Resource : uint8_t {
  generator =
      1,  ///< draws random numbers. Its place in the stream is fixed when apply() sees it, so it may be moved
          ///< or dropped later, but never merged with another or run once for all.
  communicator = 2,  ///< talks to other processes: never dropped, and in order with all that touch this
  host = 4,          ///< acts on the host (a print, a barrier): the same
};

/// What an op does to memory and to the world outside: all that the tape, the tracer, the passes, the memory plan and the
/// executors know of it. An op that changes an input must also return it (aliases), and takes it strided.
struct Effects {
  uint32_t reads = ~0u;  // bit i: looks at the values of input i
  uint32_t writes = 0;   // bit i: changes the values of input i in place
  std::array<int8_t, 4> aliases{-1, -1, -1,
                                -1};  // by output: the input whose memory it lives in; -1: memory of its own
  uint8_t resources = 0;              // Resource bits
  bool refuses =
      false;  // may throw by the values of its inputs (an index out of range): never dropped, and what was
              // changed in place before it stays before it

  // Of more than 32 inputs the later ones are read and not written.
  constexpr bool reads_input(size_t i) const { return i >= 32 || ((reads >> i) & 1); }
  constexpr bool writes_input(size_t i) const { return i < 32 && ((writes >> i) & 1); }
  constexpr int alias_of(size_t output) const { return output < aliases.size() ? aliases[output] : -1; }
  constexpr bool touches(Resource r) const { return (resources & static_cast<uint8_t>(r)) != 0; }
  /// Must run at each call, in order with others of its kind, whoever reads its results.
  constexpr bool is_ordered() const { return touches(Resource::communicator) || touches(Resource::host); }
  /// Another way to look at input 0: no value is read, no kernel runs.
  static constexpr Effects view() { return {.reads = 0, .aliases = {0, -1, -1, -1}}; }
  /// Overwrites input 0, which output 0 then is; its old values are not looked at.
  static constexpr Effects overwrite() { return {.reads = ~1u, .writes = 1, .aliases = {0, -1, -1, -1}}; }
  /// Changes input 0, which output 0 then is: elements that it does not name keep their values.
  static constexpr Effects update() { return {.writes = 1, .aliases = {0, -1, -1, -1}}; }
  static constexpr Effects random() { return {.resources = static_cast<uint8_t>(Resource::generator)}; }
};

/// What an op takes under Autocast (core/autocast.h), of floating inputs. Beside f64 nothing is cast but by `widest`.
enum class Precision : uint8_t {
  as_given,  ///< what it is given
  low,       ///< bf16 or f16, as Autocast says: it gains speed and sums in f32 anyway
  full,      ///< f32 in place of bf16 and f16: it needs the range or the digits
  widest,    ///< the widest type among them for all: it demands one type
};

/// The version of this header. An op that was compiled against another one is refused when it is defined.
inline constexpr int kOpVersion = 6;

/// For OpDef::flops: the op only moves or makes data.
inline int64_t no_flops(const KernelArgs&) { return 0; }

struct OpDef {
  int version = kOpVersion;
  const char* name = "";
  const char* about = nullptr;     // one line: what it computes
  const char* function = nullptr;  // the public function that calls it; null: of the op's name; "": none
  OpInputs inputs = {};            // apply() refuses other numbers of inputs
  std::array<const char*, 5> outputs{};  // their names, where they have any
  void (*infer)(InferArgs&) = nullptr;

  /// The op as a function of public ops. A backend without a kernel for it runs this; it gives the gradient where there is no
  /// rule; and tests hold the kernels to it. It may neither change its inputs nor ask for sizes that depend on values, and
  /// an op that draws random numbers draws as many in it as its kernel does. Autocast is off in it, and has cast the inputs.
  ComposedForm composed = nullptr;
  bool composed_has_same_bits = false;  // as each of its kernels

  // Gradient: a rule, or the reason why there is none; neither where the composed form gives it.
  GradRule gradient = nullptr;
  const char* not_differentiable = nullptr;
  uint32_t saves_inputs = 0;   // bit i: the rule reads in[i], of the first 32
  uint32_t saves_outputs = 0;  // bit i: the rule reads out[i]

  // Properties that the engines and passes ask for.
  const char* functor = nullptr;  // pointwise: the struct in ops/scalar_functions.h that computes one element
  Effects effects = {};           // what it reads, writes, shares and touches
  Precision precision = Precision::as_given;  // under Autocast
  bool commutative = false;                   // f(a, b) == f(b, a) to the bit
  bool store =
      false;  // writes input 1 over input 0, element by element, as a fused chain may do with its result
  // Set where the outputs' sizes depend on values: what to use instead inside a compiled callable. Inference gives such
  // outputs their rank and type, the kernel their sizes (KernelArgs::allocate_output).
  const char* data_dependent = nullptr;
  bool takes_strided = false;  // kernels read any strides; otherwise apply hands over contiguous copies
  bool waits = false;  // on a GPU its kernel reads back a status: graphs that hold it are not recorded
  Cost cost = Cost::expensive;
  // Floating-point operations, and bytes read and written, of a call (work.h). Where not given: one operation for each
  // element of the output or of input 0, whichever has more, and each element of what it reads and writes once.
  int64_t (*flops)(const KernelArgs&) = nullptr;
  int64_t (*bytes)(const KernelArgs&) = nullptr;
  /// Whatever infer, gradient and kernels want to find again as `context` in what they are called with.
  std::shared_ptr<const void> context = nullptr;

  // Kernels, one row a backend. Filled at start-up by the backends.
  std::array<KernelFn, kDeviceKinds> kernels{};
  // Where there are several implementations (implementations.h): all of them for such buffers, for reports.
  std::array<Candidates (*)(const KernelArgs&), kDeviceKinds> candidates{};
  // Pointwise, on CPU: the loop for these types of the (last) input and the output.
  TileFn (*tile)(DType in, DType out) = nullptr;

  bool saves_input(size_t i) const { return i < 32 && ((saves_inputs >> i) & 1); }
  bool saves_output(size_t i) const { return i < 32 && ((saves_outputs >> i) & 1); }
  bool is_pointwise() const { return functor != nullptr; }
  bool is_view() const { return effects.aliases[0] >= 0 && effects.writes == 0; }
  bool is_random() const { return effects.touches(Resource::generator); }
  bool changes_memory() const { return effects.writes != 0; }
};

/// The attributes of the op "cast", which apply() uses itself, under Autocast.
struct CastAttrs {
  DType dtype = DType::f32;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("dtype", &CastAttrs::dtype));
  }
};

/// Runs (or, while tracing, appends) an operation.
Tensors apply(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs = {});
/// The same for ops with one output.
Tensor apply1(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs = {});

/// What every op that writes into in[0] demands: a target that may be written (see check_target) and no gradient wanted.
/// apply() calls it; functions made of assign() call it first to be named in the message.
void check_in_place(const char* op, std::span<const Tensor> in);

/// Refuses a data-dependent function inside a compiled callable; `instead` is a sentence. apply() calls it for ops.
void refuse_tracing(const char* function, const char* instead);

/// Every op defined so far, by name, in order of definition. define() returns the record that kernels are put
/// into; it copies the texts. Users of the library define ops of their own the same way, at any time, from any thread: see
/// examples/custom_op.
OpDef& define(OpDef op);
std::vector<OpDef*> all_ops();
OpDef* find_op(std::string_view name);

/// An op made of closures, for those who have no functions to point to: an interpreter, a reader of files.
struct RuntimeOp {
  std::string name;
  OpInputs inputs = {};
  std::function<void(InferArgs&)> infer;
  std::function<Tensors(const ComposedArgs&)> composed = {};  // as in OpDef
  std::function<Tensors(const GradArgs&)> gradient = {};      // none, nor a composed form: not differentiable
  uint32_t saves_inputs = 0, saves_outputs = 0;               // as in OpDef
  Effects effects = {};
  Precision precision = Precision::as_given;
  bool takes_strided = false;
  bool waits = false;
  std::array<std::function<void(const KernelArgs&)>, kDeviceKinds> kernels = {};
};
OpDef& define(RuntimeOp op);

/// In this scope ops that have a composed form run it, also where there is a kernel: to hold one to the other, or to look for
/// a fault. What was compiled before keeps what it has.
class ComposedForms {
 public:
  ComposedForms();
  ~ComposedForms();
  ComposedForms(const ComposedForms&) = delete;
  ComposedForms& operator=(const ComposedForms&) = delete;

 private:
  bool previous_;
};

/// While anomaly mode is on (this thread), an op whose floating output holds a NaN or infinity that its
/// inputs did not hold is refused with an Error that names it.
bool anomaly_mode();
void set_anomaly_mode(bool on);
void check_anomaly(const OpDef& op, std::span<const Tensor> in, std::span<const Tensor> out);

}  // namespace tandem
