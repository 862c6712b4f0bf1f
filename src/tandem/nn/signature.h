// What a module takes and gives, by name. Most take one tensor and give one, and say nothing. A model of several declares their
// names once, and is then called by position or by name:
//   struct Reader : nn::Model<Reader> {
//     static constexpr auto arguments = nn::names("ids", "segments?", "mask?");
//     static constexpr auto results = nn::names("logits");   // may be left out: "output", or "output 1" and so on
//     using Model::forward;
//     Tensor forward(const Tensor& ids, const Tensor& segments, const Tensor& mask);
//   };
//   reader(ids, segments, mask);
//   reader(Named{{"ids", ids}, {"mask", mask}})["logits"];
// An argument with a question mark is optional: where it is absent, forward gets an undefined tensor.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/core/named.h"
#include "tandem/nn/module.h"

namespace tandem::nn {

/// The names of arguments or of results, for a class to declare.
template <class... T>
constexpr std::array<std::string_view, sizeof...(T)> names(const T&... each) {
  return {std::string_view(each)...};
}

class Signature {
 public:
  /// An argument whose name ends in a question mark is optional.
  Signature(std::span<const std::string_view> arguments, std::span<const std::string_view> results);
  const Names& arguments() const { return *arguments_; }
  const Names& results() const { return *results_; }
  bool is_optional(size_t argument) const { return optional_[argument]; }

  /// The arguments in order, from tensors with names; absent ones are undefined. The one tensor that a module of one argument is given
  /// may have any name. Throws Error where one is missing or nobody asks for one; `who` begins the message.
  std::vector<Tensor> bind(const Named& given, const std::string& who) const;
  /// Only the rows that the signature names.
  Named taken_from(const Named& given) const;

 private:
  const Names *arguments_, *results_;
  std::vector<bool> optional_;
};

namespace detail {

/// Stands for a Tensor in the check of how many forward takes.
template <size_t>
using TensorAt = const Tensor&;

template <class Self, size_t... i>
constexpr bool takes(std::index_sequence<i...>) {
  return requires(Self & self, const Tensor& t) { self.forward(static_cast<TensorAt<i>>(t)...); };
}

/// The results of a forward as a list: a Tensor, a list, or a struct of tensors.
template <size_t count, class Result>
std::vector<Tensor> as_list(Result&& result) {
  using Plain = std::remove_cvref_t<Result>;
  if constexpr (std::is_same_v<Plain, Tensor>) {
    return {std::forward<Result>(result)};
  } else if constexpr (std::is_same_v<Plain, std::vector<Tensor>>) {
    return std::forward<Result>(result);
  } else if constexpr (count == 2) {
    auto& [a, b] = result;
    return {a, b};
  } else if constexpr (count == 3) {
    auto& [a, b, c] = result;
    return {a, b, c};
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = result;
    return {a, b, c, d};
  } else {
    static_assert(count == 5,
                  "Model: a struct of results has two to five tensors, one for each name of 'results'");
    auto& [a, b, c, d, e] = result;
    return {a, b, c, d, e};
  }
}

template <class Result, size_t... i>
Result from_list(std::vector<Tensor> list, std::index_sequence<i...>) {
  if constexpr (std::is_same_v<Result, Tensor>)
    return std::move(list[0]);
  else if constexpr (std::is_same_v<Result, std::vector<Tensor>>)
    return list;
  else
    return Result{std::move(list[i])...};
}

}  // namespace detail

/// A module of several inputs or results: the base of a class `Self` that declares `arguments` and, where it has several results or
/// names them, `results`.
template <class Self>
class Model : public Module {
 public:
  using Module::forward;
  using Module::Module;

  const Signature& signature() const override {
    static const Signature& of_class = *new Signature(Self::arguments, results_of_class());
    return of_class;
  }
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    return forward_list(in, std::make_index_sequence<Self::arguments.size()>());
  }
  std::vector<Tensor> operator()(const std::vector<Tensor>& in) { return Module::operator()(in); }
  Named operator()(const Named& in) { return Module::operator()(in); }
  /// By position, with the results as forward gives them. Optional arguments at the end may be left out.
  template <class... T>
  requires(sizeof...(T) > 0 && (std::is_same_v<T, Tensor> && ...)) auto operator()(const T&... in) {
    using Result =
        decltype(forward_typed(std::vector<Tensor>(), std::make_index_sequence<Self::arguments.size()>()));
    static_assert(sizeof...(T) <= Self::arguments.size(), "Model: more tensors than 'arguments' has names");
    return detail::from_list<Result>((*this)(std::vector<Tensor>{in...}),
                                     std::make_index_sequence<result_count()>());
  }

 private:
  template <size_t... i>
  auto forward_typed(const std::vector<Tensor>& in, std::index_sequence<i...>) {
    return static_cast<Self&>(*this).forward(in[i]...);
  }
  template <size_t... i>
  std::vector<Tensor> forward_list(const std::vector<Tensor>& in, std::index_sequence<i...> places) {
    static_assert(detail::takes<Self>(std::index_sequence<i...>()),
                  "Model: forward must take one const Tensor& for each name of 'arguments'");
    return detail::as_list<result_count()>(forward_typed(with_absent(in), places));
  }
  static constexpr size_t result_count() {
    if constexpr (requires { Self::results; })
      return Self::results.size();
    else
      return 1;
  }
  static std::span<const std::string_view> results_of_class() {
    if constexpr (requires { Self::results; }) {
      return Self::results;
    } else {
      static constexpr std::array<std::string_view, 1> one = {"output"};
      return one;
    }
  }
  /// Adds undefined tensors for optional arguments at the end that were left out; throws Error where others are.
  std::vector<Tensor> with_absent(const std::vector<Tensor>& in) const;
};

namespace detail {
std::vector<Tensor> with_absent_arguments(const Module& module, const std::vector<Tensor>& in);
}

template <class Self>
std::vector<Tensor> Model<Self>::with_absent(const std::vector<Tensor>& in) const {
  return detail::with_absent_arguments(*this, in);
}

}  // namespace tandem::nn
