// Tensors with names, in order: the fields of a batch, the results of a model, the state that one step leaves for the next.
//   const Named batch{{"input", x}, {"target", y}};
//   batch["target"];
// (nn::NamedTensors, the weights of a model by dotted names, is another thing: thousands of rows that are looked up once.)
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem {

/// A list of names. There is one object for each list in a process, so two lists are equal exactly where their addresses are, and
/// a compiled step compares one pointer.
class Names {
 public:
  /// The object of this list, made at the first call. It is never destroyed. Throws Error where a name is empty or comes twice.
  static const Names& of(std::span<const std::string_view> names);
  static const Names& of(std::span<const std::string> names);
  static const Names& of(std::initializer_list<std::string_view> names) {
    return of(std::span(names.begin(), names.size()));
  }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  size_t size() const { return names_.size(); }
  const std::string& operator[](size_t i) const { return names_[i]; }
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }
  std::optional<size_t> find(std::string_view name) const;
  /// "input, length, target", for messages.
  std::string text() const;

 private:
  explicit Names(std::vector<std::string> names) : names_(std::move(names)) {}
  std::vector<std::string> names_;
};

/// A value may be undefined: an argument that is absent, a result that there is not.
class Named {
 public:
  /// No rows.
  Named();
  Named(std::initializer_list<std::pair<std::string_view, Tensor>> rows);
  /// One value for each name. No string is touched.
  Named(const Names& names, std::vector<Tensor> values);

  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  const Names& names() const { return *names_; }
  const std::vector<Tensor>& values() const { return values_; }

  /// Throws Error with the names that there are. Its value may be undefined.
  const Tensor& operator[](std::string_view name) const;
  /// By its place in the order. Throws Error where there is none.
  const Tensor& operator[](size_t place) const;
  /// Undefined where there is no such name.
  Tensor get(std::string_view name) const;
  /// Whether there is a value of that name, and it is defined.
  bool has(std::string_view name) const;
  /// Another value under a name that there is. Throws Error where there is none.
  void set(std::string_view name, Tensor value);
  /// Other values under the same names.
  void set_values(std::vector<Tensor> values);

 private:
  size_t place_of(std::string_view name) const;
  const Names* names_;
  std::vector<Tensor> values_;
};

}  // namespace tandem
