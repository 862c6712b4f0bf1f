// The reports of made-up results: whole, well-formed, without a network, and drawn by a real browser where there is one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "lab/src/report/compare.h"
#include "lab/src/report/csv.h"
#include "lab/src/report/grid.h"
#include "lab/src/report/report.h"
#include "lab/tests/report/sample_results.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A folder that is gone after the test.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "lab_report_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};

void save(const Results& results, const fs::path& folder) {
  fs::create_directories(folder);
  std::ofstream(folder / "study.json") << results.study.dump();
  std::ofstream(folder / "provenance.json") << results.provenance.dump();
  for (const Run& run : results.runs) append_run(folder.string(), run);
}

/// The first tag that is not closed, closed twice or closed out of order; "" where all are in order.
std::string first_fault(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag that does not end";
    std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!') continue;
    const bool closes = tag[0] == '/', alone = tag.back() == '/';
    tag = tag.substr(closes, tag.find_first_of(" \n/", 1) - closes);
    if (alone || tag == "meta" || tag == "br") continue;
    if (closes) {
      if (open.empty() || open.back() != tag)
        return "</" + tag + "> after <" + (open.empty() ? "" : open.back()) + ">";
      open.pop_back();
    } else {
      open.push_back(tag);
      if (tag == "script" || tag == "style") at = html.find("</" + tag, at) - 1;
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class Report : public ::testing::Test {
 protected:
  const Results results = testing::sample_results();
  const Analysis analysis = analyse(results);
  const std::string html =
      html_report(results, analysis,
                  {{"000-1", "000", "Table 4", "A <claim>", "p = 1e-9", "1.2×", Mark::holds, "because"}});
};

TEST_F(Report, IsWellFormedAndNeedsNoNetwork) {
  EXPECT_EQ(first_fault(html), "");
  std::string rest = html;
  const std::string name_space = "http://www.w3.org/2000/svg";
  for (size_t at = rest.find(name_space); at != std::string::npos; at = rest.find(name_space))
    rest.erase(at, name_space.size());
  EXPECT_EQ(rest.find("http"), std::string::npos);
  EXPECT_EQ(rest.find("@import"), std::string::npos);
  EXPECT_EQ(rest.find("src="), std::string::npos);
}

/// The rows of the first table of a page: the texts of their cells.
std::vector<std::vector<std::string>> first_table(const std::string& html) {
  std::vector<std::vector<std::string>> rows;
  const size_t begin = html.find("<tbody>"), end = html.find("</tbody>", begin);
  for (size_t row = html.find("<tr>", begin); row < end; row = html.find("<tr>", row + 1)) {
    rows.emplace_back();
    const size_t row_end = html.find("</tr>", row);
    for (size_t cell = html.find("<td", row); cell < row_end; cell = html.find("<td", cell + 1)) {
      std::string text = html.substr(html.find('>', cell) + 1);
      text = text.substr(0, text.find("</td>"));
      if (text.starts_with("<a "))
        text = text.substr(text.find('>') + 1, text.find("</a>") - text.find('>') - 1);
      rows.back().push_back(text);
    }
  }
  return rows;
}

TEST_F(Report, BeginsWithATableOfWhoWinsByHowMuchHowSureAndOnWhichData) {
  const size_t title = html.find("</h1>"), answer = html.find("<h2>The answer</h2>"),
               table = html.find("<table");
  ASSERT_NE(answer, std::string::npos);
  EXPECT_LT(title, answer);
  EXPECT_LT(answer, table);
  EXPECT_EQ(html.find("<h2>"), answer) << "nothing stands before it";
  EXPECT_EQ(count(html, "id=\"answer\""), 1u) << "in one place";
  const auto rows = first_table(html);
  ASSERT_EQ(rows.size(), 3u) << "two batch sizes, and the accuracy of the fit";
  EXPECT_EQ(rows[0][0], "Learning: batch 32");
  EXPECT_EQ(rows[0][1], "step time, lower is better") << "what its figures show first";
  EXPECT_EQ(rows[0][2], "tandem:graph, 1.50\u00a0ms");
  EXPECT_TRUE(rows[0][3].starts_with("pytorch:eager, 7.5")) << rows[0][3];
  EXPECT_NE(rows[0][3].find("ms: 5.0"), std::string::npos) << rows[0][3];
  EXPECT_NE(rows[0][3].find("× to "), std::string::npos) << rows[0][3];
  EXPECT_NE(rows[0][4].find("ms: 6."), std::string::npos) << rows[0][4];
  EXPECT_TRUE(rows[0][5].starts_with("decided: p = 0.0")) << rows[0][5];
  EXPECT_NE(rows[0][5].find("after Holm (the floor), 8 runs each, beyond the noise floor of 0 %"),
            std::string::npos)
      << rows[0][5];
  EXPECT_EQ(rows[0][6], "synthetic-mnist (made up)");
  EXPECT_EQ(rows[2][0], "Curves (as shipped)");
  EXPECT_EQ(rows[2][1], "test accuracy, higher is better");
  EXPECT_EQ(rows[2][2], "no answer");
  EXPECT_EQ(rows[2][5], "made-up samples say nothing about learning");
  EXPECT_LT(html.find("load average 3.1"), answer) << "warnings stand before it";
}

/// Sample results in which a neighbour disturbed some runs of PyTorch: two were left out after their repeats.
Results with_a_neighbour() {
  Results results = testing::sample_results();
  int left = 2;
  for (lab::Run& run : results.runs) {
    run.metrics["machine.others_cores"] = 0.01;
    run.unavailable["machine.pressure_percent"] = "the file '/proc/pressure/cpu' is not there";
    if (run.system != "pytorch:eager" || left-- <= 0) continue;
    run.status = Status::disturbed;
    run.metrics["machine.others_cores"] = 0.98;
    run.disturbed = run.why = "others: other processes used 0.98 cores";
  }
  return results;
}

TEST(ReportMachine, TheWarningOfDisturbedRunsStandsFirstEverywhere) {
  const Results results = with_a_neighbour();
  const Analysis analysis = analyse(results);
  const std::string said = "the machine was busy: other work disturbed 2 of ",
                    example = "others: other processes used 0.98 cores";
  const std::string text = terminal_report(results, analysis);
  EXPECT_EQ(text.find("Read with care: " + said), 0u) << text;
  EXPECT_NE(text.substr(0, text.find('\n')).find(example), std::string::npos) << text;
  const std::string markdown = markdown_report(results, analysis, {});
  EXPECT_LT(markdown.find("> Read with care: " + said), markdown.find("## The answer"));
  EXPECT_LT(markdown.find(said), markdown.find("load average 3.1"));
  const std::string html = html_report(results, analysis, {});
  EXPECT_LT(html.find(said), html.find("id=\"answer\""));
  EXPECT_LT(html.find("<h1>"), html.find(said));
  const auto lines = report_warnings(results, analysis);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0].find(said), 0u);
  EXPECT_NE(runs_csv(results).find(",disturbed,"), std::string::npos);
}

