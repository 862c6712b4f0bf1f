"""Networks of the protocol as Chainer's chains: the parameters by their canonical names, and a `forward` written out as
source text, one statement per call, on Chainer's functions.

    network = build(cell.network, cell.batch, np.float32)
    out, other, h, c = network(x, n, h, c)        the outputs, then the states as the step leaves them

A state is (layers · directions, batch, hidden), as n_step_lstm takes it. Layouts are those of PyTorch, but each gate of
an LSTM has matrices of its own. Lengths that an LSTM reads are NumPy arrays on every device.
"""
import functools
import math

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

import calls
from calls import function

FAR_BELOW = -1e30  # beside it a finite number is nothing
GATES = 4


# ---------------------------------------------------------------------------------------------------------------------
# What the source calls


def true_steps(lengths, time, xp):
    """(N, time), true for the first n places."""
    return xp.arange(time) < xp.asarray(lengths)[:, None]


def masked(x, lengths):
    """Zeros after the first n places of the axis behind the batch."""
    xp = chainer.backend.get_array_module(x)
    mask = true_steps(lengths, x.shape[1], xp)
    return F.where(xp.broadcast_to(mask.reshape(mask.shape + (1,) * (x.ndim - 2)), x.shape), x,
                   xp.zeros(x.shape, x.dtype))


def mean_up_to(x, lengths):
    xp = chainer.backend.get_array_module(x)
    counts = xp.asarray(lengths).astype(x.dtype)
    return F.sum(masked(x, lengths), axis=1) / counts.reshape((-1,) + (1,) * (x.ndim - 2))


def softplus(x, beta, threshold):
    return F.where(x.array * beta > threshold, x, F.softplus(x, beta))


def leaves(x, values, pairs):
    """Numbers before and after each axis behind the channels."""
    return F.pad(x, ((0, 0), (0, 0)) + pairs, "constant", constant_values=values)


def spread_max(x, kernel, stride, dilation, sizes):
    """Maxima of windows with gaps, which Chainer's pooling has not: one axis after the other."""
    for axis, (k, s, d, size) in enumerate(zip(kernel, stride, dilation, sizes), 2):
        skip = (slice(None),) * axis
        x = functools.reduce(F.maximum, [x[skip + (slice(i * d, i * d + (size - 1) * s + 1, s),)] for i in range(k)])
    return x


def pooled_to(x, reduce, sizes):
    """Adaptive pooling, one axis after the other: both the mean and the maximum of a window are those of its rows'."""
    for axis, count in enumerate(sizes, 2):
        skip = (slice(None),) * axis
        x = F.concat([reduce(x[skip + (slice(begin, end),)], axis=axis, keepdims=True)
                      for begin, end in calls.parts(x.shape[axis], count)], axis=axis)
    return x


def unit(x, axis, eps):
    """With the mean square 1 over these axes."""
    return x / F.sqrt(F.mean(x * x, axis=axis, keepdims=True) + eps)


def channel_dropout(x, ratio):
    """A channel is kept or dropped as a whole."""
    if not chainer.config.train:
        return x
    xp = chainer.backend.get_array_module(x)
    kept = xp.random.rand(*x.shape[:2]) >= ratio
    return x * (kept / (1 - ratio)).astype(x.dtype).reshape(x.shape[:2] + (1,) * (x.ndim - 2))


def lstm(x, h, c, weights, biases, layers, both):
    """x: (N, T, features). -> (sequence (N, T, …), h, c)."""
    function = F.n_step_bilstm if both else F.n_step_lstm
    h, c, sequence = function(layers, 0.0, h, c, weights, biases, F.separate(x, axis=1))
    return F.stack(sequence, axis=1), h, c


