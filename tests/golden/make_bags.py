#!/usr/bin/env python3
"""Writes tests/golden/bags.txt: PyTorch's EmbeddingBag with offsets, for nn_loss_test.cpp. Needs PyTorch and NumPy."""
import torch

from make_golden import HERE, hash_array, numbers, set_weights, shape_text

CASES = {
    "mean": ({}, [0, 3, 3, 7], False),
    "mean_padding": (dict(padding_idx=2), [0, 3, 4, 7], False),
    "sum": (dict(mode="sum"), [0, 3, 3, 9], False),
    "sum_weighted": (dict(mode="sum"), [0, 3, 3, 7], True),
    "sum_weighted_padding": (dict(mode="sum", padding_idx=2), [0, 3, 5], True),
    "sum_last": (dict(mode="sum", include_last_offset=True), [0, 4, 9], True),
    "max": (dict(mode="max"), [0, 3, 3, 7], False),
    "max_padding": (dict(mode="max", padding_idx=2), [0, 3, 4, 7], False),
    "max_last": (dict(mode="max", include_last_offset=True), [0, 4, 4, 9], False),
}
lines = []
index = hash_array((9,), 900, 0, 6).floor().long()
for name, (options, offsets, weighted) in CASES.items():
    bag = torch.nn.EmbeddingBag(6, 4, **options).double()
    set_weights(bag)
    samples = hash_array((9,), 901).requires_grad_() if weighted else None
    y = bag(index, torch.tensor(offsets), samples)
    (y * y * hash_array(tuple(y.shape), 77)).sum().backward()
    for part, value in [("output", y), ("weight", bag.weight.grad)] + ([("samples", samples.grad)] if weighted else []):
        lines.append(f"{name} {part} {shape_text(value.shape)} {numbers(value)}")
(HERE / "bags.txt").write_text("\n".join(lines) + "\n")
