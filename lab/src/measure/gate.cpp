#include "lab/src/measure/gate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lab/src/study/table.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

// ResNet-18 on CIFAR-10 with six seeds: f32 of two frameworks was up to 3.2 times as far off as the reference with moved
// samples, a learning rate 20 % too high 11 to 103 times.
constexpr double kDriftShare = 10, kMostDrift = 0.3;
constexpr double kMostLevels = 4, kMeanLevels = 0.75;  // of 256, by which decoders may differ

std::string number(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.9g", value);
  return buffer;
}

/// Keeps the number that lies farthest outside of its tolerance.
class Worst {
 public:
  void add(const std::string& what, double reference, double system, double scale, double tolerance) {
    const double error = std::abs(system - reference) / scale;
    const double share = std::isfinite(error) ? error / tolerance : INFINITY;
    if (share <= share_) return;
    share_ = share;
    result_ = {share <= 1, what, reference, system, error, tolerance};
  }
  GateResult result() const { return result_; }

 private:
  double share_ = -1;
  GateResult result_;
};

GateResult different(const std::string& what, double reference, double system) {
  return {false, what, reference, system, std::abs(system - reference), 0};
}

/// What no two numbers can say.
GateResult in_words(const std::string& sentence) { return {false, sentence, NAN, NAN, NAN, NAN}; }

std::vector<std::string> names_of(const auto& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

/// What is different in names and shapes of the outputs; nothing where they are the same.
std::optional<GateResult> other_outputs(const Checked& reference, const Checked& system) {
  for (const auto& [name, wanted] : reference.outputs) {
    const auto found = system.outputs.find(name);
    if (found == system.outputs.end()) return in_words(str("the output ", name, " is missing"));
    if (found->second.shape != wanted.shape)
      return in_words(str("the output ", name, " must have the shape ", Json(wanted.shape).dump(), "; got ",
                          Json(found->second.shape).dump()));
  }
  for (const auto& [name, output] : system.outputs)
    if (!reference.outputs.count(name))
      return in_words(str("the network has no output ", io::one_line(name, 60), "; its outputs are ",
                          listed(names_of(reference.outputs))));
  return {};
}

}  // namespace

Tolerance tolerance(const std::string& precision) {
  if (precision == "f64") return {1e-7, 1e-7, 1e-6, 1e-6};
  if (precision == "f32") return {1e-4, 1e-4, 5e-3, 2e-4};
  if (precision == "tf32") return {5e-3, 5e-3, 3e-2, 2e-2};
  if (precision == "f16") return {1e-2, 1e-2, 5e-2, 3e-2};
  if (precision == "bf16") return {5e-2, 3e-2, 1e-1, 6e-2};
  throw Error(str("gate: the precision must be f64, f32, tf32, f16 or bf16; got '",
                  io::one_line(precision, 40), "'. Fix the study."));
}

bool GateResult::is_in_words() const { return std::isnan(error) && std::isnan(tolerance); }

std::string GateResult::why() const {
  if (passed)
    return str("the same ", kind, "; farthest out is ", what, ": ", number(system), ", reference ",
               number(reference));
  if (is_in_words()) return str("not the same ", kind, ": ", what);
  std::string text =
      str("not the same ", kind, ": ", what, " is ", number(system), " and must be ", number(reference));
  if (tolerance > 0) text += str(" (off by ", number(error), ", allowed ", number(tolerance), ")");
  return text;
}

Json GateResult::to_json() const {
  return {{"passed", passed},
          {"kind", kind},
          {"worst",
           {{"what", what},
            {"reference", reference},
            {"system", system},
            {"error", error},
            {"tolerance", tolerance}}}};
}

std::optional<double> moved_by(const std::string& precision) {
  if (precision == "f32") return 0x1p-19;
  if (precision == "tf32" || precision == "f16") return 0x1p-6;
  if (precision == "bf16") return 0x1p-3;
  return {};
}

