"""Small networks for test_driver.py --kinds: every kind of layer with its settings, every loss, lengths and states,
written down as the protocol sends them. `cases()` -> [(workload, network), …].

A new kind: a method of Net where it has parameters, and a function `case_…` that uses it.
"""
import math

# Networks that are one call, written by hand in each driver that has them; the workloads NAME_small try them.
WHOLE = ("deepspeech2", "gnmt", "seq2seq", "tacotron2")
ACTIVATIONS = ("relu", "gelu", "silu", "selu", "mish", "hardswish", "tanh", "sigmoid", "exp", "erf")


class Net:
    """A network as it grows: each method adds a call and gives its value's name."""

    def __init__(self, name, **inputs):
        """inputs: (type, size, size, …) by name."""
        self.name, self.inputs, self.states, self.calls, self.outputs = name, [], [], [], []
        self.shapes = {}
        for key, (kind, *shape) in inputs.items():
            self.inputs.append({"name": key, "type": kind, "shape": shape})
            self.shapes[key] = shape

    def call(self, kind, values, shape, name=None, parameters=None, buffers=None, **settings):
        values = [values] if isinstance(values, str) else list(values)
        out = "v%d" % (len(self.calls) + 1)
        name = name or str(len(self.calls))
        self.calls.append({
            "kind": kind, "name": name, "in": values, "out": out, "shape": list(shape), "settings": settings,
            "parameters": {"%s.%s" % (name, key): list(size) for key, size in (parameters or {}).items()},
            "buffers": {"%s.%s" % (name, key): list(size) for key, size in (buffers or {}).items()}})
        self.shapes[out] = list(shape)
        return out

    def same(self, kind, x, **settings):
        """A call that keeps the shape and has no parameters."""
        return self.call(kind, x, self.shapes[x], **settings)

    def linear(self, x, outputs, name, bias=True):
        width = self.shapes[x][-1]
        return self.call("linear", x, self.shapes[x][:-1] + [outputs], name,
                         weights(bias, (outputs, width), (outputs,)), outputs=outputs, bias=bias)

    def matmul(self, x, outputs, name):
        return self.call("matmul", x, self.shapes[x][:-1] + [outputs], name,
                         {"weight": (self.shapes[x][-1], outputs)}, outputs=outputs)

    def conv(self, x, channels, name, kernel, stride=1, padding=0, dilation=1, groups=1, bias=True):
        before, *sizes = self.shapes[x]
        axes = len(sizes)
        kernel, stride, dilation = (per_axis(value, axes) for value in (kernel, stride, dilation))
        padding = [[side, side] for side in per_axis(padding, axes)] if not isinstance(padding, list) else padding
        made = [(n + sum(p) - d * (k - 1) - 1) // s + 1
                for n, p, d, k, s in zip(sizes, padding, dilation, kernel, stride)]
        return self.call("conv", x, [channels] + made, name,
                         weights(bias, [channels, before // groups] + kernel, (channels,)), channels=channels,
                         kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias)

    def conv_transpose(self, x, channels, name, kernel, stride=1, padding=0, output_padding=0, dilation=1, groups=1,
                       bias=True):
        before, *sizes = self.shapes[x]
        axes = len(sizes)
        kernel, stride, padding, output_padding, dilation = (
            per_axis(value, axes) for value in (kernel, stride, padding, output_padding, dilation))
        made = [(n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, s, p, d, k, o in zip(
            sizes, stride, padding, dilation, kernel, output_padding)]
        return self.call("conv_transpose", x, [channels] + made, name,
                         weights(bias, [before, channels // groups] + kernel, (channels,)), channels=channels,
                         kernel=kernel, stride=stride, padding=padding, output_padding=output_padding,
                         dilation=dilation, groups=groups, bias=bias)

    def max_pool(self, x, sizes, kernel, stride, padding, dilation=1, ceil_mode=False):
        axes = len(self.shapes[x]) - 1
        kernel, stride, dilation = (per_axis(value, axes) for value in (kernel, stride, dilation))
        return self.call("max_pool", x, self.shapes[x][:1] + sizes, kernel=kernel, stride=stride, padding=padding,
                         dilation=dilation, ceil_mode=ceil_mode)

    def avg_pool(self, x, sizes, kernel, stride, padding=0, ceil_mode=False, count_include_pad=True):
        axes = len(self.shapes[x]) - 1
        kernel, stride, padding = (per_axis(value, axes) for value in (kernel, stride, padding))
        return self.call("avg_pool", x, self.shapes[x][:1] + sizes, kernel=kernel, stride=stride, padding=padding,
                         ceil_mode=ceil_mode, count_include_pad=count_include_pad)

    def norm(self, kind, x, name, sizes, affine=True, bias=True, buffers=None, **settings):
        parameters = weights(bias, sizes, sizes) if affine else {}
        if kind == "layer_norm":
            settings["bias"] = bias
        return self.call(kind, x, self.shapes[x], name, parameters, buffers, affine=affine, **settings)

    def batch_norm(self, x, name, affine=True, track=True, momentum=0.1, eps=1e-5):
        sizes = self.shapes[x][:1]
        return self.norm("batch_norm", x, name, sizes, affine, eps=eps, momentum=momentum, track_running_stats=track,
                         buffers={"running_mean": sizes, "running_var": sizes} if track else {})

    def flatten(self, x):
        return self.call("flatten", x, [math.prod(self.shapes[x])])

    def concat(self, values, axis=0):
        shape = list(self.shapes[values[0]])
        shape[axis] = sum(self.shapes[value][axis] for value in values)
        return self.call("concat", values, shape, axis=axis)

    def embedding(self, x, rows, width, name="embed"):
        return self.call("embedding", x, self.shapes[x] + [width], name, {"weight": (rows, width)}, rows=rows,
                         width=width)

    def lstm(self, values, hidden, name, layers, bidirectional, bias, output, carry):
        values = [values] if isinstance(values, str) else values
        time, features = self.shapes[values[0]]
        ways, parameters = 2 if bidirectional else 1, {}
        for layer in range(layers):
            for suffix in ("_l%d" % layer, "_l%d_reverse" % layer)[:ways]:
                parameters["weight_ih" + suffix] = (4 * hidden, features if layer == 0 else hidden * ways)
                parameters["weight_hh" + suffix] = (4 * hidden, hidden)
                if bias:
                    parameters["bias_ih" + suffix] = parameters["bias_hh" + suffix] = (4 * hidden,)
        if carry:
            self.states += [{"name": "%s.%s" % (name, part), "shape": [layers * ways, hidden]} for part in "hc"]
        shape = [time, hidden * ways] if output == "sequence" else [hidden * ways]
        return self.call("lstm", values, shape, name, parameters, hidden=hidden, layers=layers,
                         bidirectional=bidirectional, bias=bias, output=output, carry=carry)

    def attention(self, values, heads, name="attention", causal=False, bias=True):
        values = [values] if isinstance(values, str) else values
        width = self.shapes[values[0]][1]
        parameters = {"in_proj_weight": (3 * width, width), "out_proj.weight": (width, width)}
        if bias:
            parameters.update({"in_proj_bias": (3 * width,), "out_proj.bias": (width,)})
        return self.call("attention", values, self.shapes[values[0]], name, parameters, heads=heads, causal=causal,
                         bias=bias)

    def end(self, loss="cross_entropy", lengths=None, **outputs):
        """The case: outputs by name (the first has the loss) and the loss's kind."""
        self.outputs = [{"name": name, "value": value, "shape": self.shapes[value]} for name, value in outputs.items()]
        shape = self.outputs[0]["shape"]
        target = {"type": "i64", "shape": shape[:-1], "below": shape[-1]} if loss == "cross_entropy" else {
            "type": "f32", "shape": shape}
        metrics = ["accuracy", "perplexity"] if loss == "cross_entropy" else ["mse", "mae"]
        entry = {"kind": loss, "output": self.outputs[0]["name"], "target": "target"}
        workload = {"name": self.name, "network": self.name, "targets": {"target": target}, "metrics": metrics,
                    "loss": dict(entry, lengths=lengths) if lengths else entry,
                    "optimizer": {"name": "sgd", "lr": 0.2}}
        return workload, self.network()

    def end_with(self, loss, targets, **outputs):
        """The case of a loss that has no metrics."""
        self.outputs = [{"name": name, "value": value, "shape": self.shapes[value]} for name, value in outputs.items()]
        return {"name": self.name, "network": self.name, "targets": targets, "loss": loss,
                "optimizer": {"name": "sgd", "lr": 0.2}}, self.network()

    def network(self):
        return {key: getattr(self, key) for key in ("name", "inputs", "states", "calls", "outputs")}


def per_axis(value, axes):
    return [value] * axes if isinstance(value, int) else list(value)


def weights(bias, shape, bias_shape):
    return {"weight": tuple(shape), "bias": tuple(bias_shape)} if bias else {"weight": tuple(shape)}


# ---------------------------------------------------------------------------------------------------------------------


def case_convolutions():
    net = Net("conv_2d", x=("f32", 4, 11, 9))
    v = net.conv(net.same("identity", "x"), 6, "block.0.conv", (4, 2), padding=[[1, 2], [0, 1]], groups=2)
    v = net.conv(net.same("relu", v), 8, "block.1.conv", (3, 2), padding=(2, 0), dilation=2, bias=False)
    v = net.call("global_avg_pool", net.same("tanh", v), net.shapes[v][:1])
    yield net.end(out=net.linear(v, 5, "fc"))
    net = Net("conv_1d", x=("f32", 3, 14))
    v = net.conv("x", 6, "conv1", 4, stride=2, padding=1)
    yield net.end(out=net.linear(net.flatten(net.same("relu", v)), 5, "fc"))
    net = Net("conv_3d", x=("f32", 2, 5, 6, 4))
    v = net.conv("x", 3, "conv1", (2, 3, 2), stride=(1, 2, 1), padding=(0, 1, 1))
    yield net.end(out=net.linear(net.flatten(net.same("relu", v)), 5, "fc"))
    net = Net("depthwise", x=("f32", 4, 6, 6))
    v = net.conv("x", 8, "conv1", 3, padding=1, groups=4)
    yield net.end(out=net.linear(net.flatten(v), 5, "fc"))


def case_transposed():
    net = Net("conv_transpose_2d", x=("f32", 4, 5, 4))
    v = net.conv_transpose("x", 6, "up1", 3, stride=2, padding=1, output_padding=1, groups=2)
    v = net.conv_transpose(net.same("relu", v), 3, "up2", (2, 3), stride=(1, 2), dilation=(2, 1), bias=False)
    yield net.end("mse", out=v)
    net = Net("conv_transpose_1d", x=("f32", 3, 7))
    yield net.end("mae", out=net.conv_transpose("x", 2, "up", 4, stride=3, padding=2))
    net = Net("conv_transpose_3d", x=("f32", 2, 3, 2, 3))
    yield net.end("mse", out=net.conv_transpose("x", 2, "up", 2, stride=2))


def case_pointwise():
    net = Net("activations", x=("f32", 6))
    v = net.linear("x", 8, "fc1")
    parts = [net.same(kind, v) for kind in ACTIVATIONS]
    parts += [net.same("leaky_relu", v, slope=0.2), net.same("elu", v, alpha=0.7),
              net.same("softplus", v, beta=2.0, threshold=3.0), net.same("softmax", v),
              net.same("log_softmax", v)]
    yield net.end(out=net.linear(net.same("dropout", net.concat(parts), p=0.5), 5, "fc2"))


def case_pools():
    net = Net("max_pool", x=("f32", 2, 9, 8))
    v = net.conv("x", 3, "conv1", 3, padding=1)
    parts = [net.max_pool(v, [4, 4], 2, 2, [[0, 0], [0, 0]]),
             net.max_pool(v, [5, 4], 3, 2, [[1, 1], [1, 1]]),
             net.max_pool(v, [9, 8], 2, 1, [[0, 1], [0, 1]]),
             net.max_pool(v, [9, 8], (4, 2), 1, [[1, 2], [0, 1]]),
             net.max_pool(v, [5, 4], 2, 2, [[0, 0], [0, 0]], ceil_mode=True),
             net.max_pool(v, [7, 6], 2, 1, [[0, 0], [0, 0]], dilation=2)]
    yield net.end(out=net.linear(net.concat([net.flatten(part) for part in parts]), 5, "fc"))
    net = Net("avg_pool", x=("f32", 2, 9, 8))
    v = net.conv("x", 3, "conv1", 3, padding=1)
    parts = [net.avg_pool(v, [4, 4], 2, 2), net.avg_pool(v, [5, 4], 3, 2, 1),
             net.avg_pool(v, [5, 4], 3, 2, 1, count_include_pad=False),
             net.avg_pool(v, [5, 5], 3, 2, 1, ceil_mode=True),
             net.avg_pool(v, [5, 5], 3, 2, 1, ceil_mode=True, count_include_pad=False),
             net.call("adaptive_avg_pool", v, [3, 4, 3], size=[4, 3]),
             net.call("adaptive_max_pool", v, [3, 2, 5], size=[2, 5])]
    yield net.end(out=net.linear(net.concat([net.flatten(part) for part in parts]), 5, "fc"))
    net = Net("pools_1d_3d", x=("f32", 2, 9), z=("f32", 2, 4, 5, 6))
    line, block = net.conv("x", 3, "conv1", 3), net.conv("z", 3, "conv2", 2)
    parts = [net.max_pool(line, [4], 3, 2, [[1, 1]]), net.avg_pool(line, [3], 2, 2),
             net.call("adaptive_avg_pool", line, [3, 3], size=[3]),
             net.call("adaptive_max_pool", line, [3, 3], size=[3]),
             net.max_pool(block, [3, 4, 5], 2, 1, [[0, 1]] * 3), net.avg_pool(block, [2, 3, 3], 2, 2, 1),
             net.call("adaptive_avg_pool", block, [3, 2, 2, 2], size=[2, 2, 2])]
    yield net.end(out=net.linear(net.concat([net.flatten(part) for part in parts]), 5, "fc"))


def case_norms():
    net = Net("batch_norm", x=("f32", 2, 6, 5))
    v = net.batch_norm(net.conv("x", 4, "conv1", 3), "bn1", momentum=0.3, eps=1e-4)
    v = net.batch_norm(net.conv(net.same("relu", v), 4, "conv2", 2), "bn2", affine=False)
    v = net.batch_norm(net.conv(v, 4, "conv3", 2), "bn3", track=False)
    v = net.batch_norm(net.linear(net.flatten(v), 6, "fc1"), "bn4")
    yield net.end(out=net.linear(net.same("relu", v), 5, "fc2"))
    net = Net("channel_norms", x=("f32", 2, 6, 5))
    v = net.norm("instance_norm", net.conv("x", 4, "conv1", 3), "in1", [4], eps=1e-5)
    v = net.norm("instance_norm", net.conv(net.same("relu", v), 4, "conv2", 2), "in2", [4], affine=False, eps=1e-4)
    v = net.norm("group_norm", net.conv(v, 6, "conv3", 1), "gn1", [6], groups=3, eps=1e-5)
    v = net.norm("group_norm", net.same("tanh", v), "gn2", [6], affine=False, groups=2, eps=1e-5)
    v = net.same("channel_dropout", v, p=0.3)
    yield net.end(out=net.linear(net.flatten(v), 5, "fc"))
    net = Net("last_axis_norms", x=("f32", 4, 5), z=("f32", 3, 4, 5))
    v = net.norm("layer_norm", "x", "ln1", [4, 5], axes=2, eps=1e-5)
    v = net.norm("layer_norm", net.linear(v, 6, "fc1"), "ln2", [6], bias=False, axes=1, eps=1e-4)
    v = net.norm("rms_norm", net.linear(v, 6, "fc2", bias=False), "rms1", [6], bias=False, axes=1, eps=1e-5)
    v = net.norm("layer_norm", net.same("gelu", v), "ln3", [6], affine=False, axes=1, eps=1e-5)
    v = net.norm("rms_norm", net.linear(v, 4, "fc3"), "rms2", [4, 4], affine=False, axes=2, eps=0.0)
    w = net.norm("layer_norm", net.conv("z", 3, "conv", 1), "ln4", [3, 4, 5], axes=3, eps=1e-5)
    yield net.end(out=net.linear(net.concat([net.flatten(v), net.flatten(w)]), 5, "fc"))


def case_shapes():
    net = Net("shapes", x=("f32", 3, 4, 5), z=("f32", 3, 4, 5))
    v = net.conv("x", 3, "conv1", 1)
    w = net.same("tanh", net.conv("z", 3, "conv2", 1))
    total = net.call("add", [v, w, "x"], [3, 4, 5])
    product = net.call("multiply", [v, w, total], [3, 4, 5])
    joined = net.concat([total, product], 1)
    turned = net.call("transpose", joined, [3, 5, 8], axes=[1, 2])
    short = net.call("mean", turned, [3, 8], axis=1)
    yield net.end(out=net.linear(net.flatten(short), 5, "fc"), other=turned, middle=net.call("mean", short, [8], axis=0))


def case_products():
    net = Net("products", x=("f32", 4, 6))
    v = net.same("tanh", net.matmul("x", 7, "rows"))
    short = net.call("sum", v, [4], axis=1)
    yield net.end(out=net.matmul(net.same("relu", net.matmul(short, 8, "a")), 5, "b"),
                  columns=net.call("sum", v, [7], axis=0))
    net = Net("product_of_a_grid", x=("f32", 3, 4, 5))  # what stands behind a flatten, channels last or not
    v = net.conv("x", 2, "conv", 3)
    yield net.end("mse", out=net.matmul(net.flatten(v), 3, "fc"), rows=net.call("sum", v, [2, 3], axis=1))


def case_sequences():
    net = Net("embedding_mean", x=("i64", 7), n=("i64",))
    v = net.call("mean", [net.embedding("x", 20, 6), "n"], [6], axis=0)
    yield net.end(out=net.linear(v, 5, "fc"))
    for layers, bidirectional, output, bias in ((1, False, "sequence", True), (2, False, "last", True),
                                                (2, True, "sequence", False), (2, True, "last", True)):
        for lengths in (False, True):
            for carry in (False,) if bidirectional else (False, True):  # states are carried forwards alone
                name = "lstm_%d%s_%s%s%s" % (layers, "_both" if bidirectional else "", output,
                                             "_lengths" if lengths else "", "_carry" if carry else "")
                net = Net(name, **dict({"x": ("f32", 6, 4)}, **({"n": ("i64",)} if lengths else {})))
                v = net.lstm(["x", "n"] if lengths else "x", 5, "rnn.lstm", layers, bidirectional, bias, output, carry)
                yield net.end(out=net.linear(v, 3, "fc"), lengths="n" if lengths and output == "sequence" else None,
                              hidden=v)


def case_attention():
    net = Net("attention", x=("f32", 6, 8))
    yield net.end(out=net.linear(net.attention("x", 2), 3, "fc"))
    net = Net("attention_causal", x=("i64", 6))
    v = net.embedding("x", 11, 8)
    v = net.call("add", [v, net.attention(v, 4, causal=True, bias=False)], [6, 8])
    yield net.end(out=net.linear(v, 11, "fc"))
    net = Net("attention_lengths", x=("f32", 6, 8), n=("i64",))
    v = net.attention(["x", "n"], 2)
    v = net.attention([v, "n"], 2, "second", causal=True)
    yield net.end(out=net.linear(v, 3, "fc"), lengths="n")
    net = Net("attention_cross", x=("f32", 4, 8), keys=("f32", 6, 8), n=("i64",))
    values = net.linear("keys", 8, "values")
    v = net.attention(["x", "keys", values, "n"], 2)
    v = net.attention([v, "keys", values], 4, "second")
    yield net.end(out=net.linear(v, 3, "fc"))


def case_losses():
    for loss in ("cross_entropy", "mse", "mae", "bce"):
        for lengths in (False, True):
            net = Net(loss + ("_lengths" if lengths else ""), x=("f32", 4, 5), n=("i64",))
            v = net.linear("x", 6, "fc1")
            yield net.end(loss, "n" if lengths else None, out=net.linear(net.same("tanh", v), 2, "fc2"), hidden=v)
    for stride in (1, 2):
        net = Net("ctc_stride_%d" % stride, x=("f32", 9, 5), n=("i64",))
        v = net.linear(net.same("tanh", net.linear("x", 6, "fc1")), 4, "fc2")
        loss = {"kind": "ctc", "output": "out", "target": "labels", "lengths": "n", "stride": stride}
        yield net.end_with(loss, {"labels": {"type": "i64", "shape": [3], "below": 4}}, out=v)
    net = Net("sum", x=("f32", 4, 5), n=("i64",))
    v = net.linear("x", 6, "fc1")
    terms = [{"kind": "mse", "output": "hidden", "target": "y", "lengths": "n"},
             {"kind": "cross_entropy", "output": "out", "target": "classes", "lengths": "count"},
             {"kind": "bce", "output": "hidden", "target": "bits", "lengths": "n"}]
    yield net.end_with({"kind": "sum", "terms": terms}, {
        "y": {"type": "f32", "shape": [4, 6]}, "bits": {"type": "f32", "shape": [4, 6]},
        "classes": {"type": "i64", "shape": [4], "below": 3}, "count": {"type": "i64", "shape": [], "below": 5}},
        out=net.linear(net.same("tanh", v), 3, "fc2"), hidden=v)


def cases():
    return [case for name, make in globals().items() if name.startswith("case_") for case in make()]
