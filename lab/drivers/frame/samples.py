"""The samples of a cell, and their batches."""
import numpy as np

from .trim import trimmed_size

TYPES = {"f32": np.float32, "i64": np.int64}


class Data:
    """Samples in NumPy files, mapped, by the names of the network's inputs and the workload's targets.

    wanted: {name: (type, shape of a sample, least, most)}; least and most are None for any. trim: of the Cell."""

    def __init__(self, what, paths, wanted, trim=()):
        self.arrays, self.length, self.trim = {}, None, trim
        for name, (kind, shape, least, most) in wanted.items():
            full = "%s.%s" % (what, name)
            if not isinstance(paths.get(name), str):
                raise ValueError("%s: must be the path of a NumPy file; got %r." % (full, paths.get(name)))
            array = np.load(paths[name], mmap_mode="r", allow_pickle=False)
            if array.dtype != TYPES[kind] or array.shape[1:] != shape or array.ndim == 0 or len(array) == 0:
                raise ValueError("%s: must be %s (N%s) with at least one sample; got %s %s." % (
                    full, kind, "".join(", %d" % size for size in shape), array.dtype, array.shape))
            if self.length is None:
                self.length, first = len(array), full
            if len(array) != self.length:
                raise ValueError("%s: must have as many samples as %s, %d; got %d." % (
                    full, first, self.length, len(array)))
            if most is not None and (array.min() < least or array.max() > most):
                raise ValueError("%s: must be in %d … %d; got %d … %d." % (
                    full, least, most, array.min(), array.max()))
            self.arrays[name] = array

    def __len__(self):
        return self.length

    def batch(self, index, size, order=None):
        """Batch number `index` in the given order (that of the file where there is none); runs on from the start."""
        places = np.arange(index * size, (index + 1) * size, dtype=np.int64) % len(self)
        if order is not None:
            places = order[places]
        elif places[0] <= places[-1] and size <= len(self):
            places = slice(int(places[0]), int(places[-1]) + 1)
        sizes = {name: trimmed_size(int(self.arrays[rule.length][places].max()), rule, self.arrays[name].shape[1])
                 for rule in self.trim for name in rule.of}
        return {name: np.array(array[places][:, :sizes[name]] if name in sizes else array[places])
                for name, array in self.arrays.items()}
