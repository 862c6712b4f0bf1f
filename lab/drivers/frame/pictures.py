"""Pictures of the field `data.images`: their list, and where each is cut ("Images" in lab/docs/protocol.md)."""
from types import SimpleNamespace

import numpy as np

from .hashing import hashed


def read_pictures(given, sizes, classes):
    """-> paths, labels (lists), resize, height, width, mean and std. given: the Fields of `data.images`. sizes: the shape of the
    network's only input, None where there is another number of inputs or targets. classes: how many labels there are, or None."""
    if sizes is None or len(sizes) != 3 or sizes[0] != 3:
        raise ValueError("data.images: must be for a network of one input (3, height, width) and one target.")
    images = SimpleNamespace(paths=[], labels=[], resize=given.read("resize"), height=sizes[1], width=sizes[2])
    for name in ("mean", "std"):
        values = given.read(name)
        if len(values) != 3 or not all(isinstance(value, (int, float)) for value in values):
            raise ValueError("data.images.%s: must be three numbers; got %r." % (name, values))
        setattr(images, name, [float(value) for value in values])
    if images.resize < max(images.height, images.width):
        raise ValueError("data.images.resize: must be at least the sizes of a sample, %d and %d; got %d." % (
            images.height, images.width, images.resize))
    with open(given.read("list"), encoding="utf-8") as file:
        for line in file:
            label, tab, path = line.rstrip("\n").partition("\t")
            if not tab or not label.isdigit() or classes is not None and int(label) >= classes:
                raise ValueError("data.images.list: each line must be a label below %s and a path, with a tab "
                                 "between; got %r." % (classes, line[:120]))
            images.labels.append(int(label))
            images.paths.append(path)
    if not images.paths:
        raise ValueError("data.images.list: must have a file; got none.")
    return images


def drawn(positions, seed):
    """Three 32-bit numbers for each position of a run, (n, 3): where a picture is cut, down and across, and whether it is
    mirrored."""
    positions = np.asarray(positions, dtype=np.uint32).reshape(-1, 1)
    return hashed(positions * np.uint32(3) + np.arange(3, dtype=np.uint32), seed)


def cut_of(numbers, height, width, images):
    """(top, left, is mirrored) in a picture of these sizes, by three numbers of `drawn`."""
    down, across, mirrored = map(int, numbers)
    return (down * (height - images.height + 1) >> 32, across * (width - images.width + 1) >> 32, mirrored >> 31 == 1)


def middle_of(height, width, images):
    """The same in test mode."""
    return (height - images.height) // 2, (width - images.width) // 2, False
