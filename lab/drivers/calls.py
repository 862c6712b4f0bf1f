"""Networks written down as source text, one statement per call, for the frameworks whose layers are functions: MXNet,
Chainer and Theano."""
import functools
import math

import numpy as np


class Writer:
    """Writes the statements and numbers what they need besides values: parameters w0, w1, …, constants k0, k1, … and
    states state0, state1, …"""

    def __init__(self, network):
        self.network, self.lines = network, []
        self.shapes = {entry["name"]: list(entry["shape"]) for entry in network.inputs}
        self.states = {entry["name"]: "state%d" % index for index, entry in enumerate(network.states)}
        self.parameters = {}  # canonical name, of running statistics too -> name in the source
        self.constants = {}   # name in the source -> array

    def write(self, writers, reserved):
        """Writes all calls; -> (names of what the source is given, names of what it makes), each with the states at
        the end. writers: {kind: function of (Writer, Call) -> an expression, or statements with $ where the value's
        name goes}. reserved: names that the statements use."""
        several = 20 * (1 + len(self.network.calls))
        own = ["%s%d" % (name, i) for name in ("w", "k", "state") for i in range(several)]
        inputs, lines, outputs = self.network.straight_line(tuple(reserved) + tuple(own))
        for call, taken, made, gone in lines:
            text = writers[call["kind"]](self, Call(call, taken, [self.shapes[value] for value in call["in"]]))
            self.lines.append(text.replace("$", made) if "$" in text else "%s = %s" % (made, text))
            if gone:
                self.lines.append("del " + ", ".join(gone))
            self.shapes[call["out"]] = list(call["shape"])
        states = list(self.states.values())
        return inputs + states, outputs + states

    def weight(self, call, last):
        """The name of a parameter or a running statistic of the call in the source."""
        return self.parameters.setdefault("%s.%s" % (call.name, last), "w%d" % len(self.parameters))

    def constant(self, array):
        self.constants["k%d" % len(self.constants)] = array
        return "k%d" % (len(self.constants) - 1)


class Call:
    """a: the names of its values in the source, shapes: their sizes without the batch. call[NAME] is a setting."""

    def __init__(self, call, variables, shapes):
        self.kind, self.name, self.settings, self.shape = call["kind"], call["name"], call["settings"], call["shape"]
        self.parameters, self.buffers, self.a, self.shapes = call["parameters"], call["buffers"], variables, shapes

    def __getitem__(self, setting):
        value = self.settings[setting]
        return tuple(map(tuple, value)) if isinstance(value, list) and isinstance(value[0], list) else \
            tuple(value) if isinstance(value, list) else value

    @property
    def axes(self):
        """How many axes of the first value are places: all but the channels."""
        return len(self.shapes[0]) - 1

    @property
    def grid(self):
        """The axes of the places, in a batch."""
        return tuple(range(2, 2 + self.axes))

    @property
    def last(self):
        """Of a norm over the last axes: them in a batch, and their sizes."""
        count, rank = self["axes"], len(self.shape)
        return tuple(range(rank - count + 1, rank + 1)), tuple(self.shape[-count:])

    def eps(self, dtype):
        """The eps of rms_norm: where it is 0, the spacing of the type's numbers at 1."""
        return self["eps"] or float(np.finfo(dtype).eps)

    @property
    def over_channels(self):
        """The shape of a vector with a number for each channel, beside the value."""
        return (1, -1) + (1,) * self.axes

    def has(self, last):
        """Whether it trains a parameter of this name."""
        return "%s.%s" % (self.name, last) in self.parameters

    def windows(self, padding):
        """How many whole windows of a pool there are with this padding on both sides."""
        return [(n + 2 * p - k) // s + 1
                for n, p, k, s in zip(self.shapes[0][1:], padding, self["kernel"], self["stride"])]

    def reach(self, before):
        """Numbers before and after each axis with which the windows of a pool end at the edge, or beyond what they
        read."""
        gaps = self.settings.get("dilation", [1] * self.axes)
        return tuple((b, max(0, (size - 1) * s + d * (k - 1) + 1 - n - b)) for n, b, k, s, d, size in zip(
            self.shapes[0][1:], before, self["kernel"], self["stride"], gaps, self.shape[1:]))

    def counted_share(self):
        """Of an avg_pool over what was padded by `reach`: what each mean is to be multiplied with, (1, 1, …). A mean
        counts the padding where the settings say so, and nothing beyond it."""
        shares = []
        for n, p, k, s, size in zip(
                self.shapes[0][1:], self["padding"], self["kernel"], self["stride"], self.shape[1:]):
            first = np.arange(size) * s - p
            least, most = (-p, n + p) if self["count_include_pad"] else (0, n)
            shares.append(np.minimum(first + k, most) - np.maximum(first, least))
        counts = functools.reduce(np.multiply.outer, shares)
        return math.prod(self["kernel"]) / counts[None, None]

    def max_windows(self):
        """How a framework that pads both sides alike, by less than a window, comes to the windows of this max_pool:
        (padding, None), or (padding, [(begin, end) by axis]): of those windows the ones to keep, or None: the value
        must be padded before, by `reach`."""
        before, after = zip(*self["padding"])
        both, sizes = tuple(max(pair) for pair in self["padding"]), self.shape[1:]
        if set(self["dilation"]) != {1} or any(p >= k for p, k in zip(both, self["kernel"])):
            return None
        there = self.windows(both)
        if before == after and there == sizes:
            return both, None
        begins = [(p - b) // s for p, b, s in zip(both, before, self["stride"])]
        if any((p - b) % s for p, b, s in zip(both, before, self["stride"])) or \
                any(n < begin + size for n, begin, size in zip(there, begins, sizes)):
            return None
        return both, [(begin, begin + size) for begin, size in zip(begins, sizes)]

    def lstm_suffixes(self):
        """['_l0', '_l0_reverse'] and so on, for each layer."""
        return [["_l%d" % layer, "_l%d_reverse" % layer][:2 if self["bidirectional"] else 1]
                for layer in range(self["layers"])]

    def attention_values(self):
        """(names of the query, the key and the value: one or three, name of the lengths or None, number of keys)."""
        values, lengths = (self.a[:-1], self.a[-1]) if len(self.a) in (2, 4) else (self.a, None)
        return values, lengths, self.shapes[1 if len(values) == 3 else 0][0]


def function(text, *settings):
    """The writer of a function of one value and these settings: {0} is the value, {1} the first setting."""
    return lambda w, c: text.format(c.a[0], *[repr(c[name]) for name in settings])


def parts(size, count):
    """[(begin, end), …]: the windows of an adaptive pool."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def differing(made, wanted):
    """Raises unless the parameters {name: shape} are those of the description."""
    if made != wanted:
        raise ValueError("network: parameters must be those of the description; these differ: %s." % sorted(
            set(made.items()) ^ set(wanted.items())))
