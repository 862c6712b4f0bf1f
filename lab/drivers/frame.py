"""The frame of a driver in Python: all of lab/docs/protocol.md that does not depend on the framework.

A driver is a script of this shape (lab/docs/drivers.md tells more, lab/drivers/pytorch.py is an example):

    import frame
    frame.claim_stdout()            # before the framework is imported: what it prints goes to standard error
    import some_framework

    class SomeModel(frame.Model):   # one prepared cell; the methods marked "must" below
        ...

    class SomeDriver(frame.Driver):
        def hello(self):
            return {"framework": "some", "version": "1.0", "variants": ["eager"], "devices": ["cpu"],
                    "workloads": ["lenet"], "phases": ["train", "infer"], "precisions": ["f32"],
                    "switches": {}, "libraries": {}}
        def build(self, cell):
            return SomeModel(cell)

    if __name__ == "__main__":
        frame.serve(SomeDriver())

The frame reads the requests, checks each field of `prepare` against what `hello` offers (so that an unknown workload,
variant, device, precision, switch or value is declined by name before `build` is called), reads the data and the
weights, keeps the order of the batches, times `run`, goes through the epochs of `fit`, and turns exceptions into
answers: Declined -> declined, MemoryError or what Driver.is_out_of_memory knows -> out_of_memory, anything else ->
failed, with the traceback on standard error. Batches are NumPy arrays x f32 (N, C, H, W), y i64 (N,) until Model.place
takes them.

Needs Python 3.8 and NumPy 1.20 or later, and nothing else.
"""
from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
import traceback

import numpy as np

PROTOCOL = 1
RESIDENT_BATCHES = 8  # how many batches of `run` lie on the device


class Declined(Exception):
    """This driver cannot obey what `what` names; the message begins with that name."""

    def __init__(self, what, message):
        super().__init__(message)
        self.what = what


# ---------------------------------------------------------------------------------------------------------------------
# What a driver implements


class Driver:
    """One framework. `hello` and `build` must be given."""

    def hello(self):
        """-> dict with framework, version, variants, devices, workloads, phases, precisions, switches, libraries."""
        raise NotImplementedError

    def build(self, cell):
        """-> Model for the Cell. May raise Declined(what, message) for what this cell's mixture cannot have."""
        raise NotImplementedError

    def why_declined(self, what, value):
        """Why a value that `hello` does not offer (of a switch, "precision", "device", …) cannot be obeyed: a sentence
        that follows the rule in the message. None: there is no more to say."""
        return None

    def is_out_of_memory(self, error):
        """True where the exception says that the device or the machine has not enough memory."""
        text = str(error).lower()
        return any(word in text for word in ("out of memory", "can't allocate memory", "cannot allocate memory",
                                             "bad_alloc", "resource_exhausted", "failed to allocate"))


