#!/usr/bin/env python3
"""Writes tests/golden/distributions.txt: what torch.distributions gives for distributions_test.cpp. Needs PyTorch and
NumPy. A line is name, part, shape, values; gradients are those of the sum of the log_prob by the parameters."""
import torch
from torch.distributions import (Bernoulli, Beta, Categorical, Exponential, Gamma, Normal, Poisson, Uniform,
                                 kl_divergence)

from make_golden import HERE, hash_array, numbers, shape_text


def leaf(shape, salt, low, high):
    return hash_array(shape, salt, low, high).requires_grad_()


x = hash_array((4, 3), 1)
counts = hash_array((4, 3), 1, 0, 2).floor()
classes = hash_array((4, 3), 1, 0, 5).floor().long()
share = lambda salt: hash_array((3,), salt, 0.05, 0.95)
CASES = {
    "normal": (lambda a, b: Normal(a, b), [(3,), 2, -1, 1], [(4, 1), 3, 0.5, 2], x, Normal(share(5), share(6) + 0.5)),
    "uniform": (lambda a, b: Uniform(a, b), [(3,), 2, -1.5, -0.5], [(4, 1), 3, 0, 0.4], x.clamp(-0.4, -0.1),
                Uniform(share(5) - 2, share(6))),
    "exponential": (lambda a: Exponential(a), [(3,), 2, 0.5, 2], None, x.abs(), Exponential(share(5) + 1)),
    "bernoulli": (lambda a: Bernoulli(a), [(3,), 2, 0.1, 0.9], None, counts, Bernoulli(share(5))),
    "bernoulli_logits": (lambda a: Bernoulli(logits=a), [(3,), 2, -3, 3], None, counts, Bernoulli(logits=share(5) * 4)),
    "categorical": (lambda a: Categorical(a), [(3, 5), 2, 0.1, 2], None, classes, Categorical(hash_array((3, 5), 5, 0.1, 1))),
    "categorical_logits": (lambda a: Categorical(logits=a), [(3, 5), 2, -2, 2], None, classes,
                           Categorical(logits=hash_array((3, 5), 5, -2, 2))),
    "gamma": (lambda a, b: Gamma(a, b), [(3,), 2, 0.3, 4], [(4, 1), 3, 0.5, 2], x.abs() * 3, Gamma(share(5) * 3, share(6) + 1)),
    "beta": (lambda a, b: Beta(a, b), [(3,), 2, 0.3, 4], [(4, 1), 3, 0.5, 2], x.abs() * 0.9 + 0.05,
             Beta(share(5) * 3, share(6) + 1)),
    "poisson": (lambda a: Poisson(a), [(3,), 2, 0.3, 9], None, hash_array((4, 3), 1, 0, 12).floor(), Poisson(share(5) * 5)),
}
lines = []


def add(name, part, value):
    lines.append(f"{name} {part} {shape_text(value.shape)} {numbers(value)}")


for name, (make, first, second, value, other) in CASES.items():
    parameters = [leaf(*spec) for spec in (first, second) if spec]
    p = make(*parameters)
    density = p.log_prob(value)
    add(name, "log_prob", density)
    for i, g in enumerate(torch.autograd.grad(density.sum(), parameters)):
        add(name, f"gradient{i}", g)
    if name != "poisson":  # has none in closed form
        add(name, "entropy", p.entropy())
    add(name, "kl", kl_divergence(p, other))
    if not name.startswith("categorical"):
        add(name, "mean", p.mean)
        add(name, "variance", p.variance)
(HERE / "distributions.txt").write_text("\n".join(lines) + "\n")
