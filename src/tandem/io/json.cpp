// Builds values from the parser's events. (The library's own way to watch a parse, by a callback, walks through all
// earlier members of an object at the end of each: its time is quadratic.)
#include "tandem/io/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include "tandem/core/file.h"

namespace tandem::io {

namespace {

template <class Json>
class Builder {
 public:
  using number_integer_t = typename Json::number_integer_t;
  using number_unsigned_t = typename Json::number_unsigned_t;
  using number_float_t = typename Json::number_float_t;
  using string_t = typename Json::string_t;
  using binary_t = typename Json::binary_t;
  using object_t = typename Json::object_t;
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  Json root = Json(Json::value_t::discarded);
  std::string why;

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(number_integer_t value) { return put(value); }
  bool number_unsigned(number_unsigned_t value) { return put(value); }
  bool number_float(number_float_t value, const string_t& text) {
    // The parser makes a float of a whole number that fits no integer: it would come out as another number.
    if (text.find_first_of(".eE") == string_t::npos)
      return refuse("whole numbers must fit 64 bits; got ", one_line(text, 40));
    return put(value);
  }
  bool string(string_t& value) { return put(std::move(value)); }
  bool binary(binary_t&) { return refuse("must be text; got binary data"); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool key(string_t& name) {
    auto& object = stack_.back()->template get_ref<object_t&>();
    if constexpr (kOrdered) {
      // Straight to the end: emplace() would look through all keys.
      static_cast<typename object_t::Container&>(object).emplace_back(std::move(name), nullptr);
      member_ = &object.back().second;
    } else {
      const auto [place, is_new] = object.emplace(std::move(name), nullptr);
      if (!is_new) return refuse_twice(place->first);
      member_ = &place->second;
    }
    return true;
  }
  bool end_object() {
    if constexpr (kOrdered) {
      std::vector<const string_t*> names;
      for (const auto& [name, value] : stack_.back()->template get_ref<object_t&>()) names.push_back(&name);
      std::sort(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a < *b; });
      const auto twice = std::adjacent_find(names.begin(), names.end(),
                                            [](const auto* a, const auto* b) { return *a == *b; });
      if (twice != names.end()) return refuse_twice(**twice);
    }
    return close();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // 406: a number out of range; all others are breaches of the grammar or of UTF-8.
    if (error.id == 406)
      return refuse("numbers must be within the range of f64; one before byte ", position, " is not");
    return refuse("must be JSON in UTF-8; it breaks at byte ", position);
  }

 private:
  template <class... Parts>
  bool refuse(const Parts&... parts) {
    why = str(parts...);
    return false;
  }
  bool refuse_twice(const string_t& name) {
    return refuse("a key must stand once in an object; '", one_line(name, 100), "' stands twice");
  }
  template <class Value>
  bool put(Value&& value) {
    place() = std::forward<Value>(value);
    return true;
  }
  bool open(Json&& value) {
    if (stack_.size() == kMaxJsonDepth)
      return refuse("lists and objects must be nested at most ", kMaxJsonDepth,
                    " levels deep; they are nested deeper");
    Json& here = place();
    here = std::move(value);
    stack_.push_back(&here);
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }
  /// Where the next value belongs.
  Json& place() {
    if (stack_.empty()) return root;
    if (stack_.back()->is_object()) return *member_;
    auto& list = stack_.back()->template get_ref<typename Json::array_t&>();
    list.emplace_back();
    return list.back();
  }

  std::vector<Json*> stack_;  // what is open; an element does not move while something in it is open
  Json* member_ = nullptr;
};

template <class Json>
bool build(std::string_view text, Json& value, std::string& why) {
  Builder<Json> builder;
  const bool is_read = Json::sax_parse(text.begin(), text.end(), &builder);
  if (is_read)
    value = std::move(builder.root);
  else
    why = builder.why;
  return is_read;
}

}  // namespace

bool check_json(std::string_view text, std::string& why) {
  nlohmann::json value;
  return build(text, value, why);
}

bool read_json(std::string_view text, nlohmann::json& value, std::string& why) {
  return build(text, value, why);
}

bool read_json(std::string_view text, nlohmann::ordered_json& value, std::string& why) {
  return build(text, value, why);
}

}  // namespace tandem::io