TEST(ReportMachine, SaysHowFarTheMachineWasWatchedAndOfOlderRecordsThatItWasNot) {
  const Results results = with_a_neighbour();
  const std::string markdown = markdown_report(results, analyse(results), {});
  EXPECT_NE(markdown.find("2 were disturbed beyond the limits: 0 of them repeated, 2 left out, 0 kept."),
            std::string::npos)
      << markdown;
  EXPECT_NE(markdown.find("| pytorch:eager | 0.01"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("| unavailable |"), std::string::npos) << markdown;
  const Results older = testing::sample_results();
  for (const std::string& page :
       {markdown_report(older, analyse(older), {}), html_report(older, analyse(older), {})}) {
    EXPECT_NE(page.find("What the machine did beside the runs was not recorded."), std::string::npos);
    EXPECT_EQ(page.find("the machine was busy"), std::string::npos);
  }
  EXPECT_EQ(runs_csv(older).find("disturbed"), std::string::npos) << "their tables stay as they were";
}

/// One part with systems of these step times under these batch sizes.
Results race(const std::vector<std::pair<std::string, double>>& systems, const std::vector<int64_t>& batches,
             int64_t blocks) {
  Results results;
  results.study = {
      {"name", "race"},
      {"title", "Race"},
      {"parts",
       {{{"name", "race"},
         {"title", "Race"},
         {"phase", "train"},
         {"figures", {testing::sample_figure("box", {"step.latency_s", "step.throughput_s"})}}}}}};
  for (const int64_t batch : batches)
    for (int64_t block = 0; block < blocks; ++block)
      for (const auto& [system, step_s] : systems)
        results.runs.push_back(
            testing::sample_run("race", system, testing::sample_condition("train", batch), block, step_s));
  return results;
}

std::vector<std::vector<std::string>> answers_of(const Results& results) {
  return first_table(html_report(results, analyse(results), {}));
}

TEST(ReportAnswer, SaysSoWhereNothingDecides) {
  const auto few = answers_of(race({{"a:x", 0.001}, {"b:y", 0.002}}, {10}, 3));
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(few[0][0], "Race");
  EXPECT_EQ(few[0][1], "step time in a row, lower is better");
  EXPECT_TRUE(few[0][2].starts_with("undecided; ahead: a:x, ")) << few[0][2];
  EXPECT_EQ(few[0][4], "–") << "of two systems the last is the second";
  EXPECT_EQ(few[0][5], "undecided: 3 runs each, too few to decide anything");

  const auto equal = answers_of(race({{"a:x", 0.002}, {"b:y", 0.002}}, {10}, 12));
  EXPECT_TRUE(equal[0][2].starts_with("equal; ahead: ")) << equal[0][2];
  EXPECT_EQ(equal[0][5], "equal within 2 %: 12 runs each, no noise floor was measured");

  Results noisy = race({{"a:x", 0.002}, {"b:y", 0.002}}, {10}, 12);
  for (int64_t block = 0; block < 12; ++block) {
    lab::Run control =
        testing::sample_run("race", "a:x", testing::sample_condition("train", 10), block, 0.0025);
    control.control = "A/A";
    noisy.runs.push_back(control);
  }
  const auto within = answers_of(noisy);
  EXPECT_TRUE(within[0][2].starts_with("undecided; ahead: ")) << within[0][2];
  EXPECT_TRUE(within[0][5].ends_with("the noise floor of 25 % is too wide to call them equal"))
      << within[0][5];

  const auto alone = answers_of(race({{"a:x", 0.002}}, {10}, 8));
  EXPECT_EQ(alone[0][2], "no answer");
  EXPECT_EQ(alone[0][5], "a:x alone was measured");

  Results none = race({}, {}, 0);
  none.study["missing"] = {{{"part", "race"}, {"what", "all"}, {"why", "it needs four GPUs"}}};
  const auto nothing = answers_of(none);
  EXPECT_EQ(nothing[0][2], "no answer");
  EXPECT_EQ(nothing[0][5], "not measured: it needs four GPUs");
}

TEST(ReportAnswer, OneRunHasNoIntervalAnywhere) {
  Results results = race({{"a:x", 0.001}, {"b:y", 0.002}}, {10}, 1);
  results.study["parts"][0]["figures"].push_back(testing::sample_figure("bars", {"step.latency_s"}));
  lab::Run control = results.runs[0];
  control.control = "A/A";
  results.runs.push_back(control);
  const Analysis analysis = analyse(results);
  const auto rows = answers_of(results);
  EXPECT_TRUE(rows[0][3].ends_with("× (one run)")) << rows[0][3];
  const std::string markdown = markdown_report(results, analysis, {});
  EXPECT_GE(count(markdown, "| one run |"), 5u) << "two medians, two comparisons, the noise: " << markdown;
  for (const std::string& text :
       {markdown, terminal_report(results, analysis), html_report(results, analysis, {})})
    EXPECT_EQ(text.find(" to 0."), std::string::npos) << text;
  EXPECT_EQ(html_report(results, analysis, {}).find("(95 % interval "), std::string::npos);
  EXPECT_NE(comparisons_csv(analysis).find(",step.latency_s,a:x,b:y,1,1,2.0005407913,,,"), std::string::npos)
      << comparisons_csv(analysis);
}

TEST(ReportAnswer, AConstantIsAFactWithoutPAndInterval) {
  Results results = race({{"a:x", 0.001}, {"b:y", 0.002}}, {10}, 8);
  results.study["parts"][0]["figures"] = {testing::sample_figure("bars", {"code.lines"})};
  for (lab::Run& run : results.runs) run.metrics = {{"code.lines", run.system == "a:x" ? 45 : 60}};
  const auto rows = answers_of(results);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0][3], "b:y, 60.0: 1.33×");
  EXPECT_EQ(rows[0][5], "decided: the same in every run, 8 runs each");
  const Analysis analysis = analyse(results);
  const std::string markdown = markdown_report(results, analysis, {});
  EXPECT_NE(markdown.find("| 1.33× | – | 1.0 | – | 8 | a:x |"), std::string::npos) << markdown;
  EXPECT_EQ(markdown.find("p = "), std::string::npos) << markdown;
  EXPECT_EQ(terminal_report(results, analysis).find("p = "), std::string::npos);
}

