"""Writes grid.txt, which pointwise_grid_test.cpp compares with: PyTorch's answers for pairs of shapes and of types.

    python3 tests/golden/make_grid.py        (needs torch; writes beside itself)

shapes A B R v...   a + b of a = 0, 1, 2 ... and b = 0, 1000, 2000 ... has the shape R and these values
refused A B         the shapes do not go together
values OP A B R v.. OP of VALUES in type A and OTHERS in type B has type R and these values. Pairs that PyTorch does not
                    know (some of the unsigned types) are left out.
"""
import itertools
import math
import pathlib

import torch

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8,
    "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16,
    "u32": torch.uint32, "u64": torch.uint64, "bool": torch.bool,
}
SHAPES = [(), (1,), (3,), (2,), (0,), (1, 3), (2, 1), (2, 3), (3, 2), (0, 3), (2, 0), (4, 2, 3), (4, 1, 3), (1, 2, 1),
          (2, 1, 2, 3), (1, 1, 1, 1)]
OPS = {
    "add": torch.add, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "remainder": torch.remainder,
    "floor_divide": torch.floor_divide, "less": torch.lt, "equal": torch.eq,
    "where": lambda a, b: torch.where(torch.tensor([True, False, True, False]), a, b),
}


def values(dtype, second):
    if dtype == torch.bool:
        return torch.tensor([1, 1, 1, 1] if second else [1, 0, 1, 1]).bool()
    if dtype.is_floating_point:
        return torch.tensor([2, -0.5, 3, 1.5] if second else [1.5, -2, 3, 5], dtype=dtype)
    signed = dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    return torch.tensor([2, 3, 3, 5] if second else [7, -7 if signed else 6, 3, 100]).to(dtype)


def text(shape):
    return ",".join(map(str, shape)) if len(shape) else "-"


def numbers(tensor):
    digits = 17 if tensor.dtype == torch.float64 or not tensor.dtype.is_floating_point else 9
    return " ".join(f"{v:.{digits}g}" for v in tensor.double().flatten().tolist())


def main():
    lines = []
    for a, b in itertools.product(SHAPES, SHAPES):
        x = torch.arange(math.prod(a)).reshape(a)
        y = 1000 * torch.arange(math.prod(b)).reshape(b)
        try:
            z = x + y
            lines.append(f"shapes {text(a)} {text(b)} {text(z.shape)} {numbers(z)}".rstrip())
        except RuntimeError:
            lines.append(f"refused {text(a)} {text(b)}")
    names = {dtype: name for name, dtype in DTYPES.items()}
    for op, call in OPS.items():
        for (a, x), (b, y) in itertools.product(DTYPES.items(), DTYPES.items()):
            try:
                z = call(values(x, False), values(y, True))
                lines.append(f"values {op} {a} {b} {names[z.dtype]} {numbers(z)}")
            except (RuntimeError, NotImplementedError):
                pass
    (HERE / "grid.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
