"""PyTorch's side of bench_row_ops.py; the requests are those that row_ops.cpp answers."""
import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F


def hashed(shape, stream):
    h = (np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(stream * 0x9E3779B9)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = ((h ^ (h >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    values = (h >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    return torch.from_numpy(values.reshape(shape))


def step(leaves, call):
    for leaf in leaves:
        leaf.requires_grad_()
    seed = hashed((1,), 9)

    def run():
        y = call()
        return torch.autograd.grad(y, leaves, seed.expand(y.shape))[0]

    return run, True


def make():
    x, weight, bias = hashed((1000, 1000), 1), hashed((1000,), 2), hashed((1000,), 3)
    image, scale, shift = hashed((16, 64, 32, 32), 4), hashed((64,), 5), hashed((64,), 6)
    own = lambda: (x.clone(), weight.clone(), bias.clone())
    own_image = lambda: (image.clone(), scale.clone(), shift.clone())

    def norm_step(tensors, call):
        return step(tensors, lambda: call(*tensors))

    return {
        "sum_all": (lambda: x.sum(), False),
        "sum_rows": (lambda: x.sum(1), False),
        "sum_columns": (lambda: x.sum(0), False),
        "max_rows": (lambda: x.amax(1), False),
        "softmax": (lambda: F.softmax(x, 1), False),
        "log_softmax": (lambda: F.log_softmax(x, 1), False),
        "softmax_columns": (lambda: F.softmax(x, 0), False),
        "softmax_step": norm_step(own()[:1], lambda x: F.softmax(x, 1)),
        "layer_norm": (lambda: F.layer_norm(x, (1000,), weight, bias), False),
        "layer_norm_step": norm_step(own(), lambda x, w, b: F.layer_norm(x, (1000,), w, b)),
        "batch_norm": (lambda: F.batch_norm(image, None, None, scale, shift, True), False),
        "batch_norm_step": norm_step(own_image(), lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
        "group_norm": (lambda: F.group_norm(image, 8, scale, shift), False),
        "group_norm_step": norm_step(own_image(), lambda x, w, b: F.group_norm(x, 8, w, b)),
        "cumsum": (lambda: x.cumsum(1), False),
    }


def main():
    torch.set_num_interop_threads(1)
    cases = make()
    for line in sys.stdin:
        request = json.loads(line)
        if "threads" in request:
            torch.set_num_threads(request["threads"])
        if request["do"] == "hello":
            answer = {"framework": "pytorch", "version": torch.__version__}
        else:
            call, recorded = cases[request["case"]]
            with torch.set_grad_enabled(recorded):
                if request["do"] == "check":
                    values = call().flatten()
                    answer = {"values": [values[i * (len(values) - 1) // 6].item() for i in range(7)]}
                else:
                    seconds = []
                    for i in range(-2, request["steps"]):
                        start = time.perf_counter()
                        call()
                        if i >= 0:
                            seconds.append(time.perf_counter() - start)
                    answer = {"seconds": seconds}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
