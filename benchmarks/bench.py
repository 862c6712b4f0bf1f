#!/usr/bin/env python3
"""Times Tandem against PyTorch, interleaved in one run, and prints ratios with their intervals.

    python3 benchmarks/bench.py [--device cpu|cuda] [--cases NAME ...] [--rounds N] [--quick] [--json FILE]

Both sides are driver processes that answer JSON lines (peer_pytorch.py lists the requests). Before a case is timed,
both must give the same losses from the same weights. Then come rounds: in each, all variants run a block of steps in
random order and again in the reverse order. A side's time is the median over rounds; the ratio of medians has a 95 %
interval from resampling the rounds. The A/A row is our own program against a second copy of itself: the noise floor.
README.md in this folder says more. Needs the standard library only.
"""
import argparse
import json
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time

from harness import (HERE, PEER_BUILD, Bystanders, Driver, Runner, build, build_libtorch_peer, driver_runner,
                     find_peer_python, find_program, measure, read, summarise, usable)

# name: device -> model and phase (the drivers' case), batch, the goals by variant of ours: least ratio to the peer's
# best, or most nanoseconds. A goal is printed beside the figure; nothing fails by it.
TIMED = {
    "lenet_train": {"cpu": {"batch": 100, "goals": {"eager": 2.5, "graph": 3.0}},
                    "cuda": {"batch": 100, "goals": {"graph": 1.2}}},
    "mnist_cnn_train": {"cpu": {"batch": 128, "goals": {"graph": 1.2}}, "cuda": {"batch": 128}},
    "mlp_train": {"cpu": {"batch": 100}, "cuda": {"batch": 100}},
    "cifar10_cnn_train": {"cpu": {"batch": 128, "goals": {"graph": 1.2}}, "cuda": {"batch": 128}},
    "cifar100_cnn_train": {"cpu": {"batch": 128, "goals": {"graph": 1.2}}, "cuda": {"batch": 128}},
    "lenet_infer": {"cpu": {"batch": 100}, "cuda": {"batch": 100}},
    "lenet_infer_1": {"cpu": {"batch": 1, "case": "lenet_infer"}, "cuda": {"batch": 1, "case": "lenet_infer"}},
}
# One pointwise function of a million floats, `--cases functions`.
FUNCTIONS = [f"function_{name}" for name in ("exp", "tanh", "sigmoid", "gelu", "erf", "silu")]
for _name in FUNCTIONS:
    _goals = {"eager": 1.5} if _name not in ("function_erf", "function_silu") else {}
    TIMED[_name] = {"cpu": {"batch": 1_000_000, "goals": _goals}, "cuda": {"batch": 1_000_000}}
CASES = {"cpu": ["lenet_train", "mnist_cnn_train", "mlp_train", "lenet_infer", "lenet_infer_1", "add16", "startup",
                 "memory"],
         "cuda": ["lenet_train", "mnist_cnn_train", "cifar10_cnn_train", "cifar100_cnn_train", "flat_memory"]}
# Layers of the "conv" suite: n, c, h, w, o, kernel, stride, padding, groups.
CONVS = {f"conv {c}->{o} at {size}": (128, c, size, size, o, 3, 1, 1, 1)
         for c, o, size in ((3, 32, 32), (32, 32, 32), (32, 64, 16), (64, 64, 16), (3, 128, 32), (128, 128, 32),
                            (128, 256, 16), (256, 256, 16), (256, 512, 8), (512, 512, 8))}
CONVS.update({f"depthwise {c} at {size}, stride {stride}": (32, c, size, size, c, 3, stride, 1, c)
              for c, size, stride in ((32, 112, 1), (64, 112, 2), (128, 56, 1), (256, 28, 2), (512, 14, 1))})
COMPILED_ON_CPU = {"lenet_train"}  # torch.compile takes half a minute a case on two cores and lost wherever tried
TOLERANCE = {"cpu": 1e-4, "cuda": 3e-3}  # of the losses; TF32 keeps 10 bits of each factor


def digits(value):
    """Three digits, never in powers of ten."""
    return f"{value:.{max(0, 2 - int(math.floor(math.log10(value))))}f}" if value > 0 else "0"


def unit_of(seconds):
    return next((u for u in ((1, "s"), (1e-3, "ms"), (1e-6, "us")) if seconds >= u[0]), (1e-9, "ns"))


