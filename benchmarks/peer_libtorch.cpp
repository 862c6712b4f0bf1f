// LibTorch's side of the add16 case: the peer of a C++ program is a C++ program, not a Python loop. Speaks the JSON
// lines of peer_pytorch.py as far as that case needs. bench.py compiles it against the headers of the peer's PyTorch.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

namespace {

double seconds_per_add(bool recorded, long steps) {
  at::Tensor a = at::ones({16}), b = at::ones({16});
  if (recorded) a.set_requires_grad(true);
  c10::AutoGradMode mode(recorded);
  for (int i = 0; i < 1000; ++i) at::add(a, b);
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < steps; ++i) at::add(a, b);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / static_cast<double>(steps);
}

long number_after(const std::string& line, const std::string& key) {
  const size_t at = line.find("\"" + key + "\":");
  return at == std::string::npos ? 0 : std::atol(line.c_str() + at + key.size() + 3);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line) && line.find("\"quit\"") == std::string::npos;) {
    if (line.find("\"hello\"") != std::string::npos) {
      std::printf("{\"framework\": \"libtorch\"}\n");
    } else {
      at::set_num_threads(static_cast<int>(number_after(line, "threads")));
      const bool recorded = line.find("\"recorded\"") != std::string::npos;
      std::printf("{\"seconds\": [%.12g]}\n", seconds_per_add(recorded, number_after(line, "steps")));
    }
    std::fflush(stdout);
  }
}
