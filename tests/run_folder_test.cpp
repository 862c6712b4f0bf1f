// The folder of a run: one writer at a time, checkpoints that stay usable, the data that belongs to them, and a random
// walk through all of it beside a simple model.
// ctest: asan timeout=300
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tandem/core/choices.h"
#include "tandem/core/rng.h"
#include "tandem/data/compose.h"
#include "tandem/io/file.h"
#include "tandem/io/safetensors.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/train.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

std::string message(const std::function<void()>& call) { return testing::message_of<Error>(call); }

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  does not contain: " << part;
}

std::shared_ptr<data::TensorSet> make_data(uint64_t seed, int64_t samples = 40) {
  const GeneratorState before = generator_state();
  manual_seed(seed);
  const Tensor x = uniform({samples, 3}, -1, 1);
  const Tensor y = cast(greater(uniform({samples}, 0, 1), 0.5), DType::i64);
  set_generator_state(before);
  return std::make_shared<data::TensorSet>(std::vector<Tensor>{x, y});
}

/// A run of some steps, four in an epoch, with a checkpoint after every second.
struct Tiny {
  uint64_t seed = 1;
  std::string out = {};
  int64_t steps = 8;
  bool resume = false;
  data::DatasetPtr data = make_data(5);
  std::vector<CallbackPtr> callbacks = {};
  const std::atomic<bool>* stop = nullptr;
};

FitResult run(Tiny t, const CallbackPtr& listener = nullptr) {
  if (listener) t.callbacks.push_back(listener);
  manual_seed(t.seed);
  nn::Sequential net{nn::make<nn::Linear>(3, 4), nn::make<nn::Linear>(4, 2)};
  return fit(net, *t.data,
             {.engine = Engine::eager,
              .steps = t.steps,
              .batch = 10,
              .optimizer = "adam",
              .seed = t.seed,
              .callbacks = t.callbacks,
              .out = t.out,
              .resume = t.resume,
              .checkpoint_every = 2,
              .stop = t.stop});
}

/// Calls a function after each step.
struct EachStep : Callback {
  std::function<void(Training&)> call;
  explicit EachStep(std::function<void(Training&)> f) : call(std::move(f)) {}
  std::string name() const override { return "each-step"; }
  void on_step(Training& training) override { call(training); }
};
CallbackPtr each_step(std::function<void(Training&)> call) {
  return std::make_shared<EachStep>(std::move(call));
}

/// Everything in a folder: names, contents and times of change.
std::map<std::string, std::string> listing(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat s {};
    ::stat(entry.path().c_str(), &s);
    all[entry.path().string()] =
        str(s.st_ino, " ", s.st_mtim.tv_sec, ".", s.st_mtim.tv_nsec, " ",
            entry.is_regular_file() ? testing::read_text(entry.path().string()) : "");
  }
  return all;
}

int64_t step_of(const std::string& path) { return std::atoll(fs::path(path).filename().c_str() + 11); }

TEST(RunFolder, HasOneWriterAndTheSecondChangesNothing) {
  const TempFolder folder;
  Tiny first{.out = folder / "run"};
  int refused = 0;
  first.callbacks = {each_step([&](Training&) {
    const auto before = listing(folder.path());
    for (const bool resume : {false, true}) {
      Tiny second{.seed = 2, .out = first.out, .resume = resume};
      const std::string text = message([&] { run(second); });
      if (text.find("holds a run already") == std::string::npos)
        expect_contains(text, "' must belong to one run at a time; got one that another run is writing to.");
      EXPECT_NE(text, "");
      ++refused;
    }
    EXPECT_EQ(listing(folder.path()), before);
  })};
  const std::string sum = run(first).weights_sha256;
  EXPECT_EQ(refused, 16);
  EXPECT_EQ(nlohmann::json::parse(testing::read_text(first.out + "/config.json"))["seed"], 1);
  // The lock went with the run.
  Tiny again{.out = first.out, .steps = 12, .resume = true};
  EXPECT_EQ(run(again).steps, 12);
  EXPECT_EQ(run({.steps = 8}).weights_sha256, sum);
}

TEST(RunFolder, ThatIsMovedAwayWhileItIsWrittenToEndsTheRun) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run"};
  tiny.callbacks = {each_step([&](Training& training) {
    if (training.state().step != 3) return;
    fs::rename(folder / "run", folder / "moved");
    fs::create_directories(folder / "run");
  })};
  expect_contains(message([&] { run(tiny); }), "must stay where it is while it is written to");
  EXPECT_TRUE(list_checkpoints(folder / "run").empty());
  EXPECT_EQ(list_checkpoints(folder / "moved").size(), 1u);
}