class Model:
    """One prepared cell. A step keeps its loss and its logits where it likes (on the device) until they are read."""

    notes = ()     # texts for the answer to prepare
    obeyed = None  # the switches as set; None: those of the request

    def parameters(self):
        """Must: how many numbers are trained."""
        raise NotImplementedError

    def place(self, x, y):
        """Must: the batch on the device, in whatever form the steps take. Its size is always cell.batch."""
        raise NotImplementedError

    def train_step(self, placed):
        """Must, in phase train: forward, backward, update; reads nothing back and need not wait for the device."""
        raise NotImplementedError

    def infer_step(self, placed):
        """Must: the logits in test mode (dropout off, running statistics); reads nothing back."""
        raise NotImplementedError

    def synchronize(self):
        """Must: returns when the device has done all that was asked of it."""
        raise NotImplementedError

    def read_loss(self):
        """Must, in phase train: the loss of the last train_step, before its update, as a float."""
        raise NotImplementedError

    def read_logits(self):
        """Must: the logits (N, classes) of the last infer_step; and of train_step, unless count is overridden."""
        raise NotImplementedError

    def loss_and_gradients(self, x, y):
        """Must, in phase train: (loss, {canonical name: Euclidean norm of the gradient}) in training mode; leaves
        weights and running statistics as they were."""
        raise NotImplementedError

    def logits(self, x, y):
        """Logits of a batch in test mode, as NumPy (N, classes)."""
        self.infer_step(self.place(x, y))
        return np.asarray(self.read_logits(), dtype=np.float64)

    # The training loss and accuracy of an epoch of fit. A framework that computes asynchronously overrides both, and
    # adds up on the device; these read back after each step.
    def count(self, placed, y):
        """Adds the last train_step's loss and number of right answers to the epoch's sums."""
        sums = self.__dict__.setdefault("_sums", [0.0, 0])
        sums[0] += self.read_loss()
        sums[1] += int((np.asarray(self.read_logits()).argmax(axis=1) == y).sum())

    def counted(self):
        """(sum of the steps' losses, number of right answers) since the last call."""
        return self.__dict__.pop("_sums", (0.0, 0))

    def train_epoch(self, data, order, batches, size):
        """One epoch of fit: so many batches of this size, in this order; adds up what `counted` tells."""
        for index in range(batches):
            x, y = data.batch(index, size, order)
            placed = self.place(x, y)
            self.train_step(placed)
            self.count(placed, y)

    def timed(self, step, steps, placed_batches):
        """Nanoseconds of so many steps, after one that may compile."""
        step(placed_batches[0])
        self.synchronize()
        begin = now_ns()
        for index in range(steps):
            step(placed_batches[index % len(placed_batches)])
        self.synchronize()
        return now_ns() - begin

    def breakdown(self, steps, placed_batches):
        """Runs steps of the prepared phase under the framework's profiler -> the fields of the answer."""
        raise Declined("breakdown", "breakdown: this driver has no profiler.")


class Data:
    """Samples in NumPy files, mapped: x f32 (N, C, H, W), y i64 (N,)."""

    def __init__(self, what, entry, input_sizes, classes):
        self.x = self._mapped(what + ".x", entry.get("x"))
        self.y = np.asarray(self._mapped(what + ".y", entry.get("y")))
        if self.x.dtype != np.float32 or self.x.ndim != 4 or tuple(self.x.shape[1:]) != tuple(input_sizes):
            raise ValueError("%s.x: must be f32 (N, %s); got %s %s." % (
                what, ", ".join(map(str, input_sizes)), self.x.dtype, self.x.shape))
        if self.y.dtype != np.int64 or self.y.shape != self.x.shape[:1] or len(self.y) == 0:
            raise ValueError("%s.y: must be i64 with one label per sample, at least one; got %s %s for %d samples." % (
                what, self.y.dtype, self.y.shape, len(self.x)))
        if self.y.min() < 0 or self.y.max() >= classes:
            raise ValueError("%s.y: labels must be in 0 … %d; got %d … %d." % (
                what, classes - 1, self.y.min(), self.y.max()))

    @staticmethod
    def _mapped(what, path):
        if not isinstance(path, str):
            raise ValueError("%s: must be the path of a NumPy file; got %r." % (what, path))
        return np.load(path, mmap_mode="r", allow_pickle=False)

    def __len__(self):
        return len(self.y)

    def batch(self, index, size, order=None):
        """Batch number `index` in the given order (that of the file where there is none); runs on from the start."""
        places = np.arange(index * size, (index + 1) * size, dtype=np.int64) % len(self)
        if order is None and places[0] <= places[-1] and size <= len(self):
            cut = slice(int(places[0]), int(places[-1]) + 1)
            return np.array(self.x[cut]), np.array(self.y[cut])
        if order is not None:
            places = order[places]
        return np.asarray(self.x[places]), self.y[places]


