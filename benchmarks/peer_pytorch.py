#!/usr/bin/env python3
"""PyTorch's side of the benchmark: a driver that speaks JSON lines on stdin and stdout.

bench.py starts it, asks, and waits for the answer, one line each:
  {"do": "hello"}                            -> framework, version, variants by device
  {"do": "check", case, device, steps}       -> losses of the first steps, for the equivalence gate
  {"do": "prepare", case, variant, device}   -> ok, or error where the variant does not work here
  {"do": "run", case, variant, device, steps} -> seconds: one number per step (cpu) or one per block (cuda, synchronised)
  {"do": "memory", case, variant, device, steps} -> bytes by which the process grew at most
  {"do": "check" | "run", "layer": [n, c, h, w, o, kernel, stride, padding, groups], variant} -> the same for one pass
                                                of a convolution: variant "forward", "input" or "weight"
  {"do": "quit"}
Weights, inputs and labels come from an integer hash that tandem_peer.cpp computes too.
"""
import contextlib
import json
import math
import os
import re
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

BATCHES = 8  # resident batches that the steps take turns at
MASK = 0xFFFFFFFF


def hashed(size, stream):
    """`size` numbers of 32 bits: element i of stream s is a mix of both. The same in tandem_peer.cpp."""
    h = (torch.arange(size, dtype=torch.int64) * 0x9E3779B1 + stream * 0x7F4A7C15) & MASK
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & MASK
    return h ^ (h >> 16)


def uniform(size, stream, half_width):
    """Floats in [-half_width, half_width)."""
    return ((hashed(size, stream) >> 8).float() * 2.0**-24 - 0.5) * (2 * half_width)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.dropout(x, 0.25, self.training).flatten(1)
        return self.fc2(F.dropout(F.relu(self.fc1(x)), 0.5, self.training))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.fc2 = nn.Linear(256, 128)
        self.fc3 = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class PairsCnn(nn.Module):
    """cifar10_cnn and cifar100_cnn: pairs of padded 3x3 convolutions, a pool and dropout after each, two dense layers."""

    def __init__(self, channels, drops, units, classes):
        super().__init__()
        widths = [3] + [c for c in channels for _ in range(2)]
        self.convs = [nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:])]
        for i, conv in enumerate(self.convs):
            self.add_module(f"conv{i + 1}", conv)
        self.drops = drops
        side = 32 >> len(channels)
        self.fc1, self.fc2 = nn.Linear(channels[-1] * side * side, units), nn.Linear(units, classes)

    def forward(self, x):
        for i, p in enumerate(self.drops[:-1]):
            x = F.max_pool2d(F.relu(self.convs[2 * i + 1](F.relu(self.convs[2 * i](x)))), 2)
            x = F.dropout(x, p, self.training)
        return self.fc2(F.dropout(F.relu(self.fc1(x.flatten(1))), self.drops[-1], self.training))


MODELS = {"lenet": LeNet, "mnist_cnn": MnistCnn, "mlp": Mlp,
          "cifar10_cnn": lambda: PairsCnn((32, 64), (0.25, 0.25, 0.5), 512, 10),
          "cifar100_cnn": lambda: PairsCnn((128, 256, 512), (0.1, 0.25, 0.5, 0.5), 1024, 100)}
INPUTS = {"cifar10_cnn": (3, 32, 32), "cifar100_cnn": (3, 32, 32)}  # the others take 28x28 in one channel
CLASSES = {"cifar100_cnn": 100}
VARIANTS = {"cpu": ["eager", "tuned", "compile"], "cuda": ["eager", "compile", "reduce_overhead", "captured"]}


def make_model(name, device):
    model = MODELS[name]()
    with torch.no_grad():
        for stream, (_, parameter) in enumerate(model.named_parameters()):
            fan_in = parameter[0].numel() if parameter.dim() > 1 else parameter.numel()
            parameter.copy_(uniform(parameter.numel(), stream + 1, 1 / math.sqrt(fan_in)).view(parameter.shape))
    return model.to(device)


def make_batches(name, batch, device):
    """Inputs of mean 0 and deviation 1, and labels, on the device before any clock starts."""
    shape = (batch,) + INPUTS.get(name, (1, 28, 28))
    inputs = [uniform(math.prod(shape), 1000 + i, math.sqrt(3)).view(shape).to(device) for i in range(BATCHES)]
    labels = [(hashed(batch, 2000 + i) % CLASSES.get(name, 10)).to(device) for i in range(BATCHES)]
    return inputs, labels


