"""The workloads' networks in Chainer. Links have the names that all drivers use for their weights
(lab/docs/workloads.md); weight_name turns Chainer's own names of parameters into them. Chainer's layouts are those of
PyTorch.

Each class takes `classes`, `sizes` (C, H, W of one sample), `drop`: a function of a layer's probability that gives the
one to use (the gate makes every one 0), and `eps` of its normalisation layers.
"""
import chainer
import chainer.functions as F
import chainer.links as L

PARAMETERS = {"W": "weight", "b": "bias", "gamma": "weight", "beta": "bias", "avg_mean": "running_mean",
              "avg_var": "running_var"}


def weight_name(path):
    """'/layer1/0/conv1/W' -> 'layer1.0.conv1.weight'; None for what has no counterpart (a counter)."""
    *links, last = path.strip("/").split("/")
    return ".".join(links + [PARAMETERS[last]]) if last in PARAMETERS else None


def pool(x, size=2, stride=2, pad=0):
    # cover_all, Chainer's default, would add windows that reach over the edge.
    return F.max_pooling_2d(x, size, stride=stride, pad=pad, cover_all=False)


class LeNet(chainer.Chain):
    def __init__(self, classes, sizes, drop, eps):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(1, 6, 5, pad=2)
            self.conv2 = L.Convolution2D(6, 16, 5)
            self.fc1 = L.Linear(16 * 5 * 5, 120)
            self.fc2 = L.Linear(120, 84)
            self.fc3 = L.Linear(84, classes)

    def forward(self, x):
        x = pool(F.relu(self.conv1(x)))
        x = pool(F.relu(self.conv2(x)))
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class MnistCnn(chainer.Chain):
    def __init__(self, classes, sizes, drop, eps):
        super().__init__()
        self.drop = drop
        with self.init_scope():
            self.conv1 = L.Convolution2D(1, 32, 3)
            self.conv2 = L.Convolution2D(32, 64, 3)
            self.fc1 = L.Linear(64 * 12 * 12, 128)
            self.fc2 = L.Linear(128, classes)

    def forward(self, x):
        x = F.dropout(pool(F.relu(self.conv2(F.relu(self.conv1(x))))), self.drop(0.25))
        return self.fc2(F.dropout(F.relu(self.fc1(x)), self.drop(0.5)))


class CifarCnn(chainer.Chain):
    """Pairs of convolutions, a pool and dropout after each pair, then two dense layers."""

    def __init__(self, pairs, dense, classes, drop):
        super().__init__()
        self.drop, self.pairs, before = drop, pairs, 3
        with self.init_scope():
            for number, (channels, _) in enumerate(pairs):
                setattr(self, "conv%d" % (2 * number + 1), L.Convolution2D(before, channels, 3, pad=1))
                setattr(self, "conv%d" % (2 * number + 2), L.Convolution2D(channels, channels, 3, pad=1))
                before = channels
            side = 32 >> len(pairs)
            self.fc1 = L.Linear(before * side * side, dense)
            self.fc2 = L.Linear(dense, classes)

    def forward(self, x):
        for number, (_, probability) in enumerate(self.pairs):
            x = F.relu(self["conv%d" % (2 * number + 1)](x))
            x = F.relu(self["conv%d" % (2 * number + 2)](x))
            x = F.dropout(pool(x), self.drop(probability))
        return self.fc2(F.dropout(F.relu(self.fc1(x)), self.drop(0.5)))


class Cifar10Cnn(CifarCnn):
    def __init__(self, classes, sizes, drop, eps):
        super().__init__(((32, 0.25), (64, 0.25)), 512, classes, drop)


class Cifar100Cnn(CifarCnn):
    def __init__(self, classes, sizes, drop, eps):
        super().__init__(((128, 0.1), (256, 0.25), (512, 0.5)), 1024, classes, drop)


