"""Layers that TensorFlow has no single operation for, as functions that the code of tensorflow_network.py calls.

Values have the samples first and channels or features last. Weights come in TensorFlow's layouts: (features, outputs).
In mixed precision (bf16) normalisation and softmax are computed in f32.
"""
import tensorflow as tf


def wide(x):
    return tf.cast(x, tf.float32) if x.dtype == tf.bfloat16 else x


def linear(x, weight, bias):
    """Over the last axis of x with more axes than (samples, features)."""
    sizes = x.shape[1:-1].as_list()
    y = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), weight)
    if bias is not None:
        y = tf.nn.bias_add(y, bias)
    return tf.reshape(y, [-1] + sizes + [weight.shape[-1]])


def spread(kernel, dilation):
    """A dilated kernel written out, with zeros between its numbers."""
    for axis, d in enumerate(dilation):
        sizes = kernel.shape.as_list()
        zeros = [[0, 0]] * (axis + 1) + [[0, d - 1]] + [[0, 0]] * (len(sizes) - axis - 1)
        kernel = tf.reshape(tf.pad(tf.expand_dims(kernel, axis + 1), zeros),
                            sizes[:axis] + [sizes[axis] * d] + sizes[axis + 1:])
        kernel = kernel[(slice(None),) * axis + (slice(0, (sizes[axis] - 1) * d + 1),)]
    return kernel


# ---------------------------------------------------------------------------------------------------------------------
# Normalisation


def as_images(x):
    """(samples, …, channels) as FusedBatchNorm takes it."""
    return x if x.shape.rank == 4 else tf.reshape(x, (x.shape[0], -1, 1, x.shape[-1]))


def batch_norm(x, scale, offset, eps):
    """-> (y, mean and unbiased variance of the batch)."""
    if x.dtype == tf.float64:
        axes = list(range(x.shape.rank - 1))
        mean, variance = tf.nn.moments(x, axes)
        count = x.shape.num_elements() // x.shape[-1]
        y = tf.nn.batch_normalization(x, mean, variance, offset, scale, eps)
        return y, mean, variance * (count / (count - 1))
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=as_images(x), scale=scale, offset=offset, mean=[], variance=[], epsilon=eps, is_training=True)
    return y if x.shape.rank == 4 else tf.reshape(y, x.shape), mean, variance


def batch_norm_tested(x, scale, offset, mean, variance, eps):
    """With running statistics."""
    if x.dtype == tf.float64:
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, eps)
    y = tf.raw_ops.FusedBatchNormV3(x=as_images(x), scale=scale, offset=offset, mean=mean, variance=variance,
                                    epsilon=eps, is_training=False)[0]
    return y if x.shape.rank == 4 else tf.reshape(y, x.shape)


def normalised(x, axes, scale, offset, eps):
    """layer_norm, and instance_norm over all axes but the first and the last. Scale and offset may be None."""
    numbers = wide(x)
    mean, variance = tf.nn.moments(numbers, axes, keepdims=True)
    return tf.cast(tf.nn.batch_normalization(numbers, mean, variance, offset, scale, eps), x.dtype)


