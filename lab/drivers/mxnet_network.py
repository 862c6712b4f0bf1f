"""Networks of the protocol as Gluon's HybridBlocks: the parameters by their canonical names, and a `hybrid_forward`
written out as source text, one statement per call, on MXNet's operators.

    network, named, source = build(cell.network, cell.batch, "float32")
    out = network(x)                                one output and no states
    [out, other, h, c] = network(x, n, h, c)        else: the outputs, then the states as the step leaves them

A state is (layers · directions, batch, hidden), as MXNet's RNN takes it. Layouts are those of PyTorch. MXNet itself is
imported by `build`: it reads its number of threads at that moment, which hello does not know yet.
"""
import functools
import math

import numpy as np

import calls
from calls import Call, function
from frame import Declined

FAR_BELOW = -1e30  # beside it a finite number is nothing


# ---------------------------------------------------------------------------------------------------------------------
# What the source calls. F is mxnet.ndarray or, where the block is hybridised, mxnet.symbol.


def padded(F, x, pairs, value):
    """Numbers before and after each axis behind the channels. MXNet pads two axes or three."""
    line = len(pairs) == 1
    widths = [0] * (6 if line else 4) + [width for pair in pairs for width in pair]
    x = F.pad(F.expand_dims(x, axis=2) if line else x, mode="constant", pad_width=widths, constant_value=value)
    return F.squeeze(x, axis=2) if line else x


def spread_max(F, x, kernel, stride, dilation, sizes):
    """Maxima of windows with gaps, which MXNet's pooling has not: one axis after the other."""
    for axis, (k, s, d, size) in enumerate(zip(kernel, stride, dilation, sizes), 2):
        skip = (None,) * axis
        parts = [F.slice(x, begin=skip + (i * d,), end=skip + (i * d + (size - 1) * s + 1,), step=skip + (s,))
                 for i in range(k)]
        x = functools.reduce(F.broadcast_maximum, parts)
    return x


def pooled_to(F, x, reduce, sizes, made):
    """Adaptive pooling, one axis after the other: both the mean and the maximum of a window are those of its rows'."""
    for axis, (size, count) in enumerate(zip(sizes, made), 2):
        x = F.concat(*[reduce(F.slice_axis(x, axis=axis, begin=begin, end=end), axis=axis, keepdims=True)
                       for begin, end in calls.parts(size, count)], dim=axis)
    return x


def standard(F, x, axis, eps):
    """With mean 0 and variance 1 over these axes."""
    x = F.broadcast_sub(x, F.mean(x, axis=axis, keepdims=True))
    return unit(F, x, axis, eps)


def unit(F, x, axis, eps):
    """With the mean square 1 over these axes."""
    return F.broadcast_div(x, F.sqrt(F.mean(F.square(x), axis=axis, keepdims=True) + eps))


def masked(F, x, lengths):
    """Zeros after the first n places of the axis behind the batch."""
    return F.SequenceMask(x, sequence_length=lengths, use_sequence_length=True, axis=1)


def lstm_layer(F, x, weights, h, c, hidden, both=False):
    """x: (T, N, features); h, c: (directions, N, hidden). weights: the matrices, then the biases. -> [sequence, h,
    c]."""
    flat = F.concat(*[F.reshape(weight, shape=(-1,)) for weight in weights], dim=0)
    return F.RNN(x, flat, h, c, state_size=hidden, num_layers=1, bidirectional=both, p=0.0, state_outputs=True,
                 mode="lstm")


def lstm_layers(F, x, parts, h, c, hidden, both):
    """parts: the weights by layer; h, c: (layers · directions, N, hidden). -> [sequence, h, c]. One RNN of all layers
    would leave out the gradients of the first ones where its input needs none and oneDNN has not the type."""
    if len(parts) == 1:
        return lstm_layer(F, x, parts[0], h, c, hidden, both)
    ways, new_h, new_c = 2 if both else 1, [], []
    for layer, weights in enumerate(parts):
        x, *new = lstm_layer(F, x, weights, *[F.slice_axis(state, axis=0, begin=layer * ways, end=(layer + 1) * ways)
                                              for state in (h, c)], hidden, both)
        new_h.append(new[0])
        new_c.append(new[1])
    return x, F.concat(*new_h, dim=0), F.concat(*new_c, dim=0)


