// Parameters, their coordinates and the rules of their values.
#include "tandem/search/space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/nearest.h"
#include "tandem/core/shortest.h"
#include "tandem/optim/optimizer.h"

namespace tandem::search {
namespace {

constexpr size_t kMostValues = 100;

/// Four digits are enough for a setting, and are what the run gets.
double rounded(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::general, 4).ptr;
  double out = value;
  std::from_chars(buffer, end, out);
  return out;
}

double number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : std::nan("");
}

size_t place(const Parameter& p, double coordinate) {
  const auto last = static_cast<double>(p.values.size() - 1);
  return static_cast<size_t>(std::clamp(std::round(coordinate), 0.0, last));
}

std::vector<std::string> optimizer_list() {
  std::vector<std::string> names;
  for (const optim::OptimizerInfo& row : optim::optimizers()) names.push_back(row.name);
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

const ParameterRule& rule_of(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const ParameterRule& rule : parameter_rules()) {
    if (rule.name == name) return rule;
    names.emplace_back(rule.name);
  }
  throw Error(str(where, ": a parameter must be one of ", joined(names), "; got '", one_line(name, 60), "'.",
                  did_you_mean(name, names)));
}

void check_value(const ParameterRule& rule, const std::string& value, const std::string& where) {
  if (rule.any_word) return;
  if (!rule.words.empty()) {
    const bool known = std::find(rule.words.begin(), rule.words.end(), value) != rule.words.end();
    TD_CHECK(known, where, ": ", rule.name, " must be one of ", joined(rule.words), "; got '",
             one_line(value, 60), "'.", did_you_mean(value, rule.words));
    return;
  }
  const double number = number_of(value);
  TD_CHECK(number >= rule.least && number <= rule.most && (!rule.whole || number == std::floor(number)),
           where, ": ", rule.name, " must be ", rule.whole ? "whole numbers" : "numbers", " from ",
           rule.least, " to ", rule.most, "; got ", one_line(value, 60), ".");
}

}  // namespace

std::string Parameter::text(double coordinate) const {
  return is_list() ? values[place(*this, coordinate)] : shortest(number(coordinate));
}

double Parameter::number(double coordinate) const {
  if (is_list()) return number_of(values[place(*this, coordinate)]);
  const double u = std::clamp(coordinate, 0.0, 1.0);
  if (scale == Scale::whole)  // each number has an equal share of 0 … 1
    return std::min(high, low + std::floor(u * (high - low + 1)));
  const double value =
      scale == Scale::log ? low * std::exp(u * std::log(high / low)) : low + u * (high - low);
  return std::clamp(rounded(value), low, high);
}

double Parameter::nearest(const std::string& value) const {
  const double wanted = number_of(value);
  if (is_list()) {
    size_t best = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == value) return static_cast<double>(i);
      const double gap = std::abs(number_of(values[i]) - wanted);
      if (gap < std::abs(number_of(values[best]) - wanted)) best = i;
    }
    return static_cast<double>(best);
  }
  if (std::isnan(wanted) || low == high) return 0.5;
  const double inside = std::clamp(wanted, low, high);
  if (scale == Scale::whole) return (inside - low + 0.5) / (high - low + 1);
  return scale == Scale::log ? std::log(inside / low) / std::log(high / low) : (inside - low) / (high - low);
}

const Parameter* Space::find(const std::string& name) const {
  for (const Parameter& p : parameters)
    if (p.name == name) return &p;
  return nullptr;
}

Settings Space::settings(const Point& point) const {
  Settings out;
  for (size_t i = 0; i < parameters.size(); ++i)
    out.emplace_back(parameters[i].name, parameters[i].text(point[i]));
  return out;
}

Point Space::nearest(const Settings& values) const {
  Point point;
  for (const Parameter& p : parameters) {
    double coordinate = p.is_list() ? std::floor(static_cast<double>(p.values.size() - 1) / 2) : 0.5;
    for (const auto& [name, value] : values)
      if (name == p.name) coordinate = p.nearest(value);
    point.push_back(coordinate);
  }
  return point;
}

std::string Space::to_toml() const {
  std::string out;
  for (const Parameter& p : parameters) {
    out += p.name + " = ";
    if (p.is_list()) {
      std::string list;
      for (const std::string& value : p.values) {
        const bool bare = value == "true" || value == "false" || !std::isnan(number_of(value));
        list += (list.empty() ? "" : ", ") + (bare ? value : "\"" + value + "\"");
      }
      out += "[" + list + "]\n";
    } else {
      out += str("{ low = ", shortest(p.low), ", high = ", shortest(p.high),
                 p.scale == Scale::log ? ", scale = \"log\"" : "", " }\n");
    }
  }
  return out;
}

