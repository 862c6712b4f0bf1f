#!/usr/bin/env python3
"""Writes tests/golden/parametrized.txt: PyTorch's weight_norm and spectral_norm of layers, for nn_parametrized_test.cpp.
Needs PyTorch and NumPy."""
import torch
from torch import nn
from torch.nn.utils import parametrizations

from make_golden import HERE, hash_array, name_salt, numbers, shape_text

LAYERS = {
    "Linear": (lambda: nn.Linear(5, 4), (3, 5)),
    "Conv2d": (lambda: nn.Conv2d(2, 4, 3, padding=1, groups=2), (1, 2, 3, 4)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, bias=False), (1, 3, 4)),
}
WRAPS = {
    "weight": parametrizations.weight_norm,
    "weight1": lambda layer: parametrizations.weight_norm(layer, dim=1),
    "spectral": parametrizations.spectral_norm,
    "spectral3": lambda layer: parametrizations.spectral_norm(layer, n_power_iterations=3),
}
lines = []
for wrap_name, wrap in WRAPS.items():
    for layer_name, (make, shape) in LAYERS.items():
        layer = wrap(make()).double()
        with torch.no_grad():
            for name, tensor in layer.state_dict().items():
                tensor.copy_(hash_array(tuple(tensor.shape), name_salt(name), 0.1, 1))
        for mode in ("train", "eval") if wrap_name == "spectral" else ("train",):
            layer.train(mode == "train")
            layer.zero_grad()
            x = hash_array(shape, 900).requires_grad_()
            y = layer(x)
            (y * y * hash_array(tuple(y.shape), 77)).sum().backward()
            lines.append(f"case {wrap_name} {layer_name} {mode} {shape_text(shape)}")
            lines.append(f"value output {shape_text(y.shape)} {numbers(y)}")
            lines.append(f"value input {shape_text(x.shape)} {numbers(x.grad)}")
            for name, p in layer.named_parameters():
                lines.append(f"value {name} {shape_text(p.shape)} {numbers(p.grad)}")
            for name, tensor in layer.state_dict().items():  # as the call left it
                lines.append(f"state {name} {shape_text(tensor.shape)} {numbers(tensor)}")
(HERE / "parametrized.txt").write_text("\n".join(lines) + "\n")
