"""Walks a driver through the whole of lab/docs/protocol.md, and compares two drivers.

    python3 lab/drivers/test_driver.py -- COMMAND...                        every workload that it offers, first variant
    python3 lab/drivers/test_driver.py --workloads lenet,vgg16 --variants all -- COMMAND...
    python3 lab/drivers/test_driver.py -- COMMAND... --against COMMAND2...  the answers to check must agree, too

Data are random and small and lie in a temporary folder; each class has a pattern of its own, so that fit has something
to learn. Prints a table and "N passed, M failed"; exits with 1 where something failed. Needs NumPy, and Python 3.11 or
later for TOML.
"""
import argparse
import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import numpy as np

WORKLOADS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "studies", "workloads")
BATCH = 4
# With a batch of 4 resnet18's last statistics are of four numbers each, and in f32 rounding moves gradients and losses
# by per cents on some samples, while in f64 two drivers agree to 2e-13 (lab/docs/drivers.md).
LARGER_BATCH = {"resnet18": 8}
SMALL_INPUT = {"vgg16": [3, 32, 32]}  # the others are tried at the size of their definition
SEED = 11
# Relative differences between two drivers. Sums of many terms, and steps that build on each other, let
# differences of rounding grow: gradients are given five times as much, the losses of the steps ten times.
TOLERANCE = {"f32": 2e-4, "tf32": 5e-3, "bf16": 5e-2, "f16": 1e-2, "f64": 1e-6}
LENET = {"conv1.weight": (6, 1, 5, 5), "conv1.bias": (6,), "conv2.weight": (16, 6, 5, 5), "conv2.bias": (16,),
         "fc1.weight": (120, 400), "fc1.bias": (120,), "fc2.weight": (84, 120), "fc2.bias": (84,),
         "fc3.weight": (10, 84), "fc3.bias": (10,)}


class Broken(Exception):
    """The driver died, hung or printed something that is no answer."""


class Process:
    """A driver's process, one request at a time."""

    def __init__(self, command, timeout):
        self.timeout = timeout
        self.number = 0
        self.errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def last_words(self):
        self.errors.seek(0)
        return self.errors.read()[-600:].decode("utf-8", "replace").strip()

    def line(self):
        try:
            line = self.lines.get(timeout=self.timeout)
        except queue.Empty:
            raise Broken("no answer within %g s" % self.timeout)
        if line is None:
            raise Broken("ended without an answer; last words: " + self.last_words())
        try:
            return json.loads(line)
        except ValueError:
            raise Broken("printed %r where an answer must be" % line[:200])

    def send(self, text):
        try:
            self.child.stdin.write(text.encode() + b"\n")
            self.child.stdin.flush()
        except OSError:
            raise Broken("ended; last words: " + self.last_words())

    def call(self, call, **fields):
        """The answer; lines of progress before it are under "lines"."""
        self.number += 1
        self.send(json.dumps(dict(fields, id=self.number, call=call)))
        progress = []
        while True:
            answer = self.line()
            if answer.get("id") != self.number:
                raise Broken("the answer has id %r where %d was asked" % (answer.get("id"), self.number))
            if "progress" not in answer:
                answer["lines"] = progress
                return answer
            progress.append(answer["progress"])

    def end(self):
        """Closes its input; -> the exit status."""
        self.child.stdin.close()
        try:
            return self.child.wait(timeout=min(60, self.timeout))
        except subprocess.TimeoutExpired:
            self.child.kill()
            return "did not end"


class Table:
    """The results, printed as they come."""

    def __init__(self):
        self.passed = self.failed = 0

    def row(self, where, what, fault, seen=""):
        self.passed, self.failed = self.passed + (not fault), self.failed + bool(fault)
        print("%-22s %-46s %-6s %s" % (where, what, "FAILED" if fault else "ok", fault or seen), flush=True)

    def note(self, where, what, text):
        print("%-22s %-46s %-6s %s" % (where, what, "-", text), flush=True)

    def check(self, where, what, holds, seen=""):
        self.row(where, what, None if holds else "got " + (str(seen) or "otherwise"), seen)
        return holds


