#!/usr/bin/env python3
"""Writes tests/golden/sequences.txt: PyTorch's LSTM, GRU and RNN with states and lengths, MultiheadAttention and
scaled_dot_product_attention with masks, and all their gradients, for recurrent_test.cpp and attention_test.cpp. Needs
PyTorch and NumPy."""
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from make_golden import HERE, hash_array, numbers, set_weights, shape_text

lines = []


def leaf(shape, salt):
    return hash_array(shape, salt, -2, 2).requires_grad_()


def write(name, results, leaves, weights=None):
    """Results, and the gradients of the sum of their weighted squares."""
    loss = 0
    for i, (part, value) in enumerate(results):
        kept = value if weights is None else value * weights
        loss = loss + (kept * kept * hash_array(tuple(value.shape), 77 + i)).sum()
        lines.append(f"{name} {part} {shape_text(value.shape)} {numbers(kept)}")
    loss.backward()
    for part, value in leaves:
        lines.append(f"{name} d.{part} {shape_text(value.shape)} {numbers(value.grad)}")


N, T, FEATURES, HIDDEN = 3, 4, 3, 2
LAYERS = {  # type, options, whether states are given, lengths
    "lstm": ("LSTM", {}, False, None),
    "lstm_no_bias": ("LSTM", dict(bias=False), True, None),
    "lstm_deep": ("LSTM", dict(num_layers=2), True, None),
    "lstm_both": ("LSTM", dict(bidirectional=True), False, None),
    "lstm_lengths": ("LSTM", {}, False, [2, 4, 1]),
    "lstm_all": ("LSTM", dict(num_layers=2, bidirectional=True), True, [3, 1, 4]),
    "lstm_projected": ("LSTM", dict(proj_size=1), True, None),
    "lstm_projected_all": ("LSTM", dict(num_layers=2, bidirectional=True, proj_size=1), True, [3, 1, 4]),
    "gru": ("GRU", {}, False, None),
    "gru_no_bias": ("GRU", dict(bias=False), True, None),
    "gru_all": ("GRU", dict(num_layers=2, bidirectional=True), True, [3, 1, 4]),
    "rnn": ("RNN", {}, True, None),
    "rnn_relu": ("RNN", dict(nonlinearity="relu"), False, None),
    "rnn_all": ("RNN", dict(num_layers=2, bidirectional=True), True, [3, 1, 4]),
}
for name, (kind, options, has_states, lengths) in LAYERS.items():
    layer = getattr(torch.nn, kind)(FEATURES, HIDDEN, batch_first=True, **options).double()
    set_weights(layer)
    x = leaf((N, T, FEATURES), 900)
    rows = options.get("num_layers", 1) * (2 if "bidirectional" in options else 1)
    parts = ("h", "c") if kind == "LSTM" else ("h",)
    sizes = (options.get("proj_size", HIDDEN), HIDDEN)
    states = [leaf((rows, N, sizes[i]), 901 + i) for i in range(len(parts))] if has_states else None
    given = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False) if lengths else x
    output, after = layer(given, states if kind == "LSTM" or not states else states[0])
    if lengths:
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=T)
    leaves = [("x", x)] + (list(zip(parts, states)) if states else []) + list(layer.named_parameters())
    write(name, [("output", output)] + list(zip(parts, after if kind == "LSTM" else [after])), leaves)

WIDTH, HEADS, KEYS = 6, 2, 5
ATTENTIONS = {  # bias, whether the query is the key, causal, lengths
    "attention": (True, True, False, None),
    "attention_no_bias": (False, True, True, None),
    "attention_cross": (True, False, False, None),
    "attention_cross_lengths": (True, False, False, [2, 5, 1]),
    "attention_all": (True, True, True, [3, 1, 4]),
}
for name, (bias, is_self, causal, lengths) in ATTENTIONS.items():
    layer = torch.nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=True).double()
    set_weights(layer)
    q = leaf((N, T, WIDTH), 900)
    k, v = (q, q) if is_self else (leaf((N, KEYS, WIDTH), 901), leaf((N, KEYS, WIDTH), 902))
    beyond = torch.arange(k.shape[1]) >= torch.tensor(lengths)[:, None] if lengths else None
    before = torch.ones(T, k.shape[1], dtype=bool).triu(1) if causal else None
    y, _ = layer(q, k, v, key_padding_mask=beyond, attn_mask=before, need_weights=False)
    leaves = [("q", q)] + ([] if is_self else [("k", k), ("v", v)]) + list(layer.named_parameters())
    # Of a sequence to itself the steps beyond its length mean nothing.
    write(name, [("output", y)], leaves, (~beyond).double()[:, :, None] if is_self and lengths else None)

for name, lengths, options in [("dot", None, {}), ("dot_causal", None, dict(is_causal=True, scale=0.7)),
                               ("dot_lengths", [2, 5, 1], {})]:
    q, k, v = leaf((N, 2, T, 3), 900), leaf((N, 2, KEYS, 3), 901), leaf((N, 2, KEYS, 4), 902)
    if lengths:
        options = dict(attn_mask=(torch.arange(KEYS) < torch.tensor(lengths)[:, None])[:, None, None, :])
    write(name, [("output", F.scaled_dot_product_attention(q, k, v, **options))], [("q", q), ("k", k), ("v", v)])

class Additive(torch.nn.Module):
    """Bahdanau's attention, with location features as in NVIDIA's Tacotron 2 where `kernel` is given."""

    def __init__(self, query, memory, width, kernel=None):
        super().__init__()
        self.query_layer = torch.nn.Linear(query, width, bias=False)
        self.memory_layer = torch.nn.Linear(memory, width, bias=False)
        self.v = torch.nn.Linear(width, 1, bias=False)
        if kernel:
            self.location_conv = torch.nn.Conv1d(2, 4, kernel, padding=(kernel - 1) // 2, bias=False)
            self.location_dense = torch.nn.Linear(4, width, bias=False)

    def forward(self, q, memory, lengths=None, before=None):
        inside = self.query_layer(q)[:, :, None] + self.memory_layer(memory)[:, None]
        if before:
            inside = inside + self.location_dense(self.location_conv(torch.stack(before, 1)).transpose(1, 2))[:, None]
        energies = self.v(torch.tanh(inside)).squeeze(3)
        if lengths:
            beyond = torch.arange(memory.shape[1]) >= torch.tensor(lengths)[:, None]
            energies = energies.masked_fill(beyond[:, None], -torch.inf)
        weights = energies.softmax(2)
        return weights @ memory, weights


for name, queries, lengths, kernel in [("additive", 2, None, None), ("additive_lengths", 1, [2, 5, 1], None),
                                       ("location", 1, [2, 5, 1], 3)]:
    layer = Additive(3, 4, 6, kernel).double()
    set_weights(layer)
    q, memory = leaf((N, queries, 3), 900), leaf((N, KEYS, 4), 901)
    before = [leaf((N, KEYS), 902), leaf((N, KEYS), 903)] if kernel else None
    context, weights = layer(q, memory, lengths, before)
    leaves = [("q", q), ("memory", memory)] + (list(zip(("before", "sum"), before)) if before else [])
    write(name, [("context", context), ("weights", weights)], leaves + list(layer.named_parameters()))
(HERE / "sequences.txt").write_text("\n".join(lines) + "\n")