TEST(ReportAnswer, CountsManyConditionsAndListsThemInTheirPart) {
  const Results results = race({{"a:x", 0.001}, {"b:y", 0.002}, {"c:z", 0.004}}, {1, 2, 3, 4, 5}, 8);
  const std::string html = html_report(results, analyse(results), {});
  const auto rows = first_table(html);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0][0], "Race, 5 conditions");
  EXPECT_EQ(rows[0][2], "a:x in 5 of 5");
  EXPECT_TRUE(rows[0][3].ends_with("× where decided")) << rows[0][3];
  EXPECT_TRUE(rows[0][4].starts_with("up to ")) << rows[0][4];
  EXPECT_TRUE(rows[0][5].starts_with("5 decided (p = 0.0")) << rows[0][5];
  const size_t each = html.find("<h3>Condition by condition</h3>");
  ASSERT_NE(each, std::string::npos);
  EXPECT_GT(each, html.find("id=\"part-race\""));
  EXPECT_EQ(first_table(html.substr(each)).size(), 5u);
}

TEST(ReportAnswer, PrefersTheTimeOfAStepAndOfAFitWithItsFirstMetric) {
  Results results = race({{"a:x", 0.001}, {"b:y", 0.002}}, {10}, 8);
  results.study["parts"][0]["phase"] = "fit";
  results.study["parts"][0]["figures"] = {testing::sample_figure("convergence", {"test_accuracy"})};
  for (lab::Run& run : results.runs) {
    run.data = "mnist";
    run.metrics["fit.total_s"] = 1000 * run.metrics["step.latency_s"];
    run.metrics["fit.accuracy"] = (run.system == "a:x" ? 0.9 : 0.95) + 0.001 * static_cast<double>(run.block);
  }
  const auto rows = answers_of(results);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0][1], "training time, lower is better");
  EXPECT_TRUE(rows[0][2].starts_with("a:x, ")) << rows[0][2];
  EXPECT_EQ(rows[1][1], "test accuracy, higher is better");
  EXPECT_TRUE(rows[1][2].starts_with("b:y, 0.95")) << rows[1][2];
  EXPECT_NE(rows[1][3].find(": 1.05"), std::string::npos)
      << "times better, whichever side that is: " << rows[1][3];
  EXPECT_EQ(rows[1][6], "mnist (real)");
}

/// A fit of three systems on real data, of which c:z was stopped by its cap after one epoch.
Results capped_fit() {
  Results results = race({{"a:x", 0.001}, {"b:y", 0.002}, {"c:z", 0.0001}}, {10}, 8);
  results.provenance = Json::object();
  results.study["parts"][0]["phase"] = "fit";
  results.study["parts"][0]["figures"] = {
      testing::sample_figure("bars", {"fit.total_s"}),
      testing::sample_figure("table", {"fit.total_s", "fit.accuracy", "fit.epoch_s"})};
  for (lab::Run& run : results.runs) {
    run.data = "mnist";
    run.epochs.resize(run.system == "c:z" ? 1 : 2);
    const double step_s = run.metrics["step.latency_s"];
    run.metrics = {{"fit.total_s", 1000 * step_s}, {"fit.accuracy", 0.9 + step_s}};
  }
  return results;
}

