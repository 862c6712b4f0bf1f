"""The networks of the JAX driver, in plain JAX: images are (N, H, W, C), kernels (height, width, in, out).

A network is a function of a Net and a batch of images. The Net reads the network's numbers by name and, the first time,
in `describe`, learns their shapes, so that each network is written down once.
"""
import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import relu

MOMENTUM, EPSILON = 0.1, 1e-5  # of batch normalisation, in PyTorch's meaning


class Net:
    """The layers of one pass. Where params is None the pass only notes which parameters there are, in `layouts`:
    {name: ("conv", shape)} and so on, with shapes as they are stored here."""

    def __init__(self, params=None, stats=None, training=False, key=None, dropout=True, dtype=jnp.float32):
        self.params, self.stats, self.new_stats = params, stats, {}
        self.training, self.key, self.dropout, self.dtype = training, key, dropout, dtype
        self.layouts, self.grids, self.stat_sizes = {}, {}, {}

    def param(self, name, kind, shape):
        if self.params is None:
            self.layouts[name] = (kind, shape)
            return jnp.zeros(shape, self.dtype)
        return self.params[name].astype(self.dtype)

    def conv(self, name, x, out, kernel, stride=1, padding=0, bias=True):
        weight = self.param(name + ".weight", "conv", (kernel, kernel, x.shape[-1], out))
        x = lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2,
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return x + self.param(name + ".bias", "vector", (out,)) if bias else x

    def dense(self, name, x, out):
        if x.ndim == 4:  # flattened as (H, W, C), where PyTorch has (C, H, W): the weight's rows are put in that order
            self.grids[name + ".weight"] = x.shape[1:]
            x = x.reshape(x.shape[0], -1)
        weight = self.param(name + ".weight", "dense", (x.shape[-1], out))
        return x @ weight + self.param(name + ".bias", "vector", (out,))

    def batch_norm(self, name, x):
        channels = x.shape[-1]
        scale = self.param(name + ".weight", "vector", (channels,))
        shift = self.param(name + ".bias", "vector", (channels,))
        if self.params is None:
            self.stat_sizes[name] = channels
            return x
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))  # statistics of a bf16 network are f32
        old_mean, old_var = self.stats[name + ".running_mean"], self.stats[name + ".running_var"]
        if self.training:
            mean, var = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
            count = x.size // channels
            unbiased = var * (count / max(1, count - 1))
            self.new_stats[name + ".running_mean"] = (1 - MOMENTUM) * old_mean + MOMENTUM * mean
            self.new_stats[name + ".running_var"] = (1 - MOMENTUM) * old_var + MOMENTUM * unbiased
        else:
            mean, var = old_mean, old_var
        factor = scale * lax.rsqrt(var + EPSILON)
        return ((wide - mean) * factor + shift).astype(x.dtype)

    def drop(self, x, rate):
        if not self.training or not self.dropout or rate == 0:
            return x
        self.key, key = jax.random.split(self.key)
        return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def max_pool(x, window=2, stride=2, padding="VALID"):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, window, window, 1), (1, stride, stride, 1), padding)


def lenet(net, x, classes):
    x = max_pool(relu(net.conv("conv1", x, 6, 5, padding=2)))
    x = max_pool(relu(net.conv("conv2", x, 16, 5)))
    x = relu(net.dense("fc1", x, 120))
    x = relu(net.dense("fc2", x, 84))
    return net.dense("fc3", x, classes)


def mnist_cnn(net, x, classes):
    x = relu(net.conv("conv1", x, 32, 3))
    x = relu(net.conv("conv2", x, 64, 3))
    x = net.drop(max_pool(x), 0.25)
    x = net.drop(relu(net.dense("fc1", x, 128)), 0.5)
    return net.dense("fc2", x, classes)


