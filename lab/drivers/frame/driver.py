"""What a driver implements: a Driver, a Model for each cell, and a Pipeline where it feeds its steps itself."""
import numpy as np

from .declined import Declined
from .timing import now_ns


class Driver:
    """One framework. `hello` and `build` must be given."""

    def hello(self):
        """-> dict with framework, version, variants, devices, kinds, losses, listings, phases, precisions, switches,
        libraries; trims, where steps take batches whose samples are shorter than the network says."""
        raise NotImplementedError

    def build(self, cell):
        """-> Model for the Cell. May raise Declined(what, message) for what this cell's mixture cannot have."""
        raise NotImplementedError

    def pipeline(self, cell, model):
        """-> Pipeline for the Cell; must be given where `hello` offers phase load (model is None there) or the switch
        feed."""
        raise NotImplementedError

    def why_declined(self, what, value):
        """Why a value that `hello` does not offer (of a switch, "precision", "device", "kind", "loss", …) cannot be
        obeyed: a sentence that follows the rule in the message. None: there is no more to say."""
        return None

    def is_out_of_memory(self, error):
        """True where the exception says that the device or the machine has not enough memory."""
        text = str(error).lower()
        return any(word in text for word in ("out of memory", "can't allocate memory", "cannot allocate memory",
                                             "bad_alloc", "resource_exhausted", "failed to allocate"))


class Model:
    """One prepared cell. A step keeps its loss and its outputs where it likes (on the device) until they are read.
    Networks with states begin each step with what the step before left, and with zeros after reset_states."""

    notes = ()     # texts for the answer to prepare
    obeyed = None  # the switches as set; None: those of the request
    cell = None    # set by the frame after build

    def parameters(self):
        """Must: how many numbers are trained."""
        raise NotImplementedError

    def place(self, batch):
        """Must: the batch on the device, in whatever form the steps take. Its size is always cell.batch; with cell.trim
        its samples are as long as the longest of them."""
        raise NotImplementedError

    def train_step(self, placed):
        """Must, in phase train: forward, backward, update; reads nothing back and need not wait for the device."""
        raise NotImplementedError

    def infer_step(self, placed):
        """Must: the outputs in test mode (dropout off, running statistics); reads nothing back."""
        raise NotImplementedError

    def synchronize(self):
        """Must: returns when the device has done all that was asked of it."""
        raise NotImplementedError

    def read_loss(self):
        """Must, in phase train: the loss of the last train_step, before its update, as a float."""
        raise NotImplementedError

    def read_outputs(self):
        """Must: {output's name: array (batch, …)} of the last infer_step; and of train_step, unless count is
        overridden."""
        raise NotImplementedError

    def loss_and_gradients(self, batch):
        """Must, in phase train: (loss, {canonical name: Euclidean norm of the gradient}) in training mode, from zero
        states; leaves weights, running statistics and states as they were."""
        raise NotImplementedError

    def reset_states(self):
        """Must, for networks with states: they are zero again."""

    # The training loss and accuracy of an epoch of fit. A framework that computes asynchronously overrides both, and
    # adds up on the device; these read back after each step.
    def count(self, placed, batch):
        """Adds the last train_step's loss and, where the workload asks for the accuracy, its right answers to the
        epoch's sums."""
        loss, right = self.__dict__.get("_sums", (0.0, 0))
        loss += self.read_loss()
        if "accuracy" in self.cell.metrics:
            outputs, labels = self.cell.counted_places(self.read_outputs(), batch)
            right += int((outputs.argmax(axis=-1) == labels).sum())
        self._sums = loss, right

    def counted(self):
        """(sum of the steps' losses, {"accuracy": number of right answers} or {}) since the last call."""
        loss, right = self.__dict__.pop("_sums", (0.0, 0))
        return loss, {"accuracy": right} if "accuracy" in self.cell.metrics else {}

    # The tests of fit. A framework that computes loss and accuracy itself need not bring its outputs to the host; the frame
    # asks it where the loss is cross_entropy.
    def measure(self, placed):
        """{name: array (batch,)} of the outputs of the last infer_step: "loss", the sum over the places of each sample that
        count; where the workload asks for the accuracy also "accuracy", how many of these places are right, and of
        targets without axes "class", the likeliest one. The arrays stay on the device until the test is over. None: the
        frame reads the outputs and measures with NumPy."""
        return None

    def read_measured(self, array):
        """An array of `measure`, on the host."""
        return np.asarray(array)

    def train_epoch(self, data, order, batches, size):
        """One epoch of fit: so many batches of this size, in this order; adds up what `counted` tells."""
        for index in range(batches):
            batch = data.batch(index, size, order)
            placed = self.place(batch)
            self.train_step(placed)
            self.count(placed, batch)

    def keep_resident(self, placed_batches):
        """The batches of `run`, as they lie on the device before the clock of the first one starts; need do nothing."""

    def sustained(self, step, placed_batches, steps):
        """-> function without arguments that takes so many steps, the batches in turns: what the region throughput of
        `run` times. `step` is train_step or infer_step."""
        turns = [placed_batches[index % len(placed_batches)] for index in range(steps)]

        def take():
            for placed in turns:
                step(placed)

        return take

    def timed(self, step, steps, placed_batches):
        """The nanoseconds that `steps` steps take, after one more that may compile."""
        step(placed_batches[0])
        self.synchronize()
        begin = now_ns()
        for index in range(steps):
            step(placed_batches[index % len(placed_batches)])
        self.synchronize()
        return now_ns() - begin

    def breakdown(self, steps, placed_batches):
        """Runs steps of the prepared phase under the framework's profiler -> the fields of the answer."""
        raise Declined("breakdown", "breakdown: this driver has no profiler.")


class Pipeline:
    """The framework's own way from samples to batches on the device, made ahead: image files (cell.images), or arrays
    (cell.samples()) where the cell has none. Sample p of a run is file or row p mod N; in training a picture is cut at
    the place that `cut_of` draws, in `first` at `middle_of`."""

    def first(self):
        """Must, in phase load: the first batch in test mode, an array (batch, 3, height, width)."""
        raise NotImplementedError

    def begin(self, batches):
        """Must: begins anew with batch 0, and makes so many batches and no more."""
        raise NotImplementedError

    def next(self):
        """Must: the next batch, as Model.place gives it; waits until it is there."""
        raise NotImplementedError

    def read(self, placed):
        """Must: {name: array} of the inputs and targets of a batch that next gave; the order of axes does not matter."""
        raise NotImplementedError

    def synchronize(self):
        """Must: returns when the device has done all that was asked of it."""
        raise NotImplementedError
