#include "tandem/core/named.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/mutex.h"

namespace tandem {
namespace {

/// The lists of this process, by their names.
struct Lists {
  Mutex mutex{LockOrder::names};
  std::map<std::vector<std::string>, std::unique_ptr<const Names>> all;
};
Lists& lists() {
  static Lists& of_process = *new Lists;
  return of_process;
}

void check_names(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    TD_CHECK(!names[i].empty(), "names: each must have at least one letter; number ", i + 1, " of ",
             names.size(), " is empty.");
    TD_CHECK(std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) ==
                 names.begin() + static_cast<std::ptrdiff_t>(i),
             "names: each must be given once; got '", one_line(names[i]), "' twice. Rename one of the two.");
  }
}

}  // namespace

const Names& Names::of(std::span<const std::string> names) {
  std::vector<std::string> key(names.begin(), names.end());
  check_names(key);
  Lists& made = lists();
  const std::lock_guard lock(made.mutex);
  std::unique_ptr<const Names>& list = made.all[key];
  if (!list) list.reset(new Names(std::move(key)));
  return *list;
}

const Names& Names::of(std::span<const std::string_view> names) {
  return of(std::span<const std::string>(std::vector<std::string>(names.begin(), names.end())));
}

std::optional<size_t> Names::find(std::string_view name) const {
  for (size_t i = 0; i < names_.size(); ++i)
    if (names_[i] == name) return i;
  return {};
}

std::string Names::text() const {
  std::string out;
  for (const std::string& name : names_) out += (out.empty() ? "" : ", ") + name;
  return out;
}

namespace {

const Names& no_names() {
  static const Names& none = Names::of(std::initializer_list<std::string_view>{});
  return none;
}

const Names& names_of(std::initializer_list<std::pair<std::string_view, Tensor>> rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.first);
  return Names::of(names);
}

}  // namespace

Named::Named() : names_(&no_names()) {}

Named::Named(std::initializer_list<std::pair<std::string_view, Tensor>> rows) : names_(&names_of(rows)) {
  for (const auto& row : rows) values_.push_back(row.second);
}

Named::Named(const Names& names, std::vector<Tensor> values) : names_(&names), values_(std::move(values)) {
  TD_CHECK(values_.size() == names.size(), "named tensors: there must be one value for each name; got ",
           values_.size(), " for the names ", names.text(), ".");
}

size_t Named::place_of(std::string_view name) const {
  const std::optional<size_t> place = names_->find(name);
  TD_CHECK(place, "named tensors: the name must be one of ", empty() ? "none" : names_->text(), "; got '",
           one_line(std::string(name)), "'.");
  return *place;
}

const Tensor& Named::operator[](std::string_view name) const { return values_[place_of(name)]; }

const Tensor& Named::operator[](size_t place) const {
  TD_CHECK(place < values_.size(), "named tensors: the place must be below ", values_.size(), "; got ", place,
           ". The names are ", empty() ? "none" : names_->text(), ".");
  return values_[place];
}

Tensor Named::get(std::string_view name) const {
  const std::optional<size_t> place = names_->find(name);
  return place ? values_[*place] : Tensor();
}

bool Named::has(std::string_view name) const { return get(name).defined(); }

void Named::set(std::string_view name, Tensor value) { values_[place_of(name)] = std::move(value); }

void Named::set_values(std::vector<Tensor> values) { *this = Named(*names_, std::move(values)); }

}  // namespace tandem
