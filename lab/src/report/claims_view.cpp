#include "lab/src/report/claims_view.h"

#include <map>

#include "lab/src/report/grid.h"
#include "tandem/io/svg.h"

namespace tandem::lab {
namespace {

const char* mark_class(Mark mark) {
  switch (mark) {
    case Mark::holds:
      return "good";
    case Mark::no_longer:
      return "bad";
    case Mark::undecided:
      return "unsure";
    case Mark::not_measured:
      break;
  }
  return "absent";
}

/// Those that this study could test, or the others.
Grid claims_grid(const std::vector<Judgement>& judgements, bool measured) {
  Grid grid({"claim", "source", "what was said", "published", "data", "ours", "verdict", "why"});
  for (const Judgement& j : judgements)
    if ((j.mark != Mark::not_measured) == measured)
      grid.add({{j.id},
                {j.paper + ", " + j.source},
                {j.text},
                {j.published},
                {j.data},
                {j.ours},
                {to_string(j.mark), {}, mark_class(j.mark)},
                {j.reason}});
  return grid;
}

std::string tally(const std::vector<Judgement>& judgements) {
  std::map<Mark, size_t> counts;
  for (const Judgement& j : judgements) ++counts[j.mark];
  std::string text = std::to_string(judgements.size()) + " published conclusions and numbers:";
  const char* comma = " ";
  for (const Mark mark : {Mark::holds, Mark::no_longer, Mark::undecided, Mark::not_measured}) {
    text += comma + to_string(mark) + " " + std::to_string(counts[mark]);
    comma = ", ";
  }
  return text +
         ". A claim about a paper's frameworks and GPU is tested here with today's versions on this machine.";
}

}  // namespace

std::string claims_html(const std::vector<Judgement>& judgements) {
  if (judgements.empty()) return "<p class=\"soft\">No published claim is about this study.</p>\n";
  std::string html = "<p>" + io::escaped(tally(judgements)) + "</p>\n";
  const Grid measured = claims_grid(judgements, true), others = claims_grid(judgements, false);
  if (!measured.empty()) html += measured.html();
  if (!others.empty())
    html += "<details><summary>Claims that this study could not test</summary>\n" + others.html() +
            "</details>\n";
  return html;
}

std::string claims_markdown(const std::vector<Judgement>& judgements) {
  if (judgements.empty()) return "No published claim is about this study.\n";
  const Grid measured = claims_grid(judgements, true);
  return tally(judgements) + "\n" + (measured.empty() ? "" : "\n" + measured.markdown());
}

}  // namespace tandem::lab