TEST(RunFolder, KeepsTheNewCheckpointAndAUsableOneWhateverIsDamaged) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run", .steps = 12};
  std::map<int64_t, std::string> kept;  // every checkpoint as it was written
  const auto keep = [&](const CheckpointEvent& saved) { kept[saved.step] = testing::read_text(saved.path); };
  const std::string whole = run(tiny, listen(keep)).weights_sha256;
  const auto path = [&](int64_t step) { return str(tiny.out, "/checkpoint-", step, ".safetensors"); };
  // One that can be used at step 4, and three damaged ones that are newer.
  fs::remove_all(tiny.out + "/model.safetensors");
  testing::write_text(path(4), kept.at(4));
  testing::write_text(path(8), kept.at(8).substr(0, 100));
  testing::write_text(path(10), "");
  testing::write_text(path(12), kept.at(12).substr(0, kept.at(12).size() - 1));
  tiny.resume = true;
  std::vector<int64_t> reported;
  const auto check_kept = [&](const CheckpointEvent& saved) {
    keep(saved);  // as it is now: another time stands in it
    reported.push_back(saved.step);
    int usable = 0;
    for (const std::string& file : list_checkpoints(tiny.out)) {
      const bool is_whole = testing::read_text(file) == kept.at(step_of(file));
      usable += is_whole ? 1 : 0;
      EXPECT_EQ(message([&] { load_checkpoint(file); }).empty(), is_whole) << file;
    }
    EXPECT_EQ(usable, 2) << "after step " << saved.step;
    EXPECT_EQ(load_checkpoint(saved.path).state.step, saved.step);
  };
  const FitResult again = run(tiny, listen(check_kept));
  EXPECT_EQ(reported, (std::vector<int64_t>{6, 8, 10, 12}));
  EXPECT_EQ(again.weights_sha256, whole);
  EXPECT_EQ(list_checkpoints(tiny.out), (std::vector<std::string>{path(12), path(10)}));
}

TEST(RunFolder, NoticesAFileThatIsDamagedWhileTheRunGoesOn) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run", .steps = 8};
  const auto path = [&](int64_t step) { return str(tiny.out, "/checkpoint-", step, ".safetensors"); };
  const auto damage = [&](const CheckpointEvent& saved) {
    if (saved.step == 4) {  // in place: the same file, of the same size
      std::fstream file(path(4), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-3, std::ios::end);
      file.put('x');
    }
    if (saved.step == 6) {
      EXPECT_EQ(list_checkpoints(tiny.out), (std::vector<std::string>{path(6), path(4), path(2)}));
      EXPECT_NO_THROW(load_checkpoint(path(2)));
    }
  };
  run(tiny, listen(damage));
  EXPECT_EQ(list_checkpoints(tiny.out), (std::vector<std::string>{path(8), path(6)}));
}

TEST(RunFolder, IsResumedOnlyWithItsOwnData) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run", .steps = 4};
  run(tiny);
  tiny.resume = true;
  tiny.data = make_data(6);
  expect_contains(message([&] { run(tiny); }), "the run was begun with train_data \"");
  expect_contains(message([&] { run(tiny); }), "Give the same data and `limit`");
  std::vector<int64_t> order(40);
  for (int64_t i = 0; i < 40; ++i) order[static_cast<size_t>(i)] = 39 - i;
  tiny.data = data::subset(make_data(5), order);
  expect_contains(message([&] { run(tiny); }), "the run was begun with train_data");
  tiny.data = make_data(5);
  EXPECT_EQ(run(tiny).steps, 4);
}

