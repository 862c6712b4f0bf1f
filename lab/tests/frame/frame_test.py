"""Tests of lab/drivers/frame with the driver of NumPy: what the frame makes of each field of requests and answers.

    python3 lab/tests/frame/frame_test.py
"""
import copy
import os
import sys
import tempfile
import unittest

import numpy_driver
import kinds
import test_driver
from frame import Declined
from frame.dialogue import Dialogue
from frame.schema import CALLS, OBJECTS, SCHEMA, check_answer

CALLS_OF_A_CELL = [("check", {"steps": 2}), ("run", {"region": "latency", "steps": 3}),
                   ("run", {"region": "throughput", "steps": 3}), ("breakdown", {"steps": 1})]


class FrameTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.lines = []
        self.dialogue = Dialogue(numpy_driver.NumPyDriver(), self.lines.append)

    def cell(self, name="cross_entropy_lengths", **changes):
        """A request `prepare` with all fields."""
        workload, network = next(case for case in kinds.cases() if case[0]["name"] == name)
        samples = test_driver.Samples(workload, copy.deepcopy(network))
        data = {part: test_driver.write(self.folder, part, samples.make(count, count))
                for part, count in (("train", 12), ("test", 5), ("test_more", 3))}
        request = {"workload": dict(workload, optimizer={"name": "sgd", "lr": 0.01}), "network": network,
                   "definition": "description", "variant": "eager", "phase": "train", "track": "equal", "batch": 4,
                   "device": "cpu", "threads": 1, "precision": "f32", "seed": 1, "dropout": True,
                   "weights": {"hash": 1}, "data": data, "trim": {"n": {"of": ["x", "target"], "multiple": 2}},
                   "switches": {"feed": "resident"}}
        request.update(changes)
        return copy.deepcopy(request)

    def pictures(self):
        """The same in phase load."""
        listed = os.path.join(self.folder, "list.txt")
        with open(listed, "w", encoding="utf-8") as file:
            file.write("0\ta.jpg\n1\tb.jpg\n")
        cell = self.cell(phase="load", switches={}, trim=None, data={"images": {
            "list": listed, "resize": 6, "mean": [0, 0, 0], "std": [1, 1, 1.5]}})
        del cell["weights"]
        cell["network"].update(inputs=[{"name": "x", "type": "f32", "shape": [3, 4, 4]}], calls=[], outputs=[
            {"name": "out", "value": "x", "shape": [2]}])
        cell["workload"].update(loss={"kind": "cross_entropy", "output": "out", "target": "target"},
                                targets={"target": {"type": "i64", "shape": [], "below": 2}})
        return cell

    def test_every_call_is_answered_by_the_schema(self):
        self.dialogue.answer("hello", {})
        for phase in ("train", "infer"):
            self.dialogue.answer("prepare", self.cell(phase=phase))
            for call, fields in CALLS_OF_A_CELL:
                self.dialogue.answer(call, fields)
        self.dialogue.answer("prepare", self.cell(switches={"feed": "loader"}, trim=None))
        for call, fields in CALLS_OF_A_CELL:
            self.dialogue.answer(call, fields)
        self.dialogue.answer("prepare", self.pictures())
        for call, fields in CALLS_OF_A_CELL[:3]:
            self.dialogue.answer(call, fields)
        self.dialogue.answer("prepare", self.cell())
        answer = self.dialogue.answer("fit", {"id": 7, "epochs": 2, "cap_s": None})
        self.assertEqual([line["id"] for line in self.lines], [7, 7])
        self.assertEqual(sorted(answer["tests"]), ["test_more"])
        self.dialogue.answer("quit", {})
        self.assertEqual(set(CALLS), {name for name in dir(self.dialogue) if name in SCHEMA["calls"]})

    def test_an_answer_that_breaks_the_schema_is_a_failure(self):
        class Strange(numpy_driver.NumPyDriver):
            def hello(self):
                return dict(super().hello(), **changes)

        for changes, message in (({"kinds": "conv"}, "hello.kinds: must be a list"),
                                 ({"switches": {"conv": "fixed"}}, "hello.switches.conv: must be a list"),
                                 ({"trims": 1}, "hello.trims: must be a bool"),
                                 ({"colour": "red"}, "hello: the answer has no field 'colour'")):
            with self.assertRaises(RuntimeError) as raised:
                Dialogue(Strange(), None).answer("hello", {})
            self.assertIn(message, str(raised.exception))
        check_answer("run", {"loss": None, "updates": 0})
        with self.assertRaises(RuntimeError) as raised:
            check_answer("run", {"updates": 0})
        self.assertIn("run.loss: must be a number", str(raised.exception))

    def refusal(self, call, request):
        """Why the frame refuses a request; None where it answers."""
        try:
            self.dialogue.answer(call, request)
        except (Declined, ValueError) as error:
            return str(error)
        return None

    def try_fields(self, call, request, rules, holder_of, name_of_object):
        """Tries each field of the object that `holder_of` finds in a request: absent, where it must be there, and of another
        type. The refusal must name it."""
        for name, rule in rules.items():
            if name not in holder_of(request):
                continue
            path = name_of_object + name
            with self.subTest(call + " " + path):
                changed = copy.deepcopy(request)
                del holder_of(changed)[name]
                if rule.get("required", True):
                    self.assertIn(path, self.refusal(call, changed) or "accepted")
                holder_of(changed)[name] = True if rule["type"] in ("text", "integer", "number") else "some"
                self.assertIn(path, self.refusal(call, changed) or "accepted")
            if rule["type"] in OBJECTS:
                self.try_fields(call, request, OBJECTS[rule["type"]], lambda whole, key=name: holder_of(whole)[key],
                                path + ".")

    def test_each_field_of_a_request_is_read_by_the_schema(self):
        for request in (self.cell(), self.pictures()):
            self.try_fields("prepare", request, SCHEMA["calls"]["prepare"]["request"], lambda whole: whole, "")
        for call, fields in CALLS_OF_A_CELL + [("fit", {"epochs": 1, "cap_s": 5})]:
            self.dialogue.answer("prepare", self.cell())
            self.try_fields(call, fields, SCHEMA["calls"][call]["request"], lambda whole: whole, "")
        for place, what in (("inputs", "input"), ("calls", "layer"), ("outputs", "output")):
            self.try_fields("prepare", self.cell(), OBJECTS[what], lambda whole, key=place: whole["network"][key][0],
                            "network.%s.0." % place)


if __name__ == "__main__":
    sys.stdout = sys.stderr
    unittest.main()
