"""Walks a driver through the whole of lab/docs/protocol.md, and compares two drivers.

    python3 lab/drivers/test_driver.py -- COMMAND...                every workload that it can build, first variant
    python3 lab/drivers/test_driver.py --workloads lenet,vgg16 --variants all -- COMMAND...
    python3 lab/drivers/test_driver.py -- COMMAND... --against COMMAND2...    the answers to check must agree, too
    python3 lab/drivers/test_driver.py --kinds -- COMMAND...        small networks, for each kind of layer; alone or against
    python3 lab/drivers/test_driver.py --listings -- COMMAND...     its networks from descriptions against its listings

Networks are asked of the program tandem (`tandem lab network NAME`). Data are random and small and lie in a temporary
folder; where one label is to be told from one input, each class has a pattern of its own, so that fit has something to
learn. Prints a table and "N passed, M failed"; exits with 1 where something failed. Needs NumPy, and Python 3.11 or
later for TOML.
"""
import argparse
import json
import math
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import numpy as np

import frame
import kinds
from frame import schema

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = os.path.join(HERE, "..", "studies", "workloads")
BATCH = 4
# With a batch of 4 resnet18's last statistics are of four numbers each, and in f32 rounding moves gradients and losses
# by per cents on some samples, while in f64 two drivers agree to 2e-13 (lab/docs/drivers.md).
# In cifar100_cnn a pool of four samples met two places so alike that f32 took one here and the other there, and the
# losses drifted apart by 1 %; in f64 they agreed to 1e-15, and with eight samples in f32 to 2e-7. svhn_cnn likewise, on one
# thread: libtorch's losses were 1.5 % from Tandem's; in f64 3e-15, and with eight samples 6e-6.
LARGER_BATCH = {"resnet18": 8, "cifar100_cnn": 8, "svhn_cnn": 8}
# photos_resnet18 has millions of places at which a maximum or a zero may fall either way, with any batch. In f32 Tandem's
# gradients were 0.2 % and libtorch's 0.36 % from those in f64, and 0.25 % (batch 4), 0.17 % (8) and 0.11 % (16) from each
# other; in f64 libtorch, Chainer, MXNet and TensorFlow agreed with Tandem to 5e-14.
WIDER_GRADIENTS = {"photos_resnet18": 5}  # times the tolerance; not in f64
SMALL_INPUT = {"vgg16": [3, 32, 32]}  # the others are tried at the size of their definition
SEED = 11
ROUNDS, ROUND_S = 21, 0.2  # runs of each definition for the ratio of speeds, and how long one takes about
# Layers that read of a sequence one step alone, or up to its length where they are given it.
STEPWISE = {"linear", "embedding", "relu", "gelu", "silu", "selu", "mish", "hardswish", "tanh", "sigmoid", "leaky_relu",
            "elu", "softplus", "softmax", "layer_norm", "rms_norm", "dropout", "identity", "add", "multiply", "concat"}
# Whole networks whose answer nothing beyond the lengths may move. Tacotron 2 counts padding in its batch norms.
WHOLE_UP_TO_LENGTHS = {"deepspeech2", "gnmt", "seq2seq"}
# Whole networks that draw numbers in test mode, too.
DRAWS_IN_TESTS = {"tacotron2"}
# Relative differences between two drivers. Sums of many terms, and steps that build on each other, let
# differences of rounding grow: gradients are given five times as much, the losses of the steps ten times.
TOLERANCE = {"f32": 2e-4, "tf32": 5e-3, "bf16": 5e-2, "f16": 1e-2, "f64": 1e-6}
LENET = {"conv1.weight": (6, 1, 5, 5), "conv1.bias": (6,), "conv2.weight": (16, 6, 5, 5), "conv2.bias": (16,),
         "fc1.weight": (120, 400), "fc1.bias": (120,), "fc2.weight": (84, 120), "fc2.bias": (84,),
         "fc3.weight": (10, 84), "fc3.bias": (10,)}


class Broken(Exception):
    """The driver died, hung or printed something that is no answer of the protocol."""


def check_answer(call, fields, part):
    """Broken where an answer or a line of progress has not the fields of the protocol's schema."""
    try:
        schema.check_answer(call, fields, part)
    except RuntimeError as error:
        raise Broken(str(error))


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
            if "progress" in answer:
                check_answer(call, answer["progress"], "progress")
                progress.append(answer["progress"])
                continue
            if answer.get("ok") is True:
                check_answer(call, {name: answer[name] for name in answer if name not in ("id", "ok")}, "answer")
            answer["lines"] = progress
            return answer

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


