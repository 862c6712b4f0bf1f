"""The zoo's models in PyTorch, with their names of parameters. Dropout is left out: it is 0 in what is compared."""
import torch.nn as nn
import torch.nn.functional as F


class Mlp(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, classes)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class LeNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class MnistCnn(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class PairsCnn(nn.Module):
    """Pairs of convolutions that keep the size, a pool after each pair, two dense layers."""

    def __init__(self, channels, units, classes):
        super().__init__()
        widths = [3] + [c for c in channels for _ in range(2)]
        for i, (a, b) in enumerate(zip(widths, widths[1:]), 1):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, 3, padding=1))
        self.pairs = len(channels)
        side = 32 >> self.pairs
        self.fc1, self.fc2 = nn.Linear(channels[-1] * side * side, units), nn.Linear(units, classes)

    def forward(self, x):
        for i in range(1, 2 * self.pairs, 2):
            x = F.relu(getattr(self, f"conv{i}")(x))
            x = F.max_pool2d(F.relu(getattr(self, f"conv{i + 1}")(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class SvhnCnn(nn.Module):
    def __init__(self, classes):
        super().__init__()
        widths = [3, 48, 64, 128, 160, 192, 192, 192, 192]
        for i, (a, b) in enumerate(zip(widths, widths[1:]), 1):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, 3, padding=1))
        self.fc1, self.fc2 = nn.Linear(768, 512), nn.Linear(512, classes)

    def forward(self, x):
        for i in range(1, 9):
            x = F.relu(getattr(self, f"conv{i}")(x))
            if i % 2 == 1:
                x = F.max_pool2d(x, 2)
            else:  # keeps the size
                x = F.max_pool2d(x, 2, stride=1, padding=1)[:, :, 1:, 1:]
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class AlexNet(nn.Module):
    """Layers and names of torchvision's."""

    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2))
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Identity(), nn.Linear(9216, 4096), nn.ReLU(), nn.Identity(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


MODELS = {
    "mlp": Mlp,
    "lenet": LeNet,
    "mnist_cnn": MnistCnn,
    "cifar10_cnn": lambda classes: PairsCnn([32, 64], 512, classes),
    "cifar100_cnn": lambda classes: PairsCnn([128, 256, 512], 1024, classes),
    "svhn_cnn": SvhnCnn,
    "alexnet": AlexNet,
}
