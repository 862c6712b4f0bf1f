#include "tandem/core/op.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>

#include "tandem/core/activity.h"
#include "tandem/core/autocast.h"
#include "tandem/core/backend.h"
#include "tandem/core/composed.h"
#include "tandem/core/mutex.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"

namespace tandem {

namespace {

std::deque<OpDef>& storage_of_ops() {
  static std::deque<OpDef>& ops = *new std::deque<OpDef>;  // threads may compute until the process has ended
  return ops;
}
Mutex& lock_of_ops() {
  static Mutex& lock = *new Mutex(LockOrder::ops);
  return lock;
}
/// A text that stays.
const char* keep_text(const char* text) {
  static std::deque<std::string>& texts = *new std::deque<std::string>;
  return text ? texts.emplace_back(text).c_str() : nullptr;
}

/// What apply() asks of its thread, in one place: each thread_local variable costs time to find.
struct Here {
  Tracer* tracer = nullptr;
  Observer* observer = nullptr;
  Autocast* autocast = nullptr;
  bool anomaly = false;
  int composed_forms = 0;               // ComposedForms in force
  ComposedRun* composed_run = nullptr;  // the innermost composed form under way
};
constinit thread_local Here t_here;
/// Not inlined, so that apply() finds the address once: compilers take it for cheap and find it again for every use.
[[gnu::noinline]] const Here& here_of_thread() { return t_here; }

Tensor make_tensor(const Meta& meta, Ref<Storage>&& storage) {
  auto impl = make_ref<TensorImpl>();
  impl->meta = meta;
  impl->storage = std::move(storage);
  return Tensor(std::move(impl));
}

Buffer buffer_of(const Tensor& t) {
  const Meta& m = t.meta();
  return {static_cast<char*>(t.impl()->storage->data()) + m.offset * static_cast<int64_t>(bytes_of(m.dtype)),
          m.shape.data(), m.strides.data(), m.shape.rank(), m.dtype};
}

Tensor fresh_tensor(const Meta& meta) {
  const size_t bytes = static_cast<size_t>(size_of(meta.shape)) * bytes_of(meta.dtype);
  return make_tensor(meta, make_ref<Storage>(meta.device, bytes));
}

/// The outputs of a data-dependent op, which its kernel makes.
struct LateOutputs {
  Tensors& out;
  SmallVector<Buffer, 2>& buffers;
  const InferArgs& inferred;

