"""Exchanges weights with Tandem (nn_zoo_test.cpp runs this).

    python3 tests/golden/interchange.py FOLDER MODEL …

For each model, FOLDER holds MODEL.safetensors, weights that Tandem wrote, and MODEL.io.safetensors with an input and
the logits that Tandem gives for it. Loads the weights into PyTorch's twin, compares the logits, and writes
MODEL.back.safetensors, fresh weights of the twin, and MODEL.back.io.safetensors with the twin's logits for the same
input. Exit status 77: something that is needed is not installed.
"""
import pathlib
import sys

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(error)
    sys.exit(77)

from models import MODELS

folder = pathlib.Path(sys.argv[1])
torch.manual_seed(1)
for name in sys.argv[2:]:
    given = load_file(folder / f"{name}.io.safetensors")
    classes, shape = given["logits"].shape[1], tuple(given["input"].shape[1:])
    model = MODELS[name](classes, shape).eval()
    with torch.no_grad():
        model.load_state_dict(load_file(folder / f"{name}.safetensors"), strict=True)
        logits = model(given["input"])
        error = ((logits - given["logits"]).abs() / (1 + logits.abs())).max().item()
        if not error < 1e-5:
            sys.exit(f"{name}: logits differ by {error:g}")
        twin = MODELS[name](classes, shape).eval()
        # PyTorch counts the batches of a batch norm too, for a mode of it that Tandem does not have.
        state = {key: value for key, value in twin.state_dict().items() if not key.endswith("num_batches_tracked")}
        save_file(state, folder / f"{name}.back.safetensors")
        save_file({"logits": twin(given["input"])}, folder / f"{name}.back.io.safetensors")
