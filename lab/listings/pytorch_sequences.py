"""Networks with loops, attention and lengths in PyTorch, which no description can say: the protocol carries each as one
call, whose kind is its name here and whose settings are its sizes. Weights have the names that all drivers use.

    network = make(cell.network)        calls it with the network's inputs in their order
"""
import torch
from torch import nn
from torch.nn import functional as F

from pytorch_network import LSTMS, BothWays


def true_steps(lengths, time):
    """(N, time), true before each sample's length."""
    return torch.arange(time, device=lengths.device) < lengths.unsqueeze(1)


class Named(nn.Module):
    """Submodules NAME0, NAME1, … in a list of their own."""

    def add(self, name, modules, first=0):
        for number, module in enumerate(modules, first):
            self.add_module("%s%d" % (name, number), module)
        return list(modules)


# ---------------------------------------------------------------------------------------------------------------------
# Deep Speech 2


class MaskedBatchNorm(nn.Module):
    """Batch norm whose statistics are of true steps alone. `axis`: that of the channels."""

    def __init__(self, channels, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x, mask, axis):
        """mask: 1 for true steps and 0 for others, of as many axes as x."""
        others = [i for i in range(x.dim()) if i != axis]
        beside = [-1 if i == axis else 1 for i in range(x.dim())]
        wide = x.float() if x.dtype == torch.bfloat16 else x
        if self.training:
            places = x.numel() // (x.shape[axis] * mask.numel())  # of a channel, for each number of the mask
            count = mask.sum() * places
            mean = (wide * mask).sum(others, keepdim=True) / count
            centred = (wide - mean) * mask
            variance = centred.square().sum(others, keepdim=True) / count
            with torch.no_grad():
                unbiased = variance * (count / (count - 1).clamp(min=1))
                self.running_mean.lerp_(mean.flatten(), self.momentum)
                self.running_var.lerp_(unbiased.flatten(), self.momentum)
        else:
            centred, variance = wide - self.running_mean.view(beside), self.running_var.view(beside)
        scale = torch.rsqrt(variance + self.eps) * self.weight.view(beside)
        return (centred * scale + self.bias.view(beside)).to(x.dtype)


class DeepSpeech2(Named):
    outputs = 1

    def __init__(self, lstm, hidden, layers, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5))
        self.norm1 = MaskedBatchNorm(32)
        self.conv2 = nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5))
        self.norm2 = MaskedBatchNorm(32)
        self.rnns = self.add("rnn", [BothWays(nn.GRU, 32 * 41 if i == 0 else hidden, hidden, 1, True, 2)
                                     for i in range(layers)], first=1)
        self.norms = []
        for i in range(2, layers + 1):
            self.norms.append(MaskedBatchNorm(hidden))
            self.add_module("rnn%d_norm" % i, self.norms[-1])
        self.fc_norm = MaskedBatchNorm(hidden)
        self.fc = nn.Linear(hidden, classes, bias=False)

    def forward(self, features, length):
        x = features * true_steps(length, features.shape[1]).unsqueeze(2)
        x = self.conv1(x.transpose(1, 2).unsqueeze(1))  # (N, 32, 81, steps)
        lengths = (length + 1).div(2, rounding_mode="floor")
        heard = true_steps(lengths, x.shape[3])
        mask = heard.to(features.dtype)
        beside, behind = mask.view(len(x), 1, 1, -1), mask.unsqueeze(2)
        x = F.hardtanh(self.norm1(x, beside, 1), 0, 20) * beside
        x = F.hardtanh(self.norm2(self.conv2(x), beside, 1), 0, 20) * beside
        x = x.flatten(1, 2).transpose(1, 2)  # (N, steps, 32 · 41)
        for i, rnn in enumerate(self.rnns):
            if i > 0:
                x = self.norms[i - 1](x, behind, 2)
            x = rnn(x, lengths, heard)[0].unflatten(2, (2, -1)).sum(2)
        return self.fc(self.fc_norm(x, behind, 2))


# ---------------------------------------------------------------------------------------------------------------------
# Translation


def last_states(lstm, x, lengths):
    """The states of an LSTM of one layer at each sample's end. lengths: on the host."""
    if type(lstm) is nn.LSTM:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return lstm(packed)[1]
    h = c = x.new_zeros(x.shape[0], lstm.hidden_size)
    true = true_steps(lengths.to(x.device), x.shape[1]).unsqueeze(2)
    for t, row in enumerate(x.unbind(1)):
        new_h, new_c = torch._VF.lstm_cell(row, (h, c), *lstm.all_weights[0])
        h, c = torch.where(true[:, t], new_h, h), torch.where(true[:, t], new_c, c)
    return h.unsqueeze(0), c.unsqueeze(0)


class Seq2Seq(nn.Module):
    outputs = 1

    def __init__(self, lstm, hidden, vocabulary, classes):
        super().__init__()
        self.encoder_embedding = nn.Embedding(vocabulary, hidden)
        self.encoder = lstm(hidden, hidden, batch_first=True)
        self.decoder_embedding = nn.Embedding(classes, hidden)
        self.decoder = lstm(hidden, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, source, length, before):
        """length: on the host."""
        states = last_states(self.encoder, self.encoder_embedding(source), length)
        return self.fc(self.decoder(self.decoder_embedding(before), states)[0])


