"""The PyTorch driver: variants eager, compile (torch.compile of the network) and captured (the whole training step as a
CUDA graph, captured by hand). lab/docs/drivers.md says what it obeys and what it declines."""
import atexit
import os
import platform
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "listings")]
import frame  # noqa: E402

frame.claim_stdout()

import numpy as np  # noqa: E402
import torch  # noqa: E402

import pytorch_models  # noqa: E402
import pytorch_network  # noqa: E402
import pytorch_pipeline  # noqa: E402
import pytorch_sequences  # noqa: E402
from frame import Declined  # noqa: E402

OPTIMIZERS = {  # the class, and the options that a workload may set besides lr
    "sgd": (torch.optim.SGD, {"momentum", "weight_decay", "nesterov", "dampening"}),
    "adam": (torch.optim.Adam, {"betas", "eps", "weight_decay", "amsgrad"}),
    "adadelta": (torch.optim.Adadelta, {"rho", "eps", "weight_decay"}),
}
CACHE_FOLDER = os.environ.get("TORCHINDUCTOR_CACHE_DIR")  # where torch.compile keeps its work, as the process began
CAPTURE_WARM_UP = 3  # steps on a side stream, before the capture: libraries allocate and choose in them


class PyTorchDriver(frame.Driver):
    def hello(self):
        cuda = torch.cuda.is_available()
        return {
            "framework": "pytorch",
            "version": torch.__version__,
            "variants": ["eager", "tuned", "compile", "captured"],
            "devices": ["cpu"] + ["cuda:%d" % i for i in range(torch.cuda.device_count() if cuda else 0)],
            "kinds": list(pytorch_network.WRITERS) + list(pytorch_sequences.MODELS),
            "losses": list(pytorch_network.LOSSES),
            "listings": list(pytorch_models.MODELS),
            "phases": ["train", "infer", "load"],
            "precisions": ["f32", "bf16", "f64"] + (["tf32"] if cuda else []),
            "switches": {"conv": ["heuristic"] + (["fixed", "profile"] if cuda else []), "graph": ["on", "off"],
                         "graph.cache": ["on", "off"], "onednn": ["on", "off"], "feed": ["resident", "loader"],
                         "lstm": ["cell", "fused"]},
            "libraries": libraries(),
            "trims": True,
        }

    def why_declined(self, what, value):
        if what == "conv" and value == "profile":
            return "cudnn.benchmark acts on CUDA devices alone; on the CPU PyTorch measures nothing."
        if what == "conv" and value == "fixed":
            return "It stands for cudnn.deterministic, which acts on CUDA devices alone."
        if what == "precision" and value == "tf32":
            return "TF32 is a format of CUDA devices."
        if what == "lstm":
            return "PyTorch has nn.LSTM (fused) and nn.LSTMCell (cell)."
        return None

    def build(self, cell):
        return PyTorchModel(cell)

    def pipeline(self, cell, model):
        return pytorch_pipeline.PyTorchPipeline(cell, model)

    def is_out_of_memory(self, error):
        return isinstance(error, torch.OutOfMemoryError) or super().is_out_of_memory(error)


def libraries():
    found = {"numpy": np.__version__}
    if torch.backends.mkldnn.is_available():
        found["onednn"] = next((line.split("v", 1)[1].split(" ")[0] for line in torch.__config__.show().splitlines()
                                if "MKL-DNN v" in line), "unknown")
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.cuda.is_available() and torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


