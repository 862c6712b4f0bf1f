// What the gate lets through and what it stops.
#include "lab/src/measure/gate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

Checked reference() {
  Checked c;
  c.parameters = 100;
  c.outputs["out"] = {{2, 3}, {0.5, -2, 1, 3, 0.1, -0.2}};
  c.loss = 2.3;
  c.gradients = {{"a.weight", 0.8}, {"b.bias", 1e-9}};
  c.losses = {2.3, 2.2, 2.1};
  return c;
}

TEST(Gate, TheSameNumbersPassInEveryPrecision) {
  for (const char* precision : {"f64", "f32", "tf32", "f16", "bf16"})
    EXPECT_TRUE(compare(reference(), reference(), precision, true).passed) << precision;
  EXPECT_THROW(compare(reference(), reference(), "f8", true), Error);
}

TEST(Gate, EachQuantityIsHeldToItsTolerance) {
  const Tolerance allowed = tolerance("f32");
  const auto passes = [](const Checked& system) { return compare(reference(), system, "f32", true); };
  for (const double share : {0.9, 1.1}) {
    const bool inside = share < 1;
    Checked c = reference();
    c.outputs["out"].values[5] += share * allowed.outputs * 3;  // 3 is the largest
    EXPECT_EQ(passes(c).passed, inside);
    if (!inside) {
      EXPECT_EQ(passes(c).what, "outputs out[5]");
    }
    c = reference();
    c.loss *= 1 + share * allowed.loss;
    EXPECT_EQ(passes(c).passed, inside);
    c = reference();
    c.gradients["a.weight"] *= 1 + share * allowed.gradients;
    EXPECT_EQ(passes(c).passed, inside);
    c = reference();
    c.losses[2] *= 1 - share * allowed.losses;
    EXPECT_EQ(passes(c).passed, inside);
    if (!inside) {
      EXPECT_EQ(passes(c).what, "losses[2]");
    }
  }
}

TEST(Gate, WhatRoundingDoesToTheReferenceIsAllowed) {
  const double allowed = tolerance("f32").losses;
  Checked moved = reference(), c = reference();
  moved.losses[1] *= 1 + allowed;
  c.losses[2] *= 1 + 3 * allowed;
  EXPECT_FALSE(compare(reference(), c, "f32", true).passed);
  EXPECT_FALSE(compare(reference(), c, "f32", true, {reference()}).passed);
  EXPECT_TRUE(compare(reference(), c, "f32", true, {reference(), moved}).passed) << "drifted a step before";
  c = reference();
  c.losses[0] *= 1 + 3 * allowed;  // before any update nothing had drifted
  EXPECT_EQ(compare(reference(), c, "f32", true, {moved}).what, "losses[0]");
  moved.losses[1] = 100;  // a network that anything throws off its track
  c = reference();
  c.losses[2] *= 1.2;
  EXPECT_TRUE(compare(reference(), c, "f32", true, {moved}).passed);
  c.losses[2] *= 1.2;
  EXPECT_FALSE(compare(reference(), c, "f32", true, {moved}).passed);
  c.losses[2] = NAN;
  EXPECT_FALSE(compare(reference(), c, "f32", true, {moved}).passed);
  moved = reference();
  moved.gradients["a.weight"] *= 1.01;
  c = reference();
  c.gradients["a.weight"] *= 0.97;
  EXPECT_TRUE(compare(reference(), c, "f32", true, {moved}).passed);
  c.gradients["a.weight"] *= 0.9;
  EXPECT_EQ(compare(reference(), c, "f32", true, {moved}).what, "gradients a.weight");
  EXPECT_FALSE(moved_by("f64"));
  EXPECT_LT(*moved_by("f32"), *moved_by("tf32"));
}

TEST(Gate, AGradientThatIsZeroByCancellationIsJudgedByTheOthers) {
  Checked c = reference();
  c.gradients["b.bias"] = 5e-7;  // 500 times the reference, and still nothing
  EXPECT_TRUE(compare(reference(), c, "f32", true).passed);
  c.gradients["b.bias"] = 5e-5;
  EXPECT_FALSE(compare(reference(), c, "f32", true).passed);
}

TEST(Gate, ShapesAndNamesMustBeTheSame) {
  Checked c = reference();
  c.parameters = 101;
  EXPECT_EQ(compare(reference(), c, "f32", true).what, "the number of parameters");
  EXPECT_NE(compare(reference(), c, "f32", true).why().find("101 and must be 100"), std::string::npos);
  c = reference();
  c.outputs["out"].shape = {3, 2};
  EXPECT_FALSE(compare(reference(), c, "bf16", false).passed);
  c = reference();
  c.outputs["more"] = {{1}, {0}};
  EXPECT_FALSE(compare(reference(), c, "bf16", false).passed);
  c = reference();
  c.outputs.clear();
  EXPECT_FALSE(compare(reference(), c, "bf16", false).passed);
  c = reference();
  c.gradients.erase("a.weight");
  EXPECT_FALSE(compare(reference(), c, "bf16", true).passed);
  c = reference();
  c.gradients["c"] = 0;
  EXPECT_FALSE(compare(reference(), c, "bf16", true).passed);
  c = reference();
  c.losses.pop_back();
  EXPECT_FALSE(compare(reference(), c, "bf16", true).passed);
}

TEST(Gate, WhatNoNumberSaysIsSaidInWords) {
  const auto why = [](void (*change)(Checked&)) {
    Checked c = reference();
    change(c);
    return compare(reference(), c, "f32", true).why();
  };
  const std::pair<std::string, void (*)(Checked&)> cases[] = {
      {"the output out must have the shape [2,3]; got [3,2]",
       [](Checked& c) {
         c.outputs["out"].shape = {3, 2};
       }},
      {"the output out is missing", [](Checked& c) { c.outputs.clear(); }},
      {"the network has no output zz; its outputs are out",
       [](Checked& c) {
         c.outputs["zz"] = {{1}, {0}};
       }},
      {"the gradient of a.weight is missing", [](Checked& c) { c.gradients.erase("a.weight"); }},
      {"there is a gradient of zz, and the network has no such parameter",
       [](Checked& c) { c.gradients["zz"] = 1; }},
  };
  for (const auto& [sentence, change] : cases) EXPECT_EQ(why(change), "not the same model: " + sentence);
  Checked samples = reference();
  samples.outputs.clear();
  const GateResult none = compare_samples(reference(), samples, 0.01);
  EXPECT_EQ(none.why(), "not the same samples: the output out is missing");
  EXPECT_TRUE(none.to_json()["worst"]["system"].is_number_float()) << "NaN, which is written as null";
  EXPECT_NE(none.to_json().dump().find("\"system\":null"), std::string::npos);
}

TEST(Gate, WhatIsNotANumberFails) {
  Checked c = reference();
  c.outputs["out"].values[0] = NAN;
  EXPECT_FALSE(compare(reference(), c, "bf16", true).passed);
  c = reference();
  c.loss = INFINITY;
  EXPECT_FALSE(compare(reference(), c, "bf16", true).passed);
}

TEST(Gate, InferenceLooksAtOutputsAlone) {
  Checked c = reference();
  c.loss = 99;
  EXPECT_TRUE(compare(reference(), c, "f32", false).passed);
  c.outputs["out"].values[0] = 0.6;
  const GateResult result = compare(reference(), c, "f32", false);
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.reference, 0.5);
  EXPECT_EQ(result.system, 0.6);
  EXPECT_EQ(result.to_json()["worst"]["what"], "outputs out[0]");
}

}  // namespace
}  // namespace tandem::lab
