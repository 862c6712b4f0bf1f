// Reads the public headers (all that tandem.h reaches) and the documentation, and fails for a public function, layer or
// optimiser that no example of docs/tutorial.md or docs/reference uses. The examples themselves run as the tests doc.*.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tandem/core/op.h"
#include "tests/support/paths.h"

namespace {

namespace fs = std::filesystem;

/// Headers that tandem.h reaches for the sake of others: kernels, the insides of tensors, readers behind the table of
/// data sets.
const std::set<std::string> kInside = {"tandem/core/activity.h",       "tandem/core/file.h",
                                       "tandem/core/half.h",           "tandem/core/refcount.h",
                                       "tandem/core/small_vector.h",   "tandem/core/trace.h",
                                       "tandem/ops/windows.h",         "tandem/ops/elementary_functions.h",
                                       "tandem/ops/scalar_functions.h"};

/// Public by the language, but for backends, kernels and the library itself; each with its reason.
const std::map<std::string, const char*> kNotForUsers = {
    {"tandem::contiguous_meta", "describes memory for apply"},
    {"tandem::set_contiguous", "describes memory for apply"},
    {"tandem::register_backend", "called by backends"},
    {"tandem::set_backend_loader", "called by backends"},
    {"tandem::throw_out_of_memory", "called by allocators"},
    {"tandem::set_tape_ops", "called by ops/ at start-up"},
    {"tandem::tape_ops", "called by gradients of composed forms"},
    {"tandem::no_flops", "for the records of ops"},
    {"tandem::record", "called by apply"},
    {"tandem::check_anomaly", "called by apply"},
    {"tandem::scopes_are_noted", "asked by modules"},
    {"tandem::current_scope", "asked by tracers"},
    {"tandem::common_scope", "asked by passes"},
    {"tandem::check_in_place", "called by apply"},
    {"tandem::check_images", "called by inference"},
    {"tandem::check_target", "called by apply"},
    {"tandem::without_mark", "called by functions made of others"},
    {"tandem::has_overlap", "describes memory for apply"},
    {"tandem::index_fault", "called by kernels"},
    {"tandem::probability_fault", "called by losses"},
    {"tandem::refuse_without_kernel", "called by apply"},
    {"tandem::check_words", "called by the command"},
    {"tandem::switches_of", "called by fit"},
    {"tandem::set_switches", "called by fit"},
    {"tandem::usual_range", "called by plots"},
    {"tandem::destroy", "called by references"},
    {"tandem::plus_capped", "sizes for inference"},
    {"tandem::times_capped", "sizes for inference"},
    {"tandem::take_random", "called by random kernels"},
    {"tandem::philox", "called by random kernels"},
    {"tandem::philox_blocks", "called by random kernels"},
    {"tandem::uniform_from_bits", "called by random kernels"},
    {"tandem::random_word64", "called by random kernels"},
    {"tandem::scaled_word", "called by random kernels"},
    {"tandem::lower_words", "called by random kernels"},
    {"tandem::uniform_from_word64", "called by random kernels"},
    {"tandem::uniform_draw", "called by random kernels"},
    {"tandem::ordered_key", "called by random kernels"},
    {"tandem::check_not_positive", "called by kernels of linear algebra"},
    {"tandem::check_singular", "called by kernels of linear algebra"},
    {"tandem::check_converged", "called by kernels of linear algebra"},
    {"tandem::name_of", "names an op in messages"},
    {"tandem::gather_as", "called by losses"},
    {"tandem::layer_library", "filled by backends"},
    {"tandem::check_data_name", "part of check()"},
    {"tandem::check_between", "part of check()"},
    {"tandem::check_number", "part of check()"},
    {"tandem::check_device", "part of check()"},
    {"tandem::check_same_settings", "called by fit"},
    {"tandem::settings_json", "called by fit"},
    {"tandem::names_of_data", "called by fit and search"},
    {"tandem::data::open_test_table", "called by evaluate and predict of runs"},
    {"tandem::make_optimizer", "called by fit; optim::make_optimizer is for users"},
    {"tandem::save_environment", "called by fit"},
    {"tandem::data::locate_image_folder", "a row of the table of data sets"},
    {"tandem::data::open_image_folder", "a row of the table of data sets"},
    {"tandem::data::locate_ljspeech", "a row of the table of data sets"},
    {"tandem::data::open_ljspeech", "a row of the table of data sets"},
    {"tandem::data::read_idx_images", "behind open_dataset"},
    {"tandem::optim::as_adam", "shared by Adam's relatives"},
    {"tandem::io::unpacked_limit", "called by readers"},
    {"tandem::io::check_unpacked", "called by readers"},
    {"tandem::io::unpack_start", "called by readers"},
};
/// Bases of layers, which nobody makes.
const std::set<std::string> kBases = {"Container",     "ChannelDropout", "BatchNorm",  "InstanceNorm",
                                      "RecurrentCell", "LossOfTwo",      "LossOfThree"};

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Without comments, preprocessor lines and the content of literals.
std::string bare(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      while (i < text.size() && text[i] != '\n') ++i;
      out += '\n';
    } else if (text[i] == '#' && (out.empty() || out.back() == '\n')) {
      for (; i < text.size() && text[i] != '\n'; ++i)
        if (text[i] == '\\') ++i;  // the line goes on
      out += '\n';
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !is_word(text[i - 1])))) {
      const char quote = text[i];
      for (++i; i < text.size() && text[i] != quote; ++i)
        if (text[i] == '\\') ++i;
      out += "\"\"";
    } else {
      out += text[i];
    }
  }
  return out;
}

