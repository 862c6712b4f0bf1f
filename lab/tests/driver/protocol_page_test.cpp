// lab/docs/protocol.md has every field of the schema with its type, and no other.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>
#include <vector>

#include "lab/tests/driver/protocol_schema.h"

namespace tandem::lab {
namespace {

using nlohmann::json;
using Fields = std::map<std::string, std::string>;  // types by name

/// A rule as the page says it.
std::string in_words(const json& rule) {
  std::string text = rule["type"];
  if (rule.contains("one_of"))
    for (const json& value : rule["one_of"])
      text += (value == rule["one_of"][0] ? ": `" : ", `") + value.get<std::string>() + "`";
  if (rule.contains("least")) text += ", at least " + rule["least"].dump();
  if (!rule.value("required", true)) text += "; may be absent";
  if (rule.value("null", false)) text += "; may be null";
  return text;
}

std::string page() { return testing::read_text(std::string(TANDEM_SOURCE_DIR) + "/lab/docs/protocol.md"); }

/// The names in backquotes.
std::vector<std::string> quoted(const std::string& text) {
  static const std::regex name("`([^`]+)`");
  std::vector<std::string> out;
  for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at) out.push_back((*at)[1]);
  return out;
}

/// The tables of fields: "hello.answer", or an object's name. Such a table's second column is called type.
std::map<std::string, Fields> tables_of_the_page() {
  static const std::regex row(R"(\| (.*?) \| (.*?) \|.*)");
  std::map<std::string, Fields> tables;
  std::istringstream lines(page());
  std::string section;
  Fields* table = nullptr;
  for (std::string line; std::getline(lines, line);) {
    std::smatch cells;
    if (line.starts_with("## ")) section = line.substr(3);
    if (!line.starts_with("|")) {
      table = nullptr;
    } else if (std::regex_match(line, cells, row) && cells[2] == "type") {
      const std::string head = cells[1];
      const std::string name = head[0] == '`' ? quoted(head)[0] : section + "." + head;
      EXPECT_FALSE(tables.contains(name)) << name << " has two tables";
      table = &tables[name];
    } else if (table && !line.starts_with("|---")) {
      for (const std::string& name : quoted(cells[1])) table->insert({name, cells[2]});
    }
  }
  return tables;
}

Fields in_words_all(const json& rules) {
  Fields out;
  for (const auto& [name, rule] : rules.items()) out[name] = in_words(rule);
  return out;
}

TEST(ProtocolPage, HasEveryFieldOfTheSchemaWithItsTypeAndNoOther) {
  std::map<std::string, Fields> wanted;
  for (const auto& [call, parts] : protocol_schema()["calls"].items())
    for (const auto& [part, rules] : parts.items())
      if (!rules.empty()) wanted[call + "." + part] = in_words_all(rules);
  for (const auto& [name, rules] : protocol_schema()["objects"].items()) wanted[name] = in_words_all(rules);
  const std::map<std::string, Fields> found = tables_of_the_page();
  for (const auto& [name, fields] : wanted) {
    ASSERT_TRUE(found.contains(name)) << "the page has no table of " << name;
    EXPECT_EQ(found.at(name), fields) << "the table of " << name;
  }
  for (const auto& [name, fields] : found)
    EXPECT_TRUE(wanted.contains(name)) << name << " is not in the schema";
}

TEST(ProtocolPage, HasASectionForEachCallAndTheNumberOfTheProtocol) {
  const std::string text = page();
  for (const auto& [call, parts] : protocol_schema()["calls"].items())
    EXPECT_NE(text.find("\n## " + call + "\n"), std::string::npos) << call;
  EXPECT_NE(text.find("| `protocol` | integer | " + protocol_schema()["protocol"].dump() + " |"),
            std::string::npos);
}

/// The keys at the top of each object that begins with an id: examples leave out with "...", and are no JSON.
std::vector<std::set<std::string>> examples_of_the_page() {
  static const std::regex key(R"re(^"([^"]*)":)re");
  std::vector<std::set<std::string>> examples;
  const std::string text = page();
  for (size_t at = text.find("{\"id\":"); at != std::string::npos; at = text.find("{\"id\":", at + 1)) {
    std::set<std::string>& keys = examples.emplace_back();
    int depth = 0;
    bool within = false;  // a text
    for (size_t i = at; i < text.size() && (i == at || depth > 0); ++i) {
      std::smatch found;
      const std::string rest = text.substr(i, 80);
      if (text[i] == '"' && !within && depth == 1 && std::regex_search(rest, found, key))
        keys.insert(found[1]);
      if (text[i] == '"') within = !within;
      if (!within && (text[i] == '{' || text[i] == '[')) ++depth;
      if (!within && (text[i] == '}' || text[i] == ']')) --depth;
    }
  }
  return examples;
}

TEST(ProtocolPage, ExamplesHaveFieldsOfTheSchema) {
  const std::vector<std::set<std::string>> examples = examples_of_the_page();
  EXPECT_GE(examples.size(), 10u);
  for (std::set<std::string> keys : examples) {
    keys.erase("id");
    bool fits = keys.erase("progress") == 1 && keys.empty();  // a line before the answer
    const bool is_request = keys.erase("call") == 1, is_answer = keys.erase("ok") == 1;
    fits |= is_answer && keys == std::set<std::string>{"error"};
    for (const auto& [call, parts] : protocol_schema()["calls"].items())
      fits |= (is_request || is_answer) &&
              std::all_of(keys.begin(), keys.end(), [&, &fields = parts](const auto& name) {
                return fields[is_request ? "request" : "answer"].contains(name);
              });
    EXPECT_TRUE(fits) << json(keys).dump();
  }
}

}  // namespace
}  // namespace tandem::lab
