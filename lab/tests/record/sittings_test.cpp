#include "lab/src/record/sittings.h"

#include <gtest/gtest.h>

namespace tandem::lab {
namespace {

using nlohmann::json;

json sitting(const std::string& time, const json& sums, const json& versions = json::object()) {
  json out = {{"time", time}, {"files", json::object()}, {"frameworks", versions}};
  for (const auto& [file, sum] : sums.items()) out["files"][file] = {{"sha256", sum}, {"bytes", 1}};
  return out;
}

using Names = std::vector<std::string>;

TEST(Sittings, ProgramsAreComparedByNameWhereverTheyLieAndTextsAreNot) {
  const json before =
      sitting("a", {{"drivers/jax_.py", "1"}, {"/here/libtandem.so", "2"}, {"lenet.toml", "3"}});
  const json moved = {{"drivers/jax_.py", "1"}, {"/there/libtandem.so", "2"}};
  EXPECT_EQ(changed_programs(before, sitting("b", moved)), Names{});
  EXPECT_EQ(
      changed_programs(
          before, sitting("b", {{"drivers/jax_.py", "9"}, {"…/libtandem.so", "8"}, {"lenet.toml", "7"}})),
      (Names{"drivers/jax_.py", "libtandem.so"}));
  json more = moved;
  more["drivers/frame/cell.py"] = "5";
  EXPECT_EQ(changed_programs(before, sitting("b", more)), Names{}) << "it was not recorded";
  // Older records, published: no folder.
  EXPECT_EQ(changed_programs(sitting("a", {{"…/jax_.py", "1"}}), sitting("b", {{"drivers/jax_.py", "2"}})),
            Names{"drivers/jax_.py"});
}

TEST(Sittings, AFileThatVanishedIsAnotherProgramAndATextIsNot) {
  const json before =
      sitting("a", {{"drivers/frame.py", "1"}, {"drivers/jax_.py", "2"}, {"workloads/lenet.toml", "3"}});
  const json now = sitting("b", {{"drivers/frame/cell.py", "4"}, {"drivers/jax_.py", "2"}});
  EXPECT_EQ(changed_programs(before, now), Names{"drivers/frame.py, no longer used"});
  // Older records have no folder: what is met under its longer name is still there.
  EXPECT_EQ(changed_programs(sitting("a", {{"…/frame.py", "1"}, {"…/jax_.py", "2"}}), now),
            Names{"frame.py, no longer used"});
  // It is another program from one sitting to the next, and no longer than that.
  json all = before;
  all["sittings"] = {now, now};
  EXPECT_EQ(provenance_warnings(all),
            Names{"from b on other programs were measured than before: drivers/frame.py, no longer used"});
}

TEST(Sittings, AFrameworkOfAnotherVersionIsAnotherProgram) {
  EXPECT_EQ(changed_programs(
                sitting("a", json::object(), {{"jax", "0.10.2"}, {"pytorch", "2.15"}}),
                sitting("b", json::object(), {{"jax", "0.11.0"}, {"pytorch", "2.15"}, {"keras", "3"}})),
            Names{"jax 0.10.2, now 0.11.0"});
}

TEST(Sittings, TheLastSittingIsWhatTheNextIsHeldAgainstAndEachChangeIsAWarning) {
  json all = sitting("monday", {{"a.py", "1"}});
  all["warnings"] = {"debug build"};
  all["sittings"] = {sitting("tuesday", {{"a.py", "2"}}), sitting("friday", {{"a.py", "2"}})};
  EXPECT_EQ(changed_programs(all, sitting("now", {{"a.py", "2"}})), Names{});
  EXPECT_EQ(changed_programs(all, sitting("now", {{"a.py", "1"}})), Names{"a.py"});
  EXPECT_EQ(provenance_warnings(all),
            (Names{"debug build", "from tuesday on other programs were measured than before: a.py"}));
  EXPECT_EQ(provenance_warnings(json()), Names{});
}

}  // namespace
}  // namespace tandem::lab