class Cell:
    """What `prepare` asked for, checked. The fields have the protocol's names; besides:

    workload   the definition as a dict            model      the network's name
    input      tuple (C, H, W)                     classes    how many
    optimizer  dict with name, lr, ...             switches   dict, every name and value known to `hello`
    train      Data or None                        test       Data or None
    """

    def __init__(self, request, hello, why_declined=None):
        why = why_declined or (lambda what, value: None)

        def offered(what, value):
            return _offered(what, value, hello[what + "s"], why)

        self.workload = _field(request, "workload", dict)
        self.name = _field(self.workload, "name", str, "workload.name")
        self.model = self.workload.get("model", self.name)
        offered("workload", self.model)
        self.variant = offered("variant", _field(request, "variant", str))
        self.phase = offered("phase", _field(request, "phase", str))
        self.device = offered("device", _field(request, "device", str))
        self.precision = offered("precision", _field(request, "precision", str))
        self.track = _offered("track", request.get("track", "equal"), ["equal", "as_shipped"])
        self.batch = _positive(request, "batch")
        self.threads = _positive(request, "threads", 1)
        self.seed = _field(request, "seed", int, default=0)
        self.dropout = _field(request, "dropout", bool, default=True)
        self.classes = _positive(self.workload, "classes")
        sizes = request.get("input", self.workload.get("input"))
        if not isinstance(sizes, list) or len(sizes) != 3 or not all(isinstance(n, int) and n > 0 for n in sizes):
            raise ValueError("input: must be three sizes [C, H, W]; got %r." % (sizes,))
        self.input = tuple(sizes)
        self.optimizer = dict(_field(self.workload, "optimizer", dict, "workload.optimizer"))
        _field(self.optimizer, "name", str, "workload.optimizer.name")
        self.switches = self._checked_switches(request.get("switches") or {}, hello["switches"], why)
        self.weights_from = request.get("weights") or {}
        if self.track == "equal" and not self.weights_from:
            raise ValueError('weights: the track "equal" needs {"file": PATH} or {"hash": SEED}; got none.')
        data = _field(request, "data", dict)
        self.train = Data("data.train", data["train"], self.input, self.classes) if data.get("train") else None
        self.test = Data("data.test", data["test"], self.input, self.classes) if data.get("test") else None
        if self.train is None and (self.phase == "train" or self.test is None):
            raise ValueError("data: must have the part train; got %s." % (sorted(data) or "nothing"))

    @staticmethod
    def _checked_switches(switches, known, why):
        for name, value in switches.items():
            if name in known:
                _offered(name, value, known[name], why)
            else:
                raise Declined(name, _with_reason("%s: this driver has no such switch; it has %s." % (
                    name, ", ".join(sorted(known)) or "none"), why(name, value)))
        return dict(switches)

    def samples(self):
        """The samples of `check` and `run`, in both phases: those to train on; the test's where there are no others."""
        return self.train if self.train is not None else self.test

    def optimizer_options(self, known):
        """(name, options) of the optimiser; declined unless `known` has the name, with the options besides lr."""
        options = dict(self.optimizer)
        name = options.pop("name")
        if name not in known:
            raise Declined("optimizer", "optimizer: must be one of %s; got %r." % (", ".join(known), name))
        for option in options:
            if option not in known[name] | {"lr"}:
                raise Declined("optimizer." + option, "optimizer.%s: %s takes lr, %s." % (
                    option, name, ", ".join(sorted(known[name]))))
        return name, options

    def weights(self, shapes):
        """The weights to start from, {canonical name: f32 array}; None where the framework is to make its own.

        shapes: {canonical name: shape in PyTorch's layout} of all trained parameters. Where the file has running
        statistics (names that end in running_mean and running_var), they come along; absent ones are 0 and 1.
        """
        if not self.weights_from:
            return None
        if "hash" in self.weights_from:
            return hash_weights(shapes, int(self.weights_from["hash"]))
        found = read_safetensors(self.weights_from.get("file"))
        for name, shape in shapes.items():
            if name not in found:
                raise ValueError("weights: the file has no %s; it has %s." % (name, ", ".join(sorted(found))))
            if found[name].shape != tuple(shape):
                raise ValueError("weights: %s is %s in the file and %s in the model." % (
                    name, found[name].shape, tuple(shape)))
        extra = sorted(name for name in found if name not in shapes and "running_" not in name
                       and not name.endswith("num_batches_tracked"))
        if extra:
            raise ValueError("weights: the file has %s, which the model has not." % ", ".join(extra))
        return found