def cifar10_cnn(net, x, classes):
    for block, channels in enumerate((32, 64)):
        x = relu(net.conv("conv%d" % (2 * block + 1), x, channels, 3, padding=1))
        x = relu(net.conv("conv%d" % (2 * block + 2), x, channels, 3, padding=1))
        x = net.drop(max_pool(x), 0.25)
    x = net.drop(relu(net.dense("fc1", x, 512)), 0.5)
    return net.dense("fc2", x, classes)


def cifar100_cnn(net, x, classes):
    for block, (channels, rate) in enumerate(((128, 0.1), (256, 0.25), (512, 0.5))):
        x = relu(net.conv("conv%d" % (2 * block + 1), x, channels, 3, padding=1))
        x = relu(net.conv("conv%d" % (2 * block + 2), x, channels, 3, padding=1))
        x = net.drop(max_pool(x), rate)
    x = net.drop(relu(net.dense("fc1", x, 1024)), 0.5)
    return net.dense("fc2", x, classes)


def svhn_cnn(net, x, classes):
    for block, channels in enumerate((48, 64, 128, 160, 192, 192, 192, 192)):
        x = relu(net.conv("conv%d" % (block + 1), x, channels, 3, padding=1))
        x = net.drop(max_pool(x, stride=2 - block % 2, padding="SAME"), 0.2)
    x = net.drop(relu(net.dense("fc1", x, 512)), 0.5)
    return net.dense("fc2", x, classes)


def resnet18(net, x, classes):
    x = relu(net.batch_norm("bn1", net.conv("conv1", x, 64, 7, stride=2, padding=3, bias=False)))
    x = max_pool(x, window=3, padding=[(0, 0), (1, 1), (1, 1), (0, 0)])
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name = "layer%d.%d." % (stage + 1, block)
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = x
            if stride == 2:
                shortcut = net.conv(name + "downsample.0", x, channels, 1, stride=2, bias=False)
                shortcut = net.batch_norm(name + "downsample.1", shortcut)
            x = net.conv(name + "conv1", x, channels, 3, stride=stride, padding=1, bias=False)
            x = relu(net.batch_norm(name + "bn1", x))
            x = net.batch_norm(name + "bn2", net.conv(name + "conv2", x, channels, 3, padding=1, bias=False))
            x = relu(x + shortcut)
    return net.dense("fc", x.mean((1, 2)), classes)


def vgg16(net, x, classes):
    index = 0
    for convolutions, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(convolutions):
            x = relu(net.conv("features.%d" % index, x, channels, 3, padding=1))
            index += 2  # the ReLU has a number too
        x = max_pool(x)
        index += 1
    x = net.drop(relu(net.dense("classifier.0", x, 4096)), 0.5)
    x = net.drop(relu(net.dense("classifier.3", x, 4096)), 0.5)
    return net.dense("classifier.6", x, classes)


MODELS = {"lenet": lenet, "mnist_cnn": mnist_cnn, "cifar10_cnn": cifar10_cnn, "cifar100_cnn": cifar100_cnn,
          "svhn_cnn": svhn_cnn, "resnet18": resnet18, "vgg16": vgg16}


def describe(name, sizes, classes):
    """-> Net that knows the layouts of the network's parameters, for images of sizes (C, H, W)."""
    net = Net()
    channels, height, width = sizes
    image = jax.ShapeDtypeStruct((1, height, width, channels), jnp.float32)
    jax.eval_shape(lambda x: MODELS[name](net, x, classes), image)
    return net


def canonical_shape(kind, shape):
    """The shape in PyTorch's layout of a parameter that has this shape here."""
    if kind == "conv":
        height, width, inputs, outputs = shape
        return (outputs, inputs, height, width)
    return tuple(reversed(shape))


def from_canonical(array, kind, grid=None):
    """A parameter in PyTorch's layout, as it is stored here."""
    if kind == "conv":
        return array.transpose(2, 3, 1, 0)
    if grid is not None:
        height, width, channels = grid
        array = array.reshape(-1, channels, height, width).transpose(0, 2, 3, 1).reshape(array.shape)
    return array.T
