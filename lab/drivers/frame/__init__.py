"""The frame of a driver in Python: all of lab/docs/protocol.md that does not depend on the framework.

A driver is a script of this shape (lab/docs/drivers.md tells more, lab/drivers/pytorch.py is an example):

    import frame
    frame.claim_stdout()            # before the framework is imported: what it prints goes to standard error
    import some_framework

    class SomeModel(frame.Model):   # one prepared cell; the methods marked "must" in driver.py
        ...

    class SomeDriver(frame.Driver):
        def hello(self):
            return {"framework": "some", "version": "1.0", "variants": ["eager"], "devices": ["cpu"],
                    "kinds": ["linear", "relu"], "losses": ["cross_entropy"], "listings": ["lenet"],
                    "phases": ["train", "infer"], "precisions": ["f32"], "switches": {}, "libraries": {},
                    "trims": False}
        def build(self, cell):
            return SomeModel(cell)

    if __name__ == "__main__":
        frame.serve(SomeDriver())

The frame reads the requests, checks each field of `prepare` against what `hello` offers (so that an unknown kind of
layer, loss, variant, device, precision, switch or value is declined by name before `build` is called), reads the data
and the weights, keeps the order of the batches, times `run`, goes through the epochs of `fit`, computes the test's loss
and metrics, and turns exceptions into answers: Declined -> declined, MemoryError or what Driver.is_out_of_memory knows
-> out_of_memory, anything else -> failed, with the traceback on standard error. The fields of requests and answers are
those of protocol.json.

A batch is a dict {name: NumPy array} of the network's inputs and the workload's targets, f32 or i64, the first axis
being the batch, until Model.place takes it.

Needs Python 3.8 and NumPy 1.20 or later, and nothing else.
"""
from .declined import Declined
from .dialogue import claim_stdout, serve
from .driver import Driver, Model, Pipeline
from .network import Network
from .pictures import cut_of, drawn, middle_of
from .timing import now_ns
from .weights import hash_weights

__all__ = ["Declined", "Driver", "Model", "Network", "Pipeline", "claim_stdout", "cut_of", "drawn", "hash_weights",
           "middle_of", "now_ns", "serve"]
