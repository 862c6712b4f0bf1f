"""The MXNet driver (version 1.9, the last), with Gluon. The switch graph is hybridize; graph.static is its static
memory and shapes. lab/docs/setup.md tells what has been run, and what stands in for the library of matrices
on 64-bit Arm."""
import glob
import importlib.metadata
import json
import math
import os
import sys
import sysconfig
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "listings")]
import frame  # noqa: E402

frame.claim_stdout()
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402

import blas_threads  # noqa: E402
import mxnet_network  # noqa: E402
from frame import Declined  # noqa: E402

LISTINGS = ["lenet", "mnist_cnn", "cifar10_cnn", "cifar100_cnn", "svhn_cnn", "resnet18", "vgg16"]
OPTIONS = {"sgd": {"momentum", "weight_decay"}, "adam": {"betas", "eps", "weight_decay"}}
mx = mxnet_models = None
settled = {}  # what MXNet reads from the environment once and keeps: its value of this process


def load_mxnet():
    """Imports MXNet, which reads its number of threads from the environment at that moment."""
    global mx, mxnet_models
    if mx is None:
        try:
            import mxnet
        except OSError as error:
            raise RuntimeError("mxnet: its libraries must all be found; %s. Run 'tandem lab setup mxnet'."
                               % error) from error
        import mxnet_models as models
        mx, mxnet_models = mxnet, models


def settle(what, variable, value):
    """Sets an environment variable that MXNet reads once; another value in the same process is declined."""
    if settled.setdefault(what, value) != value:
        raise Declined(what, "%s: MXNet reads it once per process, so it must stay %s; got %s. Start another driver."
                       % (what, settled[what], value))
    os.environ[variable] = value


def distribution():
    """(name, version) of the installed package: mxnet, or mxnet-cu112 and its like, which know CUDA."""
    for found in importlib.metadata.distributions():
        name = (found.metadata["Name"] or "").lower().replace("_", "-")
        if name == "mxnet" or name.startswith("mxnet-cu"):
            return name, found.version
    raise RuntimeError("mxnet: must be installed in this environment; it is not. Run 'tandem lab setup mxnet'.")


def cuda_devices():
    if not distribution()[0].startswith("mxnet-cu"):
        return []
    return ["cuda:%d" % i for i in range(len(glob.glob("/proc/driver/nvidia/gpus/*")))]


def matrix_library():
    """What stands beside libmxnet.so where the wheel brings no library of matrices (mxnet_blas.py)."""
    path = os.path.join(sysconfig.get_paths()["platlib"], "mxnet", "libarmpl_lp64_mp.so")
    if not os.path.exists(path):
        return "the wheel's own"
    return "Arm Performance Libraries" if os.path.islink(path) else "OpenBLAS in place of the Arm Performance Libraries"


class MxnetDriver(frame.Driver):
    def hello(self):
        if os.environ.get("OMP_NUM_THREADS", "").isdigit():  # otherwise the number of threads comes with prepare
            settled["threads"] = os.environ["OMP_NUM_THREADS"]
            load_mxnet()
        cuda = cuda_devices()
        return {
            "framework": "mxnet",
            "version": distribution()[1],
            "variants": ["gluon"],
            "devices": ["cpu"] + cuda,
            "kinds": list(mxnet_network.WRITERS),
            "losses": list(mxnet_network.LOSSES),
            "listings": LISTINGS,
            "phases": ["train", "infer"],
            "precisions": ["f32", "f64"],
            "switches": {"conv": ["heuristic"] + (["profile"] if cuda else []), "graph": ["on", "off"],
                         "graph.static": ["on", "off"], "onednn": ["on", "off"]},
            "libraries": {"numpy": np.__version__, "blas": matrix_library()},
        }

    def why_declined(self, what, value):
        if what == "conv":
            return "profile is MXNET_CUDNN_AUTOTUNE_DEFAULT, which acts on CUDA devices alone."
        if what == "device":
            return "CUDA devices need a package mxnet-cuNNN in place of mxnet."
        return None

    def build(self, cell):
        return MxnetModel(cell)