def group_norm(x, groups, scale, offset, eps):
    channels = x.shape[-1]
    grouped = wide(tf.reshape(x, (x.shape[0], -1, groups, channels // groups)))
    mean, variance = tf.nn.moments(grouped, (1, 3), keepdims=True)
    y = tf.reshape((grouped - mean) * tf.math.rsqrt(variance + eps), x.shape)
    if scale is not None:
        y = y * scale + offset
    return tf.cast(y, x.dtype)


def rms_norm(x, axes, scale, eps):
    numbers = wide(x)
    y = numbers * tf.math.rsqrt(tf.reduce_mean(tf.square(numbers), axes, keepdims=True) + eps)
    return tf.cast(y if scale is None else y * scale, x.dtype)


def softmax(x):
    return tf.cast(tf.nn.softmax(wide(x)), x.dtype)


def log_softmax(x):
    return tf.cast(tf.nn.log_softmax(wide(x)), x.dtype)


def softplus(x, beta, threshold):
    scaled = x * beta
    return tf.where(scaled > threshold, x, tf.nn.softplus(scaled) / beta)


# ---------------------------------------------------------------------------------------------------------------------
# Pools


def adaptive_pool(x, windows, reduce):
    """windows: [(begin, end), …] for each axis between samples and channels. reduce: tf.reduce_mean or reduce_max."""
    for axis, cuts in enumerate(windows, 1):
        before = (slice(None),) * axis
        x = tf.stack([reduce(x[before + (slice(begin, end),)], axis) for begin, end in cuts], axis)
    return x


def dilated_max_pool(x, kernel, stride, dilation):
    """TensorFlow's dilated pools have no stride: of their places, every stride-th is taken."""
    names = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
    y = tf.nn.pool(x, kernel, "MAX", [1] * len(kernel), "VALID", names[len(kernel)], dilations=dilation)
    return y[(slice(None),) + tuple(slice(None, None, s) for s in stride)]


# ---------------------------------------------------------------------------------------------------------------------
# Sequences


def mean_of_true(x, lengths):
    """The mean over axis 1 up to each sample's length."""
    true = tf.sequence_mask(lengths, x.shape[1], dtype=x.dtype)
    true = tf.reshape(true, true.shape.as_list() + [1] * (x.shape.rank - 2))
    count = tf.reshape(tf.cast(lengths, x.dtype), [-1] + [1] * (x.shape.rank - 2))
    return tf.reduce_sum(x * true, 1) / count


def direction(x, lengths, backwards, whole, h, c, w_ih, w_hh, b_ih=None, b_hh=None):
    """One layer of an LSTM in one direction, x (time, samples, features) -> (hidden states or None, h, c). whole: with
    the hidden states of all steps."""
    steps, samples, features = x.shape

    def turned(x):
        return tf.reverse(x, (0,)) if lengths is None else tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)

    gates = tf.matmul(tf.reshape(turned(x) if backwards else x, (-1, features)), w_ih)
    if b_ih is not None:
        gates = tf.nn.bias_add(gates, b_ih + b_hh)
    gates = tf.TensorArray(x.dtype, steps).unstack(tf.reshape(gates, (steps, samples, -1)))
    kept = tf.TensorArray(x.dtype, steps, element_shape=h.shape) if whole else ()
    w_hh = tf.convert_to_tensor(w_hh)

    def step(t, h, c, kept):
        i, f, g, o = tf.split(gates.read(t) + tf.matmul(h, w_hh), 4, axis=1)
        new_c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        new_h = tf.sigmoid(o) * tf.tanh(new_c)
        if lengths is None:
            return t + 1, new_h, new_c, kept.write(t, new_h) if whole else ()
        true = tf.expand_dims(tf.cast(t, lengths.dtype) < lengths, 1)
        if whole:
            kept = kept.write(t, tf.where(true, new_h, tf.zeros_like(new_h)))
        return t + 1, tf.where(true, new_h, h), tf.where(true, new_c, c), kept

    _, h, c, kept = tf.while_loop(lambda t, *_: t < steps, step, (0, h, c, kept), maximum_iterations=steps)
    if not whole:
        return None, h, c
    return turned(kept.stack()) if backwards else kept.stack(), h, c


def lstm(x, lengths, states, weights, both, whole):
    """x (samples, time, features). weights: for each layer and direction a tuple as `direction` takes it; both: two
    directions. states: None or (h, c), each (samples, layers · directions, hidden). whole: the result is the sequence,
    not the last hidden states. -> (result, (h, c))."""
    y, hs, cs = tf.transpose(x, (1, 0, 2)), [], []
    directions = 2 if both else 1
    for first in range(0, len(weights), directions):
        outputs = []
        for index in range(first, first + directions):
            if states is None:
                h = c = tf.zeros((x.shape[0], weights[index][1].shape[0]), x.dtype)
            else:
                h, c = tf.cast(states[0][:, index], x.dtype), tf.cast(states[1][:, index], x.dtype)
            is_read = whole or first + directions < len(weights)
            output, h, c = direction(y, lengths, index > first, is_read, h, c, *weights[index])
            outputs.append(output)
            hs.append(h)
            cs.append(c)
        y = tf.concat(outputs, -1) if both and is_read else outputs[0]
    result = tf.transpose(y, (1, 0, 2)) if whole else tf.concat(hs[-2:], -1) if both else hs[-1]
    return result, None if states is None else (wide(tf.stack(hs, 1)), wide(tf.stack(cs, 1)))


def attention(inputs, lengths, heads, causal, in_weight, in_bias, out_weight, out_bias):
    """inputs: (x,) or (query, key, value), each (samples, time, width). causal: the matrix of what a query may see, or
    None."""
    width = out_weight.shape[0]

    def headed(x):
        return tf.transpose(tf.reshape(x, (-1, x.shape[1], heads, width // heads)), (0, 2, 1, 3))

    if len(inputs) == 1:
        query, key, value = map(headed, tf.split(linear(inputs[0], in_weight, in_bias), 3, axis=-1))
    else:
        biases = [None] * 3 if in_bias is None else tf.split(in_bias, 3)
        query, key, value = (headed(linear(x, w, b)) for x, w, b in zip(inputs, tf.split(in_weight, 3, axis=1), biases))
    scores = wide(tf.matmul(query * (width // heads) ** -0.5, key, transpose_b=True))
    if causal is not None:
        scores = tf.where(causal, scores, scores.dtype.min)
    if lengths is not None:
        true = tf.sequence_mask(lengths, key.shape[2])
        scores = tf.where(true[:, None, None, :], scores, scores.dtype.min)
    y = tf.matmul(tf.cast(tf.nn.softmax(scores), value.dtype), value)
    return linear(tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (-1, query.shape[2], width)), out_weight, out_bias)


# ---------------------------------------------------------------------------------------------------------------------
# Losses


def counted(array, lengths):
    """(N, T, 1, …), true where a place of the array (N, T, …) counts."""
    true = tf.sequence_mask(lengths, array.shape[1])
    return tf.reshape(true, true.shape.as_list() + [1] * (array.shape.rank - 2))


def right_answers(output, target, lengths=None):
    """At each place whether the largest output is the target's; of places that do not count, no."""
    right = tf.argmax(output, axis=-1) == target
    return right if lengths is None else right & counted(right, lengths)


def ctc(stride):
    """Labels are filled up with zeros, which are the blank. A text that does not fit its steps counts for nothing."""
    def loss(output, labels, lengths):
        counts = tf.math.count_nonzero(labels, 1, dtype=tf.int32)
        steps = tf.cast((lengths + stride - 1) // stride, tf.int32)
        each = tf.nn.ctc_loss(tf.cast(labels, tf.int32), output, counts, steps, logits_time_major=False, blank_index=0)
        each = tf.where(tf.math.is_finite(each), each, tf.zeros_like(each))
        return tf.reduce_mean(each / tf.cast(tf.maximum(counts, 1), each.dtype))

    return loss


def loss_of(kind, has_lengths, stride=1):
    """-> function of an output, its target and, where has_lengths, the lengths: the mean over all that counts. stride: of
    ctc."""
    if kind == "ctc":
        return ctc(stride)
    places = {"cross_entropy": lambda output, target: tf.nn.sparse_softmax_cross_entropy_with_logits(target, output),
              "mse": lambda output, target: tf.math.squared_difference(output, target),
              "mae": lambda output, target: tf.abs(output - target),
              "bce": lambda output, target: tf.nn.sigmoid_cross_entropy_with_logits(target, output)}[kind]
    if not has_lengths:
        return lambda output, target: tf.reduce_mean(places(output, target))

    def loss(output, target, lengths):
        each = places(output, target)
        true = tf.reshape(tf.sequence_mask(lengths, each.shape[1], dtype=each.dtype),
                          each.shape[:2].as_list() + [1] * (each.shape.rank - 2))
        of_a_step = each.shape[2:].num_elements() or 1
        return tf.reduce_sum(each * true) / (tf.cast(tf.reduce_sum(lengths), each.dtype) * of_a_step)

    return loss
