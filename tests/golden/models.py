"""The zoo's models in PyTorch, with their names of parameters. Dropout is left out: it is 0 in what is compared."""
import math

import torch
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


class BasicBlock(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        changes = stride != 1 or a != b
        self.downsample = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)) if changes else None

    def forward(self, x):
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + (self.downsample(x) if self.downsample else x))


class ResNet18(nn.Module):
    """Layers and names of torchvision's."""

    def __init__(self, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        widths = [64, 64, 128, 256, 512]
        for i, (a, b) in enumerate(zip(widths, widths[1:]), 1):
            setattr(self, f"layer{i}", nn.Sequential(BasicBlock(a, b, 1 if i == 1 else 2), BasicBlock(b, b, 1)))
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(x.mean((2, 3)))


class Vgg16(nn.Module):
    """Layers and names of torchvision's; the last grid is flattened as it is."""

    def __init__(self, classes, shape):
        super().__init__()
        layers, channels = [], shape[0]
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * (shape[1] // 32) * (shape[2] // 32), 4096), nn.ReLU(), nn.Identity(),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Identity(), nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


# Each a function of the number of classes and the sizes of one sample.
class ImdbLstm(nn.Module):
    """Tokens (n, length) and how many of them are true (n)."""

    def __init__(self, words, outputs):
        super().__init__()
        self.embedding, self.lstm, self.fc = nn.Embedding(words, 32), nn.LSTM(32, 100, batch_first=True), nn.Linear(100, outputs)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.fc(h[0])


class PtbLstm(nn.Module):
    def __init__(self, words, outputs):
        super().__init__()
        self.embedding = nn.Embedding(words, 128)
        self.lstm1, self.lstm2 = nn.LSTM(128, 1024, batch_first=True), nn.LSTM(1024, 1024, batch_first=True)
        self.fc = nn.Linear(1024, outputs)

    def forward(self, tokens, states):
        h, first = self.lstm1(self.embedding(tokens), states[0])
        h, second = self.lstm2(h, states[1])
        return self.fc(h), [first, second]


class TrueStepNorm(nn.BatchNorm1d):
    """Batch norm of the true steps alone: x (n, steps, …, channels), mask (n, steps)."""

    def forward(self, x, mask):
        out = torch.zeros_like(x)
        out[mask] = super().forward(x[mask].flatten(0, -2)).view_as(x[mask])
        return out


class DeepSpeech2(nn.Module):
    """Features (n, frames, 161) and how many frames are true (n) -> logits (n, steps, labels) and true steps (n)."""

    def __init__(self, layers, hidden, labels):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5))
        self.norm1 = TrueStepNorm(32)
        self.conv2 = nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5))
        self.norm2 = TrueStepNorm(32)
        self.layers = layers
        for i in range(1, layers + 1):
            if i > 1:
                setattr(self, f"rnn{i}_norm", TrueStepNorm(hidden))
            setattr(self, f"rnn{i}", nn.GRU(32 * 41 if i == 1 else hidden, hidden, bidirectional=True, batch_first=True))
        self.fc_norm, self.fc = TrueStepNorm(hidden), nn.Linear(hidden, labels, bias=False)

    def forward(self, features, lengths):
        frames = torch.arange(features.shape[1])
        x = features * (frames < lengths[:, None])[:, :, None]
        x = self.conv1(x.transpose(1, 2)[:, None])
        lengths = torch.div(lengths - 1, 2, rounding_mode="floor") + 1
        steps = x.shape[3]
        mask = torch.arange(steps) < lengths[:, None]

        def clipped(norm, x):  # (n, channels, bins, steps)
            return F.hardtanh(norm(x.permute(0, 3, 2, 1), mask), 0, 20).permute(0, 3, 2, 1) * mask[:, None, None]

        x = clipped(self.norm1, x)
        x = clipped(self.norm2, self.conv2(x))
        x = x.flatten(1, 2).transpose(1, 2)
        for i in range(1, self.layers + 1):
            if i > 1:
                x = getattr(self, f"rnn{i}_norm")(x, mask)
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            x, _ = nn.utils.rnn.pad_packed_sequence(getattr(self, f"rnn{i}")(packed)[0], batch_first=True, total_length=steps)
            x = x.unflatten(2, (2, -1)).sum(2)
        return self.fc(self.fc_norm(x, mask)), lengths
