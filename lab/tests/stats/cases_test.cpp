// The stored cases: every function against SciPy, statsmodels, R, mpmath or plain enumeration (make_cases.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "lab/src/stats/correction.h"
#include "lab/src/stats/correlation.h"
#include "lab/src/stats/distributions.h"
#include "lab/src/stats/effect.h"
#include "lab/src/stats/equivalence.h"
#include "lab/src/stats/kolmogorov.h"
#include "lab/src/stats/normality.h"
#include "lab/src/stats/rank_tests.h"
#include "lab/src/stats/sample.h"
#include "lab/src/stats/spread.h"
#include "lab/src/stats/trend.h"

namespace tandem::lab::stats {
namespace {

using Json = nlohmann::json;
using Values = std::vector<double>;
using Answer = std::map<std::string, Values>;

Values list(const Json& json, const char* name) { return json.at(name).get<Values>(); }
double argument(const Json& json, size_t i) { return json.at("arguments").at(i).get<double>(); }
size_t whole(const Json& json, size_t i) { return json.at("arguments").at(i).get<size_t>(); }
std::vector<Values> rows(const Json& json) { return json.at("rows").get<std::vector<Values>>(); }

Alternative side(const Json& json) {
  const auto text = json.at("alternative").get<std::string>();
  return text == "less"      ? Alternative::less
         : text == "greater" ? Alternative::greater
                             : Alternative::two_sided;
}
Method method(const Json& json) { return json.at("method") == "exact" ? Method::exact : Method::normal; }

Answer one(double value) { return {{"value", {value}}}; }
Answer of(const TestResult& result) { return {{"statistic", {result.statistic}}, {"p", {result.p}}}; }
Answer of(const Interval& interval) {
  return {{"value", {interval.value}}, {"low", {interval.low}}, {"high", {interval.high}}};
}

BootstrapOptions bootstrap(const Json& json) {
  BootstrapOptions options;
  options.kind = json.at("kind") == "bca" ? BootstrapOptions::Kind::bca : BootstrapOptions::Kind::percentile;
  options.resamples = 20000;
  return options;
}

const std::map<std::string, std::function<Answer(const Json&)>>& calls() {
  static const std::map<std::string, std::function<Answer(const Json&)>> table = {
      {"normal_sf", [](const Json& c) { return one(normal_sf(argument(c, 0))); }},
      {"normal_cdf", [](const Json& c) { return one(normal_cdf(argument(c, 0))); }},
      {"normal_quantile", [](const Json& c) { return one(normal_quantile(argument(c, 0))); }},
      {"t_sf", [](const Json& c) { return one(t_sf(argument(c, 0), argument(c, 1))); }},
      {"t_upper_quantile",
       [](const Json& c) { return one(t_upper_quantile(argument(c, 0), argument(c, 1))); }},
      {"chi2_sf", [](const Json& c) { return one(chi2_sf(argument(c, 0), argument(c, 1))); }},
      {"chi2_cdf", [](const Json& c) { return one(chi2_cdf(argument(c, 0), argument(c, 1))); }},
      {"f_sf", [](const Json& c) { return one(f_sf(argument(c, 0), argument(c, 1), argument(c, 2))); }},
      {"f_cdf", [](const Json& c) { return one(f_cdf(argument(c, 0), argument(c, 1), argument(c, 2))); }},
      {"binomial_cdf",
       [](const Json& c) {
         return one(binomial_cdf(int64_t(whole(c, 0)), int64_t(whole(c, 1)), argument(c, 2)));
       }},
      {"binomial_at_least",
       [](const Json& c) {
         return one(binomial_at_least(int64_t(whole(c, 0)), int64_t(whole(c, 1)), argument(c, 2)));
       }},
      {"clopper_pearson",
       [](const Json& c) {
         const Bounds bounds = clopper_pearson(int64_t(whole(c, 0)), int64_t(whole(c, 1)));
         return Answer{{"low", {bounds.low}}, {"high", {bounds.high}}};
       }},
      {"kolmogorov_exact_sf",
       [](const Json& c) { return one(kolmogorov_exact_sf(argument(c, 0), whole(c, 1))); }},
      {"smirnov_sf", [](const Json& c) { return one(smirnov_sf(argument(c, 0), whole(c, 1))); }},
      {"kolmogorov_limit_sf", [](const Json& c) { return one(kolmogorov_limit_sf(argument(c, 0))); }},
      {"wilcoxon",
       [](const Json& c) {
         WilcoxonOptions options;
         options.alternative = side(c);
         options.method = method(c);
         options.zeros = c.value("zeros", "wilcox") == "pratt" ? Zeros::pratt : Zeros::drop;
         options.continuity = c.value("continuity", false);
         return of(wilcoxon(list(c, "x"), options));
       }},
      {"mann_whitney",
       [](const Json& c) {
         MannWhitneyOptions options;
         options.alternative = side(c);
         options.method = method(c);
         options.continuity = c.value("continuity", true);
         return of(mann_whitney(list(c, "x"), list(c, "y"), options));
       }},
      {"pearson", [](const Json& c) { return of(pearson(list(c, "x"), list(c, "y"))); }},
      {"spearman", [](const Json& c) { return of(spearman(list(c, "x"), list(c, "y"))); }},
      {"kolmogorov_smirnov",
       [](const Json& c) { return of(kolmogorov_smirnov_normal(list(c, "x"), 0, 1, method(c))); }},
      {"lilliefors", [](const Json& c) { return of(lilliefors(list(c, "x"))); }},
      {"quantile", [](const Json& c) { return one(quantile(list(c, "x"), c.at("q").get<double>())); }},
      {"cliffs_delta", [](const Json& c) { return one(cliffs_delta(list(c, "x"), list(c, "y"))); }},
      {"holm",
       [](const Json& c) {
         return Answer{{"all", holm(list(c, "x"))}};
       }},
      {"median_interval", [](const Json& c) { return of(median_interval(list(c, "x"), bootstrap(c))); }},
      {"median_ratio",
       [](const Json& c) {
         const Values x = list(c, "x"), y = list(c, "y");
         return of(c.at("paired").get<bool>() ? median_ratio_paired(x, y, bootstrap(c))
                                              : median_ratio(x, y, bootstrap(c)));
       }},
      {"hodges_lehmann_paired",
       [](const Json& c) {
         Answer answer = of(hodges_lehmann_paired(list(c, "x"), list(c, "y")));
         answer["p"] = {wilcoxon(list(c, "x"), list(c, "y")).p};
         return answer;
       }},
      {"hodges_lehmann",
       [](const Json& c) {
         Answer answer = of(hodges_lehmann(list(c, "x"), list(c, "y")));
         MannWhitneyOptions options;
         options.method = Method::exact;
         answer["p"] = {mann_whitney(list(c, "x"), list(c, "y"), options).p};
         return answer;
       }},
      {"tost_paired",
       [](const Json& c) {
         return of(
             tost_paired(list(c, "x"), list(c, "y"), c.at("low").get<double>(), c.at("high").get<double>())
                 .test);
       }},
      {"tost_welch",
       [](const Json& c) {
         return of(
             tost_welch(list(c, "x"), list(c, "y"), c.at("low").get<double>(), c.at("high").get<double>())
                 .test);
       }},
      {"tost_ratio",
       [](const Json& c) {
         return of(
             tost_ratio(list(c, "x"), list(c, "y"), c.at("margin").get<double>(), c.at("paired").get<bool>())
                 .test);
       }},
      {"friedman", [](const Json& c) { return of(friedman(rows(c))); }},
      {"page", [](const Json& c) { return of(page(rows(c), method(c))); }},
      {"levene",
       [](const Json& c) {
         return of(levene(rows(c), c.at("centre") == "mean" ? Centre::mean : Centre::median));
       }},
      {"fligner", [](const Json& c) { return of(fligner(rows(c))); }},
  };
  return table;
}

std::vector<Json> read_cases() {
  std::vector<Json> all;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/lab/tests/stats/cases")) {
    std::ifstream in(entry.path());
    const Json cases = Json::parse(in);
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

/// Compares one expected number; where it is exactly zero or one rounding error away, the tolerance is absolute.
void compare(const Json& one_case, const std::string& name, double expected, double got, double tolerance) {
  const double scale = std::max(std::abs(expected), name == "p" || name == "value" ? 1e-300 : 1e-3);
  EXPECT_LE(std::abs(got - expected), tolerance * scale)
      << name << ": expected " << expected << ", got " << got << " in " << one_case.dump().substr(0, 600);
}

TEST(StoredCases, Every_function_agrees_with_its_reference) {
  const std::vector<Json> cases = read_cases();
  ASSERT_GE(cases.size(), 200u);
  std::map<std::string, int> seen;
  for (const Json& one_case : cases) {
    const auto call = one_case.at("call").get<std::string>();
    ASSERT_TRUE(calls().count(call)) << "no call " << call;
    const Answer answer = calls().at(call)(one_case);
    const double tolerance = one_case.at("tolerance").get<double>();
    ++seen[call];
    for (const auto& [name, value] : one_case.at("expect").items()) {
      ASSERT_TRUE(answer.count(name)) << call << " gives no " << name;
      const Values expected = value.is_array() ? value.get<Values>() : Values{value.get<double>()};
      ASSERT_EQ(answer.at(name).size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        compare(one_case, name, expected[i], answer.at(name)[i], tolerance);
    }
  }
  for (const auto& [name, call] : calls()) EXPECT_GT(seen[name], 0) << "no stored case calls " << name;
}

}  // namespace
}  // namespace tandem::lab::stats
