"""The Theano driver, on PyTensor 2.8: the last of Theano's successors that has its convolution and pooling
(lab/docs/setup.md tells more). A step is one compiled function. Switches: graph is the optimiser fast_run or
fast_compile, graph.NAME leaves one group of rewrites out, openmp divides convolutions among threads by sample."""
import ctypes
import glob
import os
import sys
import sysconfig
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "listings")]
import frame  # noqa: E402

frame.claim_stdout()
warnings.simplefilter("ignore")  # of the modules' coming removal


def library_flags():
    """The linker's words for SciPy's OpenBLAS, whose functions have their plain names up to version 1.10; empty:
    whatever PyTensor finds."""
    folder = os.path.join(sysconfig.get_paths()["platlib"], "scipy.libs")
    found = sorted(glob.glob(os.path.join(folder, "libopenblas*.so*")))
    if not found:
        return ""
    # Loaded before Theano's modules look for them: OpenBLAS does not say where its Fortran library lies.
    for path in sorted(glob.glob(os.path.join(folder, "libgfortran*"))) + found[:1]:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return "-L%s -l:%s" % (folder, os.path.basename(found[0]))


def compile_folder():
    """Where compiled modules are kept from one process to the next, as Theano does: in the environment if possible."""
    own = os.path.join(sys.prefix, "theano_modules")
    inside = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    return own if inside else os.path.expanduser("~/.tandem_theano")


BLAS = library_flags()
os.environ["PYTENSOR_FLAGS"] = ",".join(
    ["base_compiledir=" + compile_folder()] + (["blas__ldflags=" + BLAS] if BLAS else []) +
    [flag for flag in [os.environ.get("PYTENSOR_FLAGS")] if flag])

SCAN_IN_C = sys.version_info < (3, 11)  # the C code of its loop does not compile with a later Python
if not SCAN_IN_C:
    sys.modules["pytensor.scan.scan_perform_ext"] = None  # not found: scan loops in Python

import numpy as np  # noqa: E402
import pytensor  # noqa: E402
import pytensor.tensor as at  # noqa: E402
from pytensor.compile.mode import Mode, OPT_FAST_COMPILE, OPT_FAST_RUN  # noqa: E402
from pytensor.graph.basic import applys_between  # noqa: E402

import blas_threads  # noqa: E402
import theano_models  # noqa: E402
import theano_network  # noqa: E402
from frame import Declined  # noqa: E402

# The switch -> Theano's own name of the group of rewrites.
PASSES = {"graph.fuse_pointwise": "fusion", "graph.common_subexpressions": "merge", "graph.inplace": "inplace"}
OPTIONS = {"sgd": {"momentum", "weight_decay"}, "adam": {"betas", "eps", "weight_decay"}}


class TheanoDriver(frame.Driver):
    def hello(self):
        switches = {"graph": ["on", "off"], "openmp": ["on", "off"]}
        switches.update({name: ["on", "off"] for name in PASSES})
        return {
            "framework": "theano",
            "version": "pytensor " + pytensor.__version__,
            "variants": ["function"],
            "devices": ["cpu"],
            "kinds": list(theano_network.LAYERS),
            "losses": list(theano_network.LOSSES),
            "listings": list(theano_models.MODELS),
            "phases": ["train", "infer"],
            "precisions": ["f32", "f64"],
            "switches": switches,
            "libraries": {"numpy": np.__version__,
                          "blas": "OpenBLAS of SciPy" if BLAS else pytensor.config.blas__ldflags,
                          "cxx": pytensor.config.cxx or "none: graphs run in Python"},
        }

    def why_declined(self, what, value):
        if what == "device":
            return "Theano's successors have dropped its CUDA device."
        if what == "conv":
            return "Theano has one way of convolution on the CPU: columns and a product of matrices."
        if what == "graph.fold_constants":
            return "PyTensor folds constants even where its group of that name is left out."
        if what == "graph.cache":
            return "PyTensor settles where it keeps compiled modules when it is loaded."
        return None

    def build(self, cell):
        return TheanoModel(cell)


