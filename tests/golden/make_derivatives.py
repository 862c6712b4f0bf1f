#!/usr/bin/env python3
"""Writes tests/golden/derivatives.txt: what torch.autograd.functional gives for the functions of
functional_gradients_test.cpp. Needs PyTorch and NumPy."""
import torch
from torch.autograd import functional

from make_golden import HERE, hash_array, numbers, shape_text

W = hash_array((3, 4), 7)


def net(x):
    return torch.tanh(x @ W) * torch.exp(x.sum(-1, keepdim=True) * 0.1)


def two(a, b):
    return torch.sin(a) * b.sum(), (a.unsqueeze(1) * b).pow(3)


def scalar(a, b):
    return (torch.exp(a * 0.5).sum() * (b * b).sum()) + (a[0] * b).pow(3).sum()


def energy(x):
    return (torch.tanh(x @ W) ** 2).sum() + x[0, 0] * x[1, 2]


x = hash_array((2, 3), 1)
a, b = hash_array((2,), 2), hash_array((3,), 3)
lines = []


def add(name, value):
    values = value if isinstance(value, (tuple, list)) else [value]
    for i, v in enumerate(values):
        if isinstance(v, (tuple, list)):
            add(f"{name}.{i}", v)
        else:
            key = name if values is not value and len(values) == 1 else f"{name}.{i}"
            lines.append(f"{key} {shape_text(v.shape)} {numbers(v)}")


add("net.vjp", functional.vjp(net, x, hash_array((2, 4), 4))[1])
add("net.jvp", functional.jvp(net, x, hash_array((2, 3), 5))[1])
add("net.jacobian", functional.jacobian(net, x))
add("two.vjp", functional.vjp(two, (a, b), (hash_array((2,), 4), hash_array((2, 3), 5)))[1])
add("two.jvp", functional.jvp(two, (a, b), (hash_array((2,), 4), hash_array((3,), 5)))[1])
add("two.jacobian", functional.jacobian(two, (a, b)))
add("scalar.hessian", functional.hessian(scalar, (a, b)))
add("energy.hessian", functional.hessian(energy, x))
(HERE / "derivatives.txt").write_text("\n".join(lines) + "\n")
