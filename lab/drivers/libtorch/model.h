// One prepared network with its optimiser: the steps that the driver times.
#pragma once

#include "cell.h"
#include "models.h"

#include <torch/cuda.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>

namespace libtorch_driver {

struct Batch {
  Tensor x, y;
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
      : cell_(cell), device_(cell.device), type_(cell.precision == "f64" ? torch::kDouble : torch::kFloat) {
    obey();
    torch::manual_seed(static_cast<uint64_t>(cell.seed));
    network_ = make_model(cell.model, {cell.classes, cell.input, cell.dropout});
    load();
    network_->to(device_, type_);
    if (cell.phase == "train") make_optimizer();
    network_->train(cell.phase == "train");
  }

  Json obeyed() const { return obeyed_; }
  Json notes() const { return notes_; }

  int64_t parameters() const {
    int64_t all = 0;
    for (const Tensor& p : network_->parameters()) all += p.numel();
    return all;
  }

  Batch place(const Samples& samples, int64_t index, const std::vector<int64_t>* order = nullptr) const {
    std::vector<int64_t> sizes = cell_.input;
    sizes.insert(sizes.begin(), cell_.batch);
    const Tensor x = torch::empty(sizes, torch::kFloat), y = torch::empty({cell_.batch}, torch::kLong);
    samples.batch(index, cell_.batch, order, x.data_ptr<float>(), y.data_ptr<int64_t>());
    return {x.to(device_, type_), y.to(device_)};
  }

  void train_step(const Batch& batch) {
    if (!network_->is_training()) network_->train();
    optimizer_->zero_grad();
    loss_ = loss_of(batch);
    loss_.backward();
    optimizer_->step();
  }

  void infer_step(const Batch& batch) {
    if (network_->is_training()) network_->eval();
    const c10::InferenceMode guard;
    logits_ = forward(batch.x);
  }

  void synchronize() const {
    if (device_.is_cuda()) torch::cuda::synchronize(device_.index());
  }

  double read_loss() const { return loss_.item<double>(); }
  /// Of the last step, (N, classes) in f64 on the CPU.
  Tensor read_logits() const { return logits_.detach().to(torch::kCPU, torch::kDouble).contiguous(); }

  /// Adds the last training step's loss and right answers to the epoch's sums, on the device.
  void count(const Batch& batch) {
    const torch::NoGradGuard guard;
    const Tensor right = (logits_.argmax(1) == batch.y).sum();
    loss_sum_ = loss_sum_.defined() ? loss_sum_ + loss_ : loss_.detach();
    right_ = right_.defined() ? right_ + right : right;
  }
  std::pair<double, int64_t> counted() {
    const std::pair<double, int64_t> sums{loss_sum_.item<double>(), right_.item<int64_t>()};
    loss_sum_ = right_ = Tensor();
    return sums;
  }

  /// Loss, and by name the norms of the gradients, in training mode. No update; running statistics stay as they are.
  std::pair<double, Json> loss_and_gradients(const Batch& batch) {
    network_->train();
    std::vector<Tensor> kept;
    for (const Tensor& buffer : network_->buffers()) kept.push_back(buffer.clone());
    network_->zero_grad();
    const Tensor loss = loss_of(batch);
    loss.backward();
    Json norms = Json::object();
    for (const auto& parameter : network_->named_parameters())
      norms[parameter.key()] = parameter.value().grad().to(torch::kDouble).norm().item<double>();
    network_->zero_grad();
    const torch::NoGradGuard guard;
    const std::vector<Tensor> buffers = network_->buffers();
    for (size_t i = 0; i < kept.size(); ++i) buffers[i].copy_(kept[i]);
    return {loss.item<double>(), norms};
  }

 private:
  Tensor forward(const Tensor& x) {
    const Autocast autocast(cell_.precision == "bf16", device_.type());
    return network_->forward(x);
  }

  Tensor loss_of(const Batch& batch) {
    logits_ = forward(batch.x);
    return torch::cross_entropy_loss(cell_.precision == "bf16" ? logits_.to(torch::kFloat) : logits_,
                                     batch.y);
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
    for (const auto& p : network_->named_parameters()) shapes[p.key()] = p.value().sizes().vec();
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
    for (const auto& p : network_->named_parameters()) copy(p.key(), p.value());
    for (const auto& b : network_->named_buffers()) copy(b.key(), b.value());
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
      optimizer_ = std::make_unique<torch::optim::SGD>(network_->parameters(), options);
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
      optimizer_ = std::make_unique<torch::optim::Adam>(network_->parameters(), options);
    }
  }

  const Cell& cell_;
  torch::Device device_;
  torch::ScalarType type_;
  std::shared_ptr<Network> network_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Tensor loss_, logits_, loss_sum_, right_;
  Json obeyed_ = Json::object(), notes_ = Json::array();
};

}  // namespace libtorch_driver
