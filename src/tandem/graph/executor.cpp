#include "tandem/graph/executor.h"

#include <algorithm>

#include "tandem/core/choices.h"
#include "tandem/graph/call.h"
#include "tandem/ops/work.h"

namespace tandem::graph {

void Arena::reserve(Device device, size_t bytes) {
  if (bytes == 0 || (storage && storage->bytes() >= bytes)) return;
  storage.reset();
  storage = make_ref<Storage>(device, bytes);
}

CallList::CallList(Graph graph, MemoryPlan plan, bool check_anomalies)
    : graph_(std::move(graph)),
      plan_(std::move(plan)),
      check_anomalies_(check_anomalies),
      backend_(backend(graph_.device)),
      control_(backend_.recorded_control(graph_.device)) {
  const size_t values = static_cast<size_t>(graph_.value_count());
  memory_.assign(values, nullptr);
  own_.resize(values);
  // Captured memory is known now; inputs, results and the arena get their addresses at each run.
  const std::vector<bool> returned = graph_.returned_bases();
  for (int b = 0; b < graph_.value_count(); ++b) {
    const Value& value = graph_.value(b);
    const size_t at = static_cast<size_t>(b);
    if (value.base != b) continue;
    if (value.source == Source::captured)
      memory_[at] = static_cast<char*>(value.storage->data());
    else if (value.source == Source::input)
      input_bases_.push_back(b);
    else if (returned[at])
      returned_bases_.push_back(b);
    else if (plan_.offset[at] >= 0)
      arena_bases_.push_back(b);
  }
}

CallList::~CallList() = default;

void CallList::make_calls(const uint64_t* random) {
  random_.base = random;
  run_constants();
  for (int n = graph_.first(); n != kNone; n = graph_.next(n)) {
    const Node& node = graph_.node(n);
    if (node.is_view()) continue;
    calls_.push_back(make_call(node));
    if (!node.bodies) continue;
    Call& call = calls_.back();
    call.for_bodies = std::move(plan_.bodies.at(n));
    for (size_t k = 0; k < node.bodies->list.size(); ++k)
      call.bodies.push_back(std::make_unique<BodyCalls>(
          node.bodies->list[k], std::move(call.for_bodies.plans[k]), check_anomalies_, random));
  }
}

std::string CallList::refusal_to_record() const {
  for (const Call& call : calls_) {
    const bool waits = call.node->op && call.node->op->waits;
    if (waits && call.bodies.empty()) return str(call.node->op->name, " waits for the device");
    if (waits && !control_)
      return str("the host waits for the condition of ", call.node->op->name,
                 ", since the driver takes none into a recording");
    for (const auto& body : call.bodies)
      if (std::string reason = body->refusal_to_record(); !reason.empty()) return reason;
  }
  return "";
}

bool CallList::chooses_by_value() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const Call& call) {
    return !call.bodies.empty() &&
           (call.node->op->waits || std::any_of(call.bodies.begin(), call.bodies.end(),
                                                [](const auto& body) { return body->chooses_by_value(); }));
  });
}

bool CallList::may_refuse() const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [](const Call& call) { return call.node->effects().refuses; });
}

bool CallList::has_untimed_bodies() const {
  if (convolution_choice().mode != ChoiceMode::profile && matmul_choice().mode != ChoiceMode::profile)
    return false;
  for (const Call& call : calls_)
    for (const auto& body : call.bodies)
      if (body->has_untimed_bodies() || (!body->has_run() && body->has_candidates())) return true;
  return false;
}

void CallList::set_random(const RngPosition& random) {
  if (!random_.base || (random.base == random_.base && random.offset == random_.offset)) return;
  random_ = random;
  for (Call& call : calls_)
    if (call.args.rng.base) call.args.rng = {0, random.offset + call.node->random_offset, random.base};
}

GraphView CallList::view() const {
  GraphView view;
  for (int v = 0; v < graph_.value_count(); ++v) {
    const Value& value = graph_.value(v);
    const char* kind = value.source == Source::input      ? "input"
                       : value.source == Source::captured ? "captured"
                                                          : "computed";
    view.values.push_back({value.meta.shape, value.meta.dtype, kind, value.base});
  }
  view.results = graph_.outputs();
  auto call = calls_.begin();
  for (int n = graph_.first(); n != kNone; n = graph_.next(n)) {
    const Node& node = graph_.node(n);
    GraphView::Node& seen = view.nodes.emplace_back();
    if (node.op) {
      seen.op = node.op->name;
      seen.attributes = node.attrs.list();
    }
    for (const FusedProgram& program : node.programs) {
      std::vector<std::string>& steps = seen.fused.emplace_back();
      for (const FusedProgram::Step& step : program.steps) steps.push_back(step.op->name);
    }
    seen.in.assign(node.in.begin(), node.in.end());
    seen.out.assign(node.out.begin(), node.out.end());
    if (node.bodies)
      for (const auto& body : call->bodies) seen.bodies.push_back(body->view());
    if (node.bodies && node.bodies->has_fixed_count())
      seen.attributes.push_back({"steps", AttrValue::of(node.bodies->loop->count)});
    if (node.is_view()) continue;
    const auto candidates = node.op ? node.op->candidates[static_cast<size_t>(graph_.device.kind)] : nullptr;
    if (candidates) {
      Candidates found = candidates(call->args);
      seen.algorithm = std::move(found.chosen);
      seen.candidates = std::move(found.all);
    }
    ++call;
  }
  return view;
}

