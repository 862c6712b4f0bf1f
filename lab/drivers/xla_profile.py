"""What XLA and its profiler tell about a step, for the drivers of JAX and TensorFlow: the instructions of a module in
HLO's text, and the shares of the step's time from the events of a profile.

An event is a tuple (plane, line, name, begin_ns, duration_ns), as the profiler's file has them: a plane is a device or
the host, a line is one of its streams or threads.
"""
import re

INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = .*?[\])}] ([a-z][\w-]*)\(")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) (?:.*)?{$")
CALLED = re.compile(r"\b(?:to_apply|body)=%?([\w.-]+)")
UNCOUNTED = ("parameter", "constant", "tuple", "get-tuple-element")  # they cost nothing
HOLDERS = ("call", "while", "conditional")  # their time is that of others


def count_instructions(text):
    """How many instructions a module in HLO's text has. What a fusion or a reduction holds is part of it; what a call
    or a loop holds is counted."""
    bodies, entry, name = {}, None, None
    for line in text.splitlines():
        begins, instruction = COMPUTATION.match(line), INSTRUCTION.match(line)
        if instruction and name is not None:
            bodies[name].append((instruction.group(2), CALLED.findall(line)))
        elif begins:
            name = begins.group(2)
            bodies[name] = []
            entry = name if begins.group(1) else entry

    def count(name):
        total = 0
        for kind, called in bodies.get(name, ()):
            total += kind not in UNCOUNTED + HOLDERS
            if kind in HOLDERS:
                total += sum(map(count, called))
        return total

    return count(entry)


def instruction_namer(text):
    """-> function from an event's name to what it shall be called among the ops, or None where it is no instruction of
    the optimised module: its kind or, for a fusion, its name without number ("add_fusion.3" says what it does)."""
    kinds = {match.group(1): match.group(2) for match in map(INSTRUCTION.match, text.splitlines()) if match}

    def name_of(event):
        event = event.lstrip("%")
        kind = kinds.get(event)
        if kind is None or kind in HOLDERS:
            return None
        return re.sub(r"[.\d]+$", "", event) if kind in ("fusion", "custom-call") else kind

    return name_of


def time_shares(events, name_of, steps, plain_ns, watched_ns):
    """-> the fields kernel_share, copy_share, launches and ops of a breakdown, as far as the events tell them.

    On a GPU kernels and copies are what ran on its streams, and the ops are kernels by name; the device times them, so
    their shares are those of the steps that the profiler did not slow down, plain_ns. On the CPU a kernel is an event to
    which `name_of` gives a name; its share is the time in which at least one thread was in one, of the same steps,
    watched_ns.
    """
    times, calls, kernels, copies = {}, {}, [], []
    events = list(events)
    on_gpu = any(plane.startswith("/device:GPU") and line.startswith("Stream") for plane, line, *_ in events)
    for plane, line, name, begin, duration in events:
        if on_gpu:
            if not (plane.startswith("/device:GPU") and line.startswith("Stream")):
                continue
            if "memcpy" in name.lower() or "memset" in name.lower():
                copies.append((begin, begin + duration))
                continue
            key = name.split("<")[0].split("(")[0].split(" ")[-1] or name
        else:
            key = name_of(name)
            if key is None:
                continue
        kernels.append((begin, begin + duration))
        times[key] = times.get(key, 0.0) + duration
        calls[key] = calls.get(key, 0) + 1
    if not kernels:
        return {}
    whole_ns = plain_ns if on_gpu else watched_ns
    share = min(1.0, covered(kernels) / whole_ns)
    # Threads and streams overlap: the ops divide the covered time among them, so that their shares add up to it.
    unit = share / max(1e-9, sum(times.values()))
    largest = sorted(times, key=times.get, reverse=True)[:10]
    answer = {"kernel_share": share, "launches": len(kernels) / steps,
              "ops": [[key, times[key] * unit, calls[key] / steps] for key in largest]}
    if on_gpu:
        answer["copy_share"] = min(1.0, covered(copies) / whole_ns)
    return answer


def covered(spans):
    """The length of the union of intervals (begin, end): threads and streams work at the same time."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
