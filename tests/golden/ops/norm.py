import torch
import torch.nn.functional as F


def channels(shape):
    return [(shape, -1, 1), ((shape[1],), 0.5, 2), ((shape[1],), -1, 1)]


OPS = [
    ("layer_norm", [((3, 8), -1, 1), ((8,), 0.5, 2), ((8,), -1, 1)], lambda x, w, b: F.layer_norm(x, (8,), w, b)),
    ("layer_norm/plain", [((3, 8), -1, 1)], lambda x: F.layer_norm(x, (8,))),
    ("layer_norm/weight", [((2, 3, 40), -1, 1), ((40,), 0.5, 2)], lambda x, w: F.layer_norm(x, (40,), w)),
    ("layer_norm/planes", [((2, 3, 4), -1, 1), ((3, 4), 0.5, 2), ((3, 4), -1, 1)],
     lambda x, w, b: F.layer_norm(x, (3, 4), w, b, 0.1)),
    ("group_norm", channels((2, 6, 3, 4)), lambda x, w, b: F.group_norm(x, 2, w, b)),
    ("group_norm/plain", [((2, 6, 5), -1, 1)], lambda x: F.group_norm(x, 3)),
    ("group_norm/flat", channels((5, 6)), lambda x, w, b: F.group_norm(x, 3, w, b)),
    ("instance_norm", channels((2, 6, 3, 4)), lambda x, w, b: F.instance_norm(x, weight=w, bias=b)),
    ("instance_norm/plain", [((2, 6, 5), -1, 1)], lambda x: F.instance_norm(x)),
    ("batch_norm", channels((2, 6, 3, 4)), lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    ("batch_norm/plain", [((2, 6, 5), -1, 1)], lambda x: F.batch_norm(x, None, None, training=True)),
    ("batch_norm/flat", channels((5, 6)), lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    ("batch_norm/eval", [((3, 4, 5), -1, 1), ((4,), -1, 1), ((4,), 0.5, 2), ((4,), 0.5, 2), ((4,), -1, 1)],
     lambda x, m, v, w, b: (x - m[:, None]) / (v[:, None] + 1e-5).sqrt() * w[:, None] + b[:, None]),
    ("rms_norm", [((3, 4, 5), -1, 1), ((4, 5), 0.5, 2)], lambda x, w: F.rms_norm(x, (4, 5), w, 1e-3)),
    ("normalize", [((3, 4, 2), 0.1, 1)], lambda x: F.normalize(x)),
    ("normalize/p1", [((3, 4, 2), 0.1, 1)], lambda x: F.normalize(x, 1)),
    ("local_response_norm/size3", [((2, 5, 3), -1, 1)], lambda x: F.local_response_norm(x, 3, 0.5, 0.75, 1.5)),
    ("local_response_norm/size4", [((2, 5, 3), -1, 1)], lambda x: F.local_response_norm(x, 4, 0.5, 0.75, 1.5)),
]
