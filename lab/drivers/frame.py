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
                    "kinds": ["linear", "relu"], "losses": ["cross_entropy"], "listings": ["lenet"],
                    "phases": ["train", "infer"], "precisions": ["f32"], "switches": {}, "libraries": {},
                    "trims": False}
        def build(self, cell):
            return SomeModel(cell)

    if __name__ == "__main__":
        frame.serve(SomeDriver())

The frame reads the requests, checks each field of `prepare` against what `hello` offers (so that an unknown kind of
layer, loss, variant, device, precision, switch or value is declined by name before `build` is called), reads the data
and the weights, keeps the order of the batches, times `run`, goes through the epochs of `fit`, computes the test's loss
and metrics, and turns exceptions into answers: Declined -> declined, MemoryError or what Driver.is_out_of_memory knows
-> out_of_memory, anything else -> failed, with the traceback on standard error.

A batch is a dict {name: NumPy array} of the network's inputs and the workload's targets, f32 or i64, the first axis
being the batch, until Model.place takes it.

Needs Python 3.8 and NumPy 1.20 or later, and nothing else.
"""
from __future__ import annotations

import gc
import json
import keyword
import math
import os
import re
import sys
import time
import traceback
from types import SimpleNamespace

import numpy as np

PROTOCOL = 2
CHECKED_VALUES = 4096  # how many numbers of an output `check` tells at most
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
        """-> dict with framework, version, variants, devices, kinds, losses, listings, phases, precisions, switches,
        libraries; trims, where steps take batches whose samples are shorter than the network says."""
        raise NotImplementedError

    def build(self, cell):
        """-> Model for the Cell. May raise Declined(what, message) for what this cell's mixture cannot have."""
        raise NotImplementedError

    def pipeline(self, cell, model):
        """-> Pipeline for the Cell; must be given where `hello` offers phase load (model is None there) or the switch
        feed."""
        raise NotImplementedError

    def why_declined(self, what, value):
        """Why a value that `hello` does not offer (of a switch, "precision", "device", "kind", "loss", …) cannot be
        obeyed: a sentence that follows the rule in the message. None: there is no more to say."""
        return None

    def is_out_of_memory(self, error):
        """True where the exception says that the device or the machine has not enough memory."""
        text = str(error).lower()
        return any(word in text for word in ("out of memory", "can't allocate memory", "cannot allocate memory",
                                             "bad_alloc", "resource_exhausted", "failed to allocate"))


class Model:
    """One prepared cell. A step keeps its loss and its outputs where it likes (on the device) until they are read.
    Networks with states begin each step with what the step before left, and with zeros after reset_states."""

    notes = ()     # texts for the answer to prepare
    obeyed = None  # the switches as set; None: those of the request
    cell = None    # set by the frame after build

    def parameters(self):
        """Must: how many numbers are trained."""
        raise NotImplementedError

    def place(self, batch):
        """Must: the batch on the device, in whatever form the steps take. Its size is always cell.batch; with cell.trim
        its samples are as long as the longest of them."""
        raise NotImplementedError

    def train_step(self, placed):
        """Must, in phase train: forward, backward, update; reads nothing back and need not wait for the device."""
        raise NotImplementedError

    def infer_step(self, placed):
        """Must: the outputs in test mode (dropout off, running statistics); reads nothing back."""
        raise NotImplementedError

    def synchronize(self):
        """Must: returns when the device has done all that was asked of it."""
        raise NotImplementedError

    def read_loss(self):
        """Must, in phase train: the loss of the last train_step, before its update, as a float."""
        raise NotImplementedError

    def read_outputs(self):
        """Must: {output's name: array (batch, …)} of the last infer_step; and of train_step, unless count is
        overridden."""
        raise NotImplementedError

    def loss_and_gradients(self, batch):
        """Must, in phase train: (loss, {canonical name: Euclidean norm of the gradient}) in training mode, from zero
        states; leaves weights, running statistics and states as they were."""
        raise NotImplementedError

    def reset_states(self):
        """Must, for networks with states: they are zero again."""

    # The training loss and accuracy of an epoch of fit. A framework that computes asynchronously overrides both, and
    # adds up on the device; these read back after each step.
    def count(self, placed, batch):
        """Adds the last train_step's loss and, where the workload asks for the accuracy, its right answers to the
        epoch's sums."""
        loss, right = self.__dict__.get("_sums", (0.0, 0))
        loss += self.read_loss()
        if "accuracy" in self.cell.metrics:
            outputs, labels = self.cell.counted_places(self.read_outputs(), batch)
            right += int((outputs.argmax(axis=-1) == labels).sum())
        self._sums = loss, right

    def counted(self):
        """(sum of the steps' losses, {"accuracy": number of right answers} or {}) since the last call."""
        loss, right = self.__dict__.pop("_sums", (0.0, 0))
        return loss, {"accuracy": right} if "accuracy" in self.cell.metrics else {}

    # The tests of fit. A framework that computes loss and accuracy itself need not bring its outputs to the host; the frame
    # asks it where the loss is cross_entropy.
    def measure(self, placed):
        """{name: array (batch,)} of the outputs of the last infer_step: "loss", the sum over the places of each sample that
        count; where the workload asks for the accuracy also "accuracy", how many of these places are right, and of
        targets without axes "class", the likeliest one. The arrays stay on the device until the test is over. None: the
        frame reads the outputs and measures with NumPy."""
        return None

    def read_measured(self, array):
        """An array of `measure`, on the host."""
        return np.asarray(array)

    def train_epoch(self, data, order, batches, size):
        """One epoch of fit: so many batches of this size, in this order; adds up what `counted` tells."""
        for index in range(batches):
            batch = data.batch(index, size, order)
            placed = self.place(batch)
            self.train_step(placed)
            self.count(placed, batch)

    def keep_resident(self, placed_batches):
        """The batches of `run`, as they lie on the device before the clock of the first one starts; need do nothing."""

    def sustained(self, step, placed_batches, steps):
        """-> function without arguments that takes so many steps, the batches in turns: what the region throughput of
        `run` times. `step` is train_step or infer_step."""
        turns = [placed_batches[index % len(placed_batches)] for index in range(steps)]

        def take():
            for placed in turns:
                step(placed)

        return take

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


