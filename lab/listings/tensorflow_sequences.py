"""Networks with loops, attention and lengths in plain TensorFlow, which no description can say: the protocol carries each as one
call, whose kind is its name here and whose settings are its sizes. Loops over time are tf.while_loop.

    outputs = MODELS[kind](net, settings, *inputs)        net: Pass, inputs in the network's order

Matrices are stored (in, out), kernels (places, in, out); an embedding as it is.
"""
import keras
import numpy as np
import tensorflow as tf

import frame
import tensorflow_layers as layers
import tensorflow_network


class Pass:
    """One pass: variables by name, and in training the new values of running statistics."""

    def __init__(self, held, training):
        self.held, self.training, self.changes = held, training, {}

    def __call__(self, name):
        return self.held.get(name)

    def dropout(self, x, rate):
        return tf.nn.dropout(x, rate) if self.training and rate > 0 else x

    def linear(self, name, x):
        return layers.linear(x, self(name + ".weight"), self(name + ".bias"))

    def weights(self, name, both=False):
        return [tuple(self("%s.%s%s" % (name, part, way)) for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
                for way in (("_l0", "_l0_reverse") if both else ("_l0",))]

    def lstm(self, name, x, lengths=None, states=None, both=False):
        """states: None or (h, c), each (samples, 1, hidden); then they are given back, too."""
        return layers.lstm(x, lengths, states, self.weights(name, both), both, True)

    def batch_norm(self, name, x):
        scale, offset, mean, variance = (self(name + end) for end in (".weight", ".bias", ".running_mean", ".running_var"))
        if not self.training:
            return layers.batch_norm_tested(x, scale, offset, mean, variance, 1e-5)
        x, batch_mean, batch_variance = layers.batch_norm(x, scale, offset, 1e-5)
        self.changes[name + ".running_mean"] = 0.9 * mean + 0.1 * batch_mean
        self.changes[name + ".running_var"] = 0.9 * variance + 0.1 * batch_variance
        return x

    def masked_batch_norm(self, name, x, mask):
        """Batch norm whose statistics are of true steps alone; channels last. mask: of as many axes as x."""
        mean, variance = self(name + ".running_mean"), self(name + ".running_var")
        if self.training:
            axes = list(range(x.shape.rank - 1))
            places = x.shape.num_elements() // (x.shape[-1] * mask.shape.num_elements())
            count = tf.reduce_sum(mask) * places
            old_mean, old_variance = mean, variance
            mean = tf.reduce_sum(x * mask, axes) / count
            centred = (x - mean) * mask
            variance = tf.reduce_sum(tf.square(centred), axes) / count
            unbiased = variance * (count / tf.maximum(count - 1, 1))
            self.changes[name + ".running_mean"] = 0.9 * old_mean + 0.1 * mean
            self.changes[name + ".running_var"] = 0.9 * old_variance + 0.1 * unbiased
        else:
            centred = x - mean
        return centred * (tf.math.rsqrt(variance + 1e-5) * self(name + ".weight")) + self(name + ".bias")


# ---------------------------------------------------------------------------------------------------------------------
# Deep Speech 2


def gru(x, lengths, backwards, w_ih, w_hh, b_ih, b_hh):
    """One way of a GRU, x (time, samples, features), over the true steps; zeros beyond."""
    steps, samples, features = x.shape
    x = tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1) if backwards else x
    gates = tf.nn.bias_add(tf.matmul(tf.reshape(x, (-1, features)), w_ih), b_ih)
    gates = tf.TensorArray(x.dtype, steps).unstack(tf.reshape(gates, (steps, samples, -1)))
    w_hh, b_hh = tf.convert_to_tensor(w_hh), tf.convert_to_tensor(b_hh)
    h = tf.zeros((samples, w_hh.shape[0]), x.dtype)
    kept = tf.TensorArray(x.dtype, steps, element_shape=h.shape)

    def step(t, h, kept):
        r, z, n = tf.split(gates.read(t), 3, axis=1)
        from_r, from_z, from_n = tf.split(tf.nn.bias_add(tf.matmul(h, w_hh), b_hh), 3, axis=1)
        z = tf.sigmoid(z + from_z)
        new = (1 - z) * tf.tanh(n + tf.sigmoid(r + from_r) * from_n) + z * h
        true = tf.expand_dims(tf.cast(t, lengths.dtype) < lengths, 1)
        return t + 1, tf.where(true, new, h), kept.write(t, tf.where(true, new, tf.zeros_like(new)))

    made = tf.while_loop(lambda t, *_: t < steps, step, (0, h, kept), maximum_iterations=steps)[2].stack()
    return tf.reverse_sequence(made, lengths, seq_axis=0, batch_axis=1) if backwards else made


