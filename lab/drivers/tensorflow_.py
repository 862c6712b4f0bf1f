"""The driver of TensorFlow: plain TensorFlow operations, and the whole training step in one function written by hand.

Variants: function (a tf.function: TensorFlow's own executor and graph passes), xla (jit_compile=True) and eager (each
operation by itself, with tf.GradientTape).
"""
import frame

frame.claim_stdout()
import os  # noqa: E402
import sys  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "listings"))
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import channels_last  # noqa: E402
import tensorflow_layers as layers  # noqa: E402
import tensorflow_models as listings  # noqa: E402
import tensorflow_network  # noqa: E402
import tensorflow_pipeline  # noqa: E402
import tensorflow_process as process  # noqa: E402
import tensorflow_sequences as sequences  # noqa: E402
import xla_profile  # noqa: E402


class Listing:
    """A network written by hand, with the fields of tensorflow_network.Network. Its layers of Keras move their running
    statistics themselves."""

    states, changed = [], {"train": [], "test": []}

    def __init__(self, cell):
        self.model = listings.make(cell)
        self.initialised = not listings.load(self.model, cell)
        names = {id(weight.variable): weight.name for weight in listings.weights_of(self.model)}
        self.variables = self.model.trainable_variables
        self.names = [names[id(variable)] for variable in self.variables]
        self.tensors = [variable.value for variable in self.variables]
        self.everything = [variable.value for variable in self.model.variables]
        self.orders = {cell.network.inputs[0]["name"]: (1, 2, 0), cell.network.outputs[0]["name"]: (0,)}

    def train(self, x):
        return (self.model(x, training=True),), ()

    def test(self, x):
        return (self.model(x, training=False),), ()


class TensorFlowModel(frame.Model):
    def __init__(self, cell, obeyed):
        self.cell, self.obeyed, self.notes = cell, obeyed, []
        self.network = Listing(cell) if cell.definition == "listing" else \
            sequences.Whole(cell) if cell.network.whole else tensorflow_network.Network(cell)
        if self.network.initialised:
            self.notes.append("weights: Keras's own initialisation, seed %d" % cell.seed)
        self.inputs = [(entry["name"], self.network.orders[entry["name"]]) for entry in cell.network.inputs]
        self._read_loss()
        if cell.phase == "train":
            self.optimizer = process.optimizer(cell, self.notes)
            self.optimizer.build(self.network.variables)
            kind = tf.float64 if cell.precision == "f64" else tf.float32
            self.sums = tf.Variable(0.0, dtype=kind), tf.Variable(0, dtype=tf.int64)
        self._trace()

    def _read_loss(self):
        """What the loss takes: of each term an output by its place, and the arrays of a batch."""
        places = [output["name"] for output in self.cell.network.outputs]
        self.terms, self.targets = [], []
        for term in self.cell.terms:
            axes, order = channels_last.of_loss(term, self.network.orders)
            taken = [(term.target, order)] + ([(term.lengths, ())] if term.lengths else [])
            self.targets += [entry for entry in taken if entry not in self.targets]
            self.terms.append((layers.loss_of(term.kind, term.lengths is not None, term.stride),
                               places.index(term.output), axes, [self.targets.index(entry) for entry in taken]))

    def _trace(self):
        """The functions that the calls run; TensorFlow traces and compiles each when it is first called."""
        def compiled(function):
            if self.cell.variant == "eager":
                return function
            return tf.function(function, jit_compile=self.cell.variant == "xla" or None, autograph=False)

        self.train, self.infer, self.gradients = map(compiled, (self._train, self._infer, self._gradients))
        self.add_up, self.measured = (tf.function(function, autograph=False)
                                      for function in (self._add_up, self._measured))

    def _output(self, outputs, place, axes):
        return outputs[place] if axes is None else tf.transpose(outputs[place], axes)

    def _loss(self, inputs, targets):
        with tf.GradientTape() as tape:
            outputs, changes = self.network.train(*inputs)
            losses = [loss_of(self._output(outputs, place, axes), *[targets[index] for index in taken])
                      for loss_of, place, axes, taken in self.terms]
            loss = losses[0] if len(losses) == 1 else tf.add_n(losses)
        return loss, outputs, changes, tape.gradient(loss, self.network.tensors)

    def _train(self, inputs, targets):
        loss, outputs, changes, gradients = self._loss(inputs, targets)
        self.optimizer.apply_gradients(zip(gradients, self.network.variables))
        for variable, value in zip(self.network.changed["train"], changes):
            variable.assign(value)
        return loss, outputs

    def _infer(self, inputs):
        outputs, changes = self.network.test(*inputs)
        for variable, value in zip(self.network.changed["test"], changes):
            variable.assign(value)
        return outputs

    def _gradients(self, inputs, targets):
        loss, _, _, gradients = self._loss(inputs, targets)
        return loss, [tf.norm(tf.convert_to_tensor(gradient)) for gradient in gradients]

    def _add_up(self, loss, outputs, targets):
        self.sums[0].assign_add(loss)
        if "accuracy" in self.cell.metrics:
            right = layers.right_answers(self._output(outputs, *self.terms[0][1:3]), *targets)
            self.sums[1].assign_add(tf.reduce_sum(tf.cast(right, tf.int64)))

    def _measured(self, outputs, targets):
        output, target = self._output(outputs, *self.terms[0][1:3]), targets[0]
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(target, output)
        if len(targets) > 1:
            loss = tf.where(layers.counted(target, targets[1]), loss, tf.zeros_like(loss))
        places = list(range(1, target.shape.rank))
        found = {"loss": tf.reduce_sum(loss, places)}
        if "accuracy" in self.cell.metrics:
            right = layers.right_answers(output, *targets)
            found["accuracy"] = tf.reduce_sum(tf.cast(right, tf.int64), places)
            if not places:
                found["class"] = tf.argmax(output, axis=1)
        return found

    def parameters(self):
        return sum(int(np.prod(variable.shape)) for variable in self.network.variables)

    def place(self, batch):
        inputs = tuple(process.placed(self.cell, batch[name], order) for name, order in self.inputs)
        return inputs, tuple(process.placed(self.cell, batch[name], order) for name, order in self.targets)

    def train_step(self, placed):
        self.loss, self.outputs = self.train(*placed)

    def infer_step(self, placed):
        self.outputs = self.infer(placed[0])

    def synchronize(self):
        process.synchronize()

    def reset_states(self):
        for state in self.network.states:
            state.assign(tf.zeros_like(state))

    def read_loss(self):
        return float(self.loss)

    def read_outputs(self):
        return process.read(self.cell, self.outputs, self.network.orders)

    def loss_and_gradients(self, batch):
        kept = [variable.numpy() for variable in self.network.everything]  # a listing moves its statistics
        loss, norms = self.gradients(*self.place(batch))
        for variable, value in zip(self.network.everything, kept):
            variable.assign(value)
        return float(loss), {name: float(norm) for name, norm in zip(self.network.names, norms)}

    def count(self, placed, batch):
        self.add_up(self.loss, self.outputs, placed[1])

    def counted(self):
        loss, right = float(self.sums[0]), int(self.sums[1])
        for variable in self.sums:
            variable.assign(tf.zeros_like(variable))
        return loss, {"accuracy": right} if "accuracy" in self.cell.metrics else {}

    def measure(self, placed):
        return self.measured(self.outputs, placed[1])

    def breakdown(self, steps, placed_batches):
        training = self.cell.phase == "train"
        step = self.train_step if training else self.infer_step
        arguments = placed_batches[0] if training else placed_batches[0][:1]
        answer, name_of = {"source": "tf.profiler"}, process.operation_name
        if self.cell.variant == "xla":
            fields, name_of = process.hlo_fields(self.train if training else self.infer, *arguments)
            answer.update(fields, source="tf.profiler and the compiled step's HLO")
        elif self.cell.variant == "function":
            answer["source"] = "tf.profiler and Grappler's graphs"
            # Only a new function shows its graphs. It takes a step that does not count, so the weights are put back.
            kept = [variable.numpy() for variable in self._state()]
            sizes = process.nodes_of(lambda: tf.function(self._train if training else self._infer)(*arguments))
            for variable, value in zip(self._state(), kept):
                variable.assign(value)
            if sizes is not None:
                answer["nodes_before"], answer["nodes_after"] = sizes
        plain = self.timed(step, steps, placed_batches)
        events, whole = process.profiled(lambda index: step(placed_batches[index % len(placed_batches)]), steps)
        answer.update(xla_profile.time_shares(events, name_of, steps, plain, whole))
        return answer

    def _state(self):
        return self.network.everything + (self.optimizer.variables if self.cell.phase == "train" else [])