# ---------------------------------------------------------------------------------------------------------------------
# Numbers that every driver must agree on


def hashed(index, seed):
    """The protocol's hash of an array of indices (any integers): uint32 array."""
    h = np.asarray(index).astype(np.uint32) * np.uint32(0x9E3779B1)
    h += np.uint32(int(seed) * 0x7F4A7C15 % 2**32)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def hash_weights(shapes, seed):
    """{name: f32 array} by the protocol's formula, for the trained parameters of these canonical names and shapes."""
    made = {}
    piece = 1 << 22  # numbers at a time: the hash needs a few arrays of this size besides the result
    for number, name in enumerate(sorted(shapes)):
        shape = tuple(shapes[name])
        width = np.float32(math.sqrt(6.0 / max(1, math.prod(shape[1:]))) if len(shape) >= 2 else 0.05)
        flat = np.empty(math.prod(shape), dtype=np.float32)
        for begin in range(0, len(flat), piece):
            end = min(begin + piece, len(flat))
            bits = hashed(np.arange(begin, end, dtype=np.uint32), seed + number)
            unit = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
            flat[begin:end] = (unit - np.float32(0.5)) * np.float32(2) * width
        if len(shape) == 1 and name.endswith("weight"):
            flat += np.float32(1)
        made[name] = flat.reshape(shape)
    return made


def epoch_order(samples, seed, epoch):
    """The order of epoch `epoch` (0, 1, …) of fit."""
    return np.argsort(hashed(np.arange(samples, dtype=np.uint32), seed + 7919 * (epoch + 1)), kind="stable")