class Seq2Seq(nn.Module):
    """A source (n, s), how many of its tokens are true (n), and what stands before each target (n, t)."""

    def __init__(self, words, outputs, hidden):
        super().__init__()
        self.encoder_embedding, self.encoder = nn.Embedding(words, hidden), nn.LSTM(hidden, hidden, batch_first=True)
        self.decoder_embedding, self.decoder = nn.Embedding(outputs, hidden), nn.LSTM(hidden, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, outputs)

    def forward(self, source, lengths, before):
        packed = nn.utils.rnn.pack_padded_sequence(self.encoder_embedding(source), lengths, batch_first=True, enforce_sorted=False)
        _, state = self.encoder(packed)
        return self.fc(self.decoder(self.decoder_embedding(before), state)[0])


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query_layer, self.memory_layer = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, query, memory, lengths):
        energies = self.v(torch.tanh(self.query_layer(query)[:, :, None] + self.memory_layer(memory)[:, None]))[..., 0]
        beyond = torch.arange(memory.shape[1])[None] >= lengths[:, None]
        return torch.softmax(energies.masked_fill(beyond[:, None], -math.inf), 2) @ memory


class GnmtEncoder(nn.Module):
    def __init__(self, words, hidden, layers):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(words, hidden), layers
        for i in range(layers):
            width = 2 * hidden if i == 1 else hidden
            setattr(self, f"lstm{i}", nn.LSTM(width, hidden, batch_first=True, bidirectional=i == 0))

    def forward(self, source, lengths):
        x = nn.utils.rnn.pack_padded_sequence(self.embedding(source), lengths, batch_first=True, enforce_sorted=False)
        x, _ = nn.utils.rnn.pad_packed_sequence(self.lstm0(x)[0], batch_first=True, total_length=source.shape[1])
        x = self.lstm1(x)[0]
        for i in range(2, self.layers):
            x = getattr(self, f"lstm{i}")(x)[0] + x
        return x


class GnmtDecoder(nn.Module):
    def __init__(self, words, hidden, layers):
        super().__init__()
        self.embedding, self.attention, self.layers = nn.Embedding(words, hidden), Attention(hidden), layers
        for i in range(layers):
            setattr(self, f"lstm{i}", nn.LSTM(2 * hidden if i else hidden, hidden, batch_first=True))
        self.fc = nn.Linear(hidden, words)

    def forward(self, before, memory, lengths):
        x = self.lstm0(self.embedding(before))[0]
        context = self.attention(x, memory, lengths)
        for i in range(1, self.layers):
            y = getattr(self, f"lstm{i}")(torch.cat([x, context], 2))[0]
            x = x + y if i >= 2 else y
        return self.fc(x)


class Gnmt(nn.Module):
    def __init__(self, words, outputs, hidden, layers):
        super().__init__()
        self.encoder, self.decoder = GnmtEncoder(words, hidden, layers), GnmtDecoder(outputs, hidden, layers)

    def forward(self, source, lengths, before):
        return self.decoder(before, self.encoder(source, lengths), lengths)
class TimeConv(nn.Module):
    def __init__(self, inputs, outputs, kernel):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2), nn.BatchNorm1d(outputs)

    def forward(self, x):
        return self.norm(self.conv(x))


