import torch
import torch.nn.functional as F

A, B = ((3, 4, 5), -2, 2), ((4, 1), -2, 2)
M = ((4, 9), -2, 2)

OPS = [
    ("add", [A, B], torch.add),
    ("sub", [A, B], torch.sub),
    ("mul", [A, B], torch.mul),
    ("div", [A, ((4, 1), 0.5, 2)], torch.div),
    ("pow", [((3, 4, 5), 0.25, 2), B], torch.pow),
    ("pow/square", [((4, 5), -2, 2)], lambda x: torch.pow(x, 2)),
    ("maximum", [A, ((4, 1), -1, 1)], torch.maximum),
    ("minimum", [A, ((4, 1), -1, 1)], torch.minimum),
    ("equal", [A, B], torch.eq),
    ("not_equal", [A, B], torch.ne),
    ("less", [A, B], torch.lt),
    ("less_equal", [A, B], torch.le),
    ("greater", [A, B], torch.gt),
    ("greater_equal", [A, B], torch.ge),
    ("logical_and", [A, B], torch.logical_and),
    ("logical_or", [A, B], torch.logical_or),
    ("logical_not", [((4, 9), -1, 1)], torch.logical_not),
    ("neg", [M], torch.neg),
    ("sign", [M], torch.sign),
    ("floor", [((4, 9), -4, 4)], torch.floor),
    ("cast/i32", [((5, 7), 0, 20)], lambda x: x.to(torch.int32)),
    ("cast/bf16", [((5, 7), -20, 20)], lambda x: x.to(torch.bfloat16)),
    ("abs", [M], torch.abs),
    ("exp", [M], torch.exp),
    ("log", [((4, 9), 0.1, 4)], torch.log),
    ("sqrt", [((4, 9), 0.1, 4)], torch.sqrt),
    ("rsqrt", [((4, 9), 0.2, 4)], torch.rsqrt),
    ("sin", [((4, 9), -6, 6)], torch.sin),
    ("cos", [((4, 9), -6, 6)], torch.cos),
    ("tanh", [((4, 9), -3, 3)], torch.tanh),
    ("erf", [((4, 9), -3, 3)], torch.erf),
    ("sigmoid", [((4, 9), -4, 4)], torch.sigmoid),
    ("relu", [M], torch.relu),
    ("gelu", [((4, 9), -4, 4)], F.gelu),
    ("where", [((3, 1, 5), 0, 2, "boolean"), ((4, 5), -1, 1), ((3, 4, 1), -1, 1)], torch.where),
]
