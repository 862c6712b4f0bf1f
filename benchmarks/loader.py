#!/usr/bin/env python3
"""Images a second: JPEG files through decoding, resize to 256, random crop of 224, flip and normalisation into batches,
ours against PyTorch's DataLoader with torchvision and PIL. Both sides live through the run and take turns.

    cmake --build build --target image_loader
    python3 benchmarks/loader.py FOLDER_WITH_JPEG_FILES [--workers 2] [--rounds 8]

Beside the time by the clock stands the processor time an image, which other programs on the machine disturb less."""
import argparse
import glob
import json
import os
import random
import statistics
import sys
import time

import harness


def peer(folder, workers, batch):
    """The other side, run by a Python that has torchvision."""
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms as T

    torch.set_num_threads(1)
    paths = sorted(glob.glob(os.path.join(folder, "**", "*.jpg"), recursive=True))
    normalise = [T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]

    class Images(Dataset):
        def __init__(self, transform):
            self.transform = transform

        def __len__(self):
            return len(paths)

        def __getitem__(self, i):
            with Image.open(paths[i]) as image:
                return self.transform(image.convert("RGB")), 0

    train = Images(T.Compose([T.Resize(256), T.RandomCrop(224), T.RandomHorizontalFlip(), *normalise]))
    plain = Images(T.Compose([T.Resize(256), T.CenterCrop(224), *normalise]))
    loader = DataLoader(train, batch_size=batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
                        prefetch_factor=4 if workers else None)
    for line in sys.stdin:
        what = json.loads(line)["do"]
        answer = {"name": f"PyTorch {torch.__version__}"}
        if what == "check":
            answer = {"means": [plain[i][0].double().mean().item() for i in range(min(16, len(paths)))]}
        elif what == "epoch":
            begin, images = time.perf_counter(), 0
            for batch_images, _ in loader:
                images += len(batch_images)
            answer = {"images": images, "seconds": time.perf_counter() - begin}
        print(json.dumps(answer), flush=True)


def processor_seconds(pid):
    """User and system time of a process and its children so far."""
    total, tick = 0.0, os.sysconf("SC_CLK_TCK")
    for stat in glob.glob("/proc/[0-9]*/stat"):
        text = harness.read(stat)
        if not text:
            continue
        fields = text.rpartition(")")[2].split()
        if int(stat.split("/")[2]) == pid or int(fields[1]) == pid:
            total += (int(fields[11]) + int(fields[12])) / tick
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--program", help="the built image_loader; default: the one in the newest build folder")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(options.folder, options.workers, options.batch)

    program = harness.find_program("image_loader", options.program)
    if not program:
        raise SystemExit("loader: image_loader is not built. Run: cmake --build build --target image_loader")
    arguments = [options.folder, str(options.workers), str(options.batch)]
    sides = [harness.Driver("tandem", [program, *arguments])]
    python, _ = harness.find_peer_python()
    if python:
        sides.append(harness.Driver("pytorch", [python, os.path.abspath(__file__), "--peer", "--workers",
                                                str(options.workers), "--batch", str(options.batch), options.folder]))
        means = [side.ask({"do": "check"})["means"] for side in sides]
        apart = max(abs(a - b) for a, b in zip(*means))
        if apart > 1e-4:
            raise SystemExit(f"loader: both sides must see the same images; their means are {apart} apart.")
    else:
        print("PyTorch is absent: our side runs alone")
    rates = {side.name: [] for side in sides}
    costs = {side.name: [] for side in sides}
    for side in sides:
        side.ask({"do": "epoch"})  # files into the cache, workers started
    for _ in range(options.rounds):
        random.shuffle(sides)
        for side in sides:
            before = processor_seconds(side.process.pid)
            result = side.ask({"do": "epoch"})
            costs[side.name].append((processor_seconds(side.process.pid) - before) / result["images"])
            rates[side.name].append(result["images"] / result["seconds"])
    for side in sides:
        side.close()
    print(f"{options.workers} workers, batches of {options.batch}, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for name in rates:
        print(f"{name:8}  {statistics.median(rates[name]):7.1f} images/s   "
              f"{1000 * statistics.median(costs[name]):6.2f} ms of processor time an image")
    if len(rates) == 2:
        rate = [a / b for a, b in zip(rates["tandem"], rates["pytorch"])]
        cost = [b / a for a, b in zip(costs["tandem"], costs["pytorch"])]
        print(f"ratio     {statistics.median(rate):.2f} by the clock ({min(rate):.2f} to {max(rate):.2f}), "
              f"{statistics.median(cost):.2f} by processor time ({min(cost):.2f} to {max(cost):.2f})")


if __name__ == "__main__":
    main()