struct Name {
  std::string scope, name;  // "tandem::nn", "summary"
};

/// The names that a header declares at namespace scope: functions, and classes that derive from something.
struct Declared {
  std::vector<Name> functions, classes;
};

/// What one declaration (without its body) declares.
void read_declaration(const std::string& scope, std::string text, Declared& out) {
  static const std::regex space("\\s+"), ends("^ | $"), automatic("decltype\\(auto\\)"),
      alias("^using (\\w+) = (Conv|ConvTranspose|PoolLayer|PadLayer|ConstantPad)<"),
      derived("^class (\\w+)( final)? : public"),
      other(
          "^(using|struct|class|enum|union|extern|friend|static_assert)\\b|operator|"
          "^template <[^(]*> (struct|class|using)\\b");
  text = std::regex_replace(text, space, " ");
  text = std::regex_replace(text, automatic, "auto");
  text = std::regex_replace(text, ends, "");
  std::smatch part;
  if (std::regex_search(text, part, alias) || std::regex_search(text, part, derived))
    out.classes.push_back({scope, part[1]});
  if (std::regex_search(text, other)) return;
  if (const size_t clause = text.find("requires(");
      clause != std::string::npos) {  // ends where its parentheses close
    size_t end = text.find('(', clause);
    for (int open = 0; end < text.size(); ++end) {
      if (text[end] == '(') ++open;
      if (text[end] == ')' && --open == 0) break;
    }
    text.erase(clause, end + 1 - clause);
  }
  int angle = 0;  // the first parenthesis that is no part of a template argument ends the name
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++angle;
    if (text[i] == '>') --angle;
    if (text[i] == '=' && angle == 0) return;  // a constant
    if (text[i] != '(' || angle != 0) continue;
    size_t end = i;
    if (end > 0 && text[end - 1] == '>') end = text.rfind('<', end);  // an explicit specialisation
    size_t begin = end;
    while (begin > 0 && is_word(text[begin - 1])) --begin;
    if (begin > 0 && text[begin - 1] == ':') return;  // a member, defined outside of its class
    if (begin < end) out.functions.push_back({scope, text.substr(begin, end - begin)});
    return;
  }
}

void read_scope(const std::string& text, size_t& at, const std::string& scope, Declared& out) {
  std::string declaration;
  int round = 0;          // open parentheses
  bool constant = false;  // the declaration has an = outside of them
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '(') ++round;
    if (c == ')') --round;
    if (c == '=' && round == 0) constant = true;
    if (c == '}' && round == 0) return;
    if (c == '{' && round == 0) {
      static const std::regex space("namespace ([\\w:]*)\\s*$");
      std::smatch part;
      if (std::regex_search(declaration, part, space)) {
        const std::string name = part[1];
        const bool hidden = name.empty() || name == "detail";
        Declared ignored;
        ++at;
        read_scope(text, at, scope.empty() ? name : scope + "::" + name, hidden ? ignored : out);
        declaration.clear();
        continue;
      }
      int depth = 0;  // a body: passed over
      do {
        depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
        ++at;
      } while (at < text.size() && depth > 0);
      --at;
      // A function ends with its body; a class or a constant with its semicolon.
      if (declaration.find('(') != std::string::npos && !constant) {
        read_declaration(scope, declaration, out);
        declaration.clear();
      }
      continue;
    }
    if (c == ';' && round == 0) {
      read_declaration(scope, declaration, out);
      declaration.clear();
      constant = false;
      continue;
    }
    declaration += c;
  }
}

Declared declared_in(const std::string& header) {
  Declared out;
  size_t at = 0;
  read_scope(bare(header), at, "", out);
  return out;
}

/// tandem.h and all that it includes, by their paths below src/.
std::set<std::string> public_headers(const fs::path& src) {
  std::set<std::string> seen = {"tandem/tandem.h"};
  std::vector<std::string> open = {"tandem/tandem.h"};
  const std::regex include("#include \"(tandem/[^\"]+)\"");
  while (!open.empty()) {
    const std::string text = text_of(src / open.back());
    open.pop_back();
    for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i)
      if (fs::exists(src / (*i)[1].str()) &&
          seen.insert((*i)[1]).second)  // standard.h names one that is not there
        open.push_back((*i)[1]);
  }
  return seen;
}

