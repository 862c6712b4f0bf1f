#include "lab/src/driver/client.h"

#include <algorithm>

#include "lab/src/driver/answer.h"
#include "lab/src/files/json.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

constexpr int64_t kProtocol = 2;
constexpr int64_t kMostChecked = 4096;  // elements of an output

int64_t after(double seconds) { return now_ns() + static_cast<int64_t>(seconds * 1e9); }

/// What a framework prints when an allocation fails and it does not live on to say so in an answer.
bool speaks_of_memory(const std::string& words) {
  for (const char* sign : {"std::bad_alloc", "MemoryError", "out of memory", "Out of memory", "OutOfMemory",
                           "Cannot allocate memory"})
    if (words.find(sign) != std::string::npos) return true;
  return false;
}

}  // namespace

Json Preparation::request() const {
  Json out = {{"call", "prepare"},        {"workload", workload}, {"network", network},
              {"definition", definition}, {"variant", variant},   {"phase", phase},
              {"track", track},           {"device", device},     {"precision", precision},
              {"batch", batch},           {"threads", threads},   {"seed", seed},
              {"dropout", dropout},       {"switches", switches}};
  if (!weights.is_null()) out["weights"] = weights;
  if (!data.is_null()) out["data"] = data;
  if (!trim.is_null()) out["trim"] = trim;
  return out;
}

Client::Client(const ProcessOptions& options, const Patience& patience) : patience_(patience) {
  started_ns_ = now_ns();
  try {
    process_ = std::make_unique<Process>(options);
  } catch (const Error& error) {
    throw DriverFailure(Status::absent, error.what(), "");
  }
}

Client::~Client() = default;
Client::Client(Client&&) noexcept = default;

pid_t Client::pid() const { return process_->pid(); }
std::string Client::last_words() { return process_->last_words(); }

// For what the driver can no longer be asked about: it is killed first, so that its last words are complete.
void Client::fail(Status status, const std::string& why) {
  process_->finish(0);
  throw DriverFailure(status, why, process_->last_words());
}

/// The driver's output ended in the middle of a call.
void Client::fail_closed(const std::string& name, const std::string& rest) {
  // It closed its output: wait a moment for its end, to learn how it ended.
  const Ending ending = process_->finish(3);
  const std::string words = process_->last_words();
  if (ending.out_of_memory || (!ending.ended_by_lab && speaks_of_memory(words)))
    throw DriverFailure(Status::out_of_memory,
                        str(name, ": the driver ran out of memory (", ending.text(), ")"), words);
  if (ending.ended_by_lab)
    throw DriverFailure(Status::crashed,
                        str(name, ": the driver closed its output and did not end; the lab killed it"),
                        words);
  std::string why = str(name, ": the driver ended without an answer, with ", ending.text());
  if (!rest.empty()) why += str("; its last line was ", io::one_line(rest, 120));
  throw DriverFailure(Status::crashed, why, words);
}

Json Client::next_answer(const std::string& name, int64_t deadline_ns) {
  std::string line;
  switch (process_->read_line(line, deadline_ns)) {
    case Process::Io::done:
      break;
    case Process::Io::closed:
      fail_closed(name, line);
    case Process::Io::late:
      fail(Status::hung, str(name, ": no answer within ", (deadline_ns - sent_ns_) / 1'000'000 / 1000.0,
                             " s; the lab killed the driver"));
    case Process::Io::too_long:
      fail(Status::garbage,
           str(name, ": a line of output is longer than the protocol allows; it begins with '",
               io::one_line(line, 120), "'"));
    case Process::Io::stopped:
      process_->finish(0);
      throw Stopped();
  }
  received_ns_ = now_ns();
  std::string why;
  Json answer = try_parse_json<Json>(line, why);
  if (!answer.is_object())
    fail(Status::garbage, str(name, ": a line of output must be a JSON object; got '",
                              io::one_line(line, 160), "'", why.empty() ? "" : ", which ", why));
  return answer;
}

