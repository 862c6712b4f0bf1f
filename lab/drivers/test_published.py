"""Holds descriptions to the code of those who published the networks: resnet18 and vgg16 to torchvision's, and a layer of
BERT, written in the protocol's kinds, to the one of transformers.

    PYTHON lab/drivers/test_published.py [--tandem PROGRAM]         PYTHON: one that has torch

Both sides get the same random weights in f64. Compared: the number of parameters, outputs in test mode, and every
gradient of a loss in training mode, dropout 0. Prints a line per network; exits with 1 where something differs. A package
that is not there is named, and its networks are left out.
"""
import argparse
import os
import sys

import torch
from torch import nn

import frame
import kinds
import pytorch_network
from test_driver import resolved

HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 1e-9  # f64; sums of different order


def torchvision_cases(tandem):
    from torchvision import models

    for name, sizes, more in (("resnet18", (3, 32, 32), {}), ("resnet18", (3, 224, 224), {}),
                              ("vgg16", (3, 224, 224), {"dropout": 0.0})):
        network = resolved(tandem, name, sizes)
        classes = network["outputs"][0]["shape"][0]
        published = getattr(models, name)(weights=None, num_classes=classes, **more)
        yield "%s %s, torchvision" % (name, "x".join(map(str, sizes))), network, published, lambda weights: weights, 2


def bert_layer(width, heads, inner, eps):
    """An encoder layer of BERT: attention and two linear layers, each followed by its norm over the sum with its input."""
    net = kinds.Net("bert_layer", x=("f32", 12, width), n=("i64",))
    attended = net.attention(["x", "n"], heads)
    v = net.norm("layer_norm", net.call("add", ["x", attended], net.shapes["x"]), "norm1", [width], axes=1, eps=eps)
    made = net.linear(net.same("gelu", net.linear(v, inner, "up")), width, "down")
    v = net.norm("layer_norm", net.call("add", [v, made], net.shapes["x"]), "norm2", [width], axes=1, eps=eps)
    return net.end("mse", out=v)[1]


class BertLayer(nn.Module):
    """transformers' layer behind the inputs of the description: the sequence and its lengths."""

    def __init__(self, width, heads, inner, eps):
        super().__init__()
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertLayer as Published

        self.layer = Published(BertConfig(
            hidden_size=width, num_attention_heads=heads, intermediate_size=inner, layer_norm_eps=eps, hidden_act="gelu",
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager"))

    def forward(self, x, lengths):
        hidden = torch.arange(x.shape[1]) >= lengths[:, None]
        mask = torch.zeros(hidden.shape, dtype=x.dtype).masked_fill(hidden, torch.finfo(x.dtype).min)
        out = self.layer(x, attention_mask=mask[:, None, None, :])
        return out[0] if isinstance(out, tuple) else out


def bert_weights(theirs):
    """transformers' names -> the description's."""
    said = {name.removeprefix("layer."): value for name, value in theirs.items()}
    found = {}
    for part in ("weight", "bias"):
        found["attention.in_proj_" + part] = torch.cat(
            [said["attention.self.%s.%s" % (way, part)] for way in ("query", "key", "value")])
        for ours, name in (("attention.out_proj", "attention.output.dense"), ("norm1", "attention.output.LayerNorm"),
                           ("up", "intermediate.dense"), ("down", "output.dense"), ("norm2", "output.LayerNorm")):
            found["%s.%s" % (ours, part)] = said["%s.%s" % (name, part)]
    return found


def transformers_cases(_):
    published = BertLayer(48, 4, 96, 1e-12)
    yield "a layer of BERT, transformers", bert_layer(48, 4, 96, 1e-12), published, bert_weights, 3


def inputs_of(network, batch):
    made = []
    for entry in network["inputs"]:
        shape = [batch] + entry["shape"]
        if entry["type"] == "i64":
            made.append(torch.randint(1, network["inputs"][0]["shape"][0] + 1, shape))
        else:
            made.append(torch.randn(shape, dtype=torch.float64))
    return made


def distance(a, b):
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


def compare(network, published, translated, batch):
    """-> (parameters, [differences])"""
    torch.manual_seed(5)
    ours = pytorch_network.build(frame.Network(network, False))[0].double()
    theirs = published.double()
    with torch.no_grad():
        for parameter in theirs.parameters():  # norms' scales and biases as well, which begin as 1 and 0
            parameter.add_(0.05 * torch.randn_like(parameter))
    state = {name: value for name, value in translated(theirs.state_dict()).items()
             if not name.endswith("num_batches_tracked")}
    lost = ours.load_state_dict(state, strict=False)
    differences = ["has no %s" % name for name in lost.unexpected_keys]
    differences += ["%s is not theirs" % name for name in lost.missing_keys if not name.endswith("num_batches_tracked")]
    counts = [sum(p.numel() for p in side.parameters()) for side in (ours, theirs)]
    if counts[0] != counts[1]:
        differences.append("has %d parameters instead of %d" % tuple(counts))
    if differences:
        return counts[0], differences
    for module in ours.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    inputs = inputs_of(network, batch)
    with torch.no_grad():
        away = distance(ours.eval()(*inputs), theirs.eval()(*inputs))
    if not away <= TOLERANCE:
        differences.append("outputs differ by %.1e" % away)
    for side in (ours, theirs):
        out = side.train()(*inputs)
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    gradients = translated({name: p.grad for name, p in theirs.named_parameters()})
    largest = max(g.abs().max() for g in gradients.values())
    for name, parameter in ours.named_parameters():
        away = ((parameter.grad - gradients[name]).abs().max() / largest).item()
        if not away <= TOLERANCE:
            differences.append("the gradient of %s differs by %.1e of the largest" % (name, away))
    return counts[0], differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", default=os.path.join(HERE, "..", "..", "build", "release", "bin", "tandem"),
                        help="the program that prints networks")
    options = parser.parse_args()
    failed = compared = 0
    for package, cases in (("torchvision", torchvision_cases), ("transformers", transformers_cases)):
        try:
            __import__(package)
        except ImportError:
            print("SKIPPED: %s is not installed beside this Python" % package)
            continue
        for title, network, published, translated, batch in cases(options.tandem):
            count, differences = compare(network, published, translated, batch)
            compared += 1
            failed += bool(differences)
            print("%-8s %s, %d parameters%s" % ("FAILED" if differences else "equal", title, count,
                                                 ": " + "; ".join(differences[:5]) if differences else ""))
    print("%d compared, %d failed" % (compared, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
