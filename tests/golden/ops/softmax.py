import torch.nn.functional as F

OPS = [
    ("softmax", [((4, 7), -3, 3)], lambda x: F.softmax(x, -1)),
    ("softmax/middle_axis", [((2, 5, 3), -3, 3)], lambda x: F.softmax(x, 1)),
    ("log_softmax", [((4, 7), -3, 3)], lambda x: F.log_softmax(x, -1)),
    ("softmin", [((4, 7), -3, 3)], lambda x: F.softmin(x, -1)),
    ("log_softmax/first_axis", [((4, 3), -3, 3)], lambda x: F.log_softmax(x, 0)),
]