def print_case(result):
    print(f"\n{result['case']}   {result.get('about', '')}")
    table = [("", "", "median", "95 %", "ratio", "95 %", "goal")]
    for row in result["rows"]:
        scale, unit = unit_of(row["seconds"])
        low, high = (s / scale for s in row["seconds_interval"])
        cells = [row["side"], row["variant"], digits(row["seconds"] / scale) + " " + unit,
                 digits(low) + " - " + digits(high), "", "", ""]
        if "ratio" in row:
            cells[4] = f"{row['ratio']:.2f}x"
            cells[5] = f"{row['ratio_interval'][0]:.2f} - {row['ratio_interval'][1]:.2f}"
            if row.get("best_of_peer"):
                cells[5] = "the peer's best"
        if "goal" in row:
            goal = row["goal"]
            cells[6] = (f"{goal:g}x" if goal > 0 else f"< {-goal * 1e9:.0f} ns" if goal > -1e-3 else
                        f"< {-goal * 1e3:.0f} ms") + (" met" if row["met"] else " MISSED")
        table.append(cells)
    widths = [max(len(row[c]) for row in table) for c in range(7)]
    for row in table:
        cells = [c.ljust(w) if n < 2 else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths))]
        print("  " + "  ".join(cells).rstrip())
    for note in result["notes"]:
        print(f"  note: {note}")


def check_equal(drivers, request, device):
    """The equivalence gate: same weights, same batches, three steps, the same losses. None, or what differs."""
    answers = {d.name: d.ask({"do": "check", "steps": 3, "device": device, **request}) for d in drivers}
    for name, answer in answers.items():
        if "error" in answer:
            return f"{name}: {answer['error']}"
    values = {(name, key): losses for name, answer in answers.items() for key, losses in answer.items()}
    (first, reference), *others = values.items()
    for key, losses in others:
        for a, b in zip(reference, losses):
            if not abs(a - b) <= TOLERANCE[device] * abs(a):
                return f"{' '.join(first)} {reference}, {' '.join(key)} {losses}"
    return None


def timed_case(name, sides, options):
    spec, device = TIMED[name][options.device], options.device
    request = {"case": spec.get("case", name), "batch": spec["batch"], "device": device, "threads": options.threads}
    notes = []
    model = request["case"].rsplit("_", 1)[0]
    gate_case = request["case"] if model == "function" else model + "_train"
    gate = check_equal([d for d in (sides.ours, sides.peer) if d], {**request, "case": gate_case}, device)
    if gate:
        return {"case": name, "rows": [], "notes": [f"NOT TIMED: the two sides do not compute the same: {gate}"],
                "failed": True}
    limits = (5, 2, 400) if device == "cpu" else (20, 50, 1000)
    runners = []
    if sides.ours:
        runners += [driver_runner(sides.ours, "tandem", v, request, limits) for v in ("eager", "graph")]
        runners.append(driver_runner(sides.twin, "tandem", "graph", request, limits, "graph A/A"))
    if sides.peer:
        for variant in sides.peer.about["variants"][device]:
            if variant == "captured" and not request["case"].endswith("train"):
                continue
            if variant == "compile" and device == "cpu" and (name not in COMPILED_ON_CPU or options.quick):
                continue
            runners.append(driver_runner(sides.peer, "pytorch", variant, request, limits))
    runners = usable(runners, notes)
    goals = dict(spec.get("goals", {}))
    result = summarise(name, runners, measure(runners, options), goals, notes, options)
    losses = "same losses" if sides.ours and sides.peer else "one side only"
    where = "TF32 on cuda" if device == "cuda" else f"{options.threads} threads"
    result["about"] = f"batch {spec['batch']}, f32, {where}, {losses}"
    if device == "cuda" and name == "lenet_train":
        against_uncaptured(result)
    return result


def conv_case(name, sides, options):
    """Each pass of one layer on its own. PyTorch runs with oneDNN, and "tuned" without it."""
    layer, results = CONVS[name], []
    request = {"layer": layer, "case": name, "device": "cpu", "batch": layer[0], "threads": options.threads}
    gate = check_equal([d for d in (sides.ours, sides.peer) if d], request, "cpu")
    if gate:
        return [{"case": name, "rows": [], "notes": [f"NOT TIMED: the two sides differ: {gate}"], "failed": True}]
    for which in ("forward", "input", "weight"):
        runners, notes = [], []
        if sides.ours:
            runners.append(driver_runner(sides.ours, "tandem", which, request, (1, 1, 100)))
        if sides.peer:
            runners += [driver_runner(sides.peer, "pytorch", v, request, (1, 1, 100))
                        for v in (which, which + " tuned")]
        runners = usable(runners, notes)
        results.append(summarise(name, runners, measure(runners, options), {}, notes, options))
        results[-1]["about"] = f"batch {layer[0]}, f32, {options.threads} threads"
    return results


