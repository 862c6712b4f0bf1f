"""Networks of the protocol in plain JAX: a function written out as source text, one statement per call.

    forward(p, s, states, inputs, training, key) -> (outputs, new statistics, states)

p and s: parameters and running statistics by name, as they are stored here; states, inputs and outputs: tuples in the
description's order; training: a Python bool; key: for dropout, or None.

Values with channels and places are kept with the channels last, (N, H, W, C), where the layers that made them want that;
the Writer knows the layout of each value and turns it where another one is needed:
  PLAIN   as the description has it          LAST   channels last
  (C, …)  flattened with the channels last, of a value of these sizes
Parameters are stored as the layers take them: kernels (places, in, out), matrices (in, out), the rows of a matrix after
a flattening in that one's order. A state is (layers · directions, N, hidden).
"""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PLAIN, LAST = "plain", "last"
PLACES = ("", "W", "HW", "DHW")  # by the number of axes


# ---------------------------------------------------------------------------------------------------------------------
# The layers that the source calls. x is (N, places, C) unless it says otherwise


def channels_first(x):
    return jnp.moveaxis(x, -1, 1)


def channels_last(x):
    return jnp.moveaxis(x, 1, -1)


def regrouped(x, sizes):
    """What was flattened with the channels last, as if they had been first."""
    channels, *places = sizes
    return channels_first(x.reshape(-1, *places, channels)).reshape(x.shape[0], -1)


def conv(x, weight, bias, stride, padding, dilation=None, groups=1, spread=None):
    """spread: the steps between the input's places, for transposed convolutions."""
    places = PLACES[x.ndim - 2]
    x = lax.conv_general_dilated(
        x, weight, stride, padding, lhs_dilation=spread, rhs_dilation=dilation,
        dimension_numbers=("N%sC" % places, places + "IO", "N%sC" % places), feature_group_count=groups)
    return x if bias is None else x + bias


def linear(x, weight, bias):
    return x @ weight if bias is None else x @ weight + bias


def softplus(x, beta, threshold):
    return jnp.where(beta * x > threshold, x, jax.nn.softplus(beta * x) / beta)


def windows(x, start, function, kernel, stride, padding):
    return lax.reduce_window(x, start, function, (1,) + kernel + (1,), (1,) + stride + (1,),
                             ((0, 0),) + padding + ((0, 0),))


def max_pool(x, kernel, stride, padding):
    return windows(x, -jnp.inf, lax.max, kernel, stride, padding)


def dilated_max_pool(x, kernel, stride, padding, dilation, sizes):
    """JAX has no gradient of windows with steps between their places: the largest of the whole value, moved."""
    x = jnp.pad(x, ((0, 0),) + padding + ((0, 0),), constant_values=-jnp.inf)
    moved = []
    for place in np.ndindex(*kernel):
        first = [p * d for p, d in zip(place, dilation)]
        end = [f + (size - 1) * s + 1 for f, size, s in zip(first, sizes, stride)]
        moved.append(x[(slice(None),) + tuple(slice(*cut) for cut in zip(first, end, stride))])
    return jnp.stack(moved).max(0)


def avg_pool(x, kernel, stride, padding, counts):
    """counts: how many numbers each window counts, by axis."""
    count = math.prod(np.ix_(*map(np.asarray, counts)))[..., None]
    total = windows(x, 0.0, lax.add, kernel, stride, padding)
    return total / (float(count.flat[0]) if (count == count.flat[0]).all() else jnp.asarray(count, x.dtype))


