"""What a cell learns: the loss, its terms and the metrics, as its workload says them."""
from types import SimpleNamespace

from .declined import Declined, with_reason
from .schema import OBJECTS, Fields

# What each metric is measured of: the losses with which it makes sense.
METRICS = {"accuracy": ("cross_entropy",), "perplexity": ("cross_entropy",), "mse": ("mse", "mae", "bce"),
           "mae": ("mse", "mae", "bce")}


def read_loss(workload, targets, network, hello, why):
    """-> (loss, [its terms]). Each has kind, output, target, lengths and stride; of the kind sum there is the kind alone, and its
    terms are others. workload: Fields."""
    given = workload.inside("loss")
    loss = read_term(given)
    terms = [loss]
    if loss.kind == "sum":
        terms = []
        for number, term in enumerate(given.read("terms", ())):
            if not isinstance(term, dict):
                raise ValueError("workload.loss.terms: must be objects with kind, output and target; got %r." % (term,))
            terms.append(read_term(Fields(OBJECTS["loss"], term, "workload.loss.terms.%d" % number)))
    for term in terms + [loss]:
        if term.kind not in hello["losses"] or term is not loss and term.kind in ("sum", "ctc"):
            raise Declined(term.kind, with_reason("%s: this driver has the losses %s." % (
                term.kind, ", ".join(hello["losses"])), why("loss", term.kind)))
    if not terms:
        raise ValueError("workload.loss.terms: must be losses whose sum is taken; got none.")
    for term in terms:
        check_term(term, targets, network)
    return loss, terms


def read_term(given):
    return SimpleNamespace(stride=given.read("stride", 1), **{
        name: given.read(name) for name in ("kind", "output", "target", "lengths")})


def check_term(term, targets, network):
    """ValueError where the network has no such output, the workload no such target, or one does not fit the other."""
    outputs = {output["name"]: list(output["shape"]) for output in network.outputs}
    inputs = [entry["name"] for entry in network.inputs]
    if term.output not in outputs:
        raise ValueError("workload.loss.output: must be one of %s; got %r." % (", ".join(outputs), term.output))
    if term.target not in targets:
        raise ValueError("workload.loss.target: must be one of %s; got %r." % (", ".join(targets), term.target))
    if term.lengths not in [None] + inputs + list(targets):
        raise ValueError("workload.loss.lengths: must be an input or a target; got %r." % term.lengths)
    target, shape = targets[term.target], outputs[term.output]
    wanted = ("i64", shape[:-1]) if term.kind == "cross_entropy" else ("f32", shape)
    if term.kind == "ctc":  # as many labels as there are, and lengths, which count steps
        if term.lengths is None or len(shape) != 2 or len(target["shape"]) != 1:
            raise ValueError("workload.loss: ctc takes lengths, an output of steps and classes and a target with "
                             "one axis; got %s, %s and %s." % (term.lengths, shape, target["shape"]))
        wanted = "i64", list(target["shape"])
    if (target["type"], list(target["shape"])) != wanted:
        raise ValueError("workload.targets.%s: %s of an output of sizes %s takes %s %s; got %s %s." % (
            term.target, term.kind, shape, wanted[0], wanted[1], target["type"], target["shape"]))


def read_metrics(workload, loss):
    """The names of what is measured beside the loss. workload: Fields."""
    metrics = workload.read("metrics", [])
    for metric in metrics:
        if loss.kind not in METRICS.get(metric, ()):
            known = [name for name in METRICS if loss.kind in METRICS[name]]
            raise Declined("metrics", "metrics: beside the loss %s must be one of %s; got %r." % (
                loss.kind, ", ".join(known) or "none", metric))
    return metrics
