import torch


def spec(*shapes):
    return [(s, -1, 1) for s in shapes]


def complex_of(x):
    return torch.view_as_complex(x.contiguous())


def pairs(z):
    return torch.view_as_real(z.resolve_conj())


def stft(n, hop, center, window):
    w = torch.hann_window(n, dtype=torch.float64) if window else None
    return lambda x: torch.view_as_real(torch.stft(x, n, hop, window=w, center=center, return_complex=True))


WAYS = [
    ("", (3, 8, 2), {}), ("/five", (2, 5, 2), {}), ("/seven", (2, 7, 2), {}), ("/first_axis", (6, 3, 2), {"dim": 0}),
    ("/longer", (2, 5, 2), {"n": 8}), ("/shorter", (2, 7, 2), {"n": 4}), ("/ortho", (2, 6, 2), {"norm": "ortho"}),
    ("/forward", (2, 6, 2), {"norm": "forward"}),
]
OPS = []
for name, shape, options in WAYS:
    OPS += [
        ("fft" + name, spec(shape), lambda x, o=options: pairs(torch.fft.fft(complex_of(x), **o))),
        ("ifft" + name, spec(shape), lambda x, o=options: pairs(torch.fft.ifft(complex_of(x), **o))),
        ("rfft" + name, spec(shape[:-1]), lambda x, o=options: pairs(torch.fft.rfft(x, **o))),
        ("irfft" + name, spec(shape), lambda x, o=options: torch.fft.irfft(complex_of(x), **o)),
    ]
OPS += [
    ("irfft/odd", spec((2, 4, 2)), lambda x: torch.fft.irfft(complex_of(x), 7)),
    ("fft2", spec((2, 3, 4, 2)), lambda x: pairs(torch.fft.fft2(complex_of(x)))),
    ("ifft2", spec((3, 4, 2)), lambda x: pairs(torch.fft.ifft2(complex_of(x)))),
    ("rfft2", spec((3, 5)), lambda x: pairs(torch.fft.rfft2(x))),
    ("irfft2", spec((3, 4, 2)), lambda x: torch.fft.irfft2(complex_of(x), (3, 7))),
    ("fftshift", spec((5, 2)), lambda x: torch.fft.fftshift(x, 0)),
    ("fftshift/even", spec((6, 2)), lambda x: torch.fft.fftshift(x, 0)),
    ("ifftshift", spec((5, 2)), lambda x: torch.fft.ifftshift(x, 0)),
    ("complex_mul", spec((3, 2), (3, 2)), lambda a, b: pairs(complex_of(a) * complex_of(b))),
    ("complex_conj", spec((3, 2)), lambda x: pairs(complex_of(x).conj())),
    ("complex_abs", spec((3, 2)), lambda x: complex_of(x).abs()),
    ("stft", spec((2, 30)), stft(8, 3, True, True)),
    ("stft/plain", spec((1, 30)), stft(8, 5, False, False)),
    ("stft/odd", spec((2, 17)), stft(7, 2, True, True)),
    ("stft/mirrored", spec((1, 5)), stft(8, 1, True, True)),
    ("spectrogram", spec((2, 30)), lambda x: stft(8, 3, True, True)(x).square().sum(-1)),
    ("hann_window", spec((7,)), lambda x: torch.hann_window(7, dtype=torch.float64)),
    ("hamming_window", spec((7,)), lambda x: torch.hamming_window(7, False, dtype=torch.float64)),
]
