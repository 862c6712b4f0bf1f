// Descriptions as TOML. (The other files of the library that know the TOML parser are train/settings_toml.cpp and
// search/space_toml.cpp.)
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "tandem/core/file.h"
#include "tandem/core/nearest.h"
#include "tandem/core/shortest.h"
#include "tandem/core/toml_depth.h"
#include "tandem/zoo/description_limits.h"
#include "tandem/zoo/layer_types.h"

#ifdef TANDEM_HAS_TOML
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>
#endif

namespace tandem::zoo {
namespace {

/// "model 'mynet.toml'": how messages begin.
std::string source_name(const std::string& source) { return "model '" + one_line(source, 300) + "'"; }

// --- writing

std::string text_of(const Setting& value) {
  struct Text {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const {
      const std::string text = shortest(v);
      return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const std::string& v) const { return "\"" + v + "\""; }
    std::string operator()(const std::vector<int64_t>& v) const {
      std::string list;
      for (const int64_t size : v) list += (list.empty() ? "" : ", ") + std::to_string(size);
      return "[" + list + "]";
    }
  };
  return std::visit(Text{}, value);
}

std::string text_of(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += str(list.empty() ? "" : ", ", "\"", name, "\"");
  return "[" + list + "]";
}

void write_layers(const std::vector<LayerDescription>& layers, const std::string& indent, std::string& out) {
  out += "[\n";
  for (const LayerDescription& layer : layers) {
    check_layer(layer);
    check_name(layer.name, "the name of a layer");
    out += indent + "  { type = \"" + layer.type + "\"";
    if (!layer.name.empty()) out += ", name = \"" + layer.name + "\"";
    if (layer.from.size() == 1) out += ", from = \"" + layer.from[0] + "\"";
    if (layer.from.size() > 1) out += ", from = " + text_of(layer.from);
    if (!layer.to.empty()) out += ", to = \"" + layer.to + "\"";
    for (const SettingRule& rule : layer_type(layer.type).settings)  // in one order, whatever they came in
      for (const auto& [name, value] : layer.settings)
        if (name == rule.name) out += ", " + name + " = " + text_of(value);
    for (const auto& [key, inner] :
         {std::pair{"layer", &layer.layers}, std::pair{"shortcut", &layer.shortcut}}) {
      if (inner->empty()) continue;
      out += str(", ", key, " = ");
      write_layers(*inner, indent + "  ", out);
    }
    out += " },\n";
  }
  out += indent + "]";
}

#ifdef TANDEM_HAS_TOML

// --- reading

class Reader {
  static int64_t line_of(const toml::key& key) { return key.source().begin.line; }
  static int64_t line_of(const toml::node& node) { return node.source().begin.line; }

  /// Runs f; an Error in it gets the file and the line, unless it has them from further inside.
  template <class F>
  decltype(auto) at(int64_t line, F&& f) const {
    try {
      return f();
    } catch (Error& error) {
      const std::string where = source_name(source_);
      if (!std::string_view(error.what()).starts_with(where))
        error.prepend(str(where, ", line ", line, ": "));
      throw;
    }
  }

 public:
  explicit Reader(const std::string& source) : source_(source) {}

  ModelDescription read(const toml::table& root) {
    ModelDescription d;
    for (const auto& [key, node] : root) {
      const int64_t line = line_of(key);
      if (key == "name") {
        d.name = text(node, "name");
        at(line, [&] { check_name(d.name, "the name of a model"); });
      } else if (key == "input") {
        d.input = sizes(node, "input", 1);
      } else if (key == "inputs") {
        d.inputs = inputs(node);
      } else if (key == "outputs") {
        d.outputs = names(node, "outputs");
      } else if (key == "layer") {
        d.layers = layers(node, "layer", 0);
      } else {
        at(line, [&, k = std::string(key.str())] {
          throw Error(str("the keys of a model must be name, input, inputs, outputs and layer; got '",
                          one_line(k, 60), "'.",
                          did_you_mean(k, {"name", "input", "inputs", "outputs", "layer"})));
        });
      }
    }
    TD_CHECK(root.contains("input") || !d.inputs.empty(), source_name(source_),
             ": must say what one sample looks like; got no input. Add a line like input = [1, 28, 28].");
    TD_CHECK(!d.layers.empty(), source_name(source_),
             ": must have layers; got none. Add layer = [ { type = \"flatten\" }, … ].");
    return d;
  }