// One request, one answer with its id; lines of progress may come before it. The deadline counts from the request and
// covers writing it, too. An answer that breaks the protocol ends the driver: nothing after it could be trusted.
Json Client::call(Json request, double patience_s, const std::function<void(const Json&)>& on_progress) {
  const std::string name = request["call"].get<std::string>();
  request["id"] = ++id_;
  const std::string line = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  sent_ns_ = now_ns();
  const int64_t deadline = after(patience_s);
  switch (process_->write_line(line, deadline)) {
    case Process::Io::done:
      break;
    case Process::Io::stopped:
      process_->finish(0);
      throw Stopped();
    case Process::Io::late:
      fail(Status::hung, str(name, ": the driver did not read the request within ", patience_s, " s"));
    default:
      fail_closed(name, "");
  }
  try {
    for (;;) {
      Json answer = next_answer(name, deadline);
      const Answer fields(answer, name);
      if (const int64_t id = fields.integer("id"); id != id_)
        throw Malformed(str(name, ": the answer must repeat the request's id ", id_, "; got ", id));
      if (answer.contains("progress") && on_progress) {
        // Progress buys no time: the deadline counts from the request, whatever the driver prints.
        if (received_ns_ > deadline)
          fail(Status::hung,
               str(name, ": no answer within ", patience_s, " s, only progress; the lab killed the driver"));
        on_progress(answer["progress"]);
        continue;
      }
      if (fields.truth("ok")) return answer;
      const Answer error(fields.table("error"), name + ": error");
      const std::string kind = error.text("kind"), message = io::one_line(error.text("message"), 600);
      const std::string words = process_->last_words();
      if (kind == "declined")
        throw DriverFailure(Status::declined, message, words, error.has("what") ? error.text("what") : name);
      if (kind == "out_of_memory")
        throw DriverFailure(Status::out_of_memory, str(name, ": ", message), words);
      if (kind == "failed") throw DriverFailure(Status::failed, str(name, ": ", message), words);
      throw Malformed(str(name, ": the kind of an error must be declined, out_of_memory or failed; got '",
                          io::one_line(kind, 60), "'"));
    }
  } catch (const Malformed& error) {
    fail(Status::garbage, error.what());
  }
}

Hello Client::hello() {
  Json answer = call({{"call", "hello"}}, patience_.hello_s);
  start_s_ = static_cast<double>(received_ns_ - started_ns_) / 1e9;
  Hello out;
  try {
    const Answer fields(answer, "hello");
    if (const int64_t protocol = fields.integer("protocol"); protocol != kProtocol)
      throw Malformed(str("hello: the protocol must be ", kProtocol, "; got ", protocol));
    out.framework = fields.text("framework");
    out.version = fields.text("version");
    out.variants = fields.texts("variants");
    out.devices = fields.texts("devices");
    out.kinds = fields.texts("kinds");
    out.losses = fields.texts("losses");
    out.listings = fields.texts("listings");
    out.phases = fields.texts("phases");
    out.precisions = fields.texts("precisions");
    out.trims = fields.has("trims") && fields.truth("trims");
    for (const auto& [name, values] : fields.table("switches").items()) {
      const Json one = {{"values", values}};
      out.switches[name] = Answer(one, "hello: switch " + name).texts("values");
    }
  } catch (const Malformed& error) {
    fail(Status::garbage, error.what());
  }
  answer.erase("id");
  answer.erase("ok");
  out.answer = std::move(answer);
  return out;
}

