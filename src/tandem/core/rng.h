// Random numbers: Philox 4×32-10, a function of (seed, position), so that any element can be drawn on its
// own, on any device and in any order, with the same bits. Plain C++ for the part that GPU kernels share.
#pragma once

#include "tandem/core/half.h"
#include "tandem/core/kernel.h"

namespace tandem {

struct PhiloxBlock {
  unsigned x[4];
};

/// Block number `counter` of the stream `seed`: four 32-bit random words.
TD_HD PhiloxBlock philox(unsigned long long seed, unsigned long long counter) {
  unsigned c0 = static_cast<unsigned>(counter), c1 = static_cast<unsigned>(counter >> 32), c2 = 0, c3 = 0;
  unsigned k0 = static_cast<unsigned>(seed), k1 = static_cast<unsigned>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    const unsigned n0 = static_cast<unsigned>(p1 >> 32) ^ c1 ^ k0,
                   n2 = static_cast<unsigned>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<unsigned>(p1);
    c3 = static_cast<unsigned>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// [0, 1) with 24 random bits: the same float on every device.
TD_HD float uniform_from_bits(unsigned bits) {
  return static_cast<float>(bits >> 8) * 5.9604644775390625e-8f;
}

/// Element i of a random op takes word i % 4 of block offset + i / 4. This is the block after the last of n
/// elements.
constexpr uint64_t philox_blocks(int64_t n) { return (static_cast<uint64_t>(n) + 3) / 4; }

/// The stream that random ops of this thread draw from: a seed and a position. The whole state is these two
/// numbers. The main thread begins with seed 0. Every other thread begins with a seed of its own, by the order in which
/// the threads first ask; manual_seed in the thread makes its numbers independent of that order.
struct GeneratorState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};
GeneratorState generator_state();
void set_generator_state(GeneratorState state);
/// Seeds this thread's stream and goes to its start.
void manual_seed(uint64_t seed);
/// Takes `blocks` blocks from the stream and returns where they begin.
RngPosition take_random(uint64_t blocks);

}  // namespace tandem
