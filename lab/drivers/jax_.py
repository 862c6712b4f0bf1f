"""The driver of JAX: plain JAX, the whole training step in one jit with its buffers given back (donated). The variant
loop takes all steps of the region throughput in one call of a compiled loop on the device, and is else the same.

The backend starts with the first `prepare`, because threads and convolution mode can be told to XLA only before that:
a later cell of the same process must ask for the same ones.
"""
import glob
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "listings")]
import frame  # noqa: E402

frame.claim_stdout()
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import jax_models  # noqa: E402
import jax_network  # noqa: E402
import jax_sequences  # noqa: E402
import xla_profile  # noqa: E402

PRECISIONS = {"f32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "f64": jnp.float64}


# ---------------------------------------------------------------------------------------------------------------------
# Optimisers, in PyTorch's meaning


def sgd(options):
    lr, momentum = float(options["lr"]), float(options.get("momentum", 0.0))

    def start(params):
        return {name: jnp.zeros_like(value) for name, value in params.items()} if momentum else {}

    def update(params, gradients, slots, step):
        if momentum:
            slots = gradients = {name: momentum * slots[name] + gradients[name] for name in params}
        return {name: params[name] - lr * gradients[name] for name in params}, slots

    return start, update


def adam(options):
    lr, epsilon = float(options.get("lr", 1e-3)), float(options.get("eps", 1e-8))
    beta1, beta2 = options.get("betas", (0.9, 0.999))

    def start(params):
        return {slot + name: jnp.zeros_like(value) for name, value in params.items() for slot in ("m:", "v:")}

    def update(params, gradients, slots, step):
        count = (step + 1).astype(jnp.float32)
        scale1, scale2 = 1 - beta1**count, 1 - beta2**count
        new_params, new_slots = {}, {}
        for name, g in gradients.items():
            m = beta1 * slots["m:" + name] + (1 - beta1) * g
            v = beta2 * slots["v:" + name] + (1 - beta2) * g * g
            change = lr * (m / scale1) / (jnp.sqrt(v / scale2) + epsilon)
            new_params[name] = (params[name] - change).astype(params[name].dtype)
            new_slots["m:" + name], new_slots["v:" + name] = m, v
        return new_params, new_slots

    return start, update


def adadelta(options):
    lr, rho, epsilon = float(options.get("lr", 1.0)), float(options.get("rho", 0.9)), float(options.get("eps", 1e-6))

    def start(params):
        return {slot + name: jnp.zeros_like(value) for name, value in params.items() for slot in ("squares:", "moves:")}

    def update(params, gradients, slots, step):
        new_params, new_slots = {}, {}
        for name, g in gradients.items():
            squares = rho * slots["squares:" + name] + (1 - rho) * g * g
            change = jnp.sqrt(slots["moves:" + name] + epsilon) / jnp.sqrt(squares + epsilon) * g
            new_params[name] = params[name] - lr * change
            new_slots["squares:" + name] = squares
            new_slots["moves:" + name] = rho * slots["moves:" + name] + (1 - rho) * change * change
        return new_params, new_slots

    return start, update


OPTIMIZERS = {"adadelta": (adadelta, {"lr", "rho", "eps"}), "sgd": (sgd, {"lr", "momentum"}), "adam": (adam, {"lr", "eps", "betas"})}


def make_optimizer(options):
    name = options["name"]
    if name not in OPTIMIZERS:
        raise frame.Declined("optimizer", "optimizer: must be one of %s; got %r." % (", ".join(OPTIMIZERS), name))
    make, known = OPTIMIZERS[name]
    for option in sorted(set(options) - known - {"name"}):
        if options[option]:
            raise frame.Declined("optimizer." + option, "optimizer.%s: this driver's %s takes %s." % (
                option, name, ", ".join(sorted(known))))
    return make(options)


# ---------------------------------------------------------------------------------------------------------------------


class Listing:
    """A hand-written network with the interface of jax_network.Network."""

    def __init__(self, cell):
        self.cell, net = cell, jax_models.describe(cell.network.name, cell.sizes, cell.classes)
        self.layouts, self.grids = net.layouts, net.grids
        self.shapes = {name: jax_models.canonical_shape(*layout) for name, layout in net.layouts.items()}
        self.stats = {name + suffix: (size,) for name, size in net.stat_sizes.items()
                      for suffix in (".running_mean", ".running_var")}

    def stored(self, name, array):
        return np.ascontiguousarray(jax_models.from_canonical(array, self.layouts[name][0], self.grids.get(name)))

    def placed(self, name, array):
        return array.transpose(0, 2, 3, 1)

    def forward(self, params, stats, states, inputs, training, key):
        dtype = inputs[0].dtype
        net = jax_models.Net(params, stats, training, key, self.cell.dropout, dtype)
        return (jax_models.MODELS[self.cell.network.name](net, inputs[0], self.cell.classes),), net.new_stats, states


class JaxModel(frame.Model):
    def __init__(self, cell):
        self.cell, self.notes = cell, []
        platform, _, index = cell.device.partition(":")
        self.device = jax.devices(platform)[int(index or 0)]
        self.network = Listing(cell) if cell.definition == "listing" else \
            jax_sequences.Whole(cell.network) if cell.network.whole else jax_network.Network(cell.network)
        self.wide = jnp.float64 if cell.precision == "f64" else jnp.float32
        # Every array is made by NumPy and put on the cell's device, so that nothing is computed on another.
        params, stats = ({name: jax.device_put(value.astype(self.wide), self.device) for name, value in part.items()}
                         for part in self._initial())
        start, self.update = make_optimizer(cell.optimizer)
        with jax.default_device(self.device):
            slots = start(params) if cell.phase == "train" else {}
            state = (params, slots, stats, jnp.zeros((), jnp.int32))
            self.key = jax.random.key(cell.seed)
        self.state, self.key = jax.device_put((state, self.key), self.device)
        self.reset_states()
        names = [output["name"] for output in cell.network.outputs]
        self.wanted = cell.wanted()
        self.terms = [(term, names.index(term.output), [self.wanted.index(name) for name in (term.target, term.lengths)
                                                        if name is not None]) for term in cell.terms]
        self.chosen = self.terms[0][1]
        self.sums = self.loss = self.last_outputs = None
        self.stacked = self.loop = None  # the variant loop: the batches of `run`, and the loop over them
        self._compile()

    def _initial(self):
        """(parameters, running statistics) to start from, as they are stored."""
        given = self.cell.weights(self.network.shapes)
        stats = {name: np.full(shape, 1.0 if name.endswith("running_var") else 0.0, np.float32)
                 for name, shape in self.network.stats.items()}
        if given is not None:
            return ({name: self.network.stored(name, given[name]) for name in self.network.shapes},
                    {name: given.get(name, value) for name, value in stats.items()})
        self.notes.append("JAX itself has no default of initialisation and optimisers: weights are jax.nn.initializers."
                          "lecun_normal, biases 0, and the optimiser's numbers are those of the workload.")
        values = {}
        for number, (name, shape) in enumerate(sorted(self.network.shapes.items())):
            if len(shape) == 1:
                values[name] = np.full(shape, 1.0 if name.endswith("weight") else 0.0, np.float32)
                continue
            lecun = jax.nn.initializers.lecun_normal(in_axis=tuple(range(1, len(shape))), out_axis=0)
            values[name] = self.network.stored(name, np.asarray(lecun(
                jax.random.fold_in(jax.random.key(self.cell.seed), number), shape)))
        return values, stats

    def _compile(self):
        cell, update, wide = self.cell, self.update, self.wide
        forward, dtype, chosen, terms = self.network.forward, PRECISIONS[cell.precision], self.chosen, self.terms

        def narrow(tree):
            return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)

        def widen(tree):
            return jax.tree.map(lambda x: x.astype(wide), tree)

        def loss_of(params, stats, states, key, inputs, wanted):
            outputs, stats, states = forward(narrow(params), stats, states, narrow(inputs), True, key)
            loss = sum(jax_network.loss_of(term, outputs[place].astype(wide), *[wanted[index] for index in taken])
                       for term, place, taken in terms)
            return loss, (outputs[chosen].astype(wide), stats, widen(states))

        def train(state, states, key, inputs, wanted):
            params, slots, stats, step = state
            key = jax.random.fold_in(key, step)
            (loss, (output, stats, states)), gradients = jax.value_and_grad(loss_of, has_aux=True)(
                params, stats, states, key, inputs, wanted)
            params, slots = update(params, gradients, slots, step)
            return (params, slots, stats, step + 1), states, loss, output

        def infer(state, states, inputs):
            params, _, stats, _ = state
            outputs, _, states = forward(narrow(params), stats, states, narrow(inputs), False, None)
            return widen(states), widen(outputs)

        @jax.jit
        def norms(state, states, key, inputs, wanted):
            params, _, stats, step = state
            key = jax.random.fold_in(key, step)
            states = jax.tree.map(jnp.zeros_like, states)
            (loss, _), gradients = jax.value_and_grad(loss_of, has_aux=True)(params, stats, states, key, inputs, wanted)
            return loss, {name: jnp.sqrt(jnp.sum(jnp.square(g))) for name, g in gradients.items()}

        @partial(jax.jit, donate_argnums=0)
        def add_up(sums, loss, output, target, lengths=None):
            if "accuracy" not in cell.metrics:
                return sums[0] + loss, sums[1]
            return sums[0] + loss, sums[1] + jax_network.right_answers(output, target, lengths).sum()

        @jax.jit
        def measured(output, target, lengths=None):
            each = {"loss": jax_network.cross_entropy(output, target)}
            if lengths is not None:
                each["loss"] = jnp.where(jax_network.counted(target, lengths), each["loss"], 0)
            if "accuracy" in cell.metrics:
                each["accuracy"] = jax_network.right_answers(output, target, lengths)
            found = {name: values.reshape(len(target), -1).sum(1) for name, values in each.items()}
            if "accuracy" in found and target.ndim == 1:
                found["class"] = output.argmax(1)
            return found

        def batch(stacked, index):
            """One of the stacked batches. The barrier keeps a loop over a single one from computing it once."""
            chosen = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, index % x.shape[0], keepdims=False), stacked)
            return lax.optimization_barrier((chosen, index))[0]

        def nothing_yet(step, *arguments):
            """Zeros in the shapes of what a step makes."""
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(step, *arguments))

        @partial(jax.jit, donate_argnums=(0, 1))
        def train_loop(state, states, key, stacked, steps):
            def body(index, made):
                return train(*made[:2], key, *batch(stacked, index))

            loss, output = nothing_yet(train, state, states, key, *batch(stacked, 0))[2:]
            return lax.fori_loop(0, steps, body, (state, states, loss, output))

        @jax.jit
        def infer_loop(state, states, stacked, steps):
            def body(index, made):
                return infer(state, made[0], batch(stacked, index)[0])

            outputs = nothing_yet(infer, state, states, batch(stacked, 0)[0])[1]
            return lax.fori_loop(0, steps, body, (states, outputs))

        self.train, self.infer = jax.jit(train, donate_argnums=(0, 1)), jax.jit(infer)
        self.norms, self.add_up, self.measured = norms, add_up, measured
        self.train_loop, self.infer_loop = train_loop, infer_loop

    def reset_states(self):
        self.states = tuple(
            jax.device_put(np.zeros((entry["shape"][0], self.cell.batch) + tuple(entry["shape"][1:]), self.wide),
                           self.device) for entry in self.cell.network.states)

    def parameters(self):
        return sum(value.size for value in self.state[0].values())

    def place(self, batch):
        """(the inputs, what the loss takes beside the output)."""
        def there(name, array):
            return jax.device_put(np.ascontiguousarray(array).astype(
                np.int32 if array.dtype == np.int64 else self.wide), self.device)

        placed = {name: there(name, array) for name, array in batch.items()}
        inputs = tuple(there(entry["name"], self.network.placed(entry["name"], batch[entry["name"]]))
                       for entry in self.cell.network.inputs)
        return inputs, tuple(placed[name] for name in self.wanted)

    def train_step(self, placed):
        if self.stacked is not None and self.loop is None:
            self._compile_loop()
        self.state, self.states, self.loss, self.last_output = self.train(self.state, self.states, self.key, *placed)

    def infer_step(self, placed):
        if self.stacked is not None and self.loop is None:
            self._compile_loop()
        self.states, self.last_outputs = self.infer(self.state, self.states, placed[0])

    def keep_resident(self, placed_batches):
        if self.cell.variant == "loop":
            self.stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *placed_batches)

    def _compile_loop(self):
        """In the first step of `run`, where the other variant compiles, too."""
        steps = jax.device_put(np.int32(1), self.device)
        if self.cell.phase == "train":
            self.loop = self.train_loop.lower(self.state, self.states, self.key, self.stacked, steps).compile()
        else:
            self.loop = self.infer_loop.lower(self.state, self.states, self.stacked, steps).compile()

    def sustained(self, step, placed_batches, steps):
        if self.cell.variant != "loop":
            return super().sustained(step, placed_batches, steps)
        if self.loop is None:
            self._compile_loop()
        count = jax.device_put(np.int32(steps), self.device)

        def take():
            if self.cell.phase == "train":
                self.state, self.states, self.loss, self.last_output = self.loop(
                    self.state, self.states, self.key, self.stacked, count)
            else:
                self.states, self.last_outputs = self.loop(self.state, self.states, self.stacked, count)

        return take

    def synchronize(self):
        jax.block_until_ready((self.state, self.states, self.last_outputs, self.sums))

    def read_loss(self):
        return float(self.loss)

    def read_outputs(self):
        return {entry["name"]: np.asarray(value)
                for entry, value in zip(self.cell.network.outputs, self.last_outputs)}

    def loss_and_gradients(self, batch):
        loss, norms = self.norms(self.state, self.states, self.key, *self.place(batch))
        return float(loss), {name: float(value) for name, value in norms.items()}

    def count(self, placed, batch):
        if self.sums is None:
            self.sums = jax.device_put((np.zeros((), self.wide), np.zeros((), np.int32)), self.device)
        # A sum of losses wants more than a target and its lengths; but it has no accuracy.
        self.sums = self.add_up(self.sums, self.loss, self.last_output, *placed[1][:2])

    def counted(self):
        (loss, right), self.sums = self.sums, None
        return float(loss), {"accuracy": int(right)} if "accuracy" in self.cell.metrics else {}

    def measure(self, placed):
        return self.measured(self.last_outputs[self.chosen], *placed[1])

    def breakdown(self, steps, placed_batches):
        """Instructions of the step before and after XLA's passes, and the time of each kind from JAX's profiler."""
        placed = placed_batches[0]
        if self.cell.phase == "train":
            lowered = self.train.lower(self.state, self.states, self.key, *placed)
            step = self.train_step
        else:
            lowered, step = self.infer.lower(self.state, self.states, placed[0]), self.infer_step
        optimized = lowered.compile().as_text()
        answer = {"source": "jax.profiler and the compiled step's HLO",
                  "nodes_before": xla_profile.count_instructions(lowered.as_text(dialect="hlo")),
                  "nodes_after": xla_profile.count_instructions(optimized)}
        plain = self.timed(step, steps, placed_batches)
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                begin = frame.now_ns()
                for index in range(steps):
                    step(placed_batches[index % len(placed_batches)])
                self.synchronize()
                whole = frame.now_ns() - begin
            files = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
            if files:
                answer.update(xla_profile.time_shares(
                    events_of(files[0]), xla_profile.instruction_namer(optimized), steps, plain, whole))
        return answer


