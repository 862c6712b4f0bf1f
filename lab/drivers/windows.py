"""The windows of convolutions and pools, for the builders of TensorFlow, Keras and ONNX Runtime: how much to pad, how
many numbers a mean is over, and where the windows of adaptive pools lie. Lists are per axis, without samples and
channels.
"""
import math

import numpy as np


def reach(kernel, dilation):
    """The places from a window's first number to its last."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]


def padding_of_pool(sizes, out, spans, stride, before):
    """[(before, after), …] such that windows of these spans give exactly `out` places: with ceil_mode more than the
    setting says, and less where the last numbers fit into no window."""
    return [(b, max(0, (o - 1) * s + span - size - b))
            for size, o, span, s, b in zip(sizes, out, spans, stride, before)]


def same_padding(sizes, spans, stride):
    """[(before, after), …] of TensorFlow's "SAME"."""
    totals = [max(0, (math.ceil(size / s) - 1) * s + span - size) for size, span, s in zip(sizes, spans, stride)]
    return [(total // 2, total - total // 2) for total in totals]


def averaged(sizes, out, kernel, stride, padding, include_pad):
    """How many numbers each window of avg_pool is the mean of: an array of the shape `out`. What ceil_mode adds beyond
    the padding never counts; the padding counts where include_pad says so."""
    counts = np.ones(())
    for size, o, k, s, p in zip(sizes, out, kernel, stride, padding):
        begins = np.arange(o) * s - p
        ends = np.minimum(begins + k, size + p)
        if not include_pad:
            begins, ends = np.maximum(begins, 0), np.minimum(ends, size)
        counts = np.multiply.outer(counts, ends - begins)
    return counts


def adaptive(size, out):
    """[(begin, end), …] of the windows of an adaptive pool over one axis."""
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def even(sizes, out):
    """Whether an adaptive pool is a plain one, whose windows and strides are both size / out."""
    return all(size % o == 0 for size, o in zip(sizes, out))
