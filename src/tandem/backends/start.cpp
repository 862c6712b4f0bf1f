// Start-up: the one file that names the backends. Runs when the library is loaded.
#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "tandem/backends/cpu/backend.h"
#include "tandem/core/backend.h"
#include "tandem/ops/define.h"

namespace tandem {

namespace {

/// Opens libtandem_cuda.so beside this library. Returns the reason where that does not work.
std::string load_cuda() {
  // Where no GPU may be seen, CUDA's libraries, which take longer to open than many a program takes to run, stay closed.
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
      visible && (*visible == 0 || *visible == '-'))
    return std::string("CUDA_VISIBLE_DEVICES is '") + visible + "', which hides every GPU";
  Dl_info here{};
  std::string path = "libtandem_cuda.so";
  if (dladdr(reinterpret_cast<const void*>(&load_cuda), &here) && here.dli_fname) {
    const std::string file = here.dli_fname;
    if (const size_t slash = file.rfind('/'); slash != std::string::npos)
      path = file.substr(0, slash + 1) + path;
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::string("libtandem_cuda.so could not be opened (") + dlerror() + ")";
  using Start = const char* (*)();
  const auto start = reinterpret_cast<Start>(dlsym(library, "tandem_cuda_start"));
  if (!start) return "libtandem_cuda.so is not of this version of Tandem";
  const char* reason = start();
  return reason ? reason : "";
}

const bool g_started = [] {
  define_all_ops();
  cpu::start();
  set_backend_loader(DeviceKind::cuda, load_cuda);
  return true;
}();

}  // namespace

}  // namespace tandem
