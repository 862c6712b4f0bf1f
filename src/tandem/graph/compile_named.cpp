#include "tandem/graph/compile_named.h"

#include <mutex>

#include "tandem/core/error.h"
#include "tandem/core/mutex.h"

namespace tandem {
namespace {

/// The names of some groups and which values are there: how groups become a plain list of tensors and back.
struct NamedLayout {
  struct Group {
    const Names* names;
    std::vector<bool> is_there;
    bool operator==(const Group&) const = default;
  };
  std::vector<Group> groups;

  explicit NamedLayout(const std::vector<Named>& of) {
    for (const Named& group : of) {
      groups.push_back({&group.names(), {}});
      for (const Tensor& value : group.values()) groups.back().is_there.push_back(value.defined());
    }
  }
  bool operator==(const NamedLayout&) const = default;

  /// Whether `of` would have this shape. Makes nothing.
  bool fits(const std::vector<Named>& of) const {
    if (of.size() != groups.size()) return false;
    for (size_t g = 0; g < of.size(); ++g) {
      if (&of[g].names() != groups[g].names) return false;
      for (size_t i = 0; i < of[g].size(); ++i)
        if (of[g].values()[i].defined() != groups[g].is_there[i]) return false;
    }
    return true;
  }
  std::vector<Named> unpack(const std::vector<Tensor>& list) const {
    std::vector<Named> out;
    auto next = list.begin();
    for (const Group& group : groups) {
      std::vector<Tensor> values;
      for (const bool is_there : group.is_there) values.push_back(is_there ? *next++ : Tensor());
      out.emplace_back(*group.names, std::move(values));
    }
    return out;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const Group& group : groups)
      for (size_t i = 0; i < group.is_there.size(); ++i)
        if (group.is_there[i]) out.push_back((*group.names)[i]);
    return out;
  }
};

std::vector<Tensor> list_of(const std::vector<Named>& groups) {
  std::vector<Tensor> list;
  for (const Named& group : groups)
    for (const Tensor& value : group.values())
      if (value.defined()) list.push_back(value);
  return list;
}

/// The layout of a callable's results, known when it has run once. A replay does not run it.
class ResultLayout {
 public:
  void note(NamedLayout of_results) {
    const std::lock_guard lock(mutex_);
    TD_CHECK(!layout_ || *layout_ == of_results,
             "compile: a callable must give results of the same names for all inputs of the same names; "
             "it gave ",
             joined(of_results), " after ", joined(*layout_), ".");
    if (!layout_) layout_ = std::move(of_results);
  }
  /// Null before the first run. It stays as it is.
  const NamedLayout* get() {
    const std::lock_guard lock(mutex_);
    return layout_ ? &*layout_ : nullptr;
  }

 private:
  static std::string joined(const NamedLayout& layout) {
    std::string out;
    for (const std::string& name : layout.names()) out += (out.empty() ? "" : ", ") + name;
    return out.empty() ? "none" : out;
  }
  Mutex mutex_{LockOrder::names};
  std::optional<NamedLayout> layout_;
};

/// The callable for inputs of one layout.
struct NamedVariant {
  NamedLayout in;
  std::shared_ptr<ResultLayout> out;
  Compiled compiled;
};

TensorFunction over_lists(const NamedFunction& function, const NamedLayout& in,
                          const std::shared_ptr<ResultLayout>& out) {
  return [function, in, out](const std::vector<Tensor>& list) {
    const std::vector<Named> results = function(in.unpack(list));
    out->note(NamedLayout(results));
    return list_of(results);
  };
}

}  // namespace

struct CompiledNamed::State {
  const NamedFunction function;
  const CompileOptions options;
  Mutex mutex{LockOrder::turn, "a compiled callable"};
  std::vector<std::unique_ptr<NamedVariant>> variants = {};

  NamedVariant& variant_for(const std::vector<Named>& groups) {
    const std::lock_guard lock(mutex);
    for (const auto& variant : variants)
      if (variant->in.fits(groups)) return *variant;
    const NamedLayout in(groups);
    auto out = std::make_shared<ResultLayout>();
    CompileOptions named = options;
    named.input_names = in.names();
    variants.push_back(std::make_unique<NamedVariant>(
        NamedVariant{in, out, compile(over_lists(function, in, out), std::move(named))}));
    return *variants.back();
  }
};

CompiledNamed::CompiledNamed(NamedFunction function, CompileOptions options)
    : state_(new State{std::move(function), std::move(options)}) {}
CompiledNamed::CompiledNamed(CompiledNamed&&) noexcept = default;
CompiledNamed& CompiledNamed::operator=(CompiledNamed&&) noexcept = default;
CompiledNamed::~CompiledNamed() = default;

std::vector<Named> CompiledNamed::operator()(const std::vector<Named>& groups) {
  NamedVariant& variant = state_->variant_for(groups);
  const std::vector<Tensor> results = variant.compiled(list_of(groups));
  return variant.out->get()->unpack(results);
}

std::vector<GraphReport> CompiledNamed::reports() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<GraphReport> all;
  for (const auto& variant : state_->variants)
    for (GraphReport& report : variant->compiled.reports()) {
      if (const NamedLayout* out = variant->out->get()) report.result_names = out->names();
      all.push_back(std::move(report));
    }
  return all;
}

}  // namespace tandem