def adaptive_pool(x, reduce, sizes):
    """reduce: jnp.mean or jnp.max. A window reaches over a rectangle, so the axes are reduced one after the other."""
    for axis, size in enumerate(sizes, 1):
        there = x.shape[axis]
        if there % size == 0:
            x = reduce(x.reshape(x.shape[:axis] + (size, there // size) + x.shape[axis + 1:]), axis + 1)
        else:
            x = jnp.stack([reduce(lax.slice_in_dim(x, i * there // size, -(-(i + 1) * there // size), axis=axis), axis)
                           for i in range(size)], axis)
    return x


def widened(x):
    """Statistics of a bf16 network are f32."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def batch_norm(x, scale, shift, mean, var, momentum, epsilon, training):
    """-> (x, new mean, new variance); mean None: there are no running statistics."""
    wide, old_mean, old_var = widened(x), mean, var
    if training or mean is None:
        axes = tuple(range(x.ndim - 1))
        mean, var = wide.mean(axes), wide.var(axes)
    factor = lax.rsqrt(var + epsilon) if scale is None else scale * lax.rsqrt(var + epsilon)
    made = (wide - mean) * factor
    made = (made if shift is None else made + shift).astype(x.dtype)
    if not training or old_mean is None:
        return made, old_mean, old_var
    count = x.size // x.shape[-1]
    unbiased = var * (count / max(1, count - 1))
    return made, (1 - momentum) * old_mean + momentum * mean, (1 - momentum) * old_var + momentum * unbiased


def normalized(x, scale, shift, axes, epsilon):
    """Over these axes of x."""
    wide = widened(x)
    return rms_norm(wide - wide.mean(axes, keepdims=True), scale, shift, axes, epsilon).astype(x.dtype)


def rms_norm(x, scale, shift, axes, epsilon):
    wide = widened(x)
    made = wide * lax.rsqrt(jnp.square(wide).mean(axes, keepdims=True) + epsilon)
    made = made if scale is None else made * scale
    return (made if shift is None else made + shift).astype(x.dtype)


def group_norm(x, scale, shift, groups, epsilon):
    grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    made = normalized(grouped, None, None, (1, 3), epsilon).reshape(x.shape)
    made = made if scale is None else made * scale
    return (made if shift is None else made + shift).astype(x.dtype)


def dropout(x, rate, key, shape):
    """shape: that of the noise."""
    return jnp.where(jax.random.bernoulli(key, 1 - rate, shape), x / (1 - rate), 0)


def true_steps(lengths, time):
    """(N, time), true before each sample's length."""
    return jnp.arange(time) < lengths[:, None]


def mean_of_true(x, lengths):
    """Over the steps of x (N, time, …) up to each length."""
    ones = (1,) * (x.ndim - 2)
    mask = true_steps(lengths, x.shape[1]).reshape(x.shape[:2] + ones)
    return jnp.where(mask, x, 0).sum(1) / lengths.reshape((-1,) + ones).astype(x.dtype)


def lstm(x, weights, lengths=None, h=None, c=None, ways=1):
    """x (N, time, features); weights: (w_ih, w_hh, b_ih, b_hh) of each layer and way, the biases None where there are
    none. -> (sequence, h, c), h and c after the last true step."""
    mask = None if lengths is None else true_steps(lengths, x.shape[1]).T[:, :, None]
    x = x.swapaxes(0, 1)
    last_h, last_c = [], []
    for first in range(0, len(weights), ways):
        made = []
        for way in range(ways):
            w_ih, w_hh, b_ih, b_hh = weights[first + way]
            # Before the weights, so that no number beyond the lengths comes into a gradient.
            gates = linear(x if mask is None else jnp.where(mask, x, 0), w_ih, None if b_ih is None else b_ih + b_hh)

            def step(state, given):
                h, c = state
                gates, true = given
                i, f, g, o = jnp.split(gates + h @ w_hh, 4, axis=-1)
                new_c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
                if true is None:
                    return (new_h, new_c), new_h
                return (jnp.where(true, new_h, h), jnp.where(true, new_c, c)), jnp.where(true, new_h, 0)

            none = jnp.zeros(x.shape[1:2] + w_hh.shape[:1], x.dtype)
            begin = (none, none) if h is None else (h[first + way].astype(x.dtype), c[first + way].astype(x.dtype))
            (end_h, end_c), sequence = lax.scan(step, begin, (gates, mask), reverse=way == 1)
            made.append(sequence)
            last_h.append(end_h)
            last_c.append(end_c)
        x = made[0] if ways == 1 else jnp.concatenate(made, -1)
    return x.swapaxes(0, 1), jnp.stack(last_h), jnp.stack(last_c)


def last_of(h, ways):
    """(N, ways · hidden) of the last layer, from h (layers · ways, N, hidden)."""
    return h[-1] if ways == 1 else jnp.concatenate((h[-2], h[-1]), -1)


def attention(query, key, value, w_in, b_in, w_out, b_out, heads, causal, lengths=None):
    """key and value None: the query is all three. Written out: jax.nn.dot_product_attention rounds f64 to f32."""
    width = query.shape[-1]
    if key is None:
        parts = jnp.split(linear(query, w_in, b_in), 3, axis=-1)
    else:
        biases = (None,) * 3 if b_in is None else jnp.split(b_in, 3)
        parts = [linear(x, w, b) for x, w, b in zip((query, key, value), jnp.split(w_in, 3, axis=1), biases)]
    query, key, value = (part.reshape(part.shape[:2] + (heads, width // heads)) for part in parts)
    scores = widened(jnp.einsum("nqhd,nkhd->nhqk", query, key)) / math.sqrt(width // heads)
    if causal:
        scores = jnp.where(np.tri(*scores.shape[2:], dtype=bool), scores, -jnp.inf)
    if lengths is not None:
        scores = jnp.where(true_steps(lengths, key.shape[1])[:, None, None], scores, -jnp.inf)
    made = jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores).astype(value.dtype), value)
    return linear(made.reshape(made.shape[:2] + (width,)), w_out, b_out)


# ---------------------------------------------------------------------------------------------------------------------
# The source


class Writer:
    """Writes `forward`; knows the layout of each value and how each parameter is stored."""

    def __init__(self, network):
        self.network = network
        self.shapes = {entry["name"]: tuple(entry["shape"]) for entry in network.inputs}
        self.layouts = {entry["name"]: self.input_layout(entry) for entry in network.inputs}
        self.inputs = dict(self.layouts)
        self.states = {entry["name"]: "state%d" % index for index, entry in enumerate(network.states)}
        self.stores = {}  # {parameter's name: function of the array in PyTorch's layout}
        self.grids = {}   # {matrix: sizes of the flattened value whose order its rows have, or None}
        self.lines, self.keys = [], 0

    def input_layout(self, entry):
        """Channels last where a layer with channels takes it."""
        takers = [call["kind"] for call in self.network.calls if call["in"][0] == entry["name"]]
        return LAST if len(entry["shape"]) > 1 and set(takers) & CHANNELLED else PLAIN

    def parameter(self, name, store=None):
        """The expression that reads a parameter; None where the network has none of this name."""
        if name not in self.network.parameters:
            return "None"
        self.stores[name] = store or (lambda array: array)
        return "p[%r]" % name

    def matrix(self, name, sizes=None):
        """A matrix (out, in), stored (in, out); sizes: of the flattened value with channels last that it multiplies."""
        def store(array):
            if sizes is not None:
                array = np.moveaxis(array.reshape((-1,) + tuple(sizes)), 1, -1).reshape(array.shape)
            return array.T

        self.grids[name] = sizes
        return self.parameter(name, store)

    def key(self):
        self.keys += 1
        return "jax.random.fold_in(key, %d)" % self.keys

    def source(self):
        states = list(self.states.values())
        own = set(LAYERS) | {"jax", "jnp", "lax", "p", "s", "states", "inputs", "training", "key", "new"} | set(states)
        inputs, calls, outputs = self.network.straight_line(own)
        if inputs:
            self.lines.append("%s, = inputs" % ", ".join(inputs))
        if states:
            self.lines.append("%s, = states" % ", ".join(states))
        self.lines.append("new = {}")
        for call, taken, made, _ in calls:
            entry = Call(self, call, taken)
            expression = WRITERS[call["kind"]](self, entry)
            # What is no expression, but a statement that binds other names too, has $ where the value's name shall be.
            self.lines.append(expression.replace("$", made) if "$" in expression else "%s = %s" % (made, expression))
            self.shapes[call["out"]], self.layouts[call["out"]] = tuple(call["shape"]), entry.layout
        made = [plain(name, self.layouts[entry["value"]]) for name, entry in zip(outputs, self.network.outputs)]
        self.lines.append("return (%s,), new, (%s)" % (", ".join(made), "".join(state + ", " for state in states)))
        return "\n    ".join(["def forward(p, s, states, inputs, training, key):"] + self.lines) + "\n"


def plain(expression, layout):
    if layout == PLAIN:
        return expression
    return "channels_first(%s)" % expression if layout == LAST else "regrouped(%s, %r)" % (expression, layout)


class Call:
    """One call while it is written. layout: that of the value it makes, PLAIN unless its writer says otherwise."""

    def __init__(self, writer, call, variables):
        self.writer, self.name, self.values, self.variables = writer, call["name"], call["in"], variables
        self.settings, self.shape = call["settings"], tuple(call["shape"])
        self.shapes = [writer.shapes[value] for value in call["in"]]
        self.layouts = [writer.layouts[value] for value in call["in"]]
        self.layout = PLAIN

    def __getitem__(self, setting):
        value = self.settings[setting]
        return tuple(tuple(v) if isinstance(v, list) else v for v in value) if isinstance(value, list) else value

    @property
    def axes(self):
        """How many axes of the first value are places: all but the channels."""
        return len(self.shapes[0]) - 1

    def plain(self, index=0):
        """The value as the description has it."""
        return plain(self.variables[index], self.layouts[index])

    def as_is(self):
        """The only value in whatever layout it has, which is also the result's."""
        self.layout = self.layouts[0]
        return self.variables[0]

    def last(self):
        """The only value with its channels last, which the result's are too. One without places has no other axis."""
        if self.axes == 0:
            return self.plain()
        self.layout = LAST
        return self.variables[0] if self.layouts[0] == LAST else "channels_last(%s)" % self.plain()

    def parameter(self, suffix, store=None):
        return self.writer.parameter("%s.%s" % (self.name, suffix), store)

    def affine(self):
        return "%s, %s" % (self.parameter("weight"), self.parameter("bias"))


def function(text, *settings):
    """The writer of a function of one number at a time."""
    return lambda w, c: text % ((c.as_is(),) + tuple(c[name] for name in settings))


def write_conv(w, c):
    def store(array):
        return np.moveaxis(array, (0, 1), (-1, -2))

    dilation = None if set(c["dilation"]) == {1} else c["dilation"]
    return "conv(%s, %s, %s, %r, %r, %r, %r)" % (
        c.last(), c.parameter("weight", store), c.parameter("bias"), c["stride"], c["padding"], dilation, c["groups"])


def write_conv_transpose(w, c):
    """A convolution of the input with `stride` steps between its places, by the kernel the other way round."""
    groups, axes = c["groups"], tuple(range(c.axes))
    padding = tuple((d * (k - 1) - p, d * (k - 1) - p + o) for d, k, p, o in zip(
        c["dilation"], c["kernel"], c["padding"], c["output_padding"]))

    def store(array):  # (in, out / groups, places) to (places, in / groups, out)
        before, after, *places = array.shape
        array = array.reshape([groups, before // groups, after] + places)
        array = np.moveaxis(array, (1, 0, 2), (-3, -2, -1)).reshape(places + [before // groups, groups * after])
        return np.flip(array, axes)

    return "conv(%s, %s, %s, %r, %r, %r, %r, %r)" % (
        c.last(), c.parameter("weight", store), c.parameter("bias"), (1,) * c.axes, padding, c["dilation"], groups,
        c["stride"])


def write_linear(w, c):
    name = c.name + ".weight"
    sizes = c.layouts[0] if isinstance(c.layouts[0], tuple) else None
    if w.grids.get(name, sizes) != sizes:  # the same weights elsewhere, in another order
        sizes = None
    x = c.variables[0] if sizes is not None else c.plain()
    return "linear(%s, %s, %s)" % (x, w.matrix(name, sizes), c.parameter("bias"))


def reach(c, padding):
    """The zeros before and after each axis that make the windows as many as the result has."""
    dilation = c["dilation"] if "dilation" in c.settings else (1,) * c.axes
    return tuple((before, max(0, (size - 1) * s + d * (k - 1) + 1 - there - before))
                 for there, before, d, k, s, size in zip(
                     c.shapes[0][1:], padding, dilation, c["kernel"], c["stride"], c.shape[1:]))


def write_max_pool(w, c):
    padding = reach(c, [before for before, _ in c["padding"]])
    if set(c["dilation"]) == {1}:
        return "max_pool(%s, %r, %r, %r)" % (c.last(), c["kernel"], c["stride"], padding)
    return "dilated_max_pool(%s, %r, %r, %r, %r, %r)" % (
        c.last(), c["kernel"], c["stride"], padding, c["dilation"], c.shape[1:])


def write_avg_pool(w, c):
    padding, counts = c["padding"], []
    for there, p, k, s, size in zip(c.shapes[0][1:], padding, c["kernel"], c["stride"], c.shape[1:]):
        low, high = (-p, there + p) if c["count_include_pad"] else (0, there)
        counts.append([min(i * s - p + k, high) - max(i * s - p, low) for i in range(size)])
    return "avg_pool(%s, %r, %r, %r, %r)" % (c.last(), c["kernel"], c["stride"], reach(c, padding), counts)


def write_global_avg_pool(w, c):
    if c.axes == 0:
        return c.plain()
    x = c.last()
    c.layout = PLAIN
    return "%s.mean(%r)" % (x, tuple(range(1, 1 + c.axes)))


def write_batch_norm(w, c):
    if not c["track_running_stats"]:
        return "batch_norm(%s, %s, None, None, 0, %r, training)[0]" % (c.last(), c.affine(), c["eps"])
    mean, var = repr(c.name + ".running_mean"), repr(c.name + ".running_var")
    return "$, new[%s], new[%s] = batch_norm(%s, %s, s[%s], s[%s], %r, %r, training)" % (
        mean, var, c.last(), c.affine(), mean, var, c["momentum"], c["eps"])


def write_layer_norm(w, c):
    return "normalized(%s, %s, %r, %r)" % (c.plain(), c.affine(), tuple(range(-c["axes"], 0)), c["eps"])


def write_rms_norm(w, c):
    x = c.plain()
    epsilon = c["eps"] or "jnp.finfo(%s.dtype).eps" % x  # 0: the spacing of numbers at 1
    return "rms_norm(%s, %s, %r, %s)" % (x, c.affine(), tuple(range(-c["axes"], 0)), epsilon)


def write_dropout(by_channel):
    def write(w, c):
        x = c.last() if by_channel else c.as_is()
        if not c["p"]:
            return x
        shape = "%s.shape" % x
        if by_channel and c.axes:
            shape = "(%s.shape[0],%s %s.shape[-1])" % (x, " 1," * c.axes, x)
        return "dropout(%s, %r, %s, %s) if training else %s" % (x, c["p"], w.key(), shape, x)

    return write


def write_flatten(w, c):
    c.layout = c.shapes[0] if c.layouts[0] == LAST else c.layouts[0]
    x = c.variables[0]
    return "%s.reshape(%s.shape[0], -1)" % (x, x) if c.axes else x


def write_joined(sign):
    def write(w, c):
        if len(set(c.layouts)) == 1:
            c.layout = c.layouts[0]
            return sign.join(c.variables)
        return sign.join(c.plain(index) for index in range(len(c.values)))

    return write


def write_concat(w, c):
    if set(c.layouts) == {LAST}:
        c.layout = LAST
        return "jnp.concatenate((%s), %d)" % (", ".join(c.variables), c["axis"] if c["axis"] else len(c.shape))
    return "jnp.concatenate((%s), %d)" % (", ".join(c.plain(i) for i in range(len(c.values))), c["axis"] + 1)


def write_mean(w, c):
    if len(c.values) == 2:
        return "mean_of_true(%s, %s)" % (c.plain(), c.variables[1])
    return "%s.mean(%d)" % (c.plain(), c["axis"] + 1)


def write_lstm(w, c):
    ways = 2 if c["bidirectional"] else 1
    weights = []
    for layer in range(c["layers"]):
        for suffix in ("_l%d" % layer, "_l%d_reverse" % layer)[:ways]:
            matrices = [w.matrix("%s.weight_%s%s" % (c.name, part, suffix)) for part in ("ih", "hh")]
            weights.append("(%s)" % ", ".join(matrices + [c.parameter("bias_%s%s" % (part, suffix))
                                                          for part in ("ih", "hh")]))
    options = [c.plain(), "[%s]" % ", ".join(weights), c.variables[1] if len(c.values) == 2 else "None"]
    states = [w.states[c.name + part] for part in (".h", ".c")] if c["carry"] else ["None", "None"]
    called = "lstm(%s, %d)" % (", ".join(options + states), ways)
    if c["carry"]:
        text = "$, %s = %s" % (", ".join(states), called)
        return text if c["output"] == "sequence" else text + "; $ = last_of(%s, %d)" % (states[0], ways)
    return called + "[0]" if c["output"] == "sequence" else "last_of(%s[1], %d)" % (called, ways)


def write_attention(w, c):
    with_lengths = len(c.values) in (2, 4)
    values = [c.plain(index) for index in range(len(c.values) - with_lengths)]
    return "attention(%s, %s, %s, %s, %s, %r, %r, %s)" % (
        ", ".join(values if len(values) == 3 else values + ["None", "None"]), w.matrix(c.name + ".in_proj_weight"),
        c.parameter("in_proj_bias"), w.matrix(c.name + ".out_proj.weight"), c.parameter("out_proj.bias"), c["heads"],
        c["causal"], c.variables[-1] if with_lengths else "None")


WRITERS = {
    "conv": write_conv,
    "conv_transpose": write_conv_transpose,
    "linear": write_linear,
    "matmul": lambda w, c: "linear(%s, %s, None)" % (c.plain(), c.parameter("weight")),
    "embedding": lambda w, c: "%s[%s]" % (c.parameter("weight"), c.plain()),
    "relu": function("jax.nn.relu(%s)"),
    "gelu": function("jax.nn.gelu(%s, approximate=False)"),
    "silu": function("jax.nn.silu(%s)"),
    "selu": function("jax.nn.selu(%s)"),
    "mish": function("jax.nn.mish(%s)"),
    "hardswish": function("jax.nn.hard_swish(%s)"),
    "tanh": function("jnp.tanh(%s)"),
    "sigmoid": function("jax.nn.sigmoid(%s)"),
    "exp": function("jnp.exp(%s)"),
    "erf": function("jax.scipy.special.erf(%s)"),
    "leaky_relu": function("jax.nn.leaky_relu(%s, %r)", "slope"),
    "elu": function("jax.nn.elu(%s, %r)", "alpha"),
    "softplus": function("softplus(%s, %r, %r)", "beta", "threshold"),
    "softmax": lambda w, c: "jax.nn.softmax(%s)" % c.plain(),
    "log_softmax": lambda w, c: "jax.nn.log_softmax(%s)" % c.plain(),
    "max_pool": write_max_pool,
    "avg_pool": write_avg_pool,
    "adaptive_avg_pool": lambda w, c: "adaptive_pool(%s, jnp.mean, %r)" % (c.last(), c["size"]),
    "adaptive_max_pool": lambda w, c: "adaptive_pool(%s, jnp.max, %r)" % (c.last(), c["size"]),
    "global_avg_pool": write_global_avg_pool,
    "batch_norm": write_batch_norm,
    "instance_norm": lambda w, c: "normalized(%s, %s, %r, %r)" % (
        c.last(), c.affine(), tuple(range(1, 1 + c.axes)), c["eps"]),
    "group_norm": lambda w, c: "group_norm(%s, %s, %r, %r)" % (c.last(), c.affine(), c["groups"], c["eps"]),
    "layer_norm": write_layer_norm,
    "rms_norm": write_rms_norm,
    "dropout": write_dropout(False),
    "channel_dropout": write_dropout(True),
    "flatten": write_flatten,
    "identity": lambda w, c: c.as_is(),
    "add": write_joined(" + "),
    "multiply": write_joined(" * "),
    "concat": write_concat,
    "transpose": lambda w, c: "%s.swapaxes(%d, %d)" % (c.plain(), c["axes"][0] + 1, c["axes"][1] + 1),
    "mean": write_mean,
    "sum": lambda w, c: "%s.sum(%d)" % (c.plain(), c["axis"] + 1),
    "lstm": write_lstm,
    "attention": write_attention,
}
CHANNELLED = {"conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool",
              "global_avg_pool", "batch_norm", "instance_norm", "group_norm", "channel_dropout"}
LAYERS = {layer.__name__: layer for layer in (
    channels_first, channels_last, regrouped, conv, linear, softplus, max_pool, dilated_max_pool, avg_pool,
    adaptive_pool, batch_norm, normalized, rms_norm, group_norm, dropout, mean_of_true, lstm, last_of, attention)}


class Network:
    """A network of the protocol: `forward` above, and how its numbers are stored.

    shapes  {parameter: PyTorch's shape}        stats  {running statistic: shape}
    """

    def __init__(self, description):
        writer = Writer(description)
        self.source = writer.source()
        names = dict(LAYERS, jax=jax, jnp=jnp, lax=lax)
        exec(compile(self.source, "<%s>" % description.name, "exec"), names)
        self.forward = names["forward"]
        self.shapes, self.stats = description.parameters, description.buffers
        self.stores, self.inputs = writer.stores, writer.inputs
        unread = sorted(set(self.shapes) - set(self.stores))
        if unread:
            raise ValueError("network: every parameter must be one of its layer's; got %s." % ", ".join(unread))

    def stored(self, name, array):
        """A parameter in PyTorch's layout, as it is stored here."""
        return np.ascontiguousarray(self.stores[name](array))

    def placed(self, name, array):
        """A batch of an input, in the layout that `forward` takes."""
        return np.moveaxis(array, 1, -1) if self.inputs[name] == LAST else array


# ---------------------------------------------------------------------------------------------------------------------
# Losses


def ctc(output, labels, steps):
    """output (N, time, classes), of which the first `steps` count, labels (N, most), filled up with zeros: the blank. As
    PyTorch's mean with zero_infinity: of each loss over the number of its labels."""
    none, (n, most) = -1e30, labels.shape
    counts, chances = (labels != 0).sum(1), jax.nn.log_softmax(output)
    places = jnp.zeros((n, 2 * most + 1), labels.dtype).at[:, 1::2].set(labels)  # blanks between them
    skips = (places != 0) & (places != jnp.pad(places, ((0, 0), (2, 0)))[:, :-2])
    emitted = jnp.take_along_axis(chances, places[:, None], axis=2).swapaxes(0, 1)

    def step(before, given):
        chance, time = given
        one, two = (jnp.pad(before, ((0, 0), (by, 0)), constant_values=none)[:, :-by] for by in (1, 2))
        came = jax.nn.logsumexp(jnp.stack((before, one, jnp.where(skips, two, none))), 0)
        return jnp.where((time < steps)[:, None], came + chance, before), None

    begin = jnp.where(jnp.arange(2 * most + 1) < 2, emitted[0], none)
    end, _ = lax.scan(step, begin, (emitted[1:], jnp.arange(1, output.shape[1])))
    last = jnp.take_along_axis(end, 2 * counts[:, None], 1)[:, 0]
    but_one = jnp.take_along_axis(end, jnp.maximum(2 * counts - 1, 0)[:, None], 1)[:, 0]
    whole = jnp.logaddexp(last, jnp.where(counts > 0, but_one, none))
    return (jnp.where(whole > 0.1 * none, -whole, 0) / jnp.maximum(counts, 1)).mean()


def cross_entropy(output, target):
    """Of each place."""
    return -jnp.take_along_axis(jax.nn.log_softmax(output), target[..., None], axis=-1)[..., 0]


def right_answers(output, target, lengths=None):
    """At each place whether the largest output is the target's; of places that do not count, no."""
    right = output.argmax(-1) == target
    return right if lengths is None else right & counted(right, lengths)


def loss_of(loss, output, target, lengths=None):
    """loss: a term of a cell's. The mean over all numbers that count."""
    if loss.kind == "ctc":
        return ctc(output, target, (lengths + loss.stride - 1) // loss.stride)
    if loss.kind == "cross_entropy":
        each = cross_entropy(output, target)
    elif loss.kind == "bce":
        each = jnp.maximum(output, 0) - output * target + jnp.log1p(jnp.exp(-jnp.abs(output)))
    else:
        each = {"mse": jnp.square, "mae": jnp.abs}[loss.kind](output - target)
    if lengths is None:
        return each.mean()
    mask = counted(each, lengths)
    return jnp.where(mask, each, 0).sum() / (lengths.sum() * math.prod(each.shape[2:]))


def counted(array, lengths):
    """(N, time, 1, …), true where a place of the array (N, time, …) counts."""
    return true_steps(lengths, array.shape[1]).reshape(array.shape[:2] + (1,) * (array.ndim - 2))


LOSSES = ("cross_entropy", "mse", "mae", "bce", "ctc", "sum")
