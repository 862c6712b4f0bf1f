import torch
from torchvision.ops import roi_align


def row(name, size, boxes, **options):
    def call(x, drawn, images):
        boxes = torch.cat([drawn[:, :2], drawn[:, :2] + drawn[:, 2:]], 1)
        return roi_align(x, torch.cat([images[:, None].double(), boxes], 1), size, **options)
    return (name, [((2, 3, 6, 7), -1, 1), boxes, ((boxes[0][0],), 0, 2, "index64")], call)


OPS = [
    row("roi_align", (3, 2), ((4, 4), 0.3, 3), sampling_ratio=2),
    row("roi_align/aligned", 2, ((5, 4), -2, 5), spatial_scale=0.75, sampling_ratio=3, aligned=True),
    row("roi_align/one_point", (1, 3), ((5, 4), -2, 5), spatial_scale=1.5, sampling_ratio=1),
]
