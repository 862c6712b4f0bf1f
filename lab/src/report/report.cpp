#include "lab/src/report/report.h"

#include <filesystem>

#include "lab/src/report/answer_grid.h"
#include "lab/src/report/claims_view.h"
#include "lab/src/report/csv.h"
#include "lab/src/report/machine_view.h"
#include "lab/src/report/provenance_view.h"
#include "lab/src/report/tables.h"
#include "tandem/io/file.h"

namespace tandem::lab {

std::string markdown_report(const Results& results, const Analysis& analysis,
                            const std::vector<Judgement>& judgements) {
  const ReportData data(results, analysis);
  std::string page = "# " + markdown_text(text_at(results.study, "title")) + "\n\n" +
                     markdown_text(text_at(results.study, "question")) + "\n";
  for (const std::string& warning : warnings(data))
    page += "\n> Read with care: " + markdown_text(warning) + "\n";
  const Grid found = answer_grid(data, parts_of(results));
  if (!found.empty()) page += "\n## The answer\n\n" + found.markdown();
  for (const Json& part : parts_of(results)) {
    page +=
        "\n## " + markdown_text(text_at(part, "title")) + (as_shipped(part) ? " (as shipped)" : "") + "\n\n";
    if (const std::string seen = data_sentence(data, text_at(part, "name")); !seen.empty())
      page += markdown_text(seen) + "\n\n";
    for (const std::string& sentence : epoch_sentences(data, part)) page += markdown_text(sentence) + "\n\n";
    if (counts_answers(answers(data, part))) page += each_answer_grid(data, part).markdown() + "\n";
    const Grid summary = summary_grid(data, part), comparisons = comparison_grid(data, part);
    if (!summary.empty()) page += summary.markdown();
    if (!comparisons.empty()) page += "\n" + comparisons.markdown();
  }
  page += "\n## What the papers published\n\n" + claims_markdown(judgements);
  const Grid noise = noise_grid(data), gaps = gap_grid(data), missing = missing_grid(results);
  if (!noise.empty()) page += "\n## Noise floor\n\n" + noise.markdown();
  if (!gaps.empty()) page += "\n## What could not be measured\n\n" + gaps.markdown();
  if (!missing.empty()) page += "\n## What is not here\n\n" + missing.markdown();
  page += "\n## The machine\n\n";
  if (const std::string sentence = machine_sentence(data); !sentence.empty())
    page += markdown_text(sentence) + "\n\n";
  if (const Grid machine = machine_grid(data); !machine.empty()) page += machine.markdown() + "\n";
  return page + provenance_grid(results.provenance).markdown();
}

std::vector<std::string> report_warnings(const Results& results, const Analysis& analysis) {
  return warnings(ReportData(results, analysis));
}

std::string terminal_report(const Results& results, const Analysis& analysis, size_t width) {
  const ReportData data(results, analysis);
  std::string page;
  for (const std::string& warning : warnings(data))
    page += wrapped("Read with care: " + terminal_text(warning), width, "  ") + "\n";
  if (!page.empty()) page += "\n";
  for (const Json& part : parts_of(results)) {
    const Grid summary = summary_grid(data, part);
    if (summary.empty()) continue;
    page += terminal_text(text_at(part, "title")) + (as_shipped(part) ? " (as shipped)" : "") + "\n" +
            summary.text(width);
    for (const auto& sentences : {answer_sentences(data, part), epoch_sentences(data, part)})
      for (const std::string& sentence : sentences)
        page += wrapped("  - " + terminal_text(sentence), width, "    ") + "\n";
    page += "\n";
  }
  const Grid gaps = gap_grid(data);
  if (!gaps.empty()) page += "Not measured\n" + gaps.text(width);
  return page;
}

std::vector<std::string> write_report(const std::string& folder) {
  const Results results = load_results(folder);
  const Analysis analysis = analyse(results);
  std::vector<Judgement> judgements = judge(load_ledger(), results, analysis);
  // Of other papers only what this study happens to decide.
  const std::string paper = text_at(results.study, "paper");
  std::erase_if(judgements,
                [&](const Judgement& j) { return j.mark == Mark::not_measured && j.paper != paper; });
  std::vector<std::string> files;
  const auto write = [&](const char* name, const std::string& content) {
    files.push_back((std::filesystem::path(folder) / name).string());
    io::write_atomically(files.back(), [&](io::OutputFile& out) { out.write(content); });
  };
  write("report.html", html_report(results, analysis, judgements));
  write("report.md", markdown_report(results, analysis, judgements));
  write("runs.csv", runs_csv(results));
  write("summaries.csv", summaries_csv(analysis));
  write("comparisons.csv", comparisons_csv(analysis));
  return files;
}

}  // namespace tandem::lab
