"""The Chainer driver (version 7, the last). On the CPU Chainer computes with NumPy; CUDA devices are offered where a
CuPy that it knows is installed. lab/docs/setup.md tells what has been run."""
import math
import os
import random
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "listings")]
import frame  # noqa: E402

frame.claim_stdout()
warnings.simplefilter("ignore")  # of NumPy's and Chainer's old names for each other

import numpy as np  # noqa: E402
import chainer  # noqa: E402

import blas_threads  # noqa: E402
import chainer_models  # noqa: E402
import chainer_network  # noqa: E402
from frame import Declined  # noqa: E402

EPS = 1e-5  # of the listings' normalisation layers, by the definition; Chainer's own is 2e-5
OPTIONS = {"sgd": {"momentum", "weight_decay"}, "adam": {"betas", "eps", "weight_decay"}}


def cuda_devices():
    if not chainer.backends.cuda.available:
        return []
    return ["cuda:%d" % i for i in range(chainer.backends.cuda.cupy.cuda.runtime.getDeviceCount())]


class ChainerDriver(frame.Driver):
    def hello(self):
        cuda = cuda_devices()
        libraries = {"numpy": np.__version__}
        if cuda:
            libraries["cupy"] = chainer.backends.cuda.cupy.__version__
        return {
            "framework": "chainer",
            "version": chainer.__version__,
            "variants": ["eager"],
            "devices": ["cpu"] + cuda,
            "kinds": list(chainer_network.WRITERS),
            "losses": list(chainer_network.LOSSES),
            "listings": list(chainer_models.MODELS),
            "phases": ["train", "infer"],
            "precisions": ["f32", "f64"],
            "switches": {"conv": ["heuristic"] + (["profile"] if cuda else []), "graph": ["off"]},
            "libraries": libraries,
        }

    def why_declined(self, what, value):
        if what == "graph":
            return "Chainer is define-by-run: there is no graph to optimise."
        if what == "conv":
            return "profile is chainer.config.autotune, which acts on CUDA devices alone; on the CPU NumPy has one way."
        if what == "device" and not chainer.backends.cuda.available:
            return "Chainer computes on CUDA devices through CuPy, and finds none that works."
        return None

    def build(self, cell):
        return ChainerModel(cell)