class PyTorchModel(frame.Model):
    def __init__(self, cell):
        self.cell = cell
        self.notes = []
        self.device = torch.device(cell.device)
        self.cuda = self.device.type == "cuda"
        self.obeyed = dict(self._obey(cell), feed=cell.switches.get("feed", "resident"))
        torch.manual_seed(cell.seed)
        self.dtype = torch.float64 if cell.precision == "f64" else torch.float32
        if cell.definition == "listing":
            self.network = pytorch_models.make(cell.network.name, cell.classes, cell.sizes, cell.dropout)
        elif cell.network.whole:
            self.network = pytorch_sequences.make(cell.network, cell.switches.get("lstm", "fused"))
        else:
            self.network, _ = pytorch_network.build(cell.network, cell.switches.get("lstm", "fused"))
        self._load(cell)
        self.network.to(self.device, self.dtype)
        self.optimizer = self._make_optimizer(cell) if cell.phase == "train" else None
        self.forward = self._compiled() if cell.variant == "compile" else self.network
        self.network.train(cell.phase == "train")
        self.loss = self.last_outputs = None
        self._loss_sum = self._right = 0
        # The variant captured: recorded at the first step, as other systems compile there.
        self._graph = self._static = None
        self._plan(cell)

    # ---- what prepare sets

    def _obey(self, cell):
        """Sets the process's switches; -> all of them as they stand now."""
        if cell.variant == "captured" and not self.cuda:
            raise Declined("variant", "variant: captured records a CUDA graph and needs a CUDA device; got %s."
                           % cell.device)
        if cell.variant == "captured" and cell.loss.kind == "ctc":
            raise Declined("ctc", "ctc: nn.functional.ctc_loss reads the lengths on the host, which the variant captured "
                           "cannot record. Ask for another variant.")
        if cell.trim and cell.variant in ("captured", "compile"):
            raise Declined("trim", "trim: %s; got lengths to trim batches by. Ask for the variant eager or tuned." % {
                "captured": "the variant captured records batches of one size",
                "compile": "the variant compile gives up after eight sizes (torch._dynamo), and would run the rest as eager"}
                [cell.variant])
        if cell.variant == "captured" and cell.network.whole and \
                cell.network.whole["kind"] in pytorch_sequences.READS_LENGTHS:
            raise Declined("variant", "variant: %s packs its sequences by lengths on the host, which captured cannot "
                           "record. Ask for another variant." % cell.network.whole["kind"])
        if cell.precision == "tf32" and not self.cuda:
            raise Declined("precision", "precision: tf32 is a format of CUDA devices; got %s." % cell.device)
        want = cell.switches
        obeyed = {"conv": want.get("conv", "heuristic")}
        if obeyed["conv"] == "profile" and not self.cuda:
            raise Declined("conv", "conv: profile is cudnn.benchmark, which acts on CUDA devices alone; got %s."
                           % cell.device)
        if obeyed["conv"] == "fixed":
            if not self.cuda:
                raise Declined("conv", "conv: fixed stands for cudnn.deterministic, which acts on CUDA devices alone; "
                               "got %s." % cell.device)
            self.notes.append("conv fixed: PyTorch names no algorithm; cudnn.deterministic leaves cuDNN its "
                              "deterministic ones, chosen without measuring")
        torch.backends.cudnn.benchmark = obeyed["conv"] == "profile"
        torch.backends.cudnn.deterministic = obeyed["conv"] == "fixed"

        graph = {"eager": "off", "tuned": "off", "captured": "on"}.get(cell.variant)  # None: either
        if graph and want.get("graph", graph) != graph:
            raise Declined("graph", "graph: the variant %s can only have it %s; got %s. The variant compile obeys both."
                           % (cell.variant, graph, want["graph"]))
        obeyed["graph"] = graph or want.get("graph", "on")
        if "graph.cache" in want and cell.variant != "compile":
            raise Declined("graph.cache", "graph.cache: only the variant compile keeps a cache; got %s." % cell.variant)
        if cell.variant == "compile":
            obeyed["graph.cache"] = want.get("graph.cache", "off")

        if "lstm" in want:
            obeyed["lstm"] = want["lstm"]
        if self.cuda:
            if "onednn" in want:
                raise Declined("onednn", "onednn: acts on the CPU alone; got %s." % cell.device)
            torch.cuda.set_device(self.device)
            torch.cuda.empty_cache()
        else:
            # On Arm's cores PyTorch was faster without it wherever both were tried, on x86-64 half as fast.
            slows = cell.variant == "tuned" and platform.machine() in ("aarch64", "arm64")
            usual = "on" if torch.backends.mkldnn.is_available() and not slows else "off"
            obeyed["onednn"] = want.get("onednn", usual)
            if obeyed["onednn"] == "on" and not torch.backends.mkldnn.is_available():
                raise Declined("onednn", "onednn: this build of PyTorch has no oneDNN.")
            torch.backends.mkldnn.enabled = obeyed["onednn"] == "on"
        # By the older names, which every 2.x understands; the newer ones follow them.
        torch.set_float32_matmul_precision("high" if cell.precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = cell.precision == "tf32"
        torch.set_num_threads(cell.threads)
        return obeyed

    def _load(self, cell):
        parameters = dict(self.network.named_parameters())
        weights = cell.weights({name: tuple(p.shape) for name, p in parameters.items()})
        if weights is None:
            self.notes.append("weights: PyTorch's own initialisation, seed %d" % cell.seed)
            return
        with torch.no_grad():
            for name, tensor in list(parameters.items()) + list(self.network.named_buffers()):
                if name in weights:
                    tensor.copy_(torch.from_numpy(np.ascontiguousarray(weights[name])))

    def _make_optimizer(self, cell):
        name, options = cell.optimizer_options({name: known for name, (_, known) in OPTIMIZERS.items()})
        if cell.track == "as_shipped":
            options = {}
            self.notes.append("optimizer: %s with PyTorch's own defaults" % name)
        if cell.variant == "captured" and name != "sgd":  # sgd has no state on the host
            options["capturable"] = True
        if cell.variant == "tuned" and name in ("sgd", "adam"):
            options["fused"] = True
        return OPTIMIZERS[name][0](self.network.parameters(), **options)

    def _compiled(self):
        torch._dynamo.reset()
        if self.obeyed["graph.cache"] == "off":
            # A folder of its own: otherwise the first step of every process but the first would find its work done.
            folder = tempfile.mkdtemp(prefix="tandem_lab_inductor_")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        elif CACHE_FOLDER is None:
            os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
        else:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = CACHE_FOLDER
        if self.obeyed["graph"] == "off":
            self.notes.append("graph off: traced by torch.compile and run op by op (backend aot_eager)")
            return torch.compile(self.network, dynamic=False, backend="aot_eager")
        return torch.compile(self.network, dynamic=False)

    # ---- steps. A placed batch is (the network's inputs, what the loss takes beside the output)

    def _plan(self, cell):
        """What a step needs to know of the names: it finds everything by place."""
        names = [output["name"] for output in cell.network.outputs]
        self.outputs, self.several = len(names), len(names) + len(cell.network.states) > 1
        self.inputs = [entry["name"] for entry in cell.network.inputs]
        self.wanted = cell.wanted()
        self.terms = []  # of the loss: (function, place of the output, places of what it takes besides)
        for term in cell.terms:
            place = names.index(term.output)
            function = pytorch_network.loss_function(term, cell.network.outputs[place]["shape"])
            self.terms.append((function, place, [self.wanted.index(name) for name in (term.target, term.lengths)
                                                 if name is not None]))
        self.chosen = self.terms[0][1]
        # What stays on the host, where packed sequences read it.
        self.on_host = [entry for entry in self.inputs if cell.network.whole and entry in
                        pytorch_sequences.READS_LENGTHS.get(cell.network.whole["kind"], ())]
        # As nn.LSTM takes them: the batch is the second axis.
        self.state_shapes = [(entry["shape"][0], cell.batch) + tuple(entry["shape"][1:])
                             for entry in cell.network.states]
        self.reset_states()

    def reset_states(self):
        if self._static is None:
            self.states = tuple(torch.zeros(shape, device=self.device, dtype=self.dtype) for shape in self.state_shapes)
        else:
            for state in self.states:
                state.zero_()

    def _autocast(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.cell.precision == "bf16",
                              cache_enabled=self.cell.variant != "captured")

    def _outputs_of(self, inputs):
        """-> (outputs, states as the step leaves them)."""
        if self.cell.precision == "bf16":
            with self._autocast():
                made = self.forward(*inputs, *self.states)
        else:
            made = self.forward(*inputs, *self.states)
        return (made[:self.outputs], made[self.outputs:]) if self.several else ((made,), ())

    def _loss_of(self, inputs, wanted):
        """-> (loss, outputs, states)."""
        outputs, states = self._outputs_of(inputs)
        losses = []
        for function, place, taken in self.terms:
            output = outputs[place].float() if self.cell.precision == "bf16" else outputs[place]
            losses.append(function(output, *[wanted[index] for index in taken]))
        return sum(losses[1:], losses[0]), outputs, states

    def place(self, batch):
        return self.placed({name: torch.from_numpy(array) for name, array in batch.items()})

    def placed(self, batch):
        """A batch of tensors {name: tensor} as the steps take it."""
        there = {name: tensor.to(self.device, self.dtype if tensor.is_floating_point() else tensor.dtype,
                                 non_blocking=True) for name, tensor in batch.items()}
        there.update({name: batch[name].cpu() for name in self.on_host if name not in self.wanted})
        return tuple(there[name] for name in self.inputs), tuple(there[name] for name in self.wanted)

    def train_step(self, placed):
        if self.cell.variant == "captured":
            self._replay(placed)
        else:
            self._train(*placed)

    def _train(self, inputs, wanted):
        if not self.network.training:
            self.network.train()
        self.optimizer.zero_grad()
        self.loss, self.last_outputs, states = self._loss_of(inputs, wanted)
        self.loss.backward()
        self.optimizer.step()
        if states:
            self._keep(states)

    def infer_step(self, placed):
        if self.cell.variant == "captured" and self.cell.phase == "infer":
            self._replay(placed)
            return
        if self.network.training:
            self.network.eval()
        with torch.inference_mode():
            self.last_outputs, states = self._outputs_of(placed[0])
            if states:
                self._keep(states)

    def _keep(self, states):
        """The states for the next step: the recorded step has them in a place of their own."""
        if self._static is None:
            self.states = tuple(state.detach().to(self.dtype) for state in states)
        else:
            for kept, state in zip(self.states, states):
                kept.copy_(state.detach())

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def parameters(self):
        return sum(p.numel() for p in self.network.parameters())

    def read_loss(self):
        return self.loss.item()

    def read_outputs(self):
        return {entry["name"]: value.detach().double().cpu().numpy()
                for entry, value in zip(self.cell.network.outputs, self.last_outputs)}

    def count(self, placed, batch):
        with torch.no_grad():
            self._loss_sum = self._loss_sum + self.loss.detach()
            if "accuracy" in self.cell.metrics:
                right = pytorch_network.right_answers(self.last_outputs[self.chosen].detach(), *placed[1])
                self._right = self._right + right.sum()

    def counted(self):
        sums = float(self._loss_sum), {"accuracy": int(self._right)} if "accuracy" in self.cell.metrics else {}
        self._loss_sum = self._right = 0
        return sums

    def measure(self, placed):
        target, *lengths = placed[1]
        with torch.inference_mode():
            output = self.last_outputs[self.chosen].to(self.dtype)
            each = {"loss": pytorch_network.cross_entropy(output, target, *lengths, reduction="none")}
            if "accuracy" in self.cell.metrics:
                each["accuracy"] = pytorch_network.right_answers(output, target, *lengths)
            found = {name: values.reshape(len(target), -1).sum(1) for name, values in each.items()}
            if "accuracy" in found and target.dim() == 1:
                found["class"] = output.argmax(1)
        return found

    def read_measured(self, array):
        return array.cpu().numpy()

    def loss_and_gradients(self, batch):
        self.network.train()
        kept = [buffer.clone() for buffer in self.network.buffers()]  # running statistics, which this pass would move
        states, self.states = self.states, tuple(torch.zeros_like(state) for state in self.states)
        names, tensors = zip(*self.network.named_parameters())
        loss, _, _ = self._loss_of(*self.place(batch))
        norms = {name: gradient.double().norm().item()
                 for name, gradient in zip(names, torch.autograd.grad(loss, tensors))}
        self.states = states
        with torch.no_grad():
            for buffer, old in zip(self.network.buffers(), kept):
                buffer.copy_(old)
        return loss.item(), norms

    # ---- the variant captured

    def _record(self, placed):
        """Records one whole step of the cell's phase. A replay reads the batch from _static and the states from where
        they are, and leaves states, loss and outputs in place."""
        training = self.cell.phase == "train"
        self.network.train(training)
        self._static = tuple(tuple(torch.empty_like(tensor) for tensor in part) for part in placed)
        self._fill(placed)
        kept = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(CAPTURE_WARM_UP):
                self._recorded(training)
        torch.cuda.current_stream(self.device).wait_stream(side)
        # What the warm-up left would tie the recording to the side stream.
        self.loss = self.last_outputs = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._recorded(training)
        # The warm-up has moved weights, statistics, states and the optimiser's state; recording moves nothing. State
        # that is zero means the same as none for every optimiser of the table.
        with torch.no_grad():
            self.network.load_state_dict(kept)
            for state in self.optimizer.state.values() if training else ():
                for value in state.values():
                    if isinstance(value, torch.Tensor):
                        value.zero_()
        self.reset_states()
        self._made = self.loss, self.last_outputs
        self._graph = graph

    def _recorded(self, training):
        """One step from and to the fixed places."""
        inputs, wanted = self._static
        if not training:
            with torch.no_grad():
                self.last_outputs, states = self._outputs_of(inputs)
                self._keep(states)
            return
        # Without gradients at the start, backward writes them afresh in the graph's own memory at every replay.
        self.optimizer.zero_grad(set_to_none=True)
        self.loss, self.last_outputs, states = self._loss_of(inputs, wanted)
        self.loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            self._keep(states)

    def _fill(self, placed):
        for part, given in zip(self._static, placed):
            for tensor, value in zip(part, given):
                tensor.copy_(value)

    def _replay(self, placed):
        if self._graph is None:
            self._record(placed)
        self._fill(placed)
        self._graph.replay()
        self.loss, self.last_outputs = self._made

    # ---- where the time goes

    def breakdown(self, steps, placed_batches):
        from torch.profiler import ProfilerActivity, profile
        step = self.train_step if self.cell.phase == "train" else self.infer_step
        # Whatever is still to be compiled stays outside. So does, on a GPU, what the profiler costs: its kernels are timed
        # by the device itself, and their share is that of a step which nobody watched.
        plain_us = self.timed(step, steps, placed_batches) / 1e3
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self.cuda else [])
        with profile(activities=activities) as profiler:
            begin = frame.now_ns()
            for index in range(steps):
                step(placed_batches[index % len(placed_batches)])
            self.synchronize()
            wall_us = (frame.now_ns() - begin) / 1e3
        events = profiler.events()
        return cuda_shares(events, plain_us, steps) if self.cuda else cpu_shares(events, wall_us, steps)