def against_uncaptured(result):
    """The second goal on a GPU: our graph against PyTorch's best without a capture by hand."""
    plain = [r for r in result["rows"] if r["side"] == "pytorch" and r["variant"] != "captured"]
    ours = [r for r in result["rows"] if r["side"] == "tandem" and r["variant"] == "graph"]
    if plain and ours:
        best = min(plain, key=lambda r: r["seconds"])
        value = best["seconds"] / ours[0]["seconds"]
        result["ratio_uncaptured"] = value
        result["notes"].append(f"tandem graph is {value:.2f}x pytorch {best['variant']}, the best without a capture by "
                               f"hand (goal 6x {'met' if value >= 6 else 'MISSED'})")


def add16_case(sides, options):
    """Two tensors of 16 floats added in a loop, without and with gradient recording."""
    notes, results = [], []
    native, problem = build_libtorch_peer(sides.torch_path) if sides.peer else (None, None)
    libtorch = Driver("libtorch", [native]) if native else None
    if problem:
        notes.append(f"no libtorch program ({problem}): PyTorch is timed from Python, which adds its own overhead")
    for variant, goal in (("plain", 300e-9), ("recorded", 600e-9)):
        request = {"case": "add16", "device": "cpu", "batch": 16, "threads": options.threads}
        limits = (2000, 1000, 200000)
        runners = []
        if sides.ours:
            runners = [driver_runner(sides.ours, "tandem", variant, request, limits, "C++"),
                       driver_runner(sides.twin, "tandem", variant, request, limits, "C++ A/A")]
        if libtorch:
            runners.append(driver_runner(libtorch, "libtorch", variant, request, limits, "C++"))
        if sides.peer:
            runners.append(driver_runner(sides.peer, "pytorch", variant, request, limits, "Python"))
        result = summarise(f"add16 {variant}", runners, measure(runners, options), {"C++": -goal}, notes, options)
        result["about"] = "two tensors of 16 floats, gradient " + ("recorded" if variant == "recorded" else "off")
        results.append(result)
        notes = []
    if libtorch:
        libtorch.close()
    return results


# m, n, k, and whether each operand is stored transposed (t).
GEMM = [(n, n, n, "nn") for n in (64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)] + [
    (512, 512, 512, "nt"), (512, 512, 512, "tn"), (512, 512, 512, "tt"), (1024, 1024, 1024, "nt"),
    (1024, 1024, 1024, "tn"), (1, 1024, 1024, "nn"), (1, 1024, 1024, "nt"), (1024, 1, 1024, "nn"), (1024, 1, 1024, "tn"),
    (1, 4096, 4096, "nt"), (4096, 1, 4096, "nn"), (8, 1024, 1024, "nn"), (8, 1024, 1024, "nt"), (1024, 8, 1024, "nn"),
    (1024, 8, 1024, "tn"), (1024, 1024, 8, "nn"), (1024, 1024, 8, "tn"), (32, 2048, 512, "nt"), (2048, 32, 512, "nn"),
    (100, 120, 400, "nt"), (64, 64, 4096, "nn"), (3000, 10, 300, "nn")]


def gemm_case(sides, options):
    """f32 matrix products of many shapes; one row a shape, against the faster of PyTorch's two ways."""
    rows, notes = [], []
    for m, n, k, layout in GEMM:
        shape = f"{m}x{n}x{k} {layout}"
        request = {"case": "gemm", "shape": shape, "m": m, "n": n, "k": k, "layout": layout, "device": "cpu",
                   "threads": options.threads}
        gate = check_equal([d for d in (sides.ours, sides.peer) if d], {**request, "variant": "eager"}, "cpu")
        if gate:
            notes.append(f"{shape} NOT TIMED: {gate}")
            continue
        runners, limits = [], (5, 2, 4000)
        if sides.ours:
            runners.append(driver_runner(sides.ours, "tandem", "eager", request, limits))
        if sides.peer:
            runners += [driver_runner(sides.peer, "pytorch", v, request, limits) for v in ("eager", "tuned")]
        runners = usable(runners, notes)
        result = summarise(shape, runners, measure(runners, options), {}, [], options)
        rows.append({"shape": shape, "flops": 2 * m * n * k, "rows": result["rows"]})
    return {"case": "gemm", "rows": rows, "notes": notes, "failed": any("NOT TIMED" in note for note in notes)}