class Pipeline:
    """The framework's own way from samples to batches on the device, made ahead: image files (cell.images), or arrays
    (cell.samples()) where the cell has none. Sample p of a run is file or row p mod N; in training a picture is cut at
    the place that `cut_of` draws, in `first` at `middle_of`."""

    def first(self):
        """Must, in phase load: the first batch in test mode, an array (batch, 3, height, width)."""
        raise NotImplementedError

    def begin(self, batches):
        """Must: begins anew with batch 0, and makes so many batches and no more."""
        raise NotImplementedError

    def next(self):
        """Must: the next batch, as Model.place gives it; waits until it is there."""
        raise NotImplementedError

    def read(self, placed):
        """Must: {name: array} of the inputs and targets of a batch that next gave; the order of axes does not matter."""
        raise NotImplementedError

    def synchronize(self):
        """Must: returns when the device has done all that was asked of it."""
        raise NotImplementedError


class Network:
    """The protocol's `network`, checked.

    name        of the network
    inputs      [{"name", "type", "shape", "range" or absent}, …]     states   [{"name", "shape"}, …], shapes without
                the batch
    calls       [{"kind", "name", "in", "out", "shape", "settings", "parameters", "buffers"}, …] in the order of work;
                where `prepare` says dropout false, every p is 0
    outputs     [{"name", "value", "shape"}, …]
    parameters  {full name: PyTorch's shape} of all calls, and buffers likewise
    whole       the call of a network that is written by hand: its kind is the network's, and there is no other call.
                None for a list of layers
    """

    def __init__(self, description, dropout):
        def part(name, kind, default=None):
            return _field(description, name, kind, "network." + name, default)

        self.name = part("name", str)
        self.inputs, self.states = part("inputs", list), part("states", list, [])
        self.calls, self.outputs = part("calls", list), part("outputs", list)
        self.parameters, self.buffers = {}, {}
        known = {entry["name"] for entry in self.inputs}
        for call in self.calls:
            for value in call["in"]:
                if value not in known:
                    raise ValueError("network: %s %r must take values made before it; got %r." % (
                        call["kind"], call["name"], value))
            known.update(call.get("outs", [call["out"]]))
            self.parameters.update({name: tuple(shape) for name, shape in call["parameters"].items()})
            self.buffers.update({name: tuple(shape) for name, shape in call["buffers"].items()})
            if not dropout and "p" in call["settings"]:
                call["settings"]["p"] = 0.0
            if "outs" in call and len(self.calls) > 1:
                raise ValueError("network: %s must be the only call of its network; got %d calls." % (
                    call["kind"], len(self.calls)))
        self.whole = self.calls[0] if self.calls and "outs" in self.calls[0] else None
        if self.whole and not dropout:  # its probabilities are the numbers with a point
            self.whole["settings"] = {name: 0.0 if isinstance(value, float) else value
                                      for name, value in self.whole["settings"].items()}
        for output in self.outputs:
            if output["value"] not in known:
                raise ValueError("network: output %r must be a value of the network; got %r." % (
                    output["name"], output["value"]))

    def straight_line(self, reserved=()):
        """The network as a person writes it in Python, with names that are used again when their value is no longer
        needed: (names of the inputs, lines, names of the outputs). A line is (call, [names of what it takes], name of
        what it makes, [names that nothing reads after it and that it leaves bound]). reserved: names to keep clear of.
        """
        last, taken, names = {}, set(reserved) | set(keyword.kwlist), {}
        for index, call in enumerate(self.calls):
            last.update({value: index for value in call["in"]})
        last.update({output["value"]: len(self.calls) for output in self.outputs})

        def fresh(wish):
            name = re.sub(r"\W", "_", wish)
            name = "_" + name if name[:1].isdigit() else name
            while name in taken:
                name += "_"
            taken.add(name)
            return name

        for entry in self.inputs:
            names[entry["name"]] = fresh(entry["name"])
        inputs, lines = list(names.values()), []
        for index, call in enumerate(self.calls):
            used = [names[value] for value in call["in"]]
            free = list(dict.fromkeys(names[value] for value in call["in"] if last[value] == index))
            names[call["out"]] = free.pop(0) if free else fresh(call["out"])
            lines.append((call, used, names[call["out"]], free))
        return inputs, lines, [names[output["value"]] for output in self.outputs]

    def has_lstm(self):
        """Whether the switch lstm has something to turn: a layer, or a weight of four gates in a whole network."""
        return any(call["kind"] == "lstm" for call in self.calls) or self.whole is not None and any(
            name.endswith("weight_hh_l0") and shape[0] == 4 * shape[1] for name, shape in self.parameters.items())

    def limits(self):
        """{input's name: (least, most)} of the whole numbers: rows of an embedding, and lengths of its sequences."""
        shapes = {entry["name"]: entry["shape"] for entry in self.inputs + [
            {"name": call["out"], "shape": call["shape"]} for call in self.calls]}
        whole = {entry["name"] for entry in self.inputs if entry["type"] == "i64"}
        found = {entry["name"]: tuple(entry["range"]) for entry in self.inputs if "range" in entry}
        for call in self.calls:
            if call["kind"] == "embedding":
                found[call["in"][0]] = 0, call["settings"]["rows"] - 1
            elif call["kind"] in ("lstm", "attention", "mean") and call["in"][-1] in whole:
                time = shapes[call["in"][1 if len(call["in"]) > 3 else 0]][0]  # of the keys, or the only values
                found[call["in"][-1]] = 1, min(time, found.get(call["in"][-1], (1, time))[1])
        return {name: found[name] for name in found if name in whole}


