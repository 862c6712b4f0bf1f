"""Makes the stored cases of the statistics' tests: python3 make_cases.py [FOLDER].

Needs SciPy, statsmodels and mpmath, and Rscript (with the package nortest) for the cases that R has. Each file of
cases/ is a list of {call, source, inputs and options, expect, tolerance}; the tests call the same function of the lab
and compare every expected number. Relative tolerance: 1e-9 where the method is exact or the same formula, 1e-10 for the
distributions, looser only where the reference itself resamples.
"""
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from fractions import Fraction

import mpmath
import numpy as np
import scipy
import scipy.stats as ss
import statsmodels
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_ind, ttost_paired

mpmath.mp.dps = 60
SCIPY = f"SciPy {scipy.__version__}"
STATSMODELS = f"statsmodels {statsmodels.__version__}"
MPMATH = f"mpmath {mpmath.__version__}"
rng = np.random.default_rng(20240517)


def rounded(values, digits=6):
    """Values short enough to store: what is written is what was computed with."""
    return [float(f"{v:.{digits}g}") for v in values]


def case(call, source, expect, tolerance=1e-9, **inputs):
    return {"call": call, "source": source, "tolerance": tolerance, "expect": expect, **inputs}


def samples(n, kind):
    """Sample kinds: smooth, tied (few distinct values), long-tailed like times."""
    if kind == "ties":
        return [float(v) for v in rng.integers(0, 7, n)]
    if kind == "times":
        return rounded(0.01 * np.exp(0.05 * rng.standard_normal(n)) + 0.002 * rng.exponential(1, n))
    return rounded(rng.standard_normal(n))


# Distributions, from mpmath's own functions at 60 digits.
def normal_sf(z):
    return mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2


def beta_tail(a, b, x):
    return mpmath.betainc(mpmath.mpf(a), mpmath.mpf(b), 0, x, regularized=True)


def t_sf(t, df):
    t, df = mpmath.mpf(t), mpmath.mpf(df)
    tail = beta_tail(df / 2, mpmath.mpf(1) / 2, df / (df + t * t)) / 2
    return tail if t >= 0 else 1 - tail


def f_sf(f, d1, d2):
    f, d1, d2 = mpmath.mpf(f), mpmath.mpf(d1), mpmath.mpf(d2)
    return beta_tail(d2 / 2, d1 / 2, d2 / (d2 + d1 * f))


def distribution_cases():
    cases = []

    def add(name, value, *arguments):
        cases.append(case(name, MPMATH, {"value": float(value)}, 1e-10, arguments=list(arguments)))

    for z in (-37.0, -20.0, -8.6817, -3.0, -1e-3, 0.0, 0.5, 1.96, 6.0, 12.5, 30.0):
        add("normal_sf", normal_sf(z), z)
        add("normal_cdf", normal_sf(-z), z)
    for p in (1e-300, 3.8966e-18, 1e-10, 0.001, 0.025, 0.2, 0.4999, 0.5, 0.75, 0.975, 0.999999):
        start = float(ss.norm.ppf(p))
        exact = mpmath.findroot(lambda z: mpmath.log(normal_sf(-z)) - mpmath.log(mpmath.mpf(p)), start)
        add("normal_quantile", exact, p)
    for df in (1, 2, 4.37, 7, 30, 199, 5000):
        for t in (0.0, 0.3, -1.2, 2.5, 9.0, 40.0, 1e4, -15.0):
            value = t_sf(t, df)
            if value > mpmath.mpf("1e-290"):
                add("t_sf", value, t, df)
    for df in (1, 3, 10, 99, 1000):
        for ratio in (0.01, 0.5, 1.0, 1.5, 4.0):
            x = mpmath.mpf(ratio * df)
            add("chi2_sf", mpmath.gammainc(mpmath.mpf(df) / 2, x / 2, mpmath.inf, regularized=True), ratio * df, df)
            add("chi2_cdf", mpmath.gammainc(mpmath.mpf(df) / 2, 0, x / 2, regularized=True), ratio * df, df)
    for d1, d2 in ((1, 1), (1, 18), (3, 40), (12, 7), (60, 600)):
        for f in (0.02, 0.9, 1.0, 3.7, 25.0, 400.0):
            value = f_sf(f, d1, d2)
            if value > mpmath.mpf("1e-290"):
                add("f_sf", value, f, d1, d2)
            add("f_cdf", beta_tail(mpmath.mpf(d1) / 2, mpmath.mpf(d2) / 2,
                                   d1 * mpmath.mpf(f) / (d2 + d1 * mpmath.mpf(f))), f, d1, d2)
    for k, n, p in ((0, 5, 0.2), (3, 50, 0.05), (8, 50, 0.05), (30, 50, 0.05), (499, 1000, 0.5), (700, 1000, 0.5)):
        terms = [mpmath.binomial(n, i) * mpmath.mpf(p) ** i * (1 - mpmath.mpf(p)) ** (n - i) for i in range(n + 1)]
        add("binomial_cdf", sum(terms[:k + 1]), k, n, p)
        add("binomial_at_least", sum(terms[k:]), k, n, p)
    for p, df in ((0.05, 1), (0.025, 9), (0.1, 49.5), (1e-6, 5)):
        exact = mpmath.findroot(lambda t: mpmath.log(t_sf(t, df)) - mpmath.log(mpmath.mpf(p)), float(ss.t.isf(p, df)))
        add("t_upper_quantile", exact, p, df)
    return cases