TEST(ReportOfEpochs, AFitThatItsCapStoppedIsNotAheadOfLongerOnes) {
  const Results results = capped_fit();
  const Analysis analysis = analyse(results);
  const auto rows = answers_of(results);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0][2].starts_with("a:x, ")) << rows[0][2];
  EXPECT_TRUE(rows[0][3].starts_with("b:y, ")) << rows[0][3];
  EXPECT_EQ(rows[0][4], "–") << "c:z is not ranked";
  EXPECT_TRUE(rows[0][5].ends_with("; not compared with c:z, which trained 1 epoch, not 2")) << rows[0][5];
  EXPECT_TRUE(rows[1][2].starts_with("b:y, ")) << rows[1][2];
  const std::string line =
      "c:z trained 1 epoch, a:x and b:y trained 2 epochs (a fit stops at its cap): training time and test "
      "accuracy are compared only between those that trained equally many.";
  const std::string html = html_report(results, analysis, {}),
                    markdown = markdown_report(results, analysis, {}),
                    text = terminal_report(results, analysis);
  for (const std::string& page : {html, markdown, text}) EXPECT_EQ(count(page, line), 1u) << page;
  EXPECT_NE(html.find(">epochs</th>"), std::string::npos);
  EXPECT_NE(html.find("c:z, 1 epoch"), std::string::npos) << "in the figure";
  EXPECT_NE(markdown.find("| epochs | runs |"), std::string::npos);
  EXPECT_NE(markdown.find("| 1 | 8 |"), std::string::npos);
  EXPECT_LT(text.find("b:y"), text.find("c:z")) << "those of fewer epochs stand last";

  Results two = results;
  std::erase_if(two.runs, [](const lab::Run& run) { return run.system == "b:y"; });
  const auto none = answers_of(two);
  EXPECT_EQ(none[0][2], "no answer");
  EXPECT_EQ(none[0][5], "not compared with c:z, which trained 1 epoch, not 2");

  Results same = results;
  for (lab::Run& run : same.runs) run.epochs.resize(2);
  EXPECT_EQ(markdown_report(same, analyse(same), {}).find("epochs"), std::string::npos);
}

TEST_F(Report, AFigureWithoutDataIsOneLine) {
  EXPECT_NE(
      html.find(
          "<p class=\"soft nothing\">A figure: GPU utilisation is unavailable here: libnvidia-ml.so.1 is not "
          "there.</p>"),
      std::string::npos);
  EXPECT_NE(html.find("<p class=\"soft nothing\">A figure: this report cannot draw &#39;spiral&#39;.</p>"),
            std::string::npos);
  for (size_t at = html.find("<figure"); at != std::string::npos; at = html.find("<figure", at + 1)) {
    const std::string figure = html.substr(at, html.find("</figure>", at) - at);
    EXPECT_TRUE(figure.find("<svg") != std::string::npos || figure.find("<table") != std::string::npos)
        << figure;
  }
}

TEST_F(Report, EveryChartNamesItsAxesWithUnits) {
  size_t charts = 0;
  for (size_t at = html.find("<svg"); at != std::string::npos; at = html.find("<svg", at + 1), ++charts) {
    const std::string svg = html.substr(at, html.find("</svg>", at) - at);
    EXPECT_GE(count(svg, "class=\"axis-name\""), 1u) << svg.substr(0, 300);
    const size_t name = svg.find("class=\"axis-name\"");
    EXPECT_NE(svg.substr(svg.find('>', name), 80).find(", "), std::string::npos) << svg.substr(name, 120);
  }
  EXPECT_GE(charts, 8u);
  EXPECT_NE(html.find(">test accuracy, share of 1<"), std::string::npos);
  EXPECT_NE(html.find(">batch size, samples<"), std::string::npos);
  EXPECT_NE(html.find(">lower is better<"), std::string::npos);
  EXPECT_NE(html.find(">higher is better<"), std::string::npos);
}

TEST(ReportOfEpochs, ACurveOfTwoEpochsHasTwoTicks) {
  Results results = testing::sample_results();
  for (lab::Run& run : results.runs)
    if (run.epochs.size() > 2) run.epochs.resize(2);
  const std::string html = html_report(results, analyse(results), {});
  const size_t name = html.find(">epoch, number<");
  ASSERT_NE(name, std::string::npos);
  const size_t begin = html.rfind("<svg", name);
  const std::string chart = html.substr(begin, html.find("</svg>", begin) - begin);
  EXPECT_EQ(chart.find(">1.2<"), std::string::npos) << "there is no epoch 1.2";
  EXPECT_NE(chart.find(">2<"), std::string::npos);
}

