import torch.nn.functional as F

OPS = [
    ("max_pool2d", [((2, 2, 4, 6), -1, 1)], lambda x: F.max_pool2d(x, 2)),
    ("max_pool2d/overlapping", [((1, 2, 7, 7), -1, 1)], lambda x: F.max_pool2d(x, 3, 2, 1)),
]