def enumerate_signs(differences, alternative):
    """The exact signed-rank p with ties, by trying every sign: an oracle without any cleverness."""
    kept = [d for d in differences if d != 0]
    ranks = [Fraction(r).limit_denominator(2) for r in ss.rankdata(np.abs(kept))]
    seen = sum((r for r, d in zip(ranks, kept) if d > 0), Fraction(0))
    less = greater = 0
    for signs in itertools.product((0, 1), repeat=len(ranks)):
        total = sum((r for r, s in zip(ranks, signs) if s), Fraction(0))
        less += total <= seen
        greater += total >= seen
    ways = 2 ** len(ranks)
    if alternative == "less":
        return less / ways
    if alternative == "greater":
        return greater / ways
    return min(1.0, 2 * min(less, greater) / ways)


def enumerate_splits(x, y, alternative):
    """The exact Mann-Whitney p with ties, by trying every division of the values."""
    ranks = [Fraction(r).limit_denominator(2) for r in ss.rankdata(x + y)]
    seen = sum(ranks[:len(x)], Fraction(0))
    less = greater = ways = 0
    for chosen in itertools.combinations(range(len(ranks)), len(x)):
        total = sum((ranks[i] for i in chosen), Fraction(0))
        less += total <= seen
        greater += total >= seen
        ways += 1
    if alternative == "less":
        return less / ways
    if alternative == "greater":
        return greater / ways
    return min(1.0, 2 * min(less, greater) / ways)


SIDES = ("two-sided", "less", "greater")


def wilcoxon_cases():
    cases = []
    for n in (3, 5, 6, 8, 12, 20, 33, 50):
        for shift in (0.0, 0.7):
            d = rounded(rng.standard_normal(n) + shift)
            for side in SIDES:
                found = ss.wilcoxon(d, alternative=side, method="exact")
                cases.append(case("wilcoxon", SCIPY, {"statistic": float(found.statistic), "p": float(found.pvalue)},
                                  x=d, alternative=side, method="exact"))
    for n in (10, 25, 60, 100, 200):
        for kind in ("ties", "smooth"):
            d = [v - 3 for v in samples(n, "ties")] if kind == "ties" else rounded(rng.standard_normal(n) + 0.2)
            for zeros in ("wilcox", "pratt"):
                for continuity in (False, True):
                    for side in SIDES if n == 25 else ("two-sided",):
                        found = ss.wilcoxon(d, alternative=side, method="approx", zero_method=zeros,
                                            correction=continuity)
                        cases.append(case("wilcoxon", SCIPY,
                                          {"statistic": float(found.statistic), "p": float(found.pvalue)}, x=d,
                                          alternative=side, method="normal", zeros=zeros, continuity=continuity))
    for n in (4, 7, 10, 12):
        d = [v - 2 for v in samples(n, "ties")]
        for side in SIDES:
            cases.append(case("wilcoxon", "enumeration", {"p": enumerate_signs(d, side)}, x=d, alternative=side,
                              method="exact"))
    one_sign = [float(i) for i in range(1, 101)]
    found = ss.wilcoxon(one_sign, method="approx")
    cases.append(case("wilcoxon", SCIPY + ", paper 000", {"statistic": 0.0, "p": float(found.pvalue)}, x=one_sign,
                      alternative="two-sided", method="normal"))
    return cases