class Data:
    """Samples in NumPy files, mapped, by the names of the network's inputs and the workload's targets.

    wanted: {name: (type, shape of a sample, least, most)}; least and most are None for any. trim: of the Cell."""

    def __init__(self, what, paths, wanted, trim=()):
        self.arrays, self.length, self.trim = {}, None, trim
        for name, (kind, shape, least, most) in wanted.items():
            full = "%s.%s" % (what, name)
            if not isinstance(paths.get(name), str):
                raise ValueError("%s: must be the path of a NumPy file; got %r." % (full, paths.get(name)))
            array = np.load(paths[name], mmap_mode="r", allow_pickle=False)
            if array.dtype != TYPES[kind] or array.shape[1:] != shape or array.ndim == 0 or len(array) == 0:
                raise ValueError("%s: must be %s (N%s) with at least one sample; got %s %s." % (
                    full, kind, "".join(", %d" % size for size in shape), array.dtype, array.shape))
            if self.length is None:
                self.length, first = len(array), full
            if len(array) != self.length:
                raise ValueError("%s: must have as many samples as %s, %d; got %d." % (
                    full, first, self.length, len(array)))
            if most is not None and (array.min() < least or array.max() > most):
                raise ValueError("%s: must be in %d … %d; got %d … %d." % (
                    full, least, most, array.min(), array.max()))
            self.arrays[name] = array

    def __len__(self):
        return self.length

    def batch(self, index, size, order=None):
        """Batch number `index` in the given order (that of the file where there is none); runs on from the start."""
        places = np.arange(index * size, (index + 1) * size, dtype=np.int64) % len(self)
        if order is not None:
            places = order[places]
        elif places[0] <= places[-1] and size <= len(self):
            places = slice(int(places[0]), int(places[-1]) + 1)
        sizes = {name: trimmed_size(int(self.arrays[rule.length][places].max()), rule, self.arrays[name].shape[1])
                 for rule in self.trim for name in rule.of}
        return {name: np.array(array[places][:, :sizes[name]] if name in sizes else array[places])
                for name, array in self.arrays.items()}