 private:
  std::string text(const toml::node& node, const char* key) const {
    const auto* value = node.as_string();
    at(line_of(node),
       [&] { TD_CHECK(value, key, " must be a text in quotation marks; got something else."); });
    return value->get();
  }

  /// `least`: how many sizes there must be.
  Dims sizes(const toml::node& node, const char* key, size_t least) const {
    const auto* array = node.as_array();
    const std::vector<int64_t> list = array ? numbers(*array) : std::vector<int64_t>();
    at(line_of(node), [&] {
      TD_CHECK(array && list.size() == array->size() && list.size() >= least && list.size() <= 4 &&
                   std::all_of(list.begin(), list.end(), [](int64_t v) { return v >= 1; }),
               key, " must be a list of the sizes of one sample, ", least == 0 ? "none" : "one",
               " to four whole numbers of at least 1; got something else. Write it as in ", key,
               " = [1, 28, 28].");
    });
    return Dims(list);
  }

  /// One name, or a list of them.
  std::vector<std::string> names(const toml::node& node, const char* key) const {
    if (node.is_string()) return {node.as_string()->get()};
    std::vector<std::string> list;
    const auto* array = node.as_array();
    at(line_of(node), [&] {
      bool is_good = array && !array->empty() && array->size() <= static_cast<size_t>(kAnyNumber);
      if (is_good)
        for (const toml::node& element : *array) is_good = is_good && element.is_string();
      TD_CHECK(is_good, key, " must be a name or a list of names, at most ", kAnyNumber,
               "; got something else. Write it as in ", key, " = [\"a\", \"b\"].");
    });
    for (const toml::node& element : *array) list.push_back(element.as_string()->get());
    return list;
  }

  std::vector<InputDescription> inputs(const toml::node& node) const {
    const auto* array = node.as_array();
    at(line_of(node), [&] {
      TD_CHECK(array && !array->empty() && array->size() <= static_cast<size_t>(kAnyNumber),
               "inputs must be a list of at most ", kAnyNumber,
               " tables; got something else. Write inputs = [ { name = \"x\", shape = [20, 8] }, … ].");
    });
    std::vector<InputDescription> list;
    for (const toml::node& element : *array) {
      at(line_of(element), [&] {
        const toml::table* table = element.as_table();
        TD_CHECK(table && table->get("name") && table->get("shape"),
                 "an input must be a table with name and shape, { name = \"x\", shape = [20, 8] }; got "
                 "something else.");
        InputDescription& input = list.emplace_back();
        for (const auto& [key, value] : *table) {
          if (key == "name") {
            input.name = text(value, "name");
            check_value_name(input.name);
          } else if (key == "shape") {
            input.shape = sizes(value, "shape", 0);
          } else if (key == "type") {
            const std::string type = text(value, "type");
            TD_CHECK(type == "f32" || type == "i64", "the type of an input must be f32 or i64; got '",
                     one_line(type, 60), "'.");
            input.dtype = type == "i64" ? DType::i64 : DType::f32;
          } else {
            throw Error(str("the keys of an input must be name, shape and type; got '",
                            one_line(std::string(key.str()), 60), "'."));
          }
        }
      });
    }
    return list;
  }

  /// Empty where it holds anything but whole numbers.
  static std::vector<int64_t> numbers(const toml::array& array) {
    std::vector<int64_t> list;
    for (const toml::node& element : array) {
      const auto* whole = element.as_integer();
      if (!whole || list.size() == 16) return {};  // no list of ours is that long
      list.push_back(whole->get());
    }
    return list;
  }

  Setting setting(const toml::node& node, const std::string& name) const {
    if (const auto* value = node.as_boolean()) return value->get();
    if (const auto* value = node.as_integer()) return value->get();
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_string()) return value->get();
    if (const auto* array = node.as_array(); array && !numbers(*array).empty()) return numbers(*array);
    throw Error(str(one_line(name, 60),
                    " must be a number, true, false, a text, or a list of whole numbers; got ",
                    !node.is_array() ? "something else."
                    : node.as_array()->empty()
                        ? "an empty list."
                        : "a list that holds something else. Write whole numbers without a point."));
  }

