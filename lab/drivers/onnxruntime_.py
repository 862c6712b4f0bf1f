"""The driver of ONNX Runtime: inference alone, of graphs that are built here from the workload's weights."""
import json
import math
import os
import tempfile

import frame

frame.claim_stdout()
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime as ort  # noqa: E402

import onnxruntime_models as models  # noqa: E402

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


class Batch:
    """A batch on the device, bound to the engine's input, with the logits that come out."""

    def __init__(self, engine, x, classes, device, index):
        self.binding = engine.io_binding()
        self.x = ort.OrtValue.ortvalue_from_numpy(x, device, index)
        self.logits = ort.OrtValue.ortvalue_from_shape_and_type((len(x), classes), np.float32, device, index)
        self.binding.bind_ortvalue_input("x", self.x)
        self.binding.bind_ortvalue_output("logits", self.logits)


class OnnxRuntimeModel(frame.Model):
    def __init__(self, cell):
        self.cell, self.notes = cell, []
        self.device, self.index = ("cpu", 0) if cell.device == "cpu" else ("cuda", int(cell.device.split(":")[1]))
        self.level, self.obeyed = optimisation_level(cell.switches)
        if "conv" in cell.switches:
            self.obeyed["conv"] = cell.switches["conv"]
        graph, logits = models.describe(cell.model, cell.input, cell.classes)
        values = dict(graph.statistics)
        given = cell.weights(graph.weights)
        if given is None:
            self.notes.append("weights: ONNX Runtime makes none; these are by the lab's formula, seed %d" % cell.seed)
            given = frame.hash_weights(graph.weights, cell.seed)
        values.update((name, value) for name, value in given.items() if name in graph.weights or name in values)
        self.count_of_parameters = sum(math.prod(shape) for shape in graph.weights.values())
        self.nodes = len(graph.nodes)
        self.bytes = models.model_of(graph, logits, cell.batch, values).SerializeToString()
        self.engine = self._engine()
        self.options = ort.RunOptions()
        if self.device == "cuda":
            self.options.add_run_config_entry("disable_synchronize_execution_providers", "1")  # `synchronize` waits
        self.last = None

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
        engine = ort.InferenceSession(self.bytes, options, providers=providers)
        if self.device == "cuda" and engine.get_providers()[0] != "CUDAExecutionProvider":
            raise RuntimeError("device: ONNX Runtime could not start its CUDA provider; standard error tells why.")
        return engine

    def parameters(self):
        return self.count_of_parameters

    def place(self, x, y):
        return Batch(self.engine, np.ascontiguousarray(x), self.cell.classes, self.device, self.index)

    def infer_step(self, placed):
        self.engine.run_with_iobinding(placed.binding, self.options)
        self.last = placed

    def synchronize(self):
        if self.last is not None:
            self.last.binding.synchronize_outputs()

    def read_logits(self):
        self.synchronize()
        return self.last.logits.numpy()

    def breakdown(self, steps, placed_batches):
        """A second engine with ONNX Runtime's profiler, whose file has an event for every node that was run."""
        with tempfile.TemporaryDirectory() as folder:
            engine = self._engine(os.path.join(folder, "profile"))
            shapes = (self.cell.batch, *self.cell.input)
            inputs = [placed.x.numpy().reshape(shapes) for placed in placed_batches]
            placed = [Batch(engine, x, self.cell.classes, self.device, self.index) for x in inputs]
            for index in range(steps + 1):
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
        answer = {"source": "ONNX Runtime's profiler", "nodes_before": self.nodes,
                  "nodes_after": len(nodes) // len(runs),
                  "ops": [[kind, times[kind] / whole, calls[kind] / len(runs)] for kind in largest]}
        if self.device == "cpu":  # on CUDA the profiler's times are those of the launches
            answer.update(kernel_share=min(1.0, sum(times.values()) / whole), launches=len(nodes) / len(runs))
        return answer


class OnnxRuntimeDriver(frame.Driver):
    def hello(self):
        cuda = ["cuda:0"] if "CUDAExecutionProvider" in ort.get_available_providers() else []
        switches = {name: ["on", "off"] for name in ("graph",) + LEVELS}
        if cuda:
            switches["conv"] = list(SEARCHES)
        return {"framework": "onnxruntime", "version": ort.__version__, "variants": ["graph"],
                "devices": ["cpu"] + cuda, "workloads": list(models.MODELS), "phases": ["infer"],
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
