#include "tandem/core/shortest.h"

#include <charconv>

namespace tandem {
namespace {

template <class T>
std::string text_of(T value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

std::string shortest(double value) { return text_of(value); }
std::string shortest(float value) { return text_of(value); }

}  // namespace tandem
