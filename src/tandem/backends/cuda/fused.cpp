// Compiles fused programs with NVRTC and launches them. Contraction is off, as in the separate kernels: the bits
// are the same. Compiled kernels are kept for the life of the process, by source text.
#include "tandem/backends/cuda/fused.h"

#include <nvrtc.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "tandem/backends/cuda/check.h"

/// The text of these headers, put into the library by the build (cmake/embed.cmake).
extern const char* const tandem_embedded_half_h;
extern const char* const tandem_embedded_elementary_functions_h;
extern const char* const tandem_embedded_scalar_functions_h;

namespace tandem::cuda {
namespace {

void check_nvrtc(nvrtcResult result, const char* call) {
  if (result != NVRTC_SUCCESS) [[unlikely]]
    fail(result == NVRTC_ERROR_OUT_OF_MEMORY,
         str("cuda: ", call, " failed: ", nvrtcGetErrorString(result), "."));
}

/// Machine code for the device's architecture, or PTX of the newest that this NVRTC knows.
std::string compile(const cudaDeviceProp& properties, const std::string& source) {
  int count = 0;
  check_nvrtc(nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<size_t>(count));
  check_nvrtc(nvrtcGetSupportedArchs(known.data()), "nvrtcGetSupportedArchs");
  const int wanted = properties.major * 10 + properties.minor;
  const bool exact = std::find(known.begin(), known.end(), wanted) != known.end();
  const std::string target = exact ? str("--gpu-architecture=sm_", wanted)
                                   : str("--gpu-architecture=compute_", known.empty() ? 75 : known.back());
  const char* options[] = {target.c_str(), "--std=c++17", "--fmad=false"};
  const char* texts[] = {tandem_embedded_half_h, tandem_embedded_elementary_functions_h,
                         tandem_embedded_scalar_functions_h};
  const char* names[] = {"tandem/core/half.h", "tandem/ops/elementary_functions.h",
                         "tandem/ops/scalar_functions.h"};
  nvrtcProgram program = nullptr;
  check_nvrtc(nvrtcCreateProgram(&program, source.c_str(), "fused.cu", 3, texts, names),
              "nvrtcCreateProgram");
  const nvrtcResult result = nvrtcCompileProgram(program, 3, options);
  std::string code;
  size_t bytes = 0;
  if (result != NVRTC_SUCCESS) {
    check_nvrtc(nvrtcGetProgramLogSize(program, &bytes), "nvrtcGetProgramLogSize");
    std::string log(bytes, '\0');
    check_nvrtc(nvrtcGetProgramLog(program, log.data()), "nvrtcGetProgramLog");
    (void)nvrtcDestroyProgram(&program);
    throw InternalError(str("fused kernel: ", nvrtcGetErrorString(result), "\n", log, "\n", source));
  }
  check_nvrtc(exact ? nvrtcGetCUBINSize(program, &bytes) : nvrtcGetPTXSize(program, &bytes),
              "nvrtc code size");
  code.resize(bytes);
  check_nvrtc(exact ? nvrtcGetCUBIN(program, code.data()) : nvrtcGetPTX(program, code.data()), "nvrtc code");
  check_nvrtc(nvrtcDestroyProgram(&program), "nvrtcDestroyProgram");
  return code;
}

/// The lock is held while it compiles: a second thread with the same source waits and finds it. Libraries are never
/// unloaded, since recordings hold their kernels.
cudaKernel_t find_kernel(const DeviceState& state, const std::string& source) {
  static Mutex& mutex = *new Mutex(LockOrder::compiled);
  static auto& kernels = *new std::map<std::pair<int, std::string>, cudaKernel_t>;
  std::lock_guard lock(mutex);
  const std::pair key{state.index, source};
  if (const auto place = kernels.find(key); place != kernels.end()) return place->second;
  const std::string code = compile(state.properties, source);
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cudaLibraryLoadData");
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library, "fused"), "cudaLibraryGetKernel");
  return kernels.emplace(key, kernel).first->second;
}

/// One run-time compiled kernel and the layout of its parameter.
class CompiledKernel final : public FusedKernel {
 public:
  CompiledKernel(cudaKernel_t kernel, FusedSource source) : kernel_(kernel), source_(std::move(source)) {}

  /// The buffers of all programs follow each other in args: inputs of the first, inputs of the second …, and outputs
  /// likewise. Each program has as many blocks as it needs; which blocks are whose the kernel finds from the counts.
  void run(const KernelArgs& args) override {
    std::vector<uint64_t> words(source_.words);
    const Buffer* in = args.in;
    const Buffer* out = args.out;
    int64_t blocks = 0;
    for (const FusedSource::Part& part : source_.parts) {
      uint64_t* to = words.data() + part.first_word;
      const int64_t mine = (part.size + part.per_block - 1) / part.per_block;
      blocks += mine;
      bool wide = true;  // buffers begin at multiples of 64 bytes; views into them may not
      size_t at = 3;
      const auto add = [&](const Buffer& buffer) {
        const auto address = reinterpret_cast<uintptr_t>(buffer.data);
        wide = wide && address % std::min<size_t>(16, 4 * bytes_of(buffer.dtype)) == 0;
        to[at++] = address;
      };
      for (int i = 0; i < part.inputs; ++i) add(*in++);
      for (int o = 0; o < part.outputs; ++o) add(*out++);
      to[0] = static_cast<uint64_t>(part.size);
      to[1] = static_cast<uint64_t>(mine);
      to[2] = wide ? 1 : 0;
    }
    if (blocks == 0) return;
    void* parameters[] = {words.data()};
    check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel_), dim3(static_cast<unsigned>(blocks)),
                           dim3(128), parameters, 0, stream_of(args)),
          "cudaLaunchKernel of a fused kernel");
  }

 private:
  cudaKernel_t kernel_;
  FusedSource source_;
};

}  // namespace

std::unique_ptr<FusedKernel> compile_fused(DeviceState& state, const std::vector<FusedProgram>& programs) {
  FusedSource source = write_fused_source(programs);
  const cudaKernel_t kernel = find_kernel(state, source.text);
  return std::make_unique<CompiledKernel>(kernel, std::move(source));
}

}  // namespace tandem::cuda
