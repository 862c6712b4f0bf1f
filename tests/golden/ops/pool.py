import torch.nn.functional as F

OPS = [
    ("max_pool2d", [((2, 2, 4, 6), -1, 1)], lambda x: F.max_pool2d(x, 2)),
    ("max_pool2d/overlapping", [((1, 2, 7, 7), -1, 1)], lambda x: F.max_pool2d(x, 3, 2, 1)),
]

R = lambda *shape: [(shape, -1, 1)]
places = lambda pair: pair[1].double()
OPS += [
    ("max_pool2d/every_option", R(2, 2, 8, 9),
     lambda x: F.max_pool2d(x, (3, 2), (2, 3), 1, (2, 1), ceil_mode=True)),
    ("max_pool2d/ceil", R(1, 2, 5, 7), lambda x: F.max_pool2d(x, 2, ceil_mode=True)),
    ("max_pool1d", R(2, 3, 11), lambda x: F.max_pool1d(x, 3, 2, 1)),
    ("max_pool3d", R(1, 2, 5, 4, 6), lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 2), (0, 1, 0))),
    ("max_pool1d_with_indices", R(2, 3, 11), lambda x: places(F.max_pool1d_with_indices(x, 3, 2, 1))),
    ("max_pool2d_with_indices", R(2, 2, 7, 6), lambda x: places(F.max_pool2d_with_indices(x, (3, 2), 2))),
    ("max_pool3d_with_indices", R(1, 2, 4, 4, 5), lambda x: places(F.max_pool3d_with_indices(x, 2))),
    ("adaptive_max_pool1d", R(2, 3, 10), lambda x: F.adaptive_max_pool1d(x, 4)),
    ("adaptive_max_pool2d", R(2, 2, 7, 5), lambda x: F.adaptive_max_pool2d(x, (3, 4))),
    ("adaptive_max_pool3d", R(1, 2, 4, 5, 3), lambda x: F.adaptive_max_pool3d(x, (2, 3, 1))),
    ("adaptive_max_pool1d_with_indices", R(2, 2, 7), lambda x: places(F.adaptive_max_pool1d_with_indices(x, 3))),
    ("adaptive_max_pool2d_with_indices", R(2, 2, 7, 5),
     lambda x: places(F.adaptive_max_pool2d_with_indices(x, (3, 2)))),
    ("adaptive_max_pool3d_with_indices", R(1, 2, 3, 4, 5),
     lambda x: places(F.adaptive_max_pool3d_with_indices(x, 2))),
    ("avg_pool2d", R(2, 2, 4, 6), lambda x: F.avg_pool2d(x, 2)),
    ("avg_pool2d/padded", R(2, 2, 7, 6), lambda x: F.avg_pool2d(x, (3, 2), (2, 1), 1)),
    ("avg_pool2d/ceil", R(2, 2, 8, 7), lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)),
    ("avg_pool2d/without_padding", R(2, 2, 8, 7),
     lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)),
    ("avg_pool2d/divisor", R(1, 2, 5, 5), lambda x: F.avg_pool2d(x, (3, 2), (1, 3), divisor_override=5)),
    ("avg_pool1d", R(2, 3, 10), lambda x: F.avg_pool1d(x, 3, 2, 1)),
    ("avg_pool3d", R(1, 2, 4, 5, 6), lambda x: F.avg_pool3d(x, (2, 3, 2), (2, 1, 2), (0, 1, 0))),
    ("adaptive_avg_pool1d", R(2, 3, 10), lambda x: F.adaptive_avg_pool1d(x, 4)),
    ("adaptive_avg_pool2d", R(2, 2, 7, 5), lambda x: F.adaptive_avg_pool2d(x, (3, 8))),
    ("adaptive_avg_pool3d", R(1, 2, 4, 5, 3), lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1))),
]