const std::vector<ParameterRule>& parameter_rules() {
  static const auto& rules = *new std::vector<ParameterRule>{
      {.name = "model", .meaning = "names of the zoo, or descriptions", .any_word = true, .of_model = true},
      {.name = "lr", .meaning = "learning rate", .least = 1e-12, .most = 1e6},
      {.name = "lr_factor",
       .meaning = "the same in multiples of the optimizer's own default",
       .least = 1e-9,
       .most = 1e9},
      {.name = "batch", .meaning = "samples per step", .least = 1, .most = 1e9, .whole = true},
      {.name = "optimizer", .meaning = "by name", .words = optimizer_list()},
      {.name = "schedule",
       .meaning = "of the rate",
       .words = {"constant", "step", "exponential", "cosine", "one-cycle", "plateau"}},
      {.name = "weight_decay", .meaning = "of the optimizer", .least = 0, .most = 1e6},
      {.name = "momentum", .meaning = "of the optimizers that take one", .least = 0, .most = 0.9999},
      {.name = "clip_norm", .meaning = "largest norm of the gradients", .least = 1e-9, .most = 1e9},
      {.name = "width",
       .meaning = "factor on the channels and outputs of hidden layers",
       .least = 0.01,
       .most = 100,
       .of_model = true},
      {.name = "depth",
       .meaning = "how often each block stands",
       .least = 1,
       .most = 100,
       .whole = true,
       .of_model = true},
      {.name = "activation",
       .meaning = "of the hidden layers",
       .words = {"relu", "gelu", "silu", "tanh", "leaky_relu", "elu", "selu", "mish", "hardswish", "sigmoid"},
       .of_model = true},
      {.name = "dropout",
       .meaning = "probability of all dropout layers",
       .least = 0,
       .most = 0.99,
       .of_model = true},
      {.name = "batch_norm",
       .meaning = "after each convolution and hidden dense layer, or nowhere",
       .words = {"false", "true"},
       .of_model = true},
  };
  return rules;
}

void check(const Space& space, const std::string& where) {
  TD_CHECK(
      !space.parameters.empty(), where,
      ": must have a parameter; got none. Write one, like lr = { low = 1e-4, high = 0.1, scale = \"log\" }.");
  std::set<std::string> names;
  for (const Parameter& p : space.parameters) {
    const ParameterRule& rule = rule_of(p.name, where);
    TD_CHECK(names.insert(p.name).second, where, ": a parameter must be given once; got ", p.name, " twice.");
    if (p.is_list()) {
      TD_CHECK(!p.values.empty() && p.values.size() <= kMostValues, where, ": ", p.name, " must list 1 to ",
               kMostValues, " values; got ", p.values.size(), ".");
      std::set<std::string> seen;
      for (const std::string& value : p.values) {
        check_value(rule, value, where);
        TD_CHECK(seen.insert(value).second, where, ": ", p.name, " must list a value once; got ",
                 one_line(value, 60), " twice.");
      }
      continue;
    }
    TD_CHECK(rule.words.empty() && !rule.any_word, where, ": ", p.name,
             " must be a list of words; got a range. Write ", p.name, " = [\"…\", \"…\"].");
    check_value(rule, shortest(p.low), where);
    check_value(rule, shortest(p.high), where);
    TD_CHECK(p.low < p.high, where, ": the low end of ", p.name, " must be below the high one; got ", p.low,
             " and ", p.high, ".");
    TD_CHECK(p.scale != Scale::log || p.low > 0, where, ": ", p.name,
             " on a log scale must begin above 0; got low = ", p.low, ".");
    TD_CHECK((p.scale == Scale::whole) == rule.whole, where, ": ", p.name, " must be ",
             rule.whole ? "a range of whole numbers" : "a range of numbers", "; got another.");
  }
  TD_CHECK(!names.contains("lr") || !names.contains("lr_factor"), where,
           ": lr and lr_factor say the same; got both. Leave one out.");
}

Space default_space(bool of_model) {
  const auto list = [](const char* name, Scale scale, std::vector<std::string> values) {
    return Parameter{.name = name, .scale = scale, .values = std::move(values)};
  };
  Space space{{{.name = "lr_factor", .scale = Scale::log, .low = 0.1, .high = 30},
               list("batch", Scale::ordered, {"32", "64", "128", "256"}),
               list("optimizer", Scale::choice, {"sgd", "nesterov", "adam", "adamw"}),
               list("schedule", Scale::choice, {"constant", "cosine", "one-cycle"}),
               list("weight_decay", Scale::ordered, {"0", "1e-5", "1e-4", "1e-3", "1e-2"}),
               {.name = "momentum", .scale = Scale::linear, .low = 0.8, .high = 0.98}}};
  if (!of_model) return space;
  for (Parameter& p :
       std::vector<Parameter>{{.name = "width", .scale = Scale::log, .low = 0.5, .high = 2},
                              {.name = "depth", .scale = Scale::whole, .low = 1, .high = 2},
                              list("activation", Scale::choice, {"relu", "gelu", "silu", "tanh"}),
                              {.name = "dropout", .scale = Scale::linear, .low = 0, .high = 0.5},
                              list("batch_norm", Scale::choice, {"false", "true"})})
    space.parameters.push_back(std::move(p));
  return space;
}

}  // namespace tandem::search
