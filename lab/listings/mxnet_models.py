"""The workloads' networks in MXNet's Gluon, as HybridBlocks. Blocks have the names that all drivers use for their
weights (lab/docs/workloads.md); weight_name turns Gluon's own names of parameters into them. Gluon's layouts are those
of PyTorch.

Each class takes `classes`, `sizes` (C, H, W of one sample) and `drop`: a function that gives the dropout layer of a
probability, so that the gate can make every probability 0. Gluon's normalisation has PyTorch's eps and momentum.
"""
from mxnet.gluon import nn

PARAMETERS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "running_mean": "running_mean",
              "running_var": "running_var"}


def weight_name(path):
    """'layer1.0.bn1.gamma' -> 'layer1.0.bn1.weight'."""
    links, _, last = path.rpartition(".")
    return links + "." + PARAMETERS[last]


def conv(before, channels, size, stride=1, pad=0, bias=True):
    return nn.Conv2D(channels, size, strides=stride, padding=pad, in_channels=before, use_bias=bias)


def dense(before, units):
    return nn.Dense(units, in_units=before)  # flattens what has more than two axes


class Numbered(nn.HybridBlock):
    """Blocks by their place in PyTorch's sequence, one after the other; layers without weights have places too."""

    def __init__(self, blocks):
        super().__init__()
        for place, block in enumerate(blocks):
            self.register_child(block, str(place))

    def hybrid_forward(self, F, x):
        for block in self._children.values():
            x = block(x)
        return x


class LeNet(nn.HybridBlock):
    def __init__(self, classes, sizes, drop):
        super().__init__()
        self.conv1 = conv(1, 6, 5, pad=2)
        self.conv2 = conv(6, 16, 5)
        self.fc1 = dense(16 * 5 * 5, 120)
        self.fc2 = dense(120, 84)
        self.fc3 = dense(84, classes)
        self.pool = nn.MaxPool2D(2)

    def hybrid_forward(self, F, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class MnistCnn(nn.HybridBlock):
    def __init__(self, classes, sizes, drop):
        super().__init__()
        self.conv1 = conv(1, 32, 3)
        self.conv2 = conv(32, 64, 3)
        self.pool = nn.MaxPool2D(2)
        self.drop1 = drop(0.25)
        self.fc1 = dense(64 * 12 * 12, 128)
        self.drop2 = drop(0.5)
        self.fc2 = dense(128, classes)

    def hybrid_forward(self, F, x):
        x = self.drop1(self.pool(F.relu(self.conv2(F.relu(self.conv1(x))))))
        return self.fc2(self.drop2(F.relu(self.fc1(x))))


class CifarCnn(nn.HybridBlock):
    """Pairs of convolutions, a pool and dropout after each pair, then two dense layers."""

    def __init__(self, pairs, units, classes, drop):
        super().__init__()
        self.pairs, before = len(pairs), 3
        self.pool = nn.MaxPool2D(2)
        for number, (channels, probability) in enumerate(pairs, 1):
            setattr(self, "conv%d" % (2 * number - 1), conv(before, channels, 3, pad=1))
            setattr(self, "conv%d" % (2 * number), conv(channels, channels, 3, pad=1))
            setattr(self, "drop%d" % number, drop(probability))
            before = channels
        side = 32 >> self.pairs
        self.fc1 = dense(before * side * side, units)
        self.drop = drop(0.5)
        self.fc2 = dense(units, classes)

    def hybrid_forward(self, F, x):
        for number in range(1, self.pairs + 1):
            x = F.relu(getattr(self, "conv%d" % (2 * number - 1))(x))
            x = F.relu(getattr(self, "conv%d" % (2 * number))(x))
            x = getattr(self, "drop%d" % number)(self.pool(x))
        return self.fc2(self.drop(F.relu(self.fc1(x))))


class Cifar10Cnn(CifarCnn):
    def __init__(self, classes, sizes, drop):
        super().__init__(((32, 0.25), (64, 0.25)), 512, classes, drop)


class Cifar100Cnn(CifarCnn):
    def __init__(self, classes, sizes, drop):
        super().__init__(((128, 0.1), (256, 0.25), (512, 0.5)), 1024, classes, drop)


class SvhnCnn(nn.HybridBlock):
    CHANNELS = (48, 64, 128, 160, 192, 192, 192, 192)

    def __init__(self, classes, sizes, drop):
        super().__init__()
        before = 3
        for number, channels in enumerate(self.CHANNELS, 1):
            setattr(self, "conv%d" % number, conv(before, channels, 3, pad=1))
            setattr(self, "drop%d" % number, drop(0.2))
            before = channels
        self.pool, self.keep = nn.MaxPool2D(2), nn.MaxPool2D(2, strides=1, padding=1)
        self.fc1 = dense(192 * 2 * 2, 512)
        self.drop9 = drop(0.5)
        self.fc2 = dense(512, classes)

    def hybrid_forward(self, F, x):
        for number in range(1, len(self.CHANNELS) + 1):
            x = F.relu(getattr(self, "conv%d" % number)(x))
            if number % 2 == 1:
                x = self.pool(x)
            else:  # stride 1 keeps the size: of the windows of a padded image, those that begin inside it
                x = F.slice(self.keep(x), begin=(None, None, 1, 1), end=(None, None, None, None))
            x = getattr(self, "drop%d" % number)(x)
        return self.fc2(self.drop9(F.relu(self.fc1(x))))


class BasicBlock(nn.HybridBlock):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = conv(before, channels, 3, stride=stride, pad=1, bias=False)
        self.bn1 = nn.BatchNorm(in_channels=channels)
        self.conv2 = conv(channels, channels, 3, pad=1, bias=False)
        self.bn2 = nn.BatchNorm(in_channels=channels)
        self.downsample = None
        if stride != 1 or before != channels:
            self.downsample = Numbered((conv(before, channels, 1, stride=stride, bias=False),
                                        nn.BatchNorm(in_channels=channels)))

    def hybrid_forward(self, F, x):
        kept = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + kept)