def hashed(index, seed):
    """The protocol's hash, written out with plain integers: independent of the frame's."""
    m = 2**32
    h = (index * 0x9E3779B1 + seed * 0x7F4A7C15) % m
    h = (h ^ (h >> 16)) * 0x85EBCA6B % m
    h = (h ^ (h >> 13)) * 0xC2B2AE35 % m
    return h ^ (h >> 16)


def write_lenet(path, seed):
    """LeNet's weights by the formula, as a safetensors file."""
    header, body = {}, b""
    for number, name in enumerate(sorted(LENET)):
        shape = LENET[name]
        width = np.float32(math.sqrt(6 / math.prod(shape[1:]))) if len(shape) > 1 else np.float32(0.05)
        unit = [(hashed(i, seed + number) >> 8) * 2.0**-24 - 0.5 for i in range(math.prod(shape))]
        data = (np.array(unit, dtype=np.float32) * 2 * width).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + body)


def write_data(folder, name, sizes, classes, samples):
    """Noise and, by class, a pattern; -> {"x": PATH, "y": PATH}."""
    random = np.random.default_rng([len(name), samples] + list(sizes))
    patterns = np.random.default_rng(list(sizes)).standard_normal([classes] + list(sizes))
    y = (np.arange(samples) * 7 % classes).astype(np.int64)
    x = (0.5 * random.standard_normal([samples] + list(sizes)) + patterns[y]).astype(np.float32)
    paths = {part: os.path.join(folder, "%s_%s.npy" % (name, part)) for part in "xy"}
    np.save(paths["x"], x)
    np.save(paths["y"], y)
    return paths


def numbers(value):
    """All numbers of a nested answer, None where one is null."""
    if isinstance(value, dict):
        return [n for key in sorted(value) for n in numbers(value[key])]
    return [n for item in value for n in numbers(item)] if isinstance(value, list) else [value]


def finite(value):
    found = numbers(value)
    return bool(found) and all(isinstance(n, (int, float)) and math.isfinite(n) for n in found)


def distance(a, b, floor=1.0):
    """The largest relative difference. Numbers below `floor` times the largest one count as that large."""
    a, b = numbers(a), numbers(b)
    if len(a) != len(b) or not a or None in a or None in b:
        return math.inf
    a, b = np.array(a, dtype=np.float64), np.array(b, dtype=np.float64)
    larger = np.maximum(np.abs(a), np.abs(b))
    return float((np.abs(a - b) / np.maximum(larger, max(floor * larger.max(), 1e-30))).max())


