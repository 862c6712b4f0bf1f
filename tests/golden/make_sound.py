#!/usr/bin/env python3
"""Writes tests/golden/sound.txt: torchaudio's spectrograms, mel spectrograms and resampling, for sound_test.cpp; and
tests/golden/sound/stereo.flac. Needs PyTorch, torchaudio, NumPy and libsndfile."""
import ctypes
import ctypes.util

import numpy as np
import torch
import torchaudio

from make_golden import HERE, hash_array, shape_text

lines = []


def signal(count, salt):
    return hash_array((count,), salt, -0.5, 0.5).float()


def write(name, value):
    lines.append(f"{name} {shape_text(value.shape)} " + " ".join(f"{v:.8g}" for v in value.double().flatten().tolist()))


def log(x, floor=1e-5):
    return torch.log(torch.clamp(x, min=floor)).T


ours = torchaudio.transforms.Spectrogram(n_fft=320, hop_length=160, power=1, window_fn=torch.hamming_window)
frames = log(ours(signal(900, 501)))
write("deepspeech2", (frames - frames.mean()) / frames.std(correction=0))

tacotron = torchaudio.transforms.MelSpectrogram(
    sample_rate=22050, n_fft=1024, hop_length=256, f_min=0, f_max=8000, n_mels=80, power=1, norm="slaney",
    mel_scale="slaney")
write("tacotron2", log(tacotron(signal(1500, 502))))

htk = torchaudio.transforms.MelSpectrogram(sample_rate=16000, n_fft=512, win_length=400, hop_length=160, f_min=20,
                                           n_mels=23)
write("htk", log(htk(signal(1000, 503)), 1e-3))

htk_area = torchaudio.transforms.MelSpectrogram(sample_rate=16000, n_fft=512, win_length=400, hop_length=160, f_min=20,
                                                n_mels=23, norm="slaney")
write("htk_area", log(htk_area(signal(1000, 503)), 1e-8))

for before, after in ((22050, 16000), (16000, 22050), (8000, 16000), (48000, 16000), (44100, 16000)):
    # In double precision: in single, its weights are off by up to 1e-5.
    write(f"resample_{before}_{after}", torchaudio.functional.resample(signal(400, 504).double(), before, after))

(HERE / "sound.txt").write_text("\n".join(lines) + "\n")


class Info(ctypes.Structure):
    _fields_ = [("frames", ctypes.c_int64), ("rate", ctypes.c_int), ("channels", ctypes.c_int),
                ("format", ctypes.c_int), ("sections", ctypes.c_int), ("seekable", ctypes.c_int)]


def write_flac(path, samples, rate):
    """samples: i16 (frames, channels)."""
    library = ctypes.CDLL(ctypes.util.find_library("sndfile"))
    library.sf_open.restype = ctypes.c_void_p
    info = Info(0, rate, samples.shape[1], 0x170000 | 2, 0, 0)  # flac, 16 bits
    file = library.sf_open(str(path).encode(), 0x20, ctypes.byref(info))
    library.sf_writef_short(ctypes.c_void_p(file), samples.ctypes.data_as(ctypes.c_void_p),
                            ctypes.c_int64(len(samples)))
    library.sf_close(ctypes.c_void_p(file))


# Two channels, of whole numbers that the test computes as well.
i = np.arange(700)
write_flac(HERE / "sound" / "stereo.flac",
           np.ascontiguousarray(np.stack([i * 40 - 14000, (i % 50) * 300], axis=1).astype(np.int16)), 16000)
