"""Makes a functional Keras model of the protocol's networks: Keras's own layers, with channels last.

    network = Network(cell)
    network.trained, network.tested    # keras.Model: inputs -> the loss's output, and -> all outputs
"""
import keras
import numpy as np
from keras import layers, ops

import channels_last
import frame
import windows
from channels_last import Value, last, plain

ACTIVATIONS = {"relu": lambda s: layers.ReLU(), "gelu": lambda s: layers.Activation("gelu"),
               "silu": lambda s: layers.Activation("silu"), "selu": lambda s: layers.Activation("selu"),
               "mish": lambda s: layers.Activation("mish"), "hardswish": lambda s: layers.Activation("hard_silu"),
               "tanh": lambda s: layers.Activation("tanh"), "sigmoid": lambda s: layers.Activation("sigmoid"),
               "leaky_relu": lambda s: layers.LeakyReLU(negative_slope=s["slope"]),
               "elu": lambda s: layers.ELU(alpha=s["alpha"]), "softplus": lambda s: layers.Activation("softplus")}
KINDS = ["conv", "conv_transpose", "linear", "embedding", *ACTIVATIONS, "softmax", "max_pool", "avg_pool",
         "adaptive_avg_pool", "adaptive_max_pool", "global_avg_pool", "batch_norm", "instance_norm", "group_norm",
         "layer_norm", "rms_norm", "dropout", "channel_dropout", "flatten", "identity", "add", "multiply", "concat",
         "transpose", "mean", "lstm", "attention"]


def by_axes(name, axes):
    """The layer of so many axes: "Conv", 2 -> layers.Conv2D; "MaxPooling", …, "Conv2DTranspose"."""
    return getattr(layers, name % axes)


class Weight:
    """A variable: which tensor of the network it comes from, and how its numbers follow from PyTorch's layout."""

    def __init__(self, name, variable, to_native=lambda array: array):
        self.name, self.variable, self.to_native = name, variable, to_native


class TwoBiases(layers.LSTMCell):
    """Keras's cell with PyTorch's two vectors of biases, which are trained apart."""

    def build(self, input_shape):
        super().build(input_shape)
        if self.use_bias:
            self.bias_hh = self.add_weight(shape=self.bias_ih.shape, name="bias_hh", initializer="zeros")

    @property
    def bias(self):
        return self.bias_ih + self.bias_hh if self.use_bias else None

    @bias.setter
    def bias(self, variable):
        self.bias_ih = variable


class TwoBiasesLSTM(layers.LSTM):
    def __init__(self, units, use_bias, **options):
        super().__init__(units, use_bias=use_bias, **options)
        self.cell = TwoBiases(units, use_bias=use_bias)


