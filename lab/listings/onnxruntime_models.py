"""The networks of the ONNX Runtime driver, as ONNX graphs: images (N, C, H, W), weights in PyTorch's layouts and names.

A network is a function of a Graph, the name of its input and the number of classes; it returns the name of the logits.
Dropout does nothing in inference and has no node.
"""
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR = 17, 9  # old enough for any ONNX Runtime of the last years


class Graph:
    """Nodes in their order, with the shape of every value and of every weight."""

    def __init__(self, sizes):
        self.nodes, self.weights, self.statistics = [], {}, {}
        self.shapes = {"x": tuple(sizes)}  # without the axis of samples

    def add(self, kind, inputs, shape, **attributes):
        output = "%s_%d" % (kind.lower(), len(self.nodes))
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        self.shapes[output] = tuple(shape)
        return output

    def conv(self, name, x, out, kernel, stride=1, padding=0, bias=True):
        channels, height, width = self.shapes[x]
        inputs = [x, name + ".weight"]
        self.weights[name + ".weight"] = (out, channels, kernel, kernel)
        if bias:
            self.weights[name + ".bias"] = (out,)
            inputs.append(name + ".bias")
        grid = [(size + 2 * padding - kernel) // stride + 1 for size in (height, width)]
        return self.add("Conv", inputs, (out, *grid), kernel_shape=[kernel] * 2, strides=[stride] * 2,
                        pads=[padding] * 4)

    def max_pool(self, x, window=2, stride=2, before=0, after=0):
        channels, height, width = self.shapes[x]
        grid = [(size + before + after - window) // stride + 1 for size in (height, width)]
        return self.add("MaxPool", [x], (channels, *grid), kernel_shape=[window] * 2, strides=[stride] * 2,
                        pads=[before] * 2 + [after] * 2)

    def dense(self, name, x, out):
        if len(self.shapes[x]) > 1:
            x = self.add("Flatten", [x], (math.prod(self.shapes[x]),), axis=1)
        self.weights[name + ".weight"] = (out, self.shapes[x][0])
        self.weights[name + ".bias"] = (out,)
        return self.add("Gemm", [x, name + ".weight", name + ".bias"], (out,), transB=1)

    def batch_norm(self, name, x):
        channels = self.shapes[x][0]
        self.weights[name + ".weight"] = self.weights[name + ".bias"] = (channels,)
        self.statistics[name + ".running_mean"] = np.zeros(channels, np.float32)
        self.statistics[name + ".running_var"] = np.ones(channels, np.float32)
        inputs = [x] + [name + end for end in (".weight", ".bias", ".running_mean", ".running_var")]
        return self.add("BatchNormalization", inputs, self.shapes[x], epsilon=1e-5)

    def relu(self, x):
        return self.add("Relu", [x], self.shapes[x])

    def plus(self, a, b):
        return self.add("Add", [a, b], self.shapes[a])

    def mean(self, x):
        return self.add("GlobalAveragePool", [x], (self.shapes[x][0], 1, 1))


def lenet(g, x, classes):
    x = g.max_pool(g.relu(g.conv("conv1", x, 6, 5, padding=2)))
    x = g.max_pool(g.relu(g.conv("conv2", x, 16, 5)))
    x = g.relu(g.dense("fc1", x, 120))
    x = g.relu(g.dense("fc2", x, 84))
    return g.dense("fc3", x, classes)


def mnist_cnn(g, x, classes):
    x = g.relu(g.conv("conv1", x, 32, 3))
    x = g.relu(g.conv("conv2", x, 64, 3))
    x = g.relu(g.dense("fc1", g.max_pool(x), 128))
    return g.dense("fc2", x, classes)


def cifar10_cnn(g, x, classes):
    for block, channels in enumerate((32, 64)):
        x = g.relu(g.conv("conv%d" % (2 * block + 1), x, channels, 3, padding=1))
        x = g.relu(g.conv("conv%d" % (2 * block + 2), x, channels, 3, padding=1))
        x = g.max_pool(x)
    return g.dense("fc2", g.relu(g.dense("fc1", x, 512)), classes)


def cifar100_cnn(g, x, classes):
    for block, channels in enumerate((128, 256, 512)):
        x = g.relu(g.conv("conv%d" % (2 * block + 1), x, channels, 3, padding=1))
        x = g.relu(g.conv("conv%d" % (2 * block + 2), x, channels, 3, padding=1))
        x = g.max_pool(x)
    return g.dense("fc2", g.relu(g.dense("fc1", x, 1024)), classes)


def svhn_cnn(g, x, classes):
    for block, channels in enumerate((48, 64, 128, 160, 192, 192, 192, 192)):
        x = g.relu(g.conv("conv%d" % (block + 1), x, channels, 3, padding=1))
        x = g.max_pool(x) if block % 2 == 0 else g.max_pool(x, stride=1, after=1)
    return g.dense("fc2", g.relu(g.dense("fc1", x, 512)), classes)


def resnet18(g, x, classes):
    x = g.relu(g.batch_norm("bn1", g.conv("conv1", x, 64, 7, stride=2, padding=3, bias=False)))
    x = g.max_pool(x, window=3, before=1, after=1)
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name = "layer%d.%d." % (stage + 1, block)
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = x
            if stride == 2:
                shortcut = g.conv(name + "downsample.0", x, channels, 1, stride=2, bias=False)
                shortcut = g.batch_norm(name + "downsample.1", shortcut)
            x = g.conv(name + "conv1", x, channels, 3, stride=stride, padding=1, bias=False)
            x = g.relu(g.batch_norm(name + "bn1", x))
            x = g.batch_norm(name + "bn2", g.conv(name + "conv2", x, channels, 3, padding=1, bias=False))
            x = g.relu(g.plus(x, shortcut))
    return g.dense("fc", g.mean(x), classes)


def vgg16(g, x, classes):
    index = 0
    for convolutions, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(convolutions):
            x = g.relu(g.conv("features.%d" % index, x, channels, 3, padding=1))
            index += 2  # the ReLU has a number too
        x = g.max_pool(x)
        index += 1
    x = g.relu(g.dense("classifier.0", x, 4096))
    x = g.relu(g.dense("classifier.3", x, 4096))
    return g.dense("classifier.6", x, classes)


MODELS = {"lenet": lenet, "mnist_cnn": mnist_cnn, "cifar10_cnn": cifar10_cnn, "cifar100_cnn": cifar100_cnn,
          "svhn_cnn": svhn_cnn, "resnet18": resnet18, "vgg16": vgg16}


def describe(name, sizes, classes):
    """-> the Graph of a network, and the name of its logits."""
    graph = Graph(sizes)
    return graph, MODELS[name](graph, "x", classes)


def model_of(graph, logits, batch, values):
    """The ONNX model with inputs x and output logits, f32, for batches of this size; values: {name: array}."""
    graph.nodes[-1].output[0] = "logits"
    tensors = [numpy_helper.from_array(np.ascontiguousarray(value, dtype=np.float32), name)
               for name, value in values.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, *graph.shapes["x"]))]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, (batch, *graph.shapes[logits]))]
    made = helper.make_graph(graph.nodes, "network", inputs, outputs, initializer=tensors)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    onnx.checker.check_model(model)
    return model
