// Both engines run a program; a program on which they differ is shrunk and printed. See fuzz_program.h.
#include <unistd.h>
#include <algorithm>
#include <chrono>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "tandem/core/autocast.h"
#include "tandem/core/backend.h"
#include "tandem/core/op.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/graph/compile_named.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/fuzz_run.h"

namespace tandem::testing {

namespace {

using NamedList = std::vector<std::pair<std::string, Tensor>>;

/// What tensors hold, to put back after a call that was refused halfway.
class Snapshot {
 public:
  explicit Snapshot(const NamedList& tensors) {
    const NoGrad off;
    for (const auto& [name, t] : tensors)
      saved_.push_back({t, clone(t), t.grad(), t.grad().defined() ? clone(t.grad()) : Tensor()});
  }
  void restore() {
    const NoGrad off;
    for (Saved& s : saved_) {
      assign(s.tensor, s.value);
      s.tensor.zero_grad();
      if (!s.grad.defined()) continue;
      if (!overlaps_itself(s.grad)) assign(s.grad, s.grad_value);
      s.tensor.set_grad(s.grad);
    }
  }

 private:
  struct Saved {
    Tensor tensor, value, grad, grad_value;
  };
  std::vector<Saved> saved_;
};

struct Outcome {
  std::vector<Tensor> results;
  std::string refused;
};

/// Calls f from where the side's random stream stands.
Outcome attempt(const FuzzProgram& program, FuzzSide& side, const std::function<std::vector<Tensor>()>& f) {
  Outcome outcome;
  set_generator_state(side.random);
  const GradMode mode(side.grad);
  const Autocast autocast(side.autocast);
  const auto forms = program.composed ? std::make_unique<ComposedForms>() : nullptr;
  try {
    outcome.results = f();
    backend(program.device).synchronize(program.device);  // where a GPU tells of a bad index
  } catch (const Error& error) {
    outcome.refused = error.what();
    outcome.results.clear();
    try {  // another one behind it belongs to this call, too
      backend(program.device).synchronize(program.device);
    } catch (const Error&) {
    }
  }
  side.random = generator_state();
  return outcome;
}

/// A refusal without the number that it names where it came from a GPU: one of several bad indices, whichever was seen first.
std::string without_chance(const std::string& text) {
  const size_t number = text.find("; got "), device = text.find(" on cuda:");
  if (number == std::string::npos || device == std::string::npos || device < number) return text;
  return text.substr(0, number) + text.substr(device);
}

bool is_documented_for_graphs(const std::string& text) {
  return text.find("compiled callable") != std::string::npos || text.rfind("compile: ", 0) == 0;
}

/// What the program is refused for by shapes and types alone, computing nothing.
std::string refusal_of_shapes(const FuzzProgram& program, FuzzSide& side, const std::vector<Tensor>& inputs) {
  RecordingTracer tracer;
  FuzzNotes notes;
  return attempt(program, side,
                 [&] {
                   const TraceScope scope(&tracer);
                   return run_program(program, inputs, side, notes);
                 })
      .refused;
}

std::string op_of(const std::string& text) { return text.substr(0, text.find(':')); }

std::string compare(const NamedList& got, const NamedList& want, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    const auto& [name, x] = want[i];
    const Tensor& y = got[i].second;
    if (const auto same = same_bits(y, x); !same) return str(what, " value: ", name, ": ", same.message());
    if (x.grad().defined() != y.grad().defined())
      return str(what, " gradient: ", name, " has ", y.grad().defined() ? "one" : "none",
                 " after the graph and ", x.grad().defined() ? "one" : "none", " eagerly");
    if (!x.grad().defined()) continue;
    if (const auto same = same_bits(y.grad(), x.grad()); !same)
      return str(what, " gradient: ", name, ": ", same.message());
  }
  return "";
}

std::string compare_results(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                            const char* what) {
  if (got.size() != want.size()) return str(what, ": ", got.size(), " of them, not ", want.size());
  for (size_t i = 0; i < want.size(); ++i)
    if (const auto same = same_bits(got[i], want[i]); !same) return str(what, ": ", i, ": ", same.message());
  return "";
}

NamedList named(const std::vector<Tensor>& inputs) {
  NamedList list;
  for (size_t i = 0; i < inputs.size(); ++i) list.emplace_back(str("x", i), inputs[i]);
  return list;
}

NamedList joined(NamedList a, const NamedList& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool shares_inputs(const FuzzProgram& program, uint32_t call) {
  return std::any_of(program.events.begin(), program.events.end(), [&](const FuzzEvent& event) {
    return event.before_call == call &&
           (event.kind == FuzzEvent::alias_inputs || event.kind == FuzzEvent::pass_state);
  });
}

/// Gradients of what a call returned: of the mean of each result, for all that the call could depend on.
std::vector<Tensor> gradients_of(const std::vector<Tensor>& results, const NamedList& outside) {
  Tensor total;
  for (const Tensor& r : results) {
    if (!r.requires_grad()) continue;
    const Tensor part = cast(mean(r), DType::f32);
    total = total.defined() ? total + part : part;
  }
  std::vector<Tensor> wanted;
  for (const auto& [name, t] : outside)
    if (t.requires_grad()) wanted.push_back(t);
  if (!total.defined() || wanted.empty()) return {};
  return grad(total, wanted, {}, {}, true);
}

std::string compare_gradients(const Outcome& got, const Outcome& want) {
  if (got.refused.rfind("compile: this gradient", 0) == 0) return "";  // documented
  if (want.refused.empty() != got.refused.empty())
    return str("gradients of the results are refused only ", want.refused.empty() ? "compiled" : "eagerly",
               ": ", want.refused, got.refused);
  return compare_results(got.results, want.results, "gradient through the call");
}

/// The program as the graph engine has it: of lists of tensors, or of groups of named ones (CompiledNamed). Then there is an
/// argument more, which some calls leave out, and a result made of it.
class CompiledProgram {
 public:
  CompiledProgram(const FuzzProgram& program, const TensorFunction& function)
      : bits_(program.named),
        plain_(function, with_stages(program.passes)),
        with_names_([this, function](const std::vector<Named>& groups) { return run(function, groups); },
                    with_stages(program.passes)) {}

  std::vector<Tensor> operator()(const std::vector<Tensor>& in, uint32_t call) {
    if (bits_ == 0) return plain_(in);
    inputs_ = in.size();
    const Tensor extra = bits_ >> (8 + call) & 1 ? full({2}, call, DType::f32, in[0].device()) : Tensor();
    const std::vector<Named> groups = grouped(in, extra);
    const std::vector<Named> out = with_names_(groups);
    const Tensor echo = out.at(1)["echo"];
    if (echo.defined() != extra.defined() || (echo.defined() && !same_bits(echo, extra + 1)))
      throw InternalError("the result made of the argument that may be absent is not what it should be");
    return out.at(0).values();
  }

 private:
  std::vector<Named> grouped(const std::vector<Tensor>& in, const Tensor& extra) const {
    std::vector<std::string> names[2];
    std::vector<Tensor> values[2];
    const auto add = [&](size_t group, const std::string& name, const Tensor& value) {
      names[group].push_back(name);
      values[group].push_back(value);
    };
    if (bits_ & 2) add(0, "extra", extra);
    for (size_t i = 0; i < in.size(); ++i) add(bits_ >> (2 + i) & 1, str("x", i), in[i]);
    if (!(bits_ & 2)) add(1, "extra", extra);
    return {Named(Names::of(names[0]), values[0]), Named(Names::of(names[1]), values[1])};
  }
  std::vector<Named> run(const TensorFunction& function, const std::vector<Named>& groups) const {
    std::vector<Tensor> in;
    for (size_t i = 0; i < inputs_; ++i) in.push_back(groups[bits_ >> (2 + i) & 1][str("x", i)]);
    const Tensor extra = groups[bits_ & 2 ? 0 : 1]["extra"];
    const std::vector<Tensor> out = function(in);
    std::vector<std::string> names;
    for (size_t i = 0; i < out.size(); ++i) names.push_back(str("y", i));
    return {Named(Names::of(names), out), Named{{"echo", extra.defined() ? extra + 1 : Tensor()}}};
  }

  const uint32_t bits_;
  size_t inputs_ = 0;
  Compiled plain_;
  CompiledNamed with_names_;
};

/// Both engines over all calls. What differs begins with the kind of difference and a colon.
std::string first_difference(const FuzzProgram& program, uint32_t& call) {
  FuzzSide eager(program), graph(program);
  FuzzNotes graph_notes;
  CompiledProgram compiled(
      program, [&](const std::vector<Tensor>& in) { return run_program(program, in, graph, graph_notes); });
  Outcome want, got;  // kept over the next call, which must not change them
  for (call = 0; call < program.calls; ++call) {
    eager.happen(program, call);
    graph.happen(program, call);
    const std::vector<Tensor> eager_in = eager.inputs(program, call), graph_in = graph.inputs(program, call);
    Snapshot eager_before(joined(eager.captured(), named(eager_in)));
    Snapshot graph_before(joined(graph.captured(), named(graph_in)));
    const GeneratorState random = eager.random;
    const Outcome last_want = std::move(want), last_got = std::move(got);
    FuzzNotes notes;
    want = attempt(program, eager, [&] { return run_program(program, eager_in, eager, notes); });
    got = attempt(program, graph, [&] { return compiled(graph_in, call); });
    if (!want.refused.empty() || !got.refused.empty()) {
      eager_before.restore();
      for (const auto& [name, t] : graph.captured())
        if (t.grad().defined() && t.grad().is_traced())
          return str("left over: ", name, " holds a traced gradient after a refusal: ", got.refused);
      graph_before.restore();
      eager.random = graph.random = random;
      want.results.clear();
      got.results.clear();
      if (without_chance(want.refused) == without_chance(got.refused)) continue;
      const bool may_refuse = notes.only_eagerly || shares_inputs(program, call) || !want.refused.empty();
      if (may_refuse && is_documented_for_graphs(got.refused)) continue;
      // What shapes forbid, and the use of a saved value that was overwritten, is refused while tracing, before anything
      // runs; eagerly the values may forbid something before it.
      if (!want.refused.empty() && !got.refused.empty()) {
        static constexpr const char* kWhileTracing[] = {
            "needed for the gradient but was changed",
            "checkpoint: a tensor that the function uses must not be changed",
            "computes the branches again",
            "gradients of gradients (create_graph) go through a scan()",
            "changes in place is needed for its gradient",
            "in place. Return the new values, or change a clone()"};
        if (std::any_of(std::begin(kWhileTracing), std::end(kWhileTracing),
                        [&](const char* words) { return got.refused.find(words) != std::string::npos; }))
          continue;
        // Lengths and labels that cannot be read while tracing are refused by the table that they are looked up in (ops/lengths.h,
        // ops/ctc.cpp).
        const auto both_say = [&](const char* words) {
          return want.refused.find(words) != std::string::npos &&
                 got.refused.find(words) != std::string::npos;
        };
        if (both_say(": every length must be from ") || both_say("ctc_loss: every label must be one of "))
          continue;
        const std::string by_shapes = refusal_of_shapes(program, eager, eager_in);
        eager_before.restore();
        eager.random = random;
        if (without_chance(by_shapes) == without_chance(got.refused)) continue;
      }
      return str(got.refused.empty()    ? "refused only eagerly, "
                 : want.refused.empty() ? "refused only compiled, "
                                        : "refused otherwise, ",
                 op_of(want.refused), op_of(got.refused), ": eager: '", want.refused, "', compiled: '",
                 got.refused, "'");
    }
    if (std::string text = compare_results(got.results, want.results, "result"); !text.empty()) return text;
    if (std::string text = compare(graph.captured(), eager.captured(), "captured"); !text.empty())
      return text;
    for (size_t i = 0; i < want.results.size(); ++i)
      if (want.results[i].requires_grad() != got.results[i].requires_grad())
        return str("tape: result ", i, " requires a gradient only ",
                   want.results[i].requires_grad() ? "eagerly" : "compiled");
    const GeneratorState eager_random = eager.random, graph_random = graph.random;
    const Outcome want_grads = attempt(program, eager, [&] {
      return gradients_of(want.results, joined(eager.captured(), named(eager_in)));
    });
    const Outcome got_grads = attempt(
        program, graph, [&] { return gradients_of(got.results, joined(graph.captured(), named(graph_in))); });
    eager.random = eager_random;
    graph.random = graph_random;
    if (std::string text = compare_gradients(got_grads, want_grads); !text.empty()) return text;
    if (std::string text = compare(named(graph_in), named(eager_in), "input"); !text.empty()) return text;
    for (Outcome* outcome : {&want, &got})
      for (Tensor& t : outcome->results)
        t = t.detach();  // a captured tensor itself may be rebound: its memory stays
    if (eager.random.offset != graph.random.offset || eager.random.seed != graph.random.seed)
      return str("random stream: at ", graph.random.offset, ", not at ", eager.random.offset);
    if (std::string text = compare_results(last_got.results, last_want.results, "result of the call before");
        !text.empty())
      return text;
  }
  return "";
}

const char* name_of(FuzzEvent::Kind kind) {
  static constexpr const char* kNames[] = {"assign to",
                                           "assign to a part of",
                                           "rebind",
                                           "rebind, to another type,",
                                           "toggle requires_grad of",
                                           "toggle grad mode",
                                           "toggle training",
                                           "freeze or unfreeze the net",
                                           "add a hook to the net",
                                           "zero gradients",
                                           "set the gradient of",
                                           "other input shapes",
                                           "toggle requires_grad of x0",
                                           "pass the first input twice",
                                           "pass captured state as x0",
                                           "another tensor in"};
  static_assert(std::size(kNames) == FuzzEvent::other_handle + 1);
  return kNames[kind];
}

std::string kind_of(const std::string& difference) {
  if (difference.empty()) return "does not fail again";
  const size_t start = difference.find(": ") + 2;
  return difference.substr(start, difference.find(':', start) - start);
}

/// Removes and simplifies as long as the program fails in the same way.
class Shrinker {
 public:
  Shrinker(const FuzzProgram& program, const FuzzCheck& check)
      : best_(program), check_(check), kind_(kind_of(check(program))) {}

  FuzzProgram run() {
    for (bool again = true; again && !over();) {
      again = false;
      again |= drop(&FuzzProgram::steps);
      again |= drop(&FuzzProgram::events);
      again |= drop(&FuzzProgram::passes);
      again |= drop(&FuzzProgram::outputs);
      again |= simplify();
    }
    return best_;
  }

 private:
  bool over() const {
    return attempts_ > 1500 || std::chrono::steady_clock::now() - start_ > std::chrono::seconds(15);
  }
  bool fails(const FuzzProgram& program) {
    ++attempts_;
    const std::string text = check_(program);
    return !text.empty() && kind_of(text) == kind_;
  }
  /// One change, kept where the program still fails.
  bool change(const std::function<void(FuzzProgram&)>& edit) {
    if (over()) return false;
    FuzzProgram candidate = best_;
    edit(candidate);
    if (!fails(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }
  template <class T>
  bool drop(std::vector<T> FuzzProgram::*list) {
    bool any = false;
    for (size_t size = std::max<size_t>(1, (best_.*list).size() / 2); size >= 1; size /= 2)
      for (size_t at = 0; at < (best_.*list).size();) {
        const bool gone = change([&](FuzzProgram& p) {
          auto& items = p.*list;
          const size_t end = std::min(at + size, items.size());
          items.erase(items.begin() + static_cast<int64_t>(at), items.begin() + static_cast<int64_t>(end));
        });
        any |= gone;
        if (!gone) at += size;
      }
    return any;
  }
  bool simplify() {
    bool any = false;
    while (best_.calls > 1 && change([](FuzzProgram& p) { --p.calls; })) any = true;
    if (best_.autocast) any |= change([](FuzzProgram& p) { p.autocast = {}, p.autocast_calls = 0; });
    if (best_.named) any |= change([](FuzzProgram& p) { p.named = 0; });
    if (best_.composed) any |= change([](FuzzProgram& p) { p.composed = false; });
    if (best_.has_net) any |= change([](FuzzProgram& p) { p.has_net = false; });
    if (best_.has_view) any |= change([](FuzzProgram& p) { p.has_view = false; });
    for (auto list : {&FuzzProgram::inputs, &FuzzProgram::state})
      for (size_t i = 0; i < (best_.*list).size(); ++i) {
        const auto set = [&](auto FuzzForm::*field, const auto& value) {
          if ((best_.*list)[i].*field == value) return;
          any |= change([&](FuzzProgram& p) { (p.*list)[i].*field = value; });
        };
        set(&FuzzForm::leaf, false);
        set(&FuzzForm::strided, false);
        if (!(best_.*list)[i].leaf || !is_floating((best_.*list)[i].dtype)) set(&FuzzForm::dtype, DType::f32);
        if (size_of((best_.*list)[i].shape) > 3) set(&FuzzForm::shape, Dims{3});
      }
    for (auto list : {&FuzzProgram::steps, &FuzzProgram::outputs})
      for (size_t i = 0; i < (best_.*list).size(); ++i)
        for (size_t k = 0; k < FuzzStep{}.choice.size(); ++k)
          if ((best_.*list)[i].choice[k] != 0)
            any |= change([&](FuzzProgram& p) { (p.*list)[i].choice[k] = 0; });
    return any;
  }

  FuzzProgram best_;
  const FuzzCheck& check_;
  std::string kind_;
  int attempts_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

volatile std::sig_atomic_t g_running = -1;

/// A crash cannot be shrunk, but it can be named.
[[maybe_unused]] void name_the_program(int signal) {
  char text[] = "\nfuzzer: crashed in program            \n";
  char* digit = text + sizeof(text) - 3;
  for (long n = g_running; n >= 0; n = n >= 10 ? n / 10 : -1) *digit-- = static_cast<char>('0' + n % 10);
  [[maybe_unused]] const auto written = write(2, text, sizeof(text) - 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

std::string difference(const FuzzProgram& program) {
  uint32_t call = 0;
  std::string text;
  try {
    text = first_difference(program, call);
  } catch (const std::exception& error) {
    text = str("exception: ", error.what());
  }
  return text.empty() ? text : str("call ", call, ": ", text);
}

FuzzProgram shrink(const FuzzProgram& program, const FuzzCheck& check) {
  return Shrinker(program, check).run();
}

std::string listing(const FuzzProgram& program) {
  std::string text;
  const auto form = [&](const std::string& name, const FuzzForm& f, bool other) {
    text += str("  ", name, ": ", f.dtype, " ", f.shape, f.strided ? " transposed" : "",
                f.leaf ? " requires_grad" : "");
    text += other ? str(", other shape ", f.other_shape, "\n") : "\n";
  };
  const bool others = std::any_of(program.events.begin(), program.events.end(), [](const FuzzEvent& event) {
    return event.kind == FuzzEvent::other_shapes;
  });
  for (size_t i = 0; i < program.inputs.size(); ++i) form(str("input x", i), program.inputs[i], others);
  for (size_t i = 0; i < program.state.size(); ++i) form(str("captured w", i), program.state[i], false);
  if (program.has_view)
    text += str("  captured w", program.state.size(), ": slice(transpose(w0, 0, -1), 0, 1, …)\n");
  FuzzSide side(program);
  for (uint32_t call = 0; call < program.calls; ++call) {  // the steps as the last call takes them
    side.happen(program, call);
    FuzzNotes notes;
    notes.log = call + 1 == program.calls ? &text : nullptr;
    const Outcome outcome =
        attempt(program, side, [&] { return run_program(program, side.inputs(program, call), side, notes); });
    if (!outcome.refused.empty()) text += str("  call ", call, " is refused: ", outcome.refused, "\n");
  }
  for (const FuzzEvent& event : program.events) {
    if (event.before_call >= program.calls) continue;
    const bool of_state = event.kind <= FuzzEvent::toggle_requires_grad ||
                          event.kind == FuzzEvent::set_gradient || event.kind == FuzzEvent::other_handle;
    text += str("  before call ", event.before_call, ": ", name_of(event.kind),
                of_state ? str(" w", event.choice % program.state.size()) : "", "\n");
  }
  if (program.autocast)
    for (uint32_t call = 0; call < program.calls; ++call)
      if (program.autocast_calls >> call & 1)
        text += str("  call ", call, " under Autocast ", *program.autocast, "\n");
  if (program.named) text += "  compiled with named inputs and results\n";
  if (program.composed) text += "  with composed forms\n";
  text += str("  ", program.calls, " calls; passes:");
  for (const std::string& pass : program.passes) text += " " + pass;
  return text + "\n";
}

int64_t number_from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

void fuzz_graphs(int64_t first, int64_t stride, int64_t count, Device device) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(signal, name_the_program);
#endif
  const int64_t most = number_from_environment("TANDEM_FUZZ_FAILURES", 3);
  const int64_t only = number_from_environment("TANDEM_FUZZ_SEED", -1);
  const int64_t begin = only >= 0 ? only : first + number_from_environment("TANDEM_FUZZ_FIRST", 0);
  if (only >= 0) {
    if (only % stride != first) GTEST_SKIP() << "one program only";
    std::cout << "program " << only << "\n" << listing(draw_program(static_cast<uint64_t>(only), device));
  }
  const int64_t end = only >= 0 ? only + 1 : begin - first + count;
  int64_t failures = 0;
  for (int64_t seed = begin; seed < end && failures < most; seed += stride) {
    g_running = static_cast<std::sig_atomic_t>(seed);
    FuzzProgram program;
    std::string found;
    try {
      program = draw_program(static_cast<uint64_t>(seed), device);
      found = difference(program);
    } catch (const std::exception& e) {  // a device that no longer answers: nothing can be shrunk
      ADD_FAILURE() << "program " << seed << ": " << e.what() << "\n" << listing(program);
      return;
    }
    if (found.empty()) continue;
    ++failures;
    const FuzzProgram small = shrink(program, difference);
    const std::string left = difference(small);
    ADD_FAILURE() << "program " << seed << ", shrunk from " << program.steps.size() << " steps to "
                  << small.steps.size() << ": " << (left.empty() ? found + " (not at each run)" : left)
                  << "\n"
                  << listing(small) << "To repeat: TANDEM_FUZZ_SEED=" << seed << "\n";
  }
}

}  // namespace tandem::testing