def mann_whitney_cases():
    cases = []
    for n, m in ((1, 4), (3, 3), (5, 5), (8, 7), (12, 20), (30, 30)):
        for shift in (0.0, 1.0):
            x, y = rounded(rng.standard_normal(n)), rounded(rng.standard_normal(m) + shift)
            for side in SIDES:
                found = ss.mannwhitneyu(x, y, alternative=side, method="exact")
                cases.append(case("mann_whitney", SCIPY,
                                  {"statistic": float(found.statistic), "p": float(found.pvalue)}, x=x, y=y,
                                  alternative=side, method="exact"))
    for n, m in ((10, 14), (40, 35), (100, 80)):
        for kind in ("ties", "times"):
            x, y = samples(n, kind), samples(m, kind)
            for continuity in (False, True):
                for side in SIDES:
                    found = ss.mannwhitneyu(x, y, alternative=side, method="asymptotic", use_continuity=continuity)
                    cases.append(case("mann_whitney", SCIPY,
                                      {"statistic": float(found.statistic), "p": float(found.pvalue)}, x=x, y=y,
                                      alternative=side, method="normal", continuity=continuity))
    for n, m in ((4, 5), (6, 6), (7, 3)):
        x, y = samples(n, "ties"), samples(m, "ties")
        for side in SIDES:
            cases.append(case("mann_whitney", "enumeration", {"p": enumerate_splits(x, y, side)}, x=x, y=y,
                              alternative=side, method="exact"))
    return cases


def correlation_cases():
    cases = []
    for n in (3, 5, 10, 40, 150):
        for slope in (0.0, 0.5, -3.0):
            x = samples(n, "smooth")
            y = rounded(slope * np.array(x) + rng.standard_normal(n))
            found = ss.pearsonr(x, y)
            cases.append(case("pearson", SCIPY, {"statistic": float(found.statistic), "p": float(found.pvalue)},
                              x=x, y=y))
            ties = [float(round(2 * v)) for v in y]
            for second in (y, ties):
                if len(set(second)) < 2:
                    continue
                found = ss.spearmanr(x, second)
                if abs(found.statistic) > 1 - 1e-12:
                    continue  # SciPy's t overflows where the order is perfect
                cases.append(case("spearman", SCIPY, {"statistic": float(found.statistic), "p": float(found.pvalue)},
                                  x=x, y=second))
    return cases


def kolmogorov_sf(d, n):
    """Durbin's matrix at 60 digits: SciPy itself approximates beyond 140 values."""
    d = mpmath.mpf(d)
    k = int(n * d) + 1
    h, m = k - n * d, 2 * k - 1
    matrix = mpmath.matrix(m, m)
    for i in range(m):
        for j in range(min(m, i + 2)):
            value = mpmath.mpf(1)
            if j == 0:
                value -= h ** (i + 1)
            if i == m - 1:
                value -= h ** (m - j)
            if i == m - 1 and j == 0 and 2 * h > 1:
                value += (2 * h - 1) ** m
            matrix[i, j] = value / mpmath.factorial(max(i - j + 1, 0))
    return 1 - (matrix ** n)[k - 1, k - 1] * mpmath.factorial(n) / mpmath.mpf(n) ** n


def normality_cases():
    cases = []
    for n in (1, 2, 5, 8, 20, 50, 100, 300):
        for kind in ("smooth", "times", "shifted"):
            x = rounded(0.4 + rng.standard_normal(n)) if kind == "shifted" else samples(n, kind)
            found = ss.kstest(x, "norm", method="exact")
            if found.pvalue > 1e-290 and (n <= 140 or found.pvalue < 1e-5):
                cases.append(case("kolmogorov_smirnov", SCIPY,
                                  {"statistic": float(found.statistic), "p": float(found.pvalue)}, x=x,
                                  method="exact"))
            found = ss.kstest(x, "norm", method="asymp")
            if found.pvalue > 1e-290:
                cases.append(case("kolmogorov_smirnov", SCIPY,
                                  {"statistic": float(found.statistic), "p": float(found.pvalue)}, x=x,
                                  method="normal"))
    for n, d in ((10, 0.12), (10, 0.4), (50, 0.05), (50, 0.11), (50, 0.25), (200, 0.03), (200, 0.06), (200, 0.15),
                 (1000, 0.02), (1000, 0.068), (1000, 0.2)):
        exact = kolmogorov_sf(d, n) if n > 140 and n * d < 25 else ss.kstwo.sf(d, n)
        cases.append(case("kolmogorov_exact_sf", MPMATH if n > 140 and n * d < 25 else SCIPY, {"value": float(exact)},
                          arguments=[d, n]))
        cases.append(case("smirnov_sf", SCIPY, {"value": float(ss.ksone.sf(d, n))}, arguments=[d, n]))
    for x in (0.2, 0.5, 0.9, 1.0, 1.36, 3.0, 10.0):
        cases.append(case("kolmogorov_limit_sf", SCIPY, {"value": float(ss.kstwobign.sf(x))}, arguments=[x]))
    return cases


