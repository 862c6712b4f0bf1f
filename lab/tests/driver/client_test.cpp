// Typed calls: a driver of a few lines of shell answers each request with a given line, right or wrong.
#include "lab/src/driver/client.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace tandem::lab {
namespace {

using testing::TempFolder;
using testing::write_text;

const char* kHello =
    R"({"id": 1, "ok": true, "protocol": 2, "framework": "fake", "version": "1", "variants": ["a"], "devices": ["cpu"],
        "kinds": ["conv"], "losses": ["mse"], "listings": [], "phases": ["train"], "precisions": ["f32"], "switches": {"conv": ["fixed"]}})";

std::string flat(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

/// A driver that answers its n-th request by the n-th group of lines, then runs `last` (shell).
class Scripted {
 public:
  explicit Scripted(const std::vector<std::string>& answers, const std::string& last = "cat >/dev/null",
                    double epoch_s = 900) {
    std::string script;
    for (size_t i = 0; i < answers.size(); ++i) {
      write_text(folder_ / std::to_string(i), answers[i] + "\n");
      script += "read line || exit 0; cat '" + (folder_ / std::to_string(i)) + "'; ";
    }
    Patience patience;
    patience.hello_s = patience.prepare_s = patience.check_s = 5;
    patience.quit_s = 2;
    patience.epoch_s = epoch_s;
    client = std::make_unique<Client>(ProcessOptions{.command = {"sh", "-c", script + last}}, patience);
  }

 private:
  TempFolder folder_;

 public:
  std::unique_ptr<Client> client;
};

template <class F>
DriverFailure failure_of(F&& call) {
  try {
    call();
  } catch (const DriverFailure& failure) {
    return failure;
  }
  return DriverFailure(Status::ok, "there was no failure", "");
}

DriverFailure hello_failure(const std::string& answer, const std::string& last = "cat >/dev/null") {
  Scripted driver({answer}, last);
  return failure_of([&] { driver.client->hello(); });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A line of progress, as a driver prints it for epoch N of a fit that is its second request.
const char* kProgress =
    R"({"id": 2, "progress": {"epoch": 1, "begin": 1, "train_end": 2, "end": 3, "loss": 1.0, "metrics": {"accuracy": 0.5}}})";

TEST(LabClient, ProgressBuysNoTimeBeyondTheCap) {
  // Slow progress without end, and as fast as the pipe takes it; both within the number of epochs.
  for (const char* pause : {"sleep 0.05", ":"}) {
    Scripted driver({flat(kHello)},
                    std::string("read line; while :; do echo '") + kProgress + "'; " + pause + "; done", 0.3);
    driver.client->hello();
    const int64_t begun = now_ns();
    const DriverFailure failure = failure_of([&] { driver.client->fit(1'000'000, 0.7); });
    const double waited = static_cast<double>(now_ns() - begun) / 1e9;
    EXPECT_EQ(to_string(failure.status), "hung") << failure.what();
    EXPECT_TRUE(contains(failure.what(), "no answer within 1 s")) << failure.what();
    EXPECT_GE(waited, 1.0) << "the cap and the patience for one epoch";
    EXPECT_LT(waited, 20);
  }
}

TEST(LabClient, MoreProgressThanEpochsIsGarbage) {
  Scripted driver({flat(kHello)}, std::string("read line; while :; do echo '") + kProgress + "'; done");
  driver.client->hello();
  const DriverFailure failure = failure_of([&] { driver.client->fit(3, 60); });
  EXPECT_EQ(to_string(failure.status), "garbage");
  EXPECT_TRUE(contains(failure.what(), "one line of progress for each of 3 epochs")) << failure.what();
}

TEST(LabClient, HelloIsRead) {
  Scripted driver({flat(kHello)});
  const Hello hello = driver.client->hello();
  EXPECT_EQ(hello.framework, "fake");
  EXPECT_EQ(hello.variants, std::vector<std::string>{"a"});
  EXPECT_EQ(hello.switches.at("conv"), std::vector<std::string>{"fixed"});
  EXPECT_GT(driver.client->start_s(), 0);
  EXPECT_FALSE(hello.answer.contains("id"));
}

TEST(LabClient, WhatIsNotTheProtocolIsGarbageAndQuoted) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"Using TensorFlow backend.", "Using TensorFlow backend."},
      {"[1, 2]", "must be a JSON object"},
      {"{\"id\": 1}", "'ok' must be there"},
      {"{\"id\": 7, \"ok\": true}", "repeat the request's id 1; got 7"},
      {"{\"id\": \"one\", \"ok\": true}", "'id' must be an integer"},
      {"{\"id\": 1, \"ok\": 1}", "'ok' must be true or false"},
      {"{\"id\": 1, \"ok\": true, \"protocol\": 1}", "protocol must be 2; got 1"},
      {"{\"id\": 1, \"ok\": true, \"protocol\": 2, \"framework\": 3}", "'framework' must be a text; got 3"},
      {"{\"id\": 1, \"ok\": false}", "'error' must be there"},
      {"{\"id\": 1, \"ok\": false, \"error\": {\"kind\": \"bored\", \"message\": \"x\"}}", "got 'bored'"},
      {"\xff\xfe\x01", "must be a JSON object"},
      {"{\"id\": 1, \"ok\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}",
       "nested at most 100 levels deep"},
      {"{\"id\": 1, \"ok\": true, \"ok\": false}", "'ok' stands twice"},
      {"{\"id\": 18446744073709551616, \"ok\": true}", "must fit 64 bits"},
  };
  for (const auto& [answer, part] : cases) {
    const DriverFailure failure = hello_failure(answer);
    EXPECT_EQ(static_cast<int>(failure.status), static_cast<int>(Status::garbage)) << answer;
    EXPECT_TRUE(contains(failure.what(), part)) << answer << " gave: " << failure.what();
    EXPECT_FALSE(contains(failure.what(), "\n"));
  }
}

