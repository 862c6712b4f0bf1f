"""Networks of the protocol as Theano graphs. Theano has no layers: each kind is a function that makes an expression of
the values before it, and a step is what Theano compiles of them all.

A network is traced twice over the same weights: for training, where dropout acts and batch statistics are used, and for
testing. Layouts are those of PyTorch; a state is (layers · directions, batch, hidden).
"""
import functools
import math

import numpy as np
import pytensor
import pytensor.tensor as at
from pytensor.sandbox.rng_mrg import MRG_RandomStream
from pytensor.tensor.nnet import conv2d, relu
from pytensor.tensor.nnet.abstract_conv import conv2d_grad_wrt_inputs, conv3d, conv3d_grad_wrt_inputs
from pytensor.tensor.nnet.batchnorm import batch_normalization_test, batch_normalization_train
from pytensor.tensor.shape import unbroadcast
from pytensor.tensor.signal.pool import pool_2d, pool_3d

import calls
from frame import Declined

FAR_BELOW = -1e30  # beside it a finite number is nothing


class Network:
    """The weights by name, and the expressions."""

    def __init__(self, network, batch, dtype, seed):
        self.network, self.batch, self.dtype = network, batch, dtype
        self.weights = {}      # canonical name -> shared variable
        self.statistics = {}   # running means and variances
        self.states = [pytensor.shared(np.zeros((entry["shape"][0], batch) + tuple(entry["shape"][1:]), dtype),
                                       name=entry["name"]) for entry in network.states]
        self.initial = np.random.default_rng(seed)
        self.random = MRG_RandomStream(seed=seed % 2147462579 + 1)
        self.training = True
        self.updates = []      # of running statistics and states, in the last trace

    def trace(self, inputs, training):
        """-> the outputs. inputs: expressions, each with the batch."""
        self.training, self.updates = training, []
        self.carried = dict(zip((entry["name"] for entry in self.network.states), self.states))
        values = {entry["name"]: value for entry, value in zip(self.network.inputs, inputs)}
        shapes = {entry["name"]: list(entry["shape"]) for entry in self.network.inputs}
        for call in self.network.calls:
            entry = calls.Call(call, [values[name] for name in call["in"]], [shapes[name] for name in call["in"]])
            values[call["out"]], shapes[call["out"]] = LAYERS[call["kind"]](self, entry), list(call["shape"])
        calls.differing({name: weight.get_value(borrow=True).shape for name, weight in self.weights.items()},
                        self.network.parameters)
        return [values[output["value"]] for output in self.network.outputs]

    def weight(self, call, last):
        """The shared variable of a parameter; None where the call has not that one."""
        name = "%s.%s" % (call.name, last)
        if not call.has(last):
            return None
        if name not in self.weights:
            shape = tuple(call.parameters[name])
            # Theano brings no initialisation; this is the one of its tutorials, within sqrt(6 / (fan_in + fan_out)).
            fans = math.prod(shape[1:]) + shape[0] * math.prod(shape[2:])
            wide = math.sqrt(6.0 / fans) if len(shape) > 1 else 0.0
            value = np.ones(shape) if "norm" in call.kind and last == "weight" else \
                np.zeros(shape) if "bias" in last else self.initial.uniform(-wide, wide, shape)
            self.weights[name] = pytensor.shared(value.astype(self.dtype), name=name)
        return self.weights[name]

    def statistic(self, call, last, start):
        name = "%s.%s" % (call.name, last)
        if name not in self.statistics:
            self.statistics[name] = pytensor.shared(np.full(tuple(call.buffers[name]), start, self.dtype), name=name)
        return self.statistics[name]

    def number(self, value):
        return np.asarray(value, self.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Pieces of expressions


def true_steps(lengths, time):
    """(N, time), true for the first n places."""
    return at.arange(time).dimshuffle("x", 0) < lengths.dimshuffle(0, "x")


def masked(x, lengths, time):
    """Zeros after the first n places of the axis behind the batch."""
    mask = true_steps(lengths, time).dimshuffle(0, 1, *["x"] * (x.ndim - 2))
    return at.switch(mask, x, np.asarray(0, x.dtype))


def padded(net, c, x, pairs, value):
    """Numbers before and after each axis behind the channels."""
    sizes = c.shapes[0]
    around = at.alloc(net.number(value), net.batch, sizes[0], *[n + sum(pair) for n, pair in zip(sizes[1:], pairs)])
    inside = (slice(None), slice(None)) + tuple(slice(b, b + n) for (b, _), n in zip(pairs, sizes[1:]))
    return at.set_subtensor(around[inside], x)


def over_two(c, x, function, *tuples):
    """A function of two axes at least, for values of one: a second axis of size 1 stands before it. tuples: settings,
    each with what it is on that axis."""
    if c.axes == 1:
        return function(x.dimshuffle(0, 1, "x", 2), *[(other,) + tuple(setting) for setting, other in tuples])[:, :, 0]
    return function(x, *[tuple(setting) for setting, _ in tuples])


def normalised(x, axes, eps, centred=True):
    """With mean 0 and variance 1 over these axes, or with the mean square 1."""
    if centred:
        x = x - x.mean(axis=axes, keepdims=True)
    return x / at.sqrt(at.sqr(x).mean(axis=axes, keepdims=True) + np.asarray(eps, x.dtype))


def scaled(net, c, x, order):
    """Times the call's weight and plus its bias, where it has them; order: their axes beside the value's."""
    weight, bias = net.weight(c, "weight"), net.weight(c, "bias")
    x = x if weight is None else x * weight.dimshuffle(*order)
    return x if bias is None else x + bias.dimshuffle(*order)


# ---------------------------------------------------------------------------------------------------------------------
# Layers


def conv(net, c):
    x, weight, bias = c.a[0], net.weight(c, "weight"), net.weight(c, "bias")
    before, after = zip(*c["padding"])
    sizes, (filters, channels, *kernel) = [net.batch] + c.shapes[0], c.parameters[c.name + ".weight"]
    if before != after:
        x, before = padded(net, c, x, c["padding"], 0), (0,) * c.axes
        sizes = sizes[:2] + [n + sum(pair) for n, pair in zip(sizes[2:], c["padding"])]
    if c.axes == 1:
        x, weight, sizes, kernel = x.dimshuffle(0, 1, "x", 2), weight.dimshuffle(0, 1, "x", 2), \
            sizes[:2] + [1] + sizes[2:], [1] + kernel
    one = ((1,) if c.axes == 1 else ())
    y = (conv3d if c.axes == 3 else conv2d)(
        x, weight, input_shape=tuple(sizes), filter_shape=(filters, channels, *kernel),
        border_mode=(0,) * len(one) + before, subsample=one + c["stride"], filter_flip=False,
        filter_dilation=one + c["dilation"], num_groups=c["groups"])
    y = y[:, :, 0] if c.axes == 1 else y
    return y if bias is None else y + bias.dimshuffle("x", 0, *["x"] * c.axes)


def conv_transpose(net, c):
    """The gradient of a convolution with respect to its input."""
    x, weight, bias = c.a[0], net.weight(c, "weight"), net.weight(c, "bias")
    shape, made = tuple(c.parameters[c.name + ".weight"]), tuple(c.shape)
    one, none = ((1,), (0,)) if c.axes == 1 else ((), ())
    if c.axes == 1:
        x, weight = x.dimshuffle(0, 1, "x", 2), weight.dimshuffle(0, 1, "x", 2)
    y = (conv3d_grad_wrt_inputs if c.axes == 3 else conv2d_grad_wrt_inputs)(
        x, weight, input_shape=(net.batch, made[0]) + one + made[1:], filter_shape=shape[:2] + one + shape[2:],
        border_mode=none + c["padding"], subsample=one + c["stride"], filter_flip=False,
        filter_dilation=one + c["dilation"], num_groups=c["groups"])
    y = y[:, :, 0] if c.axes == 1 else y
    return y if bias is None else y + bias.dimshuffle("x", 0, *["x"] * c.axes)


def product(net, x, weight, bias, sizes):
    """x · weightᵀ + bias over the last axis. sizes: of a sample."""
    flat = x if len(sizes) == 1 else x.reshape((net.batch * math.prod(sizes[:-1]), sizes[-1]))
    y = at.dot(flat, weight.T)
    y = y if bias is None else y + bias
    return y if len(sizes) == 1 else y.reshape([net.batch] + list(sizes[:-1]) + [weight.shape[0]], len(sizes) + 1)


def linear(net, c):
    return product(net, c.a[0], net.weight(c, "weight"), net.weight(c, "bias"), c.shapes[0])


def elu(x, alpha):
    return at.switch(x > 0, x, alpha * at.expm1(at.minimum(x, 0)))


def softplus(x, beta, threshold):
    return at.switch(x * beta > threshold, x, at.softplus(at.minimum(x * beta, threshold)) / beta)


def pointwise(function, *settings):
    return lambda net, c: function(c.a[0], *[net.number(c[name]) for name in settings])


def pooled(c, x, padding, mode):
    pool = pool_3d if c.axes == 3 else pool_2d
    return over_two(c, x, lambda x, kernel, stride, pad: pool(x, kernel, True, stride, pad, mode),
                    (c["kernel"], 1), (c["stride"], 1), (padding, 0))


def max_pool(net, c):
    wide = c.max_windows()
    if wide is not None:
        padding, kept = wide
        y = pooled(c, c.a[0], padding, "max")
        return y if kept is None else y[(slice(None), slice(None)) + tuple(slice(*ends) for ends in kept)]
    padding = c.reach([before for before, _ in c["padding"]])
    x = padded(net, c, c.a[0], padding, -np.inf) if any(map(any, padding)) else c.a[0]
    if set(c["dilation"]) == {1}:
        return pooled(c, x, (0,) * c.axes, "max")
    # Windows with gaps, one axis after the other.
    for axis, (k, s, d, size) in enumerate(zip(c["kernel"], c["stride"], c["dilation"], c.shape[1:]), 2):
        skip = (slice(None),) * axis
        x = functools.reduce(at.maximum, [x[skip + (slice(i * d, i * d + (size - 1) * s + 1, s),)] for i in range(k)])
    return x


def avg_pool(net, c):
    if c.windows(c["padding"]) == c.shape[1:] and (c["count_include_pad"] or not any(c["padding"])):
        return pooled(c, c.a[0], c["padding"], "average_inc_pad")
    # Windows that reach over the edge, and padding that does not count, of which Theano has no gradient: of what is
    # padded before, times the share of it that counts.
    x = padded(net, c, c.a[0], c.reach(c["padding"]), 0)
    return pooled(c, x, (0,) * c.axes, "average_inc_pad") * net.number(c.counted_share())


def adaptive_pool(reduce):
    """One axis after the other: both the mean and the maximum of a window are those of its rows'."""
    def made(net, c):
        x = c.a[0]
        for axis, (size, count) in enumerate(zip(c.shapes[0][1:], c["size"]), 2):
            skip = (slice(None),) * axis
            x = at.concatenate([reduce(x[skip + (slice(begin, end),)], axis=axis, keepdims=True)
                                for begin, end in calls.parts(size, count)], axis=axis)
        return x

    return made


def epsilon_of(net, eps):
    """Theano's takes 1e-5 or more, and the f32 next to 1e-5 is less: then the one above."""
    if eps < 1e-5:
        raise Declined("batch_norm", "batch_norm: Theano's takes an eps of 1e-5 or more; got %g." % eps)
    rounded = net.number(eps)
    return float(rounded if rounded >= 1e-5 else np.nextafter(rounded, net.number(1)))


def batch_norm(net, c):
    x, ones, eps = c.a[0], np.ones(c.shapes[0][0], net.dtype), epsilon_of(net, c["eps"])
    gamma, beta = net.weight(c, "weight"), net.weight(c, "bias")
    gamma, beta = (at.constant(ones), at.constant(0 * ones)) if gamma is None else (gamma, beta)
    if not c["track_running_stats"]:
        return batch_normalization_train(x, gamma, beta, axes="spatial", epsilon=eps)[0]
    mean, var = net.statistic(c, "running_mean", 0.0), net.statistic(c, "running_var", 1.0)
    if not net.training:
        return batch_normalization_test(x, gamma, beta, mean, var, axes="spatial", epsilon=eps)
    y, _, _, new_mean, new_var = batch_normalization_train(
        x, gamma, beta, axes="spatial", epsilon=eps, running_average_factor=c["momentum"], running_mean=mean,
        running_var=var)
    net.updates += [(mean, at.cast(new_mean, net.dtype)), (var, at.cast(new_var, net.dtype))]
    return y


def group_norm(net, c):
    groups = c["groups"] if c.kind == "group_norm" else c.shapes[0][0]
    x = normalised(c.a[0].reshape((net.batch, groups, math.prod(c.shape) // groups)), 2, c["eps"])
    return scaled(net, c, x.reshape([net.batch] + list(c.shape)), ("x", 0) + ("x",) * c.axes)


def last_norm(net, c):
    axes, _ = c.last
    centred = c.kind == "layer_norm"
    x = normalised(c.a[0], axes, c["eps"] if centred else c.eps(net.dtype), centred)
    return scaled(net, c, x, ("x",) * axes[0] + tuple(range(len(axes))))


def dropout(net, c):
    x, keep = c.a[0], 1.0 - c["p"]
    if not net.training or c["p"] == 0:
        return x
    whole = c.kind == "channel_dropout" and c.axes  # a channel is kept or dropped as a whole
    sizes = (net.batch,) + tuple(c.shape[:1] if whole else c.shape)
    kept = net.random.binomial(size=sizes, p=keep, dtype=net.dtype)
    return x * (kept.dimshuffle(0, 1, *["x"] * c.axes) if whole else kept) / net.number(keep)


def transpose(net, c):
    order = list(range(len(c.shape) + 1))
    a, b = (axis + 1 for axis in c["axes"])
    order[a], order[b] = b, a
    return c.a[0].dimshuffle(*order)


def mean(net, c):
    if len(c.a) == 1:
        return c.a[0].mean(axis=c["axis"] + 1)
    x, lengths = c.a
    return masked(x, lengths, c.shapes[0][0]).sum(axis=1) / at.cast(lengths, net.dtype).dimshuffle(
        0, *["x"] * (x.ndim - 2))


def lstm(net, c):
    """One scan for each layer and direction. Where a step is not true, the state stays."""
    time, hidden = c.shapes[0][0], c["hidden"]
    x, width = c.a[0], c.shapes[0][1]
    mask = true_steps(c.a[1], time).dimshuffle(1, 0, "x") if len(c.a) == 2 else None  # (T, N, 1)
    begin = [net.carried[c.name + part] for part in (".h", ".c")] if c["carry"] else None
    new = []

    def step(*values):
        (gates, true, h, cell, w_hh), old = (values if mask is not None else (values[0], None) + values[1:]), None
        gates = gates + at.dot(h, w_hh.T)
        i, f, g, o = (gates[:, hidden * k:hidden * (k + 1)] for k in range(4))
        old, cell = (h, cell), at.sigmoid(f) * cell + at.sigmoid(i) * at.tanh(g)
        h = at.sigmoid(o) * at.tanh(cell)
        return (h, cell) if true is None else (at.switch(true, h, old[0]), at.switch(true, cell, old[1]))

    for suffixes in c.lstm_suffixes():
        ways = []
        for suffix in suffixes:
            w_ih, w_hh, b_ih, b_hh = (net.weight(c, part + suffix) for part in (
                "weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            gates = product(net, x, w_ih, None if b_ih is None else b_ih + b_hh, [time, width]).dimshuffle(1, 0, 2)
            zeros = unbroadcast(at.zeros((net.batch, hidden), net.dtype), 0, 1)
            start = [zeros, zeros] if begin is None else [state[len(new)] for state in begin]
            (h, cell), _ = pytensor.scan(step, sequences=[gates] + ([mask] if mask is not None else []),
                                         outputs_info=start, non_sequences=[w_hh], go_backwards=bool(ways), strict=True)
            new.append((h[-1], cell[-1]))
            ways.append((h[::-1] if ways else h).dimshuffle(1, 0, 2))
        x, width = ways[0] if len(ways) == 1 else at.concatenate(ways, axis=2), hidden * len(ways)
    if begin is not None:
        net.updates += [(state, unbroadcast(at.stack([pair[part] for pair in new]), 0))
                        for part, state in enumerate(begin)]
    if c["output"] == "last":
        return new[-1][0] if len(ways) == 1 else at.concatenate([new[-2][0], new[-1][0]], axis=1)
    return x if mask is None else masked(x, c.a[1], time)


def attention(net, c):
    values, lengths, keys = c.attention_values()
    heads, queries, width = c["heads"], c.shapes[0][0], c.shapes[0][1]
    weight, bias = net.weight(c, "in_proj_weight"), net.weight(c, "in_proj_bias")

    def projected(value, part, time):  # (N · heads, T, width / heads)
        rows = slice(width * part, width * (part + 1))
        y = product(net, value, weight[rows], None if bias is None else bias[rows], [time, width])
        y = y.reshape((net.batch, time, heads, width // heads)).dimshuffle(0, 2, 1, 3)
        return y.reshape((net.batch * heads, time, width // heads))

    query, key, value = (projected(x, part, time) for part, (x, time) in enumerate(zip(
        values * 3 if len(values) == 1 else values, (queries, keys, keys))))
    scores = at.batched_dot(query, key.dimshuffle(0, 2, 1)) * net.number(math.sqrt(heads / width))
    scores = scores.reshape((net.batch, heads, queries, keys))
    if c["causal"]:
        scores = scores + at.constant(np.triu(np.full((1, 1, queries, keys), FAR_BELOW, net.dtype), 1))
    if lengths is not None:
        scores = at.switch(true_steps(lengths, keys).dimshuffle(0, "x", "x", 1), scores, net.number(FAR_BELOW))
    shares = at.special.softmax(scores, axis=-1).reshape((net.batch * heads, queries, keys))
    mixed = at.batched_dot(shares, value).reshape((net.batch, heads, queries, width // heads)).dimshuffle(0, 2, 1, 3)
    return product(net, mixed.reshape((net.batch, queries, width)), net.weight(c, "out_proj.weight"),
                   net.weight(c, "out_proj.bias"), [queries, width])


LAYERS = {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "linear": linear,
    "embedding": lambda net, c: net.weight(c, "weight")[c.a[0]],
    "relu": pointwise(relu),
    "gelu": pointwise(lambda x: x * (1 + at.erf(x * np.asarray(math.sqrt(0.5), x.dtype))) / 2),
    "silu": pointwise(lambda x: x * at.sigmoid(x)),
    "selu": lambda net, c: net.number(1.0507009873554805) * elu(c.a[0], net.number(1.6732632423543772)),
    "mish": pointwise(lambda x: x * at.tanh(at.softplus(x))),
    "hardswish": pointwise(lambda x: x * at.clip(x + 3, 0, 6) / 6),
    "tanh": pointwise(at.tanh),
    "sigmoid": pointwise(at.sigmoid),
    "leaky_relu": pointwise(lambda x, slope: at.switch(x > 0, x, x * slope), "slope"),
    "elu": pointwise(elu, "alpha"),
    "softplus": pointwise(softplus, "beta", "threshold"),
    "softmax": pointwise(lambda x: at.special.softmax(x, axis=-1)),
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_avg_pool": adaptive_pool(at.mean),
    "adaptive_max_pool": adaptive_pool(at.max),
    "global_avg_pool": lambda net, c: c.a[0].mean(axis=c.grid) if c.axes else c.a[0],
    "batch_norm": batch_norm,
    "instance_norm": group_norm,
    "group_norm": group_norm,
    "layer_norm": last_norm,
    "rms_norm": last_norm,
    "dropout": dropout,
    "channel_dropout": dropout,
    "flatten": lambda net, c: c.a[0].flatten(2),
    "identity": lambda net, c: c.a[0],
    "add": lambda net, c: functools.reduce(lambda a, b: a + b, c.a),
    "multiply": lambda net, c: functools.reduce(lambda a, b: a * b, c.a),
    "concat": lambda net, c: at.concatenate(c.a, axis=c["axis"] + 1),
    "transpose": transpose,
    "mean": mean,
    "lstm": lstm,
    "attention": attention,
}


# ---------------------------------------------------------------------------------------------------------------------
# Losses, of each place: the target has all axes but the last of the output for cross_entropy, else the same


def cross_entropy(output, target):
    """(places,) for all places of the batch."""
    classes = output.shape[-1]
    flat = at.special.log_softmax(output.reshape((target.size, classes)), axis=-1)
    return -flat[at.arange(target.size), target.flatten()].reshape(target.shape, target.ndim)


LOSSES = {
    "cross_entropy": cross_entropy,
    "mse": lambda output, target: at.sqr(output - target),
    "mae": lambda output, target: at.abs(output - target),
    "bce": lambda output, target: at.softplus(output) - output * target,
}


def loss_of(loss, shape, batch, output, target, lengths=None):
    """The mean over the places that count. shape: of the output, without the batch."""
    if loss.kind == "cross_entropy" and len(shape) == 1:
        return -at.mean(at.special.log_softmax(output, axis=-1)[at.arange(batch), target])
    places = LOSSES[loss.kind](output, target)
    if lengths is None:
        return at.mean(places)
    each = math.prod(shape[1:-1] if loss.kind == "cross_entropy" else shape[1:])
    return masked(places, lengths, shape[0]).sum() / at.cast(lengths.sum() * each, output.dtype)
