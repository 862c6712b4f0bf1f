"""Batches that are as long as their longest sample ("Lengths" in lab/docs/protocol.md)."""
from types import SimpleNamespace

from .declined import Declined
from .schema import OBJECTS, Fields


def read_trim(given, hello, network, targets, terms):
    """The field `trim` of `prepare` as a list of length (a name), of (names), multiple, and places, the number of each of these;
    empty: batches are whole. terms: of the loss."""
    if not given:
        return []
    if not hello.get("trims"):
        raise Declined("trim", "trim: this driver takes batches of one size alone; got lengths to trim them by, %s."
                       % ", ".join(sorted(given)))
    fields = {entry["name"]: entry for entry in network.inputs}
    fields.update(targets)
    rules, taken = [], set()
    for length, rule in sorted(given.items()):
        entry = fields.get(length)
        if entry is None or entry["type"] != "i64" or entry["shape"]:
            raise ValueError("trim: must name inputs and targets of whole numbers without axes; got %r." % length)
        rule = Fields(OBJECTS["trim"], rule, "trim." + length)
        names = rule.read("of")
        places = {fields[name]["shape"][0] if fields.get(name, {}).get("shape") else None for name in names}
        if len(places) != 1 or None in places or taken & set(names) or len(set(names)) != len(names):
            raise ValueError("trim.%s.of: must be inputs and targets of as many places each, and each once; got %r."
                             % (length, names))
        taken |= set(names)
        rules.append(SimpleNamespace(length=length, of=names, multiple=rule.read("multiple", 1), places=places.pop()))
    for term in terms:
        for rule in rules:
            if term.target in rule.of and (term.lengths != rule.length or term.kind == "ctc"):
                raise ValueError("trim.%s.of: a target of the loss is trimmed by the lengths of its term alone; got "
                                 "%r." % (rule.length, term.target))
    return rules


def trimmed_size(longest, rule, places):
    """How many of `places` are left of a batch whose longest sample has so many."""
    return min(places, -(-longest // rule.multiple) * rule.multiple)


def output_shape(cell, output, batch):
    """The shape of an output for this batch. With trimmed batches its first axis is known of the outputs that the loss
    reads; of others it is None."""
    shape = (cell.batch,) + tuple(output["shape"])
    if not cell.trim or len(shape) < 2:
        return shape
    for term in cell.terms:
        if term.output == output["name"]:
            for rule in cell.trim:
                if term.kind == "ctc" and term.lengths == rule.length:
                    return shape[:1] + (-(-batch[rule.of[0]].shape[1] // term.stride),) + shape[2:]
                if term.target in rule.of:
                    return shape[:1] + (batch[term.target].shape[1],) + shape[2:]
            return shape
    return shape[:1] + (None,) + shape[2:]
