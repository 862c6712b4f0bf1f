#include "tandem/core/autocast.h"

#include <algorithm>
#include <map>

#include "tandem/core/region.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"

namespace tandem {

/// What weights were cast to.
class Autocast::Weights {
 public:
  struct Kept {
    Tensor weight;  // held, so that no other tensor gets its place
    uint32_t version = 0;
    Tensor value;
    uint32_t value_version = 0;  // whoever holds on to an input of an op may change it
  };
  Kept& operator()(const Tensor& weight, DType to) {
    if (kept_.size() >= most_) {  // in a long scope: what nobody else holds any more
      std::erase_if(kept_, [](const auto& row) {
        return !row.second.weight.defined() || row.second.weight.impl()->use_count() == 1;
      });
      most_ = 2 * kept_.size() + 64;
    }
    return kept_[{weight.impl(), to}];
  }

 private:
  std::map<std::pair<const TensorImpl*, DType>, Kept> kept_;
  size_t most_ = 64;
};

Autocast::Autocast(std::optional<DType> dtype)
    : dtype_(dtype),
      previous_(detail::current_autocast()),
      weights_(previous_ ? previous_->weights_ : std::make_shared<Weights>()) {
  TD_CHECK(!dtype || *dtype == DType::bf16 || *dtype == DType::f16,
           "Autocast: the type must be bf16 or f16; got ", *dtype,
           ". Leave the scope out, or use NoAutocast, for f32.");
  detail::set_autocast(this);
}
Autocast::~Autocast() {
  Autocast* inner = detail::current_autocast();
  if (inner == this) {
    detail::set_autocast(previous_);
    return;
  }
  while (inner && inner->previous_ != this) inner = inner->previous_;
  if (inner) inner->previous_ = previous_;  // it ends after this one
}

std::optional<Tensors> Autocast::inputs(Precision precision, std::span<const Tensor> in, bool keep) {
  if (!dtype_ || precision == Precision::as_given) return {};
  const auto is_real = [](const Tensor& t) { return t.defined() && is_floating(t.dtype()); };
  // Who brings f64 wants f64: nothing is cast beside it, but to it where types must be equal.
  std::optional<DType> widest;
  for (const Tensor& t : in)
    if (is_real(t)) widest = widest ? promote(*widest, t.dtype()) : t.dtype();
  if (!widest || (widest == DType::f64 && precision != Precision::widest)) return {};
  const DType to = precision == Precision::low    ? *dtype_
                   : precision == Precision::full ? DType::f32
                                                  : *widest;
  const auto differs = [&](const Tensor& t) { return is_real(t) && t.dtype() != to; };
  if (std::none_of(in.begin(), in.end(), differs)) return {};
  Tensors out;
  for (const Tensor& t : in) out.push_back(differs(t) ? cast(t, to, keep) : t);
  return out;
}

namespace {
/// Whether casts of it are kept. In a trace common_subexpressions sees to it: what is kept outside is no part of the trace.
bool is_weight(const Tensor& x) {
  return x.defined() && x.impl()->requires_grad && !x.impl()->node && !current_tracer();
}
}  // namespace

Tensor Autocast::cast(const Tensor& x, DType to, bool keep) {
  static const OpDef& op = *find_op("cast");
  const Attrs attrs = CastAttrs{to};
  if (!keep || !is_weight(x)) return std::move(apply(op, {&x, 1}, attrs)[0]);
  Weights::Kept& kept = (*weights_)(x, to);
  const bool is_current =
      kept.value.defined() && kept.version == version_of(x) && kept.value_version == version_of(kept.value);
  if (!is_current) {
    const NoGrad off;
    Tensor value = apply(op, {&x, 1}, attrs)[0];
    const uint32_t value_version = version_of(value);
    kept = {x, version_of(x), std::move(value), value_version};
  } else if (Observer* const observer = current_observer()) {
    observer->before(op, {&x, 1});
    observer->after({&kept.value, 1});
  }
  // Each use has a node of its own on the tape: gradients are those of as many casts.
  Tensor out = kept.value.detach();
  if (grad_enabled()) record(op, {&x, 1}, attrs, {&out, 1});
  return out;
}

Autocast& detail::scope_of_one_op() {
  Autocast* const scope = current_autocast();
  TD_CHECK(
      scope && scope->dtype(),
      "as_one_op: Autocast must be on; got a call where it is off. Ask autocast_is_on() first, and call the "
      "function itself where it is off.");
  return *scope;
}

Tensor detail::apart_from_kept(const Tensor& result, std::span<const Tensor> given,
                               const std::optional<Tensors>& cast) {
  static const OpDef& copy = *find_op("copy");
  if (!cast || !result.defined()) return result;
  for (size_t i = 0; i < given.size(); ++i)
    if (is_weight(given[i]) && (*cast)[i].impl()->storage.get() == result.impl()->storage.get() &&
        (*cast)[i].impl()->storage.get() != given[i].impl()->storage.get())
      return apply1(copy, {result});
  return result;
}

}  // namespace tandem
