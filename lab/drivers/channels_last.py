"""How values lie in memory where images have their channels last, for the builders of TensorFlow and Keras.

The protocol's networks have channels first, as PyTorch has them. A value may be stored with its axes in another order;
the order travels along with it, so that a transposition is made only where a layer needs one:

    conv, pools, batch_norm, … take and give channels last     activations, dropout, add, … keep what comes
    flatten keeps it too, and a linear layer then takes its weights in that order      transpose only renames axes
"""

SPATIAL = ("conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool",
           "global_avg_pool", "batch_norm", "instance_norm", "group_norm", "channel_dropout")
NEUTRAL = ("relu", "gelu", "silu", "selu", "mish", "hardswish", "tanh", "sigmoid", "exp", "erf", "leaky_relu", "elu",
           "softplus", "dropout", "identity", "add", "multiply")


class Value:
    """made   the framework's tensor, or the name of its variable
    shape  of a sample, as in the network
    order  order[i] is the network's axis that is stored as a sample's axis i
    grid   (shape, order) before a flatten that left the numbers in their stored order; else None"""

    def __init__(self, made, shape, order=None, grid=None):
        self.made, self.shape, self.grid = made, tuple(shape), grid
        self.order = tuple(range(len(self.shape))) if order is None else tuple(order)

    def sizes(self):
        """Of a sample, as stored."""
        return tuple(self.shape[axis] for axis in self.order)

    def like(self, made, shape=None):
        """Another value that is stored as this one."""
        return Value(made, self.shape if shape is None else shape, self.order, self.grid)


def plain(axes):
    return tuple(range(axes))


def last(axes):
    """The order of a sample (C, …) with channels last."""
    return tuple(range(1, axes)) + (0,) if axes > 1 else plain(axes)


def inverse(order):
    return tuple(order.index(axis) for axis in range(len(order)))


def with_samples(order):
    """The same axes of a batch."""
    return (0,) + tuple(axis + 1 for axis in order)


def order_of_input(network, name, axes):
    """Channels last where the first layer that cares wants that; else the network's."""
    for call in network.calls:
        if name in call["in"]:
            if call["kind"] in SPATIAL:
                return last(axes)
            if call["kind"] not in NEUTRAL:
                return plain(axes)
            return order_of_input(network, call["out"], axes)
    return plain(axes)


def of_loss(loss, orders):
    """-> (axes of the transposition that the loss's output needs, or None; the order of its target). Numbers that are
    compared one by one may lie in any order; classes are last, and the axis of lengths is first."""
    order = orders[loss.output]
    if loss.kind != "cross_entropy" and loss.lengths is None:
        return None, order
    target = plain({"cross_entropy": len(order) - 1, "ctc": 1}.get(loss.kind, len(order)))
    return None if order == plain(len(order)) else with_samples(inverse(order)), target


def flat_weight(weight, grid):
    """The weight (outputs, inputs) of a linear layer whose inputs lie in the order of `grid`."""
    if grid is None:
        return weight
    shape, order = grid
    return weight.reshape((-1,) + tuple(shape)).transpose(with_samples(order)).reshape(weight.shape)


class Layouts:
    """Gives values in the order that a layer needs. A builder adds transposed(made, axes) and reshaped(made, sizes),
    both with the samples as first axis; sizes has -1 for it."""

    def stored(self, value, order):
        """What is made, with the axes of a sample in this order."""
        if value.grid is not None:
            shape, old = value.grid
            sizes = tuple(shape[axis] for axis in old)
            images = self.transposed(self.reshaped(value.made, (-1,) + sizes), with_samples(inverse(old)))
            return self.reshaped(images, (-1,) + value.shape)
        if value.order == tuple(order):
            return value.made
        return self.transposed(value.made, with_samples(value.order.index(axis) for axis in order))

    def canonical(self, value):
        return self.stored(value, plain(len(value.shape)))

    def channels_last(self, value):
        return self.stored(value, last(len(value.shape)))

    def alike(self, values):
        """-> (what is made of each, the Value whose order all have)."""
        first = values[0]
        if all(value.grid == first.grid and value.order == first.order for value in values):
            return [value.made for value in values], first
        order = first.order if all(value.grid is None for value in values) else plain(len(first.shape))
        return [self.stored(value, order) for value in values], Value(None, first.shape, order)

    # Kinds that are only about axes.
    def identity(self, call, x):
        return x

    def transpose(self, call, x):
        a, b = call["settings"]["axes"]
        places = list(plain(len(x.shape)))
        places[a], places[b] = places[b], places[a]
        return Value(x.made, call["shape"], [places[axis] for axis in x.order])

    def flatten(self, call, x):
        if len(x.shape) == 1:
            return x
        grid = None if x.order == plain(len(x.shape)) else (x.shape, x.order)
        return Value(self.reshaped(x.made, (-1,) + tuple(call["shape"])), call["shape"], grid=grid)
