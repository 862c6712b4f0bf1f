"""The driver of TensorFlow: Keras layers, and the whole training step in one tf.function written by hand.

Variants: function (TensorFlow's own executor and graph passes) and xla (jit_compile=True).
"""
import frame

frame.claim_stdout()
import os  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import tensorflow_models as models  # noqa: E402
import tensorflow_process as process  # noqa: E402
import xla_profile  # noqa: E402


class TensorFlowModel(frame.Model):
    def __init__(self, cell, obeyed):
        self.cell, self.obeyed, self.notes = cell, obeyed, []
        self.xla = cell.variant == "xla"
        self.network = models.make(cell)
        if not models.load(self.network, cell):
            self.notes.append("weights: Keras's own initialisation, seed %d" % cell.seed)
        self.names = {id(weight.variable): weight.name for weight in models.weights_of(self.network)}
        self.variables = self.network.trainable_variables
        self.wide = tf.float64 if cell.precision == "f64" else tf.float32
        if cell.phase == "train":
            self.optimizer = models.optimizer(cell, frame.Declined, self.notes)
            self.optimizer.build(self.variables)
            self.sums = (tf.Variable(0.0, dtype=self.wide), tf.Variable(0, dtype=tf.int64))
        self._trace()

    def _trace(self):
        """The functions that the calls run; TensorFlow traces and compiles each when it is first called."""
        compiled = tf.function(jit_compile=True) if self.xla else tf.function
        self.train, self.infer = compiled(self._train), compiled(self._infer)
        self.gradients, self.add_up = compiled(self._gradients), tf.function(self._add_up)

    def _loss(self, x, y):
        with tf.GradientTape() as tape:
            logits = self.network(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        return loss, logits, tape.gradient(loss, self.variables)

    def _train(self, x, y):
        loss, logits, gradients = self._loss(x, y)
        self.optimizer.apply_gradients(zip(gradients, self.variables))
        return loss, logits

    def _infer(self, x):
        return self.network(x, training=False)

    def _gradients(self, x, y):
        loss, _, gradients = self._loss(x, y)
        return loss, [tf.norm(gradient) for gradient in gradients]

    def _add_up(self, loss, logits, y):
        right = tf.equal(tf.argmax(logits, axis=1), y)
        self.sums[0].assign_add(loss)
        self.sums[1].assign_add(tf.reduce_sum(tf.cast(right, tf.int64)))

    def parameters(self):
        return sum(int(np.prod(variable.shape)) for variable in self.variables)

    def place(self, x, y):
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).astype(self.wide.as_numpy_dtype)
        with tf.device("/GPU:0" if self.cell.device != "cpu" else "/CPU:0"):
            return tf.identity(tf.constant(x)), tf.identity(tf.constant(y))

    def train_step(self, placed):
        self.loss, self.last_logits = self.train(*placed)

    def infer_step(self, placed):
        self.last_logits = self.infer(placed[0])

    def synchronize(self):
        process.synchronize()

    def read_loss(self):
        return float(self.loss)

    def read_logits(self):
        return self.last_logits.numpy()

    def loss_and_gradients(self, x, y):
        loss, norms = self.gradients(*self.place(x, y))
        return float(loss), {self.names[id(variable)]: float(norm) for variable, norm in zip(self.variables, norms)}

    def count(self, placed, y):
        self.add_up(self.loss, self.last_logits, placed[1])

    def counted(self):
        values = float(self.sums[0]), int(self.sums[1])
        for variable in self.sums:
            variable.assign(tf.zeros_like(variable))
        return values

    def breakdown(self, steps, placed_batches):
        training = self.cell.phase == "train"
        step = self.train_step if training else self.infer_step
        arguments = placed_batches[0] if training else placed_batches[0][:1]
        if self.xla:
            answer, name_of = process.hlo_fields(self.train if training else self.infer, *arguments)
            answer["source"] = "tf.profiler and the compiled step's HLO"
        else:
            answer, name_of = {"source": "tf.profiler and Grappler's graphs"}, process.operation_name
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
        return self.network.variables + (self.optimizer.variables if self.cell.phase == "train" else [])


class TensorFlowDriver(frame.Driver):
    def __init__(self):
        self.process = process.Process()

    def hello(self):
        switches = {"graph." + name: ["on", "off"] for name in process.PASSES}
        return process.offer("tensorflow", tf.__version__, ["function", "xla"], models.MODELS,
                             dict(switches, graph=["on", "off"]))

    def why_declined(self, what, value):
        return process.why_declined(what, value)

    def build(self, cell):
        if cell.variant == "xla":
            for name, value in cell.switches.items():
                if name.startswith("graph") and value == "off":
                    raise frame.Declined(name, "%s: the variant xla leaves the graph to XLA, which has no such switch; "
                                         "the variant function obeys it." % name)
        self.process.start(cell)
        obeyed = dict(cell.switches) if cell.variant == "xla" else \
            dict(cell.switches, **self.process.set_passes(cell.switches))
        return TensorFlowModel(cell, obeyed)


if __name__ == "__main__":
    frame.serve(TensorFlowDriver())