def trimmed_size(longest, rule, places):
    """How many of `places` are left of a batch whose longest sample has so many."""
    return min(places, -(-longest // rule.multiple) * rule.multiple)


TYPES = {"f32": np.float32, "i64": np.int64}
# What each metric is measured of: the losses with which it makes sense.
METRICS = {"accuracy": ("cross_entropy",), "perplexity": ("cross_entropy",), "mse": ("mse", "mae", "bce"),
           "mae": ("mse", "mae", "bce")}


class Cell:
    """What `prepare` asked for, checked. The fields have the protocol's names; besides:

    network    Network                             targets    {name: {"type", "shape", "below" or absent}}
    loss       kind, output, target, lengths (the name of the whole numbers that say how many places count, or None),
               stride (of ctc); of the kind sum: kind, and None for the others
    terms      the losses whose sum is taken: the loss itself, or the terms of a sum, each as `loss`
    metrics    list of names                       optimizer  dict with name, lr, ...
    switches   dict, every name and value known to `hello`
    train      Data or None                        test       Data or None
    trim       what lengths trim of each batch: a list of length, of (list of names) and multiple; empty: nothing
    images     paths, labels (lists), resize, height, width, mean, std; None where there are none
    more_tests {part: Data}, tested once after the last epoch of fit
    classes    `below` of the loss's target, sizes: the shape of the only input; None where there is none (listings)
    """

    def __init__(self, request, hello, why_declined=None):
        why = why_declined or (lambda what, value: None)

        def offered(what, value):
            return _offered(what, value, hello[what + "s"], why)

        self.workload = _field(request, "workload", dict)
        self.name = _field(self.workload, "name", str, "workload.name")
        self.dropout = _field(request, "dropout", bool, default=True)
        self.network = Network(_field(request, "network", dict), self.dropout)
        self.definition = _offered("definition", request.get("definition", "description"), ["description", "listing"])
        self.phase = offered("phase", _field(request, "phase", str))
        if self.phase != "load":
            self._check_layers(hello, why)
        self._read_loss(hello, why)
        self.variant = offered("variant", _field(request, "variant", str))
        self.device = offered("device", _field(request, "device", str))
        self.precision = offered("precision", _field(request, "precision", str))
        self.track = _offered("track", request.get("track", "equal"), ["equal", "as_shipped"])
        self.batch = _positive(request, "batch")
        self.threads = _positive(request, "threads", 1)
        self.seed = _field(request, "seed", int, default=0)
        self.optimizer = dict(_field(self.workload, "optimizer", dict, "workload.optimizer"))
        _field(self.optimizer, "name", str, "workload.optimizer.name")
        self.switches = self._checked_switches(request.get("switches") or {}, hello["switches"], why)
        self.trim = self._checked_trim(request.get("trim") or {}, hello)
        self.weights_from = request.get("weights") or {}
        if self.phase == "load" and self.switches:
            raise Declined(min(self.switches), "%s: phase load has no network, and nothing to turn."
                           % min(self.switches))
        if self.phase == "load" and self.precision != "f32":
            raise Declined("precision", "precision: phase load makes samples of f32; got %s." % self.precision)
        if "lstm" in self.switches and self.definition != "listing" and not self.network.has_lstm():
            raise Declined("lstm", "lstm: the network has no such layer, and nothing to turn.")
        if self.phase != "train" and self.switches.get("feed") == "loader":
            raise Declined("feed", "feed: the loader feeds training steps; phase %s has resident batches alone."
                           % self.phase)
        if self.trim and self.switches.get("feed") == "loader":
            raise Declined("trim", "trim: batches of the loader are whole; got lengths to trim them by.")
        if self.phase != "load" and self.track == "equal" and not self.weights_from:
            raise ValueError('weights: the track "equal" needs {"file": PATH} or {"hash": SEED}; got none.')
        self._read_data(_field(request, "data", dict))

    def _check_layers(self, hello, why):
        if self.definition == "listing":
            if self.network.name not in hello["listings"]:
                raise Declined("definition", "definition: this driver has listings of %s; got %s." % (
                    ", ".join(hello["listings"]) or "no network", self.network.name))
            return
        for call in self.network.calls:
            if call["kind"] not in hello["kinds"]:
                raise Declined(call["kind"], _with_reason("%s: this driver builds %s; got the layer %r." % (
                    call["kind"], ", ".join(hello["kinds"]), call["name"]), why("kind", call["kind"])))

    def _read_loss(self, hello, why):
        self.targets = _field(self.workload, "targets", dict, "workload.targets")
        loss = _field(self.workload, "loss", dict, "workload.loss")
        self.loss = self._term(loss)
        terms = [self.loss]
        if self.loss.kind == "sum":
            terms = [self._term(term) for term in _field(loss, "terms", list, "workload.loss.terms")]
        for term in terms + [self.loss]:
            if term.kind not in hello["losses"] or term is not self.loss and term.kind in ("sum", "ctc"):
                raise Declined(str(term.kind), _with_reason("%s: this driver has the losses %s." % (
                    term.kind, ", ".join(hello["losses"])), why("loss", term.kind)))
        self.terms = [self._checked_term(term) for term in terms]
        if not terms:
            raise ValueError("workload.loss.terms: must be losses whose sum is taken; got none.")
        target = self.targets.get(self.loss.target, {})
        self.metrics = _field(self.workload, "metrics", list, "workload.metrics", [])
        for metric in self.metrics:
            if self.loss.kind not in METRICS.get(metric, ()):
                known = [name for name in METRICS if self.loss.kind in METRICS[name]]
                raise Declined("metrics", "metrics: beside the loss %s must be one of %s; got %r." % (
                    self.loss.kind, ", ".join(known) or "none", metric))
        self.classes = target.get("below")
        self.sizes = tuple(self.network.inputs[0]["shape"]) if len(self.network.inputs) == 1 else None

    @staticmethod
    def _term(loss):
        names = ("kind", "output", "target", "lengths")
        if not isinstance(loss, dict):
            raise ValueError("workload.loss.terms: must be objects with kind, output and target; got %r." % (loss,))
        return SimpleNamespace(stride=loss.get("stride", 1), **{name: loss.get(name) for name in names})

    def _checked_term(self, term):
        outputs = {output["name"]: list(output["shape"]) for output in self.network.outputs}
        inputs = [entry["name"] for entry in self.network.inputs]
        if term.output not in outputs:
            raise ValueError("workload.loss.output: must be one of %s; got %r." % (", ".join(outputs), term.output))
        if term.target not in self.targets:
            raise ValueError("workload.loss.target: must be one of %s; got %r." % (
                ", ".join(self.targets), term.target))
        if term.lengths not in [None] + inputs + list(self.targets):
            raise ValueError("workload.loss.lengths: must be an input or a target; got %r." % term.lengths)
        target, shape = self.targets[term.target], outputs[term.output]
        wanted = ("i64", shape[:-1]) if term.kind == "cross_entropy" else ("f32", shape)
        if term.kind == "ctc":  # as many labels as there are, and lengths, which count steps
            _positive(vars(term), "stride")
            if term.lengths is None or len(shape) != 2 or len(target["shape"]) != 1:
                raise ValueError("workload.loss: ctc takes lengths, an output of steps and classes and a target with "
                                 "one axis; got %s, %s and %s." % (term.lengths, shape, target["shape"]))
            wanted = "i64", list(target["shape"])
        if (target["type"], list(target["shape"])) != wanted:
            raise ValueError("workload.targets.%s: %s of an output of sizes %s takes %s %s; got %s %s." % (
                term.target, term.kind, shape, wanted[0], wanted[1], target["type"], target["shape"]))
        return term

    def _checked_trim(self, given, hello):
        if not given:
            return []
        if not hello.get("trims"):
            raise Declined("trim", "trim: this driver takes batches of one size alone; got lengths to trim them by, %s."
                           % ", ".join(sorted(given)))
        fields = {entry["name"]: entry for entry in self.network.inputs}
        fields.update(self.targets)
        rules, taken = [], set()
        for length, rule in sorted(_field({"trim": given}, "trim", dict).items()):
            entry = fields.get(length)
            if entry is None or entry["type"] != "i64" or entry["shape"]:
                raise ValueError("trim: must name inputs and targets of whole numbers without axes; got %r." % length)
            names = _field(rule, "of", list, "trim.%s.of" % length)
            places = {fields[name]["shape"][0] if fields.get(name, {}).get("shape") else None for name in names}
            if len(places) != 1 or None in places or taken & set(names) or len(set(names)) != len(names):
                raise ValueError("trim.%s.of: must be inputs and targets of as many places each, and each once; got %r."
                                 % (length, names))
            taken |= set(names)
            rules.append(SimpleNamespace(length=length, of=names, multiple=_positive(rule, "multiple", 1),
                                         places=places.pop()))
        for term in self.terms:
            for rule in rules:
                if term.target in rule.of and (term.lengths != rule.length or term.kind == "ctc"):
                    raise ValueError("trim.%s.of: a target of the loss is trimmed by the lengths of its term alone; got "
                                     "%r." % (rule.length, term.target))
        return rules

    def output_shape(self, output, batch):
        """The shape of an output for this batch. With trimmed batches its first axis is known of the outputs that the loss
        reads; of others it is None."""
        shape = (self.batch,) + tuple(output["shape"])
        if not self.trim or len(shape) < 2:
            return shape
        for term in self.terms:
            if term.output == output["name"]:
                for rule in self.trim:
                    if term.kind == "ctc" and term.lengths == rule.length:
                        return shape[:1] + (-(-batch[rule.of[0]].shape[1] // term.stride),) + shape[2:]
                    if term.target in rule.of:
                        return shape[:1] + (batch[term.target].shape[1],) + shape[2:]
                return shape
        return shape[:1] + (None,) + shape[2:]

    def wanted(self):
        """The names of what the loss takes beside outputs: of each term its target and, where it has any, lengths."""
        return list(dict.fromkeys(name for term in self.terms for name in (term.target, term.lengths)
                                  if name is not None))

    def _read_data(self, data):
        limits = self.network.limits()
        for name, target in self.targets.items():
            if target.get("below") is not None:
                limits[name] = 0, target["below"] - 1
        for term in self.terms:
            if term.lengths is not None:
                time = term.stride * next(output["shape"][0] for output in self.network.outputs
                                          if output["name"] == term.output)
                limits[term.lengths] = 1, min(time, limits.get(term.lengths, (1, time))[1])
        for rule in self.trim:
            limits[rule.length] = 1, min(rule.places, limits.get(rule.length, (1, rule.places))[1])
        entries = {entry["name"]: entry for entry in self.network.inputs}
        entries.update(self.targets)
        wanted = {name: (_offered(name + ".type", entry["type"], list(TYPES)), tuple(entry["shape"]))
                  + limits.get(name, (None, None)) for name, entry in entries.items()}
        self.train, self.test = (
            Data("data." + part, data[part], wanted, self.trim) if data.get(part) else None
            for part in ("train", "test"))
        self.more_tests = {part: Data("data." + part, data[part], wanted, self.trim) for part in sorted(data)
                           if part.startswith("test_")}
        self.images = self._read_images(_field(data, "images", dict, "data.images")) if data.get("images") else None
        if self.phase == "load":
            if self.images is None:
                raise ValueError("data: must have images in phase load; got none.")
        elif self.train is None and (self.phase == "train" or self.test is None):
            raise ValueError("data: must have the part train; got %s." % (sorted(data) or "nothing"))

    def _read_images(self, given):
        if self.sizes is None or len(self.sizes) != 3 or self.sizes[0] != 3 or len(self.targets) != 1:
            raise ValueError("data.images: must be for a network of one input (3, height, width) and one target.")
        images = SimpleNamespace(paths=[], labels=[], resize=_positive(given, "resize"), height=self.sizes[1],
                                 width=self.sizes[2])
        for name in ("mean", "std"):
            values = _field(given, name, list, "data.images." + name)
            if len(values) != 3 or not all(isinstance(value, (int, float)) for value in values):
                raise ValueError("data.images.%s: must be three numbers; got %r." % (name, values))
            setattr(images, name, [float(value) for value in values])
        if images.resize < max(images.height, images.width):
            raise ValueError("data.images.resize: must be at least the sizes of a sample, %d and %d; got %d." % (
                images.height, images.width, images.resize))
        with open(_field(given, "list", str, "data.images.list"), encoding="utf-8") as file:
            for line in file:
                label, tab, path = line.rstrip("\n").partition("\t")
                if not tab or not label.isdigit() or self.classes is not None and int(label) >= self.classes:
                    raise ValueError("data.images.list: each line must be a label below %s and a path, with a tab "
                                     "between; got %r." % (self.classes, line[:120]))
                images.labels.append(int(label))
                images.paths.append(path)
        if not images.paths:
            raise ValueError("data.images.list: must have a file; got none.")
        return images

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

    def counted_places(self, outputs, batch, term=None):
        """The output and the target of the loss (or of a term of it) at the places that count: for cross_entropy (places,
        classes) and (places,), else both (numbers,). outputs: {name: array (samples, …)}, of the batch's first samples."""
        term = term or self.loss
        output = np.asarray(outputs[term.output])
        target = batch[term.target][:len(output)]
        if term.lengths is not None:
            counts = np.arange(output.shape[1]) < batch[term.lengths][:len(output), None]
            output, target = output[counts], target[counts]
        if term.kind == "cross_entropy":
            output = output.reshape(-1, output.shape[-1])
        else:
            output = output.reshape(-1)
        return output, target.reshape(-1)

    def counted_in(self, data, places):
        """How many labels count in the samples at these places."""
        shape = self.targets[self.loss.target]["shape"]
        if self.loss.lengths is None:
            return len(places) * math.prod(shape)
        return int(data.arrays[self.loss.lengths][places].sum()) * math.prod(shape[1:])

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


def drawn(positions, seed):
    """Three 32-bit numbers for each position of a run, (n, 3): where a picture is cut, down and across, and whether it is
    mirrored."""
    positions = np.asarray(positions, dtype=np.uint32).reshape(-1, 1)
    return hashed(positions * np.uint32(3) + np.arange(3, dtype=np.uint32), seed)


def cut_of(numbers, height, width, images):
    """(top, left, is mirrored) in a picture of these sizes, by three numbers of `drawn`."""
    down, across, mirrored = map(int, numbers)
    return (down * (height - images.height + 1) >> 32, across * (width - images.width + 1) >> 32, mirrored >> 31 == 1)


def middle_of(height, width, images):
    """The same in test mode."""
    return (height - images.height) // 2, (width - images.width) // 2, False


def checked_values(array):
    """An output as `check` tells it: its shape and its numbers, of many the ones that the hash picks."""
    flat = array.reshape(-1)
    if len(flat) > CHECKED_VALUES:
        flat = flat[hashed(np.arange(CHECKED_VALUES), CHECKED_VALUES).astype(np.int64) % len(flat)]
    return {"shape": list(array.shape), "values": flat.tolist()}


def _measured(cell, term, output, target):
    """{"loss": array, metric: array}: of each place that counts. The metrics that are means over places."""
    if term.kind == "cross_entropy":
        top = output.max(axis=1)
        picked = output[np.arange(len(target)), target]
        found = {"loss": top + np.log(np.exp(output - top[:, None]).sum(axis=1)) - picked}
        if "accuracy" in cell.metrics:
            found["accuracy"] = output.argmax(axis=1) == target
        return found
    each = {"mse": np.square(output - target), "mae": np.abs(output - target),
            "bce": np.maximum(output, 0) - output * target + np.log1p(np.exp(-np.abs(output)))}
    return dict({name: each[name] for name in cell.metrics}, loss=each[term.kind])


def ctc_losses(logits, labels, lengths, stride):
    """Of each sample CTC's loss over the number of its labels, (N,). logits (N, steps, classes), labels (N, L), filled up with
    zeros. The blank is 0; where the labels cannot be had in so few steps the loss is 0."""
    top = logits.max(axis=2, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(axis=2, keepdims=True))
    samples, counts, steps = np.arange(len(labels)), (labels != 0).sum(axis=1), -(-lengths // stride)
    states = np.zeros((len(labels), 2 * labels.shape[1] + 1), dtype=np.int64)  # labels with blanks around each
    states[:, 1::2] = labels
    skips = np.zeros(states.shape, dtype=bool)  # from the label before, where it is another
    skips[:, 3::2] = labels[:, 1:] != labels[:, :-1]
    ahead = np.full(states.shape, -np.inf)
    ahead[:, 0], ahead[:, 1] = logs[:, 0, 0], logs[samples, 0, states[:, 1]]
    for step in range(1, logits.shape[1]):
        one, two = np.full(states.shape, -np.inf), np.full(states.shape, -np.inf)
        one[:, 1:], two[:, 2:] = ahead[:, :-1], ahead[:, :-2]
        moved = np.logaddexp(np.logaddexp(ahead, one), np.where(skips, two, -np.inf))
        ahead = np.where((step < steps)[:, None], moved + logs[samples[:, None], step, states], ahead)
    ends = np.logaddexp(ahead[samples, 2 * counts], ahead[samples, np.maximum(2 * counts - 1, 0)])
    ends = np.where(counts == 0, ahead[:, 0], ends)
    return np.where(np.isfinite(ends), -ends, 0.0) / np.maximum(counts, 1)


def _metrics_of(cell, loss):
    """The metrics that follow from the mean loss."""
    found = {"perplexity": float(np.exp(loss))} if "perplexity" in cell.metrics else {}
    return dict(found, **{cell.loss.kind: loss}) if cell.loss.kind in cell.metrics else found


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
        self.cell = self.model = self.placed = self.pipeline = None
        self.updates = 0

    def offer(self):
        if self.known is None:
            self.known = self.driver.hello()
        return self.known

    def hello(self, request):
        return dict(self.offer(), protocol=PROTOCOL)

    def prepare(self, request):
        # Before the next is built: two may not fit.
        self.cell = self.model = self.placed = self.pipeline = None
        self.updates = 0
        gc.collect()
        begin = now_ns()
        cell = Cell(request, self.offer(), self.driver.why_declined)
        if cell.phase == "load":
            self.pipeline = self.driver.pipeline(cell, None)
            self.cell = cell
            return {"parameters": 0, "prepare_ns": now_ns() - begin, "obeyed": {}, "notes": []}
        model = self.driver.build(cell)
        model.cell = cell
        model.synchronize()
        if cell.switches.get("feed") == "loader":
            self.pipeline = self.driver.pipeline(cell, model)
        self.cell, self.model = cell, model
        return {"parameters": int(model.parameters()), "prepare_ns": now_ns() - begin,
                "obeyed": cell.switches if model.obeyed is None else model.obeyed, "notes": list(model.notes)}

    def prepared(self, call):
        if self.cell is None:
            raise RuntimeError("%s: a cell must be prepared first; got none." % call)
        if self.model is None and call not in ("check", "run"):
            raise Declined(call, "%s: phase load has check and run alone." % call)
        return self.cell, self.model

    def check(self, request):
        cell, model = self.prepared("check")
        if cell.phase == "load":
            return {"parameters": 0, "outputs": {cell.network.inputs[0]["name"]: checked_values(
                np.asarray(self.pipeline.first(), dtype=np.float64))}}
        data = cell.samples()
        batch = data.batch(0, cell.batch)
        model.reset_states()
        answer = {"parameters": int(model.parameters()),
                  "outputs": {name: checked_values(value) for name, value in self.outputs(batch).items()}}
        if cell.phase == "infer":
            return answer
        steps = _positive(request, "steps", 1, least=0)
        model.reset_states()
        loss, norms = model.loss_and_gradients(batch)
        answer["loss"] = float(loss)
        answer["gradients"] = {name: float(norms[name]) for name in sorted(norms)}
        answer["losses"] = []
        model.reset_states()
        for index in range(steps):
            model.train_step(model.place(data.batch(index, cell.batch)))
            self.updates += 1
            answer["losses"].append(float(model.read_loss()))
        return answer

    def outputs(self, batch):
        """{name: f64 array (batch, …)} of the batch in test mode, in the network's order."""
        cell, model = self.cell, self.model
        model.infer_step(model.place(batch))
        return self.read_outputs(batch)

    def read_outputs(self, batch):
        """The same of a batch whose step was taken."""
        cell, read, found = self.cell, self.model.read_outputs(), {}
        for output in cell.network.outputs:
            found[output["name"]] = np.asarray(read[output["name"]], dtype=np.float64)
            made, shape = found[output["name"]].shape, cell.output_shape(output, batch)
            if len(made) != len(shape) or any(size not in (None, own) for own, size in zip(made, shape)):
                raise RuntimeError("output %s: must be %s; got %s." % (output["name"], shape, made))
        return found

    def resident(self):
        """The batches of `run`, on the device."""
        if self.placed is None:
            data, size = self.cell.samples(), self.cell.batch
            count = max(1, min(RESIDENT_BATCHES, len(data) // size))
            self.placed = [self.model.place(data.batch(index, size)) for index in range(count)]
            self.model.keep_resident(self.placed)
        return self.placed

    def run(self, request):
        cell, model = self.prepared("run")
        region = _offered("region", request.get("region"), ["latency", "throughput"])
        steps = _positive(request, "steps")
        if cell.phase == "load":
            return self.run_fed(region, steps, lambda placed: None, self.pipeline.synchronize)
        if self.pipeline is not None:
            model.reset_states()
            answer = self.run_fed(region, steps, model.train_step, model.synchronize)
            self.updates += steps
            return dict(answer, loss=float(model.read_loss()), updates=self.updates)
        placed = self.resident()
        step = model.train_step if cell.phase == "train" else model.infer_step
        model.reset_states()
        if region == "latency":
            turns = [placed[index % len(placed)] for index in range(steps)]
            model.synchronize()
            answer = _latency(step, model.synchronize, turns)
        else:
            take = model.sustained(step, placed, steps)
            model.synchronize()
            answer = dict(_throughput(take, model.synchronize), count=steps)
        if cell.phase == "train":
            self.updates += steps
            answer["loss"] = float(model.read_loss())
        else:
            answer["loss"] = None
            answer["output_sum"] = sum(float(np.asarray(value, dtype=np.float64).sum())
                                       for value in model.read_outputs().values())
        answer["updates"] = self.updates
        return answer

    def run_fed(self, region, steps, step, synchronize):
        """The answer of `run` where batches come from the pipeline, which begins within the first step."""
        pipeline, kept, waited = self.pipeline, None, 0

        def take(index):
            nonlocal kept, waited
            begin = now_ns()
            if index == 0:
                pipeline.begin(steps)
            kept = pipeline.next()
            waited += now_ns() - begin
            step(kept)

        synchronize()
        if region == "latency":
            answer = _latency(take, synchronize, range(steps))
        else:
            def take_all():
                for index in range(steps):
                    take(index)

            answer = dict(_throughput(take_all, synchronize), count=steps)
        sums = {name: float(np.asarray(value, dtype=np.float64).sum()) for name, value in pipeline.read(kept).items()}
        return dict(answer, loss=None, updates=self.updates, samples_sum=sums, wait_ns=waited)

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
            # A network with states goes on from batch to batch: its samples keep the order of the file.
            order = np.arange(len(cell.train)) if cell.network.states else \
                epoch_order(len(cell.train), cell.seed, done)
            begin = now_ns()
            model.reset_states()
            model.train_epoch(cell.train, order, batches, cell.batch)
            model.synchronize()
            train_end = now_ns()
            self.updates += batches
            loss, right = model.counted()
            loss = float(loss) / batches
            line = {"epoch": done + 1, "begin": begin, "train_end": train_end, "loss": loss,
                    "metrics": _metrics_of(cell, loss), "test_loss": None, "test_metrics": None}
            if "accuracy" in right:
                line["metrics"]["accuracy"] = int(right["accuracy"]) / cell.counted_in(
                    cell.train, order[:batches * cell.batch])
            if cell.test is not None:
                line["test_loss"], line["test_metrics"], confusion = self.evaluate(cell.test)
            line["end"] = now_ns()
            done += 1
            capped = line["end"] - start > cap_ns and done < epochs
            self.emit({"id": request.get("id"), "progress": line})
        tests = {}
        for part, data in cell.more_tests.items():
            loss, metrics, _ = self.evaluate(data)
            tests[part] = {"loss": loss, "metrics": metrics}
        return {"epochs": done, "capped": capped, "confusion": confusion, "tests": tests}

    def evaluate(self, data):
        """-> (mean loss, metrics, confusion or None) over the samples. The last batch is filled up, for
        frameworks that compile for one size, and what was filled in is left out. The model measures, where it can."""
        cell, model = self.cell, self.model
        # Counted where there is one label per sample.
        confusion = np.zeros((cell.classes, cell.classes), dtype=np.int64) if "accuracy" in cell.metrics and \
            not cell.targets[cell.loss.target]["shape"] and cell.classes is not None else None
        sums, counts, there = [{} for _ in cell.terms], [0] * len(cell.terms), []
        model.reset_states()
        for begin in range(0, len(data), cell.batch):
            batch = data.batch(begin // cell.batch, cell.batch)
            kept = min(cell.batch, len(data) - begin)
            placed = model.place(batch)
            model.infer_step(placed)
            measured = model.measure(placed) if cell.loss.kind == "cross_entropy" else None
            if measured is None:
                self._measure_with_numpy(batch, kept, sums, counts, confusion)
            else:
                there.append(measured)
        if there:
            whole = {name: np.concatenate([model.read_measured(found[name]) for found in there])[:len(data)]
                     for name in there[0]}
            counts[0] = cell.counted_in(data, np.arange(len(data)))
            sums[0] = {name: float(values.sum(dtype=np.float64)) for name, values in whole.items() if name != "class"}
            if confusion is not None:
                np.add.at(confusion, (data.arrays[cell.loss.target], whole["class"]), 1)
        loss = sum(found.pop("loss") / count for found, count in zip(sums, counts))  # a sum has no other metrics
        means = {name: total / counts[0] for name, total in sums[0].items()}
        return loss, dict(_metrics_of(cell, loss), **means), None if confusion is None else confusion.tolist()

    def _measure_with_numpy(self, batch, kept, sums, counts, confusion):
        """Adds what the last infer_step is worth: of each term of the loss its sums and how many places count."""
        cell = self.cell
        outputs = {name: value[:kept] for name, value in self.read_outputs(batch).items()}
        for number, term in enumerate(cell.terms):
            if term.kind == "ctc":
                measured = {"loss": ctc_losses(outputs[term.output], batch[term.target][:kept],
                                               batch[term.lengths][:kept], term.stride)}
            else:
                output, target = cell.counted_places(outputs, batch, term)
                measured = _measured(cell, term, output, target)
            counts[number] += len(measured["loss"])
            for name, values in measured.items():
                sums[number][name] = sums[number].get(name, 0.0) + float(values.sum())
        if confusion is not None:
            np.add.at(confusion, (target, output.argmax(axis=1)), 1)

    def breakdown(self, request):
        cell, model = self.prepared("breakdown")
        steps = _positive(request, "steps", 5)
        answer = dict(model.breakdown(steps, self.resident() if self.pipeline is None else _Fed(self.pipeline, steps)))
        if cell.phase == "train":
            self.updates += steps
        return answer

    def quit(self, request):
        return {}


class _Fed:
    """The batches of a breakdown, where they come from the pipeline: each is taken once, whatever its number."""

    def __init__(self, pipeline, steps):
        pipeline.begin(4 * steps + 8)
        self.pipeline = pipeline

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        return self.pipeline.next()


def _latency(step, synchronize, turns):
    clock, monotonic, times = time.clock_gettime_ns, time.CLOCK_MONOTONIC, []
    note = times.append
    for placed in turns:
        begin = clock(monotonic)
        step(placed)
        synchronize()
        note((begin, clock(monotonic)))
    return {"steps": times}


def _throughput(take, synchronize):
    begin = now_ns()
    take()
    synchronize()
    return {"begin": begin, "end": now_ns()}


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
    dialogue.model = dialogue.placed = dialogue.pipeline = None
    sys.stderr.flush()
    sys.exit(0)
