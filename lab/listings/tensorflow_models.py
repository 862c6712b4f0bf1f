"""The networks of the TensorFlow and Keras drivers: Keras models of images (N, H, W, C), layers with canonical names.

Each function takes the sizes (C, H, W) of one image, the number of classes, and `drop`: a function that gives the
dropout layer of a probability, so that the gate can make every probability 0. `weights_of` lists a model's variables by
canonical name; `to_native` brings a canonical tensor (PyTorch's layout) into the variable's.
"""
import keras
import numpy as np
from keras import layers


def image(sizes):
    channels, height, width = sizes
    return keras.Input((height, width, channels))


def conv(name, channels, kernel, padding="same", activation="relu"):
    return layers.Conv2D(channels, kernel, padding=padding, activation=activation, name=name)


def logits(name, classes):
    """The last layer's numbers are f32 at least: a softmax of bf16 numbers would be too coarse."""
    dtype = "float64" if keras.config.dtype_policy().name == "float64" else "float32"
    return layers.Dense(classes, name=name, dtype=dtype)


def lenet(sizes, classes, drop):
    return keras.Sequential([
        image(sizes),
        conv("conv1", 6, 5), layers.MaxPooling2D(),
        conv("conv2", 16, 5, padding="valid"), layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(120, activation="relu", name="fc1"),
        layers.Dense(84, activation="relu", name="fc2"),
        logits("fc3", classes),
    ])


def mnist_cnn(sizes, classes, drop):
    return keras.Sequential([
        image(sizes),
        conv("conv1", 32, 3, padding="valid"),
        conv("conv2", 64, 3, padding="valid"),
        layers.MaxPooling2D(), drop(0.25),
        layers.Flatten(),
        layers.Dense(128, activation="relu", name="fc1"), drop(0.5),
        logits("fc2", classes),
    ])


def cifar10_cnn(sizes, classes, drop):
    return keras.Sequential([
        image(sizes),
        conv("conv1", 32, 3), conv("conv2", 32, 3), layers.MaxPooling2D(), drop(0.25),
        conv("conv3", 64, 3), conv("conv4", 64, 3), layers.MaxPooling2D(), drop(0.25),
        layers.Flatten(),
        layers.Dense(512, activation="relu", name="fc1"), drop(0.5),
        logits("fc2", classes),
    ])


def cifar100_cnn(sizes, classes, drop):
    return keras.Sequential([
        image(sizes),
        conv("conv1", 128, 3), conv("conv2", 128, 3), layers.MaxPooling2D(), drop(0.1),
        conv("conv3", 256, 3), conv("conv4", 256, 3), layers.MaxPooling2D(), drop(0.25),
        conv("conv5", 512, 3), conv("conv6", 512, 3), layers.MaxPooling2D(), drop(0.5),
        layers.Flatten(),
        layers.Dense(1024, activation="relu", name="fc1"), drop(0.5),
        logits("fc2", classes),
    ])


def svhn_cnn(sizes, classes, drop):
    model = keras.Sequential([image(sizes)])
    for block, channels in enumerate((48, 64, 128, 160, 192, 192, 192, 192)):
        model.add(conv("conv%d" % (block + 1), channels, 3))
        model.add(layers.MaxPooling2D(2, strides=2 - block % 2, padding="same"))
        model.add(drop(0.2))
    model.add(layers.Flatten())
    model.add(layers.Dense(512, activation="relu", name="fc1"))
    model.add(drop(0.5))
    model.add(logits("fc2", classes))
    return model


