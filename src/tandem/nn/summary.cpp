// Summaries of models.
#include "tandem/nn/summary.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>
#include <string_view>

#include "tandem/core/tape.h"
#include "tandem/ops/work.h"

namespace tandem::nn {
namespace {

/// Of an op that is described, and does not run.
int64_t flops_of(const OpDef& op, std::span<const Tensor> in, std::span<const Meta> out) {
  const auto buffer = [](const Meta& m) {
    return Buffer{nullptr, m.shape.data(), m.strides.data(), m.shape.rank(), m.dtype};
  };
  SmallVector<Buffer, 4> in_buffers, out_buffers;
  for (const Tensor& t : in) in_buffers.push_back(buffer(t.meta()));
  for (const Meta& meta : out) out_buffers.push_back(buffer(meta));
  KernelArgs args;
  args.in = in_buffers.data();
  args.out = out_buffers.data();
  args.n_in = static_cast<int>(in_buffers.size());
  args.n_out = static_cast<int>(out_buffers.size());
  return work_of(op, args).flops;
}

/// Runs nothing: gives every op's outputs their shapes, and tells an observer.
class ShapeTracer : public Tracer {
 public:
  using Observer = std::function<void(const OpDef&, std::span<const Tensor>, std::span<const Meta>)>;
  explicit ShapeTracer(Observer observer) : observer_(std::move(observer)) {}

  static Tensor without_values(const Meta& meta) {
    auto impl = make_ref<TensorImpl>();
    impl->meta = meta;
    impl->trace_id = 0;
    impl->trace_serial = std::numeric_limits<uint64_t>::max();  // no compiled callable's
    return Tensor(std::move(impl));
  }

  Tensors append(const OpDef& op, std::span<const Tensor> in, const Attrs&,
                 std::span<const Meta> out) override {
    observer_(op, in, out);
    Tensors results;
    for (const Meta& meta : out) results.push_back(without_values(meta));
    return results;
  }

