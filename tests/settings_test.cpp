// The table of settings: flags, files, JSON, the struct, the help and the page say the same; what bits depend on must be
// repeated at a resume.
// ctest: timeout=300
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "tandem/train/settings.h"
#include "tandem/train/train.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;
using testing::ProcessResult;
using testing::run_command;
using testing::TempFolder;
using Texts = std::map<std::string, std::string>;

/// Another value than the default for every setting, and what belongs beside it.
struct Sample {
  std::string text;
  Texts beside = {};
};
const std::map<std::string, Sample> kSamples = {
    {"model", {"lenet"}},
    {"recipe", {"paper", {{"model", "lenet"}}}},
    {"model-settings", {"embedding=64,zoneout=0"}},
    {"weights", {"runs/first"}},
    {"freeze", {"*.bias"}},
    {"data", {"digits"}},
    {"data-dir", {"a folder/of \"mine\""}},
    {"target", {"price"}},
    {"task", {"regression"}},
    {"input", {"96x128"}},
    {"test-share", {"0.3"}},
    {"valid", {"0.2"}},
    {"split-seed", {"5", {{"valid", "0.2"}}}},
    {"limit", {"30"}},
    {"augment", {"true"}},
    {"class-weights", {"true"}},
    {"guided-attention", {"0.5"}},
    {"skip-bad", {"true"}},
    {"delimiter", {"|"}},
    {"no-header", {"true"}},
    {"missing", {"-,none"}},
    {"categories", {"zip"}},
    {"keep-columns", {"name,note"}},
    {"ignore-columns", {"id"}},
    {"day-first", {"born"}},
    {"month-first", {"born"}},
    {"max-values", {"9"}},
    {"text", {"body"}},
    {"tokens", {"bpe"}},
    {"vocabulary", {"300"}},
    {"source", {"en"}},
    {"min-count", {"3"}},
    {"length", {"20"}},
    {"epochs", {"2"}},
    {"steps", {"3"}},
    {"batch", {"7"}},
    {"accumulate", {"2"}},
    {"optimizer", {"nesterov"}},
    {"lr", {"0.1"}},
    {"momentum", {"0.5"}},
    {"weight-decay", {"1e-05"}},
    {"decoupled", {"false", {{"weight-decay", "0.1"}}}},
    {"no-decay", {"*.bias,fc1", {{"weight-decay", "0.1"}}}},
    {"clip-value", {"2"}},
    {"clip-norm", {"0.5"}},
    {"ema", {"0.9"}},
    {"ema-warmup", {"true", {{"ema", "0.9"}}}},
    {"allow-unused", {"true"}},
    {"seed", {"18446744073709551615"}},
    {"schedule", {"cosine"}},
    {"schedule-by", {"epoch", {{"schedule", "cosine"}}}},
    {"schedule-length", {"9", {{"schedule", "cosine"}}}},
    {"warmup", {"3"}},
    {"decay-every", {"2", {{"schedule", "step"}}}},
    {"decay-factor", {"0.3", {{"schedule", "step"}}}},
    {"least-lr", {"0.001", {{"schedule", "cosine"}}}},
    {"patience", {"2", {{"schedule", "plateau"}}}},
    {"monitor", {"train_loss", {{"schedule", "plateau"}}}},
    {"early-stop", {"4"}},
    {"min-delta", {"0.25", {{"early-stop", "4"}}}},
    {"restore-best", {"true", {{"early-stop", "4"}}}},
    {"time-budget", {"5400s"}},
    {"engine", {"eager"}},
    {"device", {"cpu:1"}},
    {"dtype", {"bf16"}},
    {"half-model", {"true", {{"dtype", "bf16"}}}},
    {"conv", {"fixed"}},
    {"conv-workspace", {"1024"}},
    {"matmul", {"fixed"}},
    {"workers", {"3"}},
    {"threads", {"2"}},
    {"out", {"runs/it's here"}},
    {"resume", {"true"}},
    {"checkpoint-every", {"1"}},
    {"best", {"true"}},
    {"tensorboard", {"true"}},
    {"anomaly", {"true"}},
};

