import torch

R = ((3, 4, 5), -1, 1)

OPS = [
    ("sum", [R], torch.sum),
    ("sum/outer", [R], lambda x: x.sum((0, 2))),
    ("mean/middle_kept", [R], lambda x: x.mean(1, keepdim=True)),
    ("max/outer", [R], lambda x: x.amax((0, 2))),
    ("min/last", [R], lambda x: x.amin(-1)),
    ("argmax/axis1", [R], lambda x: x.argmax(1)),
]
