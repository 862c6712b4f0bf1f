// extract PAGE.md PROGRAM.cpp: turns the examples of a documentation page into a program that runs them and checks what
// they show. All ```cpp blocks below one "## heading" share a scope. In a block
//   show(EXPRESSION);   // text        the value, printed, must be this text
//   fails(EXPRESSION);  // text        must throw an Error whose message holds this text
// and #include lines go to the top. A block that begins with "```cpp outside" goes there too: what C++ does not allow in a
// function. A block that holds "int main(" is a program of its own, and is run as one.
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

namespace {

struct Section {
  std::string title, code;
  bool program = false;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

/// The line with show(…) and fails(…) made into checks.
std::string checked(const std::string& line) {
  static const std::regex form(R"(^(\s*)(show|fails)\((.*)\);\s+// (.*)$)");
  std::smatch part;
  if (!std::regex_match(line, part, form)) return line;
  const std::string call = part[2] == "show" ? "doc::show([&] { return (" + part[3].str() + "); }, "
                                             : "doc::fails([&] { (void)(" + part[3].str() + "); }, ";
  return part[1].str() + call + quoted(part[4]) + ", __LINE__);";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ifstream in(argv[1]);
  if (!in) {
    std::cerr << "extract: cannot read " << argv[1] << "\n";
    return 1;
  }
  std::vector<Section> sections(1);
  std::string includes, heading, declarations;
  bool inside = false, outside = false;  // a block, and one for the top
  int number = 0, blocks = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!inside) {
      if (line.rfind("## ", 0) == 0 || line.rfind("### ", 0) == 0) {
        heading = line.substr(line.find(' ') + 1);
        sections.push_back({heading, "", false});
      }
      if (line == "```cpp outside") {
        inside = outside = true;
        declarations += "#line " + std::to_string(number + 1) + " " + quoted(argv[1]) + "\n";
      } else if (line == "```cpp") {
        inside = true;
        ++blocks;
        if (sections.back().program) sections.push_back({heading, "", false});
        sections.back().code += "#line " + std::to_string(number + 1) + " " + quoted(argv[1]) + "\n";
      }
    } else if (line == "```") {
      inside = outside = false;
    } else if (outside) {
      declarations += line + "\n";
    } else if (line.rfind("#include", 0) == 0) {
      includes += line + "\n";
      sections.back().code += "\n";
    } else {
      if (line.rfind("int main(", 0) == 0) sections.back().program = true;
      sections.back().code += checked(line) + "\n";
    }
  }
  if (inside || blocks == 0) {
    std::cerr << "extract: " << argv[1] << (inside ? ": a block is not closed\n" : " has no ```cpp block\n");
    return 1;
  }
  std::ofstream out(argv[2]);
  out << "#include \"tandem/tandem.h\"\n#include \"tests/docs/doc.h\"\n"
      << includes << "using namespace tandem;\n"
      << declarations;
  std::string calls;
  for (size_t i = 0; i < sections.size(); ++i) {
    Section& section = sections[i];
    if (section.code.empty()) continue;
    const std::string name = "section_" + std::to_string(i);
    if (section.program) {
      const size_t at = section.code.find("int main(");
      section.code.replace(at, 9, "int program(");
      section.code.insert(section.code.rfind("}"), "return 0;\n");  // as main does by itself
      out << "namespace " << name << " {\n" << section.code << "}\n";
      calls += "  doc::program(" + quoted(section.title) + ", [] { return " + name + "::program(); });\n";
    } else {
      out << "static void " << name << "() {\n" << section.code << "}\n";
      calls += "  doc::section(" + quoted(section.title) + ", " + name + ");\n";
    }
  }
  out << "int main() {\n" << calls << "  return doc::result();\n}\n";
  return out ? 0 : 1;
}
