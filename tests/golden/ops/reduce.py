import math

import torch

R = ((3, 4, 5), -1, 1)

OPS = [
    ("sum", [R], torch.sum),
    ("sum/outer", [R], lambda x: x.sum((0, 2))),
    ("mean/middle_kept", [R], lambda x: x.mean(1, keepdim=True)),
    ("max/outer", [R], lambda x: x.amax((0, 2))),
    ("min/last", [R], lambda x: x.amin(-1)),
    ("argmax/axis1", [R], lambda x: x.argmax(1)),
    ("argmin/axis1", [R], lambda x: x.argmin(1)),
    ("prod", [R], torch.prod),
    ("prod/last", [R], lambda x: x.prod(-1)),
    ("prod/zeros", [((6, 4), -1, 1), ((6, 4), 0, 2, "boolean")], lambda x, m: (x * m).prod(1)),
    ("var", [R], lambda x: x.var()),
    ("var/outer", [R], lambda x: x.var((0, 2))),
    ("var_biased/middle_kept", [R], lambda x: x.var(1, correction=0, keepdim=True)),
    ("std/outer", [R], lambda x: x.std((0, 2))),
    ("std_biased/last", [R], lambda x: x.std(-1, correction=0)),
    ("logsumexp", [R], lambda x: x.logsumexp((0, 1, 2))),
    ("logsumexp/outer", [R], lambda x: x.logsumexp((0, 2))),
    ("any/last", [R], lambda x: x.any(-1)),
    ("all/last", [R], lambda x: x.all(-1)),
    ("count_nonzero/outer", [R], lambda x: x.count_nonzero((0, 2))),
]
POSITIVE = ((3, 4, 5), 0.2, 1)
NORMS = {"norm": (2, R), "norm1": (1, R), "norm3": (3, R), "norm_inf": (math.inf, R), "norm0": (0, POSITIVE),
         "norm_half": (0.5, POSITIVE), "norm_negative": (-2, POSITIVE), "norm_minus_inf": (-math.inf, POSITIVE)}
for _name, (_p, _x) in NORMS.items():
    OPS.append((_name + "/outer", [_x], lambda x, p=_p: torch.linalg.vector_norm(x, p, (0, 2))))
    OPS.append((_name + "/middle_kept", [_x], lambda x, p=_p: torch.linalg.vector_norm(x, p, 1, keepdim=True)))

S = ((2, 5, 3), -1, 1)
OPS += [
    ("cumsum/middle", [S], lambda x: x.cumsum(1)),
    ("cumprod/middle", [S], lambda x: x.cumprod(1)),
    ("cumprod/zeros", [((6, 4), -1, 1), ((6, 4), 0, 2, "boolean")], lambda x, m: (x * m).cumprod(1)),
    ("cumsum/reverse", [((3, 7), -1, 1)], lambda x: x.flip(1).cumsum(1).flip(1)),
    ("cummax/middle", [S], lambda x: x.cummax(1).values),
    ("cummin/middle", [S], lambda x: x.cummin(1).values),
    ("cummax_indices/middle", [S], lambda x: x.cummax(1).indices),
    ("cummin_indices/middle", [S], lambda x: x.cummin(1).indices),
]