/// The ```cpp blocks of a page.
std::string code_of(const std::string& page) {
  std::string code;
  bool inside = false;
  size_t at = 0;
  while (at < page.size()) {
    const size_t end = std::min(page.find('\n', at), page.size());
    const std::string line = page.substr(at, end - at);
    at = end + 1;
    if (line.rfind("```", 0) == 0)
      inside = line == "```cpp" || line == "```cpp outside";
    else if (inside)
      code += line + "\n";
  }
  return code;
}

/// What the examples use, as "name" or "qualifier::name"; members of objects are left out. Called: only where followed by
/// a parenthesis, perhaps after template arguments.
std::set<std::string> used_in(const std::string& code, bool called) {
  std::map<std::string, std::string> aliases;
  const std::regex alias("namespace (\\w+) = (?:\\w+::)*(\\w+);");
  for (std::sregex_iterator i(code.begin(), code.end(), alias), end; i != end; ++i)
    aliases[(*i)[1]] = (*i)[2];
  std::set<std::string> used;
  for (size_t i = 0; i < code.size(); ++i) {
    if (!is_word(code[i]) || (i > 0 && is_word(code[i - 1]))) continue;
    size_t end = i;
    while (end < code.size() && is_word(code[end])) ++end;
    size_t next = end;
    if (next < code.size() && code[next] == '<') next = code.find('>', next) + 1;
    if (called && (next >= code.size() || code[next] != '(')) continue;
    const std::string name = code.substr(i, end - i);
    if (i > 0 && (code[i - 1] == '.' || (i > 1 && code.compare(i - 2, 2, "->") == 0))) continue;
    if (i > 1 && code.compare(i - 2, 2, "::") == 0) {
      size_t begin = i - 2;
      while (begin > 0 && is_word(code[begin - 1])) --begin;
      std::string qualifier = code.substr(begin, i - 2 - begin);
      if (aliases.contains(qualifier)) qualifier = aliases[qualifier];
      used.insert(qualifier + "::" + name);
    } else {
      used.insert(name);
    }
  }
  return used;
}

TEST(Docs, EveryOpNamesThePublicFunctionThatCallsIt) {
  const fs::path src = fs::path(tandem::testing::source_dir()) / "src";
  std::set<std::string> functions;
  for (const std::string& header : public_headers(src))
    for (const Name& f : declared_in(text_of(src / header)).functions)
      if (f.scope == "tandem") functions.insert(f.name);
  for (const tandem::OpDef* op : tandem::all_ops()) {
    const std::string function = op->function ? op->function : op->name;
    EXPECT_TRUE(function.empty() || functions.contains(function)) << op->name << ": " << function;
  }
}

TEST(Docs, EveryPublicFunctionLayerAndOptimiserHasAnExample) {
  const fs::path root = tandem::testing::source_dir();
  std::string code = code_of(text_of(root / "docs/tutorial.md"));
  for (const auto& entry : fs::directory_iterator(root / "docs/reference"))
    if (entry.path().extension() == ".md") code += code_of(text_of(entry.path()));
  const std::set<std::string> called = used_in(bare(code), true), used = used_in(bare(code), false);

  Declared all;
  for (const std::string& header : public_headers(root / "src")) {
    if (kInside.contains(header)) continue;
    const Declared found = declared_in(text_of(root / "src" / header));
    all.functions.insert(all.functions.end(), found.functions.begin(), found.functions.end());
    all.classes.insert(all.classes.end(), found.classes.begin(), found.classes.end());
  }
  std::set<std::string> outermost;
  for (const Name& f : all.functions)
    if (f.scope == "tandem") outermost.insert(f.name);

  std::set<std::string> missing, functions;
  for (const Name& f : all.functions) {
    const std::string full = f.scope + "::" + f.name;
    if (f.name.rfind("op_", 0) == 0 || f.name == "check" || kNotForUsers.contains(full)) continue;
    functions.insert(full);
    const std::string qualified = f.scope.substr(f.scope.rfind(':') + 1) + "::" + f.name;
    // A function of an inner namespace may be found by its argument's, unless the name is taken further out.
    const bool plain = f.scope == "tandem" || !outermost.contains(f.name);
    if (!called.contains(qualified) && !(plain && called.contains(f.name))) missing.insert(full);
  }
  for (const std::string& name : missing)
    ADD_FAILURE() << name << " has no example: add one to its page in docs/reference.";
  EXPECT_GT(functions.size(), 400u);

  size_t classes = 0;
  for (const Name& c : all.classes) {
    if ((c.scope != "tandem::nn" && c.scope != "tandem::optim") || kBases.contains(c.name)) continue;
    ++classes;
    EXPECT_TRUE(used.contains(c.scope.substr(8) + "::" + c.name))
        << c.scope << "::" << c.name << " has no example: add one to its page in docs/reference.";
  }
  EXPECT_GT(classes, 50u);

  for (const auto& [name, why] : kNotForUsers) {
    bool there = false;
    for (const Name& f : all.functions) there = there || f.scope + "::" + f.name == name;
    EXPECT_TRUE(there) << name << " is excused (" << why << ") and does not exist.";
  }
}

