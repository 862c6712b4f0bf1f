// The tree that modules make: children, names, walks, and the end of it. Nothing here calls itself for each level, so that
// the depth of a tree is limited by memory, not by the stack.
#include "tandem/nn/module.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>

#include "tandem/core/mutex.h"

namespace tandem::nn {
namespace {

/// Guards every parents_: a module may be a child of two that are built or destroyed in two threads.
Mutex& parents_mutex() {
  static Mutex& mutex = *new Mutex(LockOrder::data);  // never destroyed: modules may be static objects
  return mutex;
}
[[maybe_unused]] const auto& g_made_at_start = parents_mutex();  // in no fork's way

/// From the back: members go in the reverse order of their coming.
template <class T, class Wanted>
void erase_last(std::vector<T>& rows, const Wanted& wanted) {
  for (size_t i = rows.size(); i-- > 0;) {
    if (!wanted(rows[i])) continue;
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

/// What modules that are being destroyed held. The outermost one's destructor lets go of it, one after the other, and
/// those within only add theirs.
struct Remains {
  std::vector<ModulePtr> modules;
  std::vector<std::function<ModulePtr()>> recipes;  // these hold the modules that one was made of
};
thread_local Remains* t_remains = nullptr;

}  // namespace

Module::Module(Module* parent, const std::string& name) {
  if (parent) parent->take_child(name, this, nullptr);
}

Module::~Module() {
  {
    std::lock_guard lock(parents_mutex());
    for (Module* parent : parents_) {
      erase_last(parent->children_, [this](const Child& row) { return row.module == this; });
      parent->names_.clear();
    }
    for (const Child& row : children_)
      erase_last(row.module->parents_, [this](const Module* parent) { return parent == this; });
  }
  Remains mine;
  Remains& remains = t_remains ? *t_remains : mine;
  for (Child& row : children_)
    if (row.owner) remains.modules.push_back(std::move(row.owner));
  if (recipe_) remains.recipes.push_back(std::move(recipe_));
  if (t_remains) return;
  t_remains = &mine;
  while (!mine.modules.empty() || !mine.recipes.empty()) {
    if (!mine.modules.empty()) {
      const ModulePtr last = std::move(mine.modules.back());
      mine.modules.pop_back();
    } else {
      const std::function<ModulePtr()> last = std::move(mine.recipes.back());
      mine.recipes.pop_back();
    }
  }
  t_remains = nullptr;
}

void Module::check_new_name(const std::string& name) const {
  TD_CHECK(!name.empty() && name.find('.') == std::string::npos,
           "module: a name must have at least one character and no dot; got '", name, "'.");
  constexpr size_t kFew = 32;
  const auto has_it = [&](const auto& row) { return row.name == name; };
  const size_t rows = children_.size() + entries_.size();
  if (rows > kFew && names_.size() != rows) {
    names_.clear();
    for (const Child& row : children_) names_.insert(row.name);
    for (const Entry& row : entries_) names_.insert(row.name);
  }
  const bool is_used = rows > kFew ? names_.contains(name)
                                   : std::any_of(children_.begin(), children_.end(), has_it) ||
                                         std::any_of(entries_.begin(), entries_.end(), has_it);
  TD_CHECK(!is_used, "module: a name must be used once; got a second '", name, "'.");
  if (rows > kFew) names_.insert(name);  // the caller adds it now
}

void Module::take_child(const std::string& name, Module* module, ModulePtr owner) {
  check_new_name(name);
  children_.push_back({name, module, std::move(owner)});
  ++*changes_;
  std::lock_guard lock(parents_mutex());
  module->parents_.push_back(this);
}

void Module::adopt(const std::string& name, ModulePtr child) {
  TD_CHECK(child, "module: a child must be a module; got a null pointer for '", name, "'.");
  TD_CHECK(!child->holds(this), "module: a child must not hold its parent; '", name, "' does.");
  Module* module = child.get();
  take_child(name, module, std::move(child));
}

bool Module::holds(const Module* module) const {
  // Downwards from this one and upwards from the other in turn: the search ends with the smaller of the two. A tree that
  // grows at its top or at its bottom costs the same for each module.
  std::vector<const Module*> down = {this}, up = {module};
  std::unordered_set<const Module*> seen_down = {this}, seen_up = {module};
  std::lock_guard lock(parents_mutex());
  while (!down.empty() && !up.empty()) {
    const Module* below = down.back();
    down.pop_back();
    if (below == module) return true;
    for (const Child& child : below->children_)
      if (seen_down.insert(child.module).second) down.push_back(child.module);
    const Module* above = up.back();
    up.pop_back();
    if (above == this) return true;
    for (const Module* parent : above->parents_)
      if (seen_up.insert(parent).second) up.push_back(parent);
  }
  return false;
}

template <class Visit>
void Module::walk(const Visit& visit, bool every_name) const {
  struct Level {
    const Module* module;
    size_t next;    // child to visit
    size_t prefix;  // its length
  };
  std::string prefix;
  std::vector<Level> levels;
  std::unordered_set<const Module*> seen;
  const auto enter = [&](const Module* module) {
    if (!every_name && !seen.insert(module).second) return;
    visit(*module, static_cast<const std::string&>(prefix));
    levels.push_back({module, 0, prefix.size()});
  };
  enter(this);
  while (!levels.empty()) {
    Level& level = levels.back();
    prefix.resize(level.prefix);
    if (level.next == level.module->children_.size()) {
      levels.pop_back();
      continue;
    }
    const Child& child = level.module->children_[level.next++];
    prefix += child.name;
    prefix += '.';
    enter(child.module);
  }
}

std::vector<Module::Entry> Module::collect() const {
  std::vector<Entry> all;
  walk(
      [&](const Module& module, const std::string& prefix) {
        for (const Entry& entry : module.entries_)
          all.push_back({prefix + entry.name, entry.tensor, entry.kind, entry.saved});
      },
      /*every_name=*/true);
  return all;
}

std::vector<std::string> Module::ignored_names() const {
  std::vector<std::string> all;
  walk(
      [&](const Module& module, const std::string& prefix) {
        for (const std::string& name : module.ignored_) all.push_back(prefix + name);
      },
      /*every_name=*/true);
  return all;
}

NamedTensors Module::unique_entries(bool (*wanted)(const Entry&)) const {
  NamedTensors unique;
  std::unordered_set<const TensorImpl*> seen;
  walk([&](const Module& module, const std::string& prefix) {
    for (const Entry& entry : module.entries_)
      if (wanted(entry) && seen.insert(entry.tensor.impl()).second)
        unique.emplace_back(prefix + entry.name, entry.tensor);
  });
  return unique;
}

std::vector<Tensor> Module::unique_tensors(bool (*wanted)(const Entry&)) const {
  std::vector<Tensor> unique;
  std::unordered_set<const TensorImpl*> seen;
  walk([&](const Module& module, const std::string&) {
    for (const Entry& entry : module.entries_)
      if (wanted(entry) && seen.insert(entry.tensor.impl()).second) unique.push_back(entry.tensor);
  });
  return unique;
}

std::vector<std::pair<std::string, Module*>> Module::named_children() {
  std::vector<std::pair<std::string, Module*>> all;
  for (const Child& child : children_) all.emplace_back(child.name, child.module);
  return all;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all;
  walk([&](const Module& module, const std::string& prefix) {
    all.emplace_back(prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1),
                     const_cast<Module*>(&module));
  });
  return all;
}

std::string Module::name_of(const Module* module) const {
  for (const Child& child : children_)
    if (child.module == module) return child.name;
  std::string name;
  if (module == this) return name;
  walk([&](const Module& each, const std::string& prefix) {
    if (&each == module) name = prefix.substr(0, prefix.size() - 1);
  });
  return name;
}

void Module::apply(const std::function<void(Module&)>& fn) {
  std::vector<Module*> all;  // first, since fn may change the tree
  walk([&](const Module& module, const std::string&) { all.push_back(const_cast<Module*>(&module)); });
  for (Module* module : all) fn(*module);
}

void detail::check_stack(const char* what) {
  struct Stack {
    uintptr_t low, least;  // its end, and the lowest address that leaves enough
  };
  thread_local const Stack stack = [] {
    pthread_attr_t attributes;
    void* low = nullptr;
    size_t bytes = 0;
    if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return Stack{};
    ::pthread_attr_getstack(&attributes, &low, &bytes);
    ::pthread_attr_destroy(&attributes);
    const auto end = reinterpret_cast<uintptr_t>(low);
    return Stack{end, end + std::min(bytes / 4, size_t{256} << 10)};
  }();
  // Below `low`: a stack of the user's own making, of which nothing is known.
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  TD_CHECK(here >= stack.least || here < stack.low, what,
           ": modules that call each other must fit on the stack of the thread; got too many levels of them. "
           "Nest them "
           "less deep, or call them in a thread with a larger stack.");
}

}  // namespace tandem::nn