def print_gemm(result):
    print("\ngemm   f32 products m x n x k, operands plain (n) or transposed (t); ratio to PyTorch's faster way")
    print(f"  {'':>20}  {'ours':>9}  {'GFLOP/s':>8}  {'PyTorch':>9}  {'ratio':>6}  {'95 %':>13}")
    for row in result["rows"]:
        def cell(r):
            scale, unit = unit_of(r["seconds"])
            return digits(r["seconds"] / scale) + " " + unit
        ours = next((r for r in row["rows"] if r["side"] == "tandem"), None)
        best = next((r for r in row["rows"] if r.get("best_of_peer")), None)
        line = f"  {row['shape']:>20}  {cell(ours) if ours else '-':>9}  "
        line += f"{row['flops'] / ours['seconds'] / 1e9:8.1f}  " if ours else f"{'-':>8}  "
        line += f"{cell(best) if best else '-':>9}"
        if ours and best:
            line += f"  {ours['ratio']:5.2f}x  {ours['ratio_interval'][0]:.2f} - {ours['ratio_interval'][1]:.2f}"
        print(line)
    for note in result["notes"]:
        print(f"  note: {note}")


def startup_case(sides, options):
    """Wall time of a process that starts, loads the framework and ends."""
    def command_runner(side, label, command):
        def block(_):
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                           check=True)
            return [time.perf_counter() - start]
        return Runner(side, label, block, (1, 1, 1))
    runners, notes = [], []
    if sides.cli:
        runners.append(command_runner("tandem", "info", [sides.cli, "info"]))
    elif sides.ours:
        notes.append("the tandem command is not built; --cli PATH names it")
    if sides.peer:
        runners.append(command_runner("pytorch", "import", [sides.python, "-c", "import torch"]))
        native, _ = build_libtorch_peer(sides.torch_path)
        if native:
            runners.append(command_runner("libtorch", "program", [native]))
    rounds = measure(runners, options, most_rounds=5)
    result = summarise("startup", runners, rounds, {"info": -50e-3}, notes, options)
    result["about"] = "start, load, end"
    return result


def memory_case(sides, options):
    """Peak memory of 20 LeNet training steps over what the process held after one tiny op, each in a fresh process:
    heap bytes counted by one preloaded library in front of both, and resident bytes by the kernel's high-water mark."""
    counter = os.path.join(PEER_BUILD, "heap_peak.so")
    source = os.path.join(HERE, "heap_peak.c")
    problem = build(["gcc", "-O2", "-shared", "-fPIC", source, "-o", counter], counter, [source])
    environment = {} if problem else {"LD_PRELOAD": counter}
    rows, notes = [], [f"no heap count: {problem}"] if problem else []
    todo = []
    if sides.ours:
        todo += [("tandem", v, sides.ours.command) for v in ("eager", "graph")]
    if sides.peer:
        todo += [("pytorch", v, sides.peer.command) for v in ("eager", "tuned")]
    for side, variant, command in todo:
        taken = []
        for _ in range(1 if options.quick else 3):
            driver = Driver(side, command, environment)
            taken.append(driver.ask({"do": "memory", "case": "lenet_train", "variant": variant, "device": "cpu",
                                     "batch": 100, "steps": 20, "threads": options.threads}))
            driver.close()
        errors = [t["error"] for t in taken if "error" in t]
        if errors:
            notes.append(f"{side} {variant}: {errors[0]}")
            continue
        rows.append({"side": side, "variant": variant,
                     **{key: statistics.median(t[key] for t in taken) for key in taken[0]}})
    return {"case": "memory", "rows": rows, "notes": notes}


