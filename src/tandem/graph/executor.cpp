#include "tandem/graph/executor.h"

#include <algorithm>

#include "tandem/core/activity.h"
#include "tandem/core/rng.h"

namespace tandem::graph {

void Arena::reserve(Device device, size_t bytes) {
  if (bytes == 0 || (storage && storage->bytes() >= bytes)) return;
  storage.reset();
  storage = make_ref<Storage>(device, bytes);
}

struct Executor::Call {
  const Node* node = nullptr;
  KernelFn kernel = nullptr;
  std::unique_ptr<FusedKernel> fused;
  std::vector<Buffer> in, out;
  KernelArgs args;
};

Executor::Executor(Graph graph, MemoryPlan plan, bool check_anomalies)
    : graph_(std::move(graph)),
      plan_(std::move(plan)),
      check_anomalies_(check_anomalies),
      backend_(backend(graph_.device)) {
  prepare();
}

Executor::~Executor() = default;

std::string Executor::describe() const {
  if (recording_) return cat(graph_.device, ": recorded, replayed as one");
  return cat(graph_.device, ": ", calls_.size(), " kernels in order");
}

std::vector<std::string> Executor::describe_nodes() const {
  std::vector<std::string> lines;
  auto call = calls_.begin();
  for (const Node& node : graph_.nodes) {
    lines.push_back(node.describe(graph_.values));
    if (call == calls_.end() || call->node != &node) continue;  // a view
    const auto algorithm = node.op ? node.op->algorithm[static_cast<size_t>(graph_.device.kind)] : nullptr;
    if (algorithm) lines.back() += cat("; ", algorithm(call->args));
    ++call;
  }
  return lines;
}

void Executor::prepare() {
  memory_.assign(graph_.values.size(), nullptr);
  own_.resize(graph_.values.size());
  is_output_.assign(graph_.values.size(), false);
  for (int v : graph_.outputs) is_output_[static_cast<size_t>(graph_.base_of(v))] = true;
  for (size_t b = 0; b < graph_.values.size(); ++b) {
    const Value& value = graph_.values[b];
    if (value.base != static_cast<int>(b)) continue;
    if (value.source == Source::captured) memory_[b] = static_cast<char*>(value.storage->data());
    const bool moves = value.source == Source::input || (value.source == Source::computed && is_output_[b]);
    if (moves && backend_.records()) {  // recorded work needs addresses that stay
      own_[b] = make_ref<Storage>(graph_.device, bytes_of_base(graph_, static_cast<int>(b)));
      memory_[b] = static_cast<char*>(own_[b]->data());
    }
  }
  if (graph_.random_blocks) {
    random_device_ = make_ref<Storage>(graph_.device, sizeof(random_host_));
  }
  run_constants();
  for (const Node& node : graph_.nodes) {
    if (node.is_fused() || !node.op->view) calls_.push_back(make_call(node));
    if (!node.is_fused() && node.op->waits) recordable_ = false;
  }
}

Executor::Call Executor::make_call(const Node& node) {
  Call call;
  call.node = &node;
  const auto buffer = [&](int v) {
    const Meta& m = graph_.meta(v);
    return Buffer{nullptr, m.shape.data(), m.strides.data(), m.shape.rank(), m.dtype};
  };
  for (int v : node.in) call.in.push_back(buffer(v));
  for (int v : node.out) call.out.push_back(buffer(v));
  call.args.in = call.in.data();
  call.args.out = call.out.data();
  call.args.n_in = static_cast<int>(call.in.size());
  call.args.n_out = static_cast<int>(call.out.size());
  call.args.attrs = node.attrs.data();
  if (node.is_fused()) {
    call.fused = backend_.compile_fused(graph_.device, node.programs);
  } else {
    call.kernel = node.op->kernels[static_cast<size_t>(graph_.device.kind)];
    TD_CHECK(call.kernel, node.op->name, ": has no kernel for ", graph_.device,
             ". Move its inputs to another device.");
    if (node.op->random && random_device_)  // empty ones draw nothing
      call.args.rng = {0, node.random_offset, static_cast<const uint64_t*>(random_device_->data())};
  }
  return call;
}

namespace {
void set_pointers(const Graph& graph, const std::vector<char*>& memory, const SmallVector<int, 4>& values,
                  std::vector<Buffer>& buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Meta& m = graph.meta(values[i]);
    buffers[i].data = memory[static_cast<size_t>(graph.base_of(values[i]))] +
                      m.offset * static_cast<int64_t>(bytes_of(m.dtype));
  }
}
}  // namespace

