// The libtorch driver: PyTorch's C++ library under the lab's protocol (lab/docs/protocol.md). It is the program that a
// user of C++ would write: the same networks in torch::nn, run eagerly. lab/drivers/libtorch/build.py builds it.
#include <time.h>
#include <torch/version.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <numeric>

#include "model.h"

namespace libtorch_driver {
namespace {

constexpr int64_t kResidentBatches = 8;   // how many batches of `run` lie on the device
constexpr int64_t kCheckedValues = 4096;  // how many numbers of an output `check` tells at most

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

/// One process: its answers, and the cell that was prepared last.
class Dialogue {
 public:
  explicit Dialogue(std::FILE* output) : output_(output) {}

  /// Answers one line; false after quit.
  bool answer(const std::string& line) {
    Json reply = {{"id", nullptr}, {"ok", false}};
    std::string call;
    try {
      const Json request = Json::parse(line);
      if (!request.is_object()) throw std::runtime_error("request: must be a JSON object; got " + line + ".");
      reply["id"] = field(request, "id");
      call = request.value("call", "");
      Json fields = dispatch(call, request);
      reply["ok"] = true;
      reply.update(fields);
    } catch (const Declined& error) {
      reply["error"] = {{"kind", "declined"}, {"what", error.what_name}, {"message", error.what()}};
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      std::cerr << error.what() << std::endl;
      const bool memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                          text.find("out of memory") != std::string::npos ||
                          text.find("can't allocate memory") != std::string::npos;
      reply["error"] = {
          {"kind", memory ? "out_of_memory" : "failed"}, {"what", "c10::Error"}, {"message", text}};
    } catch (const std::bad_alloc& error) {
      reply["error"] = {{"kind", "out_of_memory"}, {"what", "bad_alloc"}, {"message", error.what()}};
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      reply["error"] = {{"kind", "failed"}, {"what", "exception"}, {"message", error.what()}};
    }
    emit(reply);
    return call != "quit";
  }

 private:
  void emit(const Json& reply) {
    // A framework's message may hold bytes that are no UTF-8; infinities and NaN become null.
    const std::string text = reply.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    std::fwrite(text.data(), 1, text.size(), output_);
    std::fflush(output_);
  }

  Json dispatch(const std::string& call, const Json& request) {
    if (call == "hello") return hello();
    if (call == "prepare") return prepare(request);
    if (call == "check") return check(request);
    if (call == "run") return run(request);
    if (call == "fit") return fit(request);
    if (call == "breakdown")
      throw Declined(call, "breakdown: libtorch's profiler has no C++ interface that is meant for programs.");
    if (call == "quit") return Json::object();
    throw Declined(call,
                   call + ": this driver has no such call; it has hello, prepare, check, run, fit, quit.");
  }

  static Json hello() {
    Json devices = {"cpu"}, precisions = {"f32", "bf16", "f64"}, conv = {"heuristic"};
    if (torch::cuda::is_available()) {
      for (int i = 0; i < torch::cuda::device_count(); ++i) devices.push_back("cuda:" + std::to_string(i));
      precisions.push_back("tf32");
      conv.push_back("profile");
    }
    return {{"protocol", 2},
            {"framework", "libtorch"},
            {"version", TORCH_VERSION},
            {"variants", {"eager"}},
            {"devices", devices},
            {"kinds", Network::kinds()},
            {"losses", loss_kinds()},
            {"listings", Network::listings()},
            {"phases", {"train", "infer"}},
            {"precisions", precisions},
            {"switches", {{"conv", conv}, {"onednn", {"on", "off"}}}},
            {"libraries", Json::object()}};
  }

  Json prepare(const Json& request) {
    placed_.clear();
    model_.reset();  // before the next is built: two may not fit
    updates_ = 0;
    const int64_t begin = now_ns();
    cell_ = cell_of(request, hello());
    auto model = std::make_unique<Model>(cell_);
    model->synchronize();
    model_ = std::move(model);
    return {{"parameters", model_->parameters()},
            {"prepare_ns", now_ns() - begin},
            {"obeyed", model_->obeyed()},
            {"notes", model_->notes()}};
  }

  Model& prepared(const std::string& call) {
    if (!model_) throw std::runtime_error(call + ": a cell must be prepared first; got none.");
    return *model_;
  }

  Json check(const Json& request) {
    Model& model = prepared("check");
    const Batch first = model.place(cell_.samples(), 0);
    model.reset_states();
    model.infer_step(first);
    Json outputs = Json::object();
    for (size_t i = 0; i < cell_.outputs.size(); ++i)
      outputs[cell_.outputs[i].name] = checked_values(model.read_output(i));
    Json answer = {{"parameters", model.parameters()}, {"outputs", outputs}};
    if (cell_.phase == "infer") return answer;
    const int64_t steps = request.contains("steps") ? whole_number(request, "steps", 0) : 1;
    const auto [loss, norms] = model.loss_and_gradients(first);
    answer["loss"] = loss;
    answer["gradients"] = norms;
    answer["losses"] = Json::array();
    model.reset_states();
    for (int64_t i = 0; i < steps; ++i, ++updates_) {
      model.train_step(model.place(cell_.samples(), i));
      answer["losses"].push_back(model.read_loss());
    }
    return answer;
  }