TEST_F(Report, NeverTrustsAName) {
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("</pre><b>"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(&#39;x&#39;)"), std::string::npos);
  EXPECT_NE(html.find("A &lt;claim&gt;"), std::string::npos);
}

TEST_F(Report, DrawsEveryKindOfFigure) {
  EXPECT_GE(count(html, "<svg class=\"chart\""), 8u);
  EXPECT_GT(count(html, "class=\"box\""), 4u);
  EXPECT_EQ(count(html, "class=\"band\""), 2u);  // accuracy and loss of one system
  EXPECT_EQ(count(html, "class=\"cell\""), 4u);
  EXPECT_NE(html.find("libnvidia-ml.so.1 is not there"), std::string::npos)
      << "what is unavailable gives its reason";
  EXPECT_NE(html.find("cannot draw &#39;spiral&#39;"), std::string::npos);
}

TEST(ReportOfTimelines, TheCurveOfMeanMemoryIsDrawn) {
  Results results = testing::sample_results();
  results.study["parts"][0]["figures"] = Json::array({testing::sample_figure("timeline", {"rss.mean_mib"})});
  for (lab::Run& run : results.runs)
    run.traces = {{"rss", "MiB", "/proc/stat", {0, 0.1, 0.2}, {300, 310, 312}}};
  const std::string html = html_report(results, analyse(results), {});
  EXPECT_NE(html.find("time since the first timed step"), std::string::npos);
  EXPECT_NE(html.find("mean resident memory"), std::string::npos);
  EXPECT_EQ(html.find("no run has a rss.mean_mib"), std::string::npos);
}

TEST(ReportOfSwitches, SaysWhatEachSettingDoesOrHowOftenItIsTheBest) {
  for (const int64_t batches : {1, 5}) {
    Results results;
    results.study = {{"name", "modes"},
                     {"title", "Modes"},
                     {"parts",
                      {{{"name", "convolution"},
                        {"title", "Convolution"},
                        {"phase", "train"},
                        {"figures", {testing::sample_figure("table", {"samples_per_s"})}}}}}};
    for (int64_t batch = 1; batch <= batches; ++batch)
      for (const auto& [mode, step_s] : {std::pair("fixed", 0.003), {"heuristic", 0.002}, {"profile", 0.001}})
        for (int64_t block = 0; block < 8; ++block) {
          Condition condition = testing::sample_condition("train", 10 * batch);
          condition.switches = {{"conv", mode}};
          results.runs.push_back(
              testing::sample_run("convolution", "tandem:graph", condition, block, step_s));
        }
    const Analysis analysis = analyse(results);
    const std::string page = markdown_report(results, analysis, {});
    if (batches == 1) {
      EXPECT_NE(
          page.find("| Convolution: conv of tandem:graph | throughput, higher is better | tandem:graph with "
                    "conv=profile, "),
          std::string::npos)
          << page;
      EXPECT_NE(page.find("samples/s: 3.0"), std::string::npos) << "the last, conv=fixed: " << page;
    } else {
      EXPECT_NE(
          page.find("| Convolution: conv of tandem:graph, 5 conditions | throughput, higher is better | "
                    "tandem:graph with conv=profile in 5 of 5 |"),
          std::string::npos)
          << page;
    }
    EXPECT_NE(page.find("| tandem:graph with conv=fixed | tandem:graph with conv=heuristic |"),
              std::string::npos);
    EXPECT_NE(comparisons_csv(analysis).find("tandem:graph with conv=heuristic"), std::string::npos);
  }
}

TEST(ReportOfSwitches, APassIsHeldAgainstTheConditionOfAnotherPart) {
  Results results;
  const auto part = [](const char* name) -> Json {
    return {
        {"name", name}, {"title", name}, {"figures", {testing::sample_figure("bars", {"samples_per_s"})}}};
  };
  results.study = {{"name", "graph"}, {"title", "Graph"}, {"parts", {part("whole"), part("passes")}}};
  const auto add = [&](const char* in, std::map<std::string, std::string> switches, double step_s) {
    for (int64_t block = 0; block < 8; ++block) {
      Condition condition = testing::sample_condition("train", 10);
      condition.switches = switches;
      results.runs.push_back(testing::sample_run(in, "tandem:graph", condition, block, step_s));
    }
  };
  add("whole", {{"graph", "on"}}, 0.002);
  add("whole", {{"graph", "off"}}, 0.003);
  add("passes", {{"graph", "on"}, {"graph.prune", "off"}}, 0.0025);
  const auto rows = first_table(html_report(results, analyse(results), {}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0][0], "whole: graph of tandem:graph");
  EXPECT_TRUE(rows[0][2].starts_with("tandem:graph with graph=on, ")) << rows[0][2];
  EXPECT_TRUE(rows[0][3].starts_with("tandem:graph with graph=off, ")) << rows[0][3];
  EXPECT_EQ(rows[1][0], "passes: graph.prune of tandem:graph, graph=on");
  EXPECT_TRUE(rows[1][2].starts_with("tandem:graph with graph=on, ")) << rows[1][2];
  EXPECT_TRUE(rows[1][3].starts_with("tandem:graph with graph=on, graph.prune=off, ")) << rows[1][3];
}

TEST_F(Report, KeepsTheTracksApart) {
  const size_t equal = html.find("id=\"part-learning\""), shipped = html.find("id=\"part-curves\"");
  ASSERT_LT(equal, shipped);
  EXPECT_EQ(html.substr(equal, shipped - equal).find("class=\"track\""), std::string::npos);
  EXPECT_NE(html.find("class=\"track\"", shipped), std::string::npos);
}

TEST_F(Report, ShowsWhatCouldNotBeMeasured) {
  EXPECT_NE(html.find("ended by signal 11"), std::string::npos);
  EXPECT_NE(html.find("Segmentation fault"), std::string::npos);
  EXPECT_NE(html.find("it needs four GPUs"), std::string::npos);
  EXPECT_NE(html.find("Data: synthetic-mnist."), std::string::npos) << "made-up samples are named as such";
}

TEST_F(Report, OnATerminalIsATableAndSentences) {
  const std::string text = terminal_report(results, analysis);
  EXPECT_NE(text.find("tandem:graph"), std::string::npos);
  EXPECT_NE(text.find("ms"), std::string::npos);
  EXPECT_NE(text.find("Not measured"), std::string::npos);
}

TEST(Grid, FitsTheTerminalByTextsOfSeveralLinesAndThenByBlocks) {
  Grid grid({"condition", "system", "median"}, {2});
  grid.add({{"batch 64, lenet training on the processor"}, {"tandem:graph"}, {"1.50 ms"}});
  grid.add({{"batch 128"}, {"pytorch:eager"}, {"12.5 µs"}});
  const auto lines = [](const std::string& text) {
    std::vector<std::string> list;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) list.push_back(line);
    return list;
  };
  for (const size_t width : {70u, 60u, 50u, 40u, 36u, 30u})
    for (const std::string& line : lines(grid.text(width))) EXPECT_LE(text_width(line), width) << line;
  EXPECT_EQ(lines(grid.text()).size(), 3u) << "elsewhere a row is one line";
  const auto narrow = lines(grid.text(45));
  ASSERT_GE(narrow.size(), 4u);
  for (const std::string& line : narrow)
    for (const char* name : {"system", "tandem:graph", "pytorch:eager"})
      EXPECT_TRUE(line.find(name) == std::string::npos || line.find(name) == narrow[0].find("system"))
          << "columns stand under each other: " << line;
  const auto blocks = lines(grid.text(28));
  EXPECT_EQ(blocks[0], "  batch 64, lenet training");
  EXPECT_TRUE(std::find(blocks.begin(), blocks.end(), "    system  tandem:graph") != blocks.end());
  EXPECT_TRUE(std::find(blocks.begin(), blocks.end(), "    median  12.5 µs") != blocks.end());
}

TEST_F(Report, InMarkdownHasTheSameTables) {
  const std::string text = markdown_report(results, analysis, {});
  EXPECT_NE(text.find("## Learning"), std::string::npos);
  EXPECT_NE(text.find("| pytorch:eager |"), std::string::npos);
  EXPECT_NE(text.find("## Noise floor"), std::string::npos);
}

/// The tables of a Markdown text, each with its heading above it.
std::vector<std::string> tables_of(const std::string& markdown) {
  std::vector<std::string> tables;
  std::istringstream lines(markdown);
  std::string heading;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) heading = line;
    if (line.starts_with("|") && !inside) tables.push_back(heading + "\n");
    inside = line.starts_with("|");
    if (inside) tables.back() += line + "\n";
  }
  return tables;
}

