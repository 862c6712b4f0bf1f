"""The call `fit`: epochs of training, a test after each, and the tests of further parts after the last."""
import math

import numpy as np

from .declined import Declined
from .hashing import epoch_order
from .measures import ctc_losses, measured, metrics_of
from .timing import now_ns


def fit(prepared, asked, progress):
    """-> the answer. progress(line) tells of an epoch."""
    cell, model = prepared.cell, prepared.model
    if cell.phase != "train":
        raise Declined("fit", "fit: must be prepared in phase train; got %s." % cell.phase)
    epochs, cap_s = asked.read("epochs"), asked.read("cap_s")
    cap_ns = math.inf if cap_s is None else float(cap_s) * 1e9
    batches = len(cell.train) // cell.batch
    if batches == 0:
        raise ValueError("fit: an epoch must have a whole batch; got %d samples and batch %d." % (
            len(cell.train), cell.batch))
    start, done, capped, confusion = now_ns(), 0, False, None
    while done < epochs and not capped:
        # A network with states goes on from batch to batch: its samples keep the order of the file.
        order = np.arange(len(cell.train)) if cell.network.states else \
            epoch_order(len(cell.train), cell.seed, done)
        begin = now_ns()
        model.reset_states()
        model.train_epoch(cell.train, order, batches, cell.batch)
        model.synchronize()
        train_end = now_ns()
        prepared.updates += batches
        loss, right = model.counted()
        loss = float(loss) / batches
        line = {"epoch": done + 1, "begin": begin, "train_end": train_end, "loss": loss,
                "metrics": metrics_of(cell, loss), "test_loss": None, "test_metrics": None}
        if "accuracy" in right:
            line["metrics"]["accuracy"] = int(right["accuracy"]) / cell.counted_in(
                cell.train, order[:batches * cell.batch])
        if cell.test is not None:
            line["test_loss"], line["test_metrics"], confusion = evaluate(prepared, cell.test)
        line["end"] = now_ns()
        done += 1
        capped = line["end"] - start > cap_ns and done < epochs
        progress(line)
    tests = {}
    for part, data in cell.more_tests.items():
        loss, metrics, _ = evaluate(prepared, data)
        tests[part] = {"loss": loss, "metrics": metrics}
    return {"epochs": done, "capped": capped, "confusion": confusion, "tests": tests}


def evaluate(prepared, data):
    """-> (mean loss, metrics, confusion or None) over the samples. The last batch is filled up, for
    frameworks that compile for one size, and what was filled in is left out. The model measures, where it can."""
    cell, model = prepared.cell, prepared.model
    # Counted where there is one label per sample.
    confusion = np.zeros((cell.classes, cell.classes), dtype=np.int64) if "accuracy" in cell.metrics and \
        not cell.targets[cell.loss.target]["shape"] and cell.classes is not None else None
    sums, counts, there = [{} for _ in cell.terms], [0] * len(cell.terms), []
    model.reset_states()
    for begin in range(0, len(data), cell.batch):
        batch = data.batch(begin // cell.batch, cell.batch)
        kept = min(cell.batch, len(data) - begin)
        placed = model.place(batch)
        model.infer_step(placed)
        found = model.measure(placed) if cell.loss.kind == "cross_entropy" else None
        if found is None:
            measure_with_numpy(prepared, batch, kept, sums, counts, confusion)
        else:
            there.append(found)
    if there:
        whole = {name: np.concatenate([model.read_measured(found[name]) for found in there])[:len(data)]
                 for name in there[0]}
        counts[0] = cell.counted_in(data, np.arange(len(data)))
        sums[0] = {name: float(values.sum(dtype=np.float64)) for name, values in whole.items() if name != "class"}
        if confusion is not None:
            np.add.at(confusion, (data.arrays[cell.loss.target], whole["class"]), 1)
    loss = sum(found.pop("loss") / count for found, count in zip(sums, counts))  # a sum has no other metrics
    means = {name: total / counts[0] for name, total in sums[0].items()}
    return loss, dict(metrics_of(cell, loss), **means), None if confusion is None else confusion.tolist()


def measure_with_numpy(prepared, batch, kept, sums, counts, confusion):
    """Adds what the last infer_step is worth: of each term of the loss its sums and how many places count."""
    cell = prepared.cell
    outputs = {name: value[:kept] for name, value in prepared.read_outputs(batch).items()}
    for number, term in enumerate(cell.terms):
        if term.kind == "ctc":
            found = {"loss": ctc_losses(outputs[term.output], batch[term.target][:kept],
                                        batch[term.lengths][:kept], term.stride)}
        else:
            output, target = cell.counted_places(outputs, batch, term)
            found = measured(cell, term, output, target)
        counts[number] += len(found["loss"])
        for name, values in found.items():
            sums[number][name] = sums[number].get(name, 0.0) + float(values.sum())
    if confusion is not None:
        np.add.at(confusion, (target, output.argmax(axis=1)), 1)
