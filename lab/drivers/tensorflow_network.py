"""Makes TensorFlow code of the protocol's networks: the text of two functions, one for training and one for test mode.

    network = build(cell)
    outputs, changes = network.train(x)    # plain TensorFlow operations, a line for each call of the description

`changes` are the new values of network.changed: running statistics and states. network.text is what was made.
"""
import keyword
import platform
import re

import keras
import numpy as np
import tensorflow as tf

import channels_last
import frame
import tensorflow_layers
import windows
from channels_last import Value, last, plain

ACTIVATIONS = {"relu": "tf.nn.relu({x})", "gelu": "tf.nn.gelu({x})", "silu": "tf.nn.silu({x})",
               "selu": "tf.nn.selu({x})", "mish": "{x} * tf.tanh(tf.nn.softplus({x}))",
               "hardswish": "{x} * tf.nn.relu6({x} + 3) / 6", "tanh": "tf.tanh({x})", "sigmoid": "tf.sigmoid({x})",
               "exp": "tf.exp({x})", "erf": "tf.math.erf({x})",
               "leaky_relu": "tf.nn.leaky_relu({x}, {slope})",
               "elu": "tf.where({x} > 0, {x}, {alpha} * tf.nn.elu({x}))",
               "softplus": "layers.softplus({x}, {beta}, {threshold})"}
KINDS = ["conv", "conv_transpose", "linear", "matmul", "embedding", *ACTIVATIONS, "softmax", "log_softmax", "max_pool",
         "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "global_avg_pool", "batch_norm", "instance_norm", "group_norm",
         "layer_norm", "rms_norm", "dropout", "channel_dropout", "flatten", "identity", "add", "multiply", "concat",
         "transpose", "mean", "sum", "lstm", "attention"]


def same(array):
    return array


def transposed(array):
    return array.T


