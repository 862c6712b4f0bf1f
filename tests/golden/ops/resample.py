import torch.nn.functional as F

R = lambda *shape: [(shape, -1, 1)]
OPS = [
    ("interpolate", R(2, 2, 3, 4), lambda x: F.interpolate(x, scale_factor=2)),
    ("interpolate/nearest_size", R(1, 2, 5, 7), lambda x: F.interpolate(x, size=(3, 10))),
    ("interpolate/nearest_1d", R(2, 2, 7), lambda x: F.interpolate(x, scale_factor=1.5)),
    ("interpolate/nearest_3d", R(1, 2, 2, 3, 4), lambda x: F.interpolate(x, size=(4, 3, 2))),
    ("interpolate/nearest_exact", R(1, 2, 5, 7), lambda x: F.interpolate(x, size=(3, 10), mode="nearest-exact")),
    ("interpolate/linear", R(2, 2, 5), lambda x: F.interpolate(x, size=8, mode="linear")),
    ("interpolate/bilinear", R(2, 2, 4, 5), lambda x: F.interpolate(x, size=(7, 3), mode="bilinear")),
    ("interpolate/bilinear_corners", R(2, 2, 4, 5),
     lambda x: F.interpolate(x, size=(7, 1), mode="bilinear", align_corners=True)),
    ("interpolate/bilinear_scale", R(1, 2, 4, 5),
     lambda x: F.interpolate(x, scale_factor=(1.6, 0.7), mode="bilinear")),
    ("interpolate/trilinear", R(1, 2, 2, 3, 4), lambda x: F.interpolate(x, size=(4, 2, 5), mode="trilinear")),
    ("interpolate/bicubic", R(1, 2, 4, 5), lambda x: F.interpolate(x, size=(7, 3), mode="bicubic")),
    ("interpolate/bicubic_corners", R(1, 2, 4, 5),
     lambda x: F.interpolate(x, size=(7, 9), mode="bicubic", align_corners=True)),
    ("pixel_shuffle", R(2, 8, 3, 2), lambda x: F.pixel_shuffle(x, 2)),
    ("pixel_unshuffle", R(2, 2, 6, 3), lambda x: F.pixel_unshuffle(x, 3)),
    ("unfold", R(2, 3, 4, 5), lambda x: F.unfold(x, (2, 3))),
    ("unfold/every_option", R(2, 2, 6, 7), lambda x: F.unfold(x, (2, 3), (3, 2), (1, 2), (2, 3))),
    ("fold", R(2, 18, 9), lambda x: F.fold(x, (4, 5), (2, 3))),
    ("fold/every_option", R(2, 12, 9), lambda x: F.fold(x, (6, 7), (2, 3), (3, 2), (1, 2), (2, 3))),
]
