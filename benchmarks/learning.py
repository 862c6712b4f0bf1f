#!/usr/bin/env python3
"""Does cifar10_cnn learn as well as in PyTorch? The same recipe (initialisation, SGD with momentum, batch, epochs, dropout,
scaling of the pixels) on the same images with several seeds on both sides; each seed draws weights, order and dropout.

    python3 benchmarks/learning.py --data FOLDER [--tandem build/release/bin/tandem] [--device cpu|cuda] [--seeds 5]
                                   [--epochs 10] [--batch 100] [--lr 0.01]

FOLDER holds CIFAR-10's binary files or their archive. Prints each accuracy, both means, their difference with the 95 %
interval of Student's t (with the degrees of freedom of one side: the wider choice), and the exact p of a Mann-Whitney
test of "Tandem is worse".
"""
import argparse
import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_pytorch import MODELS


def records(folder, name):
    """(images u8 (n, 3, 32, 32), labels) of a binary file, in the folder, below it or in its archive."""
    folder = pathlib.Path(folder)
    for path in itertools.chain(folder.rglob(name)):
        data = path.read_bytes()
        break
    else:
        for archive in folder.rglob("*.tar.gz"):
            with tarfile.open(archive) as tar:
                member = next((m for m in tar if m.name.endswith(name)), None)
                data = tar.extractfile(member).read() if member else None
            if data:
                break
        else:
            sys.exit(f"learning: {name} is neither in {folder} nor in an archive there")
    rows = np.frombuffer(data, np.uint8).reshape(-1, 3073)
    return torch.tensor(rows[:, 1:].reshape(-1, 3, 32, 32)), torch.tensor(rows[:, 0].astype(np.int64))


def pytorch_accuracy(seed, sets, options, scale):
    torch.manual_seed(seed)
    device = torch.device(options.device)
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in scale)
    (x, y), (tx, ty) = [(((x / 255) - mean) / deviation, y) for x, y in sets]
    x, y, tx, ty = (t.to(device) for t in (x, y, tx, ty))
    model = MODELS["cifar10_cnn"]().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    for _ in range(options.epochs):
        model.train()
        for index in torch.randperm(len(x)).to(device).split(options.batch):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
    model.eval()
    with torch.inference_mode():
        right = sum((model(a).argmax(1) == b).sum().item() for a, b in zip(tx.split(500), ty.split(500)))
    return right / len(ty)


def tandem_accuracy(seed, options):
    with tempfile.TemporaryDirectory() as out:
        command = [options.tandem, "train", "cifar10_cnn", "--data-dir", options.data, "--device", options.device,
                   "--epochs", str(options.epochs), "--batch", str(options.batch), "--lr", str(options.lr),
                   "--seed", str(seed), "--out", out + "/run", "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        return json.loads(done)["test_accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5, choices=range(2, 11))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.01)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    sets = records(options.data, "data_batch_1.bin"), records(options.data, "test_batch.bin")
    scale = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # as data/cifar.cpp
    ours, theirs = [], []
    for seed in range(options.seeds):
        ours.append(tandem_accuracy(seed, options))
        theirs.append(pytorch_accuracy(seed, sets, options, scale))
        print(f"seed {seed}: tandem {100 * ours[-1]:.2f} %, pytorch {100 * theirs[-1]:.2f} %", flush=True)
    n = options.seeds
    difference = statistics.mean(ours) - statistics.mean(theirs)
    error = math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / n)
    t = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}[n]  # n - 1 degrees
    # How often a random split of the pooled results has as low a rank sum: exact for so few.
    pooled = ours + theirs
    wins = lambda a, b: sum((x > y) + 0.5 * (x == y) for x in a for y in b)
    seen, splits = wins(ours, theirs), list(itertools.combinations(range(2 * n), n))
    low = sum(wins([pooled[i] for i in s], [pooled[i] for i in range(2 * n) if i not in s]) <= seen for s in splits)
    print(f"mean: tandem {100 * statistics.mean(ours):.2f} %, pytorch {100 * statistics.mean(theirs):.2f} %; difference "
          f"{100 * difference:+.2f} points, 95 % interval {100 * (difference - t * error):+.2f} to "
          f"{100 * (difference + t * error):+.2f}; p of 'tandem is worse' {low / len(splits):.3f}")


if __name__ == "__main__":
    main()