def lstm_up_to(F, x, lengths, parts, start, hidden):
    """An LSTM with lengths. x: (T, N, features); parts: [weights of each direction] by layer; start: zeros
    (1, N, hidden). The way back begins at each sample's last true step. -> (sequence (T, N, …), last)."""
    for ways in parts:
        made = [lstm_layer(F, x, ways[0], start, start, hidden)[0]]
        if len(ways) == 2:
            turned = F.SequenceReverse(x, sequence_length=lengths, use_sequence_length=True)
            back = lstm_layer(F, turned, ways[1], start, start, hidden)[0]
            made.append(F.SequenceReverse(back, sequence_length=lengths, use_sequence_length=True))
        last = F.SequenceLast(made[0], sequence_length=lengths, use_sequence_length=True)
        if len(ways) == 2:
            last = F.concat(last, F.squeeze(F.slice_axis(made[1], axis=0, begin=0, end=1), axis=0), dim=1)
        x = F.SequenceMask(F.concat(*made, dim=2), sequence_length=lengths, use_sequence_length=True)
    return x, last


def attended(F, query, key, value, heads, mask):
    """query, key, value: (N, T, width), projected; mask: added to the scores (N or 1, 1, Tq, Tk), or None."""
    def split(x):  # (N · heads, T, width / heads)
        return F.reshape(F.transpose(F.reshape(x, shape=(0, 0, heads, -1)), axes=(0, 2, 1, 3)), shape=(-3, 0, 0))

    query, key, value = split(query), split(key), split(value)
    scores = F.contrib.div_sqrt_dim(query)
    scores = F.batch_dot(scores, key, transpose_b=True)
    if mask is not None:
        scores = F.reshape(F.broadcast_add(F.reshape(scores, shape=(-4, -1, heads, 0, 0)), mask), shape=(-3, 0, 0))
    mixed = F.batch_dot(F.softmax(scores, axis=-1), value)
    return F.reshape(F.transpose(F.reshape(mixed, shape=(-4, -1, heads, 0, 0)), axes=(0, 2, 1, 3)), shape=(0, 0, -3))


NAMES = {each.__name__: each for each in (
    padded, spread_max, pooled_to, standard, unit, masked, lstm_layers, lstm_up_to, attended)}


# ---------------------------------------------------------------------------------------------------------------------
# The source


class Writer(calls.Writer):
    """Knows what MXNet's operators need besides: the batch, the type, and what they cannot do without oneDNN."""

    def __init__(self, network, batch, dtype, trains, onednn):
        super().__init__(network)
        self.batch, self.dtype, self.trains, self.onednn = batch, dtype, trains, onednn

    def weights(self, call, *names):
        """The names of several parameters, None for those that the call has not."""
        return ", ".join(self.weight(call, name) if call.has(name) else "None" for name in names)

    def source(self):
        given, made = self.write(WRITERS, ("self", "F", "h_", "c_") + tuple(NAMES))
        given = ["self", "F"] + given + list(self.parameters.values()) + list(self.constants)
        end = "return " + (made[0] if len(made) == 1 else "[%s]" % ", ".join(made))
        return "\n    ".join(["def hybrid_forward(%s):" % ", ".join(given)] + self.lines + [end]) + "\n"


def conv(w, c):
    before, after = zip(*c["padding"])
    x = c.a[0] if before == after else "padded(F, %s, %r, 0)" % (c.a[0], c["padding"])
    return "F.Convolution(%s, %s, kernel=%r, stride=%r, dilate=%r, pad=%r, num_filter=%d, num_group=%d, no_bias=%r)" % (
        x, w.weights(c, "weight", "bias"), c["kernel"], c["stride"], c["dilation"],
        before if before == after else (0,) * c.axes, c["channels"], c["groups"], not c["bias"])


