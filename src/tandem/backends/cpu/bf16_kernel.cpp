// The choice among the ways to multiply bf16 matrices.
#include <cstdlib>
#include <utility>

#include "tandem/backends/cpu/gemm_bf16.h"
#include "tandem/core/error.h"

namespace tandem::cpu {

#if !defined(__aarch64__) && !defined(__x86_64__)
const Bf16Candidate kBf16Candidates[] = {{nullptr, nullptr}};
#endif

namespace {

const Bf16Kernel* g_kernel = nullptr;
std::string& refusal() {  // what is wrong with TANDEM_BF16, told when the first product asks
  static auto& text = *new std::string;
  return text;
}

}  // namespace

void choose_bf16_kernel(bool wide) {
  const char* variable = std::getenv("TANDEM_BF16");
  const std::string wanted = variable ? variable : "";
  if (wanted == "widened") return;
  std::string here = "widened";
  if (wide)
    for (const Bf16Candidate* c = kBf16Candidates; c->kernel; ++c) {
      if (!c->can_run()) continue;
      if (wanted.empty() || wanted == c->kernel->name) {
        g_kernel = c->kernel;
        return;
      }
      here += str(", ", c->kernel->name);
    }
  if (!wanted.empty())
    refusal() = str("TANDEM_BF16: must name a way to multiply bf16 matrices that this processor has; got '",
                    wanted, "'. Here there are: ", here, ".");
}

const Bf16Kernel* bf16_kernel() {
  if (!refusal().empty()) throw Error(refusal());
  return g_kernel;
}

const Bf16Kernel* use_bf16_kernel(const Bf16Kernel* kernel) { return std::exchange(g_kernel, kernel); }

std::string words_of_bf16(DType dtype) {
  return dtype == DType::bf16 && bf16_kernel() ? str(bf16_kernel()->name, ", ") : "";
}

}  // namespace tandem::cpu