TEST(RunFolder, FingerprintsTellDataApart) {
  const auto base = make_data(5, 5000);
  const std::string sum = data::fingerprint(*base);
  EXPECT_EQ(sum.size(), 64u);
  EXPECT_EQ(data::fingerprint(*make_data(5, 5000)), sum);
  EXPECT_NE(data::fingerprint(*make_data(6, 5000)), sum);
  EXPECT_NE(data::fingerprint(*make_data(5, 4999)), sum);
  EXPECT_NE(data::fingerprint(*data::shuffle(base, 3)), sum);
  EXPECT_EQ(data::fingerprint(*data::map(base, [](data::Sample sample) { return sample; })), sum);
  // Every sample of a small set counts, and the first and the last of any.
  for (const int64_t size : {1, 2, 3, 1000})
    for (const int64_t place : {int64_t{0}, size / 2, size - 1}) {
      std::vector<int64_t> order(static_cast<size_t>(size));
      for (int64_t i = 0; i < size; ++i) order[static_cast<size_t>(i)] = i;
      const std::string before = data::fingerprint(*data::subset(base, order));
      order[static_cast<size_t>(place)] = 4321;
      EXPECT_NE(data::fingerprint(*data::subset(base, order)), before) << place << " of " << size;
    }
  // One that gives other samples each time has none, and this thread's generator is left alone.
  struct Random : data::Dataset {
    int64_t size() const override { return 10; }
    std::vector<Tensor> get(int64_t) const override { return {uniform({2}, 0, 1)}; }
  };
  manual_seed(3);
  const uint64_t offset = generator_state().offset;
  EXPECT_EQ(data::fingerprint(Random()), "");
  EXPECT_EQ(generator_state().offset, offset);
}

TEST(RunFolder, IsResumedOnlyWithTheSameArithmetic) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run", .steps = 2};
  run(tiny);
  const std::string path = list_checkpoints(tiny.out).at(0);
  Checkpoint checkpoint = load_checkpoint(path);
  auto settings = nlohmann::ordered_json::parse(checkpoint.settings);
  ASSERT_TRUE(settings.contains("arithmetic"));
  settings["arithmetic"] = "cuda with tf32";
  checkpoint.settings = settings.dump();
  save_checkpoint(tiny.out, checkpoint);
  tiny.resume = true;
  expect_contains(message([&] { run(tiny); }),
                  "the run was begun with arithmetic \"cuda with tf32\"; got arithmetic \"cpu");
  expect_contains(message([&] { run(tiny); }), "TANDEM_TF32, TANDEM_ISA and TANDEM_BF16 as they were");
}

TEST(RunFolder, IsResumedOnlyWithTheSameWorkspaceOfConvolutions) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run", .steps = 2};
  run(tiny);
  tiny.resume = true;
  set_convolution_choice({.workspace = 1 << 20});
  const std::string text = message([&] { run(tiny); });
  set_convolution_choice({});
  expect_contains(text, "got conv-workspace 1048576. Give `machine.conv_workspace` as it was");
}

TEST(RunFolder, WithACheckpointOfDeepJsonIsRefused) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run", .steps = 2};
  run(tiny);
  Checkpoint checkpoint = load_checkpoint(list_checkpoints(tiny.out).at(0));
  checkpoint.settings = "{\"model\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  save_checkpoint(tiny.out, checkpoint);
  tiny.resume = true;
  expect_contains(message([&] { run(tiny); }),
                  "settings or position cannot be read; it was not written by Tandem.");
}

TEST(RunFolder, WithFinalWeightsAloneIsNotResumed) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run", .steps = 2};
  run(tiny);
  for (const std::string& path : list_checkpoints(tiny.out)) fs::remove(path);
  tiny.resume = true;
  expect_contains(message([&] { run(tiny); }),
                  "it has its final weights alone. Begin a new run in another `out`.");
}

TEST(RunFolder, OfARunThatNeverSavedKeepsNothingOfIt) {
  const TempFolder folder;
  Tiny tiny{.out = folder / "run", .steps = 8};
  tiny.callbacks = {best_weights({.monitor = "train_loss"}), csv_log(), each_step([](Training& training) {
                      if (training.state().step == 1) throw Error("killed");
                    })};
  EXPECT_EQ(message([&] { run(tiny); }), "killed");
  testing::write_text(tiny.out + "/best.safetensors", "of the run before");
  testing::write_text(tiny.out + "/notes.txt", "mine");
  tiny.callbacks = {each_step([&](Training& training) {
    EXPECT_FALSE(fs::exists(training.folder() + "/best.safetensors"));
    EXPECT_TRUE(fs::exists(training.folder() + "/notes.txt"));
  })};
  run(tiny);
}

TEST(RunFolder, PipesAndLinksInThePlaceOfItsFilesHangNothing) {
  const TempFolder folder;
  const auto with_pipe = [&](const std::string& file) {
    const std::string out = folder / ("run" + file);
    fs::create_directories(out);
    EXPECT_EQ(::mkfifo((out + "/" + file).c_str(), 0600), 0);
    return out;
  };
  expect_contains(message([&] { run({.out = with_pipe(".lock")}); }), "must be a regular file");
  // The names of temporary files are ours: what stands there is removed, never written to.
  for (const char* file : {"config.json.tmp", "checkpoint-2.safetensors.tmp"}) {
    const std::string out = with_pipe(file);
    run({.out = out});
    EXPECT_FALSE(fs::exists(out + "/" + file)) << file;
    EXPECT_TRUE(fs::exists(out + "/config.json"));
  }
  fs::create_directories(folder / "full");
  fs::create_symlink("/dev/full", folder / "full/config.json.tmp");
  run({.out = folder / "full"});
  EXPECT_TRUE(fs::is_regular_file(folder / "full/config.json"));
}