  static void make(void* owner, int i, const int64_t* shape) {
    auto& late = *static_cast<LateOutputs*>(owner);
    const auto at = static_cast<size_t>(i);
    Meta meta = late.inferred.out[at];
    const size_t rank = static_cast<size_t>(meta.shape.rank());
    set_contiguous(meta, Dims(std::span<const Dim>(shape, rank)), meta.dtype, meta.device);
    late.out[at] = fresh_tensor(meta);
    late.buffers[at] = buffer_of(late.out[at]);
  }
};

/// Runs the kernel on fresh outputs.
/// A view runs no kernel: it shares the memory of its input. An op that changes an input gives that very tensor back.
Tensors run_eagerly(const Here& here, const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                    const InferArgs& inferred) {
  Tensors out;
  for (const Tensor& t : in)
    TD_CHECK(!t.is_traced(), op.name, ": got a tensor of a compiled callable outside of it: ", describe(t),
             ". Return it from the callable and use the result.");
  if (op.is_view()) {
    out.push_back(make_tensor(inferred.out[0], Ref<Storage>(in[0].impl()->storage)));
    return out;
  }
  const Device device = inferred.out[0].device;
  Backend& backend = tandem::backend(device);
  const KernelFn kernel = op.kernels[static_cast<int>(device.kind)];
  if (!kernel) [[unlikely]]
    refuse_without_kernel(op.name, device);
  TD_CHECK(device.index < backend.device_count(), op.name, ": the device must exist; got ", device, " of ",
           backend.device_count(), ".");

  NotedOp note(op.name, device);
  SmallVector<Buffer, 4> in_buffers;
  SmallVector<Buffer, 2> out_buffers;
  for (const Tensor& t : in) in_buffers.push_back(buffer_of(t));
  if (op.data_dependent) {
    out.resize(inferred.out.size());
    out_buffers.resize(inferred.out.size());
  } else {
    for (size_t i = 0; i < inferred.out.size(); ++i) {
      const int alias = op.effects.alias_of(i);  // of an op that is no view: an input that it changes
      out.push_back(alias < 0 ? fresh_tensor(inferred.out[i]) : in[static_cast<size_t>(alias)]);
      out_buffers.push_back(buffer_of(out.back()));
    }
  }
  KernelArgs args;
  LateOutputs late{out, out_buffers, inferred};
  args.late_output = LateOutputs::make;
  args.late_owner = &late;
  args.in = in_buffers.data();
  args.out = out_buffers.data();
  args.n_in = static_cast<int>(in_buffers.size());
  args.n_out = static_cast<int>(out_buffers.size());
  args.attrs = attrs.data();
  args.context = op.context.get();
  if (op.is_random()) args.rng = take_random(philox_blocks(size_of(inferred.out[0].shape)));
  args.device = &backend.context(device);
  run_noted(device, op.name, [&] { kernel(args); });
  if (note) [[unlikely]]
    note.describe(op, args);
  // After the kernel: a tape that saved one of these sees that it has changed.
  if (op.changes_memory())
    for (size_t i = 0; i < in.size(); ++i)
      if (op.effects.writes_input(i)) in[i].impl()->storage->bump_version();
  if (here.anomaly) check_anomaly(op, in, out);
  return out;
}

}  // namespace

namespace {
/// What the engines rely on.
void check_effects(const OpDef& op) {
  const Effects& e = op.effects;
  uint32_t returned = 0;  // inputs that some output shares its memory with
  for (int8_t input : e.aliases) {
    TD_CHECK(input < 32, "define: op '", op.name, "' may share the memory of the first 32 inputs; got ",
             int{input}, " (effects.aliases).");
    if (input >= 0) returned |= 1u << input;
  }
  TD_CHECK(e.writes == 0 || returned == e.writes, "define: op '", op.name,
           "' must return every input that it changes, and no other, as an output (effects.aliases).");
  TD_CHECK(
      e.writes == 0 || op.takes_strided, "define: op '", op.name,
      "' changes an input, so it must take strided ones (takes_strided): a copy would be changed instead.");
  TD_CHECK(e.writes == 0 || !op.gradient, "define: op '", op.name,
           "' changes an input, so it has no gradient: set not_differentiable.");
  TD_CHECK(
      !op.is_view() || (e.aliases == Effects::view().aliases && e.resources == 0 && op.takes_strided),
      "define: op '", op.name,
      "' is a view: it must have one output, which shares input 0, take strided inputs and touch nothing.");
  TD_CHECK(!op.is_pointwise() || (returned == 0 && e.resources == 0), "define: op '", op.name,
           "' is pointwise: it must make a new tensor and touch nothing.");
  TD_CHECK(op.precision == Precision::as_given || returned == 0, "define: op '", op.name,
           "' shares the memory of an input, so it must take it as it is given (precision): a cast would be "
           "shared instead.");
}
}  // namespace

void InferArgs::refuse_attributes(const char* op, const Attrs& given, const detail::AttrType& wanted) {
  std::string names;
  for (size_t i = 0; i < wanted.count; ++i) names += str(i ? ", " : "", wanted.fields[i].name);
  throw Error(str(op, ": the attributes must be those of this op (", names, "); got ",
                  given.empty() ? "none" : given.print(), ". Fill in the op's own struct of attributes."));
}

namespace {
void refuse_count(const OpDef& op, size_t got) {
  const auto [least, most] = std::pair(op.inputs.least, op.inputs.most);
  const bool one = most == 1;
  std::string names;
  for (const char* name : op.inputs.names)
    if (name) names += str(names.empty() ? " (" : ", ", name);
  if (!names.empty()) names += ")";
  throw Error(
      str(op.name, ": there must be ", least,
          least == most            ? ""
          : most == OpInputs::kAny ? " or more"
                                   : str(" to ", most),
          one ? " input" : " inputs", names, "; got ", got, ". ",
          static_cast<int64_t>(got) < least ? "Add those that are missing." : "Leave out those beyond."));
}
/// Copies of all texts of a record: what it was made of may be gone one day.
void keep_texts(OpDef& op) {
  for (const char** text : {&op.name, &op.about, &op.function, &op.not_differentiable, &op.data_dependent})
    *text = keep_text(*text);
  for (const char*& name : op.inputs.names) name = keep_text(name);
  for (const char*& name : op.outputs) name = keep_text(name);
}
}  // namespace

std::string OpInputs::name(size_t i) const {
  size_t count = 0;
  while (count < names.size() && names[count]) ++count;
  if (count == 0) return str("input ", i);
  const std::string text = names[std::min(i, count - 1)];
  if (text.ends_with("...")) return str(text.substr(0, text.size() - 3), "[", i - (count - 1), "]");
  if (i >= count) return str("input ", i);
  return text.ends_with('?') ? text.substr(0, text.size() - 1) : text;
}

OpDef& define(OpDef op) {
  TD_CHECK(op.version == kOpVersion,
           "define: an op must be compiled against this library's tandem/core/op.h, version ", kOpVersion,
           "; got version ", op.version, ". Compile it again.");
  TD_CHECK(op.infer, "define: op '", op.name, "' must have an infer function; got none.");
  TD_CHECK(*op.name, "define: an op must have a name; got none.");
  TD_CHECK(op.gradient || op.not_differentiable || op.composed, "define: op '", op.name,
           "' must have a gradient rule or a composed form, or say why not (not_differentiable); got none of "
           "these.");
  check_effects(op);
  check_names(op);
  check_composed(op);
  if (!op.gradient && !op.not_differentiable) {
    op.gradient = gradient_of_composed;
    op.saves_inputs = ~0u;
  }
  std::lock_guard lock(lock_of_ops());
  for (const OpDef& other : storage_of_ops())
    TD_CHECK(std::string_view(op.name) != other.name, "define: the name of an op must be new; got '", op.name,
             "' again.");
  keep_texts(op);
  return storage_of_ops().emplace_back(std::move(op));
}

OpDef& define(RuntimeOp op) {
  TD_CHECK(op.infer, "define: op '", op.name, "' must have an infer function; got none.");
  const auto kept = std::make_shared<RuntimeOp>(std::move(op));
  OpDef d;
  d.name = kept->name.c_str();
  d.inputs = kept->inputs;
  d.context = kept;
  d.infer = [](InferArgs& args) { static_cast<const RuntimeOp*>(args.context)->infer(args); };
  if (kept->gradient)
    d.gradient = [](const GradArgs& args) {
      return static_cast<const RuntimeOp*>(args.context)->gradient(args);
    };
  else if (!kept->composed || kept->effects.touches(Resource::generator))
    d.not_differentiable = "it was made at run time, without a gradient";
  if (kept->composed)
    d.composed = [](const ComposedArgs& args) {
      return static_cast<const RuntimeOp*>(args.context)->composed(args);
    };
  d.saves_inputs = kept->saves_inputs;
  d.saves_outputs = kept->saves_outputs;
  d.effects = kept->effects;
  d.precision = kept->precision;
  d.takes_strided = kept->takes_strided;
  d.waits = kept->waits;
  static constexpr auto kCall = []<int kind>(const KernelArgs& args) {
    static_cast<const RuntimeOp*>(args.context)->kernels[kind](args);
  };
  static_assert(kDeviceKinds == 2);
  if (kept->kernels[0]) d.kernels[0] = [](const KernelArgs& args) { kCall.operator()<0>(args); };
  if (kept->kernels[1]) d.kernels[1] = [](const KernelArgs& args) { kCall.operator()<1>(args); };
  return define(std::move(d));
}

std::vector<OpDef*> all_ops() {
  std::lock_guard lock(lock_of_ops());
  std::vector<OpDef*> list;
  for (OpDef& op : storage_of_ops()) list.push_back(&op);
  return list;
}

OpDef* find_op(std::string_view name) {
  std::lock_guard lock(lock_of_ops());
  for (OpDef& op : storage_of_ops())
    if (name == op.name) return &op;
  return nullptr;
}

namespace {
/// Whether an op that has a composed form runs it.
bool is_composed(const Here& here, const OpDef& op, const InferArgs& inferred) {
  return here.composed_forms > 0 || !op.kernels[static_cast<size_t>(inferred.out[0].device.kind)];
}
/// run_composed() for apply(). An observer sees the ops in it; anomaly mode looks at the results alone, as it does of a kernel.
Tensors run_watched(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                    const InferArgs& inferred) {
  struct Quiet {
    const bool before = std::exchange(t_here.anomaly, false);
    ~Quiet() { t_here.anomaly = before; }
  };
  Tensors out;
  bool anomaly = false;
  {
    const Quiet quiet;
    out = run_composed(op, in, attrs, inferred);
    anomaly = quiet.before;
  }
  if (anomaly && !t_here.tracer) check_anomaly(op, in, out);
  return out;
}
}  // namespace

// Every op passes here, in this order: casts of autocast, checks, contiguous copies, inference, then the tracer or
// the kernel, then the tape. Casts and copies are ops themselves, so that gradients flow through them.
Tensors apply(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs) {
  const Here& here = here_of_thread();
  std::optional<Tensors> cast_in;
  if (here.autocast) [[unlikely]]
    if ((cast_in = here.autocast->inputs(op.precision, in))) in = {cast_in->data(), cast_in->size()};
  if (static_cast<int64_t>(in.size()) < op.inputs.least || static_cast<int64_t>(in.size()) > op.inputs.most)
      [[unlikely]]
    refuse_count(op, in.size());
  InferArgs inferred{op.name, in, attrs, {}, op.context.get(), {}};
  Tensors contiguous_in;
  for (size_t i = 0; i < in.size(); ++i) {
    TD_CHECK(in[i].defined(), op.name, ": ", op.inputs.name(i),
             " must be a tensor; got an undefined handle.");
    if (i == 0)
      inferred.device = in[0].device();
    else
      TD_CHECK(in[i].device() == inferred.device, op.name, ": ", op.inputs.name(0), " and ",
               op.inputs.name(i), " must be on one device; got ", describe(in[0]), " and ", describe(in[i]),
               ". Move one first, for example with to(b, a.device()).");
  }
  if (op.data_dependent) refuse_tracing(op.name, op.data_dependent);
  if (!op.takes_strided) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i].is_contiguous()) continue;
      if (contiguous_in.empty())
        for (const Tensor& t : in) contiguous_in.push_back(t);
      static const OpDef& copy = *find_op("copy");
      contiguous_in[i] = apply(copy, {&in[i], 1})[0];
    }
    if (!contiguous_in.empty()) inferred.in = in = contiguous_in;
  }
  op.infer(inferred);
  const auto wants_one = [](const Tensor& t) {
    return t.impl()->requires_grad;  // a tracer notes it when it takes the tensor in
  };
  const bool wants_grad = std::any_of(in.begin(), in.end(), wants_one) && grad_enabled();
  TD_CHECK(!inferred.out.empty(), op.name,
           ": inference must describe at least one output; got none. Call add().");
  if (op.is_view() || op.changes_memory())
    for (int input : op.effects.aliases)
      TD_CHECK(input < static_cast<int>(in.size()), op.name, ": must be given input ", input,
               ", whose memory it shares; got ", in.size(), " inputs.");
  if (op.changes_memory()) check_in_place(op.name, in);
  ComposedRun* const composed = here.composed_run;
  if (composed) [[unlikely]]
    composed->meet(op, in);
  Tensors out;
  if (op.composed && is_composed(here, op, inferred)) [[unlikely]] {
    out = run_watched(op, in, attrs, inferred);
  } else {
    if (here.observer) [[unlikely]]
      here.observer->before(op, in);
    out = here.tracer ? here.tracer->append(op, in, attrs, inferred.out)
                      : run_eagerly(here, op, in, attrs, inferred);
    if (here.observer) [[unlikely]]
      here.observer->after(out);
  }
  if (composed) [[unlikely]]
    composed->note(op, out);
  if (op.is_view()) out[0].impl()->copied_by = in[0].impl()->copied_by;
  if (wants_grad && op.gradient) record(op, in, attrs, {out.data(), out.size()});
  return out;
}

