import torch
import torch.nn.functional as F

OPS = [
    ("matmul", [((3, 4), -1, 1), ((4, 5), -1, 1)], torch.matmul),
    ("matmul/broadcast_batch", [((2, 1, 3, 4), -1, 1), ((3, 4, 2), -1, 1)], torch.matmul),
    ("matmul/row", [((4,), -1, 1), ((4, 3), -1, 1)], torch.matmul),
    ("matmul/batch_by_vector", [((2, 3, 4), -1, 1), ((4,), -1, 1)], torch.matmul),
    ("linear", [((4, 6), -1, 1), ((5, 6), -1, 1), ((5,), -1, 1)], F.linear),
]
