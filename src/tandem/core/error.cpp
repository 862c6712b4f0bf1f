#include "tandem/core/error.h"

#include <charconv>
#include <sstream>

namespace tandem::detail {

// One function for all messages: a stream for each combination of types would cost every file that checks anything.
std::string join(std::initializer_list<TextPart> parts) {
  std::string joined;
  char digits[32];
  const auto append_digits = [&](auto value) {
    joined.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
  };
  for (const TextPart& part : parts) {
    switch (part.kind_) {
      case TextPart::Kind::text:
        joined.append(part.value_.text.data, part.value_.text.size);
        break;
      case TextPart::Kind::integer:
        append_digits(part.value_.integer);
        break;
      case TextPart::Kind::natural:
        append_digits(part.value_.natural);
        break;
      case TextPart::Kind::number:
        joined.append(digits, std::to_chars(digits, digits + sizeof(digits), part.value_.number,
                                            std::chars_format::general, 6)
                                  .ptr);
        break;
      case TextPart::Kind::streamed: {
        std::ostringstream out;
        part.value_.streamed.write(out, part.value_.streamed.object);
        joined += std::move(out).str();
        break;
      }
    }
  }
  return joined;
}

}  // namespace tandem::detail