class TheanoModel(frame.Model):
    def __init__(self, cell):
        self.cell = cell
        self.notes = []
        self.dtype = "float64" if cell.precision == "f64" else "float32"
        self.obeyed = self._obey(cell)
        self._plan(cell)
        if not SCAN_IN_C and any(call["kind"] == "lstm" for call in cell.network.calls):
            self.notes.append("lstm: Theano's scan loops in Python; its loop in C needs Python 3.10 or earlier")
        if cell.definition == "listing":
            self.network = theano_models.Network(self.dtype, cell.seed, cell.dropout)
        else:
            self.network = theano_network.Network(cell.network, cell.batch, self.dtype, cell.seed)
        self.test_outputs, self.test_updates = self._trace(training=False)  # makes the weights
        self._load(cell)
        self.loss = self.last_outputs = None
        self._functions = {}
        if cell.phase == "train":
            self.train_outputs, self.train_updates = self._trace(training=True)
            self.train_loss = theano_network.loss_of(
                cell.loss, cell.network.outputs[self.chosen]["shape"], cell.batch, self.train_outputs[self.chosen],
                *[self.variables[name] for name in self.wanted])
            weights = self.network.weights
            self.gradients = dict(zip(weights, at.grad(self.train_loss, list(weights.values()),
                                                       disconnected_inputs="ignore")))
            self.optimizer_updates = self._optimizer(cell)
            self._function("train")
        else:
            self._function("infer")

    def _plan(self, cell):
        """The variables of a batch: the network's inputs, then what the loss takes besides."""
        self.chosen = [output["name"] for output in cell.network.outputs].index(cell.loss.output)
        self.wanted = [cell.loss.target] + ([cell.loss.lengths] if cell.loss.lengths is not None else [])
        entries = {entry["name"]: entry for entry in cell.network.inputs}
        self.inputs = len(entries)
        entries.update({name: cell.targets[name] for name in self.wanted if name not in entries})
        self.variables = {name: at.tensor("int64" if entry["type"] == "i64" else self.dtype,
                                          shape=(cell.batch,) + tuple(entry["shape"]), name=name)
                          for name, entry in entries.items()}

    def _obey(self, cell):
        want = cell.switches
        obeyed = {"graph": want.get("graph", "on")}
        for name in PASSES:
            if obeyed["graph"] == "on":
                obeyed[name] = want.get(name, "on")
            elif want.get(name) == "on":
                raise Declined(name, "%s: belongs to the optimiser fast_run and needs graph on; got off." % name)
        obeyed["openmp"] = want.get("openmp", "on" if cell.threads > 1 else "off")
        if obeyed["graph"] == "off":
            self.notes.append("graph off: the optimiser fast_compile, the least with which convolutions have kernels")
            query = OPT_FAST_COMPILE
        else:
            query = OPT_FAST_RUN.excluding(*[PASSES[name] for name in PASSES if obeyed[name] == "off"])
        self.mode = Mode(linker="cvm", optimizer=query)
        self.notes.append("compiled modules of earlier processes are used where there are any, as Theano does")
        pytensor.config.floatX = self.dtype
        pytensor.config.openmp = obeyed["openmp"] == "on"
        blas_threads.set_threads(cell.threads)
        try:
            ctypes.CDLL("libgomp.so.1").omp_set_num_threads(ctypes.c_int(cell.threads))
        except OSError:
            self.notes.append("threads: no libgomp was found; OMP_NUM_THREADS decides")
        return obeyed

    def _trace(self, training):
        """-> (outputs, updates of running statistics and states)."""
        inputs, cell = list(self.variables.values())[:self.inputs], self.cell
        if cell.definition == "listing":
            outputs = [self.network.trace(theano_models.MODELS[cell.network.name], inputs[0],
                                          (cell.batch,) + cell.sizes, cell.classes, training)]
        else:
            outputs = self.network.trace(inputs, training)
        return outputs, self.network.updates

    def _load(self, cell):
        shapes = {name: shared.get_value(borrow=True).shape for name, shared in self.network.weights.items()}
        weights = cell.weights(shapes)
        if weights is None:
            self.notes.append("weights: Theano brings no initialisation; that of its tutorials (Glorot uniform, "
                              "biases 0), seed %d" % cell.seed)
            return
        for shared in (self.network.weights, self.network.statistics):
            for name, variable in shared.items():
                if name in weights:
                    variable.set_value(weights[name].astype(self.dtype))

    def _optimizer(self, cell):
        """The updates of the weights. Theano brings no optimisers; these are PyTorch's rules."""
        name, options = cell.optimizer_options(OPTIONS)
        if cell.track == "as_shipped":
            self.notes.append("optimizer: Theano brings none; the workload's")
        number = lambda value: np.asarray(value, self.dtype)  # noqa: E731
        zeros = lambda w: pytensor.shared(np.zeros_like(w.get_value(borrow=True)))  # noqa: E731
        lr, decay, updates = number(options.get("lr", 1e-3)), options.get("weight_decay", 0.0), []
        step = pytensor.shared(number(0.0), name="step")
        if name == "adam":
            beta1, beta2 = map(number, options.get("betas", (0.9, 0.999)))
            eps, one = number(options.get("eps", 1e-8)), number(1.0)
            updates.append((step, step + one))
            root2, scale1 = at.sqrt(one - beta2 ** (step + one)), lr / (one - beta1 ** (step + one))
        for key, weight in self.network.weights.items():
            gradient = self.gradients[key] + number(decay) * weight if decay else self.gradients[key]
            if name == "adam":
                first, second = zeros(weight), zeros(weight)
                new_first = beta1 * first + (one - beta1) * gradient
                new_second = beta2 * second + (one - beta2) * at.sqr(gradient)
                updates += [(first, new_first), (second, new_second),
                            (weight, weight - scale1 * new_first / (at.sqrt(new_second) / root2 + eps))]
            elif options.get("momentum"):
                velocity = zeros(weight)
                moved = number(options["momentum"]) * velocity + gradient
                updates += [(velocity, moved), (weight, weight - lr * moved)]
            else:
                updates.append((weight, weight - lr * gradient))
        return updates

    def _parts(self, name):
        """(inputs, outputs, updates) of one of the functions."""
        inputs = list(self.variables.values())
        if name == "infer":
            return inputs[:self.inputs], self.test_outputs, self.test_updates
        if name == "train":
            return inputs, [self.train_loss] + self.train_outputs, self.optimizer_updates + self.train_updates
        return inputs, [self.train_loss] + [at.sqrt(at.sum(at.sqr(at.cast(g, "float64"))))
                                            for g in self.gradients.values()], []

    def _function(self, name):
        if name not in self._functions:
            inputs, outputs, updates = self._parts(name)
            self._functions[name] = pytensor.function(inputs, outputs, updates=updates, mode=self.mode,
                                                      on_unused_input="ignore")
        return self._functions[name]

    # ---- steps. A placed batch is the arrays of the variables

    def reset_states(self):
        for state in getattr(self.network, "states", ()):
            state.set_value(np.zeros_like(state.get_value(borrow=True)))

    def place(self, batch):
        return [np.ascontiguousarray(batch[name], dtype=variable.dtype) for name, variable in self.variables.items()]

    def train_step(self, placed):
        self.loss, *self.last_outputs = self._functions["train"](*placed)

    def infer_step(self, placed):
        self.last_outputs = self._function("infer")(*placed[:self.inputs])

    def synchronize(self):
        """Functions return when they are done."""

    def parameters(self):
        return sum(shared.get_value(borrow=True).size for shared in self.network.weights.values())

    def read_loss(self):
        return float(self.loss)

    def read_outputs(self):
        return {entry["name"]: value for entry, value in zip(self.cell.network.outputs, self.last_outputs)}

    def loss_and_gradients(self, batch):
        states = getattr(self.network, "states", ())
        kept = [state.get_value() for state in states]
        self.reset_states()
        loss, *norms = self._function("gradients")(*self.place(batch))
        for state, old in zip(states, kept):
            state.set_value(old)
        return float(loss), {name: float(norm) for name, norm in zip(self.gradients, norms)}

    # ---- where the time goes

    def breakdown(self, steps, placed_batches):
        """The step's function, compiled once more with Theano's profile of every node."""
        name = "train" if self.cell.phase == "train" else "infer"
        inputs, outputs, updates = self._parts(name)
        profile = pytensor.compile.profiling.ProfileStats(atexit_print=False)
        function = pytensor.function(inputs, outputs, updates=updates, mode=self.mode, profile=profile,
                                     on_unused_input="ignore")
        begin = frame.now_ns()
        for index in range(steps):
            function(*placed_batches[index % len(placed_batches)][:len(inputs)])
        wall_s = (frame.now_ns() - begin) / 1e9
        times = {}
        for (_, node), spent in profile.apply_time.items():
            op = type(node.op).__name__
            total, calls = times.get(op, (0.0, 0))
            times[op] = (total + spent, calls + profile.apply_callcount[function.maker.fgraph, node])
        largest = sorted(times.items(), key=lambda item: -item[1][0])[:10]
        written = set(applys_between([], list(outputs) + [new for _, new in updates]))
        return {"source": "pytensor.compile.profiling",
                "kernel_share": min(1.0, sum(t for t, _ in times.values()) / wall_s),
                "nodes_before": len(written), "nodes_after": len(function.maker.fgraph.apply_nodes),
                "ops": [[op, spent / wall_s, calls / steps] for op, (spent, calls) in largest]}


if __name__ == "__main__":
    frame.serve(TheanoDriver())