  /// Shape and numbers of an output; of many, those that the hash picks.
  static Json checked_values(const Tensor& output) {
    const double* numbers = output.data_ptr<double>();
    std::vector<double> values(static_cast<size_t>(std::min(output.numel(), kCheckedValues)));
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = numbers[output.numel() > kCheckedValues
                              ? hashed(static_cast<uint32_t>(k), kCheckedValues) % output.numel()
                              : static_cast<int64_t>(k)];
    return {{"shape", output.sizes().vec()}, {"values", values}};
  }

  Json run(const Json& request) {
    Model& model = prepared("run");
    const std::string region = must_be_one_of("region", field(request, "region"), {"latency", "throughput"});
    const int64_t steps = whole_number(request, "steps", 1);
    if (placed_.empty()) {
      const int64_t whole = cell_.samples().size() / cell_.batch;
      for (int64_t i = 0; i < std::max<int64_t>(1, std::min(kResidentBatches, whole)); ++i)
        placed_.push_back(model.place(cell_.samples(), i));
    }
    const bool training = cell_.phase == "train";
    const auto step = [&](int64_t i) {
      const Batch& batch = placed_[static_cast<size_t>(i) % placed_.size()];
      training ? model.train_step(batch) : model.infer_step(batch);
    };
    Json answer;
    model.reset_states();
    model.synchronize();
    if (region == "latency") {
      std::vector<std::array<int64_t, 2>> times(static_cast<size_t>(steps));
      for (int64_t i = 0; i < steps; ++i) {
        const int64_t begin = now_ns();
        step(i);
        model.synchronize();
        times[static_cast<size_t>(i)] = {begin, now_ns()};
      }
      answer["steps"] = times;
    } else {
      const int64_t begin = now_ns();
      for (int64_t i = 0; i < steps; ++i) step(i);
      model.synchronize();
      answer = {{"begin", begin}, {"end", now_ns()}, {"count", steps}};
    }
    answer["loss"] = training ? Json(model.read_loss()) : Json();
    if (training) {
      updates_ += steps;
    } else {
      double sum = 0;
      for (size_t i = 0; i < cell_.outputs.size(); ++i) sum += model.read_output(i).sum().item<double>();
      answer["output_sum"] = sum;
    }
    answer["updates"] = updates_;
    return answer;
  }

  Json fit(const Json& request) {
    Model& model = prepared("fit");
    if (cell_.phase != "train") throw Declined("fit", "fit: must be prepared in phase train; got infer.");
    const int64_t epochs = whole_number(request, "epochs", 1);
    const Json cap = field(request, "cap_s");
    const double cap_ns = cap.is_number() ? cap.get<double>() * 1e9 : INFINITY;
    const Samples& samples = *cell_.train;
    const int64_t batches = samples.size() / cell_.batch;
    if (batches == 0)
      throw std::runtime_error("fit: an epoch must have a whole batch; got " +
                               std::to_string(samples.size()) + " samples and batch " +
                               std::to_string(cell_.batch) + ".");
    const int64_t start = now_ns();
    Json confusion;
    bool capped = false;
    int64_t done = 0;
    while (done < epochs && !capped) {
      // A network with states goes on from batch to batch: its samples keep the order of the file.
      std::vector<int64_t> order(static_cast<size_t>(samples.size()));
      std::iota(order.begin(), order.end(), int64_t{0});
      if (cell_.network.at("states").empty()) order = epoch_order(samples.size(), cell_.seed, done);
      const int64_t begin = now_ns();
      model.reset_states();
      for (int64_t i = 0; i < batches; ++i) {
        const Batch batch = model.place(samples, i, &order);
        model.train_step(batch);
        model.count(batch);
      }
      model.synchronize();
      const int64_t train_end = now_ns();
      updates_ += batches;
      const auto [loss_sum, right] = model.counted();
      const double loss = loss_sum / static_cast<double>(batches);
      Json metrics = metrics_of(loss);
      if (cell_.measures("accuracy")) {
        order.resize(static_cast<size_t>(batches * cell_.batch));
        metrics["accuracy"] = static_cast<double>(right) / static_cast<double>(labels_in(samples, order));
      }
      Json line = {{"epoch", ++done},    {"begin", begin},       {"train_end", train_end}, {"loss", loss},
                   {"metrics", metrics}, {"test_loss", nullptr}, {"test_metrics", nullptr}};
      if (cell_.test) {
        const Tested tested = evaluate(*cell_.test);
        line["test_loss"] = tested.loss;
        line["test_metrics"] = tested.metrics;
        confusion = tested.confusion;
      }
      const int64_t end = now_ns();
      line["end"] = end;
      capped = static_cast<double>(end - start) > cap_ns && done < epochs;
      emit({{"id", field(request, "id")}, {"progress", line}});
    }
    Json tests = Json::object();
    for (const auto& [part, samples] : cell_.more_tests) {
      const Tested tested = evaluate(samples);
      tests[part] = {{"loss", tested.loss}, {"metrics", tested.metrics}};
    }
    return {{"epochs", done}, {"capped", capped}, {"confusion", confusion}, {"tests", tests}};
  }

