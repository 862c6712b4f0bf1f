"""Makes an ONNX graph of the protocol's networks, for inference. Values have PyTorch's axes, and so have the weights,
but where an operator wants others: those of the LSTM, and of products over more axes than one.
"""
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import windows

OPSET, IR = 17, 9  # old enough for any ONNX Runtime of the last years
ACTIVATIONS = {"relu": "Relu", "selu": "Selu", "hardswish": "HardSwish", "tanh": "Tanh", "sigmoid": "Sigmoid",
               "leaky_relu": "LeakyRelu", "elu": "Elu"}
KINDS = ["conv", "conv_transpose", "linear", "embedding", *ACTIVATIONS, "gelu", "silu", "mish", "softplus", "softmax",
         "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "global_avg_pool", "batch_norm",
         "instance_norm", "group_norm", "layer_norm", "rms_norm", "dropout", "channel_dropout", "flatten", "identity",
         "add", "multiply", "concat", "transpose", "mean", "lstm", "attention"]


class Graph:
    """Nodes and tensors. Each kind of call has a method of its name: (call, *names of ONNX values) -> the result's."""

    def __init__(self, network, batch, weights):
        """weights: {name: array} of the parameters and of such buffers as have values."""
        self.batch, self.given = batch, weights
        self.nodes, self.tensors, self.shapes, self.next_states = [], {}, {}, {}
        self.states = {state["name"]: state["shape"] for state in network.states}
        values = {entry["name"]: "in." + entry["name"] for entry in network.inputs}
        self.shapes.update({entry["name"]: tuple(entry["shape"]) for entry in network.inputs})
        for call in network.calls:
            self.sizes = [self.shapes[name] for name in call["in"]]  # of the inputs' samples
            values[call["out"]] = getattr(self, call["kind"])(call, *(values[name] for name in call["in"]))
            self.shapes[call["out"]] = tuple(call["shape"])
        self.outputs = []
        for output in network.outputs:
            made = values[output["value"]]
            if made.startswith("in.") or made in self.outputs:
                made = self.node("Identity", made)
            self.outputs.append(made)

    def node(self, kind, *inputs, results=1, **attributes):
        """-> the name of its result; of several results, their list."""
        name = "%s_%d" % (kind.lower(), len(self.nodes))
        names = [name] if results == 1 else ["%s.%d" % (name, index) for index in range(results)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=name, **attributes))
        return name if results == 1 else names

    def tensor(self, array, name=None, kind=np.float32):
        name = name or "constant_%d" % len(self.tensors)
        self.tensors[name] = np.ascontiguousarray(array, dtype=kind)
        return name

    def whole(self, *numbers):
        return self.tensor(numbers, kind=np.int64)

    def weight(self, call, end, to_native=np.asarray):
        name = "%s.%s" % (call["name"], end)
        return self.tensor(to_native(self.given[name]), name)

    def vector(self, call, end, size, otherwise):
        """The vector NAME.end of a call; where it has none, so many times the number `otherwise`."""
        name = "%s.%s" % (call["name"], end)
        return self.tensor(self.given.get(name, np.full(size, otherwise)), name)

    def reshaped(self, x, *sizes):
        return self.node("Reshape", x, self.whole(*sizes))

    # -- products

    def conv(self, call, x):
        s = call["settings"]
        pads = [before for before, _ in s["padding"]] + [after for _, after in s["padding"]]
        bias = [self.weight(call, "bias")] if s["bias"] else []
        return self.node("Conv", x, self.weight(call, "weight"), *bias, kernel_shape=s["kernel"], strides=s["stride"],
                         pads=pads, dilations=s["dilation"], group=s["groups"])

    def conv_transpose(self, call, x):
        s = call["settings"]
        bias = [self.weight(call, "bias")] if s["bias"] else []
        return self.node("ConvTranspose", x, self.weight(call, "weight"), *bias, kernel_shape=s["kernel"],
                         strides=s["stride"], pads=s["padding"] * 2, output_padding=s["output_padding"],
                         dilations=s["dilation"], group=s["groups"])

    def linear(self, call, x):
        if len(self.sizes[0]) == 1:
            bias = [self.weight(call, "bias")] if call["settings"]["bias"] else []
            return self.node("Gemm", x, self.weight(call, "weight"), *bias, transB=1)
        made = self.node("MatMul", x, self.weight(call, "weight", np.transpose))
        return self.node("Add", made, self.weight(call, "bias")) if call["settings"]["bias"] else made

    def embedding(self, call, x):
        return self.node("Gather", self.weight(call, "weight"), x)

    # -- activations

    def _activation(self, call, x):
        s = call["settings"]
        options = {"alpha": s[name] for name in ("slope", "alpha") if name in s}
        return self.node(ACTIVATIONS[call["kind"]], x, **options)

    relu = selu = hardswish = tanh = sigmoid = leaky_relu = elu = _activation

    def gelu(self, call, x):
        half = self.node("Mul", x, self.tensor(0.5))
        erf = self.node("Erf", self.node("Div", x, self.tensor(math.sqrt(2))))
        return self.node("Mul", half, self.node("Add", erf, self.tensor(1)))

    def silu(self, call, x):
        return self.node("Mul", x, self.node("Sigmoid", x))

    def mish(self, call, x):
        return self.node("Mul", x, self.node("Tanh", self.node("Softplus", x)))

    def softplus(self, call, x):
        s = call["settings"]
        scaled = self.node("Mul", x, self.tensor(s["beta"]))
        made = self.node("Div", self.node("Softplus", scaled), self.tensor(s["beta"]))
        return self.node("Where", self.node("Greater", scaled, self.tensor(s["threshold"])), x, made)

    def softmax(self, call, x):
        return self.node("Softmax", x, axis=-1)

    # -- pools

    def max_pool(self, call, x):
        s = call["settings"]
        spans = windows.reach(s["kernel"], s["dilation"])
        pads = windows.padding_of_pool(self.sizes[0][1:], call["shape"][1:], spans, s["stride"],
                                       [before for before, _ in s["padding"]])
        return self.node("MaxPool", x, kernel_shape=s["kernel"], strides=s["stride"], dilations=s["dilation"],
                         pads=[before for before, _ in pads] + [after for _, after in pads])

    def avg_pool(self, call, x):
        s, sizes, out = call["settings"], self.sizes[0][1:], call["shape"][1:]
        if not s["ceil_mode"]:
            return self.node("AveragePool", x, kernel_shape=s["kernel"], strides=s["stride"], pads=s["padding"] * 2,
                             count_include_pad=int(s["count_include_pad"]))
        pads = windows.padding_of_pool(sizes, out, s["kernel"], s["stride"], s["padding"])
        if np.any(pads):
            befores, afters = zip(*pads)
            x = self.node("Pad", x, self.whole(0, 0, *befores, 0, 0, *afters))
        made = self.node("AveragePool", x, kernel_shape=s["kernel"], strides=s["stride"])
        counts = windows.averaged(sizes, out, s["kernel"], s["stride"], s["padding"], s["count_include_pad"])
        return self.node("Mul", made, self.tensor(math.prod(s["kernel"]) / counts))

    def adaptive_avg_pool(self, call, x):
        return self._adaptive(call, x, "Average", "ReduceMean")

    def adaptive_max_pool(self, call, x):
        return self._adaptive(call, x, "Max", "ReduceMax")

    def _adaptive(self, call, x, kind, reduction):
        sizes, out = self.sizes[0][1:], call["shape"][1:]
        if max(out) == 1:
            return self.node("Global%sPool" % kind, x)
        if windows.even(sizes, out):
            kernel = [size // o for size, o in zip(sizes, out)]
            return self.node(kind + "Pool", x, kernel_shape=kernel, strides=kernel)
        for axis, (size, o) in enumerate(zip(sizes, out), 2):
            parts = [self.node(reduction, self.node("Slice", x, self.whole(begin), self.whole(end), self.whole(axis)),
                               axes=[axis], keepdims=1) for begin, end in windows.adaptive(size, o)]
            x = self.node("Concat", *parts, axis=axis)
        return x

    def global_avg_pool(self, call, x):
        return self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)

    # -- normalisation

    def batch_norm(self, call, x):
        s, channels = call["settings"], self.sizes[0][0]
        scale, offset = self.vector(call, "weight", channels, 1), self.vector(call, "bias", channels, 0)
        if s["track_running_stats"]:
            return self.node("BatchNormalization", x, scale, offset, self.vector(call, "running_mean", channels, 0),
                             self.vector(call, "running_var", channels, 1), epsilon=s["eps"])
        # The statistics of the batch: those of one sample whose numbers are the whole batch's.
        axes = len(self.sizes[0])
        order = [1, 0] + list(range(2, axes + 1))
        rows = self.reshaped(self.node("Transpose", x, perm=order), 1, channels, -1)
        rows = self.node("InstanceNormalization", rows, scale, offset, epsilon=s["eps"])
        return self.node("Transpose", self.reshaped(rows, channels, self.batch, *self.sizes[0][1:]), perm=order)

    def instance_norm(self, call, x):
        channels = self.sizes[0][0]
        return self.node("InstanceNormalization", x, self.vector(call, "weight", channels, 1),
                         self.vector(call, "bias", channels, 0), epsilon=call["settings"]["eps"])

    def group_norm(self, call, x):
        s, sizes = call["settings"], self.sizes[0]
        groups = s["groups"]
        made = self.node("InstanceNormalization", self.reshaped(x, self.batch, groups, -1),
                         self.tensor(np.ones(groups)), self.tensor(np.zeros(groups)), epsilon=s["eps"])
        made = self.reshaped(made, self.batch, *sizes)
        if not s["affine"]:
            return made
        scale, offset = (self.weight(call, end, lambda w: w.reshape((-1,) + (1,) * (len(sizes) - 1)))
                         for end in ("weight", "bias"))
        return self.node("Add", self.node("Mul", made, scale), offset)

    def layer_norm(self, call, x):
        s = call["settings"]
        sizes = self.sizes[0][-s["axes"]:]
        bias = [self.weight(call, "bias")] if s["affine"] and s["bias"] else []
        return self.node("LayerNormalization", x, self.vector(call, "weight", sizes, 1), *bias, axis=-s["axes"],
                         epsilon=s["eps"])

    def rms_norm(self, call, x):
        s = call["settings"]
        eps = s["eps"] or float(np.finfo(np.float32).eps)  # 0: PyTorch's default, the spacing of numbers at 1
        squares = self.node("ReduceMean", self.node("Mul", x, x), axes=list(range(-s["axes"], 0)), keepdims=1)
        made = self.node("Div", x, self.node("Sqrt", self.node("Add", squares, self.tensor(eps))))
        return self.node("Mul", made, self.weight(call, "weight")) if s["affine"] else made

    # -- axes, and several values

    def identity(self, call, x):
        return x

    dropout = channel_dropout = identity  # they do nothing in inference

    def flatten(self, call, x):
        return self.node("Flatten", x, axis=1) if len(self.sizes[0]) > 1 else x

    def _chain(self, kind, inputs):
        made = inputs[0]
        for x in inputs[1:]:
            made = self.node(kind, made, x)
        return made

    def add(self, call, *inputs):
        return self._chain("Add", inputs)

    def multiply(self, call, *inputs):
        return self._chain("Mul", inputs)

    def concat(self, call, *inputs):
        return self.node("Concat", *inputs, axis=call["settings"]["axis"] % len(call["shape"]) + 1)

    def transpose(self, call, x):
        order = list(range(1, len(self.sizes[0]) + 1))
        a, b = call["settings"]["axes"]
        order[a], order[b] = order[b], order[a]
        return self.node("Transpose", x, perm=[0] + order)

    def _true(self, steps, lengths):
        """(samples, steps): whether a step lies before its sample's length."""
        places = self.tensor(np.arange(steps), kind=np.int64)
        return self.node("Less", places, self.node("Unsqueeze", lengths, self.whole(1)))

    def mean(self, call, x, lengths=None):
        sizes = self.sizes[0]
        if lengths is None:
            return self.node("ReduceMean", x, axes=[call["settings"]["axis"] % len(sizes) + 1], keepdims=0)
        ones = (1,) * (len(sizes) - 1)
        true = self.node("Cast", self._true(sizes[0], lengths), to=TensorProto.FLOAT)
        true = self.reshaped(true, -1, sizes[0], *ones)
        total = self.node("ReduceSum", self.node("Mul", x, true), self.whole(1), keepdims=0)
        return self.node("Div", total, self.node("ReduceSum", true, self.whole(1), keepdims=0))

    # -- sequences

    def lstm(self, call, x, lengths=None):
        s, name, steps = call["settings"], call["name"], self.sizes[0][0]
        ways = ["", "_reverse"] if s["bidirectional"] else [""]
        hidden, count = s["hidden"], len(ways)

        def gates(part):
            """The tensors NAME.part of all directions, their gates in ONNX's order: i o f g of PyTorch's i f g o."""
            tensors = [np.split(self.given["%s.%s%s" % (name, part, way)], 4) for way in ways]
            return np.stack([np.concatenate([tensor[gate] for gate in (0, 3, 1, 2)]) for tensor in tensors])

        before = {}  # of each layer
        for state in ("h", "c") if s["carry"] else ():
            before[state] = ["in.%s.%s" % (name, state)]
            if s["layers"] > 1:
                before[state] = self.node("Split", before[state][0], self.whole(*[count] * s["layers"]), axis=0,
                                          results=s["layers"])
        true = "" if lengths is None else self.node("Cast", lengths, to=TensorProto.INT32)
        y, after = self.node("Transpose", x, perm=[1, 0, 2]), {"h": [], "c": []}
        for layer in range(s["layers"]):
            weights = [self.tensor(gates("weight_%s_l%d" % (part, layer))) for part in ("ih", "hh")]
            bias = ""
            if s["bias"]:
                both = [gates("bias_%s_l%d" % (part, layer)) for part in ("ih", "hh")]
                bias = self.tensor(np.concatenate(both, axis=1))
            starts = [before[state][layer] for state in before]
            y, h, c = self.node("LSTM", y, *weights, bias, true, *starts, results=3, hidden_size=hidden,
                                direction="bidirectional" if s["bidirectional"] else "forward")
            after["h"].append(h)
            after["c"].append(c)
            if layer < s["layers"] - 1:
                y = self._directions_last(y, steps, hidden, count)
        for state in before:
            self.next_states["%s.%s" % (name, state)] = after[state][0] if s["layers"] == 1 else \
                self.node("Concat", *after[state], axis=0)
        if s["output"] == "last":
            return self.reshaped(self.node("Transpose", after["h"][-1], perm=[1, 0, 2]), -1, count * hidden)
        return self.reshaped(self.node("Transpose", y, perm=[2, 0, 1, 3]), -1, steps, count * hidden)

    def _directions_last(self, y, steps, hidden, count):
        """(steps, directions, samples, hidden) -> (steps, samples, directions · hidden), for the next layer."""
        turned = y if count == 1 else self.node("Transpose", y, perm=[0, 2, 1, 3])
        return self.reshaped(turned, steps, -1, count * hidden)

    def attention(self, call, *inputs):
        s = call["settings"]
        lengths = inputs[-1] if not self.sizes[-1] else None
        values = [x for x, sizes in zip(inputs, self.sizes) if sizes]
        sizes = [sizes for sizes in self.sizes if sizes]
        width, heads = sizes[0][-1], s["heads"]

        def product(x, weight, offset):
            made = self.node("MatMul", x, self.tensor(weight.T))
            return made if offset is None else self.node("Add", made, self.tensor(offset))

        def given(end):
            return self.given.get("%s.%s" % (call["name"], end))  # biases may be absent

        weight, offset = given("in_proj_weight"), given("in_proj_bias")
        if len(values) == 1:
            parts, sizes = self.node("Split", product(values[0], weight, offset), axis=2, results=3), sizes * 3
        else:
            offsets = [None] * 3 if offset is None else np.split(offset, 3)
            parts = [product(*each) for each in zip(values, np.split(weight, 3), offsets)]
        orders = [0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]
        parts = [self.reshaped(part, -1, shape[0], heads, width // heads) for part, shape in zip(parts, sizes)]
        query, key, value = (self.node("Transpose", part, perm=order) for part, order in zip(parts, orders))
        scores = self.node("MatMul", self.node("Mul", query, self.tensor((width // heads) ** -0.5)), key)
        least = self.tensor(np.finfo(np.float32).min)
        if s["causal"]:
            seen = self.tensor(np.tri(sizes[0][0], sizes[1][0]), kind=bool)
            scores = self.node("Where", seen, scores, least)
        if lengths is not None:
            true = self.reshaped(self._true(sizes[1][0], lengths), -1, 1, 1, sizes[1][0])
            scores = self.node("Where", true, scores, least)
        made = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        made = self.reshaped(self.node("Transpose", made, perm=[0, 2, 1, 3]), -1, sizes[0][0], width)
        return product(made, given("out_proj.weight"), given("out_proj.bias"))


class Network:
    """The model in ONNX's bytes, for one size of batch.

    inputs   {name: value of the graph}        outputs  {name: (value of the graph, sizes of a sample)}
    states   {value that comes in: (value that goes out, its sizes)}    nodes    how many"""

    def __init__(self, cell, weights):
        network = cell.network
        graph = Graph(network, cell.batch, weights)
        types = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64}

        def info(name, sizes, kind="f32"):
            return helper.make_tensor_value_info(name, types[kind], sizes)

        inputs = [info("in." + entry["name"], (cell.batch, *entry["shape"]), entry["type"]) for entry in network.inputs]
        outputs = [info(made, (cell.batch, *output["shape"])) for made, output in zip(graph.outputs, network.outputs)]
        self.states = {}
        for state in network.states:
            count, hidden = state["shape"]
            sizes, after = (count, cell.batch, hidden), graph.next_states[state["name"]]
            self.states["in." + state["name"]] = after, sizes
            inputs.append(info("in." + state["name"], sizes))
            outputs.append(info(after, sizes))
        tensors = [numpy_helper.from_array(array, name) for name, array in graph.tensors.items()]
        made = helper.make_graph(graph.nodes, network.name, inputs, outputs, initializer=tensors)
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
        onnx.checker.check_model(model)
        self.bytes, self.nodes = model.SerializeToString(), len(graph.nodes)
        self.inputs = {entry["name"]: "in." + entry["name"] for entry in network.inputs}
        self.outputs = {output["name"]: (made, output["shape"]) for made, output in zip(graph.outputs, network.outputs)}
