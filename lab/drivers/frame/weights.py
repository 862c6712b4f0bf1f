"""The weights that a cell starts from: of a file, or of the protocol's formula."""
import json
import math
import os

import numpy as np

from .hashing import hashed
from .schema import OBJECTS, Fields


def starting_weights(given, shapes):
    """{canonical name: f32 array} by the field `weights` of `prepare`; None where that is empty. Where the file has running
    statistics (names that end in running_mean and running_var), they come along."""
    if not given:
        return None
    fields = Fields(OBJECTS["weights"], given, "weights")
    seed = fields.read("hash")
    if seed is not None:
        return hash_weights(shapes, seed)
    found = read_safetensors(fields.read("file"))
    for name, shape in shapes.items():
        if name not in found:
            raise ValueError("weights: the file has no %s; it has %s." % (name, ", ".join(sorted(found))))
        if found[name].shape != tuple(shape):
            raise ValueError("weights: %s is %s in the file and %s in the model." % (
                name, found[name].shape, tuple(shape)))
    extra = sorted(name for name in found if name not in shapes and "running_" not in name
                   and not name.endswith("num_batches_tracked"))
    if extra:
        raise ValueError("weights: the file has %s, which the model has not." % ", ".join(extra))
    return found


def hash_weights(shapes, seed):
    """{name: f32 array} by the protocol's formula, for the trained parameters of these canonical names and shapes."""
    made = {}
    piece = 1 << 22  # numbers at a time: the hash needs a few arrays of this size besides the result
    for number, name in enumerate(sorted(shapes)):
        shape = tuple(shapes[name])
        width = np.float32(math.sqrt(6.0 / max(1, math.prod(shape[1:]))) if len(shape) >= 2 else 0.05)
        flat = np.empty(math.prod(shape), dtype=np.float32)
        for begin in range(0, len(flat), piece):
            end = min(begin + piece, len(flat))
            bits = hashed(np.arange(begin, end, dtype=np.uint32), seed + number)
            unit = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
            flat[begin:end] = (unit - np.float32(0.5)) * np.float32(2) * width
        if len(shape) == 1 and name.endswith("weight"):
            flat += np.float32(1)
        made[name] = flat.reshape(shape)
    return made


def read_safetensors(path):
    """{name: f32 array} of a safetensors file. Integer tensors (counters) are left out."""
    if not isinstance(path, str):
        raise ValueError("weights.file: must be a path; got %r." % (path,))
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > os.path.getsize(path) - 8:
            raise ValueError("weights.file: the header must fit into the file; %r is no safetensors file." % path)
        header = json.loads(file.read(length).decode("utf-8"))
    found = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"].startswith(("I", "U", "B")) and entry["dtype"] != "BF16":
            continue
        if entry["dtype"] != "F32":
            raise ValueError("weights.file: tensors must be F32; %s is %s." % (name, entry["dtype"]))
        begin, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if end - begin != 4 * math.prod(shape):
            raise ValueError("weights.file: %s must have %d bytes; got %d." % (name, 4 * math.prod(shape), end - begin))
        found[name] = np.fromfile(path, dtype="<f4", count=(end - begin) // 4, offset=8 + length + begin).reshape(shape)
    return found