void Executor::run_constants() {
  for (const Node& node : graph_.constants) {
    if (node.op->view) continue;
    for (int v : node.out) {
      const size_t b = static_cast<size_t>(graph_.base_of(v));
      own_[b] = make_ref<Storage>(graph_.device, bytes_of_base(graph_, static_cast<int>(b)));
      memory_[b] = static_cast<char*>(own_[b]->data());
    }
    Call call = make_call(node);
    set_pointers(graph_, memory_, node.in, call.in);
    set_pointers(graph_, memory_, node.out, call.out);
    backend_.prepare(graph_.device, call.args);
    call.kernel(call.args);
  }
}

/// Points every buffer at its memory for this run.
void Executor::bind(const std::vector<Tensor>& inputs, Arena& arena) {
  arena.reserve(graph_.device, plan_.arena_bytes);
  const bool fixed = backend_.records();
  if (fixed && has_run_ && bound_arena_ == arena.storage) return;
  if (!(bound_arena_ == arena.storage)) {
    recording_.reset();
    has_run_ = false;
    bound_arena_ = arena.storage;
  }
  for (size_t b = 0; b < graph_.values.size(); ++b) {
    const Value& value = graph_.values[b];
    if (value.base != static_cast<int>(b)) continue;
    if (plan_.offset[b] >= 0) memory_[b] = static_cast<char*>(arena.storage->data()) + plan_.offset[b];
    if (fixed) continue;
    if (value.source == Source::input) {
      memory_[b] = static_cast<char*>(inputs[static_cast<size_t>(value.input)].raw());
    } else if (value.source == Source::computed && is_output_[b]) {
      own_[b] = make_ref<Storage>(graph_.device, bytes_of_base(graph_, static_cast<int>(b)));
      memory_[b] = static_cast<char*>(own_[b]->data());
    }
  }
  for (Call& call : calls_) {
    set_pointers(graph_, memory_, call.node->in, call.in);
    set_pointers(graph_, memory_, call.node->out, call.out);
  }
}

void Executor::launch(Call& call) {
  backend_.prepare(graph_.device, call.args);
  const auto run = [&] { call.fused ? call.fused->run(call.args) : call.kernel(call.args); };
  if (graph_.device.is_cpu())
    run_noted(call.fused ? "fused chain" : call.node->op->name, run);
  else
    run();
  if (check_anomalies_) check_finite(call);
}

/// The calls with their true order: one waits for another where it touches memory that the other writes, or writes
/// memory that the other reads. What is implied by a later wait is left out.
std::vector<RecordStep> Executor::record_steps() {
  struct Span {
    const char *begin, *end;
  };
  const auto spans = [&](const SmallVector<int, 4>& values) {
    std::vector<Span> out;
    for (int v : values) {
      const int base = graph_.base_of(v);
      const Value& value = graph_.values[static_cast<size_t>(base)];
      const size_t bytes = value.storage ? value.storage->bytes() : bytes_of_base(graph_, base);
      const char* begin = memory_[static_cast<size_t>(base)];
      if (bytes) out.push_back({begin, begin + bytes});
    }
    return out;
  };
  const auto meet = [](const std::vector<Span>& a, const std::vector<Span>& b) {
    for (const Span& x : a)
      for (const Span& y : b)
        if (x.begin < y.end && y.begin < x.end) return true;
    return false;
  };
  const size_t n = calls_.size();
  std::vector<std::vector<Span>> reads(n), writes(n);
  std::vector<std::vector<bool>> behind(
      n, std::vector<bool>(n, false));  // behind[i][j]: i waits for j, if indirectly
  std::vector<RecordStep> steps(n);
  for (size_t i = 0; i < n; ++i) {
    reads[i] = spans(calls_[i].node->in);
    writes[i] = spans(calls_[i].node->out);
    for (size_t j = i; j-- > 0;) {
      if (behind[i][j]) continue;
      if (!meet(writes[j], reads[i]) && !meet(writes[j], writes[i]) && !meet(reads[j], writes[i])) continue;
      steps[i].after.push_back(static_cast<int>(j));
      behind[i][j] = true;
      for (size_t k = 0; k < j; ++k)
        if (behind[j][k]) behind[i][k] = true;
    }
    steps[i].launch = [this, i] { launch(calls_[i]); };
  }
  return steps;
}

