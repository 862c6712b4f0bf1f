// full, arange and the random ops. Element i of a random op depends on (seed, offset, i) alone.
#include "tandem/ops/random.h"

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

namespace {

void full(const KernelArgs& args) {
  const auto& a = args.attributes<FullAttrs>();
  const Buffer& out = args.out[0];
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    T value;
    if constexpr (std::is_class_v<T>)
      value = T(static_cast<float>(a.value));
    else if constexpr (std::is_floating_point_v<T>)
      value = static_cast<T>(a.value);
    else
      value = static_cast<T>(a.integer);
    T* data = out.as<T>();
    parallel_ranges(out.size(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i] = value;
    });
  });
}

void arange(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* data = out.as<T>();
    const int64_t n = out.size();
    for (int64_t i = 0; i < n; ++i) data[i] = CastTo<T, int64_t>::apply(i);
  });
}

/// Calls make(words of a block, four floats out) for each block of four elements.
template <class F>
void fill_random(const KernelArgs& args, F&& make) {
  const Buffer& out = args.out[0];
  const uint64_t seed = args.rng.base ? args.rng.base[0] : args.rng.seed;
  const uint64_t offset = args.rng.offset + (args.rng.base ? args.rng.base[1] : 0);
  const int64_t n = out.size();
  visit_floating(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* data = out.as<T>();
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {  // kGrain is a multiple of 4
      for (int64_t i = begin; i < end; i += 4) {
        float four[4];
        make(philox(seed, offset + static_cast<uint64_t>(i / 4)), four);
        for (int64_t k = 0; k < 4 && i + k < end; ++k) data[i + k] = static_cast<T>(four[k]);
      }
    });
  });
}

void uniform(const KernelArgs& args) {
  const auto& a = args.attributes<RandomAttrs>();
  const float low = static_cast<float>(a.a), range = static_cast<float>(a.b) - static_cast<float>(a.a);
  fill_random(args, [=](const PhiloxBlock& block, float* four) {
    for (int k = 0; k < 4; ++k) four[k] = low + uniform_from_bits(block.x[k]) * range;
  });
}

void normal(const KernelArgs& args) {
  const auto& a = args.attributes<RandomAttrs>();
  const float mean = static_cast<float>(a.a), deviation = static_cast<float>(a.b);
  fill_random(args, [=](const PhiloxBlock& block, float* four) {
    for (int k = 0; k < 4; k += 2) {
      const NormalPair pair = normal_pair(block.x[k], block.x[k + 1]);
      four[k] = mean + deviation * pair.first;
      four[k + 1] = mean + deviation * pair.second;
    }
  });
}

void bernoulli(const KernelArgs& args) {
  const float p = static_cast<float>(args.attributes<RandomAttrs>().a);
  fill_random(args, [=](const PhiloxBlock& block, float* four) {
    for (int k = 0; k < 4; ++k) four[k] = uniform_from_bits(block.x[k]) < p ? 1.f : 0.f;
  });
}

}  // namespace

void register_random_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_full().kernels[cpu] = full;
  op_arange().kernels[cpu] = arange;
  op_uniform().kernels[cpu] = uniform;
  op_normal().kernels[cpu] = normal;
  op_bernoulli().kernels[cpu] = bernoulli;
}

}  // namespace tandem::cpu::TD_ISA
