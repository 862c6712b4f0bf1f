"""The clock, and how the two regions of `run` are timed."""
import time


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def latency(step, synchronize, turns):
    clock, monotonic, times = time.clock_gettime_ns, time.CLOCK_MONOTONIC, []
    note = times.append
    for placed in turns:
        begin = clock(monotonic)
        step(placed)
        synchronize()
        note((begin, clock(monotonic)))
    return {"steps": times}


def throughput(take, synchronize):
    begin = now_ns()
    take()
    synchronize()
    return {"begin": begin, "end": now_ns()}