def padded_conv(net, name, x, strides, padding):
    x = tf.pad(x, [[0, 0]] + [[zeros, zeros] for zeros in padding] + [[0, 0]])
    return tf.nn.bias_add(tf.nn.conv2d(x, net(name + ".weight"), strides, "VALID"), net(name + ".bias"))


def deepspeech2(net, s, features, length):
    x = features * tf.sequence_mask(length, features.shape[1], features.dtype)[:, :, None]
    x = padded_conv(net, "conv1", tf.transpose(x, (0, 2, 1))[..., None], (2, 2), (20, 5))
    lengths = (length + 1) // 2
    behind = tf.sequence_mask(lengths, x.shape[2], x.dtype)[:, :, None]
    beside = behind[:, None]
    x = tf.clip_by_value(net.masked_batch_norm("norm1", x, beside), 0, 20) * beside
    x = padded_conv(net, "conv2", x, (2, 1), (10, 5))
    x = tf.clip_by_value(net.masked_batch_norm("norm2", x, beside), 0, 20) * beside
    x = tf.reshape(tf.transpose(x, (0, 2, 3, 1)), (x.shape[0], x.shape[2], -1))  # (N, steps, channels · frequencies)
    for i in range(1, s["layers"] + 1):
        if i > 1:
            x = net.masked_batch_norm("rnn%d_norm" % i, x, behind)
        x = tf.transpose(x * behind, (1, 0, 2))
        x = tf.add_n([gru(x, lengths, way == 1, *weights)
                      for way, weights in enumerate(net.weights("rnn%d" % i, both=True))])
        x = tf.transpose(x, (1, 0, 2))
    return net.linear("fc", net.masked_batch_norm("fc_norm", x, behind)),


# ---------------------------------------------------------------------------------------------------------------------
# Translation


def embedded(net, name, tokens):
    return tf.gather(net(name + ".weight"), tokens)


def seq2seq(net, s, source, length, before):
    x = embedded(net, "encoder_embedding", source)
    none = tf.zeros((x.shape[0], 1, s["hidden"]), x.dtype)
    _, states = net.lstm("encoder", x, length, (none, none))
    return net.linear("fc", net.lstm("decoder", embedded(net, "decoder_embedding", before), None, states)[0]),


def gnmt(net, s, source, length, before):
    drop, memory = s["dropout"], embedded(net, "encoder.embedding", source)
    for i in range(s["layers"]):
        made = net.lstm("encoder.lstm%d" % i, net.dropout(memory, drop), length, both=i == 0)[0]
        memory = made + memory if i >= 2 else made
    x = net.lstm("decoder.lstm0", net.dropout(embedded(net, "decoder.embedding", before), drop))[0]
    query, keys = (net.linear("decoder.attention." + name, value)
                   for name, value in (("query_layer", x), ("memory_layer", memory)))
    energies = net.linear("decoder.attention.v", tf.tanh(query[:, :, None] + keys[:, None]))[..., 0]
    energies = tf.where(tf.sequence_mask(length, source.shape[1])[:, None], energies, energies.dtype.min)
    context = tf.matmul(tf.nn.softmax(energies), memory)
    for i in range(1, s["layers"]):
        made = net.lstm("decoder.lstm%d" % i, net.dropout(tf.concat((x, context), -1), drop))[0]
        x = made + x if i >= 2 else made
    return net.linear("decoder.fc", x),


