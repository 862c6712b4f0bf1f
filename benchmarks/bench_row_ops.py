#!/usr/bin/env python3
"""Reductions, softmax and normalisation of a million floats against PyTorch on CPU, interleaved in one run.

    python3 benchmarks/bench_row_ops.py [--cases NAME ...] [--rounds N] [--threads N]

Both sides must give the same numbers before a case is timed. The method, the table and the way both sides are found are
those of bench.py.
"""
import argparse
import os
import random
import sys

from bench import print_case
from harness import HERE, Bystanders, Driver, driver_runner, find_peer_python, find_program, measure, summarise

GOALS = {"sum_all": 1.5, "sum_rows": 1.5, "sum_columns": 1.5, "softmax": 1.5, "layer_norm": 1.5}
CASES = [*GOALS, "max_rows", "log_softmax", "softmax_columns", "softmax_step", "layer_norm_step", "batch_norm",
         "batch_norm_step", "group_norm", "group_norm_step", "cumsum"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", metavar="NAME", default=CASES, choices=CASES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tandem", metavar="PATH", help="the built row_ops")
    options = parser.parse_args()
    options.block, options.rng = 0.05, random.Random(1)
    program, (python, _) = find_program("row_ops", options.tandem), find_peer_python()
    if not program or not python:
        raise SystemExit("bench_row_ops: row_ops must be built and a Python must have torch; see README.md.")
    ours = Driver("tandem", [program])
    peer = Driver("pytorch", [python, os.path.join(HERE, "peer_row_ops.py")],
                  {"OMP_NUM_THREADS": str(options.threads)})
    failed = False
    for case in options.cases:
        request = {"case": case, "threads": options.threads}
        values = [d.ask({"do": "check", **request}) for d in (ours, peer)]
        if any("values" not in v for v in values) or any(
                abs(a - b) > 1e-4 * (1 + abs(b)) for a, b in zip(values[0]["values"], values[1]["values"])):
            print(f"{case}: NOT TIMED, the two sides do not compute the same: {values}")
            failed = True
            continue
        watch = Bystanders([ours, peer])
        runners = [driver_runner(d, d.name, "eager", request, (5, 5, 2000)) for d in (ours, peer)]
        goals = {"eager": GOALS[case]} if case in GOALS else {}
        result = summarise(case, runners, measure(runners, options), goals, [], options)
        if watch.share() > 0.05:
            result["notes"].append(f"WARNING: others took {watch.share():.0%} of the CPU time meanwhile; measure again")
        print_case(result)
    for driver in (ours, peer):
        driver.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
