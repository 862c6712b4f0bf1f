import torch.nn.functional as F

OPS = [
    ("conv2d", [((2, 2, 5, 6), -1, 1), ((3, 2, 3, 3), -1, 1), ((3,), -1, 1)], F.conv2d),
    ("conv2d/strided", [((2, 2, 7, 6), -1, 1), ((2, 2, 3, 3), -1, 1), ((2,), -1, 1)],
     lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1)),
    ("conv2d/dilated", [((1, 2, 7, 7), -1, 1), ((2, 2, 3, 3), -1, 1), ((2,), -1, 1)],
     lambda x, w, b: F.conv2d(x, w, b, padding=2, dilation=2)),
    ("conv2d/groups", [((2, 4, 5, 5), -1, 1), ((6, 2, 3, 3), -1, 1), ((6,), -1, 1)],
     lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=2)),
]