def print_memory(result):
    print("\nmemory   peak of 20 LeNet training steps (batch 100) over what the process held before, MiB")
    print(f"  {'':8}  {'':8}  {'heap':>8}  {'resident':>8}  {'our allocator':>13}")
    for row in result["rows"]:
        cells = [f"{row[k] / 2**20:.1f}" if k in row else "-" for k in ("heap", "resident", "allocator")]
        print(f"  {row['side']:8}  {row['variant']:8}  {cells[0]:>8}  {cells[1]:>8}  {cells[2]:>13}")
    for note in result["notes"]:
        print(f"  note: {note}")


def flat_case(sides, options):
    """Device memory before and after 2,000 more training steps of ours."""
    rows = []
    for case, batch in (("lenet_train", 100), ("mnist_cnn_train", 128)):
        for variant in ("eager", "graph"):
            answer = sides.ours.ask({"do": "flat", "case": case, "variant": variant, "device": options.device,
                                     "batch": batch, "steps": 200 if options.quick else 2000}) if sides.ours else {}
            if answer:
                flat = "error" not in answer and all(answer["before"][k] == answer["after"][k]
                                                     for k in ("in_use", "reserved"))
                rows.append({"case": case, "variant": variant, "flat": flat, **answer})
    return {"case": "flat_memory", "rows": rows, "notes": [], "failed": not all(row["flat"] for row in rows)}


def print_flat(result):
    print("\nflat_memory   device bytes after the warm-up -> after the steps")
    for row in result["rows"]:
        if "error" in row:
            print(f"  {row['case']} {row['variant']}: {row['error']}")
            continue
        pairs = ", ".join(f"{k} {row['before'][k]} -> {row['after'][k]}" for k in ("in_use", "reserved"))
        verdict = "flat" if row["flat"] else "GREW"
        print(f"  {row['case']:15}  {row['variant']:6} {row['steps']} steps: {pairs}  {verdict}")
    for note in result["notes"]:
        print(f"  note: {note}")


# ---- the run --------------------------------------------------------------------------------------------------------

class Sides:
    ours = twin = peer = cli = python = torch_path = None

    def close(self):
        for driver in (self.ours, self.twin, self.peer):
            if driver:
                driver.close()


def version_of(cli):
    """The command's version and the commit of this tree, where they can be had."""
    def first_line(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, cwd=HERE).stdout.split("\n")[0].strip()
        except OSError:
            return ""
    version = first_line(cli, "--version").split() if cli else []
    commit = first_line("git", "describe", "--always", "--dirty")
    return {"version": version[-1] if version else None, "commit": commit or None}


def start_sides(options):
    sides = Sides()
    threads = {"OMP_NUM_THREADS": str(options.threads),
               "TORCHINDUCTOR_CACHE_DIR": os.path.join(PEER_BUILD, "inductor")}
    if not options.peer_only:
        program = find_program("tandem_peer", options.tandem)
        if not program:
            raise SystemExit("bench: tandem_peer must be built; found none in build*/bin. Run './tandem bench', which "
                             "builds it, or name it with --tandem PATH.")
        sides.ours, sides.twin = Driver("tandem", [program]), Driver("tandem", [program])
        beside = os.path.join(os.path.dirname(program), "tandem")  # the command of the same build
        sides.cli = find_program("tandem", options.cli or (beside if os.path.isfile(beside) else None))
        sides.ours.about.update(version_of(sides.cli))
    if not options.no_peer:
        sides.python, sides.torch_path = find_peer_python()
        if sides.python:
            sides.peer = Driver("pytorch", [sides.python, os.path.join(HERE, "peer_pytorch.py")], threads)
    return sides


def environment(sides, options):
    cpu = next((line.split(":")[1].strip() for line in (read("/proc/cpuinfo") or "").splitlines()
                if line.lower().startswith("model name")), None)
    if not cpu and shutil.which("lscpu"):
        output = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
        cpu = next((line.split(":")[1].strip() for line in output.splitlines() if line.startswith("Model name")), None)
    about = {"date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "machine": platform.machine(), "system": platform.platform(),
             "cpu": cpu or platform.processor() or "unknown", "cpus_allowed": len(os.sched_getaffinity(0)),
             "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown",
             "load": os.getloadavg()[0], "threads": options.threads, "device": options.device,
             "rounds": options.rounds, "seed": options.seed, "python": sysconfig.get_python_version()}
    about["tandem"] = sides.ours.about if sides.ours else "absent"
    about["peer"] = sides.peer.about if sides.peer else "absent"
    warnings = []
    if about["load"] > 1:
        warnings.append(f"the load average is {about['load']:.2f}: other programs are running, figures will be noisy")
    if about["governor"] not in ("performance", "unknown"):
        warnings.append(f"the CPU governor is '{about['governor']}': clock rates will move")
    if options.threads > about["cpus_allowed"]:
        warnings.append(f"{options.threads} threads on {about['cpus_allowed']} CPUs")
    if sides.ours and sides.ours.about.get("debug"):
        warnings.append("our side is a debug or sanitizer build: its times mean nothing")
    if not sides.peer and not options.no_peer:
        warnings.append("no Python here can import torch: PyTorch is absent and only our side runs")
    about["warnings"] = warnings
    return about