def effect_cases():
    cases = []
    for n in (1, 2, 5, 8, 31):
        x = samples(n, "times")
        for q in (0.0, 0.025, 0.25, 0.5, 0.9, 1.0):
            cases.append(case("quantile", f"NumPy {np.__version__}", {"value": float(np.quantile(x, q))}, 1e-14, x=x,
                              q=q))
    for n, m in ((4, 4), (9, 6), (25, 30)):
        for kind in ("ties", "smooth"):
            x, y = np.array(samples(n, kind)), np.array(samples(m, kind))
            delta = float(np.sign(y[None, :] - x[:, None]).mean())
            cases.append(case("cliffs_delta", "all pairs", {"value": delta}, 1e-14, x=list(x), y=list(y)))
    for k, n in ((0, 10), (1, 50), (3, 50), (25, 50), (50, 50), (17, 1000)):
        found = ss.binomtest(k, n).proportion_ci(0.95, method="exact")
        cases.append(case("clopper_pearson", SCIPY, {"low": float(found.low), "high": float(found.high)},
                          arguments=[k, n]))
    for n in (1, 2, 5, 15):
        p = rounded(rng.random(n) ** 3)
        cases.append(case("holm", STATSMODELS, {"all": [float(v) for v in multipletests(p, method="holm")[1]]}, x=p))
    # SciPy resamples with another generator. The sizes are such that no end lies on the border of two order
    # statistics; BCa moves the ends by what the resamples say, so that an end may be one step off, which even sizes
    # keep small.
    for kind, sizes, tolerance in (("percentile", (9, 19, 31), 1e-3), ("BCa", (40, 60), 0.02)):
        for n in sizes:
            x = samples(n, "times")
            found = ss.bootstrap((x,), np.median, n_resamples=50000, method=kind, random_state=1).confidence_interval
            cases.append(case("median_interval", SCIPY, {"low": float(found.low), "high": float(found.high)}, tolerance,
                              x=x, kind=kind.lower()))
            y = rounded(1.2 * np.array(x) * np.exp(0.03 * rng.standard_normal(n)))
            for paired in (True, False):
                found = ss.bootstrap((x, y), lambda a, b, axis=-1: np.median(b, axis) / np.median(a, axis),
                                     n_resamples=50000, method=kind, random_state=1, paired=paired,
                                     vectorized=True).confidence_interval
                cases.append(case("median_ratio", SCIPY, {"low": float(found.low), "high": float(found.high)},
                                  max(tolerance, 0.005), x=x, y=y, kind=kind.lower(), paired=paired))
    return cases


def group_cases():
    cases = []
    for n in (2, 5, 12, 60):
        for shift in (0.0, 0.1, 1.0):
            x = rounded(10 + rng.standard_normal(n))
            y = rounded(np.array(x) + shift + 0.2 * rng.standard_normal(n))
            p, low, high = ttost_paired(np.array(y), np.array(x), -0.3, 0.4)
            nearer = low[0] if low[1] >= high[1] else high[0]
            cases.append(case("tost_paired", STATSMODELS, {"p": float(p), "statistic": float(nearer)}, x=x, y=y,
                              low=-0.3, high=0.4))
            z = rounded(10 + shift + 2 * rng.standard_normal(n + 3))
            p, low, high = ttost_ind(np.array(z), np.array(x), -0.3, 0.4, usevar="unequal")
            cases.append(case("tost_welch", STATSMODELS, {"p": float(p)}, x=x, y=z, low=-0.3, high=0.4))
            p, low, high = ttost_paired(np.array(y), np.array(x), 1 / 1.05, 1.05, transform=np.log)
            cases.append(case("tost_ratio", STATSMODELS, {"p": float(p)}, x=x, y=y, margin=0.05, paired=True))
    for blocks, treatments in ((3, 3), (6, 4), (10, 5), (30, 3), (12, 8)):
        for kind in ("smooth", "ties", "trend"):
            rows = [samples(treatments, "ties" if kind == "ties" else "smooth") for _ in range(blocks)]
            if kind == "trend":
                rows = [rounded(np.array(row) + 0.4 * np.arange(treatments)) for row in rows]
            found = ss.friedmanchisquare(*np.array(rows).T)
            cases.append(case("friedman", SCIPY, {"statistic": float(found.statistic), "p": float(found.pvalue)},
                              rows=rows))
            if kind != "ties" and treatments < 7:
                found = ss.page_trend_test(rows, method="exact")
                cases.append(case("page", SCIPY, {"statistic": float(found.statistic), "p": float(found.pvalue)},
                                  rows=rows, method="exact"))
            found = ss.page_trend_test(rows, method="asymptotic")
            cases.append(case("page", SCIPY, {"statistic": float(found.statistic), "p": float(found.pvalue)},
                              rows=rows, method="normal"))
    for sizes in ((5, 5), (8, 12), (10, 10, 10), (40, 30, 20, 25)):
        for wide in (1.0, 4.0):
            rows = [rounded((wide if i == 0 else 1) * rng.standard_normal(n)) for i, n in enumerate(sizes)]
            for centre in ("median", "mean"):
                found = ss.levene(*rows, center=centre)
                cases.append(case("levene", SCIPY, {"statistic": float(found.statistic), "p": float(found.pvalue)},
                                  rows=rows, centre=centre))
            found = ss.fligner(*rows, center="median")
            cases.append(case("fligner", SCIPY, {"statistic": float(found.statistic), "p": float(found.pvalue)},
                              rows=rows))
    return cases


