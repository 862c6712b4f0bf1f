// One model, many threads: inference needs no lock. Each thread compiles the forward pass for itself and checks its results
// against the eager ones.
#include <atomic>
#include <cstdio>
#include <thread>

#include "tandem/tandem.h"

using namespace tandem;

int main() {
  manual_seed(1);
  const auto model = zoo::make_model("lenet");
  model->eval();

  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client)
    clients.emplace_back([&, client] {
      const NoGrad off;
      manual_seed(100 + static_cast<uint64_t>(client));
      Compiled forward =
          compile([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{(*model)(in[0])}; });
      for (int request = 0; request < 20; ++request) {
        const Tensor image = uniform({1, 1, 28, 28});
        if (forward({image})[0].to_vector<float>() != (*model)(image).to_vector<float>()) ++wrong;
      }
    });
  for (std::thread& client : clients) client.join();
  std::printf("80 requests from 4 threads, %d answers that differ\n", wrong.load());
  return wrong;
}
