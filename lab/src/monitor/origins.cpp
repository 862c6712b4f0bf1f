// Where a study comes from: the environment's variables, the commit of the source, the hashes of files.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "lab/src/monitor/kept_file.h"
#include "lab/src/monitor/machine.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/io/sha256.h"

namespace tandem::lab {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Beginnings of the names of variables that threads, mathematics libraries, compilers and frameworks listen to.
constexpr std::array kPrefixes = {
    "OMP_",           "GOMP_",        "KMP_",       "MKL_",    "OPENBLAS_",      "BLIS_",
    "VECLIB_",        "NUMEXPR_",     "DNNL_",      "ONEDNN_", "ATEN_",          "TORCH",
    "PYTORCH_",       "TF_",          "TENSORFLOW", "KERAS_",  "XLA_",           "JAX_",
    "TRITON_",        "ORT_",         "ONNX",       "MXNET_",  "CHAINER_",       "CUPY_",
    "THEANO_",        "PYTENSOR_",    "CUDA_",      "CUDNN_",  "CUBLAS_",        "NVIDIA_",
    "NCCL_",          "TANDEM_",      "MALLOC_",    "LD_",     "GLIBC_TUNABLES", "PYTHONHASHSEED",
    "PYTHONOPTIMIZE", "PYTHONMALLOC", "VIRTUAL_ENV"};
constexpr std::array kSecretWords = {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"};

bool is_commit(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// The commit that a name such as refs/heads/main stands for.
std::string resolve(const fs::path& git, const fs::path& common, const std::string& name) {
  for (const fs::path& folder : {git, common}) {
    const std::string commit = read_small((folder / name).string());
    if (is_commit(commit)) return commit;
  }
  const std::string packed = read_small((common / "packed-refs").string());
  std::string_view rest = packed;
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    const size_t blank = line.find(' ');
    if (blank != std::string_view::npos && line.substr(blank + 1) == name && is_commit(line.substr(0, blank)))
      return std::string(line.substr(0, blank));
  }
  return "";
}

}  // namespace

json environment_variables(const char* const* environment) {
  json out = json::object();
  for (; environment && *environment; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = entry.substr(0, equals);
    const bool matters = std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                     [&](const char* prefix) { return name.starts_with(prefix); });
    const bool secret = std::any_of(kSecretWords.begin(), kSecretWords.end(), [&](const char* word) {
      return name.find(word) != std::string_view::npos;
    });
    if (matters && !secret) out[std::string(name)] = std::string(entry.substr(equals + 1));
  }
  return out;
}

json git_commit(const std::string& folder) {
  if (folder.empty()) return nullptr;
  std::error_code error;
  fs::path at = fs::absolute(folder, error);
  while (!error && !fs::exists(at / ".git", error) && at.has_relative_path()) at = at.parent_path();
  fs::path git = at / ".git";
  if (!fs::exists(git, error)) return nullptr;
  if (fs::is_regular_file(git, error)) {  // a further working tree: the file says where its folder is
    const std::string link = read_small(git.string());
    if (!link.starts_with("gitdir: ")) return nullptr;
    git = at / link.substr(8);
  }
  const std::string shared = read_small((git / "commondir").string());
  const fs::path common = shared.empty() ? git : git / shared;
  const std::string head = read_small((git / "HEAD").string());
  if (is_commit(head)) return head;
  if (!head.starts_with("ref: ")) return nullptr;
  const std::string commit = resolve(git, common, head.substr(5));
  return commit.empty() ? json() : json(commit);
}

json file_json(const std::string& path) {
  try {
    io::InputFile file("hash", path);
    io::Sha256 sum;
    std::vector<char> piece(size_t{1} << 20);
    for (int64_t left = file.bytes(); left > 0;) {
      const auto bytes = static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(piece.size())));
      file.read(piece.data(), bytes);
      sum.update(piece.data(), bytes);
      left -= static_cast<int64_t>(bytes);
    }
    return {{"sha256", sum.hex()}, {"bytes", file.bytes()}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace tandem::lab
