// One prepared network with its optimiser: the steps that the driver times.
#pragma once

#include "cell.h"
#include "loss.h"
#include "network.h"

#include <torch/cuda.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>

namespace libtorch_driver {

/// A batch on the device: the network's inputs and what the loss takes beside the output.
struct Batch {
  Tensors inputs;
  Tensor target, lengths;
};

/// bf16 autocast while it lives, where the cell wants it.
class Autocast {
 public:
  Autocast(bool wanted, c10::DeviceType device) : wanted_(wanted), device_(device) {
    if (!wanted_) return;
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
  }
  ~Autocast() {
    if (!wanted_) return;
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool wanted_;
  c10::DeviceType device_;
};

class Model {
 public:
  explicit Model(const Cell& cell)
      : cell_(cell),
        device_(cell.device),
        type_(cell.precision == "f64" ? torch::kDouble : torch::kFloat),
        loss_function_(loss_function(cell.loss.kind)) {
    obey();
    torch::manual_seed(static_cast<uint64_t>(cell.seed));
    network_ = std::make_unique<Network>(cell);
    load();
    layers().to(device_, type_);
    if (cell.phase == "train") make_optimizer();
    layers().train(cell.phase == "train");
    reset_states();
  }

  Json obeyed() const { return obeyed_; }
  Json notes() const { return notes_; }

  int64_t parameters() const {
    int64_t all = 0;
    for (const auto& parameter : network_->parameters()) all += parameter.second.numel();
    return all;
  }

  void reset_states() { network_->reset_states(cell_.batch, torch::TensorOptions(device_).dtype(type_)); }

  Batch place(const Samples& samples, int64_t index, const std::vector<int64_t>* order = nullptr) const {
    const auto read = [&](const std::string& name, bool whole, std::vector<int64_t> sizes) {
      sizes.insert(sizes.begin(), cell_.batch);
      const Tensor read = torch::empty(sizes, whole ? torch::kLong : torch::kFloat);
      samples.batch(name, index, cell_.batch, order, read.data_ptr());
      return read;
    };
    const auto placed = [&](const Tensor& read) {
      return read.is_floating_point() ? read.to(device_, type_) : read.to(device_);
    };
    Batch batch;
    Tensors host;
    for (const Value& input : cell_.inputs)
      host.push_back(read(input.name, input.type == "i64", input.shape));
    for (const Tensor& input : host) batch.inputs.push_back(placed(input));
    for (const size_t input : network_->host_inputs()) batch.inputs.push_back(host[input]);
    const Loss& loss = cell_.loss;
    batch.target = placed(read(loss.target, loss.kind == "cross_entropy", loss.target_shape));
    if (!loss.lengths.empty()) batch.lengths = placed(read(loss.lengths, true, {}));
    return batch;
  }

  void train_step(const Batch& batch) {
    if (!layers().is_training()) layers().train();
    optimizer_->zero_grad();
    loss_ = loss_of(batch);
    loss_.backward();
    optimizer_->step();
  }

  void infer_step(const Batch& batch) {
    if (layers().is_training()) layers().eval();
    const c10::InferenceMode guard;
    outputs_ = forward(batch);
  }

  void synchronize() const {
    if (device_.is_cuda()) torch::cuda::synchronize(device_.index());
  }

  double read_loss() const { return loss_.item<double>(); }
  /// Output number i of the last step, (batch, …) in f64 on the CPU.
  Tensor read_output(size_t i) const {
    return outputs_[i].detach().to(torch::kCPU, torch::kDouble).contiguous();
  }

  /// Adds the last training step's loss and right answers to the epoch's sums, on the device.
  void count(const Batch& batch) {
    const torch::NoGradGuard guard;
    loss_sum_ = loss_sum_.defined() ? loss_sum_ + loss_ : loss_.detach();
    if (!cell_.measures("accuracy")) return;
    Tensor right = outputs_[cell_.loss.output].argmax(-1) == batch.target;
    if (batch.lengths.defined()) right = right & libtorch_driver::counted(batch.lengths, batch.target);
    right_ = right_.defined() ? right_ + right.sum() : right.sum();
  }
  /// (sum of the losses, number of right answers) since the last call.
  std::pair<double, int64_t> counted() {
    const std::pair<double, int64_t> sums{loss_sum_.item<double>(),
                                          right_.defined() ? right_.item<int64_t>() : 0};
    loss_sum_ = right_ = Tensor();
    return sums;
  }

  /// Loss, and by name the norms of the gradients, in training mode and from zero states. No update; running statistics
  /// and states stay as they are.
  std::pair<double, Json> loss_and_gradients(const Batch& batch) {
    layers().train();
    const Tensors states = network_->states;
    std::vector<Tensor> kept;
    for (const Tensor& buffer : layers().buffers()) kept.push_back(buffer.clone());
    layers().zero_grad();
    reset_states();
    const Tensor loss = loss_of(batch);
    loss.backward();
    Json norms = Json::object();
    for (const auto& [name, parameter] : network_->parameters())
      norms[name] =
          parameter.grad().defined() ? parameter.grad().to(torch::kDouble).norm().item<double>() : 0.0;
    layers().zero_grad();
    const torch::NoGradGuard guard;
    const std::vector<Tensor> buffers = layers().buffers();
    for (size_t i = 0; i < kept.size(); ++i) buffers[i].copy_(kept[i]);
    network_->states = states;
    return {loss.item<double>(), norms};
  }