SettingValues values_of(const Texts& texts) {
  SettingValues values;
  for (const auto& [name, text] : texts) values[name] = parse_setting(setting(name), text);
  return values;
}
std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Settings, EachHasASampleHereAndARowOfItsOwn) {
  std::set<std::string> names;
  for (const Setting& s : settings()) {
    EXPECT_TRUE(names.insert(s.name).second) << s.name;
    EXPECT_TRUE(kSamples.contains(s.name)) << s.name << ": add a sample to kSamples";
    EXPECT_FALSE(s.help.empty()) << s.name;
    EXPECT_EQ(s.help.find('\n'), std::string::npos) << s.name;
  }
  EXPECT_EQ(names.size(), kSamples.size());
}

TEST(Settings, GoThroughTheStructAFileAndJsonUnchanged) {
  for (const auto& [name, sample] : kSamples) {
    if (name == "recipe") continue;  // what comes of it is kept: TheRecipeOfThePaper… below
    Texts texts = sample.beside;
    texts[name] = sample.text;
    const SettingValues values = values_of(texts);
    const TrainConfig config = make_config(values);
    EXPECT_EQ(text_of(setting(name).get(config)), sample.text) << name;
    EXPECT_NE(setting(name).get(config), default_of(setting(name))) << name;
    EXPECT_EQ(given_settings(config), values) << name;
    EXPECT_EQ(parse_settings(settings_toml(config), "written"), values) << name << "\n"
                                                                        << settings_toml(config);
    const auto json = ordered_json::parse(settings_object(config));
    ASSERT_TRUE(json.contains(name)) << name;
    EXPECT_EQ(json.size(), values.size()) << name;
  }
  EXPECT_EQ(settings_toml({}), "");
  EXPECT_EQ(settings_object({}), "{}");
}

TEST(Settings, OfAFileHaveTheTypesOfToml) {
  const TrainConfig config = make_config(parse_settings(R"(
      model = "mlp"
      lr = 1              # a whole number for a number
      batch = 32
      no-decay = ["*.bias", "fc1"]
      weight-decay = 1e-4
      freeze = "conv1"
      augment = true
      time-budget = "1.5h"
      input = "96x128"
      decoupled = false
      dtype = "f16"
      half-model = true
  )",
                                                        "a.toml"));
  EXPECT_EQ(config.model, "mlp");
  EXPECT_EQ(config.lr, 1.0);
  EXPECT_EQ(config.batch, 32);
  EXPECT_EQ(config.no_decay, (std::vector<std::string>{"*.bias", "fc1"}));
  EXPECT_EQ(config.freeze, std::vector<std::string>{"conv1"});
  EXPECT_TRUE(config.augment);
  EXPECT_EQ(config.time_budget, 5400.0);
  EXPECT_EQ(config.input, (std::array<int64_t, 2>{96, 128}));
  EXPECT_EQ(config.decoupled, false);
  EXPECT_EQ(config.dtype, DType::f16);
  EXPECT_EQ(config.autocast, std::nullopt);
}

TEST(Settings, ThatCannotBeAreNamedWithFileAndLine) {
  const auto refused = [](const std::string& text) {
    return message([&] { parse_settings(text, "a.toml"); });
  };
  EXPECT_EQ(
      refused("lr = 0.1\nbach = 3\n"),
      "config 'a.toml', line 2: settings: must be those of 'tandem train --help'; got 'bach'. Did you mean "
      "batch?");
  EXPECT_EQ(
      refused("batch = 1.5"),
      "config 'a.toml', line 1: batch: must be a whole number; got a number. Write it as in batch = 1.");
  // A text for a number is none, and what stands in a table is named as it is written.
  EXPECT_EQ(refused("lr = \"0.1\""),
            "config 'a.toml', line 1: lr: must be a number; got a text. Write it as in lr = 0.1.");
  EXPECT_EQ(
      refused("batch = \"5\"").find("config 'a.toml', line 1: batch: must be a whole number; got a text"),
      0u);
  EXPECT_EQ(refused("seed = \"5\"").find("config 'a.toml', line 1: seed: must be a whole number; got a text"),
            0u);
  EXPECT_EQ(
      refused("best = \"true\"").find("config 'a.toml', line 1: best: must be true or false; got a text"),
      0u);
  EXPECT_EQ(refused("schedule.kind = \"cosine\""),
            "config 'a.toml', line 1: schedule: must be a text; got a table. Write it as in schedule = "
            "\"plateau\".");
  EXPECT_EQ(refused("seed = -1"),
            "config 'a.toml', line 1: seed: must be a whole number of at least 0; got '-1'.");
  EXPECT_EQ(refused("augment = 1").find("config 'a.toml', line 1: augment: must be true or false"), 0u);
  EXPECT_EQ(refused("no-decay = [1]").find("config 'a.toml', line 1: no-decay: must be a list of texts"), 0u);
  EXPECT_EQ(refused("lr =").find("config 'a.toml', line 1: must be TOML"), 0u);
  EXPECT_NE(refused("[lr]\nx = 1"), "");
  EXPECT_EQ(message([&] {
              make_config(values_of({{"half-model", "true"}}));
            }),
            "half-model: goes with `dtype` bf16 or f16; got none.");
}