class MxnetModel(frame.Model):
    def __init__(self, cell):
        self.cell = cell
        self.notes = []
        self.cuda = cell.device.startswith("cuda")
        self.obeyed = self._obey(cell)
        load_mxnet()
        blas_threads.set_threads(cell.threads)
        mx.random.seed(cell.seed)
        np.random.seed(cell.seed % 2**32)
        self.context = mx.gpu(int(cell.device.split(":")[1])) if self.cuda else mx.cpu()
        self.dtype = "float64" if cell.precision == "f64" else "float32"
        if cell.definition == "listing":
            self.network = mxnet_models.make(cell.network.name, cell.classes, cell.sizes, cell.dropout)
            self.network.cast(self.dtype)
            self.named = {mxnet_models.weight_name(path): p
                          for path, p in self.network._collect_params_with_prefix().items()}
        else:
            self.network, self.named, _ = mxnet_network.build(
                cell.network, cell.batch, self.dtype, cell.phase == "train", self.obeyed.get("onednn") != "off")
        self.network.initialize(ctx=self.context)  # Gluon's own: uniform within 0.07, biases 0
        self._load(cell)
        if self.obeyed["graph"] == "on":
            static = self.obeyed["graph.static"] == "on"
            self.network.hybridize(static_alloc=static, static_shape=static)
        self._plan(cell)
        self.trainer = self._make_trainer(cell) if cell.phase == "train" else None
        self.losses = self.last_outputs = None
        self._loss_sum = self._right = 0

    def _obey(self, cell):
        want = cell.switches
        if want.get("conv") == "profile" and not self.cuda:
            raise Declined("conv", "conv: profile is MXNET_CUDNN_AUTOTUNE_DEFAULT, which acts on CUDA devices alone; "
                           "got %s." % cell.device)
        obeyed = {"conv": want.get("conv", "profile" if self.cuda else "heuristic"), "graph": want.get("graph", "on")}
        if obeyed["graph"] == "on":
            obeyed["graph.static"] = want.get("graph.static", "off")
        elif want.get("graph.static") == "on":
            raise Declined("graph.static",
                           "graph.static: static memory belongs to the graph and needs graph on; got off.")
        settle("threads", "OMP_NUM_THREADS", str(cell.threads))
        if self.cuda:
            if "onednn" in want:
                raise Declined("onednn", "onednn: acts on the CPU alone; got %s." % cell.device)
            os.environ["MXNET_CUDNN_AUTOTUNE_DEFAULT"] = "1" if obeyed["conv"] == "profile" else "0"
            os.environ["MXNET_CUDA_ALLOW_TENSOR_CORE"] = "0"  # f32 means 24-bit products
        else:
            obeyed["onednn"] = want.get("onednn", "on")
            settle("onednn", "MXNET_MKLDNN_ENABLED", "1" if obeyed["onednn"] == "on" else "0")
        return obeyed

    def _load(self, cell):
        weights = cell.weights({name: p.shape for name, p in self.named.items() if p.grad_req != "null"})
        if weights is None:
            self.notes.append("weights: Gluon's own initialisation (uniform within 0.07, biases 0), seed %d"
                              % cell.seed)
            return
        for name, parameter in self.named.items():
            if name in weights:
                parameter.set_data(mx.nd.array(weights[name], dtype=self.dtype))
        if any(name.endswith("running_var") for name in self.named):
            self.notes.append("running variances: MXNet's own, divided by n where PyTorch divides by n - 1; they are "
                              "used in test mode alone")

    def _make_trainer(self, cell):
        name, options = cell.optimizer_options(OPTIONS)
        self.adam_eps, self.steps = None, 0
        if cell.track == "as_shipped":
            made = mx.optimizer.create(name)
            self.notes.append("optimizer: %s with MXNet's own defaults" % name)
        elif name == "sgd":
            made = mx.optimizer.SGD(learning_rate=options.get("lr", 1e-3), momentum=options.get("momentum", 0.0),
                                    wd=options.get("weight_decay", 0.0))
        else:
            beta1, beta2 = options.get("betas", (0.9, 0.999))
            made = mx.optimizer.Adam(learning_rate=options.get("lr", 1e-3), beta1=beta1, beta2=beta2,
                                     wd=options.get("weight_decay", 0.0))
            self.adam_eps = options.get("eps", 1e-8)
        return mx.gluon.Trainer(self.network.collect_params(), made, kvstore=None)

    # ---- steps. A placed batch is (the network's inputs, what the loss takes beside the output)

    def _plan(self, cell):
        """What a step needs to know of the names: it finds everything by place."""
        names = [output["name"] for output in cell.network.outputs]
        self.chosen = names.index(cell.loss.output)
        self.outputs, self.several = len(names), len(names) + len(cell.network.states) > 1
        self.loss_function = mxnet_network.loss_function(
            mx.nd, cell.loss, cell.network.outputs[self.chosen]["shape"])
        self.inputs = [entry["name"] for entry in cell.network.inputs]
        self.wanted = [cell.loss.target] + ([cell.loss.lengths] if cell.loss.lengths is not None else [])
        self.reset_states()

    def reset_states(self):
        # As MXNet's RNN takes them: the batch is the second axis.
        self.states = [mx.nd.zeros((entry["shape"][0], self.cell.batch) + tuple(entry["shape"][1:]), ctx=self.context,
                                   dtype=self.dtype) for entry in self.cell.network.states]

    def place(self, batch):
        there = {name: mx.nd.array(array, ctx=self.context, dtype="int32" if array.dtype == np.int64 else self.dtype)
                 for name, array in batch.items()}
        return [there[name] for name in self.inputs], [there[name] for name in self.wanted]

    def _outputs_of(self, inputs):
        """-> (outputs, states as the step leaves them)."""
        made = self.network(*inputs, *self.states)
        return (made[:self.outputs], made[self.outputs:]) if self.several else ([made], [])

    def _backward(self, placed):
        """Leaves the gradients of the sum of the samples' losses."""
        with mx.autograd.record():
            outputs, states = self._outputs_of(placed[0])
            losses = self.loss_function(outputs[self.chosen], *placed[1])
        losses.backward()
        return losses, outputs, states

    def train_step(self, placed):
        self.losses, self.last_outputs, states = self._backward(placed)
        self.states = [state.detach() for state in states]
        self.steps += 1
        if self.adam_eps is not None:
            # PyTorch adds eps to the root of the corrected second moment, MXNet to that of the plain one.
            optimizer = self.trainer.optimizer
            optimizer.epsilon = self.adam_eps * math.sqrt(1 - optimizer.beta2 ** self.steps)
        self.trainer.step(self.cell.batch)  # divides by the batch

    def infer_step(self, placed):
        self.last_outputs, self.states = self._outputs_of(placed[0])

    def synchronize(self):
        mx.nd.waitall()

    def parameters(self):
        return sum(math.prod(p.shape) for p in self.named.values() if p.grad_req != "null")

    def read_loss(self):
        return float(self.losses.asnumpy().astype(np.float64).mean())

    def read_outputs(self):
        return {entry["name"]: value.asnumpy() for entry, value in zip(self.cell.network.outputs, self.last_outputs)}

    def count(self, placed, batch):
        self._loss_sum = self._loss_sum + self.losses.mean()
        if "accuracy" in self.cell.metrics:
            target, *lengths = placed[1]
            right = self.last_outputs[self.chosen].argmax(axis=-1).astype("int32") == target
            if lengths:
                right = mxnet_network.masked(mx.nd, right, lengths[0])
            self._right = self._right + right.sum()

    def counted(self):
        sums = float(self._loss_sum.asscalar()), {"accuracy": int(self._right.asscalar())} \
            if "accuracy" in self.cell.metrics else {}
        self._loss_sum = self._right = 0
        return sums

    def loss_and_gradients(self, batch):
        statistics = [p for p in self.named.values() if p.grad_req == "null"]
        kept = [p.data().copy() for p in statistics]  # which this pass would move
        mx.nd.waitall()
        states = self.states
        self.reset_states()
        losses, _, _ = self._backward(self.place(batch))
        self.states = states
        norms = {name: float(np.linalg.norm(p.grad().asnumpy().astype(np.float64))) / self.cell.batch
                 for name, p in self.named.items() if p.grad_req != "null"}
        mx.nd.waitall()
        for parameter, old in zip(statistics, kept):
            parameter.set_data(old)
        return float(losses.asnumpy().astype(np.float64).mean()), norms

    # ---- where the time goes

    def breakdown(self, steps, placed_batches):
        step = self.train_step if self.cell.phase == "train" else self.infer_step
        step(placed_batches[0])
        mx.nd.waitall()
        with tempfile.TemporaryDirectory() as folder:
            mx.profiler.set_config(profile_symbolic=True, profile_imperative=True, profile_memory=False,
                                   profile_api=False, aggregate_stats=True, filename=os.path.join(folder, "trace.json"))
            mx.profiler.set_state("run")
            begin = frame.now_ns()
            for index in range(steps):
                step(placed_batches[index % len(placed_batches)])
            mx.nd.waitall()
            wall_ms = (frame.now_ns() - begin) / 1e6
            mx.profiler.set_state("stop")
            table = json.loads(mx.profiler.dumps(reset=True, format="json"))
        times = {}
        for name, entry in table.get("Time", {}).get("operator", {}).items():
            if "CachedOp" not in name:  # that is the whole graph, whose operators are here too
                times[name] = (float(entry["Total"]), int(entry["Count"]))
        largest = sorted(times.items(), key=lambda item: -item[1][0])[:10]
        copies = sum(spent for name, (spent, _) in times.items()
                     if name.startswith(("CopyCPU2", "CopyGPU2", "_copyto")))
        return {"source": "mxnet.profiler", "kernel_share": min(1.0, sum(t for t, _ in times.values()) / wall_ms),
                "copy_share": min(1.0, copies / wall_ms), "launches": sum(calls for _, calls in times.values()) / steps,
                "ops": [[name, spent / wall_ms, calls / steps] for name, (spent, calls) in largest]}


if __name__ == "__main__":
    frame.serve(MxnetDriver())
