// The driver's loop: each line is a request, and gets its answer.
#include "lab/src/tandem_driver/driver.h"

#include <istream>
#include <new>
#include <ostream>

#include "lab/src/files/json.h"
#include "lab/src/tandem_driver/load_cell.h"
#include "lab/src/tandem_driver/prepared_cell.h"
#include "lab/src/tandem_driver/search_cell.h"

namespace tandem::lab {
namespace {

using tandem_driver::Declined;
using tandem_driver::Json;
using tandem_driver::PreparedCell;

void print(std::ostream& out, const Json& line) {
  // Texts of the request may be part of the answer. Bytes that are not UTF-8 are replaced, as dump() would throw at them.
  out << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
}

Json hello() {
  const Json environment = parse_json<Json>("environment: ", environment_json(Device{}));
  Json listings = Json::array();
  for (const zoo::ModelInfo& info : zoo::models())
    if (info.described) listings.push_back(info.name);  // the others are in kind_names()
  Json variants = {"eager", "graph"};
  for (const std::string& method : tandem_driver::search_names()) variants.push_back(method);
  return {{"protocol", 2},
          {"framework", "tandem"},
          {"version", environment.value("tandem", "unknown")},
          {"variants", variants},
          {"devices", tandem_driver::device_names()},
          {"kinds", tandem_driver::kind_names()},
          {"losses", tandem_driver::loss_names()},
          {"listings", listings},
          {"phases", tandem_driver::phase_names()},
          {"precisions", tandem_driver::precision_names()},
          {"switches", tandem_driver::known_switches()},
          {"trims", true},
          {"libraries", environment.value("libraries", Json::object())}};
}

class Dialogue {
 public:
  explicit Dialogue(std::ostream& out) : out_(out) {}

  /// Returns the fields of the answer, without `id` and `ok`.
  Json answer(const Json& request) {
    TD_CHECK(request.is_object(), "request: must be a JSON object; got ", request.type_name(), ".");
    const std::string call = tandem_driver::text_field(request, "call");
    if (call == "hello") return hello();
    if (call == "prepare") return prepare(request);
    if (call == "check") return load_ ? load_->check() : prepared(call).check(request);
    if (call == "run") return load_ ? load_->run(request) : prepared(call).run(request);
    if (call == "breakdown") return prepared(call).breakdown(request);
    if (call == "fit") {
      const auto progress = [&](const Json& line) {
        print(out_, {{"id", request.value("id", Json())}, {"progress", line}});
      };
      return search_ ? search_->fit(request, progress) : prepared(call).fit(request, progress);
    }
    if (call == "quit") {
      is_over_ = true;
      return Json::object();
    }
    throw Declined(call, str(io::one_line(call, 80),
                             ": Tandem's driver has no such call; it has hello, prepare, check, "
                             "run, fit, breakdown and quit."));
  }
  bool is_over() const { return is_over_; }

 private:
  Json prepare(const Json& request) {
    const int64_t begin = tandem_driver::now_ns();
    cell_.reset();  // before the next is built: memory may not hold two
    search_.reset();
    load_.reset();
    tandem_driver::CellRequest cell = tandem_driver::read_prepare(request);
    Json fields;
    if (cell.loads) {
      load_ = std::make_unique<tandem_driver::LoadCell>(std::move(cell));
      fields = load_->prepared();
    } else if (cell.search.empty()) {
      auto next = std::make_unique<PreparedCell>(std::move(cell));
      fields = next->prepared();
      cell_ = std::move(next);
    } else {
      search_.emplace(std::move(cell));
      fields = search_->prepared();
    }
    fields["prepare_ns"] = tandem_driver::now_ns() - begin;
    return fields;
  }
  PreparedCell& prepared(const std::string& call) {
    if (search_) throw Declined(call, str(call, ": a search can only fit. Ask the variant eager or graph."));
    if (load_) throw Declined(call, str(call, ": phase load has check and run alone."));
    TD_CHECK(cell_, call, ": a cell must be prepared first; got none.");
    return *cell_;
  }

  std::ostream& out_;
  std::unique_ptr<PreparedCell> cell_;
  std::unique_ptr<tandem_driver::LoadCell> load_;
  std::optional<tandem_driver::SearchCell> search_;  // of cell_, load_ and search_ one at most is set
  bool is_over_ = false;
};

Json error(const char* kind, const std::string& what, const std::string& message) {
  return {{"kind", kind}, {"what", what}, {"message", message}};
}

/// The complete answer to a line. Where the line is bad, the answer is an error.
Json answer_line(Dialogue& dialogue, const std::string& line) {
  Json request, failure;
  try {
    request = parse_json<Json>("request: ", line);
    Json fields = dialogue.answer(request);
    fields["id"] = request.value("id", Json());
    fields["ok"] = true;
    return fields;
  } catch (const Declined& declined) {
    failure = error("declined", declined.named(), declined.what());
  } catch (const std::bad_alloc&) {
    failure = error("out_of_memory", "memory", "memory: this machine has not enough of it.");
  } catch (const OutOfMemory& memory) {
    failure = error("out_of_memory", "Error", memory.what());
  } catch (const Error& wrong) {
    failure = error("failed", "Error", wrong.what());
  } catch (const std::exception& other) {
    failure = error("failed", "exception", other.what());
  }
  return {
      {"id", request.is_object() ? request.value("id", Json()) : Json()}, {"ok", false}, {"error", failure}};
}

}  // namespace

int run_tandem_driver(std::istream& in, std::ostream& out) {
  Dialogue dialogue(out);
  for (std::string line; !dialogue.is_over() && std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    print(out, answer_line(dialogue, line));
  }
  return 0;
}

}  // namespace tandem::lab
