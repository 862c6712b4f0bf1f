// Settings whose values have a form of their own.
#include "tandem/train/setting_forms.h"

#include <cmath>

#include "tandem/core/backend.h"
#include "tandem/core/error.h"

namespace tandem {
namespace {

/// Of a text: `print` gives it (empty: not set), `parse` takes it.
template <class Print, class Parse>
SettingForm text_form(Print print, Parse parse) {
  return {[print](const TrainConfig& c) {
            const std::string text = print(c);
            return text.empty() ? SettingValue() : SettingValue(text);
          },
          [parse](TrainConfig& c, const SettingValue& v) { parse(c, std::get<std::string>(v)); }};
}

/// "96x128": height and width; "96": both.
std::array<int64_t, 2> parse_size(const std::string& text) {
  const size_t cross = text.find('x');
  const auto number = [](const std::string& digits) {
    const bool is_plain =
        !digits.empty() && digits.size() <= 6 && digits.find_first_not_of("0123456789") == std::string::npos;
    return is_plain ? std::stoll(digits) : 0;
  };
  const int64_t height = number(text.substr(0, cross));
  const int64_t width = cross == std::string::npos ? height : number(text.substr(cross + 1));
  TD_CHECK(height >= 1 && width >= 1, "input: must be a height and a width like 96x96; got '", text, "'.");
  return {height, width};
}

/// What --dtype says of a configuration; empty: nothing.
std::string dtype_text(const TrainConfig& c) {
  if (c.autocast) return name(*c.autocast);
  if (c.dtype != DType::f32) return name(c.dtype);
  return c.machine.tf32 ? *c.machine.tf32 ? "tf32" : "f32" : "";
}

/// bf16 and f16 are those of products; --half-model comes after and makes them the model's.
void set_dtype(TrainConfig& c, const std::string& text) {
  TD_CHECK(text == "f32" || text == "tf32" || text == "bf16" || text == "f16" || text == "f64",
           "dtype: must be f32, tf32, bf16, f16 or f64; got '", text, "'.");
  c.dtype = text == "f64" ? DType::f64 : DType::f32;
  c.autocast.reset();
  c.machine.tf32.reset();
  if (text == "bf16" || text == "f16") c.autocast = parse_dtype(text);
  if (text == "f32" || text == "tf32") c.machine.tf32 = text == "tf32";
}

bool is_half_model(const TrainConfig& c) { return c.dtype == DType::bf16 || c.dtype == DType::f16; }

void set_half_model(TrainConfig& c, bool is_on) {
  const std::string dtype = dtype_text(c);
  TD_CHECK(!is_on || dtype == "bf16" || dtype == "f16", "half-model: goes with `dtype` bf16 or f16; got ",
           dtype.empty() ? "none" : dtype, ".");
  if (!is_on || !c.autocast) return;
  c.dtype = *c.autocast;
  c.autocast.reset();
}

std::string choice_text(const std::optional<ChoiceMode>& mode) { return mode ? name(*mode) : ""; }

}  // namespace

SettingForm recipe_form() {
  return text_form([](const TrainConfig&) { return ""; },
                   [](TrainConfig& c, const std::string& text) {
                     const SettingValues values = recipe(c.model, text);
                     if (text == kRecipes[0]) return;  // the defaults
                     c.clip_norm.reset();
                     for (const auto& [name, value] : values) setting(name).set(c, value);
                   });
}

SettingForm input_form() {
  return text_form([](const TrainConfig& c) { return c.input ? str((*c.input)[0], "x", (*c.input)[1]) : ""; },
                   [](TrainConfig& c, const std::string& text) { c.input = parse_size(text); });
}

SettingForm schedule_by_form() {
  return text_form(
      [](const TrainConfig& c) {
        return !c.schedule.by_epoch ? "" : *c.schedule.by_epoch ? "epoch" : "step";
      },
      [](TrainConfig& c, const std::string& text) {
        TD_CHECK(text == "step" || text == "epoch", "schedule-by: must be step or epoch; got '", text, "'.");
        c.schedule.by_epoch = text == "epoch";
      });
}

SettingForm monitor_form() {
  return text_form([](const TrainConfig& c) { return c.monitor; },
                   [](TrainConfig& c, const std::string& text) { c.monitor = c.schedule.monitor = text; });
}

SettingForm time_budget_form() {
  return text_form(
      [](const TrainConfig& c) { return c.time_budget ? text_of(*c.time_budget) + "s" : ""; },
      [](TrainConfig& c, const std::string& text) { c.time_budget = parse_duration("time-budget", text); });
}

SettingForm engine_form() {
  return text_form([](const TrainConfig& c) { return name(c.engine); },
                   [](TrainConfig& c, const std::string& text) { c.engine = parse_engine(text); });
}

SettingForm device_form() {
  return text_form([](const TrainConfig& c) { return to_string(c.device); },
                   [](TrainConfig& c, const std::string& text) { c.device = parse_device(text); });
}

SettingForm dtype_form() { return text_form(dtype_text, set_dtype); }

SettingForm half_model_form() {
  return {[](const TrainConfig& c) { return SettingValue(is_half_model(c)); },
          [](TrainConfig& c, const SettingValue& v) { set_half_model(c, std::get<bool>(v)); },
          SettingKind::toggle};
}

SettingForm conv_form() {
  return text_form([](const TrainConfig& c) { return choice_text(c.machine.conv); },
                   [](TrainConfig& c, const std::string& text) { c.machine.conv = parse_choice_mode(text); });
}

SettingForm matmul_form() {
  return text_form(
      [](const TrainConfig& c) { return choice_text(c.machine.matmul); },
      [](TrainConfig& c, const std::string& text) { c.machine.matmul = parse_choice_mode(text, "matmul"); });
}

}  // namespace tandem