class AdditiveAttention(nn.Module):
    def __init__(self, query, memory, width):
        super().__init__()
        self.query_layer = nn.Linear(query, width, bias=False)
        self.memory_layer = nn.Linear(memory, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, query, memory, within):
        """query (N, T, query), memory (N, S, memory), within (N, S): what is true of it -> contexts (N, T, memory)."""
        q, keys = self.query_layer(query), self.memory_layer(memory)
        energies = self.v(torch.tanh(q.unsqueeze(2) + keys.unsqueeze(1))).squeeze(3)
        return energies.masked_fill(~within.unsqueeze(1), float("-inf")).softmax(2) @ memory


class GnmtEncoder(Named):
    def __init__(self, lstm, vocabulary, hidden, layers, dropout):
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstms = self.add("lstm", [BothWays(lstm, hidden, hidden, 1, True, 2)] + [
            lstm(2 * hidden if i == 1 else hidden, hidden, batch_first=True) for i in range(1, layers)])

    def forward(self, source, length, within):
        x = F.dropout(self.embedding(source), self.dropout, self.training)
        x = self.lstms[0](x, length, within)[0]
        for i, lstm in enumerate(self.lstms[1:], 1):
            y = lstm(F.dropout(x, self.dropout, self.training))[0].masked_fill(~within.unsqueeze(2), 0)
            x = y + x if i >= 2 else y
        return x


class GnmtDecoder(Named):
    def __init__(self, lstm, classes, hidden, layers, dropout):
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Embedding(classes, hidden)
        self.attention = AdditiveAttention(hidden, hidden, hidden)
        self.lstms = self.add("lstm", [lstm(hidden if i == 0 else 2 * hidden, hidden, batch_first=True)
                                       for i in range(layers)])
        self.fc = nn.Linear(hidden, classes)

    def forward(self, before, memory, within):
        x = self.lstms[0](F.dropout(self.embedding(before), self.dropout, self.training))[0]
        context = self.attention(x, memory, within)
        for i, lstm in enumerate(self.lstms[1:], 1):
            y = lstm(F.dropout(torch.cat((x, context), 2), self.dropout, self.training))[0]
            x = y + x if i >= 2 else y
        return self.fc(x)


class Gnmt(nn.Module):
    outputs = 1

    def __init__(self, lstm, hidden, layers, vocabulary, classes, dropout):
        super().__init__()
        self.encoder = GnmtEncoder(lstm, vocabulary, hidden, layers, dropout)
        self.decoder = GnmtDecoder(lstm, classes, hidden, layers, dropout)

    def forward(self, source, length, before):
        within = true_steps(length, source.shape[1])
        return self.decoder(before, self.encoder(source, length, within), within)


# ---------------------------------------------------------------------------------------------------------------------
# Tacotron 2