  std::vector<LayerDescription> layers(const toml::node& node, const char* key, int depth) {
    const auto* array = node.as_array();
    at(line_of(node), [&] {
      TD_CHECK(array && !array->empty(), key, " must be a list of layers; got ",
               array ? "an empty one." : "something else.", " Write [[layer]], or layer = [ { … }, … ].");
      TD_CHECK(depth <= kMostNested, "blocks must be nested at most ", kMostNested, " deep; got more.");
    });
    std::vector<LayerDescription> list;
    for (const toml::node& element : *array)
      list.push_back(at(line_of(element), [&] { return layer(element, depth); }));
    return list;
  }

  LayerDescription layer(const toml::node& node, int depth) {
    const toml::table* table = node.as_table();
    TD_CHECK(table, "a layer must be a table, { type = \"conv\", … }; got something else.");
    TD_CHECK(++count_ <= kMostLayers, "there must be at most ", kMostLayers, " layers; got more.");
    LayerDescription out;
    out.line = line_of(node);
    const toml::node* type = table->get("type");
    TD_CHECK(type && type->is_string(), "a layer must have a type, as in type = \"conv\"; got none.");
    out.type = type->as_string()->get();
    const LayerType& known = at(line_of(*type), [&]() -> const LayerType& { return layer_type(out.type); });
    for (const auto& [key, value] : *table) {
      const std::string name(key.str());
      if (name == "type") continue;
      if (name == "name") {
        out.name = text(value, "name");
        at(line_of(value), [&] { check_name(out.name, "the name of a layer"); });
      } else if (name == "from") {
        out.from = names(value, "from");
      } else if (name == "to") {
        out.to = text(value, "to");
        at(line_of(value), [&] { check_value_name(out.to); });
      } else if (!known.make && (name == "layer" || name == "shortcut")) {
        (name == "layer" ? out.layers : out.shortcut) = layers(value, key.str().data(), depth + 1);
      } else {
        at(line_of(key), [&, &value = value] {
          setting_rule(known, name);
          out.settings.emplace_back(name, checked_setting(known, name, setting(value, name)));
        });
      }
    }
    check_layer(out);
    return out;
  }

  std::string source_;
  int64_t count_ = 0;
};

#endif

}  // namespace

std::string to_toml(const ModelDescription& description) {
  check_name(description.name, "the name of a model");
  std::string out = "name = \"" + description.name + "\"\n";
  const auto sizes = [](const Dims& shape) {
    return text_of(std::vector<int64_t>(shape.begin(), shape.end()));
  };
  if (description.inputs.empty()) out += "input = " + sizes(description.input) + "\n";
  for (const InputDescription& input : description.inputs)
    out += str(&input == description.inputs.data() ? "inputs = [\n" : "", "  { name = \"", input.name,
               "\", shape = ", sizes(input.shape), input.dtype == DType::i64 ? ", type = \"i64\"" : "",
               " },\n", &input == &description.inputs.back() ? "]\n" : "");
  if (!description.outputs.empty()) out += "outputs = " + text_of(description.outputs) + "\n";
  out += "layer = ";
  write_layers(description.layers, "", out);
  return out + "\n";
}

ModelDescription parse_description(const std::string& text, const std::string& source) {
  const auto size = static_cast<int64_t>(text.size());
  TD_CHECK(size <= kMostText, source_name(source), ": a description must have at most ", kMostText,
           " bytes; got ", size, ".");
#ifdef TANDEM_HAS_TOML
  check_toml_depth(text, source_name(source), {.parts = 16, .nested = 4 * kMostNested});
  ModelDescription description;
  try {
    description = Reader(source).read(toml::parse(text));
  } catch (const toml::parse_error& error) {
    throw Error(str(source_name(source), ", line ", error.source().begin.line,
                    ": must be TOML; got: ", one_line(error.description(), 300), ". Fix that line."));
  }
  if (description.name.empty()) {
    description.name = std::filesystem::path(source).stem().string();
    try {
      check_name(description.name, "the name of the file");
    } catch (Error& error) {
      throw Error(str(source_name(source), ": ", error.what(), " Give the model a name: name = \"mynet\"."));
    }
  }
  return description;
#else
  throw Error(
      str(source_name(source),
          ": this build of Tandem cannot read TOML, since toml++ was not found when it was built. Install "
          "libtomlplusplus-dev and build again."),
      ErrorKind::resource);
#endif
}

ModelDescription read_description(const std::string& path) {
  InputFile file("model", path);
  TD_CHECK(file.bytes() <= kMostText, source_name(path), ": a description must have at most ", kMostText,
           " bytes; got ", file.bytes(), ".");
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  file.read(text.data(), text.size());
  return parse_description(text, path);
}

}  // namespace tandem::zoo