class SvhnCnn(chainer.Chain):
    CHANNELS = (48, 64, 128, 160, 192, 192, 192, 192)

    def __init__(self, classes, sizes, drop, eps):
        super().__init__()
        self.drop, before = drop, 3
        with self.init_scope():
            for number, channels in enumerate(self.CHANNELS, 1):
                setattr(self, "conv%d" % number, L.Convolution2D(before, channels, 3, pad=1))
                before = channels
            self.fc1 = L.Linear(192 * 2 * 2, 512)
            self.fc2 = L.Linear(512, classes)

    def forward(self, x):
        for number in range(1, len(self.CHANNELS) + 1):
            x = F.relu(self["conv%d" % number](x))
            if number % 2 == 1:
                x = pool(x)
            else:  # stride 1 keeps the size: of the windows of a padded image, those that begin inside it
                x = pool(x, 2, stride=1, pad=1)[:, :, 1:, 1:]
            x = F.dropout(x, self.drop(0.2))
        return self.fc2(F.dropout(F.relu(self.fc1(x)), self.drop(0.5)))


class BasicBlock(chainer.Chain):
    def __init__(self, before, channels, stride, eps):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(before, channels, 3, stride=stride, pad=1, nobias=True)
            self.bn1 = L.BatchNormalization(channels, eps=eps)
            self.conv2 = L.Convolution2D(channels, channels, 3, pad=1, nobias=True)
            self.bn2 = L.BatchNormalization(channels, eps=eps)
            if stride != 1 or before != channels:
                self.downsample = chainer.ChainList(
                    L.Convolution2D(before, channels, 1, stride=stride, nobias=True),
                    L.BatchNormalization(channels, eps=eps))
        self.narrows = stride != 1 or before != channels

    def forward(self, x):
        kept = self.downsample[1](self.downsample[0](x)) if self.narrows else x
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + kept)


class ResNet18(chainer.Chain):
    def __init__(self, classes, sizes, drop, eps):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 64, 7, stride=2, pad=3, nobias=True)
            self.bn1 = L.BatchNormalization(64, eps=eps)
            before = 64
            for number, channels in enumerate((64, 128, 256, 512), 1):
                setattr(self, "layer%d" % number, chainer.ChainList(
                    BasicBlock(before, channels, 1 if number == 1 else 2, eps), BasicBlock(channels, channels, 1, eps)))
                before = channels
            self.fc = L.Linear(512, classes)

    def forward(self, x):
        x = pool(F.relu(self.bn1(self.conv1(x))), 3, stride=2, pad=1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in layer:
                x = block(x)
        return self.fc(F.mean(x, axis=(2, 3)))


class Numbered(chainer.Chain):
    """Links by their place in PyTorch's sequence, where layers without weights have places too."""

    def __init__(self, links):
        super().__init__()
        with self.init_scope():
            for place, link in links.items():
                setattr(self, str(place), link)


class Vgg16(chainer.Chain):
    GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, convolutions

    def __init__(self, classes, sizes, drop, eps):
        super().__init__()
        self.drop, links, self.plan, before, place = drop, {}, [], 3, 0
        for channels, convolutions in self.GROUPS:
            for _ in range(convolutions):
                links[place] = L.Convolution2D(before, channels, 3, pad=1)
                self.plan.append(str(place))
                before, place = channels, place + 2  # the convolution and its ReLU
            self.plan.append("pool")
            place += 1
        with self.init_scope():
            self.features = Numbered(links)
            self.classifier = Numbered({
                0: L.Linear(512 * (sizes[1] // 32) * (sizes[2] // 32), 4096), 3: L.Linear(4096, 4096),
                6: L.Linear(4096, classes)})

    def forward(self, x):
        for step in self.plan:
            x = pool(x) if step == "pool" else F.relu(self.features[step](x))
        x = F.dropout(F.relu(self.classifier["0"](x)), self.drop(0.5))
        x = F.dropout(F.relu(self.classifier["3"](x)), self.drop(0.5))
        return self.classifier["6"](x)


MODELS = {
    "lenet": LeNet,
    "mnist_cnn": MnistCnn,
    "cifar10_cnn": Cifar10Cnn,
    "cifar100_cnn": Cifar100Cnn,
    "svhn_cnn": SvhnCnn,
    "resnet18": ResNet18,
    "vgg16": Vgg16,
}


def make(name, classes, sizes, dropout, eps):
    """The network by its workload's name. dropout false: every probability is 0."""
    return MODELS[name](classes, sizes, (lambda p: p) if dropout else (lambda p: 0.0), eps)
