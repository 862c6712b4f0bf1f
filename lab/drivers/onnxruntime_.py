"""The driver of ONNX Runtime: inference alone, of graphs that are built here with the cell's weights."""
import json
import math
import os
import sys
import tempfile

import frame

frame.claim_stdout()
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime as ort  # noqa: E402

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "listings"))
import onnxruntime_models as listings  # noqa: E402
import onnxruntime_network  # noqa: E402

LEVELS = ("graph.basic", "graph.extended", "graph.layout")  # each needs the ones before it
SEARCHES = {"fixed": "DEFAULT", "heuristic": "HEURISTIC", "profile": "EXHAUSTIVE"}  # of cuDNN's algorithms


def optimisation_level(switches):
    """-> (ONNX Runtime's level, the switches as obeyed)."""
    level, reached = ort.GraphOptimizationLevel, switches.get("graph", "on") == "on"
    levels, obeyed = [level.ORT_ENABLE_BASIC, level.ORT_ENABLE_EXTENDED, level.ORT_ENABLE_ALL], {}
    obeyed["graph"], chosen = switches.get("graph", "on"), level.ORT_DISABLE_ALL
    for name, here in zip(LEVELS, levels):
        if not reached and switches.get(name) == "on":
            raise frame.Declined(name, "%s: must be off where a level below it is off, as its levels contain "
                                 "each other (graph, %s); got on." % (name, ", ".join(LEVELS)))
        reached = reached and switches.get(name, "on") == "on"
        obeyed[name] = "on" if reached else "off"
        chosen = here if reached else chosen
    return chosen, obeyed


class Listing:
    """A network written by hand, with the fields of onnxruntime_network.Network."""

    states = {}

    def __init__(self, cell, weights):
        graph, logits = listings.describe(cell.network.name, cell.sizes, cell.classes)
        values = dict(graph.statistics)
        values.update((name, value) for name, value in weights.items() if name in graph.weights or name in values)
        self.nodes = len(graph.nodes)
        self.bytes = listings.model_of(graph, logits, cell.batch, values).SerializeToString()
        self.inputs = {cell.network.inputs[0]["name"]: "x"}
        self.outputs = {cell.network.outputs[0]["name"]: ("logits", (cell.classes,))}


class OnnxRuntimeModel(frame.Model):
    def __init__(self, cell):
        self.cell, self.notes = cell, []
        self.device, self.index = ("cpu", 0) if cell.device == "cpu" else ("cuda", int(cell.device.split(":")[1]))
        self.level, self.obeyed = optimisation_level(cell.switches)
        if "conv" in cell.switches:
            self.obeyed["conv"] = cell.switches["conv"]
        shapes = cell.network.parameters
        given = cell.weights(shapes)
        if given is None:
            self.notes.append("weights: ONNX Runtime makes none; these are by the lab's formula, seed %d" % cell.seed)
            given = frame.hash_weights(shapes, cell.seed)
        self.count_of_parameters = sum(math.prod(shape) for shape in shapes.values())
        make = Listing if cell.definition == "listing" else onnxruntime_network.Network
        self.network = make(cell, given)
        self.engine = self._engine()
        self.options = ort.RunOptions()
        if self.device == "cuda":
            self.options.add_run_config_entry("disable_synchronize_execution_providers", "1")  # `synchronize` waits
        self.last = None
        self.reset_states()

    def _engine(self, profile=None):
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.cell.threads
        options.inter_op_num_threads = 1  # the networks are chains: one node at a time
        options.graph_optimization_level = self.level
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        providers = ["CPUExecutionProvider"]
        if self.device == "cuda":
            chosen = {"device_id": self.index, "use_tf32": int(self.cell.precision == "tf32")}
            if "conv" in self.cell.switches:
                chosen["cudnn_conv_algo_search"] = SEARCHES[self.cell.switches["conv"]]
            providers.insert(0, ("CUDAExecutionProvider", chosen))
        engine = ort.InferenceSession(self.network.bytes, options, providers=providers)
        if self.device == "cuda" and engine.get_providers()[0] != "CUDAExecutionProvider":
            raise RuntimeError("device: ONNX Runtime could not start its CUDA provider; standard error tells why.")
        return engine

    def parameters(self):
        return self.count_of_parameters

    def place(self, batch):
        return Batch(self, self.engine, {name: batch[name] for name in self.network.inputs})

    def reset_states(self):
        """Two buffers for each state: a step reads one and writes the other, and they change places."""
        self.states = [(before, self._value(np.zeros(sizes, np.float32)), after, self._empty(sizes))
                       for before, (after, sizes) in self.network.states.items()]

    def _value(self, array):
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self.device, self.index)

    def _empty(self, sizes):
        return ort.OrtValue.ortvalue_from_shape_and_type(sizes, np.float32, self.device, self.index)

    def infer_step(self, placed):
        if self.states:
            placed.bind(self.states)
        self.engine.run_with_iobinding(placed.binding, self.options)
        if self.states:
            self.states = [(before, new, after, old) for before, old, after, new in self.states]
        self.last = placed

    def synchronize(self):
        if self.last is not None:
            self.last.binding.synchronize_outputs()

    def read_outputs(self):
        self.synchronize()
        return {name: value.numpy() for name, value in self.last.outputs.items()}

    def breakdown(self, steps, placed_batches):
        """A second engine with ONNX Runtime's profiler, whose file has an event for every node that was run."""
        with tempfile.TemporaryDirectory() as folder:
            engine = self._engine(os.path.join(folder, "profile"))
            placed = [Batch(self, engine, {name: value.numpy() for name, value in batch.inputs.items()})
                      for batch in placed_batches]
            for index in range(steps + 1):
                placed[index % len(placed)].bind(self.states)
                engine.run_with_iobinding(placed[index % len(placed)].binding)
            with open(engine.end_profiling()) as file:
                events = json.load(file)
        runs = sorted((event["ts"], event["dur"]) for event in events if event.get("name") == "model_run")[1:]
        nodes = [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
                 and event["ts"] >= runs[0][0]]  # the first run, which also allocates, is left out
        whole = sum(duration for _, duration in runs)
        times, calls = {}, {}
        for event in nodes:
            kind = event["args"]["op_name"]
            times[kind] = times.get(kind, 0) + event["dur"]
            calls[kind] = calls.get(kind, 0) + 1
        largest = sorted(times, key=times.get, reverse=True)[:10]
        answer = {"source": "ONNX Runtime's profiler", "nodes_before": self.network.nodes,
                  "nodes_after": len(nodes) // len(runs),
                  "ops": [[kind, times[kind] / whole, calls[kind] / len(runs)] for kind in largest]}
        if self.device == "cpu":  # on CUDA the profiler's times are those of the launches
            answer.update(kernel_share=min(1.0, sum(times.values()) / whole), launches=len(nodes) / len(runs))
        return answer


