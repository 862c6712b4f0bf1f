// A driver that is broken on purpose: Tandem's own driver, with one fault that its argument names. Without one it is an
// honest driver. The tests see to it that the lab catches each fault by its name.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <new>
#include <streambuf>
#include <string>
#include <thread>

#include "lab/src/tandem_driver/driver.h"
#include "lab/src/tandem_driver/network.h"
#include "lab/src/tandem_driver/prepared_cell.h"
#include "lab/src/tandem_driver/samples.h"
#include "lab/src/tandem_driver/steps.h"
#include "lab/src/tandem_driver/task.h"

namespace {

using nlohmann::json;
using namespace tandem;

std::string g_fault;
json g_request = json::object(), g_preparation;
int64_t g_asked = 0, g_extra_updates = 0;

bool fault(const char* name) { return g_fault == name; }

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void print(const std::string& line) { std::cout << line << '\n' << std::flush; }

/// The outputs of the first batch with dropout left on, as a driver gives them that forgets the test mode.
json outputs_with_dropout() {
  const lab::tandem_driver::CellRequest cell = lab::tandem_driver::read_prepare(g_preparation);
  const auto model = lab::tandem_driver::make_network(cell);
  model->train();
  const auto samples = lab::tandem_driver::load_samples("train", cell.train, cell);
  const NoGrad no_grad;
  const Tensor out = model->forward(lab::tandem_driver::batch_of(*samples, 0, cell.batch)[0]);
  return {{"out", {{"shape", {out.size(0), out.size(1)}}, {"values", out.to_vector<float>()}}}};
}

/// The outputs of the first batch that begin with the states which it leaves itself, as a driver gives them that forgets to reset.
json outputs_with_carried_states() {
  const lab::tandem_driver::CellRequest cell = lab::tandem_driver::read_prepare(g_preparation);
  const auto model = lab::tandem_driver::make_network(cell);
  model->eval();
  const auto samples = lab::tandem_driver::load_samples("train", cell.train, cell);
  const NoGrad no_grad;
  std::vector<Tensor> states = lab::tandem_driver::first_states(cell, cell.batch);
  const std::vector<Tensor> batch = lab::tandem_driver::batch_of(*samples, 0, cell.batch);
  lab::tandem_driver::outputs_of(cell, *model, batch, states);
  json outputs;
  const std::vector<Tensor> out = lab::tandem_driver::outputs_of(cell, *model, batch, states);
  for (size_t i = 0; i < out.size(); ++i)
    outputs[cell.line.outputs[i].name] = lab::tandem_driver::shown_values(out[i]);
  return outputs;
}

void tamper_outputs(json& outputs) {
  if (outputs.empty()) return;
  const std::string name = outputs.begin().key();
  json& output = outputs[name];
  if (fault("no_output")) outputs.erase(name);
  if (fault("extra_output")) outputs["more"] = output;
  if (fault("wrong_shape")) std::swap(output["shape"][0], output["shape"][1]);
  if (fault("few_values")) output["values"].erase(0);
  if (fault("million_values")) output["values"] = std::vector<double>(1'000'000, 0.5);
  if (fault("null_in_outputs")) output["values"][0] = nullptr;
  if (fault("huge_in_outputs")) output["values"][0] = 1e300;
}

/// A line of progress of `fit`, or its answer.
void tamper_fit(json& answer) {
  if (answer.contains("progress")) {
    json& epoch = answer["progress"];
    if (fault("epochs_reversed")) epoch["epoch"] = 3 - epoch["epoch"].get<int64_t>();
    if (fault("epoch_repeated")) epoch["epoch"] = 1;
    if (fault("accuracy_beyond_one")) epoch["test_metrics"]["accuracy"] = 1.5;
    if (fault("metric_not_asked")) epoch["test_metrics"]["beauty"] = 0.5;
    if (fault("null_metric")) epoch["test_metrics"]["accuracy"] = nullptr;
  } else if (answer.contains("tests")) {
    if (fault("test_missing")) answer["tests"].erase(answer["tests"].begin());
    if (fault("test_not_asked")) answer["tests"]["test_of_courage"] = answer["tests"].front();
    if (fault("test_beyond_one")) answer["tests"].front()["metrics"]["accuracy"] = 2;
  }
}

/// What happens in the middle of a run: a run of more than one step.
void break_down() {
  if (fault("early_exit")) {
    std::fprintf(stderr, "RuntimeError: the fake driver gives up\n");
    std::_Exit(3);
  }
  if (fault("killed")) ::raise(SIGKILL);
  if (fault("segmentation_fault")) ::raise(SIGSEGV);
  if (fault("hang")) sleep_s(1e6);
  if (fault("hang_deaf")) {
    ::signal(SIGTERM, SIG_IGN);
    ::signal(SIGINT, SIG_IGN);
    sleep_s(1e6);
  }
  if (fault("bad_alloc")) {
    // What a C++ program says that lets the exception through.
    std::fprintf(stderr, "terminate called after throwing an instance of 'std::bad_alloc'\n");
    std::abort();
  }
  if (fault("garbage")) print("2026-01-01 00:00:00 I0000 some framework says hello");
  if (fault("half_line")) {
    std::cout << "{\"id\": 4, \"ok\": tr" << std::flush;
    std::_Exit(0);
  }
  if (fault("huge_line")) print(std::string(size_t{70} << 20, 'x'));
  if (fault("endless_line"))
    for (const std::string piece(1 << 16, 'x');;) std::cout << piece << std::flush;
  if (fault("raves"))
    for (;;) std::fprintf(stderr, "a framework that cannot stop complaining\n");
  if (fault("closes_output")) {
    ::close(1);
    sleep_s(1e6);
  }
}

/// Every sample is as long as the longest.
void ignore_lengths(json& request) {
  std::string& path = request["data"]["train"]["n"].get_ref<std::string&>();
  const Tensor lengths = io::load_npy(path);
  path += ".ignored.npy";
  io::save_npy(path, full(lengths.shape(), max(lengths).item<int64_t>(), DType::i64));
}

json tampered_request(json request) {
  g_request = request;
  const std::string call = request.value("call", "");
  if (call == "prepare") {
    g_preparation = request;
    if (fault("wrong_weights")) request["weights"] = {{"hash", 99}};
    // Right in the gate, whose batch is another, and another network where it is timed.
    if (fault("other_network") && request["batch"] == 4) request["weights"] = {{"hash", 99}};
    if (fault("lengths_ignored")) ignore_lengths(request);
    if (fault("trim_ignored")) request.erase("trim");
    if (fault("trimmed_wrong") && request.contains("trim")) request["trim"]["length"]["multiple"] = 64;
    if (fault("wrong_learning_rate"))
      request["workload"]["optimizer"]["lr"] = request["workload"]["optimizer"]["lr"].get<double>() * 2;
    if (request["data"].contains("images")) {
      json& images = request["data"]["images"];
      if (fault("wrong_mean")) images["mean"][0] = images["mean"][0].get<double>() + 0.015;
      if (fault("wrong_crop")) images["resize"] = images["resize"].get<int64_t>() + 4;
    }
    if (fault("other_samples") && request["data"].contains("train"))
      request["seed"] = 7, request["batch"] = 8;
  }
  if (call == "run") {
    g_asked = request["steps"];
    if (g_asked > 1) break_down();
    const bool throughput = request["region"] == "throughput";
    if (throughput && fault("skips_most")) request["steps"] = std::max<int64_t>(1, g_asked / 5);
    if (throughput && fault("skips_half")) request["steps"] = std::max<int64_t>(1, g_asked / 2);
    if (fault("idle")) request["steps"] = 1;
  }
  return request;
}

void tamper_steps(json& answer) {
  json& steps = answer["steps"];
  const size_t n = steps.size();
  if (fault("short_window"))
    for (json& step : steps)
      step[1] = step[0].get<int64_t>() + (step[1].get<int64_t>() - step[0].get<int64_t>()) / 10;
  if (fault("negative") && n > 1) std::swap(steps[n / 2][0], steps[n / 2][1]);
  if (fault("overlap") && n > 1) steps[n / 2][0] = steps[n / 2 - 1][0];
  if (fault("too_few") && n > 1) steps.erase(n - 1);
  if (fault("early") || fault("late"))
    for (json& step : steps)
      for (json& stamp : step) stamp = stamp.get<int64_t>() + (fault("late") ? 1 : -1) * 3'600'000'000'000;
}

void tamper_input(json& answer) {
  static json first;  // the sums of the first batch that was made
  if (fault("same_batch") && first.is_null()) first = answer["samples_sum"];
  if (fault("same_batch")) answer["samples_sum"] = first;
  if (fault("no_sums")) answer.erase("samples_sum");
  if (fault("other_sums")) answer["samples_sum"]["z"] = 1;
  if (fault("text_in_sums")) answer["samples_sum"]["x"] = "many";
  if (fault("no_wait")) answer.erase("wait_ns");
  if (fault("long_wait")) answer["wait_ns"] = int64_t{3'600'000'000'000};
}

/// Sleeps as long as the steps would take, and makes up stamps.
void fake_steps(json& answer, bool throughput) {
  const int64_t begin = lab::tandem_driver::now_ns();
  sleep_s(0.004 * static_cast<double>(g_asked));
  const int64_t end = lab::tandem_driver::now_ns(), each = (end - begin) / g_asked;
  if (throughput) {
    answer["begin"] = begin, answer["end"] = end, answer["count"] = g_asked;
  } else {
    answer["steps"] = json::array();
    for (int64_t i = 0; i < g_asked; ++i)
      answer["steps"].push_back({begin + i * each, begin + (i + 1) * each});
  }
  g_extra_updates += g_asked - 1;
}

json tampered_answer(json answer) {
  const std::string call = g_request.value("call", "");
  if (fault("wrong_id") && call == "run") answer["id"] = answer["id"].get<int64_t>() + 1;
  if (call == "fit") tamper_fit(answer);
  if (!answer.value("ok", false)) return answer;
  if (call == "hello" && fault("old_protocol")) answer["protocol"] = 0;
  if (call == "hello" && fault("no_trims")) answer.erase("trims");
  if (call == "hello" && fault("no_version")) answer.erase("version");
  if (call == "hello" && fault("no_pipeline")) {
    answer["phases"] = {"train", "infer"};
    answer["switches"].erase("feed");
  }
  if (call == "prepare" && fault("more_parameters"))
    answer["parameters"] = answer["parameters"].get<int64_t>() + 10;
  if (call == "check") {
    if (fault("more_parameters")) answer["parameters"] = answer["parameters"].get<int64_t>() + 10;
    if (fault("dropout_on") && g_preparation["phase"] == "infer") answer["outputs"] = outputs_with_dropout();
    if (fault("states_carried") && g_preparation["phase"] == "infer")
      answer["outputs"] = outputs_with_carried_states();
    tamper_outputs(answer["outputs"]);
    if (fault("extra_gradient") && answer.contains("gradients")) answer["gradients"]["ghost.weight"] = 1;
    if (fault("null_loss") && answer.contains("losses")) answer["losses"][3] = nullptr;
    if (fault("text_in_outputs")) answer["outputs"]["out"]["values"][0] = "NaN";
    if (fault("no_gradient") && answer.contains("gradients"))
      answer["gradients"].erase(answer["gradients"].begin());
  }
  if (call == "run") {
    const bool throughput = g_request["region"] == "throughput";
    if (fault("out_of_memory") && g_asked > 1)
      return {{"id", answer["id"]},
              {"ok", false},
              {"error", {{"kind", "out_of_memory"}, {"what", "memory"}, {"message", "CUDA out of memory"}}}};
    if (fault("failed") && g_asked > 1)
      return {{"id", answer["id"]},
              {"ok", false},
              {"error", {{"kind", "failed"}, {"what", "x"}, {"message", "no such kernel"}}}};
    if (throughput && (fault("skips_most") || fault("skips_half"))) {
      g_extra_updates += g_asked - answer["count"].get<int64_t>();
      answer["count"] = g_asked;
    }
    if (fault("idle") && g_asked > 1) fake_steps(answer, throughput);
    if (!throughput) tamper_steps(answer);
    if (throughput && fault("short_window"))
      answer["end"] = answer["begin"].get<int64_t>() +
                      (answer["end"].get<int64_t>() - answer["begin"].get<int64_t>()) / 10;
    answer["updates"] =
        answer["updates"].get<int64_t>() + (g_preparation["phase"] == "train" ? g_extra_updates : 0);
    tamper_input(answer);
    if (fault("no_updates")) answer["updates"] = 0;
    if (fault("stuck_loss")) {
      static const json first = answer["loss"];  // which is right, and never moves again
      answer["loss"] = first;
    }
    if (fault("no_loss") || (fault("diverges") && g_asked > 1)) answer["loss"] = nullptr;
    if (fault("other_outputs_later") && g_asked > 1 && answer["output_sum"].is_number())
      answer["output_sum"] = answer["output_sum"].get<double>() + 10;
    if (fault("drifting_output") && g_asked > 1 && answer["output_sum"].is_number())
      answer["output_sum"] =
          answer["output_sum"].get<double>() + 10 * static_cast<double>(answer["id"].get<int64_t>());
  }
  return answer;
}

/// Requests from stdin, tampered with, as the own driver's input.
class Requests : public std::streambuf {
  int_type underflow() override {
    std::string line;
    if (!std::getline(std::cin, line)) return traits_type::eof();
    const json request = json::parse(line, nullptr, false);
    line_ = (request.is_object() ? tampered_request(request).dump() : line) + "\n";
    setg(line_.data(), line_.data(), line_.data() + line_.size());
    return traits_type::to_int_type(line_[0]);
  }
  std::string line_;
};

/// The own driver's answers, tampered with, to stdout.
class Answers : public std::streambuf {
  int_type overflow(int_type c) override {
    if (c == '\n') {
      print(tampered_answer(json::parse(line_)).dump());
      line_.clear();
    } else if (c != traits_type::eof()) {
      line_ += static_cast<char>(c);
    }
    return c;
  }
  std::string line_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) g_fault = argv[1];
  if (fault("dies_at_start")) {
    std::fprintf(stderr, "ImportError: no module named numpy\n");
    return 1;
  }
  if (fault("orphan") && ::fork() == 0) {
    ::setsid();  // out of the group, as some frameworks' workers are
    ::close(0), ::close(1), ::close(2);
    sleep_s(600);
    std::_Exit(0);
  }
  if (fault("chatty"))
    for (int i = 0; i < 20000; ++i)
      std::fprintf(stderr, "a line of a framework's log, number %d, as many write them\n", i);
  Requests requests;
  Answers answers;
  std::istream in(&requests);
  std::ostream out(&answers);
  return lab::run_tandem_driver(in, out);
}
