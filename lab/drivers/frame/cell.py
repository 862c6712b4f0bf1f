"""The cell that `prepare` asks for: its fields, checked, and its samples."""
import math

import numpy as np

from .declined import Declined, offered, with_reason
from .network import Network
from .objective import read_loss, read_metrics
from .pictures import read_pictures
from .samples import TYPES, Data
from .schema import request_fields
from .trim import read_trim
from .weights import starting_weights


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
        asked = request_fields("prepare", request)

        def offered_by_driver(what):
            return offered(what, asked.read(what), hello[what + "s"], why)

        self.workload, workload = asked.read("workload"), asked.inside("workload")
        self.name = workload.read("name")
        self.dropout = asked.read("dropout", True)
        self.network = Network(asked.read("network"), self.dropout)
        self.definition = asked.read("definition", "description")
        self.phase = offered_by_driver("phase")
        if self.phase != "load":
            self._check_layers(hello, why)
        self.targets = workload.read("targets")
        self.loss, self.terms = read_loss(workload, self.targets, self.network, hello, why)
        self.metrics = read_metrics(workload, self.loss)
        self.classes = self.targets.get(self.loss.target, {}).get("below")
        self.sizes = tuple(self.network.inputs[0]["shape"]) if len(self.network.inputs) == 1 else None
        self.variant = offered_by_driver("variant")
        self.device = offered_by_driver("device")
        self.precision = offered_by_driver("precision")
        self.track = asked.read("track", "equal")
        self.batch = asked.read("batch")
        self.threads = asked.read("threads", 1)
        self.seed = asked.read("seed", 0)
        self.optimizer = dict(workload.read("optimizer"))
        workload.inside("optimizer").read("name")
        self.switches = self._checked_switches(asked.read("switches", {}), hello["switches"], why)
        self.trim = read_trim(asked.read("trim"), hello, self.network, self.targets, self.terms)
        self.weights_from = asked.read("weights", {})
        self._check_mixture()
        self._read_data(asked.inside("data"))

    def _check_layers(self, hello, why):
        if self.definition == "listing":
            if self.network.name not in hello["listings"]:
                raise Declined("definition", "definition: this driver has listings of %s; got %s." % (
                    ", ".join(hello["listings"]) or "no network", self.network.name))
            return
        for call in self.network.calls:
            if call["kind"] not in hello["kinds"]:
                raise Declined(call["kind"], with_reason("%s: this driver builds %s; got the layer %r." % (
                    call["kind"], ", ".join(hello["kinds"]), call["name"]), why("kind", call["kind"])))

    @staticmethod
    def _checked_switches(switches, known, why):
        for name, value in switches.items():
            if name in known:
                offered(name, value, known[name], why)
            else:
                raise Declined(name, with_reason("%s: this driver has no such switch; it has %s." % (
                    name, ", ".join(sorted(known)) or "none"), why(name, value)))
        return dict(switches)

    def _check_mixture(self):
        """What is right in each field, and cannot be had together."""
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
        wanted = {name: (offered(name + ".type", entry["type"], list(TYPES)), tuple(entry["shape"]))
                  + limits.get(name, (None, None)) for name, entry in entries.items()}

        def part(name, paths):
            return Data("data." + name, paths, wanted, self.trim) if paths else None

        self.train, self.test = part("train", data.read("train")), part("test", data.read("test"))
        self.more_tests = {name: Data("data." + name, data.holder[name], wanted, self.trim)
                           for name in sorted(data.holder) if name.startswith("test_")}
        sizes = self.sizes if len(self.targets) == 1 else None
        self.images = read_pictures(data.inside("images"), sizes, self.classes) if data.holder.get("images") else None
        if self.phase == "load":
            if self.images is None:
                raise ValueError("data: must have images in phase load; got none.")
        elif self.train is None and (self.phase == "train" or self.test is None):
            raise ValueError("data: must have the part train; got %s." % (sorted(data.holder) or "nothing"))

    def wanted(self):
        """The names of what the loss takes beside outputs: of each term its target and, where it has any, lengths."""
        return list(dict.fromkeys(name for term in self.terms for name in (term.target, term.lengths)
                                  if name is not None))

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
        return starting_weights(self.weights_from, shapes)
