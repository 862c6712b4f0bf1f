// What the programs made from the documentation (extract.cpp) check with.
#pragma once

#include <cstdio>
#include <sstream>
#include <string>

#include "tandem/core/error.h"

namespace doc {

inline int& failures() {
  static int count = 0;
  return count;
}
inline int& checks() {
  static int count = 0;
  return count;
}
inline void complain(int line, const std::string& text) {
  std::fprintf(stderr, "line %d: %s\n", line, text.c_str());
  ++failures();
}

template <class F>
void show(F&& value, const std::string& want, int line) {
  ++checks();
  std::ostringstream out;
  out << std::boolalpha << value();
  if (out.str() != want) complain(line, "shows " + out.str() + ", the page says " + want);
}

template <class F>
void fails(F&& call, const std::string& want, int line) {
  ++checks();
  try {
    call();
    complain(line, "does not fail");
  } catch (const tandem::Error& error) {
    if (std::string(error.what()).find(want) == std::string::npos)
      complain(line, std::string("fails with: ") + error.what());
  }
}

template <class F>
void section(const char* title, F&& run) {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "section '%s': %s\n", title, error.what());
    ++failures();
  }
}
template <class F>
void program(const char* title, F&& run) {
  section(title, [&] {
    ++checks();
    if (run() != 0) throw tandem::Error("the program did not return 0");
  });
}

inline int result() {
  std::printf("%d checks, %d failed\n", checks(), failures());
  return failures() || !checks() ? 1 : 0;
}

}  // namespace doc
