"""Networks of the protocol as PyTorch modules: submodules by their names, so that state_dict has the canonical ones,
and a `forward` written out as source text, one statement per call.

    network, source = build(cell.network)
    out = network(x)                            one output and no states
    out, other, h, c = network(x, n, h, c)      else: the outputs, then the states as the step leaves them

A state is (layers · directions, batch, hidden), as nn.LSTM takes it.
"""
import torch
from torch import nn

from frame import Declined

RESERVED = ("self", "torch", "F", "at_last")  # names of the generated source that are no values


# ---------------------------------------------------------------------------------------------------------------------
# Sequences of different lengths. Packed sequences need the lengths on the host, and a captured step cannot have them:
# the steps after a sample's last true one are computed and left out.


def at_last(sequence, lengths):
    """(N, T, width) at each sample's last true step: (N, width)."""
    places = (lengths - 1).view(-1, 1, 1).expand(-1, 1, sequence.shape[2])
    return sequence.gather(1, places).squeeze(1)


class CellByCell(nn.LSTM):
    """What nn.LSTM computes with batch_first, by one call of nn.LSTMCell's function per step, layer and way."""

    def forward(self, x, states=None):
        ways = 2 if self.bidirectional else 1
        if states is None:
            states = (x.new_zeros(self.num_layers * ways, x.shape[0], self.hidden_size),) * 2
        rows, new_h, new_c = x.unbind(1), [], []
        for layer in range(self.num_layers):
            made = []
            for way in range(ways):
                at = layer * ways + way
                weights = self.all_weights[at]
                state, steps = (states[0][at], states[1][at]), [None] * len(rows)
                for t in range(len(rows)) if way == 0 else reversed(range(len(rows))):
                    state = torch._VF.lstm_cell(rows[t], state, *weights)
                    steps[t] = state[0]
                made.append(steps)
                new_h.append(state[0])
                new_c.append(state[1])
            rows = made[0] if ways == 1 else [torch.cat(both, 1) for both in zip(*made)]
        return torch.stack(rows, 1), (torch.stack(new_h), torch.stack(new_c))


LSTMS = {"fused": nn.LSTM, "cell": CellByCell}


class Layered(nn.Module):
    """An LSTM or a GRU whose layers and ways are one each, parts[layer][way]. The parameters are this module's, by the
    names of a whole nn.LSTM or nn.GRU. kind: the class of the parts."""

    def __init__(self, kind, features, hidden, layers, bias, ways):
        super().__init__()
        family = nn.GRU if issubclass(kind, nn.GRU) else nn.LSTM
        whole = family(features, hidden, layers, bias=bias, batch_first=True, bidirectional=ways == 2)
        for name, parameter in whole.named_parameters():
            self.register_parameter(name, parameter)
        self.hidden, self.parts = hidden, []
        for layer in range(layers):
            self.parts.append([kind(features if layer == 0 else ways * hidden, hidden, bias=bias, batch_first=True)
                               for _ in range(ways)])
            for part, suffix in zip(self.parts[-1], ("_l%d" % layer, "_l%d_reverse" % layer)):
                for name in [name for name, _ in part.named_parameters()]:
                    setattr(part, name, getattr(self, name[:-len("_l0")] + suffix))

    def _apply(self, *arguments, **options):
        super()._apply(*arguments, **options)
        for part in sum(self.parts, []):
            part.flatten_parameters()
        return self

    def train(self, mode=True):
        for part in sum(self.parts, []):
            part.train(mode)
        return super().train(mode)


