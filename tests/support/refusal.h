// What a call is refused with, for tests of messages.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tandem/core/error.h"

namespace tandem::testing {

/// The text of the Error (E) that f throws, or "" where it throws none.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

/// The message of the Error that f must throw: one line, and not a long one.
template <class F>
std::string refusal(F&& f) {
  const std::string message = message_of<Error>(f);
  EXPECT_NE(message, "") << "nothing was refused";
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u) << message;
  return message;
}

}  // namespace tandem::testing

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "in: " << (text)