Prepared Client::prepare(const Preparation& preparation) {
  const Json answer = call(preparation.request(), patience_.prepare_s);
  Prepared out;
  try {
    const Answer fields(answer, "prepare");
    out.parameters = fields.integer("parameters");
    out.seconds = static_cast<double>(fields.integer("prepare_ns")) / 1e9;
    if (out.seconds < 0)
      throw Malformed(str("prepare: prepare_ns must not be negative; got ", out.seconds, " s"));
    for (const auto& [name, value] : fields.table("obeyed").items())
      out.obeyed[name] = value.is_string() ? value.get<std::string>() : value.dump();
    // A switch that is passed over in silence would measure another thing than was asked for.
    for (const auto& [name, value] : preparation.switches)
      if (const auto at = out.obeyed.find(name); at == out.obeyed.end() || at->second != value)
        throw Malformed(
            str("prepare: 'obeyed' must name each switch as it was asked, or the driver decline it; got ",
                shortened(answer["obeyed"]), " for ", name, " = ", value));
    if (fields.has("notes")) out.notes = fields.texts("notes");
  } catch (const Malformed& error) {
    fail(Status::garbage, error.what());
  }
  return out;
}

Checked Client::check(int64_t steps) {
  const Json answer = call({{"call", "check"}, {"steps", steps}}, patience_.check_s);
  Checked out;
  try {
    const Answer fields(answer, "check");
    out.parameters = fields.integer("parameters");
    for (const auto& [name, output] : fields.table("outputs").items()) {
      const Answer parts(output, "check: output " + io::one_line(name, 60));
      CheckedOutput& one = out.outputs[name];
      int64_t count = 1;
      for (const Json& size : parts.list(parts.field("shape"), "shape")) {
        one.shape.push_back(parts.integer(size, "shape"));
        if (one.shape.back() < 1 || count > (int64_t{1} << 40) / one.shape.back())
          throw Malformed(str("check: the sizes of an output must be at least 1; got ",
                              shortened(output["shape"]), " for ", io::one_line(name, 60)));
        count *= one.shape.back();
      }
      one.values = parts.numbers("values");
      if (const int64_t wanted = std::min(count, kMostChecked);
          static_cast<int64_t>(one.values.size()) != wanted)
        throw Malformed(str("check: output ", io::one_line(name, 60), " must have ", wanted, " values; got ",
                            one.values.size()));
    }
    if (steps > 0) {
      out.loss = fields.number("loss");
      for (const auto& [name, norm] : fields.table("gradients").items())
        out.gradients[name] = fields.number(norm, "gradients");
      out.losses = fields.numbers("losses");
      if (static_cast<int64_t>(out.losses.size()) != steps)
        throw Malformed(
            str("check: 'losses' must have one value per step, ", steps, "; got ", out.losses.size()));
    }
  } catch (const Malformed& error) {
    fail(Status::garbage, error.what());
  }
  return out;
}

Timed Client::run(Region region, int64_t steps, double patience_s) {
  const Json answer = call(
      {{"call", "run"}, {"region", region == Region::latency ? "latency" : "throughput"}, {"steps", steps}},
      patience_s);
  Timed out;
  out.region = region;
  out.asked = steps;
  out.sent_ns = sent_ns_;
  out.received_ns = received_ns_;
  try {
    const Answer fields(answer, "run");
    if (region == Region::latency) {
      for (const Json& step : fields.list(fields.field("steps"), "steps")) {
        if (!step.is_array() || step.size() != 2)
          throw Malformed(str("run: each of 'steps' must be [begin, end]; got ", shortened(step)));
        out.steps.emplace_back(fields.integer(step[0], "steps"), fields.integer(step[1], "steps"));
      }
      out.count = static_cast<int64_t>(out.steps.size());
      if (!out.steps.empty()) out.begin_ns = out.steps.front().first, out.end_ns = out.steps.back().second;
    } else {
      out.begin_ns = fields.integer("begin");
      out.end_ns = fields.integer("end");
      out.count = fields.integer("count");
    }
    // NaN travels as null: a loss that is not there is for the honesty checks to judge.
    if (fields.has("loss")) out.loss = fields.number("loss");
    if (fields.has("output_sum")) out.output_sum = fields.number("output_sum");
    out.updates = fields.integer("updates");
    if (fields.has("wait_ns")) out.wait_ns = fields.integer("wait_ns");
    if (fields.has("samples_sum")) {
      out.samples_sum.emplace();
      for (const auto& [name, sum] : fields.table("samples_sum").items())
        (*out.samples_sum)[name] = fields.number(sum, "samples_sum");
    }
  } catch (const Malformed& error) {
    fail(Status::garbage, error.what());
  }
  return out;
}