class Text(channels_last.Layouts):
    """The text of one function. Each kind of call has a method of its name, (call, *Values) -> Value, whose `made` is
    an expression, or the name of a variable."""

    def __init__(self, cell, training):
        self.network, self.training = cell.network, training
        self.mixed, self.precise = cell.precision == "bf16", cell.precision == "f64"
        self.type = "tf.bfloat16" if self.mixed else "tf.float64" if self.precise else "tf.float32"
        self.is_xla = cell.variant == "xla"
        self.on_cpu = cell.device == "cpu" and not self.is_xla  # by TensorFlow's own kernels
        # oneDNN, which TensorFlow has for f32 on x86-64 alone, does more than TensorFlow's own kernels.
        self.is_bare = self.on_cpu and (self.precise or platform.machine() != "x86_64")
        self.lines, self.target = [], None  # the lines so far, and the variable that the next one is for
        self.names = {}  # identifiers by what they stand for
        self.taken = {"tf", "layers", "zip", "part", "kernel"} | set(keyword.kwlist)
        self.weights = {}  # {name: (function from PyTorch's layout, name of the initializer)}
        self.constants = {}  # {identifier: array}
        self.changed = {}  # {name of a buffer or state: expression of its new value}
        self.orders = {}  # {name of an input or output: how its samples' axes are stored}
        self._write()

    def _write(self):
        network, values = self.network, {}
        for name in [*network.parameters, *network.buffers, *(state["name"] for state in network.states)]:
            self._name(name)
        arguments, lines, _ = network.straight_line(self.taken)
        self.taken.update(arguments, (variable for _, _, variable, _ in lines))
        for entry, variable in zip(network.inputs, arguments):
            order = channels_last.order_of_input(network, entry["name"], len(entry["shape"]))
            self.orders[entry["name"]] = order
            values[entry["name"]] = Value(variable, entry["shape"], order)
            if self.mixed and entry["type"] == "f32":
                self.lines.append("%s = tf.cast(%s, %s)" % (variable, variable, self.type))
        for call, _, self.target, ended in lines:
            result = self._made(call, [values[name] for name in call["in"]])
            if result.made != self.target:
                self.lines.append("%s = %s" % (self.target, result.made))
            values[call["out"]] = result.like(self.target)
            if ended:
                self.lines.append("del " + ", ".join(ended))
        outputs = []
        for output in network.outputs:
            value = values[output["value"]]
            self.orders[output["name"]] = value.order
            made = self.canonical(value) if value.grid else value.made
            outputs.append("tf.cast(%s, tf.float32)" % made if self.mixed else made)
        self.lines.append("return (%s), (%s)" % tuple(
            " ".join(each + "," for each in group) for group in (outputs, self.changed.values())))
        self.text = "".join(["def %s(%s):\n" % ("train" if self.training else "test", ", ".join(arguments))] +
                            ["    %s\n" % line for line in self.lines])

    def _made(self, call, inputs):
        if call["kind"] in ACTIVATIONS:
            x = inputs[0]
            return x.like(ACTIVATIONS[call["kind"]].format(x=x.made, **call["settings"]))
        return getattr(self, call["kind"])(call, *inputs)

    def _name(self, wanted, text=None):
        """An identifier for what is wanted: always the same one, and of nothing else."""
        if wanted not in self.names:
            name = re.sub(r"\W", "_", text or wanted)
            name = "_" + name if name[0].isdigit() else name
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            self.names[wanted] = name
        return self.names[wanted]

    def _several(self, names, expression):
        """A line that gives the call's value and, under these names, more -> the value's variable."""
        self.lines.append("%s, %s = %s" % (self.target, ", ".join(names), expression))
        return self.target

    def _weight(self, name, to_native, initializer, computed=True):
        """computed: in the type of the products. Normalisation takes its weights in f32."""
        self.weights[name] = to_native, initializer
        name = self._name(name)
        return self._cast(name) if computed else name

    def _cast(self, made):
        """In mixed precision, in the type of the products."""
        return "tf.cast(%s, %s)" % (made, self.type) if self.mixed else made

    def _vector(self, call, end, initializer="zeros", computed=True):
        """The vector NAME.end of a call, "None" where it has none."""
        name = "%s.%s" % (call["name"], end)
        return self._weight(name, same, initializer, computed) if name in call["parameters"] else "None"

    def _constant(self, array, text):
        name = self._name(("constant", len(self.constants)), text)
        self.constants[name] = array
        return name

    def transposed(self, made, axes):
        return "tf.transpose(%s, %s)" % (made, tuple(axes))

    def reshaped(self, made, sizes):
        return "tf.reshape(%s, %s)" % (made, tuple(sizes))

    # -- products

    def _biased(self, call, made):
        return "tf.nn.bias_add(%s, %s)" % (made, self._vector(call, "bias")) if call["settings"]["bias"] else made

    def _padded(self, x, padding, value="0"):
        pairs = [[0, 0]] + [list(pair) for pair in padding] + [[0, 0]]
        return "tf.pad(%s, %s, constant_values=%s)" % (x, pairs, value) if np.any(pairs) else x

    def conv(self, call, x):
        s = call["settings"]
        axes, made, groups = len(s["kernel"]), self.channels_last(x), s["groups"]
        padding = [tuple(pair) for pair in s["padding"]]
        if not np.any(padding):
            how = '"VALID"'
        elif padding == windows.same_padding(x.shape[1:], windows.reach(s["kernel"], s["dilation"]), s["stride"]):
            how = '"SAME"'
        elif axes == 2 and max(s["dilation"]) == 1:
            how = str([[0, 0]] + [list(pair) for pair in padding] + [[0, 0]])
        else:  # of dilations with padding that is written out there is no gradient on the CPU
            made, how = self._padded(made, padding), '"VALID"'
        weight, dilations = self._kernel(call, axes), ""
        if max(s["dilation"]) > 1:
            # Nor is there one of dilations with strides, nor of any without oneDNN.
            if max(s["stride"]) > 1 and (self.on_cpu or axes == 3) or self.is_bare:
                weight = "layers.spread(%s, %s)" % (weight, s["dilation"])
            else:
                dilations = ", dilations=%s" % s["dilation"]
        if axes == 2 and groups == x.shape[0] > 1 and len(set(s["stride"])) == 1 and max(s["dilation"]) == 1:
            by_depth = "tf.reshape(%s, %s)" % (weight, (*s["kernel"], groups, s["channels"] // groups))
            made = "tf.nn.depthwise_conv2d(%s, %s, %s, %s)" % (made, by_depth, [1] + s["stride"] + [1], how)
        else:
            function = {1: "tf.nn.conv1d(%s, %s, %s, %s%s)", 2: "tf.nn.conv2d(%s, %s, %s, %s%s)",
                        3: 'tf.nn.convolution(%s, %s, %s, %s, "NDHWC"%s)'}[axes]
            # Groups over three axes, and those without oneDNN, are left to us: Grappler fuses a bias into a grouped
            # convolution that TensorFlow's own kernels then refuse.
            split = 1 if axes < 3 and not self.is_bare or self.is_xla else groups
            made = self._in_groups(split, made, weight, lambda made, weight: function % (
                made, weight, s["stride"], how, dilations))
        return Value(self._biased(call, made), call["shape"], last(axes + 1))

    def _kernel(self, call, axes):
        return self._weight(call["name"] + ".weight", lambda w: w.transpose(plain(axes + 2)[2:] + (1, 0)),
                            "glorot_uniform")

    @staticmethod
    def _in_groups(groups, made, weight, product):
        if groups == 1:
            return product(made, weight)
        return "tf.concat([%s for part, kernel in zip(tf.split(%s, %d, -1), tf.split(%s, %d, -1))], -1)" % (
            product("part", "kernel"), made, groups, weight, groups)

    def conv_transpose(self, call, x):
        """The gradient of a convolution whose padding is what the whole result has beyond the one that is wanted."""
        s = call["settings"]
        axes, weight, dilations = len(s["kernel"]), self._kernel(call, len(s["kernel"])), ""
        if max(s["dilation"]) > 1:
            if axes == 2 and not self.on_cpu:
                dilations = ", dilations=%s" % s["dilation"]
            else:
                weight = "layers.spread(%s, %s)" % (weight, s["dilation"])
        wanted, how = list(call["shape"][1:]), '"VALID"'
        out = [(size - 1) * stride + span for size, stride, span in zip(
            x.shape[1:], s["stride"], windows.reach(s["kernel"], s["dilation"]))]
        missing = [max(0, p + size - whole) for p, size, whole in zip(s["padding"], wanted, out)]
        cut = [[p, max(0, whole - p - size)] for p, size, whole in zip(s["padding"], wanted, out)]
        if axes == 2 and not np.any(missing):
            out, how, cut = wanted, str([[0, 0]] + cut + [[0, 0]]), []
        function = "tf.nn.conv%dd_transpose(%%s, %%s, (%s.shape[0], %s), %s, %s%s)" % (
            axes, x.made, ", ".join(map(str, out + [s["channels"] // s["groups"]])), s["stride"], how, dilations)
        made = self._in_groups(s["groups"], self.channels_last(x), weight, lambda *both: function % both)
        if np.any(cut):
            made += "[:, %s]" % ", ".join("%d:%d" % (p, p + size) for (p, _), size in zip(cut, wanted))
        if np.any(missing):
            made = self._padded(made, [(0, count) for count in missing])
        return Value(self._biased(call, made), call["shape"], last(axes + 1))

    def linear(self, call, x):
        grid = x.grid
        weight = self._weight(call["name"] + ".weight", lambda w: channels_last.flat_weight(w, grid).T,
                              "glorot_uniform")
        if len(x.shape) == 1:
            return Value(self._biased(call, "tf.matmul(%s, %s)" % (x.made, weight)), call["shape"])
        made = "layers.linear(%s, %s, %s)" % (self.canonical(x), weight, self._vector(call, "bias"))
        return Value(made, call["shape"])

    def matmul(self, call, x):
        weight = self._weight(call["name"] + ".weight", same, "glorot_uniform")
        if len(x.shape) == 1:
            return Value("tf.matmul(%s, %s)" % (self.canonical(x), weight), call["shape"])
        return Value("layers.linear(%s, %s, None)" % (self.canonical(x), weight), call["shape"])

    def embedding(self, call, x):
        weight = self._weight(call["name"] + ".weight", same, "uniform", computed=False)
        return Value(self._cast("tf.gather(%s, %s)" % (weight, self.canonical(x))), call["shape"])

    # -- pools

    def max_pool(self, call, x):
        s = call["settings"]
        axes, sizes, made = len(s["kernel"]), x.shape[1:], self.channels_last(x)
        self._check_volume(call, axes)
        spans = windows.reach(s["kernel"], s["dilation"])
        padding = windows.padding_of_pool(sizes, call["shape"][1:], spans, s["stride"], [b for b, _ in s["padding"]])
        how = '"VALID"'
        if np.any(padding):
            if max(s["dilation"]) == 1 and padding == windows.same_padding(sizes, spans, s["stride"]):
                how = '"SAME"'
            else:
                made = self._padded(made, padding, self.type + ".min")
        if max(s["dilation"]) > 1:
            made = "layers.dilated_max_pool(%s, %s, %s, %s)" % (made, s["kernel"], s["stride"], s["dilation"])
        else:
            made = "tf.nn.max_pool%dd(%s, %s, %s, %s)" % (axes, made, s["kernel"], s["stride"], how)
        return Value(made, call["shape"], last(axes + 1))

    def avg_pool(self, call, x):
        s = call["settings"]
        axes, sizes, out, made = len(s["kernel"]), x.shape[1:], call["shape"][1:], self.channels_last(x)
        self._check_volume(call, axes)
        padding = windows.padding_of_pool(sizes, out, s["kernel"], s["stride"], s["padding"])
        counts = windows.averaged(sizes, out, s["kernel"], s["stride"], s["padding"], s["count_include_pad"])
        made = self._padded(made, padding)
        made = 'tf.nn.avg_pool%dd(%s, %s, %s, "VALID")' % (axes, made, s["kernel"], s["stride"])
        if np.any(counts != np.prod(s["kernel"])):
            factor = (np.prod(s["kernel"]) / counts)[..., None]
            made = "%s * %s" % (made, self._constant(tf.constant(factor, self.type[3:]), "factor"))
        return Value(made, call["shape"], last(axes + 1))

    def _check_volume(self, call, axes):
        if self.precise and axes == 3:
            raise frame.Declined(call["kind"], "%s: TensorFlow has no f64 pool over three axes; got f64." % call["kind"])

    def adaptive_avg_pool(self, call, x):
        return self._adaptive(call, x, "avg", "tf.reduce_mean")

    def adaptive_max_pool(self, call, x):
        return self._adaptive(call, x, "max", "tf.reduce_max")

    def _adaptive(self, call, x, kind, reduce):
        sizes, out, axes, made = x.shape[1:], call["shape"][1:], len(x.shape) - 1, self.channels_last(x)
        if max(out) == 1:
            made = "%s(%s, %s, keepdims=True)" % (reduce, made, plain(axes + 1)[1:])
        elif windows.even(sizes, out) and not (self.precise and axes == 3):
            kernel = [size // o for size, o in zip(sizes, out)]
            made = 'tf.nn.%s_pool%dd(%s, %s, %s, "VALID")' % (kind, axes, made, kernel, kernel)
        else:
            cuts = [windows.adaptive(size, o) for size, o in zip(sizes, out)]
            made = "layers.adaptive_pool(%s, %s, %s)" % (made, cuts, reduce)
        return Value(made, call["shape"], last(axes + 1))

    def global_avg_pool(self, call, x):
        return Value("tf.reduce_mean(%s, %s)" % (self.channels_last(x), plain(len(x.shape))[1:]), call["shape"])

    # -- normalisation and dropout

    def batch_norm(self, call, x):
        s, name = call["settings"], call["name"]
        made, axes = self.channels_last(x), len(x.shape)
        scale, offset = self._vector(call, "weight", "ones", False), self._vector(call, "bias", "zeros", False)
        if not s["affine"]:
            kind = tf.float64 if self.precise else tf.float32
            scale = self._constant(tf.ones(x.shape[0], kind), "ones")
            offset = self._constant(tf.zeros(x.shape[0], kind), "zeros")
        running = s["track_running_stats"]
        if running and not self.training:
            made = "layers.batch_norm_tested(%s, %s, %s, %s, %s, %r)" % (
                made, scale, offset, self._name(name + ".running_mean"), self._name(name + ".running_var"), s["eps"])
            return Value(made, call["shape"], last(axes))
        mean, variance = self._name(name + ".mean"), self._name(name + ".var")
        made = self._several([mean, variance], "layers.batch_norm(%s, %s, %s, %r)" % (made, scale, offset, s["eps"]))
        if running:
            for end, new in (("running_mean", mean), ("running_var", variance)):
                old = self._name("%s.%s" % (name, end))
                self.changed["%s.%s" % (name, end)] = "%s + (%s - %s) * %r" % (old, new, old, s["momentum"])
        return Value(made, call["shape"], last(axes))

    def instance_norm(self, call, x):
        axes = len(x.shape)
        made = "layers.normalised(%s, %s, %s, %s, %r)" % (
            self.channels_last(x), plain(axes)[1:], self._vector(call, "weight", "ones", False),
            self._vector(call, "bias", "zeros", False), call["settings"]["eps"])
        return Value(made, call["shape"], last(axes))

    def group_norm(self, call, x):
        made = "layers.group_norm(%s, %d, %s, %s, %r)" % (
            self.channels_last(x), call["settings"]["groups"], self._vector(call, "weight", "ones", False),
            self._vector(call, "bias", "zeros", False), call["settings"]["eps"])
        return Value(made, call["shape"], last(len(x.shape)))

    def _last_axes(self, call, x):
        axes = len(x.shape)
        return tuple(range(axes + 1 - call["settings"]["axes"], axes + 1))

    def layer_norm(self, call, x):
        return Value("layers.normalised(%s, %s, %s, %s, %r)" % (
            self.canonical(x), self._last_axes(call, x), self._vector(call, "weight", "ones", False),
            self._vector(call, "bias", "zeros", False), call["settings"]["eps"]), call["shape"])

    def rms_norm(self, call, x):
        # 0: PyTorch's default, the spacing of numbers at 1.
        eps = call["settings"]["eps"] or float(np.finfo(np.float64 if self.precise else np.float32).eps)
        scale = self._vector(call, "weight", "ones", False)
        made = "layers.rms_norm(%s, %s, %s, %r)" % (self.canonical(x), self._last_axes(call, x), scale, eps)
        return Value(made, call["shape"])

    def softmax(self, call, x):
        made = self.canonical(x)
        return Value("layers.softmax(%s)" % made if self.mixed else "tf.nn.softmax(%s)" % made, call["shape"])

    def log_softmax(self, call, x):
        made = self.canonical(x)
        return Value("layers.log_softmax(%s)" % made if self.mixed else "tf.nn.log_softmax(%s)" % made, call["shape"])

    def dropout(self, call, x):
        p = call["settings"]["p"]
        return x.like("tf.nn.dropout(%s, %r)" % (x.made, p)) if self.training and p > 0 else x

    def channel_dropout(self, call, x):
        p = call["settings"]["p"]
        if not self.training or p == 0:
            return x
        made = self.channels_last(x)
        shape = "(%s.shape[0], %s%d)" % (x.made, "1, " * (len(x.shape) - 1), x.shape[0])
        return Value("tf.nn.dropout(%s, %r, noise_shape=%s)" % (made, p, shape), call["shape"], last(len(x.shape)))

    # -- several values

    def add(self, call, *inputs):
        made, form = self.alike(inputs)
        return form.like("(%s)" % " + ".join(made))

    def multiply(self, call, *inputs):
        made, form = self.alike(inputs)
        return form.like("(%s)" % " * ".join(made))

    def concat(self, call, *inputs):
        order = inputs[0].order
        place = order.index(call["settings"]["axis"] % len(order)) + 1
        made = "tf.concat([%s], %d)" % (", ".join(self.stored(x, order) for x in inputs), place)
        return Value(made, call["shape"], order)

    def mean(self, call, x, lengths=None):
        axis = call["settings"]["axis"] % len(x.shape)
        if lengths is not None:
            return Value("layers.mean_of_true(%s, %s)" % (self.canonical(x), lengths.made), call["shape"])
        made = "tf.reduce_mean(%s, %d)" % (self.canonical(x) if x.grid else x.made, x.order.index(axis) + 1)
        return Value(made, call["shape"], [a - (a > axis) for a in x.order if a != axis])

    def sum(self, call, x):
        return Value("tf.reduce_sum(%s, %d)" % (self.canonical(x), call["settings"]["axis"] + 1), call["shape"])

    # -- sequences

    def lstm(self, call, x, lengths=None):
        s, name = call["settings"], call["name"]
        weights = []
        for layer in range(s["layers"]):
            for way in ("", "_reverse") if s["bidirectional"] else ("",):
                end = "_l%d%s" % (layer, way)
                parts = [self._weight("%s.weight_ih%s" % (name, end), transposed, "glorot_uniform"),
                         self._weight("%s.weight_hh%s" % (name, end), transposed, "orthogonal")]
                if s["bias"]:
                    parts += [self._weight("%s.bias_ih%s" % (name, end), same, "forget_ones"),
                              self._weight("%s.bias_hh%s" % (name, end), same, "zeros")]
                weights.append("(%s)" % ", ".join(parts))
        states = [name + ".h", name + ".c"] if s["carry"] else []
        left = self._name(("left", name), "left")
        made = self._several([left], "layers.lstm(%s, %s, %s, (%s,), %s, %s)" % (
            self.canonical(x), "None" if lengths is None else lengths.made,
            "(%s)" % ", ".join(map(self._name, states)) if states else "None", ", ".join(weights), s["bidirectional"],
            s["output"] == "sequence"))
        for index, state in enumerate(states):
            self.changed[state] = "%s[%d]" % (left, index)
        return Value(made, call["shape"])

    def attention(self, call, *inputs):
        s, name = call["settings"], call["name"]
        lengths = inputs[-1].made if not inputs[-1].shape else "None"
        values = [x for x in inputs if x.shape]
        causal = "None"
        if s["causal"]:
            seen = np.tri(values[0].shape[0], values[len(values) > 1].shape[0], dtype=bool)
            causal = self._constant(tf.constant(seen), "causal")
        return Value("layers.attention((%s,), %s, %d, %s, %s, %s, %s, %s)" % (
            ", ".join(map(self.canonical, values)), lengths, s["heads"], causal,
            self._weight(name + ".in_proj_weight", transposed, "glorot_uniform"), self._vector(call, "in_proj_bias"),
            self._weight(name + ".out_proj.weight", transposed, "glorot_uniform"), self._vector(call, "out_proj.bias")),
            call["shape"])


# ---------------------------------------------------------------------------------------------------------------------
# The network


def initial(name, shape):
    """A weight as Keras's layers initialise it by default."""
    if name == "uniform":
        return keras.initializers.RandomUniform(-0.05, 0.05)(shape)
    if name == "forget_ones":
        return np.repeat(np.array([0, 1, 0, 0], np.float32), shape[0] // 4)
    return keras.initializers.get(name)(shape)


class Network:
    """The functions train and test with their variables.

    names, variables   of the trained weights, as Keras's optimisers take them; tensors: the same for tf.GradientTape
    states             variables; everything: all that training changes
    changed            {"train" or "test": the variables that its `changes` are for}
    orders             {name of an input or output: how its samples' axes are stored}
    initialised        whether the weights are Keras's own"""

    def __init__(self, cell):
        given = cell.weights(cell.network.parameters)
        self.initialised = given is None
        number = "float64" if cell.precision == "f64" else "float32"
        modes = {"test": Text(cell, False)}
        if cell.phase == "train":
            modes["train"] = Text(cell, True)
        self.names, self.variables, held = [], [], {}
        for name, shape in cell.network.parameters.items():
            to_native, initializer = modes["test"].weights[name]
            native = to_native(np.empty(shape, np.float32)).shape
            value = initial(initializer, native) if given is None else np.ascontiguousarray(to_native(given[name]))
            self.names.append(name)
            self.variables.append(keras.Variable(value, dtype=number))
            held[name] = self.variables[-1].value
        self.tensors = [variable.value for variable in self.variables]
        for name, shape in cell.network.buffers.items():
            value = np.full(shape, 1.0 if name.endswith("running_var") else 0.0)
            held[name] = tf.Variable((given or {}).get(name, value), trainable=False, dtype=number)
        for entry in cell.network.states:
            held[entry["name"]] = tf.Variable(tf.zeros([cell.batch] + entry["shape"], number), trainable=False)
        self.states = [held[entry["name"]] for entry in cell.network.states]
        self.everything = list(held.values())
        self.orders = modes["test"].orders
        self.changed, self.text = {}, {}
        for mode, made in modes.items():
            space = dict(made.constants, tf=tf, layers=tensorflow_layers)
            space.update((made.names[name], variable) for name, variable in held.items() if name in made.names)
            exec(compile(made.text, "<%s of %s>" % (mode, cell.network.name), "exec"), space)
            setattr(self, mode, space[mode])
            self.changed[mode] = [held[name] for name in made.changed]
            self.text[mode] = made.text
