import torch


def spec(*shapes):
    return [(s, -1, 1) for s in shapes]


def regular(x):
    return x + 3 * torch.eye(x.shape[-1], dtype=x.dtype)


def positive(x):
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def symmetric(x):
    return x + x.mT + torch.diag(2 * torch.arange(x.shape[-1], dtype=x.dtype))


def joined(*parts):
    return torch.cat([p.flatten() for p in parts])


def triangular(upper, left, unit):
    return lambda a, b: torch.linalg.solve_triangular(regular(a), b, upper=upper, left=left, unitriangular=unit)


def qr(x):
    return joined(*torch.linalg.qr(x))


def svd(x):
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    return joined(s, u.abs(), vh.abs())


def eigh(x):
    values, vectors = torch.linalg.eigh(symmetric(x))
    return joined(values, vectors.abs())


def slogdet(x):
    sign, logabsdet = torch.linalg.slogdet(x)
    return 2 * logabsdet + sign


OPS = [
    ("cholesky", spec((4, 4)), lambda x: torch.linalg.cholesky(positive(x))),
    ("cholesky/batch", spec((2, 2, 3, 3)), lambda x: torch.linalg.cholesky(positive(x))),
    ("cholesky/upper", spec((4, 4)), lambda x: torch.linalg.cholesky(positive(x), upper=True)),
    ("solve", spec((4, 4), (4, 3)), lambda a, b: torch.linalg.solve(regular(a), b)),
    ("solve/vector", spec((4, 4), (4,)), lambda a, b: torch.linalg.solve(regular(a), b)),
    ("solve/batch", spec((3, 2, 2), (3, 2, 4)), lambda a, b: torch.linalg.solve(regular(a), b)),
    ("triangular_solve/lower", spec((3, 3), (3, 2)), triangular(False, True, False)),
    ("triangular_solve/upper", spec((3, 3), (3, 2)), triangular(True, True, False)),
    ("triangular_solve/lower_right", spec((3, 3), (2, 3)), triangular(False, False, False)),
    ("triangular_solve/upper_right", spec((3, 3), (2, 3)), triangular(True, False, False)),
    ("triangular_solve/upper_unit", spec((3, 3), (3, 2)), triangular(True, True, True)),
    ("triangular_solve/lower_right_unit", spec((3, 3), (2, 3)), triangular(False, False, True)),
    ("inverse", spec((2, 4, 4)), lambda x: torch.linalg.inv(regular(x))),
    ("det", spec((3, 4, 4)), torch.linalg.det),
    ("slogdet", spec((3, 4, 4)), slogdet),
    ("qr", spec((4, 4)), qr),
    ("qr/tall", spec((5, 3)), qr),
    ("qr/wide", spec((3, 5)), qr),
    ("svd", spec((4, 4)), svd),
    ("svd/tall", spec((5, 3)), svd),
    ("svd/wide", spec((3, 5)), svd),
    ("eigh", spec((4, 4)), eigh),
    ("lstsq", spec((5, 3), (5, 2)), lambda a, b: torch.linalg.lstsq(a, b).solution),
    ("pinv", spec((4, 3)), torch.linalg.pinv),
]