# ---------------------------------------------------------------------------------------------------------------------
# Tacotron 2


def lstm_cell(gates, h, c, w_hh):
    i, f, g, o = tf.split(gates + tf.matmul(h, w_hh), 4, axis=1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def frames_of(net, s, memory, within, mels):
    """The decoder with the true frame before each: (mels, gates)."""
    n, steps, _ = mels.shape
    x = tf.pad(mels[:, :-1], ((0, 0), (1, 0), (0, 0)))
    for name in ("decoder.prenet1", "decoder.prenet2"):  # its dropout is on in test mode, too
        x = tf.nn.relu(net.linear(name, x))
        x = tf.nn.dropout(x, s["prenet_dropout"]) if s["prenet_dropout"] > 0 else x
    first, second, attention = "decoder.attention_rnn.", "decoder.decoder_rnn.", "decoder.attention."
    # Read once, and not in each step.
    held = {name: tf.convert_to_tensor(net(name)) for name in net.held if name.startswith((first, second, attention))}
    w_frame, w_context = tf.split(held[first + "weight_ih"], (s["prenet"], s["embedding"]))
    products = layers.linear(tf.transpose(x, (1, 0, 2)), w_frame, held[first + "bias_ih"] + held[first + "bias_hh"])
    second_bias = held[second + "bias_ih"] + held[second + "bias_hh"]
    keys = layers.linear(memory, held[attention + "memory_layer.weight"], None)
    sizes = [s["attention_rnn"]] * 2 + [s["decoder_rnn"]] * 2

    def in_turn(sequence):
        return tf.TensorArray(sequence.dtype, steps).unstack(sequence)

    products, keeps = in_turn(products), None
    if net.training and s["zoneout"] > 0:
        keeps = [in_turn(tf.random.uniform((steps, n, size)) < s["zoneout"]) for size in sizes]
    share = 0.0 if net.training else s["zoneout"]

    def zoned_out(t, index, old, new):
        if keeps is not None:
            return tf.where(keeps[index].read(t), old, new)
        return new if share == 0 else old * share + new * (1 - share)

    def step(t, h1, c1, h2, c2, context, weights, total, kept):
        new_h, new_c = lstm_cell(products.read(t) + tf.matmul(context, w_context), h1, c1, held[first + "weight_hh"])
        h1, c1 = net.dropout(zoned_out(t, 0, h1, new_h), s["decoder_dropout"]), zoned_out(t, 1, c1, new_c)
        places = tf.nn.conv1d(tf.stack((weights, total), -1), held[attention + "location_conv.weight"], 1, "SAME")
        energies = tf.matmul(h1, held[attention + "query_layer.weight"])[:, None] + keys + layers.linear(
            places, held[attention + "location_dense.weight"], None)
        energies = layers.linear(tf.tanh(energies), held[attention + "v.weight"], None)[..., 0]
        weights = tf.nn.softmax(tf.where(within, energies, energies.dtype.min))
        context = tf.matmul(weights[:, None], memory)[:, 0]
        gates = tf.nn.bias_add(tf.matmul(tf.concat((h1, context), 1), held[second + "weight_ih"]), second_bias)
        new_h, new_c = lstm_cell(gates, h2, c2, held[second + "weight_hh"])
        h2, c2 = net.dropout(zoned_out(t, 2, h2, new_h), s["decoder_dropout"]), zoned_out(t, 3, c2, new_c)
        return t + 1, h1, c1, h2, c2, context, weights, total + weights, kept.write(t, tf.concat((h2, context), 1))

    state = [tf.zeros((n, size), memory.dtype) for size in sizes + [s["embedding"]] + [memory.shape[1]] * 2]
    kept = tf.TensorArray(memory.dtype, steps, element_shape=(n, s["decoder_rnn"] + s["embedding"]))
    made = tf.while_loop(lambda t, *_: t < steps, step, (0, *state, kept), maximum_iterations=steps)[-1].stack()
    made = tf.transpose(made, (1, 0, 2))
    return net.linear("decoder.projection", made), net.linear("decoder.gate", made)[..., 0]


def tacotron2(net, s, characters, length, mels, frames):
    def time_conv(name, x):
        x = tf.nn.bias_add(tf.nn.conv1d(x, net(name + ".conv.weight"), 1, "SAME"), net(name + ".conv.bias"))
        return net.batch_norm(name + ".norm", x)

    within = tf.sequence_mask(length, characters.shape[1])
    true = tf.cast(within, mels.dtype)[:, :, None]
    x = embedded(net, "embedding", characters) * true
    for i in range(s["encoder_layers"]):
        x = net.dropout(tf.nn.relu(time_conv("encoder.%d" % i, x)), s["conv_dropout"]) * true
    memory = net.lstm("lstm", x, length, both=True)[0]
    made, gates = frames_of(net, s, memory, within, mels)
    spoken = tf.sequence_mask(frames, mels.shape[1], mels.dtype)[:, :, None]
    before = x = made * spoken
    for i in range(s["postnet_layers"]):
        x = time_conv("postnet.%d" % i, x)
        x = x if i == s["postnet_layers"] - 1 else tf.tanh(x)
        x = net.dropout(x, s["conv_dropout"]) * spoken
    return made, before + x, gates


# ---------------------------------------------------------------------------------------------------------------------

MODELS = {"deepspeech2": deepspeech2, "gnmt": gnmt, "seq2seq": seq2seq, "tacotron2": tacotron2}


def stored(name, array):
    """From PyTorch's layout."""
    if array.ndim > 2:
        return np.ascontiguousarray(np.moveaxis(array, (0, 1), (-1, -2)))
    return np.ascontiguousarray(array.T) if array.ndim == 2 and not name.endswith("embedding.weight") else array


def initializer(name, shape):
    """The name of Keras's own, by tensorflow_network.initial."""
    if len(shape) == 1:
        return "ones" if name.endswith("weight") else "zeros"
    return "uniform" if name.endswith("embedding.weight") else "orthogonal" if "weight_hh" in name else "glorot_uniform"


class Whole:
    """A network of one call, with the fields of tensorflow_network.Network."""

    states = []

    def __init__(self, cell):
        if cell.precision == "bf16":
            raise frame.Declined("precision", "precision: %s is written for f32 and f64; got bf16."
                                 % cell.network.whole["kind"])
        self.call, given = cell.network.whole, cell.weights(cell.network.parameters)
        self.initialised = given is None
        number = "float64" if cell.precision == "f64" else "float32"
        self.names, self.variables, self.held = [], [], {}
        for name, shape in cell.network.parameters.items():
            native = stored(name, np.empty(shape, np.float32)).shape
            value = tensorflow_network.initial(initializer(name, shape), native) if given is None else \
                stored(name, given[name])
            self.names.append(name)
            self.variables.append(keras.Variable(value, dtype=number))
            self.held[name] = self.variables[-1].value
        self.tensors = [variable.value for variable in self.variables]
        for name, shape in cell.network.buffers.items():
            value = np.full(shape, 1.0 if name.endswith("running_var") else 0.0)
            self.held[name] = tf.Variable((given or {}).get(name, value), trainable=False, dtype=number)
        self.everything = list(self.held.values())
        self.changed = {"train": [self.held[name] for name in cell.network.buffers], "test": []}
        self.buffers = list(cell.network.buffers)
        self.orders = {entry["name"]: tuple(range(len(entry["shape"])))
                       for entry in cell.network.inputs + cell.network.outputs}

    def train(self, *inputs):
        net = Pass(self.held, True)
        outputs = MODELS[self.call["kind"]](net, self.call["settings"], *inputs)
        return outputs, tuple(net.changes[name] for name in self.buffers)

    def test(self, *inputs):
        return MODELS[self.call["kind"]](Pass(self.held, False), self.call["settings"], *inputs), ()
