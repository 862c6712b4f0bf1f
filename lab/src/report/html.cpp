// The page of a study: the table of answers first, then figures and tables part by part, the papers' claims, what could not be
// measured, and how all of it was done.
#include <algorithm>

#include "lab/src/report/answer_grid.h"
#include "lab/src/report/claims_view.h"
#include "lab/src/report/machine_view.h"
#include "lab/src/report/page.h"
#include "lab/src/report/provenance_view.h"
#include "lab/src/report/report.h"
#include "lab/src/report/scale.h"
#include "lab/src/report/tables.h"
#include "tandem/io/svg.h"

namespace tandem::lab {
namespace {

std::string paragraph(const std::string& text, const char* kind = "") {
  if (text.empty()) return "";
  return "<p" + (*kind ? " class=\"" + std::string(kind) + "\"" : std::string()) + ">" + io::escaped(text) +
         "</p>\n";
}

std::string list(const std::vector<std::string>& items) {
  std::string html = "<ul>\n";
  for (const std::string& item : items) html += "<li>" + io::escaped(item) + "</li>\n";
  return html + "</ul>\n";
}

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  return "<section id=\"" + io::escaped(id) + "\">\n<h2>" + io::escaped(title) + "</h2>\n" + content +
         "</section>\n";
}

std::string head(const ReportData& data, const std::vector<Json>& parts) {
  const Json& study = data.results.study;
  std::string html =
      "<h1>" + io::escaped(text_at(study, "title")) + "</h1>\n" + paragraph(text_at(study, "question"));
  const Grid grid = answer_grid(data, parts);
  if (const auto lines = warnings(data); !lines.empty())
    html += "<div class=\"warning\"><strong>Read the figures with care:</strong>" + list(lines) + "</div>\n";
  html += "<section id=\"answer\" class=\"answers\">\n<h2>The answer</h2>\n" +
          (grid.empty() ? paragraph("This study has no parts: there is nothing to answer.")
                        : grid.html() + paragraph("Values are medians over runs. The ratio after the second "
                                                  "and the last says how many times "
                                                  "better the winner is, with its 95 % interval in brackets. "
                                                  "Undecided does not mean equal: equal was tested for.",
                                                  "soft")) +
          "</section>\n";
  std::string about = "Study " + text_at(study, "name");
  if (!text_at(study, "paper").empty()) about += ", after paper " + text_at(study, "paper");
  if (!data.results.runs.empty())
    about += ". " + std::to_string(data.results.runs.size()) + " runs, the first begun at " +
             data.results.runs.front().started;
  return html + paragraph(about + ".", "soft");
}

std::string navigation(const std::vector<Json>& parts) {
  std::string html = "<nav>";
  for (const Json& part : parts)
    html += "<a href=\"#part-" + io::escaped(text_at(part, "name")) + "\">" +
            io::escaped(text_at(part, "name")) + "</a>";
  for (const char* name : {"claims", "gaps", "method", "provenance"})
    html += std::string("<a href=\"#") + name + "\">" + name + "</a>";
  return html + "</nav>\n";
}

std::string part_section(const ReportData& data, const Json& part) {
  std::string html;
  if (as_shipped(part))
    html += paragraph(
        "This part is of the track 'as shipped': each framework with its own initialisation, optimiser "
        "defaults "
        "and input scaling. The models are not the same, and nothing here may be held against the other "
        "parts.",
        "warning");
  const std::string counterpart = text_at(part, "counterpart");
  if (!counterpart.empty()) html += paragraph("Counterpart in the paper: " + counterpart + ".", "soft");
  html += paragraph(text_at(part, "note"), "soft") +
          paragraph(data_sentence(data, text_at(part, "name")), "soft");
  if (data.conditions(text_at(part, "name")).empty()) {
    html += paragraph("No run of this part has been taken.", "soft");
  } else {
    for (const std::string& sentence : epoch_sentences(data, part)) html += paragraph(sentence, "warning");
    if (counts_answers(answers(data, part)))
      html += "<h3>Condition by condition</h3>\n" + each_answer_grid(data, part).html();
    if (part.contains("figures") && part["figures"].is_array())
      for (const Json& figure : part["figures"]) html += figure_html(data, part, figure);
    const Grid grid = comparison_grid(data, part);
    if (!grid.empty())
      html += "<details><summary>Every comparison, with effect sizes and p-values</summary>\n" + grid.html() +
              "</details>\n";
  }
  return section("part-" + text_at(part, "name"), text_at(part, "title"), html);
}

std::string gaps_section(const ReportData& data) {
  std::string html;
  const Grid gaps = gap_grid(data), missing = missing_grid(data.results);
  html += gaps.empty() ? paragraph("Every run that was begun was measured.") : gaps.html();
  for (const Gap& gap : data.analysis.gaps)
    if (!gap.last_words.empty())
      html += "<details><summary>Last words of " + io::escaped(gap.system) + " (" +
              io::escaped(gap.condition.text()) + ")</summary><pre>" + io::escaped(gap.last_words) +
              "</pre></details>\n";
  if (!missing.empty()) html += "<h3>What the paper has and this run has not</h3>\n" + missing.html();
  return section("gaps", "What could not be measured", html);
}

std::string method_section(const ReportData& data) {
  std::string html = list({
      "Every run is a fresh process on the same processors with the same number of threads; the order within "
      "a block is drawn at "
      "random, and runs of one block are a pair.",
      "A system is timed only after the gate: the same weights, the same batch, and logits, loss, gradient "
      "norms and the losses of "
      "ten steps within a tolerance of Tandem in double precision.",
      "Intervals are 95 % bootstrap intervals over runs, never over steps. Differences are tested by the "
      "exact Wilcoxon signed-rank "
      "test on pairs, corrected after Holm over the pairs of systems in one metric under one condition.",
      "A difference counts only if its p-value passes 5 % after the correction and its interval lies outside "
      "the noise floor: what "
      "one system shows against itself.",
      "A run is repeated where other work on the machine went beyond fixed limits beside it, and left out "
      "where "
      "no repeat was better.",
      "A p-value marked 'the floor' is the smallest that so many runs can give: it says that all pairs "
      "agree, not how large the "
      "difference is.",
  });
  const Grid noise = noise_grid(data);
  html += "<h3>The noise floor</h3>\n" + (noise.empty()
                                              ? paragraph("No system was run against itself: there is no "
                                                          "noise floor, and small differences mean little.")
                                              : noise.html());
  const Grid machine = machine_grid(data);
  html += "<h3>What else the machine did</h3>\n" + paragraph(machine_sentence(data));
  if (!machine.empty()) html += machine.html();
  const Grid sources = source_grid(data.results);
  if (!sources.empty()) html += "<h3>What the monitors read</h3>\n" + sources.html();
  return section("method", "Method", html);
}

}  // namespace

std::string html_report(const Results& results, const Analysis& analysis,
                        const std::vector<Judgement>& judgements) {
  const ReportData data(results, analysis);
  std::vector<Json> parts = parts_of(results);
  std::stable_partition(parts.begin(), parts.end(), [](const Json& part) { return !as_shipped(part); });
  std::string body = head(data, parts) + navigation(parts);
  for (const Json& part : parts) body += part_section(data, part);
  body += section("claims", "What the papers published, and what holds here", claims_html(judgements));
  body += gaps_section(data) + method_section(data);
  body += section("provenance", "The machine and the software", provenance_grid(results.provenance).html());
  const std::string title = text_at(results.study, "title");
  return html_page(title.empty() ? "Tandem lab" : title, body);
}

}  // namespace tandem::lab
