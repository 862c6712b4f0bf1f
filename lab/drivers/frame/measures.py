"""What the loss and the metrics of a cell's outputs are, sample by sample, in NumPy."""
import numpy as np


def measured(cell, term, output, target):
    """{"loss": array, metric: array}: of each place that counts. The metrics that are means over places."""
    if term.kind == "cross_entropy":
        top = output.max(axis=1)
        picked = output[np.arange(len(target)), target]
        found = {"loss": top + np.log(np.exp(output - top[:, None]).sum(axis=1)) - picked}
        if "accuracy" in cell.metrics:
            found["accuracy"] = output.argmax(axis=1) == target
        return found
    each = {"mse": np.square(output - target), "mae": np.abs(output - target),
            "bce": np.maximum(output, 0) - output * target + np.log1p(np.exp(-np.abs(output)))}
    return dict({name: each[name] for name in cell.metrics}, loss=each[term.kind])


def ctc_losses(logits, labels, lengths, stride):
    """Of each sample CTC's loss over the number of its labels, (N,). logits (N, steps, classes), labels (N, L), filled up with
    zeros. The blank is 0; where the labels cannot be had in so few steps the loss is 0."""
    top = logits.max(axis=2, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(axis=2, keepdims=True))
    samples, counts, steps = np.arange(len(labels)), (labels != 0).sum(axis=1), -(-lengths // stride)
    states = np.zeros((len(labels), 2 * labels.shape[1] + 1), dtype=np.int64)  # labels with blanks around each
    states[:, 1::2] = labels
    skips = np.zeros(states.shape, dtype=bool)  # from the label before, where it is another
    skips[:, 3::2] = labels[:, 1:] != labels[:, :-1]
    ahead = np.full(states.shape, -np.inf)
    ahead[:, 0], ahead[:, 1] = logs[:, 0, 0], logs[samples, 0, states[:, 1]]
    for step in range(1, logits.shape[1]):
        one, two = np.full(states.shape, -np.inf), np.full(states.shape, -np.inf)
        one[:, 1:], two[:, 2:] = ahead[:, :-1], ahead[:, :-2]
        moved = np.logaddexp(np.logaddexp(ahead, one), np.where(skips, two, -np.inf))
        ahead = np.where((step < steps)[:, None], moved + logs[samples[:, None], step, states], ahead)
    ends = np.logaddexp(ahead[samples, 2 * counts], ahead[samples, np.maximum(2 * counts - 1, 0)])
    ends = np.where(counts == 0, ahead[:, 0], ends)
    return np.where(np.isfinite(ends), -ends, 0.0) / np.maximum(counts, 1)


def metrics_of(cell, loss):
    """The metrics that follow from the mean loss."""
    found = {"perplexity": float(np.exp(loss))} if "perplexity" in cell.metrics else {}
    return dict(found, **{cell.loss.kind: loss}) if cell.loss.kind in cell.metrics else found
