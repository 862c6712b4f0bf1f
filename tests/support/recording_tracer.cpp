#include "tests/support/recording_tracer.h"

#include "tandem/core/tape.h"

namespace tandem::testing {

Tensors RecordingTracer::append(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                                std::span<const Meta> out) {
  if (before) before(op, in, out);
  Tensors results;
  if (runs_) {
    const TraceScope eagerly(nullptr);
    const NoGrad off;  // the caller records the tape
    results = apply(op, in, attrs);
  } else {
    for (const Meta& meta : out) {
      Ref<TensorImpl> impl = make_ref<TensorImpl>();
      impl->meta = meta;
      impl->trace_id = next_id_++;
      impl->trace_serial = ~uint64_t{0};
      results.push_back(Tensor(std::move(impl)));
    }
  }
  applied.push_back({&op, {in.begin(), in.end()}, {results.begin(), results.end()}, attrs});
  return results;
}

bool writes_in_place(const OpDef& op) { return op.changes_memory(); }

std::string data_dependent_op(const std::string& text) {
  if (text.find("must not depend on the data inside a compiled callable") == std::string::npos) return "";
  const std::string name = text.substr(0, text.find(':'));
  return find_op(name) ? name : "";
}

}  // namespace tandem::testing