def conv_transpose(w, c):
    if c.axes == 3 and not (w.onednn and w.dtype == "float32"):
        raise Declined("conv_transpose", "conv_transpose: over three axes MXNet has it in oneDNN alone, in f32; got %s "
                       "and onednn %s." % (w.dtype, "on" if w.onednn else "off"))
    return ("F.Deconvolution(%s, %s, kernel=%r, stride=%r, dilate=%r, pad=%r, adj=%r, num_filter=%d, num_group=%d, "
            "no_bias=%r)" % (c.a[0], w.weights(c, "weight", "bias"), c["kernel"], c["stride"], c["dilation"],
                             c["padding"], c["output_padding"], c["channels"], c["groups"], not c["bias"]))


def linear(w, c):
    return "F.FullyConnected(%s, %s, num_hidden=%d, no_bias=%r, flatten=%r)" % (
        c.a[0], w.weights(c, "weight", "bias"), c["outputs"], not c["bias"], len(c.shape) == 1)


def pooling(kind, c, x, padding, convention="valid", more=""):
    return "F.Pooling(%s, kernel=%r, stride=%r, pad=%r, pool_type=%r, pooling_convention=%r%s)" % (
        x, c["kernel"], c["stride"], tuple(padding), kind, convention, more)


def max_pool(w, c):
    wide = c.max_windows()
    if wide is None:
        padding = c.reach([before for before, _ in c["padding"]])
        x = "padded(F, %s, %r, float('-inf'))" % (c.a[0], padding) if any(map(any, padding)) else c.a[0]
        if set(c["dilation"]) == {1}:
            return pooling("max", c, x, (0,) * c.axes)
        return "spread_max(F, %s, %r, %r, %r, %r)" % (x, c["kernel"], c["stride"], c["dilation"], tuple(c.shape[1:]))
    padding, kept = wide
    text = pooling("max", c, c.a[0], padding)
    if kept is None:
        return text
    begin, end = zip(*kept)
    return "F.slice(%s, begin=%r, end=%r)" % (text, (None, None) + begin, (None, None) + end)