class Walk:
    """One driver through everything."""

    def __init__(self, command, options, table, folder):
        self.command, self.options, self.table, self.folder = command, options, table, folder
        self.process = None
        self.known = None
        self.definitions = {}
        for file in sorted(os.listdir(WORKLOADS)):
            with open(os.path.join(WORKLOADS, file), "rb") as toml:
                definition = tomllib.load(toml)
            self.definitions[definition["name"]] = definition

    def start(self):
        self.process = Process(self.command, self.options.timeout)

    def cell(self, name, **changes):
        definition = self.definitions[name]
        sizes = SMALL_INPUT.get(name, definition["input"])
        batch = LARGER_BATCH.get(name, BATCH)
        phases = self.known["phases"]
        wanted = self.options.precision
        # A tenth of the learning rate: with weights from the hash and a batch this small the deep ones would diverge.
        optimizer = dict(definition["optimizer"], lr=definition["optimizer"]["lr"] / 10)
        fields = {"workload": dict(definition, optimizer=optimizer), "variant": self.known["variants"][0],
                  "track": "equal", "batch": batch, "device": self.options.device,
                  "phase": "train" if "train" in phases else phases[0],
                  "threads": self.options.threads, "precision": wanted, "seed": 3, "input": sizes, "dropout": False,
                  "weights": {"hash": SEED}, "switches": {},
                  "data": {part: write_data(self.folder, part + "_" + name, sizes, definition["classes"], samples)
                           for part, samples in (("train", 10 * batch), ("test", 2 * batch + 1))}}
        fields.update(changes)
        return {key: value for key, value in fields.items() if value is not None}

    def ask(self, where, call, **fields):
        """A call that must succeed; None and a failed row where it does not."""
        answer = self.process.call(call, **fields)
        if answer.get("ok") is not True:
            self.table.row(where, call, json.dumps(answer.get("error")))
            return None
        return answer

    def hello(self):
        self.start()
        answer = self.ask("hello", "hello")
        if answer is None:
            raise Broken("hello was not answered")
        self.known = answer
        lists = ("variants", "devices", "workloads", "phases", "precisions")
        wrong = [name for name in lists if not answer.get(name) or not all(isinstance(v, str) for v in answer[name])]
        wrong += [name for name in ("framework", "version") if not isinstance(answer.get(name), str)]
        wrong += [name for name in ("switches", "libraries") if not isinstance(answer.get(name), dict)]
        self.table.check("hello", "fields", not wrong and answer.get("protocol") == 1, ", ".join(wrong) or "%s %s" % (
            answer["framework"], answer["version"]))
        # It may have more models, for a user's own workloads.
        known = [name for name in answer["workloads"] if name in self.definitions]
        self.table.check("hello", "workloads of lab/studies/workloads", known, ", ".join(known))

    def declines(self, what, call, kind="declined", names=None, **fields):
        error = self.process.call(call, **fields).get("error") or {}
        good = error.get("kind") == kind and (names is None or error.get("what") == names) and error.get("message")
        self.table.check("bad requests", what, good, "%s: %s" % (error.get("kind"), error.get("message")))

    def bad_requests(self):
        workload = [name for name in self.known["workloads"] if name in self.definitions][0]
        cell = self.cell(workload)
        self.declines("run before prepare", "run", kind="failed", region="latency", steps=1)
        self.declines("an unknown call", "dance", names="dance")
        strange = dict(cell["workload"], name="no_such_net", model="no_such_net")
        self.declines("an unknown workload", "prepare", names="workload", **dict(cell, workload=strange))
        self.declines("an unknown switch", "prepare", names="no.such", **dict(cell, switches={"no.such": "on"}))
        for name in self.known["switches"]:
            self.declines("an unknown value of " + name, "prepare", names=name,
                          **dict(cell, switches={name: "sideways"}))
        for name in ("variant", "phase", "device", "precision"):
            self.declines("an unknown " + name, "prepare", names=name, **dict(cell, **{name: "sideways"}))
        gone = os.path.join(self.folder, "absent.npy")
        self.declines("a missing data file", "prepare", kind="failed", **dict(
            cell, data={"train": {"x": gone, "y": gone}}))
        self.declines("a missing weights file", "prepare", kind="failed", **dict(cell, weights={"file": gone}))
        self.declines("a batch of 0", "prepare", kind="failed", **dict(cell, batch=0))
        unknown_optimizer = dict(cell["workload"], optimizer={"name": "wishful", "lr": 1})
        if "train" in self.known["phases"]:
            self.declines("an unknown optimiser", "prepare", names="optimizer",
                          **dict(cell, workload=unknown_optimizer))
        self.process.send("this is no JSON")
        error = self.process.line()
        self.table.check("bad requests", "a line that is no JSON", error.get("ok") is False, error)
        self.table.check("bad requests", "lives on", self.process.call("hello").get("ok") is True)

    def endings(self):
        answer = self.process.call("quit")
        status = self.process.end()
        self.table.check("endings", "quit answers and exits with 0", answer.get("ok") is True and status == 0, status)
        self.start()
        answer = self.process.call("quit")
        status = self.process.end()
        self.table.check("endings", "quit as the first call", answer.get("ok") is True and status == 0, status)
        self.start()
        status = self.process.end()
        self.table.check("endings", "the end of the input exits with 0", status == 0, status)

    def workload(self, name, variant):
        """-> the answer to check, for the comparison."""
        where = "%s %s" % (name, variant)
        checked = None
        cell = self.cell(name, variant=variant)
        if cell["phase"] == "train":
            checked = self.training(where, name, variant, cell)
            if checked is None:
                return None
        if "infer" in self.known["phases"]:
            inferred = self.inference(where, self.cell(name, variant=variant, phase="infer", dropout=True), checked)
            checked = checked or inferred
        return checked

    def prepared(self, where, cell):
        answer = self.process.call("prepare", **cell)
        error = answer.get("error") or {}
        if error.get("kind") == "declined":
            self.table.note(where, "prepare", "declined: " + error.get("message", ""))
            return None
        if answer.get("ok") is not True:
            self.table.row(where, "prepare", json.dumps(error))
            return None
        good = isinstance(answer.get("parameters"), int) and answer.get("prepare_ns", 0) > 0 and \
            isinstance(answer.get("obeyed"), dict) and isinstance(answer.get("notes"), list)
        self.table.check(where, "prepare", good, "%s parameters, %.3f s" % (
            answer.get("parameters"), answer.get("prepare_ns", 0) / 1e9))
        return answer

    def training(self, where, name, variant, cell):
        table, steps = self.table, 5
        prepared = self.prepared(where, cell)
        checked = prepared and self.ask(where, "check", steps=steps)
        if checked is None:
            return None
        classes = cell["workload"]["classes"]
        logits = checked["logits"]
        table.check(where, "check: logits", len(logits) == 4 and all(len(row) == classes for row in logits)
                    and finite(logits), "%d × %d" % (len(logits), len(logits[0])))
        loss, losses = checked["loss"], checked["losses"]
        table.check(where, "check: losses, the first being the loss", len(losses) == steps and finite(losses) and
                    distance([loss], losses[:1]) < 1e-3, "%s, %s" % (loss, losses))
        table.check(where, "check: gradients", finite(checked["gradients"]) and min(
            checked["gradients"].values()) >= 0 and checked["parameters"] == prepared["parameters"],
            "%d norms" % len(checked["gradients"]))
        self.regions(where, updates=steps)

        repeated = self.prepared(where, cell) and self.ask(where, "check", steps=steps)
        if repeated:
            apart = max(distance(checked[key], repeated[key]) for key in ("logits", "gradients", "losses"))
            table.check(where, "check: repeats itself", apart < TOLERANCE[cell["precision"]] / 10, "%.2g apart" % apart)
        if name == "lenet":
            path = os.path.join(self.folder, "lenet.safetensors")
            write_lenet(path, SEED)
            loaded = self.prepared(where, dict(cell, weights={"file": path})) and self.ask(where, "check", steps=0)
            if loaded:
                apart = max(distance(checked[key], loaded[key]) for key in ("logits", "gradients"))
                table.check(where, "weights: file and hash agree", apart < 1e-5, "%.2g apart" % apart)
        dropped = self.prepared(where, dict(cell, dropout=True)) and self.ask(where, "check", steps=0)
        if dropped:
            apart = distance(checked["logits"], dropped["logits"])
            table.check(where, "dropout is off in test mode", apart < TOLERANCE[cell["precision"]] / 10,
                        "%.2g apart" % apart)
        self.fitting(where, cell)
        shipped = self.process.call("prepare", **self.cell(name, variant=variant, track="as_shipped", weights=None))
        if (shipped.get("error") or {}).get("kind") == "declined":
            table.note(where, "as shipped", "declined: " + shipped["error"]["message"])
        else:
            table.check(where, "as shipped", shipped.get("parameters") == prepared["parameters"],
                        shipped.get("error") or "; ".join(shipped["notes"]))
        return checked

    def regions(self, where, updates):
        """Both regions of run, and breakdown, in the phase that is prepared."""
        table, steps = self.table, 6
        before = time.monotonic_ns()
        run = self.ask(where, "run", region="latency", steps=steps)
        after = time.monotonic_ns()
        if run:
            edges = [t for pair in run["steps"] for t in pair]
            good = len(edges) == 2 * steps and all(isinstance(t, int) for t in edges) and edges == sorted(edges) and \
                before <= edges[0] and edges[-1] <= after
            expected = 0 if updates is False else updates + steps
            table.check(where, "run: latency", good and run["updates"] == expected,
                        "%d steps, last %.2f ms, updates %d" % (steps, (edges[-1] - edges[-2]) / 1e6, run["updates"]))
        before = time.monotonic_ns()
        sustained = self.ask(where, "run", region="throughput", steps=steps)
        after = time.monotonic_ns()
        if sustained:
            good = before <= sustained["begin"] < sustained["end"] <= after and sustained["count"] == steps
            table.check(where, "run: throughput", good,
                        "%.2f ms per step" % ((sustained["end"] - sustained["begin"]) / 1e6 / steps))
        if run and sustained and updates is False:
            first, second = run["output_sum"], sustained["output_sum"]
            table.check(where, "inference repeats itself", finite([first, second]) and run["loss"] is None and
                        abs(first - second) <= 1e-5 * max(1, abs(first)), "%s and %s" % (first, second))
        answer = self.process.call("breakdown", steps=2)
        error = answer.get("error") or {}
        if error.get("kind") == "declined":
            table.note(where, "breakdown", "declined: " + error.get("message", ""))
        else:
            shares = [answer.get(name) for name in ("kernel_share", "copy_share") if name in answer]
            good = not shares or finite(shares) and 0 <= min(shares) and max(shares) <= 1.05
            table.check(where, "breakdown", good and answer.get("ok") is True and bool(answer.get("source")),
                        error or "%s: kernels %s, largest %s" % (
                            answer.get("source"), answer.get("kernel_share"), (answer.get("ops") or [["?"]])[0][0]))

    def inference(self, where, cell, checked):
        where += " infer"
        prepared = self.prepared(where, cell)
        answer = prepared and self.ask(where, "check", steps=0)
        if answer is None:
            return None
        self.table.check(where, "check: logits alone", finite(answer["logits"]) and "losses" not in answer)
        if checked:
            apart = distance(answer["logits"], checked["logits"])
            self.table.check(where, "check: as in phase train", apart < TOLERANCE[cell["precision"]],
                             "%.2g apart" % apart)
        self.regions(where, updates=False)
        return answer

    def fitting(self, where, cell):
        table, epochs = self.table, 3
        if self.prepared(where, dict(cell, dropout=True)) is None:
            return
        answer = self.process.call("fit", epochs=epochs, cap_s=self.options.timeout)
        error = answer.get("error") or {}
        if error.get("kind") == "declined":
            table.note(where, "fit", "declined: " + error.get("message", ""))
            return
        if answer.get("ok") is not True:
            table.row(where, "fit", json.dumps(error))
            return
        lines = answer["lines"]
        table.check(where, "fit: one line per epoch", [line["epoch"] for line in lines] == list(range(1, epochs + 1)) and
                    answer["epochs"] == epochs and answer["capped"] is False, "%d lines" % len(lines))
        times = [line[name] for line in lines for name in ("begin", "train_end", "end")]
        table.check(where, "fit: times", times == sorted(times), "%.3f s an epoch" % ((times[1] - times[0]) / 1e9))
        confusion = np.array(answer["confusion"])
        right = float(np.trace(confusion)) / max(1, confusion.sum())
        table.check(where, "fit: confusion counts every test sample", confusion.sum() == 2 * cell["batch"] + 1 and
                    abs(right - lines[-1]["test_accuracy"]) < 1e-9, "accuracy %.2f" % right)
        kept = [line[name] for line in lines for name in ("loss", "accuracy", "test_loss")]
        table.check(where, "fit: losses", finite(kept) and all(0 <= line["accuracy"] <= 1 for line in lines),
                    " ".join(str(line["loss"])[:6] for line in lines))
        capped = self.ask(where, "fit", epochs=epochs, cap_s=1e-6)
        if capped:
            table.check(where, "fit: stops at the cap", capped["capped"] is True and capped["epochs"] == 1,
                        "%d epoch" % capped["epochs"])

    def everything(self):
        """-> {(workload, variant): answer to check}."""
        self.hello()
        if not self.options.no_bad_requests:
            self.bad_requests()
        found = {}
        names = self.options.workloads.split(",") if self.options.workloads else self.known["workloads"]
        variants = self.known["variants"] if self.options.variants == "all" else \
            self.options.variants.split(",") if self.options.variants else self.known["variants"][:1]
        for name in [name for name in names if name in self.definitions]:
            for variant in variants:
                try:
                    found[name, variant] = self.workload(name, variant)
                except Broken as error:
                    self.table.row("%s %s" % (name, variant), "the process", str(error))
                    self.process.end()
                    self.start()
        self.endings()
        return found


