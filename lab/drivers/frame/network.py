"""The protocol's `network`: a straight line of calls, or one call that is a whole network."""
import keyword
import re

from .schema import OBJECTS, Fields, check_object


class Network:
    """The protocol's `network`, checked.

    name        of the network
    inputs      [{"name", "type", "shape", "range" or absent}, …]     states   [{"name", "shape"}, …], shapes without
                the batch
    calls       [{"kind", "name", "in", "out", "shape", "settings", "parameters", "buffers"}, …] in the order of work;
                where `prepare` says dropout false, every p is 0
    outputs     [{"name", "value", "shape"}, …]
    parameters  {full name: PyTorch's shape} of all calls, and buffers likewise
    whole       the call of a network that is written by hand: its kind is the network's, and there is no other call.
                None for a list of layers
    """

    def __init__(self, description, dropout):
        check_object("network", description, "network")
        fields = Fields(OBJECTS["network"], description, "network")
        self.name = fields.read("name")
        self.inputs, self.states = fields.read("inputs"), fields.read("states", [])
        self.calls, self.outputs = fields.read("calls"), fields.read("outputs")
        self.parameters, self.buffers = {}, {}
        known = {entry["name"] for entry in self.inputs}
        for call in self.calls:
            for value in call["in"]:
                if value not in known:
                    raise ValueError("network: %s %r must take values made before it; got %r." % (
                        call["kind"], call["name"], value))
            known.update(call.get("outs", [call["out"]]))
            self.parameters.update({name: tuple(shape) for name, shape in call["parameters"].items()})
            self.buffers.update({name: tuple(shape) for name, shape in call["buffers"].items()})
            if not dropout and "p" in call["settings"]:
                call["settings"]["p"] = 0.0
            if "outs" in call and len(self.calls) > 1:
                raise ValueError("network: %s must be the only call of its network; got %d calls." % (
                    call["kind"], len(self.calls)))
        self.whole = self.calls[0] if self.calls and "outs" in self.calls[0] else None
        if self.whole and not dropout:  # its probabilities are the numbers with a point
            self.whole["settings"] = {name: 0.0 if isinstance(value, float) else value
                                      for name, value in self.whole["settings"].items()}
        for output in self.outputs:
            if output["value"] not in known:
                raise ValueError("network: output %r must be a value of the network; got %r." % (
                    output["name"], output["value"]))

    def straight_line(self, reserved=()):
        """The network as a person writes it in Python, with names that are used again when their value is no longer
        needed: (names of the inputs, lines, names of the outputs). A line is (call, [names of what it takes], name of
        what it makes, [names that nothing reads after it and that it leaves bound]). reserved: names to keep clear of.
        """
        last, taken, names = {}, set(reserved) | set(keyword.kwlist), {}
        for index, call in enumerate(self.calls):
            last.update({value: index for value in call["in"]})
        last.update({output["value"]: len(self.calls) for output in self.outputs})

        def fresh(wish):
            name = re.sub(r"\W", "_", wish)
            name = "_" + name if name[:1].isdigit() else name
            while name in taken:
                name += "_"
            taken.add(name)
            return name

        for entry in self.inputs:
            names[entry["name"]] = fresh(entry["name"])
        inputs, lines = list(names.values()), []
        for index, call in enumerate(self.calls):
            used = [names[value] for value in call["in"]]
            free = list(dict.fromkeys(names[value] for value in call["in"] if last[value] == index))
            names[call["out"]] = free.pop(0) if free else fresh(call["out"])
            lines.append((call, used, names[call["out"]], free))
        return inputs, lines, [names[output["value"]] for output in self.outputs]

    def has_lstm(self):
        """Whether the switch lstm has something to turn: a layer, or a weight of four gates in a whole network."""
        return any(call["kind"] == "lstm" for call in self.calls) or self.whole is not None and any(
            name.endswith("weight_hh_l0") and shape[0] == 4 * shape[1] for name, shape in self.parameters.items())

    def limits(self):
        """{input's name: (least, most)} of the whole numbers: rows of an embedding, and lengths of its sequences."""
        shapes = {entry["name"]: entry["shape"] for entry in self.inputs + [
            {"name": call["out"], "shape": call["shape"]} for call in self.calls]}
        whole = {entry["name"] for entry in self.inputs if entry["type"] == "i64"}
        found = {entry["name"]: tuple(entry["range"]) for entry in self.inputs if "range" in entry}
        for call in self.calls:
            if call["kind"] == "embedding":
                found[call["in"][0]] = 0, call["settings"]["rows"] - 1
            elif call["kind"] in ("lstm", "attention", "mean") and call["in"][-1] in whole:
                time = shapes[call["in"][1 if len(call["in"]) > 3 else 0]][0]  # of the keys, or the only values
                found[call["in"][-1]] = 1, min(time, found.get(call["in"][-1], (1, time))[1])
        return {name: found[name] for name in found if name in whole}
