// Stored records of one study on four machines: quiet, busy (kept, and left out), and one of before the machine was watched.
#include <gtest/gtest.h>

#include <string>

#include "lab/src/analysis/analysis.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

struct Stored {
  Results results;
  Analysis analysis;
  const Comparison* times = nullptr;  // of the two systems, second / first

  explicit Stored(const std::string& name)
      : results(load_results(tandem::str(TANDEM_SOURCE_DIR, "/lab/tests/analysis/records/", name))),
        analysis(analyse(results)),
        times(analysis.comparison(results.runs.at(0).condition, "step.throughput_s", "pytorch:eager",
                                  "tandem:graph")) {}
};

TEST(StoredRecords, OnAQuietMachineTheDifferenceIsDecidedAgainstTheFloorOfBothSystems) {
  const Stored quiet("quiet");
  ASSERT_NE(quiet.times, nullptr);
  EXPECT_EQ(quiet.times->verdict, Verdict::second) << quiet.times->text;
  EXPECT_NEAR(1 / quiet.times->ratio.value, 2.75, 0.05);
  EXPECT_EQ(quiet.analysis.disturbances.recorded, 28u);
  EXPECT_EQ(quiet.analysis.disturbances.disturbed, 0u);
  size_t own_floors = 0;
  for (const NoiseFloor& floor : quiet.analysis.noise) own_floors += floor.metric == "step.throughput_s";
  EXPECT_EQ(own_floors, 2u);
}

TEST(StoredRecords, BesideANeighbourKeptRunsShowAnotherRatioAndDecideNothing) {
  const Stored busy("busy_kept");
  ASSERT_NE(busy.times, nullptr);
  EXPECT_NEAR(1 / busy.times->ratio.value, 30, 2) << "what the neighbour makes of 2.75";
  EXPECT_LT(busy.times->p, 0.05) << "and no test would notice";
  EXPECT_EQ(busy.times->verdict, Verdict::undecided);
  EXPECT_EQ(busy.times->text.find("Not decided between "), 0u) << busy.times->text;
  EXPECT_EQ(busy.analysis.disturbances.kept, 16u);
}

TEST(StoredRecords, RunsThatAreLeftOutAreInNoRatioAndTheRestIsTooFewToDecide) {
  const Stored busy("busy_left_out");
  ASSERT_NE(busy.times, nullptr);
  EXPECT_EQ(busy.times->runs, 4u);
  EXPECT_NEAR(1 / busy.times->ratio.value, 2.75, 0.05);
  EXPECT_EQ(busy.times->verdict, Verdict::undecided);
  EXPECT_EQ(busy.times->left_out, 8u);
  EXPECT_EQ(busy.analysis.disturbances.disturbed, 24u) << "three attempts each";
  EXPECT_EQ(busy.analysis.disturbances.left_out, 8u);
  ASSERT_EQ(busy.analysis.gaps.size(), 2u);
  for (const Gap& gap : busy.analysis.gaps) {
    EXPECT_EQ(to_string(gap.status), "disturbed");
    EXPECT_EQ(gap.runs, 4u);
    EXPECT_EQ(gap.why.find("others: other processes used 0.97 cores"), 0u) << gap.why;
  }
}

TEST(StoredRecords, AnOlderRecordIsReadAndDecidedAsBefore) {
  const Stored older("older");
  ASSERT_NE(older.times, nullptr);
  EXPECT_EQ(older.times->verdict, Verdict::second);
  EXPECT_EQ(older.times->ratio.value, Stored("quiet").times->ratio.value);
  EXPECT_EQ(older.analysis.disturbances.recorded, 0u);
  EXPECT_EQ(older.analysis.disturbances.disturbed, 0u);
}

}  // namespace
}  // namespace tandem::lab
