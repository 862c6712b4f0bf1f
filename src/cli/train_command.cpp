// tandem train MODEL and tandem eval DIR.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/train.h"

namespace tandem::cli {

void add_train(CLI::App& app, Action& action) {
  struct Flags {
    TrainConfig config;
    std::string engine = "graph", device = "cpu", dtype = "f32";
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  TrainConfig& c = flags->config;
  CLI::App* cmd = app.add_subcommand("train", "train a model");
  cmd->add_option("MODEL", c.model, "a name from 'tandem models'")->required();
  cmd->add_option("--data", c.data, "data set (default: mnist if found, else fashion-mnist, else digits)");
  cmd->add_option("--data-dir", c.data_dir, "folder of the data set's files");
  cmd->add_option("--engine", flags->engine, "eager or graph: the same bits")->capture_default_str();
  cmd->add_option("--device", flags->device, "cpu, cuda or cuda:N")->capture_default_str();
  cmd->add_option("--epochs", c.epochs, "passes over the data (default 1)");
  cmd->add_option("--steps", c.steps, "end after so many steps in all");
  cmd->add_option("--batch", c.batch, "samples a step")->capture_default_str();
  cmd->add_option("--optimizer", c.optimizer, optim::optimizer_names())->capture_default_str();
  cmd->add_option("--lr", c.lr, "learning rate (default: the optimizer's: sgd 0.01, adam 0.001 …)");
  cmd->add_option("--momentum", c.momentum, "of sgd and nesterov (default 0.9), and rmsprop (default 0)");
  cmd->add_option("--dtype", flags->dtype, "f32, f64, bf16 or f16")->capture_default_str();
  cmd->add_option("--seed", c.seed, "of weights, shuffle and dropout")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  cmd->add_option("--threads", c.threads, "CPU threads (default: all cores): the same bits");
  cmd->add_option("--limit", c.limit, "use the first so many samples to train, and to test");
  cmd->add_option("--out", c.out, "folder of the run (default: runs/MODEL, or the next free runs/MODEL-N)");
  cmd->add_option("--checkpoint-every", c.checkpoint_every,
                  "steps between checkpoints (0: only at epochs' ends)")
      ->capture_default_str();
  cmd->add_flag("--resume", c.resume, "go on from the newest checkpoint in --out");
  cmd->add_flag("--anomaly", c.anomaly, "stop at the operation that first makes a NaN or infinity (slow)");
  cmd->add_flag("--json", flags->json, "print one JSON object a line");
  cmd->callback([flags, &action] {
    action = [flags] {
      as_usage([&] {
        flags->config.engine = parse_engine(flags->engine);
        flags->config.device = parse_device(flags->device);
        flags->config.dtype = parse_dtype(flags->dtype);
        check(flags->config);
      });
      train(flags->config, flags->json ? json_events() : text_events());
    };
  });
}

void add_eval(CLI::App& app, Action& action) {
  struct Flags {
    EvalConfig config;
    std::string engine = "graph", device = "cpu";
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  EvalConfig& c = flags->config;
  CLI::App* cmd = app.add_subcommand("eval", "test a trained model");
  cmd->add_option("DIR", c.folder, "folder of a run, the --out of 'tandem train'")->required();
  cmd->add_option("--data", c.data, "data set (default: the one it was trained on)");
  cmd->add_option("--data-dir", c.data_dir, "folder of the data set's files");
  cmd->add_option("--engine", flags->engine, "eager or graph: the same bits")->capture_default_str();
  cmd->add_option("--device", flags->device, "cpu, cuda or cuda:N")->capture_default_str();
  cmd->add_option("--threads", c.threads, "CPU threads (default: all cores): the same bits");
  cmd->add_option("--limit", c.limit, "use the first so many samples");
  cmd->add_flag("--json", flags->json, "print one JSON object");
  cmd->callback([flags, &action] {
    action = [flags] {
      as_usage([&] {
        flags->config.engine = parse_engine(flags->engine);
        flags->config.device = parse_device(flags->device);
        check(flags->config);
      });
      const EvalReport r = evaluate(flags->config);
      for (const std::string& warning : r.warnings) std::fprintf(stderr, "tandem: %s\n", warning.c_str());
      if (flags->json) {
        const nlohmann::ordered_json line = {{"event", "eval"},
                                             {"model", r.model},
                                             {"data", r.data},
                                             {"device", to_string(flags->config.device)},
                                             {"samples", r.samples},
                                             {"test_loss", r.test_loss},
                                             {"test_accuracy", r.test_accuracy},
                                             {"seconds", r.seconds},
                                             {"weights_sha256", r.weights_sha256}};
        std::printf("%s\n", line.dump().c_str());
        return;
      }
      Table table;
      table.add({"model", r.model + ", weights from " + r.path});
      table.add({"data", r.data + ", " + grouped(r.samples) + " samples"});
      table.add({"test loss", fixed(r.test_loss, 4)});
      table.add({"test accuracy", percent(r.test_accuracy)});
      table.add({"sha256", r.weights_sha256});
      table.print();
    };
  });
}

}  // namespace tandem::cli