class BothWays(Layered):
    """Both ways with lengths: the way back begins at each sample's last true step, so its input is turned
    round up to there."""

    def forward(self, x, lengths, mask):
        """mask: (N, T), true for true steps. -> (sequence, last)."""
        places = torch.arange(x.shape[1], device=x.device)
        turned = torch.where(mask, lengths.unsqueeze(1) - 1 - places, places).unsqueeze(2)
        beyond = ~mask.unsqueeze(2)
        x = x.masked_fill(beyond, 0)
        for forth, back in self.parts:
            first = forth(x)[0]
            second = back(x.gather(1, turned.expand(-1, -1, x.shape[2])))[0]
            second = second.gather(1, turned.expand(-1, -1, self.hidden))
            x = torch.cat((first, second), 2).masked_fill(beyond, 0)
        return x, torch.cat((at_last(x[:, :, :self.hidden], lengths), x[:, 0, self.hidden:]), 1)


class Carried(Layered):
    """An LSTM with lengths and carried states. nn.LSTM does not tell the cell's state at a step in the middle: it is
    computed again, from the gates of all steps at once; no gradient goes through it."""

    def forward(self, x, lengths, mask, h, c):
        """h, c: (layers, N, hidden). -> (sequence, h, c), both after each sample's last true step."""
        true, new_h, new_c = mask.unsqueeze(2), [], []
        x = x.masked_fill(~true, 0)
        for (part,), begin_h, begin_c in zip(self.parts, h, c):
            made = part(x, (begin_h.unsqueeze(0), begin_c.unsqueeze(0)))[0]
            with torch.no_grad():
                before = torch.cat((begin_h.unsqueeze(1).to(made.dtype), made[:, :-1]), 1)
                gates = nn.functional.linear(x, part.weight_ih_l0) + nn.functional.linear(before, part.weight_hh_l0)
                if part.bias:
                    gates = gates + part.bias_ih_l0 + part.bias_hh_l0
                i, f, g, _ = gates.chunk(4, 2)
                kept = torch.where(true, f.sigmoid(), 1).unbind(1)
                added = torch.where(true, i.sigmoid() * g.tanh(), 0).unbind(1)
                for share, more in zip(kept, added):
                    begin_c = torch.addcmul(more, share, begin_c)
            new_h.append(at_last(made, lengths))
            new_c.append(begin_c)
            x = made.masked_fill(~true, 0)
        return x, torch.stack(new_h), torch.stack(new_c)