TEST_F(Report, EveryTableThatShowsAWorkloadNamesItsData) {
  const std::vector<Judgement> claims = {{"000-1",
                                          "000",
                                          "Table 4",
                                          "A claim",
                                          "p = 1e-9",
                                          "1.2×",
                                          Mark::undecided,
                                          "because",
                                          {},
                                          "",
                                          {},
                                          "synthetic-mnist"}};
  const std::string markdown = markdown_report(results, analysis, claims);
  size_t named = 0;
  for (const std::string& table : tables_of(markdown)) {
    if (table.starts_with("## The machine") || table.starts_with("## What is not here")) continue;
    EXPECT_NE(table.find("| data |"), std::string::npos) << table;
    EXPECT_NE(table.find(table.starts_with("## The answer") ? "| synthetic-mnist (made up) |"
                                                            : "| synthetic-mnist |"),
              std::string::npos)
        << table;
    ++named;
  }
  EXPECT_GE(named, 7u) << "of the answer, two parts, claims, noise and gaps";
  EXPECT_NE(markdown.find("> Read with care: lenet was measured on synthetic-mnist, made-up samples"),
            std::string::npos);
  EXPECT_NE(terminal_report(results, analysis).find("lenet was measured on synthetic-mnist"),
            std::string::npos);
  EXPECT_NE(html.find("lenet was measured on synthetic-mnist"), std::string::npos);
  for (size_t at = html.find("<thead>"); at != std::string::npos; at = html.find("<thead>", at + 1)) {
    const std::string head = html.substr(at, html.find("</thead>", at) - at);
    const bool shows_workloads =
        head.find(">condition<") != std::string::npos || head.find(">claim<") != std::string::npos;
    EXPECT_EQ(shows_workloads, head.find(">data<") != std::string::npos) << head;
  }
  for (const std::string& csv : {runs_csv(results), summaries_csv(analysis), comparisons_csv(analysis)}) {
    EXPECT_NE(csv.substr(0, csv.find('\n')).find(",data,"), std::string::npos);
    EXPECT_EQ(count(csv, ",synthetic-mnist,") + 1, count(csv, "\r\n")) << "one per row";
  }
}

TEST_F(Report, RealDataIsNamedWithoutAWarning) {
  Results real = results;
  for (lab::Run& run : real.runs) run.data = "mnist";
  const Analysis found = analyse(real);
  const std::string markdown = markdown_report(real, found, {});
  EXPECT_EQ(markdown.find("made-up"), std::string::npos);
  EXPECT_NE(markdown.find("Data: mnist."), std::string::npos);
  EXPECT_NE(markdown.find("| mnist |"), std::string::npos);
}

/// Every text of a study and its runs with this at its end, but for the words that mean something to the report.
Results poisoned(const std::string& poison) {
  Results results = testing::sample_results();
  const std::function<void(Json&, const std::string&)> spoil = [&](Json& json, const std::string& key) {
    static const std::set<std::string> kept = {"kind", "track", "phase", "x"};
    if (json.is_string() && !kept.contains(key)) json = json.get<std::string>() + poison;
    if (json.is_object())
      for (auto& [name, value] : json.items()) spoil(value, name);
    if (json.is_array())
      for (Json& value : json) spoil(value, key);
  };
  spoil(results.study, "");
  spoil(results.provenance, "");
  for (lab::Run& run : results.runs) {
    for (std::string* text :
         {&run.part, &run.system, &run.why, &run.last_words, &run.data, &run.started, &run.condition.workload,
          &run.condition.device, &run.condition.precision, &run.condition.optimizer})
      *text += poison;
    run.condition.switches["switch" + poison] = "value" + poison;
    run.metrics["metric" + poison] = 1;
    run.unavailable = {{"gpu.percent" + poison, "reason" + poison}};
    run.sources = {{"cpu.percent" + poison, "source" + poison}};
    for (Trace& trace : run.traces) trace.metric += poison;
  }
  return results;
}