class Layers(channels_last.Layouts):
    """Each kind of call has a method of its name, (call, *Values) -> Value, whose `made` is a symbolic tensor."""

    def __init__(self, cell):
        self.precise = cell.precision == "f64"
        self.weights, self.stateful, self.notes, values = [], [], [], {}
        self.inputs, self.orders = [], {}
        number = "float64" if self.precise else "float32"
        for entry in cell.network.inputs:
            order = channels_last.order_of_input(cell.network, entry["name"], len(entry["shape"]))
            value = Value(None, entry["shape"], order)
            made = keras.Input(batch_shape=(cell.batch,) + value.sizes(),
                               dtype=number if entry["type"] == "f32" else "int64")
            self.inputs.append(made)
            self.orders[entry["name"]] = order
            values[entry["name"]] = value.like(made)
        for call in cell.network.calls:
            values[call["out"]] = self._made(call, [values[name] for name in call["in"]])
        self.outputs = {}
        for output in cell.network.outputs:
            value = values[output["value"]]
            made = self.canonical(value) if value.grid else value.made
            self.outputs[output["name"]] = layers.Activation("linear", dtype=number)(made)  # of mixed precision in f32
            self.orders[output["name"]] = value.order

    def _made(self, call, inputs):
        if call["kind"] == "softplus" and (call["settings"]["beta"] != 1 or call["settings"]["threshold"] < 20):
            raise frame.Declined("softplus", "softplus: Keras's has beta 1 and no threshold, which is as one of 20; got %s "
                                 "and %s." % (call["settings"]["beta"], call["settings"]["threshold"]))
        if call["kind"] in ACTIVATIONS:
            return inputs[0].like(ACTIVATIONS[call["kind"]](call["settings"])(inputs[0].made))
        return getattr(self, call["kind"])(call, *inputs)

    def transposed(self, made, axes):
        return layers.Permute(tuple(axes)[1:])(made)

    def reshaped(self, made, sizes):
        return layers.Reshape(tuple(sizes)[1:])(made)

    def _keep(self, call, **variables):
        """variables: {end of the name: variable, or (variable, function from PyTorch's layout)}."""
        for end, variable in variables.items():
            pair = variable if isinstance(variable, tuple) else (variable,)
            self.weights.append(Weight("%s.%s" % (call["name"], end), *pair))

    # -- products

    def conv(self, call, x):
        s = call["settings"]
        axes, made = len(s["kernel"]), self.channels_last(x)
        if max(s["stride"]) > 1 and max(s["dilation"]) > 1:
            raise frame.Declined("conv", "conv: Keras has strides or dilations, not both; got %s and %s." % (
                s["stride"], s["dilation"]))
        padding = [tuple(pair) for pair in s["padding"]]
        how = "valid"
        if np.any(padding):
            if padding == windows.same_padding(x.shape[1:], windows.reach(s["kernel"], s["dilation"]), s["stride"]):
                how = "same"
            else:
                made = by_axes("ZeroPadding%dD", axes)(padding if axes > 1 else padding[0])(made)
        layer = by_axes("Conv%dD", axes)(s["channels"], s["kernel"], strides=s["stride"], padding=how,
                                         groups=s["groups"], dilation_rate=s["dilation"], use_bias=s["bias"])
        made = layer(made)
        self._keep_product(call, layer, lambda w: w.transpose(plain(axes + 2)[2:] + (1, 0)))
        return Value(made, call["shape"], last(axes + 1))

    def _keep_product(self, call, layer, to_native):
        self._keep(call, weight=(layer.kernel, to_native))
        if call["settings"]["bias"]:
            self._keep(call, bias=layer.bias)

    def conv_transpose(self, call, x):
        s = call["settings"]
        axes = len(s["kernel"])
        if s["groups"] > 1 or max(s["dilation"]) > 1:
            raise frame.Declined("conv_transpose", "conv_transpose: Keras's has no groups, and no dilations on the "
                                 "CPU; got groups %d and dilations %s." % (s["groups"], s["dilation"]))
        # The padding is cut off, but for what output_padding gives back.
        extra = [o - p for o, p in zip(s["output_padding"], s["padding"])]
        layer = by_axes("Conv%dDTranspose", axes)(s["channels"], s["kernel"], strides=s["stride"], use_bias=s["bias"],
                                                  output_padding=[max(0, e) for e in extra])
        made = layer(self.channels_last(x))
        cut = [(p, max(0, -e)) for p, e in zip(s["padding"], extra)]
        if np.any(cut):
            made = by_axes("Cropping%dD", axes)(cut if axes > 1 else cut[0])(made)
        self._keep_product(call, layer, lambda w: w.transpose(plain(axes + 2)[2:] + (1, 0)))
        return Value(made, call["shape"], last(axes + 1))

    def linear(self, call, x):
        layer, grid = layers.Dense(call["settings"]["outputs"], use_bias=call["settings"]["bias"]), x.grid
        made = layer(x.made if grid else self.canonical(x))
        self._keep_product(call, layer, lambda w: channels_last.flat_weight(w, grid).T)
        return Value(made, call["shape"])

    def embedding(self, call, x):
        layer = layers.Embedding(call["settings"]["rows"], call["settings"]["width"])
        made = layer(self.canonical(x))
        self._keep(call, weight=layer.embeddings)
        return Value(made, call["shape"])

    # -- pools

    def max_pool(self, call, x):
        s = call["settings"]
        axes, sizes, made = len(s["kernel"]), x.shape[1:], self.channels_last(x)
        if max(s["dilation"]) > 1:
            raise frame.Declined("max_pool", "max_pool: Keras's has no dilations; got %s." % s["dilation"])
        self._check_volume(call, axes)
        padding = windows.padding_of_pool(sizes, call["shape"][1:], s["kernel"], s["stride"],
                                          [before for before, _ in s["padding"]])
        how = "valid"
        if np.any(padding):
            if padding == windows.same_padding(sizes, s["kernel"], s["stride"]):
                how = "same"
            else:
                made = ops.pad(made, [(0, 0)] + padding + [(0, 0)], constant_values=-np.inf)
        layer = by_axes("MaxPooling%dD", axes)(self._window(s["kernel"]), self._window(s["stride"]), how)
        return Value(layer(made), call["shape"], last(axes + 1))

    def _check_volume(self, call, axes):
        if self.precise and axes == 3:
            raise frame.Declined(call["kind"], "%s: TensorFlow has no f64 pool over three axes; got f64." % call["kind"])

    @staticmethod
    def _window(sizes):
        return tuple(sizes) if len(sizes) > 1 else sizes[0]

    def avg_pool(self, call, x):
        s = call["settings"]
        axes, sizes, out, made = len(s["kernel"]), x.shape[1:], call["shape"][1:], self.channels_last(x)
        self._check_volume(call, axes)
        padding = windows.padding_of_pool(sizes, out, s["kernel"], s["stride"], s["padding"])
        if np.any(padding):
            made = by_axes("ZeroPadding%dD", axes)(padding if axes > 1 else padding[0])(made)
        made = by_axes("AveragePooling%dD", axes)(self._window(s["kernel"]), self._window(s["stride"]))(made)
        counts = windows.averaged(sizes, out, s["kernel"], s["stride"], s["padding"], s["count_include_pad"])
        if np.any(counts != np.prod(s["kernel"])):
            factor = (np.prod(s["kernel"]) / counts)[None, ..., None]
            made = ops.multiply(made, ops.cast(factor, made.dtype))
        return Value(made, call["shape"], last(axes + 1))

    def adaptive_avg_pool(self, call, x):
        return self._adaptive(call, x, "Average")

    def adaptive_max_pool(self, call, x):
        return self._adaptive(call, x, "Max")

    def _adaptive(self, call, x, kind):
        axes, sizes, out = len(x.shape) - 1, x.shape[1:], call["shape"][1:]
        self._check_volume(call, axes)
        if windows.even(sizes, out):
            layer = by_axes(kind + "Pooling%dD", axes)(self._window([size // o for size, o in zip(sizes, out)]))
        elif min(out) == 1:
            raise frame.Declined(call["kind"], "%s: Keras's needs windows of one size where a result has size 1; got "
                                 "%s of %s." % (call["kind"], out, list(sizes)))
        else:
            layer = by_axes("Adaptive" + kind + "Pooling%dD", axes)(self._window(out))
        return Value(layer(self.channels_last(x)), call["shape"], last(axes + 1))

    def global_avg_pool(self, call, x):
        return Value(by_axes("GlobalAveragePooling%dD", len(x.shape) - 1)()(self.channels_last(x)), call["shape"])

    # -- normalisation and dropout

    def batch_norm(self, call, x):
        s = call["settings"]
        if not s["track_running_stats"]:
            raise frame.Declined("batch_norm", "batch_norm: Keras's has running statistics; got track_running_stats "
                                 "false.")
        layer = layers.BatchNormalization(momentum=1 - s["momentum"], epsilon=s["eps"], center=s["affine"],
                                          scale=s["affine"])
        made = layer(self.channels_last(x))
        if s["affine"]:
            self._keep(call, weight=layer.gamma, bias=layer.beta)
        self._keep(call, running_mean=layer.moving_mean, running_var=layer.moving_variance)
        note = "batch_norm: Keras's running variance is that of the batch, PyTorch's the unbiased one"
        self.notes += [] if note in self.notes else [note]
        return Value(made, call["shape"], last(len(x.shape)))

    def instance_norm(self, call, x):
        return self._grouped(call, x, -1)

    def group_norm(self, call, x):
        return self._grouped(call, x, call["settings"]["groups"])

    def _grouped(self, call, x, groups):
        s = call["settings"]
        layer = layers.GroupNormalization(groups, epsilon=s["eps"], center=s["affine"], scale=s["affine"])
        made = layer(self.channels_last(x))
        if s["affine"]:
            self._keep(call, weight=layer.gamma, bias=layer.beta)
        return Value(made, call["shape"], last(len(x.shape)))

    def layer_norm(self, call, x):
        s = call["settings"]
        has_bias = s["affine"] and s["bias"]
        layer = layers.LayerNormalization(list(range(-s["axes"], 0)), s["eps"], center=has_bias, scale=s["affine"])
        made = layer(self.canonical(x))
        if s["affine"]:
            self._keep(call, weight=layer.gamma)
        if has_bias:
            self._keep(call, bias=layer.beta)
        return Value(made, call["shape"])

    def rms_norm(self, call, x):
        s = call["settings"]
        if not s["affine"]:
            raise frame.Declined("rms_norm", "rms_norm: Keras's has a weight; got affine false.")
        # 0: PyTorch's default, the spacing of numbers at 1.
        eps = s["eps"] or float(np.finfo(np.float64 if self.precise else np.float32).eps)
        layer = layers.RMSNormalization(list(range(-s["axes"], 0)), eps)
        made = layer(self.canonical(x))
        self._keep(call, weight=layer.scale)
        return Value(made, call["shape"])

    def softmax(self, call, x):
        return Value(layers.Softmax()(self.canonical(x)), call["shape"])

    def dropout(self, call, x):
        return x.like(layers.Dropout(call["settings"]["p"])(x.made))

    def channel_dropout(self, call, x):
        axes = len(x.shape) - 1
        made = by_axes("SpatialDropout%dD", axes)(call["settings"]["p"])(self.channels_last(x))
        return Value(made, call["shape"], last(axes + 1))

    # -- several values

    def add(self, call, *inputs):
        made, form = self.alike(inputs)
        return form.like(layers.Add()(made))

    def multiply(self, call, *inputs):
        made, form = self.alike(inputs)
        return form.like(layers.Multiply()(made))

    def concat(self, call, *inputs):
        order = inputs[0].order
        place = order.index(call["settings"]["axis"] % len(order)) + 1
        return Value(layers.Concatenate(place)([self.stored(x, order) for x in inputs]), call["shape"], order)

    @staticmethod
    def _true(steps, lengths):
        """(samples, steps): what lies before each sample's length."""
        return ops.less(ops.arange(steps, dtype="int64"), ops.expand_dims(lengths.made, 1))

    def mean(self, call, x, lengths=None):
        if lengths is not None:
            made = self.canonical(x)
            true = ops.cast(self._true(x.shape[0], lengths), made.dtype)
            true = ops.reshape(true, true.shape + (1,) * (len(x.shape) - 1))
            return Value(ops.sum(made * true, 1) / ops.sum(true, 1), call["shape"])
        axis = call["settings"]["axis"] % len(x.shape)
        made = ops.mean(self.canonical(x) if x.grid else x.made, x.order.index(axis) + 1)
        return Value(made, call["shape"], [a - (a > axis) for a in x.order if a != axis])

    # -- sequences

    def lstm(self, call, x, lengths=None):
        s, made = call["settings"], self.canonical(x)
        mask = None if lengths is None else self._true(x.shape[0], lengths)
        ways = (False, True) if s["bidirectional"] else (False,)
        for number in range(s["layers"]):
            whole = s["output"] == "sequence" or number < s["layers"] - 1
            outputs = []
            for backwards in ways:
                layer = TwoBiasesLSTM(s["hidden"], s["bias"], return_sequences=whole, go_backwards=backwards,
                                      stateful=s["carry"], zero_output_for_mask=whole)
                output = layer(made, mask=mask)
                outputs.append(ops.flip(output, 1) if backwards and whole else output)
                end = "_l%d%s" % (number, "_reverse" if backwards else "")
                self._keep(call, **{"weight_ih" + end: (layer.cell.kernel, np.transpose),
                                    "weight_hh" + end: (layer.cell.recurrent_kernel, np.transpose)})
                if s["bias"]:
                    self._keep(call, **{"bias_ih" + end: layer.cell.bias_ih, "bias_hh" + end: layer.cell.bias_hh})
                self.stateful += [layer] if s["carry"] else []
            made = layers.Concatenate()(outputs) if s["bidirectional"] else outputs[0]
        return Value(made, call["shape"])

    def attention(self, call, *inputs):
        s, lengths = call["settings"], None if inputs[-1].shape else inputs[-1]
        values = [self.canonical(x) for x in inputs if x.shape]
        query, key, value = values if len(values) == 3 else values * 3
        width, heads = query.shape[-1], s["heads"]
        layer = layers.MultiHeadAttention(heads, width // heads, use_bias=s["bias"])
        mask = None if lengths is None else ops.expand_dims(self._true(key.shape[1], lengths), 1)
        made = layer(query, value, key, attention_mask=mask, use_causal_mask=s["causal"])
        for index, part in enumerate((layer.query_dense, layer.key_dense, layer.value_dense)):
            rows = slice(index * width, (index + 1) * width)
            self._keep(call, in_proj_weight=(part.kernel, lambda w, rows=rows: w[rows].T.reshape(width, heads, -1)))
            if s["bias"]:
                self._keep(call, in_proj_bias=(part.bias, lambda b, rows=rows: b[rows].reshape(heads, -1)))
        self._keep(call, **{"out_proj.weight": (layer.output_dense.kernel, lambda w: w.T.reshape(heads, -1, width))})
        if s["bias"]:
            self._keep(call, **{"out_proj.bias": layer.output_dense.bias})
        return Value(made, call["shape"])


class Network:
    """trained, tested   keras.Model: the inputs -> the loss's output, and -> all outputs; the same where it can be
    names             of the trained variables, in the order of trained.trainable_variables
    stateful          layers whose states are carried; kept: variables that a step moves, but an optimiser does not
    orders            {name of an input or output: how its samples' axes are stored}"""

    def __init__(self, cell):
        made = Layers(cell)
        output = made.outputs[cell.loss.output]
        axes, _ = channels_last.of_loss(cell.loss, made.orders)
        self.tested = self.trained = keras.Model(made.inputs, list(made.outputs.values()))
        if axes is not None or len(made.outputs) > 1:
            self.trained = keras.Model(made.inputs, output if axes is None else layers.Permute(axes[1:])(output))
        self.orders, self.stateful, self.notes = made.orders, made.stateful, made.notes
        given = cell.weights(cell.network.parameters)
        self.initialised = given is None
        for weight in made.weights:
            if given is not None and weight.name in given:
                weight.variable.assign(np.ascontiguousarray(weight.to_native(given[weight.name])))
        names = {id(weight.variable): weight.name for weight in made.weights}
        self.names = [names[id(variable)] for variable in self.trained.trainable_variables]
        self.kept = self.tested.non_trainable_variables + [state for layer in self.stateful for state in layer.states]
