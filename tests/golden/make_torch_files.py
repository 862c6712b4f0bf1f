#!/usr/bin/env python3
"""Writes tests/golden/torch: small files of torch.save, as torch_file_test.cpp reads them. Needs PyTorch and NumPy.

Values come from the hash of make_golden.py under the salt of the tensor's name, so the test computes them too."""
import collections
import io
import pathlib
import warnings
import zipfile

import torch

from make_golden import hash_array, name_salt

folder = pathlib.Path(__file__).parent / "torch"
folder.mkdir(exist_ok=True)

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8,
    "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16,
    "u32": torch.uint32, "u64": torch.uint64, "bool": torch.bool,
}


def made(name, *shape):
    return hash_array(shape, name_salt(name)).float()


def save(name, value, **options):
    torch.save(value, folder / name, **options)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
        self.fc = torch.nn.Linear(8, 3)


net = Net()
with torch.no_grad():
    for name, tensor in net.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(made(name, *tensor.shape))
save("state_dict.pt", net.state_dict())
save("protocol4.pth", net.state_dict(), pickle_protocol=4)
save("legacy.pt", net.state_dict(), _use_new_zipfile_serialization=False)
save("whole_model.pt", torch.nn.Linear(1, 1))
save("complex.pt", {"z": torch.ones(1, dtype=torch.complex64)})
save("tensor.pt", made("", 2, 3))

values = {}
for name, dtype in DTYPES.items():
    low = 0 if name[0] == "u" or name == "bool" else -100
    x = hash_array((2, 3), name_salt(name), low, 2 if name == "bool" else 100)
    values[name] = (x if dtype.is_floating_point else x.trunc().to(torch.int64)).to(dtype)
save("dtypes.pt", values)

base = made("base", 4, 6)
save("views.pt", {
    "base": base, "transposed": base.t(), "columns": base[1:3, 1::2], "row": base[2], "scalar": base[3, 5],
    "expanded": base[0].expand(3, 6), "empty": base[:, :0], "four": made("four", 2, 3, 4, 5).permute(2, 0, 3, 1),
    "channels_last": made("channels_last", 2, 3, 2, 2).to(memory_format=torch.channels_last),
})

weight = torch.nn.Parameter(made("model.weight", 3, 2))
moment = made("optimizer.state.0.exp_avg", 3, 2)
save("checkpoint.pt", {
    "model": collections.OrderedDict(weight=weight, tied=weight),
    "optimizer": {"state": {0: {"step": torch.tensor(7.0), "exp_avg": moment}},
                  "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None, "nesterov": True}]},
    "losses": [made("losses.0", 2), made("losses.1", 1)],
    "epoch": 300, "seed": 2**63 + 11, "offset": -70000, "note": "naïve",
})

warnings.simplefilter("ignore")
script = io.BytesIO()
torch.jit.save(torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1, 1)), script)
with zipfile.ZipFile(script) as whole, zipfile.ZipFile(folder / "script.pt", "w") as part:
    for name in whole.namelist():
        if not name.endswith(".debug_pkl"):  # it names the places of the sources
            part.writestr(zipfile.ZipInfo(name), whole.read(name))