def events_of(path):
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        for line in plane.lines:
            for event in line.events:
                yield plane.name, line.name, event.name, event.start_ns, event.duration_ns


# ---------------------------------------------------------------------------------------------------------------------


class JaxDriver(frame.Driver):
    started = None  # (platform, threads, conv) with which the backend was started

    def hello(self):
        cuda = cuda_devices()
        return {"framework": "jax", "version": jax.__version__, "variants": ["jit", "loop"],
                "devices": ["cpu"] + cuda, "kinds": list(jax_network.WRITERS) + list(jax_sequences.MODELS),
                "losses": list(jax_network.LOSSES),
                "listings": list(jax_models.MODELS), "phases": ["train", "infer"],
                "precisions": ["f32", "bf16", "f64"] + (["tf32"] if cuda else []),
                "switches": dict({"lstm": ["cell"]}, **({"conv": ["heuristic", "profile"]} if cuda else {})),
                "libraries": {name: importlib.metadata.version(name) for name in ("jaxlib", "numpy")},
                "trims": True}

    def why_declined(self, what, value):
        if what == "conv":
            return "XLA chooses among convolution algorithms on CUDA alone, by a model of their cost or by timing them."
        if what == "lstm":
            return "JAX has no LSTM of its own but cuDNN's, experimental and without lengths; lax.scan repeats a cell."
        if what.startswith("graph"):
            return "XLA's passes belong to its compiler and are always on."
        return None

    def build(self, cell):
        on_cuda = cell.device != "cpu"
        if cell.precision == "tf32" and not on_cuda:
            raise frame.Declined("precision", "precision: tf32 must be on a CUDA device; got %s." % cell.device)
        if cell.trim and cell.variant == "loop":
            raise frame.Declined("trim", "trim: the variant loop stacks its batches, which must be of one size; got lengths to "
                                 "trim them by. Ask for the variant jit.")
        conv = cell.switches.get("conv")
        if conv is not None and not on_cuda:
            raise frame.Declined("conv", "conv: XLA chooses among algorithms on CUDA alone; got %s." % cell.device)
        self.start(cell, "cuda" if on_cuda else "cpu", conv)
        jax.config.update("jax_enable_x64", cell.precision == "f64")
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if cell.precision == "tf32" else "highest")
        return JaxModel(cell)

    def start(self, cell, platform, conv):
        asked = (platform, cell.threads, conv)
        if self.started is None:
            allowed = sorted(os.sched_getaffinity(0))
            if len(allowed) > cell.threads:
                os.sched_setaffinity(0, allowed[:cell.threads])
            os.environ["NPROC"] = str(cell.threads)  # the size of the CPU client's pool
            flags = [os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=%s" % str(cell.threads > 1).lower()]
            if conv is not None:
                flags.append("--xla_gpu_autotune_level=%d" % (0 if conv == "heuristic" else 4))
            os.environ["XLA_FLAGS"] = " ".join(flags).strip()
            if cell.track == "equal":
                os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # so that the memory in use can be measured
            if platform == "cpu":
                jax.config.update("jax_platforms", "cpu")
            self.started = asked
        for name, was, now in zip(("device", "threads", "conv"), self.started, asked):
            if was != now:
                raise frame.Declined(name, "%s: must stay as it was in the first prepare of a process, %s; got %s."
                                     % (name, was, now))


def cuda_devices():
    """The CUDA devices' names, without starting a backend: that must wait for prepare."""
    if not any(importlib.util.find_spec("jax_cuda%d_plugin" % major) for major in (12, 13)):
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = len(glob.glob("/dev/nvidia[0-9]*"))
    count = there if visible is None else min(there, len([part for part in visible.split(",") if part.strip()]))
    return ["cuda:%d" % index for index in range(count)]


if __name__ == "__main__":
    frame.serve(JaxDriver())
