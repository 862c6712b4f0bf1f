"""The workloads' networks as Theano graphs. Theano has no layers, so `Network` makes the shared variables of the
weights, with the names and layouts that all drivers use (lab/docs/workloads.md), and the expressions that Theano's
users write on them.

A network is a function of a Network and its input. It is traced twice over the same weights: for training, where
dropout acts and batch statistics are used, and for testing.
"""
import numpy as np
import pytensor
import pytensor.tensor as at
from pytensor.sandbox.rng_mrg import MRG_RandomStream
from pytensor.tensor.nnet import conv2d, relu
from pytensor.tensor.nnet.batchnorm import batch_normalization_test, batch_normalization_train
from pytensor.tensor.signal.pool import pool_2d

EPS = float(np.nextafter(np.float32(1e-5), np.float32(1)))  # Theano takes 1e-5 or more: the first f32 that is


class Network:
    """The weights by name, and the layers as expressions. Values are pairs (expression, sizes)."""

    def __init__(self, dtype, seed, dropout):
        self.dtype, self.dropout = dtype, dropout
        self.weights = {}      # canonical name -> shared variable
        self.statistics = {}   # running means and variances
        self.initial = np.random.default_rng(seed)
        self.random = MRG_RandomStream(seed=seed % 2147462579 + 1)
        self.training = True
        self.updates = []      # of the running statistics, in the last trace for training

    def trace(self, network, x, sizes, classes, training):
        """-> the logits. sizes: (N, C, H, W)."""
        self.training, self.updates = training, []
        return network(self, (x, tuple(sizes)), classes)[0]

    def _weight(self, name, shape, fan_in=1, fan_out=1):
        if name not in self.weights:
            # Theano brings no initialisation; this is the one of its tutorials, within sqrt(6 / (fan_in + fan_out)).
            wide = np.sqrt(6.0 / (fan_in + fan_out)) if len(shape) > 1 else 0.0
            value = self.initial.uniform(-wide, wide, shape)
            if len(shape) == 1 and name.endswith("weight"):
                value = np.ones(shape)
            self.weights[name] = pytensor.shared(value.astype(self.dtype), name=name)
        return self.weights[name]

    def conv(self, name, value, channels, size, stride=1, pad=0, bias=True):
        x, (n, before, height, width) = value
        shape = (channels, before, size, size)
        weight = self._weight(name + ".weight", shape, before * size * size, channels * size * size)
        y = conv2d(x, weight, input_shape=(n, before, height, width), filter_shape=shape, border_mode=(pad, pad),
                   subsample=(stride, stride), filter_flip=False)
        if bias:
            y = y + self._weight(name + ".bias", (channels,)).dimshuffle("x", 0, "x", "x")
        return y, (n, channels, (height + 2 * pad - size) // stride + 1, (width + 2 * pad - size) // stride + 1)

    def dense(self, name, value, units):
        x, (n, *rest) = value
        inputs = int(np.prod(rest))
        if len(rest) > 1:
            x = x.flatten(2)
        weight = self._weight(name + ".weight", (units, inputs), inputs, units)
        return at.dot(x, weight.T) + self._weight(name + ".bias", (units,)), (n, units)

    def relu(self, value):
        return relu(value[0]), value[1]

    def pool(self, value, size=2, stride=2, pad=0):
        x, (n, channels, height, width) = value
        y = pool_2d(x, ws=(size, size), stride=(stride, stride), pad=(pad, pad), ignore_border=True, mode="max")
        return y, (n, channels, (height + 2 * pad - size) // stride + 1, (width + 2 * pad - size) // stride + 1)

    def pool_keeping_size(self, value):
        """Stride 1: of the windows of a padded image, those that begin inside it."""
        y, _ = self.pool(value, 2, stride=1, pad=1)
        return y[:, :, 1:, 1:], value[1]

    def drop(self, value, probability):
        x, sizes = value
        if not (self.training and self.dropout):
            return value
        keep = 1.0 - probability
        return x * self.random.binomial(size=sizes, p=keep, dtype=self.dtype) / np.asarray(keep, self.dtype), sizes

    def norm(self, name, value):
        x, sizes = value
        channels = sizes[1]
        gamma, beta = self._weight(name + ".weight", (channels,)), self._weight(name + ".bias", (channels,))
        for part, start in (("mean", 0.0), ("var", 1.0)):
            key = "%s.running_%s" % (name, part)
            if key not in self.statistics:
                self.statistics[key] = pytensor.shared(np.full(channels, start, self.dtype), name=key)
        mean, var = (self.statistics["%s.running_%s" % (name, part)] for part in ("mean", "var"))
        if not self.training:
            return batch_normalization_test(x, gamma, beta, mean, var, axes="spatial", epsilon=EPS), sizes
        y, _, _, new_mean, new_var = batch_normalization_train(
            x, gamma, beta, axes="spatial", epsilon=EPS, running_average_factor=0.1, running_mean=mean,
            running_var=var)
        self.updates += [(mean, at.cast(new_mean, self.dtype)), (var, at.cast(new_var, self.dtype))]
        return y, sizes

    def mean_over_grid(self, value):
        x, sizes = value
        return x.mean(axis=(2, 3)), sizes[:2]


def lenet(net, x, classes):
    x = net.pool(net.relu(net.conv("conv1", x, 6, 5, pad=2)))
    x = net.pool(net.relu(net.conv("conv2", x, 16, 5)))
    x = net.relu(net.dense("fc1", x, 120))
    return net.dense("fc3", net.relu(net.dense("fc2", x, 84)), classes)


def mnist_cnn(net, x, classes):
    x = net.relu(net.conv("conv2", net.relu(net.conv("conv1", x, 32, 3)), 64, 3))
    x = net.drop(net.pool(x), 0.25)
    return net.dense("fc2", net.drop(net.relu(net.dense("fc1", x, 128)), 0.5), classes)


def pairs(net, x, groups, units, classes):
    """Pairs of convolutions, a pool and dropout after each pair, then two dense layers."""
    for number, (channels, probability) in enumerate(groups):
        x = net.relu(net.conv("conv%d" % (2 * number + 1), x, channels, 3, pad=1))
        x = net.relu(net.conv("conv%d" % (2 * number + 2), x, channels, 3, pad=1))
        x = net.drop(net.pool(x), probability)
    return net.dense("fc2", net.drop(net.relu(net.dense("fc1", x, units)), 0.5), classes)


def cifar10_cnn(net, x, classes):
    return pairs(net, x, ((32, 0.25), (64, 0.25)), 512, classes)


def cifar100_cnn(net, x, classes):
    return pairs(net, x, ((128, 0.1), (256, 0.25), (512, 0.5)), 1024, classes)


def svhn_cnn(net, x, classes):
    for number, channels in enumerate((48, 64, 128, 160, 192, 192, 192, 192), 1):
        x = net.relu(net.conv("conv%d" % number, x, channels, 3, pad=1))
        x = net.drop(net.pool(x) if number % 2 == 1 else net.pool_keeping_size(x), 0.2)
    return net.dense("fc2", net.drop(net.relu(net.dense("fc1", x, 512)), 0.5), classes)


def basic_block(net, name, x, channels, stride):
    kept = x
    if stride != 1 or x[1][1] != channels:
        kept = net.conv(name + ".downsample.0", x, channels, 1, stride=stride, bias=False)
        kept = net.norm(name + ".downsample.1", kept)
    x = net.relu(net.norm(name + ".bn1", net.conv(name + ".conv1", x, channels, 3, stride=stride, pad=1, bias=False)))
    x = net.norm(name + ".bn2", net.conv(name + ".conv2", x, channels, 3, pad=1, bias=False))
    return net.relu((x[0] + kept[0], x[1]))


def resnet18(net, x, classes):
    x = net.relu(net.norm("bn1", net.conv("conv1", x, 64, 7, stride=2, pad=3, bias=False)))
    x = net.pool(x, 3, stride=2, pad=1)
    for number, channels in enumerate((64, 128, 256, 512), 1):
        x = basic_block(net, "layer%d.0" % number, x, channels, 1 if number == 1 else 2)
        x = basic_block(net, "layer%d.1" % number, x, channels, 1)
    return net.dense("fc", net.mean_over_grid(x), classes)


def vgg16(net, x, classes):
    place = 0  # in PyTorch's sequence, where ReLU and pools have places too
    for channels, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            x = net.relu(net.conv("features.%d" % place, x, channels, 3, pad=1))
            place += 2
        x = net.pool(x)
        place += 1
    x = net.drop(net.relu(net.dense("classifier.0", x, 4096)), 0.5)
    x = net.drop(net.relu(net.dense("classifier.3", x, 4096)), 0.5)
    return net.dense("classifier.6", x, classes)


MODELS = {
    "lenet": lenet,
    "mnist_cnn": mnist_cnn,
    "cifar10_cnn": cifar10_cnn,
    "cifar100_cnn": cifar100_cnn,
    "svhn_cnn": svhn_cnn,
    "resnet18": resnet18,
    "vgg16": vgg16,
}
