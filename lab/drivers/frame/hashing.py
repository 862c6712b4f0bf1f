"""The protocol's hash, and what it decides: the order of an epoch, and which numbers of an output `check` tells."""
import numpy as np

CHECKED_VALUES = 4096  # how many numbers of an output `check` tells at most


def hashed(index, seed):
    """The protocol's hash of an array of indices (any integers): uint32 array."""
    h = np.asarray(index).astype(np.uint32) * np.uint32(0x9E3779B1)
    h += np.uint32(int(seed) * 0x7F4A7C15 % 2**32)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def epoch_order(samples, seed, epoch):
    """The order of epoch `epoch` (0, 1, …) of fit."""
    return np.argsort(hashed(np.arange(samples, dtype=np.uint32), seed + 7919 * (epoch + 1)), kind="stable")


def checked_values(array):
    """An output as `check` tells it: its shape and its numbers, of many the ones that the hash picks."""
    flat = array.reshape(-1)
    if len(flat) > CHECKED_VALUES:
        flat = flat[hashed(np.arange(CHECKED_VALUES), CHECKED_VALUES).astype(np.int64) % len(flat)]
    return {"shape": list(array.shape), "values": flat.tolist()}
