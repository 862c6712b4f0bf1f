#include "tandem/graph/made_tensors.h"

#include "tandem/graph/references.h"

namespace tandem::graph {

namespace {
constexpr uint64_t kNoTrace = ~uint64_t{0};
}  // namespace

void MadeTensors::add(const Ref<TensorImpl>& tensor, const char* what) {
  made_.push_back({tensor, what, current_layer(), current_scope()});
}

void MadeTensors::forget_since(size_t count, uint64_t trace, int64_t values) {
  for (size_t i = count; i < made_.size(); ++i)
    if (TensorImpl& tensor = *made_[i].tensor; tensor.trace_serial == trace && tensor.trace_id >= values)
      tensor.trace_serial = kNoTrace;
  if (made_.size() > count) made_.resize(count);
}

std::vector<Survivor> MadeTensors::outliving(const Trace& trace, const std::vector<Tensor>& inputs) {
  for (bool freed = true; freed;) {  // whatever was freed may have held others, mostly earlier ones
    freed = false;
    for (auto at = made_.rbegin(); at != made_.rend(); ++at)
      if (at->tensor && at->tensor->use_count() == 1) {
        at->tensor.reset();
        freed = true;
      }
  }
  References within;
  for (const Tensor& t : trace.results) within.add(t.ref());
  for (const Tensor& t : inputs) within.add(t.ref());
  for (const End& end : trace.ends) within.add(end.edge.leaf);
  for (const LeafGradient& gradient : trace.gradients) within.add(gradient.leaf);
  within.follow();
  std::vector<Survivor> found;
  for (const Made& made : made_)
    if (made.tensor && made.tensor->use_count() > 1 + within.to(made.tensor.get()))
      found.push_back({made.tensor->trace_serial, made.tensor->trace_id, text_of(made)});
  made_.clear();
  return found;
}

std::string MadeTensors::text_of(const Made& made) {
  if (made.layer) return str(made.what, " in ", *made.layer);
  std::string scopes;
  for (const ScopeName* at = made.scope.get(); at; at = at->outer.get())
    scopes = scopes.empty() ? at->name : at->name + "/" + scopes;
  return scopes.empty() ? made.what : str(made.what, " in scope '", scopes, "'");
}

}  // namespace tandem::graph