void Executor::check_finite(const Call& call) {
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
  static const OpDef fused{.name = "a fused chain"};
  check_anomaly(call.node->op ? *call.node->op : fused, wrap(call.node->in, call.in),
                wrap(call.node->out, call.out));
}

void Executor::set_random_base() {
  if (!graph_.random_blocks) return;
  const RngPosition position = take_random(graph_.random_blocks);
  random_host_[0] = position.seed;
  random_host_[1] = position.offset;
  backend_.copy_from_host(graph_.device, random_device_->data(), random_host_, sizeof(random_host_));
}

std::vector<Tensor> Executor::run(const std::vector<Tensor>& inputs, Arena& arena) {
  bind(inputs, arena);
  set_random_base();
  const bool fixed = backend_.records();
  if (fixed)
    for (size_t b = 0; b < graph_.values.size(); ++b)
      if (graph_.values[b].source == Source::input)
        backend_.copy_within(graph_.device, memory_[b],
                             inputs[static_cast<size_t>(graph_.values[b].input)].raw(), own_[b]->bytes());
  if (!recording_ && fixed && has_run_ && recordable_ && !check_anomalies_)
    recording_ = backend_.record(graph_.device, record_steps());
  if (recording_)
    recording_->replay();
  else
    for (Call& call : calls_) launch(call);
  has_run_ = true;

  std::vector<Ref<Storage>> fresh(graph_.values.size());  // copies out of the fixed buffers, one a base
  std::vector<Tensor> results;
  for (int v : graph_.outputs) {
    const Value& value = graph_.values[static_cast<size_t>(v)];
    const size_t b = static_cast<size_t>(value.base);
    const Value& base = graph_.values[b];
    auto impl = make_ref<TensorImpl>();
    impl->meta = value.meta;
    if (base.source == Source::captured) {
      impl->storage = base.storage;
    } else if (base.source == Source::input) {
      const Tensor& input = inputs[static_cast<size_t>(base.input)];
      impl->storage = input.impl()->storage;
      impl->meta.offset += input.meta().offset;
    } else if (fixed) {
      if (!fresh[b]) {
        fresh[b] = make_ref<Storage>(graph_.device, own_[b]->bytes());
        backend_.copy_within(graph_.device, fresh[b]->data(), own_[b]->data(), own_[b]->bytes());
      }
      impl->storage = fresh[b];
    } else {
      impl->storage = own_[b];
    }
    results.push_back(Tensor(std::move(impl)));
  }
  if (!fixed)
    for (size_t b = 0; b < graph_.values.size(); ++b)
      if (is_output_[b] && graph_.values[b].source == Source::computed) own_[b].reset();  // the caller's now
  for (const Call& call : calls_) {  // versions, so that a tape outside notices the change
    if (call.node->changes_memory() || call.node->is_fused())
      for (int v : call.node->out) {
        const Value& base = graph_.values[static_cast<size_t>(graph_.base_of(v))];
        if (base.source == Source::captured) base.storage->bump_version();
        if (base.source == Source::input)
          inputs[static_cast<size_t>(base.input)].impl()->storage->bump_version();
      }
  }
  return results;
}

}  // namespace tandem::graph