void check_in_place(const char* op, std::span<const Tensor> in) {
  check_target(op, in[0]);
  for (const Tensor& t : in)
    TD_CHECK(!grad_enabled() || !t.requires_grad(), op,
             ": a change in place cannot be differentiated; got a tensor that requires a gradient. Do it "
             "under NoGrad, "
             "or build the value with where() or concat().");
}

Tensor apply1(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs) {
  return std::move(apply(op, {in.begin(), in.size()}, attrs)[0]);
}

void refuse_tracing(const char* function, const char* instead) {
  TD_CHECK(!t_here.tracer, function,
           ": the size of the result must not depend on the data inside a compiled callable; got a call "
           "while one is "
           "traced. Call it outside. ",
           instead);
}

uint64_t read_switch(const std::shared_ptr<uint64_t>& value) {
  if (t_here.tracer) t_here.tracer->depends_on(value);
  if (t_here.observer) t_here.observer->asks(value);
  return *value;
}

void refuse_while_tracing(const char* what, const char* why, const char* instead) {
  TD_CHECK(!t_here.tracer || !t_here.tracer->replays(), what,
           ": must not be called inside a compiled callable; ", why, ". ", instead);
}

Tracer* current_tracer() { return t_here.tracer; }
TraceScope::TraceScope(Tracer* tracer) : previous_(t_here.tracer) {
  t_here.tracer = tracer;
  detail::g_scope_users.fetch_add(1, std::memory_order_relaxed);
}
TraceScope::~TraceScope() {
  detail::g_scope_users.fetch_sub(1, std::memory_order_relaxed);
  t_here.tracer = previous_;
}