TEST(Settings, ThatActOnlyWithAnotherAreRefusedWithoutIt) {
  const TempFolder folder;
  std::vector<std::string> names;
  for (const Setting& s : settings()) {
    if (s.needs.what.empty()) continue;
    names.push_back(s.name);
    const Sample& sample = kSamples.at(s.name);
    const std::string text = message([&] {
      make_config(values_of({{"model", "mlp"}, {s.name, sample.text}}));
    });
    EXPECT_EQ(text.find(s.name + ": acts only with " + s.needs.what + "; this run has none."), 0u)
        << s.name << ": " << text;
    // Also where what is given is the default.
    if (const SettingValue usual = default_of(s); usual.index() != 0 && s.kind != SettingKind::toggle) {
      EXPECT_NE(message([&] { make_config({{"model", "mlp"}, {s.name, usual}}); }), "") << s.name;
    }
    Texts beside = sample.beside;
    beside[s.name] = sample.text;
    EXPECT_EQ(message([&] { make_config(values_of(beside)); }), "") << s.name;
  }
  for (const char* name : {"patience", "decay-every", "decay-factor", "least-lr", "schedule-length",
                           "schedule-by", "monitor", "split-seed", "min-delta", "restore-best"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  // By a flag and by a file alike.
  const std::string wanted = "patience: acts only with --schedule plateau; this run has none.";
  const ProcessResult flag = run_command({"train", "mlp", "--patience", "3"});
  EXPECT_EQ(flag.status, 2);
  EXPECT_NE(flag.err.find(wanted + " Give that as well, or leave --patience out."), std::string::npos)
      << flag.err;
  testing::write_text(folder / "a.toml", "patience = 3\n");
  const ProcessResult file = run_command({"train", "mlp", "--config", folder / "a.toml"});
  EXPECT_EQ(file.status, 2);
  EXPECT_NE(file.err.find(wanted), std::string::npos) << file.err;
}

TEST(Settings, AreMembersInMessagesAndFlagsOnTheCommandLine) {
  EXPECT_EQ(named_setting("schedule-length"), "`schedule.total`");
  EXPECT_EQ(named_setting("my_callback"), "my_callback");
  EXPECT_EQ(with_flags("Give `schedule.total` 4, or `lr` and `clip_norm`; got `gradients`, `a` and `keep`."),
            "Give --schedule-length 4, or --lr and --clip-norm; got `gradients`, `a` and --keep-columns.");
  EXPECT_EQ(with_flags("`"), "`");
  EXPECT_EQ(with_flags("of `no member` or `out`"), "of `no member` or --out");
  for (const Setting& s : settings()) {
    const std::string flag = s.name == "model" ? "MODEL" : "--" + s.name;
    EXPECT_EQ(with_flags(named_setting(s.name)), flag);
  }
}

/// The texts in a line of a source file.
std::vector<std::string> literals_of(const std::string& line) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '/' && i + 1 < line.size() && line[i + 1] == '/') break;
    if (line[i] != '"' || (i > 0 && line[i - 1] == '\'')) continue;
    std::string text;
    for (++i; i < line.size() && line[i] != '"'; ++i) {
      text += line[i];
      if (line[i] == '\\' && i + 1 < line.size()) text += line[++i];
    }
    texts.push_back(text);
  }
  return texts;
}