  /// The metrics that follow from the mean loss.
  Json metrics_of(double loss) const {
    Json metrics = Json::object();
    if (cell_.measures("perplexity")) metrics["perplexity"] = std::exp(loss);
    if (cell_.measures(cell_.loss.kind)) metrics[cell_.loss.kind] = loss;
    return metrics;
  }

  /// How many labels of these samples count.
  int64_t labels_in(const Samples& samples, const std::vector<int64_t>& order) const {
    const std::vector<int64_t>& shape = cell_.loss.target_shape;
    const bool all = cell_.loss.lengths.empty();
    int64_t labels = static_cast<int64_t>(order.size()), each = 1;
    for (size_t i = all ? 0 : 1; i < shape.size(); ++i) each *= shape[i];
    if (!all) {
      std::vector<int64_t> lengths(order.size());
      samples.batch(cell_.loss.lengths, 0, labels, &order, lengths.data());
      labels = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    }
    return labels * each;
  }

  struct Tested {
    double loss = 0;
    Json metrics, confusion;  // confusion: null where there is not one label per sample
  };

  /// The last batch runs on from the first sample, and what was filled in is left out.
  Tested evaluate(const Samples& samples) {
    const Loss& loss = cell_.loss;
    const bool accuracy = cell_.measures("accuracy");
    const bool one_label = accuracy && loss.target_shape.empty() && cell_.classes > 0;
    Tensor confusion = torch::zeros({cell_.classes, cell_.classes}, torch::kLong);
    double loss_sum = 0;
    std::map<std::string, double> sums;  // of the metrics that other losses measure
    for (const char* metric : {"mse", "mae"})
      if (cell_.measures(metric) && loss.kind != metric) sums[metric] = 0;
    int64_t right = 0, places = 0;
    model_->reset_states();
    for (int64_t begin = 0; begin < samples.size(); begin += cell_.batch) {
      const Batch batch = model_->place(samples, begin / cell_.batch);
      model_->infer_step(batch);
      const int64_t kept = std::min(cell_.batch, samples.size() - begin);
      const auto cut = [&](const Tensor& x) { return x.defined() ? x.slice(0, 0, kept).to(torch::kCPU) : x; };
      const Tensor output = cut(model_->read_output(loss.output)), lengths = cut(batch.lengths);
      Tensor target = cut(batch.target);
      if (target.is_floating_point()) target = target.to(torch::kDouble);
      loss_sum += loss_function(loss.kind)(output, target, lengths, true).item<double>();
      for (auto& [metric, sum] : sums)
        sum += loss_function(metric)(output, target, lengths, true).item<double>();
      Tensor counts = torch::ones_like(target, torch::kBool);
      if (lengths.defined()) counts = counts & counted(lengths, target);
      places += counts.sum().item<int64_t>();
      if (!accuracy) continue;
      const Tensor taken = output.argmax(-1);
      right += ((taken == target) & counts).sum().item<int64_t>();
      if (one_label)
        confusion.view(-1).index_add_(0, target * cell_.classes + taken, torch::ones_like(target));
    }
    const auto mean = [places](double sum) { return sum / static_cast<double>(places); };
    Tested tested{mean(loss_sum), metrics_of(mean(loss_sum)), nullptr};
    if (accuracy) tested.metrics["accuracy"] = mean(static_cast<double>(right));
    for (const auto& [metric, sum] : sums) tested.metrics[metric] = mean(sum);
    if (!one_label) return tested;
    tested.confusion = Json::array();
    for (int64_t i = 0; i < cell_.classes; ++i) {
      const int64_t* row = confusion.data_ptr<int64_t>() + i * cell_.classes;
      tested.confusion.push_back(std::vector<int64_t>(row, row + cell_.classes));
    }
    return tested;
  }

  std::FILE* output_;
  Cell cell_;
  std::unique_ptr<Model> model_;
  std::vector<Batch> placed_;
  int64_t updates_ = 0;
};

}  // namespace
}  // namespace libtorch_driver

int main() {
  // Standard output is the protocol's; whatever a library prints goes to standard error.
  std::FILE* output = fdopen(dup(STDOUT_FILENO), "w");
  if (!output || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  libtorch_driver::Dialogue dialogue(output);
  std::string line;
  while (std::getline(std::cin, line))
    if (line.find_first_not_of(" \t\r") != std::string::npos && !dialogue.answer(line)) break;
  return 0;
}
