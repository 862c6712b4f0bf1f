import torch

OPS = [
    ("reshape", [((3, 4), -1, 1)], lambda x: x.reshape(2, 6)),
    ("transpose", [((2, 3, 4), -1, 1)], lambda x: x.transpose(-2, -1)),
    ("select", [((3, 4), -1, 1)], lambda x: x.select(1, -2)),
    ("permute", [((2, 3, 4), -1, 1)], lambda x: x.permute(2, 0, 1)),
    ("expand", [((3, 1), -1, 1)], lambda x: x.expand(2, 3, 4)),
    ("slice", [((3, 9), -1, 1)], lambda x: x[:, 1:8:3]),
    ("concat", [((2, 3), -1, 1), ((2, 1), -1, 1), ((2, 4), -1, 1)], lambda *p: torch.cat(p, 1)),
]