// Whoever calls the library from C++ has no flags. 'tandem models lenet --toml' names a command, which everybody has.
TEST(Settings, NoMessageOfTheLibraryNamesAFlag) {
  const std::set<std::string> of_commands = {"program.cpp",         "program.h", "download.cpp",
                                             "fused.cpp",           "plan.cpp",  "setting_names.cpp",
                                             "settings_values.cpp", "svg.cpp"};  // a CSS variable
  const std::set<std::string> no_settings = {"gradients", "cell", "time", "before"};
  int64_t files = 0;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(testing::source_dir() / "src/tandem")) {
    const std::string name = file.path().filename().string();
    if ((file.path().extension() != ".cpp" && file.path().extension() != ".h") || of_commands.contains(name))
      continue;
    ++files;
    std::istringstream in(testing::read_text(file.path().string()));
    std::string line;
    for (int number = 1; std::getline(in, line); ++number)
      for (const std::string& text : literals_of(line)) {
        const std::string place = name + ":" + std::to_string(number) + ": " + text;
        for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
          const bool is_flag = (at == 0 || text[at - 1] == ' ' || text[at - 1] == '(') &&
                               (at + 2 == text.size() || std::islower(text[at + 2]));
          const bool is_command = text.find("'tandem ") < at || text.find("--toml'") == at;
          EXPECT_TRUE(!is_flag || is_command) << place << "\nName the member in backquotes (with_flags).";
        }
        if (const size_t begin = text.find('`'), end = text.find('`', begin + 1); end != std::string::npos) {
          const std::string quoted = text.substr(begin, end - begin + 1);
          EXPECT_TRUE(with_flags(quoted) != quoted ||
                      no_settings.contains(text.substr(begin + 1, end - begin - 1)))
              << place << "\nwhich is no setting.";
        }
      }
  }
  EXPECT_GT(files, 300);
}

TEST(Settings, HaveTheirDefaultsInTheHelp) {
  std::istringstream in(run_command({"train", "--help"}).out);
  std::map<std::string, std::string> types;  // by flag: "FLOAT=0.1"
  std::string all;
  for (std::string line; std::getline(in, line); all += line + "\n") {
    std::istringstream words(line);
    std::string name, type;
    words >> name >> type;
    if (name.starts_with("--")) types[name] = type;
  }
  for (const Setting& s : settings()) {
    if (s.name == "model") continue;
    ASSERT_TRUE(types.contains("--" + s.name)) << s.name;
    EXPECT_NE(all.find(with_flags(s.help)), std::string::npos) << s.name;
    if (s.kind == SettingKind::toggle) continue;
    const std::string& type = types["--" + s.name];
    const size_t equals = type.find('=');
    EXPECT_EQ(equals == std::string::npos ? "" : type.substr(equals + 1), text_of(default_of(s))) << s.name;
    if (!s.unset.empty()) {
      EXPECT_NE(all.find("(default: " + with_flags(s.unset) + ")"), std::string::npos) << s.name;
    }
  }
}

TEST(Settings, AreOnTheirPageAsInTheTable) {
  const std::string page =
      testing::read_text((testing::source_dir() / "docs/reference/settings.md").string());
  const bool agrees = page.find(settings_page()) != std::string::npos;
  const std::string right = (std::filesystem::temp_directory_path() / "settings_page.md").string();
  if (!agrees) testing::write_text(right, settings_page());
  EXPECT_TRUE(agrees) << "the tables of docs/reference/settings.md must be those in " << right;
}

TEST(Settings, ThatAreWrongAreOneLineAndStatusTwo) {
  const TempFolder folder;
  const auto expect_refused = [&](const std::vector<std::string>& arguments, const std::string& name) {
    const ProcessResult result = run_command(arguments);
    EXPECT_EQ(result.status, 2) << name << "\n" << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << name << "\n" << result.err;
    EXPECT_NE(result.err.find(name), std::string::npos) << name << "\n" << result.err;
    EXPECT_EQ(result.out, "") << name;
  };
  for (const Setting& s : settings()) {
    const bool takes_any = s.kind == SettingKind::list || (s.kind == SettingKind::text && s.choices.empty());
    if (takes_any) continue;
    expect_refused({"train", "mlp", "--" + s.name + "=wrong"}, s.name);
    testing::write_text(folder / "a.toml", s.name + " = \"wrong\"\n");
    expect_refused({"train", "mlp", "--config", folder / "a.toml"}, s.name);
  }
  for (const char* flag :
       {"--input=big", "--time-budget=soon", "--device=tpu", "--optimizer=lion", "--task=guess"})
    expect_refused({"train", "mlp", flag}, std::string(flag).substr(2, std::string(flag).find('=') - 2));
  testing::write_text(folder / "a.toml", "epochs = 0\n");
  expect_refused({"train", "mlp", "--config", folder / "a.toml"}, "epochs: must be at least 1; got 0.");
  expect_refused({"train", "mlp", "--config", folder / "none.toml"}, "none.toml");
}