 private:
  torch::nn::Module& layers() { return network_->layers(); }

  Tensors forward(const Batch& batch) {
    const Autocast autocast(cell_.precision == "bf16", device_.type());
    return network_->forward(batch.inputs);
  }

  Tensor loss_of(const Batch& batch) {
    outputs_ = forward(batch);
    const Tensor& output = outputs_[cell_.loss.output];
    return loss_function_(cell_.precision == "bf16" ? output.to(torch::kFloat) : output, batch.target,
                          batch.lengths, false);
  }

  void obey() {
    const bool cuda = device_.is_cuda();
    const std::string conv = cell_.switches.value("conv", "heuristic");
    if (conv == "profile" && !cuda)
      throw Declined("conv", "conv: profile is cuDNN's benchmark, which acts on CUDA devices alone; got " +
                                 cell_.device + ".");
    if (cell_.switches.contains("onednn") && cuda)
      throw Declined("onednn", "onednn: acts on the CPU alone; got " + cell_.device + ".");
    if (cell_.precision == "tf32" && !cuda)
      throw Declined("precision", "precision: tf32 is a format of CUDA devices; got " + cell_.device + ".");
    obeyed_ = {{"conv", conv}};
    at::Context& context = at::globalContext();
    context.setBenchmarkCuDNN(conv == "profile");
    if (!cuda) {
      const std::string onednn = cell_.switches.value("onednn", "on");
      context.setUserEnabledMkldnn(onednn == "on");
      obeyed_["onednn"] = onednn;
    }
    context.setFloat32MatmulPrecision(cell_.precision == "tf32" ? "high" : "highest");
    context.setAllowTF32CuDNN(cell_.precision == "tf32");
    at::set_num_threads(static_cast<int>(cell_.threads));
  }

  void load() {
    if (cell_.weights.is_null()) {
      notes_.push_back("weights: libtorch's own initialisation, seed " + std::to_string(cell_.seed));
      return;
    }
    Shapes shapes;
    for (const auto& [name, parameter] : network_->parameters()) shapes[name] = parameter.sizes().vec();
    Weights weights = cell_.weights.contains("hash")
                          ? hash_weights(shapes, cell_.weights.at("hash").get<int64_t>())
                          : read_weights(cell_.weights.at("file").get<std::string>(), shapes);
    const torch::NoGradGuard guard;
    const auto copy = [&](const std::string& name, const Tensor& to) {
      const auto found = weights.find(name);
      if (found == weights.end()) return;
      TORCH_CHECK(static_cast<int64_t>(found->second.size()) == to.numel(), "weights.file: ", name,
                  " must have ", to.numel(), " numbers; got ", found->second.size(), ".");
      to.copy_(torch::from_blob(found->second.data(), to.sizes(), torch::kFloat));
    };
    for (const auto& [name, parameter] : network_->parameters()) copy(name, parameter);
    for (const auto& [name, statistic] : network_->statistics()) copy(name, statistic);
  }

  double option(const std::string& name, double otherwise) const {
    const Json value = field(cell_.optimizer, name);
    return value.is_null() ? otherwise : value.get<double>();
  }

  void make_optimizer() {
    const auto name = cell_.optimizer.at("name").get<std::string>();
    const std::vector<std::string> known =
        name == "sgd"
            ? std::vector<std::string>{"name", "lr", "momentum", "weight_decay", "nesterov", "dampening"}
        : name == "adam" ? std::vector<std::string>{"name", "lr", "betas", "eps", "weight_decay", "amsgrad"}
                         : std::vector<std::string>{};
    if (known.empty())
      throw Declined("optimizer", "optimizer: must be one of sgd, adam; got \"" + name +
                                      "\". libtorch has neither adadelta nor others of PyTorch's.");
    for (const auto& entry : cell_.optimizer.items())
      if (std::find(known.begin(), known.end(), entry.key()) == known.end())
        throw Declined("optimizer." + entry.key(),
                       "optimizer." + entry.key() + ": " + name + " has no such option.");
    const bool shipped = cell_.track == "as_shipped";
    if (shipped)
      notes_.push_back("optimizer: " + name + " with libtorch's own defaults (sgd has none for lr: 0.001)");
    const double lr = shipped ? 1e-3 : option("lr", 1e-3);
    if (name == "sgd") {
      torch::optim::SGDOptions options(lr);
      if (!shipped)
        options.momentum(option("momentum", 0))
            .weight_decay(option("weight_decay", 0))
            .dampening(option("dampening", 0))
            .nesterov(cell_.optimizer.value("nesterov", false));
      optimizer_ = std::make_unique<torch::optim::SGD>(layers().parameters(), options);
    } else {
      torch::optim::AdamOptions options(lr);
      if (!shipped) {
        options.eps(option("eps", 1e-8))
            .weight_decay(option("weight_decay", 0))
            .amsgrad(cell_.optimizer.value("amsgrad", false));
        if (cell_.optimizer.contains("betas"))
          options.betas(
              {cell_.optimizer["betas"].at(0).get<double>(), cell_.optimizer["betas"].at(1).get<double>()});
      }
      optimizer_ = std::make_unique<torch::optim::Adam>(layers().parameters(), options);
    }
  }

  const Cell& cell_;
  torch::Device device_;
  torch::ScalarType type_;
  LossFunction loss_function_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Tensors outputs_;
  Tensor loss_, loss_sum_, right_;
  Json obeyed_ = Json::object(), notes_ = Json::array();
};

}  // namespace libtorch_driver
