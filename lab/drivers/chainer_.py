"""The Chainer driver (version 7, the last). On the CPU Chainer computes with NumPy; CUDA devices are offered where a
CuPy that it knows is installed. lab/docs/setup.md tells what has been run."""
import math
import os
import random
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import frame  # noqa: E402

frame.claim_stdout()
warnings.simplefilter("ignore")  # of NumPy's and Chainer's old names for each other

import numpy as np  # noqa: E402
import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402

import blas_threads  # noqa: E402
import chainer_models  # noqa: E402
from frame import Declined  # noqa: E402

EPS = 1e-5  # of normalisation layers, by the definition; Chainer's own is 2e-5
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
            "workloads": list(chainer_models.MODELS),
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
        eps = 2e-5 if cell.track == "as_shipped" else EPS
        self.network = chainer_models.make(cell.model, cell.classes, cell.input, cell.dropout, eps)
        self._load(cell)
        self.network.to_device(self.device)
        self.optimizer = self._make_optimizer(cell) if cell.phase == "train" else None
        self.loss = self.last_logits = None
        self._loss_sum = self._right = 0

    def _load(self, cell):
        parameters = {chainer_models.weight_name(path): p for path, p in self.network.namedparams()}
        weights = cell.weights({name: p.shape for name, p in parameters.items()})
        if weights is None:
            self.notes.append("weights: Chainer's own initialisation (LeCun normal, biases 0), seed %d; eps of "
                              "normalisation layers 2e-5" % cell.seed)
            return
        for name, parameter in parameters.items():
            parameter.array[...] = weights[name]
        for name, statistic in self._statistics():
            statistic[...] = weights.get(name, 0.0 if name.endswith("mean") else 1.0)

    def _statistics(self):
        """(canonical name, array) of the running means and variances."""
        for path, link in self.network.namedlinks():
            if isinstance(link, chainer.links.BatchNormalization):
                yield chainer_models.weight_name(path + "/avg_mean"), link.avg_mean
                yield chainer_models.weight_name(path + "/avg_var"), link.avg_var

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

    # ---- steps

    def place(self, x, y):
        return self.device.send(x.astype(self.dtype, copy=False)), self.device.send(y.astype(np.int32))

    def _forward(self, placed):
        logits = self.network(placed[0])
        return F.softmax_cross_entropy(logits, placed[1]), logits

    def train_step(self, placed):
        with chainer.using_config("train", True):
            loss, logits = self._forward(placed)
            self.network.cleargrads()
            loss.backward()
            if self.adam_eps is not None:
                # PyTorch adds eps to the root of the corrected second moment, Chainer to that of the plain one.
                self.optimizer.hyperparam.eps = self.adam_eps * math.sqrt(1 - self.adam_beta2 ** (self.optimizer.t + 1))
            self.optimizer.update()
        self.loss, self.last_logits = loss.array, logits.array

    def infer_step(self, placed):
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            self.last_logits = self.network(placed[0]).array

    def synchronize(self):
        if self.cuda:
            chainer.backends.cuda.Stream.null.synchronize()

    def parameters(self):
        return self.network.count_params()

    def read_loss(self):
        return float(self.loss)

    def read_logits(self):
        return chainer.backends.cuda.to_cpu(self.last_logits)

    def count(self, placed, y):
        self._loss_sum = self._loss_sum + self.loss
        self._right = self._right + (self.last_logits.argmax(axis=1) == placed[1]).sum()

    def counted(self):
        sums = float(self._loss_sum), int(self._right)
        self._loss_sum = self._right = 0
        return sums

    def loss_and_gradients(self, x, y):
        kept = [statistic.copy() for _, statistic in self._statistics()]  # which this pass would move
        with chainer.using_config("train", True):
            loss, _ = self._forward(self.place(x, y))
            self.network.cleargrads()
            loss.backward()
        norms = {chainer_models.weight_name(path): math.sqrt(float((p.grad.astype(np.float64) ** 2).sum()))
                 for path, p in self.network.namedparams()}
        self.network.cleargrads()
        for (_, statistic), old in zip(self._statistics(), kept):
            statistic[...] = old
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