def print_environment(about):
    print(f"{about['cpu']} ({about['machine']}), {about['threads']} of {about['cpus_allowed']} CPUs, governor "
          f"{about['governor']}, load {about['load']:.2f}, {about['rounds']} rounds, seed {about['seed']}")
    for side in ("tandem", "peer"):
        info = about[side]
        if not isinstance(info, str):
            keys = ("framework", "version", "commit", "compiler", "cpu", "blas", "gpu", "cudnn")
            info = ", ".join(f"{k} {info[k]}" for k in keys if info.get(k))
        print(f"  {side:6}  {info}")
    for warning in about["warnings"]:
        print(f"  WARNING: {warning}")


def parse():
    parser = argparse.ArgumentParser(description="Tandem against PyTorch, interleaved in one run.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="default: all of the device")
    parser.add_argument("--rounds", type=int, help="default 10, with --quick 3")
    parser.add_argument("--quick", action="store_true", help="few short rounds: does it run, not how fast")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of both sides (default 2)")
    parser.add_argument("--json", metavar="FILE", help="also write everything to FILE")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the blocks and of the bootstrap")
    parser.add_argument("--tandem", metavar="PATH", help="our driver, the built tandem_peer")
    parser.add_argument("--cli", metavar="PATH", help="the built tandem command, for the startup case")
    parser.add_argument("--no-peer", action="store_true", help="our side alone")
    parser.add_argument("--peer-only", action="store_true", help="the peer alone")
    parser.add_argument("--verbose", action="store_true", help="let the drivers write to stderr")
    options = parser.parse_args()
    suites = {"functions": FUNCTIONS, "conv": CONVS}
    options.cases = [case for name in options.cases or CASES[options.device] for case in suites.get(name, [name])]
    known = set(TIMED) | {"flat_memory"}
    if options.device == "cpu":
        known = set(TIMED) | set(CONVS) | {"add16", "gemm", "startup", "memory"}
    unknown = [c for c in options.cases if c not in known]
    if unknown:
        parser.error(f"--cases must be of {', '.join(sorted(known))} on {options.device}; got {' '.join(unknown)}")
    options.rounds = options.rounds or (3 if options.quick else 10)
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    options.block = 0.03 if options.quick else 0.12  # seconds a block, roughly
    options.rng = random.Random(options.seed)
    return options


def main():
    options = parse()
    Driver.verbose = options.verbose
    if options.device == "cpu" and options.threads < len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])  # both sides inherit it
    sides = start_sides(options)
    about = environment(sides, options)
    print_environment(about)
    start, results = time.perf_counter(), []
    for case in options.cases:
        watch = Bystanders([d for d in (sides.ours, sides.twin, sides.peer) if d])
        if case == "add16":
            done = add16_case(sides, options)
        elif case == "gemm":
            done = [gemm_case(sides, options)]
        elif case in CONVS:
            done = conv_case(case, sides, options)
        elif case == "startup":
            done = [startup_case(sides, options)]
        elif case == "memory":
            done = [memory_case(sides, options)]
        elif case == "flat_memory":
            done = [flat_case(sides, options)]
        else:
            done = [timed_case(case, sides, options)]
        others = watch.share()
        for result in done:
            result["cpu_of_others"] = others
            if others > 0.05:
                result["notes"].append(f"WARNING: others took {others:.0%} of the CPU time meanwhile; measure again")
            {"memory": print_memory, "flat_memory": print_flat, "gemm": print_gemm}.get(result["case"], print_case)(result)
            sys.stdout.flush()
        results += done
    sides.close()
    print(f"\n{time.perf_counter() - start:.0f} s")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"environment": about, "results": results}, file, indent=1)
            file.write("\n")
    return 1 if any(r.get("failed") for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