class Samples:
    """Random samples of a workload and its network, by name."""

    def __init__(self, workload, network):
        self.workload = workload
        self.targets, self.terms = workload["targets"], workload["loss"].get("terms", [workload["loss"]])
        self.network = frame.Network(network, True)
        self.limits = self.network.limits()
        self.entries = {entry["name"]: entry for entry in self.network.inputs}
        self.entries.update(self.targets)
        for name, target in self.targets.items():
            if "below" in target:
                self.limits[name] = 0, target["below"] - 1
        for term in self.terms:
            if "lengths" in term:
                time = self.time_of(term["output"]) * term.get("stride", 1)
                least, most = self.limits.get(term["lengths"], (1, time))
                self.limits[term["lengths"]] = 1, min(time, most)

    def time_of(self, output):
        return next(entry["shape"][0] for entry in self.network.outputs if entry["name"] == output)

    def make(self, samples, seed):
        """{name: array (samples, …)}."""
        random, made = np.random.default_rng(seed), {}
        for name, entry in self.entries.items():
            shape = [samples] + list(entry["shape"])
            if entry["type"] == "i64":
                least, most = self.limits.get(name, (0, 9))
                made[name] = random.integers(least, most + 1, shape)
            elif any(name == term["target"] and term["kind"] == "bce" for term in self.terms):
                made[name] = random.integers(0, 2, shape).astype(np.float32)
            else:
                made[name] = random.standard_normal(shape).astype(np.float32)
        self.end_labels(made)
        first = self.terms[0]
        target = self.targets[first["target"]]
        pictures = [entry for entry in self.network.inputs if entry["type"] == "f32"]
        if target["type"] == "i64" and not target["shape"] and len(pictures) == 1:
            sizes = pictures[0]["shape"]
            patterns = np.random.default_rng(list(sizes)).standard_normal([target["below"]] + list(sizes))
            labels = made[first["target"]] = (np.arange(samples) * 7 % target["below"]).astype(np.int64)
            made[pictures[0]["name"]] = (0.5 * made[pictures[0]["name"]] + patterns[labels]).astype(np.float32)
        return made

    def end_labels(self, made):
        """Labels of ctc end with zeros; few enough for the steps, though two alike need one between."""
        for term in self.terms:
            if term["kind"] == "ctc":
                steps = -(-made[term["lengths"]] // term.get("stride", 1))
                labels = made[term["target"]]
                count = np.clip(steps // 3, 1, labels.shape[1])
                labels[labels == 0] = 1
                labels[np.arange(labels.shape[1]) >= count[:, None]] = 0

    def lengths(self):
        """{name: time} of the whole numbers that are lengths."""
        return {name: most for name, (least, most) in self.limits.items() if least == 1}

    def reads_beyond(self):
        """The kind of a layer that reads what lies beyond the lengths, and may; None where there is none."""
        for call in self.network.calls:
            with_lengths = call["in"][-1] in self.lengths()
            if call["kind"] in kinds.WHOLE:
                return None if call["kind"] in WHOLE_UP_TO_LENGTHS else call["kind"]
            if call["kind"] not in STEPWISE and not (call["kind"] in ("lstm", "attention", "mean") and with_lengths):
                return call["kind"]
        return None

    def changed_beyond(self, made):
        """The same samples with other numbers beyond the lengths, in everything that has their axis of time."""
        other = self.make(len(next(iter(made.values()))), 77)
        found = dict(made)
        for name, entry in self.entries.items():
            ends = [made[length] for length, time in self.lengths().items()
                    if entry["shape"][:1] == [time] and (name not in self.targets or any(
                        length == term.get("lengths") and name == term["target"] for term in self.terms))]
            if ends:
                beyond = np.arange(entry["shape"][0]) >= np.max(ends, axis=0)[:, None]
                beyond = beyond.reshape(beyond.shape + (1,) * (len(entry["shape"]) - 1))
                found[name] = np.where(beyond, other[name], made[name])
        return found

    def counted(self, made, checked):
        """{name: values} of the outputs in an answer to check; of the loss's outputs those that count."""
        found = {name: output["values"] for name, output in checked["outputs"].items()}
        for term in self.terms:
            if "lengths" not in term:
                continue
            output = checked["outputs"][term["output"]]
            size = math.prod(output["shape"])
            places = range(size) if size <= 4096 else [hashed(k, 4096) % size for k in range(4096)]
            sample, step, *_ = np.unravel_index(places, output["shape"])
            counts = step * term.get("stride", 1) < made[term["lengths"]][sample]
            found[term["output"]] = [value for value, keep in zip(output["values"], counts) if keep]
        return found


def write(folder, name, arrays):
    """-> {name: PATH}."""
    paths = {part: os.path.join(folder, "%s_%s.npy" % (name, part)) for part in arrays}
    for part, array in arrays.items():
        np.save(paths[part], array)
    return paths


def resolved(tandem, name, sizes):
    """The network of a workload, from the program tandem."""
    command = [tandem, "lab", "network", name] + (["--input", "x".join(map(str, sizes))] if sizes else [])
    try:
        answer = subprocess.run(command, capture_output=True, text=True, env=dict(
            os.environ, TANDEM_LAB_HOME=os.path.join(HERE, "..")))
    except OSError as error:
        sys.exit("%s: %s. Build it, or say where it is with --tandem." % (tandem, error.strerror))
    if answer.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), answer.stderr.strip()))
    return json.loads(answer.stdout)