class ChainerModel(frame.Model):
    def __init__(self, cell):
        self.cell = cell
        self.notes = []
        self.cuda = cell.device.startswith("cuda")
        self.obeyed = {"conv": cell.switches.get("conv", "heuristic"), "graph": "off"}
        if self.obeyed["conv"] == "profile" and not self.cuda:
            raise Declined("conv", "conv: profile is chainer.config.autotune, which acts on CUDA devices alone; got %s."
                           % cell.device)
        self.dtype = np.float64 if cell.precision == "f64" else np.float32
        # The global configuration, not the thread's: backward threads of its own would not see that one.
        chainer.global_config.dtype = self.dtype
        chainer.global_config.autotune = self.obeyed["conv"] == "profile"
        chainer.global_config.cudnn_deterministic = False
        random.seed(cell.seed)
        np.random.seed(cell.seed % 2**32)
        if not self.cuda and blas_threads.set_threads(cell.threads) == 0:
            self.notes.append("threads: NumPy's library for matrices has no call for them; the environment decides")
        self.device = chainer.get_device("@cupy:" + cell.device.split(":")[1] if self.cuda else "@numpy")
        self.device.use()
        if self.cuda:
            self.device.xp.random.seed(cell.seed)
        self._make_network(cell)
        self._load(cell)
        self.network.to_device(self.device)
        self.optimizer = self._make_optimizer(cell) if cell.phase == "train" else None
        self.loss = self.last_outputs = None
        self._loss_sum = self._right = 0
        self._plan(cell)

    def _make_network(self, cell):
        """named: {canonical name: its Parameters, one after the other on the first axis}; statistics: (canonical name,
        link, attribute) of the running means and variances."""
        self.host = set()
        if cell.definition == "description":
            self.network = chainer_network.build(cell.network, cell.batch, self.dtype)
            self.named, self.statistics, self.host = self.network.named, self.network.statistics, self.network.host
            return
        self.network = chainer_models.make(cell.network.name, cell.classes, cell.sizes, cell.dropout, EPS)
        self.named = {chainer_models.weight_name(path): [p] for path, p in self.network.namedparams()}
        self.statistics = [(chainer_models.weight_name(path + "/" + part), link, part)
                           for path, link in self.network.namedlinks()
                           if isinstance(link, chainer.links.BatchNormalization) for part in ("avg_mean", "avg_var")]

    def _load(self, cell):
        weights = cell.weights({name: (sum(len(part) for part in parts),) + parts[0].shape[1:]
                                for name, parts in self.named.items()})
        if weights is None:
            self.notes.append("weights: Chainer's own initialisation (LeCun normal, biases 0), seed %d" % cell.seed)
            return
        for name, parts in self.named.items():
            for part, piece in zip(parts, np.split(weights[name], len(parts))):
                part.array[...] = piece
        for name, link, attribute in self.statistics:
            getattr(link, attribute)[...] = weights.get(name, 0.0 if name.endswith("mean") else 1.0)

    def _make_optimizer(self, cell):
        name, options = cell.optimizer_options(OPTIONS)
        self.adam_eps = self.adam_beta2 = None
        if cell.track == "as_shipped":
            made = {"sgd": chainer.optimizers.SGD, "adam": chainer.optimizers.Adam}[name]()
            self.notes.append("optimizer: %s with Chainer's own defaults" % type(made).__name__)
        elif name == "sgd":
            lr, momentum = options.get("lr", 1e-3), options.get("momentum", 0.0)
            made = chainer.optimizers.SGD(lr=lr)
            if momentum:
                made = chainer.optimizers.MomentumSGD(lr=lr, momentum=momentum)
        else:
            beta1, beta2 = options.get("betas", (0.9, 0.999))
            made = chainer.optimizers.Adam(alpha=options.get("lr", 1e-3), beta1=beta1, beta2=beta2)
            self.adam_eps, self.adam_beta2 = options.get("eps", 1e-8), beta2
        made.setup(self.network)
        if cell.track == "equal" and options.get("weight_decay"):
            made.add_hook(chainer.optimizer_hooks.WeightDecay(options["weight_decay"]))
        return made

    # ---- steps. A placed batch is (the network's inputs, what the loss takes beside the output)

    def _plan(self, cell):
        """What a step needs to know of the names: it finds everything by place."""
        names = [output["name"] for output in cell.network.outputs]
        self.chosen, self.outputs = names.index(cell.loss.output), len(names)
        self.loss_function = chainer_network.loss_function(cell.loss, cell.network.outputs[self.chosen]["shape"])
        self.inputs = [entry["name"] for entry in cell.network.inputs]
        self.wanted = [cell.loss.target] + ([cell.loss.lengths] if cell.loss.lengths is not None else [])
        self.reset_states()

    def reset_states(self):
        # As Chainer's n_step_lstm takes them: the batch is the second axis.
        self.states = tuple(self.device.send(np.zeros(
            (entry["shape"][0], self.cell.batch) + tuple(entry["shape"][1:]), self.dtype))
            for entry in self.cell.network.states)

    def place(self, batch):
        here = {name: array.astype(np.int32 if array.dtype == np.int64 else self.dtype, copy=False)
                for name, array in batch.items()}
        return (tuple(here[name] if name in self.host else self.device.send(here[name]) for name in self.inputs),
                tuple(self.device.send(here[name]) for name in self.wanted))

    def _outputs_of(self, inputs):
        """-> (outputs, states as the step leaves them)."""
        made = self.network(*inputs, *self.states)
        return (made[:self.outputs], made[self.outputs:]) if isinstance(made, tuple) else ((made,), ())

    def _backward(self, placed):
        outputs, states = self._outputs_of(placed[0])
        loss = self.loss_function(outputs[self.chosen], *placed[1])
        self.network.cleargrads()
        loss.backward()
        return loss, outputs, states

    def train_step(self, placed):
        with chainer.using_config("train", True):
            loss, outputs, states = self._backward(placed)
            if self.adam_eps is not None:
                # PyTorch adds eps to the root of the corrected second moment, Chainer to that of the plain one.
                self.optimizer.hyperparam.eps = self.adam_eps * math.sqrt(1 - self.adam_beta2 ** (self.optimizer.t + 1))
            self.optimizer.update()
        self.loss, self.last_outputs = loss.array, [output.array for output in outputs]
        self.states = tuple(state.array for state in states)

    def infer_step(self, placed):
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            outputs, states = self._outputs_of(placed[0])
        self.last_outputs = [output.array for output in outputs]
        self.states = tuple(state.array for state in states)

    def synchronize(self):
        if self.cuda:
            chainer.backends.cuda.Stream.null.synchronize()

    def parameters(self):
        return self.network.count_params()

    def read_loss(self):
        return float(self.loss)

    def read_outputs(self):
        return {entry["name"]: chainer.backends.cuda.to_cpu(value)
                for entry, value in zip(self.cell.network.outputs, self.last_outputs)}

    def count(self, placed, batch):
        self._loss_sum = self._loss_sum + self.loss
        if "accuracy" in self.cell.metrics:
            target, *lengths = placed[1]
            right = self.last_outputs[self.chosen].argmax(axis=-1) == target
            if lengths:
                mask = chainer_network.true_steps(lengths[0], target.shape[1], self.device.xp)
                right = right & mask.reshape(mask.shape + (1,) * (target.ndim - 2))
            self._right = self._right + right.sum()

    def counted(self):
        sums = float(self._loss_sum), {"accuracy": int(self._right)} if "accuracy" in self.cell.metrics else {}
        self._loss_sum = self._right = 0
        return sums

    def loss_and_gradients(self, batch):
        kept = [getattr(link, attribute).copy() for _, link, attribute in self.statistics]  # which this pass would move
        states = self.states
        self.reset_states()
        with chainer.using_config("train", True):
            loss, _, _ = self._backward(self.place(batch))
        self.states = states
        norms = {name: math.sqrt(sum(float((part.grad.astype(np.float64) ** 2).sum()) for part in parts
                                     if part.grad is not None))
                 for name, parts in self.named.items()}
        self.network.cleargrads()
        for (_, link, attribute), old in zip(self.statistics, kept):
            getattr(link, attribute)[...] = old
        return float(loss.array), norms

    # ---- where the time goes

    def breakdown(self, steps, placed_batches):
        """Chainer's TimerHook: every function, forwards and backwards; the optimiser's update is not among them."""
        step = self.train_step if self.cell.phase == "train" else self.infer_step
        hook = chainer.function_hooks.TimerHook()
        self.synchronize()
        begin = frame.now_ns()
        with hook:
            for index in range(steps):
                step(placed_batches[index % len(placed_batches)])
            self.synchronize()
        wall_s = (frame.now_ns() - begin) / 1e9
        times = {}
        for name, spent in hook.call_history:
            total, calls = times.get(name, (0.0, 0))
            times[name] = (total + spent, calls + 1)
        largest = sorted(times.items(), key=lambda item: -item[1][0])[:10]
        return {"source": "chainer.function_hooks.TimerHook", "kernel_share": min(1.0, hook.total_time() / wall_s),
                "ops": [[name, spent / wall_s, calls / steps] for name, (spent, calls) in largest]}


if __name__ == "__main__":
    frame.serve(ChainerDriver())
