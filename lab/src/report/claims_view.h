// The ledger of claims as a table: what a paper published, our figure, and whether it still holds.
#pragma once

#include <string>
#include <vector>

#include "lab/src/claims/judge.h"

namespace tandem::lab {

std::string claims_html(const std::vector<Judgement>& judgements);
std::string claims_markdown(const std::vector<Judgement>& judgements);

}  // namespace tandem::lab
