import torch
import torch.nn.functional as F


def row(mode, padding, corners):
    return (f"grid_sample/{mode}_{padding}{'_corners' if corners else ''}",
            [((2, 3, 5, 6), -1, 1), ((2, 4, 3, 2), -1.6, 1.6)],
            lambda x, grid: F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners))


OPS = [
    *(row(mode, padding, corners) for mode in ("bilinear", "nearest", "bicubic")
      for padding in ("zeros", "border", "reflection") for corners in (False, True)),
    ("affine_grid", [((2, 2, 3), -1, 1)], lambda t: F.affine_grid(t, (2, 1, 3, 4), align_corners=False)),
    ("affine_grid/corners", [((2, 2, 3), -1, 1)], lambda t: F.affine_grid(t, (2, 1, 3, 4), align_corners=True)),
]
