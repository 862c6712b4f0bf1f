"""The protocol's schema, protocol.json beside this file: which calls there are, and the fields of each request and answer.

A field has a `type`: text, flag, integer, number, list, any, the name of an object of the schema, `list of TYPE`, or `map of TYPE`
(an object with names of its own). `required` false: it may be absent. `null` true: it may be null. `least` is its smallest
value, and `one_of` are its values. A name that ends in * stands for all names that begin so.

Nothing here reads a field that the schema does not have, so that the schema cannot fall behind the frame.
"""
import json
import os

from .declined import offered

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "protocol.json"), encoding="utf-8") as file:
    SCHEMA = json.load(file)

PROTOCOL = SCHEMA["protocol"]
CALLS = tuple(SCHEMA["calls"])
OBJECTS = SCHEMA["objects"]
PYTHON = {"text": str, "flag": bool, "integer": int, "number": (int, float), "list": (list, tuple), "any": object}
NAMES = {"text": "str", "flag": "bool", "integer": "int", "number": "number", "list": "list"}  # in messages; others: dict


class Fields:
    """An object of a request whose fields are read by their rules. `what` is how messages call the object; empty: the request
    itself."""

    def __init__(self, rules, holder, what=""):
        self.rules, self.holder, self.before = rules, holder, what + "." if what else ""

    def read(self, name, default=None):
        """The field, checked; the default where it may be absent and is, or may be null and is."""
        rule, path = self.rules[name], self.before + name
        value = self.holder.get(name)
        if value is None and (rule.get("null") if name in self.holder else not rule.get("required", True)):
            return default
        if "one_of" in rule:
            return offered(path, value, rule["one_of"])
        wrong = fault(value, rule["type"].partition(" of ")[0], path, rule.get("least"), fields=False)
        if wrong:
            raise ValueError(wrong)
        return value

    def inside(self, name):
        """The Fields of an object in this one."""
        return Fields(OBJECTS[self.rules[name]["type"]], self.read(name), self.before + name)


def request_fields(call, request):
    """The Fields of a request."""
    return Fields(SCHEMA["calls"][call]["request"], request)


def check_object(name, value, what):
    """ValueError where the value is not an object of the schema with that name, its lists' items included."""
    wrong = fault(value, name, what, items=True)
    if wrong:
        raise ValueError(wrong)


def check_answer(call, answer, part="answer"):
    """RuntimeError where the fields of an answer (or of a line of progress) are not those of the schema. The items of lists
    are left to the lab, which reads each: they may be many, and the time of a run's answer counts."""
    rules = SCHEMA["calls"][call][part]
    strange = [name for name in answer if name not in rules]
    if strange:
        raise RuntimeError("%s: the %s has no field %r in the protocol; it has %s." % (
            call, part, strange[0], ", ".join(rules) or "none"))
    wrong = object_fault(answer, rules, call + ".", items=False)
    if wrong:
        raise RuntimeError(wrong)


def fault(value, kind, path, least=None, fields=True, items=False):
    """Why a value is not of that type, as a sentence; None where it is. fields: looks into objects, items: into lists."""
    value = value.tolist() if hasattr(value, "tolist") else value  # NumPy's, in answers
    outer, _, inner = kind.partition(" of ")
    good = isinstance(value, PYTHON.get(outer, dict)) and (outer in ("flag", "any") or not isinstance(value, bool))
    if least is not None and (not good or value < least):
        return "%s: must be an integer, at least %d; got %r." % (path, least, value)
    if not good:
        return "%s: must be a %s; got %r." % (path, NAMES.get(outer, "dict"), value)
    if outer in OBJECTS:
        return object_fault(value, OBJECTS[outer], path + ".", items) if fields else None
    inside = value.items() if outer == "map" and fields else enumerate(value) if outer == "list" and items else ()
    faults = (fault(item, inner, "%s.%s" % (path, key), items=items) for key, item in inside if inner)
    return next((wrong for wrong in faults if wrong), None)


def object_fault(value, rules, before, items):
    """The same of an object with these rules. Other fields, and those of names that end in *, are not looked at."""
    for name, rule in rules.items():
        if name[-1] == "*" or name not in value and not rule.get("required", True):
            continue
        found = value.get(name)
        if found is None and name in value and rule.get("null"):
            continue
        wrong = fault(found, rule["type"], before + name, rule.get("least"), items=items)
        if wrong:
            return wrong
    return None
