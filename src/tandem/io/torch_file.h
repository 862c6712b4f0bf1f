// PyTorch's files of weights (.pt, .pth): what torch.save writes since version 1.6, a zip archive of a pickle and of the
// raw bytes of the storages. No code of a file is ever run: see io/torch_pickle.h.
#pragma once

#include <string>

#include "tandem/io/safetensors.h"

namespace tandem::io {

/// All tensors of a file, on the CPU, sorted by name. Dicts, lists and tuples within each other give dotted names,
/// "model.fc.weight" or "layers.0.bias"; numbers, strings and None between them are passed over. Each tensor is a copy in
/// row-major order, also where the file has views or shares storages. A file of one bare tensor has it under the name "".
/// Throws Error where the file is damaged, holds anything that Python would have to run, or is of the format before 1.6.
NamedTensors load_torch(const std::string& path);

/// The tensors of a file of weights, told by its first bytes and not by its name: safetensors, PyTorch (.pt, .pth) or
/// npz. For Module::load_state.
NamedTensors load_weights(const std::string& path);

}  // namespace tandem::io
