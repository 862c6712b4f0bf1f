#include "tandem/graph/compile_named.h"

#include <deque>
#include <mutex>
#include <optional>

#include "tandem/core/error.h"
#include "tandem/core/mutex.h"
#include "tandem/graph/compiled_state.h"

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

/// Inputs of one layout: the first has number 0, and so on.
struct NamedVariant {
  NamedLayout in;
  std::vector<std::string> input_names;
  ResultLayout out = {};

  explicit NamedVariant(const NamedLayout& layout) : in(layout), input_names(layout.names()) {}
};

/// What is never taken away may be looked at without the lock.
class NamedVariants {
 public:
  /// Which of them has these groups; a new one if none has.
  std::pair<size_t, NamedVariant&> find(const std::vector<Named>& groups) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].in.fits(groups)) return {i, all_[i]};
    NamedVariant& added = all_.emplace_back(NamedLayout(groups));
    return {all_.size() - 1, added};
  }
  NamedVariant& operator[](size_t i) {
    const std::lock_guard lock(mutex_);
    return all_[i];
  }

 private:
  Mutex mutex_{LockOrder::names};
  std::deque<NamedVariant> all_;  // whose elements stay where they are
};

}  // namespace

struct CompiledNamed::State {
  std::shared_ptr<NamedVariants> variants = std::make_shared<NamedVariants>();  // held by the callable, too
  std::shared_ptr<CompiledState> compiled;

  ~State() {
    if (compiled) compiled->leave();
  }
};

CompiledNamed::CompiledNamed(NamedFunction function, CompileOptions options) : state_(new State) {
  TD_CHECK(function, "compile: the callable must not be empty.");
  const auto over_lists = [function = std::move(function), variants = state_->variants](
                              const std::vector<Tensor>& list, size_t layout) {
    NamedVariant& variant = (*variants)[layout];
    const std::vector<Named> results = function(variant.in.unpack(list));
    variant.out.note(NamedLayout(results));
    return list_of(results);
  };
  state_->compiled = std::make_shared<CompiledState>(over_lists, std::move(options));
}
CompiledNamed::CompiledNamed(CompiledNamed&&) noexcept = default;
CompiledNamed& CompiledNamed::operator=(CompiledNamed&&) noexcept = default;
CompiledNamed::~CompiledNamed() = default;

std::vector<Named> CompiledNamed::operator()(const std::vector<Named>& groups) {
  const auto [layout, variant] = state_->variants->find(groups);
  const std::vector<Tensor> results = state_->compiled->call(list_of(groups), layout, variant.input_names);
  return variant.out.get()->unpack(results);
}

std::vector<GraphReport> CompiledNamed::reports() const {
  std::vector<GraphReport> all;
  for (auto& [layout, report] : state_->compiled->reports()) {
    if (const NamedLayout* out = (*state_->variants)[layout].out.get()) report.result_names = out->names();
    all.push_back(std::move(report));
  }
  return all;
}

}  // namespace tandem