TEST(ReportOfPoison, NoTextOfAStudyOrADriverIsMarkupInAnyFormat) {
  const std::string poison =
      "\n# heading\n\n<script>alert(1)</script><img src=x onerror=alert(2)>\n- [a](javascript:b) "
      "![i](http://x) `c` "
      "*d* _e_ **f** ~~g~~ $h$ &lt; \\| j | k \\ \"l\" 'm'\x1b[31m\r\t=2+2";
  const Results results = poisoned(poison);
  const Analysis analysis = analyse(results);
  Judgement claim{"1" + poison, "000" + poison, "s" + poison, "t" + poison,
                  "p" + poison, "o" + poison,   Mark::holds,  "r" + poison};
  claim.data = "d" + poison;

  const std::string html = html_report(results, analysis, {claim});
  EXPECT_EQ(first_fault(html), "");
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find('\x1b'), std::string::npos);

  const std::string markdown = markdown_report(results, analysis, {claim});
  EXPECT_EQ(markdown.find('<'), std::string::npos) << "no HTML at all";
  EXPECT_EQ(markdown.find('\x1b'), std::string::npos);
  size_t headings = 0;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    headings += line.starts_with("#");
    size_t columns = 0;
    bool is_escaped = false;
    for (const char c : line) {
      if (!is_escaped && std::string("[]`*~$").find(c) != std::string::npos) ADD_FAILURE() << line;
      columns += !is_escaped && c == '|';
      is_escaped = !is_escaped && c == '\\';
    }
    EXPECT_EQ(line.starts_with("|"), columns > 0) << line;
    EXPECT_EQ(line.find("heading") == 0 || line.starts_with("- \\["), false) << line;
  }
  EXPECT_EQ(headings, count(markdown, "\n## ") + 1);
  EXPECT_EQ(count(markdown, "\n## "), 8u)
      << "the answer, two parts, claims, noise, gaps, what is not here, the machine";

  const std::string text = terminal_report(results, analysis);
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);

  for (const std::string& csv : {runs_csv(results), summaries_csv(analysis), comparisons_csv(analysis)}) {
    // Read as RFC 4180 says: every row has as many fields as the first.
    std::vector<size_t> fields = {1};
    bool quoted = false;
    for (size_t i = 0; i < csv.size(); ++i) {
      if (csv[i] == '"') quoted = !quoted;
      if (quoted) continue;
      if (csv[i] == ',') ++fields.back();
      if (csv[i] == '\n') fields.push_back(1);
    }
    EXPECT_FALSE(quoted);
    fields.pop_back();
    for (const size_t each : fields) ASSERT_EQ(each, fields[0]);
  }
}

TEST(MarkdownText, IsReadAsItWasWritten) {
  EXPECT_EQ(markdown_text("step.latency_s of mnist_cnn: 1.5×"), "step.latency_s of mnist_cnn: 1.5×");
  EXPECT_EQ(markdown_text("_emphasis_"), "\\_emphasis\\_");
  EXPECT_EQ(markdown_text("a <b> & c"), "a &lt;b&gt; &amp; c");
  EXPECT_EQ(markdown_text("  # no heading"), "\\# no heading");
  EXPECT_EQ(markdown_text("1. no list"), "1\\. no list");
  EXPECT_EQ(markdown_text("- no list - here"), "\\- no list - here");
  EXPECT_EQ(markdown_text("a\nb|c\\|d"), "a b\\|c\\\\\\|d");
  EXPECT_EQ(markdown_text(""), "");
  EXPECT_EQ(markdown_text(" \n "), "");
}

TEST_F(Report, TablesForProgramsHaveOneRowEach) {
  EXPECT_EQ(count(runs_csv(results), "\r\n"), results.runs.size() + 1);
  EXPECT_EQ(count(summaries_csv(analysis), "\r\n"), analysis.summaries.size() + 1);
  EXPECT_EQ(count(comparisons_csv(analysis), "\r\n"), analysis.comparisons.size() + 1);
  EXPECT_EQ(runs_csv(results).find("\n="), std::string::npos);
}

TEST(ReportOfNothing, IsAPageThatSaysSo) {
  Results empty;
  empty.study = {{"name", "x"},
                 {"title", "Empty"},
                 {"parts", {{{"name", "p"}, {"title", "P"}, {"figures", {{{"kind", "box"}}}}}}}};
  const std::string html = html_report(empty, analyse(empty), {});
  EXPECT_EQ(first_fault(html), "");
  EXPECT_NE(html.find("No run of this part has been taken"), std::string::npos);
  EXPECT_EQ(first_fault(html_report(Results{}, analyse(Results{}), {})), "");
}

TEST(WriteReport, WritesEveryFileIntoTheFolder) {
  Folder folder;
  save(testing::sample_results(), folder.path / "a");
  const auto files = write_report((folder.path / "a").string());
  ASSERT_EQ(files.size(), 5u);
  for (const std::string& file : files) EXPECT_GT(fs::file_size(file), 100u) << file;
  EXPECT_EQ(fs::path(files[0]).filename(), "report.html");
  EXPECT_THROW(write_report((folder.path / "none").string()), Error);
}