GateResult compare(const Checked& reference, const Checked& system, const std::string& precision,
                   bool training, const std::vector<Checked>& moved) {
  if (system.parameters != reference.parameters)
    return different("the number of parameters", static_cast<double>(reference.parameters),
                     static_cast<double>(system.parameters));
  const Tolerance allowed = tolerance(precision);
  Worst worst;
  // How far the reference itself is off where its samples are moved; `value` reads the number out of an answer.
  const auto drift_of = [&](double value_there, double scale, const auto& value) {
    double drift = 0;
    for (const Checked& each : moved) drift = std::max(drift, std::abs(value(each) - value_there) / scale);
    return drift;
  };
  const auto widened = [](double tolerance, double drift) {
    return std::max(tolerance, std::min(kMostDrift, kDriftShare * drift));
  };
  if (const auto found = other_outputs(reference, system)) return *found;
  for (const auto& [name, wanted] : reference.outputs) {
    const std::vector<double>& values = system.outputs.at(name).values;
    double largest = 1;
    for (const double value : wanted.values) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < wanted.values.size(); ++i)
      worst.add(
          str("outputs ", name, "[", i, "]"), wanted.values[i], values[i], largest,
          widened(allowed.outputs, drift_of(wanted.values[i], largest, [&, &name = name](const Checked& c) {
                    return c.outputs.at(name).values.at(i);
                  })));
  }
  if (!training) return worst.result();

  const double loss_scale = std::max(1e-3, std::abs(reference.loss));
  worst.add(
      "loss", reference.loss, system.loss, loss_scale,
      widened(allowed.loss, drift_of(reference.loss, loss_scale, [](const Checked& c) { return c.loss; })));
  double norm = 0;
  for (const auto& [name, value] : reference.gradients) norm = std::max(norm, value);
  for (const auto& [name, value] : reference.gradients) {
    const auto at = system.gradients.find(name);
    if (at == system.gradients.end()) return in_words(str("the gradient of ", name, " is missing"));
    // A norm that is nearly zero by cancellation (a bias before a batch normalisation) is all rounding: it is judged by the
    // size of the others.
    const double scale = value + 1e-3 * norm;
    worst.add("gradients " + name, value, at->second, scale,
              widened(allowed.gradients,
                      drift_of(value, scale, [&](const Checked& c) { return c.gradients.at(name); })));
  }
  for (const auto& [name, value] : system.gradients)
    if (!reference.gradients.count(name))
      return in_words(
          str("there is a gradient of ", io::one_line(name, 60), ", and the network has no such parameter"));
  if (system.losses.size() != reference.losses.size())
    return different("the number of losses", static_cast<double>(reference.losses.size()),
                     static_cast<double>(system.losses.size()));
  // What drifted in one step has not come back in the next, even where the losses happen to meet.
  double drift = 0;
  for (size_t i = 0; i < reference.losses.size(); ++i) {
    const double scale = std::max(1e-3, std::abs(reference.losses[i]));
    drift = std::max(drift,
                     drift_of(reference.losses[i], scale, [&](const Checked& c) { return c.losses.at(i); }));
    worst.add(str("losses[", i, "]"), reference.losses[i], system.losses[i], scale,
              widened(allowed.losses, drift));
  }
  return worst.result();
}

GateResult compare_samples(const Checked& reference, const Checked& system, double level) {
  const auto of_samples = [](GateResult result) {
    result.kind = "samples";
    return result;
  };
  if (const auto found = other_outputs(reference, system)) return of_samples(*found);
  Worst worst;
  for (const auto& [name, wanted] : reference.outputs) {
    const std::vector<double>& values = system.outputs.at(name).values;
    double apart = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      worst.add(str(name, "[", i, "]"), wanted.values[i], values[i], 1, kMostLevels * level);
      apart += std::abs(values[i] - wanted.values[i]);
    }
    worst.add(str("the mean difference of ", name), 0, apart / static_cast<double>(values.size()), 1,
              kMeanLevels * level);
  }
  return of_samples(worst.result());
}

}  // namespace tandem::lab