TEST(LabClient, ErrorsOfTheDriverHaveTheirKinds) {
  const auto error = [](const std::string& kind) {
    return "{\"id\": 1, \"ok\": false, \"error\": {\"kind\": \"" + kind +
           "\", \"what\": \"conv\", \"message\": \"conv: no such mode\"}}";
  };
  const DriverFailure declined = hello_failure(error("declined"));
  EXPECT_EQ(declined.status, Status::declined);
  EXPECT_EQ(declined.declined, "conv");
  EXPECT_TRUE(contains(declined.what(), "no such mode"));
  EXPECT_EQ(hello_failure(error("out_of_memory")).status, Status::out_of_memory);
  EXPECT_EQ(hello_failure(error("failed")).status, Status::failed);
}

TEST(LabClient, AnEndWithoutAnAnswerIsToldWithLastWords) {
  const DriverFailure crashed = hello_failure("", "echo 'ImportError: no module' >&2; exit 4");
  // The empty line is no answer.
  EXPECT_EQ(crashed.status, Status::garbage);
  Scripted driver({}, "read line; echo 'ImportError: no module' >&2; exit 4");
  const DriverFailure failure = failure_of([&] { driver.client->hello(); });
  EXPECT_EQ(failure.status, Status::crashed);
  EXPECT_TRUE(contains(failure.what(), "exit status 4")) << failure.what();
  EXPECT_TRUE(contains(failure.last_words, "ImportError: no module"));
}

TEST(LabClient, AFailedAllocationInTheLastWordsIsOutOfMemory) {
  Scripted driver({}, "read line; echo \"what():  std::bad_alloc\" >&2; kill -ABRT $$");
  const DriverFailure failure = failure_of([&] { driver.client->hello(); });
  EXPECT_EQ(failure.status, Status::out_of_memory);
}

TEST(LabClient, NoAnswerInTimeIsHung) {
  Patience patience;
  patience.hello_s = 0.3;
  Client client({.command = {"sleep", "100"}}, patience);
  const DriverFailure failure = failure_of([&] { client.hello(); });
  EXPECT_EQ(failure.status, Status::hung);
  EXPECT_TRUE(contains(failure.what(), "0.3 s")) << failure.what();
}

TEST(LabClient, AProgramThatIsNotThereIsAbsent) {
  const DriverFailure failure = failure_of([] { Client client({.command = {"/nowhere/driver"}}); });
  EXPECT_EQ(failure.status, Status::absent);
}

TEST(LabClient, PrepareMustNameEachSwitchAsItWasAsked) {
  Preparation p;
  p.workload = Json::object();
  p.switches = {{"conv", "fixed"}};
  const std::string begin =
      "{\"id\": 1, \"ok\": true, \"parameters\": 5, \"prepare_ns\": 1000000000, \"obeyed\": ";
  Scripted right({begin + "{\"conv\": \"fixed\"}, \"notes\": [\"a note\"]}"});
  const Prepared prepared = right.client->prepare(p);
  EXPECT_EQ(prepared.parameters, 5);
  EXPECT_DOUBLE_EQ(prepared.seconds, 1);
  EXPECT_EQ(prepared.notes, std::vector<std::string>{"a note"});
  for (const char* obeyed : {"{}}", "{\"conv\": \"profile\"}}", "[]}"}) {
    Scripted wrong({begin + obeyed});
    EXPECT_EQ(failure_of([&] { wrong.client->prepare(p); }).status, Status::garbage) << obeyed;
  }
}

