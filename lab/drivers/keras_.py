"""The driver of Keras on TensorFlow, used as Keras's own guides do: compile, then fit.

The steps of `run` call the train function that compile made for fit, on batches that are already on the device; `fit`
is Keras's own, epoch by epoch. Whether XLA compiles the step is left to Keras (jit_compile="auto").
"""
import frame

frame.claim_stdout()
import os  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import tensorflow_models as models  # noqa: E402
import tensorflow_process as process  # noqa: E402
import xla_profile  # noqa: E402


class KerasModel(frame.Model):
    def __init__(self, cell):
        self.cell, self.notes = cell, []
        self.network = models.make(cell)
        if not models.load(self.network, cell):
            self.notes.append("weights: Keras's own initialisation, seed %d" % cell.seed)
        self.wide = np.float64 if cell.precision == "f64" else np.float32
        if cell.phase == "train":
            self.network.compile(optimizer=models.optimizer(cell, frame.Declined, self.notes),
                                 loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                                 metrics=["accuracy"])
            self.network.make_train_function()
            self.notes.append("a step keeps Keras's running means of loss and accuracy; jit_compile is %s"
                              % self.network.jit_compile)
        else:
            self.network.compile()
        self.network.make_predict_function()
        self.images = None
        self._forget()

    def _forget(self):
        """Begins Keras's running means anew."""
        self.logs, self.logs_before, self.steps = None, None, 0
        self.network.reset_metrics()

    def parameters(self):
        return sum(int(np.prod(variable.shape)) for variable in self.network.trainable_variables)

    def place(self, x, y):
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).astype(self.wide)
        with tf.device("/GPU:0" if self.cell.device != "cpu" else "/CPU:0"):
            return tf.identity(tf.constant(x)), tf.identity(tf.constant(y))

    def train_step(self, placed):
        self.logs, self.logs_before = self.network.train_function(iter((placed,))), self.logs
        self.steps += 1

    def infer_step(self, placed):
        self.last_logits = self.network.predict_function([placed[:1]])

    def synchronize(self):
        process.synchronize()

    def read_loss(self):
        """Keras tells the mean over the steps; the last step's loss is what it changed in the sum."""
        loss = float(self.logs["loss"]) * self.steps
        if self.logs_before is not None:
            loss -= float(self.logs_before["loss"]) * (self.steps - 1)
        self._forget()
        return loss

    def read_logits(self):
        return self.last_logits.numpy()

    def loss_and_gradients(self, x, y):
        x, y = self.place(x, y)
        variables = self.network.trainable_variables

        @tf.function
        def gradients():
            with tf.GradientTape() as tape:
                loss = self.network.compute_loss(y=y, y_pred=self.network(x, training=True))
            return loss, [tf.norm(gradient) for gradient in tape.gradient(loss, variables)]

        loss, norms = gradients()
        names = {id(weight.variable): weight.name for weight in models.weights_of(self.network)}
        return float(loss), {names[id(variable)]: float(norm) for variable, norm in zip(variables, norms)}

    def train_epoch(self, data, order, batches, size):
        """One epoch of Keras's fit; the samples come in the given order, from arrays in memory."""
        if self.images is None:
            self.images = tf.constant(np.ascontiguousarray(np.transpose(data.x, (0, 2, 3, 1))).astype(self.wide))
            self.labels = tf.constant(np.asarray(data.y))
        samples = tf.data.Dataset.from_tensor_slices(order[:batches * size]).batch(size, drop_remainder=True).map(
            lambda places: (tf.gather(self.images, places), tf.gather(self.labels, places))).prefetch(tf.data.AUTOTUNE)
        history = self.network.fit(samples, epochs=1, shuffle=False, verbose=0).history
        self.epoch = history["loss"][0] * batches, round(history["accuracy"][0] * batches * size)
        self._forget()

    def counted(self):
        return self.epoch

    def breakdown(self, steps, placed_batches):
        step = self.train_step if self.cell.phase == "train" else self.infer_step
        plain = self.timed(step, steps, placed_batches)
        events, whole = process.profiled(lambda index: step(placed_batches[index % len(placed_batches)]), steps)
        if self.cell.phase == "train":
            self._forget()
        answer = {"source": "tf.profiler"}
        answer.update(xla_profile.time_shares(events, process.operation_name, steps, plain, whole))
        return answer


class KerasDriver(frame.Driver):
    def __init__(self):
        self.process = process.Process()

    def hello(self):
        return process.offer("keras", keras.__version__, ["fit"], models.MODELS, {})

    def why_declined(self, what, value):
        if what.startswith("graph"):
            return "Keras decides alone how its functions are compiled; the driver of TensorFlow has this switch."
        return process.why_declined(what, value)

    def build(self, cell):
        self.process.start(cell)
        return KerasModel(cell)


if __name__ == "__main__":
    frame.serve(KerasDriver())
