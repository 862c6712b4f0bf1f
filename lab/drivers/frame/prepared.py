"""A cell that was prepared, and its calls `check`, `run` and `breakdown`."""
import numpy as np

from .hashing import checked_values
from .timing import latency, now_ns, throughput
from .trim import output_shape

RESIDENT_BATCHES = 8  # how many batches of `run` lie on the device


class Prepared:
    """The cell with its model (None in phase load) and its pipeline (None where batches lie on the device)."""

    def __init__(self, cell, model, pipeline):
        self.cell, self.model, self.pipeline = cell, model, pipeline
        self.updates = 0
        self.placed = None  # the batches of `run`, once they are there

    def check(self, asked):
        cell, model = self.cell, self.model
        if cell.phase == "load":
            return {"parameters": 0, "outputs": {cell.network.inputs[0]["name"]: checked_values(
                np.asarray(self.pipeline.first(), dtype=np.float64))}}
        data = cell.samples()
        batch = data.batch(0, cell.batch)
        model.reset_states()
        answer = {"parameters": int(model.parameters()),
                  "outputs": {name: checked_values(value) for name, value in self.outputs(batch).items()}}
        if cell.phase == "infer":
            return answer
        steps = asked.read("steps", 1)
        model.reset_states()
        loss, norms = model.loss_and_gradients(batch)
        answer["loss"] = float(loss)
        answer["gradients"] = {name: float(norms[name]) for name in sorted(norms)}
        answer["losses"] = []
        model.reset_states()
        for index in range(steps):
            model.train_step(model.place(data.batch(index, cell.batch)))
            self.updates += 1
            answer["losses"].append(float(model.read_loss()))
        return answer

    def outputs(self, batch):
        """{name: f64 array (batch, …)} of the batch in test mode, in the network's order."""
        self.model.infer_step(self.model.place(batch))
        return self.read_outputs(batch)

    def read_outputs(self, batch):
        """The same of a batch whose step was taken."""
        cell, read, found = self.cell, self.model.read_outputs(), {}
        for output in cell.network.outputs:
            found[output["name"]] = np.asarray(read[output["name"]], dtype=np.float64)
            made, shape = found[output["name"]].shape, output_shape(cell, output, batch)
            if len(made) != len(shape) or any(size not in (None, own) for own, size in zip(made, shape)):
                raise RuntimeError("output %s: must be %s; got %s." % (output["name"], shape, made))
        return found

    def resident(self):
        """The batches of `run`, on the device."""
        if self.placed is None:
            data, size = self.cell.samples(), self.cell.batch
            count = max(1, min(RESIDENT_BATCHES, len(data) // size))
            self.placed = [self.model.place(data.batch(index, size)) for index in range(count)]
            self.model.keep_resident(self.placed)
        return self.placed

    def run(self, asked):
        cell, model = self.cell, self.model
        region, steps = asked.read("region"), asked.read("steps")
        if cell.phase == "load":
            return self.run_fed(region, steps, lambda placed: None, self.pipeline.synchronize)
        if self.pipeline is not None:
            model.reset_states()
            answer = self.run_fed(region, steps, model.train_step, model.synchronize)
            self.updates += steps
            return dict(answer, loss=float(model.read_loss()), updates=self.updates)
        placed = self.resident()
        step = model.train_step if cell.phase == "train" else model.infer_step
        model.reset_states()
        if region == "latency":
            turns = [placed[index % len(placed)] for index in range(steps)]
            model.synchronize()
            answer = latency(step, model.synchronize, turns)
        else:
            take = model.sustained(step, placed, steps)
            model.synchronize()
            answer = dict(throughput(take, model.synchronize), count=steps)
        if cell.phase == "train":
            self.updates += steps
            answer["loss"] = float(model.read_loss())
        else:
            answer["loss"] = None
            answer["output_sum"] = sum(float(np.asarray(value, dtype=np.float64).sum())
                                       for value in model.read_outputs().values())
        answer["updates"] = self.updates
        return answer

    def run_fed(self, region, steps, step, synchronize):
        """The answer of `run` where batches come from the pipeline, which begins within the first step."""
        pipeline, kept, waited = self.pipeline, None, 0

        def take(index):
            nonlocal kept, waited
            begin = now_ns()
            if index == 0:
                pipeline.begin(steps)
            kept = pipeline.next()
            waited += now_ns() - begin
            step(kept)

        synchronize()
        if region == "latency":
            answer = latency(take, synchronize, range(steps))
        else:
            def take_all():
                for index in range(steps):
                    take(index)

            answer = dict(throughput(take_all, synchronize), count=steps)
        sums = {name: float(np.asarray(value, dtype=np.float64).sum()) for name, value in pipeline.read(kept).items()}
        return dict(answer, loss=None, updates=self.updates, samples_sum=sums, wait_ns=waited)

    def breakdown(self, asked):
        steps = asked.read("steps", 5)
        batches = self.resident() if self.pipeline is None else Fed(self.pipeline, steps)
        answer = dict(self.model.breakdown(steps, batches))
        if self.cell.phase == "train":
            self.updates += steps
        return answer


class Fed:
    """The batches of a breakdown, where they come from the pipeline: each is taken once, whatever its number."""

    def __init__(self, pipeline, steps):
        pipeline.begin(4 * steps + 8)
        self.pipeline = pipeline

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        return self.pipeline.next()