class Product(nn.Module):
    """x (…, in) times a weight (in, out)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-inputs ** -0.5, inputs ** -0.5))

    def forward(self, x):
        return x @ self.weight


# ---------------------------------------------------------------------------------------------------------------------
# The source


class Writer:
    """Writes `forward` and collects the submodules."""

    def __init__(self, network, lstm):
        self.network, self.module, self.lstm = network, nn.Module(), LSTMS[lstm]
        self.shapes = {entry["name"]: list(entry["shape"]) for entry in network.inputs}
        self.states = {entry["name"]: "state%d" % index for index, entry in enumerate(network.states)}
        self.lines, self.masks = [], {}

    def add(self, name, make):
        """The submodule of this dotted name, made where it is not there yet; -> the expression that reads it."""
        holder, expression = self.module, "self"
        *outer, last = name.split(".")
        for part in outer:
            if part not in holder._modules:
                holder.add_module(part, nn.Module())
            holder, expression = holder._modules[part], attribute(expression, part)
        if last not in holder._modules:
            holder.add_module(last, make())
        return attribute(expression, last)

    def constant(self, name, tensor):
        """A tensor that moves with the module and is no part of its state; -> the expression that reads it."""
        if name not in self.module._buffers:
            self.module.register_buffer(name, tensor, persistent=False)
        return "self." + name

    def mask(self, value, variable, time):
        """The name of the mask (N, time) of the true steps, given the value with the lengths."""
        if (value, time) not in self.masks:
            self.masks[value, time] = "mask%d" % len(self.masks)
            places = self.constant("places_of_%d" % time, torch.arange(time))
            self.lines.append("%s = %s < %s.unsqueeze(1)" % (self.masks[value, time], places, variable))
        return self.masks[value, time]

    def source(self):
        # States and masks stand beside the values: as many names as there can be.
        own = ["state%d" % i for i in range(len(self.states))] + ["mask%d" % i for i in range(len(self.network.calls))]
        inputs, calls, outputs = self.network.straight_line(RESERVED + tuple(own))
        for call, taken, made, gone in calls:
            entry = Call(call, taken, [self.shapes[value] for value in call["in"]])
            expression = WRITERS[call["kind"]](self, entry)
            # What is no expression, but statements that bind other names too, has $ where the value's name shall be.
            statements = expression.replace("$", made) if "$" in expression else "%s = %s" % (made, expression)
            self.lines += statements.split("\n")
            if gone:
                self.lines.append("del " + ", ".join(gone))
            self.shapes[call["out"]] = list(call["shape"])
        states = list(self.states.values())
        head = "def forward(%s):" % ", ".join(["self"] + inputs + states)
        return "\n    ".join([head] + self.lines + ["return " + ", ".join(outputs + states)]) + "\n"


class Call:
    """One call while it is written: a: the names of its values, shapes: their sizes without the batch."""

    def __init__(self, call, variables, shapes):
        self.name, self.values, self.settings, self.shape = call["name"], call["in"], call["settings"], call["shape"]
        self.a, self.shapes = variables, shapes

    def __getitem__(self, setting):
        value = self.settings[setting]
        return tuple(value) if isinstance(value, list) else value

    @property
    def axes(self):
        """How many axes of the first value are places: all but the channels."""
        return len(self.shapes[0]) - 1


def attribute(expression, name):
    return "%s.%s" % (expression, name) if name.isidentifier() else "getattr(%s, %r)" % (expression, name)


def layer(make):
    """The writer of a layer that is a submodule of one value. make: Call -> nn.Module."""
    return lambda w, c: "%s(%s)" % (w.add(c.name, lambda: make(c)), c.a[0])


def function(text, *settings):
    """The writer of a function of one value and these settings."""
    return lambda w, c: text % ((c.a[0],) + tuple(c[name] for name in settings))


def by_axes(prefix, c, at_least=1):
    """A class or function of torch that is there for each number of axes: Conv1d … Conv3d."""
    return "%s%dd" % (prefix, max(at_least, c.axes))


def conv(w, c):
    before, after = zip(*c["padding"])
    same, x = before == after, c.a[0]
    if not same:  # the last axis first
        x = "F.pad(%s, %r)" % (x, tuple(size for pair in reversed(c["padding"]) for size in pair))
    module = w.add(c.name, lambda: getattr(nn, by_axes("Conv", c))(
        c.shapes[0][0], c["channels"], c["kernel"], c["stride"], before if same else 0, c["dilation"], c["groups"],
        c["bias"]))
    return "%s(%s)" % (module, x)


def max_pool(w, c):
    """PyTorch pads both sides alike, by half a window at most. Where the description differs, the windows that are not
    wanted are cut off where that is possible, else the value is padded before."""
    before, after = zip(*c["padding"])
    kernel, stride, dilation, sizes = c["kernel"], c["stride"], c["dilation"], c.shape[1:]
    text = "F." + by_axes("max_pool", c) + "(%s, " + "%r, %r, %%s, %r" % (kernel, stride, dilation)
    both = tuple(max(pair) for pair in zip(before, after))
    allowed = all(2 * p <= k for p, k in zip(both, kernel))
    if before == after and allowed:
        simple = not any(before) and set(dilation) == {1} and not c["ceil_mode"]
        if simple:
            return "F.%s(%s, %r, %r)" % (by_axes("max_pool", c), c.a[0], kernel, stride)
        return text % (c.a[0], both) + ", %r)" % c["ceil_mode"]
    shift = [p - b for p, b in zip(both, before)]
    there = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(
        c.shapes[0][1:], both, dilation, kernel, stride)]
    if allowed and all(move % s == 0 and windows >= move // s + size
                       for move, s, windows, size in zip(shift, stride, there, sizes)):
        cut = ["%d:%d" % (move // s, move // s + size) for move, s, size in zip(shift, stride, sizes)]
        return text % (c.a[0], both) + ")[:, :, %s]" % ", ".join(cut)
    padding = []
    for n, b, d, k, s, size in zip(c.shapes[0][1:], before, dilation, kernel, stride, sizes):
        padding = [b, (size - 1) * s + d * (k - 1) + 1 - n - b] + padding
    return text % ("F.pad(%s, %r, value=float('-inf'))" % (c.a[0], tuple(padding)), 0) + ")"


def mean(w, c):
    if len(c.a) == 1:
        return "%s.mean(%d)" % (c.a[0], c["axis"] + 1)
    beyond = "~%s.view(%s)" % (w.mask(c.values[1], c.a[1], c.shapes[0][0]), ", ".join(
        ["-1", str(c.shapes[0][0])] + ["1"] * c.axes))
    return "%s.masked_fill(%s, 0).sum(1) / %s.view(%s)" % (
        c.a[0], beyond, c.a[1], ", ".join(["-1"] + ["1"] * c.axes))


def lstm(w, c):
    x, last = c.a[0], c["output"] == "last"
    sizes = c.shapes[0][1], c["hidden"], c["layers"]
    carried = [w.states[c.name + part] for part in (".h", ".c")] if c["carry"] else []
    lasts = "[-2:].transpose(0, 1).flatten(1)" if c["bidirectional"] else "[-1]"  # of (layers · directions, N, hidden)

    if carried and c["bidirectional"]:
        raise Declined("lstm", "lstm: states are carried forwards alone; got carry with bidirectional. Leave one out.")

    def whole():
        return w.add(c.name, lambda: w.lstm(*sizes, c["bias"], batch_first=True, bidirectional=c["bidirectional"]))

    if len(c.a) == 1:
        called = "%s(%s%s)" % (whole(), x, ", (%s)" % ", ".join(carried) if carried else "")
        if carried:
            return "$, (%s) = %s%s" % (", ".join(carried), called, "\n$ = %s%s" % (carried[0], lasts) if last else "")
        return called + ("[1][0]" + lasts if last else "[0]")
    lengths, mask = c.a[1], w.mask(c.values[1], c.a[1], c.shapes[0][0])
    if carried:
        module = w.add(c.name, lambda: Carried(w.lstm, *sizes, c["bias"], 1))
        text = "$, %s = %s(%s, %s, %s, %s)" % (", ".join(carried), module, x, lengths, mask, ", ".join(carried))
        return text + ("\n$ = %s%s" % (carried[0], lasts) if last else "")
    if c["bidirectional"]:
        module = w.add(c.name, lambda: BothWays(w.lstm, *sizes, c["bias"], 2))
        return "%s(%s, %s, %s)[%d]" % (module, x, lengths, mask, last)
    beyond = "~%s.unsqueeze(2)" % mask
    sequence = "%s(%s.masked_fill(%s, 0))[0]" % (whole(), x, beyond)
    return "at_last(%s, %s)" % (sequence, lengths) if last else "%s.masked_fill(%s, 0)" % (sequence, beyond)


def attention(w, c):
    with_lengths = len(c.a) in (2, 4)
    values = c.a[:-1] if with_lengths else c.a
    query, key, value = values * 3 if len(values) == 1 else values
    options = ["need_weights=False"]
    if with_lengths:
        keys = c.shapes[1 if len(values) == 3 else 0][0]
        options.append("key_padding_mask=~" + w.mask(c.values[-1], c.a[-1], keys))
    if c["causal"]:
        queries, keys = c.shapes[0][0], c.shapes[1 if len(values) == 3 else 0][0]
        later = torch.ones(queries, keys, dtype=torch.bool).triu(1)
        options.append("attn_mask=%s, is_causal=True" % w.constant("later_of_%d_%d" % (queries, keys), later))
    module = w.add(c.name, lambda: nn.MultiheadAttention(
        c.shapes[0][1], c["heads"], bias=c["bias"], batch_first=True))
    return "%s(%s, %s, %s, %s)[0]" % (module, query, key, value, ", ".join(options))


def batch_norm(c):
    return getattr(nn, by_axes("BatchNorm", c))(
        c.shapes[0][0], c["eps"], c["momentum"], c["affine"], c["track_running_stats"])


def channel_dropout(w, c):
    name = by_axes("dropout", c) if c.axes else "dropout"
    return "F.%s(%s, %r, self.training)" % (name, c.a[0], c["p"])


def over_places(w, c):
    """Over all axes but the batch and the channels."""
    return "%s.mean(%r)" % (c.a[0], tuple(range(2, 2 + c.axes))) if c.axes else c.a[0]


def adaptive(name):
    return lambda w, c: "F.%s(%s, %r)" % (by_axes("adaptive_%s_pool" % name, c), c.a[0], c["size"])


WRITERS = {
    "conv": conv,
    "conv_transpose": layer(lambda c: getattr(nn, by_axes("ConvTranspose", c))(
        c.shapes[0][0], c["channels"], c["kernel"], c["stride"], c["padding"], c["output_padding"], c["groups"],
        c["bias"], c["dilation"])),
    "linear": layer(lambda c: nn.Linear(c.shapes[0][-1], c["outputs"], c["bias"])),
    "matmul": layer(lambda c: Product(c.shapes[0][-1], c["outputs"])),
    "embedding": layer(lambda c: nn.Embedding(c["rows"], c["width"])),
    "relu": function("F.relu(%s)"),
    "gelu": function("F.gelu(%s)"),
    "silu": function("F.silu(%s)"),
    "selu": function("F.selu(%s)"),
    "mish": function("F.mish(%s)"),
    "hardswish": function("F.hardswish(%s)"),
    "tanh": function("torch.tanh(%s)"),
    "sigmoid": function("torch.sigmoid(%s)"),
    "exp": function("torch.exp(%s)"),
    "erf": function("torch.erf(%s)"),
    "leaky_relu": function("F.leaky_relu(%s, %r)", "slope"),
    "elu": function("F.elu(%s, %r)", "alpha"),
    "softplus": function("F.softplus(%s, %r, %r)", "beta", "threshold"),
    "softmax": function("F.softmax(%s, -1)"),
    "log_softmax": function("F.log_softmax(%s, -1)"),
    "max_pool": max_pool,
    "avg_pool": lambda w, c: "F.%s(%s, %r, %r, %r, %r, %r)" % (
        by_axes("avg_pool", c), c.a[0], c["kernel"], c["stride"], c["padding"], c["ceil_mode"], c["count_include_pad"]),
    "adaptive_avg_pool": adaptive("avg"),
    "adaptive_max_pool": adaptive("max"),
    "global_avg_pool": over_places,
    "batch_norm": layer(batch_norm),
    "instance_norm": layer(lambda c: getattr(nn, by_axes("InstanceNorm", c))(
        c.shapes[0][0], c["eps"], affine=c["affine"])),
    "group_norm": layer(lambda c: nn.GroupNorm(c["groups"], c.shapes[0][0], c["eps"], c["affine"])),
    "layer_norm": layer(lambda c: nn.LayerNorm(c.shapes[0][-c["axes"]:], c["eps"], c["affine"], c["bias"])),
    # eps 0: the spacing of numbers at 1, PyTorch's None.
    "rms_norm": layer(lambda c: nn.RMSNorm(c.shapes[0][-c["axes"]:], c["eps"] or None, c["affine"])),
    "dropout": function("F.dropout(%s, %r, self.training)", "p"),
    "channel_dropout": channel_dropout,
    "flatten": function("torch.flatten(%s, 1)"),
    "identity": function("%s"),
    "add": lambda w, c: " + ".join(c.a),
    "multiply": lambda w, c: " * ".join(c.a),
    "concat": lambda w, c: "torch.cat((%s), %d)" % (", ".join(c.a), c["axis"] + 1),
    "transpose": lambda w, c: "%s.transpose(%d, %d)" % (c.a[0], c["axes"][0] + 1, c["axes"][1] + 1),
    "mean": mean,
    "sum": lambda w, c: "%s.sum(%d)" % (c.a[0], c["axis"] + 1),
    "lstm": lstm,
    "attention": attention,
}


def build(network, lstm="fused"):
    """lstm: a name of LSTMS. -> (nn.Module, the source of its forward)."""
    writer = Writer(network, lstm)
    source = writer.source()
    names = {"torch": torch, "F": nn.functional, "at_last": at_last}
    exec(compile(source, "<%s>" % network.name, "exec"), names)
    kind = type(network.name, (nn.Module,), {"forward": names["forward"]})
    module = kind()
    for name, part in writer.module._modules.items():
        module.add_module(name, part)
    for name, tensor in writer.module._buffers.items():
        module.register_buffer(name, tensor, persistent=False)
    made = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    if made != network.parameters:
        wrong = sorted(set(made.items()) ^ set(network.parameters.items()))
        raise ValueError("network: parameters must be those of the description; these differ: %s." % wrong)
    return module, source


# ---------------------------------------------------------------------------------------------------------------------
# Losses: functions of (output, target) or, with lengths, of (output, target, lengths)


def counted(output, lengths):
    """(N, T, 1, …), true where a place counts."""
    mask = torch.arange(output.shape[1], device=output.device) < lengths.unsqueeze(1)
    return mask.view(mask.shape + (1,) * (output.dim() - 2))


def right_answers(output, target, lengths=None):
    """At each place whether the largest output is the target's; of places that do not count, no."""
    right = output.argmax(-1) == target
    return right if lengths is None else right & counted(target, lengths)