FUNCTIONS = {"exp": torch.exp, "log": torch.log, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf,
             "gelu": F.gelu, "silu": F.silu}


class Work:
    """One case in one variant: step(i) does step i and reads nothing back."""

    def __init__(self, case, variant, device, batch, dropout=True):
        name, phase = case.rsplit("_", 1)
        self.device, self.variant = device, variant
        if name == "function":
            self.model = FUNCTIONS[phase]
            self.inputs = [uniform(batch, 1000 + i, 4).to(device) for i in range(BATCHES)]
            self.step = self.infer_step()
            return
        self.model = make_model(name, device)
        self.model.train(phase == "train" and dropout)
        self.inputs, self.labels = make_batches(name, batch, device)
        self.loss = None
        if phase == "infer":
            self.step = self.infer_step()
            return
        # The default optimiser in "eager"; PyTorch's fastest one in every other variant.
        options = {} if variant == "eager" else {"fused": True}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, **options)
        self.step = self.captured_step() if variant == "captured" else self.train_step()

    def compiled(self, function):
        if self.variant == "compile":
            return torch.compile(function)
        if self.variant == "reduce_overhead":
            return torch.compile(function, mode="reduce-overhead")
        return function

    def infer_step(self):
        forward = self.compiled(self.model)

        def step(i):
            with torch.inference_mode():
                self.loss = forward(self.inputs[i % BATCHES])

        return step

    def train_step(self):
        loss_of = self.compiled(lambda x, y: F.cross_entropy(self.model(x), y))

        def step(i):
            self.optimizer.zero_grad(set_to_none=True)
            if self.variant == "reduce_overhead":
                torch.compiler.cudagraph_mark_step_begin()
            self.loss = loss_of(self.inputs[i % BATCHES], self.labels[i % BATCHES])
            self.loss.backward()
            self.optimizer.step()

        return step

    def captured_step(self):
        """Forward, backward and update recorded as one CUDA graph, as PyTorch's manual shows it."""
        x, y = self.inputs[0].clone(), self.labels[0].clone()

        def whole():
            self.optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            return loss

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                whole()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.loss = whole()

        def step(i):
            x.copy_(self.inputs[i % BATCHES], non_blocking=True)
            y.copy_(self.labels[i % BATCHES], non_blocking=True)
            graph.replay()

        return step

    def flags(self):
        if self.device == "cpu" and self.variant == "tuned":
            return torch.backends.mkldnn.flags(enabled=False)
        return contextlib.nullcontext()

    def run(self, steps, warm=2):
        with self.flags():
            for i in range(warm):
                self.step(i)
            if self.device == "cuda":
                torch.cuda.synchronize()
                start = time.perf_counter()
                for i in range(steps):
                    self.step(i)
                torch.cuda.synchronize()
                return [(time.perf_counter() - start) / steps]
            seconds = []
            for i in range(steps):
                start = time.perf_counter()
                self.step(i)
                seconds.append(time.perf_counter() - start)
            return seconds