// ---- a random walk

/// What the folder must hold, by the rules of run_folder.h and checkpoint.h.
struct Model {
  bool has_config = false, is_finished = false;
  struct File {
    uint64_t seed;
    bool usable;
  };
  std::map<int64_t, File> files;  // by step

  std::optional<int64_t> newest() const {
    for (auto at = files.rbegin(); at != files.rend(); ++at)
      if (at->second.usable) return at->first;
    return std::nullopt;
  }
  void saved(int64_t step, uint64_t seed) {
    files[step] = {seed, true};
    bool has_other = false;
    for (auto at = files.rbegin(); at != files.rend();) {
      if (at->first != step && has_other) {
        at = std::make_reverse_iterator(files.erase(std::next(at).base()));
        continue;
      }
      if (at->first != step) has_other = at->second.usable;
      ++at;
    }
  }
};

class Walk {
 public:
  Walk(const std::string& folder, unsigned seed) : folder_(folder), random_(seed) {}

  void step() {
    switch (pick(8)) {
      case 0:
      case 1:
        return go(false);
      case 2:
      case 3:
      case 4:
        return go(true);
      case 5:
        return damage();
      case 6:
        return restore();
      default:
        if (pick(6) == 0) clear();
    }
  }

  void check() {
    std::map<int64_t, std::string> found;
    if (fs::exists(folder_))
      for (const std::string& path : list_checkpoints(folder_)) found[step_of(path)] = path;
    ASSERT_EQ(found.size(), model_.files.size()) << history_;
    for (const auto& [step, file] : model_.files) {
      ASSERT_TRUE(found.contains(step)) << step << history_;
      if (!file.usable) {
        EXPECT_NE(message([&, path = found[step]] { load_checkpoint(path); }), "") << step << history_;
        continue;
      }
      const Checkpoint checkpoint = load_checkpoint(found[step]);
      EXPECT_EQ(io::weights_sha256(checkpoint.model), weights_at(file.seed, step)) << step << history_;
      const auto config = nlohmann::json::parse(testing::read_text(folder_ + "/config.json"));
      EXPECT_EQ(config["seed"], file.seed) << history_;
    }
    EXPECT_EQ(fs::exists(folder_ + "/config.json"), model_.has_config) << history_;
    EXPECT_EQ(fs::exists(folder_ + "/model.safetensors"), model_.is_finished) << history_;
  }

