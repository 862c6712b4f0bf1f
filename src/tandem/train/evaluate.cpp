// Testing models and saved runs, and explaining a training step.
#include <chrono>
#include <filesystem>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/loader.h"
#include "tandem/io/file.h"
#include "tandem/io/safetensors.h"
#include "tandem/nn/mode_scope.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/task_calls.h"
#include "tandem/train/text_metrics.h"
#include "tandem/train/train.h"
#include "tandem/zoo/zoo.h"

namespace tandem {

Metrics evaluate(nn::Module& model, const data::Dataset& dataset, const EvaluateOptions& options) {
  check_between("batch", options.batch, 1, kMostBatch);
  return Evaluation(
      model, options.engine,
      {.task = options.task, .loss = options.loss, .autocast = options.autocast, .workers = options.workers})(
      dataset, options.batch);
}

void check(const EvalConfig& config) {
  check_data_name(config.data, config.data_dir);
  check_between("limit", config.limit, 1);
  check(config.machine);
}

namespace {

/// The words that BLEU compares; of pieces, those of the text that they make.
std::vector<std::string> compared_words(const data::Vocabulary& vocabulary, std::vector<int64_t> tokens) {
  std::erase_if(tokens, [&](int64_t t) {
    return t == vocabulary.padding() || t == vocabulary.begin() || t == vocabulary.end();
  });
  std::vector<std::string> words;
  if (vocabulary.tokens() != data::Tokens::bpe) {
    for (const int64_t token : tokens) words.push_back(vocabulary.entry(token));
    return words;
  }
  for (data::Token& token : data::cut(vocabulary.decode(tokens), data::Tokens::words))
    if (!token.ends) words.push_back(std::move(token.text));
  return words;
}

/// BLEU of greedy translations. An unknown word of the right text is never written, so it counts as wrong.
double bleu_of(nn::Module& model, const data::Dataset& pairs, const DataRecord& record, Engine engine) {
  const TaskPtr task = task_of(record);
  const Tensor written = predict(model, pairs, {.task = task, .engine = engine, .batch = task->test_batch()});
  Bleu bleu;
  for (int64_t i = 0; i < pairs.size(); ++i)
    bleu.add(compared_words(*record.text->into, pairs.get(i).at(1).to_vector<int64_t>()),
             compared_words(*record.text->into, written[i].to_vector<int64_t>()));
  return bleu.value();
}

/// What the task draws of the first sample, as files in the run's folder. What cannot be drawn is a warning: the numbers are
/// what was asked for.
std::vector<std::string> draw(nn::Module& model, const TaskPtr& task, const data::DatasetPtr& set,
                              const std::string& folder, std::vector<std::string>& warnings) {
  std::vector<std::string> files;
  if (!task->draws()) return files;
  try {
    const NoGrad off;
    const nn::ModeScope mode(model, false);
    const data::DatasetPtr one = data::first(set, 1);
    data::LoaderOptions options = loader_options(task, *one, 1, device_of(model));
    options.shuffle = false;
    data::Loader loader(*one, options);
    loader.start_epoch(0);
    const Named batch = in_type(*task, loader.next()->tensors, dtype_of(model));
    for (const Picture& picture : task->pictures(model, batch)) {
      const std::string path = (std::filesystem::path(folder) / (picture.name + ".svg")).string();
      io::write_atomically(path, [&](io::OutputFile& file) { file.write(picture.svg); });
      files.push_back(path);
    }
  } catch (const Error& error) {
    warnings.emplace_back(error.what());
  }
  return files;
}

}  // namespace

EvalReport evaluate(const EvalConfig& config) {
  const auto start = std::chrono::steady_clock::now();
  check(config);
  const MachineScope machine(config.machine);
  check_device(config.device);
  const SavedRun run = load_run("eval", config.folder, config.best);
  const std::unique_ptr<nn::Module> model = make_model(run, config.device);
  const TaskPtr task = task_of(run.data);
  std::string taken;
  const data::Splits data =
      open_test_data(run.data, choose_model(run).info, config.data, config.data_dir, config.limit, &taken);
  Metrics metrics =
      evaluate(*model, *data.test, {.task = task, .engine = config.engine, .autocast = run.autocast});
  std::vector<MetricInfo> infos = task->metrics();
  if (task->answer_kind() == TaskAnswer::translation) {
    metrics.add("bleu", bleu_of(*model, *data.test, run.data, config.engine));
    infos.push_back({"bleu", true});
  }
  std::vector<std::string> warnings = run.warnings;
  const std::vector<std::string> drawn = draw(*model, task, data.test, config.folder, warnings);
  warnings.insert(warnings.end(), data.notices.begin(), data.notices.end());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {.model = run.model,
          .data = data.name,
          .path = run.path,
          .task = run.data.task,
          .infos = std::move(infos),
          .class_names = run.data.class_names,
          .samples = data.test->size(),
          .taken = taken,
          .seconds = seconds.count(),
          .weights_sha256 = io::weights_sha256(model->state()),
          .warnings = std::move(warnings),
          .metrics = metrics,
          .pictures = drawn};
}

GraphReport explain(const TrainConfig& config, const CompileOptions& options) {
  check(config);
  const MachineScope machine(config.machine);
  check_device(config.device);
  manual_seed(config.seed);
  const zoo::ChosenModel chosen = choose_model(config);
  const std::unique_ptr<nn::Module> model = zoo::make_model(chosen);
  model->to(config.dtype);
  model->to(config.device);
  const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(config, *model);
  optim::LossScaler scaler(config.device);
  TrainingStep step(*model, *optimizer, Engine::graph,
                    {.task = make_task(chosen.info.task),
                     .autocast = config.autocast,
                     .scaler = config.autocast == DType::f16 ? &scaler : nullptr,
                     .compile = options});
  step(moved(make_task(chosen.info.task)->made_up_batch(made_up_sample(config, chosen.info), config.batch),
             config.device));
  return step.reports().at(0);
}

}  // namespace tandem
