"""What the drivers of TensorFlow and Keras set for their whole process: devices, threads, precision and graph passes.

TensorFlow takes devices, threads and cuDNN's mode only before its first operation, so that a later cell of the same
process must ask for the same ones.
"""
import glob
import importlib.metadata
import os
import re
import tempfile

import keras
import numpy as np
import tensorflow as tf

import channels_last
import frame
import xla_profile

PASSES = ("layout_optimizer", "constant_folding", "shape_optimization", "remapping", "arithmetic_optimization",
          "dependency_optimization", "loop_optimization", "function_optimization", "implementation_selector")
POLICIES = {"f32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "f64": "float64"}


def gpus():
    return tf.config.list_physical_devices("GPU")


LOSSES = ["cross_entropy", "mse", "mae", "bce"]


def offer(framework, version, variants, kinds, listings, switches):
    """The answer to hello."""
    cuda = ["cuda:%d" % index for index in range(len(gpus()))]
    if cuda:
        switches = dict(switches, conv=["fixed", "profile"])
    return {"framework": framework, "version": version, "variants": variants, "devices": ["cpu"] + cuda,
            "kinds": list(kinds), "losses": LOSSES, "listings": list(listings), "phases": ["train", "infer"],
            "precisions": ["f32", "bf16", "f64"] + (["tf32"] if cuda else []), "switches": switches,
            "libraries": {name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "numpy")}}


def why_declined(what, value):
    """More about a value that `offer` does not offer."""
    if what == "conv":
        return "TensorFlow has %s, and that on CUDA alone: without timing it takes cuDNN's first algorithm (fixed)." % (
            "no heuristic of its own" if value == "heuristic" else "this choice by TF_CUDNN_USE_AUTOTUNE")
    if what.startswith("graph."):
        return "TensorFlow's own names are those of tf.config.optimizer.set_experimental_options."
    return None


class Process:
    """The settings of this process; `start` is called for every cell, before its model is made."""

    started = None  # (device, threads, conv)
    changed_passes = False

    def start(self, cell):
        on_cuda = cell.device != "cpu"
        if cell.precision == "tf32" and not on_cuda:
            raise frame.Declined("precision", "precision: tf32 must be on a CUDA device; got %s." % cell.device)
        conv = cell.switches.get("conv")
        if conv is not None and not on_cuda:
            raise frame.Declined("conv", "conv: TensorFlow times algorithms on CUDA alone; got %s." % cell.device)
        asked = (cell.device, cell.threads, conv)
        if self.started is None:
            self._first(cell, conv)
            self.started = asked
        for name, was, now in zip(("device", "threads", "conv"), self.started, asked):
            if was != now:
                raise frame.Declined(name, "%s: must stay as it was in the first prepare of a process, %s; got %s."
                                     % (name, was, now))
        tf.config.experimental.enable_tensor_float_32_execution(cell.precision == "tf32")
        keras.utils.clear_session()  # before the policy, which it would take back
        keras.config.set_dtype_policy(POLICIES[cell.precision])
        keras.utils.set_random_seed(cell.seed)

    def _first(self, cell, conv):
        tf.config.threading.set_intra_op_parallelism_threads(cell.threads)
        tf.config.threading.set_inter_op_parallelism_threads(cell.threads)
        if conv is not None:
            os.environ["TF_CUDNN_USE_AUTOTUNE"] = "1" if conv == "profile" else "0"  # read by the first convolution
        visible = [] if cell.device == "cpu" else [gpus()[int(cell.device.split(":")[1])]]
        tf.config.set_visible_devices(visible, "GPU")
        if cell.track == "equal":
            for gpu in visible:
                tf.config.experimental.set_memory_growth(gpu, True)  # so that the memory in use can be measured

    def set_passes(self, switches):
        """Grappler's passes, by the switches graph and graph.NAME; -> all of them as they stand."""
        whole = switches.get("graph", "on")
        for name in PASSES:
            if whole == "off" and switches.get("graph." + name) == "on":
                raise frame.Declined("graph." + name, "graph.%s: must be off where graph is off; got on." % name)
        obeyed = {"graph." + name: switches.get("graph." + name, whole) for name in PASSES}
        obeyed["graph"] = whole
        if self.changed_passes or "off" in obeyed.values():  # else TensorFlow's own settings stay untouched
            options = {name: obeyed["graph." + name] == "on" for name in PASSES}
            tf.config.optimizer.set_experimental_options(dict(options, disable_meta_optimizer=whole == "off"))
            self.changed_passes = True
        return obeyed


def synchronize():
    """Returns when all devices are done. On the CPU a call returns when its work is done."""
    if tf.config.get_visible_devices("GPU"):
        tf.test.experimental.sync_devices()


# ---------------------------------------------------------------------------------------------------------------------
# Batches and optimisers