  int begun() const { return begun_; }
  int refused() const { return refused_; }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }
  void note(const std::string& text) { history_ += "\n  " + text; }
  std::string path(int64_t step) const { return str(folder_, "/checkpoint-", step, ".safetensors"); }

  /// Of a run that nothing disturbs.
  std::string weights_at(uint64_t seed, int64_t step) {
    auto& row = weights_[seed];
    if (row.empty()) {
      row[0] = "";
      run({.seed = seed, .steps = 16, .callbacks = {each_step([&](Training& training) {
                                        row[training.state().step] =
                                            io::weights_sha256(training.model().state());
                                      })}});
    }
    return row.at(step);
  }

  void go(bool resume) {
    const uint64_t seed = 1 + pick(2);
    const int64_t steps = 1 + static_cast<int64_t>(pick(14)), end = static_cast<int64_t>(pick(20));
    const uint64_t how = pick(3);  // it is killed after step `end`, told to stop there, or left alone
    std::string expected;
    const std::optional<int64_t> newest = model_.newest();
    if (!resume && (!model_.files.empty() || model_.is_finished)) expected = "holds a run already";
    if (resume && !model_.has_config) expected = "the folder holds no run";
    if (resume && model_.has_config && model_.is_finished && model_.files.empty())
      expected = "its final weights alone";
    if (resume && !model_.files.empty() && !newest) expected = "checkpoints can be used";
    if (resume && newest && model_.files[*newest].seed != seed) expected = "the run was begun with";
    note(str(resume ? "resume" : "begin", " seed ", seed, ", ", steps, " steps, ",
             how == 0   ? "killed"
             : how == 1 ? "stopped"
                        : "left alone",
             " at ", end, ", expecting '", expected, "'"));

    std::atomic<bool> stop{false};
    Tiny tiny{.seed = seed, .out = folder_, .steps = steps, .resume = resume, .stop = &stop};
    tiny.callbacks = {each_step([&](Training& training) {
      if (pick(10) == 0) {  // a second writer
        const auto before = listing(folder_);
        const bool resumes = pick(2) == 0;
        EXPECT_NE(message([&] { run({.seed = 1 + pick(2), .out = folder_, .resume = resumes}); }), "")
            << history_;
        EXPECT_EQ(listing(folder_), before) << history_;
      }
      if (training.state().step != end) return;
      if (how == 0) throw Error("killed");
      if (how == 1) stop = true;
    })};
    const int64_t first = resume ? newest.value_or(0) : 0;
    const auto check_event = [&](const TrainEvent& event) {
      if (std::holds_alternative<StartEvent>(event)) model_.has_config = true;
      if (const auto* start = std::get_if<StartEvent>(&event)) {
        EXPECT_EQ(start->first_step, first) << history_;
      }
      const auto* saved = std::get_if<CheckpointEvent>(&event);
      if (!saved) return;
      model_.saved(saved->step, seed);
      backup_[{seed, saved->step}] = testing::read_text(saved->path);
      check();
    };
    std::string text;
    try {
      const FitResult done = run(tiny, listen(check_event));
      if (!done.interrupted) {
        model_.is_finished = true;
        EXPECT_EQ(done.steps, std::max(first, steps)) << history_;
        EXPECT_EQ(done.weights_sha256, weights_at(seed, done.steps)) << history_;
      }
    } catch (const Error& error) {
      text = error.what();
    }
    if (expected.empty()) {
      EXPECT_TRUE(text.empty() || text == "killed") << text << history_;
      ++begun_;
    } else {
      expect_contains(text, expected);
      ++refused_;
    }
  }

  int64_t any_file() {
    auto at = model_.files.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(pick(model_.files.size())));
    return at->first;
  }

  void damage() {
    if (model_.files.empty()) return;
    const int64_t step = any_file();
    note(str("damage ", step));
    std::string bytes = testing::read_text(path(step));
    switch (pick(4)) {
      case 0:
        bytes.clear();
        break;
      case 1:
        bytes.resize(bytes.size() / 2);
        break;
      case 2:
        if (!bytes.empty()) bytes[pick(bytes.size())] ^= 4;
        break;
      default:
        fs::remove(path(step));
        model_.files.erase(step);
        return;
    }
    testing::write_text(path(step), bytes);
    // A flipped bit may restore what another one damaged.
    model_.files[step].usable = bytes == backup_[{model_.files[step].seed, step}];
  }

  /// Puts back a checkpoint of the run as it once was.
  void restore() {
    if (model_.files.empty()) return;
    const uint64_t seed = model_.files.begin()->second.seed;
    const int64_t step = 2 * (1 + static_cast<int64_t>(pick(7)));
    const auto at = backup_.find({seed, step});
    if (at == backup_.end()) return;
    note(str("restore ", step));
    testing::write_text(path(step), at->second);
    model_.files[step] = {seed, true};
  }

  void clear() {
    note("clear");
    fs::remove_all(folder_);
    model_ = {};
  }

  const std::string folder_;
  std::mt19937 random_;
  Model model_;
  std::map<uint64_t, std::map<int64_t, std::string>> weights_;
  std::map<std::pair<uint64_t, int64_t>, std::string> backup_;
  std::string history_;
  int begun_ = 0, refused_ = 0;
};

TEST(RunFolder, GoesThroughRandomEventsAsTheModelSays) {
  const char* given = std::getenv("TANDEM_WALK_SEED");
  const unsigned first = given ? static_cast<unsigned>(std::atoi(given)) : 1;
  int begun = 0, refused = 0;
  for (unsigned seed = first; seed < first + (given ? 1 : 12); ++seed) {
    const TempFolder folder;
    SCOPED_TRACE(str("TANDEM_WALK_SEED=", seed));
    Walk walk(folder / "run", seed);
    for (int i = 0; i < 25 && !::testing::Test::HasFailure(); ++i) {
      walk.step();
      walk.check();
    }
    begun += walk.begun();
    refused += walk.refused();
  }
  if (!given) {
    EXPECT_GT(begun, 40);
    EXPECT_GT(refused, 20);
  }
}

}  // namespace
}  // namespace tandem
