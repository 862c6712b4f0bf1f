"""The driver of Keras on TensorFlow, used as Keras's own guides do: compile, then fit.

The steps of `run` call the train function that compile made for fit, on batches that are already on the device; `fit`
is Keras's own, epoch by epoch. Whether XLA compiles the step is left to Keras (jit_compile="auto").
"""
import frame

frame.claim_stdout()
import os  # noqa: E402
import sys  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ["KERAS_BACKEND"] = "tensorflow"
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "listings"))
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import channels_last  # noqa: E402
import keras_network  # noqa: E402
import tensorflow_models as listings  # noqa: E402
import tensorflow_process as process  # noqa: E402
import xla_profile  # noqa: E402


class Listing:
    """A network written by hand, with the fields of keras_network.Network."""

    stateful, notes = [], []

    def __init__(self, cell):
        self.trained = self.tested = listings.make(cell)
        self.initialised = not listings.load(self.trained, cell)
        names = {id(weight.variable): weight.name for weight in listings.weights_of(self.trained)}
        self.names = [names[id(variable)] for variable in self.trained.trainable_variables]
        self.kept = self.trained.non_trainable_variables
        self.orders = {cell.network.inputs[0]["name"]: (1, 2, 0), cell.network.outputs[0]["name"]: (0,)}


class EachNumber(keras.losses.Loss):
    """mse, mae or bce of each number, so that the lengths can weigh them."""

    def __init__(self, kind, **options):
        super().__init__(**options)
        self.kind = kind

    def call(self, y_true, y_pred):
        if self.kind == "bce":
            return tf.nn.sigmoid_cross_entropy_with_logits(y_true, y_pred)
        return keras.ops.square(y_pred - y_true) if self.kind == "mse" else keras.ops.abs(y_pred - y_true)


def loss_of(cell):
    options = {"dtype": "float64" if cell.precision == "f64" else "float32"}
    if cell.loss.lengths is not None:
        options["reduction"] = "mean_with_sample_weight"
        if cell.loss.kind != "cross_entropy":
            return EachNumber(cell.loss.kind, **options)
    return {"cross_entropy": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options),
            "mse": lambda: keras.losses.MeanSquaredError(**options),
            "mae": lambda: keras.losses.MeanAbsoluteError(**options),
            "bce": lambda: keras.losses.BinaryCrossentropy(from_logits=True, **options)}[cell.loss.kind]()