class ConvWork:
    """One convolution: forward, and the gradients of its input and its weight, each on its own."""

    def __init__(self, n, c, h, w, o, kernel, stride, padding, groups):
        self.x = uniform(n * c * h * w, 1, 1).view(n, c, h, w)
        self.weight = uniform(o * c // groups * kernel**2, 2, 1).view(o, c // groups, kernel, kernel)
        self.options = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups
        y = self.run_pass("forward")
        self.g = uniform(y.numel(), 3, 1).view(y.shape)

    def run_pass(self, which):
        if which == "forward":
            return torch.ops.aten.convolution(self.x, self.weight, None, *self.options)
        mask = [which == "input", which == "weight", False]
        return torch.ops.aten.convolution_backward(self.g, self.x, self.weight, None, *self.options,
                                                   mask)[0 if which == "input" else 1]

    def values(self):
        return [self.run_pass(which).abs().double().mean().item() for which in ("forward", "input", "weight")]

    def run(self, variant, steps):
        which, *tuned = variant.split()
        with torch.no_grad(), torch.backends.mkldnn.flags(enabled=not tuned):
            self.run_pass(which)
            seconds = []
            for _ in range(steps):
                start = time.perf_counter()
                self.run_pass(which)
                seconds.append(time.perf_counter() - start)
            return seconds


def add16(variant, steps):
    """Seconds an addition takes, from Python."""
    a, b = torch.ones(16), torch.ones(16)
    a.requires_grad_(variant == "recorded")
    with torch.set_grad_enabled(variant == "recorded"):
        for _ in range(1000):
            torch.add(a, b)
        start = time.perf_counter()
        for _ in range(steps):
            torch.add(a, b)
        return [(time.perf_counter() - start) / steps]


class Product:
    """The matrix product (m, k) x (k, n), the operands stored as they are (n) or transposed (t)."""

    def __init__(self, request):
        m, n, k, layout = (request[key] for key in ("m", "n", "k", "layout"))
        a, b = uniform(m * k, 1, 1), uniform(k * n, 2, 1)
        self.a = a.view(m, k) if layout[0] == "n" else a.view(k, m).t()
        self.b = b.view(k, n) if layout[1] == "n" else b.view(n, k).t()

    def run(self, steps, tuned):
        seconds = []
        with torch.inference_mode(), torch.backends.mkldnn.flags(enabled=not tuned):
            for _ in range(steps):
                start = time.perf_counter()
                torch.matmul(self.a, self.b)
                seconds.append(time.perf_counter() - start)
        return seconds

    def checksum(self):
        c = torch.matmul(self.a, self.b)
        return [c.abs().sum().item(), c.square().sum().item()]


def status_bytes(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


def heap_counter():
    """The preloaded heap_peak library, where bench.py put it in front."""
    import ctypes

    try:
        library = ctypes.CDLL(None)
        library.heap_live.restype = library.heap_peak.restype = ctypes.c_size_t
        return library if library.heap_live() >= 0 else None
    except AttributeError:
        return None


def memory(request, work_of):
    """How far the process grew over what it held after one tiny op, at its highest: resident and heap bytes."""
    torch.ones(4) + 1
    heap = heap_counter()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts again from here
    resident, heap_before = status_bytes("VmRSS"), 0
    if heap:
        heap.heap_reset()
        heap_before = heap.heap_live()
    work_of(request).run(request["steps"], warm=0)
    answer = {"resident": status_bytes("VmHWM") - resident}
    if heap:
        answer["heap"] = heap.heap_peak() - heap_before
    return answer


def losses(request):
    work = Work(request["case"], "eager", request["device"], request["batch"], dropout=False)
    values = []
    for i in range(request["steps"]):
        work.step(i)
        values.append(work.loss.mean().item())
    return values


def hello():
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"framework": "pytorch", "version": torch.__version__, "variants": VARIANTS,
            "threads": torch.get_num_threads(), "blas": blas.group(1) if blas else None, "gpu": gpu,
            "cudnn": torch.backends.cudnn.version() if gpu else None}


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to stderr
    torch.set_num_interop_threads(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    works, products, convs = {}, {}, {}

    def conv_of(layer):
        if layer not in convs:
            convs[layer] = ConvWork(*layer)
        return convs[layer]

    def work_of(request):
        key = tuple(request[k] for k in ("case", "variant", "device", "batch"))
        if key not in works:
            works[key] = Work(*key)
        return works[key]

    for line in sys.stdin:
        request = json.loads(line)
        do = request["do"]
        if do == "quit":
            return
        try:
            if "threads" in request:
                torch.set_num_threads(request["threads"])
            if do == "hello":
                answer = hello()
            elif request["case"] == "gemm":
                if request["shape"] not in products:
                    products[request["shape"]] = Product(request)
                product = products[request["shape"]]
                answer = ({"losses": product.checksum()} if do == "check" else
                          {"seconds": product.run(request["steps"], request["variant"] == "tuned")})
            elif "layer" in request:
                work = conv_of(tuple(request["layer"]))
                answer = ({"losses": work.values()} if do == "check" else
                          {"seconds": work.run(request["variant"], request["steps"])} if do == "run" else {})
            elif do == "check":
                answer = {"losses": losses(request)}
            elif do == "memory":
                answer = memory(request, work_of)
            elif request["case"] == "add16":
                answer = {"seconds": add16(request["variant"], request["steps"])}
            else:
                answer = {"seconds": work_of(request).run(request["steps"])}
        except Exception as error:  # the variant does not work here: bench.py reports it and goes on
            lines = str(error).strip().splitlines() or [""]
            answer = {"error": f"{type(error).__name__}: {lines[0][:200]}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