Fitted Client::fit(int64_t epochs, double cap_s, const std::function<void(const FitEpoch&)>& on_epoch) {
  // The driver stops by itself when the cap is reached, between epochs: the patience is one epoch longer.
  Fitted out;
  const auto progress = [&](const Json& line) {
    if (static_cast<int64_t>(out.epochs.size()) >= epochs)
      throw Malformed(
          str("fit: there must be one line of progress for each of ", epochs, " epochs; got one more"));
    const Answer fields(line, "progress");
    FitEpoch e;
    e.epoch = fields.integer("epoch");
    e.begin_ns = fields.integer("begin");
    e.train_end_ns = fields.integer("train_end");
    e.end_ns = fields.integer("end");
    e.received_ns = received_ns_;
    e.loss = fields.number("loss");
    if (fields.has("test_loss")) e.test_loss = fields.number("test_loss");
    for (const auto& [key, into] :
         {std::pair{"metrics", &e.metrics}, std::pair{"test_metrics", &e.test_metrics}})
      if (fields.has(key))
        for (const auto& [name, value] : fields.table(key).items()) (*into)[name] = fields.number(value, key);
    out.epochs.push_back(e);
    if (on_epoch) on_epoch(e);
  };
  const Json answer =
      call({{"call", "fit"}, {"epochs", epochs}, {"cap_s", cap_s}}, cap_s + patience_.epoch_s, progress);
  out.sent_ns = sent_ns_;
  out.received_ns = received_ns_;
  try {
    const Answer fields(answer, "fit");
    out.capped = fields.truth("capped");
    if (const int64_t told = fields.integer("epochs"); told != static_cast<int64_t>(out.epochs.size()))
      throw Malformed(str("fit: as many lines of progress must come as epochs; got ", out.epochs.size(),
                          " lines and ", told, " epochs"));
    if (fields.has("tests"))
      for (const auto& [part, measured] : fields.table("tests").items())
        for (const auto& [name, value] :
             Answer(measured, "fit: test " + io::one_line(part, 60)).table("metrics").items())
          out.tests[part][name] = fields.number(value, "tests");
    if (fields.has("confusion"))
      for (const Json& row : fields.list(fields.field("confusion"), "confusion")) {
        out.confusion.emplace_back();
        for (const Json& value : fields.list(row, "confusion"))
          out.confusion.back().push_back(fields.integer(value, "confusion"));
      }
  } catch (const Malformed& error) {
    fail(Status::garbage, error.what());
  }
  return out;
}

Json Client::breakdown(int64_t steps) {
  Json answer = call({{"call", "breakdown"}, {"steps", steps}}, patience_.breakdown_s);
  try {
    const Answer fields(answer, "breakdown");
    for (const char* share : {"kernel_share", "copy_share"})
      if (fields.has(share) && (fields.number(share) < 0 || fields.number(share) > 1.05))
        throw Malformed(str("breakdown: '", share, "' must be within 0 and 1; got ", fields.number(share)));
    for (const char* count : {"launches", "nodes_before", "nodes_after"})
      if (fields.has(count) && fields.number(count) < 0)
        throw Malformed(str("breakdown: '", count, "' must not be negative; got ", fields.number(count)));
  } catch (const Malformed& error) {
    fail(Status::garbage, error.what());
  }
  answer.erase("id");
  answer.erase("ok");
  return answer;
}

void Client::quit() {
  try {
    call({{"call", "quit"}}, patience_.quit_s);
  } catch (const DriverFailure&) {
    // It has been ended already, or will be now; all that was asked for has been answered.
  }
  process_->finish(patience_.quit_s);
}

}  // namespace tandem::lab