def resnet18(sizes, classes, drop):
    def convolved(x, name, norm, channels, kernel, stride=1):
        # With a stride, "same" would pad below and to the right alone; the definition pads all round.
        if stride > 1 and kernel > 1:
            x = layers.ZeroPadding2D(kernel // 2)(x)
        padding = "same" if stride == 1 else "valid"
        x = layers.Conv2D(channels, kernel, strides=stride, padding=padding, use_bias=False, name=name)(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=norm)(x)

    inputs = image(sizes)
    x = layers.ReLU()(convolved(inputs, "conv1", "bn1", 64, 7, stride=2))
    x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))  # after ReLU no number is below the padding's 0
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name = "layer%d.%d." % (stage + 1, block)
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = x
            if stride == 2:
                shortcut = convolved(x, name + "downsample.0", name + "downsample.1", channels, 1, stride)
            x = layers.ReLU()(convolved(x, name + "conv1", name + "bn1", channels, 3, stride))
            x = convolved(x, name + "conv2", name + "bn2", channels, 3)
            x = layers.ReLU()(layers.Add()([x, shortcut]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, logits("fc", classes)(x))


def vgg16(sizes, classes, drop):
    model = keras.Sequential([image(sizes)])
    index = 0
    for convolutions, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(convolutions):
            model.add(conv("features.%d" % index, channels, 3))
            index += 2  # the ReLU has a number too
        model.add(layers.MaxPooling2D())
        index += 1
    model.add(layers.Flatten())
    for index in (0, 3):
        model.add(layers.Dense(4096, activation="relu", name="classifier.%d" % index))
        model.add(drop(0.5))
    model.add(logits("classifier.6", classes))
    return model


MODELS = {"lenet": lenet, "mnist_cnn": mnist_cnn, "cifar10_cnn": cifar10_cnn, "cifar100_cnn": cifar100_cnn,
          "svhn_cnn": svhn_cnn, "resnet18": resnet18, "vgg16": vgg16}


def make(cell):
    """The Keras model of a cell, under the dtype policy in force, with Keras's own initial weights."""
    return MODELS[cell.network.name](cell.sizes, cell.classes,
                                     lambda rate: layers.Dropout(rate if cell.dropout else 0.0))


# ---------------------------------------------------------------------------------------------------------------------
# Weights


class Weight:
    """A variable of the model: its canonical name, and how its layout follows from PyTorch's."""

    def __init__(self, name, variable, grid=None):
        self.name, self.variable, self.grid = name, variable, grid
        self.trained = not name.rsplit(".", 1)[1].startswith("running_")

    def canonical_shape(self):
        shape = tuple(self.variable.shape)
        return (shape[3], shape[2], shape[0], shape[1]) if len(shape) == 4 else shape[::-1]

    def to_native(self, array):
        """PyTorch's (out, in, h, w) -> (h, w, in, out); (out, in) -> (in, out), where `in` of the first dense layer
        goes over (H, W, C) instead of (C, H, W)."""
        if array.ndim == 4:
            return array.transpose(2, 3, 1, 0)
        if self.grid is not None:
            height, width, channels = self.grid
            array = array.reshape(-1, channels, height, width).transpose(0, 2, 3, 1).reshape(array.shape)
        return array.T


def weights_of(model):
    """-> [Weight] of all variables, trained and running ones."""
    found, grid = [], None
    for layer in model.layers:
        if isinstance(layer, layers.Flatten):
            grid = tuple(layer.input.shape[1:])
        elif isinstance(layer, layers.BatchNormalization):
            found += [Weight(layer.name + ".weight", layer.gamma), Weight(layer.name + ".bias", layer.beta),
                      Weight(layer.name + ".running_mean", layer.moving_mean),
                      Weight(layer.name + ".running_var", layer.moving_variance)]
        elif isinstance(layer, (layers.Conv2D, layers.Dense)):
            is_dense = isinstance(layer, layers.Dense)
            found.append(Weight(layer.name + ".weight", layer.kernel, grid if is_dense else None))
            if layer.use_bias:
                found.append(Weight(layer.name + ".bias", layer.bias))
            grid = None if is_dense else grid
    return found


def load(model, cell):
    """Gives the model the cell's weights, if the cell has some. -> whether it has."""
    weights = weights_of(model)
    given = cell.weights({weight.name: weight.canonical_shape() for weight in weights if weight.trained})
    if given is None:
        return False
    for weight in weights:
        if weight.name in given:
            weight.variable.assign(np.ascontiguousarray(weight.to_native(given[weight.name])))
    return True
