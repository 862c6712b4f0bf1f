"""A driver in NumPy for the tests of lab/drivers/frame: a few kinds of layers, the losses without ctc and sum, and plain SGD."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "drivers"))
import frame  # noqa: E402
frame.claim_stdout()
import numpy as np  # noqa: E402

ELEMENTWISE = {  # (value, derivative by value and argument)
    "identity": (lambda x: x, lambda y, x: np.ones_like(x)),
    "relu": (lambda x: np.maximum(x, 0), lambda y, x: (x > 0).astype(x.dtype)),
    "tanh": (np.tanh, lambda y, x: 1 - y * y),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda y, x: y * (1 - y)),
}


def loss_and_slope(kind, output, target):
    """The loss of the places that count, output (places, classes) or (numbers,), and its derivative by the output."""
    if kind == "cross_entropy":
        logs = output - output.max(axis=1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
        rows = np.arange(len(target))
        slope = np.exp(logs)
        slope[rows, target] -= 1
        return -logs[rows, target].mean(), slope / len(target)
    apart = output - target
    if kind == "bce":
        each = np.maximum(output, 0) - output * target + np.log1p(np.exp(-np.abs(output)))
        return each.mean(), (1 / (1 + np.exp(-output)) - target) / len(target)
    if kind == "mse":
        return np.square(apart).mean(), 2 * apart / len(target)
    return np.abs(apart).mean(), np.sign(apart) / len(target)


class NumPyModel(frame.Model):
    def __init__(self, cell):
        self.cell, self.type = cell, np.float64 if cell.precision == "f64" else np.float32
        weights = cell.weights(cell.network.parameters) or frame.hash_weights(cell.network.parameters, cell.seed)
        self.weights = {name: weights[name].astype(self.type) for name in cell.network.parameters}
        self.lr = cell.optimizer_options({"sgd": {"momentum"}})[1].get("lr", 0.01) if cell.phase == "train" else 0
        self.loss = None

    def parameters(self):
        return sum(array.size for array in self.weights.values())

    def place(self, batch):
        return {name: array.astype(self.type) if array.dtype == np.float32 else array for name, array in batch.items()}

    def synchronize(self):
        pass

    def forward(self, placed):
        values = {entry["name"]: placed[entry["name"]] for entry in self.cell.network.inputs}
        for call in self.cell.network.calls:
            x = values[call["in"][0]]
            if call["kind"] == "linear":
                y = x @ self.weights[call["name"] + ".weight"].T
                if call["settings"]["bias"]:
                    y = y + self.weights[call["name"] + ".bias"]
            elif call["kind"] == "flatten":
                y = x.reshape(len(x), -1)
            elif call["kind"] == "add":
                y = sum(values[name] for name in call["in"])
            else:
                y = ELEMENTWISE[call["kind"]][0](x)
            values[call["out"]] = y
        self.values = values

    def infer_step(self, placed):
        self.forward(placed)

    def read_outputs(self):
        return {output["name"]: self.values[output["value"]] for output in self.cell.network.outputs}

    def gradients(self, placed):
        """{name: array}; keeps the loss."""
        self.forward(placed)
        cell, values = self.cell, self.values
        output, target = cell.counted_places(self.read_outputs(), placed)
        self.loss, slope = loss_and_slope(cell.loss.kind, output, target)
        name = next(entry["value"] for entry in cell.network.outputs if entry["name"] == cell.loss.output)
        whole = np.zeros_like(values[name])
        if cell.loss.lengths is None:
            whole = slope.reshape(whole.shape)
        else:
            counts = np.arange(whole.shape[1]) < placed[cell.loss.lengths][:, None]
            whole[counts] = slope.reshape(whole[counts].shape)
        slopes, found = {name: whole}, {}
        for call in reversed(cell.network.calls):
            dy, x = slopes.get(call["out"]), values[call["in"][0]]
            if dy is None:
                continue
            if call["kind"] == "linear":
                weight = self.weights[call["name"] + ".weight"]
                rows = dy.reshape(-1, dy.shape[-1])
                found[call["name"] + ".weight"] = rows.T @ x.reshape(-1, x.shape[-1])
                if call["settings"]["bias"]:
                    found[call["name"] + ".bias"] = rows.sum(axis=0)
                dx = dy @ weight
            elif call["kind"] in ("flatten", "add"):
                dx = dy.reshape(x.shape)
            else:
                dx = dy * ELEMENTWISE[call["kind"]][1](values[call["out"]], x)
            for value in call["in"]:
                slopes[value] = slopes.get(value, 0) + dx
        return {name: found.get(name, np.zeros_like(array)) for name, array in self.weights.items()}

    def train_step(self, placed):
        for name, slope in self.gradients(placed).items():
            self.weights[name] = (self.weights[name] - self.lr * slope).astype(self.type)

    def read_loss(self):
        return float(self.loss)

    def loss_and_gradients(self, batch):
        found = self.gradients(self.place(batch))
        return self.read_loss(), {name: float(np.linalg.norm(slope)) for name, slope in found.items()}

    def breakdown(self, steps, placed_batches):
        self.timed(self.train_step if self.cell.phase == "train" else self.infer_step, steps, placed_batches)
        return {"source": "none: NumPy has no profiler"}


class Batches(frame.Pipeline):
    """The arrays in the order of the file; in phase load zeros, since pictures are not decoded here."""

    def __init__(self, cell, model):
        self.cell, self.model, self.index = cell, model, 0

    def first(self):
        return np.zeros((self.cell.batch,) + self.cell.sizes, dtype=np.float32)

    def begin(self, batches):
        self.index = 0

    def next(self):
        self.index += 1
        if self.model is None:
            return {self.cell.network.inputs[0]["name"]: self.first()}
        return self.model.place(self.cell.samples().batch(self.index - 1, self.cell.batch))

    def read(self, placed):
        return placed

    def synchronize(self):
        pass


class NumPyDriver(frame.Driver):
    def hello(self):
        return {"framework": "numpy", "version": np.__version__, "variants": ["eager"], "devices": ["cpu"],
                "kinds": ["linear", "flatten", "add"] + list(ELEMENTWISE),
                "losses": ["cross_entropy", "mse", "mae", "bce"], "listings": [], "phases": ["train", "infer", "load"],
                "precisions": ["f32", "f64"], "switches": {"feed": ["resident", "loader"]}, "libraries": {},
                "trims": True}

    def build(self, cell):
        return NumPyModel(cell)

    def pipeline(self, cell, model):
        return Batches(cell, model)


if __name__ == "__main__":
    frame.serve(NumPyDriver())