def numbers(value):
    """All numbers of a nested answer, None where one is null."""
    if isinstance(value, dict):
        return [n for key in sorted(value) for n in numbers(value[key])]
    return [n for item in value for n in numbers(item)] if isinstance(value, list) else [value]


def part(answer, key):
    """A part of an answer to check, as numbers by name: of outputs the values."""
    return {name: output["values"] for name, output in answer[key].items()} if key == "outputs" else answer[key]


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
        self.definitions, self.networks = {}, {}
        for file in sorted(os.listdir(WORKLOADS)):
            with open(os.path.join(WORKLOADS, file), "rb") as toml:
                definition = tomllib.load(toml)
            for target in definition["targets"].values():
                target.setdefault("type", "f32")
                target.setdefault("shape", [])
            self.definitions[definition["name"]] = definition
        if options.kinds:
            self.definitions = {workload["name"]: workload for workload, _ in kinds.cases()}
            self.networks = {workload["name"]: network for workload, network in kinds.cases()}

    def start(self):
        self.process = Process(self.command, self.options.timeout)

    def network(self, name):
        if name not in self.networks:
            self.networks[name] = resolved(self.options.tandem, name, SMALL_INPUT.get(name))
        return json.loads(json.dumps(self.networks[name]))

    def samples(self, name):
        return Samples(self.definitions[name], self.network(name))

    def names(self):
        """The workloads to try: those asked for, or all that it can build."""
        if self.options.workloads:
            return self.options.workloads.split(",")
        found = []
        for name, definition in self.definitions.items():
            missing = {call["kind"] for call in self.network(name)["calls"]} - set(self.known["kinds"])
            missing |= {definition["loss"]["kind"]} - set(self.known["losses"])
            if name in kinds.WHOLE and name + "_small" in self.definitions:
                self.table.note(name, "is not walked", name + "_small has the same code, and takes seconds")
                continue
            if missing:
                self.table.note(name, "is not built", "without " + ", ".join(sorted(missing)))
            else:
                found.append(name)
        return found

    def cell(self, name, **changes):
        definition = self.definitions[name]
        batch = self.options.batch or LARGER_BATCH.get(name, BATCH)
        phases = self.known["phases"]
        samples = self.samples(name)
        # A tenth of the learning rate: with weights from the hash and a batch this small the deep ones would diverge.
        optimizer = dict(definition["optimizer"], lr=definition["optimizer"]["lr"] / 10)
        fields = {"workload": dict(definition, optimizer=optimizer), "network": self.network(name),
                  "definition": "description", "variant": self.known["variants"][0],
                  "track": "equal", "batch": batch, "device": self.options.device,
                  "phase": "train" if "train" in phases else phases[0],
                  "threads": self.options.threads, "precision": self.options.precision, "seed": 3, "dropout": False,
                  "weights": {"hash": SEED}, "switches": {},
                  "data": {part: write(self.folder, part + "_" + name, samples.make(count, [count, len(name)]))
                           for part, count in (("train", 10 * batch), ("test", 2 * batch + 1))}}
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
        lists = ("variants", "devices", "kinds", "losses", "phases", "precisions")
        wrong = [name for name in lists if not answer.get(name) or not all(isinstance(v, str) for v in answer[name])]
        wrong += [name for name in ("listings",) if not isinstance(answer.get(name), list)]
        wrong += [name for name in ("framework", "version") if not isinstance(answer.get(name), str)]
        wrong += [name for name in ("switches", "libraries") if not isinstance(answer.get(name), dict)]
        self.table.check("hello", "fields", not wrong and answer.get("protocol") == 2, ", ".join(wrong) or "%s %s" % (
            answer["framework"], answer["version"]))
        known = {kind for workload, network in kinds.cases() for kind in [call["kind"] for call in network["calls"]]}
        strange = set(answer["kinds"]) - known - set(kinds.WHOLE)
        self.table.check("hello", "kinds of the protocol", not strange, ", ".join(sorted(strange or answer["kinds"])))

    def declines(self, what, call, kind="declined", names=None, **fields):
        error = self.process.call(call, **fields).get("error") or {}
        good = error.get("kind") == kind and (names is None or error.get("what") == names) and error.get("message")
        self.table.check("bad requests", what, good, "%s: %s" % (error.get("kind"), error.get("message")))

    def bad_requests(self):
        cell = self.cell(self.names()[0])
        self.declines("run before prepare", "run", kind="failed", region="latency", steps=1)
        self.declines("an unknown call", "dance", names="dance")
        strange = json.loads(json.dumps(cell["network"]))
        strange["calls"][0]["kind"] = "no_such_layer"
        self.declines("an unknown kind of layer", "prepare", names="no_such_layer", **dict(cell, network=strange))
        strange = dict(cell["workload"], loss=dict(cell["workload"]["loss"], kind="no_such_loss"))
        self.declines("an unknown loss", "prepare", names="no_such_loss", **dict(cell, workload=strange))
        strange = dict(cell["network"], name="no_such_network")
        self.declines("a listing that it has not", "prepare", names="definition", **dict(
            cell, network=strange, definition="listing"))
        self.declines("an unknown switch", "prepare", names="no.such", **dict(cell, switches={"no.such": "on"}))
        for name in self.known["switches"]:
            self.declines("an unknown value of " + name, "prepare", names=name,
                          **dict(cell, switches={name: "sideways"}))
        for name in ("variant", "phase", "device", "precision"):
            self.declines("an unknown " + name, "prepare", names=name, **dict(cell, **{name: "sideways"}))
        gone = os.path.join(self.folder, "absent.npy")
        self.declines("a missing data file", "prepare", kind="failed", **dict(
            cell, data={"train": {name: gone for name in cell["data"]["train"]}}))
        self.declines("a missing weights file", "prepare", kind="failed", **dict(cell, weights={"file": gone}))
        self.declines("a batch of 0", "prepare", kind="failed", **dict(cell, batch=0))
        self.declines("a trim by what is no length", "prepare", kind="failed" if self.known.get("trims") else "declined",
                      **dict(cell, trim={"nobody": {"of": [], "multiple": 1}}))
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
            inferred = self.inference(where, self.cell(
                name, variant=variant, phase="infer", dropout=not self.draws_in_tests(name)), checked)
            checked = checked or inferred
        return checked

    def draws_in_tests(self, name):
        return self.network(name)["calls"][0]["kind"] in DRAWS_IN_TESTS

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
        self.outputs(where, cell, checked)
        loss, losses = checked["loss"], checked["losses"]
        table.check(where, "check: losses, the first being the loss", len(losses) == steps and finite(losses) and
                    distance([loss], losses[:1]) < 1e-3, "%s, %s" % (loss, losses))
        table.check(where, "check: gradients", finite(checked["gradients"]) and min(
            checked["gradients"].values()) >= 0 and checked["parameters"] == prepared["parameters"],
            "%d norms" % len(checked["gradients"]))
        self.regions(where, updates=steps)

        repeated = self.prepared(where, cell) and self.ask(where, "check", steps=steps)
        if repeated:
            apart = max(distance(part(checked, key), part(repeated, key)) for key in ("outputs", "gradients", "losses"))
            table.check(where, "check: repeats itself", apart < TOLERANCE[cell["precision"]] / 10, "%.2g apart" % apart)
        if name == "lenet":
            path = os.path.join(self.folder, "lenet.safetensors")
            write_lenet(path, SEED)
            loaded = self.prepared(where, dict(cell, weights={"file": path})) and self.ask(where, "check", steps=0)
            if loaded:
                apart = max(distance(part(checked, key), part(loaded, key)) for key in ("outputs", "gradients"))
                table.check(where, "weights: file and hash agree", apart < 1e-5, "%.2g apart" % apart)
        dropped = self.prepared(where, dict(cell, dropout=True)) and self.ask(where, "check", steps=0)
        if dropped and self.draws_in_tests(name):
            apart = distance(part(checked, "outputs"), part(dropped, "outputs"))
            table.check(where, "dropout is on in test mode", finite(part(dropped, "outputs")) and apart > 1e-3,
                        "%.2g apart" % apart)
        elif dropped:
            apart = distance(part(checked, "outputs"), part(dropped, "outputs"))
            table.check(where, "dropout is off in test mode", apart < TOLERANCE[cell["precision"]] / 10,
                        "%.2g apart" % apart)
        self.beyond_lengths(where, name, cell, checked)
        if self.samples(name).network.whole:
            self.lstm_switch(where, name, cell, checked, steps)
        self.fitting(where, name, cell)
        self.tests_of_fit(where, cell)
        trimmed = self.trimming(where, name, cell, checked)
        if trimmed:
            checked["trimmed"] = trimmed
        shipped = self.process.call("prepare", **self.cell(name, variant=variant, track="as_shipped", weights=None))
        if (shipped.get("error") or {}).get("kind") == "declined":
            table.note(where, "as shipped", "declined: " + shipped["error"]["message"])
        else:
            table.check(where, "as shipped", shipped.get("parameters") == prepared["parameters"],
                        shipped.get("error") or "; ".join(shipped["notes"]))
        return checked

    def outputs(self, where, cell, checked):
        """The outputs of an answer to check have their shapes, and finite numbers."""
        wanted = {entry["name"]: [cell["batch"]] + entry["shape"] for entry in cell["network"]["outputs"]}
        found = checked["outputs"]
        good = {name: output["shape"] for name, output in found.items()} == wanted and all(
            len(output["values"]) == min(4096, math.prod(output["shape"])) and finite(output["values"])
            for output in found.values())
        self.table.check(where, "check: outputs", good, ", ".join(
            "%s %s" % (name, output["shape"]) for name, output in found.items()))

    def beyond_lengths(self, where, name, cell, checked):
        """What lies beyond the lengths must not move the answer to check."""
        samples = self.samples(name)
        if not samples.lengths():
            return
        if samples.reads_beyond():
            self.table.note(where, "beyond the lengths", "is read, by " + samples.reads_beyond())
            return
        made = {part: np.load(path) for part, path in cell["data"]["train"].items()}
        changed = write(self.folder, "beyond_" + name, samples.changed_beyond(made))
        answer = self.prepared(where, dict(cell, data={"train": changed})) and \
            self.ask(where, "check", steps=len(checked["losses"]))
        if answer is None:
            return
        pairs = [(checked[key], answer[key]) for key in ("loss", "gradients", "losses")]
        before, after = samples.counted(made, checked), samples.counted(made, answer)
        for output, entry in checked["outputs"].items():
            counts = any(output == term["output"] and "lengths" in term for term in samples.terms)
            if counts or entry["shape"][1:2] not in [[time] for time in samples.lengths().values()]:
                pairs.append((before[output], after[output]))
        apart = max(distance([a], [b]) for a, b in pairs)
        self.table.check(where, "what is beyond the lengths moves nothing", apart < TOLERANCE[cell["precision"]] / 10,
                         "%.2g apart" % apart)

    def trimmed_cell(self, name, cell):
        """The same with batches as long as their longest sample: in the first one half as long as in the others."""
        samples, first = self.samples(name), slice(0, cell["batch"])
        made = {part: np.load(path) for part, path in cell["data"]["train"].items()}
        for length in self.definitions[name]["trim"]:
            made[length][first] = (made[length][first] + 1) // 2
        samples.end_labels(made)
        return dict(cell, trim=self.definitions[name]["trim"], data=dict(
            cell["data"], train=write(self.folder, "trimmed_" + name, made)))

    def trimming(self, where, name, cell, checked):
        """Batches that are as long as their longest sample, where the workload says what that trims; -> the answer to check."""
        trim = self.definitions[name].get("trim")
        if not trim:
            return None
        asked = self.trimmed_cell(name, cell)
        if not self.known.get("trims"):
            error = self.process.call("prepare", **asked).get("error") or {}
            self.table.check(where, "trim is declined", error.get("what") == "trim", error.get("message"))
            return None
        where, steps = where + " trimmed", len(checked["losses"])
        whole = self.prepared(where, dict(asked, trim=None)) and self.ask(where, "check", steps=steps)
        answer = self.prepared(where, asked) and self.ask(where, "check", steps=steps)
        if not answer or not whole:
            return None
        made = {part: np.load(path)[:cell["batch"]] for part, path in asked["data"]["train"].items()}
        samples, good, sizes = self.samples(name), True, {}
        for length, rule in trim.items():
            for field in rule["of"]:
                places = samples.entries[field]["shape"][0]
                sizes[field] = min(places, -(-int(made[length].max()) // rule["multiple"]) * rule["multiple"])
        for term in samples.terms:
            found, full = (one["outputs"][term["output"]]["shape"][1] for one in (answer, whole))
            field = trim[term["lengths"]]["of"][0] if term["kind"] == "ctc" else term["target"]
            good &= found == -(-sizes[field] // term.get("stride", 1)) and found < full
        self.table.check(where, "check: outputs are as long as the longest sample", good, ", ".join(
            "%s %s" % (output, entry["shape"]) for output, entry in answer["outputs"].items()))
        if not samples.reads_beyond():
            apart = max(distance([whole[key]], [answer[key]]) for key in ("loss", "losses", "gradients"))
            self.table.check(where, "what is left out counts for nothing", apart < TOLERANCE[cell["precision"]],
                             "%.2g apart" % apart)
        self.fitting(where, name, asked)
        answer["fitted"] = self.fitted(where, asked)
        return answer

    def fitted(self, where, cell):
        """The losses of training and of the test after an epoch without dropout."""
        answer = self.prepared(where, cell) and self.ask(where, "fit", epochs=1, cap_s=self.options.timeout)
        return answer and [answer["lines"][0]["loss"], answer["lines"][0]["test_loss"]]

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
        self.outputs(where, cell, answer)
        self.table.check(where, "check: outputs alone", "losses" not in answer and "gradients" not in answer)
        if checked:
            apart = distance(part(answer, "outputs"), part(checked, "outputs"))
            self.table.check(where, "check: as in phase train", apart < TOLERANCE[cell["precision"]],
                             "%.2g apart" % apart)
        self.regions(where, updates=False)
        return answer

    def fitting(self, where, name, cell):
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
        metrics = cell["workload"].get("metrics", [])
        tested = [line["test_metrics"] for line in lines]
        table.check(where, "fit: the workload's metrics of the test", all(
            sorted(found) == sorted(metrics) and (finite(found) or not found) for found in tested), tested[-1])
        if "accuracy" in metrics and not cell["workload"]["targets"][cell["workload"]["loss"]["target"]]["shape"]:
            confusion = np.array(answer["confusion"])
            right = float(np.trace(confusion)) / max(1, confusion.sum())
            table.check(where, "fit: confusion counts every test sample", confusion.sum() == 2 * cell["batch"] + 1 and
                        abs(right - tested[-1]["accuracy"]) < 1e-9, "accuracy %.2f" % right)
        else:
            table.check(where, "fit: no confusion", answer["confusion"] is None)
        kept = [[line["loss"], line["test_loss"], line["metrics"]] for line in lines]
        table.check(where, "fit: losses", finite(kept) and all(
            set(line["metrics"]) <= set(metrics) and 0 <= line["metrics"].get("accuracy", 0) <= 1 for line in lines),
            " ".join(str(line["loss"])[:6] for line in lines))
        capped = self.ask(where, "fit", epochs=epochs, cap_s=1e-6)
        if capped:
            table.check(where, "fit: stops at the cap", capped["capped"] is True and capped["epochs"] == 1,
                        "%d epoch" % capped["epochs"])

    def tests_of_fit(self, where, cell):
        """The test of a fit against NumPy: its loss, metrics and confusion, from the outputs that check tells of the same samples.
        Where check tells all numbers of the outputs, and no step moves what is tested."""
        loss, network, batch = cell["workload"]["loss"], cell["network"], cell["batch"]
        output = next((entry for entry in network["outputs"] if entry["name"] == loss.get("output")), None)
        if loss["kind"] != "cross_entropy" or batch * math.prod(output["shape"]) > 4096 or network["states"] or any(
                call["buffers"] for call in network["calls"]):
            return
        places = np.arange(2 * batch + batch // 2 + 1) % batch  # the last batch is not whole
        made = {part: np.load(path)[:batch] for part, path in cell["data"]["train"].items()}
        data = {part: write(self.folder, part + "_of_tests", {name: array[order] for name, array in made.items()})
                for part, order in (("train", np.arange(batch)), ("test", places))}
        still = dict(cell["workload"], optimizer={"name": "sgd", "lr": 1e-30})
        if self.prepared(where, dict(cell, workload=still, data=data)) is None:
            return
        checked, answer = self.ask(where, "check", steps=0), self.process.call("fit", epochs=1, cap_s=self.options.timeout)
        error = answer.get("error") or {}
        if not checked or error:
            self.table.note(where, "tests of fit", "%s: %s" % (error.get("kind"), error.get("message")))
            return
        found = checked["outputs"][loss["output"]]
        logits = np.array(found["values"]).reshape(found["shape"])[places]
        target = made[loss["target"]][places]
        counts = np.ones(target.shape, dtype=bool)
        if "lengths" in loss:
            counts &= (np.arange(target.shape[1]) < made[loss["lengths"]][places][:, None]).reshape(
                target.shape[:2] + (1,) * (target.ndim - 2))
        logs = logits - logits.max(axis=-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(axis=-1, keepdims=True))
        mean = float(-np.take_along_axis(logs, target[..., None], axis=-1)[..., 0][counts].mean())
        guesses, line = logits.argmax(axis=-1), answer["lines"][0]
        wanted = {"loss": mean, "perplexity": math.exp(mean), "accuracy": float((guesses == target)[counts].mean())}
        wanted = {name: wanted[name] for name in ["loss"] + cell["workload"].get("metrics", [])}
        apart = max(distance([wanted[name]], [value], 1e-9) for name, value in dict(
            line["test_metrics"], loss=line["test_loss"]).items())
        self.table.check(where, "fit: the test measures what NumPy does", apart < TOLERANCE[cell["precision"]] / 100,
                         "%.2g apart" % apart)
        if target.ndim == 1 and "accuracy" in wanted:
            confusion = np.zeros((logits.shape[1],) * 2, dtype=int)
            np.add.at(confusion, (target, guesses), 1)
            self.table.check(where, "fit: the confusion is NumPy's", answer["confusion"] == confusion.tolist())

    def everything(self):
        """-> {(workload, variant): answer to check}."""
        self.hello()
        if not self.options.no_bad_requests:
            self.bad_requests()
        found = {}
        variants = self.known["variants"] if self.options.variants == "all" else \
            self.options.variants.split(",") if self.options.variants else self.known["variants"][:1]
        for name in self.names():
            for variant in variants:
                try:
                    found[name, variant] = self.checked(name, variant) if self.options.kinds else \
                        self.workload(name, variant)
                except Broken as error:
                    self.table.row("%s %s" % (name, variant), "the process", str(error))
                    self.process.end()
                    self.start()
        self.endings()
        return found

    def checked(self, name, variant):
        """A small network: check alone, and that lengths are obeyed; -> the answer to check."""
        where = "%s %s" % (name, variant)
        cell = self.cell(name, variant=variant)
        steps = 3 if cell["phase"] == "train" else 0
        answer = self.prepared(where, cell) and self.ask(where, "check", steps=steps)
        if answer:
            self.outputs(where, cell, answer)
            if steps:
                self.table.check(where, "check: losses", finite(answer["losses"]), answer["losses"])
                self.beyond_lengths(where, name, cell, answer)
            self.lstm_switch(where, name, cell, answer, steps)
            if steps:
                self.tests_of_fit(where, cell)
        return answer or None

    def lstm_switch(self, where, name, cell, answer, steps):
        """However an LSTM is computed, it gives the same."""
        if not self.samples(name).network.has_lstm():
            return
        for value in self.known["switches"].get("lstm", []):
            prepared = self.prepared("%s lstm=%s" % (where, value), dict(cell, switches={"lstm": value}))
            other = prepared and self.ask(where, "check", steps=steps)
            if other:
                self.agree(where, name, cell, other, answer, "lstm=%s: " % value)

    def listings(self):
        """The networks built from descriptions against those written by hand: the answers to check, and the speed."""
        self.hello()
        for name in self.known["listings"]:
            if name not in self.definitions or self.options.workloads and name not in self.options.workloads.split(","):
                continue
            for variant in self.options.variants.split(",") if self.options.variants else self.known["variants"][:1]:
                try:
                    self.listing(name, variant)
                except Broken as error:
                    self.table.row("%s %s" % (name, variant), "the process", str(error))
                    self.process.end()
                    self.start()
        self.endings()

    def listing(self, name, variant):
        where = "%s %s" % (name, variant)
        cell = self.cell(name, variant=variant)
        steps = 3 if cell["phase"] == "train" else 0
        answers = []
        for definition in ("description", "listing"):
            prepared = self.prepared("%s %s" % (where, definition), dict(cell, definition=definition))
            answers.append(prepared and self.ask(where, "check", steps=steps))
        if None in answers:
            return
        self.agree(where, name, cell, *answers, "listing: ")
        # In turns in one process: two processes differ by per cents, whatever they run.
        ratios = []
        for index in range(ROUNDS):
            order = ("description", "listing") if index % 2 else ("listing", "description")
            times = {definition: self.step_time(dict(cell, definition=definition)) for definition in order}
            ratios.append(times["listing"] / times["description"])
        self.table.note(where, "listing's time / description's", "%.3f, median of %d" % (
            statistics.median(ratios), ROUNDS))

    def agree(self, where, name, cell, mine, theirs, what):
        """Two answers to check are the same, except where nothing counts."""
        table, allowed = self.table, TOLERANCE[cell["precision"]]
        table.check(where, what + "parameters", mine["parameters"] == theirs["parameters"],
                    "%s and %s" % (mine["parameters"], theirs["parameters"]))
        samples, made = self.samples(name), {part: np.load(path) for part, path in cell["data"]["train"].items()}
        for key, factor in (("outputs", 1), ("loss", 1), ("gradients", 5), ("losses", 10)):
            if key not in mine or key not in theirs:
                continue
            same = not isinstance(mine[key], dict) or sorted(mine[key]) == sorted(theirs[key])
            pair = [samples.counted(made, answer) if key == "outputs" else answer[key] for answer in (mine, theirs)]
            # A wrong gradient of one small layer must not hide behind those of large ones.
            apart = distance(pair[:1], pair[1:], floor=1.0 if key == "outputs" else 0.01)
            limit = allowed * factor
            if key == "gradients" and cell["precision"] != "f64":
                limit *= WIDER_GRADIENTS.get(name, 1)
            table.check(where, what + key, same and apart <= limit, "%.2g apart, %.2g allowed" % (apart, limit))

    def step_time(self, cell):
        """Nanoseconds of a step of the freshly prepared cell."""
        def timed(steps):
            answer = self.process.call("run", region="throughput", steps=steps)
            return (answer["end"] - answer["begin"]) / steps

        self.process.call("prepare", **cell)
        timed(2)  # what is to be compiled
        return timed(max(2, int(ROUND_S * 1e9 / timed(2))))


def compare(first, other, options, table, folder):
    """The answers to check of `first` against those of another driver, whose first variant answers."""
    walk = Walk(other, options, table, folder)
    walk.start()
    walk.known = walk.process.call("hello")
    for (name, variant), mine in first.items():
        where = "%s %s" % (name, variant)
        if mine is None:
            table.note(where, "against", "the first does not have it")
            continue
        cell = walk.cell(name, phase="train" if "losses" in mine and "train" in walk.known["phases"] else "infer")
        prepared = walk.process.call("prepare", **cell)
        if (prepared.get("error") or {}).get("kind") == "declined":
            table.note(where, "against", "the other declines it: " + prepared["error"]["message"])
            continue
        theirs = prepared.get("ok") and walk.ask(where, "check", steps=len(mine.get("losses", ())))
        if not theirs:
            table.row(where, "against: prepare", json.dumps(prepared.get("error")))
            continue
        walk.agree(where, name, cell, mine, theirs, "against: ")
        if "trimmed" in mine and walk.known.get("trims"):
            trimmed = walk.trimmed_cell(name, cell)
            theirs = walk.prepared(where, trimmed) and walk.ask(where, "check", steps=len(mine["trimmed"]["losses"]))
            if theirs:
                walk.agree(where, name, trimmed, mine["trimmed"], theirs, "against, trimmed: ")
                apart = distance(mine["trimmed"]["fitted"], walk.fitted(where, trimmed))
                table.check(where, "against, trimmed: the losses of a fit", apart < 10 * TOLERANCE[cell["precision"]],
                            "%.2g apart" % apart)
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
    parser.add_argument("--batch", type=int, help="samples of a batch; default: %d" % BATCH)
    parser.add_argument("--tandem", default=os.path.join(HERE, "..", "..", "build", "release", "bin", "tandem"),
                        help="the program that resolves networks")
    parser.add_argument("--no-bad-requests", action="store_true")
    parser.add_argument("--kinds", action="store_true", help="small networks, for each kind of layer and loss")
    parser.add_argument("--listings", action="store_true", help="descriptions against the driver's listings")
    options = parser.parse_args(own)
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        try:
            walk = Walk(command, options, table, folder)
            found = walk.listings() if options.listings else walk.everything()
            if other:
                compare(found, other, options, table, folder)
        except Broken as error:
            table.row("the driver", "answers", str(error))
    print("%d passed, %d failed" % (table.passed, table.failed))
    sys.exit(1 if table.failed else 0)


if __name__ == "__main__":
    main()