def avg_pool(w, c):
    padding, count = c["padding"], c["count_include_pad"]
    if c.windows(padding) == c.shape[1:]:
        return pooling("avg", c, c.a[0], padding, "valid", ", count_include_pad=%r" % count)
    sizes = zip(c.shapes[0][1:], padding, c["kernel"], c["stride"])
    if [-(-(n + 2 * p - k) // s) + 1 for n, p, k, s in sizes] != c.shape[1:]:
        raise Declined("avg_pool", "avg_pool: MXNet's ceil_mode makes a last window of padding alone, too; got sizes "
                       "%r of %r." % (c.shape, c.shapes[0]))
    x = c.a[0]
    if count:  # the gradient that oneDNN has of this is wrong: the zeros are put there before
        x, padding = "padded(F, %s, %r, 0)" % (x, tuple((side, side) for side in padding)), (0,) * c.axes
    return pooling("avg", c, x, padding, "full", ", count_include_pad=False")


def adaptive(kind):
    return lambda w, c: "pooled_to(F, %s, F.%s, %r, %r)" % (c.a[0], kind, tuple(c.shapes[0][1:]), c["size"])


def global_avg_pool(w, c):
    if not c.axes:
        return c.a[0]
    return "F.flatten(F.Pooling(%s, kernel=%r, global_pool=True, pool_type='avg'))" % (c.a[0], (1,) * c.axes)


def scaled(w, c, expression, sizes):
    """Times the call's weight and plus its bias, where it has them; sizes: theirs beside the value."""
    for last, join in (("weight", "mul"), ("bias", "add")):
        if c.has(last):
            expression = "F.broadcast_%s(%s, F.reshape(%s, shape=%r))" % (join, expression, w.weight(c, last), sizes)
    return expression


def batch_norm(w, c):
    channels = c.shapes[0][0]
    if not c["track_running_stats"]:
        return scaled(w, c, "standard(F, %s, %r, %r)" % (c.a[0], (0,) + c.grid, c["eps"]), c.over_channels)
    if c["affine"]:
        gamma, beta = w.weight(c, "weight"), w.weight(c, "bias")
    else:
        gamma, beta = w.constant(np.ones(channels)), w.constant(np.zeros(channels))
    mean, variance = w.weight(c, "running_mean"), w.weight(c, "running_var")
    return "F.BatchNorm(%s, %s, %s, %s, %s, eps=%r, momentum=%r, fix_gamma=%r, axis=1)" % (
        c.a[0], gamma, beta, mean, variance, c["eps"], 1.0 - c["momentum"], not c["affine"])


def instance_norm(w, c):
    return scaled(w, c, "standard(F, %s, %r, %r)" % (c.a[0], c.grid, c["eps"]), c.over_channels)


def group_norm(w, c):
    parts = "F.reshape(%s, shape=%r)" % (c.a[0], (0, c["groups"], -1))
    return scaled(w, c, "F.reshape(standard(F, %s, 2, %r), shape=%r)" % (
        parts, c["eps"], (-1,) + tuple(c.shape)), c.over_channels)


def beside(c):
    """The shape of a weight over the last axes, beside the value."""
    axes, sizes = c.last
    return (1,) * axes[0] + sizes


def layer_norm(w, c):
    if c["axes"] == 1 and c.has("bias"):
        return "F.LayerNorm(%s, %s, axis=-1, eps=%r)" % (c.a[0], w.weights(c, "weight", "bias"), c["eps"])
    return scaled(w, c, "standard(F, %s, %r, %r)" % (c.a[0], c.last[0], c["eps"]), beside(c))


def rms_norm(w, c):
    return scaled(w, c, "unit(F, %s, %r, %r)" % (c.a[0], c.last[0], c.eps(w.dtype)), beside(c))


def dropout(w, c):
    if c["p"] == 0:
        return c.a[0]
    # A channel is kept or dropped as a whole: one number serves its places.
    axes = ", axes=%r" % (c.grid,) if c.kind == "channel_dropout" and c.axes else ""
    return "F.Dropout(%s, p=%r%s)" % (c.a[0], c["p"], axes)


def mean(w, c):
    if len(c.a) == 1:
        return "F.mean(%s, axis=%d)" % (c.a[0], c["axis"] + 1)
    return "F.broadcast_div(F.sum(masked(F, %s, %s), axis=1), F.reshape(F.cast(%s, dtype=%r), shape=%r))" % (
        c.a[0], c.a[1], c.a[1], w.dtype, (-1,) + (1,) * c.axes)


def lstm(w, c):
    time_first = "F.swapaxes(%s, dim1=0, dim2=1)" % c.a[0]
    ways, hidden, layers = 2 if c["bidirectional"] else 1, c["hidden"], c["layers"]
    suffixes = c.lstm_suffixes()
    if w.trains and not w.onednn:
        raise Declined("onednn", "onednn: MXNet trains an lstm on the CPU with oneDNN alone: it must be on; got off.")
    no_bias = None if c["bias"] else w.constant(np.zeros(4 * hidden))

    def part(names):
        biases = [no_bias if no_bias else w.weight(c, kind + name) for name in names for kind in ("bias_ih", "bias_hh")]
        matrices = [w.weight(c, kind + name) for name in names for kind in ("weight_ih", "weight_hh")]
        return "[%s]" % ", ".join(matrices + biases)

    if len(c.a) == 2:
        if c["carry"]:
            raise Declined("lstm", "lstm: MXNet's does not tell the state of a cell at a step in the middle, so "
                           "lengths and carry must not come together; got both in %s." % c.name)
        start = w.constant(np.zeros((1, w.batch, hidden)))
        parts = "[%s]" % ", ".join("[%s]" % ", ".join(part([name]) for name in names) for names in suffixes)
        made = "lstm_up_to(F, %s, %s, %s, %s, %d)" % (time_first, c.a[1], parts, start, hidden)
        return made + "[1]" if c["output"] == "last" else "F.swapaxes(%s[0], dim1=0, dim2=1)" % made
    states = [w.states[c.name + last] for last in (".h", ".c")] if c["carry"] else [
        w.constant(np.zeros((layers * ways, w.batch, hidden)))] * 2
    made = "lstm_layers(F, %s, [%s], %s, %s, %d, %r)" % (
        time_first, ", ".join(map(part, suffixes)), states[0], states[1], hidden, c["bidirectional"])
    h = states[0] if c["carry"] else "h_"
    text = "$, %s, %s = %s; $ = " % (h, states[1] if c["carry"] else "c_", made)
    if c["output"] == "sequence":
        return text + "F.swapaxes($, dim1=0, dim2=1)"
    lasts = "F.slice_axis(%s, axis=0, begin=%d, end=None)" % (h, -ways)
    return text + "F.reshape(F.swapaxes(%s, dim1=0, dim2=1), shape=(0, -1))" % lasts


def attention(w, c):
    (values, lengths, keys), width = c.attention_values(), c.shapes[0][1]
    weight, bias = w.weights(c, "in_proj_weight", "in_proj_bias").split(", ")
    project = "F.FullyConnected(%s, %s, %s, num_hidden=%d, no_bias=%r, flatten=False)"
    if len(values) == 1:
        parts = "*F.split(%s, num_outputs=3, axis=2)" % (project % (values[0], weight, bias, 3 * width, not c["bias"]))
    else:
        rows = "F.slice_axis(%s, axis=0, begin=%d, end=%d)"
        parts = ", ".join(project % (
            value, rows % (weight, width * i, width * (i + 1)),
            rows % (bias, width * i, width * (i + 1)) if c["bias"] else None, width, not c["bias"])
            for i, value in enumerate(values))
    masks = []
    if c["causal"]:
        masks.append(w.constant(np.triu(np.full((1, 1, c.shapes[0][0], keys), FAR_BELOW), 1)))
    if lengths:
        places = w.constant(np.arange(keys).reshape(1, 1, 1, keys))
        masks.append("F.broadcast_greater_equal(%s, F.reshape(F.cast(%s, dtype=%r), shape=(-1, 1, 1, 1))) * %r" % (
            places, lengths, w.dtype, FAR_BELOW))
    mask = "F.broadcast_add(%s)" % ", ".join(masks) if len(masks) == 2 else masks[0] if masks else None
    out_weight, out_bias = w.weights(c, "out_proj.weight", "out_proj.bias").split(", ")
    return project % ("attended(F, %s, %d, %s)" % (parts, c["heads"], mask), out_weight, out_bias, width, not c["bias"])


WRITERS = {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "linear": linear,
    "embedding": lambda w, c: "F.Embedding(%s, %s, input_dim=%d, output_dim=%d)" % (
        c.a[0], w.weight(c, "weight"), c["rows"], c["width"]),
    "relu": function("F.relu({0})"),
    # LeakyReLU's gelu, selu and leaky compute in f32 whatever the type.
    "gelu": function("0.5 * {0} * (1 + F.erf({0} * 0.7071067811865476))"),
    "silu": function("{0} * F.sigmoid({0})"),
    "selu": function("1.0507009873554805 * F.LeakyReLU({0}, act_type='elu', slope=1.6732632423543772)"),
    "mish": function("{0} * F.tanh(F.Activation({0}, act_type='softrelu'))"),
    "hardswish": function("{0} * F.clip({0} + 3, 0, 6) / 6"),
    "tanh": function("F.tanh({0})"),
    "sigmoid": function("F.sigmoid({0})"),
    "leaky_relu": function("F.where({0} > 0, {0}, {0} * {1})", "slope"),
    "elu": function("F.LeakyReLU({0}, act_type='elu', slope={1})", "alpha"),
    "softplus": function("F.where({0} * {1} > {2}, {0}, F.Activation({0} * {1}, act_type='softrelu') / {1})",
                         "beta", "threshold"),
    "softmax": function("F.softmax({0}, axis=-1)"),
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_avg_pool": adaptive("mean"),
    "adaptive_max_pool": adaptive("max"),
    "global_avg_pool": global_avg_pool,
    "batch_norm": batch_norm,
    "instance_norm": instance_norm,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "dropout": dropout,
    "channel_dropout": dropout,
    "flatten": function("F.flatten({0})"),
    "identity": function("{0}"),
    "add": lambda w, c: " + ".join(c.a),
    "multiply": lambda w, c: " * ".join(c.a),
    "concat": lambda w, c: "F.concat(%s, dim=%d)" % (", ".join(c.a), c["axis"] + 1),
    "transpose": lambda w, c: "F.swapaxes(%s, dim1=%d, dim2=%d)" % (c.a[0], c["axes"][0] + 1, c["axes"][1] + 1),
    "mean": mean,
    "lstm": lstm,
    "attention": attention,
}


def build(network, batch, dtype, trains=True, onednn=True):
    """-> (HybridBlock, {canonical name: its Parameter}, the source of its hybrid_forward). onednn: whether MXNet has it
    or, on CUDA devices, cuDNN."""
    import mxnet as mx
    writer = Writer(network, batch, dtype, trains, onednn)
    source = writer.source()
    kinds = {name: call["kind"] for call in network.calls for name in {**call["parameters"], **call["buffers"]}}
    names = dict(NAMES)
    exec(compile(source, "<%s>" % network.name, "exec"), names)
    block = type("Described", (mx.gluon.HybridBlock,), {"hybrid_forward": names["hybrid_forward"]})()
    named = {}
    for full, name in writer.parameters.items():
        trained = full in network.parameters
        shape = network.parameters[full] if trained else network.buffers[full]
        # Scales of norms and running variances begin with 1; what has no start here gets Gluon's, by its name's end.
        last, kind = full.rpartition(".")[2], kinds[full]
        start = "zeros" if "bias" in last or last == "running_mean" else "ones" if "norm" in kind else None
        named[full] = block.params.get(name + "_weight", shape=shape, init=start, dtype=dtype,
                                       grad_req="write" if trained else "null", differentiable=trained)
        setattr(block, name, named[full])
    for name, array in writer.constants.items():
        setattr(block, name, block.params.get_constant(name, mx.nd.array(array, dtype=dtype)))
    calls.differing({full: parameter.shape for full, parameter in named.items() if parameter.grad_req != "null"},
                    network.parameters)
    return block, named, source


# ---------------------------------------------------------------------------------------------------------------------
# Losses: of the output and the target, for each place. There is one axis beside the batch's at least, unless the output
# has none. F is mxnet.ndarray.


def cross_entropy(F, output, target):
    return -F.pick(F.log_softmax(output, axis=-1), target, axis=-1, keepdims=True)


def bce(F, output, target):
    return F.relu(output) - output * target + F.Activation(-F.abs(output), act_type="softrelu")


LOSSES = {
    "cross_entropy": cross_entropy,
    "mse": lambda F, output, target: F.square(output - target),
    "mae": lambda F, output, target: F.abs(output - target),
    "bce": bce,
}


def loss_function(F, loss, shape):
    """-> function of (output, target) or, with lengths, of (output, target, lengths) that gives a number for each
    sample: their mean is the loss, which is how Gluon adds up and divides. shape: of the output, without the batch."""
    places = LOSSES[loss.kind]
    if loss.lengths is None:
        if not shape:
            return lambda output, target: places(F, output, target)
        return lambda output, target: F.mean(places(F, output, target), axis=0, exclude=True)
    each = math.prod(shape[1:-1] if loss.kind == "cross_entropy" else shape[1:])

    def of_counted(output, target, lengths):
        counted = F.sum(masked(F, places(F, output, target), lengths), axis=0, exclude=True)
        share = len(output) / (each * F.sum(F.cast(lengths, dtype=output.dtype)))
        return F.broadcast_mul(counted, share)

    return of_counted
