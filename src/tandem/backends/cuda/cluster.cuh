// What blocks of a cluster send to each other's shared memory, from compute capability 9.0 on. A Mailbox counts the bytes that have come:
// who waits for it sees them, and neither side needs a fence (a barrier of the cluster that orders memory costs one of the whole device).
#pragma once
#include "tandem/backends/cuda/check.h"

namespace tandem::cuda {

/// Launches `clusters` clusters of `blocks` blocks each, with shared memory beyond what a kernel has unasked.
template <class Sequence>
void launch_clusters(void (*kernel)(Sequence), const Sequence& s, int64_t clusters, int blocks, int threads,
                     size_t shared_bytes, cudaStream_t stream) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        "cudaFuncSetAttribute");
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(blocks);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, s), "cudaLaunchKernelEx");
}

#if __CUDA_ARCH__ >= 900
/// This block's number in its cluster.
__device__ inline int block_of_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
/// Every thread of the cluster comes here: what was written before is seen after it.
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
/// Where something of this block's shared memory lies in that of another block of the cluster.
__device__ inline unsigned address_in(const void* here, int block) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(here))), "r"(block));
  return there;
}

/// In shared memory; each round all bytes of one delivery.
struct Mailbox {
  unsigned long long state;

  /// One thread does it; others of the cluster see it after wait_for_cluster().
  __device__ void init() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here()) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  /// One thread says once a round how much will come, before or after it does.
  __device__ void expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(here()), "r"(bytes)
                 : "memory");
  }
  __device__ void wait(unsigned round) {
    unsigned done;
    do
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(done)
          : "r"(here()), "r"(round % 2)
          : "memory");
    while (!done);
  }
  __device__ unsigned here() { return static_cast<unsigned>(__cvta_generic_to_shared(&state)); }
};

/// To an address in the shared memory of a block, whose Mailbox is at `box`; both by address_in(). Good for few numbers: a
/// multiprocessor sends about one of them per clock.
__device__ inline void send(unsigned to, float value, unsigned box) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to),
               "f"(value), "r"(box)
               : "memory");
}
/// Two neighbouring numbers, to an address that is a multiple of their size.
__device__ inline void send(unsigned to, float first, float second, unsigned box) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
      "f"(first), "f"(second), "r"(box)
      : "memory");
}
#endif

}  // namespace tandem::cuda
