// Judging the ledger: each claim of the study's paper holds, holds no longer, is undecided or was not measured, with our
// own figure beside the published one. A claim is undecided unless a test or an interval decides on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"
#include "lab/src/claims/ledger.h"

namespace tandem::lab {

enum class Mark { holds, no_longer, undecided, not_measured };
std::string to_string(Mark mark);

/// A claim under one condition (and, where it is about several systems apart, for one of them).
struct Finding {
  std::string where;  // "lenet train, batch 100, cpu, f32", with the system where there are several
  Mark mark = Mark::not_measured;
  std::optional<Estimate> ours;
  std::string reason;
};

struct Judgement {
  std::string id, paper, source, text;  // the claim's
  std::string published;  // its numbers as the paper prints them: "PyTorch 1.77 steps/s; …", or ""
  std::string ours;       // our figure with its interval, or ""
  Mark mark = Mark::not_measured;
  std::string reason;  // one or two sentences

  std::optional<Estimate> estimate =
      {};                   // `ours` as numbers: of the one finding, or of the first with this mark
  std::string figure = {};  // what it is: "step.throughput_s, tensorflow:function / pytorch:eager"
  std::vector<Finding> findings = {};
  std::string data = {};  // the names of the data of the conditions that fit; "" where none does
};

/// Judges the claims of the paper of the study; of a study without a paper, all claims that have a fitting condition.
/// Tracks are never mixed: a claim names one, and only conditions of that track are looked at. A claim about what was learned
/// (accuracy, loss, the time to an accuracy) is decided by runs on real data alone; where there are none, it is undecided.
std::vector<Judgement> judge(const Ledger& ledger, const Results& results, const Analysis& analysis);

Json to_json(const Judgement& judgement);

}  // namespace tandem::lab
