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

R = lambda *shape: (shape, -1, 1)
OPS += [
    ("conv2d/each_axis", [R(2, 2, 9, 11), R(3, 2, 3, 2), R(3)],
     lambda x, w, b: F.conv2d(x, w, b, (2, 3), (2, 1), (1, 3))),
    ("conv2d/depthwise_strided", [R(2, 3, 7, 9), R(3, 1, 3, 3), R(3)],
     lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2), (1, 2), 3)),
    ("conv2d/same", [R(2, 2, 5, 6), R(3, 2, 2, 3)], lambda x, w: F.conv2d(x, w, padding="same", dilation=(1, 2))),
    ("conv1d", [R(2, 3, 9), R(4, 3, 3), R(4)], F.conv1d),
    ("conv1d/every_option", [R(2, 4, 13), R(6, 2, 3), R(6)], lambda x, w, b: F.conv1d(x, w, b, 2, 3, 2, 2)),
    ("conv3d", [R(2, 2, 4, 5, 6), R(3, 2, 2, 3, 3), R(3)], F.conv3d),
    ("conv3d/each_axis", [R(1, 2, 5, 6, 7), R(2, 2, 3, 2, 3), R(2)],
     lambda x, w, b: F.conv3d(x, w, b, (2, 1, 2), (1, 0, 2), (1, 2, 1))),
    ("conv3d/groups", [R(2, 4, 3, 4, 5), R(4, 2, 2, 2, 3), R(4)], lambda x, w, b: F.conv3d(x, w, b, 1, 1, 1, 2)),
    ("conv_transpose2d", [R(2, 3, 4, 5), R(3, 2, 3, 3), R(2)], F.conv_transpose2d),
    ("conv_transpose2d/strided", [R(2, 3, 4, 3), R(3, 2, 3, 3), R(2)],
     lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), 1, (1, 0))),
    ("conv_transpose2d/groups", [R(1, 4, 3, 4), R(4, 3, 2, 3), R(6)],
     lambda x, w, b: F.conv_transpose2d(x, w, b, 1, (0, 1), (0, 1), 2, (3, 2))),
    ("conv_transpose1d", [R(2, 3, 5), R(3, 2, 4), R(2)], lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1)),
    ("conv_transpose3d", [R(1, 2, 2, 3, 3), R(2, 2, 3, 3, 2), R(2)],
     lambda x, w, b: F.conv_transpose3d(x, w, b, (2, 1, 2), (1, 0, 1), (1, 0, 0))),
]