def read_safetensors(path):
    """{name: f32 array} of a safetensors file. Integer tensors (counters) are left out."""
    if not isinstance(path, str):
        raise ValueError("weights.file: must be a path; got %r." % (path,))
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > os.path.getsize(path) - 8:
            raise ValueError("weights.file: the header must fit into the file; %r is no safetensors file." % path)
        header = json.loads(file.read(length).decode("utf-8"))
    found = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"].startswith(("I", "U", "B")) and entry["dtype"] != "BF16":
            continue
        if entry["dtype"] != "F32":
            raise ValueError("weights.file: tensors must be F32; %s is %s." % (name, entry["dtype"]))
        begin, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if end - begin != 4 * math.prod(shape):
            raise ValueError("weights.file: %s must have %d bytes; got %d." % (name, 4 * math.prod(shape), end - begin))
        found[name] = np.fromfile(path, dtype="<f4", count=(end - begin) // 4, offset=8 + length + begin).reshape(shape)
    return found


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


# ---------------------------------------------------------------------------------------------------------------------
# The calls


class _Dialogue:
    """One process: the driver, and the cell that was prepared last."""

    def __init__(self, driver, emit):
        self.driver = driver
        self.emit = emit  # writes one JSON object as a line
        self.known = None
        self.cell = self.model = self.placed = None
        self.updates = 0

    def offer(self):
        if self.known is None:
            self.known = self.driver.hello()
        return self.known

    def hello(self, request):
        return dict(self.offer(), protocol=PROTOCOL)

    def prepare(self, request):
        self.cell = self.model = self.placed = None  # before the next is built: two may not fit
        self.updates = 0
        gc.collect()
        begin = now_ns()
        cell = Cell(request, self.offer(), self.driver.why_declined)
        model = self.driver.build(cell)
        model.synchronize()
        self.cell, self.model = cell, model
        return {"parameters": int(model.parameters()), "prepare_ns": now_ns() - begin,
                "obeyed": cell.switches if model.obeyed is None else model.obeyed, "notes": list(model.notes)}

    def prepared(self, call):
        if self.model is None:
            raise RuntimeError("%s: a cell must be prepared first; got none." % call)
        return self.cell, self.model

    def check(self, request):
        cell, model = self.prepared("check")
        data = cell.samples()
        x, y = data.batch(0, cell.batch)
        logits = np.asarray(model.logits(x, y), dtype=np.float64)
        if logits.shape != (cell.batch, cell.classes):
            raise RuntimeError("check: logits must be %s; got %s." % ((cell.batch, cell.classes), logits.shape))
        answer = {"parameters": int(model.parameters()), "logits": logits[:4].tolist()}
        if cell.phase == "infer":
            return answer
        steps = _positive(request, "steps", 1, least=0)
        loss, norms = model.loss_and_gradients(x, y)
        answer["loss"] = float(loss)
        answer["gradients"] = {name: float(norms[name]) for name in sorted(norms)}
        answer["losses"] = []
        for index in range(steps):
            model.train_step(model.place(*data.batch(index, cell.batch)))
            self.updates += 1
            answer["losses"].append(float(model.read_loss()))
        return answer

    def resident(self):
        """The batches of `run`, on the device."""
        if self.placed is None:
            data, size = self.cell.samples(), self.cell.batch
            count = max(1, min(RESIDENT_BATCHES, len(data) // size))
            self.placed = [self.model.place(*data.batch(index, size)) for index in range(count)]
        return self.placed

    def run(self, request):
        cell, model = self.prepared("run")
        region = _offered("region", request.get("region"), ["latency", "throughput"])
        steps = _positive(request, "steps")
        placed = self.resident()
        turns = [placed[index % len(placed)] for index in range(steps)]
        step = model.train_step if cell.phase == "train" else model.infer_step
        model.synchronize()
        answer = _latency(step, model.synchronize, turns) if region == "latency" else \
            _throughput(step, model.synchronize, turns)
        if cell.phase == "train":
            self.updates += steps
            answer["loss"] = float(model.read_loss())
        else:
            answer["loss"] = None
            answer["output_sum"] = float(np.asarray(model.read_logits(), dtype=np.float64).sum())
        answer["updates"] = self.updates
        return answer

    def fit(self, request):
        cell, model = self.prepared("fit")
        if cell.phase != "train":
            raise Declined("fit", "fit: must be prepared in phase train; got %s." % cell.phase)
        epochs = _positive(request, "epochs")
        cap_s = request.get("cap_s")
        cap_ns = math.inf if cap_s is None else float(cap_s) * 1e9
        batches = len(cell.train) // cell.batch
        if batches == 0:
            raise ValueError("fit: an epoch must have a whole batch; got %d samples and batch %d." % (
                len(cell.train), cell.batch))
        start, done, capped, confusion = now_ns(), 0, False, None
        while done < epochs and not capped:
            order = epoch_order(len(cell.train), cell.seed, done)
            begin = now_ns()
            model.train_epoch(cell.train, order, batches, cell.batch)
            model.synchronize()
            train_end = now_ns()
            self.updates += batches
            loss, right = model.counted()
            line = {"epoch": done + 1, "begin": begin, "train_end": train_end, "loss": float(loss) / batches,
                    "accuracy": int(right) / (batches * cell.batch), "test_loss": None, "test_accuracy": None}
            if cell.test is not None:
                line["test_loss"], line["test_accuracy"], confusion = self.evaluate()
            line["end"] = now_ns()
            done += 1
            capped = line["end"] - start > cap_ns and done < epochs
            self.emit({"id": request.get("id"), "progress": line})
        return {"epochs": done, "capped": capped, "confusion": confusion}

    def evaluate(self):
        """-> (mean loss, accuracy, confusion) over the test's samples. The last batch is filled up, for frameworks that
        compile for one size, and what was filled in is left out."""
        cell, model = self.cell, self.model
        confusion = np.zeros((cell.classes, cell.classes), dtype=np.int64)
        loss = 0.0
        for begin in range(0, len(cell.test), cell.batch):
            x, y = cell.test.batch(begin // cell.batch, cell.batch)
            kept = min(cell.batch, len(cell.test) - begin)
            logits = np.asarray(model.logits(x, y), dtype=np.float64)[:kept]
            y = y[:kept]
            top = logits.max(axis=1)
            loss += float((top + np.log(np.exp(logits - top[:, None]).sum(axis=1)) - logits[np.arange(kept), y]).sum())
            np.add.at(confusion, (y, logits.argmax(axis=1)), 1)
        return loss / len(cell.test), int(np.trace(confusion)) / len(cell.test), confusion.tolist()

    def breakdown(self, request):
        cell, model = self.prepared("breakdown")
        steps = _positive(request, "steps", 5)
        answer = dict(model.breakdown(steps, self.resident()))
        if cell.phase == "train":
            self.updates += steps
        return answer

    def quit(self, request):
        return {}


def _latency(step, synchronize, turns):
    clock, monotonic, times = time.clock_gettime_ns, time.CLOCK_MONOTONIC, []
    note = times.append
    for placed in turns:
        begin = clock(monotonic)
        step(placed)
        synchronize()
        note((begin, clock(monotonic)))
    return {"steps": times}


def _throughput(step, synchronize, turns):
    begin = now_ns()
    for placed in turns:
        step(placed)
    synchronize()
    return {"begin": begin, "end": now_ns(), "count": len(turns)}


# ---------------------------------------------------------------------------------------------------------------------
# Requests and answers


def _field(holder, name, kind, what=None, default=None):
    value = holder.get(name, default)
    if not isinstance(value, kind) or kind is int and isinstance(value, bool):
        raise ValueError("%s: must be a %s; got %r." % (what or name, kind.__name__, value))
    return value


def _positive(holder, name, default=None, least=1):
    value = holder.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError("%s: must be an integer, at least %d; got %r." % (name, least, value))
    return value


def _offered(what, value, offered, why=lambda what, value: None):
    if value not in offered:
        raise Declined(what, _with_reason("%s: must be one of %s; got %r." % (
            what, ", ".join(map(str, offered)) or "none", value), why(what, value)))
    return value


def _with_reason(rule, reason):
    return rule + " " + reason if reason else rule


def _finite(value):
    """The same with null for infinities and NaN, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _plain(value):
    """NumPy's numbers and arrays as JSON knows them; anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


_protocol_output = None


def claim_stdout():
    """Keeps standard output for the protocol: what anything else prints there goes to standard error from now on."""
    global _protocol_output
    if _protocol_output is None:
        sys.stdout.flush()
        _protocol_output = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
    return _protocol_output


def _failure(driver, error):
    if isinstance(error, Declined):
        return {"kind": "declined", "what": error.what, "message": str(error)}
    traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    sys.stderr.flush()
    memory = isinstance(error, MemoryError) or driver.is_out_of_memory(error)
    return {"kind": "out_of_memory" if memory else "failed", "what": type(error).__name__,
            "message": str(error) or type(error).__name__}


def serve(driver, requests=None):
    """Answers the requests of standard input until quit or its end, then exits with 0."""
    output = claim_stdout()

    def emit(answer):
        try:
            line = json.dumps(answer, allow_nan=False, default=_plain)
        except ValueError:
            line = json.dumps(_finite(json.loads(json.dumps(answer, default=_plain))))
        output.write(line + "\n")
        output.flush()

    dialogue = _Dialogue(driver, emit)
    calls = ("hello", "prepare", "check", "run", "fit", "breakdown", "quit")
    for line in requests or sys.stdin:
        if not line.strip():
            continue
        number, call = None, None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("request: must be a JSON object; got %s." % type(request).__name__)
            number, call = request.get("id"), request.get("call")
            if call not in calls:
                raise Declined(str(call), "%s: this driver has no such call; it has %s." % (call, ", ".join(calls)))
            answer = {"id": number, "ok": True}
            answer.update(getattr(dialogue, call)(request))
        except Exception as error:  # whatever happens costs this answer, not the process
            answer = {"id": number, "ok": False, "error": _failure(driver, error)}
        emit(answer)
        if call == "quit":
            break
    dialogue.model = dialogue.placed = None
    sys.stderr.flush()
    sys.exit(0)