class ResNet18(nn.HybridBlock):
    def __init__(self, classes, sizes, drop):
        super().__init__()
        self.conv1 = conv(3, 64, 7, stride=2, pad=3, bias=False)
        self.bn1 = nn.BatchNorm(in_channels=64)
        self.pool = nn.MaxPool2D(3, strides=2, padding=1)
        before = 64
        for number, channels in enumerate((64, 128, 256, 512), 1):
            setattr(self, "layer%d" % number, Numbered((BasicBlock(before, channels, 1 if number == 1 else 2),
                                                        BasicBlock(channels, channels, 1))))
            before = channels
        self.mean = nn.GlobalAvgPool2D()
        self.fc = dense(512, classes)

    def hybrid_forward(self, F, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        return self.fc(self.mean(self.layer4(self.layer3(self.layer2(self.layer1(x))))))


class Vgg16(nn.HybridBlock):
    GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, convolutions

    def __init__(self, classes, sizes, drop):
        super().__init__()
        layers, before = [], 3
        for channels, convolutions in self.GROUPS:
            for _ in range(convolutions):
                layers += [conv(before, channels, 3, pad=1), nn.Activation("relu")]
                before = channels
            layers.append(nn.MaxPool2D(2))
        self.features = Numbered(layers)
        self.classifier = Numbered((
            dense(512 * (sizes[1] // 32) * (sizes[2] // 32), 4096), nn.Activation("relu"), drop(0.5),
            dense(4096, 4096), nn.Activation("relu"), drop(0.5), dense(4096, classes)))

    def hybrid_forward(self, F, x):
        return self.classifier(self.features(x))


MODELS = {
    "lenet": LeNet,
    "mnist_cnn": MnistCnn,
    "cifar10_cnn": Cifar10Cnn,
    "cifar100_cnn": Cifar100Cnn,
    "svhn_cnn": SvhnCnn,
    "resnet18": ResNet18,
    "vgg16": Vgg16,
}


def make(name, classes, sizes, dropout):
    """The network by its workload's name. dropout false: every probability is 0."""
    return MODELS[name](classes, sizes, lambda p: nn.Dropout(p if dropout else 0.0))
