"""The driver of JAX: plain JAX, the whole training step in one jit with its buffers given back (donated).

The backend starts with the first `prepare`, because threads and convolution mode can be told to XLA only before that:
a later cell of the same process must ask for the same ones.
"""
import glob
import importlib.metadata
import importlib.util
import os
import tempfile
from functools import partial

import frame

frame.claim_stdout()
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jax_models  # noqa: E402
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


OPTIMIZERS = {"sgd": (sgd, {"lr", "momentum"}), "adam": (adam, {"lr", "eps", "betas"})}


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


class JaxModel(frame.Model):
    def __init__(self, cell):
        self.cell, self.notes = cell, []
        platform, _, index = cell.device.partition(":")
        self.device = jax.devices(platform)[int(index or 0)]
        net = jax_models.describe(cell.model, cell.input, cell.classes)
        self.layouts = net.layouts
        wide = jnp.float64 if cell.precision == "f64" else jnp.float32
        self.wide = wide
        # Every array is made by NumPy and put on the cell's device, so that nothing is computed on another.
        params = {name: jax.device_put(value.astype(wide), self.device) for name, value in self._initial(net).items()}
        stats = {}
        for name, size in net.stat_sizes.items():
            for suffix, value in ((".running_mean", np.zeros(size)), (".running_var", np.ones(size))):
                value = self.found_stats.get(name + suffix, value).astype(wide)
                stats[name + suffix] = jax.device_put(value, self.device)
        start, self.update = make_optimizer(cell.optimizer)
        with jax.default_device(self.device):
            slots = start(params) if cell.phase == "train" else {}
            self.state = (params, slots, stats, jnp.zeros((), jnp.int32))
            self.key = jax.random.key(cell.seed)
        self.state, self.key = jax.device_put((self.state, self.key), self.device)
        self.sums = None
        self._compile()

    def _initial(self, net):
        """The parameters to start from, as this driver stores them."""
        shapes = {name: jax_models.canonical_shape(*layout) for name, layout in net.layouts.items()}
        given = self.cell.weights(shapes)
        self.found_stats = {name: value for name, value in (given or {}).items() if "running_" in name}
        if given is not None:
            return {name: np.ascontiguousarray(jax_models.from_canonical(given[name], kind, net.grids.get(name)))
                    for name, (kind, _) in net.layouts.items()}
        self.notes.append("JAX itself has no default of initialisation and optimisers: weights are jax.nn.initializers."
                          "lecun_normal, biases 0, and the optimiser's numbers are those of the workload.")
        lecun, values = jax.nn.initializers.lecun_normal(), {}
        for number, (name, (kind, shape)) in enumerate(sorted(net.layouts.items())):
            if kind == "vector":
                values[name] = np.full(shape, 1.0 if name.endswith("weight") else 0.0, np.float32)
            else:
                values[name] = np.asarray(lecun(jax.random.fold_in(jax.random.key(self.cell.seed), number), shape))
        return values

    def _compile(self):
        cell, update = self.cell, self.update
        forward, dtype, wide = jax_models.MODELS[cell.model], PRECISIONS[cell.precision], self.wide

        def loss_of(params, stats, key, x, y):
            net = jax_models.Net(params, stats, True, key, cell.dropout, dtype)
            logits = forward(net, x.astype(dtype), cell.classes).astype(wide)
            picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
            return -picked.mean(), (logits, net.new_stats)

        @partial(jax.jit, donate_argnums=0)
        def train(state, key, x, y):
            params, slots, stats, step = state
            key = jax.random.fold_in(key, step)
            (loss, (logits, stats)), gradients = jax.value_and_grad(loss_of, has_aux=True)(params, stats, key, x, y)
            params, slots = update(params, gradients, slots, step)
            return (params, slots, stats, step + 1), loss, logits

        @jax.jit
        def infer(state, x):
            params, _, stats, _ = state
            return forward(jax_models.Net(params, stats, dtype=dtype), x.astype(dtype), cell.classes).astype(wide)

        @jax.jit
        def norms(state, key, x, y):
            params, _, stats, step = state
            key = jax.random.fold_in(key, step)
            (loss, _), gradients = jax.value_and_grad(loss_of, has_aux=True)(params, stats, key, x, y)
            return loss, {name: jnp.sqrt(jnp.sum(jnp.square(g))) for name, g in gradients.items()}

        @partial(jax.jit, donate_argnums=0)
        def add_up(sums, loss, logits, y):
            return sums[0] + loss, sums[1] + (logits.argmax(axis=1) == y).sum()

        self.train, self.infer, self.norms, self.add_up = train, infer, norms, add_up

    def parameters(self):
        return sum(value.size for value in self.state[0].values())

    def place(self, x, y):
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).astype(self.wide)
        return jax.device_put((x, y.astype(np.int32)), self.device)

    def train_step(self, placed):
        self.state, self.loss, self.last_logits = self.train(self.state, self.key, *placed)

    def infer_step(self, placed):
        self.last_logits = self.infer(self.state, placed[0])

    def synchronize(self):
        jax.block_until_ready((self.state, getattr(self, "last_logits", None), self.sums))

    def read_loss(self):
        return float(self.loss)

    def read_logits(self):
        return np.asarray(self.last_logits)

    def loss_and_gradients(self, x, y):
        loss, norms = self.norms(self.state, self.key, *self.place(x, y))
        return float(loss), {name: float(value) for name, value in norms.items()}

    def count(self, placed, y):
        if self.sums is None:
            self.sums = jax.device_put((np.zeros((), self.wide), np.zeros((), np.int32)), self.device)
        self.sums = self.add_up(self.sums, self.loss, self.last_logits, placed[1])

    def counted(self):
        (loss, right), self.sums = self.sums, None
        return float(loss), int(right)

    def breakdown(self, steps, placed_batches):
        """Instructions of the step before and after XLA's passes, and the time of each kind from JAX's profiler."""
        placed = placed_batches[0]
        if self.cell.phase == "train":
            lowered, step = self.train.lower(self.state, self.key, *placed), self.train_step
        else:
            lowered, step = self.infer.lower(self.state, placed[0]), self.infer_step
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
        return {"framework": "jax", "version": jax.__version__, "variants": ["jit"], "devices": ["cpu"] + cuda,
                "workloads": list(jax_models.MODELS), "phases": ["train", "infer"],
                "precisions": ["f32", "bf16", "f64"] + (["tf32"] if cuda else []),
                "switches": {"conv": ["heuristic", "profile"]} if cuda else {},
                "libraries": {name: importlib.metadata.version(name) for name in ("jaxlib", "numpy")}}

    def why_declined(self, what, value):
        if what == "conv":
            return "XLA chooses among convolution algorithms on CUDA alone, by a model of their cost or by timing them."
        if what.startswith("graph"):
            return "XLA's passes belong to its compiler and are always on."
        return None

    def build(self, cell):
        on_cuda = cell.device != "cpu"
        if cell.precision == "tf32" and not on_cuda:
            raise frame.Declined("precision", "precision: tf32 must be on a CUDA device; got %s." % cell.device)
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
