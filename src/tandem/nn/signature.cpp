#include "tandem/nn/signature.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/nearest.h"

namespace tandem::nn {

Signature::Signature(std::span<const std::string_view> arguments, std::span<const std::string_view> results)
    : results_(&Names::of(results)) {
  std::vector<std::string_view> plain;
  for (std::string_view name : arguments) {
    optional_.push_back(name.ends_with('?'));
    if (optional_.back()) name.remove_suffix(1);
    plain.push_back(name);
  }
  arguments_ = &Names::of(plain);
}

std::vector<Tensor> Signature::bind(const Named& given, const std::string& who) const {
  if (arguments_->size() == 1 && given.size() == 1) return given.values();
  const std::vector<std::string> known(arguments_->begin(), arguments_->end());
  for (const std::string& name : given.names())
    TD_CHECK(arguments_->find(name), who, ": its arguments are ", arguments_->text(), "; got '",
             one_line(name), "'.", did_you_mean(name, known));
  std::vector<Tensor> in;
  for (size_t i = 0; i < arguments_->size(); ++i) {
    in.push_back(given.get((*arguments_)[i]));
    TD_CHECK(in.back().defined() || optional_[i], who, ": the argument '", (*arguments_)[i],
             "' must be given; got ", given.empty() ? "none" : given.names().text(), ".");
  }
  return in;
}

Named Signature::taken_from(const Named& given) const {
  std::vector<std::string> names;
  std::vector<Tensor> values;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!arguments_->find(given.names()[i])) continue;
    names.push_back(given.names()[i]);
    values.push_back(given.values()[i]);
  }
  return {Names::of(names), std::move(values)};
}

std::vector<Tensor> detail::with_absent_arguments(const Module& module, const std::vector<Tensor>& in) {
  const Signature& signature = module.signature();
  const Names& names = signature.arguments();
  TD_CHECK(in.size() <= names.size(), module.type_name(), ": takes ", names.size(), " tensors (",
           names.text(), "); got ", in.size(), ".");
  std::vector<Tensor> all = in;
  all.resize(names.size());
  for (size_t i = 0; i < all.size(); ++i)
    TD_CHECK(all[i].defined() || signature.is_optional(i), module.type_name(), ": takes ", names.text(),
             "; got ", in.size(), " tensors without '", names[i], "'.");
  return all;
}

}  // namespace tandem::nn
