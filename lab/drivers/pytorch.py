"""The PyTorch driver: variants eager, compile (torch.compile of the network) and captured (the whole training step as a
CUDA graph, captured by hand). lab/docs/drivers.md says what it obeys and what it declines."""
import atexit
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import frame  # noqa: E402

frame.claim_stdout()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import pytorch_models  # noqa: E402
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
            "variants": ["eager", "compile", "captured"],
            "devices": ["cpu"] + ["cuda:%d" % i for i in range(torch.cuda.device_count() if cuda else 0)],
            "workloads": list(pytorch_models.MODELS),
            "phases": ["train", "infer"],
            "precisions": ["f32", "bf16", "f64"] + (["tf32"] if cuda else []),
            "switches": {"conv": ["heuristic"] + (["profile"] if cuda else []), "graph": ["on", "off"],
                         "graph.cache": ["on", "off"], "onednn": ["on", "off"]},
            "libraries": libraries(),
        }

    def why_declined(self, what, value):
        if what == "conv" and value == "profile":
            return "cudnn.benchmark acts on CUDA devices alone; on the CPU PyTorch measures nothing."
        if what == "conv" and value == "fixed":
            return "PyTorch has no setting that names one algorithm for convolutions."
        if what == "precision" and value == "tf32":
            return "TF32 is a format of CUDA devices."
        return None

    def build(self, cell):
        return PyTorchModel(cell)

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
        self.obeyed = self._obey(cell)
        torch.manual_seed(cell.seed)
        self.dtype = torch.float64 if cell.precision == "f64" else torch.float32
        self.network = pytorch_models.make(cell.model, cell.classes, cell.input, cell.dropout)
        self._load(cell)
        self.network.to(self.device, self.dtype)
        self.optimizer = self._make_optimizer(cell) if cell.phase == "train" else None
        self.forward = self._compiled() if cell.variant == "compile" else self.network
        self.network.train(cell.phase == "train")
        self.loss = self.last_logits = None
        self._loss_sum = self._right = 0
        self._graph = None  # the variant captured: recorded at the first step, as other systems compile there

    # ---- what prepare sets

    def _obey(self, cell):
        """Sets the process's switches; -> all of them as they stand now."""
        if cell.variant == "captured" and not self.cuda:
            raise Declined("variant", "variant: captured records a CUDA graph and needs a CUDA device; got %s."
                           % cell.device)
        if cell.precision == "tf32" and not self.cuda:
            raise Declined("precision", "precision: tf32 is a format of CUDA devices; got %s." % cell.device)
        want = cell.switches
        obeyed = {"conv": want.get("conv", "heuristic")}
        if obeyed["conv"] == "profile" and not self.cuda:
            raise Declined("conv", "conv: profile is cudnn.benchmark, which acts on CUDA devices alone; got %s."
                           % cell.device)
        torch.backends.cudnn.benchmark = obeyed["conv"] == "profile"

        graph = {"eager": "off", "captured": "on"}.get(cell.variant)  # None: either
        if graph and want.get("graph", graph) != graph:
            raise Declined("graph", "graph: the variant %s can only have it %s; got %s. The variant compile obeys both."
                           % (cell.variant, graph, want["graph"]))
        obeyed["graph"] = graph or want.get("graph", "on")
        if "graph.cache" in want and cell.variant != "compile":
            raise Declined("graph.cache", "graph.cache: only the variant compile keeps a cache; got %s." % cell.variant)
        if cell.variant == "compile":
            obeyed["graph.cache"] = want.get("graph.cache", "off")

        if self.cuda:
            if "onednn" in want:
                raise Declined("onednn", "onednn: acts on the CPU alone; got %s." % cell.device)
            torch.cuda.set_device(self.device)
            torch.cuda.empty_cache()
        else:
            obeyed["onednn"] = want.get("onednn", "on" if torch.backends.mkldnn.is_available() else "off")
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

    # ---- steps

    def _autocast(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.cell.precision == "bf16",
                              cache_enabled=self.cell.variant != "captured")

    def _loss_of(self, forward, x, y):
        if self.cell.precision != "bf16":
            logits = forward(x)
            return F.cross_entropy(logits, y), logits
        with self._autocast():
            logits = forward(x)
        return F.cross_entropy(logits.float(), y), logits

    def place(self, x, y):
        return torch.from_numpy(x).to(self.device, self.dtype), torch.from_numpy(y).to(self.device)

    def train_step(self, placed):
        if self.cell.variant == "captured":
            self._replay_training(placed)
        else:
            self._train(*placed)

    def _train(self, x, y):
        if not self.network.training:
            self.network.train()
        self.optimizer.zero_grad()
        self.loss, self.last_logits = self._loss_of(self.forward, x, y)
        self.loss.backward()
        self.optimizer.step()

    def infer_step(self, placed):
        if self.cell.variant == "captured" and self.cell.phase == "infer":
            self._replay_inference(placed)
            return
        if self.network.training:
            self.network.eval()
        with torch.inference_mode():
            if self.cell.precision == "bf16":
                with self._autocast():
                    self.last_logits = self.forward(placed[0])
            else:
                self.last_logits = self.forward(placed[0])

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def parameters(self):
        return sum(p.numel() for p in self.network.parameters())

    def read_loss(self):
        return self.loss.item()

    def read_logits(self):
        return self.last_logits.detach().double().cpu().numpy()

    def count(self, placed, y):
        with torch.no_grad():
            self._loss_sum = self._loss_sum + self.loss.detach()
            self._right = self._right + (self.last_logits.detach().argmax(1) == placed[1]).sum()

    def counted(self):
        sums = float(self._loss_sum), int(self._right)
        self._loss_sum = self._right = 0
        return sums

    def loss_and_gradients(self, x, y):
        self.network.train()
        x, y = self.place(x, y)
        kept = [buffer.clone() for buffer in self.network.buffers()]  # running statistics, which this pass would move
        names, tensors = zip(*self.network.named_parameters())
        loss, _ = self._loss_of(self.forward, x, y)
        norms = {name: gradient.double().norm().item()
                 for name, gradient in zip(names, torch.autograd.grad(loss, tensors))}
        with torch.no_grad():
            for buffer, old in zip(self.network.buffers(), kept):
                buffer.copy_(old)
        return loss.item(), norms

    # ---- the variant captured

    def _capture_training(self):
        """Records one whole training step. A replay reads static_x and static_y and leaves loss and logits in place."""
        self.network.train()
        self.static_x = torch.zeros((self.cell.batch,) + self.cell.input, device=self.device, dtype=self.dtype)
        self.static_y = torch.zeros((self.cell.batch,), device=self.device, dtype=torch.int64)
        kept = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(CAPTURE_WARM_UP):
                self._train(self.static_x, self.static_y)
        torch.cuda.current_stream(self.device).wait_stream(side)
        # What the warm-up left would tie the recording to the side stream.
        self.loss = self.last_logits = None
        # Without gradients at the start, backward writes them afresh in the graph's own memory at every replay.
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss, self.last_logits = self._loss_of(self.forward, self.static_x, self.static_y)
            self.loss.backward()
            self.optimizer.step()
        # The warm-up has moved weights, statistics and the optimiser's state; recording moves nothing. State that is
        # zero means the same as none for every optimiser of the table.
        with torch.no_grad():
            self.network.load_state_dict(kept)
            for state in self.optimizer.state.values():
                for value in state.values():
                    if isinstance(value, torch.Tensor):
                        value.zero_()
        self._outputs = self.loss, self.last_logits
        self._graph = graph

    def _replay_training(self, placed):
        if self._graph is None:
            self._capture_training()
        self.static_x.copy_(placed[0])
        self.static_y.copy_(placed[1])
        self._graph.replay()
        self.loss, self.last_logits = self._outputs

    def _capture_inference(self):
        self.network.eval()
        self.static_x = torch.zeros((self.cell.batch,) + self.cell.input, device=self.device, dtype=self.dtype)
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), self._autocast():
            with torch.cuda.stream(side):
                for _ in range(CAPTURE_WARM_UP):
                    self.network(self.static_x)
            torch.cuda.current_stream(self.device).wait_stream(side)
            with torch.cuda.graph(graph):
                self._outputs = self.network(self.static_x)
        self._graph = graph

    def _replay_inference(self, placed):
        if self._graph is None:
            self._capture_inference()
        self.static_x.copy_(placed[0])
        self._graph.replay()
        self.last_logits = self._outputs

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