def cross_entropy(output, target, lengths=None, reduction="mean"):
    if lengths is not None:
        mask = counted(target, lengths)
        target = torch.where(mask, target, -100)  # left out of the mean
    return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten(), reduction=reduction)


def mean_of_counted(each):
    def loss(output, target, lengths):
        mask = counted(output, lengths)
        numbers = lengths.sum() * output[0, 0].numel()
        # What is left out is replaced before the loss, so that no gradient of it can be other than 0.
        values = each(torch.where(mask, output, 0), torch.where(mask, target, 0), reduction="none")
        return torch.where(mask, values, 0).sum() / numbers

    return loss


def ctc(stride):
    """Labels are filled up with zeros, which are the blank. nn.functional.ctc_loss reads the lengths on the host."""
    def loss(output, target, lengths):
        steps = (lengths + (stride - 1)).div(stride, rounding_mode="floor")
        return nn.functional.ctc_loss(output.log_softmax(2).transpose(0, 1), target, steps, (target != 0).sum(1),
                                      zero_infinity=True)

    return loss


LOSSES = {
    "cross_entropy": cross_entropy,
    "mse": nn.functional.mse_loss,
    "mae": nn.functional.l1_loss,
    "bce": nn.functional.binary_cross_entropy_with_logits,
    "ctc": ctc,
    "sum": None,  # of the terms that a cell has
}


def loss_function(loss, shape):
    """The function of a term of a cell's loss; shape: of the output, without the batch."""
    if loss.kind == "ctc":
        return ctc(loss.stride)
    if loss.kind == "cross_entropy":
        return nn.functional.cross_entropy if len(shape) == 1 else cross_entropy
    return LOSSES[loss.kind] if loss.lengths is None else mean_of_counted(LOSSES[loss.kind])