class LocationAttention(nn.Module):
    def __init__(self, query, memory, width, filters, kernel):
        super().__init__()
        self.query_layer, self.memory_layer = nn.Linear(query, width, bias=False), nn.Linear(memory, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)
        self.location_conv = nn.Conv1d(2, filters, kernel, padding=kernel // 2, bias=False)
        self.location_dense = nn.Linear(filters, width, bias=False)

    def forward(self, query, memory, keys, before, total, padding):
        places = self.location_dense(self.location_conv(torch.stack([before, total], 1)).transpose(1, 2))
        energies = self.v(torch.tanh(self.query_layer(query)[:, None] + places + keys))[:, :, 0]
        weights = energies.masked_fill(padding, -math.inf).softmax(1)
        return (weights[:, None] @ memory)[:, 0], weights


class Tacotron2Decoder(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.prenet1 = nn.Linear(o["mels"], o["prenet"], bias=False)
        self.prenet2 = nn.Linear(o["prenet"], o["prenet"], bias=False)
        self.attention_rnn = nn.LSTMCell(o["prenet"] + o["embedding"], o["attention_rnn"])
        self.attention = LocationAttention(o["attention_rnn"], o["embedding"], o["attention"], o["filters"],
                                           o["location_kernel"])
        self.decoder_rnn = nn.LSTMCell(o["attention_rnn"] + o["embedding"], o["decoder_rnn"])
        self.projection = nn.Linear(o["decoder_rnn"] + o["embedding"], o["mels"])
        self.gate = nn.Linear(o["decoder_rnn"] + o["embedding"], 1)
        self.sizes = o["attention_rnn"], o["decoder_rnn"]

    def forward(self, memory, padding, mels):
        n = len(mels)
        frames = F.pad(mels[:, :-1], (0, 0, 1, 0))  # each frame is made from the one before
        frames = F.relu(self.prenet2(F.relu(self.prenet1(frames))))
        keys = self.attention.memory_layer(memory)
        first, second = ([memory.new_zeros(n, size)] * 2 for size in self.sizes)
        context, weights, total = memory.new_zeros(n, memory.shape[2]), memory.new_zeros(padding.shape), 0
        made, gates = [], []
        for frame in frames.unbind(1):
            first = self.attention_rnn(torch.cat([frame, context], 1), first)
            total = total + weights
            context, weights = self.attention(first[0], memory, keys, weights, total, padding)
            second = self.decoder_rnn(torch.cat([first[0], context], 1), second)
            both = torch.cat([second[0], context], 1)
            made.append(self.projection(both))
            gates.append(self.gate(both)[:, 0])
        return torch.stack(made, 1), torch.stack(gates, 1)


class Tacotron2(nn.Module):
    """Characters (n, length), how many are true (n), frames (n, frames, mels) and how many are (n)."""

    def __init__(self, symbols, o):
        super().__init__()
        width, post = o["embedding"], [o["mels"]] + [o["postnet"]] * (o["postnet_layers"] - 1) + [o["mels"]]
        self.embedding = nn.Embedding(symbols, width)
        self.encoder = nn.ModuleList(TimeConv(width, width, o["encoder_kernel"]) for _ in range(o["encoder_layers"]))
        self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.decoder = Tacotron2Decoder(o)
        self.postnet = nn.ModuleList(TimeConv(a, b, o["postnet_kernel"]) for a, b in zip(post, post[1:]))

    def forward(self, tokens, lengths, mels, frames):
        padding = torch.arange(tokens.shape[1]) >= lengths[:, None]
        x = self.embedding(tokens).transpose(1, 2).masked_fill(padding[:, None], 0)
        for layer in self.encoder:
            x = F.relu(layer(x)).masked_fill(padding[:, None], 0)
        packed = nn.utils.rnn.pack_padded_sequence(x.transpose(1, 2), lengths, batch_first=True, enforce_sorted=False)
        memory, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1])
        made, gates = self.decoder(memory, padding, mels)
        beyond = (torch.arange(mels.shape[1]) >= frames[:, None])[:, None]
        before = made.transpose(1, 2).masked_fill(beyond, 0)
        x = before
        for i, layer in enumerate(self.postnet):
            x = layer(x)
            x = (torch.tanh(x) if i + 1 < len(self.postnet) else x).masked_fill(beyond, 0)
        return made, (before + x).transpose(1, 2), gates


MODELS = {
    "mlp": lambda classes, shape: Mlp(classes),
    "lenet": lambda classes, shape: LeNet(classes),
    "mnist_cnn": lambda classes, shape: MnistCnn(classes),
    "cifar10_cnn": lambda classes, shape: PairsCnn([32, 64], 512, classes),
    "cifar100_cnn": lambda classes, shape: PairsCnn([128, 256, 512], 1024, classes),
    "svhn_cnn": lambda classes, shape: SvhnCnn(classes),
    "alexnet": lambda classes, shape: AlexNet(classes),
    "resnet18": lambda classes, shape: ResNet18(classes),
    "vgg16": Vgg16,
}
