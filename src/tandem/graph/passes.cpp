// The passes, in the order in which they run by default. To add one: write it in a file of its own under passes/, declare
// it here and give it a row.
#include "tandem/graph/graph.h"

namespace tandem {

namespace graph {

void prune(Graph&);                  // drops what no result, no state and nobody outside depends on
void common_subexpressions(Graph&);  // computes equal things once
void fold_constants(Graph&);         // runs what depends on nothing, once
void fuse_pointwise(Graph&);         // turns chains of pointwise ops (and their assigns) into one kernel

namespace {
constexpr Pass kPasses[] = {{"prune", prune},
                            {"common_subexpressions", common_subexpressions},
                            {"fold_constants", fold_constants},
                            {"fuse_pointwise", fuse_pointwise, true}};
}  // namespace

const Pass& find_pass(const std::string& name) {
  std::string names;
  for (const Pass& row : kPasses) {
    if (name == row.name) return row;
    names += str(names.empty() ? "" : ", ", row.name);
  }
  throw Error(str("compile: a pass must be one of ", names, "; got '", name, "'."));
}

}  // namespace graph

std::vector<std::string> all_passes() {
  std::vector<std::string> names;
  for (const graph::Pass& row : graph::kPasses) names.push_back(row.name);
  return names;
}

}  // namespace tandem