def lstm_up_to(x, lengths, h, c, weights, biases, layers, both):
    """The same up to each sample's length. Chainer takes the longest sample first, and of each step those that are
    there yet."""
    function = F.n_step_bilstm if both else F.n_step_lstm
    order = np.argsort(-lengths, kind="stable").astype(np.int32)
    back = np.argsort(order).astype(np.int32)
    samples, time = x.shape[:2]
    there = [int((lengths > step).sum()) for step in range(int(lengths.max()))]
    x = F.permutate(x, order)
    h, c, made = function(layers, 0.0, F.permutate(chainer.as_variable(h), order, axis=1),
                          F.permutate(chainer.as_variable(c), order, axis=1), weights, biases,
                          [x[:count, step] for step, count in enumerate(there)])
    made = [F.pad(y, ((0, samples - len(y)), (0, 0)), "constant") for y in made]
    sequence = F.pad(F.stack(made, axis=1), ((0, 0), (0, time - len(made)), (0, 0)), "constant")
    return F.permutate(sequence, back), F.permutate(h, back, axis=1), F.permutate(c, back, axis=1)


def last_of(h, ways):
    """(layers · directions, N, hidden): of the last layer, (N, directions · hidden)."""
    return h[-1] if ways == 1 else F.concat((h[-2], h[-1]), axis=1)


def attended(query, key, value, heads, later, lengths):
    """query, key, value: (N, T, width), projected; later: added to the scores (Tq, Tk), or None."""
    def split(x):  # (N, heads, T, width / heads)
        return F.transpose(F.reshape(x, x.shape[:2] + (heads, -1)), (0, 2, 1, 3))

    shape, query, key, value = query.shape, split(query), split(key), split(value)
    scores = F.matmul(query, key, transb=True) * (1.0 / math.sqrt(query.shape[3]))
    if later is not None:
        scores = scores + later
    if lengths is not None:
        xp = chainer.backend.get_array_module(scores)
        beyond = ~true_steps(lengths, key.shape[2], xp)
        scores = scores + (beyond * FAR_BELOW).astype(scores.dtype)[:, None, None]
    return F.reshape(F.transpose(F.matmul(F.softmax(scores, axis=3), value), (0, 2, 1, 3)), shape)


NAMES = {each.__name__: each for each in (
    mean_up_to, softplus, leaves, spread_max, pooled_to, unit, channel_dropout, lstm, lstm_up_to, last_of, attended)}


# ---------------------------------------------------------------------------------------------------------------------
# The source