namespace {
thread_local std::shared_ptr<const std::string> t_layer;
}
const std::shared_ptr<const std::string>& current_layer() { return t_layer; }
LayerScope::LayerScope(std::shared_ptr<const std::string> layer)
    : previous_(std::exchange(t_layer, std::move(layer))) {}
LayerScope::~LayerScope() { t_layer = std::move(previous_); }

Autocast* detail::current_autocast() { return t_here.autocast; }
void detail::set_autocast(Autocast* scope) { t_here.autocast = scope; }

Observer* current_observer() { return t_here.observer; }
ObserverScope::ObserverScope(Observer* observer) : previous_(t_here.observer) { t_here.observer = observer; }
ObserverScope::~ObserverScope() { t_here.observer = previous_; }

ComposedRun*& composed_run() { return t_here.composed_run; }
bool uses_composed_forms() { return t_here.composed_forms > 0; }
// Counted, so that they may end in any order.
ComposedForms::ComposedForms() : previous_(t_here.composed_forms++ > 0) {}
ComposedForms::~ComposedForms() { --t_here.composed_forms; }

bool anomaly_mode() { return t_here.anomaly; }
void set_anomaly_mode(bool on) {
  refuse_while_tracing("set_anomaly_mode", "it would act only while the callable is traced",
                       "Set it before the call.");
  t_here.anomaly = on;
}

namespace {
/// Whether every value is finite; those of integers and bool are.
bool all_finite(const Tensor& t) {
  if (!is_floating(t.dtype())) return true;
  const std::vector<std::byte> bytes = host_bytes(t);
  return visit_floating(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      T value;
      std::memcpy(&value, bytes.data() + i, sizeof(T));
      if (!std::isfinite(static_cast<double>(value))) return false;
    }
    return true;
  });
}
}  // namespace

void check_anomaly(const OpDef& op, std::span<const Tensor> in, std::span<const Tensor> out) {
  for (const Tensor& result : out) {
    if (all_finite(result)) continue;
    for (const Tensor& t : in)
      if (!all_finite(t)) return;  // not the first
    std::string inputs;
    for (const Tensor& t : in) inputs += (inputs.empty() ? "" : ", ") + describe(t);
    throw Error(str("anomaly: ", op.name, " made a NaN or infinity from finite inputs (", inputs,
                    "). Check the values that reach it, or lower the learning rate."));
  }
}

}  // namespace tandem