TEST(Settings, OfFlagsWinOverThoseOfAFile) {
  const TempFolder folder;
  testing::write_text(
      folder / "a.toml",
      "model = \"mlp\"\ndata = \"digits\"\nlimit = 20\nbatch = 5\nlr = 0.5\nema = 0.9\nbest = true\n");
  const ProcessResult result = run_command({"train", "--config", folder / "a.toml", "--lr", "0.25",
                                            "--best=false", "--out", folder / "run", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto start = ordered_json::parse(result.out.substr(0, result.out.find('\n')));
  EXPECT_EQ(start["settings"], ordered_json({{"model", "mlp"},
                                             {"data", "digits"},
                                             {"limit", 20},
                                             {"batch", 5},
                                             {"lr", 0.25},
                                             {"ema", 0.9},
                                             {"out", folder / "run"}}));
  EXPECT_EQ(start["lr"], 0.25);
  const auto config = ordered_json::parse(testing::read_text(folder / "run/config.json"));
  EXPECT_EQ(config["settings"], start["settings"]);
}

TEST(Settings, TheRecipeOfThePaperIsThatOfTheModelUnderWhatIsGiven) {
  for (const zoo::ModelInfo& info : zoo::models()) {
    const TrainConfig config =
        make_config(values_of({{"model", info.name}, {"recipe", "paper"}, {"batch", "3"}}));
    EXPECT_EQ(config.data, info.training.data) << info.name;
    EXPECT_EQ(config.optimizer, info.training.optimizer) << info.name;
    EXPECT_EQ(config.lr, info.training.lr) << info.name;
    EXPECT_EQ(config.epochs, info.training.epochs) << info.name;
    EXPECT_EQ(config.batch, 3) << info.name;
    EXPECT_EQ(make_config(given_settings(config)).lr, config.lr) << info.name;
    // Quick: the defaults.
    const TrainConfig quick = make_config(values_of({{"model", info.name}, {"recipe", "quick"}}));
    EXPECT_EQ(given_settings(quick).size(), 1u) << info.name;
  }
  EXPECT_EQ(message([] {
              make_config(values_of({{"model", "./mine.toml"}, {"recipe", "paper"}}));
            }),
            "recipe: a model of your own has no paper; got './mine.toml'. Leave `recipe` out.");
  EXPECT_EQ(message([] {
              make_config(values_of({{"model", "lenet"}, {"recipe", "slow"}}));
            }),
            "recipe: must be quick or paper; got 'slow'.");
}

TEST(Settings, ModelsPrintsBothRecipes) {
  const auto recipes = ordered_json::parse(run_command({"models", "lenet", "--json"}).out).at("recipes");
  const zoo::TrainingDefaults& paper = zoo::model_info("lenet").training;
  EXPECT_EQ(recipes["quick"]["batch"], TrainConfig().batch);
  EXPECT_EQ(recipes["quick"]["optimizer"], TrainConfig().optimizer);
  EXPECT_EQ(recipes["paper"]["batch"], paper.batch);
  EXPECT_EQ(recipes["paper"]["epochs"], paper.epochs);
  EXPECT_EQ(recipes["paper"]["data"], paper.data);
  const std::string text = run_command({"models", "lenet"}).out;
  EXPECT_NE(text.find("recipe quick"), std::string::npos) << text;
  EXPECT_NE(text.find("--recipe paper"), std::string::npos) << text;
  const TempFolder folder;
  testing::write_text(folder / "mine.toml", run_command({"models", "mlp", "--toml"}).out);
  EXPECT_EQ(run_command({"models", folder / "mine.toml"}).out.find("recipe paper"), std::string::npos);
}

/// A run of a moment, which `texts` change.
TrainConfig tiny(const std::string& out, Texts texts) {
  for (const auto& [name, text] : Texts{{"model", "mlp"},
                                        {"data", "digits"},
                                        {"limit", "20"},
                                        {"batch", "5"},
                                        {"steps", "2"},
                                        {"out", out}})
    texts.try_emplace(name, text);
  return make_config(values_of(texts));
}

TEST(Settings, OnWhichBitsDependMustBeRepeatedAtAResume) {
  // Of other data, another device, another model, or nothing without a file.
  const std::set<std::string> elsewhere = {
      "recipe", "model-settings", "guided-attention", "weights", "data",     "target",    "task",
      "input",  "device",         "test-share",       "augment", "skip-bad", "split-seed"};
  const TempFolder folder;
  int tried = 0;
  for (const Setting& s : settings()) {
    if (s.bits == SettingBits::none || elsewhere.contains(s.name) || s.group == "Tables (csv)" ||
        s.group == "Text")
      continue;
    const Sample& sample = kSamples.at(s.name);
    const std::string out = folder / s.name;
    train(tiny(out, sample.beside));
    Texts changed = sample.beside;
    changed[s.name] = sample.text;
    changed["resume"] = "true";
    const std::string text = message([&] { train(tiny(out, changed)); });
    EXPECT_NE(text.find("the run was begun with "), std::string::npos) << s.name << ": " << text;
    if (s.bits == SettingBits::recorded) {
      EXPECT_NE(text.find("; got " + s.name + " "), std::string::npos) << s.name << ": " << text;
      EXPECT_NE(text.find("Give " + named_setting(s.name) + " as it was"), std::string::npos)
          << s.name << ": " << text;
    }
    ++tried;
  }
  EXPECT_GE(tried, 30);
}

TEST(Settings, TheMetricOfTheBestWeightsMustBeRepeatedAtAResume) {
  const TempFolder folder;
  for (const auto& [name, beside, fix] : std::vector<std::tuple<std::string, Texts, std::string>>{
           {"best", {{"best", "true"}}, "Give `monitor` as it was"},
           {"stop", {{"early-stop", "9"}}, "and `monitor` as they were"},
           {"plateau", {{"schedule", "plateau"}}, "Give `schedule.kind` and what belongs to it"}}) {
    Texts texts = beside;
    texts["epochs"] = "1";
    texts["steps"] = "4";
    train(tiny(folder / name, texts));
    texts["epochs"] = "2";
    texts["steps"] = "8";
    texts["monitor"] = "accuracy";
    texts["resume"] = "true";
    const std::string text = message([&] { train(tiny(folder / name, texts)); });
    EXPECT_NE(text.find("the run was begun with "), std::string::npos) << text;
    EXPECT_NE(text.find("test_accuracy"), std::string::npos) << text;
    EXPECT_NE(text.find(fix), std::string::npos) << text;
    texts["monitor"] = "loss";
    EXPECT_EQ(message([&] { train(tiny(folder / name, texts)); }), "") << name;
  }
}

TEST(Settings, TheMetricOfTheBestWeightsStaysWhileTheyAreNotKept) {
  const TempFolder folder;
  train(tiny(folder / "run", {{"best", "true"}, {"epochs", "1"}, {"steps", "4"}}));
  train(tiny(folder / "run", {{"epochs", "2"}, {"steps", "8"}, {"resume", "true"}}));
  Texts texts = {
      {"best", "true"}, {"monitor", "accuracy"}, {"epochs", "3"}, {"steps", "12"}, {"resume", "true"}};
  const std::string text = message([&] { train(tiny(folder / "run", texts)); });
  EXPECT_NE(text.find("Give `monitor` as it was"), std::string::npos) << text;
  texts["monitor"] = "loss";
  EXPECT_EQ(message([&] { train(tiny(folder / "run", texts)); }), "");
}

TEST(Settings, AScheduleIsExtendedByItsLength) {
  const TempFolder folder;
  train(tiny(folder / "run", {{"schedule", "cosine"}, {"epochs", "1"}, {"steps", "4"}}));
  Texts longer = {{"schedule", "cosine"}, {"epochs", "2"}, {"steps", "8"}, {"resume", "true"}};
  const std::string text = message([&] { train(tiny(folder / "run", longer)); });
  EXPECT_NE(text.find("Give `schedule.total` 4, its length so far"), std::string::npos) << text;
  longer["schedule-length"] = "4";
  EXPECT_EQ(message([&] { train(tiny(folder / "run", longer)); }), "");
}

TEST(Settings, OnWhichNoBitsDependMayChangeAtAResume) {
  const std::set<std::string> elsewhere = {"data-dir", "epochs", "steps", "out", "resume"};
  const TempFolder folder;
  const std::string whole = train(tiny(folder / "whole", {{"steps", "4"}})).weights_sha256;
  for (const Setting& s : settings()) {
    if (s.bits != SettingBits::none || elsewhere.contains(s.name)) continue;
    const std::string out = folder / s.name;
    train(tiny(out, {}));
    const TrainConfig changed =
        tiny(out, {{s.name, kSamples.at(s.name).text}, {"steps", "4"}, {"resume", "true"}});
    EXPECT_EQ(train(changed).weights_sha256, whole) << s.name;
  }
}

}  // namespace
}  // namespace tandem