/// The fields of every `struct …Options` and `struct …Config` of a header, in order.
std::map<std::string, std::vector<std::string>> option_fields(const std::string& header) {
  std::map<std::string, std::vector<std::string>> all;
  const std::string text = bare(header);
  const std::regex head("struct (\\w*(?:Options|Config))(?: : [\\w:]+)? \\{");
  for (std::sregex_iterator i(text.begin(), text.end(), head), end; i != end; ++i) {
    std::vector<std::string>& fields = all[(*i)[1]];
    std::string last;      // the newest word of the declaration, outside of brackets
    bool is_open = true;   // a name may still come: no = since the last comma
    bool is_call = false;  // a function
    int depth = 0;
    for (size_t at = static_cast<size_t>(i->position() + i->length()); depth >= 0 && at < text.size(); ++at) {
      const char c = text[at];
      if (c == '(' && depth == 0 && is_open) is_call = true;
      if (c == '{' || c == '(' || c == '<') ++depth;
      if (c == '}' || c == ')' || c == '>') --depth;
      if (depth != 0) continue;
      if (is_word(c) && is_open) last = at > 0 && is_word(text[at - 1]) ? last + c : std::string(1, c);
      const bool is_end = c == ';' || (c == '}' && is_call);
      if (c == '=' || c == ',' || is_end) {
        if (is_open && !is_call && !last.empty()) fields.push_back(last);
        is_open = c != '=';
        if (is_end) is_call = false;
        last.clear();
      }
    }
  }
  return all;
}

// Designated initialisers must come in the order of the fields: a user learns one order, not one a struct.
TEST(Docs, FieldsOfOptionsComeInOneOrder) {
  const auto read = option_fields(
      "struct AOptions {\n  std::map<int, int> a = {{1, 2}}, b;\n  bool f() const { return a == b; }\n  T "
      "c{};\n};");
  EXPECT_EQ(read.at("AOptions"), (std::vector<std::string>{"a", "b", "c"}));

  const fs::path root = tandem::testing::source_dir();
  std::map<std::pair<std::string, std::string>, std::string> before;
  for (const std::string& header : public_headers(root / "src"))
    for (const auto& [name, fields] : option_fields(text_of(root / "src" / header)))
      for (size_t i = 0; i < fields.size(); ++i)
        for (size_t j = i + 1; j < fields.size(); ++j) before.insert({{fields[i], fields[j]}, name});
  EXPECT_GT(before.size(), 300u);
  for (const auto& [pair, name] : before) {
    const auto other = before.find({pair.second, pair.first});
    if (other == before.end() || pair.second < pair.first) continue;
    ADD_FAILURE() << pair.first << " comes before " << pair.second << " in " << name << ", and behind it in "
                  << other->second;
  }
}

TEST(Docs, DeclarationsAndCallsAreRead) {
  const Declared found = declared_in(
      "#include <x>\nnamespace tandem {\n/// f(x)\nTensor f(const Tensor& x, Options o = {});\n"
      "inline int g(int x = 2) { return f(x); }\nstd::function<bool(int)> h(int);\nnamespace detail { void "
      "no(); }\n"
      "struct S { void member(); };\ntemplate <>\nconstexpr int t<double>() { return 1; }\n"
      "class A : public B {\n public:\n  void m();\n};\nusing F = int (*)();\nconst int c = g();\n"
      "bool operator==(S, S);\nnamespace nn {\nusing P = PoolLayer<int, f>;\nvoid k();\n}\n}\n");
  std::string functions, classes;
  for (const Name& f : found.functions) functions += f.scope + "::" + f.name + " ";
  for (const Name& c : found.classes) classes += c.scope + "::" + c.name + " ";
  EXPECT_EQ(functions, "tandem::f tandem::g tandem::h tandem::t tandem::nn::k ");
  EXPECT_EQ(classes, "tandem::A tandem::nn::P ");

  const std::set<std::string> called = used_in(
      "namespace tf = data::transforms;\nf(x.g()); tf::h(1); nn::make<A>(2); p->q(); int r = s;", true);
  EXPECT_EQ(called, (std::set<std::string>{"f", "transforms::h", "nn::make"}));
}

}  // namespace
