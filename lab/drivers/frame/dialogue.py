"""The dialogue with the lab: requests are read from standard input, and answered on the descriptor that claim_stdout keeps."""
import gc
import json
import math
import os
import sys
import traceback

from .cell import Cell
from .declined import Declined
from .fitting import fit
from .prepared import Prepared
from .schema import CALLS, PROTOCOL, check_answer, request_fields
from .timing import now_ns

_protocol_output = None


def claim_stdout():
    """Keeps standard output for the protocol: what anything else prints there goes to standard error from now on."""
    global _protocol_output
    if _protocol_output is None:
        sys.stdout.flush()
        _protocol_output = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
    return _protocol_output


class Dialogue:
    """One process: the driver, and the cell that was prepared last. Each call of the protocol is a method of its name, which gives
    the fields of the answer."""

    def __init__(self, driver, emit):
        self.driver = driver
        self.emit = emit  # writes one JSON object as a line
        self.known = None
        self.last = None  # Prepared

    def answer(self, call, request):
        """The fields of the answer, checked."""
        fields = getattr(self, call)(request)
        check_answer(call, fields)
        return fields

    def offer(self):
        if self.known is None:
            self.known = self.driver.hello()
        return self.known

    def hello(self, request):
        return dict(self.offer(), protocol=PROTOCOL)

    def prepare(self, request):
        self.last = None  # before the next is built: two may not fit
        gc.collect()
        begin = now_ns()
        cell = Cell(request, self.offer(), self.driver.why_declined)
        if cell.phase == "load":
            self.last = Prepared(cell, None, self.driver.pipeline(cell, None))
            return {"parameters": 0, "prepare_ns": now_ns() - begin, "obeyed": {}, "notes": []}
        model = self.driver.build(cell)
        model.cell = cell
        model.synchronize()
        fed = cell.switches.get("feed") == "loader"
        self.last = Prepared(cell, model, self.driver.pipeline(cell, model) if fed else None)
        return {"parameters": int(model.parameters()), "prepare_ns": now_ns() - begin,
                "obeyed": cell.switches if model.obeyed is None else model.obeyed, "notes": list(model.notes)}

    def prepared(self, call):
        if self.last is None:
            raise RuntimeError("%s: a cell must be prepared first; got none." % call)
        if self.last.model is None and call not in ("check", "run"):
            raise Declined(call, "%s: phase load has check and run alone." % call)
        return self.last

    def check(self, request):
        return self.prepared("check").check(request_fields("check", request))

    def run(self, request):
        return self.prepared("run").run(request_fields("run", request))

    def fit(self, request):
        def progress(line):
            check_answer("fit", line, "progress")
            self.emit({"id": request.get("id"), "progress": line})

        return fit(self.prepared("fit"), request_fields("fit", request), progress)

    def breakdown(self, request):
        return self.prepared("breakdown").breakdown(request_fields("breakdown", request))

    def quit(self, request):
        return {}


def serve(driver, requests=None):
    """Answers the requests of standard input until quit or its end, then exits with 0."""
    output = claim_stdout()

    def emit(answer):
        try:
            line = json.dumps(answer, allow_nan=False, default=plain)
        except ValueError:
            line = json.dumps(finite(json.loads(json.dumps(answer, default=plain))))
        output.write(line + "\n")
        output.flush()

    dialogue = Dialogue(driver, emit)
    for line in requests or sys.stdin:
        if not line.strip():
            continue
        number, call = None, None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("request: must be a JSON object; got %s." % type(request).__name__)
            number, call = request.get("id"), request.get("call")
            if call not in CALLS:
                raise Declined(str(call), "%s: this driver has no such call; it has %s." % (call, ", ".join(CALLS)))
            answer = {"id": number, "ok": True}
            answer.update(dialogue.answer(call, request))
        except Exception as error:  # whatever happens costs this answer, not the process
            answer = {"id": number, "ok": False, "error": failure(driver, error)}
        emit(answer)
        if call == "quit":
            break
    dialogue.last = None
    sys.stderr.flush()
    sys.exit(0)


def failure(driver, error):
    """The `error` of an answer."""
    if isinstance(error, Declined):
        return {"kind": "declined", "what": error.what, "message": str(error)}
    traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    sys.stderr.flush()
    memory = isinstance(error, MemoryError) or driver.is_out_of_memory(error)
    return {"kind": "out_of_memory" if memory else "failed", "what": type(error).__name__,
            "message": str(error) or type(error).__name__}


def finite(value):
    """The same with null for infinities and NaN, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def plain(value):
    """NumPy's numbers and arrays as JSON knows them; anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