class TensorFlowDriver(frame.Driver):
    def __init__(self):
        self.process = process.Process()

    def hello(self):
        switches = {"graph." + name: ["on", "off"] for name in process.PASSES}
        offer = process.offer("tensorflow", tf.__version__, ["function", "xla", "eager"],
                              tensorflow_network.KINDS + list(sequences.MODELS),
                              listings.MODELS, dict(switches, graph=["on", "off"], feed=["resident", "loader"], lstm=["cell"]))
        return dict(offer, phases=offer["phases"] + ["load"], losses=offer["losses"] + ["ctc", "sum"], trims=True)

    def why_declined(self, what, value):
        if what == "lstm":
            return "Plain TensorFlow repeats a cell in tf.while_loop; its fused one is cuDNN's, behind Keras's layer."
        return process.why_declined(what, value)

    def build(self, cell):
        for name, value in cell.switches.items():
            if name.startswith("graph") and cell.variant == "eager":
                raise frame.Declined(name, "%s: the variant eager makes no graph; the variant function obeys it."
                                     % name)
            if name.startswith("graph") and cell.variant == "xla" and value == "off":
                raise frame.Declined(name, "%s: the variant xla leaves the graph to XLA, which has no such switch; "
                                     "the variant function obeys it." % name)
        self.process.start(cell)
        obeyed = dict(cell.switches)
        if cell.variant == "function":
            obeyed.update(self.process.set_passes(cell.switches))
        return TensorFlowModel(cell, obeyed)

    def pipeline(self, cell, model):
        if model is None:
            self.process.start(cell)
        return tensorflow_pipeline.TensorFlowPipeline(cell, model)


if __name__ == "__main__":
    frame.serve(TensorFlowDriver())
