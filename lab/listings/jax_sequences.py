"""Networks with loops, attention and lengths in plain JAX, which no description can say: the protocol carries each as one
call, whose kind is its name here and whose settings are its sizes. Loops are lax.scan.

    outputs = MODELS[kind](net, settings, *inputs)        net: Pass, inputs in the network's order

Matrices are stored (in, out), kernels (places, in, out); an embedding as it is.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import relu, sigmoid

import jax_network
from jax_network import conv, linear, true_steps, widened


class Pass:
    """The numbers of one pass: parameters and running statistics by name, and keys to draw with."""

    def __init__(self, params, stats, training, key):
        self.params, self.stats, self.training, self.key = params, stats, training, key
        self.new_stats, self.drawn = {}, 0

    def __call__(self, name):
        return self.params.get(name)

    def next_key(self):
        self.drawn += 1
        return jax.random.fold_in(self.key, self.drawn)

    def dropout(self, x, rate, always=False):
        if rate == 0 or not (self.training or always):
            return x
        return jax_network.dropout(x, rate, self.next_key(), x.shape)

    def linear(self, name, x):
        return linear(x, self(name + ".weight"), self(name + ".bias"))

    def weights(self, name, ways=1):
        """Of a recurrent layer, each way's (w_ih, w_hh, b_ih, b_hh)."""
        return [tuple(self("%s.%s%s" % (name, part, suffix)) for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
                for suffix in ("_l0", "_l0_reverse")[:ways]]

    def lstm(self, name, x, lengths=None, h=None, c=None, ways=1):
        return jax_network.lstm(x, self.weights(name, ways), lengths, h, c, ways)

    def running(self, name):
        return self.stats[name + ".running_mean"], self.stats[name + ".running_var"]

    def keep(self, name, mean, var):
        self.new_stats[name + ".running_mean"], self.new_stats[name + ".running_var"] = mean, var

    def batch_norm(self, name, x):
        """x (N, time, channels)."""
        x, mean, var = jax_network.batch_norm(x, self(name + ".weight"), self(name + ".bias"), *self.running(name), 0.1,
                                              1e-5, self.training)
        self.keep(name, mean, var)
        return x

    def masked_batch_norm(self, name, x, mask):
        """Batch norm whose statistics are of true steps alone; channels last. mask: of as many axes as x."""
        wide, axes = widened(x), tuple(range(x.ndim - 1))
        mean, var = self.running(name)
        if self.training:
            count = mask.sum() * (x.size // (x.shape[-1] * mask.size))
            batch_mean = (wide * mask).sum(axes) / count
            centred = (wide - batch_mean) * mask
            batch_var = jnp.square(centred).sum(axes) / count
            unbiased = batch_var * (count / jnp.maximum(count - 1, 1))
            self.keep(name, 0.9 * mean + 0.1 * batch_mean, 0.9 * var + 0.1 * unbiased)
        else:
            centred, batch_var = wide - mean, var
        factor = lax.rsqrt(batch_var + 1e-5) * self(name + ".weight")
        return (centred * factor + self(name + ".bias")).astype(x.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Deep Speech 2


def both_grus(x, weights, mask):
    """The sum of a GRU's two ways over the true steps of x (N, time, features); zeros beyond."""
    true = mask.T[:, :, None]
    x, total = jnp.where(true, x.swapaxes(0, 1), 0), 0
    for way, (w_ih, w_hh, b_ih, b_hh) in enumerate(weights):
        def step(h, given):
            gates, is_true = given
            r, z, n = jnp.split(gates, 3, axis=-1)
            from_r, from_z, from_n = jnp.split(linear(h, w_hh, b_hh), 3, axis=-1)
            z = sigmoid(z + from_z)
            new = (1 - z) * jnp.tanh(n + sigmoid(r + from_r) * from_n) + z * h
            return jnp.where(is_true, new, h), jnp.where(is_true, new, 0)

        begin = jnp.zeros((x.shape[1], w_hh.shape[0]), x.dtype)
        total = total + lax.scan(step, begin, (linear(x, w_ih, b_ih), true), reverse=way == 1)[1]
    return total.swapaxes(0, 1)


def deepspeech2(net, s, features, length):
    x = features * true_steps(length, features.shape[1])[:, :, None]
    x = conv(x.swapaxes(1, 2)[..., None], net("conv1.weight"), net("conv1.bias"), (2, 2), ((20, 20), (5, 5)))
    heard = true_steps((length + 1) // 2, x.shape[2])
    beside, behind = heard[:, None, :, None].astype(x.dtype), heard[:, :, None].astype(x.dtype)
    x = jnp.clip(net.masked_batch_norm("norm1", x, beside), 0, 20) * beside
    x = conv(x, net("conv2.weight"), net("conv2.bias"), (2, 1), ((10, 10), (5, 5)))
    x = jnp.clip(net.masked_batch_norm("norm2", x, beside), 0, 20) * beside
    x = x.transpose(0, 2, 3, 1).reshape(x.shape[0], x.shape[2], -1)  # (N, steps, channels · frequencies)
    for i in range(1, s["layers"] + 1):
        if i > 1:
            x = net.masked_batch_norm("rnn%d_norm" % i, x, behind)
        x = both_grus(x, net.weights("rnn%d" % i, 2), heard)
    return net.linear("fc", net.masked_batch_norm("fc_norm", x, behind)),


# ---------------------------------------------------------------------------------------------------------------------
# Translation


def seq2seq(net, s, source, length, before):
    _, h, c = net.lstm("encoder", net("encoder_embedding.weight")[source], length)
    return net.linear("fc", net.lstm("decoder", net("decoder_embedding.weight")[before], None, h, c)[0]),


def gnmt(net, s, source, length, before):
    drop = s["dropout"]
    memory = net("encoder.embedding.weight")[source]
    for i in range(s["layers"]):
        made = net.lstm("encoder.lstm%d" % i, net.dropout(memory, drop), length, ways=2 if i == 0 else 1)[0]
        memory = made + memory if i >= 2 else made
    x = net.lstm("decoder.lstm0", net.dropout(net("decoder.embedding.weight")[before], drop))[0]
    query, keys = (net.linear("decoder.attention." + name, value)
                   for name, value in (("query_layer", x), ("memory_layer", memory)))
    energies = net.linear("decoder.attention.v", jnp.tanh(query[:, :, None] + keys[:, None]))[..., 0]
    energies = jnp.where(true_steps(length, source.shape[1])[:, None], widened(energies), -jnp.inf)
    context = jax.nn.softmax(energies).astype(memory.dtype) @ memory
    for i in range(1, s["layers"]):
        made = net.lstm("decoder.lstm%d" % i, net.dropout(jnp.concatenate((x, context), -1), drop))[0]
        x = made + x if i >= 2 else made
    return net.linear("decoder.fc", x),


# ---------------------------------------------------------------------------------------------------------------------
# Tacotron 2


def cell(gates, h, c, w_hh):
    i, f, g, o = jnp.split(gates + h @ w_hh, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
    return sigmoid(o) * jnp.tanh(c), c


def frames_of(net, s, memory, within, mels):
    """The decoder with the true frame before each: (mels, gates)."""
    n, dtype, time, characters = mels.shape[0], memory.dtype, mels.shape[1], memory.shape[1]
    x = jnp.pad(mels[:, :-1], ((0, 0), (1, 0), (0, 0)))
    for name in ("decoder.prenet1", "decoder.prenet2"):  # its dropout is on in test mode, too
        x = net.dropout(relu(net.linear(name, x)), s["prenet_dropout"], always=True)
    first, second = "decoder.attention_rnn.", "decoder.decoder_rnn."
    w_frame, w_context = jnp.split(net(first + "weight_ih"), (s["prenet"],))
    # What frames contribute to the gates is one product for all of them.
    products = linear(x.swapaxes(0, 1), w_frame, net(first + "bias_ih") + net(first + "bias_hh"))
    second_bias = net(second + "bias_ih") + net(second + "bias_hh")
    keys = net.linear("decoder.attention.memory_layer", memory)
    sizes = [s["attention_rnn"]] * 2 + [s["decoder_rnn"]] * 2
    keeps = keys_of_dropout = None
    if net.training and s["zoneout"] > 0:
        keeps = tuple(jax.random.bernoulli(net.next_key(), s["zoneout"], (time, n, size)) for size in sizes)
    if net.training and s["decoder_dropout"] > 0:
        keys_of_dropout = jax.random.split(net.next_key(), (time, 2))
    share = 0.0 if net.training else s["zoneout"]

    def zoned_out(old, new, keep):
        if keep is not None:
            return jnp.where(keep, old, new)
        return new if share == 0 else old * share + new * (1 - share)

    def step(state, given):
        h1, c1, h2, c2, context, weights, total = state
        product, keep, drop = given
        keep = (None,) * 4 if keep is None else keep
        new_h, new_c = cell(product + context @ w_context, h1, c1, net(first + "weight_hh"))
        h1, c1 = zoned_out(h1, new_h, keep[0]), zoned_out(c1, new_c, keep[1])
        h1 = h1 if drop is None else jax_network.dropout(h1, s["decoder_dropout"], drop[0], h1.shape)
        places = conv(jnp.stack((weights, total), -1), net("decoder.attention.location_conv.weight"), None, (1,),
                      ((s["location_kernel"] // 2,) * 2,))
        energies = net.linear("decoder.attention.query_layer", h1)[:, None] + keys + net.linear(
            "decoder.attention.location_dense", places)
        energies = net.linear("decoder.attention.v", jnp.tanh(energies))[..., 0]
        weights = jax.nn.softmax(jnp.where(within, widened(energies), -jnp.inf)).astype(dtype)
        context = jnp.einsum("ns,nsd->nd", weights, memory)
        gates = linear(jnp.concatenate((h1, context), -1), net(second + "weight_ih"), second_bias)
        new_h, new_c = cell(gates, h2, c2, net(second + "weight_hh"))
        h2, c2 = zoned_out(h2, new_h, keep[2]), zoned_out(c2, new_c, keep[3])
        h2 = h2 if drop is None else jax_network.dropout(h2, s["decoder_dropout"], drop[1], h2.shape)
        return (h1, c1, h2, c2, context, weights, total + weights), (h2, context)

    begin = tuple(jnp.zeros((n, size), dtype) for size in sizes + [s["embedding"], characters, characters])
    _, (hidden, contexts) = lax.scan(step, begin, (products, keeps, keys_of_dropout))
    made = jnp.concatenate((hidden, contexts), -1).swapaxes(0, 1)
    return net.linear("decoder.projection", made), net.linear("decoder.gate", made)[..., 0]


def tacotron2(net, s, characters, length, mels, frames):
    if net.key is None:  # test mode has no key of its own
        net.key = jax.random.fold_in(jax.random.key(0), frames.sum())

    def convolved(name, x, kernel):
        x = conv(x, net(name + ".conv.weight"), net(name + ".conv.bias"), (1,), ((kernel // 2,) * 2,))
        return net.batch_norm(name + ".norm", x)

    within = true_steps(length, characters.shape[1])
    x = jnp.where(within[:, :, None], net("embedding.weight")[characters], 0)
    for i in range(s["encoder_layers"]):
        x = net.dropout(relu(convolved("encoder.%d" % i, x, s["encoder_kernel"])), s["conv_dropout"])
        x = jnp.where(within[:, :, None], x, 0)
    memory = net.lstm("lstm", x, length, ways=2)[0]
    made, gates = frames_of(net, s, memory, within, mels)
    spoken = true_steps(frames, mels.shape[1])[:, :, None]
    before = x = jnp.where(spoken, made, 0)
    for i in range(s["postnet_layers"]):
        x = convolved("postnet.%d" % i, x, s["postnet_kernel"])
        x = x if i == s["postnet_layers"] - 1 else jnp.tanh(x)
        x = jnp.where(spoken, net.dropout(x, s["conv_dropout"]), 0)
    return made, before + x, gates


# ---------------------------------------------------------------------------------------------------------------------

MODELS = {"deepspeech2": deepspeech2, "gnmt": gnmt, "seq2seq": seq2seq, "tacotron2": tacotron2}


class Whole:
    """A network of one call, with the interface of jax_network.Network."""

    def __init__(self, network):
        self.call, self.shapes, self.stats = network.whole, network.parameters, network.buffers
        self.outputs = len(network.outputs)

    def stored(self, name, array):
        if array.ndim > 2:
            array = np.moveaxis(array, (0, 1), (-1, -2))
        elif array.ndim == 2 and not name.endswith("embedding.weight"):
            array = array.T
        return np.ascontiguousarray(array)

    def placed(self, name, array):
        return array

    def forward(self, params, stats, states, inputs, training, key):
        net = Pass(params, stats, training, key)
        made = MODELS[self.call["kind"]](net, self.call["settings"], *inputs)
        if len(made) != self.outputs:
            raise ValueError("network: %s must have %d outputs; got %d." % (self.call["kind"], len(made), self.outputs))
        return made, net.new_stats, states
