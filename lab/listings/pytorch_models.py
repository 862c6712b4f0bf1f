"""The workloads' networks in PyTorch, with the names that all drivers use for their weights (lab/docs/workloads.md).

Each class takes `classes`, `sizes` (C, H, W of one sample) and `drop`: a function that gives the dropout layer of a
probability, so that the gate can make every probability 0.
"""
import torch
from torch import nn
from torch.nn import functional as F


class LeNet(nn.Module):
    def __init__(self, classes, sizes, drop):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))


class MnistCnn(nn.Module):
    def __init__(self, classes, sizes, drop):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.drop1 = drop(0.25)
        self.fc1 = nn.Linear(64 * 12 * 12, 128)
        self.drop2 = drop(0.5)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.drop1(F.max_pool2d(x, 2))
        x = self.drop2(F.relu(self.fc1(torch.flatten(x, 1))))
        return self.fc2(x)


class Cifar10Cnn(nn.Module):
    def __init__(self, classes, sizes, drop):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 32, 3, padding=1)
        self.drop1 = drop(0.25)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv4 = nn.Conv2d(64, 64, 3, padding=1)
        self.drop2 = drop(0.25)
        self.fc1 = nn.Linear(64 * 8 * 8, 512)
        self.drop3 = drop(0.5)
        self.fc2 = nn.Linear(512, classes)

    def forward(self, x):
        x = self.drop1(F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2))
        x = self.drop2(F.max_pool2d(F.relu(self.conv4(F.relu(self.conv3(x)))), 2))
        return self.fc2(self.drop3(F.relu(self.fc1(torch.flatten(x, 1)))))


class Cifar100Cnn(nn.Module):
    def __init__(self, classes, sizes, drop):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 128, 3, padding=1)
        self.conv2 = nn.Conv2d(128, 128, 3, padding=1)
        self.drop1 = drop(0.1)
        self.conv3 = nn.Conv2d(128, 256, 3, padding=1)
        self.conv4 = nn.Conv2d(256, 256, 3, padding=1)
        self.drop2 = drop(0.25)
        self.conv5 = nn.Conv2d(256, 512, 3, padding=1)
        self.conv6 = nn.Conv2d(512, 512, 3, padding=1)
        self.drop3 = drop(0.5)
        self.fc1 = nn.Linear(512 * 4 * 4, 1024)
        self.drop4 = drop(0.5)
        self.fc2 = nn.Linear(1024, classes)

    def forward(self, x):
        x = self.drop1(F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2))
        x = self.drop2(F.max_pool2d(F.relu(self.conv4(F.relu(self.conv3(x)))), 2))
        x = self.drop3(F.max_pool2d(F.relu(self.conv6(F.relu(self.conv5(x)))), 2))
        return self.fc2(self.drop4(F.relu(self.fc1(torch.flatten(x, 1)))))


class SvhnCnn(nn.Module):
    CHANNELS = (48, 64, 128, 160, 192, 192, 192, 192)

    def __init__(self, classes, sizes, drop):
        super().__init__()
        before = 3
        for number, channels in enumerate(self.CHANNELS, 1):
            self.add_module("conv%d" % number, nn.Conv2d(before, channels, 3, padding=1))
            self.add_module("drop%d" % number, drop(0.2))
            before = channels
        self.fc1 = nn.Linear(192 * 2 * 2, 512)
        self.drop9 = drop(0.5)
        self.fc2 = nn.Linear(512, classes)

    def forward(self, x):
        for number in range(1, len(self.CHANNELS) + 1):
            x = F.relu(getattr(self, "conv%d" % number)(x))
            if number % 2 == 1:
                x = F.max_pool2d(x, 2)
            else:  # stride 1 keeps the size: of the windows of a padded image, those that begin inside it
                x = F.max_pool2d(x, 2, stride=1, padding=1)[:, :, 1:, 1:]
            x = getattr(self, "drop%d" % number)(x)
        return self.fc2(self.drop9(F.relu(self.fc1(torch.flatten(x, 1)))))


class BasicBlock(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or before != channels:
            self.downsample = nn.Sequential(nn.Conv2d(before, channels, 1, stride=stride, bias=False),
                                            nn.BatchNorm2d(channels))

    def forward(self, x):
        kept = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + kept)


class ResNet18(nn.Module):
    def __init__(self, classes, sizes, drop):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Vgg16(nn.Module):
    GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, convolutions

    def __init__(self, classes, sizes, drop):
        super().__init__()
        layers, before = [], 3
        for channels, convolutions in self.GROUPS:
            for _ in range(convolutions):
                layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(inplace=True)]
                before = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * (sizes[1] // 32) * (sizes[2] // 32), 4096), nn.ReLU(inplace=True), drop(0.5),
            nn.Linear(4096, 4096), nn.ReLU(inplace=True), drop(0.5), nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


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
