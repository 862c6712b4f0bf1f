#!/usr/bin/env python3
"""Writes tests/golden/images: small image files of every kind with what Pillow reads from them in RGB, and what
torchvision and Pillow make of one image by resizing, turning and colour changes. Needs Pillow, NumPy, PyTorch and
torchvision."""
import pathlib

import numpy as np
import torch
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode

folder = pathlib.Path(__file__).parent / "images"
folder.mkdir(exist_ok=True)


def scene(height, width):
    """Smooth colours with edges: something that resizing and JPEG treat differently everywhere."""
    y, x = np.mgrid[0:height, 0:width]
    r = 128 + 100 * np.sin(x / 5.0) * np.cos(y / 7.0)
    g = 255.0 * ((x // 6 + y // 5) % 2) * 0.8 + 20
    b = 255.0 * x * y / (width * height)
    return np.stack([r, g, b], 2).clip(0, 255).astype(np.uint8)


rgb = Image.fromarray(scene(37, 45))
files = {
    "palette.png": (rgb.quantize(16), {}),
    "gray16.png": (Image.fromarray((np.asarray(rgb.convert("L")).astype(np.uint16) * 257)), {}),
    "bilevel.png": (rgb.convert("1"), {}),
    "rgba.png": (Image.merge("RGBA", (*rgb.split(), rgb.convert("L"))), {}),
    "gray.jpg": (rgb.convert("L"), {}),
    "rgb420.jpg": (rgb, {"quality": 80, "subsampling": "4:2:0"}),
    "progressive.jpg": (rgb, {"quality": 90, "progressive": True}),
    "cmyk.jpg": (rgb.convert("CMYK"), {"quality": 95}),
}


def write_interlaced(path):
    """Pillow writes no interlaced PNG: the seven passes by hand."""
    import struct
    import zlib

    pixels = scene(11, 13)
    data = b""
    for x0, y0, dx, dy in [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]:
        part = pixels[y0::dy, x0::dx]
        if part.size:
            data += b"".join(b"\0" + row.tobytes() for row in part)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 13, 11, 8, 2, 0, 0, 1)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


for name, (image, options) in files.items():
    image.save(folder / name, **options)
write_interlaced(folder / "interlaced.png")
for name in [*files, "interlaced.png"]:
    image = Image.open(folder / name)
    if name == "gray16.png":  # Pillow cuts 16 bits off instead of scaling: scale here
        gray = (np.asarray(image).astype(np.float64) / 257).round().astype(np.uint8)
        image = Image.fromarray(gray)
    np.save(folder / f"{name}.npy", np.ascontiguousarray(np.asarray(image.convert("RGB")).transpose(2, 0, 1)))

# One image through every deterministic operation. Names are those of the cases in tests/data_transforms_test.cpp.
image = scene(23, 31)
u8 = torch.from_numpy(image.transpose(2, 0, 1).copy())
f32 = u8.float() / 255
pil = Image.fromarray(image)


def of_pil(made):
    return torch.from_numpy(np.asarray(made).transpose(2, 0, 1).copy())


bilinear, nearest = InterpolationMode.BILINEAR, InterpolationMode.NEAREST
cases = {"input": u8}
for height, width in [(11, 17), (40, 61), (23, 9), (7, 31), (5, 5)]:
    cases[f"resize_u8_{height}x{width}"] = of_pil(pil.resize((width, height), Image.BILINEAR))
    cases[f"resize_f32_{height}x{width}"] = F.resize(f32, [height, width], bilinear, antialias=True)
    cases[f"nearest_u8_{height}x{width}"] = of_pil(pil.resize((width, height), Image.NEAREST))
cases["short_side_u8_16"] = of_pil(F.resize(pil, 16, bilinear))
for degrees in [15, 90, -37]:
    cases[f"rotate_f32_{degrees}"] = F.rotate(f32, degrees, bilinear)
    cases[f"rotate_nearest_u8_{degrees}"] = F.rotate(u8, degrees, nearest)
for kind, image in [("u8", u8), ("f32", f32)]:
    cases[f"brightness_{kind}"] = F.adjust_brightness(image, 1.3)
    cases[f"contrast_{kind}"] = F.adjust_contrast(image, 0.6)
    cases[f"saturation_{kind}"] = F.adjust_saturation(image, 1.7)
    cases[f"hue_{kind}"] = F.adjust_hue(image, 0.2)
    cases[f"hue_back_{kind}"] = F.adjust_hue(image, -0.35)
    cases[f"grayscale_{kind}"] = F.rgb_to_grayscale(image)
cases["center_crop"] = F.center_crop(u8, [10, 14])
cases["center_crop_padded"] = F.center_crop(u8, [30, 14])
cases["normalised"] = F.normalize(f32, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
np.savez_compressed(folder / "operations.npz", **{name: value.numpy() for name, value in cases.items()})