class Writer(calls.Writer):
    """Makes the chain beside its source."""

    def __init__(self, network, batch, dtype):
        super().__init__(network)
        self.batch, self.dtype, self.chain = batch, dtype, None
        self.named = {}       # canonical name -> its Parameters, one after the other on the first axis
        self.statistics = []  # (canonical name, link, attribute)

    def made(self, name, start, shape):
        """The attribute of a new parameter."""
        with self.chain.init_scope():
            setattr(self.chain, name, chainer.Parameter(start, shape))
        return getattr(self.chain, name)

    def weight(self, call, last):
        full = "%s.%s" % (call.name, last)
        if full not in self.parameters:
            start = 0.0 if "bias" in last else 1.0 if "norm" in call.kind else chainer.initializers.Normal(1.0) \
                if call.kind == "embedding" else chainer.initializers.LeCunNormal()  # Chainer's own
            self.named[full] = [self.made("w%d" % len(self.parameters), start, tuple(call.parameters[full]))]
        return "self." + super().weight(call, last)

    def weights(self, call, *names):
        return ", ".join(self.weight(call, name) if call.has(name) else "None" for name in names)

    def gates(self, call, last):
        """The names of an LSTM's matrices or biases, one for each gate."""
        full = "%s.%s" % (call.name, last)
        if full not in self.parameters:
            name, (rows, *columns) = super().weight(call, last), call.parameters[full]
            start = chainer.initializers.LeCunNormal() if columns else 0.0
            self.named[full] = [self.made("%s_%d" % (name, gate), start, (rows // GATES, *columns))
                                for gate in range(GATES)]
        return ["self.%s_%d" % (self.parameters[full], gate) for gate in range(GATES)]

    def constant(self, array):
        name = super().constant(array)
        self.chain.add_persistent(name, np.asarray(array, dtype=self.dtype))  # goes where the chain goes
        return "self." + name

    def link(self, call, make):
        """The call's own link, made where it is not there yet."""
        name = "link_" + super().weight(call, "link")
        if not hasattr(self.chain, name):
            with self.chain.init_scope():
                setattr(self.chain, name, make())
        return name, getattr(self.chain, name)

    def source(self):
        given, made = self.write(WRITERS, ("self", "F", "h_", "c_") + tuple(NAMES))
        return "\n    ".join(["def forward(%s):" % ", ".join(["self"] + given)] + self.lines +
                             ["return " + ", ".join(made) + ","]) + "\n"


def conv(w, c):
    before, after = zip(*c["padding"])
    x, pad = c.a[0], before
    if before != after:
        x, pad = "leaves(%s, 0, %r)" % (x, c["padding"]), (0,) * c.axes
    return "F.convolution_%s(%s, %s, %r, %r, dilate=%r, groups=%d)" % (
        "2d" if c.axes == 2 else "nd", x, w.weights(c, "weight", "bias"), c["stride"], pad, c["dilation"], c["groups"])


def conv_transpose(w, c):
    # Over two axes too: deconvolution_2d fails where its input needs no gradient.
    return "F.deconvolution_nd(%s, %s, %r, %r, outsize=%r, dilate=%r, groups=%d)" % (
        c.a[0], w.weights(c, "weight", "bias"), c["stride"], c["padding"],
        tuple(c.shape[1:]), c["dilation"], c["groups"])


def pooling(kind, c, x, padding, more):
    name = "%s_pooling_%s" % (kind, "2d" if c.axes == 2 and "pad_value" not in more else "nd")
    return "F.%s(%s, %r, %r, %r%s)" % (name, x, c["kernel"], c["stride"], tuple(padding), more)


def max_pool(w, c):
    # cover_all, Chainer's default, would add windows that reach over the edge.
    wide = c.max_windows()
    if wide is None:
        padding = c.reach([before for before, _ in c["padding"]])
        x = "leaves(%s, float('-inf'), %r)" % (c.a[0], padding) if any(map(any, padding)) else c.a[0]
        if set(c["dilation"]) == {1}:
            return pooling("max", c, x, (0,) * c.axes, ", cover_all=False")
        return "spread_max(%s, %r, %r, %r, %r)" % (x, c["kernel"], c["stride"], c["dilation"], tuple(c.shape[1:]))
    padding, kept = wide
    text = pooling("max", c, c.a[0], padding, ", cover_all=False")
    return text if kept is None else "%s[:, :, %s]" % (text, ", ".join("%d:%d" % ends for ends in kept))


def avg_pool(w, c):
    if c.windows(c["padding"]) == c.shape[1:]:
        return pooling("average", c, c.a[0], c["padding"], "" if c["count_include_pad"] else ", pad_value=None")
    # Windows that reach over the edge: of what is padded before, times the share of it that counts.
    counts = c.counted_share()
    return "%s * %s" % (pooling("average", c, "leaves(%s, 0, %r)" % (c.a[0], c.reach(c["padding"])), (0,) * c.axes, ""),
                        w.constant(counts))


def batch_norm(w, c):
    if not c["track_running_stats"]:
        channels = c.shapes[0][0]
        scale = w.weights(c, "weight", "bias") if c["affine"] else "%s, %s" % (
            w.constant(np.ones(channels)), w.constant(np.zeros(channels)))
        return "F.batch_normalization(%s, %s, eps=%r)" % (c.a[0], scale, c["eps"])
    name, link = w.link(c, lambda: L.BatchNormalization(
        c.shapes[0][0], decay=1.0 - c["momentum"], eps=c["eps"], use_gamma=c["affine"], use_beta=c["affine"]))
    if c["affine"]:
        w.named[c.name + ".weight"], w.named[c.name + ".bias"] = [link.gamma], [link.beta]
    if not any(each is link for _, each, _ in w.statistics):
        w.statistics += [(c.name + ".running_mean", link, "avg_mean"), (c.name + ".running_var", link, "avg_var")]
    return "self.%s(%s)" % (name, c.a[0])


def group_norm(w, c):
    channels = c.shapes[0][0]
    scale = w.weights(c, "weight", "bias") if c["affine"] else "%s, %s" % (
        w.constant(np.ones(channels)), w.constant(np.zeros(channels)))
    return "F.group_normalization(%s, %d, %s, eps=%r)" % (
        c.a[0], c["groups"] if c.kind == "group_norm" else channels, scale, c["eps"])


def layer_norm(w, c):
    _, sizes = c.last
    units = math.prod(sizes)
    scale, shift = ("F.reshape(%s, (-1,))" % w.weight(c, last) if c.has(last) else w.constant(np.full(units, other))
                    for last, other in (("weight", 1.0), ("bias", 0.0)))
    return "F.reshape(F.layer_normalization(F.reshape(%s, (-1, %d)), %s, %s, eps=%r), %r)" % (
        c.a[0], units, scale, shift, c["eps"], (-1,) + tuple(c.shape))


def rms_norm(w, c):
    text = "unit(%s, %r, %r)" % (c.a[0], c.last[0], c.eps(w.dtype))
    return text + " * " + w.weight(c, "weight") if c["affine"] else text


def dropout(w, c):
    if c["p"] == 0:
        return c.a[0]
    name = "channel_dropout" if c.kind == "channel_dropout" and c.axes else "F.dropout"
    return "%s(%s, %r)" % (name, c.a[0], c["p"])


def mean(w, c):
    if len(c.a) == 1:
        return "F.mean(%s, axis=%d)" % (c.a[0], c["axis"] + 1)
    return "mean_up_to(%s, %s)" % tuple(c.a)


def write_lstm(w, c):
    both, hidden, layers = c["bidirectional"], c["hidden"], c["layers"]
    ways = 2 if both else 1
    no_bias = None if c["bias"] else w.constant(np.zeros(hidden))
    matrices, biases = [], []
    for suffix in sum(c.lstm_suffixes(), []):
        matrices.append(w.gates(c, "weight_ih" + suffix) + w.gates(c, "weight_hh" + suffix))
        biases.append([no_bias] * 2 * GATES if no_bias else
                      w.gates(c, "bias_ih" + suffix) + w.gates(c, "bias_hh" + suffix))
    lists = ["[%s]" % ", ".join("[%s]" % ", ".join(names) for names in part) for part in (matrices, biases)]
    states = [w.states[c.name + last] for last in (".h", ".c")] if c["carry"] else [
        w.constant(np.zeros((layers * ways, w.batch, hidden)))] * 2
    made = "%s(%s, %s, %s, %d, %r)" % ("lstm_up_to" if len(c.a) == 2 else "lstm", ", ".join(c.a), ", ".join(states),
                                       ", ".join(lists), layers, both)
    h, cell = states if c["carry"] else ("h_", "c_")
    text = "$, %s, %s = %s" % (h, cell, made)
    return text + "; $ = last_of(%s, %d)" % (h, ways) if c["output"] == "last" else text


def attention(w, c):
    values, lengths, keys = c.attention_values()
    weight, bias = w.weights(c, "in_proj_weight", "in_proj_bias").split(", ")
    if len(values) == 1:
        projected = "*F.split_axis(F.linear(%s, %s, %s, n_batch_axes=2), 3, axis=2)" % (values[0], weight, bias)
    else:
        width = c.shapes[0][1]
        rows = ["[%d:%d]" % (width * i, width * (i + 1)) for i in range(3)]
        projected = ", ".join("F.linear(%s, %s%s, %s, n_batch_axes=2)" % (
            value, weight, row, bias + row if c["bias"] else None) for value, row in zip(values, rows))
    later = w.constant(np.triu(np.full((c.shapes[0][0], keys), FAR_BELOW), 1)) if c["causal"] else None
    return "F.linear(attended(%s, %d, %s, %s), %s, n_batch_axes=2)" % (
        projected, c["heads"], later, lengths, w.weights(c, "out_proj.weight", "out_proj.bias"))


WRITERS = {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "linear": lambda w, c: "F.linear(%s, %s, n_batch_axes=%d)" % (
        c.a[0], w.weights(c, "weight", "bias"), len(c.shapes[0])),
    "embedding": lambda w, c: "F.embed_id(%s, %s)" % (c.a[0], w.weight(c, "weight")),
    "relu": function("F.relu({0})"),
    "gelu": function("0.5 * {0} * (1 + F.erf({0} * 0.7071067811865476))"),
    "silu": function("{0} * F.sigmoid({0})"),
    "selu": function("F.selu({0})"),
    "mish": function("{0} * F.tanh(F.softplus({0}))"),
    "hardswish": function("{0} * F.clip({0} + 3, 0.0, 6.0) / 6"),
    "tanh": function("F.tanh({0})"),
    "sigmoid": function("F.sigmoid({0})"),
    "leaky_relu": function("F.leaky_relu({0}, {1})", "slope"),
    "elu": function("F.elu({0}, {1})", "alpha"),
    "softplus": function("softplus({0}, {1}, {2})", "beta", "threshold"),
    "softmax": lambda w, c: "F.softmax(%s, axis=%d)" % (c.a[0], len(c.shape)),
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_avg_pool": function("pooled_to({0}, F.mean, {1})", "size"),
    "adaptive_max_pool": function("pooled_to({0}, F.max, {1})", "size"),
    "global_avg_pool": lambda w, c: "F.mean(%s, axis=%r)" % (c.a[0], c.grid) if c.axes else c.a[0],
    "batch_norm": batch_norm,
    "instance_norm": group_norm,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "dropout": dropout,
    "channel_dropout": dropout,
    "flatten": lambda w, c: "F.reshape(%s, (-1, %d))" % (c.a[0], c.shape[0]),
    "identity": function("{0}"),
    "add": lambda w, c: " + ".join(c.a),
    "multiply": lambda w, c: " * ".join(c.a),
    "concat": lambda w, c: "F.concat((%s), axis=%d)" % (", ".join(c.a), c["axis"] + 1),
    "transpose": lambda w, c: "F.swapaxes(%s, %d, %d)" % (c.a[0], c["axes"][0] + 1, c["axes"][1] + 1),
    "mean": mean,
    "lstm": write_lstm,
    "attention": attention,
}


def build(network, batch, dtype):
    """-> the Chain, with the attributes named, statistics (as in Writer) and host (the names of the inputs that it
    takes as NumPy arrays)."""
    writer = Writer(network, batch, dtype)
    kind = type("Described", (chainer.Chain,), {})
    chain = writer.chain = kind()
    source = writer.source()
    names = dict(NAMES, F=F)
    exec(compile(source, "<%s>" % network.name, "exec"), names)
    kind.forward = names["forward"]
    chain.named, chain.statistics = writer.named, writer.statistics
    chain.host = {call["in"][1] for call in network.calls if call["kind"] == "lstm" and len(call["in"]) == 2}
    calls.differing({name: (sum(len(part) for part in parts),) + parts[0].shape[1:]
                     for name, parts in writer.named.items()}, network.parameters)
    return chain


# ---------------------------------------------------------------------------------------------------------------------
# Losses: functions of (output, target) or, with lengths, of (output, target, lengths)


def cross_entropy(output, target, lengths=None):
    if lengths is not None:
        xp = chainer.backend.get_array_module(target)
        mask = true_steps(lengths, target.shape[1], xp)
        target = xp.where(mask.reshape(mask.shape + (1,) * (target.ndim - 2)), target, -1)  # left out of the mean
    return F.softmax_cross_entropy(F.reshape(output, (-1, output.shape[-1])), target.reshape(-1))


def binary_cross_entropy(output, target):
    return F.mean(F.softplus(output) - output * target)


LOSSES = {
    "cross_entropy": cross_entropy,
    "mse": F.mean_squared_error,
    "mae": F.mean_absolute_error,
    "bce": binary_cross_entropy,
}
EACH = {
    "mse": lambda output, target: F.square(output - target),
    "mae": lambda output, target: F.absolute(output - target),
    "bce": lambda output, target: F.softplus(output) - output * target,
}


def loss_function(loss, shape):
    """The function of a cell's loss; shape: of the output, without the batch."""
    if loss.kind == "cross_entropy":
        return F.softmax_cross_entropy if len(shape) == 1 else cross_entropy
    if loss.lengths is None:
        return LOSSES[loss.kind]
    each, numbers = EACH[loss.kind], math.prod(shape[1:])

    def of_counted(output, target, lengths):
        return F.sum(masked(each(output, target), lengths)) / (lengths.sum() * numbers).astype(output.dtype)

    return of_counted
