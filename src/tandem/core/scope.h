// Scope: a name for a part of a program, which profiles show (profile/profile.h).
//   {
//     const Scope scope("encoder");
//     h = encode(x);
//   }
// Unless somebody profiles or a callable is being compiled, a scope costs one look at a flag. Modules open scopes of
// their own names. In a compiled callable a scope names the operations traced within it: where these run one by one, a
// profile of a replay shows the scope around them; on a device that replays a recording (a CUDA graph) only kernels are
// seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tandem/core/standard.h"

namespace tandem {

/// A scope that is open, and those around it.
struct ScopeName {
  std::string name;
  std::shared_ptr<const ScopeName> outer;
  int depth = 1;  ///< how many they are, this one included
};
using ScopeChain = std::shared_ptr<const ScopeName>;

namespace detail {
extern std::atomic<int> g_scope_users;  // profiles and traces under way, in all threads
}

class Scope {
 public:
  explicit Scope(std::string_view name) {
    if (detail::g_scope_users.load(std::memory_order_relaxed) != 0) [[unlikely]]
      open(name);
  }
  ~Scope() {
    if (is_open_) [[unlikely]]
      close();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  void open(std::string_view name);
  void close() noexcept;
  ScopeChain previous_;
  int64_t begin_ns_ = 0;
  bool is_open_ = false;
};

/// Whether a scope opened now by this thread would be noted by anybody.
bool scopes_are_noted();
/// The scopes of this thread that are open, the innermost first. Null: none.
const ScopeChain& current_scope();
/// What two pieces of code have in common: the innermost scope around both.
ScopeChain common_scope(const ScopeChain& a, const ScopeChain& b);

/// Hides the scopes around it for as long as it lives: a trace begins with none.
class NoScopes {
 public:
  NoScopes();
  ~NoScopes();
  NoScopes(const NoScopes&) = delete;
  NoScopes& operator=(const NoScopes&) = delete;

 private:
  ScopeChain hidden_;
};

}  // namespace tandem
