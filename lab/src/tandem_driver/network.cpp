// Networks and optimisers.
#include "lab/src/tandem_driver/network.h"

#include <algorithm>
#include <cmath>

#include "lab/src/protocol/hash.h"
#include "lab/src/protocol/optimizer.h"
#include "lab/src/protocol/whole_model.h"

namespace tandem::lab::tandem_driver {
namespace {

bool is_running(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

void set_running(nn::Module& model) {
  for (const auto& [name, buffer] : model.named_buffers())
    if (is_running(name)) nn::init::constant_(buffer, name.ends_with("var") ? 1 : 0);
}

void load_weights(nn::Module& model, const std::string& file) {
  nn::NamedTensors tensors = io::load_weights(file);
  std::erase_if(tensors, [](const auto& row) { return row.first.ends_with("num_batches_tracked"); });
  set_running(model);  // for files that have no running statistics
  const nn::LoadReport report = model.load_state(tensors, {.strict = false, .source = "weights.file"});
  for (const std::string& name : report.missing)
    TD_CHECK(is_running(name), "weights.file: must have all parameters of the model; has no ", name, ".");
  TD_CHECK(report.unexpected.empty(), "weights.file: must have nothing but the model's parameters; has ",
           report.unexpected.empty() ? "" : report.unexpected.front(), ".");
  TD_CHECK(report.mismatched.empty(), "weights.file: tensors must have the model's shapes; ",
           report.mismatched.empty() ? "" : report.mismatched.front(), " has not.");
}

/// Checks that the zoo's class has exactly the parameters that the network lists.
void check_parameters(const CellRequest& cell, const nn::Module& model) {
  std::map<std::string, std::vector<int64_t>> own;
  for (const auto& [name, tensor] : model.named_parameters())
    own[name] = std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end());
  for (const auto& [name, shape] : cell.parameters) {
    const auto at = own.find(name);
    TD_CHECK(at != own.end() && at->second == shape, "network: ", cell.model,
             " must have the parameters of Tandem's class of that name; ", name, " is ", Json(shape).dump(),
             " in the network and ", at == own.end() ? "absent" : Json(at->second).dump(),
             " in the class. Give a network of your own another name.");
  }
  TD_CHECK(own.size() == cell.parameters.size(), "network: ", cell.model,
           " must have the parameters of Tandem's class of that name, ", own.size(), "; got ",
           cell.parameters.size(), ". Give a network of your own another name.");
}

/// A number of the workload's optimiser, or `otherwise` if it has none of that name.
double number_of(const Json& settings, const char* name, double otherwise) {
  const auto place = settings.find(name);
  if (place == settings.end()) return otherwise;
  TD_CHECK(place->is_number(), "workload.optimizer.", name, ": must be a number; got ",
           io::one_line(place->dump(), 80), ".");
  return place->get<double>();
}

optim::Settings settings_of(const Json& given) {
  const std::string name = given["name"];
  const std::vector<std::string> known = optimizer_settings(name);
  for (const auto& [key, value] : given.items()) {
    if (key != "name" && std::find(known.begin(), known.end(), key) == known.end())
      throw Declined("optimizer",
                     str("optimizer: ", name, " has no setting '", io::one_line(key, 80), "' here."));
  }
  optim::Settings settings;
  settings.lr = number_of(given, "lr",
                          name == "adadelta"                          ? 1.0
                          : name == "sgd" || name.starts_with("adam") ? 1e-3
                                                                      : 1e-2);
  if (optim::optimizer_info(name).momentum) settings.momentum = number_of(given, "momentum", 0);
  if (given.contains("eps")) settings.epsilon = number_of(given, "eps", 0);
  if (given.contains("weight_decay")) settings.weight_decay = number_of(given, "weight_decay", 0);
  if (given.contains("betas")) {
    const Json& betas = given["betas"];
    TD_CHECK(betas.is_array() && betas.size() == 2 && betas[0].is_number() && betas[1].is_number(),
             "workload.optimizer.betas: must be two numbers; got ", io::one_line(betas.dump(), 80), ".");
    settings.beta1 = betas[0];
    settings.beta2 = betas[1];
  }
  return settings;
}

}  // namespace

void set_hash_weights(nn::Module& model, uint32_t seed) {
  nn::NamedTensors parameters = model.named_parameters();
  std::sort(parameters.begin(), parameters.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const NoGrad off;
  for (size_t t = 0; t < parameters.size(); ++t) {
    const auto& [name, parameter] = parameters[t];
    const bool is_vector = parameter.rank() < 2;
    const double fan_in = is_vector ? 1 : static_cast<double>(parameter.size() / parameter.size(0));
    const float width = is_vector ? 0.05f : static_cast<float>(std::sqrt(6 / fan_in));
    const float base = is_vector && name.ends_with("weight") ? 1.0f : 0.0f;
    const uint32_t stream = seed + static_cast<uint32_t>(t);
    const Tensor values = empty(parameter.shape());
    float* out = values.data<float>();
    parallel_ranges(parameter.size(), 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto bits = static_cast<float>(hashed(static_cast<uint32_t>(i), stream) >> 8);
        const float value = (bits * 0x1p-24f - 0.5f) * 2.0f * width;
        out[i] = value + base;
      }
    });
    assign(parameter, to(values, parameter.device()));
  }
  set_running(model);
}

std::unique_ptr<nn::Module> make_network(const CellRequest& cell) {
  manual_seed(cell.seed);
  zoo::ModelOptions options;
  if (!cell.dropout) options.dropout = 0.0;
  std::unique_ptr<nn::Module> model;
  if (cell.is_whole) {
    const zoo::LayerDescription& layer = cell.line.calls.at(0).layer;
    model = zoo::make_model(layer.type, options_of(layer.settings, cell.dropout));
    check_parameters(cell, *model);
  } else if (cell.in_zoo) {
    // Built from the class, not from the description: all other drivers use the description, so that the gate would not see a
    // mistake in it.
    if (cell.objective.classes > 0) options.classes = cell.objective.classes;
    options.input = cell.line.inputs.at(0).shape;
    model = zoo::make_model(cell.model, options);
    check_parameters(cell, *model);
  } else {
    model = zoo::make_model(cell.description, options);
  }
  if (cell.switches.contains("lstm"))
    for (const auto& [name, module] : model->named_modules())
      if (auto* layer = dynamic_cast<nn::RecurrentLayer*>(module))
        layer->set_implementation(
            nn::parse_recurrent_implementation(cell.switches["lstm"].get<std::string>()));
  if (cell.weights_hash) set_hash_weights(*model, *cell.weights_hash);
  if (!cell.weights_file.empty()) load_weights(*model, cell.weights_file);
  model->to(cell.dtype());
  model->to(cell.device);
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const CellRequest& cell, const nn::Module& model) {
  const std::string name = cell.optimizer["name"];
  const std::vector<std::string> names = optimizer_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw Declined("optimizer", str("optimizer: must be one of ", optim::optimizer_names(), "; got '",
                                    io::one_line(name, 80), "'."));
  if (cell.equal) return optim::make_optimizer(name, model.named_parameters(), settings_of(cell.optimizer));
  double lr = optim::optimizer_info(name).lr;
  if (cell.in_zoo && zoo::model_info(cell.model).training.optimizer == name)
    lr = zoo::model_info(cell.model).training.lr;
  return optim::make_optimizer(name, model.named_parameters(), {.lr = lr});
}

}  // namespace tandem::lab::tandem_driver