TEST(LabClient, CheckAndRunAreReadAndRefused) {
  Scripted driver(
      {R"({"id": 1, "ok": true, "parameters": 2, "outputs": {"out": {"shape": [1, 2], "values": [1, 2.5]}}, "loss": 0.5, "gradients": {"w": 1e-3}, "losses": [0.5, 0.4]})",
       R"({"id": 2, "ok": true, "steps": [[10, 20], [25, 30]], "loss": 0.25, "updates": 2})",
       R"({"id": 3, "ok": true, "begin": 5, "end": 9, "count": 4, "loss": null, "updates": 0, "output_sum": 1.5})"});
  const Checked checked = driver.client->check(2);
  EXPECT_EQ(checked.outputs.at("out").values, (std::vector<double>{1, 2.5}));
  for (const char* outputs :
       {R"({"out": {"shape": [1, 2], "values": [1]}})", R"({"out": {"shape": [0], "values": []}})",
        R"({"out": [1, 2]})", R"({"out": {"shape": [5000], "values": [1]}})", R"([1])",
        R"({"out": {"shape": [1099511627776, 2], "values": [1]}})"}) {
    Scripted wrong({std::string(R"({"id": 1, "ok": true, "parameters": 2, "outputs": )") + outputs + "}"});
    EXPECT_EQ(failure_of([&] { wrong.client->check(0); }).status, Status::garbage) << outputs;
  }
  EXPECT_EQ(checked.gradients.at("w"), 1e-3);
  const Timed latency = driver.client->run(Region::latency, 2, 5);
  EXPECT_EQ(latency.steps[1].first, 25);
  EXPECT_EQ(latency.count, 2);
  EXPECT_LE(latency.sent_ns, latency.received_ns);
  const Timed throughput = driver.client->run(Region::throughput, 4, 5);
  EXPECT_FALSE(throughput.loss);
  EXPECT_EQ(throughput.output_sum, 1.5);

  for (const char* answer :
       {R"({"id": 1, "ok": true, "steps": [[10]], "updates": 2})",
        R"({"id": 1, "ok": true, "steps": "none", "updates": 2})",
        R"({"id": 1, "ok": true, "steps": [[1.5, 2]], "updates": 2})",
        R"({"id": 1, "ok": true, "steps": [[1, 2]]})",
        R"({"id": 1, "ok": true, "steps": [[1, 99999999999999999999]], "updates": 1})"}) {
    Scripted wrong({answer});
    EXPECT_EQ(failure_of([&] { wrong.client->run(Region::latency, 1, 5); }).status, Status::garbage)
        << answer;
  }
}

TEST(LabClient, FitHasALineAnEpoch) {
  const auto progress = [](int epoch) {
    return "{\"id\": 1, \"progress\": {\"epoch\": " + std::to_string(epoch) +
           ", \"begin\": 1, \"train_end\": 2, \"end\": 3, \"loss\": 0.5, \"metrics\": {\"accuracy\": 0.75}, "
           "\"test_metrics\": {\"accuracy\": 0.5}}}\n";
  };
  Scripted driver({progress(1) + progress(2) +
                   R"({"id": 1, "ok": true, "epochs": 2, "capped": false, "confusion": [[1, 0], [0, 1]]})"});
  int told = 0;
  const Fitted fit = driver.client->fit(2, 10, [&](const FitEpoch&) { ++told; });
  EXPECT_EQ(told, 2);
  EXPECT_EQ(fit.epochs[1].metrics.at("accuracy"), 0.75);
  EXPECT_EQ(fit.epochs[1].test_metrics.at("accuracy"), 0.5);
  EXPECT_FALSE(fit.epochs[1].test_loss);
  EXPECT_EQ(fit.confusion[1][1], 1);
  Scripted liar({progress(1) + R"({"id": 1, "ok": true, "epochs": 2, "capped": false})"});
  const DriverFailure failure = failure_of([&] { liar.client->fit(2, 10); });
  EXPECT_EQ(failure.status, Status::garbage);
  EXPECT_TRUE(contains(failure.what(), "1 lines and 2 epochs")) << failure.what();
}

TEST(LabClient, QuitEndsEvenADriverThatDoesNotAnswerIt) {
  Scripted driver({flat(kHello)}, "trap '' TERM; while :; do sleep 1; done");
  driver.client->hello();
  const int64_t begun = now_ns();
  driver.client->quit();
  EXPECT_LT(now_ns() - begun, 20'000'000'000);
}

}  // namespace
}  // namespace tandem::lab