class KerasModel(frame.Model):
    def __init__(self, cell):
        self.cell = cell
        self.network = Listing(cell) if cell.definition == "listing" else keras_network.Network(cell)
        self.notes = list(self.network.notes)
        if self.network.initialised:
            self.notes.append("weights: Keras's own initialisation, seed %d" % cell.seed)
        self.trained, self.tested = self.network.trained, self.network.tested
        self.inputs = [(entry["name"], self.network.orders[entry["name"]]) for entry in cell.network.inputs]
        _, self.target_order = channels_last.of_loss(cell.loss, self.network.orders)
        self.with_accuracy = "accuracy" in cell.metrics
        if cell.phase == "train":
            weighted = ["accuracy"] if self.with_accuracy else None
            self.trained.compile(optimizer=process.optimizer(cell, self.notes), loss=loss_of(cell),
                                 weighted_metrics=weighted)
            self.trained.make_train_function()
            self.notes.append("a step keeps Keras's running means of its loss%s; jit_compile is %s" % (
                " and accuracy" if weighted else "", self.trained.jit_compile))
        if self.tested is not self.trained or cell.phase == "infer":
            self.tested.compile()
        self.tested.make_predict_function()
        self.resident = None
        self._forget()

    def _forget(self):
        """Begins Keras's running means anew."""
        self.logs, self.logs_before, self.steps = None, None, 0
        self.trained.reset_metrics()

    def parameters(self):
        return sum(int(np.prod(variable.shape)) for variable in self.trained.trainable_variables)

    def _arrays(self, batch):
        """As fit takes them: inputs, target and, where lengths count, the weight of each number."""
        inputs = tuple(process.stored(self.cell, batch[name], order) for name, order in self.inputs)
        loss = self.cell.loss
        target = process.stored(self.cell, batch[loss.target], self.target_order)
        if loss.lengths is None:
            return inputs, target
        true = np.arange(target.shape[1]) < np.asarray(batch[loss.lengths])[:, None]
        true = true.reshape(true.shape + (1,) * (target.ndim - 2))
        kind = np.float64 if self.cell.precision == "f64" else np.float32
        return inputs, target, np.broadcast_to(true, target.shape).astype(kind)

    def _placed(self, arrays):
        with tf.device("/GPU:0" if self.cell.device != "cpu" else "/CPU:0"):
            return tf.nest.map_structure(lambda array: tf.identity(tf.constant(array)), arrays)

    def place(self, batch):
        return self._placed(self._arrays(batch))

    def train_step(self, placed):
        self.logs, self.logs_before = self.trained.train_function(iter((placed,))), self.logs
        self.steps += 1

    def infer_step(self, placed):
        self.outputs = self.tested.predict_function([placed[:1]])

    def synchronize(self):
        process.synchronize()

    def reset_states(self):
        for layer in self.network.stateful:
            layer.reset_state()

    def read_loss(self):
        """Keras tells the mean over the steps; the last step's loss is what it changed in the sum."""
        loss = float(self.logs["loss"]) * self.steps
        if self.logs_before is not None:
            loss -= float(self.logs_before["loss"]) * (self.steps - 1)
        self._forget()
        return loss

    def read_outputs(self):
        return process.read(self.cell, tf.nest.flatten(self.outputs), self.network.orders)

    def loss_and_gradients(self, batch):
        inputs, target, *weight = self.place(batch)
        variables = self.trained.trainable_variables

        @tf.function
        def gradients():
            with tf.GradientTape() as tape:
                output = self.trained(inputs, training=True)
                loss = self.trained.compute_loss(y=target, y_pred=output, sample_weight=weight[0] if weight else None)
            return loss, [tf.reduce_sum(tf.square(tf.convert_to_tensor(gradient)))
                          for gradient in tape.gradient(loss, variables)]

        kept = [variable.numpy() for variable in self.network.kept]
        loss, squares = gradients()
        for variable, value in zip(self.network.kept, kept):
            variable.assign(value)
        sums = {}
        for name, square in zip(self.network.names, squares):  # attention keeps one tensor in three variables
            sums[name] = sums.get(name, 0.0) + float(square)
        return float(loss), {name: total ** 0.5 for name, total in sums.items()}

    def train_epoch(self, data, order, batches, size):
        """One epoch of Keras's fit; the samples come in the given order, from arrays in memory."""
        if self.resident is None:
            self.resident = tf.nest.map_structure(tf.constant, self._arrays(data.arrays))
        samples = tf.data.Dataset.from_tensor_slices(order[:batches * size]).batch(size, drop_remainder=True).map(
            lambda places: tf.nest.map_structure(lambda array: tf.gather(array, places), self.resident)).prefetch(
                tf.data.AUTOTUNE)
        history = self.trained.fit(samples, epochs=1, shuffle=False, verbose=0).history
        right = {}
        if self.with_accuracy:
            count = self.cell.counted_in(data, order[:batches * size])
            right["accuracy"] = round(history["accuracy"][0] * count)
        self.epoch = history["loss"][0] * batches, right
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
        return process.offer("keras", keras.__version__, ["fit"], keras_network.KINDS, listings.MODELS, {})

    def why_declined(self, what, value):
        if what.startswith("graph"):
            return "Keras decides alone how its functions are compiled; the driver of TensorFlow has this switch."
        return process.why_declined(what, value)

    def build(self, cell):
        self.process.start(cell)
        return KerasModel(cell)


if __name__ == "__main__":
    frame.serve(KerasDriver())