def top_ops(times, wall_us):
    """times: {name: (microseconds, calls)} -> the ten largest as [name, share, calls]."""
    largest = sorted(times.items(), key=lambda item: -item[1][0])[:10]
    return [[name, spent / wall_us, calls] for name, (spent, calls) in largest]


# Operators that only make or look at tensors: what they take is the framework's own work, not the network's.
BOOKKEEPING = {"aten::" + name for name in (
    "empty", "empty_like", "empty_strided", "as_strided", "as_strided_", "view", "_unsafe_view", "reshape",
    "_reshape_alias", "flatten", "expand", "t", "transpose", "permute", "slice", "select", "resize_", "detach", "item",
    "_local_scalar_dense", "result_type", "conv2d", "convolution", "_convolution", "linear", "max_pool2d", "matmul",
    "cross_entropy_loss", "batch_norm", "adaptive_avg_pool2d", "dropout", "narrow", "lift_fresh", "unbind", "to",
    "unsqueeze")}


def cpu_shares(events, wall_us, steps):
    """On the processor a kernel is an operator of ATen, or a compiled graph, less the operators inside it; the engine,
    the optimiser's Python and the bookkeeping are what is left of the step."""
    times = {}
    for event in events:
        spent, calls = times.get(event.name, (0.0, 0))
        times[event.name] = (spent + event.self_cpu_time_total, calls + 1)
    kernels = sum(spent for name, (spent, _) in times.items() if "CompiledFxGraph" in name or
                  name.startswith(("aten::", "mkldnn::")) and name not in BOOKKEEPING)
    copies = sum(spent for name, (spent, _) in times.items() if name in ("aten::copy_", "aten::clone"))
    return {"source": "torch.profiler, processor", "kernel_share": kernels / wall_us, "copy_share": copies / wall_us,
            "ops": top_ops({name: (spent, calls / steps) for name, (spent, calls) in times.items()}, wall_us)}


def cuda_shares(events, wall_us, steps):
    """From the device's own time line; kernels that ran side by side count once."""
    times, kernels, copies = {}, [], []
    for event in events:
        if event.device_type != torch.autograd.DeviceType.CUDA or event.is_user_annotation:
            continue
        interval = event.time_range.start, event.time_range.end
        (copies if event.name.startswith(("Memcpy", "Memset")) else kernels).append(interval)
        spent, calls = times.get(event.name, (0.0, 0))
        times[event.name] = (spent + interval[1] - interval[0], calls + 1)
    return {"source": "torch.profiler, CUPTI, against steps without it", "kernel_share": covered(kernels) / wall_us,
            "copy_share": covered(copies) / wall_us, "launches": len(kernels) / steps,
            "ops": top_ops({name: (spent, calls / steps) for name, (spent, calls) in times.items()}, wall_us)}


def covered(intervals):
    """How much time at least one of the intervals covers."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


if __name__ == "__main__":
    frame.serve(PyTorchDriver())