def stored(cell, array, order):
    """An array of samples, their axes in this order, in the type of the cell's numbers."""
    array = np.ascontiguousarray(array.transpose(channels_last.with_samples(order)))
    return array.astype(np.float64, copy=False) if cell.precision == "f64" and array.dtype == np.float32 else array


def placed(cell, array, order):
    """A batch's array on the cell's device, the axes of its samples in this order."""
    array = stored(cell, array, order)
    with tf.device("/GPU:0" if cell.device != "cpu" else "/CPU:0"):
        return tf.identity(tf.constant(array))


def read(cell, outputs, orders):
    """{name: array with the network's axes} of the outputs on the device."""
    names = [output["name"] for output in cell.network.outputs]
    return {name: output.numpy().transpose(channels_last.with_samples(channels_last.inverse(orders[name])))
            for name, output in zip(names, outputs)}


OPTIMIZERS = {"sgd": (keras.optimizers.SGD, {"lr": "learning_rate", "momentum": "momentum"}, {"momentum": 0.0}),
              "adadelta": (keras.optimizers.Adadelta, {"lr": "learning_rate", "rho": "rho", "eps": "epsilon"},
                           {"lr": 1.0, "rho": 0.9, "eps": 1e-6}),
              "adam": (keras.optimizers.Adam, {"lr": "learning_rate", "eps": "epsilon"}, {"lr": 1e-3, "eps": 1e-8})}


def optimizer(cell, notes):
    """The cell's optimiser in PyTorch's meaning or, on the track as_shipped, with Keras's own defaults."""
    name, options = cell.optimizer_options({name: set(known) for name, (_, known, _) in OPTIMIZERS.items()})
    kind, known, defaults = OPTIMIZERS[name]
    if cell.track == "as_shipped":
        notes.append("optimizer: %s with Keras's own defaults" % name)
        return kind()
    if name == "adam":
        notes.append("optimizer: Keras's Adam adds epsilon before it corrects the second moment, PyTorch's after that")
    return kind(**{known[option]: value for option, value in dict(defaults, **options).items()})


# ---------------------------------------------------------------------------------------------------------------------
# The profiler


def profiled(step, steps):
    """Runs step(0) … step(steps - 1) under TensorFlow's profiler -> (events as xla_profile takes them, nanoseconds).
    The names of XLA's instructions begin with %, as in HLO's text."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        begin = frame.now_ns()
        try:
            for index in range(steps):
                step(index)
            synchronize()
            whole = frame.now_ns() - begin
        finally:
            tf.profiler.experimental.stop()
        events = []
        for path in glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True):
            space = xplane_pb2.XSpace()
            with open(path, "rb") as file:
                space.ParseFromString(file.read())
            for plane in space.planes:
                for line in plane.lines:
                    for event in line.events:
                        name = plane.event_metadata[event.metadata_id].name
                        if any(plane.stat_metadata[stat.metadata_id].name == "hlo_op" for stat in event.stats):
                            name = "%" + name
                        begin_ns = line.timestamp_ns + event.offset_ps / 1e3
                        events.append((plane.name, line.name, name, begin_ns, event.duration_ps / 1e3))
    return events, whole


OPERATION = re.compile(r"^[\w./-]+:(_?[A-Z]\w+)$")
HOLDERS = ("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "XlaLaunch",
           "_XlaRun", "_XlaCompile")


def operation_name(event):
    """"conv1/Conv2D:Conv2D", an operation that a graph's executor ran -> "Conv2D"; "%ynn_fusion.2", an instruction
    of XLA -> "ynn_fusion"; None for other events."""
    if event.startswith("%"):
        return re.sub(r"[.\d]+$", "", event[1:])
    match = OPERATION.match(event)
    return match.group(1) if match and match.group(1) not in HOLDERS else None


def nodes_of(call):
    """Runs `call`, which makes and runs a new tf.function -> nodes in its largest graph (before, after) Grappler."""
    from tensorflow.python.eager import context
    inner = context.context()
    inner.enable_graph_collection()
    try:
        call()
        graphs = inner.export_run_metadata().function_graphs
    finally:
        inner.disable_graph_collection()
    sizes = [(count_nodes(each.pre_optimization_graph), count_nodes(each.post_optimization_graph)) for each in graphs]
    return max(sizes, default=None)


def count_nodes(graph):
    """Nodes of a graph, without arguments and results."""
    return sum(node.op not in ("_Arg", "_Retval", "NoOp") for node in graph.node)


def hlo_fields(function, *arguments):
    """The fields nodes_before and nodes_after of a jit-compiled tf.function, and the namer of its events."""
    text_of = function.experimental_get_compiler_ir(*arguments)
    before, after = text_of(stage="hlo"), text_of(stage="optimized_hlo")
    return {"nodes_before": xla_profile.count_instructions(before),
            "nodes_after": xla_profile.count_instructions(after)}, xla_profile.instruction_namer(after)
