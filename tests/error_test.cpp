// What is refused is refused with one clear message: the op, the rule, the values.
// ctest: asan
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <new>

#include "tandem/core/backend.h"
#include "tandem/core/device.h"
#include "tandem/core/dtype.h"
#include "tandem/core/error.h"
#include "tandem/core/threads.h"
#include "tandem/data/loader.h"
#include "tandem/io/file.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tests/support/op_case.h"

namespace tandem::testing {
namespace {

class Refusals : public ::testing::TestWithParam<const ErrorCase*> {};

TEST_P(Refusals, NameTheOpTheRuleAndTheValues) {
  const std::string message = error_of(GetParam()->call);
  for (const std::string& text : GetParam()->texts)
    EXPECT_NE(message.find(text), std::string::npos) << "'" << text << "' is missing in: " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << "one line: " << message;
}

std::vector<const ErrorCase*> pointers() {
  std::vector<const ErrorCase*> list;
  for (const ErrorCase& error : all_error_cases()) list.push_back(&error);
  return list;
}

INSTANTIATE_TEST_SUITE_P(All, Refusals, ::testing::ValuesIn(pointers()),
                         [](const ::testing::TestParamInfo<const ErrorCase*>& info) {
                           std::string name = info.param->name;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

TEST(Errors, DtypesAndDevicesAreParsedOrNamedInTheMessage) {
  EXPECT_EQ(parse_dtype("bf16"), DType::bf16);
  EXPECT_NE(error_of([] { parse_dtype("f33"); }).find("'f33'"), std::string::npos);
  EXPECT_EQ(parse_device("cuda:1").index, 1);
  EXPECT_EQ(parse_device("cpu").kind, DeviceKind::cpu);
  EXPECT_EQ(parse_device("cpu:3").index, 3);
  EXPECT_EQ(to_string(parse_device("cpu:0")), "cpu");
  EXPECT_EQ(to_string(parse_device("cpu:3")), "cpu:3");
  for (const char* text :
       {"cuda:", "cuda:-1", "cuda:x", "gpu", "", "cuda:1000", "cpu:1x", "cpu:", "cpu1", "cpux1"})
    EXPECT_NE(error_of([&] { parse_device(text); }).find(str("'", text, "'")), std::string::npos) << text;
}

TEST(Errors, ThreadCountsBelowOneAreRefused) {
  EXPECT_NE(error_of([] { set_threads(0); }).find("0"), std::string::npos);
  EXPECT_NE(error_of([] { set_threads(-2); }).find("-2"), std::string::npos);
}

ErrorKind kind_thrown_by(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return kind_of(error);
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::internal;
}

TEST(Errors, HaveAKindThatSaysWhoseMatterTheyAre) {
  EXPECT_EQ(kind_thrown_by([] { add(ones({2}), ones({3})); }), ErrorKind::usage);
  EXPECT_EQ(kind_thrown_by([] { io::read_file("read", "/no/such/file"); }), ErrorKind::resource);
  EXPECT_EQ(kind_thrown_by([] { empty({Dim{1} << 58}, DType::f32); }), ErrorKind::resource);
  EXPECT_EQ(kind_thrown_by([] { throw std::bad_alloc(); }), ErrorKind::resource);
  if (!find_backend(DeviceKind::cuda)) {
    EXPECT_EQ(kind_thrown_by([] { backend(DeviceKind::cuda); }), ErrorKind::device);
  }
  EXPECT_EQ(kind_thrown_by([] { TD_ASSERT(1 == 2, "arithmetic"); }), ErrorKind::internal);
}

class Broken final : public data::Dataset {
 public:
  int64_t size() const override { return 4; }
  std::vector<Tensor> get(int64_t) const override { throw std::out_of_range("the user's own"); }
};

TEST(Errors, OfTheUsersOwnCodeAreForeign) {
  EXPECT_EQ(kind_thrown_by([] { throw std::out_of_range("at"); }), ErrorKind::foreign);
  const Broken broken;
  for (const int workers : {0, 1}) {
    data::Loader loader(broken, {.batch = 2, .workers = workers});
    loader.start_epoch(0);
    EXPECT_EQ(kind_thrown_by([&] { (void)loader.next(); }), ErrorKind::foreign);
  }
  EXPECT_STREQ(name(ErrorKind::foreign), "foreign");
  EXPECT_STREQ(name(ErrorKind::internal), "internal");
}

TEST(Errors, NoMemoryIsATypeOfItsOwnWhoeverLacksIt) {
  EXPECT_THROW(empty({Dim{1} << 58}, DType::f32), OutOfMemory);
#ifndef __SANITIZE_ADDRESS__  // which ends the program instead
  EXPECT_THROW(empty({Dim{1} << 56}, DType::f32), OutOfMemory);
#endif
}

TEST(Errors, KeepTypeAndKindWhereAPlaceIsPutBeforeTheText) {
  try {
    try {
      throw OutOfMemory("memory: none is left.");
    } catch (Error& error) {
      error.prepend("layer 3: ");
      throw;
    }
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(), "layer 3: memory: none is left.");
    EXPECT_EQ(error.kind(), ErrorKind::resource);
  }
}

}  // namespace
}  // namespace tandem::testing