class TimeConv(nn.Module):
    def __init__(self, before, after, kernel):
        super().__init__()
        self.conv = nn.Conv1d(before, after, kernel, padding=(kernel - 1) // 2)
        self.norm = nn.BatchNorm1d(after)

    def forward(self, x):
        return self.norm(self.conv(x))


class LocationAttention(AdditiveAttention):
    def __init__(self, query, memory, width, filters, kernel):
        super().__init__(query, memory, width)
        self.location_conv = nn.Conv1d(2, filters, kernel, padding=(kernel - 1) // 2, bias=False)
        self.location_dense = nn.Linear(filters, width, bias=False)

    def forward(self, query, memory, keys, beyond, before, sum_before):
        """query (N, query) -> (context (N, memory), weights (N, S))."""
        places = self.location_dense(self.location_conv(torch.stack((before, sum_before), 1)).transpose(1, 2))
        energies = self.v(torch.tanh(self.query_layer(query).unsqueeze(1) + places + keys)).squeeze(2)
        weights = energies.masked_fill(beyond, float("-inf")).softmax(1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights


class TacotronDecoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, embedding = s, s["embedding"]
        self.prenet1 = nn.Linear(s["mels"], s["prenet"], bias=False)
        self.prenet2 = nn.Linear(s["prenet"], s["prenet"], bias=False)
        self.attention_rnn = nn.LSTMCell(s["prenet"] + embedding, s["attention_rnn"])
        self.attention = LocationAttention(s["attention_rnn"], embedding, s["attention"], s["filters"],
                                           s["location_kernel"])
        self.decoder_rnn = nn.LSTMCell(s["attention_rnn"] + embedding, s["decoder_rnn"])
        self.projection = nn.Linear(s["decoder_rnn"] + embedding, s["mels"])
        self.gate = nn.Linear(s["decoder_rnn"] + embedding, 1)

    def zoned_out(self, old, new, keep):
        """keep: units that keep their old value, while training; else zoneout is its mean."""
        if keep is not None:
            return torch.where(keep, old, new)
        share = 0.0 if self.training else self.s["zoneout"]
        return new if share == 0 else old * share + new * (1 - share)

    def step(self, x, state, keeps, memory, keys, beyond):
        """x (N, prenet) -> the new state."""
        h1, c1, h2, c2, context, weights, total = state
        new_h, new_c = self.attention_rnn(torch.cat((x, context), 1), (h1, c1))
        h1, c1 = self.zoned_out(h1, new_h, keeps[0]), self.zoned_out(c1, new_c, keeps[1])
        h1 = F.dropout(h1, self.s["decoder_dropout"], self.training)
        context, weights = self.attention(h1, memory, keys, beyond, weights, total)
        new_h, new_c = self.decoder_rnn(torch.cat((h1, context), 1), (h2, c2))
        h2, c2 = self.zoned_out(h2, new_h, keeps[2]), self.zoned_out(c2, new_c, keeps[3])
        h2 = F.dropout(h2, self.s["decoder_dropout"], self.training)
        return h1, c1, h2, c2, context, weights, total + weights

    # The variant compile compiles a step, and not hundreds of them in a row.
    @torch.compiler.disable(recursive=False)
    def forward(self, memory, within, mels):
        """Teacher forcing. -> (mels (N, T, mels), gates (N, T))."""
        s, (n, steps, _) = self.s, mels.shape
        x = F.pad(mels[:, :-1], (0, 0, 1, 0))
        for layer in (self.prenet1, self.prenet2):  # its dropout is on in test mode, too
            x = F.dropout(F.relu(layer(x)), s["prenet_dropout"], True)
        sizes = [s["attention_rnn"]] * 2 + [s["decoder_rnn"]] * 2
        keeps = [[None] * 4] * steps
        if self.training and s["zoneout"] > 0:
            drawn = [(torch.rand(steps, n, size, device=mels.device) < s["zoneout"]).unbind(0) for size in sizes]
            keeps = list(zip(*drawn))
        state = tuple(memory.new_zeros(n, size) for size in sizes + [s["embedding"]] + [memory.shape[1]] * 2)
        keys, beyond, made = self.attention.memory_layer(memory), ~within, []
        for row, keep in zip(x.unbind(1), keeps):
            state = self.step(row, state, keep, memory, keys, beyond)
            made.append(torch.cat((state[2], state[4]), 1))
        made = torch.stack(made, 1)
        return self.projection(made), self.gate(made).squeeze(2)


class Tacotron2(nn.Module):
    outputs = 3

    def __init__(self, lstm, vocabulary, **s):
        super().__init__()
        embedding, self.drop = s["embedding"], s["conv_dropout"]
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.encoder = nn.ModuleList(TimeConv(embedding, embedding, s["encoder_kernel"])
                                     for _ in range(s["encoder_layers"]))
        self.lstm = BothWays(lstm, embedding, embedding // 2, 1, True, 2)
        self.decoder = TacotronDecoder(s)
        widths = [s["mels"]] + [s["postnet"]] * (s["postnet_layers"] - 1) + [s["mels"]]
        self.postnet = nn.ModuleList(TimeConv(before, after, s["postnet_kernel"])
                                     for before, after in zip(widths, widths[1:]))

    def forward(self, characters, length, mels, frames):
        """-> (mels before the post-net and after it, gates)."""
        within = true_steps(length, characters.shape[1])
        beyond = ~within.unsqueeze(1)
        x = self.embedding(characters).transpose(1, 2).masked_fill(beyond, 0)
        for conv in self.encoder:
            x = F.dropout(F.relu(conv(x)), self.drop, self.training).masked_fill(beyond, 0)
        memory = self.lstm(x.transpose(1, 2), length, within)[0]
        made, gates = self.decoder(memory, within, mels)
        beyond = ~true_steps(frames, mels.shape[1]).unsqueeze(1)
        before = x = made.transpose(1, 2).masked_fill(beyond, 0)
        for i, conv in enumerate(self.postnet):
            x = conv(x) if i == len(self.postnet) - 1 else torch.tanh(conv(x))
            x = F.dropout(x, self.drop, self.training).masked_fill(beyond, 0)
        return made, (before + x).transpose(1, 2), gates


# ---------------------------------------------------------------------------------------------------------------------

MODELS = {"deepspeech2": DeepSpeech2, "gnmt": Gnmt, "seq2seq": Seq2Seq, "tacotron2": Tacotron2}
READS_LENGTHS = {"seq2seq": ("length",)}  # inputs that stay on the host


def make(network, lstm="fused"):
    """network: frame.Network with a whole one; lstm: a name of pytorch_network.LSTMS."""
    call = network.whole
    kind = MODELS[call["kind"]]
    try:
        module = kind(LSTMS[lstm], **call["settings"])
    except (TypeError, KeyError) as error:
        raise ValueError("network: %s must have its settings, and no others; got %s (%s)." % (
            call["kind"], ", ".join(sorted(call["settings"])), error))
    made = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    if made != network.parameters or len(network.outputs) != kind.outputs:
        wrong = sorted(set(made.items()) ^ set(network.parameters.items()))
        raise ValueError("network: %s must have its own parameters and %d outputs; these parameters differ: %s." % (
            call["kind"], kind.outputs, wrong))
    return module