TEST(CompareFolders, FindsWhatBecameSlower) {
  Folder folder;
  Results a = testing::sample_results(), b = a;
  for (lab::Run& run : b.runs)
    if (run.system == "pytorch:eager")
      for (auto& [name, value] : run.metrics) value *= 1.5;
  std::erase_if(b.runs, [](const lab::Run& run) { return run.system == testing::kHostile; });
  b.provenance["cpu"]["model"] = "Another processor";
  save(a, folder.path / "a");
  save(b, folder.path / "b");
  const FolderComparison found = compare_folders((folder.path / "a").string(), (folder.path / "b").string());
  bool slower = false;
  for (const Change& change : found.changes) {
    if (change.comparison.metric != "step.latency_s") continue;
    EXPECT_FALSE(change.comparison.paired);
    if (change.system == "pytorch:eager") {
      slower = true;
      EXPECT_EQ(change.comparison.verdict, Verdict::first);
      EXPECT_NEAR(change.comparison.ratio.value, 1.5, 0.02);
    } else {
      EXPECT_NE(change.comparison.verdict, Verdict::first) << change.system;
    }
  }
  EXPECT_TRUE(slower);
  EXPECT_FALSE(found.only_a.empty());
  EXPECT_TRUE(found.only_b.empty());
  EXPECT_NE(comparison_text(found).find("cpu.model: A processor in A, Another processor in B"),
            std::string::npos);
  EXPECT_EQ(first_fault(comparison_html(found)), "");
}

TEST(CompareFolders, DoesNotCompareFitsOfOtherNumbersOfEpochs) {
  Folder folder;
  Results a = capped_fit(), b = a;
  for (lab::Run& run : b.runs) run.epochs.resize(2);
  save(a, folder.path / "a");
  save(b, folder.path / "b");
  const FolderComparison found = compare_folders((folder.path / "a").string(), (folder.path / "b").string());
  for (const Change& change : found.changes) EXPECT_NE(change.system, "c:z") << change.comparison.metric;
  ASSERT_EQ(found.not_compared.size(), 1u);
  EXPECT_TRUE(found.not_compared[0].starts_with("c:z, ")) << found.not_compared[0];
  EXPECT_TRUE(
      found.not_compared[0].ends_with(": training time and test accuracy, for A trained 1 epoch and B 2"))
      << found.not_compared[0];
  EXPECT_NE(comparison_text(found).find("not compared: c:z"), std::string::npos);
  EXPECT_NE(comparison_html(found).find("<h2>Not compared</h2>"), std::string::npos);
}

TEST(Browser, DrawsTheReportWithoutAnError) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no chromium to open the report with";
  Folder folder;
  save(testing::sample_results(), folder.path / "a");
  write_report((folder.path / "a").string());
  const std::string page = (folder.path / "a" / "report.html").string(),
                    dom = (folder.path / "dom.html").string();
  const auto open = [&](const std::string& address, const std::string& to) {
    const std::string command =
        "timeout 120 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir='" +
        (folder.path / "profile").string() +
        "' --enable-logging=stderr --allow-file-access-from-files --virtual-time-budget=5000 --dump-dom "
        "'file://" +
        address + "' >'" + to + "' 2>'" + to + ".log'";
    return std::system(command.c_str());
  };
  ASSERT_EQ(open(page, dom), 0) << read(dom + ".log");
  // What the page's script set on the root: how many charts it saw, and the first error.
  const std::string all = read(dom), drawn = all.substr(0, all.find("<head"));
  EXPECT_NE(drawn.find("data-ready=\""), std::string::npos) << "the script did not run to its end";
  EXPECT_EQ(drawn.find("data-error"), std::string::npos);
  EXPECT_EQ(drawn.find("data-ready=\"0\""), std::string::npos);
  EXPECT_EQ(read(dom + ".log").find("CONSOLE"), std::string::npos) << read(dom + ".log");

  // As wide as a phone, with everything opened: the widest reach of any element, which must not be beyond the page.
  const std::string phone = (folder.path / "phone.html").string(),
                    seen = (folder.path / "seen.html").string();
  std::ofstream(phone)
      << R"(<body style="margin:0"><iframe id="f" style="border:0;width:390px;height:4000px"></iframe><script>
    var f = document.getElementById('f');
    f.onload = function () {
      var d = f.contentDocument, reach = 0, tables = 0;
      d.querySelectorAll('details').forEach(function (e) { e.open = true; });
      d.querySelectorAll('body *').forEach(function (e) {
        var r = e.getBoundingClientRect();
        if (r.width > 0 && !e.closest('svg')) reach = Math.max(reach, Math.ceil(r.right), Math.ceil(r.left + e.scrollWidth));
      });
      d.querySelectorAll('table').forEach(function (t) { tables += t.offsetWidth > 0; });
      document.body.setAttribute('data-reach', reach);
      document.body.setAttribute('data-tables', tables);
    };
    f.src = 'a/report.html';
  </script></body>)";
  ASSERT_EQ(open(phone, seen), 0) << read(seen + ".log");
  const std::string measured = read(seen);
  const auto number = [&](const std::string& name) {
    const size_t at = measured.find(name + "=\"");
    return at == std::string::npos ? -1 : std::stoi(measured.substr(at + name.size() + 2));
  };
  EXPECT_GE(number("data-tables"), 6) << measured;
  EXPECT_GT(number("data-reach"), 300);
  EXPECT_LE(number("data-reach"), 390) << "something is cut";
}

}  // namespace
}  // namespace tandem::lab