CallList::Call CallList::make_call(const Node& node) {
  Call call;
  call.node = &node;
  const auto buffer = [&](int v) {
    const Meta& m = graph_.meta(v);
    return Buffer{nullptr, m.shape.data(), m.strides.data(), m.shape.rank(), m.dtype};
  };
  call.in.reserve(node.in.size());
  call.out.reserve(node.out.size());
  for (int v : node.in) call.in.push_back(buffer(v));
  for (int v : node.out) call.out.push_back(buffer(v));
  call.args.in = call.in.data();
  call.args.out = call.out.data();
  call.args.n_in = static_cast<int>(call.in.size());
  call.args.n_out = static_cast<int>(call.out.size());
  call.args.attrs = node.attrs.data();
  if (node.op) call.args.context = node.op->context.get();
  if (node.bodies) return call;
  if (node.is_fused()) {
    call.fused = backend_.compile_fused(graph_.device, node.programs);
  } else {
    call.kernel = node.op->kernels[static_cast<size_t>(graph_.device.kind)];
    if (!call.kernel) refuse_without_kernel(node.op->name, graph_.device);
    if (node.op->is_random() && random_.base)  // empty ones draw nothing
      call.args.rng = {0, random_.offset + node.random_offset, random_.base};
  }
  return call;
}

void CallList::set_pointers(Call& call) {
  const auto set = [&](const SmallVector<int, 4>& values, std::vector<Buffer>& buffers) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Meta& m = graph_.meta(values[i]);
      buffers[i].data = memory_[static_cast<size_t>(graph_.base_of(values[i]))] +
                        m.offset * static_cast<int64_t>(bytes_of(m.dtype));
    }
  };
  set(call.node->in, call.in);
  set(call.node->out, call.out);
}

Ref<Storage> CallList::new_memory(int base) {
  return make_ref<Storage>(graph_.device, bytes_of_base(graph_, base));
}

void CallList::put(int base, const Ref<Storage>& storage) {
  own_[static_cast<size_t>(base)] = storage;
  memory_[static_cast<size_t>(base)] = static_cast<char*>(storage->data());
}

void CallList::put_arena(char* arena) {
  arena_ = arena;
  for (int b : arena_bases_) memory_[static_cast<size_t>(b)] = arena + plan_.offset[static_cast<size_t>(b)];
}

void CallList::run_constants() {
  for (const Node& node : graph_.constants()) {
    if (node.is_view()) continue;
    for (int v : node.out) put(graph_.base_of(v), new_memory(graph_.base_of(v)));
    Call call = make_call(node);
    set_pointers(call);
    call.args.device = &backend_.context(graph_.device);
    call.kernel(call.args);
  }
}

namespace {
Work work_of_node(const Node& node, const KernelArgs& args) {
  return node.is_fused() ? work_of(node.programs, args) : work_of(*node.op, args);
}
}  // namespace

Work CallList::work() const {
  Work sum;
  for (const Call& call : calls_) {
    if (!call.node->bodies) {
      sum += work_of_node(*call.node, call.args);
    } else if (call.node->bodies->has_fixed_count()) {
      const Work once = call.bodies[0]->work();
      const int64_t count = call.node->bodies->loop->count;
      sum += {once.flops * count, once.bytes * count};
    }
  }
  return sum;
}

void CallList::launch(Call& call) {
  ReplayedScopes::enter(call.node->scope);
  if (call.node->bodies) return run_bodies(call);  // whose errors name their layers themselves
  const char* const name = call.fused ? "fused chain" : call.node->op->name;
  NotedOp note(name, graph_.device);
  call.args.device = &backend_.context(graph_.device);
  try {
    run_noted(graph_.device, name, [&] { call.fused ? call.fused->run(call.args) : call.kernel(call.args); });
    if (note && call.fused) [[unlikely]]
      note.describe(work_of_node(*call.node, call.args), call.node->what());
    else if (note) [[unlikely]]
      note.describe(*call.node->op, call.args);
    if (check_anomalies_) check_finite(call);
  } catch (Error& error) {
    if (call.node->layer) error.prepend(*call.node->layer + ": ");
    throw;
  }
}

