#include "tests/support/zoo_models.h"

#include "tandem/core/rng.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/task_calls.h"

namespace tandem::testing {

zoo::ModelOptions small(const zoo::ModelInfo& info) {
  if (info.name == "alexnet") return {.classes = 10, .input = Dims{3, 67, 80}};
  if (info.name == "vgg16") return {.classes = 10, .input = Dims{3, 32, 32}};
  if (info.task == "translation") {
    zoo::ModelOptions options{.classes = 40, .vocabulary = 50, .settings = {{"hidden", 24}}};
    if (info.name == "gnmt") options.settings.emplace_back("layers", 4);
    return options;
  }
  if (info.name == "tacotron2")
    return {.vocabulary = 50,
            .settings = {{"embedding", 16},
                         {"prenet", 8},
                         {"attention_rnn", 24},
                         {"decoder_rnn", 24},
                         {"attention", 8},
                         {"filters", 4},
                         {"postnet", 16}}};
  if (info.vocabulary > 0) return {.classes = info.task == "language-modelling" ? 50 : 1, .vocabulary = 50};
  return {.classes = info.classes, .input = info.input};
}

Dims batch_of(const zoo::ModelInfo& info) {
  Dims shape = *small(info).input;
  shape.insert(0, 2);
  return shape;
}

namespace {

Named fields_of(const zoo::ModelInfo& info) {
  if (info.task == "classification")
    return {{"input", uniform(batch_of(info), -1, 1)}, {"target", from_vector<int64_t>({1, 7}, {2})}};
  Named fields =
      make_task(info.task)->made_up_batch(info.vocabulary > 0 ? Dims{12} : Dims{40, info.input[1]}, 2);
  if (is_floating(fields["input"].dtype())) fields.set("input", uniform(fields["input"].shape(), -1, 1));
  return fields;
}

}  // namespace

TrainedModel train_once(const zoo::ModelInfo& info, Engine engine, Device device) {
  manual_seed(4);
  const auto model = zoo::make_model(info.name, small(info));
  TrainedModel trained;
  for (const auto& [name, tensor] : model->state()) trained.before.emplace_back(name, clone(tensor.detach()));
  model->to(device);
  const auto optimizer = optim::make_optimizer("sgd", model->named_parameters(), {.lr = 0.05});
  TrainingStep step(*model, *optimizer, engine, {.task = make_task(info.task)});
  trained.after = {{"loss", step(moved(fields_of(info), device)).value}};
  for (auto& row : model->state()) trained.after.push_back(row);
  return trained;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const zoo::ModelInfo& info : zoo::models()) names.push_back(info.name);
  return names;
}

}  // namespace tandem::testing