class Batch:
    """A batch on the device, bound to an engine's inputs, with the outputs that come out."""

    def __init__(self, model, engine, arrays):
        self.binding, network = engine.io_binding(), model.network
        self.inputs = {name: model._value(array) for name, array in arrays.items()}
        self.outputs = {name: model._empty((model.cell.batch, *sizes)) for name, (_, sizes) in network.outputs.items()}
        for name, value in self.inputs.items():
            self.binding.bind_ortvalue_input(network.inputs[name], value)
        for name, value in self.outputs.items():
            self.binding.bind_ortvalue_output(network.outputs[name][0], value)

    def bind(self, states):
        for before, old, after, new in states:
            self.binding.bind_ortvalue_input(before, old)
            self.binding.bind_ortvalue_output(after, new)


class OnnxRuntimeDriver(frame.Driver):
    def hello(self):
        cuda = ["cuda:0"] if "CUDAExecutionProvider" in ort.get_available_providers() else []
        switches = {name: ["on", "off"] for name in ("graph",) + LEVELS}
        if cuda:
            switches["conv"] = list(SEARCHES)
        return {"framework": "onnxruntime", "version": ort.__version__, "variants": ["graph"],
                "devices": ["cpu"] + cuda, "kinds": onnxruntime_network.KINDS,
                "losses": ["cross_entropy", "mse", "mae", "bce"], "listings": list(listings.MODELS),
                "phases": ["infer"],
                "precisions": ["f32"] + (["tf32"] if cuda else []),
                "switches": switches, "libraries": {"onnx": onnx.__version__, "numpy": np.__version__}}

    def why_declined(self, what, value):
        if what == "phase":
            return "ONNX Runtime runs networks that others have trained."
        if what == "conv":
            return "This package of ONNX Runtime has no CUDA provider, where alone there is a choice."
        return None

    def build(self, cell):
        if cell.device == "cpu":
            if cell.precision == "tf32":
                raise frame.Declined("precision", "precision: tf32 must be on a CUDA device; got %s." % cell.device)
            if "conv" in cell.switches:
                raise frame.Declined("conv", "conv: ONNX Runtime chooses among algorithms on CUDA alone; got %s."
                                     % cell.device)
        return OnnxRuntimeModel(cell)


if __name__ == "__main__":
    frame.serve(OnnxRuntimeDriver())
