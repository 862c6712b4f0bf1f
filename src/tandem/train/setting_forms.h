// Settings whose values have a form of their own: "96x96", "1.5h", --dtype with --half-model …
#pragma once

#include "tandem/train/settings.h"

namespace tandem {

/// How a value is read from a configuration and put into it (Setting::get, set).
struct SettingForm {
  std::function<SettingValue(const TrainConfig&)> get;
  std::function<void(TrainConfig&, const SettingValue&)> set;
  SettingKind kind = SettingKind::text;
};

SettingForm recipe_form();       ///< sets others, and is not kept itself
SettingForm input_form();        ///< 96x128, or 96 for both
SettingForm schedule_by_form();  ///< step or epoch
SettingForm monitor_form();      ///< of early stop and best, and of the schedule
SettingForm time_budget_form();  ///< 90, 90s, 10m, 1.5h
SettingForm engine_form();
SettingForm device_form();
SettingForm dtype_form();       ///< of the model or of its products, and whether those are rounded to tf32
SettingForm half_model_form();  ///< comes after dtype
SettingForm conv_form();
SettingForm matmul_form();

}  // namespace tandem