void CallList::check_finite(const Call& call) {
  const auto wrap = [&](const SmallVector<int, 4>& values, const std::vector<Buffer>& buffers) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < buffers.size(); ++i) {
      auto impl = make_ref<TensorImpl>();
      impl->meta = graph_.meta(values[i]);
      impl->meta.offset = 0;
      impl->storage = make_ref<Storage>(graph_.device, buffers[i].data, 0, nullptr, nullptr);
      tensors.push_back(Tensor(std::move(impl)));
    }
    return tensors;
  };
  static const OpDef& fused =
      *new OpDef{.name = "a fused chain"};  // threads may use it until the process has ended
  check_anomaly(call.node->op ? *call.node->op : fused, wrap(call.node->in, call.in),
                wrap(call.node->out, call.out));
}

Executor::Executor(Graph graph, MemoryPlan plan, bool check_anomalies)
    : CallList(std::move(graph), std::move(plan), check_anomalies) {
  changes_input_.assign(static_cast<size_t>(graph_.inputs), false);
  const std::vector<bool> changed = graph_.changed_bases();
  for (int b = 0; b < graph_.value_count(); ++b) {
    const Value& value = graph_.value(b);
    if (value.base != b || !changed[static_cast<size_t>(b)]) continue;
    if (value.source == Source::captured) changed_memory_.push_back(value.storage);
    if (value.source == Source::input) changes_input_[static_cast<size_t>(value.input)] = true;
  }
  if (graph_.random_blocks) random_device_ = make_ref<Storage>(graph_.device, sizeof(random_host_));
  make_calls(random_device_ ? static_cast<const uint64_t*>(random_device_->data()) : nullptr);
}

void Executor::set_random_base(GeneratorState random) {
  if (!graph_.random_blocks) return;
  random_host_[0] = random.seed;
  random_host_[1] = random.offset;
  backend_.copy_from_host(graph_.device, random_device_->data(), random_host_, sizeof(random_host_));
}

std::vector<Tensor> Executor::run(const std::vector<Tensor>& inputs, Arena& arena, GeneratorState random) {
  arena.reserve(graph_.device, plan_.arena_bytes);
  if (place(inputs, arena))
    for (Call& call : calls_) set_pointers(call);
  set_random_base(random);
  // Before the calls: whatever stops half-way has changed them, too. A tape outside notices by the version.
  for (const Ref<Storage>& storage : changed_memory_) storage->bump_version();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (changes_input_[i]) inputs[i].impl()->storage->bump_version();
  {
    const ReplayedScopes scopes;
    execute();
  }

  // Results that are views of one memory share one storage, as they would eagerly. returned_bases_ is sorted.
  std::vector<Ref<Storage>> fresh(returned_bases_.size());
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i] = hand_over(returned_bases_[i]);
  std::vector<Tensor> results;
  for (int v : graph_.outputs()) {
    const Value& value = graph_.value(v);
    const Value& base = graph_.value(value.base);
    auto impl = make_ref<TensorImpl>();
    impl->meta = value.meta;
    if (base.source == Source::captured) {
      impl->storage = base.storage;
    } else if (base.source == Source::input) {
      const Tensor& input = inputs[static_cast<size_t>(base.input)];
      impl->storage = input.impl()->storage;
      // An input is traced as if it began at 0.
      impl->meta.offset += input.meta().offset;
    } else {
      const auto at = std::lower_bound(returned_bases_.begin(), returned_bases_.end(), value.base);
      impl->storage = fresh[static_cast<size_t>(at - returned_bases_.begin())];
    }
    results.push_back(Tensor(std::move(impl)));
  }
  finish(inputs);
  return results;
}

namespace {

/// The calls in order, over the caller's inputs and fresh results.
class DirectExecutor final : public Executor {
 public:
  DirectExecutor(Graph graph, MemoryPlan plan, bool check_anomalies)
      : Executor(std::move(graph), std::move(plan), check_anomalies) {}
  std::string describe() const override {
    return str(graph_.device, ": ", calls_.size(), " kernels in order");
  }

 protected:
  bool place(const std::vector<Tensor>& inputs, Arena& arena) override {
    put_arena(arena.data());
    for (int b : input_bases_)
      memory_[static_cast<size_t>(b)] =
          static_cast<char*>(inputs[static_cast<size_t>(graph_.value(b).input)].raw());
    for (int b : returned_bases_) put(b, new_memory(b));
    return true;
  }
  void execute() override {
    for (Call& call : calls_) launch(call);
  }
  Ref<Storage> hand_over(int base) override { return std::move(own_[static_cast<size_t>(base)]); }
  void finish(const std::vector<Tensor>&) override {}
};

}  // namespace

std::unique_ptr<Executor> Executor::make(Graph graph, MemoryPlan plan, bool check_anomalies) {
  if (backend(graph.device).records())
    return make_recording_executor(std::move(graph), std::move(plan), check_anomalies);
  return std::make_unique<DirectExecutor>(std::move(graph), std::move(plan), check_anomalies);
}

}  // namespace tandem::graph