 private:
  Observer observer_;
};

/// Hooks that go when the scope ends, and the modes that come back.
class Visit {
 public:
  explicit Visit(const std::vector<Module*>& modules) {
    for (Module* module : modules) was_training_.emplace_back(module, module->training());
  }
  ~Visit() {
    for (const auto& [module, id] : hooks_) module->remove_hook(id);
    for (const auto& [module, on] : was_training_) module->set_training(on);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  void add(Module* module, HookId id) { hooks_.emplace_back(module, id); }

 private:
  std::vector<std::pair<Module*, bool>> was_training_;
  std::vector<std::pair<Module*, HookId>> hooks_;
};

std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

/// "1.23 M": three digits or so, and a factor of a thousand.
std::string scaled(double value, const char* unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t step = 0;
  for (; value >= 1000 && step < 5; ++step) value /= 1000;
  char text[64];
  std::snprintf(text, sizeof(text), step == 0 ? "%.0f %s%s" : "%.2f %s%s", value, prefixes[step], unit);
  return text;
}

}  // namespace

std::unique_ptr<Module> shapes_of(const std::function<std::unique_ptr<Module>()>& make) {
  TD_CHECK(!current_tracer(), "shapes_of: must be called outside of a compiled callable.");
  ShapeTracer tracer([](const OpDef&, std::span<const Tensor>, std::span<const Meta>) {});
  const TraceScope scope(&tracer);
  return make();
}

Summary summary(Module& model, const Dims& input) {
  DType dtype = DType::f32;
  Device device;
  if (const std::vector<Tensor> parameters = model.parameters(); !parameters.empty()) {
    dtype = parameters.front().dtype();
    device = parameters.front().device();
  }
  for (const Dim size : input) TD_CHECK(size >= 0, "summary: sizes must be at least 0; got ", input, ".");
  return summary(model, {ShapeTracer::without_values(contiguous_meta(input, dtype, device))},
                 [&](const std::vector<Tensor>& in) { model(in[0]); });
}

Summary summary(Module& model, const std::vector<Tensor>& inputs,
                const std::function<void(const std::vector<Tensor>&)>& call) {
  TD_CHECK(!current_tracer(), "summary: must be called outside of a compiled callable.");
  TD_CHECK(!inputs.empty(), "summary: there must be at least one input; got none.");
  Summary all;
  all.model = model.type_name();
  all.input = inputs.front().shape();
  all.dtype = inputs.front().dtype();

  std::vector<Module*> modules;  // their names come last: they are long where modules are nested deep
  model.apply([&](Module& module) { modules.push_back(&module); });
  std::set<const TensorImpl*> seen;
  for (const Module* module : modules) {
    LayerSummary& layer = all.layers.emplace_back();
    layer.type = module->type_name();
    for (const Tensor& tensor : module->own_parameters()) {
      if (!seen.insert(tensor.impl()).second) continue;
      layer.parameters += tensor.size();
      all.parameters += tensor.size();
      if (tensor.requires_grad()) all.trainable_parameters += tensor.size();
    }
  }
  for (const auto& [name, tensor] : model.state())
    all.state_bytes += tensor.size() * static_cast<int64_t>(bytes_of(tensor.dtype()));

  Visit visit(modules);
  model.eval();
  std::vector<size_t> under_way = {0};  // places of the modules that are being called, the innermost last
  for (size_t place = 0; place < modules.size(); ++place) {
    Module* module = modules[place];
    visit.add(module, module->add_forward_pre_hook([&under_way, place](Module&, std::vector<Tensor>&) {
      under_way.push_back(place);
    }));
    visit.add(module, module->add_forward_hook(
                          [&, place](Module&, const std::vector<Tensor>&, std::vector<Tensor>& out) {
                            under_way.pop_back();
                            ++all.layers[place].calls;
                            all.layers[place].outputs.clear();
                            for (const Tensor& t : out) all.layers[place].outputs.push_back(t.shape());
                          }));
  }
  ShapeTracer tracer([&](const OpDef& op, std::span<const Tensor> in, std::span<const Meta> out) {
    LayerSummary& layer = all.layers[under_way.back()];
    const int64_t flops = flops_of(op, in, out);
    layer.flops += flops;
    all.flops += flops;
    if (op.is_view() || op.changes_memory()) return;
    for (const Meta& meta : out) {
      const int64_t bytes = size_of(meta.shape) * static_cast<int64_t>(bytes_of(meta.dtype));
      layer.activation_bytes += bytes;
      all.activation_bytes += bytes;
    }
  });
  const NoGrad off;
  const TraceScope scope(&tracer);
  std::vector<Tensor> shapes;
  for (const Tensor& t : inputs) shapes.push_back(ShapeTracer::without_values(t.meta()));
  call(shapes);
  const auto named = model.named_modules();
  for (size_t place = 0; place < named.size(); ++place) all.layers[place].name = named[place].first;
  return all;
}

std::string to_string(const Summary& summary) {
  std::vector<std::vector<std::string>> rows = {
      {"layer", "type", "output", "parameters", "FLOPs", "activations"}};
  for (const LayerSummary& layer : summary.layers) {
    if (layer.outputs.empty() && layer.parameters == 0 && layer.flops == 0) continue;  // only holds others
    std::string shapes;
    for (const Dims& shape : layer.outputs) shapes += (shapes.empty() ? "" : " ") + str(shape);
    rows.push_back({layer.name.empty() ? "(model)" : layer.name, layer.type, shapes,
                    grouped(layer.parameters), grouped(layer.flops),
                    scaled(static_cast<double>(layer.activation_bytes), "B")});
  }
  rows.push_back({"total", "", "", grouped(summary.parameters), grouped(summary.flops),
                  scaled(static_cast<double>(summary.activation_bytes), "B")});
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - row[i].size(), ' ');
      line += "  " + (i >= 3 ? gap + row[i] : row[i] + gap);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += str("\n  input ", summary.input, " ", summary.dtype, "; ", grouped(summary.trainable_parameters),
              " of ", grouped(summary.parameters), " parameters trainable, ",
              scaled(static_cast<double>(summary.state_bytes), "B"), " of weights; ",
              scaled(static_cast<double>(summary.flops), "FLOP"), " a forward pass, ",
              scaled(static_cast<double>(summary.activation_bytes), "B"), " of activations.\n");
  return text;
}

}  // namespace tandem::nn