def r_numbers(script):
    """The numbers that an R script prints, one per line."""
    with tempfile.NamedTemporaryFile("w", suffix=".R") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(["Rscript", "--vanilla", file.name], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def r_cases():
    source = "R " + subprocess.run(["Rscript", "--vanilla", "-e", "cat(format(getRversion()))"], capture_output=True,
                                   text=True, check=True).stdout
    cases = []

    def vector(values):
        return "c(" + ",".join(repr(v) for v in values) + ")"

    script, pending = "show <- function(...) cat(sprintf('%.17g\\n', c(...)), sep='')\n", []
    for n in (5, 6, 8, 13, 30):
        x = rounded(10 + rng.standard_normal(n), 9)
        y = rounded(10.3 + rng.standard_normal(n + 2), 9)
        script += (f"r <- wilcox.test({vector(y[:n])}, {vector(x)}, paired=TRUE, exact=TRUE, conf.int=TRUE)\n"
                   "show(r$p.value, r$estimate, r$conf.int)\n"
                   f"r <- wilcox.test({vector(y)}, {vector(x)}, exact=TRUE, conf.int=TRUE)\n"
                   "show(r$p.value, r$estimate, r$conf.int)\n")
        pending += [("hodges_lehmann_paired", x, y[:n]), ("hodges_lehmann", x, y)]
    found = iter(r_numbers(script))
    for call, x, y in pending:
        p, value, low, high = (next(found) for _ in range(4))
        cases.append(case(call, source, {"p": p, "value": value, "low": low, "high": high}, x=x, y=y))
    script, pending = "show <- function(...) cat(sprintf('%.17g\\n', c(...)), sep='')\nlibrary(nortest)\n", []
    for n in (5, 7, 10, 25, 60, 100, 140, 400):
        for kind in ("smooth", "times", "ties"):
            x = samples(n, kind)
            pending.append(x)
            script += f"r <- lillie.test({vector(x)})\nshow(r$statistic, r$p.value)\n"
    found = iter(r_numbers(script))
    for x in pending:
        cases.append(case("lilliefors", source + ", nortest", {"statistic": next(found), "p": min(1, next(found))},
                          x=x))
    p = [0.01, 0.02, 0.03, 0.04, 0.005, 0.04]
    cases.append(case("holm", source, {"all": r_numbers(f"cat(sprintf('%.17g\\n', p.adjust({vector(p)}, 'holm')), "
                                                        "sep='')")}, x=p))
    return cases


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")
    os.makedirs(folder, exist_ok=True)
    total = 0
    for make in (distribution_cases, wilcoxon_cases, mann_whitney_cases, correlation_cases, normality_cases,
                 effect_cases, group_cases, r_cases):
        cases = make()
        for each in cases:
            for value in each["expect"].values():
                assert all(math.isfinite(v) for v in (value if isinstance(value, list) else [value])), each
        name = make.__name__.removesuffix("_cases") + ".json"
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in cases) + "\n]\n")
        print(f"{name}: {len(cases)}")
        total += len(cases)
    print(total, "cases")


if __name__ == "__main__":
    main()