def compare(first, other, options, table, folder):
    """The answers to check of `first` against those of another driver, whose first variant answers."""
    walk = Walk(other, options, table, folder)
    walk.start()
    walk.known = walk.process.call("hello")
    allowed = TOLERANCE[options.precision]
    for (name, variant), mine in first.items():
        where = "%s %s" % (name, variant)
        if mine is None or name not in walk.known.get("workloads", ()):
            table.note(where, "against", "one of the two does not have it")
            continue
        cell = walk.cell(name, phase="train" if "losses" in mine and "train" in walk.known["phases"] else "infer")
        prepared = walk.process.call("prepare", **cell)
        theirs = prepared.get("ok") and walk.ask(where, "check", steps=len(mine.get("losses", ())))
        if not theirs:
            table.row(where, "against: prepare", json.dumps(prepared.get("error")))
            continue
        table.check(where, "against: parameters", mine["parameters"] == theirs["parameters"],
                    "%s and %s" % (mine["parameters"], theirs["parameters"]))
        for key, factor in (("logits", 1), ("loss", 1), ("gradients", 5), ("losses", 10)):
            if key in mine and key in theirs:
                same = key != "gradients" or sorted(mine[key]) == sorted(theirs[key])
                # A wrong gradient of one small layer must not hide behind those of large ones.
                apart = distance([mine[key]], [theirs[key]], floor=1.0 if key == "logits" else 0.01)
                table.check(where, "against: " + key, same and apart <= allowed * factor,
                            "%.2g apart, %.2g allowed" % (apart, allowed * factor))
    walk.process.call("quit")
    walk.process.end()


def main():
    arguments = sys.argv[1:]
    if "--" not in arguments:
        sys.exit(__doc__)
    own, command = arguments[:arguments.index("--")], arguments[arguments.index("--") + 1:]
    other = []
    if "--against" in command:
        place = command.index("--against")
        command, other = command[:place], command[place + 1:]
    parser = argparse.ArgumentParser(usage="test_driver.py [options] -- COMMAND... [--against COMMAND2...]")
    parser.add_argument("--workloads", help="names with commas; default: all that the driver offers")
    parser.add_argument("--variants", help='names with commas, or "all"; default: the first')
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="f32", choices=sorted(TOLERANCE))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300, help="seconds to wait for one answer")
    parser.add_argument("--no-bad-requests", action="store_true")
    options = parser.parse_args(own)
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = Walk(command, options, table, folder).everything()
            if other:
                compare(found, other, options, table, folder)
        except Broken as error:
            table.row("the driver", "answers", str(error))
    print("%d passed, %d failed" % (table.passed, table.failed))
    sys.exit(1 if table.failed else 0)


if __name__ == "__main__":
    main()
